"""What a comparison says of all its runs at once: the Pareto front, and what differs around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.report.tables import UNKNOWN, Table, mebibytes, milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Sequence


def overview_tables(comparison: dict[str, Any], names: Sequence[str]) -> list[Table]:
    """Both tables; the second one only where something differs."""
    tables = [pareto_table(comparison["pareto"], names)]
    if comparison["environment"]:
        rows = tuple(
            (d["what"], *(UNKNOWN if v is None else str(v) for v in d["values"])) for d in comparison["environment"]
        )
        tables.append(Table("Environment that differs", ("what", *names), rows))
    return tables


def pareto_table(front: dict[str, Any], names: Sequence[str]) -> Table:
    """Accuracy, latency and memory of each run, and which runs beat it."""
    rows = tuple(
        (
            name,
            percent(point["accuracy"]),
            milliseconds(point["latency_ms"]),
            mebibytes(point["memory_bytes"]),
            UNKNOWN if beaten is None else "no other run" if not beaten else "; ".join(names[k] for k in beaten),
        )
        for name, point, beaten in zip(names, front["points"], front["dominated_by"], strict=True)
    )
    return Table(
        "Pareto front: accuracy against latency and memory",
        ("run", "accuracy", "total p50, ms", "engine process, peak", "dominated by"),
        rows,
        "a run is dominated by one that is as good in all three and better in one; of the figures as measured, "
        "whose intervals may overlap",
    )
