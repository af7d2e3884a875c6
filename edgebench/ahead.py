"""Questions to an engine that answers faster than a process wakes up: they are sent ahead of the answers before.

A question and its answer wake two processes, which takes longer than such an answer; here that is paid once for a
batch. The engine still answers one question at a time, each by its own clock, and sends each answer at once. Slower
engines are asked as ever: the next question is sent when the answer before is on the disk, and nothing goes on beside
them.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from edgebench.apart import Died
from edgebench.desk import Desk
from edgebench.protocols import MODEL
from edgebench.runner import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgebench.benches.base import Sample
    from edgebench.records import Record
    from edgebench.worker import Worker

BELOW_NS = 100_000
"""Of an answer's `total`, from which on the next question waits for it."""
BATCH = 32
"""Questions in one message; two messages are under way at most."""
SIZE = 1024
"""Bytes of a question's pictures and characters of its texts, at most: the pipe has to hold a message whole, so that it
can be sent while the engine's process waits for its answers to be read."""


class _Put(NamedTuple):
    """A sample that is under way; without a query its record is finished."""

    sample: Sample
    suits: bool
    record: Record
    query: Query | None


class AheadDesk(Desk):
    """A desk that asks some engines ahead of their answers. It has one engine, and a sample takes one call."""

    def records(self, asked: Iterator[tuple[Sample, bool]], stack: contextlib.ExitStack) -> Iterator[Record]:
        """The records of samples, in order.

        Raises:
            EngineError: the engine cannot be started, or fails again and again.
        """
        again: deque[tuple[Sample, bool]] = deque()
        while True:
            one = again.popleft() if again else next(asked, None)
            if one is None:
                return
            record = self.record(*one, stack)
            yield record
            if self._quick(record) and not again and self._watch.energy_source is None:
                yield from self._ahead(asked, again, self._staff.workers[MODEL])

    def _ahead(
        self, asked: Iterator[tuple[Sample, bool]], again: deque[tuple[Sample, bool]], worker: Worker
    ) -> Iterator[Record]:
        """As long as the answers come quickly.

        Args:
            asked: where samples come from.
            again: takes those that are to be asked one at a time: one is too large, or the engine's process died.
            worker: the engine's.
        """
        under_way: deque[_Put] = deque()
        quick = True
        while True:
            batch = self._batch(asked, again) if quick else []
            if queries := [put.query for put in batch if put.query is not None]:
                with contextlib.suppress(Died):  # the first answer that does not come says why
                    worker.send_ahead(queries)
            held = len(under_way)
            under_way.extend(batch)
            quick = quick and bool(batch) and not again
            for _ in range(held if quick else len(under_way)):
                put = under_way.popleft()
                if put.query is None:
                    yield put.record
                    continue
                try:
                    record = self._received(put.record, worker)
                except Died as death:
                    self._lost(put.sample, death)
                    again.extendleft((p.sample, p.suits) for p in reversed(under_way))
                    yield put.record.but(error=f"engine: {death}")
                    return
                quick = quick and self._quick(record)
                yield record
            if not quick and not under_way:
                return

    def _batch(self, asked: Iterator[tuple[Sample, bool]], again: deque[tuple[Sample, bool]]) -> list[_Put]:
        """The next ones, up to one that is too large."""
        batch: list[_Put] = []
        for sample, suits in itertools.islice(asked, BATCH):
            record = self._blank(sample, suits)
            if _size(sample) > SIZE:
                again.append((sample, suits))
                break
            settled = record.error is not None or record.not_asked is not None
            query = None if settled else Query(sample.id, sample.images, sample.question)
            batch.append(_Put(sample, suits, record, query))
        return batch

    def _received(self, record: Record, worker: Worker) -> Record:
        """The record with the next answer."""
        answer, error, seen = worker.receive_ahead()
        if answer is None:
            return self._filled(record.but(**seen), None, error)
        return self._judged(record.but(**seen, **answer))

    def _lost(self, sample: Sample, death: Died) -> None:
        del self._staff.workers[MODEL]
        self._staff.warm.pop(MODEL, None)
        self._count_death(death, f"sample {sample.id!r}")

    def _quick(self, record: Record) -> bool:
        return sys.platform == "linux" and record.stages_ns.get("total", BELOW_NS) < BELOW_NS


def _size(sample: Sample) -> int:
    question = sample.question
    texts = question.text, question.hint or "", *question.options.values()
    return sum(map(len, texts)) + sum(len(image.data or b"") for image in sample.images)
