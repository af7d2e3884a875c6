"""Questions to a model that is elsewhere: asked from this process, several at once, each by a thread of its own.

There is no runtime here that could crash, and no memory to measure, so no worker process is needed. The threads are
daemons: when the run ends in the middle, it does not wait for replies that nobody will read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from edgebench.engines.base import Unavailable
from edgebench.errors import EdgebenchError, SampleError
from edgebench.registry import load
from edgebench.runner import Answer, Query, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from edgebench.engines.base import Chat
    from edgebench.worker import WorkerPlan


@dataclass(frozen=True)
class Called:
    """What came back for one query: an answer, or the reason why there is none."""

    query: Query
    answer: Answer | None
    error: str | None = None


class Line:
    """A model elsewhere that is asked one question after another: the calls of a protocol need each other's answers."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan

    def __enter__(self) -> Self:
        self._chat = load(self._plan.engine)(self._plan.artifact, self._plan.profile, self._plan.options)
        self._runner = _runner(self._chat.__enter__(), self._plan)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._chat.__exit__(kind, error, trace)

    def facts(self) -> dict[str, Any]:
        """Who is asked."""
        found: dict[str, Any] = self._chat.facts()
        return found

    def ask(self, query: Query) -> Called:
        """One question, blocking.

        Raises:
            Unavailable: it is of no use to ask on.
        """
        return _answer(self._runner, query)


def call(plan: WorkerPlan, queries: Iterator[Query], began: Callable[[dict[str, Any]], None]) -> Iterator[Called]:
    """Ask all queries; what comes back is given in the order of its coming.

    The first query is asked alone, so that a wrong address or key costs one request. `queries` is read here, and never
    further ahead than can be asked.

    Args:
        plan: the engine and how to ask.
        queries: what to ask.
        began: called with the engine's facts once the first query is answered.

    Raises:
        Unavailable: it is of no use to ask on.
    """
    with load(plan.engine)(plan.artifact, plan.profile, plan.options) as chat:
        first = next(queries, None)
        if first is None:
            return
        answered = _answer(_runner(chat, plan), first)
        began(chat.facts())
        yield answered
        asked: SimpleQueue[Query | None] = SimpleQueue()
        done: SimpleQueue[Called | BaseException] = SimpleQueue()
        for number in range(chat.at_once):
            runner = _runner(chat, plan)
            Thread(target=_work, args=(runner, asked, done), name=f"edgebench-call-{number}", daemon=True).start()
        under_way = 0
        try:
            for query in queries:
                asked.put(query)
                under_way += 1
                if under_way == chat.at_once:
                    yield _taken(done)
                    under_way -= 1
            while under_way:
                yield _taken(done)
                under_way -= 1
        finally:
            for _ in range(chat.at_once):
                asked.put(None)


def _runner(chat: Chat, plan: WorkerPlan) -> Runner:
    """One for each thread: it keeps what belongs to one question at a time."""
    return Runner(chat, plan.artifact, plan.how, clock=time.perf_counter_ns)


def _work(runner: Runner, asked: SimpleQueue[Query | None], done: SimpleQueue[Called | BaseException]) -> None:
    while (query := asked.get()) is not None:
        try:
            done.put(_answer(runner, query))
        except BaseException as error:
            done.put(error)


def _taken(done: SimpleQueue[Called | BaseException]) -> Called:
    found = done.get()
    if isinstance(found, BaseException):
        raise found
    return found


def _answer(runner: Runner, query: Query) -> Called:
    try:
        return Called(query, runner.ask(query))
    except SampleError as error:
        return Called(query, None, str(error))
    except Unavailable:
        raise
    except EdgebenchError as error:
        return Called(query, None, f"engine: {error}")
    except MemoryError:
        return Called(query, None, "engine: not enough memory for this sample")
