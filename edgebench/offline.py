"""Questions that go to the engine's process together, and a record of each answer: windows of samples, or cells of one."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from edgebench.apart import Died
from edgebench.batches import WINDOW
from edgebench.cells import Cells
from edgebench.desk import Desk
from edgebench.protocols import MODEL
from edgebench.runner import Answer, Query
from edgebench.windows import Window

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator, Sequence

    from edgebench.batches import Outcome
    from edgebench.benches.base import Sample
    from edgebench.records import Record
    from edgebench.runner import HowToAsk
    from edgebench.worker import CellsReply, WindowReply


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

    def _with_peaks(self, record: Record, reply: WindowReply | CellsReply) -> Record:
        return replace(
            record,
            peak_memory_bytes=reply.peak_memory_bytes,
            peak_anonymous_bytes=reply.peak.anonymous,
            peak_file_backed_bytes=reply.peak.file_backed,
        )


class CellDesk(OfflineDesk):
    """Of one cell of a sweep: its runs have their samples put to one worker together. Nothing of it is timed."""

    WARMUP = "none of its own: nothing of it is timed"

    def __init__(self, how: HowToAsk, *arguments: Any, **named: Any) -> None:
        """Prepare.

        Args:
            how: the cell's own settings.
            arguments: as of a desk; the worker's plan is that of the plain run beside it.
            named: as of a desk.
        """
        super().__init__(*arguments, **named)
        self.how = how
        self._facts = {} if how.perturbation is None else how.perturbation.facts()

    def together(
        self,
        others: Sequence[CellDesk],
        sample: Sample,
        suits: bool,
        plain: Record | None,
        stack: contextlib.ExitStack,
        meanwhile: Callable[[], None],
    ) -> Iterator[tuple[CellDesk, Record]]:
        """The records of a sample in this cell and in others, as they come.

        Args:
            others: desks of other cells.
            sample: put once for all of them.
            suits: whether it is asked at all.
            plain: its record in the plain run, whose answer stands where a cell leaves the pictures as they are.
            stack: holds the engine's process.
            meanwhile: called once, while the engine works.

        Raises:
            EngineError: the engine cannot be started, or fails again and again.
        """
        waiting: dict[CellDesk, Record] = {}
        for desk in (self, *others):
            record = desk._blank(sample, suits)
            if record.error is not None or record.not_asked is not None:
                yield desk, record
            else:
                waiting[desk] = record
        query = Query(sample.id, sample.images, sample.question)
        known = None
        if plain is not None and plain.error is None and plain.not_asked is None:
            known = Answer(**{f.name: getattr(plain, f.name) for f in fields(Answer)} | {"stages_ns": {}})
        tried = [tuple(waiting)] if waiting else []
        while tried:
            desks = tried.pop(0)
            try:
                for desk, reply, (answer, error) in self._put_cells(query, desks, known, stack, meanwhile):
                    yield desk, desk._filled(self._with_peaks(waiting.pop(desk), reply), answer, error)
            except Died as death:
                self._count_death(death, f"sample {sample.id!r}")
                left = [desk for desk in desks if desk in waiting]
                if len(desks) > 1:  # one of them may be the cause
                    tried = [(desk,) for desk in left]
                else:
                    yield left[0], replace(waiting.pop(left[0]), error=f"engine: {death}")

    def _put_cells(
        self,
        query: Query,
        desks: Sequence[CellDesk],
        plain: Answer | None,
        stack: contextlib.ExitStack,
        meanwhile: Callable[[], None],
    ) -> Iterator[tuple[CellDesk, CellsReply, Outcome]]:
        workers = self._staff.workers
        worker = workers.get(MODEL)
        if worker is None:
            worker = self._start(MODEL, stack)
            self._watch.begin(worker.pid)
        for desk in desks:
            if not desk._described:
                desk._describe(worker, None)
        try:
            for reply in worker.ask_cells(Cells(query, tuple(desk.how for desk in desks), plain), meanwhile):
                for number, outcome in reply.found.items():
                    yield desks[number], reply, outcome
        except Died:
            del workers[MODEL]
            self._staff.warm.pop(MODEL, None)
            raise
