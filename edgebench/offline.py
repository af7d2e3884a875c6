"""Offline: windows of samples to one engine in its process, and a record of each answer."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from edgebench.apart import Died
from edgebench.batches import WINDOW
from edgebench.desk import Desk
from edgebench.protocols import MODEL
from edgebench.runner import Query
from edgebench.windows import Window

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator

    from edgebench.benches.base import Sample
    from edgebench.records import Record
    from edgebench.worker import WindowReply


class OfflineDesk(Desk):
    """A desk that puts windows of samples. A record of it has no times: only a window has."""

    WARMUP = "the first questions, one batch of them, asked once before, untimed"
    _number = 0

    def windows(
        self, asked: Iterator[tuple[Sample, bool]], batch: int, stack: contextlib.ExitStack
    ) -> Iterator[Record | Window]:
        """The records of samples, window by window, and behind those of each the window itself.

        Raises:
            EngineError: the engine cannot be started, or fails again and again.
        """
        while taken := list(itertools.islice(asked, WINDOW * batch)):
            yield from self._window(taken, batch, stack)

    def _window(
        self, taken: list[tuple[Sample, bool]], batch: int, stack: contextlib.ExitStack
    ) -> Iterator[Record | Window]:
        waiting: list[tuple[Record, Query]] = []
        for sample, suits in taken:
            record = self._blank(sample, suits)
            if record.error is not None or record.not_asked is not None:
                yield record
                continue
            alone = Query(sample.id, sample.images, sample.question)
            waiting.append((record, alone if self._protocol is None else self._protocol.single(sample)))
        if not waiting:
            return
        try:
            reply = self._put(tuple(query for _, query in waiting), batch, stack)
        except Died as death:
            self._count_death(death, f"{len(waiting)} samples")
            yield from self._one_by_one(waiting, death, stack)
            return
        for (record, _), (answer, error) in zip(waiting, reply.found.answers, strict=True):
            yield self._filled(self._with_peaks(record, reply), answer, error)
        self._number += 1
        answered = sum(answer is not None for answer, _ in reply.found.answers)
        yield Window(self._sitting, self._number, len(waiting), answered, reply.found.total_ns, reply.found.batches)

    def _one_by_one(
        self, waiting: list[tuple[Record, Query]], death: Died, stack: contextlib.ExitStack
    ) -> Iterator[Record]:
        """The samples of a window that the process did not outlive: one of them may be the cause. Nothing is timed."""
        for record, query in waiting:
            if len(waiting) > 1:
                try:
                    reply = self._put((query,), 1, stack)
                except Died as again:
                    self._count_death(again, f"sample {record.id!r}")
                    yield replace(record, error=f"engine: {again}")
                else:
                    answer, error = reply.found.answers[0]
                    yield self._filled(self._with_peaks(record, reply), answer, error)
            else:
                yield replace(record, error=f"engine: {death}")

    def _put(self, queries: tuple[Query, ...], batch: int, stack: contextlib.ExitStack) -> WindowReply:
        workers, warm = self._staff.workers, self._staff.warm
        worker = workers.get(MODEL) or self._start(MODEL, stack)
        try:
            if MODEL not in warm:
                warmup = worker.ask_all(queries[:batch]).found if self._run.warmup else None
                warm[MODEL] = warmup.total_ns if warmup else None
                if not self._described:
                    self._describe(worker, warm[MODEL])
                self._watch.begin(worker.pid)
            return worker.ask_all(queries)
        except Died:
            del workers[MODEL]
            warm.pop(MODEL, None)
            raise

    def _with_peaks(self, record: Record, reply: WindowReply) -> Record:
        return replace(
            record,
            peak_memory_bytes=reply.peak_memory_bytes,
            peak_anonymous_bytes=reply.peak.anonymous,
            peak_file_backed_bytes=reply.peak.file_backed,
        )
