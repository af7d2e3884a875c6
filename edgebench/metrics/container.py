"""The container check: can the two classes be told apart by their files, without a picture being looked at?

The guesser knows a file's format, JPEG quality and size in pixels. Its P(forged) is the share of forged files among
those that are like it in all three, drawn towards the share of those alike in less, and so on up to all files. It is
asked about files that it has not counted (five folds), and its AUROC is over pairs of the same fold, so that without
any signal it is 0.5 on average.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.answers import is_forged
from edgebench.metrics.intervals import RESAMPLES, SEED, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edgebench.records import Record

FOLDS = 5
PRIOR = 2.0
"""The share of those alike in less counts as so many files."""
WARN_ABOVE = 0.55
"""The lower end of the guesser's interval from which the files are said to give the classes away."""
SHOWN = 12
"""Most frequent values of one fact that are told apart."""
OTHERS = "others"
GROUPS = ("container", "quality", "pixels")
LEVELS = 4
"""In which files are alike, see `_likeness`."""
_CHUNK = 50


class Tally:
    """What is kept of each answered record: its file's facts, its class and whether it was right."""

    def __init__(self) -> None:
        self._files: Counter[tuple[tuple[str, ...], bool | None, bool]] = Counter()

    def add(self, record: Record, *, right: bool) -> None:
        """Count one answered record; those whose file's facts are unknown are left alone."""
        facts = record.facts
        if "container" in facts:
            file = facts["container"], facts.get("quality", ""), facts.get("pixels", "")
            self._files[file, is_forged(record), right] += 1

    def check(self) -> dict[str, Any] | None:
        """Accuracy by fact and what the guesser finds; None where no file's facts are known."""
        if not self._files:
            return None
        tally: Counter[tuple[tuple[str, ...], bool]] = Counter()
        for (facts, forged, _), n in self._files.items():
            if forged is not None:
                tally[facts, forged] += n
        # In an order that no answer has a part in: the same files give the same guess in every run.
        binary = [(facts, forged, n) for (facts, forged), n in sorted(tally.items())]
        guess = guesser([f for f, _, n in binary for _ in range(n)], [c for _, c, n in binary for _ in range(n)])
        found = None if guess is None else {"auroc": guess[0], "interval": guess[1]}
        return {
            "samples": sum(self._files.values()),
            "groups": {name: self._group(place) for place, name in enumerate(GROUPS)},
            "guesser": found,
            "gives_classes_away": None if guess is None else guess[1][0] > WARN_ABOVE,
            "note": f"the guesser sees format, JPEG quality and size alone, in {FOLDS} folds; 95 % bootstrap interval of the files",
        }

    def _group(self, place: int) -> list[dict[str, Any]]:
        """Rows of one fact, the most frequent values first."""
        rows: dict[str, list[int]] = {}
        sizes: Counter[str] = Counter()
        for (facts, _, _), n in self._files.items():
            if facts[place]:
                sizes[facts[place]] += n
        kept = {value for value, _ in sizes.most_common(SHOWN)}
        for (facts, forged, right), n in self._files.items():
            if facts[place]:
                row = rows.setdefault(facts[place] if facts[place] in kept else OTHERS, [0, 0, 0, 0])
                row[0] += n
                row[1] += n * right
                row[2] += n * (forged is False)
                row[3] += n * (forged is True)
        ordered = sorted(rows.items(), key=lambda item: (item[0] == OTHERS, -item[1][0], item[0]))
        return [
            {
                "value": value,
                "samples": n,
                "real": real,
                "forged": forged,
                "accuracy": right / n,
                "interval": wilson(right, n),
            }
            for value, (n, right, real, forged) in ordered
        ]


def warnings(check: dict[str, Any] | None, equalize: str | None) -> list[str]:
    """A line for the report of a run whose files give the classes away."""
    if check is None or not check["gives_classes_away"]:
        return []
    found = check["guesser"]
    low, high = found["interval"]
    said = (
        f"the files give the classes away: format, quality and size alone reach an AUROC of {100 * found['auroc']:.1f} % "
        f"[{100 * low:.1f}, {100 * high:.1f}], so right answers may come from them"
    )
    if equalize is None:
        return [f"{said}; --equalize makes the files alike"]
    return [f"{said}; they were made alike ({equalize}), but sizes and traces of an earlier compression stay"]


def guesser(files: Sequence[tuple[str, ...]], forged: Sequence[bool]) -> tuple[float, tuple[float, float]] | None:
    """AUROC of the guess from the files alone, and its 95 % bootstrap interval; both classes are resampled apart.

    Args:
        files: container, quality ('' where there is none) and pixels of each.
        forged: the class of each.

    Returns:
        None where a class has fewer than two files a fold.
    """
    labels = np.asarray(forged, dtype=bool)
    if min(labels.sum(), (~labels).sum()) < 2 * FOLDS:
        return None
    fold = np.empty(len(labels), dtype=np.int64)
    generator = np.random.Generator(np.random.Philox(SEED))
    for side in (False, True):
        own = np.flatnonzero(labels == side)
        fold[generator.permutation(own)] = np.arange(len(own)) % FOLDS
    score = _scores(files, labels, fold)
    cell, first = _cells(fold, score)
    real, fakes = (np.bincount(cell[labels == side], minlength=len(first)) for side in (False, True))
    drawn = []
    for begin in range(0, RESAMPLES, _CHUNK):
        size = min(_CHUNK, RESAMPLES - begin)
        draws = [generator.multinomial(tally.sum(), tally / tally.sum(), size) for tally in (real, fakes)]
        drawn.append(_auroc(draws[0], draws[1], first))
    low, high = np.quantile(np.concatenate(drawn), [0.025, 0.975])
    return float(_auroc(real[None], fakes[None], first)[0]), (float(low), float(high))


def _likeness(facts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What a file is alike in, from little to all: format, quality, about the size (powers of two), the size."""
    container, quality, pixels = facts
    width, _, height = pixels.partition("x")
    about = str(round(math.log2(max(1, int(width or 1) * int(height or 1)))))
    return [(container,), (container, quality), (container, quality, about), (container, quality, pixels)]


def _scores(
    files: Sequence[tuple[str, ...]], labels: NDArray[np.bool_], fold: NDArray[np.int64]
) -> NDArray[np.float64]:
    """P(forged) of each file from the files of the other folds, in whole percent: float64 [n]."""
    alike = {facts: _likeness(facts) for facts in set(files)}
    share = np.array([labels[fold != number].mean() for number in range(FOLDS)])[fold]
    for level in range(LEVELS):
        numbers: dict[tuple[str, ...], int] = {}
        number = {facts: numbers.setdefault(keys[level], len(numbers)) for facts, keys in alike.items()}
        key = np.array([number[facts] for facts in files])
        # Of each class by key and fold; those of the file's own fold are left out.
        real, forged = (
            np.bincount(FOLDS * key[labels == side] + fold[labels == side], minlength=FOLDS * len(numbers))
            for side in (False, True)
        )
        real, forged = (
            tally.reshape(-1, FOLDS).sum(axis=1)[key] - tally[FOLDS * key + fold] for tally in (real, forged)
        )
        share = (forged + PRIOR * share) / (real + forged + PRIOR)
    return share.round(2)


def _cells(fold: NDArray[np.int64], score: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One cell for each score of each fold, in order: all that pairs of one fold depend on.

    Returns:
        Each file's cell, int64 [n], and of each cell the first one of its fold, int64 [cells].
    """
    values, cell = np.unique(fold + score / 2, return_inverse=True)
    of_fold = np.floor(values).astype(np.int64)
    return cell.reshape(-1), np.searchsorted(of_fold, of_fold)


def _auroc(real: NDArray[np.int64], forged: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Over pairs of one fold, ties counted half. int64 [draws, cells] twice -> float64 [draws]."""
    before = np.cumsum(real, axis=1) - real
    lower = before - np.take(before, first, axis=1)
    starts = np.unique(first)
    pairs = (np.add.reduceat(real, starts, axis=1) * np.add.reduceat(forged, starts, axis=1)).sum(axis=1)
    result: NDArray[np.float64] = (forged * (lower + real / 2)).sum(axis=1) / np.maximum(pairs, 1)
    return result
