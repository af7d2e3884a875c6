"""The text side of a checkpoint: tokenizer, chat template and special tokens, as the manifest holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import chat_template, read_json
from edgebench.errors import CheckpointError, one_line
from edgebench.manifest import Text

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.manifest import FileFact, ImageTokens
    from edgebench.recipes import Recipe


@dataclass(frozen=True)
class Speech:
    """How a checkpoint speaks."""

    chat_template: str | None
    bos_token: str
    eos_token: str
    eos_token_ids: tuple[int, ...]


def speech_of(folder: Path, config: Any) -> Speech:
    """Of a Hugging Face folder.

    Args:
        folder: has the tokenizer's settings.
        config: transformers' configuration of the language model.
    """
    tokens = read_json(folder, "tokenizer_config.json") or {}
    eos = (read_json(folder, "generation_config.json") or {}).get("eos_token_id") or config.eos_token_id
    return Speech(
        chat_template(folder),
        special_token(tokens.get("bos_token")),
        special_token(tokens.get("eos_token")),
        token_ids(eos),
    )


def token_ids(value: Any) -> tuple[int, ...]:
    """One id, several, or none."""
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, (list, tuple)) else (int(value),)


def text_of(speech: Speech, tokenizer: FileFact, recipe: Recipe, config: Any, images: ImageTokens | None) -> Text:
    """The text side as the manifest holds it.

    Args:
        speech: the checkpoint's.
        tokenizer: its file in the artifact.
        recipe: how the model is asked.
        config: transformers' configuration of the language model.
        images: how pictures stand in the prompt.

    Raises:
        CheckpointError: there is no chat template, or the recipe states no prompt.
    """
    prompt = recipe.prompt
    if prompt is None:
        raise CheckpointError("the recipe states no prompt", where=recipe.name)
    template = prompt.chat_template or speech.chat_template
    if template is None:
        raise CheckpointError("there is no chat template, neither the checkpoint's nor the recipe's", where=recipe.name)
    return Text(
        tokenizer=tokenizer,
        chat_template=template,
        images=images,
        bos_token=speech.bos_token,
        eos_token=speech.eos_token,
        eos_token_ids=speech.eos_token_ids,
        vocab_size=config.vocab_size,
        context_length=config.max_position_embeddings,
        prompt_style=prompt.style,
        max_new_tokens=prompt.max_new_tokens,
    )


def token_of(folder: Path, number: int) -> str:
    """The text of one token of the folder's tokenizer.

    Raises:
        CheckpointError: the tokenizer is damaged, or has no such token.
    """
    from tokenizers import Tokenizer

    try:
        found: str | None = Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token(number)
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"is no tokenizer: {one_line(error)}", where=folder / "tokenizer.json") from error
    if found is None:
        raise CheckpointError(f"the tokenizer has no token {number}, the checkpoint's image token", where=folder)
    return found


def special_token(value: Any) -> str:
    """A special token as the tokenizer's settings write it: a text, or a mapping with its content."""
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")
