"""Accuracy by task or type as a table whose cells are coloured: the picture and the table in one."""

from __future__ import annotations

from typing import Any

SHOWN = 60
FULL = 0.05
"""A difference of so much, or of the largest one if that is more, has the full colour."""
CHANCE = 0.05


def heat(title: str, groups: list[list[dict[str, Any]]], *, alone: bool) -> dict[str, Any]:
    """The rows, those with most questions first.

    Args:
        title: what a row is.
        groups: the rows of `by_task` or `by_kind` of each pair; all pairs have the same base.
        alone: there is one run only.

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
        cells = [
            {
                "text": f"{100 * base['base']:.1f}",
                "change": "",
                "strong": False,
                "tone": "share",
                "weight": base["base"],
            }
        ]
        if not alone:
            cells += [_cell(given.get(name), full) for given in by_name]
        rows.append({"name": name, "questions": base["questions"], "cells": cells})
    return {"title": title, "rows": rows, "hidden": max(0, len(names) - SHOWN)}


def _cell(row: dict[str, Any] | None, full: float) -> dict[str, Any]:
    if row is None or row["difference"] is None:
        return {"text": "–", "change": "", "strong": False, "tone": "none", "weight": 0}
    p = row["mcnemar_p"]
    return {
        "text": f"{100 * row['other']:.1f}",
        "change": f"{100 * row['difference']:+.1f}" if row["lost"] or row["won"] else "=",
        "strong": p is not None and p < CHANCE,
        "tone": "worse" if row["difference"] < 0 else "better",
        "weight": abs(row["difference"]) / full,
    }
