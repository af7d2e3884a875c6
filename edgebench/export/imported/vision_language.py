"""Layout of onnx-community's vision-language models: three graphs of a LLaVA.

`vision_encoder`, `embed_tokens` and `decoder_model_merged`, each in variants such as `_int8` or `_q4`, in the folder
itself or in `onnx/`, beside the checkpoint's own config.json, tokenizer.json and preprocessor_config.json.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edgebench.checkpoints.files import identify, preprocess_of
from edgebench.checkpoints.reference import load_reference
from edgebench.errors import CheckpointError
from edgebench.export.decoder import facts_of
from edgebench.export.imported.decoders import check_cache
from edgebench.export.imported.reading import find, read, source_of_graphs
from edgebench.export.imported.request import NOT_MEASURED
from edgebench.export.llava import LLAVA
from edgebench.export.manifests import stamped
from edgebench.export.text import speech_of, text_of
from edgebench.export.vision_language import config_of, image_tokens
from edgebench.export.vision_language_parity import measured
from edgebench.manifest import file_fact
from edgebench.recipes import load_recipe

if TYPE_CHECKING:
    from edgebench.export.imported.request import ImportRequest
    from edgebench.manifest import Manifest

PARTS = {"vision": "vision_encoder", "embed": "embed_tokens", "decoder": "decoder_model_merged"}
"""Our graph -> the file's name in that layout."""
IO = {
    "vision": ({"pixel_values"}, {"image_features"}),
    "embed": ({"input_ids"}, {"inputs_embeds"}),
    "decoder": ({"inputs_embeds"}, {"logits"}),
}
"""Inputs and outputs that a graph must have."""
RECIPE = "llava"
"""How these models are asked where no recipe is given."""


def take(request: ImportRequest) -> Manifest:
    """The manifest of such a folder.

    Raises:
        CheckpointError: a file is missing, damaged, or of another layout.
        ParityError: a graph misses the recipe's bound.
        UsageError: an option does not fit.
    """
    request.refuse("--forged")
    request.expect("llava")
    folder, recipe = request.folder, request.recipe or load_recipe(RECIPE)
    config = config_of(folder, LLAVA)
    request.say("reading the graphs")
    found = {}
    for part, stem in PARTS.items():
        variant = request.variants.get(part, request.variant)
        inputs, outputs = IO[part]
        found[part] = read(folder, find(folder, (stem,), variant), variant, inputs=inputs, outputs=outputs)
    graphs = {part: one.graph for part, one in found.items()}
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError("has no tokenizer.json", where=folder)
    speech, images = speech_of(folder, config.text_config), image_tokens(folder, config)
    text = text_of(speech, file_fact(folder, "tokenizer.json"), recipe, config.text_config, images)
    preprocess = replace(recipe.preprocess or preprocess_of(folder), dtype="float32")
    decoder = facts_of(config.text_config, cache_dtype="float32", in_place=False)
    decoder = check_cache(folder, graphs["decoder"], decoder)
    parity, note = None, NOT_MEASURED
    source = source_of_graphs(graphs.values(), folder.resolve().name)
    if request.weights is not None:
        load = partial(load_reference, request.weights, LLAVA.model_class)
        bound = recipe.bound(graphs["decoder"].precision)
        parity = measured(load, text, preprocess, folder, graphs, decoder, bound, request.say)
        note = "imported"
        source = identify(request.weights, parameters=None, name=request.weights.resolve().name)
    return stamped(
        name=recipe.name,
        family="llava",
        dialect="ort" if any(one.fused for one in found.values()) else "portable",
        precision=graphs["decoder"].precision,
        graphs=graphs,
        preprocess=preprocess,
        source=source,
        parity=parity,
        text=text,
        decoder=decoder,
        note=note,
    )
