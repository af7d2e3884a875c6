"""Graphs traced without their weights.

The model is built empty: each parameter is one zero that says it has the parameter's shape. Traced weights are made
graph inputs while the graph is optimised, so that nothing folds or merges them, and become initializers again, in the
type that is asked for. Memory does not grow with the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.export import blocks
from edgebench.export.graphs import onnx_program
from edgebench.export.initializers import Fill, matmul_nbits, new_value, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edgebench.export.initializers import Stored, Traced

BITS = {"int8": 8, "int4": 4, "w8a8": 8}
"""How a matrix is stored -> bits in blocks; 'w8a8' where activations cannot be rounded."""


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
    stored: Callable[[str], Stored],
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
        stored: tensor of the checkpoint -> how it is stored.

    Raises:
        CheckpointError: it cannot be traced, or nothing could be quantized where `stored` asks for it.
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
    fills: list[Fill] = []
    kept: list[str] = []
    for value in lifted:
        if value.uses():
            fills += _planned(model, value, names[value.name], dialect, stored(names[value.name]), kept)
    quantized = [f for f in fills if f.block]
    if not quantized and any(stored(source) in BITS for source in names.values()):
        raise CheckpointError("holds no matrix product that could be quantized", hint="export it with --fp32")
    if quantized and dialect == "ort":
        model.graph.opset_imports["com.microsoft"] = 1
    return traced(model, fills, kept, dialect)


def _planned(model: Any, value: Any, source: str, dialect: str, stored: Stored, kept: list[str]) -> list[Fill]:
    """What one weight becomes; the nodes that use it are rewritten."""
    uses = list(value.uses())
    turned = [u.node for u in uses if u.node.op_type == "Transpose" and _order(u.node) in {(1, 0), None}]
    if len(value.shape) != 2 or len(turned) != len(uses):
        return [Fill((source,), "plain", [value])]
    n, k = (int(d) for d in value.shape)
    products = [(t, u.node) for t in turned for u in t.outputs[0].uses() if u.node.op_type == "MatMul" and u.idx == 1]
    every = sum(len(t.outputs[0].uses()) for t in turned)
    bits = BITS.get(stored)
    block = None if bits is None or len(products) != every else blocks.block_of(k, n, bits)
    if bits is not None and block is None and k * n >= 2:
        kept.append(blocks.why_kept(source, n, k))
    if bits is None or block is None:
        return [_transposed(model, value, source, turned, stored)]
    make = _matmul_nbits if dialect == "ort" else _dequantized
    return [make(model, value, source, products, n, k, bits, block)]


def _transposed(model: Any, value: Any, source: str, turned: list[Any], stored: Stored) -> Fill:
    """[N, K] is stored as [K, N], and the Transpose nodes go."""
    import onnx_ir as ir

    n, k = (int(d) for d in value.shape)
    half = stored == "bf16"
    new = new_value(f"{value.name}_transposed", ir.DataType.BFLOAT16 if half else value.dtype, (k, n))
    for node in turned:
        if half:
            cast = ir.Node(
                "", "Cast", [new], [ir.AttrInt64("to", value.dtype)], num_outputs=1, name=f"{node.name}_cast"
            )
            _swap(model, node, [cast])
            continue
        _replace_uses(node.outputs[0], new)
        model.graph.remove(node, safe=True)
    return Fill((source,), "transposed", [new])


def _matmul_nbits(
    model: Any, value: Any, source: str, products: list[tuple[Any, Any]], n: int, k: int, bits: int, block: int
) -> Fill:
    import onnx_ir as ir

    values, numbers = matmul_nbits(value.name, value.dtype, n, k, bits, block)
    for turn, product in products:
        attributes = [ir.AttrInt64(key, number) for key, number in numbers.items()]
        node = ir.Node(
            "com.microsoft", "MatMulNBits", [product.inputs[0], *values], attributes, num_outputs=1, name=product.name
        )
        _swap(model, product, [node])
        if not turn.outputs[0].uses():
            model.graph.remove(turn, safe=True)
    return Fill((source,), "ort-8" if bits == 8 else "ort-4", values, block)


def _dequantized(
    model: Any, value: Any, source: str, products: list[tuple[Any, Any]], n: int, k: int, bits: int, block: int
) -> Fill:
    import onnx_ir as ir

    small = ir.DataType.INT8 if bits == 8 else ir.DataType.INT4
    whole = new_value(f"{value.name}_q{bits}", small, (k, n))
    scales = new_value(f"{value.name}_scales", value.dtype, (k // block, n))
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
    return Fill((source,), "portable-8" if bits == 8 else "portable-4", [whole, scales], block)


def _swap(model: Any, old: Any, new: list[Any]) -> None:
    import onnx_ir as ir

    last, before = new[-1].outputs[0], old.outputs[0]
    last.name, last.shape, last.type = before.name, before.shape, before.type
    ir.convenience.replace_nodes_and_values(model.graph, old, [old], new, [before], [last])


def _replace_uses(old: Any, new: Any) -> None:
    for use in list(old.uses()):
        use.node.replace_input_with(use.idx, new)


def _order(node: Any) -> tuple[int, ...] | None:
    perm = node.attributes.get("perm")
    return None if perm is None else tuple(perm.as_ints())


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
