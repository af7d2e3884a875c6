"""What the host has to run a model with, as Linux says it: CPU, memory, power mode, GPUs, disk. Unknown is None.

Everything is read below a root, which is '/' outside of tests. Nothing is loaded but NVIDIA's management library,
and that only by `nvml`.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgebench.errors import one_line
from edgebench.host_files import text

FEATURES: dict[str, dict[str, tuple[str, ...]]] = {
    "x86": {
        "AVX2": ("avx2",),
        "FMA": ("fma",),
        "F16C": ("f16c",),
        "AVX-VNNI": ("avx_vnni",),
        "AVX512": ("avx512f",),
        "AVX512-VNNI": ("avx512_vnni",),
        "AVX512-BF16": ("avx512_bf16",),
        "AVX512-FP16": ("avx512_fp16",),
        "AMX-INT8": ("amx_tile", "amx_int8"),
        "AMX-BF16": ("amx_tile", "amx_bf16"),
    },
    "arm": {
        "NEON": ("asimd",),
        "FP16": ("asimdhp",),
        "dot product": ("asimddp",),
        "I8MM": ("i8mm",),
        "BF16": ("bf16",),
        "SVE": ("sve",),
        "SVE2": ("sve2",),
        "SME": ("sme",),
    },
}
"""What makes inference fast, by the words of /proc/cpuinfo (Linux: cpufeatures.h and hwcap of arm64)."""


@dataclass(frozen=True)
class Cpu:
    """The processor."""

    features: dict[str, bool] | None
    """Of `FEATURES`; None where /proc/cpuinfo does not list them."""
    physical_cores: int | None
    logical_cores: int | None
    usable_cores: int | None
    """That this process may run on."""
    quota_cores: float | None
    """A container's share of CPU time, in cores; None without a limit."""
    governor: str | None
    """cpufreq's governor and highest clock of each kind of core, such as 'schedutil up to 2400 MHz'."""
    thread_variables: dict[str, str] = field(default_factory=dict)
    """Of the environment: they decide how many threads libraries start."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU."""

    name: str
    memory_bytes: int | None = None
    free_bytes: int | None = None
    compute_capability: str | None = None
    power_limit_w: float | None = None
    persistence: bool | None = None
    """Whether the driver stays loaded between programs."""


@dataclass(frozen=True)
class Nvidia:
    """NVIDIA's driver and its GPUs."""

    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA that the driver serves."""
    gpus: tuple[Gpu, ...] = ()
    unknown: str | None = None
    """Why this is all that is known."""


def cpu(root: Path = Path("/")) -> Cpu:
    """Read the facts of the processor."""
    return Cpu(
        features=_features(root),
        physical_cores=_physical_cores(root),
        logical_cores=os.cpu_count(),
        usable_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        quota_cores=_quota(root),
        governor=governor(root),
        thread_variables={k: v for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if (v := os.environ.get(k))},
    )


def governor(root: Path = Path("/")) -> str | None:
    """The governor and highest clock of each kind of core, by cpufreq."""
    found = set()
    for folder in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq"):
        name, most = text(folder / "scaling_governor"), text(folder / "scaling_max_freq")
        if name is not None:
            found.add(name + (f" up to {int(most) / 1e3:.0f} MHz" if most and most.isdigit() else ""))
    return ", ".join(sorted(found)) or None


def nvpmodel(root: Path = Path("/")) -> str | None:
    """A Jetson's power mode: its number, and its name where nvpmodel.conf lists it."""
    status = re.search(r"pmode:(\d+)", text(root / "var/lib/nvpmodel/status") or "")
    if status is None:
        return None
    mode = int(status[1])
    name = re.search(rf"POWER_MODEL\s+ID={mode}\s+NAME=(\S+)", text(root / "etc/nvpmodel.conf") or "")
    return f"{mode}" + ("" if name is None else f" ({name[1]})")


def power_mode(root: Path = Path("/")) -> str | None:
    """A Jetson's nvpmodel, or a laptop's platform profile, and whether it runs on its battery."""
    found = []
    if (mode := nvpmodel(root)) is not None:
        found.append(f"nvpmodel {mode}")
    if (profile := text(root / "sys/firmware/acpi/platform_profile")) is not None:
        found.append(f"platform profile {profile}")
    online = [text(p) for p in root.glob("sys/class/power_supply/*/online")]
    if "0" in online and "1" not in online:
        found.append("on battery")
    return ", ".join(found) or None


def accelerators(root: Path = Path("/")) -> dict[str, str]:
    """Device files through which runtimes reach a GPU or an NPU: path -> the kernel's driver."""
    found = {}
    for pattern in ("sys/class/drm/renderD*", "sys/class/accel/accel*"):
        for path in sorted(root.glob(pattern)):
            driver = re.search(r"^DRIVER=(.+)$", text(path / "device/uevent") or "", re.MULTILINE)
            folder = "dri" if path.name.startswith("render") else "accel"
            found[f"/dev/{folder}/{path.name}"] = "unknown driver" if driver is None else driver[1]
    for path in sorted(root.glob("dev/nvhost-gpu")):
        found[f"/dev/{path.name}"] = "nvgpu"
    return found


def nvidia(root: Path = Path("/")) -> Nvidia:
    """What the driver's files say, without its library."""
    version = re.search(r"Module(?: for \S+)?\s+(\d+[\d.]+)", text(root / "proc/driver/nvidia/version") or "")
    names = [
        re.search(r"^Model:\s*(.+)$", text(path) or "", re.MULTILINE)
        for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    ]
    return Nvidia(driver=None if version is None else version[1], gpus=tuple(Gpu(n[1].strip()) for n in names if n))


def nvml() -> Nvidia:
    """The same by NVIDIA's management library, and more. To be called in a process of its own."""
    try:
        import pynvml
    except ImportError:
        return Nvidia(unknown="nvidia-ml-py is not installed: pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        return Nvidia(
            driver=str(pynvml.nvmlSystemGetDriverVersion()),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            gpus=tuple(_gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())),
        )
    except pynvml.NVMLError as error:
        return Nvidia(unknown=f"NVML: {error}")
    except Exception as error:  # a driver of another age lacks functions
        return Nvidia(unknown=f"NVML: {one_line(error)}")


def disk(folder: Path) -> tuple[int | None, int | None]:
    """Free bytes and all bytes of the disk that a folder lies on, or would lie on."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if place.is_dir():
            try:
                usage = shutil.disk_usage(place)
            except OSError:
                break
            return usage.free, usage.total
    return None, None


def _gpu(lib: Any, number: int) -> Gpu:
    def ask(name: str) -> Any:
        try:
            return getattr(lib, name)(handle)
        except (lib.NVMLError, AttributeError):
            return None

    handle = lib.nvmlDeviceGetHandleByIndex(number)
    memory, capability = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetCudaComputeCapability")
    limit, persistence = ask("nvmlDeviceGetEnforcedPowerLimit"), ask("nvmlDeviceGetPersistenceMode")
    return Gpu(
        name=str(ask("nvmlDeviceGetName")),
        memory_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        power_limit_w=None if limit is None else limit / 1e3,
        persistence=None if persistence is None else bool(persistence),
    )


def _features(root: Path) -> dict[str, bool] | None:
    """Those that every core has."""
    lines = [line.partition(":") for line in (text(root / "proc/cpuinfo") or "").splitlines()]
    for key, kind in (("flags", "x86"), ("Features", "arm")):
        cores = [set(words.split()) for name, _, words in lines if name.strip() == key]
        if cores:
            common = set.intersection(*cores)
            common |= {"asimd"} if "neon" in common else set()  # the name of 32-bit ARM
            return {name: common.issuperset(needed) for name, needed in FEATURES[kind].items()}
    return None


def _physical_cores(root: Path) -> int | None:
    paths = root.glob("sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
    return len({text(path) for path in paths}) or None


def _quota(root: Path) -> float | None:
    """By cgroup. v2: '200000 100000' is two cores, 'max 100000' no limit. v1 has two files, and -1 for no limit."""
    words = (text(root / "sys/fs/cgroup/cpu.max") or "").split()
    if len(words) != 2:
        folder = root / "sys/fs/cgroup/cpu"
        words = [text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    return int(words[0]) / int(words[1]) if all(w.isdigit() and int(w) for w in words) else None
