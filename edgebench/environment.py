"""Facts of the host: what a number was measured on. Unknown is None."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from edgebench import __version__

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "numpy", "pillow", "simplejpeg", "tokenizers")


@dataclass(frozen=True)
class Host:
    """The machine and the software that a sitting ran on."""

    system: str
    machine: str
    cpu: str | None
    logical_cores: int
    """Cores that this process may use."""
    memory_bytes: int | None
    device_model: str | None
    """The board's own name (device tree), on machines that have one, such as a Jetson or a Raspberry Pi."""
    python: str
    edgebench: str
    packages: dict[str, str]


def describe_host() -> Host:
    """Read the facts; nothing is measured and nothing is changed."""
    return Host(
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpu=_cpu_name(),
        logical_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        device_model=_text("/proc/device-tree/model"),
        python=platform.python_version(),
        edgebench=__version__,
        packages=installed(PACKAGES),
    )


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """Version by name of those packages that are installed."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory_bytes() -> tuple[int | None, str]:
    """Peak resident memory of this process, in bytes, and how it was read.

    `VmHWM` starts anew when a program is executed; `ru_maxrss` may carry the parent's figure over, so it is
    only read where there is no /proc.
    """
    for line in (_text("/proc/self/status") or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024, "VmHWM of the engine process"
    try:
        import resource
    except ImportError:
        return None, "not available on this system"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak if platform.system() == "Darwin" else peak * 1024), "ru_maxrss of the engine process"


def current_memory_bytes() -> int | None:
    """Resident memory of this process now, in bytes; None where it cannot be read."""
    for line in (_text("/proc/self/status") or "").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None


def _cpu_name() -> str | None:
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model"} and value.strip():
            return value.strip()
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def available_memory_bytes() -> int | None:
    """Memory that could be taken without swapping (Linux: MemAvailable); None where the system does not say."""
    for line in (_text("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None
