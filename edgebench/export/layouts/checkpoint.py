"""A checkpoint of LLaVA's shape, whatever its layout, as `edgebench.export.vision_language` takes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import preprocess_of, source_from
from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.export.empty import empty_model, source_names
from edgebench.export.layouts.presented import Presented, weight_files
from edgebench.export.layouts.tokenizer import write_tokenizer
from edgebench.export.text import speech_of
from edgebench.manifest import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edgebench.export.layouts.presented import Place
    from edgebench.export.request import ExportRequest
    from edgebench.export.text import Speech
    from edgebench.manifest import FileFact, Preprocess, Source


@dataclass(frozen=True)
class Checkpoint:
    """What an export needs of a checkpoint."""

    config: Any
    """Transformers' configuration of the whole."""
    weights: Any
    """`edgebench.export.shards.Weights`, a context manager."""
    tokenizer: FileFact
    """In the artifact."""
    speech: Speech
    companions: Path
    """The folder with its tokenizer.json."""
    preprocess: Preprocess
    reference: Callable[[], Any]
    """The checkpoint in transformers, eager, float32."""
    source: Callable[[int], Source]
    """Number of parameters -> identity of the weights."""


@dataclass(frozen=True)
class Parts:
    """A layout taken apart."""

    language: Any
    """Transformers' configuration of the language model."""
    vision: Any
    """Of the vision tower."""
    projector: Mapping[str, Any]
    """What `LlavaConfig` says of the projector and of the features it takes."""
    places: Mapping[str, Place]
    """By the names of llava-hf's checkpoints."""
    folders: Mapping[str, Path]
    """Every folder that holds weights, by what they are; '' is the checkpoint's own."""
    tokenizer: Path
    """The folder of the tokenizer."""
    processor: Path | None
    """The folder of CLIP's image processor, where there is one."""
    pads: bool
    """Whether pictures are padded to a square."""


def assembled(request: ExportRequest, parts: Parts) -> Checkpoint:
    """The parts as one checkpoint; its tokenizer is written into the artifact.

    Raises:
        CheckpointError: a part is missing, damaged, or does not fit the others.
    """
    import transformers

    tokenizer, image = write_tokenizer(parts.tokenizer, request.folder)
    try:
        with quiet():
            config = transformers.LlavaConfig(
                text_config=parts.language,
                vision_config=parts.vision,
                image_token_index=image,
                tie_word_embeddings=bool(parts.language.tie_word_embeddings),
                **parts.projector,
            )
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=request.weights) from error
    weights = Presented(request.weights, parts.places)
    return Checkpoint(
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        speech=speech_of(parts.tokenizer, config.text_config),
        companions=request.folder,
        preprocess=request.recipe.preprocess or _preprocess(request, parts),
        reference=lambda: reference(config, weights),
        source=lambda parameters: _source(request.weights, parts.folders, parameters),
    )


def reference(config: Any, weights: Presented) -> Any:
    """`LlavaForConditionalGeneration` with these weights, eager, float32.

    transformers loads no such layout, so the state is read tensor by tensor and every parameter has to be in it.

    Raises:
        CheckpointError: a tensor is missing, unexpected or damaged.
    """
    import torch
    from transformers import LlavaForConditionalGeneration
    from transformers.utils import logging

    log: Any = logging
    log.set_verbosity_error()
    model = empty_model(LlavaForConditionalGeneration, config, "float32", "eager")
    with weights:
        read: dict[str, Any] = {}
        state = {}
        for name, key in source_names(model, weights).items():
            if key not in read:
                read[key] = torch.from_numpy(weights.read(key).copy())
            state[name] = read[key]
        model.load_state_dict(state, strict=True, assign=True)
    model.requires_grad_(False)
    table = model.get_input_embeddings()
    more = config.image_token_id + 1 - len(table.weight)
    if more > 0:
        # The image token is looked up before a feature takes its place.
        rows = torch.cat([table.weight, table.weight.new_zeros(more, table.weight.shape[1])])
        table.weight = torch.nn.Parameter(rows, requires_grad=False)
    return model.eval()


def text_config(values: Mapping[str, Any], model_type: str, where: Path) -> Any:
    """Transformers' configuration of a language model, from those of the values that it knows.

    Raises:
        CheckpointError: they are wrong.
    """
    from transformers import AutoConfig

    try:
        with quiet():
            known = {*AutoConfig.for_model(model_type).to_dict(), "rope_theta", "rope_scaling"} - {
                "transformers_version"
            }
            return AutoConfig.for_model(model_type, **{k: v for k, v in values.items() if k in known - {"model_type"}})
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=where) from error


def _preprocess(request: ExportRequest, parts: Parts) -> Preprocess:
    if parts.processor is None:
        hint = "pass --vision-tower FOLDER with a preprocessor_config.json, or state the preprocessing in a recipe"
        raise CheckpointError("says nothing of the pixels", where=request.weights, hint=hint)
    found = preprocess_of(parts.processor)
    if not parts.pads or found.kind != "shortest_edge_crop":
        return found
    colour = (int(found.mean[0] * 255), int(found.mean[1] * 255), int(found.mean[2] * 255))
    return replace(found, kind="pad_square", shortest_edge=None, pad_colour=colour)


def _source(folder: Path, folders: Mapping[str, Path], parameters: int) -> Source:
    hashes = {
        f"{what}/{path.name}" if what else path.name: sha256_file(path)
        for what, place in folders.items()
        for path in weight_files(place)
    }
    return source_from(hashes, name=folder.resolve().name, parameters=parameters)
