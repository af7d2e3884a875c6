"""The delta card: numbers that can be worked out by hand, and the card as a person sees it."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING

import pytest

from edgebench.metrics.delta import Judged, delta

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Cli, Exports


def question(right: bool, *, task: str = "BC", kind: str = "ES", **more: object) -> Judged:
    base = {"unparsed": False, "target": "A", "probabilities": None, "score": None, "forged": None, "output_tokens": 2}
    base |= {"answer": "A" if right else "B", "logprobs": None}
    return Judged(right=right, task=task, kind=kind, **(base | more))  # type: ignore[arg-type]


def test_flips_targets_and_groups() -> None:
    base = {str(k): question(k < 80, task="BC" if k < 50 else "TL") for k in range(100)}
    other = {str(k): question(k < 79 or k == 90, task="BC" if k < 50 else "TL") for k in range(100)}
    card = delta(base, other)
    assert (card["paired"]["lost"], card["paired"]["won"]) == (1, 1)
    assert card["accuracy"] == [0.8, 0.8]
    assert [(d["id"], d["base"], d["other"]) for d in card["disagreements"]] == [("79", "A", "B"), ("90", "B", "A")]
    assert card["largest_logprob_difference"] is None
    both_wrong = delta({"1": question(False, answer="B")}, {"1": question(False, answer="C", kind="FSP")})
    assert (both_wrong["paired"]["lost"], len(both_wrong["disagreements"])) == (0, 1)
    assert [t["passed"] for t in card["targets"]] == [True, True]
    tasks = {g["name"]: g for g in card["by_task"]}
    assert (tasks["BC"]["questions"], tasks["BC"]["base"], tasks["BC"]["lost"]) == (50, 1.0, 0)
    assert (tasks["TL"]["lost"], tasks["TL"]["won"], tasks["TL"]["mcnemar_p"]) == (1, 1, 1.0)
    worse = {i: question(j.right and i != "0", task=j.task) for i, j in base.items()}
    assert [t["passed"] for t in delta(base, worse)["targets"]] == [False, False]
    nearly = {str(k): question(k < 799) for k in range(1000)}
    assert [t["passed"] for t in delta({str(k): question(k < 800) for k in range(1000)}, nearly)["targets"]] == [
        True,
        False,
    ]


def test_options_lengths_and_calibration() -> None:
    sure, unsure = {"A": 0.9, "B": 0.1}, {"A": 0.4, "B": 0.6}
    logs = {"A": -1.0, "B": -2.0}
    base = {"1": question(True, probabilities=sure, logprobs=logs), "2": question(True, probabilities=sure)}
    other = {
        "1": question(True, probabilities=sure, output_tokens=4, logprobs={"A": -1.25, "B": -1.9}),
        "2": question(False, probabilities=unsure, unparsed=True),
    }
    card = delta(base, other)
    assert card["option_shift"]["mean_total_variation"] == pytest.approx(0.25)
    assert card["option_shift"]["likeliest_changed"] == 0.5
    assert card["output_length_ratio"] == 6 / 4
    assert card["largest_logprob_difference"] == 0.25
    assert card["unparsed"] == [0, 0.5]
    assert card["calibration_error"][0] == pytest.approx(0.1)
    assert card["calibration_error"][1] == pytest.approx((0.1 + 0.6) / 2)


def test_a_classifier_is_judged_at_the_base_s_threshold() -> None:
    base, other = {}, {}
    for k in range(100):
        forged = k % 2 == 0
        score = 0.4 + 0.004 * k if forged else 0.004 * k
        base[str(k)] = question(True, forged=forged, score=score, output_tokens=None)
        other[str(k)] = question(True, forged=forged, score=score + 0.1, output_tokens=None)
    card = delta(base, other)["classifier"]
    assert card["auroc"][0] == card["auroc"][1]
    assert card["false_positive_rate"][0] == pytest.approx(0.04, abs=0.02)
    assert card["false_positive_rate"][1] > card["false_positive_rate"][0]
    assert card["true_positive_rate"][1] >= card["true_positive_rate"][0]
    assert delta(base, other)["output_length_ratio"] is None


def test_nothing_in_common_is_unknown_and_not_zero() -> None:
    card = delta({"1": question(True)}, {"2": question(True)})
    assert card["accuracy"] == [None, None]
    assert [t["passed"] for t in card["targets"]] == [None, None]
    assert card["unparsed"] == [None, None]
    assert card["option_shift"] is card["classifier"] is card["output_length_ratio"] is None


def test_the_card_of_two_real_runs_and_a_base_that_was_never_checked(cli: Cli, exports: Exports, tsv: Path) -> None:
    for name in ("fp32", "int4"):
        assert cli("run", exports(name), "--data", tsv, "-o", name).code in {0, 1}
    done = cli("compare", "fp32", "int4")
    assert done.code in {0, 1}, done.err
    for word in ("keeps 99 %", "keeps 99.9 %", "option probabilities moved", "expected calibration error", "By task"):
        assert word in done.out
    value = cli("compare", "fp32", "int4", "--json").json["pairs"][0]
    assert value["option_shift"]["questions"] > 0
    assert 0 < value["option_shift"]["mean_total_variation"] < 1
    assert math.isclose(sum(g["questions"] for g in value["by_task"]), value["paired"]["both"])
    shutil.copytree(cli.folder / "fp32", cli.folder / "unchecked")
    header = json.loads((cli.folder / "unchecked" / "run.json").read_text())
    header["artifact"]["parity"] = None
    (cli.folder / "unchecked" / "run.json").write_text(json.dumps(header))
    refused = cli("compare", "unchecked", "int4")
    assert refused.code == 9
    assert "never compared with its checkpoint" in refused.err
    assert cli("compare", "unchecked", "int4", "--anyway").code in {0, 1}
    assert cli("compare", "int4", "unchecked").code in {0, 1}
