"""Intervals: how far a figure from so many answers can be trusted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Interval = tuple[float, float]
RESAMPLES = 1000
SEED = 20260101


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


def bootstrap(statistic: Callable[[NDArray[np.int64]], float | None], labels: NDArray[np.bool_]) -> Interval | None:
    """95 % percentile bootstrap, each class resampled by itself so that none is ever empty.

    Args:
        statistic: of an index array into the samples.
        labels: bool [n], the class of each sample.

    Returns:
        None when a class is empty or the statistic is unknown.
    """
    groups = [np.flatnonzero(labels == side) for side in (False, True)]
    if min(len(g) for g in groups) == 0:
        return None
    generator = np.random.Generator(np.random.Philox(SEED))
    values = []
    for _ in range(RESAMPLES):
        drawn = np.concatenate([g[generator.integers(0, len(g), len(g))] for g in groups])
        value = statistic(drawn)
        if value is None:
            return None
        values.append(value)
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
