"""The weights of a graph: what tensors of the checkpoint become in it, and writing them a few rows at a time.

Every weight is read in rows, quantized or converted, and written to its place in one file beside the graph, so that
memory does not grow with the model.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgebench.errors import CheckpointError
from edgebench.export import blocks
from edgebench.manifest import Graph, Quantization, TensorFact, file_fact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.export.shards import Weights

Stored = Literal["float", "bf16", "int8", "int4", "w8a8"]
"""How the matrices of a part are stored; 'float' is the type that the graph computes in."""
Form = Literal["plain", "transposed", "ort-8", "ort-4", "portable-8", "portable-4", "dynamic-8"]
_PAGE, _LINE = 4096, 64
"""Large tensors begin at a page, so that a runtime can map them; others at a cache line."""
_SPARE_BYTES = 64 << 20


@dataclass
class Fill:
    """Tensors of the checkpoint, one below the other, and the initializers they become."""

    sources: tuple[str, ...]
    form: Form
    values: list[Any]
    """`onnx_ir.Value`: the weights, then scales, then zero points."""
    block: int = 0
    """Values that share a scale; all K of them for 'dynamic-8'."""
    factors: NDArray[np.float32] | None = None
    """Each input channel of a matrix, or each value of a vector, is multiplied by its own."""
    offsets: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Traced:
    """A graph whose weights are still to be written."""

    model: Any
    """`onnx_ir.Model`."""
    fills: list[Fill]
    bytes: int
    quantization: Quantization | None


def traced(model: Any, fills: list[Fill], kept: list[str], dialect: str, calibration: str | None = None) -> Traced:
    """A graph with a place for each of its weights.

    Args:
        model: `onnx_ir.Model`.
        fills: its weights.
        kept: those that stayed in floating point though a smaller type was asked for, with the reason.
        dialect: 'ort' or 'portable'.
        calibration: what smoothed activations, where some were.
    """
    end = 0
    for fill in fills:
        for value in fill.values:
            size = bytes_of(value)
            step = _PAGE if size >= 1 << 20 else _LINE
            fill.offsets.append(-(-end // step) * step)
            end = fill.offsets[-1] + size
    return Traced(model, fills, end, _scheme(fills, kept, dialect, calibration))


def write_graph(
    traced: Traced,
    weights: Weights,
    folder: Path,
    name: str,
    precision: str,
    wrote: Callable[[int], None],
) -> Graph:
    """Write `name`.onnx and its weights, `name`.onnx.data, and describe them.

    Args:
        traced: the graph.
        weights: the checkpoint's.
        folder: of the artifact.
        name: of the graph.
        precision: of the graph, for the manifest.
        wrote: called with the number of bytes of each piece that was written.

    Raises:
        CheckpointError: the checkpoint is damaged, the disk is full or cannot be written.
    """
    import onnx_ir as ir

    file, data = f"{name}.onnx", f"{name}.onnx.data"
    free = shutil.disk_usage(folder).free
    if traced.bytes + _SPARE_BYTES > free:
        needed = f"{traced.bytes / 1e9:.2f} GB are needed for {file}, {free / 1e9:.2f} GB are free"
        raise CheckpointError(f"the disk is too full: {needed}", where=folder)
    try:
        with (folder / data).open("wb") as stream:
            stream.truncate(traced.bytes)
            for fill in traced.fills:
                _write_fill(fill, weights, stream, wrote)
        graph = traced.model.graph
        for fill in traced.fills:
            for value, offset in zip(fill.values, fill.offsets, strict=True):
                value.const_value = ir.ExternalTensor(
                    data, offset, bytes_of(value), value.dtype, shape=value.shape, name=value.name, base_dir=str(folder)
                )
                graph.register_initializer(value)
        ir.save(traced.model, str(folder / file))
    except OSError as error:
        raise CheckpointError(f"cannot be written: {error.strerror or error}", where=folder / file) from error
    has_data = traced.bytes > 0
    if not has_data:
        (folder / data).unlink()
    return Graph(
        model=file_fact(folder, file),
        precision=precision,
        opset=graph.opset_imports[""],
        inputs=tuple(_fact(v) for v in graph.inputs),
        outputs=tuple(_fact(v) for v in graph.outputs),
        external=(file_fact(folder, data),) if has_data else (),
        quantization=traced.quantization,
    )


def write_graphs(
    graphs: Mapping[str, tuple[Traced, str]],
    weights: Weights,
    folder: Path,
    say: Callable[[str], None],
    wrote: Callable[[int, int], None],
) -> dict[str, Graph]:
    """Write several graphs with one count of bytes.

    Args:
        graphs: name -> the graph and its precision.
        weights: the checkpoint's.
        folder: of the artifact.
        say: called with the step's name.
        wrote: called with the bytes that are written, and all that will be.

    Raises:
        CheckpointError: as for `write_graph`.
    """
    total, done = sum(graph.bytes for graph, _ in graphs.values()), 0
    say(f"writing {total / 1e9:.2f} GB of weights")
    wrote(0, total)

    def more(count: int) -> None:
        nonlocal done
        done += count
        wrote(done, total)

    return {name: write_graph(graph, weights, folder, name, kind, more) for name, (graph, kind) in graphs.items()}


def new_value(name: str, dtype: Any, shape: Sequence[int | str]) -> Any:
    """An `onnx_ir.Value`."""
    import onnx_ir as ir

    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))


def float_type(name: str) -> Any:
    """`onnx_ir.DataType` of 'float32', 'float16' or 'bfloat16'."""
    import onnx_ir as ir

    return {"float32": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}[name]


def matmul_nbits(name: str, dtype: Any, n: int, k: int, bits: int, block: int) -> tuple[list[Any], dict[str, int]]:
    """Initializers and attributes of ONNX Runtime's MatMulNBits for a weight [N, K].

    Args:
        name: of the weight.
        dtype: `onnx_ir.DataType` of activations and scales.
        n: outputs.
        k: inputs.
        bits: 8 or 4.
        block: values that share a scale; divides K.
    """
    import onnx_ir as ir

    count, byte = k // block, ir.DataType.UINT8
    values = [
        new_value(f"{name}_q{bits}", byte, (n, count, block * bits // 8)),
        new_value(f"{name}_scales", dtype, (n * count,)),
    ]
    if bits == 4:
        values.append(new_value(f"{name}_zero_points", byte, (n * ((count + 1) // 2),)))
    return values, {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4}


def bytes_of(value: Any) -> int:
    """Size of an initializer in the file."""
    count = int(np.prod([int(d) for d in value.shape], dtype=np.int64))
    return -(-count * int(value.dtype.bitwidth) // 8)


def _write_fill(fill: Fill, weights: Weights, stream: Any, wrote: Callable[[int], None]) -> None:
    row_major = fill.form in {"plain", "ort-8", "ort-4"}
    places = list(fill.offsets)
    collected: list[list[Any]] = [[] for _ in fill.values]
    for source in fill.sources:
        tensor = weights.tensors[source]
        rows = tensor.shape[0] if tensor.shape else 1
        step = weights.rows_at_a_time(source)
        for begin in range(0, rows, step):
            part = weights.read(source, begin, min(rows, begin + step))
            if fill.factors is not None:
                part = part * (fill.factors if part.ndim == 2 else fill.factors[begin : begin + len(part)])
            for k, array in enumerate(_formed(fill, part)):
                if not row_major:
                    collected[k].append(array)
                    continue
                raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                stream.seek(places[k])
                stream.write(raw.data)
                places[k] += raw.nbytes
                wrote(raw.nbytes)
    if row_major:
        return
    for k, arrays in enumerate(collected):
        whole = np.concatenate(arrays, axis=0) if len(arrays) > 1 else arrays[0]
        arrays.clear()
        turned = np.ascontiguousarray(whole.T)
        del whole
        if fill.form == "portable-4" and k == 0:
            turned = blocks.nibbles((turned.reshape(-1) & 15).astype(np.uint8))
        stream.seek(fill.offsets[k])
        stream.write(turned.reshape(-1).view(np.uint8).data)
        wrote(turned.nbytes)


def _formed(fill: Fill, rows: Any) -> list[Any]:
    """Some rows of the weight as the rows of each of its initializers."""
    float_type = fill.values[-1 if fill.form in {"plain", "transposed"} else 1].dtype.numpy()
    if fill.form in {"plain", "transposed"}:
        return [rows.astype(float_type)]
    if fill.form == "ort-8":
        values, scales = blocks.int8_rows(rows, fill.block)
        return [(values.astype(np.int16) + 128).astype(np.uint8), scales.astype(float_type)]
    if fill.form == "ort-4":
        quarter, scales, zeros = blocks.int4_rows(rows, fill.block)
        return [blocks.nibbles(quarter), scales.astype(float_type), blocks.nibbles(zeros)]
    make = blocks.symmetric_int4_rows if fill.form == "portable-4" else blocks.int8_rows
    values, scales = make(rows, fill.block)
    return [values, scales.astype(float_type)]


def _scheme(fills: list[Fill], kept: list[str], dialect: str, calibration: str | None) -> Quantization | None:
    import onnx_ir as ir

    node = "MatMulNBits, accuracy_level 4" if dialect == "ort" else "DequantizeLinear"
    changed = [f for f in fills if f.block]
    parts = []
    dynamic = [f for f in changed if f.form == "dynamic-8"]
    blocked = [f for f in changed if f.form != "dynamic-8"]
    for bits, kind in (("8", "symmetric"), ("4", "asymmetric" if dialect == "ort" else "symmetric")):
        sizes = sorted({f.block for f in blocked if f.form.endswith(bits)}, reverse=True)
        if sizes:
            parts.append(f"int{bits}, {kind}, blocks of {'/'.join(map(str, sizes))} along K")
    if changed:
        scheme = f"weight-only {' and '.join(parts)} ({node})" if parts else ""
        if dynamic:
            count = sum(len(f.sources) for f in dynamic)
            scheme = (
                f"{count} products behind a norm: weights int8 per output channel, activations int8 per call, channels "
                f"smoothed (DynamicQuantizeMatMul); {scheme}"
            )
        return Quantization(
            scheme=scheme,
            quantized=sum(len(f.sources) for f in changed),
            kept=tuple(kept),
            calibration=calibration,
        )
    halved = [f for f in fills if f.values[0].dtype == ir.DataType.BFLOAT16 and len(f.values[0].shape) == 2]
    if halved:
        return Quantization("weights stored in bfloat16, products in float32 (Cast)", len(halved), tuple(kept))
    return None


def _fact(value: Any) -> TensorFact:
    shape = tuple(d if isinstance(d, int) else str(getattr(d, "value", d)) for d in value.shape)
    return TensorFact(name=value.name, dtype=str(np.dtype(value.dtype.numpy())), shape=shape)
