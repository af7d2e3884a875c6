"""Accuracy by task or type as a table whose cells are coloured: the picture and the table in one."""

from __future__ import annotations

from typing import Any

from edgebench.report.labels import spelled
from edgebench.report.tables import UNKNOWN

SHOWN = 60
FULL = 0.05
"""A difference of so much, or of the largest one if that is more, has the full colour."""
CHANCE = 0.05


def shares(title: str, groups: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """One run, or runs of different models, each for itself.

    Args:
        title: what a row is.
        groups: the rows of `by_task` or `by_kind` of each run with itself.

    Returns:
        As `heat`. How many questions a run answered stands in its cell where it is not how many the row has.
    """
    by_name = [{row["name"]: row for row in given} for given in groups]
    most = {row["name"]: 0 for given in groups for row in given}
    for given in groups:
        most |= {row["name"]: max(most[row["name"]], row["questions"]) for row in given}
    names = sorted(most, key=lambda name: (-most[name], name))
    rows = [
        {"name": spelled(n), "questions": most[n], "cells": [_share(given.get(n), most[n]) for given in by_name]}
        for n in names[:SHOWN]
    ]
    return {"title": title, "rows": rows, "hidden": max(0, len(names) - SHOWN)}


def _share(row: dict[str, Any] | None, most: int) -> dict[str, Any]:
    if row is None or row["base"] is None:
        return {"text": UNKNOWN, "change": "", "strong": False, "tone": "none", "weight": 0}
    change = "" if row["questions"] == most else f"of {row['questions']}"
    return {
        "text": f"{100 * row['base']:.1f}",
        "change": change,
        "strong": False,
        "tone": "share",
        "weight": row["base"],
    }


def heat(title: str, groups: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Runs of one model against the first; the rows, those with most questions first.

    Args:
        title: what a row is.
        groups: the rows of `by_task` or `by_kind` of each pair; all pairs have the same base.

    Returns:
        title, rows (name, questions, cells: text, change, strong, tone, weight), hidden: how many rows are left out.
    """
    by_name = [{row["name"]: row for row in given} for given in groups]
    names = sorted(by_name[0], key=lambda name: (-by_name[0][name]["questions"], name))
    differences = [abs(row["difference"] or 0) for given in groups for row in given]
    full = max([FULL, *differences])
    rows = []
    for name in names[:SHOWN]:
        base = by_name[0][name]
        cells = [_share(base, base["questions"]), *(_cell(given.get(name), full) for given in by_name)]
        rows.append({"name": spelled(name), "questions": base["questions"], "cells": cells})
    return {"title": title, "rows": rows, "hidden": max(0, len(names) - SHOWN)}


def _cell(row: dict[str, Any] | None, full: float) -> dict[str, Any]:
    if row is None or row["difference"] is None:
        return {"text": UNKNOWN, "change": "", "strong": False, "tone": "none", "weight": 0}
    p = row["mcnemar_p"]
    return {
        "text": f"{100 * row['other']:.1f}",
        "change": f"{100 * row['difference']:+.1f}" if row["lost"] or row["won"] else "=",
        "strong": p is not None and p < CHANCE,
        "tone": "worse" if row["difference"] < 0 else "better",
        "weight": abs(row["difference"]) / full,
    }
