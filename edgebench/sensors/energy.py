"""Energy by a named source: RAPL, NVML's counter, a Jetson's INA rails, or an external meter's CSV.

Every source counts joules since some moment, so that a question's energy is a difference. What a source covers is its
scope: a CPU package, a board, a module; idle power is in it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from edgebench.host_files import number, text
from edgebench.sensors.nvml import NoNvml, Nvml

if TYPE_CHECKING:
    from pathlib import Path

PERIOD_S = 0.05
"""How often power rails are read: their averaging takes some milliseconds."""


class Unsupported(Exception):
    """Why a source cannot be used here."""


class Source(Protocol):
    """A counter of joules."""

    name: str
    scope: str
    """What the joules are of."""

    def joules(self) -> float | None:
        """Since some fixed moment; None when it cannot be read now."""

    def close(self) -> None:
        """Let go."""


class Rapl:
    """The CPU packages' own counters and their DRAM's (Linux powercap: intel-rapl, which AMD's CPUs use too)."""

    name = "rapl"

    def __init__(self, root: Path) -> None:
        """Find the zones.

        Raises:
            Unsupported: there are none, or only the superuser may read them.
        """
        self._zones: list[tuple[Path, int]] = []
        labels = []
        for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
            label = text(zone / "name") or ""
            # psys holds the packages, core and uncore are parts of them: each joule counts once.
            if not label.startswith("package") and label != "dram":
                continue
            if number(zone / "energy_uj") is None:
                raise Unsupported(f"RAPL: {label}'s counter cannot be read; it is the superuser's on most systems")
            self._zones.append((zone / "energy_uj", number(zone / "max_energy_range_uj") or 0))
            labels.append(label)
        if not self._zones:
            raise Unsupported("RAPL: no package in /sys/class/powercap")
        self.scope = ", ".join(labels)
        self._last: list[int | None] = [number(path) for path, _ in self._zones]
        self._total = 0

    def joules(self) -> float | None:
        """Since it was opened; the counters' wrap is taken into account."""
        for place, (path, most) in enumerate(self._zones):
            now, last = number(path), self._last[place]
            if now is None or last is None:
                return None
            self._total += now - last if now >= last else now - last + most
            self._last[place] = now
        return self._total / 1e6

    def close(self) -> None:
        """Nothing is held."""


class NvmlEnergy:
    """NVML's counter of the whole GPU board."""

    name = "nvml"

    def __init__(self) -> None:
        """Open it.

        Raises:
            Unsupported: no NVML, or a GPU without the counter.
        """
        try:
            self._gpu = Nvml()
        except NoNvml as error:
            raise Unsupported(str(error)) from error
        if self._gpu.joules() is None:
            raise Unsupported(f"NVML: {self._gpu.name} counts no energy")
        self.scope = self._gpu.name

    def joules(self) -> float | None:
        """Since the driver was loaded."""
        return self._gpu.joules()

    def close(self) -> None:
        """Nothing is held."""


class Rails:
    """A Jetson's INA3221 rails: power, integrated by trapezoids over readings of a thread that sleeps in between.

    VDD_IN (POM_5V_IN) is the whole module. Modules without it are the sum of their rails, less those that another
    rail supplies.
    """

    name = "jetson"
    WHOLE = ("VDD_IN", "POM_5V_IN", "5V_IN")
    INNER = ("VDDQ_VDD2_1V8AO",)
    """AGX Orin: supplied by VIN_SYS_5V0."""

    def __init__(self, root: Path) -> None:
        """Find the rails.

        Raises:
            Unsupported: there are none.
        """
        rails = _hwmon_rails(root) or _iio_rails(root)
        if not rails:
            raise Unsupported("Jetson: no INA3221 rails in /sys/class/hwmon")
        whole = next((label for label in self.WHOLE if label in rails), None)
        chosen = [whole] if whole else [label for label in rails if label not in self.INNER]
        self._rails = [rails[label] for label in chosen]
        self.scope = " + ".join(chosen)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._total = 0.0
        self._last: tuple[int, float] | None = None
        if self.joules() is None:
            raise Unsupported(f"Jetson: the rails {self.scope} cannot be read")
        self._thread = threading.Thread(target=self._keep_reading, daemon=True, name="edgebench-energy")
        self._thread.start()

    def watts(self) -> float | None:
        """Now, over all rails."""
        found = [_watts(rail) for rail in self._rails]
        return None if any(w is None for w in found) else sum(w for w in found if w is not None)

    def joules(self) -> float | None:
        """Since it was opened."""
        with self._lock:
            now, watts = time.monotonic_ns(), self.watts()
            if watts is None:
                self._last = None
                return None
            if self._last is not None:
                self._total += (now - self._last[0]) / 1e9 * (watts + self._last[1]) / 2
            self._last = (now, watts)
            return self._total

    def _keep_reading(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.joules()

    def close(self) -> None:
        """Stop the thread."""
        self._over.set()
        self._thread.join()


def _hwmon_rails(root: Path) -> dict[str, tuple[Path, ...]]:
    """JetPack 5 and later: label -> (millivolts, milliamperes)."""
    found: dict[str, tuple[Path, ...]] = {}
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if text(chip / "name") != "ina3221":
            continue
        for channel in (1, 2, 3):  # 7 is the sum of shunt voltages
            label = text(chip / f"in{channel}_label")
            if label and label != "NC":
                found[label] = (chip / f"in{channel}_input", chip / f"curr{channel}_input")
    return found


def _iio_rails(root: Path) -> dict[str, tuple[Path, ...]]:
    """JetPack 4: label -> (milliwatts,)."""
    found: dict[str, tuple[Path, ...]] = {}
    for name in sorted((root / "sys/bus/i2c/drivers/ina3221x").glob("*/iio:device*/rail_name_*")):
        label = text(name)
        if label and label != "NC":
            found[label] = (name.with_name(f"in_power{name.name.removeprefix('rail_name_')}_input"),)
    return found


def _watts(rail: tuple[Path, ...]) -> float | None:
    values = [number(path) for path in rail]
    if any(v is None for v in values):
        return None
    known = [v for v in values if v is not None]
    return known[0] / 1e3 if len(known) == 1 else known[0] * known[1] / 1e6


def open_source(wanted: str, root: Path, *, gpu: bool) -> tuple[Source | None, str | None]:
    """The source of a run's energy, or None and why there is none.

    Args:
        wanted: 'rapl', 'nvml', 'jetson', or 'auto': a Jetson's rails, else the GPU's counter where the engine runs
            there, else RAPL.
        root: where /sys is.
        gpu: whether the engine runs on an NVIDIA GPU.

    Raises:
        Unsupported: a source that was asked for by name cannot be used.
    """
    if wanted != "auto":
        return _open(wanted, root), None
    reasons = []
    for name in ("jetson", *(("nvml",) if gpu else ("rapl",))):
        try:
            return _open(name, root), None
        except Unsupported as why:
            reasons.append(str(why))
    return None, "; ".join(reasons)


def _open(name: str, root: Path) -> Source:
    return Rapl(root) if name == "rapl" else Rails(root) if name == "jetson" else NvmlEnergy()
