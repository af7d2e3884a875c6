"""Layout of optimum's image classification: one graph of logits.

`model.onnx`, in variants such as `_quantized` or `_fp16`, in the folder itself or in `onnx/`, beside config.json with
its labels and preprocessor_config.json.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.files import identify, preprocess_of, read_json
from edgebench.checkpoints.quiet import quiet
from edgebench.checkpoints.reference import load_reference
from edgebench.errors import CheckpointError, ParityError, one_line
from edgebench.export.classifier import IMAGES
from edgebench.export.imported.labels import forged_places
from edgebench.export.imported.reading import find, fits, read, source_of_graphs
from edgebench.export.imported.request import NOT_MEASURED
from edgebench.export.manifests import stamped
from edgebench.export.parity import compare, fixed_images, session
from edgebench.export.request import checked
from edgebench.forged import p_forged
from edgebench.media.pixels import pixels
from edgebench.recipes import Bound

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.export.imported.request import ImportRequest
    from edgebench.manifest import Graph, Manifest, ParityRow, Preprocess

BOUNDS = {"fp32": Bound(max_abs=1e-4), "fp16": Bound(max_abs=0.02), "int8": Bound(max_abs=0.1)}
"""Of P(forged), where no recipe states one."""


def take(request: ImportRequest) -> Manifest:
    """The manifest of such a folder.

    Raises:
        CheckpointError: a file is missing, damaged, or of another layout.
        ParityError: the graph misses its bound.
        UsageError: it is not clear which labels mean forged, or an option does not fit.
    """
    request.refuse("--vision, --embed and --decoder")
    request.expect("classifier")
    folder, recipe = request.folder, request.recipe
    config = read_json(folder, "config.json") or {}
    request.say("reading the graph")
    path = find(folder, ("model",), request.variant)
    found = read(folder, path, request.variant, inputs={"pixel_values"}, outputs={"logits"})
    stated = recipe.preprocess if recipe is not None else None
    preprocess = replace(stated or preprocess_of(folder), dtype="float32")
    _check(found.graph, preprocess, path)
    labels = _labels(config, found.graph, folder)
    manifest = stamped(
        name=request.name,
        family="classifier",
        dialect="ort" if found.fused else "portable",
        precision=found.graph.precision,
        graphs={"classifier": found.graph},
        preprocess=preprocess,
        source=source_of_graphs([found.graph], folder.resolve().name),
        parity=None,
        labels=labels,
        output="logits",
        forged=forged_places(labels, request.forged),
        note=NOT_MEASURED,
    )
    if request.weights is None:
        return manifest
    request.say("asking the checkpoint")
    model = load_reference(request.weights, "AutoModelForImageClassification")
    expected, batch = _expected(model, manifest, preprocess, request.weights)
    request.say("comparing with the checkpoint")
    row = _parity_row(folder, manifest, batch, expected)
    precision = manifest.precision
    bound = BOUNDS.get(precision, Bound()) if recipe is None else recipe.bound(precision)
    name = request.weights.resolve().name
    return replace(
        manifest,
        parity=checked([row], bound),
        source=identify(request.weights, parameters=sum(p.numel() for p in model.parameters()), name=name),
        note="imported",
    )


def _labels(config: dict[str, Any], graph: Graph, folder: Path) -> tuple[str, ...]:
    """In the order of the logits."""
    where = folder / "config.json"
    logits = next(f for f in graph.outputs if f.name == "logits")
    count = logits.shape[-1] if logits.shape else 0
    stated = config.get("id2label")
    if stated is None and isinstance(count, int) and count > 0:
        stated = {str(k): f"LABEL_{k}" for k in range(count)}  # as transformers calls labels without names
    if not isinstance(stated, dict) or not stated:
        raise CheckpointError("has no id2label", where=where)
    try:
        labels = tuple(str(stated[str(k)]) for k in range(len(stated)))
    except KeyError as error:
        raise CheckpointError("id2label should name the labels 0, 1, ... in turn", where=where) from error
    if isinstance(count, int) and count > 0 and count != len(labels):
        raise CheckpointError(f"id2label names {len(labels)} labels, the graph gives {count} logits", where=where)
    problem = config.get("problem_type")
    if problem == "regression" or (problem == "multi_label_classification" and len(labels) > 1):
        raise CheckpointError(f"problem_type {problem!r} gives no P(forged)", where=where)
    return labels


def _check(graph: Graph, preprocess: Preprocess, where: Path) -> None:
    """The graph takes pixels alone, of the size that the preprocessing makes, and gives logits first."""
    more = [f.name for f in graph.inputs if f.name != "pixel_values"]
    if more:
        raise CheckpointError(f"takes {', '.join(more)} beside pixel_values", where=where)
    if graph.outputs[0].name != "logits":
        raise CheckpointError(f"gives {graph.outputs[0].name} before its logits: it is of another layout", where=where)
    takes = graph.inputs[0].shape
    if not fits(takes, (1, 3, preprocess.height, preprocess.width)):
        raise CheckpointError(
            f"takes pixels {list(takes)}, the preprocessing makes [1, 3, {preprocess.height}, {preprocess.width}]",
            where=where,
        )


def _expected(
    model: Any, manifest: Manifest, preprocess: Preprocess, where: Path
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """P(forged) [images] by the checkpoint, for the pixels [images, 3, H, W] of the fixed images."""
    import torch

    if model.config.num_labels != len(manifest.labels):
        raise CheckpointError(
            f"has {model.config.num_labels} labels, the graph has {len(manifest.labels)}", where=where
        )
    pictures = fixed_images(IMAGES, preprocess.height, preprocess.width)
    batch = np.concatenate([pixels(picture, preprocess) for picture in pictures])
    try:
        with quiet(), torch.inference_mode():
            logits = model(pixel_values=torch.from_numpy(batch)).logits.numpy()
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(f"does not take these pixels: {one_line(error)}", where=where) from error
    return p_forged(manifest, logits), batch


def _parity_row(
    folder: Path, manifest: Manifest, batch: NDArray[np.float32], expected: NDArray[np.float64]
) -> ParityRow:
    """P(forged) of the graph, one image at a time as in a run, against the checkpoint's."""
    graph = manifest.graphs["classifier"]
    run = session(folder / graph.model.file)
    feed = batch.astype(graph.inputs[0].dtype, copy=False)
    try:
        logits = np.concatenate([run.run(["logits"], {"pixel_values": one[None]})[0] for one in feed])
    except Exception as error:  # ONNX Runtime raises its own untyped exceptions
        raise ParityError(f"the graph failed: {one_line(error)}", where=folder / graph.model.file) from error
    undecided = int(((expected > 0.001) & (expected < 0.999)).sum())
    inputs = f"{len(batch)} fixed images, {undecided} of them between .001 and .999"
    return compare(
        "classifier", "transformers, eager, fp32", inputs, expected, p_forged(manifest, logits), top1="threshold"
    )
