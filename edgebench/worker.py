"""An engine in a process of its own.

A crash of the runtime, the kernel's out-of-memory killer or a hang ends that process and not the run's records; and
the peak memory that is reported is that process's own.
"""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from edgebench import errors
from edgebench.apart import Apart
from edgebench.batches import Answered, Outcome, why
from edgebench.cells import CellRunner, Cells
from edgebench.environment import (
    MemoryWatch,
    Resident,
    asking_for_huge_pages,
    current_memory_bytes,
    describe_host,
    huge_pages,
    now,
    peak_memory_bytes,
)
from edgebench.errors import EdgebenchError, EngineError, one_line
from edgebench.media.pixels import in_use
from edgebench.records import Limits, Sitting
from edgebench.runner import Answer, HowToAsk, Query
from edgebench.sweep import MOST_WARMUPS, Case, Measured, Rule, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from types import TracebackType
    from typing import Self

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile


_ANSWER = tuple(field.name for field in fields(Answer))
_SEEN = ("peak_memory_bytes", "peak_anonymous_bytes", "peak_file_backed_bytes", "asked_unix_ns", "took_ns")
"""Of an answer that was asked for ahead, as a record names it."""


@dataclass(frozen=True)
class WorkerPlan:
    """All that the worker needs to begin."""

    engine: str
    """'package.module:Class'."""
    artifact: Artifact | None
    profile: DeviceProfile
    options: dict[str, str]
    how: HowToAsk

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the engine's process."""
        decodes = self.artifact is not None and self.artifact.manifest.decoder is not None
        wide = decodes and self.profile.huge_pages and self.options.get("memory") != "low"
        return asking_for_huge_pages() if wide else {}


@dataclass(frozen=True)
class Ready:
    """The engine is loaded."""

    facts: dict[str, Any]
    load_ns: int
    memory_bytes: int | None
    memory_method: str
    resident: Resident
    kinds_method: str | None


@dataclass(frozen=True)
class Reply:
    """What came back for one query: an answer or the reason why there is none."""

    answer: Answer | None
    error: str | None
    peak_memory_bytes: int | None
    peak: Resident


@dataclass(frozen=True)
class WindowReply:
    """What came back for a window of queries."""

    found: Answered
    peak_memory_bytes: int | None
    peak: Resident


@dataclass(frozen=True)
class CellsReply:
    """What came back for some of a sample's cells."""

    found: dict[int, Outcome]
    """Number of the cell -> answer or reason."""
    peak_memory_bytes: int | None
    peak: Resident


@dataclass(frozen=True)
class Asked:
    """A case of a sweep, and how long it is measured."""

    case: Case
    rule: Rule


@dataclass(frozen=True)
class CaseReply:
    """What came back for a case: its times, or the reason why there are none."""

    measured: Measured | None
    error: str | None
    peak_memory_bytes: int | None
    peak: Resident


@dataclass(frozen=True)
class Doing:
    """What goes on before the engine is loaded."""

    line: str


class Worker:
    """The parent's side: a context manager around the engine's process."""

    def __init__(
        self, plan: WorkerPlan, limits: Limits | None = None, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._plan, self._say = plan, say
        self._limits = limits or Limits()

    def __enter__(self) -> Self:
        """Start the process and wait until its engine is loaded.

        Raises:
            Died: the process ended before it was.
            EngineError: it cannot be loaded.
        """
        self._process = Apart(_serve, self._plan, name="the engine's process", environment=self._plan.environment)
        try:
            # The limit is on the silence: an engine that says what it builds is not ended while it does.
            first: Any = Doing("loading the engine")
            while isinstance(first, Doing):
                self._say(first.line)
                first = self._process.receive("while it loaded the artifact", self._limits.load_s)
            if isinstance(first, EdgebenchError):
                raise first
        except BaseException:
            self._process.end()
            raise
        self.ready: Ready = first
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.end()

    @property
    def pid(self) -> int | None:
        """Of the engine's process."""
        return self._process.pid

    def only_sitting(self) -> Sitting:
        """The facts of a measurement that has one sitting, beginning now."""
        ready = self.ready
        return Sitting(
            sitting=1,
            started=now(),
            host=describe_host(),
            engine=ready.facts,
            load_ns=ready.load_ns,
            memory_after_load_bytes=ready.memory_bytes,
            memory_method=ready.memory_method,
            profile=self._plan.profile.name,
            limits=self._limits,
            device=self._plan.profile,
        )

    def ask(self, query: Query) -> Reply:
        """One question, blocking.

        Raises:
            Died: the process ended before it answered, or took longer than it may.
        """
        self._process.send(query)
        when = "while it answered the warm-up question" if query.warmup else "while it answered"
        return _reply(*self._process.receive(when, self._limits.question_s))

    def send_ahead(self, queries: list[Query]) -> None:
        """Questions that are answered one after the other; `receive_ahead` gives the answer of each, in order.

        Raises:
            Died: the process ended. Answers that it had sent before can still be received.
        """
        self._process.send(queries)

    def receive_ahead(self) -> tuple[dict[str, Any] | None, str | None, dict[str, int | None]]:
        """The next answer, blocking: its fields, or the reason why there is none; the peaks, and when it was begun with.

        Raises:
            Died: as of `ask`.
        """
        (answer, error, *peaks), *when = self._process.receive("while it answered", self._limits.question_s)
        found = None if answer is None else dict(zip(_ANSWER, answer, strict=True))
        return found, error, dict(zip(_SEEN, (*peaks, *when), strict=True))

    def ask_all(self, queries: tuple[Query, ...]) -> WindowReply:
        """A window of questions, blocking.

        Raises:
            Died: as of `ask`; the limit is that of so many questions.
        """
        self._process.send(queries)
        when = f"while it answered {len(queries)} questions"
        reply: WindowReply = self._process.receive(when, self._limits.question_s * len(queries))
        return reply

    def ask_cells(self, cells: Cells, meanwhile: Callable[[], None]) -> Iterator[CellsReply]:
        """One sample under several perturbations, a few answers at a time; `meanwhile` is called while the first are made.

        Raises:
            Died: as of `ask`; the limit between two replies is that of so many questions.
        """
        self._process.send(cells)
        meanwhile()
        left = len(cells.hows)
        while left > 0:
            when = f"while it answered {left} perturbations"
            reply: CellsReply = self._process.receive(when, self._limits.question_s * len(cells.hows))
            left -= len(reply.found)
            yield reply

    def measure(self, case: Case, rule: Rule) -> CaseReply:
        """One case of a sweep, blocking.

        Raises:
            Died: as of `ask`; the limit is that of so many questions.
        """
        self._process.send(Asked(case, rule))
        limit = rule.seconds + self._limits.question_s * (rule.count + MOST_WARMUPS + 1)
        reply: CaseReply = self._process.receive("while it was measured", limit)
        return reply


def _serve(connection: Connection, plan: WorkerPlan) -> None:
    """The worker's side: load, then answer until the parent says None or is gone."""
    with MemoryWatch() as watch:
        _load_and_answer(connection, plan, watch)


def _load_and_answer(connection: Connection, plan: WorkerPlan, watch: MemoryWatch) -> None:
    from edgebench.registry import load

    clock = time.perf_counter_ns
    try:
        engine = load(plan.engine)(plan.artifact, plan.profile, plan.options)
        if hasattr(engine, "say"):
            engine.say = lambda line: connection.send(Doing(line))
        begin = clock()
        prepared = getattr(engine, "prepare", lambda: False)()
        prepare_ns = clock() - begin
        begin = clock()
        opened = engine.__enter__()
        load_ns = clock() - begin
        runner = CellRunner(opened, plan.artifact, plan.how, clock=clock)
        facts = opened.facts() | {"pixels": in_use(), "huge_pages": huge_pages()}
        if prepared:
            facts["prepack_s"] = round(prepare_ns / 1e9, 3)
        if plan.how.batch is not None:
            facts["asked_in_batches"] = runner.can_batch
        json.dumps(facts)
        method = peak_memory_bytes()[1]
        connection.send(Ready(facts, load_ns, current_memory_bytes(), method, watch.now(), watch.method))
    except EdgebenchError as error:
        # An error class of the engine's own package is unknown on the other side.
        connection.send(error if type(error).__module__ == errors.__name__ else EngineError(str(error)))
        return
    except ImportError as error:
        connection.send(EngineError(f"the engine's package is not installed: {one_line(error)}"))
        return
    except Exception as error:  # engines of others raise what they like
        connection.send(EngineError(f"the engine {plan.engine} does not load: {one_line(error)}"))
        return
    try:
        while (asked := connection.recv()) is not None:
            for answer in _answers(runner, asked, watch):
                connection.send_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    except (EOFError, OSError):
        return
    finally:
        opened.__exit__(None, None, None)


def _answers(runner: CellRunner, asked: Any, watch: MemoryWatch) -> Iterator[Any]:
    """The answer to a query, or the reason why there is none; those of a window; the times of a case; a sample's cells.

    Queries in a list were sent ahead: each has an answer of its own, with the moment and the time of it.
    """
    if isinstance(asked, list):
        for query in asked:
            moment, begin = time.time_ns(), time.perf_counter_ns()
            plain = _plain(runner, query, watch)
            yield plain, moment, time.perf_counter_ns() - begin
    elif isinstance(asked, Cells):
        for some in runner.ask_cells(asked):
            yield CellsReply(some, *watch.peaks())
    elif isinstance(asked, Asked):
        measured, reason = None, None
        try:
            measured = measure(runner, asked.case, asked.rule)
        except Exception as error:  # engines of others raise what they like
            reason = why(error)
        yield CaseReply(measured, reason, *watch.peaks())
    elif isinstance(asked, tuple):
        found = runner.ask_all(asked, runner.how.batch or 1)
        yield WindowReply(found, *watch.peaks())
    else:
        yield _plain(runner, asked, watch)


def _plain(runner: CellRunner, query: Query, watch: MemoryWatch) -> tuple[Any, ...]:
    """A reply in plain values, which takes a quarter of a `Reply`'s time on its way."""
    try:
        answer, reason = runner.ask(query), None
    except Exception as error:  # engines of others raise what they like
        answer, reason = None, why(error)
    peak, kinds = watch.peaks()
    return None if answer is None else tuple(vars(answer).values()), reason, peak, kinds.anonymous, kinds.file_backed


def _reply(answer: tuple[Any, ...] | None, error: str | None, peak: int | None, *kinds: int | None) -> Reply:
    """What `_plain` made plain."""
    return Reply(None if answer is None else Answer(*answer), error, peak, Resident(*kinds))
