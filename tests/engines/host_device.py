"""The device and the plans of the engine `trt`, in host memory: addresses, pitches and shapes are real, and ONNX Runtime
computes what the plans would. Every access is checked to lie within one allocation, and copies not to overlap."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from edgebench.engines.trt_build import FRESH
from edgebench.manifest import Artifact


class HostDevice:
    compute_capability = "8.9"

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.allocated = 0
        self.closed = False

    def view(self, address: int, size: int) -> np.ndarray[Any, Any]:
        for start, block in self.memory.items():
            if start <= address and address + size <= start + len(block):
                return block[address - start : address - start + size]
        raise AssertionError(f"{size} bytes at {address} are not ours")

    def allocate(self, size: int) -> int:
        block = np.zeros(size, dtype=np.uint8)
        address = block.ctypes.data
        self.memory[address] = block
        self.allocated += size
        return address

    def put(self, address: int, array: np.ndarray[Any, Any]) -> None:
        assert array.flags.c_contiguous
        self.view(address, array.nbytes)[:] = np.frombuffer(array.tobytes(), dtype=np.uint8)

    def get(self, array: np.ndarray[Any, Any], address: int) -> None:
        ctypes.memmove(array.ctypes.data, self.view(address, array.nbytes).ctypes.data, array.nbytes)

    def copy(self, target: int, source: int, size: int) -> None:
        assert abs(target - source) >= size
        self.view(target, size)[:] = self.view(source, size)

    def copy_rows(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int) -> None:
        assert width <= min(target_pitch, source_pitch)
        for row in range(rows):
            self.copy(target + row * target_pitch, source + row * source_pitch, width)

    def wait(self) -> None: ...

    def used_bytes(self) -> int:
        return self.allocated

    def facts(self) -> dict[str, Any]:
        return {"device": "this machine's memory"}

    def close(self) -> None:
        self.closed = True


class HostPlan:
    scratch_bytes = 1024

    def __init__(self, artifact: Artifact, name: str, profiles: int, device: HostDevice) -> None:
        graph = artifact.manifest.graphs[name]
        path = artifact.path(graph.model)
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.graph, self.device = graph, device
        self.shapes: list[dict[str, tuple[int, ...]]] = [{} for _ in range(profiles)]
        self.addresses: list[dict[str, int]] = [{} for _ in range(profiles)]

    def lend(self, address: int, size: int) -> None:
        self.device.view(address, size)

    def bind(self, profile: int, shapes: Mapping[str, tuple[int, ...]], addresses: Mapping[str, int]) -> None:
        self.shapes[profile].update(shapes)
        self.addresses[profile].update(addresses)

    def run(self, profile: int) -> None:
        shapes, addresses = self.shapes[profile], self.addresses[profile]
        feeds = {}
        for fact in self.graph.inputs:
            array = np.empty(shapes[fact.name], dtype=fact.dtype)
            self.device.get(array, addresses[fact.name])
            feeds[fact.name] = array
        for fact, found in zip(self.graph.outputs, self.session.run(None, feeds), strict=True):
            name = fact.name
            if name.startswith("present."):
                past = feeds[name.replace("present.", "past_key_values.")].shape[2]
                found, name = found[:, :, past:], name.replace("present.", FRESH)
            assert found.dtype == fact.dtype
            self.device.put(addresses[name], np.ascontiguousarray(found))


def host_loader(artifact: Artifact) -> Callable[[Any, Any], Callable[[Path, int], HostPlan]]:
    """In place of `edgebench.engines.trt.loader`; an entry is the graph's name."""
    return lambda api, device: lambda entry, profiles: HostPlan(artifact, str(entry), profiles, device)
