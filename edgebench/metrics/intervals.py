"""Intervals: how far a figure from so many answers can be trusted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Interval = tuple[float, float]
RESAMPLES = 1000
SEED = 20260101
RATIO_FROM = 20
"""A bootstrap of a median of fewer questions covers too little."""


def wilson(right: int, total: int, z: float = 1.959963984540054) -> Interval | None:
    """Wilson's score interval of a proportion; 95 % by default. None for nothing.

    Source: E. B. Wilson, JASA 22 (1927).
    """
    if total == 0:
        return None
    p = right / total
    centre = p + z * z / (2 * total)
    spread = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def order_statistics(n: int, q: float, level: float = 0.95) -> tuple[int, int] | None:
    """Ranks (from 1) of the two order statistics between which the quantile `q` lies with probability `level`.

    Free of any distribution: how many of n independent samples lie below the quantile is binomial. At most
    (1 - level) / 2 is left on either side, as in `scipy.stats.quantile_test`.

    Returns:
        None where n samples are too few for both ends.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition (1999), section 3.2.
    """
    if n == 0:
        return None
    density = _binomial(n, q)
    tail = (1 - level) / 2
    low = int(np.searchsorted(np.cumsum(density), tail, side="right"))
    high = n - int(np.searchsorted(np.cumsum(density[::-1]), tail, side="right")) + 1
    return (low, high) if low >= 1 and high <= n else None


def early_stopping_rank(n: int, q: float, confidence: float = 0.99) -> int | None:
    """Rank (from 1) of MLPerf's early-stopping estimate of the quantile `q`: an upper bound of that confidence.

    The `t` largest of n samples are discarded down to the last of them, for the largest t with which t or fewer of n
    independent samples lie above the quantile in less than 1 - confidence of all cases.

    Returns:
        None where n samples are too few: t has to be 1 at least.

    Source: MLPerf Inference rules, appendix Early Stopping; LoadGen, `PerformanceSummary::EarlyStopping`.
    """
    if n == 0:
        return None
    t = int(np.searchsorted(np.cumsum(_binomial(n, 1 - q)), 1 - confidence, side="left")) - 1
    return n - t + 1 if t >= 1 else None


def _binomial(n: int, q: float) -> NDArray[np.float64]:
    """Probabilities of 0 to n successes, each of probability q: float64 [n + 1]."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(n + 1)
    found: NDArray[np.float64] = np.exp(logs[n] - logs - logs[::-1] + k * math.log(q) + (n - k) * math.log1p(-q))
    return found


def bootstrap(figures: Callable[..., Sequence[float]], *classes: NDArray[np.int64]) -> list[Interval] | None:
    """95 % percentile bootstrap of figures, each class resampled by itself so that none is ever empty.

    Args:
        figures: of the classes, in this order, as many samples of each drawn from it with replacement.
        classes: int64 [levels] each, how many samples of the class are alike: of one score, or right and wrong.

    Returns:
        One interval of each figure; None when a class is empty.
    """
    if not all(tally.any() for tally in classes):
        return None
    generator = np.random.Generator(np.random.Philox(SEED))
    draws = [_draw(generator, tally) for tally in classes]
    values = np.array([figures(*(draw() for draw in draws)) for _ in range(RESAMPLES)])
    low, high = np.quantile(values, [0.025, 0.975], axis=0).tolist()
    return list(zip(low, high, strict=True))


def _draw(generator: np.random.Generator, tally: NDArray[np.int64]) -> Callable[[], NDArray[np.int64]]:
    """Draws a tally like this one: level by level where there are few of them, else sample by sample."""
    total = int(tally.sum())
    if total > 32 * len(tally):
        return lambda: generator.multinomial(total, tally / total)
    level = np.repeat(np.arange(len(tally)), tally)
    return lambda: np.bincount(level.take(generator.integers(0, total, total)), minlength=len(tally))


def difference_interval(lost: int, won: int, both: int) -> Interval | None:
    """95 % percentile bootstrap of (won - lost) / both, whole questions resampled, so that pairs stay together.

    Args:
        lost: questions that only the base had right.
        won: questions that only the other run had right.
        both: questions that both answered.

    Returns:
        None without flips: resampling questions that all stayed the same says nothing of those that were not asked.
    """
    if lost + won == 0:
        return None
    generator = np.random.Generator(np.random.Philox(SEED))
    drawn = generator.multinomial(both, np.array([lost, won, both - lost - won]) / both, RESAMPLES)
    low, high = np.quantile((drawn[:, 1] - drawn[:, 0]) / both, [0.025, 0.975])
    return float(low), float(high)


def ratio_interval(base: NDArray[np.float64], other: NDArray[np.float64]) -> Interval | None:
    """95 % percentile bootstrap of the ratio of medians, other / base, whole questions resampled.

    Args:
        base: float64 [n], one value a question.
        other: float64 [n], the same questions.

    Returns:
        None for fewer than `RATIO_FROM` questions, or when a median of `base` is 0.
    """
    n = len(base)
    if n < RATIO_FROM:
        return None
    generator = np.random.Generator(np.random.Philox(SEED))
    orders = [np.argsort(values, kind="stable") for values in (base, other)]
    ordered = [values[order] for values, order in zip((base, other), orders, strict=True)]
    changes = np.empty(RESAMPLES)
    for k in range(RESAMPLES):
        times_drawn = np.bincount(generator.integers(0, n, n), minlength=n)
        below, above = (_median_of_drawn(v, times_drawn[o]) for v, o in zip(ordered, orders, strict=True))
        if below <= 0:
            return None
        changes[k] = above / below
    low, high = np.quantile(changes, [0.025, 0.975])
    return float(low), float(high)


def _median_of_drawn(ordered: NDArray[np.float64], times_drawn: NDArray[np.int64]) -> float:
    """The median of n draws, from the sorted values and how often each was drawn."""
    n = len(ordered)
    places = np.searchsorted(np.cumsum(times_drawn), [(n - 1) // 2, n // 2], side="right")
    return float(ordered[places].mean())
