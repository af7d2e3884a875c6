"""An engine in a process of its own.

A crash of the runtime, or the kernel's out-of-memory killer, ends that process and not the run's records; and the
peak memory that is reported is that process's own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgebench.environment import MemoryWatch, Resident, current_memory_bytes, peak_memory_bytes
from edgebench.errors import EdgebenchError, EngineError, SampleError, one_line
from edgebench.media.pixels import in_use
from edgebench.runner import Answer, HowToAsk, Query, Runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import TracebackType
    from typing import Self

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile


@dataclass(frozen=True)
class WorkerPlan:
    """All that the worker needs to begin."""

    engine: str
    """'package.module:Class'."""
    artifact: Artifact | None
    profile: DeviceProfile
    options: dict[str, str]
    how: HowToAsk


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
class Doing:
    """What goes on before the engine is loaded."""

    line: str


class WorkerDied(EngineError):
    """The engine's process ended by itself."""


class Worker:
    """The parent's side: a context manager around the engine's process."""

    def __init__(self, plan: WorkerPlan, say: Callable[[str], None] = lambda line: None) -> None:
        self._plan, self._say = plan, say

    def __enter__(self) -> Self:
        """Start the process and wait until its engine is loaded.

        Raises:
            EngineError: it cannot be loaded.
        """
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._plan), daemon=True, name="edgebench-engine")
        self._process.start()
        theirs.close()
        while isinstance(first := self._receive("while it loaded the artifact"), Doing):
            self._say(first.line)
        if isinstance(first, EdgebenchError):
            self._end()
            raise first
        self.ready: Ready = first
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, query: Query) -> Reply:
        """One question, blocking.

        Raises:
            WorkerDied: the process ended before it answered.
        """
        try:
            self._connection.send(query)
        except OSError as error:
            raise self._died("before the question reached it") from error
        reply: Reply = self._receive(f"while it answered {query.id!r}")
        return reply

    def _receive(self, when: str) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._died(when) from error

    def _died(self, when: str) -> WorkerDied:
        self._process.join(timeout=10)
        code = self._process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
            cause = f"was killed by {name}" + (", as the kernel does when memory runs out" if name == "SIGKILL" else "")
        else:
            cause = f"ended with exit code {code}"
        return WorkerDied(f"the engine's process {cause} {when}")

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()


def _serve(connection: Connection, plan: WorkerPlan) -> None:
    """The worker's side: load, then answer until the parent says None or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        runner = Runner(opened, plan.artifact, plan.how, clock=clock)
        facts = opened.facts() | {"pixels": in_use()} | ({"prepack_s": round(prepare_ns / 1e9, 3)} if prepared else {})
        method = peak_memory_bytes()[1]
        connection.send(Ready(facts, load_ns, current_memory_bytes(), method, watch.now(), watch.method))
    except EdgebenchError as error:
        connection.send(error)
        return
    except ImportError as error:
        connection.send(EngineError(f"the engine's package is not installed: {one_line(error)}"))
        return
    try:
        while (query := connection.recv()) is not None:
            answer, reason = _answer(runner, query)
            connection.send(Reply(answer, reason, peak_memory_bytes()[0], watch.peak()))
    except (EOFError, OSError):
        return
    finally:
        opened.__exit__(None, None, None)


def _answer(runner: Runner, query: Query) -> tuple[Answer | None, str | None]:
    """The answer, or the reason why there is none."""
    try:
        return runner.ask(query), None
    except SampleError as error:
        return None, str(error)
    except EdgebenchError as error:
        return None, f"engine: {error}"
    except MemoryError:
        return None, "engine: not enough memory for this sample"
