"""`edgebench score`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--matcher", help="Read the answers by this matcher instead of the run's own.")
@json_option
def score(run: Path, matcher: str | None, as_json: bool) -> int:
    """Score RUN again from its records, without inference. The run itself is not changed."""
    from edgebench.metrics.summary import summarize
    from edgebench.prompts.matchers import MATCHERS
    from edgebench.prompts.verdicts import READERS
    from edgebench.records import Run
    from edgebench.registry import lookup
    from edgebench.report.tables import run_tables

    if matcher is not None:
        lookup({**MATCHERS, **READERS}, matcher, what="answer matcher")
    summary = summarize(Run(run), matcher=matcher)
    show(run_tables(summary), summary, as_json=as_json)
    return 1 if summary["summary"]["failed"] else 0
