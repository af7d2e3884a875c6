"""Real against forged: scores of P(forged) and of decisions. 'Forged' is the positive class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.metrics.intervals import bootstrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


def auroc(forged: NDArray[np.bool_], score: NDArray[np.float64]) -> float | None:
    """Probability that a forged sample scores above a real one, ties counted half. None without both classes."""
    positives, negatives = int(forged.sum()), int((~forged).sum())
    if positives == 0 or negatives == 0:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank = (last - (counts - 1) / 2)[inverse]
    return float((rank[forged].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def roc(forged: NDArray[np.bool_], score: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False and true positive rates at every threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    true = np.cumsum(forged[order])[ends]
    false = ends + 1 - true
    return np.append(0, false / max(1, (~forged).sum())), np.append(0, true / max(1, forged.sum()))


def eer(forged: NDArray[np.bool_], score: NDArray[np.float64]) -> float | None:
    """Equal error rate: where the miss rate equals the false alarm rate, linear between thresholds."""
    if forged.all() or not forged.any():
        return None
    false, true = roc(forged, score)
    gap = false - (1 - true)
    place = int(np.argmax(gap >= 0))
    if place == 0 or gap[place] == 0:
        return float(false[place])
    share = -gap[place - 1] / (gap[place] - gap[place - 1])
    return float(false[place - 1] + share * (false[place] - false[place - 1]))


def balanced_accuracy(forged: NDArray[np.bool_], right: NDArray[np.bool_]) -> float | None:
    """Mean of the accuracy on real and on forged samples. None without both."""
    if forged.all() or not forged.any():
        return None
    return float((right[forged].mean() + right[~forged].mean()) / 2)


def binary_scores(
    forged: NDArray[np.bool_], right: NDArray[np.bool_], score: NDArray[np.float64] | None
) -> dict[str, Any]:
    """Balanced accuracy, recall of each class, AUROC and EER, with 95 % bootstrap intervals.

    Args:
        forged: bool [n], the labels.
        right: bool [n], whether the answer was right.
        score: float [n], P(forged); None when some sample has none.
    """
    found: dict[str, Any] = {
        "real": int((~forged).sum()),
        "forged": int(forged.sum()),
        "accuracy_on_real": float(right[~forged].mean()) if not forged.all() else None,
        "accuracy_on_forged": float(right[forged].mean()) if forged.any() else None,
        "balanced_accuracy": balanced_accuracy(forged, right),
        "balanced_accuracy_interval": bootstrap(lambda i: balanced_accuracy(forged[i], right[i]), forged),
        "auroc": None,
        "auroc_interval": None,
        "eer": None,
        "eer_interval": None,
    }
    if score is not None:
        found |= {
            "auroc": auroc(forged, score),
            "auroc_interval": bootstrap(lambda i: auroc(forged[i], score[i]), forged),
            "eer": eer(forged, score),
            "eer_interval": bootstrap(lambda i: eer(forged[i], score[i]), forged),
        }
    return found
