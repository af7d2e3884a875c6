"""A part of a benchmark, stratified by category: which questions, and what they say of all.

A stratum's questions are drawn without replacement, so what is left of its uncertainty shrinks as more of it is asked
(the finite-population correction). Source: W. G. Cochran, Sampling Techniques, 3rd edition (1977), chapter 5.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Z = 1.959963984540054
"""Of a two-sided 95 % interval."""
LEAST = 2
"""Questions of a category at least, as far as it has them and that takes half of all at most: one alone says nothing of
the spread, but categories of thousands are worth more questions than those of a hundred."""


@dataclass(frozen=True)
class Subset:
    """What a run keeps of its subset: another machine that has the same draws nothing."""

    size: int
    seed: int
    strata: dict[str, int]
    """Category -> how many questions the whole benchmark has of it."""
    ids: tuple[str, ...]
    """Those that are asked, in the benchmark's order."""


def draw(ids: Sequence[str], categories: Sequence[str], size: int, seed: int) -> Subset:
    """A subset in proportion to the categories' sizes; all where it has not so many.

    Within a category the questions are ordered by the SHA-256 of seed and id, and the first ones taken: the same on
    every machine, whatever the order of the file.

    Args:
        ids: of all questions.
        categories: theirs.
        size: how many to draw. A category has `LEAST` at least where that is possible at all.
        seed: another seed, another subset.
    """
    strata: dict[str, list[str]] = {}
    for identity, category in zip(ids, categories, strict=True):
        strata.setdefault(category, []).append(identity)
    counts = _shares({name: len(members) for name, members in strata.items()}, size)
    taken: set[str] = set()
    for name, members in strata.items():
        order = sorted(members, key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())
        taken.update(order[: counts[name]])
    kept = tuple(i for i in ids if i in taken)
    return Subset(len(kept), seed, {name: len(members) for name, members in strata.items()}, kept)


def _shares(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """How many of each category: in proportion, the largest remainders rounded up, the small ones raised."""
    total = min(total, sum(sizes.values()))
    taken = {k: sum(min(k, n) for n in sizes.values()) for k in (LEAST, 1, 0)}
    least = next(k for k in taken if taken[k] <= (total / 2 if k == LEAST else total))
    counts = {name: min(least, n) for name, n in sizes.items()}
    while (left := total - sum(counts.values())) > 0:
        room = {name: sizes[name] - counts[name] for name in sizes if counts[name] < sizes[name]}
        whole = sum(sizes.values())
        wanted = {name: max(0.0, total * sizes[name] / whole - counts[name]) for name in room}
        scale = left / (sum(wanted.values()) or 1)
        parts = {name: min(room[name], wanted[name] * min(1.0, scale)) for name in room}
        for name, part in parts.items():
            counts[name] += int(part)
        spare = total - sum(counts.values())
        remainders = sorted(room, key=lambda name: (int(parts[name]) - parts[name], name))
        for name in remainders[:spare]:
            counts[name] += counts[name] < sizes[name]
    return counts


def half_width(strata: Mapping[str, int], asked: Mapping[str, int], accuracy: float = 0.5) -> float | None:
    """Of the 95 % interval that is to be expected, were every category as accurate as that.

    Args:
        strata: category -> all its questions.
        asked: category -> those that are asked.
        accuracy: one half is the worst case.
    """
    if any(not asked.get(name) for name in strata):
        return None
    rows = [(n, asked[name], accuracy * asked[name]) for name, n in strata.items()]
    return Z * math.sqrt(_variance(rows))


def estimate(strata: Mapping[str, int], answered: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """What the answers of a subset say of the accuracy over all questions.

    The estimate is the mean over questions of all categories; its interval is Wilson's at the number of independent
    answers that have the same variance, so that it stays within 0 and 1 and is no point where all were right.

    Args:
        strata: category -> all its questions.
        answered: category -> answered, right.

    Returns:
        accuracy, interval, and the number of categories without an answer: where there are any, both are None.
    """
    rows = [(n, *answered.get(name, (0, 0))) for name, n in strata.items()]
    missing = sum(not count for _, count, _ in rows)
    if missing or not rows:
        return {"accuracy": None, "interval": None, "categories_without_answers": missing}
    whole = sum(n for n, _, _ in rows)
    p = sum(n / whole * right / count for n, count, right in rows)
    if all(n == count for n, count, _ in rows):
        return {"accuracy": p, "interval": (p, p), "categories_without_answers": 0}
    variance = _variance(rows)
    if variance <= 0 or not 0 < p < 1:
        variance, p_spread = _variance([(n, count, 0.5 * count) for n, count, _ in rows]), 0.25
    else:
        p_spread = p * (1 - p)
    effective = p_spread / variance
    centre, scale = p + Z * Z / (2 * effective), 1 + Z * Z / effective
    spread = Z * math.sqrt(p * (1 - p) / effective + Z * Z / (4 * effective * effective))
    interval = (max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))
    return {"accuracy": p, "interval": interval, "categories_without_answers": 0}


def _variance(rows: Sequence[tuple[int, int, float]]) -> float:
    """Of the stratified mean, from all, asked and right of each stratum.

    Two or three answers that are all right do not say that a category has no spread: one answer more, as right as all
    categories together, is counted in each for it. One answer alone gets the spread of all.
    """
    whole = sum(n for n, _, _ in rows)
    p = sum(n / whole * right / count for n, count, right in rows)
    found = 0.0
    for n, count, right in rows:
        share = (right + p) / (count + 1)
        spread = share * (1 - share) * count / (count - 1) if count > 1 else p * (1 - p)
        found += (n / whole) ** 2 * (1 - count / n) * spread / count
    return found
