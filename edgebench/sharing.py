"""What several ways to ask about one sample share: its decoded pictures, and the answers to equal pictures."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from numpy.typing import NDArray

    from edgebench.runner import Answer, HowToAsk, Query

    Picture = NDArray[np.uint8]


class Shared:
    """Of the sample at hand, and of no other."""

    def __init__(self) -> None:
        self._sample: str | None = None
        self._decoded: dict[Hashable, Picture] = {}
        self._perturbed: dict[int, Picture] = {}
        self.answers: dict[Hashable, Answer] = {}

    def turn_to(self, query: Query) -> None:
        """A question is put; what belongs to another sample is forgotten, and the last perturbed pictures always."""
        self._perturbed.clear()
        if query.how is None or query.warmup or self._sample != query.id:
            self._decoded.clear()
            self.answers.clear()
        self._sample = None if query.how is None or query.warmup else query.id

    def decoded(self, key: Hashable, make: Callable[[], Picture]) -> Picture:
        """A picture of the sample as it was decoded before, or made now."""
        if self._sample is None:
            return make()
        if key not in self._decoded:
            self._decoded[key] = make()
        return self._decoded[key]

    def perturbed(self, number: int, make: Callable[[], Picture]) -> Picture:
        """A perturbed picture of the question at hand: of each, one alone is kept."""
        if self._sample is None:
            return make()
        if number not in self._perturbed:
            self._perturbed[number] = make()
        return self._perturbed[number]


def same(pictures: Iterable[Picture], query: Query, how: HowToAsk) -> Hashable:
    """Two questions of which this is the same have one answer: every pixel, every word, every limit."""
    pixels = tuple((p.shape, hashlib.sha256(np.ascontiguousarray(p).data).digest()) for p in pictures)
    return pixels, repr(query.question), how.scoring, how.prompt_style, how.max_new_tokens
