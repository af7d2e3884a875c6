"""A function in a process of its own: what it sends, what it writes, and how it ended.

What it writes to its stdout and stderr goes to our stderr, and its last lines stand in the error when it dies: an
abort of a native library says its reason there and nowhere else.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import multiprocessing
import os
import pickle
import re
import select
import signal
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from edgebench.environment import address_space_limit_bytes, memory_kills
from edgebench.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection


class Died(EngineError):
    """A process ended by itself, or took too long and was ended."""

    overdue: bool = False


class Apart:
    """The parent's side of one process."""

    def __init__(
        self,
        function: Callable[..., None],
        *arguments: Any,
        name: str,
        aloud: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            function: of a module; its first argument is the connection to the parent, the others follow.
            arguments: what can be pickled.
            name: the process in errors, such as "the engine's process".
            aloud: whether what it writes goes to our stderr.
            environment: variables beside our own.
        """
        context = multiprocessing.get_context("spawn")
        self._name, self._memory_kills = name, memory_kills()
        self._connection, theirs = context.Pipe()
        self._comes = _poll(self._connection)
        words, their_words = context.Pipe(duplex=False)
        self._words = _LastWords(words, aloud)
        self._process = context.Process(
            target=_begin, args=(their_words, function, theirs, *arguments), daemon=True, name="edgebench-apart"
        )
        with _variables(environment or {}):
            self._process.start()
        theirs.close()
        their_words.close()

    @property
    def pid(self) -> int | None:
        """The process's."""
        return self._process.pid

    def send(self, value: Any) -> None:
        """Send it something.

        Raises:
            Died: it is not there any more.
        """
        try:
            # As `send`, which makes a pickler with a table of its own for each value.
            self._connection.send_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        except OSError as error:
            raise self._died("before the question reached it") from error

    def receive(self, when: str, limit_s: float) -> Any:
        """What it sends next.

        Args:
            when: what it does, for the error.
            limit_s: after so many seconds it is ended.

        Raises:
            Died: it ended, or nothing came.
        """
        try:
            if self._comes(limit_s):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._died(when) from error
        self._process.kill()
        raise self._died(when, overdue_s=limit_s)

    def end(self) -> None:
        """Ask it to end (by None), and end it."""
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
        self._words.wait()

    def _died(self, when: str, *, overdue_s: float | None = None) -> Died:
        self._process.join(timeout=10)
        code = self._process.exitcode
        if overdue_s is not None:
            cause = f"gave nothing for {overdue_s:g} s and was ended"
        elif code is not None and code < 0:
            name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
            cause = f"was killed by {name}" + self._memory_or_not(name)
        else:
            cause = f"ended with exit code {code}"
        said = self._words.text()
        death = Died(f"{self._name} {cause} {when}".rstrip(" ,") + (f"; its last words: {said}" if said else ""))
        death.overdue = overdue_s is not None
        return death

    def _memory_or_not(self, name: str) -> str:
        limit = address_space_limit_bytes()
        if limit is not None:
            return f", under a limit of {limit // 2**20} MiB of address space,"
        if name != "SIGKILL":
            return ""
        kills = memory_kills()
        if kills is None or self._memory_kills is None:
            return ", as the kernel does when memory runs out,"
        if kills > self._memory_kills:
            return ", and the kernel ended a process for want of memory,"
        return ", not for want of memory,"


@contextlib.contextmanager
def _variables(own: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started meanwhile: a spawned process takes ours."""
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _poll(connection: Connection) -> Callable[[float], bool]:
    """As `connection.poll`, which makes and registers a selector for each question that it waits for."""
    if not hasattr(select, "poll"):
        return connection.poll
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return lambda limit_s: bool(waiting.poll(min(math.ceil(limit_s * 1e3), 2**31 - 1)))


class _LastWords:
    """What a process writes, and its last lines."""

    LINES, WIDTH = 6, 200

    def __init__(self, source: Connection, aloud: bool) -> None:
        self._source, self._aloud = source, aloud
        self._lines: deque[str] = deque([""], maxlen=self.LINES + 1)
        self._thread = threading.Thread(target=self._listen, daemon=True, name="edgebench-last-words")
        self._thread.start()

    def wait(self) -> None:
        """Until it has been read to its end, or a moment: a child of the process may hold it open."""
        self._thread.join(timeout=1)

    def text(self) -> str:
        """The last lines as one, without control characters and without the values of secret variables."""
        self.wait()
        lines = [" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in self._lines]
        text = " | ".join([line[: self.WIDTH] for line in lines if line][-self.LINES :])
        for name, value in os.environ.items():
            if len(value) >= 8 and re.search("KEY|TOKEN|SECRET|PASSWORD", name.upper()):
                text = text.replace(value, f"${name}")
        return text

    def _listen(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        with self._source:
            while block := os.read(self._source.fileno(), 1 << 16):
                text = decoder.decode(block)
                if self._aloud:
                    with contextlib.suppress(OSError, ValueError):  # a stderr that is gone must not stop the process
                        sys.stderr.write(text)
                        sys.stderr.flush()
                first, *more = re.split("[\r\n]", text)
                self._lines[-1] = (self._lines[-1] + first)[-10 * self.WIDTH :]
                self._lines.extend(more)


def _begin(words: Connection, function: Callable[..., None], *arguments: Any) -> None:
    """The process's side."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (1, 2):
        os.dup2(words.fileno(), stream)
    words.close()
    threading.Thread(target=_end_with_parent, daemon=True, name="edgebench-parent").start()
    function(*arguments)


def _end_with_parent() -> None:
    """A process that works or hangs does not outlive its parent."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
