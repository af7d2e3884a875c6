"""`edgebench run --protocol robustness` and `--variants`: several runs in one folder, and their report."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from edgebench.cli.output import Bar, say, show
from edgebench.errors import RunError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.manifest import Artifact
    from edgebench.plan import RunPlan
    from edgebench.records import Run
    from edgebench.report.tables import Table


def sweep(plan: RunPlan, further: list[Artifact | None], variants: str | None, *, as_json: bool) -> int:
    """Ask all cells, and report them: report.json, report.md and, with matplotlib, report.html in the folder.

    Args:
        plan: of one cell.
        further: robustness: other artifacts beside the plan's.
        variants: names and commas, 'all', or None for robustness.
        as_json: one JSON object in place of the tables.

    Returns:
        The exit code: 1 where a question failed.
    """
    from edgebench import sweeps
    from edgebench.metrics.published_sweeps import published_robustness, published_variants
    from edgebench.metrics.summary import summarize
    from edgebench.prompts.variants import DEFAULT
    from edgebench.prompts.variants import variants as known
    from edgebench.records import Run
    from edgebench.report.published import published_tables
    from edgebench.report.sweeps import robustness_grid, robustness_tables, variants_tables, variants_value
    from edgebench.report.tables import run_tables
    from edgebench.report.written import write_report

    tables: list[Table]
    value: dict[str, Any]
    if variants is None:
        with Bar("asking clean and perturbed") as bar:
            groups = sweeps.robustness(plan, [plan.artifact, *further], bar)
        runs = [Run(folder) for group in groups for folder in group]
        summaries = [summarize(run) for run in runs]
        cells = [(s["settings"]["perturbation"], s) for s in summaries]
        size = len(groups[0])
        grids = [robustness_grid(cells[k : k + size]) for k in range(0, len(cells), size)]
        value, tables = {"protocol": sweeps.ROBUSTNESS, "artifacts": grids}, robustness_tables(grids)
        beside = [published_robustness(cells[k : k + size]) for k in range(0, len(cells), size)]
    else:
        if plan.protocol == sweeps.ROBUSTNESS or further:
            raise UsageError("--variants and --protocol robustness are two sweeps", hint="ask for one at a time")
        names = [name.strip() for name in variants.split(",")]
        if variants == "all":
            names = [name for name, variant in known().items() if variant.boxes != "given" or plan.boxes is not None]
        with Bar("asking the variants") as bar:
            folders = sweeps.compare_variants(plan, names, bar)
        runs = [Run(folder) for folder in folders]
        summaries = [summarize(run) for run in runs]
        every = list(dict.fromkeys([DEFAULT, *names]))
        value = variants_value(every, runs, summaries)
        tables = variants_tables(value)
        beside = [published_variants(every, summaries)]
    value["published"] = beside
    tables = [*tables, *(t for found in beside if found is not None for t in published_tables(found))]
    folder = plan.output
    assert folder is not None  # noqa: S101 - both sweeps refuse to begin without
    for run, summary in zip(runs, summaries, strict=True):
        write_report(run.folder, summary, run_tables(summary))
    value |= {"folder": str(folder), "html": _page(folder, runs, summaries)}
    write_report(folder, value, tables)
    show(tables, value, as_json=as_json)
    if not as_json:
        click.echo(folder)
    return 1 if any(s["summary"]["failed"] for s in summaries) else 0


def _page(folder: Path, runs: list[Run], summaries: list[dict[str, Any]]) -> str | None:
    """The page with the curves; None without matplotlib."""
    if find_spec("matplotlib") is None:
        say("no page with curves: it needs matplotlib (pip install 'edgebench[report]')")
        return None
    from edgebench.report.html import html

    page = folder / "report.html"
    try:
        page.write_text(html(runs, summaries, anyway=True), encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", where=page) from error
    return str(page)
