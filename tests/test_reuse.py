"""`--reuse`: the same answers, with less work where two questions share pictures or the beginning of the prompt."""

from __future__ import annotations

import dataclasses

import pytest

from edgebench.benches.base import Image, Question
from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from edgebench.runner import Answer, HowToAsk, Query, Runner
from tests import twins
from tests.conftest import Cli, Exports

AUTHENTIC = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})
MASKS = Question("Which segmentation map denotes the forged area?", {"A": "x", "B": "y", "C": "w", "D": "h"})


def pictures(*seeds: int) -> tuple[Image, ...]:
    return tuple(Image(str(seed), data=twins.encoded(twins.picture(seed))) for seed in seeds)


def asked(exports: Exports, precision: str, dialect: str, *, reuse: bool) -> list[Answer]:
    artifact = read_artifact(exports(precision, dialect))
    how = HowToAsk("generate", "llava", "lossless", 4, reuse=reuse)
    with OrtEngine(artifact, load_profile("cpu-1-thread"), {}) as engine:
        runner = Runner(engine, artifact, how)
        first = Query("w", pictures(1), AUTHENTIC, warmup=True)
        runner.ask(first)
        queries = [
            dataclasses.replace(first, id="a", warmup=False),
            Query("b", pictures(1), MASKS),
            Query("c", pictures(1), MASKS),
            Query("d", pictures(2), MASKS),
            Query("e", pictures(2, 3), AUTHENTIC),
            Query("f", pictures(2, 3), AUTHENTIC),
            Query("g", (), AUTHENTIC),
        ]
        return [runner.ask(query) for query in queries]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_answers_are_the_same_and_work_is_saved(exports: Exports, precision: str) -> None:
    plain, reused = (asked(exports, precision, "ort", reuse=reuse) for reuse in (False, True))
    assert [a.text for a in plain] == [a.text for a in reused]
    for one, other in zip(plain, reused, strict=True):
        assert one.option_logprobs is not None
        assert other.option_logprobs == pytest.approx(one.option_logprobs, abs=1e-5 if precision == "fp32" else 2e-2)
        assert one.reused_tokens is None
        assert (one.tiles, one.prompt_tokens) == (other.tiles, other.prompt_tokens)
    kept = [a.reused_tokens for a in reused]
    lengths = [a.prompt_tokens or 0 for a in reused]
    assert kept[0] == 0, "nothing is taken from the warm-up"
    assert (kept[1] or 0) > 4, "the pictures and the first words"
    assert kept[2] == lengths[2] - 1, "one token is always read"
    assert 0 < (kept[3] or 0) < 8, "another picture: only what stands before it"
    assert kept[5] == lengths[5] - 1
    assert reused[2].stages_ns["vision"] < plain[2].stages_ns["vision"]


def test_graphs_without_such_a_cache_reuse_features_only(exports: Exports) -> None:
    plain, reused = (asked(exports, "fp32", "portable", reuse=reuse) for reuse in (False, True))
    assert [a.option_logprobs for a in plain] == [a.option_logprobs for a in reused]
    assert {a.reused_tokens for a in reused} == {0}


def test_a_run_says_so_and_is_not_compared_with_one_that_did_not(cli: Cli, exports: Exports, tsv: object) -> None:
    for name, options in (("plain", ()), ("reused", ("--reuse",))):
        done = cli("run", exports(), "--data", tsv, "-o", name, *options, "--json")
        assert done.code == 0, done.err
    assert "--reuse" in cli("report", "reused").out
    compared = cli("compare", "plain", "reused")
    assert compared.code == 9
    assert "reuse" in compared.err
