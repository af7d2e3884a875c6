"""Writes the checkpoint folder: weights in half precision, tokenizer, template, image processor."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from tower import PATCH

from edgebench.demo.panels import GAP, TITLE
from edgebench.demo.scenes import TILE

TEMPLATE = (
    "{{ bos_token }}USER:{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
PROCESSOR = {
    "kind": "tile_rows",
    "tile": TILE,
    "gap": GAP,
    "title": TITLE,
    "mean": [0.5, 0.5, 0.5],
    "std": [0.25, 0.25, 0.25],
    "tile_suffix": "{tile}\n",
}
"""The image processor as data: `edgebench.media.pixels` follows it."""


def write_checkpoint(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write everything but the card; each file appears when it is complete."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.half()
    model.config.dtype = torch.float16
    model.generation_config.max_new_tokens = 2
    model.generation_config.do_sample = False
    model.generation_config.bos_token_id = tokenizer.token_to_id("<s>")
    model.generation_config.eos_token_id = tokenizer.token_to_id("</s>")
    model.generation_config.pad_token_id = tokenizer.token_to_id("<pad>")
    model.save_pretrained(partial)
    tokenizer.save(str(partial / "tokenizer.json"))
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "image_token": "<image>",
        "model_max_length": 2048,
        "chat_template": TEMPLATE,
    }
    for name, value in (("tokenizer_config.json", words), ("preprocessor_config.json", PROCESSOR)):
        (partial / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    # The weights come last: a folder without them is unfinished.
    for path in sorted(partial.iterdir(), key=lambda p: p.suffix == ".safetensors"):
        os.replace(path, folder / path.name)  # noqa: PTH105
    partial.rmdir()


__all__ = ["PATCH", "PROCESSOR", "TEMPLATE", "write_checkpoint"]
