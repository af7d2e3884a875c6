"""NVIDIA's management library through nvidia-ml-py, where both are there: energy, clocks, temperature, memory.

The first GPU that CUDA_VISIBLE_DEVICES leaves to the engine, or the first one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edgebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REASONS = {
    0x08: "GPU: hardware slowdown",
    0x20: "GPU: software thermal slowdown",
    0x40: "GPU: hardware thermal slowdown",
    0x80: "GPU: power brake",
}
"""Bits of the clocks' event reasons (nvml.h) that say the GPU was held back. Its power cap, 0x04, is its normal work."""


class NoNvml(Exception):
    """Why there is no NVML."""


class Nvml:
    """One GPU."""

    def __init__(self) -> None:
        """Open the library.

        Raises:
            NoNvml: the package, the driver or a GPU is missing.
        """
        try:
            import pynvml
        except ImportError as error:
            raise NoNvml("nvidia-ml-py is not installed") from error
        self._lib: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._gpu = self._find(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip())
            self.name = str(pynvml.nvmlDeviceGetName(self._gpu))
        except pynvml.NVMLError as error:
            raise NoNvml(f"NVML: {one_line(error)}") from error

    def _find(self, wanted: str) -> Any:
        if wanted.startswith(("GPU-", "MIG-")):
            return self._lib.nvmlDeviceGetHandleByUUID(wanted)
        return self._lib.nvmlDeviceGetHandleByIndex(int(wanted) if wanted.isdigit() else 0)

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (self._lib.NVMLError, AttributeError):
            return None

    def joules(self) -> float | None:
        """Energy since the driver was loaded; None before Volta."""
        found = self._ask(lambda: self._lib.nvmlDeviceGetTotalEnergyConsumption(self._gpu))
        return None if found is None else float(found) / 1e3

    def clock_mhz(self) -> int | None:
        """The multiprocessors' clock."""
        found = self._ask(lambda: self._lib.nvmlDeviceGetClockInfo(self._gpu, self._lib.NVML_CLOCK_SM))
        return None if found is None else int(found)

    def temperature_c(self) -> int | None:
        """The chip's."""
        found = self._ask(lambda: self._lib.nvmlDeviceGetTemperature(self._gpu, self._lib.NVML_TEMPERATURE_GPU))
        return None if found is None else int(found)

    def held_back(self) -> list[str]:
        """Why the clocks are lower than they could be, in words."""
        found = self._ask(lambda: self._lib.nvmlDeviceGetCurrentClocksThrottleReasons(self._gpu))
        return [] if found is None else [words for bit, words in REASONS.items() if int(found) & bit]

    def process_bytes(self, pids: Collection[int]) -> int | None:
        """Memory of these processes; None where NVML knows none of them (other pids in a container, or Jetson)."""
        found = self._ask(lambda: self._lib.nvmlDeviceGetComputeRunningProcesses(self._gpu)) or []
        sizes = [p.usedGpuMemory for p in found if p.pid in pids and p.usedGpuMemory is not None]
        return sum(sizes) if sizes else None
