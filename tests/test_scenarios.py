"""Offline and latency: the same answers, samples a second, and no figure that is not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.batches import BatchRunner
from edgebench.benches.base import Image, Question
from edgebench.engines.ort import OrtEngine
from edgebench.errors import UsageError
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from edgebench.runner import HowToAsk, Query
from edgebench.sweep import Case, cases
from tests import twins
from tests.conftest import Cli, Exports

NATS = 2e-5
"""Options' log-probabilities of one batch and of one question differ by no more, in fp32."""


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def test_offline_answers_as_single_stream_does(cli: Cli, demo_artifact: Path, mini_cache: Path) -> None:
    cli.environment["EDGEBENCH_CACHE"] = str(mini_cache)
    mini = ("run", demo_artifact, "--bench", "forensics-mini", "--limit", 60, "--json")
    alone = cli(*mini, "-o", "alone")
    batched = cli(*mini, "-o", "batched", "--scenario", "offline", "--batch", 3)
    assert (alone.code, batched.code) == (0, 0), batched.err
    base = {r["id"]: r for r in lines(cli.folder / "alone", "answer")}
    others = lines(cli.folder / "batched", "answer")
    assert len(others) == len(base) == 60
    for record in others:
        twin = base[record["id"]]
        same = ("answer", "text", "finish", "prompt_tokens", "output_tokens", "tiles")
        assert [record.get(k) for k in same] == [twin.get(k) for k in same]
        for letter, nats in record.get("option_logprobs", {}).items():
            assert abs(nats - twin["option_logprobs"][letter]) <= NATS
        assert "stages_ns" not in record
        assert record["peak_memory_bytes"] > 30_000_000
    windows = lines(cli.folder / "batched", "window")
    assert [w["samples"] for w in windows] == [24, 24, 12]
    assert all(sum(w["batches"]) == w["samples"] and max(w["batches"]) == 3 for w in windows)
    found = batched.json
    assert found["latency_ms"] == {}
    assert found["throughput"]["questions_per_s"] is None
    rate = found["throughput"]["offline"]["samples_per_s"]
    assert rate == pytest.approx(60 / (sum(w["total_ns"] for w in windows) / 1e9))
    assert found["engine"]["asked_in_batches"] is True
    assert found["summary"]["accuracy"] == alone.json["summary"]["accuracy"]
    # A kill behind the second window's answers and before its line: they stay, and it counts neither way.
    records = cli.folder / "batched" / "records.jsonl"
    kept = records.read_text().splitlines(keepends=True)
    second = [k for k, line in enumerate(kept) if '"kind":"window"' in line][1]
    records.write_text("".join(kept[:second]) + kept[second][:30])
    resumed = cli(*mini, "-o", "batched", "--scenario", "offline", "--batch", 3, "--resume")
    assert resumed.code == 0, resumed.err
    offline = resumed.json["throughput"]["offline"]
    assert (offline["windows"], offline["answered_in_windows"], offline["answered"]) == (2, 36, 60)
    # Side by side they are right or wrong, not fast or slow.
    both = cli("compare", "alone", "batched", "--json")
    assert both.code == 0, both.err
    assert both.json["speed_compared"] is False
    assert both.json["pairs"][0]["speed"] == []
    assert both.json["pairs"][0]["disagreements"] == []
    shown = cli("compare", "alone", "batched").out
    assert "speed is not compared" in shown
    assert "questions/s" not in shown
    assert "TTFT" not in shown
    page = cli("report", "batched").out
    assert "samples/s" in page
    assert "p90" not in page


def test_options_of_scenarios(cli: Cli, tsv: Path) -> None:
    null = ("run", "--engine", "null", "--data", tsv)
    for more, said in (
        (("--batch", 2), "--batch is for --scenario offline"),
        (("--scenario", "offline", "--reuse"), "does not go with --reuse"),
        (("--min-count", 2), "--min-count is for --scenario latency"),
        (("--scenario", "latency"), "is not for --scenario latency"),
    ):
        refused = cli(*null, *more)
        assert refused.code == 2
        assert said in refused.err
    done = cli(*null, "--scenario", "offline", "-o", "out", "--json")
    assert done.code == 0, done.err
    assert done.json["engine"]["asked_in_batches"] is False
    assert done.json["throughput"]["offline"]["batch_sizes"] == {"1": 40}
    assert "takes one question at a time" in cli("report", "out").out


def test_a_batch_of_the_twin(exports: Exports) -> None:
    """Prompts of several lengths, a picture that is broken, and two rows that end at different tokens."""
    artifact = read_artifact(exports())
    how = HowToAsk("generate", "llava", "lossless", 6, batch=4)
    queries = []
    for number in range(10):
        data = twins.encoded(twins.picture(number)) if number != 4 else b"no picture at all"
        question = Question("Is it real?" + " Or not?" * (number % 2), {"A": "yes", "B": "no"})
        queries.append(Query(str(number), (Image(str(number), data),), question))
    with OrtEngine(artifact, load_profile("cpu-busy"), {}) as engine:
        runner = BatchRunner(engine, artifact, how)
        window = runner.ask_all(queries, 4)
        assert sorted(window.batches) == [1, 4, 4]
        assert window.total_ns > 0
        assert "cannot be decoded" in str(window.answers[4][1]) or "image" in str(window.answers[4][1])
        for query, (answer, reason) in zip(queries, window.answers, strict=True):
            if query.id == "4":
                continue
            assert answer is not None, reason
            single = runner.ask(query)
            assert (answer.text, answer.finish, answer.output_tokens) == (
                single.text,
                single.finish,
                single.output_tokens,
            )
            assert answer.stages_ns == {}
        decoder, rng = artifact.manifest.decoder, np.random.default_rng(0)
        assert decoder is not None
        ids = rng.integers(5, 40, (3, 70))
        none = np.zeros((0, decoder.hidden_size), dtype=np.float32)
        rows = [engine.prefill_batch(ids, none), engine.step_batch(ids[:, 0])]
        for row in range(3):
            for found, alone in zip(rows, (engine.prefill(ids[row], none), engine.step(int(ids[row, 0]))), strict=True):
                assert np.abs(found[row] - alone).max() <= 1e-4


def test_a_batch_that_fails_is_asked_one_by_one(exports: Exports) -> None:
    artifact = read_artifact(exports())
    question = Question("Is it real?", {"A": "yes", "B": "no"})
    queries = [Query(str(k), (Image("p", twins.encoded(twins.picture(k))),), question) for k in range(3)]
    with OrtEngine(artifact, load_profile("cpu-busy"), {}) as engine:
        engine.prefill_batch = lambda ids, features: 1 / 0  # type: ignore[method-assign]
        window = BatchRunner(engine, artifact, HowToAsk("logits", "llava", "lossless", 4, batch=3)).ask_all(queries, 3)
    assert window.batches == (1, 1, 1)
    assert all(answer is not None for answer, _ in window.answers)


def test_a_sweep(cli: Cli, exports: Exports) -> None:
    sizes = "batch=1,2 prompt=2,90 output=1,4"
    done = cli(
        "run", exports(), "--scenario", "latency", "--sweep", sizes, "--min-seconds", 0.05, "--min-count", 12,
        "-o", "sweep", "--json",
    )  # fmt: skip
    assert done.code == 1, "two tokens have no room for a picture"
    rows = done.json["cases"]
    assert len(rows) == 8
    assert json.loads((cli.folder / "sweep" / "latency.json").read_text())["cases"] == rows
    for row in rows:
        if row["case"]["prompt"] == 2:
            assert "has no room" in row["error"]
            continue
        assert row["error"] is None
        assert row["warmups"] >= 3
        assert row["first_ms"] > 0
        stages = row["samples_ns"]
        assert len(stages["total"]) >= 12
        assert sum(stages["total"]) + 1 >= sum(stages["vision"]) + sum(stages["prefill"])
        assert ("tpot" in stages) == ("decode" in stages) == (row["case"]["output"] == 4)
        assert row["latency_ms"]["total"]["p99"] is None, "too few for it"
        assert row["latency_ms"]["total"]["p50"] > 0
    again = cli("run", exports(), "--scenario", "latency", "-o", "sweep")
    assert (again.code, "is not empty" in again.err) == (9, True)


def test_sweeps_as_text() -> None:
    assert cases("") == [Case()]
    assert cases("batch=1,2 output=1,16") == [
        Case(1, None, None, 1),
        Case(1, None, None, 16),
        Case(2),
        Case(2, output=16),
    ]
    for wrong in ("batch=0", "prompt", "prompt=1,x", "batch=1 batch=2", "prompts=3", "prompt=" + ",".join("5" * 300)):
        with pytest.raises(UsageError):
            cases(wrong)


def test_the_first_question_is_apart_without_a_warmup(cli: Cli, tsv: Path, exports: Exports) -> None:
    for flag, n in (("--no-warmup", 7), ("--warmup", 8)):
        done = cli("run", exports(), "--data", tsv, "--limit", 8, "--max-new-tokens", 2, flag, "-o", flag[2:], "--json")
        assert done.code == 0, done.err
        assert done.json["latency_ms"]["total"]["n"] == n
        assert done.json["summary"]["answered"] == 8
        assert done.json["first_question"]["ms"] > 0
    assert "in no figure" in cli("report", "warmup").out
