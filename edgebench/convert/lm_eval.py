"""lm-evaluation-harness's files: FOLDER/MODEL/results_<date>.json and samples_<task>_<date>.jsonl.

Source: EleutherAI/lm-evaluation-harness 0.4.13, `lm_eval/loggers/evaluation_tracker.py` and
`lm_eval/evaluator_utils.py`. Fields that only that harness can know (git hash, prompt hash, arguments) are null or
empty; ours stand under `edgebench`. Failed questions and those not asked are left out.
"""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edgebench.convert.names import dataset_name, model_name
from edgebench.convert.rows import record_rows
from edgebench.metrics.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgebench.records import Run

LAYOUT = "lm-evaluation-harness 0.4.13"


def write(runs: Sequence[Run], target: Path) -> list[Path]:
    """Results and samples of each run; the files written."""
    written = []
    for run in runs:
        model, task = model_name(run), dataset_name(run)
        created = datetime.fromisoformat(run.header.created)
        date = created.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
        folder = target / model
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for row in record_rows(run) if row["right"] is not None]
        written += [folder / f"results_{date}.json", folder / f"samples_{task}_{date}.jsonl"]
        results = _results(run, rows, model, task, created.timestamp())
        written[-2].write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        with written[-1].open("w", encoding="utf-8") as stream:
            for number, row in enumerate(rows):
                stream.write(json.dumps(_sample(number, row), ensure_ascii=False) + "\n")
    return written


def _results(run: Run, rows: list[dict[str, Any]], model: str, task: str, date: float) -> dict[str, Any]:
    n, settings = len(rows), run.header.settings
    accuracy = sum(row["right"] for row in rows) / n if n else None
    # The standard error of a mean with n - 1, as that harness computes it.
    error = None if accuracy is None or n < 2 else math.sqrt(accuracy * (1 - accuracy) / (n - 1))
    summary = summarize(run)
    return {
        "results": {
            task: {
                "alias": task,
                "sample_len": n,
                "acc,none": accuracy,
                "acc_stderr,none": "N/A" if error is None else error,
            }
        },
        "group_subtasks": {task: []},
        "configs": {task: {"task": task, "output_type": "generate_until", "num_fewshot": 0, "repeats": 1}},
        "versions": {task: 1.0},
        "n-shot": {task: 0},
        "higher_is_better": {task: {"acc": True}},
        "n-samples": {task: {"original": run.header.data.questions, "effective": n}},
        "config": {
            "model": "edgebench",
            "model_args": f"engine={settings.engine},provider={settings.provider}",
            "batch_size": 1,
            "device": None,
            "limit": settings.limit,
            "gen_kwargs": {"do_sample": False, "max_gen_toks": settings.max_new_tokens},
        },
        "git_hash": None,
        "date": date,
        "task_hashes": {},
        "model_source": "edgebench",
        "model_name": model,
        "model_name_sanitized": model,
        "edgebench": {
            "layout": LAYOUT,
            "version": run.header.edgebench,
            **{k: summary[k] for k in ("summary", "scores", "latency_ms", "memory", "settings", "artifact", "host")},
        },
    }


def _sample(number: int, row: dict[str, Any]) -> dict[str, Any]:
    doc = {"id": row["id"], "category": row["category"], "options": json.loads(row["options"] or "{}")}
    said = row["text"] if row["text"] is not None else row["answer"]
    return {
        "doc_id": number,
        "doc": doc,
        "target": row["target"],
        "arguments": {"gen_args_0": {"arg_0": None}},
        "resps": [[said]],
        "filtered_resps": [row["answer"]],
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": None,
        "target_hash": _hash(row["target"]),
        "acc": float(row["right"]),
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
