"""Clocks, temperature, throttling and the CPU time of others, from /proc and /sys."""

from __future__ import annotations

import os
import re
from pathlib import Path

from edgebench.host_files import number, text

TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PI_BITS = {0: "undervoltage", 1: "CPU clock capped", 2: "throttled", 3: "soft temperature limit"}
"""Of a Raspberry Pi's get_throttled: what holds it back now."""


def busy_s(root: Path, cpus: frozenset[int]) -> float | None:
    """CPU seconds since boot in which these CPUs were not idle; a hypervisor's share (steal) is in it."""
    ticks, seen = 0, False
    for line in (text(root / "proc/stat") or "").splitlines():
        name, *values = line.split()
        if re.fullmatch(r"cpu\d+", name) and int(name[3:]) in cpus and len(values) >= 8:
            user, nice, system, _idle, _wait, irq, soft, steal = map(int, values[:8])
            ticks += user + nice + system + irq + soft + steal
            seen = True
    return ticks / TICK if seen else None


class OwnTime:
    """CPU seconds of this process and its descendants, those that ended and were waited for too.

    A process is looked at once to see whose child it is; later only ours are read again.
    """

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root, self._proc = root, proc
        self._others: set[str] = set()
        self._ours: set[str] = {str(root)}

    def seconds(self) -> float | None:
        """So far; None where there is no /proc."""
        stats: dict[str, list[str]] = {}
        try:
            names = {entry.name for entry in os.scandir(self._proc) if entry.name.isdigit()}
        except OSError:
            return None
        self._others &= names
        self._ours &= names
        for name in names - self._others:
            fields = self._stat(name)
            if fields is not None:
                stats[name] = fields
        grown = True
        while grown:
            found = {n for n, fields in stats.items() if fields[1] in self._ours}
            grown = not found <= self._ours
            self._ours |= found
        self._others |= stats.keys() - self._ours
        if str(self._root) not in stats:
            return None
        # utime, stime, and those of children that ended
        return sum(sum(map(int, stats[n][11:15])) for n in self._ours & stats.keys()) / TICK

    def pids(self) -> set[int]:
        """Our processes at the last reading."""
        return {int(name) for name in self._ours}

    def _stat(self, name: str) -> list[str] | None:
        """The fields behind the command's name: state, parent, ..."""
        line = text(self._proc / name / "stat")
        return None if line is None or ")" not in line else line[line.rindex(")") + 1 :].split()


def clock_mhz(root: Path) -> float | None:
    """Of the fastest CPU now: cpufreq's figure, else /proc/cpuinfo's."""
    found = [number(p) for p in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")]
    known = [k / 1e3 for k in found if k is not None]
    if not known:
        lines = (text(root / "proc/cpuinfo") or "").splitlines()
        known = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return max(known, default=None)


def module_gpu_mhz(root: Path) -> int | None:
    """Of a Jetson's GPU, which NVML does not know: devfreq's current frequency."""
    names = ("gpu", "ga10b", "gv11b", "gp10b")
    found = [number(p) for n in names for p in root.glob(f"sys/class/devfreq/*{n}*/cur_freq")]
    return max((hertz // 1_000_000 for hertz in found if hertz is not None), default=None)


def temperature_c(root: Path) -> float | None:
    """Of the hottest thermal zone or hwmon sensor that makes sense."""
    paths = [*root.glob("sys/class/thermal/thermal_zone*/temp"), *root.glob("sys/class/hwmon/hwmon*/temp*_input")]
    found = [number(path) for path in paths]
    return max((t / 1e3 for t in found if t is not None and 0 < t < 150_000), default=None)


def throttle_events(root: Path) -> int | None:
    """How often the hardware held back since boot: Intel's thermal counters, a Jetson's over-current events."""
    cpu = "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"
    patterns = (f"{cpu}/core_throttle_count", f"{cpu}/package_throttle_count", "sys/class/hwmon/hwmon*/oc*_event_cnt")
    found = [number(path) for pattern in patterns for path in root.glob(pattern)]
    known = [n for n in found if n is not None]
    return sum(known) if known else None


def held_back(root: Path) -> tuple[str, ...]:
    """By what, at this moment, as a Raspberry Pi's firmware says it."""
    bits = number(root / "sys/devices/platform/soc/soc:firmware/get_throttled", 16)
    return () if bits is None else tuple(words for bit, words in PI_BITS.items() if bits >> bit & 1)
