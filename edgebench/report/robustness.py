"""Accuracy against the level of a perturbation, from runs that differ in nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgebench.metrics.intervals import wilson
from edgebench.report.tables import Table, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgebench.metrics.delta import Judged
    from edgebench.records import Run


def curves(
    runs: Sequence[Run], answers: Sequence[Mapping[str, Judged]], names: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Perturbation -> one curve for each model, engine and setting; over the questions that all its levels answered.

    A run without a perturbation is level 0 of each. A curve has two levels at least, so that runs which differ in
    something else give none.
    """
    found: dict[str, dict[Any, dict[int, int]]] = {}
    clean: dict[Any, int] = {}
    for k, run in enumerate(runs):
        perturbation = run.header.settings.perturbation
        if perturbation is None:
            clean.setdefault(_what(run), k)
            continue
        name, level, *more = perturbation.split(":")
        found.setdefault(":".join([name, *more]), {}).setdefault(_what(run), {}).setdefault(int(level), k)
    result: dict[str, list[dict[str, Any]]] = {}
    for perturbation, by_model in found.items():
        for key, by_level in by_model.items():
            places = ({0: clean[key]} if key in clean else {}) | by_level
            common = set.intersection(*(set(answers[k]) for k in places.values()))
            if len(places) < 2 or not common:
                continue
            label = names[clean[key]] if key in clean else names[min(places.values())]
            levels = [_level(level, common, answers[k]) for level, k in sorted(places.items())]
            result.setdefault(perturbation, []).append(
                {"label": label, "run": clean.get(key), "questions": len(common), "levels": levels}
            )
    return result


def robustness_table(perturbation: str, found: Sequence[dict[str, Any]]) -> Table:
    """One line a curve."""
    levels = sorted({r["level"] for c in found for r in c["levels"]})
    rows = []
    for curve in found:
        by_level = {r["level"]: r for r in curve["levels"]}
        cells = [
            percent(by_level[x]["accuracy"], by_level[x]["interval"]) if x in by_level else percent(None)
            for x in levels
        ]
        rows.append((curve["label"], str(curve["questions"]), *cells))
    columns = ("run", "questions", *("clean" if x == 0 else f"level {x}" for x in levels))
    return Table(
        f"Robustness: {perturbation}", columns, tuple(rows), "over the questions that all levels answered; 95 % Wilson"
    )


def _what(run: Run) -> Any:
    """All that decides an answer, but the perturbation and how many questions were asked."""
    header = run.header
    artifact = None if header.artifact is None else header.artifact.manifest_sha256
    settings = replace(header.settings, perturbation=None, limit=None, scenario="", batch=None)
    return settings, artifact, header.data.fingerprint


def _level(level: int, ids: set[str], answers: Mapping[str, Judged]) -> dict[str, Any]:
    right = sum(answers[i].right for i in ids)
    return {"level": level, "accuracy": right / len(ids), "interval": wilson(right, len(ids))}
