"""`edgebench run --scenario latency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgebench.cli.output import Bar, show

if TYPE_CHECKING:
    from edgebench.manifest import Artifact
    from edgebench.records import Limits

SECONDS, COUNT = 10.0, 100
"""LoadGen's defaults: min_duration_ms 10000, min_query_count 100."""
TAKEN = ("output", "provider", "profile", "memory", "weights", "engine_options", "energy")
"""Options of `run` that say something to a sweep."""


def latency(
    artifact: Artifact | None,
    engine: str,
    limits: Limits,
    options: dict[str, Any],
    sizes: str,
    seconds: float | None,
    count: int | None,
    *,
    as_json: bool,
) -> int:
    """Measure a sweep, and print it."""
    from edgebench.errors import UsageError
    from edgebench.plan import RunPlan
    from edgebench.sweep import Rule, cases
    from edgebench.synthetic import sweep, sweep_tables

    for name in (
        "data",
        "resume",
        "retry_failed",
        "limit",
        "perturb",
        "reuse",
        "batch",
        "protocol",
        "detectors",
        "detector_engine",
    ):
        if options[name]:
            said = "--sweep batch=N" if name == "batch" else "leave it out"
            raise UsageError(
                f"--{name.replace('_', '-')} is not for --scenario latency, which has no benchmark", hint=said
            )
    taken = {name: options[name] for name in TAKEN}
    plan = RunPlan(artifact=artifact, engine=engine, bench="none", data=None, limits=limits, **taken)
    rule = Rule(SECONDS if seconds is None else seconds, COUNT if count is None else count)
    with Bar("measuring") as bar:
        folder, value = sweep(plan, cases(sizes), rule, bar)
    show(sweep_tables(value), value | {"folder": str(folder)}, as_json=as_json)
    if not as_json:
        click.echo(folder)
    return 1 if any(row["error"] for row in value["cases"]) else 0
