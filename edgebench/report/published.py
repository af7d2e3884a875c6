"""A run beside the paper's row, as tables."""

from __future__ import annotations

from typing import Any

from edgebench.report.delta import points
from edgebench.report.tables import UNKNOWN, Table, percent


def published_tables(found: dict[str, Any]) -> list[Table]:
    """The numbers, and the conditions that were not the same or are not known."""
    in_part = any(row["published_over_what_was_asked"] is not None for row in found["rows"])
    rows = tuple(
        (
            row["what"],
            percent(row["published"]),
            *([percent(row["published_over_what_was_asked"])] if in_part else []),
            percent(row["run"], row["interval"]),
            UNKNOWN if row["difference"] is None else points(row["difference"], None),
        )
        for row in found["rows"]
    )
    columns = ("", "published", *(["published, over what was asked"] if in_part else []), "this run", "difference")
    others = [c for c in found["conditions"] if not c["same"]]
    alike = ", ".join(c["what"] for c in found["conditions"] if c["same"])
    costs = tuple((c["what"], _figure(c["published"]), _figure(c["run"])) for c in found.get("costs") or ())
    more = (
        [Table("Costs beside the published", ("", "published", "this run"), costs, "another device")] if costs else []
    )
    return [
        Table(f"Beside the published {found['model']}", columns, rows, f"{found['source']}; {found['note']}"),
        Table(
            "Not asked as published",
            ("condition", "published", "this run"),
            tuple((c["what"], _said(c["published"], "not stated"), _said(c["run"], UNKNOWN)) for c in others),
            f"the same: {alike or 'nothing'}",
        ),
        *more,
    ]


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def _said(value: Any, unknown: str) -> str:
    return unknown if value is None else str(value)
