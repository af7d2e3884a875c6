"""int8 of convolutional classifiers: weights only, or weights and activations from calibration images."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.benches.base import Image
from edgebench.errors import CheckpointError, one_line
from edgebench.manifest import Quantization
from edgebench.media.prefetch import Source, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".webp", ".bmp"])
MAX_IMAGES = 128


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


@dataclass(frozen=True)
class Calibration:
    """Images that set the ranges of activations."""

    name: str
    """The folder's name, the number of images and the SHA-256 over theirs."""
    batches: list[NDArray[np.float32]]
    """float32 [1, 3, H, W] each."""


def read_calibration(folder: Path, preprocess: Preprocess) -> Calibration:
    """Images of a folder in order of name, 128 at most, through the artifact's own preprocessing.

    Raises:
        CheckpointError: there is no readable image.
    """
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)[:MAX_IMAGES] if folder.is_dir() else []
    if not paths:
        raise CheckpointError("holds no image to calibrate with", where=folder)
    batches, digest = [], hashlib.sha256()
    sources = (Source(str(path), Image(path.name, path=path).read) for path in paths)
    for path, loaded in zip(paths, prefetch(sources, preprocess), strict=True):
        if loaded.tiles is not None:
            batches.append(loaded.tiles[:1])
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    if not batches:
        raise CheckpointError("holds no readable image to calibrate with", where=folder)
    name = f"{folder.resolve().name}, {len(batches)} images, sha256:{digest.hexdigest()}"
    return Calibration(f"{name}, preprocessing {preprocess.passport()[:8]}", batches)


def static_int8(model: Any, calibration: Calibration) -> tuple[Any, Quantization]:
    """Weights and activations of convolutions in int8 with explicit Q/DQ, by ONNX Runtime's quantizer.

    Activations are asymmetric: behind a ReLU a symmetric range wastes half of its values, and on small detectors
    that was seen to cost the whole AUROC.

    Args:
        model: the fp32 graph.
        calibration: what sets the ranges.

    Returns:
        The quantized graph and what was done.

    Raises:
        CheckpointError: no weight changed its type.
    """
    import onnx

    level = logging.root.level
    try:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Reader(CalibrationDataReader):  # type: ignore[misc] # the base class has no types
            def __init__(self) -> None:
                self.rest = iter(calibration.batches)

            def get_next(self) -> dict[str, NDArray[np.float32]] | None:
                batch = next(self.rest, None)
                return None if batch is None else {"pixel_values": batch}

        with tempfile.TemporaryDirectory() as place:
            source, ready, target = (str(Path(place) / name) for name in ("fp32.onnx", "ready.onnx", "int8.onnx"))
            onnx.save_model(model, source)
            quant_pre_process(source, ready, skip_symbolic_shape=True)
            quantize_static(
                ready,
                target,
                Reader(),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                op_types_to_quantize=["Conv"],
            )
            quantized = onnx.load_model(target)
    except CheckpointError:
        raise
    except Exception as error:  # the quantizer raises many kinds
        raise CheckpointError(f"cannot be quantized: {one_line(error)}") from error
    finally:
        logging.root.setLevel(level)
    changed = sum(1 for i in quantized.graph.initializer if i.data_type == onnx.TensorProto.INT8 and len(i.dims) >= 2)
    if changed == 0:
        raise CheckpointError("the quantizer left every weight as it was")
    scheme = (
        "static W8A8 of convolutions, explicit Q/DQ, weights symmetric per channel, activations asymmetric per tensor"
    )
    return quantized, Quantization(scheme=scheme, quantized=changed, calibration=calibration.name)
