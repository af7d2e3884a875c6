"""What decoders of every layout have in common: their inputs, their cache, and the text side of a language model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgebench.cache import cache_names
from edgebench.checkpoints.files import chat_template, read_json
from edgebench.errors import ArtifactError, CheckpointError
from edgebench.export.imported.reading import fits, source_of_graphs
from edgebench.export.imported.request import NOT_MEASURED
from edgebench.export.manifests import stamped
from edgebench.export.request import checked
from edgebench.export.text import special_token, token_ids
from edgebench.manifest import Text, file_fact
from edgebench.prompts.conversation import Conversation
from edgebench.recipes import Bound, Prompt

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.imported.reading import ReadGraph
    from edgebench.export.imported.request import ImportRequest
    from edgebench.manifest import Decoder, Graph, Manifest, Parity, Source

INPUTS = {"input_ids", "inputs_embeds", "attention_mask", "position_ids", "num_logits_to_keep"}
"""What decoders of these layouts take beside their cache, and is fed (`edgebench.cache`)."""
STYLE = "default"
"""Prompt style of a language model where no recipe is given."""


def check_cache(folder: Path, graph: Graph, decoder: Decoder) -> Decoder:
    """The decoder with the graph's own cache type, its inputs known, and its cache of the stated shape.

    Raises:
        CheckpointError: the graph has another cache, or takes an input that is not known.
    """
    where = folder / graph.model.file
    takes, gives = {f.name: f for f in graph.inputs}, {f.name for f in graph.outputs}
    past, present = cache_names(decoder.layers)
    if past[0] not in takes:
        raise CheckpointError("takes no past_key_values", where=where, hint="export it with its cache, as `with-past`")
    cached = {name for name in takes if name.startswith("past_key_values.")}
    if cached != set(past) or not set(present) <= gives:
        raise CheckpointError(
            f"has not the {decoder.layers} layers of its configuration (past_key_values.N and present.N)", where=where
        )
    unknown = sorted(set(takes) - cached - INPUTS)
    if unknown:
        raise CheckpointError(f"takes {', '.join(unknown)}, which is not known here", where=where)
    for name in past:
        if not fits(takes[name].shape, (None, decoder.kv_heads, None, decoder.head_dim)):
            raise CheckpointError(
                f"{name} is {list(takes[name].shape)}, the configuration has {decoder.kv_heads} heads of {decoder.head_dim}",
                where=where,
            )
    return replace(decoder, cache_dtype=takes[past[0]].dtype)


def prompt_of(request: ImportRequest) -> Prompt:
    """How a language model is asked: as the recipe says, else with the folder's own chat template."""
    if request.recipe is not None and request.recipe.prompt is not None:
        return request.recipe.prompt
    return Prompt(style=STYLE)


def text_of(folder: Path, prompt: Prompt, *, eos: Any, vocab_size: int, context_length: int) -> Text:
    """The text side of a language model.

    Args:
        folder: has tokenizer.json, its settings and the chat template.
        prompt: how the model is asked.
        eos: the id that ends an answer, or several, or None.
        vocab_size: tokens that the logits rank.
        context_length: tokens that the model was made for.

    Raises:
        CheckpointError: there is no tokenizer or no chat template, or one of them is damaged.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError("has no tokenizer.json", where=folder, hint="save the fast tokenizer beside the graph")
    template = prompt.chat_template or chat_template(folder)
    if template is None:
        raise CheckpointError(
            "has no chat template", where=folder, hint="pass --recipe FILE.yaml whose prompt has a chat_template"
        )
    tokens = read_json(folder, "tokenizer_config.json") or {}
    text = Text(
        tokenizer=file_fact(folder, file.name),
        chat_template=template,
        images=None,
        bos_token=special_token(tokens.get("bos_token")),
        eos_token=special_token(tokens.get("eos_token")),
        eos_token_ids=token_ids(eos),
        vocab_size=vocab_size,
        context_length=context_length,
        prompt_style=prompt.style,
        max_new_tokens=prompt.max_new_tokens,
    )
    try:
        Conversation(text, file)
    except ArtifactError as error:
        raise CheckpointError(error.what, where=error.where) from error
    return text


def manifest_of(request: ImportRequest, found: ReadGraph, text: Text, decoder: Decoder, *, dialect: str) -> Manifest:
    """The manifest of a decoder from token ids, its parity measured where a checkpoint is given.

    Raises:
        CheckpointError: the graph has another cache; the checkpoint is damaged, or of another architecture.
        ParityError: the graph misses the recipe's bound.
    """
    decoder = check_cache(request.folder, found.graph, decoder)
    parity, source, note = parity_of(request, found.graph, decoder)
    return stamped(
        name=request.name,
        family="language",
        dialect=dialect,
        precision=found.graph.precision,
        graphs={"decoder": found.graph},
        preprocess=None,
        source=source or source_of_graphs([found.graph], request.folder.resolve().name),
        parity=parity,
        text=text,
        decoder=decoder,
        note=note,
    )


def parity_of(request: ImportRequest, graph: Graph, decoder: Decoder) -> tuple[Parity | None, Source | None, str]:
    """Parity of a decoder from token ids with its checkpoint, the checkpoint's identity, and the manifest's note.

    Raises:
        CheckpointError: the checkpoint is damaged, or of another architecture.
        ParityError: the graph misses the recipe's bound.
    """
    if request.weights is None:
        return None, None, NOT_MEASURED
    from edgebench.export.language import Checkpoint
    from edgebench.export.language_parity import parity_rows, reference_windows

    checkpoint = Checkpoint(request.weights)
    request.say("asking the checkpoint")
    windows = reference_windows(checkpoint.reference(), request.folder / "tokenizer.json")
    request.say("comparing with the checkpoint")
    bound = Bound() if request.recipe is None else request.recipe.bound(graph.precision)
    parity = checked(parity_rows(request.folder, graph, decoder, windows), bound)
    return parity, checkpoint.source(None), "imported"
