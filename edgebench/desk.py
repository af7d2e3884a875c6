"""Puts samples to engines in processes of their own, and makes a record of each answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgebench.answers import judge
from edgebench.apart import Died
from edgebench.calls import Line, call
from edgebench.engines.others import engine_class
from edgebench.environment import Resident, describe_host, now
from edgebench.errors import EngineError, SampleError
from edgebench.protocols import MODEL
from edgebench.records import NO_WARMUP, Record, Sitting
from edgebench.runner import Query
from edgebench.worker import Reply, Worker

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator

    from edgebench.benches.base import Sample
    from edgebench.plan import Progress, RunPlan
    from edgebench.protocols import Procedure
    from edgebench.records import Store
    from edgebench.runner import Answer
    from edgebench.sensors.watch import Watch
    from edgebench.trace import Knowledge
    from edgebench.worker import WorkerPlan

FAILURES_IN_A_ROW = 10
"""So many engine errors in a row end the sitting: the fault is not the samples'."""


@dataclass
class Staff:
    """The engines' processes, by who is asked; runs that are asked side by side have them together."""

    workers: dict[str, Worker] = field(default_factory=dict)
    warm: dict[str, int | None] = field(default_factory=dict)
    """How long the warm-up took, in nanoseconds; None where there was none, or it failed."""
    by_turns: bool = True
    """Their questions are put by turns, so that each has its run's settings with it."""


class Desk:
    """Puts samples to the workers, starts one when the first sample needs it, and starts it again when it dies."""

    WARMUP = "the first question, asked once before, untimed"

    def __init__(
        self,
        worker: WorkerPlan,
        store: Store,
        sitting: int,
        plan: RunPlan,
        progress: Progress,
        watch: Watch,
        protocol: Procedure | None = None,
        *,
        remote: bool = False,
        staff: Staff | None = None,
    ) -> None:
        self._plan, self._store, self._sitting, self._run, self._progress = worker, store, sitting, plan, progress
        self._watch, self._protocol, self._remote = watch, protocol, remote
        self._kind = "vision-language" if plan.artifact is None else plan.artifact.manifest.kind
        self._staff = staff or Staff()
        self._how = worker.how if staff is not None and staff.by_turns else None
        """Put with each question where others are asked in between."""
        self._empty = Record("", sitting, "", "")
        self._line: Line | None = None
        self._peaks: dict[str, Reply] = {}
        self._costs: list[dict[str, Any]] = []
        """Of the calls of the sample at hand."""
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
        record = self._blank(sample, suits)
        if record.error is not None or record.not_asked is not None:
            return record

        def ask(who: str, query: Query) -> Answer:
            reply = self._ask(query, stack, who)
            if reply.answer is None:
                raise SampleError(reply.error or "")
            return reply.answer

        self._costs.clear()
        failure: Exception | None = None
        found: dict[str, Any] = {}
        if self._protocol is not None and self.look_up is not None:
            record, failure = self._protocol.put(record, sample, ask, self.look_up)
        else:
            try:
                found = vars(ask(MODEL, Query(sample.id, sample.images, sample.question)))
            except (SampleError, Died) as error:
                failure = error
        if isinstance(failure, Died):
            self._count_death(failure, f"sample {sample.id!r}")
            return record.but(error=f"engine: {failure}")
        record = record.but(**self._together(), **self._cost(), **found)
        if failure is not None:
            if not isinstance(failure, SampleError):
                raise failure
            self._count_failure(failure.what)
            return record.but(error=failure.what)
        return self._judged(record)

    def called(self, asked: Iterator[tuple[Sample, bool]]) -> Iterator[Record]:
        """The records of samples that a model elsewhere is asked, in the order of their answers.

        Raises:
            EngineError: it is not there, or fails again and again.
        """
        settled: list[Record] = []
        waiting: dict[str, Record] = {}

        def queries() -> Iterator[Query]:
            for sample, suits in asked:
                record = self._blank(sample, suits)
                if record.error is not None or record.not_asked is not None:
                    settled.append(record)
                    continue
                waiting[sample.id] = record
                alone = Query(sample.id, sample.images, sample.question)
                yield alone if self._protocol is None else self._protocol.single(sample)

        for found in call(self._plan, queries(), self._describe_call):
            yield from settled
            settled.clear()
            yield self._filled(waiting.pop(found.query.id), found.answer, found.error)
        yield from settled

    def _blank(self, sample: Sample, suits: bool) -> Record:
        """What is known of a sample before it is asked; whether it is asked at all."""
        record = self._empty.but(
            id=sample.id,
            target=sample.target,
            category=sample.category,
            options=dict(sample.question.options) or None,
            forged_option=sample.question.forged_option,
            facts=sample.facts | self._facts,
        )
        if sample.problem is not None:
            return record.but(error=sample.problem)
        if not suits:
            return record.but(not_asked=f"this question does not suit a {self._kind} model")
        return record

    def _filled(self, record: Record, answer: Answer | None, error: str | None) -> Record:
        """With what came back for it."""
        if answer is None:
            self._count_failure(error or "")
            return record.but(error=error)
        return self._judged(record.but(**vars(answer)))

    def _judged(self, record: Record) -> Record:
        self._failures = 0
        letter, method = judge(record, scoring=self._run.scoring, matcher=self._run.matcher)
        return record.but(answer=letter, method=method)

    def _describe_call(self, facts: dict[str, Any]) -> None:
        """The line of a sitting with a model that is elsewhere: nothing of it is loaded here."""
        self._store.append(
            Sitting(
                sitting=self._sitting,
                started=now(),
                host=describe_host(),
                engine=facts,
                load_ns=None,
                memory_method="unknown: the model is elsewhere",
                profile=self._plan.profile.name,
            )
        )

    def _together(self) -> dict[str, int | None]:
        """The peaks of all engines' processes, added up; they need not have been there at once."""
        replies = self._peaks.values()
        return {
            "peak_memory_bytes": _sum([reply.peak_memory_bytes for reply in replies]),
            "peak_anonymous_bytes": _sum([reply.peak.anonymous for reply in replies]),
            "peak_file_backed_bytes": _sum([reply.peak.file_backed for reply in replies]),
        }

    def _cost(self) -> dict[str, Any]:
        """When the sample was put, how long its calls took and at which energy, added up."""
        if not self._costs:
            return {}
        energy = [cost["energy_j"] for cost in self._costs]
        return {
            "asked_unix_ns": self._costs[0]["asked_unix_ns"],
            "took_ns": sum(cost["took_ns"] for cost in self._costs),
            "energy_j": None if None in energy else round(sum(energy), 6),
        }

    def _ask(self, query: Query, stack: contextlib.ExitStack, who: str = MODEL) -> Reply:
        if self._remote and who == MODEL:
            return self._ask_elsewhere(query, stack)
        if not self._described and who != MODEL:
            # A sitting is described by the run's own model, whoever is asked first.
            if self._remote:
                self._describe_line(self._open_line(stack))
            else:
                self._describe(self._start(MODEL, stack), None)
        if self._how is not None:
            query = replace(query, how=self._how)
        workers, warm = self._staff.workers, self._staff.warm
        worker = workers.get(who) or self._start(who, stack)
        try:
            if who not in warm:
                warmup = worker.ask(replace(query, warmup=True)).answer if self._run.warmup else None
                warm[who] = warmup.stages_ns["total"] if warmup else None
                self._watch.begin(workers.get(MODEL, worker).pid)
            if not self._described:
                self._describe(worker, warm[who])
            mark = self._watch.mark()
            reply = worker.ask(query)
        except Died:
            del workers[who]
            warm.pop(who, None)
            raise
        if not self._remote:  # of a part of the models there is no memory and no energy of a sample
            self._costs.append(self._watch.since(mark))
            self._peaks[who] = reply
        return reply

    def _open_line(self, stack: contextlib.ExitStack) -> Line:
        if self._line is None:
            self._line = stack.enter_context(Line(self._plan))
        return self._line

    def _describe_line(self, line: Line) -> None:
        if not self._described:
            self._describe_call(line.facts())
            self._described = True

    def _ask_elsewhere(self, query: Query, stack: contextlib.ExitStack) -> Reply:
        """One call of several to a model that is not here: the next one needs its answer."""
        line = self._open_line(stack)
        found = line.ask(query)
        self._describe_line(line)
        return Reply(found.answer, found.error, None, Resident(None, None))

    def _start(self, who: str, stack: contextlib.ExitStack) -> Worker:
        while self._end is None:
            try:
                self._staff.workers[who] = stack.enter_context(
                    Worker(self._worker_plan(who), self._run.limits, self._progress.say)
                )
            except Died as death:
                self._count_death(death, "loading", again=not death.overdue)
            else:
                return self._staff.workers[who]
        raise self._end

    def _worker_plan(self, who: str) -> WorkerPlan:
        protocol = self._protocol
        artifact = None if protocol is None else protocol.detectors.get(who)
        if artifact is None or protocol is None:
            return self._plan
        text = artifact.manifest.text
        style = "default" if text is None else text.prompt_style
        limit = self._run.max_new_tokens or (512 if text is None else text.max_new_tokens)
        how = replace(self._plan.how, prompt_style=style, max_new_tokens=limit)
        plan = replace(self._plan, artifact=artifact, how=how)
        # The engine's options are its own.
        return plan if protocol.engine is None else replace(plan, engine=engine_class(protocol.engine), options={})

    def _describe(self, worker: Worker, warmup: int | None) -> None:
        ready = worker.ready
        line = Sitting(
            sitting=self._sitting,
            started=now(),
            host=describe_host(),
            engine=ready.facts,
            load_ns=ready.load_ns,
            warmup_ns=warmup,
            warmup=self.WARMUP if self._run.warmup else NO_WARMUP,
            memory_after_load_bytes=ready.memory_bytes,
            anonymous_after_load_bytes=ready.resident.anonymous,
            file_backed_after_load_bytes=ready.resident.file_backed,
            memory_method=ready.memory_method,
            memory_kinds_method=ready.kinds_method,
            profile=self._plan.profile.name,
            limits=self._run.limits,
            device=self._plan.profile,
            energy_source=self._watch.energy_source,
            no_energy=self._watch.why_no_energy,
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


def _sum(sizes: list[int | None]) -> int | None:
    """Unknown where one of them is, or there is none."""
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
