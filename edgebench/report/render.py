"""Tables -> terminal or Markdown. Names from data are never taken for markup."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from edgebench.report.tables import Table

LONGEST = 400


def clean(text: str) -> str:
    """A name as harmless text: no control or direction characters, one line, 400 characters at most."""
    shown = "".join(c if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} else " " for c in text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def to_terminal(tables: Iterable[Table], stream: TextIO) -> None:
    """Print tables with rich, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(file=stream, highlight=False, width=None if stream.isatty() else 140)
    for table in tables:
        shown = RichTable(show_header=any(table.columns))
        for name in table.columns:
            shown.add_column(Text(clean(name)), overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(clean(cell)) for cell in row))
        console.print(Text(clean(table.title), style="bold"))
        console.print(shown)
        if table.note:
            console.print(Text(clean(table.note), style="dim"))
        console.print()


def to_markdown(tables: Iterable[Table]) -> str:
    """The same tables for a pull request."""
    blocks = []
    for table in tables:
        lines = [f"### {_md(table.title)}", "", _line(table.columns), "|" + " --- |" * len(table.columns)]
        lines += [_line(row) for row in table.rows]
        blocks.append("\n".join([*lines, *(["", _md(table.note)] if table.note else [])]))
    return "\n\n".join(blocks) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_md(cell) for cell in cells) + " |"


def escaped(text: str, *, whole: bool = False) -> str:
    """A text of one line for Markdown, none of it taken for markup; `whole`: of any length."""
    parts = [text[k : k + LONGEST] for k in range(0, len(text), LONGEST)] if whole else [text]
    return "".join(map(_md, parts))


def _md(text: str) -> str:
    shown = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#" else c for c in shown)
