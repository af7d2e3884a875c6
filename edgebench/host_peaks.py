"""Measures what this machine reaches: memory bandwidth in numpy, operations a second in ONNX Runtime's products.

What is measured is the best of several repeats and is a little below the silicon's own peak: a limit computed from it
is what this software can reach here at best.
"""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.environment import available_memory_bytes, describe_host
from edgebench.errors import EngineError, one_line
from edgebench.host_files import text, usable_cpus
from edgebench.metrics.validity import BUSY_CORES
from edgebench.profiles import DeviceProfile, Figure
from edgebench.sensors.conditions import OwnTime, busy_s

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 1 << 30
"""Of the arrays that bandwidth is measured on."""
SIDE = 1024
"""Of the square matrices: large enough for the peak, small enough for a slow board."""
ROUNDS_S = 0.4
"""How long each product is repeated."""
PRODUCTS = {
    "fp32": ("MatMul", 1, 1, 1, np.float32),
    "fp16": ("MatMul", 10, 10, 10, np.float16),
    "int8": ("MatMulInteger", 2, 3, 6, np.uint8),
}
"""Precision -> operator, ONNX types of both inputs and of the output, numpy type of the first input."""


@dataclass(frozen=True)
class Bandwidth:
    """The best of the kinds."""

    gb_s: float
    kind: str
    mib: float
    threads: int


def measure(name: str, say: Callable[[str], None], limited: int | None = None) -> DeviceProfile:
    """The machine's CPU as a device profile.

    Args:
        name: of the profile.
        say: called with the name of each step.
        limited: threads that are measured, and that engines then use; None: all cores.
    """
    host = describe_host()
    threads = limited or host.logical_cores
    cache = cache_bytes()
    quiet = _Quiet()
    say("memory bandwidth")
    bandwidth = measure_bandwidth(threads, cache)
    how = f"measured: {bandwidth.kind} of {bandwidth.mib:.0f} MiB in numpy, {_threads(bandwidth.threads)}, best of 5"
    peaks = {}
    for precision in PRODUCTS:
        say(f"{precision} products")
        try:
            value: float | None = measure_products(precision, limited)
            operator, used = PRODUCTS[precision][0], "its own threads" if limited is None else _threads(limited)
            source = f"measured: {operator} of {SIDE} x {SIDE} matrices in ONNX Runtime, {used}, best of {ROUNDS_S:g} s"
        except EngineError as error:
            value, source = None, f"not measured: {error.what}"
        peaks[precision] = Figure(None if value is None else float(f"{value / 1e12:.4g}"), source)
    memory = host.memory_bytes
    others = quiet.others()
    busy = f" Others used {others:.1f} cores meanwhile: its figures are too low." if others > BUSY_CORES else ""
    return DeviceProfile(
        name=name,
        summary=f"{host.device_model or host.cpu or host.machine}, {threads} of {host.logical_cores} cores, {host.system}, "
        f"measured on it.{busy}",
        threads=limited,
        memory_kind="system",
        memory_mib=Figure(None if memory is None else memory // 2**20, "the operating system"),
        bandwidth_gb_s=Figure(float(f"{bandwidth.gb_s:.4g}"), how),
        cache_mib=Figure(None if cache is None else cache / 2**20, "the operating system: its largest cache"),
        peak_tera_operations=peaks,
    )


def _threads(number: int) -> str:
    return f"{number} thread{'' if number == 1 else 's'}"


class _Quiet:
    """How many cores others used since it was made; 0 where the system does not say."""

    def __init__(self) -> None:
        self._cpus = usable_cpus()
        self._own = OwnTime(os.getpid())
        self._begin = self._now()

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), busy_s(Path("/"), self._cpus) or 0.0, self._own.seconds() or 0.0

    def others(self) -> float:
        """Cores, on average."""
        begin, now = self._begin, self._now()
        return max(0.0, now[1] - begin[1] - now[2] + begin[2]) / (now[0] - begin[0])


def cache_bytes(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """The largest cache that a core reaches; None where the system does not say."""
    found = []
    for path in cpu.glob("index*/size"):
        size = re.fullmatch(r"(\d+)([KMG]?)", text(path) or "")
        if size is not None:
            found.append(int(size[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[size[2]])
    return max(found, default=None)


def measure_bandwidth(threads: int, cache: int | None) -> Bandwidth:
    """Stream's copy and sum, and a plain read, over arrays that no cache holds; one part of them a thread.

    Bytes are those of the arrays, read or written once. (McCalpin: STREAM, 1995.)
    """
    free = available_memory_bytes() or MOST_BYTES
    size = max(1 << 24, min(MOST_BYTES, free // 4, 4 * (cache or MOST_BYTES)))
    each = size // threads // 3 // 4096 * 4096 // 4
    arrays = [tuple(np.full(each, k + 1, dtype=np.float32) for k in range(3)) for _ in range(threads)]
    whole = threads * each * 4
    kinds: dict[str, tuple[Callable[[tuple[Any, ...]], Any], int]] = {
        "copy": (lambda a: np.copyto(a[0], a[1]), 2 * whole),
        "sum": (lambda a: np.add(a[1], a[2], out=a[0]), 3 * whole),
        "read": (lambda a: [np.maximum.reduce(part) for part in a], 3 * whole),
    }
    best = Bandwidth(0, "copy", whole * 3 / 2**20, threads)
    with ThreadPoolExecutor(threads) as pool:
        for kind, (work, moved) in kinds.items():
            for _ in range(5):
                begin = time.perf_counter()
                list(pool.map(work, arrays))
                rate = moved / (time.perf_counter() - begin) / 1e9
                best = Bandwidth(rate, kind, best.mib, threads) if rate > best.gb_s else best
    return best


def measure_products(precision: str, threads: int | None = None) -> float:
    """Operations a second of a product of two square matrices, with so many threads (None: the runtime's own).

    Raises:
        EngineError: ONNX Runtime has no such product here.
    """
    import onnxruntime

    operator, *kinds, first = PRODUCTS[precision]
    left = np.ones((SIDE, SIDE), dtype=first)
    right = left.astype(np.int8) if precision == "int8" else left
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads or 0
    try:
        session = onnxruntime.InferenceSession(
            _product(str(operator), [int(k) for k in kinds]), options, providers=["CPUExecutionProvider"]
        )
        feeds = {"a": left, "b": right}
        session.run(None, feeds)
        best, end = float("inf"), time.perf_counter() + ROUNDS_S
        while time.perf_counter() < end:
            begin = time.perf_counter()
            session.run(None, feeds)
            best = min(best, time.perf_counter() - begin)
    except Exception as error:  # ONNX Runtime raises its own untyped exceptions
        raise EngineError(f"{operator} in {precision}: {one_line(error)}") from error
    return 2 * SIDE**3 / best


def _product(operator: str, kinds: list[int]) -> bytes:
    """An ONNX model of one product c = a b, in protobuf's wire format: running needs no package onnx.

    Field numbers are those of onnx.proto: ModelProto 1 ir_version, 7 graph, 8 opset_import; GraphProto 1 node, 2 name,
    11 input, 12 output; NodeProto 1 input, 2 output, 4 op_type; ValueInfoProto 1 name, 2 type.
    """

    def number(tag: int, value: int) -> bytes:
        return _varint(tag << 3) + _varint(value)

    def message(tag: int, *parts: bytes) -> bytes:
        content = b"".join(parts)
        return _varint(tag << 3 | 2) + _varint(len(content)) + content

    def value(name: bytes, kind: int) -> tuple[bytes, bytes]:
        shape = message(2, *(message(1, number(1, SIDE)) for _ in range(2)))
        return message(1, name), message(2, message(1, number(1, kind), shape))

    node = message(1, message(1, b"a"), message(1, b"b"), message(2, b"c"), message(4, operator.encode()))
    a, b, c = (value(name, kind) for name, kind in zip((b"a", b"b", b"c"), kinds, strict=True))
    graph = message(7, node, message(2, b"product"), message(11, *a), message(11, *b), message(12, *c))
    return number(1, 8) + graph + message(8, number(2, 17))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
