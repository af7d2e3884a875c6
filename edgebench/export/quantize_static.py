"""int8 of weights and activations, from calibration images, by ONNX Runtime's quantizer."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.errors import CheckpointError, one_line
from edgebench.export.evened import even
from edgebench.export.graphs import save
from edgebench.export.initializers import write_graph
from edgebench.manifest import Quantization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from edgebench.export.calibration import Calibration
    from edgebench.export.initializers import Traced
    from edgebench.export.shards import Weights
    from edgebench.manifest import Graph


@dataclass(frozen=True)
class Rule:
    """Which operators are quantized, and how."""

    operators: tuple[str, ...]
    """Only where the second input is a weight: the products within attention stay as they are."""
    what: str
    """For people."""
    symmetric: bool
    """Activations without a zero point."""
    outputs: bool
    """Results are quantized too, not only what goes in."""
    even: bool
    """Channels are evened first, and products that int8 would harm are left alone: `edgebench.export.evened`."""
    optimize: bool
    """ONNX Runtime folds the graph first, which may rename tensors."""


CONVOLUTIONS = Rule(("Conv",), "convolutions", symmetric=False, outputs=True, even=False, optimize=True)
"""Asymmetric: behind a ReLU a symmetric range wastes half of its values, and on small detectors that was seen to
cost the whole AUROC."""
PRODUCTS = Rule(("MatMul",), "matrix products", symmetric=True, outputs=False, even=True, optimize=False)
"""Of transformers: residuals, softmax and normalisation keep floating point, where outliers would set the range."""


def static_int8(
    model: Any, calibration: Calibration, rule: Rule, *, feed: str = "pixel_values"
) -> tuple[Any, Quantization]:
    """Weights and activations in int8 with explicit Q/DQ: weights symmetric per output channel.

    Args:
        model: the fp32 graph, `onnx.ModelProto`, or the path of one whose weights may lie beside it.
        calibration: what sets the ranges: least and largest value of each tensor.
        rule: what is quantized.
        feed: the graph's only input.

    Returns:
        The quantized `onnx.ModelProto` and what was done; weights that the rule names and that kept their type are
        listed.

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
                self.rest: Iterator[NDArray[np.float32]] = iter(calibration.batches)

            def get_next(self) -> dict[str, NDArray[np.float32]] | None:
                batch = next(self.rest, None)
                return None if batch is None else {feed: batch}

        logging.root.setLevel(logging.ERROR)
        with tempfile.TemporaryDirectory() as place:
            source, ready, target = (str(Path(place) / name) for name in ("fp32.onnx", "ready.onnx", "int8.onnx"))
            if isinstance(model, Path):
                source = str(model)
            else:
                onnx.save_model(model, source)
            external = isinstance(model, Path)
            quant_pre_process(
                source,
                ready,
                skip_symbolic_shape=True,
                skip_optimization=not rule.optimize,
                save_as_external_data=external,
                all_tensors_to_one_file=external,
                external_data_location="ready.onnx.data" if external else None,
            )
            expected = _weights(onnx.load_model(ready, load_external_data=False), rule)
            nodes, left = sorted(expected.values()), {}
            if rule.even:
                evened = onnx.load_model(ready)
                done = even(evened, expected, calibration.batches, feed, Path(place))
                nodes, left = done.nodes, done.left
                ready = str(Path(place) / "evened.onnx")
                onnx.save_model(evened, ready, save_as_external_data=external, location="evened.onnx.data")
            quantize_static(
                ready,
                target,
                Reader(),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                op_types_to_quantize=list(rule.operators),
                nodes_to_quantize=nodes,
                use_external_data_format=external,
                extra_options={
                    "ActivationSymmetric": rule.symmetric,
                    "WeightSymmetric": True,
                    "OpTypesToExcludeOutputQuantization": [] if rule.outputs else list(rule.operators),
                },
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
    still = {i.name for i in quantized.graph.initializer if i.data_type == onnx.TensorProto.FLOAT}
    kind = "symmetric" if rule.symmetric else "asymmetric"
    return quantized, Quantization(
        scheme=f"static W8A8 of {rule.what}, explicit Q/DQ, weights symmetric per channel, activations {kind} per tensor",
        quantized=changed,
        kept=tuple(
            f"{name}: "
            + (f"int8 would move its result by {100 * left[name]:.0f} %" if name in left else "left by the quantizer")
            for name in sorted(expected)
            if name in still
        ),
        calibration=calibration.name,
    )


def write_calibrated(
    traced: Traced,
    weights: Weights,
    folder: Path,
    name: str,
    precision: str,
    wrote: Callable[[int], None],
    calibration: Calibration,
    say: Callable[[str], None],
) -> Graph:
    """Write a traced graph in floating point, and from it the graph with int8 products.

    Args:
        traced: takes `pixel_values`.
        weights: the checkpoint's.
        folder: of the artifact.
        name: of the graph.
        precision: for the manifest.
        wrote: called with the number of bytes of each piece that was written.
        calibration: what sets the ranges.
        say: called with the step's name.

    Raises:
        CheckpointError: the disk is full, or no weight changed its type.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".calibrating-") as place:
        write_graph(traced, weights, Path(place), "fp32", "fp32", wrote)
        say("setting the ranges of activations")
        proto, quantization = static_int8(Path(place) / "fp32.onnx", calibration, PRODUCTS)
    return save(proto, folder, name, precision, quantization)


def _weights(model: Any, rule: Rule) -> dict[str, str]:
    """Weight -> the node that multiplies by it, for all that the rule quantizes."""
    constants = {i.name for i in model.graph.initializer}
    return {n.input[1]: n.name for n in model.graph.node if n.op_type in rule.operators and n.input[1] in constants}
