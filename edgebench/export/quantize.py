"""Weight-only int8 of matrix products, in the form of each dialect.

Blocks of 64 (else 32 or 16) consecutive values along K share one float scale: `scale = max|w| / 127`, symmetric.
`ort`: `com.microsoft::MatMulNBits`, 8 bits, accuracy_level 4. `portable`: opset-21 `DequantizeLinear` with
`block_size`. Never `quantize_dynamic`: per-tensor activations ruin language models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.errors import CheckpointError
from edgebench.manifest import Quantization

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = (64, 32, 16)
SMALL = 4096
"""Matrices of fewer values stay in floating point: nothing is gained."""


def quantize_blocks(weight: NDArray[np.floating[Any]], block: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 blocks along K.

    Args:
        weight: [K, N]; `block` divides K.
        block: values that share a scale.

    Returns:
        int8 [K, N] in -127..127, and float32 scales [K / block, N].
    """
    k, n = weight.shape
    blocks = weight.astype(np.float32).reshape(k // block, block, n)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    safe = np.where(scale == 0, np.float32(1), scale)
    values = np.clip(np.rint(blocks / safe[:, None, :]), -127, 127).astype(np.int8)
    return values.reshape(k, n), scale.astype(np.float32)


def weight_only_int8(model: Any, dialect: str) -> Quantization:
    """Quantize every constant right-hand side of a MatMul, in place.

    Raises:
        CheckpointError: nothing could be quantized, so that 'int8' would not be true.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    kept: list[str] = []
    used_blocks: set[int] = set()
    nodes: list[Any] = []
    done = 0
    for node in graph.node:
        weight = constants.get(node.input[1]) if node.op_type == "MatMul" and node.domain == "" else None
        if weight is None or len(weight.dims) != 2:
            nodes.append(node)
            continue
        k, n = weight.dims
        block = next((b for b in BLOCKS if k % b == 0), None)
        if k * n < SMALL or block is None:
            kept.append(
                f"{weight.name} [{k}, {n}]: " + ("small" if k * n < SMALL else f"no block of {BLOCKS} divides K")
            )
            nodes.append(node)
            continue
        array = numpy_helper.to_array(weight)
        values, scales = quantize_blocks(array, block)
        prefix = weight.name
        if dialect == "ort":
            packed = (values.astype(np.int16) + 128).astype(np.uint8).T.reshape(n, k // block, block)
            tensors = [
                (f"{prefix}_q8", np.ascontiguousarray(packed)),
                (f"{prefix}_scales", np.ascontiguousarray(scales.T).reshape(-1).astype(array.dtype)),
            ]
            nodes.append(
                helper.make_node(
                    "MatMulNBits",
                    [node.input[0], *(t[0] for t in tensors)],
                    node.output,
                    name=node.name,
                    domain="com.microsoft",
                    K=k,
                    N=n,
                    bits=8,
                    block_size=block,
                    accuracy_level=4,
                )
            )
        else:
            tensors = [(f"{prefix}_q8", values), (f"{prefix}_scales", scales.astype(array.dtype))]
            nodes.append(
                helper.make_node(
                    "DequantizeLinear",
                    [t[0] for t in tensors],
                    [f"{prefix}_dequantized"],
                    name=f"{node.name}_dequantize",
                    axis=0,
                    block_size=block,
                )
            )
            nodes.append(
                helper.make_node("MatMul", [node.input[0], f"{prefix}_dequantized"], node.output, name=node.name)
            )
        uses[weight.name] -= 1
        for name, tensor in tensors:
            if name not in constants:
                graph.initializer.append(numpy_helper.from_array(tensor, name))
                constants[name] = graph.initializer[-1]
        used_blocks.add(block)
        done += 1
    if done == 0:
        raise CheckpointError("holds no matrix product that int8 could quantize", hint="export it with --fp32")
    del graph.node[:]
    graph.node.extend(nodes)
    remaining = [i for i in graph.initializer if uses.get(i.name, 1) > 0]
    del graph.initializer[:]
    graph.initializer.extend(remaining)
    if dialect == "ort" and not any(o.domain == "com.microsoft" for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    blocks = "/".join(map(str, sorted(used_blocks, reverse=True)))
    form = "MatMulNBits, accuracy_level 4" if dialect == "ort" else "DequantizeLinear"
    return Quantization(
        scheme=f"weight-only int8, symmetric, blocks of {blocks} along K ({form})", quantized=done, kept=tuple(kept)
    )
