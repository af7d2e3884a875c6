"""Facts of the host: what a number was measured on. Unknown is None."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from edgebench import __version__
from edgebench.host_files import host_root, text, usable_cpus

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

TUNABLES, HUGE_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
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


def now() -> str:
    """The time in UTC, to the millisecond, as ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def describe_host() -> Host:
    """Read the facts; nothing is measured and nothing is changed."""
    return Host(
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpu=_cpu_name(),
        logical_cores=len(usable_cpus()),
        memory_bytes=_memory_bytes(),
        device_model=text(Path("/proc/device-tree/model")),
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
    for line in (text(Path("/proc/self/status")) or "").splitlines():
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
    for line in (text(Path("/proc/self/status")) or "").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None


@dataclass(frozen=True)
class Resident:
    """Resident memory by kind, in bytes; None where the system does not say."""

    anonymous: int | None = None
    """Cannot be dropped without swap: the heap, stacks, tensors."""
    file_backed: int | None = None
    """Pages of mapped files, such as weights read in place: the system may drop them and read them again."""

    def __or__(self, other: Resident) -> Resident:
        """The larger of each."""
        return Resident(_larger(self.anonymous, other.anonymous), _larger(self.file_backed, other.file_backed))


class MemoryWatch:
    """Peaks of this process's anonymous and file-backed memory, each for itself: a context manager.

    Linux keeps a peak of their sum only (VmHWM), so a thread looks every `PERIOD_S` (some 12 microseconds a look on an x86-64 server).
    A peak that comes and goes between two looks is missed.
    """

    PERIOD_S = 0.05

    def __init__(self) -> None:
        self._peak = Resident()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True, name="edgebench-memory")
        self._status: int | None = None

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._status = os.open("/proc/self/status", os.O_RDONLY)
        if self.now() != Resident():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._status is not None:
            os.close(self._status)
            self._status = None

    @property
    def method(self) -> str | None:
        """How it was read; None where it cannot be."""
        return f"RssAnon and RssFile, every {self.PERIOD_S * 1000:.0f} ms" if self.now() != Resident() else None

    def now(self) -> Resident:
        """What is resident at this moment."""
        return _resident(self._read())

    def peak(self) -> Resident:
        """The largest of each since the start; they need not have been at the same moment."""
        return self.peaks()[1]

    def peaks(self) -> tuple[int | None, Resident]:
        """As `peak_memory_bytes` gives it, and `peak`: of one look."""
        status = self._read()
        with self._lock:
            self._peak |= _resident(status)
            return _kibibytes(status, b"VmHWM:") or peak_memory_bytes()[0], self._peak

    def _read(self) -> bytes:
        if self._status is None:
            return b""
        try:
            return os.pread(self._status, 4096, 0)
        except OSError:
            return b""

    def _keep_looking(self) -> None:
        while not self._over.wait(self.PERIOD_S):
            self.peak()


def asking_for_huge_pages() -> dict[str, str]:
    """Variables with which a process that is started asks for huge pages: glibc's; other libraries know none.

    What the user's own `$GLIBC_TUNABLES` says of it stays.
    """
    own = os.environ.get(TUNABLES, "")
    if HUGE_PAGES in own or platform.libc_ver()[0] != "glibc":
        return {}
    return {TUNABLES: f"{own}:{HUGE_PAGES}=1".lstrip(":")}


def huge_pages() -> bool | None:
    """Whether this process gets huge pages where there are any; None where the system does not say."""
    found = re.search(r"\[(\w+)\]", text(host_root() / "sys/kernel/mm/transparent_hugepage/enabled") or "")
    if found is None:
        return None
    return found[1] == "always" or (found[1] == "madvise" and f"{HUGE_PAGES}=1" in os.environ.get(TUNABLES, ""))


def memory_kills() -> int | None:
    """How many processes of this system the kernel has ended for want of memory (Linux); None where it is unknown."""
    for line in (text(Path("/proc/vmstat")) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return None


def address_space_limit_bytes() -> int | None:
    """RLIMIT_AS of this process and of those that it starts; None where there is none."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _resident(status: bytes) -> Resident:
    return Resident(_kibibytes(status, b"RssAnon:"), _kibibytes(status, b"RssFile:"))


def _kibibytes(status: bytes, name: bytes) -> int | None:
    """A line such as 'RssAnon:   123 kB' of /proc/*/status, in bytes."""
    begin = status.find(name)
    return None if begin < 0 else int(status[begin + len(name) : status.index(b" kB", begin)]) * 1024


def _cpu_name() -> str | None:
    for line in (text(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model"} and value.strip():
            return value.strip()
    return platform.processor() or None


def cpu_identity() -> str:
    """The CPU's name and a hash of its features: what machine code for one CPU depends on."""
    features = sorted(
        {
            word
            for line in (text(Path("/proc/cpuinfo")) or "").splitlines()
            if line.partition(":")[0].strip() in {"flags", "Features"}
            for word in line.partition(":")[2].split()
        }
    )
    digest = hashlib.sha256(" ".join(features).encode()).hexdigest()[:12] if features else "unknown"
    return f"{platform.machine()}, {_cpu_name() or 'unknown'}, features {digest}"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def available_memory_bytes() -> int | None:
    """Memory that could be taken without swapping (Linux: MemAvailable); None where the system does not say."""
    for line in (text(Path("/proc/meminfo")) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None
