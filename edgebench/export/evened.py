"""Activations made fit for one int8 range before a graph is quantized: channels evened, hopeless products left alone.

In front of a product the activations are divided by a factor for each channel and the weight's rows are multiplied by
it (SmoothQuant, Xiao et al. 2023), the same numbers in the real ones. A product whose result would still move by more
than LIMIT keeps floating point: in vision transformers those behind an activation function, where single tokens run
hundreds of times as high as the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

ALPHA = 0.5
LIMIT = 0.03
"""Largest relative RMS of a product's result on calibration pictures."""
PICTURES = 16
"""Of the calibration that set the factors."""


@dataclass(frozen=True)
class Evened:
    """What was done to a graph."""

    nodes: list[str]
    """Products that can be quantized."""
    left: dict[str, float]
    """Weight of each product that keeps floating point -> how far its result would have moved."""


def even(
    model: Any, products: Mapping[str, str], batches: Sequence[NDArray[np.float32]], feed: str, place: Path
) -> Evened:
    """Even the channels in front of matrix products, in place.

    Args:
        model: `onnx.ModelProto` with its weights in it.
        products: weight [K, N] -> name of the node that multiplies by it.
        batches: calibration pictures as the graph takes them.
        feed: the graph's only input.
        place: a folder for a copy of the graph.
    """
    from onnx import helper, numpy_helper

    names = {node: weight for weight, node in products.items()}
    nodes = {n.name: n for n in model.graph.node if n.name in names}
    constants = {i.name: i for i in model.graph.initializer}
    most, sample = _activations(model, sorted({n.input[0] for n in nodes.values()}), batches[:PICTURES], feed, place)
    good, left = [], {}
    before: dict[str, list[Any]] = {}
    for name, node in nodes.items():
        x, weight = node.input[0], numpy_helper.to_array(constants[names[name]]).astype(np.float32)
        high, low = np.maximum(most[x], 1e-5), np.maximum(np.abs(weight).max(axis=1), 1e-5)
        factors = high**ALPHA / low ** (1 - ALPHA)
        factors = (factors / np.exp(np.log(factors).mean())).astype(np.float32)
        moved = _moved(sample[x] / factors, weight * factors[:, None], float((most[x] / factors).max()))
        if moved > LIMIT:
            left[names[name]] = moved
            continue
        good.append(name)
        constants[names[name]].CopyFrom(numpy_helper.from_array(weight * factors[:, None], names[name]))
        inverse = numpy_helper.from_array(np.float32(1) / factors, f"{name}_evening")
        model.graph.initializer.append(inverse)
        before[name] = [helper.make_node("Mul", [x, inverse.name], [f"{name}_evened"], name=f"{name}_even")]
        node.input[0] = f"{name}_evened"
    ordered = [entry for node in model.graph.node for entry in (*before.get(node.name, ()), node)]
    kept = [type(node).FromString(node.SerializeToString()) for node in ordered]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return Evened(good, left)


def _activations(
    model: Any, tensors: list[str], batches: Sequence[NDArray[np.float32]], feed: str, place: Path
) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.float32]]]:
    """Largest magnitude of each channel over all pictures, and the rows of the first picture."""
    import onnx
    import onnxruntime

    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    there = {o.name for o in seen.graph.output}
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in there)
    path = place / "seen.onnx"
    onnx.save_model(seen, str(path), save_as_external_data=True, location="seen.onnx.data")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    most: dict[str, NDArray[np.float32]] = {}
    sample: dict[str, NDArray[np.float32]] = {}
    for batch in batches:
        for name, value in zip(tensors, session.run(tensors, {feed: batch}), strict=True):
            rows = value.reshape(-1, value.shape[-1]).astype(np.float32)
            sample.setdefault(name, rows)
            most[name] = np.maximum(most.get(name, np.float32(0)), np.abs(rows).max(axis=0))
    return most, sample


def _moved(x: NDArray[np.float32], weight: NDArray[np.float32], most: float) -> float:
    """Relative RMS by which int8 moves x @ weight: one range for x, one for each column of the weight."""
    step = most / 127 or 1.0
    steps = np.abs(weight).max(axis=0) / 127
    steps = np.where(steps == 0, np.float32(1), steps)
    exact = x @ weight
    rounded = (np.clip(np.rint(x / step), -127, 127) * step).astype(np.float32) @ (np.rint(weight / steps) * steps)
    power = float(np.mean(exact.astype(np.float64) ** 2))
    return float(np.sqrt(np.mean((exact - rounded).astype(np.float64) ** 2) / power)) if power else 0.0
