"""Family encoder: image -> features of a vision encoder -> linear probe -> P(forged), one graph.

UnivFD's form: CLIP's image features, one linear layer, a sigmoid. The encoder's weights are streamed from its
checkpoint; only the comparison with the checkpoint, and calibration, hold them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.encoders import ENCODERS, encoder_configuration, load_encoder
from edgebench.checkpoints.files import identify, preprocess_of, source_from
from edgebench.errors import CheckpointError
from edgebench.export.blocks import SMALL
from edgebench.export.calibration import read_calibration
from edgebench.export.empty import empty_model_of, source_names
from edgebench.export.initializers import write_graph
from edgebench.export.manifests import manifest_of
from edgebench.export.parity import compare, fixed_images, session
from edgebench.export.quantize_static import write_calibrated
from edgebench.export.request import checked
from edgebench.export.shards import Shards
from edgebench.export.streaming import trace_empty
from edgebench.forged import of_logits
from edgebench.manifest import Parity, sha256_file
from edgebench.media.pixels import pixels
from edgebench.registry import lookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.checkpoints.encoders import Architecture
    from edgebench.checkpoints.probe import Probe
    from edgebench.export.calibration import Calibration
    from edgebench.export.initializers import Traced
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Graph, Manifest, ParityRow, Preprocess
    from edgebench.recipes import Bound

OPSETS = {"ort": 18, "portable": 21}
IMAGES = 16
"""Fixed images of the parity check."""
CALIBRATION_IMAGES = 32
"""Calibration images of the parity check, for graphs with calibrated ranges."""
FORGED = (0,)
"""The place of the probe's only logit."""
TEXT_SIDE = ("text_model.", "text_projection.", "logit_scale", "logit_bias")
"""Tensors of a two-sided checkpoint that see no picture."""
ONE_TILE = {"resize", "shortest_edge_crop", "centre_crop", "pad_square", "face_crop"}


def export_encoder(request: ExportRequest) -> Manifest:
    """Write the graph and measure its parity, and its features' parity, with transformers' model and the probe.

    Raises:
        CheckpointError: the checkpoint or the probe is missing, damaged or of another kind or size.
        DataError: a calibration picture looks like an evaluation picture.
        ParityError: the graph misses the recipe's bound.
    """
    from edgebench.checkpoints.probe import read_probe

    recipe, folder, probe_file = request.recipe, request.weights, request.probe
    if recipe.encoder is None:
        raise CheckpointError("the recipe states no encoder", where=recipe.name)
    architecture: Architecture = lookup(ENCODERS, recipe.encoder, what="encoder")
    feature = recipe.feature or architecture.features[0]
    if feature not in architecture.features:
        raise CheckpointError(
            f"{recipe.encoder} has no feature {feature!r}",
            where=recipe.name,
            hint=f"known: {', '.join(architecture.features)}",
        )
    if probe_file is None:
        published = f" ({recipe.weights_file}, published at {recipe.source})" if recipe.weights_file else ""
        raise CheckpointError(f"{recipe.name} needs a probe", hint=f"pass --probe FILE{published}")
    kind, config = encoder_configuration(folder, architecture)
    probe = read_probe(probe_file, unit_length=recipe.unit_length)
    size = config.projection_dim if feature == "image_embeds" else config.hidden_size
    if len(probe.weight) != size:
        raise CheckpointError(
            f"the probe takes {len(probe.weight)} features, the encoder's {feature} has {size}",
            where=probe_file,
            hint="the probe is of another encoder or another feature",
        )
    preprocess = recipe.preprocess or preprocess_of(folder)
    _fits(preprocess, config, architecture, folder)
    calibration = None
    if request.calibration is not None:
        request.say("reading the calibration pictures")
        calibration = read_calibration(request.calibration, preprocess, request.against)
    weight_only = request.precision == "int8" and calibration is None
    if not weight_only:
        request = replace(request, dialect="portable")  # no operator of ONNX Runtime's own
    request.say("reading the checkpoint's headers")
    with Shards(folder) as shards:
        for name in [n for n in shards.tensors if n.startswith(TEXT_SIDE)]:
            del shards.tensors[name]
        traced, parameters = _traced(request, shards, kind, config, feature, probe, preprocess)
        features = traced.model.graph.outputs.pop().name
        graph = _written(request, traced, shards, calibration)
    parity = _parity(request, graph, features, kind, config, feature, probe, preprocess, calibration)
    request.say("hashing the checkpoint")
    checkpoint = identify(folder, parameters=None, name=folder.resolve().name)
    files = {**checkpoint.files, probe_file.name: sha256_file(probe_file)}
    name = f"{checkpoint.name} + {probe_file.name}"
    return manifest_of(
        request,
        graphs={"classifier": graph},
        preprocess=preprocess,
        source=source_from(files, name=name, parameters=parameters + len(probe.weight) + 1),
        parity=parity,
        labels=("forged",),
        output="logits",
        forged=FORGED,
    )


def _fits(preprocess: Preprocess, config: Any, architecture: Architecture, folder: Path) -> None:
    if preprocess.kind not in ONE_TILE or preprocess.dtype != "float32" or preprocess.layout != "nchw":
        raise CheckpointError(
            f"the preprocessing {preprocess.kind!r} does not make one tile of float32 [3, H, W]", where=folder
        )
    height, width = preprocess.height, preprocess.width
    image, patch = (v if isinstance(v, int) else v[0] for v in (config.image_size, config.patch_size))
    if architecture.any_size and (height % patch or width % patch):
        raise CheckpointError(f"pictures of {height} x {width} are no multiples of the patch, {patch}", where=folder)
    if not architecture.any_size and (height, width) != (image, image):
        raise CheckpointError(
            f"pictures are made {height} x {width}, the encoder takes {image} x {image}",
            where=folder,
            hint="preprocessor_config.json, or the recipe, is of another model",
        )


def _traced(
    request: ExportRequest,
    shards: Shards,
    kind: Any,
    config: Any,
    feature: str,
    probe: Probe,
    preprocess: Preprocess,
) -> tuple[Traced, int]:
    """The graph without weights, and the number of parameters of the encoder."""
    import torch

    from edgebench.checkpoints.probe import ProbedEncoder

    dtype = "float16" if request.precision == "fp16" else "float32"
    model = empty_model_of(request.weights, kind, config, dtype)
    sources = source_names(model, shards)
    parameters = sum(shards.tensors[key].count for key in set(sources.values()))
    by_id = {id(p): sources[n] for n, p in model.named_parameters(remove_duplicate=False)}
    if hasattr(model, "embeddings") and hasattr(model.embeddings, "position_embeddings"):
        _fix_positions(model.embeddings, shards.read(sources["embeddings.position_embeddings"]), preprocess)
    request.say("tracing the encoder")
    weight_only = request.precision == "int8" and request.calibration is None
    traced = trace_empty(
        ProbedEncoder(model, feature, probe).eval(),
        (torch.zeros(2, 3, preprocess.height, preprocess.width),),
        by_id,
        inputs=["pixel_values"],
        outputs=["logits", "features"],
        dynamic=([0],),
        opset=OPSETS[request.dialect],
        dialect=request.dialect,
        stored=lambda source: "int8" if weight_only else "float",
    )
    if traced.quantization is not None:
        listed = {entry.split(" [")[0] for entry in traced.quantization.kept}
        shapes = {s: shards.tensors[s].shape for f in traced.fills if not f.block for s in f.sources}
        more = [
            f"{source} {list(shape)}: no matrix product of its own"
            for source, shape in shapes.items()
            if len(shape) == 2 and np.prod(shape) >= SMALL and source not in listed
        ]
        kept = (*traced.quantization.kept, *more)
        traced = replace(traced, quantization=replace(traced.quantization, kept=kept))
    return traced, parameters


def _fix_positions(embeddings: Any, values: NDArray[np.float32], preprocess: Preprocess) -> None:
    """Interpolate position embeddings to the one size that the graph takes, by transformers' own code."""
    import torch

    height, width, patch = preprocess.height, preprocess.width, embeddings.patch_size
    patch = patch if isinstance(patch, int) else patch[0]
    empty = embeddings.position_embeddings
    tokens = torch.zeros(1, 1 + (height // patch) * (width // patch), values.shape[-1])
    embeddings._parameters["position_embeddings"] = torch.nn.Parameter(torch.from_numpy(values.copy()), False)
    with torch.no_grad():
        fixed = embeddings.interpolate_pos_encoding(tokens, height, width).detach().to(empty.dtype)
    embeddings._parameters["position_embeddings"] = empty
    embeddings.register_buffer("fixed_positions", fixed.clone())
    embeddings.interpolate_pos_encoding = lambda *_: embeddings.fixed_positions


def _written(request: ExportRequest, traced: Traced, shards: Shards, calibration: Calibration | None) -> Graph:
    done = 0

    def wrote(more: int) -> None:
        nonlocal done
        done += more
        request.wrote(done, traced.bytes)

    request.say(f"writing {traced.bytes / 1e9:.2f} GB of weights")
    request.wrote(0, traced.bytes)
    precision = str(request.precision)
    if calibration is None:
        return write_graph(traced, shards, request.folder, "classifier", precision, wrote)
    return write_calibrated(traced, shards, request.folder, "classifier", precision, wrote, calibration, request.say)


def _parity(
    request: ExportRequest,
    graph: Graph,
    features: str,
    kind: Any,
    config: Any,
    feature: str,
    probe: Probe,
    preprocess: Preprocess,
    calibration: Calibration | None,
) -> Parity:
    import torch

    from edgebench.checkpoints.probe import ProbedEncoder

    if calibration is None:
        plain = replace(preprocess, kind="resize") if preprocess.kind == "face_crop" else preprocess
        images = [pixels(image, plain) for image in fixed_images(IMAGES, preprocess.height, preprocess.width)]
    else:
        # Calibrated ranges hold for pictures like those that set them, and not for the fixed ones.
        images = calibration.batches[:CALIBRATION_IMAGES]
    request.say("asking the checkpoint")
    source = ProbedEncoder(load_encoder(request.weights, kind, config), feature, probe).eval()
    with torch.inference_mode():
        expected = [[v.numpy() for v in source(torch.from_numpy(image))] for image in images]
    del source
    request.say("comparing with the checkpoint")
    shown = request.folder / "features.onnx"
    try:
        _show(request.folder / graph.model.file, features, shown)
        run = session(shown)
        exported = [run.run(None, {"pixel_values": image}) for image in images]
        del run
    finally:
        shown.unlink(missing_ok=True)
    p, e = (of_logits(np.concatenate([row[0] for row in rows]), FORGED) for rows in (expected, exported))
    undecided = int(((p > 0.001) & (p < 0.999)).sum())
    inputs = f"{len(images)} {'fixed' if calibration is None else 'calibration'} images"
    against = "torch, eager, fp32"
    answer = compare(
        "classifier", against, f"{inputs}, {undecided} of them between .001 and .999", p, e, top1="threshold"
    )
    a, b = (np.concatenate([row[1] for row in rows]) for rows in (expected, exported))
    return bounded(
        answer,
        compare(f"features ({feature})", against, inputs, a, b, top1=None),
        request.recipe.bound(request.precision),
    )


def bounded(answer: ParityRow, features: ParityRow, bound: Bound) -> Parity:
    """Both rows: max_abs and top1 bound P(forged), relative_rms the features.

    Raises:
        ParityError: a row misses its bound.
    """
    checked([answer], replace(bound, relative_rms=None))
    checked([features], replace(bound, max_abs=None, top1=None))
    return Parity((answer, features), bound.max_abs, bound.relative_rms, bound.top1)


def _show(graph: Path, features: str, target: Path) -> None:
    """The same graph with its features as a second output; weights stay where they are."""
    import onnx

    model = onnx.load(str(graph), load_external_data=False)
    model.graph.output.append(onnx.helper.make_tensor_value_info(features, onnx.TensorProto.FLOAT, None))
    onnx.save_model(model, str(target))
