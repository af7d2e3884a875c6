"""`edgebench models`, `engines` and `benches`."""

from __future__ import annotations

from dataclasses import asdict

import click

from edgebench.cli.output import json_option, show


@click.command()
@json_option
def models(as_json: bool) -> None:
    """List the recipes: what can be exported, and where its weights come from."""
    from edgebench.config import shipped_yaml
    from edgebench.recipes import load_recipe
    from edgebench.report.tables import UNKNOWN, Table

    recipes = [load_recipe(name) for name in shipped_yaml("recipes")]
    rows = tuple(
        (
            r.name,
            r.family,
            UNKNOWN if r.parameters_b is None else f"{r.parameters_b:g} B",
            "embedded" if r.embedded else r.source,
            r.licence,
            r.summary,
        )
        for r in recipes
    )
    show(
        [Table("Recipes", ("name", "family", "parameters", "weights", "licence", "summary"), rows)],
        {"models": [asdict(r) for r in recipes]},
        as_json=as_json,
    )


@click.command()
@json_option
def engines(as_json: bool) -> None:
    """List the engines, those of other packages too, and `--option`s. `edgebench doctor` says which can run here."""
    from edgebench.engines import ENGINES
    from edgebench.engines.others import offered
    from edgebench.registry import load
    from edgebench.report.tables import Table

    others = offered()
    rows = tuple((name, summary) for name, (_, summary) in (ENGINES | others.engines).items())
    settings = {name: getattr(load(target), "OPTIONS", {}) for name, (target, _) in ENGINES.items()}
    listed = tuple((name, *item) for name, found in settings.items() for item in found.items())
    tables = [Table("Engines", ("name", "summary"), rows), Table("Their options", ("engine", "name", "value"), listed)]
    if others.refused:
        tables.append(Table("Refused", ("name", "reason"), tuple(others.refused.items())))
    show(tables, {"engines": dict(rows), "options": settings, "refused": others.refused}, as_json=as_json)


@click.command()
@json_option
def benches(as_json: bool) -> None:
    """List the benchmarks, and the prompt styles and answer matchers that they can be run with."""
    from edgebench.benches import BENCHES
    from edgebench.prompts.matchers import MATCHERS
    from edgebench.prompts.styles import STYLES
    from edgebench.prompts.verdicts import READERS
    from edgebench.report.tables import Table

    found = {
        "benches": {name: summary for name, (_, summary) in BENCHES.items()},
        "prompt_styles": {name: style.summary for name, style in STYLES.items()},
        "matchers": READERS | {name: summary for name, (_, summary) in MATCHERS.items()},
    }
    titles = {"benches": "Benchmarks", "prompt_styles": "Prompt styles", "matchers": "Answer matchers"}
    show(
        [Table(titles[k], ("name", "summary"), tuple(rows.items())) for k, rows in found.items()],
        found,
        as_json=as_json,
    )
