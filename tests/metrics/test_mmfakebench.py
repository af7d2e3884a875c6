"""MMFakeBench's scores against the published tables, as far as these let them be computed."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.metrics.mmfakebench import Tally, macro, scores
from edgebench.prompts.verdicts import CLASSES
from edgebench.records import Record
from edgebench.trace import Call, Knowledge

SAMPLES = {"original": 3000, "textual": 3000, "visual": 1000, "mismatch": 3000}


def percent(found: dict[str, Any] | None) -> list[float]:
    assert found is not None
    return [round(100 * found[key], 1) for key in ("f1", "precision", "recall", "accuracy")]


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"mmfakebench_published_{name}.csv").open() as stream:
        return list(csv.DictReader(stream))


def constant(answer: str) -> dict[str, Any]:
    tally = Tally()
    for target, n in SAMPLES.items():
        for number in range(n // 100):
            tally.add(Record(str(number), 1, target, target), answer)
    return tally.scores()


def test_constant_answers_are_the_published_rows(published_tables: Path) -> None:
    multi = {(r["model"], r["language_model"], r["prompting"]): r for r in table(published_tables, "multiclass")}
    binary = {(r["model"], r["language_model"], r["prompting"]): r for r in table(published_tables, "binary")}
    row = ("VILA", "LLaMA2-7B", "Standard")
    columns = [f"test_{name}" for name in ("f1", "precision", "recall", "accuracy")]
    real, fake = constant("original"), constant("mismatch")
    assert percent(real["multiclass"]) == [11.5, 7.5, 25.0, 30.0] == [float(multi[row][c]) for c in columns]
    assert percent(fake["binary"]) == [41.2, 35.0, 50.0, 70.0] == [float(binary[row][c]) for c in columns]
    assert percent(real["binary"]) == [23.1, 15.0, 50.0, 30.0]
    assert (fake["match_rate"], fake["consistency_rate"]) == (1.0, 1.0)
    assert constant("Z")["match_rate"] == 0.0
    assert constant("Z")["consistency_rate"] is None


def test_a_classifier_has_binary_scores_alone() -> None:
    found = constant("forged")
    assert percent(found["binary"]) == [41.2, 35.0, 50.0, 70.0]
    assert found["multiclass"] is None
    assert found["match_rate"] is None


def test_answers_without_a_class_cost_recall_alone() -> None:
    found = scores({("original", "original"): 1, ("original", "Z"): 1, ("textual", "textual"): 2}, CLASSES)
    assert found is not None
    assert found["classes"]["original"] == {"f1": 2 / 3, "precision": 1, "recall": 0.5, "samples": 2, "answered": 1}
    assert found["precision"] == 0.5, "divided by four classes, those without samples included"
    assert found["recall"] == 0.375
    assert found["accuracy"] == 0.75
    low, high = found["f1_interval"]
    assert low <= found["f1"] <= high


UNMATCHED = {
    ("Otter-Image", "MPT-7B"), ("InstructBLIP", "Vicuna-7B"), ("Qwen-VL", "Qwen-7B"), ("GPT-4V", "ChatGPT"),
    ("LLaVA-1.6", "Vicuna-13B"),
}  # fmt: skip
"""Published rows whose answers did not all name a class, so that two figures do not give the others."""


def test_published_binary_rows_follow_from_their_recall_and_accuracy(published_tables: Path) -> None:
    """Macro recall and accuracy give the recall of each class, and these the published F1 and precision.

    The table is rounded to a tenth; the published figure has to lie within what the rounding leaves open.
    """
    shown = 0
    for row in table(published_tables, "binary"):
        for split in ("val", "test"):
            if not row[f"{split}_f1"] or (row["model"], row["language_model"]) in UNMATCHED:
                continue
            recall, accuracy = float(row[f"{split}_recall"]), float(row[f"{split}_accuracy"])
            possible = []
            for moved, shift in itertools.product((-0.06, 0.0, 0.06), repeat=2):
                fake = (accuracy + shift - 0.6 * (recall + moved)) / 0.4
                real = 2 * (recall + moved) - fake
                if min(real, fake) >= -1 and max(real, fake) <= 101:
                    hit = [min(max(round(1000 * share), 0), 100_000) for share in (real, fake)]
                    matrix = np.array([[3 * hit[0], 300_000 - 3 * hit[0], 0], [700_000 - 7 * hit[1], 7 * hit[1], 0]])
                    possible.append(macro(matrix))
            for key in ("f1", "precision"):
                values = [100 * float(found[key]) for found in possible]
                assert min(values) - 0.13 <= float(row[f"{split}_{key}"]) <= max(values) + 0.13, (row, split, key)
            shown += 1
    assert shown == 29


def test_per_source_overall_is_the_mean_of_the_four_classes(published_tables: Path) -> None:
    rows = table(published_tables, "per_source_f1")
    assert len(rows) == 11
    for row in rows:
        own = [float(row[k]) for k in ("real", "tvd", "vvd", "ccd")]
        assert sum(own) / 4 == pytest.approx(float(row["overall"]), abs=0.08)


def test_consistency_is_the_share_of_the_most_frequent_answer(published_tables: Path) -> None:
    """Shown where the binary table gives that share: models that call nearly everything fake, or real."""
    rates = {row["model"]: float(row["consistency_rate"]) for row in table(published_tables, "following")}
    binary = {
        (r["model"], r["language_model"]): r for r in table(published_tables, "binary") if r["prompting"] == "Standard"
    }
    for name, key, of_real in (
        ("mPLUG-Owl2", ("mPLUG-Owl2", "LLaMA2-7B"), False),
        ("LLaVA-1.6-7B", ("LLaVA-1.6", "Vicuna-7B"), False),
        ("PandaGPT", ("PandaGPT", "Vicuna-7B"), True),
    ):
        recall, accuracy = (float(binary[key][f"val_{k}"]) for k in ("recall", "accuracy"))
        fake = (accuracy - 0.6 * recall) / 0.4
        real = 2 * recall - fake
        called_fake = 0.3 * (100 - real) + 0.7 * fake
        assert (100 - called_fake if of_real else called_fake) == pytest.approx(rates[name], abs=0.5)


def test_groups_calls_and_knowledge_are_counted() -> None:
    tally = Tally()
    looked = Knowledge("x", "unreachable", elapsed_ns=4_000_000)
    trace = (Call("entity"), Call("analysis", knowledge=looked), Call("text_verdict", text="hm"))
    facts = {"type": "artificial rumour", "text_source": "Fever"}
    record = Record("1", 1, "textual", "fever_AI", trace=trace, facts=facts, stages_ns={"total": 2_000_000_000})
    tally.add(record, "visual")
    found = tally.scores()
    row = found["groups"]["type"]["artificial rumour"]
    assert (row["accuracy"], row["binary_accuracy"], row["called_forged"]) == (0.0, 1.0, 1.0)
    assert found["groups"]["image_source"] == {"not stated": row}
    assert found["calls"]["mean"] == 3
    assert found["calls"]["seconds_per_sample"] == 2.0
    assert found["calls"]["unread_conclusions"] == {"text_verdict": 1}
    assert found["knowledge"]["lookups"] == {"unreachable": 1}
    assert found["knowledge"]["lookup_ms"]["mean"] == 4.0
