"""One look at the machine during a run: a line of `conditions.jsonl` in the run's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgebench.config import build
from edgebench.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONDITIONS = "conditions.jsonl"


@dataclass(frozen=True)
class Observation:
    """What could be read; None where the system does not say."""

    sitting: int
    unix_ns: int
    phase: Literal["before", "during"]
    """before: while the engine loads. during: questions are being asked."""
    busy_s: float | None = None
    """CPU time of everything on the CPUs that this process may use, since boot; what a hypervisor took is in it."""
    own_s: float | None = None
    """CPU time of edgebench and of its children, of those that ended too."""
    clock_mhz: float | None = None
    """Of the fastest CPU."""
    temperature_c: float | None = None
    """Of the hottest sensor, the GPU's left out."""
    throttle_events: int | None = None
    """How often the CPU or the module was held back since boot."""
    held_back: tuple[str, ...] = ()
    """By what, at this moment."""
    governor: str | None = None
    power_mode: str | None = None
    """Of a Jetson: nvpmodel's."""
    available_bytes: int | None = None
    """MemAvailable, of the whole system."""
    cgroup_peak_bytes: int | None = None
    pss_bytes: int | None = None
    """Proportional set size of the engine's processes; read at the end of a sitting only."""
    gpu_mhz: int | None = None
    gpu_temperature_c: int | None = None
    gpu_process_bytes: int | None = None
    """Of the engine's processes, by NVML."""


def read_observations(folder: Path) -> Iterator[Observation]:
    """Every line of a run's conditions, in order; none for runs of before. What a kill tore is passed over.

    Raises:
        RunError: a line is of something else.
    """
    path = folder / CONDITIONS
    if not path.exists():
        return
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            try:
                value = json.loads(raw)
            except ValueError:
                continue
            yield build(Observation, value, where=f"{path}:{number}", error=RunError)
