"""Latency: percentiles that are unknown rather than invented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTILES = (50, 90, 99)
STAGES = ("preprocess", "vision", "prefill", "decode", "total")


def percentile_ns(values: Sequence[int], q: int) -> int | None:
    """Nearest-rank percentile, in nanoseconds: a time that was really measured.

    None when fewer than `100 / (100 - q)` values are there, so that p99 is never read off ten samples.
    """
    if len(values) * (100 - q) < 100:
        return None
    return int(np.quantile(np.asarray(values, dtype=np.int64), q / 100, method="inverted_cdf"))


def stage_ms(values: Sequence[int]) -> dict[str, Any]:
    """p50, p90, p99 and mean in milliseconds, and the number of values."""
    found: dict[str, Any] = {"n": len(values)}
    for q in PERCENTILES:
        ns = percentile_ns(values, q)
        found[f"p{q}"] = None if ns is None else ns / 1e6
    found["mean"] = float(np.mean(values)) / 1e6 if values else None
    return found
