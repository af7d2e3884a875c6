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
    return _auroc(*_tallies(forged, np.unique(score, return_inverse=True)[1]))


def _tallies(forged: NDArray[np.bool_], level: NDArray[np.int64], levels: int = 0) -> tuple[Any, Any]:
    """Forged and real samples at each distinct score, ascending: what a resample needs, without sorting it again.

    Args:
        forged: bool [n].
        level: int64 [n], the rank of each sample's score among the distinct scores.
        levels: how many there are, at least.
    """
    return np.bincount(level[forged], minlength=levels), np.bincount(level[~forged], minlength=levels)


def _auroc(forged: NDArray[np.int64], real: NDArray[np.int64]) -> float:
    """From samples at each distinct score, ascending."""
    size = max(len(forged), len(real))
    forged, real = (np.pad(tally, (0, size - len(tally))) for tally in (forged, real))
    return float((forged * (np.cumsum(real) - real / 2)).sum() / (forged.sum() * real.sum()))


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
    return _eer(*roc(forged, score))


def _eer(false: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """From the two rates, ascending."""
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
        level = np.unique(score, return_inverse=True)[1].reshape(-1)
        levels = int(level.max(initial=-1)) + 1

        def rates(i: NDArray[np.int64]) -> tuple[Any, Any]:
            tallies = _tallies(forged[i], level[i], levels)
            true, false = (np.append(0, np.cumsum(tally[::-1]) / tally.sum()) for tally in tallies)
            return false, true

        found |= {
            "auroc": auroc(forged, score),
            "auroc_interval": bootstrap(lambda i: _auroc(*_tallies(forged[i], level[i], levels)), forged),
            "eer": eer(forged, score),
            "eer_interval": bootstrap(lambda i: _eer(*rates(i)), forged),
        }
    return found
