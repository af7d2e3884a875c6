"""Offline: several questions at once, in as few calls of the engine as the lengths of their prompts allow.

Prompts of exactly the same length go together, so that nothing is padded and no answer changes for a reason of its own.
Timed is the window as a whole: from the encoded bytes of all its questions to the last token of the last answer. Reading
the bytes and perturbing pictures are outside of it, as they are of one question's `total`; there is no prefetching.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from edgebench.benches.base import Image
from edgebench.errors import EdgebenchError, SampleError, one_line
from edgebench.prompts.placing import check_prompt, chosen
from edgebench.runner import Answer, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from edgebench.engines.base import Batched
    from edgebench.manifest import Text
    from edgebench.prompts.conversation import Conversation
    from edgebench.prompts.placing import Placing
    from edgebench.runner import Query

Outcome = tuple[Answer | None, str | None]
"""An answer, or the reason why there is none."""
WINDOW = 8
"""Batches' worth of questions that are looked over at once for prompts of one length."""


@dataclass(frozen=True)
class Answered:
    """What came of one window."""

    answers: tuple[Outcome, ...]
    """Of each question, in order: its answer, or why there is none."""
    total_ns: int
    batches: tuple[int, ...]
    """How many questions went into each call, in order; 1 for those that were asked alone."""


@dataclass(frozen=True)
class Prepared:
    """A question that is ready for the engine."""

    number: int
    query: Query
    tiles: list[NDArray[np.float32]]
    pictures: list[Placing]
    ids: NDArray[np.int64]


class BatchRunner(Runner):
    """A runner that is also asked windows of questions."""

    def ask_all(self, queries: Sequence[Query], size: int) -> Answered:
        """Answer a window.

        Args:
            queries: in any order.
            size: the most questions in one call of the engine.
        """
        found: dict[int, Outcome] = {}
        held: list[tuple[int, Query]] = []
        for number, query in enumerate(queries):
            try:
                images = tuple(Image(image.name, image.read()) for image in query.images)
            except EdgebenchError as error:
                found[number] = None, why(error)
            else:
                held.append((number, replace(query, images=images)))
        self._apart, sizes = 0, []
        begin = self.clock()
        if self.can_batch:
            for batch in _alike(self._ready(held, found), size):
                try:
                    answers = self._batch(batch)
                except Exception:  # one question's fault, or too many for the memory: each of them alone
                    found |= {one.number: self._alone(one.query) for one in batch}
                    sizes += [1] * len(batch)
                else:
                    found |= {one.number: answer for one, answer in zip(batch, answers, strict=True)}
                    sizes.append(len(batch))
        else:
            found |= {number: self._alone(query) for number, query in held}
            sizes = [1] * len(held)
        total = self.clock() - begin - self._apart
        return Answered(tuple(found[number] for number in range(len(queries))), total, tuple(sizes))

    @property
    def can_batch(self) -> bool:
        """Whether the engine takes several questions of this artifact at once."""
        known = self.artifact is not None and self.chat is None and self._captions is None
        return known and bool(getattr(self.engine, "batches", False))

    def _alone(self, query: Query) -> Outcome:
        try:
            answer = self.ask(query)
        except Exception as error:  # engines of others raise what they like
            return None, why(error)
        self._apart += answer.stages_ns.get("perturb", 0)
        return replace(answer, stages_ns={}), None

    def _ready(self, held: list[tuple[int, Query]], found: dict[int, Outcome]) -> list[Prepared]:
        ready = []
        for number, query in held:
            self._perturbing = 0
            try:
                ready.append(self._prepared(number, query))
            except Exception as error:  # a sample's fault, as a rule
                found[number] = None, why(error)
            self._apart += self._perturbing
        return ready

    def _prepared(self, number: int, query: Query) -> Prepared:
        data = [image.read() for image in query.images]
        conversation = self.conversation
        if conversation is None and len(data) != 1:
            raise SampleError(f"a classifier takes one image, the sample has {len(data)}")
        tiles, pictures = self._pixels(data, query.id)
        ids = np.zeros(0, dtype=np.int64)
        if conversation is not None:
            ids = conversation.ids(query.question, pictures, style=self.how.prompt_style)
            check_prompt(ids, pictures, conversation.text)
        return Prepared(number, query, tiles, pictures, ids)

    def _batch(self, batch: list[Prepared]) -> list[Outcome]:
        if self.conversation is None:
            # Of a picture in several tiles the first one counts, as for one question.
            scores = self.engine.classify(np.concatenate([one.tiles[0][:1] for one in batch]))
            return [_scored(float(score), len(one.tiles[0])) for one, score in zip(batch, scores, strict=True)]
        engine, pictures = cast("Batched", self.engine), [p for one in batch for p in one.pictures]
        tiles = [t for one in batch for t in one.tiles]
        features = np.zeros((0, self._hidden()), dtype=np.float32)
        if tiles:
            features = chosen(self.engine.see(np.concatenate(tiles)), pictures)
        ids = np.stack([one.ids for one in batch])
        first = engine.prefill_batch(ids, features)
        if self.how.scoring == "logits":
            said: list[tuple[list[int], str]] = [([], "logits")] * len(batch)
        else:
            said = self._generate_all(engine, first, ids.shape[1], self.conversation.text)
        return [
            self._said(one, logits, *words, self.conversation)
            for one, logits, words in zip(batch, first, said, strict=True)
        ]

    def _generate_all(
        self, engine: Batched, logits: NDArray[np.float32], prompt: int, text: Text
    ) -> list[tuple[list[int], str]]:
        """Greedy tokens of each row, and why they end. A row that has ended is read on and thrown away."""
        limit = min(self.how.max_new_tokens, text.context_length - prompt)
        tokens: list[list[int]] = [[] for _ in logits]
        ends = [""] * len(logits)
        while True:
            following = logits.argmax(axis=1).astype(np.int64)
            for row, token in enumerate(following.tolist()):
                if not ends[row]:
                    tokens[row].append(token)
                    ends[row] = "stop" if token in text.eos_token_ids else "length" if len(tokens[row]) >= limit else ""
            if all(ends):
                return list(zip(tokens, ends, strict=True))
            logits = engine.step_batch(following)

    def _said(
        self, one: Prepared, first: NDArray[np.float32], tokens: list[int], finish: str, conversation: Conversation
    ) -> Outcome:
        try:
            answer = self._told(first, one.query.question, tokens, finish, conversation)
        except SampleError as error:
            return None, why(error)
        tiles = sum(p.tiles for p in one.pictures)
        return replace(answer, tiles=tiles, prompt_tokens=len(one.ids), output_tokens=len(tokens)), None


def _scored(score: float, tiles: int) -> Outcome:
    if not np.isfinite(score):
        return None, f"the classifier gave {score}"
    return Answer(score=score, tiles=tiles), None


def _alike(ready: list[Prepared], size: int) -> Iterator[list[Prepared]]:
    """Batches of at most `size` questions whose prompts have one length, and whose pixels one shape."""
    groups: dict[Any, list[Prepared]] = {}
    for one in ready:
        groups.setdefault((len(one.ids), one.tiles[0].shape[1:] if one.tiles else ()), []).append(one)
    for group in groups.values():
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def why(error: Exception) -> str:
    """The reason of a failed question, as its record keeps it."""
    if isinstance(error, SampleError):
        return str(error)
    if isinstance(error, MemoryError):
        return "engine: not enough memory for this sample"
    return f"engine: {error if isinstance(error, EdgebenchError) else one_line(error)}"
