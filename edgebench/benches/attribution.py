"""Forensics-Bench's attribution protocol: which model forged the picture, out of four.

Source: arXiv 2503.15024v2, sections 3.3 and 4.3. The wrong options are drawn from the other forgery models. Its data
and its seed are not published, so ours are drawn by a seed of our own. The introductions are in our own words.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgebench.benches.base import Question
from edgebench.benches.taxonomy import own_category
from edgebench.config import build, read_yaml
from edgebench.errors import DataError, EdgebenchError

if TYPE_CHECKING:
    from edgebench.benches.base import Sample

PROTOCOL = "attribution"
LETTERS = "ABCD"
SEED = 0
SUBJECTS = {
    "RGB": "this RGB image",
    "NIR": "this near-infrared image",
    "VID": "this video, shown by its frames",
    "RGB&TXT": "this RGB image with its caption",
}
"""Modality -> how the question names it. 'this RGB image' is the published wording, the others are ours."""


@dataclass(frozen=True)
class ForgeryModel:
    """One of the 22."""

    name: str
    introduction: str
    """One paragraph."""


@lru_cache(maxsize=1)
def forgery_models() -> dict[str, ForgeryModel]:
    """All 22 by the taxonomy's code."""
    path = Path(__file__).resolve().parent.parent / "data" / "forgery_models.yaml"
    return {code: build(ForgeryModel, row, where=f"{path.name}: {code}") for code, row in read_yaml(path).items()}


@dataclass(frozen=True)
class Attribution:
    """How the questions are turned."""

    introductions: bool = False
    """The paragraph of each option stands before the question."""
    seed: int = SEED

    @property
    def label(self) -> str:
        """For a run's settings."""
        return f"{PROTOCOL} of seed {self.seed}" + (", with introductions" if self.introductions else "")

    def takes(self, slug: str) -> bool:
        """Whether questions of that category are asked: binary ones, of a forgery whose model is one of the 22."""
        try:
            kind = own_category(slug)
        except DataError:
            return False
        return kind.task == "BC" and kind.model in forgery_models()

    def put(self, place: int, sample: Sample) -> Sample:
        """The question of one sample.

        Args:
            place: its number among those that are asked: of each four in a row, every letter is right once.
            sample: as the bench gives it.
        """
        if sample.problem is not None:
            return sample
        try:
            kind = own_category(sample.category)
        except EdgebenchError as error:
            return replace(sample, problem=str(error))
        known = forgery_models()
        wrong = self._order(sample.id, [code for code in known if code != kind.model])[: len(LETTERS) - 1]
        target = self._order(f"places {place // len(LETTERS)}", list(LETTERS))[place % len(LETTERS)]
        options = {letter: kind.model if letter == target else wrong.pop() for letter in LETTERS}
        text = f"What is the forgery model that is applied to {SUBJECTS.get(kind.modality, 'this image')}?"
        caption = _caption(sample.question.text) if kind.modality == "RGB&TXT" else None
        if caption is not None:
            text = f"{text} The caption is: {caption}"
        if self.introductions:
            told = "\n".join(f"{known[code].name}: {known[code].introduction}" for code in options.values())
            text = f"{told}\n{text}"
        question = Question(text, {letter: known[code].name for letter, code in options.items()}, sample.question.hint)
        return replace(sample, question=question, target=target, facts=sample.facts | {"forgery_model": kind.model})

    def _order(self, what: str, values: list[str]) -> list[str]:
        """By the SHA-256 of seed, subject and value: the same on every machine."""
        return sorted(values, key=lambda value: hashlib.sha256(f"{self.seed}:{what}:{value}".encode()).digest())


def _caption(text: str) -> str | None:
    """What a question about a picture with text quotes."""
    found = re.search(r'["\u201c](.+)["\u201d]', text, re.DOTALL)
    return None if found is None else found[0]
