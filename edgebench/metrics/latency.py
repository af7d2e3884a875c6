"""Latency: percentiles that are unknown rather than invented, each with its own interval."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.metrics.intervals import early_stopping_rank, order_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

PERCENTILES = (50, 90, 99)
STAGES = ("preprocess", "vision", "prefill", "decode", "total")
ESTIMATORS = {
    "percentile": "nearest rank (inverse of the empirical distribution): a time that was measured; null below 100 / (100 - p) samples",
    "percentile_interval": "95 %, two order statistics by the binomial distribution (Conover 1999), free of any distribution; "
    "samples are taken as independent; null where there are too few samples for both ends",
    "percentile_early_stopping": "MLPerf Inference's early-stopping estimate: an upper bound of the percentile, 99 % confidence; "
    "null where there are too few samples",
    "mean": "arithmetic mean",
    "ttft": "time to first token from the encoded bytes: total - decode",
    "ttft_from_tensor": "time to first token from the finished input tensors: total - decode - preprocess",
    "tpot": "decode / (output tokens - 1), of answers of two tokens or more",
}
"""How each figure of `latency_ms` is made."""


def derived_ns(stages: Mapping[str, int], output_tokens: int | None) -> dict[str, int]:
    """What follows from the stages of one answer: ttft, ttft_from_tensor and tpot, in nanoseconds, where they exist.

    A model without a prefill has no first token, and an answer of one token no time per token.
    """
    found = {}
    if "ttft" in stages:  # an API's, as it was seen
        found["ttft"] = stages["ttft"]
    elif "prefill" in stages:
        found["ttft"] = stages["total"] - stages["decode"]
        found["ttft_from_tensor"] = found["ttft"] - stages["preprocess"]
    if "decode" in stages and output_tokens is not None and output_tokens >= 2:
        found["tpot"] = stages["decode"] // (output_tokens - 1)
    return found


def percentile_ns(values: Sequence[int] | NDArray[np.int64], q: int) -> int | None:
    """Nearest-rank percentile, in nanoseconds: a time that was really measured.

    None when fewer than `100 / (100 - q)` values are there, so that p99 is never read off ten samples.
    """
    if len(values) * (100 - q) < 100:
        return None
    return int(np.quantile(np.asarray(values, dtype=np.int64), q / 100, method="inverted_cdf"))


@lru_cache(maxsize=256)
def _ranks(n: int, q: int) -> tuple[tuple[int, int] | None, int | None]:
    return order_statistics(n, q / 100), early_stopping_rank(n, q / 100)


def stage_ms(values: Sequence[int]) -> dict[str, Any]:
    """p50, p90 and p99 as in `ESTIMATORS`, and the mean, in milliseconds, and the number of values."""
    ordered = np.sort(np.asarray(values, dtype=np.int64))
    found: dict[str, Any] = {"n": len(values)}
    for q in PERCENTILES:
        ns = percentile_ns(ordered, q)
        ranks, bound = (None, None) if ns is None else _ranks(len(ordered), q)
        found[f"p{q}"] = None if ns is None else ns / 1e6
        found[f"p{q}_interval"] = None if ranks is None else [float(ordered[r - 1]) / 1e6 for r in ranks]
        found[f"p{q}_early_stopping"] = None if bound is None else float(ordered[bound - 1]) / 1e6
    found["mean"] = float(ordered.mean()) / 1e6 if len(ordered) else None
    return found
