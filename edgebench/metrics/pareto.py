"""The Pareto front: runs that no other run beats in everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

COSTS = ("latency_ms", "memory_bytes")


def figures(summary: dict[str, Any]) -> dict[str, float | None]:
    """A run's accuracy, median total latency and peak memory of the engine's process; None where unknown."""
    return {
        "accuracy": summary["summary"]["accuracy"],
        "latency_ms": (summary["latency_ms"].get("total") or {}).get("p50"),
        "memory_bytes": summary["memory"]["peak_bytes"],
    }


def pareto(points: Sequence[dict[str, float | None]], costs: Sequence[str] = COSTS) -> list[list[int] | None]:
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


def _key(point: dict[str, float | None], costs: Sequence[str]) -> tuple[float, ...] | None:
    """Larger is better in every place."""
    values = [point["accuracy"], *(None if (v := point[c]) is None else -v for c in costs)]
    known = [v for v in values if v is not None]
    return tuple(known) if len(known) == len(values) else None
