"""Small files of /proc and /sys, below a root of choice, and the cores that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = "EDGEBENCH_HOST_ROOT"
"""Where the host's /proc and /sys are, for containers that have them elsewhere."""


def host_root() -> Path:
    """`$EDGEBENCH_HOST_ROOT`, else '/'."""
    return Path(os.environ.get(ROOT) or "/")


def text(path: Path) -> str | None:
    """The stripped content; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def number(path: Path, base: int = 10) -> int | None:
    """The content as an integer; None where there is none."""
    found = text(path)
    try:
        return None if found is None else int(found.split()[0], base)
    except (ValueError, IndexError):
        return None


def usable_cpus() -> frozenset[int]:
    """Numbers of the logical cores that this process may use; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
