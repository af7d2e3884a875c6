"""A scripted engine and a clock that only the script moves: every statistic of a run is known before it is asked.

The runner, the tokenizer, the matcher, the store and the summary are the real ones; what is expected is computed here
from the script alone, or written down.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.answers import judge
from edgebench.batches import why
from edgebench.benches.base import Image, Question
from edgebench.environment import describe_host
from edgebench.errors import EngineError
from edgebench.metrics.binary import binary_scores
from edgebench.metrics.intervals import early_stopping_rank, order_statistics, wilson
from edgebench.metrics.summary import summarize
from edgebench.profiles import load_profile
from edgebench.records import FORMAT, DataFact, Record, Run, RunHeader, Settings, Sitting, Store
from edgebench.runner import HowToAsk, Query, Runner
from tests import scripted, twins

MS = 1_000_000
COUNT = 240
SLUGS = ("human_entiresynthesis_gan_visibleimage_category", "human_real_real_visibleimage_category")
SAYS = ("A", "B.", "non AI-generated", "hm", "I'm sorry", "A) because of its ears")
"""The sixth is cut off at 20 tokens, the fifth refuses, the fourth says nothing."""
MEANS = ("A", "B", "B", "Z", "Z", "A")
TOKENS = (2, 3, 17, 3, 10, 20)
"""A token a character and one for the end, 20 at most."""
BROKEN, NOT_ASKED = (17, 118, 203), (40,)


def milliseconds(k: int) -> dict[str, int]:
    """What the script takes for question k: vision takes each of 1 to 240 ms once."""
    return {"vision": k * 37 % COUNT + 1, "prefill": 2 * (k * 91 % COUNT) + 5, "step": 3 + k % 4}


class Engine(scripted.ScriptedEngine):
    """Moves the clock as the script says, and fails where it says so."""

    now = question = 0

    def see(self, pixels: Any) -> Any:
        self.now += milliseconds(self.question)["vision"] * MS
        if self.question in BROKEN:
            raise EngineError("the cable is loose")
        return super().see(pixels)

    def prefill(self, ids: Any, features: Any, *, keep: int = 0) -> Any:
        self.now += milliseconds(self.question)["prefill"] * MS
        return super().prefill(ids, features, keep=keep)

    def step(self, token: int) -> Any:
        self.now += milliseconds(self.question)["step"] * MS
        return super().step(token)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, demo_artifact: Path) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("exact")
    (folder / "script.json").write_text(json.dumps([([f"number {k:03}"], SAYS[k % 6]) for k in range(COUNT)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(scripted.SCRIPT, str(folder / "script.json"))
        artifact = scripted.bytewise(demo_artifact, folder / "artifact")
        engine = Engine(artifact, load_profile("cpu"), {})
    runner = Runner(engine, artifact, HowToAsk("generate", "llava", "lossless", 20), clock=lambda: engine.now)
    settings = Settings("scripted", "default", "forensics", "generate", "strict", "llava", "lossless", 20, None)
    header = RunHeader(FORMAT, "2026-01-01", "0", settings, None, DataFact("x.tsv", 1, "f", COUNT))
    sitting = Sitting(
        1, "2026-01-01", describe_host(), {"engine": "scripted"}, "VmHWM", "cpu", load_ns=7 * MS, warmup_ns=9 * MS
    )
    picture = (Image("p", twins.encoded(twins.picture(0))),)
    with Store.create(folder / "run", header) as store:
        store.append(sitting)
        for k in range(COUNT):
            engine.question = k
            question = Question(f"number {k:03}", {"A": "AI-generated", "B": "non AI-generated"}, forged_option="A")
            record = Record(str(k), 1, "AB"[k // 2 % 2], SLUGS[k // 2 % 2], options=question.options, forged_option="A")
            record = record.but(peak_memory_bytes=COUNT - abs(k - 100), took_ns=MS, energy_j=0.25 * (1 + k % 3))
            try:
                answer = runner.ask(Query(str(k), picture, question))
            except EngineError as error:
                store.append(record.but(error=why(error)))
                continue
            if k in NOT_ASKED:
                store.append(record.but(not_asked="it does not suit"))
                continue
            record = record.but(**vars(answer))
            letter, method = judge(record, scoring="generate", matcher="strict")
            store.append(record.but(answer=letter, method=method))
    return summarize(Run(folder / "run"))


ANSWERED = [k for k in range(COUNT) if k not in (*BROKEN, *NOT_ASKED)]
RIGHT = [k for k in ANSWERED if MEANS[k % 6] == "AB"[k // 2 % 2]]


def test_counts_and_accuracy(found: dict[str, Any]) -> None:
    by = [sum(k % 6 == says for k in ANSWERED) for says in range(6)]
    unparsed = [k for k in ANSWERED if k % 6 == 3]
    assert found["summary"] | {"accuracy_note": ""} == {
        "questions": COUNT - 1,
        "answered": COUNT - 4,
        "unparsed": by[3],
        "refused": by[4],
        "failed": 3,
        "not_asked": 1,
        "complete": True,
        "accuracy": len(RIGHT) / len(ANSWERED),
        "accuracy_interval": wilson(len(RIGHT), len(ANSWERED)),
        "accuracy_note": "",
        "cut_off_at_token_limit": by[5],
        "methods": {"content": by[2], "letter": by[0] + by[1] + by[5], "none": by[3], "refusal": by[4]},
        "unparsed_by_right_answer": {t: sum("AB"[k // 2 % 2] == t for k in unparsed) for t in "AB"},
        "errors": [{"error": "engine: the cable is loose", "samples": 3, "ids": [str(k) for k in BROKEN]}],
    }
    for number, slug in enumerate(SLUGS):
        own = [k for k in ANSWERED if k // 2 % 2 == number]
        right = len(set(own) & set(RIGHT))
        assert found["categories"][slug] == {
            "answered": len(own),
            "right": right,
            "unparsed": len(set(own) & set(unparsed)),
            "failed": sum(k // 2 % 2 == number for k in BROKEN),
            "accuracy": right / len(own),
            "interval": wilson(right, len(own)),
        }
    assert found["scores"]["forensics"]["overall"] == pytest.approx(len(RIGHT) / len(ANSWERED), abs=1e-15)


def test_binary_scores(found: dict[str, Any]) -> None:
    """The first token has logit 1 before zeros: P(A) / (P(A) + P(B)) is e / (1 + e), 1 / (1 + e) or a half."""
    near = {"A": math.e / (1 + math.e), "B": 1 / (1 + math.e)}
    score = np.array([near.get(SAYS[k % 6][0], 0.5) for k in ANSWERED])
    forged = np.array([k // 2 % 2 == 0 for k in ANSWERED])
    right = np.array([k in RIGHT for k in ANSWERED])
    binary = found["scores"]["binary"]
    assert (binary["real"], binary["forged"]) == (int((~forged).sum()), int(forged.sum()))
    assert binary["accuracy_on_forged"] == right[forged].mean()
    assert binary["accuracy_on_real"] == right[~forged].mean()
    assert binary["balanced_accuracy"] == (right[forged].mean() + right[~forged].mean()) / 2
    pairs = [np.sign(f - r) for f, r in itertools.product(score[forged].round(6), score[~forged].round(6))]
    assert binary["auroc"] == pytest.approx((np.mean(pairs) + 1) / 2, abs=1e-12)
    again = binary_scores(forged, right, score.round(4))
    for name in ("balanced_accuracy_interval", "auroc_interval", "eer", "eer_interval"):
        assert binary[name] == pytest.approx(again[name])
    for name in ("balanced_accuracy", "auroc", "eer"):
        low, high = binary[f"{name}_interval"]
        assert low < binary[name] < high


def test_every_latency(found: dict[str, Any]) -> None:
    expected: dict[str, list[int]] = {name: [] for name in found["latency_ms"]}
    for k in ANSWERED:
        took = milliseconds(k)
        decode = took["step"] * (TOKENS[k % 6] - 1)
        total = took["vision"] + took["prefill"] + decode
        first = took["vision"] + took["prefill"]
        each = {"preprocess": 0, "vision": took["vision"], "prefill": took["prefill"], "decode": decode, "total": total}
        for name, value in (each | {"ttft": first, "ttft_from_tensor": first, "tpot": took["step"]}).items():
            expected[name].append(value)
    assert set(expected) == {"preprocess", "vision", "prefill", "decode", "total", "ttft", "ttft_from_tensor", "tpot"}
    n = len(ANSWERED)
    for name, values in expected.items():
        ordered, shown = sorted(values), found["latency_ms"][name]
        assert shown["n"] == n
        assert shown["mean"] == pytest.approx(sum(values) / n, rel=1e-15)
        for q in (50, 90, 99):
            assert shown[f"p{q}"] == ordered[math.ceil(q * n / 100) - 1]
            ranks, bound = order_statistics(n, q / 100), early_stopping_rank(n, q / 100)
            assert shown[f"p{q}_interval"] == (None if ranks is None else [ordered[r - 1] for r in ranks])
            assert shown[f"p{q}_early_stopping"] == (None if bound is None else ordered[bound - 1])
    assert found["latency_ms"]["vision"]["p99_interval"] is None, "too few samples"
    (one,) = found["sittings_detail"]
    assert one["answered"] == n
    assert one["latency_ms"]["total"] == found["latency_ms"]["total"]
    speed = found["throughput"]
    assert speed["questions_per_s"] == pytest.approx(n / (sum(expected["total"]) / 1e3), rel=1e-12)
    assert speed["output_tokens_mean"] == sum(TOKENS[k % 6] for k in ANSWERED) / n
    assert speed["prompt_tokens_mean"] == int(speed["prompt_tokens_mean"]), "all prompts have one length"
    assert (found["load_ms"], found["first_question"]["ms"]) == (7, 9)


def test_memory_and_energy(found: dict[str, Any]) -> None:
    assert found["memory"]["peak_bytes"] == COUNT
    joules = [0.25 * (1 + k % 3) for k in ANSWERED]
    energy = found["energy"]
    assert (energy["measured"], energy["answered"]) == (len(joules), len(joules))
    assert energy["joules"] == sum(joules)
    assert energy["joules_per_sample"] == sum(joules) / len(joules)
    assert energy["joules_per_right_answer"] == sum(joules) / len(RIGHT)
    assert energy["watts_mean"] == pytest.approx(sum(joules) / (len(joules) / 1e3))
