"""The Pareto front: runs that no other run beats in everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

COSTS = ("latency_ms", "memory_bytes")
ACCURACY, BALANCED = "accuracy", "balanced accuracy"


def measure_of(summaries: Sequence[dict[str, Any]]) -> str:
    """Which accuracy tells these runs apart.

    Balanced accuracy where all questions are real-or-forged: one that always says the more frequent answer is at
    chance by it, and above by the plain one.
    """
    binary = [(s["scores"].get("binary") or {}, s["summary"]["answered"]) for s in summaries]
    alone = all(b.get("balanced_accuracy") is not None and b["real"] + b["forged"] == n for b, n in binary)
    return BALANCED if alone else ACCURACY


def figures(summary: dict[str, Any], measure: str = ACCURACY) -> dict[str, Any]:
    """A run's accuracy by that measure with its interval, median total latency, least possible one by the device's
    peaks, and peak memory of the engine's process; None where unknown.
    """
    of, name = (
        (summary["scores"]["binary"], "balanced_accuracy") if measure == BALANCED else (summary["summary"], measure)
    )
    total = summary["latency_ms"].get("total") or {}
    least = ((summary["physical_limits"] or {}).get("stages") or {}).get("total") or {}
    return {
        "accuracy": of[name],
        "accuracy_interval": of[f"{name}_interval"],
        "latency_ms": total.get("p50"),
        "latency_ms_interval": total.get("p50_interval"),
        "latency_ms_least": least.get("least_ms"),
        "measured_over_least": least.get("measured_over_least"),
        "memory_bytes": summary["memory"]["peak_bytes"],
    }


def pareto(points: Sequence[dict[str, Any]], costs: Sequence[str] = COSTS) -> list[list[int] | None]:
    """For each run the runs that dominate it: as accurate or more, at no higher cost, and better in one of them.

    Args:
        points: `figures` of each run.
        costs: those of `COSTS` that count.

    Returns:
        Indices into `points`; an empty list is the front, None a run with an unknown figure, which dominates
        none and is dominated by none.
    """
    known = [_key(p, costs) for p in points]
    found: list[list[int] | None] = []
    for mine in known:
        if mine is None:
            found.append(None)
            continue
        found.append(
            [
                k
                for k, other in enumerate(known)
                if other is not None and other != mine and all(o >= m for o, m in zip(other, mine, strict=True))
            ]
        )
    return found


def _key(point: dict[str, Any], costs: Sequence[str]) -> tuple[float, ...] | None:
    """Larger is better in every place."""
    values = [point["accuracy"], *(None if (v := point[c]) is None else -v for c in costs)]
    known = [v for v in values if v is not None]
    return tuple(known) if len(known) == len(values) else None
