"""`edgebench gate`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--profile", required=True, help="The profile whose budgets are asked for: a name or a YAML file.")
@click.option(
    "--base", type=click.Path(path_type=Path), help="The run that accuracy is compared with: the same questions."
)
@json_option
def gate(run: Path, profile: str, base: Path | None, as_json: bool) -> None:
    """PASS or FAIL of RUN against the profile's budgets: latency p90, memory, accuracy loss against --base.

    Unknown is not PASS: times of a run that is not valid for timing, and accuracy without --base, are UNKNOWN. Anything
    but PASS is an exit code for CI.
    """
    from edgebench.errors import GateError
    from edgebench.metrics.gate import gate as judged
    from edgebench.metrics.summary import summarize
    from edgebench.profiles import load_profile
    from edgebench.records import Run
    from edgebench.report.compare import compare
    from edgebench.report.estimate import gate_tables

    device = load_profile(profile)
    opened = Run(run)
    pair = None
    if base is None:
        summary = summarize(opened)
    else:
        comparison = compare([Run(base), opened])
        summary, pair = comparison["runs"][1], comparison["pairs"][0]
    found = judged(summary, device, pair)
    show(gate_tables(found), found, as_json=as_json)
    missed = [row["budget"] for row in found["rows"] if row["verdict"] != "PASS"]
    if missed:
        raise GateError(f"{found['verdict']}: {', '.join(missed)}", where=run)
