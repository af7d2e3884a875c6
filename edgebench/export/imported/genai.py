"""Layout of onnxruntime-genai: one decoder with ONNX Runtime's fused operators, and genai_config.json in place of
config.json.

Beside them lie model.onnx.data, tokenizer.json, tokenizer_config.json and chat_template.jinja.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.config import build
from edgebench.errors import CheckpointError
from edgebench.export.imported.decoders import manifest_of, prompt_of, text_of
from edgebench.export.imported.reading import read
from edgebench.manifest import Decoder

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.imported.request import ImportRequest
    from edgebench.manifest import Manifest

CONFIG = "genai_config.json"
NAMES = {
    "inputs": {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "position_ids": "position_ids",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    },
    "outputs": {
        "logits": "logits",
        "present_key_names": "present.%d.key",
        "present_value_names": "present.%d.value",
    },
}
"""What a name template must be, where the configuration states it."""
OTHER_MODELS = ("vision", "embedding", "speech", "encoder")
"""Sections of models that are more than one decoder."""


def take(request: ImportRequest) -> Manifest:
    """The manifest of such a folder.

    Raises:
        CheckpointError: a file is missing or damaged, the model is more than one decoder, or its names are others.
        UsageError: an option does not fit.
    """
    request.refuse("--variant", "--vision, --embed and --decoder", "--forged")
    request.expect("language")
    folder, where = request.folder, request.folder / CONFIG
    config = read_json(folder, CONFIG) or {}
    model = config.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("decoder"), dict):
        raise CheckpointError("has no model.decoder", where=where)
    parts = [name for name in OTHER_MODELS if name in model]
    if parts:
        raise CheckpointError(f"has model.{parts[0]}: only models of one decoder are taken", where=where)
    decoder = model["decoder"]
    for side, names in NAMES.items():
        stated = decoder.get(side) or {}
        for key, ours in names.items():
            if stated.get(key, ours) != ours:
                raise CheckpointError(f"model.decoder.{side}.{key} is {stated[key]!r}, not {ours!r}", where=where)
    path = folder / str(decoder.get("filename"))
    if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"names the graph {decoder.get('filename')!r}, which is not in the folder", where=where)
    request.say("reading the graph")
    found = read(folder, path, "", inputs={"input_ids"}, outputs={"logits"})
    shape = build(
        Decoder,
        {
            "layers": decoder.get("num_hidden_layers"),
            "kv_heads": decoder.get("num_key_value_heads"),
            "head_dim": decoder.get("head_size"),
            "hidden_size": decoder.get("hidden_size"),
            "cache_dtype": "float32",
            "in_place": found.in_place,
        },
        where=f"{where}: model.decoder",
        error=CheckpointError,
    )
    text = text_of(
        folder,
        prompt_of(request),
        eos=model.get("eos_token_id"),
        vocab_size=_number(model, "vocab_size", where),
        context_length=_number(model, "context_length", where),
    )
    return manifest_of(request, found, text, shape, dialect="ort")


def _number(model: dict[str, Any], key: str, where: Path) -> int:
    value = model.get(key)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"model.{key} should be a count, is {value!r}", where=where)
    return value
