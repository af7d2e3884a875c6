"""Graphs traced without their weights, and the weights written into them a few rows at a time.

The model is built empty: each parameter is one zero that says it has the parameter's shape. Traced weights are made
graph inputs while the graph is optimised, so that nothing folds or merges them, and become initializers again. Then
every weight is read from the checkpoint in rows, quantized or converted, and written to its place in one file beside
the graph. Memory does not grow with the model.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgebench.errors import CheckpointError, one_line
from edgebench.export import blocks
from edgebench.export.graphs import onnx_program, quiet
from edgebench.manifest import Graph, Quantization, TensorFact, file_fact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from edgebench.export.shards import Shards

Form = Literal["plain", "transposed", "ort-8", "ort-4", "portable-8", "portable-4"]
_PAGE, _LINE = 4096, 64
"""Large tensors begin at a page, so that a runtime can map them; others at a cache line."""
_SPARE_BYTES = 64 << 20


@dataclass
class _Fill:
    """One tensor of the checkpoint and the initializers it becomes."""

    source: str
    form: Form
    values: list[Any]
    block: int = 0
    offsets: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Traced:
    """A graph whose weights are still to be written."""

    model: Any
    """`onnx_ir.Model`."""
    fills: list[_Fill]
    bytes: int
    quantization: Quantization | None


def trace_empty(
    module: Any,
    arguments: tuple[Any, ...],
    sources: Mapping[int, str],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: tuple[Any, ...],
    opset: int,
    dialect: str,
    bits: Callable[[str], int | None],
) -> Traced:
    """Trace one part of an empty model.

    Args:
        module: the wrapper, in evaluation mode.
        arguments: example inputs.
        sources: `id` of a parameter -> its tensor in the checkpoint.
        inputs: names of the graph's inputs.
        outputs: names of its outputs.
        dynamic: as for `edgebench.export.graphs.trace`.
        opset: of the default domain.
        dialect: 'ort' or 'portable'.
        bits: tensor of the checkpoint -> bits of its quantized form; None keeps it in floating point.

    Raises:
        CheckpointError: it cannot be traced, or nothing could be quantized where `bits` asks for it.
    """
    program = onnx_program(
        module, arguments, inputs=inputs, outputs=outputs, dynamic=dynamic, opset=opset, optimize=False
    )
    names = {name: sources[id(p)] for name, p in module.named_parameters(remove_duplicate=False)}
    graph = program.model.graph
    for name in [n for n in graph.initializers if n in names]:
        value = graph.initializers.pop(name)
        value.const_value = None
        graph.inputs.append(value)
    try:
        with quiet():
            program.optimize()
    except Exception as error:  # the optimiser raises many kinds
        raise CheckpointError(f"{type(module).__name__} cannot be optimised: {one_line(error)}") from error
    model = program.model
    lifted = [value for value in model.graph.inputs if value.name in names and value.name not in inputs]
    for value in lifted:
        model.graph.inputs.remove(value)
    _forget_code(model)
    fills: list[_Fill] = []
    kept: list[str] = []
    for value in lifted:
        if value.uses():
            fills += _planned(model, value, names[value.name], dialect, bits(names[value.name]), kept)
    quantized = [f for f in fills if f.block]
    asked = any(bits(source) for source in names.values())
    if asked and not quantized:
        raise CheckpointError("holds no matrix product that could be quantized", hint="export it with --fp32")
    if quantized and dialect == "ort":
        model.graph.opset_imports["com.microsoft"] = 1
    end = 0
    for fill in fills:
        for value in fill.values:
            size = _bytes(value)
            step = _PAGE if size >= 1 << 20 else _LINE
            fill.offsets.append(-(-end // step) * step)
            end = fill.offsets[-1] + size
    return Traced(model, fills, end, _scheme(quantized, kept, dialect) if quantized else None)


def write_graph(
    traced: Traced,
    shards: Shards,
    folder: Path,
    name: str,
    precision: str,
    wrote: Callable[[int], None],
) -> Graph:
    """Write `name`.onnx and its weights, `name`.onnx.data, and describe them.

    Args:
        traced: the graph.
        shards: the checkpoint.
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
                _write_fill(fill, shards, stream, wrote)
        graph = traced.model.graph
        for fill in traced.fills:
            for value, offset in zip(fill.values, fill.offsets, strict=True):
                value.const_value = ir.ExternalTensor(
                    data, offset, _bytes(value), value.dtype, shape=value.shape, name=value.name, base_dir=str(folder)
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


def _planned(model: Any, value: Any, source: str, dialect: str, bits: int | None, kept: list[str]) -> list[_Fill]:
    """What one weight becomes; the nodes that use it are rewritten."""
    uses = list(value.uses())
    turned = [u.node for u in uses if u.node.op_type == "Transpose" and _order(u.node) in {(1, 0), None}]
    if len(value.shape) != 2 or len(turned) != len(uses):
        return [_Fill(source, "plain", [value])]
    n, k = (int(d) for d in value.shape)
    products = [(t, u.node) for t in turned for u in t.outputs[0].uses() if u.node.op_type == "MatMul" and u.idx == 1]
    every = sum(len(t.outputs[0].uses()) for t in turned)
    block = None if bits is None or len(products) != every else blocks.block_of(k, n, bits)
    if bits is not None and block is None and k * n >= 2:
        kept.append(f"{source} [{n}, {k}]: " + ("small" if k * n < blocks.SMALL else "no block divides K"))
    if bits is None or block is None:
        return [_transposed(model, value, source, turned)]
    make = _matmul_nbits if dialect == "ort" else _dequantized
    return [make(model, value, source, products, n, k, bits, block)]


def _transposed(model: Any, value: Any, source: str, turned: list[Any]) -> _Fill:
    """[N, K] is stored as [K, N], and the Transpose nodes go."""
    n, k = (int(d) for d in value.shape)
    new = _value(f"{value.name}_transposed", value.dtype, (k, n))
    for node in turned:
        _replace_uses(node.outputs[0], new)
        model.graph.remove(node, safe=True)
    return _Fill(source, "transposed", [new])


def _matmul_nbits(
    model: Any, value: Any, source: str, products: list[tuple[Any, Any]], n: int, k: int, bits: int, block: int
) -> _Fill:
    import onnx_ir as ir

    count = k // block
    byte = ir.DataType.UINT8
    packed = _value(f"{value.name}_q{bits}", byte, (n, count, block * bits // 8))
    scales = _value(f"{value.name}_scales", value.dtype, (n * count,))
    values = [packed, scales]
    if bits == 4:
        values.append(_value(f"{value.name}_zero_points", byte, (n * ((count + 1) // 2),)))
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4}
    for turn, product in products:
        node = ir.Node(
            "com.microsoft",
            "MatMulNBits",
            [product.inputs[0], *values],
            [ir.AttrInt64(name, number) for name, number in attributes.items()],
            num_outputs=1,
            name=product.name,
        )
        _swap(model, product, [node])
        if not turn.outputs[0].uses():
            model.graph.remove(turn, safe=True)
    return _Fill(source, "ort-8" if bits == 8 else "ort-4", values, block)


def _dequantized(
    model: Any, value: Any, source: str, products: list[tuple[Any, Any]], n: int, k: int, bits: int, block: int
) -> _Fill:
    import onnx_ir as ir

    small = ir.DataType.INT8 if bits == 8 else ir.DataType.INT4
    whole = _value(f"{value.name}_q{bits}", small, (k, n))
    scales = _value(f"{value.name}_scales", value.dtype, (k // block, n))
    for turn, product in products:
        attributes = [ir.AttrInt64("axis", 0), ir.AttrInt64("block_size", block)]
        weight = ir.Node(
            "", "DequantizeLinear", [whole, scales], attributes, num_outputs=1, name=f"{product.name}_dequantize"
        )
        weight.outputs[0].name = f"{value.name}_dequantized_{product.name}"
        node = ir.Node("", "MatMul", [product.inputs[0], weight.outputs[0]], num_outputs=1, name=product.name)
        _swap(model, product, [weight, node])
        if not turn.outputs[0].uses():
            model.graph.remove(turn, safe=True)
    return _Fill(source, "portable-8" if bits == 8 else "portable-4", [whole, scales], block)


def _swap(model: Any, old: Any, new: list[Any]) -> None:
    import onnx_ir as ir

    last, before = new[-1].outputs[0], old.outputs[0]
    last.name, last.shape, last.type = before.name, before.shape, before.type
    ir.convenience.replace_nodes_and_values(model.graph, old, [old], new, [before], [last])


def _replace_uses(old: Any, new: Any) -> None:
    for use in list(old.uses()):
        use.node.replace_input_with(use.idx, new)


def _value(name: str, dtype: Any, shape: tuple[int, ...]) -> Any:
    import onnx_ir as ir

    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))


def _order(node: Any) -> tuple[int, ...] | None:
    perm = node.attributes.get("perm")
    return None if perm is None else tuple(perm.as_ints())


def _bytes(value: Any) -> int:
    count = int(np.prod([int(d) for d in value.shape], dtype=np.int64))
    return -(-count * int(value.dtype.bitwidth) // 8)


def _write_fill(fill: _Fill, shards: Shards, stream: Any, wrote: Callable[[int], None]) -> None:
    tensor = shards.tensors[fill.source]
    rows = tensor.shape[0] if tensor.shape else 1
    step = shards.rows_at_a_time(fill.source)
    row_major = fill.form in {"plain", "ort-8", "ort-4"}
    places = list(fill.offsets)
    collected: list[list[Any]] = [[] for _ in fill.values]
    for begin in range(0, rows, step):
        part = shards.read(fill.source, begin, min(rows, begin + step))
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


def _formed(fill: _Fill, rows: Any) -> list[Any]:
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
    make = blocks.int8_rows if fill.form == "portable-8" else blocks.symmetric_int4_rows
    values, scales = make(rows, fill.block)
    return [values, scales.astype(float_type)]


def _scheme(quantized: list[_Fill], kept: list[str], dialect: str) -> Quantization:
    node = "MatMulNBits, accuracy_level 4" if dialect == "ort" else "DequantizeLinear"
    parts = []
    for bits, kind in (("8", "symmetric"), ("4", "asymmetric" if dialect == "ort" else "symmetric")):
        sizes = sorted({f.block for f in quantized if f.form.endswith(bits)}, reverse=True)
        if sizes:
            parts.append(f"int{bits}, {kind}, blocks of {'/'.join(map(str, sizes))} along K")
    return Quantization(
        scheme=f"weight-only {' and '.join(parts)} ({node})", quantized=len(quantized), kept=tuple(kept)
    )


def _fact(value: Any) -> TensorFact:
    shape = tuple(d if isinstance(d, int) else str(d) for d in value.shape)
    return TensorFact(name=value.name, dtype=str(np.dtype(value.dtype.numpy())), shape=shape)


def _forget_code(model: Any) -> None:
    """Drop stack traces: most of a small graph's size, and paths of this machine."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
