"""`edgebench runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgebench.cli.output import json_option, show

SHOWN = ("run", "created", "model", "precision", "engine", "bench", "device", "answered", "accuracy")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default="runs")
@click.option("--model", help="Only runs of this model.")
@click.option("--engine", help="Only runs on this engine.")
@click.option("--precision", help="Only runs of this precision.")
@click.option("--bench", help="Only runs of this benchmark.")
@click.option("--device", help="Only runs on a device or CPU whose name holds this.")
@click.option("--since", metavar="DATE", help="Only runs made at this date (UTC, such as 2026-05-01) or after it.")
@click.option("--until", metavar="DATE", help="Only runs made at this date or before it.")
@click.option(
    "--sql", metavar="QUERY", help="Ask the tables `runs` and `records`; nothing can be changed (extra `report`)."
)
@click.option(
    "--to", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write both tables to a SQLite file."
)
@json_option
def runs(folder: Path, sql: str | None, target: Path | None, as_json: bool, **wanted: str | None) -> int:
    """List the runs below FOLDER, newest first.

    \b
    edgebench runs --bench forensics --sql "select model, precision, accuracy from runs order by accuracy desc"
    edgebench runs --sql "select run, forgery_type, avg(\\"right\\"::int) from records group by all"
    """
    from edgebench.convert.library import find, rows_of
    from edgebench.convert.tables import ask, write_sqlite
    from edgebench.errors import RunError
    from edgebench.report.tables import UNKNOWN, Table, milliseconds, percent

    found = find(folder, **wanted)
    opened, rows = rows_of(found.runs, device=wanted["device"])
    if target is not None:
        try:
            write_sqlite(opened, rows, target)
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=target) from error
    if sql is not None:
        columns, answers = ask(sql, opened, rows)
        shown = tuple(tuple(UNKNOWN if v is None else str(v) for v in row) for row in answers)
        value: dict[str, Any] = {"columns": columns, "rows": answers}
        show([Table(f"{len(answers)} rows", columns, shown)], value, as_json=as_json)
        return 0
    table = Table(
        f"{len(rows)} {'run' if len(rows) == 1 else 'runs'} in {folder}",
        (*SHOWN, "total p50, ms"),
        tuple(
            (
                *(UNKNOWN if row[c] is None else str(row[c]) for c in SHOWN[:-1]),
                percent(row["accuracy"]) + ("" if row["complete"] else " (not finished)"),
                milliseconds(row["total_p50_ms"]),
            )
            for row in rows
        ),
        note="; ".join(found.damaged),
    )
    show([table], {"runs": rows, "damaged": found.damaged}, as_json=as_json)
    return 1 if found.damaged else 0
