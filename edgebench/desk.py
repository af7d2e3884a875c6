"""Puts samples to engines in processes of their own, and makes a record of each answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgebench.answers import judge
from edgebench.apart import Died
from edgebench.environment import describe_host, now
from edgebench.errors import EngineError, SampleError
from edgebench.protocols import MODEL
from edgebench.records import Record, Sitting
from edgebench.runner import Query
from edgebench.worker import Worker

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from edgebench.benches.base import Sample
    from edgebench.pipeline import Progress, RunPlan
    from edgebench.protocols import Procedure
    from edgebench.records import Store
    from edgebench.runner import Answer
    from edgebench.trace import Knowledge
    from edgebench.worker import Reply, WorkerPlan

FAILURES_IN_A_ROW = 10
"""So many engine errors in a row end the sitting: the fault is not the samples'."""


class Desk:
    """Puts samples to the workers, starts one when the first sample needs it, and starts it again when it dies."""

    def __init__(
        self,
        worker: WorkerPlan,
        store: Store,
        sitting: int,
        plan: RunPlan,
        progress: Progress,
        protocol: Procedure | None,
    ) -> None:
        self._plan, self._store, self._sitting, self._run = worker, store, sitting, plan
        self._progress, self._protocol = progress, protocol
        self._kind = "vision-language" if plan.artifact is None else plan.artifact.manifest.kind
        self._workers: dict[str, Worker] = {}
        self._peaks: dict[str, Reply] = {}
        self._warm: set[str] = set()
        self._described = False
        self._deaths = 0
        self._failures = 0
        self._end: EngineError | None = None
        """Why no further question is asked."""
        how = worker.how.perturbation
        self._facts = {} if how is None else how.facts()
        self.look_up: Callable[[str], Knowledge] | None = None

    def record(self, sample: Sample, suits: bool, stack: contextlib.ExitStack) -> Record:
        """The record of one sample.

        Raises:
            EngineError: the engine cannot be started, or fails again and again.
        """
        record = Record(
            id=sample.id,
            sitting=self._sitting,
            target=sample.target,
            category=sample.category,
            options=dict(sample.question.options) or None,
            forged_option=sample.question.forged_option,
            facts=sample.facts | self._facts,
        )
        if sample.problem is not None:
            return replace(record, error=sample.problem)
        if not suits:
            return replace(record, not_asked=f"this question does not suit a {self._kind} model")

        def ask(who: str, query: Query) -> Answer:
            reply = self._ask(query, stack, who)
            if reply.answer is None:
                raise SampleError(reply.error or "")
            return reply.answer

        failure: Exception | None = None
        if self._protocol is not None and self.look_up is not None:
            record, failure = self._protocol.put(record, sample, ask, self.look_up)
        else:
            try:
                record = replace(record, **vars(ask(MODEL, Query(sample.id, sample.images, sample.question))))
            except (SampleError, Died) as error:
                failure = error
        if isinstance(failure, Died):
            self._count_death(failure, f"sample {sample.id!r}")
            return replace(record, error=f"engine: {failure}")
        record = replace(
            record,
            peak_memory_bytes=self._peak(lambda reply: reply.peak_memory_bytes),
            peak_anonymous_bytes=self._peak(lambda reply: reply.peak.anonymous),
            peak_file_backed_bytes=self._peak(lambda reply: reply.peak.file_backed),
        )
        if failure is not None:
            if not isinstance(failure, SampleError):
                raise failure
            self._count_failure(failure.what)
            return replace(record, error=failure.what)
        self._failures = 0
        answer, method = judge(record, scoring=self._run.scoring, matcher=self._run.matcher)
        return replace(record, answer=answer, method=method)

    def _peak(self, of: Callable[[Reply], int | None]) -> int | None:
        """Of all engines' processes together; they need not have been at their peaks at once."""
        known = [of(reply) for reply in self._peaks.values()]
        return sum(n for n in known if n is not None) if known and None not in known else None

    def _ask(self, query: Query, stack: contextlib.ExitStack, who: str = MODEL) -> Reply:
        if not self._described and who != MODEL:
            # A sitting is described by the run's own artifact, whoever is asked first.
            self._describe(self._start(MODEL, stack), None)
        worker = self._workers.get(who) or self._start(who, stack)
        try:
            if who not in self._warm:
                warmup = worker.ask(replace(query, warmup=True)).answer if self._run.warmup else None
                self._warm.add(who)
                if not self._described:
                    self._describe(worker, warmup.stages_ns["total"] if warmup else None)
            reply = worker.ask(query)
        except Died:
            del self._workers[who]
            self._warm.discard(who)
            raise
        self._peaks[who] = reply
        return reply

    def _start(self, who: str, stack: contextlib.ExitStack) -> Worker:
        while self._end is None:
            try:
                self._workers[who] = stack.enter_context(Worker(self._worker_plan(who), self._run.limits))
            except Died as death:
                self._count_death(death, "loading", again=not death.overdue)
            else:
                return self._workers[who]
        raise self._end

    def _worker_plan(self, who: str) -> WorkerPlan:
        artifact = None if self._protocol is None else self._protocol.detectors.get(who)
        if artifact is None:
            return self._plan
        text = artifact.manifest.text
        style = "default" if text is None else text.prompt_style
        limit = self._run.max_new_tokens or (512 if text is None else text.max_new_tokens)
        how = replace(self._plan.how, prompt_style=style, max_new_tokens=limit)
        return replace(self._plan, artifact=artifact, how=how)

    def _describe(self, worker: Worker, warmup: int | None) -> None:
        ready = worker.ready
        line = Sitting(
            sitting=self._sitting,
            started=now(),
            host=describe_host(),
            engine=ready.facts,
            load_ns=ready.load_ns,
            warmup_ns=warmup,
            memory_after_load_bytes=ready.memory_bytes,
            anonymous_after_load_bytes=ready.resident.anonymous,
            file_backed_after_load_bytes=ready.resident.file_backed,
            memory_method=ready.memory_method,
            memory_kinds_method=ready.kinds_method,
            profile=self._plan.profile.name,
            limits=self._run.limits,
        )
        self._store.append(line)
        self._described = True

    def _count_death(self, death: Died, where: str, *, again: bool = True) -> None:
        self._deaths += 1
        allowed = self._run.limits.restarts
        if again and self._deaths <= allowed:
            self._progress.note(f"{where}: {death}; it is started again ({self._deaths} of {allowed})")
            return
        self._end = EngineError(
            f"{where}: {death}" + (f"; it was started again {allowed} times (--restarts)" if again else ""),
            hint="what was answered is kept; --resume continues, --retry-failed asks the failed samples too",
        )

    def _count_failure(self, error: str) -> None:
        self._failures = self._failures + 1 if error.startswith("engine: ") else 0
        if self._failures >= FAILURES_IN_A_ROW:
            raise EngineError(
                f"{FAILURES_IN_A_ROW} samples in a row failed in the engine; the last one: {error.removeprefix('engine: ')}",
                hint="the answers so far are kept; --resume continues, --retry-failed asks the failed samples too",
            )
