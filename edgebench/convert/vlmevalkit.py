"""VLMEvalKit's files: FOLDER/MODEL/T<date>-<time>/MODEL_DATASET.tsv with predictions, and ..._acc.csv with scores.

Source: open-compass/VLMEvalKit, `vlmeval/smp/file.py` (`get_pred_file_path` with PRED_FORMAT=tsv, `build_eval_id`)
and `vlmeval/dataset/utils/multiple_choice.py` (`report_acc`), as of 2026. Its own evaluation reads the predictions
(`--mode eval --reuse`); it needs the column `question` to be there, and our records keep no question text, so it is
empty. Failed questions and those not asked are left out of both files.
"""

from __future__ import annotations

import csv
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edgebench.convert.names import dataset_name, model_name
from edgebench.convert.rows import record_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgebench.records import Run


def write(runs: Sequence[Run], target: Path) -> list[Path]:
    """Predictions and scores of each run; the files written."""
    written = []
    for run in runs:
        model, dataset = model_name(run), dataset_name(run)
        stamp = datetime.fromisoformat(run.header.created).strftime("T%Y%m%d-%H%M%S")
        folder = target / model / stamp
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for row in record_rows(run) if row["right"] is not None]
        written += [folder / f"{model}_{dataset}.tsv", folder / f"{model}_{dataset}_acc.csv"]
        _predictions(rows, run, written[-2])
        _scores(rows, written[-1])
    return written


def _predictions(rows: list[dict[str, Any]], run: Run, path: Path) -> None:
    options = {record.id: record.options or {} for record in run.records()}
    letters = sorted({letter for given in options.values() for letter in given})
    columns = ["index", "question", *letters, "answer", "category", "l2-category", "prediction"]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            given = options[row["id"]]
            said = row["text"] if given and row["text"] is not None else row["answer"]
            writer.writerow(
                [
                    row["id"],
                    "",
                    *(given.get(letter, "") for letter in letters),
                    row["target"],
                    row["category"],
                    row["forgery_type"] or "",
                    said,
                ]
            )


def _scores(rows: list[dict[str, Any]], path: Path) -> None:
    """`report_acc`: the share of hits overall, by l2-category and by category, one line for the split 'none'."""
    groups: dict[str, list[bool]] = {"Overall": []}
    for column in ("forgery_type", "category"):
        for name in sorted({str(row[column]) for row in rows if row[column]}):
            groups.setdefault(name, [])
    for row in rows:
        for name in {"Overall", row["forgery_type"], row["category"]} & groups.keys():
            groups[name].append(row["right"])
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["split", *groups])
        writer.writerow(["none", *(sum(hits) / len(hits) if hits else "" for hits in groups.values())])
