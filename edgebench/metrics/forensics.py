"""Forensics-Bench's scores.

Overall is the mean over questions. A perspective's score is the plain mean over its values of the plain mean of
the accuracies of that value's categories; REAL is one of the values of type and model. This rule reproduces the
150 published numbers (arXiv 2503.15024v2, Table 2) from Tables 15 to 26.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.benches.taxonomy import PERSPECTIVES, own_category

if TYPE_CHECKING:
    from collections.abc import Mapping


def overall(accuracy: Mapping[str, float], count: Mapping[str, int]) -> float | None:
    """Mean over questions, from each category's accuracy and number of questions. None without questions."""
    total = sum(count[slug] for slug in accuracy)
    return sum(accuracy[slug] * count[slug] for slug in accuracy) / total if total else None


def perspective(accuracy: Mapping[str, float], name: str) -> tuple[float | None, dict[str, float]]:
    """One perspective's score and that of each of its values, over the categories that are present.

    Args:
        accuracy: by category slug, in any unit.
        name: semantic, modality, task, type or model.
    """
    groups: dict[str, list[float]] = {}
    for slug, value in accuracy.items():
        groups.setdefault(own_category(slug).value(name), []).append(value)
    values = {key: sum(rows) / len(rows) for key, rows in groups.items()}
    return (sum(values.values()) / len(values) if values else None), values


def forensics_scores(right: Mapping[str, int], count: Mapping[str, int]) -> dict[str, Any]:
    """Overall, the five perspectives, and how many categories and values stand behind them.

    Args:
        right: right answers by category slug.
        count: answered questions by category slug; categories without any are left out.
    """
    accuracy = {slug: right.get(slug, 0) / n for slug, n in count.items() if n}
    found: dict[str, Any] = {"overall": overall(accuracy, count), "categories": len(accuracy), "perspectives": {}}
    for name in PERSPECTIVES:
        score, values = perspective(accuracy, name)
        found["perspectives"][name] = {"score": score, "values": values}
    return found
