"""What a comparison says of all its runs at once: the Pareto front, and what differs around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.metrics.pareto import BALANCED
from edgebench.report.tables import UNKNOWN, Table, mebibytes, milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Sequence


def overview_tables(over: dict[str, Any], summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> list[Table]:
    """Both tables; the second one only where something differs."""
    tables = [pareto_table(over, summaries, names)]
    if over["environment"]:
        rows = tuple((d["what"], *(UNKNOWN if v is None else str(v) for v in d["values"])) for d in over["environment"])
        tables.append(Table("Environment that differs", ("what", *names), rows))
    return tables


def pareto_table(over: dict[str, Any], summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> Table:
    """A line a run: accuracy, latency and its limit, memory, and which runs beat it."""
    front = over["pareto"]
    measure, scored = front["measure"], scored_alone(front)
    partly = len({s["summary"]["answered"] for s in summaries}) > 1
    rows = []
    for k, (name, point, s) in enumerate(zip(names, front["points"], summaries, strict=True), 1):
        total, beaten = s["latency_ms"].get("total") or {}, front["dominated_by"][k - 1]
        row = [str(k), name, percent(point["accuracy"], point["accuracy_interval"])]
        if scored:
            row.append(percent(s["scores"]["binary"]["auroc"], s["scores"]["binary"]["auroc_interval"]))
        if partly:
            row.append(answered(s))
        row += [
            " / ".join(milliseconds(total.get(f"p{q}")) for q in (50, 90)),
            limit_cell(point),
            mebibytes(point["memory_bytes"]),
            mebibytes(s["memory"]["artifact_bytes"]),
            UNKNOWN if beaten is None else "no other" if not beaten else numbers(beaten),
        ]
        rows.append(tuple(row))
    return Table(
        f"Pareto front: {measure} against latency and memory",
        (
            *("#", "run", measure),
            *(("AUROC",) if scored else ()),
            *(("answered",) if partly else ()),
            *("total p50 / p90, ms", "limit, ms", "engine process, peak", "model on disk", "dominated by"),
        ),
        tuple(rows),
        front_note(measure),
    )


def front_note(measure: str) -> str:
    """How to read the columns."""
    note = (
        "limit: the least total that the device's peaks allow, an estimate without the decoding of pictures, and "
        "measured / least; dominated: another run is as good in accuracy, total p50 and peak memory, and better in one, "
        "of the figures as measured, whose intervals may overlap"
    )
    if measure == BALANCED:
        note += "; balanced accuracy: the mean of those on real and on forged pictures, 50 % is chance"
    return note


def answered(summary: dict[str, Any]) -> str:
    """Of how many."""
    s = summary["summary"]
    return f"{s['answered']} of {s['questions']}"


def numbers(runs: Sequence[int]) -> str:
    """Of runs, counted from 1."""
    return ", ".join(str(k + 1) for k in runs)


def scored_alone(front: dict[str, Any]) -> bool:
    """Whether all questions were real or forged, so that AUROC is of all of them too."""
    return bool(front["measure"] == BALANCED)


def limit_cell(point: dict[str, Any], unit: str = "") -> str:
    """The least possible total, and how many times as long was measured."""
    if point["latency_ms_least"] is None:
        return UNKNOWN
    return f"{milliseconds(point['latency_ms_least'])}{unit} ({point['measured_over_least']:.1f} x)"
