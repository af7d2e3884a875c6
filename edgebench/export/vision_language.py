"""Vision-language models of LLaVA's shape: a vision tower, a projector and a language model -> three graphs.

Vision tower and projector become one graph, the token embedding another, the decoder with its KV cache the third.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import copy_tokenizer, identify, preprocess_of, read_json
from edgebench.checkpoints.quiet import quiet
from edgebench.checkpoints.reference import load_reference
from edgebench.errors import CheckpointError, UsageError, one_line
from edgebench.export.calibration import read_calibration
from edgebench.export.decoder import Language, embed_graph, facts_of, stored_embedding, trace_decoder
from edgebench.export.empty import empty_model_of, retype, source_names
from edgebench.export.initializers import write_graphs
from edgebench.export.layouts.checkpoint import Checkpoint
from edgebench.export.layouts.original import is_original, open_original
from edgebench.export.layouts.xtuner import is_xtuner, open_xtuner
from edgebench.export.manifests import manifest_of
from edgebench.export.precision import parts_of, prefill_statement
from edgebench.export.quantize_static import write_calibrated
from edgebench.export.request import skipped
from edgebench.export.shards import Shards
from edgebench.export.streaming import trace_empty
from edgebench.export.text import speech_of, text_of, token_of
from edgebench.export.vision_language_parity import measured
from edgebench.manifest import ImageTokens

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.initializers import Traced
    from edgebench.export.precision import Parts
    from edgebench.export.request import ExportRequest
    from edgebench.export.shards import Weights
    from edgebench.manifest import Graph, Manifest, Preprocess

VISION_OPSETS = {"ort": 18, "portable": 21}


@dataclass(frozen=True)
class Family:
    """What a family's own file states."""

    model_type: str
    """Of config.json."""
    model_class: str
    config_class: str
    """Names in transformers."""


def export_vision_language(request: ExportRequest, family: Family) -> Manifest:
    """Write the three graphs and the tokenizer, and measure their parity with the checkpoint where it fits into memory.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        ParityError: a graph misses the recipe's bound.
    """
    import transformers

    parts = parts_of(request.precision, request.recipe.precisions, request.recipe.name)
    request.say("reading the checkpoint's headers")
    checkpoint = open_checkpoint(request, family)
    config, preprocess = checkpoint.config, checkpoint.preprocess
    with checkpoint.weights as shards:
        images = image_tokens(checkpoint.companions, config)
        text = text_of(checkpoint.speech, checkpoint.tokenizer, request.recipe, config.text_config, images)
        decoder = facts_of(config.text_config, cache_dtype=parts.decoder_float, in_place=request.dialect == "ort")
        kind = getattr(transformers, family.model_class)
        model = empty_model_of(request.weights, kind, config, parts.decoder_float)
        sources = source_names(model, shards)
        parameters = sum(shards.tensors[key].count for key in set(sources.values()))
        traced = _traced(request, model, sources, shards, parts, preprocess)
        vision = traced.pop("vision")[0] if parts.vision == "w8a8" else None
        graphs = write_graphs(traced, shards, request.folder, request.say, request.wrote)
        if vision is not None:
            graphs = {"vision": calibrated_vision(request, vision, shards, preprocess), **graphs}
    del model
    parity, note = None, skipped(request, parameters)
    if note is None:
        bound = request.recipe.bound(request.precision)
        parity = measured(checkpoint.reference, text, preprocess, request.folder, graphs, decoder, bound, request.say)
    request.say("hashing the checkpoint")
    return manifest_of(
        request,
        graphs=graphs,
        preprocess=preprocess,
        source=checkpoint.source(parameters),
        parity=parity,
        text=text,
        decoder=replace(decoder, prefill=prefill_statement(parts, request.precision, request.dialect, parity)),
        note=note or "",
    )


def calibrated_vision(request: ExportRequest, traced: Traced, weights: Weights, preprocess: Preprocess) -> Graph:
    """The vision graph with int8 activations.

    Raises:
        CheckpointError: there is nothing to calibrate with.
        DataError: a calibration picture looks like an evaluation picture.
    """
    if request.calibration is None:
        raise UsageError("w8a8 needs calibration pictures", hint="pass --calibration FOLDER")
    request.say("reading the calibration pictures")
    calibration = read_calibration(request.calibration, preprocess, request.against)
    return write_calibrated(
        traced, weights, request.folder, "vision", "w8a8", lambda more: None, calibration, request.say
    )


def open_checkpoint(request: ExportRequest, family: Family) -> Checkpoint:
    """The checkpoint in transformers' layout, or in one of LLaVA-1.5's others, known by its files.

    Raises:
        CheckpointError: it is not one, or is damaged.
        UsageError: a part is given that it has itself.
    """
    folder = request.weights
    if family.model_type == "llava" and folder.is_dir():
        if is_xtuner(folder):
            return open_xtuner(request)
        if is_original(folder):
            return open_original(request)
    for option, part in (("--vision-tower", request.vision_tower), ("--language", request.language)):
        if part is not None:
            raise UsageError(f"{option} was given, and the checkpoint has its own", where=folder)
    config, weights = config_of(folder, family), Shards(folder)
    return Checkpoint(
        config=config,
        weights=weights,
        tokenizer=copy_tokenizer(folder, request.folder),
        speech=speech_of(folder, config.text_config),
        companions=folder,
        preprocess=request.recipe.preprocess or preprocess_of(folder),
        reference=lambda: load_reference(folder, family.model_class),
        source=lambda parameters: identify(folder, parameters=parameters, name=folder.resolve().name),
    )


def config_of(folder: Path, family: Family) -> Any:
    """The checkpoint's configuration.

    Raises:
        CheckpointError: there is none, or it is another architecture's.
    """
    import transformers

    config = read_json(folder, "config.json")
    if config is None:
        raise CheckpointError(
            "has no config.json", where=folder, hint="--weights takes a Hugging Face checkpoint folder"
        )
    if config.get("model_type") != family.model_type:
        raise CheckpointError(
            f"is a {config.get('model_type')!r}, not a {family.model_type!r}", where=folder / "config.json"
        )
    try:
        with quiet():
            return getattr(transformers, family.config_class).from_dict(config)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=folder / "config.json") from error


def image_tokens(folder: Path, config: Any) -> ImageTokens:
    """How pictures stand in the prompt of a checkpoint of this shape.

    Raises:
        CheckpointError: the tokenizer is damaged or lacks the image token.
    """
    side = config.vision_config.image_size // config.vision_config.patch_size
    whole = config.vision_feature_select_strategy != "default"
    preprocessor = read_json(folder, "preprocessor_config.json") or {}
    unpads = getattr(config, "image_grid_pinpoints", None) is not None
    if unpads and (whole or math.isqrt(side * side) != side):
        raise CheckpointError("tiles that keep their class token have no form here", where=folder / "config.json")
    return ImageTokens(
        token=token_of(folder, config.image_token_id),
        id=config.image_token_id,
        per_tile=side * side + whole,
        tile_suffix=str(preprocessor.get("tile_suffix", "")),
        newline_id=config.text_config.vocab_size if unpads else None,
    )


def _traced(
    request: ExportRequest,
    model: Any,
    sources: dict[str, str],
    weights: Weights,
    parts: Parts,
    preprocess: Preprocess,
) -> dict[str, tuple[Traced, str]]:
    """Graph -> what is traced, and its precision."""
    import torch

    from edgebench.checkpoints.vision import VisionPart

    if parts.vision_float != parts.decoder_float:
        retype(model.model.vision_tower, parts.vision_float)
        retype(model.model.multi_modal_projector, parts.vision_float)
    by_id = {id(p): sources[n] for n, p in model.named_parameters(remove_duplicate=False)}
    request.say("tracing vision")
    vision = trace_empty(
        VisionPart(model).eval(),
        (torch.zeros(2, 3, preprocess.height, preprocess.width),),
        by_id,
        inputs=["pixel_values"],
        outputs=["image_features"],
        dynamic=([0],),
        opset=VISION_OPSETS[request.dialect],
        dialect=request.dialect,
        stored=parts.stored("vision"),
    )
    embedding = model.get_input_embeddings().weight
    table = [by_id[id(embedding)]]
    newline = getattr(model.model, "image_newline", None)
    if newline is not None:
        table.append(by_id[id(newline)])
    dtype = stored_embedding(parts.embed, weights, table[0])
    request.say("tracing decoder")
    language = Language(model.model.language_model, model.lm_head, by_id)
    tokenizer = request.folder / "tokenizer.json"
    decoder = trace_decoder(language, weights, parts, request.dialect, None, tokenizer, request.say)
    return {
        "vision": (vision, parts.vision),
        "embed": (embed_graph(tuple(table), len(embedding) + len(table) - 1, embedding.shape[1], dtype), SHORT[dtype]),
        "decoder": (decoder, parts.decoder),
    }


SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""numpy's name of a floating type -> the manifest's."""
