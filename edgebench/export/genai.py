"""What onnxruntime-genai reads beside a decoder: its configuration, the tokenizer's settings and the chat template."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edgebench.manifest import file_fact

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.manifest import Decoder, FileFact, Text

CONFIG = "genai_config.json"
TYPES = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2"}
"""transformers' model type -> genai's."""


def write_genai(folder: Path, config: Any, text: Text, decoder: Decoder) -> tuple[FileFact, ...]:
    """Write the files.

    Args:
        folder: of the artifact, with `decoder.onnx` and `tokenizer.json` in it.
        config: transformers' configuration.
        text: the text side.
        decoder: the cache's shape.
    """
    eos = list(text.eos_token_ids)
    model = {
        "bos_token_id": config.bos_token_id,
        "context_length": text.context_length,
        "decoder": {
            "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
            "filename": "decoder.onnx",
            "head_size": decoder.head_dim,
            "hidden_size": decoder.hidden_size,
            "inputs": {
                "input_ids": "input_ids",
                "attention_mask": "attention_mask",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
            "num_attention_heads": config.num_attention_heads,
            "num_hidden_layers": decoder.layers,
            "num_key_value_heads": decoder.kv_heads,
        },
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "pad_token_id": config.pad_token_id if config.pad_token_id is not None else (eos[0] if eos else 0),
        "type": TYPES[config.model_type],
        "vocab_size": text.vocab_size,
    }
    search = {"do_sample": False, "max_length": text.context_length, "num_beams": 1, "past_present_share_buffer": True}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": text.bos_token or None,
        "eos_token": text.eos_token or None,
        "chat_template": text.chat_template,
    }
    for name, value in ((CONFIG, {"model": model, "search": search}), ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file_fact(folder, CONFIG), file_fact(folder, "tokenizer_config.json")
