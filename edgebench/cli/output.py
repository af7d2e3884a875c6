"""What commands share: tables or JSON on stdout, progress on stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from edgebench.report.tables import Table

FC = Any

json_option: Callable[[FC], FC] = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on stdout; everything else on stderr."
)


def say(line: str) -> None:
    """One line on stderr."""
    click.echo(f"edgebench: {line}", err=True)


def show(tables: list[Table], value: dict[str, Any], *, as_json: bool) -> None:
    """Print the tables, or the value they were made of."""
    if as_json:
        click.echo(json.dumps(value, ensure_ascii=False))
        return
    from edgebench.report.render import to_terminal

    to_terminal(tables, sys.stdout)


class Bar:
    """A progress bar on stderr that vanishes when it ends, and is absent where stderr is no terminal."""

    PERIOD_S = 0.1
    """It is drawn no more often."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task(what, total=None)
        self._what, self._failed, self._done, self._due = what, 0, 0, 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, step: str) -> None:
        """Name the step that begins."""
        self._progress.update(self._task, description=step)

    def note(self, line: str) -> None:
        """One line above the bar, which stays."""
        self._progress.console.print(f"edgebench: {line}", markup=False, highlight=False, soft_wrap=True)

    def begin(self, total: int, done: int) -> None:
        """So many in all, so many already done."""
        self._done = done
        self._progress.update(self._task, total=total, completed=done)

    def advance(self, failed: bool) -> None:
        """One more."""
        self._failed += failed
        self._done += 1
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self.PERIOD_S
        shown = f"{self._what} ({self._failed} failed)" if self._failed else self._what
        self._progress.update(self._task, completed=self._done, description=shown)
