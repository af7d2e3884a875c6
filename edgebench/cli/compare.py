"""`edgebench compare`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--anyway", is_flag=True, help="Compare runs that were not asked the same.")
@click.option("--markdown", is_flag=True, help="Markdown on stdout, for a pull request.")
@json_option
def compare(runs: tuple[Path, ...], anyway: bool, markdown: bool, as_json: bool) -> int:
    """Set RUNS side by side; the first one is the base."""
    from edgebench.records import Run
    from edgebench.report.beside import comparison_tables
    from edgebench.report.compare import compare as compare_runs
    from edgebench.report.render import to_markdown

    comparison = compare_runs([Run(folder) for folder in runs], anyway=anyway)
    tables = comparison_tables(comparison)
    if markdown and not as_json:
        click.echo(to_markdown(tables), nl=False)
    else:
        # The summary of the base stands where every other command has it.
        show(tables, comparison["runs"][0] | comparison, as_json=as_json)
    return 1 if any(r["summary"]["failed"] for r in comparison["runs"]) else 0
