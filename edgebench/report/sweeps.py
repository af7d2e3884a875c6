"""The report of a sweep: the robustness grid, or prompt variants paired with the plain way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.benches.taxonomy import FAMILY
from edgebench.metrics.delta import delta, judged
from edgebench.metrics.published_sweeps import published_robustness, published_variants
from edgebench.report.delta import points
from edgebench.report.published import published_tables
from edgebench.report.tables import UNKNOWN, Table, label, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.records import Run


def sweep_of(
    runs: Sequence[Run], summaries: Sequence[dict[str, Any]], name: str | None = None
) -> tuple[dict[str, Any], list[Table]] | None:
    """The report of runs that make a sweep, beside the paper's rows; None where they make none.

    Args:
        runs: of one artifact over the same questions, the plain one first: perturbed otherwise, or asked otherwise.
        summaries: theirs.
        name: the paper's name of the model; None: the one that the recipe or endpoint is known by.
    """
    settings = [run.header.settings for run in runs]
    same = {(run.header.artifact and run.header.artifact.manifest_sha256, run.header.data.fingerprint) for run in runs}
    first, *rest = settings
    if len(runs) < 2 or len(same) > 1 or first.perturbation or first.prompts or first.bench not in FAMILY:
        return None
    if all(s.perturbation and not s.prompts for s in rest):
        cells = [(s.perturbation, summary) for s, summary in zip(settings, summaries, strict=True)]
        grid, beside = robustness_grid(cells), published_robustness(cells, name)
        value, tables = {"protocol": "robustness", "artifacts": [grid]}, robustness_tables([grid])
    elif all(s.prompts and not s.perturbation for s in rest):
        names = ["default", *((s.prompts or "").partition("@")[0] for s in rest)]
        value, beside = variants_value(names, runs, summaries), published_variants(names, summaries, name)
        tables = variants_tables(value)
    else:
        return None
    return value | {"published": [beside]}, [*tables, *([] if beside is None else published_tables(beside))]


def robustness_grid(cells: Sequence[tuple[str | None, dict[str, Any]]]) -> dict[str, Any]:
    """The robustness of one artifact.

    Args:
        cells: (perturbation such as 'noise:3', or None for clean; the run's summary), of one artifact.

    Returns:
        run: its label; clean: overall accuracy; perturbations: name -> levels (overall accuracy of each), average
        (the plain mean of the overall scores of its levels, as published; None while one is missing), and difference
        from clean; complete: whether every run is.
    """
    found: dict[str, dict[str, Any]] = {}
    clean = None
    for name, summary in cells:
        row = {"accuracy": summary["summary"]["accuracy"], "interval": summary["summary"]["accuracy_interval"]}
        if name is None:
            clean = row
        else:
            kind, _, level = name.partition(":")
            found.setdefault(kind, {"levels": {}})["levels"][level] = row
    for rows in found.values():
        scores = [row["accuracy"] for row in rows["levels"].values()]
        average = None if None in scores else sum(scores) / len(scores)
        known = average is not None and clean is not None and clean["accuracy"] is not None
        rows["average"] = average
        rows["difference"] = average - clean["accuracy"] if known and clean and average is not None else None
    first = cells[0][1]
    return {
        "run": label(first),
        "questions": first["data"]["questions"],
        "complete": all(s["summary"]["complete"] for _, s in cells),
        "failed": sum(s["summary"]["failed"] for _, s in cells),
        "clean": clean,
        "perturbations": found,
    }


def robustness_tables(grids: Sequence[dict[str, Any]]) -> list[Table]:
    """A table for each artifact, and one across them where there are several."""
    tables = []
    for grid in grids:
        levels = sorted({level for row in grid["perturbations"].values() for level in row["levels"]})
        rows = []
        for name, row in grid["perturbations"].items():
            cells = [
                percent(row["levels"][level]["accuracy"]) if level in row["levels"] else UNKNOWN for level in levels
            ]
            rows.append((name, *cells, percent(row["average"]), points(row["difference"], None)))
        clean = grid["clean"] or {"accuracy": None, "interval": None}
        note = f"clean: {percent(clean['accuracy'], clean['interval'])} of {grid['questions']} questions; average: the mean of the levels' overall accuracies"
        note += "" if grid["complete"] else "; not finished"
        columns = ("perturbation", *(f"level {level}" for level in levels), "average", "against clean")
        tables.append(Table(f"Robustness: {grid['run']}", columns, tuple(rows), note))
    if len(grids) > 1:
        across = [("clean", *(percent(g["clean"]["accuracy"] if g["clean"] else None) for g in grids))]
        for name in grids[0]["perturbations"]:
            cells = []
            for grid in grids:
                row = grid["perturbations"].get(name, {"average": None, "difference": None})
                cells.append(f"{percent(row['average'])}  ({points(row['difference'], None)})")
            across.append((name, *cells))
        note = "average over the levels, and its difference from the same artifact's clean run"
        tables.append(Table("Robustness by precision", ("", *(g["run"] for g in grids)), tuple(across), note))
    return tables


def variants_value(names: Sequence[str], runs: Sequence[Run], summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each variant against the first one, question by question.

    Args:
        names: of the variants; the first is the base.
        runs: theirs, opened.
        summaries: theirs.
    """
    answers = [judged(run) for run in runs]
    rows = []
    for name, summary, given in zip(names, summaries, answers, strict=True):
        pair = delta(answers[0], given)
        rows.append(
            {
                "variant": name,
                "accuracy": summary["summary"]["accuracy"],
                "interval": summary["summary"]["accuracy_interval"],
                "unparsed": summary["summary"]["unparsed"],
                "failed": summary["summary"]["failed"],
                "complete": summary["summary"]["complete"],
                "paired": None if given is answers[0] else pair["paired"],
                "by_task": None if given is answers[0] else pair["by_task"],
            }
        )
    return {"run": label(summaries[0]), "questions": summaries[0]["data"]["questions"], "variants": rows}


def variants_tables(value: dict[str, Any]) -> list[Table]:
    """One line a variant."""
    rows = []
    for row in value["variants"]:
        pair = row["paired"]
        against = ("base", "", "", "")
        if pair is not None:
            p = pair["mcnemar_p"]
            against = (
                points(pair["difference"], pair["difference_interval"]),
                f"{pair['lost']} / {pair['won']}",
                UNKNOWN if p is None else f"{p:.3g}",
                pair["verdict"] or UNKNOWN,
            )
        rows.append((row["variant"], percent(row["accuracy"], row["interval"]), str(row["unparsed"]), *against))
    columns = ("variant", "accuracy", "unparsed", "against the plain prompt", "lost / won", "McNemar p", "verdict")
    note = f"{value['questions']} questions, paired one by one; p is McNemar's exact one, not corrected for how many rows there are"
    return [Table(f"Prompt variants: {value['run']}", columns, tuple(rows), note)]
