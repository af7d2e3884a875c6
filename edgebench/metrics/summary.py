"""A run's records -> its summary, as plain data. This is the JSON that `run`, `score` and `report` print."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.answers import is_forged, is_right, judge, says_forged
from edgebench.benches.taxonomy import FAMILY
from edgebench.metrics.binary import binary_scores
from edgebench.metrics.container import Tally as ContainerTally
from edgebench.metrics.container import warnings
from edgebench.metrics.forensics import forensics_scores
from edgebench.metrics.intervals import wilson
from edgebench.metrics.latency import ESTIMATORS, STAGES, derived_ns, stage_ms
from edgebench.metrics.machine import Machine
from edgebench.metrics.mmfakebench import BENCH as MMFAKEBENCH
from edgebench.metrics.mmfakebench import Tally as MMFakeBenchTally
from edgebench.metrics.published import published
from edgebench.records import NO_ANSWER, NO_WARMUP, Sitting
from edgebench.sensors.observation import read_observations
from edgebench.sensors.power_log import power_log_of
from edgebench.subset import estimate

if TYPE_CHECKING:
    from edgebench.records import Record, Run
    from edgebench.subset import Subset

ERRORS_SHOWN = 10
IDS_SHOWN = 10
"""Of the samples that failed for one reason."""
DERIVED = ("ttft", "ttft_from_tensor", "tpot")

LATENCY = (
    "wall clock of the engine's process, one question at a time, nothing prepared beside it (but for answers within 0.1 ms, "
    "which are asked ahead); the first call is apart (first_question); "
    "nearest-rank percentiles, null when there are too few samples; total runs from encoded bytes to the last token"
)
OFFLINE = "offline: questions are timed together, so that no latency of one is known"
API_LATENCY = (
    "an API's latency, not a device's: wall clock from sending the request that was answered to its last byte, network "
    "and queue included, nothing asked before; retries and the making of pictures are outside of it; nearest-rank "
    "percentiles, null when there are too few samples"
)


class _Tally:
    """What is kept of each record: a few numbers, so that 63,292 of them stay small."""

    def __init__(self) -> None:
        self.asked = self.answered = self.unparsed = self.failed = self.not_asked = self.right = 0
        self.by_category: dict[str, list[int]] = {}
        self.methods: dict[str, int] = {}
        self.errors: dict[str, tuple[int, list[str]]] = {}
        self.unparsed_by_target: dict[str, int] = {}
        self.stages: dict[str, list[int]] = {stage: [] for stage in (*STAGES, *DERIVED)}
        self.output_tokens: list[int] = []
        self.prompt_tokens: list[int] = []
        self.forged: list[bool] = []
        self.forged_right: list[bool] = []
        self.scores: list[float] = []
        self.cut_off = self.refused = self.retries = 0
        self.models: dict[str, int] = {}
        self.mmfakebench = MMFakeBenchTally()
        self.files = ContainerTally()

    def add(self, record: Record, *, scoring: str, matcher: str) -> None:
        if record.not_asked is not None:
            self.not_asked += 1
            return
        self.asked += 1
        row = self.by_category.setdefault(record.category, [0, 0, 0, 0])
        if record.error is not None:
            self.failed += 1
            row[3] += 1
            count, ids = self.errors.get(record.error, (0, []))
            self.errors[record.error] = (count + 1, ids if count >= IDS_SHOWN else [*ids, record.id])
            return
        answer, method = judge(record, scoring=scoring, matcher=matcher)
        right = is_right(record, answer)
        self.answered += 1
        self.right += right
        row[0] += 1
        row[1] += right
        if answer == NO_ANSWER and method == "refusal":
            self.refused += 1
        elif answer == NO_ANSWER:
            self.unparsed += 1
            row[2] += 1
            self.unparsed_by_target[record.target] = self.unparsed_by_target.get(record.target, 0) + 1
        self.methods[method or "none"] = self.methods.get(method or "none", 0) + 1
        self.cut_off += record.finish == "length"
        self.retries += (record.attempts or 1) - 1
        if record.model is not None:
            self.models[record.model] = self.models.get(record.model, 0) + 1
        self.mmfakebench.add(record, answer)
        self.files.add(record, right=right)
        self._binary(record, answer)
        self._times(record)

    def _binary(self, record: Record, answer: str | None) -> None:
        forged = is_forged(record)
        if forged is None:
            return
        self.forged.append(forged)
        self.forged_right.append(says_forged(record, answer) == forged)
        self.scores.append(float("nan") if record.score is None else record.score)

    def _times(self, record: Record) -> None:
        stages = record.stages_ns
        for stage, ns in stages.items():
            if stage in STAGES:
                self.stages[stage].append(ns)
        if record.output_tokens is not None:
            self.output_tokens.append(record.output_tokens)
        if record.prompt_tokens is not None:
            self.prompt_tokens.append(record.prompt_tokens)
        for asked in record.trace or (record,):
            for name, value in derived_ns(asked.stages_ns, asked.output_tokens).items():
                self.stages[name].append(value)


def summarize(run: Run, *, matcher: str | None = None) -> dict[str, Any]:
    """All figures of a run.

    Args:
        run: opened for reading.
        matcher: judge the answers by another matcher than the run's own.

    Raises:
        RunError: the records are damaged.
    """
    header = run.header
    settings = header.settings
    used = matcher or settings.matcher
    tally = _Tally()
    machine = Machine(header, power_log_of(run.folder))
    sittings: list[Sitting] = []
    cold: set[int] = set()
    first_ns = None
    for line in run.lines():
        if isinstance(line, Sitting):
            sittings.append(line)
            machine.sit(line)
            first_ns = line.warmup_ns
            cold |= {line.sitting} if line.warmup == NO_WARMUP else set()
        else:
            if line.sitting in cold and "total" in line.stages_ns and not line.trace:
                cold.remove(line.sitting)
                first_ns, line = line.stages_ns["total"], replace(line, stages_ns={})
            right = tally.right
            tally.add(line, scoring=settings.scoring, matcher=used)
            machine.add(line, right=tally.right > right)
    total_ns = sum(tally.stages["total"])
    interval = wilson(tally.right, tally.answered)
    found = {
        "run": run.folder.name,
        "created": header.created,
        "edgebench": header.edgebench,
        "summary": {
            "questions": tally.asked,
            "answered": tally.answered,
            "unparsed": tally.unparsed,
            "refused": tally.refused,
            "failed": tally.failed,
            "not_asked": tally.not_asked,
            "complete": tally.asked + tally.not_asked >= header.data.questions,
            "accuracy": tally.right / tally.answered if tally.answered else None,
            "accuracy_interval": interval,
            "accuracy_note": "right / answered; an answer without an option and a refusal count as wrong, a failed question is left out; 95 % Wilson interval",
            "cut_off_at_token_limit": tally.cut_off,
            "methods": dict(sorted(tally.methods.items())),
            "unparsed_by_right_answer": dict(sorted(tally.unparsed_by_target.items())),
            "errors": [
                {"error": e, "samples": n, "ids": ids}
                for e, (n, ids) in sorted(tally.errors.items(), key=lambda item: -item[1][0])[:ERRORS_SHOWN]
            ],
        },
        "subset": _subset(header.subset, tally),
        "scores": _scores(tally, settings.bench),
        "container": (files := tally.files.check()),
        "categories": {
            slug: {
                "answered": a,
                "right": r,
                "unparsed": z,
                "failed": f,
                "accuracy": r / a if a else None,
                "interval": wilson(r, a),
            }
            for slug, (a, r, z, f) in sorted(tally.by_category.items())
        },
        "latency_ms": {stage: stage_ms(values) for stage, values in tally.stages.items() if values},
        "latency_note": OFFLINE
        if settings.scenario == "offline"
        else LATENCY
        if settings.endpoint is None
        else API_LATENCY,
        "latency_estimators": ESTIMATORS,
        "throughput": {
            "scenario": settings.scenario,
            "offline": _offline(run, tally.answered) if settings.scenario == "offline" else None,
            "questions_per_s": len(tally.stages["total"]) / (total_ns / 1e9) if total_ns else None,
            "note": "questions / sum of their total times, one at a time",
            "prompt_tokens_mean": float(np.mean(tally.prompt_tokens)) if tally.prompt_tokens else None,
            "output_tokens_mean": float(np.mean(tally.output_tokens)) if tally.output_tokens else None,
        },
        "memory": {
            "peak_bytes": machine.peaks.get("peak_memory_bytes"),
            "peak_anonymous_bytes": machine.peaks.get("peak_anonymous_bytes"),
            "peak_file_backed_bytes": machine.peaks.get("peak_file_backed_bytes"),
            "after_load_bytes": sittings[-1].memory_after_load_bytes if sittings else None,
            "anonymous_after_load_bytes": sittings[-1].anonymous_after_load_bytes if sittings else None,
            "file_backed_after_load_bytes": sittings[-1].file_backed_after_load_bytes if sittings else None,
            "method": sittings[-1].memory_method if sittings else None,
            "kinds_method": sittings[-1].memory_kinds_method if sittings else None,
            "artifact_bytes": None if header.artifact is None else header.artifact.bytes,
        },
        **machine.found(list(read_observations(run.folder))),
        "load_ms": sittings[-1].load_ns / 1e6 if sittings and sittings[-1].load_ns is not None else None,
        "first_question": {
            "ms": None if first_ns is None else first_ns / 1e6,
            "warmup": sittings[-1].warmup if sittings else None,
            "note": "of the last sitting, total; it is in no figure of latency",
        },
        "service": None if settings.endpoint is None else _service(tally, sittings),
        "settings": asdict(settings) | {"matcher": used},
        "artifact": None if header.artifact is None else asdict(header.artifact),
        "data": asdict(header.data),
        "host": asdict(sittings[-1].host) if sittings else None,
        "engine": sittings[-1].engine if sittings else None,
        "sittings": len(sittings),
        "limits": asdict(limits) if (limits := sittings[-1].limits if sittings else header.limits) else None,
        "notes": _notes(sittings, timed=bool(tally.stages["total"]) or any(True for _ in run.windows()))
        + warnings(files, settings.equalize),
    }
    return found | {"published": published(found)}


def _offline(run: Run, answered: int) -> dict[str, Any]:
    """Samples a second over the complete windows of an offline run; None where there is none."""
    windows = list(run.windows())
    total_ns, inside = sum(w.total_ns for w in windows), sum(w.answered for w in windows)
    sizes: dict[int, int] = {}
    for size in (size for w in windows for size in w.batches):
        sizes[size] = sizes.get(size, 0) + 1
    return {
        "samples_per_s": inside / (total_ns / 1e9) if total_ns else None,
        "windows": len(windows),
        "answered_in_windows": inside,
        "answered": answered,
        "total_ns": total_ns,
        "most_in_a_batch": run.header.settings.batch,
        "batch_sizes": {str(size): count for size, count in sorted(sizes.items())},
        "note": "answered samples of complete windows / the sum of their times, each from the encoded bytes of all its "
        "questions to the last token; reading the bytes is outside; prompts of exactly one length go together; nothing "
        "is prefetched. A window that was cut off, or whose process died, counts neither way",
    }


def _subset(subset: Subset | None, tally: _Tally) -> dict[str, Any] | None:
    """What a subset says of all questions; None where all are asked."""
    if subset is None:
        return None
    answered = {slug: (row[0], row[1]) for slug, row in tally.by_category.items()}
    return {
        "size": subset.size,
        "of": sum(subset.strata.values()),
        "categories": len(subset.strata),
        "seed": subset.seed,
        **estimate(subset.strata, answered),
        "note": "stratified by category; 95 % interval with the finite-population correction",
    }


def _service(tally: _Tally, sittings: list[Sitting]) -> dict[str, Any]:
    """Who answered, over how many requests, and what it cost: None where tokens or prices are not known."""
    prices = sittings[-1].engine.get("prices_per_million") if sittings else None
    read, written = tally.prompt_tokens, tally.output_tokens
    known = tally.answered > 0 and len(read) == len(written) == tally.answered
    return {
        "models": dict(sorted(tally.models.items())),
        "retries": tally.retries,
        "at_once": sittings[-1].engine.get("at_once") if sittings else None,
        "prompt_tokens": sum(read) if known else None,
        "output_tokens": sum(written) if known else None,
        "prices_per_million": prices,
        "cost": (sum(read) * prices[0] + sum(written) * prices[1]) / 1e6 if known and prices else None,
        "cost_note": "tokens of the answers x the prices that were given; requests without an answer and discounts are not in it",
    }


def _scores(tally: _Tally, bench: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if bench in FAMILY:
        rows = {slug: row for slug, row in tally.by_category.items() if row[0]}
        found["forensics"] = forensics_scores({s: r[1] for s, r in rows.items()}, {s: r[0] for s, r in rows.items()})
    if bench == MMFAKEBENCH:
        found[MMFAKEBENCH] = tally.mmfakebench.scores()
    if tally.forged:
        scores = np.array(tally.scores, dtype=np.float64)
        known = None if np.isnan(scores).any() else scores
        found["binary"] = binary_scores(np.array(tally.forged), np.array(tally.forged_right), known)
    return found


def _notes(sittings: list[Sitting], *, timed: bool) -> list[str]:
    notes = []
    if len(sittings) > 1 and timed:
        notes.append(f"answered in {len(sittings)} sittings: the times of different sittings are pooled here")
    if len({(s.host.machine, s.host.cpu, s.host.system) for s in sittings}) > 1:
        notes.append("the sittings ran on different machines")
    return notes
