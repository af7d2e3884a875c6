"""int8 of convolutional classifiers, weights only."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgebench.errors import CheckpointError
from edgebench.manifest import Quantization


def weight_only_int8_per_channel(model: Any) -> Quantization:
    """Replace each convolution's weight by int8 and a DequantizeLinear, in place.

    Symmetric, one scale an output channel: `max|w| / 127`. Activations stay in float32.

    Raises:
        CheckpointError: there is no convolution.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    nodes, replaced = [], {}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1] in constants and node.input[1] not in replaced:
            name = node.input[1]
            weight = numpy_helper.to_array(constants[name]).astype(np.float32)
            scale = np.abs(weight).reshape(len(weight), -1).max(axis=1) / np.float32(127)
            scale = np.where(scale == 0, np.float32(1), scale).astype(np.float32)
            values = np.clip(np.rint(weight / scale.reshape(-1, *[1] * (weight.ndim - 1))), -127, 127).astype(np.int8)
            graph.initializer.extend(
                [numpy_helper.from_array(values, f"{name}_q8"), numpy_helper.from_array(scale, f"{name}_scale")]
            )
            nodes.append(
                helper.make_node(
                    "DequantizeLinear",
                    [f"{name}_q8", f"{name}_scale"],
                    [f"{name}_dequantized"],
                    name=f"{name}_dequantize",
                    axis=0,
                )
            )
            replaced[name] = f"{name}_dequantized"
        if node.op_type == "Conv" and node.input[1] in replaced:
            node.input[1] = replaced[node.input[1]]
        nodes.append(node)
    if not replaced:
        raise CheckpointError("holds no convolution that int8 could quantize", hint="export it with --fp32")
    still_used = {name for node in nodes for name in node.input}
    remaining = [i for i in graph.initializer if i.name in still_used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(remaining)
    return Quantization(
        scheme="weight-only int8, symmetric, one scale an output channel (DequantizeLinear)", quantized=len(replaced)
    )
