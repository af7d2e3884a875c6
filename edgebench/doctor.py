"""What is installed, which engines can build and run here, and what the host has. Nothing is changed."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from edgebench import devices
from edgebench.apart import Apart, Died
from edgebench.engines import ENGINES
from edgebench.engines.base import Availability
from edgebench.engines.others import offered
from edgebench.engines.probe import probe
from edgebench.environment import address_space_limit_bytes, available_memory_bytes, describe_host, installed
from edgebench.media.pixels import in_use
from edgebench.places import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

LIMIT_S = 90.0
"""For looking at one engine: importing torch takes half a minute on a small board."""
AT_ONCE = 2
"""Engines that are looked at side by side."""
HIDDEN_EXTRAS = ("dev",)


def diagnose(limit_s: float = LIMIT_S) -> dict[str, Any]:
    """All of it, as plain data.

    Args:
        limit_s: an engine that has not answered after so many seconds is taken to hang.
    """
    others = offered()
    rows = ENGINES | others.engines
    with ThreadPoolExecutor(AT_ONCE) as pool:
        gpus = pool.submit(_nvidia, limit_s)
        asked = {name: pool.submit(_engine, name, target, limit_s) for name, (target, _) in rows.items()}
        found = {name: engine.result() for name, engine in asked.items()}
        nvidia = gpus.result()
    free, total = devices.disk(cache_folder())
    return {
        "host": asdict(describe_host()),
        "cpu": asdict(devices.cpu()),
        "memory": {
            "available_bytes": available_memory_bytes(),
            "address_space_limit_bytes": address_space_limit_bytes(),
        },
        "power_mode": devices.power_mode(),
        "nvidia": nvidia,
        "device_files": devices.accelerators(),
        "cache": {"folder": str(cache_folder()), "free_bytes": free, "total_bytes": total},
        "pixels": in_use(),
        "engines": {name: {"summary": rows[name][1], **asdict(can)} for name, can in found.items()},
        "refused": others.refused,
        "extras": _extras(),
    }


def _engine(name: str, target: str, limit_s: float) -> Availability:
    said = _in_a_process(limit_s, probe, name, target)
    return Availability(runs=False, reason=said) if isinstance(said, str) else Availability(**said)


def _nvidia(limit_s: float) -> dict[str, Any]:
    """By the library where it is there, else by the driver's files."""
    said = _in_a_process(limit_s, _send_nvml)
    found = devices.Nvidia(unknown=said) if isinstance(said, str) else devices.Nvidia(**said)
    return asdict(found if found.unknown is None else replace(devices.nvidia(), unknown=found.unknown))


def _send_nvml(connection: Connection) -> None:
    connection.send(asdict(devices.nvml()))


def _in_a_process(limit_s: float, function: Callable[..., None], *arguments: Any) -> Any:
    """What the function sends, or, as text, how its process ended."""
    process = Apart(function, *arguments, name="a process that only looked at it", aloud=False)
    try:
        return process.receive("", limit_s)
    except Died as death:
        return str(death)
    finally:
        process.end()


def _extras() -> dict[str, dict[str, Any]] | None:
    """Extra -> which of its packages are there and which are not; None where edgebench itself is not installed."""
    try:
        lines = metadata.requires("edgebench") or []
    except metadata.PackageNotFoundError:
        return None
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        extra, name = re.search(r"""extra\s*==\s*['"]([\w.-]+)['"]""", line), re.match(r"[\w.-]+", line)
        if extra is None or name is None or extra[1] in HIDDEN_EXTRAS:
            continue
        row = found.setdefault(
            extra[1], {"installed": {}, "missing": [], "install": f"pip install 'edgebench[{extra[1]}]'"}
        )
        version = installed((name[0],))
        row["installed"].update(version)
        row["missing"] += [] if version else [name[0]]
    return found
