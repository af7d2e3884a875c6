"""Two runs over the same questions: what changed, and whether chance explains it."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any

from edgebench.metrics.intervals import difference_interval

if TYPE_CHECKING:
    from collections.abc import Mapping


LEVEL = 0.05
"""From this p-value on a difference is called chance."""


def mcnemar_exact(lost: int, won: int) -> float | None:
    """Two-sided exact McNemar p-value: the binomial test of `lost` against `won` at one half. None without flips.

    Source: Q. McNemar, Psychometrika 12 (1947).
    """
    n = lost + won
    if n == 0:
        return None
    tail = sum(comb(n, k) for k in range(min(lost, won) + 1))
    return float(min(1, 2 * tail / 2**n))


def paired(base: Mapping[str, bool], other: Mapping[str, bool]) -> dict[str, Any]:
    """Flips between two runs.

    Args:
        base: whether each answered question was right, by id.
        other: the same for the other run.

    Returns:
        both: questions answered in both; lost: right -> wrong; won: wrong -> right; difference of accuracy over
        the common questions, and its interval; mcnemar_p; verdict: 'worse', 'better' or 'no difference' by that p.
    """
    common = base.keys() & other.keys()
    lost = sum(base[i] and not other[i] for i in common)
    won = sum(other[i] and not base[i] for i in common)
    p = mcnemar_exact(lost, won)
    return {
        "both": len(common),
        "only_base": len(base) - len(common),
        "only_other": len(other) - len(common),
        "lost": lost,
        "won": won,
        "difference": (won - lost) / len(common) if common else None,
        "difference_interval": difference_interval(lost, won, len(common)),
        "mcnemar_p": p,
        "verdict": _verdict(lost, won, p) if common else None,
    }


def _verdict(lost: int, won: int, p: float | None) -> str:
    if p is None or p >= LEVEL:
        return "no difference"
    return "worse" if lost > won else "better"
