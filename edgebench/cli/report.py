"""`edgebench report`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--markdown", is_flag=True, help="Markdown on stdout, for a pull request.")
@json_option
def report(run: Path, markdown: bool, as_json: bool) -> int:
    """Report RUN on the terminal, and write report.json and report.md into its folder."""
    from edgebench.metrics.summary import summarize
    from edgebench.records import Run
    from edgebench.report.render import to_markdown
    from edgebench.report.tables import run_tables
    from edgebench.report.written import write_report

    summary = summarize(Run(run))
    tables = run_tables(summary)
    write_report(run, summary, tables)
    if markdown and not as_json:
        click.echo(to_markdown(tables), nl=False)
    else:
        show(tables, summary, as_json=as_json)
    return 1 if summary["summary"]["failed"] else 0
