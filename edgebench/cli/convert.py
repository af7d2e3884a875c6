"""`edgebench convert`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import json_option, show
from edgebench.convert import FORMS


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--to", "form", required=True, help="; ".join(f"{name}: {what}" for name, (_, what) in FORMS.items()))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file or folder to write.")
@json_option
def convert(runs: tuple[Path, ...], form: str, output: Path, as_json: bool) -> None:
    """Write RUNS in a form that other tools read."""
    from edgebench.errors import RunError
    from edgebench.records import Run
    from edgebench.registry import load, lookup
    from edgebench.report.tables import Table

    writer, _ = lookup(FORMS, form, what="form")
    opened = [Run(folder) for folder in runs]
    try:
        written = load(writer)(opened, output)
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", where=output) from error
    rows = tuple((str(path), f"{path.stat().st_size:,} bytes") for path in written)
    show(
        [Table(f"{len(opened)} {'run' if len(opened) == 1 else 'runs'} as {form}", ("file", "size"), rows)],
        {"form": form, "files": [str(path) for path in written]},
        as_json=as_json,
    )
