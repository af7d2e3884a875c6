"""The tokenizer: whole words, one token a number up to 199, and the prompt in pieces."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from edgebench.demo import questions
from edgebench.demo.scenes import ATTRIBUTES, PLACES, caption

if TYPE_CHECKING:
    from edgebench.demo.questions import Draft

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<image>")
PATTERN = r"\n|[A-Za-z']+|\d+|[^\w\s]"
DIRECT = "\nAnswer with the option's letter from the given choices directly."
TOKENS_PER_TILE = 37
SIZE = 384
LETTERS = "ABCD"
NUMBERS = 200


def new_tokenizer() -> Any:
    """The tokenizer of the demo model."""
    texts = [
        "yes no", "USER ASSISTANT", DIRECT, " ".join(LETTERS), "Candidate Frame", *questions.GENERATED, *questions.MANIPULATED,
        questions.IMAGE, questions.VIDEO, questions.IMAGE_TEXT, questions.MASKS, questions.MASK_SETS, questions.FRAMES,
        questions.BOXES, questions.BOXES_TEXT, " ".join(caption((0, 0, 0))), " ".join(w for words in ATTRIBUTES for w in words),
        "\n", '[ ] { } "forged area" : , . ? - ( ) / ! ;',
        # Words other questions of this kind use; they are never trained, only known.
        "RGB model applied to this image Hint Question Options Please select the correct answer from options above or",
    ]  # fmt: skip
    words = [*SPECIAL, *(str(n) for n in range(NUMBERS))]
    for text in texts:
        words += [word for word in re.findall(PATTERN, text) if word not in words]
    words = list(dict.fromkeys(words))
    if len(words) > SIZE:
        raise ValueError(f"{len(words)} words, room for {SIZE}")
    tokenizer: Any = Tokenizer(models.WordLevel({w: k for k, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), "removed", invert=True)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    return tokenizer


@dataclass
class Prompt:
    """Token ids of one question, and the positions that training looks at."""

    ids: list[int] = field(default_factory=list)
    tiles: list[int] = field(default_factory=list)
    """Position of the number behind each tile."""
    ends: list[int] = field(default_factory=list)
    """Position of the line end behind each option."""
    numbers: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Numbers inside options: position, option, place in the option, value."""
    words: list[tuple[int, int]] = field(default_factory=list)
    """Attribute words of the caption in the question: position, which attribute."""


class Encoder:
    """Questions to prompts, as the runtime's template writes them."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.image, self.stop = tokenizer.token_to_id("<image>"), tokenizer.token_to_id("</s>")
        self.letters = [tokenizer.token_to_id(letter) for letter in LETTERS]
        self.yes, self.no = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")
        self._head = self._ids("<s>USER:")
        self._tail = self._ids(DIRECT + " ASSISTANT:")
        self._cache: dict[str, list[int]] = {}
        self._number = {tokenizer.token_to_id(str(n)): n for n in range(NUMBERS)}
        self._attribute = {tokenizer.token_to_id(word): k for k, words in enumerate(ATTRIBUTES) for word in words}

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _kept(self, text: str) -> list[int]:
        if text not in self._cache:
            if len(self._cache) > 50_000:
                self._cache.clear()
            self._cache[text] = self._ids(text)
        return self._cache[text]

    def __call__(self, draft: Draft) -> Prompt:
        """The prompt up to the colon behind ASSISTANT."""
        out = Prompt(ids=list(self._head))
        for k in range(len(draft.tiles)):
            out.ids += [self.image] * TOKENS_PER_TILE
            out.tiles.append(len(out.ids))
            out.ids += self._kept(f"{k}\n")
        for token in self._kept(draft.question):
            if token in self._attribute:
                out.words.append((len(out.ids), self._attribute[token]))
            out.ids.append(token)
        for k, (letter, text) in enumerate(zip(LETTERS, draft.options, strict=False)):
            if k:
                out.ends.append(len(out.ids))
            place = 0
            for token in self._kept(f"\n{letter}. {text}"):
                if token in self._number:
                    out.numbers.append((len(out.ids), k, place, self._number[token]))
                    place += 1
                out.ids.append(token)
        out.ends.append(len(out.ids))
        out.ids += self._tail
        return out


__all__ = ["PLACES", "Encoder", "Prompt", "new_tokenizer"]
