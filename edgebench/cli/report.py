"""`edgebench report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--markdown", is_flag=True, help="Markdown on stdout, for a pull request.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="One self-contained page with pictures of all RUNS; the first one without a perturbation is the base, and "
    "perturbed ones give the robustness curves (extra `report`).",
)
@click.option(
    "--published",
    "name",
    metavar="NAME",
    help="Set the runs beside the paper's row of this model, such as LLaVA-v1.5-7B; by default of the model that a "
    "run's recipe or endpoint is known as.",
)
@click.option("--anyway", is_flag=True, help="--html: show runs that were not asked the same.")
@json_option
def report(
    runs: tuple[Path, ...], markdown: bool, page: Path | None, name: str | None, anyway: bool, as_json: bool
) -> int:
    """Report RUNS on the terminal, and write report.json and report.md into their folders.

    Runs of one artifact that differ in the perturbation or in the prompt alone, the plain one first, are also set side by
    side, and beside what the paper says of that model's robustness or prompts.
    """
    from edgebench.errors import RunError
    from edgebench.metrics.published import published
    from edgebench.metrics.summary import summarize
    from edgebench.records import Run
    from edgebench.report.render import to_markdown
    from edgebench.report.sweeps import sweep_of
    from edgebench.report.tables import run_tables
    from edgebench.report.written import write_report

    opened = [Run(folder) for folder in runs]
    summaries = [summarize(run) for run in opened]
    if name is not None:
        summaries = [summary | {"published": published(summary, name)} for summary in summaries]
    if page is not None:
        from edgebench.report.html import html

        text = html(opened, summaries, anyway=anyway)
        try:
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=page) from error
    for run, summary in zip(opened, summaries, strict=True):
        tables = run_tables(summary)
        write_report(run.folder, summary, tables)
        if markdown and not as_json:
            click.echo(to_markdown(tables), nl=False)
        elif not as_json and page is None:
            show(tables, summary, as_json=False)
    sweep = sweep_of(opened, summaries, name)
    if sweep is not None and not as_json:
        if markdown:
            click.echo(to_markdown(sweep[1]), nl=False)
        elif page is None:
            show(sweep[1], sweep[0], as_json=False)
    if as_json:
        more: dict[str, Any] = {} if page is None else {"html": str(page)}
        more |= {} if sweep is None else {"sweep": sweep[0]}
        show([], (summaries[0] if len(summaries) == 1 else {"runs": summaries}) | more, as_json=True)
    elif page is not None and not markdown:
        click.echo(page)
    return 1 if any(s["summary"]["failed"] for s in summaries) else 0
