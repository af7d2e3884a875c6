"""Operations and bytes of a graph, counted from its ONNX file without its weights: `edgebench.work.Work`.

Tokens of a decoder pass every product once, but those behind the wanted position once a call; its attention is known
from its facts. What sees has a fixed size, so its shapes are followed by onnx, with ONNX Runtime's own operators
replaced by standard ones of the same shape.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgebench.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgebench.manifest import Decoder, Manifest

WEIGHT_OF = {
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "MatMulInteger", "DynamicQuantizeMatMul", "FusedGemm"), 1),
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "ConvInteger"), 1),
    **dict.fromkeys(("QLinearMatMul", "QLinearConv", "QGemm"), 3),
}
"""Product -> the input that is its weight."""
PASSING = {"DequantizeLinear", "QuantizeLinear", "Transpose", "Cast", "Identity", "Reshape"}
"""Operators between a stored weight and its product."""
ATTENTION = {"GroupQueryAttention", "MultiHeadAttention", "Attention"}
LOOKED_UP = {"GroupQueryAttention": (7, 8), "RotaryEmbedding": (2, 3)}
"""Operator -> its inputs that are tables: cosines and sines. Of a Gather it is the first."""
SAME_SHAPE = {
    "QuickGelu", "Gelu", "FastGelu", "BiasGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "SimplifiedLayerNormalization", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "BiasSoftmax",
}  # fmt: skip
"""ONNX Runtime's operators whose first output has the shape of their first input."""
INLINE = 4096
"""Bytes of the largest constant that may be a shape."""


def counted(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest with the work of each of its graphs."""
    graphs = {
        name: replace(graph, work=count(folder / graph.model.file, name, graph.precision, manifest.decoder))
        for name, graph in manifest.graphs.items()
    }
    return replace(manifest, graphs=graphs)


def count(path: Path, role: str, precision: str, decoder: Decoder | None) -> Work:
    """The work of one graph.

    Args:
        path: the ONNX file; external weights are not read.
        role: 'classifier', 'vision', 'embed' or 'decoder'.
        precision: the graph's.
        decoder: the cache's shape, for the role 'decoder'.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    read = {name for n in _nodes(graph) for place, name in enumerate(n.input) if not _looks_up(n, place)}
    weight_bytes = sum(_bytes(t) for name, t in stored.items() if name in read)
    if role == "embed":
        return Work(precision, 0)
    if role == "decoder":
        return _of_tokens(graph, precision, decoder, weight_bytes)
    return Work(precision, _of_pictures(graph, model.opset_import), weight_bytes=weight_bytes)


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, those of branches too: merged decoders hold their layers there."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _looks_up(node: Any, place: int) -> bool:
    return place == 0 if node.op_type.startswith("Gather") else place in LOOKED_UP.get(node.op_type, ())


def _bytes(tensor: Any) -> int:
    from onnx import helper

    bits = {21: 4, 22: 4, 23: 4}.get(tensor.data_type)  # UINT4, INT4, FLOAT4E2M1
    if bits is None:
        bits = 8 * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return math.prod(map(int, tensor.dims)) * bits // 8


def _attribute(node: Any, name: str, default: int = 0) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _weights(graph: Any) -> dict[str, tuple[int, ...]]:
    """Every name that holds a stored weight, however it is passed on, with the shape it is stored in."""
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:  # in topological order
        if node.op_type in PASSING and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
        elif node.op_type == "Constant":
            for attribute in node.attribute:
                found[node.output[0]] = tuple(attribute.t.dims)
    return found


def _size(node: Any, weights: dict[str, tuple[int, ...]]) -> int | None:
    """Values of a product's weight; None for a product of two activations, or no product."""
    if node.op_type == "MatMulNBits":
        return _attribute(node, "K") * _attribute(node, "N")
    place = WEIGHT_OF.get(node.op_type)
    shape = None if place is None or place >= len(node.input) else weights.get(node.input[place])
    return None if shape is None else math.prod(shape)


def _of_tokens(graph: Any, precision: str, decoder: Decoder | None, weight_bytes: int) -> Work:
    weights = _weights(graph)
    behind = {i.name for i in graph.input if i.name in {"logits_index", "num_logits_to_keep"}}
    each = once = heads = 0
    for node in graph.node:
        late = bool(behind & set(node.input))
        if late:
            behind |= set(node.output)
        size = _size(node, weights)
        if size is not None:
            each, once = each + (0 if late else 2 * size), once + (2 * size if late else 0)
        if node.op_type in ATTENTION:
            heads += _attribute(node, "num_heads")
    if decoder is None or not each:
        return Work(precision, None, weight_bytes=weight_bytes)
    # Attention in plain operators does not name its heads: there are at least as many as the cache has.
    heads = heads or decoder.layers * decoder.kv_heads
    return Work(precision, each, 4 * heads * decoder.head_dim, once, weight_bytes)


def _of_pictures(graph: Any, opsets: Any) -> int | None:
    """Operations of one item; None where a shape could not be followed, or the item has no fixed size."""
    stored = {tensor.name for tensor in graph.initializer}
    given = [i.type.tensor_type.shape.dim for i in graph.input if i.name not in stored]
    if any(not d.HasField("dim_value") for dims in given for d in dims[1:]):
        return None
    weights = _weights(graph)
    shapes = _shapes(graph, opsets)
    total = 0
    for node in graph.node:
        if node.op_type != "MatMulNBits" and node.op_type not in WEIGHT_OF and node.op_type not in ATTENTION:
            continue
        out = shapes.get(node.output[0])
        if out is None or node.op_type in ATTENTION:
            return None
        if "Conv" in node.op_type:
            shape = weights.get(node.input[WEIGHT_OF[node.op_type]])
            # Each value of a transposed convolution's input meets each filter once.
            over = shapes.get(node.input[0]) if node.op_type == "ConvTranspose" else out
            if shape is None or over is None:
                return None
            total += 2 * math.prod(over) * math.prod(shape[1:])
            continue
        depth = _attribute(node, "K") if node.op_type == "MatMulNBits" else _depth(node, shapes)
        if depth is None:
            return None
        total += 2 * math.prod(out) * depth
    return total


def _depth(node: Any, shapes: dict[str, tuple[int, ...]]) -> int | None:
    shape = shapes.get(node.input[0])
    if not shape:
        return None
    transposed = _attribute(node, "transA") and node.op_type in {"Gemm", "FusedMatMul", "QGemm"}
    return shape[-2] if transposed and len(shape) > 1 else shape[-1]


def _shapes(graph: Any, opsets: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors for one picture, as far as onnx follows them."""
    import onnx
    from onnx import TensorProto, helper

    nodes, inputs = [], []
    stored = {t.name: t for t in graph.initializer}
    kept = [t for t in stored.values() if t.data_location != TensorProto.EXTERNAL and _bytes(t) <= INLINE]
    small = {t.name for t in kept}
    for value in graph.input:
        if value.name not in stored:
            shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
            inputs.append(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape))
    for tensor in stored.values():
        if tensor.name not in small:
            inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    for number, node in enumerate(graph.node):
        if node.op_type in {"MatMulNBits", "DynamicQuantizeMatMul", "FusedMatMul"}:
            held = list(stored[node.input[1]].dims) if node.input[1] in stored else []
            if node.op_type == "MatMulNBits":
                held = [_attribute(node, "K"), _attribute(node, "N")]
            right = node.input[1]
            if held:
                right = f"{node.input[1]}/{number}"
                shape = held[::-1] if _attribute(node, "transB") else held
                inputs.append(helper.make_tensor_value_info(right, TensorProto.FLOAT, shape))
            nodes.append(helper.make_node("MatMul", [node.input[0], right], [node.output[0]]))
        elif node.domain not in {"", "ai.onnx"} and node.op_type in SAME_SHAPE:
            nodes.append(helper.make_node("Identity", [node.input[0]], [node.output[0]]))
        else:
            nodes.append(node)
    model = helper.make_model(
        helper.make_graph(nodes, "shapes", inputs, [], initializer=kept),
        opset_imports=opsets,
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return {}
    found = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in inferred.input}
    for value in inferred.value_info:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            found[value.name] = tuple(d.dim_value for d in dims)
    return found
