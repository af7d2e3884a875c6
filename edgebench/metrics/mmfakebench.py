"""MMFakeBench's scores.

Source: arXiv 2406.08772 and its released scorer. Precision, recall and F1 of a class are 0 where they would be 0/0,
and a macro mean is divided by the number of classes, four or two, whatever was answered. An answer that names no
class is the paper's pseudo class 'Z': it is in no class's precision and costs the right class its recall. The paper's
"macro accuracy" is plain accuracy. The binary scores take the three fake classes as one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.metrics.intervals import RESAMPLES, SEED, wilson
from edgebench.metrics.latency import stage_ms
from edgebench.prompts.verdicts import CLASSES, read_step
from edgebench.records import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from edgebench.records import Record

BENCH = "mmfakebench"
BINARY = ("real", "forged")
GROUPS = ("type", "text_source", "image_source")
"""Facts of a sample that scores are broken down by, besides its sub-category."""


def confusion(counts: Mapping[tuple[str, str], int], classes: Sequence[str]) -> NDArray[np.int64]:
    """Right class by answered class, int64 [classes, classes + 1]; the last column is 'Z'."""
    columns = {name: place for place, name in enumerate((*classes, NO_ANSWER))}
    found = np.zeros((len(classes), len(columns)), dtype=np.int64)
    for (target, answer), n in counts.items():
        found[columns[target], columns[answer]] += n
    return found


def macro(matrix: NDArray[np.int64]) -> dict[str, Any]:
    """Macro F1, precision and recall, accuracy, and the same of each class.

    Args:
        matrix: int64 [..., classes, classes + 1], as of `confusion`.

    Returns:
        Float arrays of the leading shape; `classes` has one more axis.
    """
    square = matrix[..., :, :-1]
    hit = np.diagonal(square, axis1=-2, axis2=-1).astype(np.float64)
    said, there = square.sum(axis=-2), matrix.sum(axis=-1)
    precision = np.divide(hit, said, out=np.zeros_like(hit), where=said > 0)
    recall = np.divide(hit, there, out=np.zeros_like(hit), where=there > 0)
    f1 = np.divide(2 * precision * recall, precision + recall, out=np.zeros_like(hit), where=hit > 0)
    total = there.sum(axis=-1)
    return {
        "f1": f1.mean(axis=-1),
        "precision": precision.mean(axis=-1),
        "recall": recall.mean(axis=-1),
        "accuracy": hit.sum(axis=-1) / np.maximum(total, 1),
        "classes": {"f1": f1, "precision": precision, "recall": recall, "samples": there, "answered": said},
    }


def scores(counts: Mapping[tuple[str, str], int], classes: Sequence[str]) -> dict[str, Any] | None:
    """Macro scores with the 95 % bootstrap interval of F1 (drawn within each class), and each class's own.

    Args:
        counts: (right class, answer or 'Z') -> samples.
        classes: in the order of the report.

    Returns:
        None without samples.
    """
    matrix = confusion(counts, classes)
    if not matrix.sum():
        return None
    found = macro(matrix)
    own = found.pop("classes")
    generator = np.random.Generator(np.random.Philox(SEED))
    drawn = np.stack(
        [generator.multinomial(row.sum(), row / max(row.sum(), 1), size=RESAMPLES) for row in matrix if row.sum()],
        axis=1,
    )
    full = np.zeros((RESAMPLES, *matrix.shape), dtype=np.int64)
    full[:, matrix.sum(axis=1) > 0] = drawn
    low, high = np.quantile(macro(full)["f1"], [0.025, 0.975])
    return {name: float(value) for name, value in found.items()} | {
        "f1_interval": (float(low), float(high)),
        "samples": int(matrix.sum()),
        "classes": {
            name: {key: value[place].item() for key, value in own.items()} for place, name in enumerate(classes)
        },
        "confusion": {
            name: dict(zip((*classes, NO_ANSWER), map(int, matrix[place]), strict=True))
            for place, name in enumerate(classes)
        },
    }


class Tally:
    """What is kept of each answered sample."""

    def __init__(self) -> None:
        self._multi: Counter[tuple[str, str]] = Counter()
        self._binary: Counter[tuple[str, str]] = Counter()
        self._groups: dict[str, dict[str, list[int]]] = {}
        self._calls: Counter[int] = Counter()
        self._steps: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._knowledge: Counter[str] = Counter()
        self._lookup_ns: list[int] = []
        self._total_ns: list[int] = []
        self._prompts: list[tuple[int, int]] = []
        """Of each sample: tokens of all prompts, and those of them whose cache was there from the call before."""

    def add(self, record: Record, answer: str | None) -> None:
        """Count one answered sample; those of other benchmarks are left alone."""
        if record.target not in CLASSES or answer is None:
            return
        forged = record.target != CLASSES[0]
        said = NO_ANSWER
        if answer in CLASSES:
            said = BINARY[answer != CLASSES[0]]
            self._multi[record.target, answer] += 1
        elif answer in BINARY:
            said = answer
        else:
            self._multi[record.target, NO_ANSWER] += 1
        self._binary[BINARY[forged], said] += 1
        for key, value in {"sub_category": record.category, **{k: record.facts.get(k) for k in GROUPS}}.items():
            row = self._groups.setdefault(key, {}).setdefault(value or "not stated", [0, 0, 0, 0, 0])
            row[0] += 1
            row[1] += answer == record.target
            row[2] += said == BINARY[forged]
            row[3] += said == BINARY[1]
            row[4] += answer == NO_ANSWER
        self._trace(record)

    def _trace(self, record: Record) -> None:
        self._calls[len(record.trace) or 1] += 1
        if "total" in record.stages_ns:
            self._total_ns.append(record.stages_ns["total"])
        tokens = [(c.prompt_tokens, c.reused_tokens) for c in record.trace if c.prompt_tokens is not None]
        if tokens and all(reused is not None for _, reused in tokens):
            self._prompts.append((sum(n for n, _ in tokens), sum(reused or 0 for _, reused in tokens)))
        for call in record.trace:
            self._steps[call.step] += 1
            self._unread[call.step] += read_step("strict", call) == NO_ANSWER
            if call.knowledge is not None:
                self._knowledge[call.knowledge.status] += 1
                if call.knowledge.elapsed_ns is not None:
                    self._lookup_ns.append(call.knowledge.elapsed_ns)

    def scores(self) -> dict[str, Any]:
        """All of it, as plain data."""
        answers: Counter[str] = Counter()
        for (_, answer), n in (self._multi or self._binary).items():
            answers[answer] += n
        total = sum(answers.values())
        matched = total - answers[NO_ANSWER]
        words = bool(self._multi)
        return {
            "multiclass": scores(self._multi, CLASSES) if words else None,
            "binary": scores(self._binary, BINARY),
            "match_rate": matched / total if words and total else None,
            "consistency_rate": max(n for a, n in answers.items() if a != NO_ANSWER) / matched
            if words and matched
            else None,
            "rates_note": "match: answers that name a class; consistency: share of the most frequent class among those",
            "groups": {
                key: {
                    name: {
                        "samples": n,
                        "accuracy": right / n if words else None,
                        "binary_accuracy": both / n,
                        "binary_interval": wilson(both, n),
                        "called_forged": forged / n,
                        "unmatched": z,
                    }
                    for name, (n, right, both, forged, z) in sorted(rows.items())
                }
                for key, rows in self._groups.items()
            },
            "calls": {
                "mean": sum(k * n for k, n in self._calls.items()) / total if total else None,
                "most": max(self._calls, default=None),
                "samples_by_calls": dict(sorted(self._calls.items())),
                "steps": dict(self._steps),
                "unread_conclusions": {step: n for step, n in self._unread.items() if n},
                "prompt_tokens_per_sample": float(np.mean([n for n, _ in self._prompts])) if self._prompts else None,
                "reused_tokens_per_sample": float(np.mean([n for _, n in self._prompts])) if self._prompts else None,
                "seconds_per_sample": float(np.mean(self._total_ns)) / 1e9 if self._total_ns else None,
            },
            "knowledge": {
                "lookups": dict(sorted(self._knowledge.items())),
                "lookup_ms": stage_ms(self._lookup_ns) if self._lookup_ns else None,
            },
        }
