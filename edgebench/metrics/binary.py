"""Real against forged: scores of P(forged) and of decisions. 'Forged' is the positive class."""

from __future__ import annotations

from bisect import bisect_right
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
    return _figures(*_tallies(forged, score))[0]


def _tallies(forged: NDArray[np.bool_], score: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Forged and real samples at each distinct score, ascending: int64 [levels] twice.

    Neighbours that hold samples of one class alone are one level: no pair of both classes lies between them, and the
    ROC curve goes straight on there.
    """
    level = np.unique(score, return_inverse=True)[1].reshape(-1)
    levels = int(level.max(initial=-1)) + 1
    forgeds, reals = (np.bincount(level[side], minlength=levels) for side in (forged, ~forged))
    if levels == 0:
        return forgeds, reals
    alike = ((forgeds[1:] == 0) & (forgeds[:-1] == 0)) | ((reals[1:] == 0) & (reals[:-1] == 0))
    starts = np.flatnonzero(np.append(True, ~alike))
    return np.add.reduceat(forgeds, starts), np.add.reduceat(reals, starts)


def _figures(forged: NDArray[np.int64], real: NDArray[np.int64]) -> tuple[float, float]:
    """AUROC and EER from samples at each level of score, ascending, both classes there."""
    below, missed = np.cumsum(real), np.cumsum(forged)
    reals, fakes = int(below[-1]), int(missed[-1])

    def both(level: int) -> int:
        return int(below[level]) * fakes + int(missed[level]) * reals if level >= 0 else 0

    # Behind so many levels the miss rate has not passed the false alarm rate yet; the EER lies before the next one.
    place = bisect_right(range(len(real)), reals * fakes, key=both)
    over, under = both(place) - reals * fakes, reals * fakes - both(place - 1)
    next_, last = 1 - below[place] / reals, 1 - (below[place - 1] / reals if place else 0)
    equal = next_ + over / (over + under) * (last - next_)
    return float((forged @ below - forged @ real / 2) / (reals * fakes)), float(equal)


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
    return _figures(*_tallies(forged, score))[1]


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
        "balanced_accuracy_interval": None,
        "auroc": None,
        "auroc_interval": None,
        "eer": None,
        "eer_interval": None,
    }
    answers = [np.bincount(right[forged == side], minlength=2) for side in (True, False)]
    intervals = bootstrap(
        lambda *drawn: [sum(wrong_right[1] / wrong_right.sum() for wrong_right in drawn) / 2], *answers
    )
    if intervals is not None:
        found["balanced_accuracy_interval"] = intervals[0]
    if score is not None:
        found |= {"auroc": auroc(forged, score), "eer": eer(forged, score)}
        intervals = bootstrap(_figures, *_tallies(forged, score))
        if intervals is not None:
            found["auroc_interval"], found["eer_interval"] = intervals
    return found
