"""A run, and its questions, as flat rows with typed columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edgebench.answers import judge
from edgebench.benches.taxonomy import FAMILY, own_category
from edgebench.metrics.latency import STAGES, derived_ns
from edgebench.records import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgebench.records import Record, Run

TEXT, WHOLE, REAL, TRUTH = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"
RECORD_COLUMNS: dict[str, str] = {
    "run": TEXT,
    "id": TEXT,
    "sitting": WHOLE,
    "category": TEXT,
    "task": TEXT,
    "forgery_type": TEXT,
    "target": TEXT,
    "answer": TEXT,
    "right": TRUTH,
    "unparsed": TRUTH,
    "method": TEXT,
    "text": TEXT,
    "score": REAL,
    "finish": TEXT,
    "error": TEXT,
    "not_asked": TEXT,
    **{f"{stage}_ns": WHOLE for stage in ("read", "perturb", *STAGES, "ttft", "ttft_from_tensor", "tpot")},
    "tiles": WHOLE,
    "prompt_tokens": WHOLE,
    "output_tokens": WHOLE,
    "reused_tokens": WHOLE,
    "peak_memory_bytes": WHOLE,
    "peak_anonymous_bytes": WHOLE,
    "peak_file_backed_bytes": WHOLE,
    "options": TEXT,
    "option_logprobs": TEXT,
    "stages_ns": TEXT,
    "facts": TEXT,
}
"""Of one question; `options`, `option_logprobs`, `stages_ns` (every stage) and `facts` are JSON."""
RUN_COLUMNS: dict[str, str] = {
    "run": TEXT,
    "folder": TEXT,
    "created": TEXT,
    "model": TEXT,
    "family": TEXT,
    "precision": TEXT,
    "dialect": TEXT,
    "engine": TEXT,
    "provider": TEXT,
    "bench": TEXT,
    "data": TEXT,
    "device": TEXT,
    "system": TEXT,
    "perturbation": TEXT,
    "scoring": TEXT,
    "matcher": TEXT,
    "prompt_style": TEXT,
    "image_path": TEXT,
    "limit": WHOLE,
    "questions": WHOLE,
    "answered": WHOLE,
    "unparsed": WHOLE,
    "failed": WHOLE,
    "complete": TRUTH,
    "accuracy": REAL,
    "accuracy_low": REAL,
    "accuracy_high": REAL,
    "balanced_accuracy": REAL,
    "auroc": REAL,
    **{f"total_p{q}_ms": REAL for q in (50, 90, 99)},
    "ttft_p50_ms": REAL,
    "tpot_p50_ms": REAL,
    "load_ms": REAL,
    "artifact_bytes": WHOLE,
    "peak_memory_bytes": WHOLE,
    "sittings": WHOLE,
    "edgebench": TEXT,
    "artifact_sha256": TEXT,
    "data_fingerprint": TEXT,
    "passport": TEXT,
}
"""Of one run; percentages are fractions."""


def record_rows(run: Run, *, name: str | None = None) -> Iterator[dict[str, Any]]:
    """One row a question, failed ones too, in `RECORD_COLUMNS`; what is unknown is None.

    Raises:
        RunError: the records are damaged.
    """
    for record in run.records():
        yield record_row(record, run, name or run.folder.name)


def record_row(record: Record, run: Run, name: str) -> dict[str, Any]:
    """One question, judged by the run's own matcher."""
    settings = run.header.settings
    answer, method = judge(record, scoring=settings.scoring, matcher=settings.matcher)
    stages = record.stages_ns | derived_ns(record.stages_ns, record.output_tokens)
    answered = record.error is None and record.not_asked is None
    row: dict[str, Any] = {
        **{column: getattr(record, column, None) for column in RECORD_COLUMNS},
        **{column: stages.get(column[:-3]) for column in RECORD_COLUMNS if column.endswith("_ns")},
        "run": name,
        "task": record.facts.get("task"),
        "forgery_type": own_category(record.category).type if settings.bench in FAMILY else None,
        "answer": answer,
        "method": method,
        "right": answer == record.target if answered else None,
        "unparsed": answer == NO_ANSWER if answered else None,
        **{
            column: json.dumps(getattr(record, column), ensure_ascii=False) if getattr(record, column) else None
            for column in ("options", "option_logprobs", "stages_ns", "facts")
        },
    }
    return row


def run_row(run: Run, summary: dict[str, Any], *, name: str | None = None) -> dict[str, Any]:
    """One run, in `RUN_COLUMNS`; what is unknown is None."""
    header, counts, settings = run.header, summary["summary"], summary["settings"]
    artifact, host = summary["artifact"] or {}, summary["host"] or {}
    binary, latency = summary["scores"].get("binary") or {}, summary["latency_ms"]
    low, high = counts["accuracy_interval"] or (None, None)
    values = {
        **settings,
        **{k: counts[k] for k in ("questions", "answered", "unparsed", "failed", "complete", "accuracy")},
        **{k: artifact.get(k) for k in ("family", "precision", "dialect", "passport")},
        **{f"total_p{q}_ms": (latency.get("total") or {}).get(f"p{q}") for q in (50, 90, 99)},
        **{f"{k}_p50_ms": (latency.get(k) or {}).get("p50") for k in ("ttft", "tpot")},
        "run": name or run.folder.name,
        "folder": str(run.folder),
        "created": header.created,
        "model": artifact.get("name"),
        "data": header.data.name,
        "device": host.get("device_model") or host.get("cpu"),
        "system": host.get("system"),
        "accuracy_low": low,
        "accuracy_high": high,
        "balanced_accuracy": binary.get("balanced_accuracy"),
        "auroc": binary.get("auroc"),
        "load_ms": summary["load_ms"],
        "artifact_bytes": artifact.get("bytes"),
        "peak_memory_bytes": summary["memory"]["peak_bytes"],
        "sittings": summary["sittings"],
        "edgebench": header.edgebench,
        "artifact_sha256": artifact.get("manifest_sha256"),
        "data_fingerprint": header.data.fingerprint,
    }
    return {column: values.get(column) for column in RUN_COLUMNS}
