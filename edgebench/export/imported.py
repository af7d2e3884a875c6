"""Folders that others exported, taken as they are: our manifest is written beside their graphs.

The layout is the one that onnx-community publishes for vision-language models: `vision_encoder`, `embed_tokens` and
`decoder_model_merged`, each in variants such as `_int8` or `_q4`, in the folder itself or in `onnx/`, beside the
checkpoint's own config.json, tokenizer.json and preprocessor_config.json.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from edgebench import __version__
from edgebench.environment import installed
from edgebench.errors import CheckpointError, UsageError, one_line
from edgebench.export.checkpoint import identify, preprocess_of, source_from
from edgebench.export.decoder import facts_of
from edgebench.export.graphs import tensor_fact
from edgebench.export.llava import LLAVA
from edgebench.export.manifests import TOOLS
from edgebench.export.request import checked
from edgebench.export.text import speech_of, text_of
from edgebench.export.vision_language import config_of, image_tokens
from edgebench.export.vision_language_parity import Reference, load_reference, parity_rows
from edgebench.manifest import (
    FORMAT,
    Graph,
    Manifest,
    Source,
    file_fact,
    is_artifact,
    read_artifact,
    write_manifest,
)
from edgebench.prompts.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgebench.manifest import Artifact
    from edgebench.recipes import Recipe

PARTS = {"vision": "vision_encoder", "embed": "embed_tokens", "decoder": "decoder_model_merged"}
"""Our graph -> the file's name in that layout."""
IO = {
    "vision": ({"pixel_values"}, {"image_features"}),
    "embed": ({"input_ids"}, {"inputs_embeds"}),
    "decoder": ({"inputs_embeds"}, {"logits"}),
}
"""Inputs and outputs that a graph must have."""
PRECISIONS = {"": "fp32", "fp16": "fp16", "int8": "int8", "uint8": "uint8", "quantized": "int8", "q4": "int4",
              "q4f16": "int4", "bnb4": "bnb4"}  # fmt: skip
"""Variant -> precision, as the publisher means it."""


def import_folder(
    folder: Path,
    recipe: Recipe,
    *,
    variants: dict[str, str],
    weights: Path | None,
    say: Callable[[str], None],
    overwrite: bool = False,
) -> Artifact:
    """Write `manifest.json` into the folder.

    Args:
        folder: of that layout.
        recipe: how the model is asked; its bounds hold where parity is measured.
        variants: part -> variant, such as {"vision": "fp16", "embed": "", "decoder": "q4"}.
        weights: the checkpoint, to measure parity with; None leaves parity unknown.
        say: called with the name of each step.
        overwrite: replace a manifest that is there.

    Raises:
        CheckpointError: a file is missing, damaged, or of another layout.
        ParityError: a graph misses the recipe's bound.
        UsageError: the folder has a manifest already.
    """
    if is_artifact(folder) and not overwrite:
        raise UsageError("has a manifest already", where=folder, hint="pass --overwrite to replace it")
    config = config_of(folder, LLAVA)
    say("reading the graphs")
    graphs = {part: _graph(folder, part, variants.get(part, "")) for part in PARTS}
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError("has no tokenizer.json", where=folder)
    speech, images = speech_of(folder, config.text_config), image_tokens(folder, config)
    text = text_of(speech, file_fact(folder, "tokenizer.json"), recipe, config.text_config, images)
    preprocess = replace(recipe.preprocess or preprocess_of(folder), dtype="float32")
    cache = next((f for f in graphs["decoder"].inputs if f.name == "past_key_values.0.key"), None)
    if cache is None:
        raise CheckpointError("takes no past_key_values", where=folder / graphs["decoder"].model.file)
    decoder = facts_of(config.text_config, cache_dtype=cache.dtype, in_place=False)
    names = {f.name for f in graphs["decoder"].inputs}
    needed = {f"past_key_values.{k}.{kind}" for k in range(decoder.layers) for kind in ("key", "value")}
    if not needed <= names or f"past_key_values.{decoder.layers}.key" in names:
        raise CheckpointError(
            f"has not the {decoder.layers} layers of config.json", where=folder / graphs["decoder"].model.file
        )
    parity, note = None, "imported; parity with the checkpoint was not measured"
    source = _source(folder, graphs)
    if weights is not None:
        say("asking the checkpoint")
        reference = Reference(
            load_reference(weights, LLAVA.model_class), text, Conversation(text, folder / "tokenizer.json"), preprocess
        )
        expected = [reference.answer(images) for images in (1, 3)]
        del reference
        say("comparing with the checkpoint")
        rows = [row for answer in expected for row in parity_rows(folder, graphs, decoder, answer)]
        parity, note = checked(rows, recipe.bound(graphs["decoder"].precision)), "imported"
        source = identify(weights, parameters=None, name=weights.resolve().name)
    manifest = Manifest(
        format=FORMAT,
        name=recipe.name,
        family="llava",
        dialect="portable" if not _fused(folder, graphs) else "ort",
        precision=graphs["decoder"].precision,
        graphs=graphs,
        preprocess=preprocess,
        source=source,
        parity=parity,
        tools={"edgebench": __version__, **installed(TOOLS)},
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        text=text,
        decoder=decoder,
        note=note,
    )
    try:
        write_manifest(folder, manifest)
    except OSError as error:
        raise CheckpointError(f"manifest.json cannot be written: {error.strerror or error}", where=folder) from error
    return read_artifact(folder, verify=False)


def _graph(folder: Path, part: str, variant: str) -> Graph:
    import onnx

    stem = PARTS[part]
    name = f"{stem}_{variant}.onnx" if variant else f"{stem}.onnx"
    path = next((p for p in (folder / name, folder / "onnx" / name) if p.is_file()), None)
    if path is None:
        there = sorted({p.name for place in (folder, folder / "onnx") for p in place.glob(f"{stem}*.onnx")})
        hint = f"there is {', '.join(there)}" if there else "the layout is that of onnx-community's models"
        raise CheckpointError(f"holds no {name}", where=folder, hint=hint)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own kinds
        raise CheckpointError(f"is no ONNX file: {one_line(error)}", where=path) from error
    inputs, outputs = tuple(map(tensor_fact, model.graph.input)), tuple(map(tensor_fact, model.graph.output))
    for wanted, found in zip(IO[part], (inputs, outputs), strict=True):
        missing = wanted - {f.name for f in found}
        if missing:
            raise CheckpointError(f"has no {', '.join(sorted(missing))}: it is of another layout", where=path)
    external = []
    for data in sorted(_external(model)):
        beside = (path.parent / data).resolve()
        if not beside.is_relative_to(folder.resolve()) or not beside.is_file():
            raise CheckpointError(f"names the weights {data!r}, which are not in the folder", where=path)
        external.append(file_fact(folder, beside.relative_to(folder.resolve()).as_posix()))
    return Graph(
        model=file_fact(folder, path.relative_to(folder).as_posix()),
        precision=PRECISIONS.get(variant, variant),
        opset=next(o.version for o in model.opset_import if o.domain in {"", "ai.onnx"}),
        inputs=inputs,
        outputs=outputs,
        external=tuple(external),
    )


def _external(model: Any) -> set[str]:
    import onnx

    found = set()
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            found |= {entry.value for entry in tensor.external_data if entry.key == "location"}
    return found


def _fused(folder: Path, graphs: dict[str, Graph]) -> bool:
    """Whether a graph uses operators that only ONNX Runtime has."""
    import onnx

    models = (onnx.load(str(folder / g.model.file), load_external_data=False) for g in graphs.values())
    return any(o.domain.startswith("com.microsoft") for m in models for o in m.opset_import)


def _source(folder: Path, graphs: dict[str, Graph]) -> Source:
    """Of unknown weights: the graphs' own files stand for them."""
    files = {f.file: f.sha256 for g in graphs.values() for f in (g.model, *g.external)}
    return source_from(files, name=folder.resolve().name, parameters=None)
