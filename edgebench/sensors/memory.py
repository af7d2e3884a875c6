"""Memory by named methods that look from outside the engine's process. Its own are in `edgebench.environment`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.host_files import number, text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def available_bytes(root: Path) -> int | None:
    """MemAvailable: what could be taken without swapping, by anyone."""
    return _field(text(root / "proc/meminfo"), "MemAvailable:")


def pss_bytes(proc: Path, pids: Iterable[int]) -> int | None:
    """Proportional set size of processes: a page that several share counts in parts. It costs milliseconds a GiB."""
    found = [_field(text(proc / str(pid) / "smaps_rollup"), "Pss:") for pid in pids]
    known = [n for n in found if n is not None]
    return sum(known) if known and len(known) == len(found) else None


def cgroup_peak_bytes(root: Path) -> int | None:
    """The largest use of this process's control group since it was made: all that runs in the container."""
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, place = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            paths = [f"sys/fs/cgroup{place}/memory.peak", "sys/fs/cgroup/memory.peak"]
        elif "memory" in controllers.split(","):
            file = "memory.max_usage_in_bytes"
            paths = [f"sys/fs/cgroup/memory{place}/{file}", f"sys/fs/cgroup/memory/{file}"]
        else:
            continue
        for path in paths:
            if ".." not in path and (found := number(root / path)) is not None:
                return found
    return None


def _field(content: str | None, name: str) -> int | None:
    for line in (content or "").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None
