"""Family classifier: image -> P(forged), one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.networks import NETWORKS
from edgebench.errors import CheckpointError
from edgebench.export.calibration import read_calibration
from edgebench.export.graphs import save, trace
from edgebench.export.manifests import manifest_of
from edgebench.export.parity import compare, fixed_images, session
from edgebench.export.quantize_conv import weight_only_int8_per_channel
from edgebench.export.quantize_static import CONVOLUTIONS, static_int8
from edgebench.export.request import checked
from edgebench.forged import of_logits
from edgebench.media.pixels import pixels
from edgebench.registry import load, lookup

if TYPE_CHECKING:
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Manifest

OPSET = 18
IMAGES = 16
"""Fixed images of the parity check."""
CALIBRATION_IMAGES = 32
"""Calibration images of the parity check, for graphs with calibrated ranges."""


def export_classifier(request: ExportRequest) -> Manifest:
    """Write the graph and measure its parity with the torch network.

    Raises:
        CheckpointError: the weights are missing, damaged or of another network.
        ParityError: the graph misses the recipe's bound.
    """
    import torch

    from edgebench.checkpoints.files import source_of

    recipe = request.recipe
    if recipe.network is None or recipe.preprocess is None:
        raise CheckpointError("the recipe states no network or no preprocessing", where=recipe.name)
    request.say("loading the weights")
    file = (
        request.weights / recipe.weights_file if request.weights.is_dir() and recipe.weights_file else request.weights
    )
    network: Any = load(lookup(NETWORKS, recipe.network, what="network"))(file).eval()
    parameters = sum(p.numel() for p in network.parameters())
    p = recipe.preprocess
    folder = request.calibration
    calibration = None if folder is None else read_calibration(folder, p, request.against)
    if calibration is None:
        # A face crop begins as any picture; the fixed images stand for the crop itself.
        checks = [pixels(image, _as_resize(p)) for image in fixed_images(IMAGES, p.height, p.width)]
    else:
        # Calibrated ranges hold for pictures like those that set them, and not for the fixed ones.
        checks = calibration.batches[:CALIBRATION_IMAGES]
    batch = np.concatenate(checks)
    with torch.inference_mode():
        reference = of_logits(network.logits(torch.from_numpy(batch)).numpy(), network.FORGED)
    request.say("tracing the network")
    proto = trace(
        _logits(network, half=request.precision == "fp16"),
        (torch.from_numpy(batch[:2]),),
        inputs=["pixel_values"],
        outputs=["logits"],
        dynamic=([0],),
        opset=OPSET,
    )
    quantization = None
    if request.precision in {"int8", "w8a8"}:
        request.say("quantizing the network")
        if calibration is None:
            quantization = weight_only_int8_per_channel(proto)
        else:
            proto, quantization = static_int8(proto, calibration, CONVOLUTIONS)
    graph = save(proto, request.folder, "classifier", request.precision, quantization)
    request.say("comparing with the network")
    run = session(request.folder / graph.model.file)
    exported = of_logits(run.run(None, {"pixel_values": batch})[0], network.FORGED)
    undecided = int(((reference > 0.001) & (reference < 0.999)).sum())
    inputs = f"{len(batch)} {'fixed' if calibration is None else 'calibration'} images, {undecided} of them between .001 and .999"
    row = compare("classifier", "torch, eager, fp32", inputs, reference, exported, top1="threshold")
    return manifest_of(
        request,
        graphs={"classifier": graph},
        preprocess=p,
        source=source_of([file, *map(file.with_name, recipe.beside)], name=recipe.name, parameters=parameters),
        parity=checked([row], recipe.bound(request.precision)),
        labels=network.LABELS,
        output="logits",
        forged=network.FORGED,
    )


def _as_resize(preprocess: Any) -> Any:
    from dataclasses import replace

    return replace(preprocess, kind="resize") if preprocess.kind == "face_crop" else preprocess


def _logits(network: Any, *, half: bool) -> Any:
    import torch

    class Logits(torch.nn.Module):
        """A network's logits; in half precision it is in float16 between float32 borders."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network.half() if half else network

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network.logits(pixel_values.half() if half else pixel_values)
            return logits.float()

    return Logits().eval()
