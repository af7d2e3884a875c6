"""The scorer against the published numbers: arXiv 2503.15024v2, Tables 2 and 15 to 26."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from edgebench.benches.taxonomy import categories
from edgebench.metrics.forensics import forensics_scores, overall, perspective

COLUMNS = {"semantic": "semantic", "modality": "modality", "task": "task", "type": "type", "model": "model_perspective"}


def table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return {row["model"]: row for row in csv.DictReader(stream)}


def test_all_150_published_numbers(published_tables: Path) -> None:
    accuracies = table(published_tables / "forensics_published_accuracy.csv")
    scores = table(published_tables / "forensics_published_scores.csv")
    assert accuracies.keys() == scores.keys()
    by_code = {c.code: c for c in categories().values()}
    compared, largest = 0, 0.0
    for model, row in accuracies.items():
        accuracy = {by_code[code].slug: float(value) for code, value in row.items() if code != "model"}
        assert len(accuracy) == 112
        found = {"overall": overall(accuracy, {s: categories()[s].samples for s in accuracy})}
        found |= {COLUMNS[name]: perspective(accuracy, name)[0] for name in COLUMNS}
        for column, value in found.items():
            assert value is not None
            difference = abs(value - float(scores[model][column]))
            assert difference < 0.06, (model, column, value, scores[model][column])
            largest = max(largest, difference)
            compared += 1
    assert compared == 150
    assert largest > 0.01, "rounded tables cannot agree to the last digit: is the test comparing anything?"


def test_weighting_by_samples_would_miss(published_tables: Path) -> None:
    """The other reading of the paper's sentence is really another one."""
    accuracies = table(published_tables / "forensics_published_accuracy.csv")
    scores = table(published_tables / "forensics_published_scores.csv")
    by_code = {c.code: c for c in categories().values()}
    worst = 0.0
    for model, row in accuracies.items():
        groups: dict[str, list[tuple[float, int]]] = {}
        for code, value in row.items():
            if code != "model":
                groups.setdefault(by_code[code].task, []).append((float(value), by_code[code].samples))
        weighted = [sum(a * n for a, n in rows) / sum(n for _, n in rows) for rows in groups.values()]
        worst = max(worst, abs(sum(weighted) / len(weighted) - float(scores[model]["task"])))
    assert worst > 1


def test_counts_are_the_published_ones() -> None:
    rows = categories().values()
    assert len(rows) == 112
    assert sum(c.samples for c in rows) == 63_292
    assert sum(c.samples for c in rows if c.type == "REAL") == 16_934
    assert min(c.samples for c in rows) == 100
    assert len({c.type for c in rows}) == 22
    assert len({c.model for c in rows}) == 23


def test_from_right_and_count() -> None:
    slugs = list(categories())[:2]
    found = forensics_scores({slugs[0]: 3, slugs[1]: 0}, {slugs[0]: 4, slugs[1]: 1})
    assert found["overall"] == pytest.approx(3 / 5)
    assert found["categories"] == 2
    assert found["perspectives"]["model"]["score"] == pytest.approx(3 / 8), (
        "one value, the plain mean of its two categories"
    )


def test_nothing_is_unknown() -> None:
    found = forensics_scores({}, {})
    assert found["overall"] is None
    assert all(p["score"] is None for p in found["perspectives"].values())
