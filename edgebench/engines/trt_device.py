"""One NVIDIA GPU through CUDA Python: memory, copies, one stream, and what the device says of itself.

Read against NVIDIA's documentation: CUDA Runtime API (memory and stream management, compute capability) in the
signatures of cuda.bindings 12 and 13, where every call gives a tuple that begins with its error.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from edgebench.errors import EngineError, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 256
"""Bytes that an allocation begins at a multiple of."""


class Device:
    """The first visible GPU. What is queued on its stream is done in order; arrays that are copied must live till `wait`."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            EngineError: there is none, or CUDA Python is not installed.
        """
        try:
            from cuda.bindings import runtime
        except ImportError as error:
            hint = "pip install 'edgebench[trt]'"
            raise EngineError(f"CUDA Python is not installed: {one_line(error)}", hint=hint) from error
        self._cuda = runtime
        if self._call("cudaGetDeviceCount")[0] < 1:
            raise EngineError("CUDA sees no device")
        self._call("cudaSetDevice", 0)
        attribute = runtime.cudaDeviceAttr
        major, minor = (
            self._call("cudaDeviceGetAttribute", key, 0)[0]
            for key in (attribute.cudaDevAttrComputeCapabilityMajor, attribute.cudaDevAttrComputeCapabilityMinor)
        )
        self.compute_capability = f"{major}.{minor}"
        self._owned: list[int] = []
        self.allocated = 0
        """Bytes."""
        self.stream = int(self._call("cudaStreamCreateWithFlags", runtime.cudaStreamNonBlocking)[0])

    def allocate(self, size: int) -> int:
        """The address of so many bytes of zeros.

        Raises:
            EngineError: there is not so much memory.
        """
        size = max(size, ALIGNMENT)
        address = int(self._call("cudaMalloc", size)[0])
        self._owned.append(address)
        self.allocated += size
        self._call("cudaMemsetAsync", address, 0, size, self.stream)
        return address

    def put(self, address: int, array: NDArray[Any]) -> None:
        """Copy an array, contiguous, to the device."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call("cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, kind, self.stream)

    def get(self, array: NDArray[Any], address: int) -> None:
        """Copy from the device into an array, contiguous; it is there after `wait`."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call("cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, kind, self.stream)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes that do not overlap within the device."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._call("cudaMemcpyAsync", target, source, size, kind, self.stream)

    def copy_rows(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int) -> None:
        """Copy `rows` pieces of `width` bytes, which begin a pitch apart."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._call("cudaMemcpy2DAsync", target, target_pitch, source, source_pitch, width, rows, kind, self.stream)

    def wait(self) -> None:
        """Until everything that was queued is done."""
        self._call("cudaStreamSynchronize", self.stream)

    def used_bytes(self) -> int:
        """Memory in use on the device, by whomever."""
        free, total = self._call("cudaMemGetInfo")
        return int(total) - int(free)

    def facts(self) -> dict[str, Any]:
        """Name, driver and this process's memory by NVML, where it is there; None where it does not say."""
        found: dict[str, Any] = {
            "compute_capability": self.compute_capability,
            "device": None,
            "driver": None,
            "nvml_process_bytes": None,
        }
        with contextlib.suppress(Exception):  # no NVML, or one that does not say, as on Jetson
            import pynvml

            pynvml.nvmlInit()
            try:
                found["driver"] = _text(pynvml.nvmlSystemGetDriverVersion())
                bus = _text(self._call("cudaDeviceGetPCIBusId", 32, 0)[0]).rstrip("\0")
                handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
                found["device"] = _text(pynvml.nvmlDeviceGetName(handle))
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    if process.pid == os.getpid():
                        found["nvml_process_bytes"] = process.usedGpuMemory
            finally:
                pynvml.nvmlShutdown()
        return found

    def close(self) -> None:
        """Give everything back."""
        with contextlib.suppress(EngineError):
            self.wait()
        for address in self._owned:
            with contextlib.suppress(EngineError):
                self._call("cudaFree", address)
        self._owned.clear()
        with contextlib.suppress(EngineError):
            self._call("cudaStreamDestroy", self.stream)

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        error, *values = getattr(self._cuda, name)(*arguments)
        if error != self._cuda.cudaError_t.cudaSuccess:
            text = _text(self._cuda.cudaGetErrorString(error)[1])
            raise EngineError(f"{name}: {text} ({error.name})")
        return tuple(values)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
