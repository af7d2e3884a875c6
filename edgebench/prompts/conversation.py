"""From a question to token ids: chat template, image placeholders, tokenizer. No framework needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.errors import ArtifactError, SampleError, one_line
from edgebench.prompts.styles import message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.benches.base import Question
    from edgebench.manifest import Text
    from edgebench.prompts.placing import Placing


class Conversation:
    """The text side of one language model."""

    def __init__(self, text: Text, tokenizer: Path) -> None:
        """Load the tokenizer and compile the chat template.

        Raises:
            ArtifactError: either is damaged.
        """
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        self.text = text
        self._first: dict[str, list[int]] = {}
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # the library raises plain Exception
            raise ArtifactError(f"is no tokenizer: {one_line(error)}", where=tokenizer) from error
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(text.chat_template)
        except TemplateError as error:
            raise ArtifactError(f"the chat template is wrong: {one_line(error)}", where=tokenizer.parent) from error

    def ids(self, question: Question, pictures: Sequence[Placing], *, style: str | None = None) -> NDArray[np.int64]:
        """The prompt as token ids, int64 [tokens].

        Raises:
            SampleError: as for `prompt`.
        """
        ids = np.array(self.encode(self.prompt(question, pictures, style=style)), dtype=np.int64)
        images = self.text.images
        if images is not None and images.newline_id is not None:
            places, begin = np.flatnonzero(ids == images.id), 0
            for picture in pictures:
                if picture.row_ends is not None:
                    ids[places[begin + picture.row_ends]] = images.newline_id
                begin += picture.tokens
        return ids

    def prompt(self, question: Question, pictures: Sequence[Placing], *, style: str | None = None) -> str:
        """The prompt as text, each image's placeholder opened into its tokens.

        Args:
            question: what is asked.
            pictures: how each image stands in it.
            style: a prompt style; None is the artifact's own.

        Raises:
            SampleError: the template fails, or does not place the images.
        """
        from jinja2 import TemplateError

        images = self.text.images
        if images is None and pictures:
            raise SampleError(f"the model takes text alone, the question has {len(pictures)} images")
        token = images.token if images is not None else ""
        messages = message(style or self.text.prompt_style, question, len(pictures))
        for part in messages[0]["content"]:
            if part["type"] == "text" and token:
                # A question must not be able to place an image of its own.
                part["text"] = part["text"].replace(token, token.strip("<>[]|"))
        if images is None:
            # Templates of text-only models take the message as one text.
            messages[0]["content"] = "".join(part["text"] for part in messages[0]["content"])
        try:
            rendered = self._template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=self.text.bos_token,
                eos_token=self.text.eos_token,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise SampleError(f"the chat template failed: {one_line(error)}") from error
        if images is None:
            return str(rendered)
        pieces = rendered.split(token)
        if len(pieces) != len(pictures) + 1:
            raise SampleError(f"the chat template placed {len(pieces) - 1} images, the question has {len(pictures)}")
        prompt: str = pieces[0]
        for picture, piece in zip(pictures, pieces[1:], strict=True):
            if images.tile_suffix:
                tiles = range(picture.tiles)
                prompt += "".join(token * images.per_tile + images.tile_suffix.format(tile=k) for k in tiles)
            else:
                prompt += token * picture.tokens
            prompt += piece
        return prompt

    def encode(self, prompt: str) -> list[int]:
        """Token ids. The tokenizer adds its start token unless the template already did."""
        starts = bool(self.text.bos_token) and prompt.startswith(self.text.bos_token)
        ids: list[int] = self._tokenizer.encode(prompt, add_special_tokens=not starts).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, without special tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def first_ids(self, word: str) -> list[int]:
        """Ids that may stand first when the answer is `word`: with and without a space before it.

        Empty when the word takes more than one token, so that no single token stands for it.
        """
        if word in self._first:
            return self._first[word]
        found = self._first[word] = []
        for form in (word, " " + word):
            ids = self._tokenizer.encode(form, add_special_tokens=False).ids
            visible = [i for i in ids if self._tokenizer.decode([i], skip_special_tokens=False).strip()]
            if len(visible) == 1 and visible[0] not in found and visible[0] != self._unknown:
                found.append(visible[0])
        return found

    @cached_property
    def _unknown(self) -> int | None:
        for token in ("<unk>", "[UNK]"):
            found: int | None = self._tokenizer.token_to_id(token)
            if found is not None:
                return found
        return None


def _raise(text: str) -> None:
    raise ValueError(text)
