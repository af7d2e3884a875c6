"""What a change of precision, runtime or device did to the answers: the delta card's numbers.

Everything is over the questions that both runs answered, paired one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.answers import is_forged, is_right, judge
from edgebench.benches.taxonomy import FAMILY, own_category
from edgebench.metrics.binary import auroc, eer
from edgebench.metrics.intervals import ratio_interval, wilson
from edgebench.metrics.latency import derived_ns
from edgebench.metrics.paired import paired
from edgebench.records import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from edgebench.records import Run

BINS = 10
"""Of equal width, for the expected calibration error (Guo et al., ICML 2017)."""
QUALITY_TARGETS = (0.99, 0.999)
"""Shares of the base's accuracy that MLPerf Inference asks of a closed submission (its two targets)."""
SPEEDS = ("total", "ttft", "tpot")
"""Times whose ratio is given."""
FALSE_ALARMS = 0.05
"""The base's threshold of a classifier is where so many of the real samples are called forged."""


@dataclass(frozen=True)
class Judged:
    """One answered question, as far as a delta needs it."""

    right: bool
    unparsed: bool
    answer: str | None
    target: str
    task: str
    kind: str
    """Forgery type where the benchmark has types, else the category."""
    probabilities: dict[str, float] | None
    """Option -> probability among the options."""
    logprobs: dict[str, float] | None
    """Option -> log-probability of its letter as the first token."""
    score: float | None
    forged: bool | None
    """Whether the right answer is 'forged'; None for questions of another kind."""
    output_tokens: int | None
    times_ns: dict[str, int] = field(default_factory=dict)
    """`SPEEDS`, those that exist."""


def judged(run: Run) -> dict[str, Judged]:
    """The answered questions of a run, by id."""
    settings = run.header.settings
    found: dict[str, Judged] = {}
    for record in run.records():
        if record.error is not None or record.not_asked is not None:
            continue
        answer, _ = judge(record, scoring=settings.scoring, matcher=settings.matcher)
        kind = record.category
        if settings.bench in FAMILY:
            kind = own_category(record.category).type
        times = record.stages_ns | derived_ns(record.stages_ns, record.output_tokens)
        found[record.id] = Judged(
            right=is_right(record, answer),
            unparsed=answer == NO_ANSWER,
            answer=answer,
            target=record.target,
            task=record.facts.get("task", ""),
            kind=kind,
            probabilities=_softmax(record.option_logprobs) if record.options else None,
            logprobs=record.option_logprobs,
            score=record.score,
            forged=is_forged(record),
            output_tokens=record.output_tokens,
            times_ns={k: v for k, v in times.items() if k in SPEEDS},
        )
    return found


def delta(base: Mapping[str, Judged], other: Mapping[str, Judged]) -> dict[str, Any]:
    """The card of one pair of runs.

    Args:
        base: the run that is the measure.
        other: the run that is measured.

    Returns:
        paired (see `paired`), by task and by kind; speed, unparsed, output_length_ratio, option_shift,
        calibration_error, classifier, targets; disagreements: every question that the two answered differently, right
        or wrong; largest_logprob_difference of an option's letter. None where a run does not have it.
    """
    common = [i for i in base if i in other]
    pairs = [(base[i], other[i]) for i in common]
    accuracy = [sum(p[k].right for p in pairs) / len(pairs) if pairs else None for k in (0, 1)]
    targets = [{"target": t, "passed": None if None in accuracy else _at_least(accuracy, t)} for t in QUALITY_TARGETS]
    return {
        "paired": paired({i: j.right for i, j in base.items()}, {i: j.right for i, j in other.items()}),
        "accuracy": accuracy,
        "targets": targets,
        "by_task": _groups(base, other, common, lambda j: j.task),
        "by_kind": _groups(base, other, common, lambda j: j.kind),
        "speed": _speed(pairs),
        "unparsed": [sum(p[k].unparsed for p in pairs) / len(pairs) if pairs else None for k in (0, 1)],
        "output_length_ratio": _length_ratio(pairs),
        "option_shift": _option_shift(pairs),
        "calibration_error": [_calibration_error([p[k] for p in pairs]) for k in (0, 1)],
        "classifier": _classifier(pairs),
        "disagreements": [
            {"id": i, "kind": a.kind, "target": a.target, "base": a.answer, "other": b.answer}
            for i, (a, b) in zip(common, pairs, strict=True)
            if a.answer != b.answer
        ],
        "largest_logprob_difference": _largest_logprob_difference(pairs),
    }


def _largest_logprob_difference(pairs: list[tuple[Judged, Judged]]) -> float | None:
    """Of any option's letter, in nats, over the questions where both runs know it."""
    gaps = [
        abs(a.logprobs[option] - b.logprobs[option])
        for a, b in pairs
        if a.logprobs and b.logprobs
        for option in a.logprobs.keys() & b.logprobs.keys()
    ]
    return max(gaps, default=None)


def _speed(pairs: list[tuple[Judged, Judged]]) -> list[dict[str, Any]]:
    """Ratios of medians, other / base, over the questions where both have the time."""
    rows = []
    for name in SPEEDS:
        known = [(a.times_ns[name], b.times_ns[name]) for a, b in pairs if name in a.times_ns and name in b.times_ns]
        if not known:
            continue
        base, other = np.array(known, dtype=np.float64).T
        middle = [float(np.median(v)) for v in (base, other)]
        rows.append(
            {
                "what": name,
                "questions": len(known),
                "base_ms": middle[0] / 1e6,
                "other_ms": middle[1] / 1e6,
                "ratio": middle[1] / middle[0] if middle[0] else None,
                "interval": ratio_interval(base, other),
            }
        )
    return rows


def _at_least(accuracy: list[float | None], share: float) -> bool:
    base, other = accuracy
    return base is not None and other is not None and other >= share * base


def _groups(
    base: Mapping[str, Judged], other: Mapping[str, Judged], common: list[str], key: Callable[[Judged], str]
) -> list[dict[str, Any]]:
    names: dict[str, list[str]] = {}
    for i in common:
        names.setdefault(key(base[i]), []).append(i)
    if set(names) <= {""}:
        return []
    rows = []
    for name, ids in sorted(names.items()):
        one, two = ({i: run[i].right for i in ids} for run in (base, other))
        pair = paired(one, two)
        rows.append(
            {
                "name": name,
                "questions": len(ids),
                "base": sum(one.values()) / len(ids),
                "base_interval": wilson(sum(one.values()), len(ids)),
                "other": sum(two.values()) / len(ids),
                "other_interval": wilson(sum(two.values()), len(ids)),
                **{k: pair[k] for k in ("lost", "won", "difference", "difference_interval", "mcnemar_p")},
            }
        )
    return rows


def _length_ratio(pairs: list[tuple[Judged, Judged]]) -> float | None:
    """Output tokens of the other run over those of the base, over questions where both are known."""
    lengths = [(a.output_tokens, b.output_tokens) for a, b in pairs if a.output_tokens and b.output_tokens is not None]
    total = sum(a or 0 for a, _ in lengths)
    return sum(b or 0 for _, b in lengths) / total if total else None


def _option_shift(pairs: list[tuple[Judged, Judged]]) -> dict[str, Any] | None:
    """Mean total variation distance between the options' probabilities, and how often the likeliest one changed."""
    distances, changed = [], 0
    for a, b in pairs:
        if a.probabilities is None or b.probabilities is None or a.probabilities.keys() != b.probabilities.keys():
            continue
        distances.append(sum(abs(a.probabilities[o] - b.probabilities[o]) for o in a.probabilities) / 2)
        changed += _likeliest(a.probabilities) != _likeliest(b.probabilities)
    if not distances:
        return None
    return {
        "questions": len(distances),
        "mean_total_variation": float(np.mean(distances)),
        "likeliest_changed": changed / len(distances),
    }


def _calibration_error(rows: list[Judged]) -> float | None:
    """Expected calibration error of the likeliest option's probability, ten bins of equal width."""
    known = [(max(j.probabilities.values()), _likeliest(j.probabilities) == j.target) for j in rows if j.probabilities]
    if not known:
        return None
    confidence, hit = np.array([k[0] for k in known]), np.array([k[1] for k in known], dtype=np.float64)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        abs(confidence[place == b].mean() - hit[place == b].mean()) * (place == b).sum()
        for b in range(BINS)
        if (place == b).any()
    ]
    return float(sum(gaps) / len(known))


def _classifier(pairs: list[tuple[Judged, Judged]]) -> dict[str, Any] | None:
    """AUROC and EER of both; false and true alarms of both at the threshold where the base has 5 % false alarms."""
    known = [
        (a.forged, a.score, b.score)
        for a, b in pairs
        if a.forged is not None and a.score is not None and b.score is not None
    ]
    forged = np.array([k[0] for k in known], dtype=np.bool_)
    if not known or forged.all() or not forged.any():
        return None
    scores = [np.array([k[1] for k in known], np.float64), np.array([k[2] for k in known], np.float64)]
    real = np.sort(scores[0][~forged])[::-1]
    threshold = float(real[min(len(real) - 1, math.floor(FALSE_ALARMS * len(real)))])
    return {
        "samples": len(known),
        "auroc": [auroc(forged, s) for s in scores],
        "eer": [eer(forged, s) for s in scores],
        "threshold": threshold,
        "false_positive_rate": [_share(s[~forged] > threshold) for s in scores],
        "true_positive_rate": [_share(s[forged] > threshold) for s in scores],
    }


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean())


def _likeliest(probabilities: Mapping[str, float]) -> str:
    return max(probabilities, key=lambda option: probabilities[option])


def _softmax(logprobs: Mapping[str, float] | None) -> dict[str, float] | None:
    if not logprobs:
        return None
    top = max(logprobs.values())
    weights = {option: math.exp(value - top) for option, value in logprobs.items()}
    total = sum(weights.values())
    return {option: weight / total for option, weight in weights.items()}
