"""A run beside the papers' rows: the numbers by the published rule, the conditions, and how a model is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgebench.benches.taxonomy import categories
from edgebench.errors import UsageError
from edgebench.metrics.forensics import forensics_scores
from edgebench.metrics.mmfakebench import Tally
from edgebench.metrics.published import published, table
from edgebench.records import Record
from tests.conftest import Cli
from tests.runs import write_run

ASKED = {
    "scoring": "generate",
    "matcher": "strict",
    "image_path": "official-jpeg75",
    "prompt_style": "llava",
    "max_new_tokens": 2048,
    "perturbation": None,
    "equalize": None,
    "endpoint": None,
    "protocol": None,
    "prompts": None,
    "knowledge": None,
}


def summary(bench: str, scores: dict[str, Any], answered: int, **more: Any) -> dict[str, Any]:
    name = more.pop("name", "own")
    return {
        "settings": ASKED | {"bench": bench} | more,
        "artifact": {"name": name, "precision": "fp16"},
        "data": {"name": "MMFakeBench_val", "questions": 1000},
        "summary": {"answered": answered, "accuracy_interval": (0.0, 1.0)},
        "scores": scores,
        "categories": {slug: {"answered": kind.samples} for slug, kind in categories().items()},
    }


def test_a_run_that_answers_as_the_paper_says_differs_in_nothing() -> None:
    compared = 0
    for row in table("forensics_published_accuracy"):
        count = {slug: kind.samples for slug, kind in categories().items()}
        right = {slug: n * float(row[categories()[slug].code]) / 100 for slug, n in count.items()}
        scores = {"forensics": forensics_scores(right, count)}  # type: ignore[arg-type]
        found = published(summary("forensics", scores, 63292), row["model"].upper())
        assert found is not None
        assert found["model"] == row["model"]
        for line in found["rows"]:
            assert abs(line["difference"]) < 1e-9, line
            assert abs(line["published"] - line["run"]) < 0.0006, line
            compared += 1
    assert compared == 25 * 10


def test_constant_answers_are_the_published_row_and_the_agent_has_its_own() -> None:
    tally = Tally()
    for target, n in (("original", 300), ("textual", 300), ("visual", 100), ("mismatch", 300)):
        for number in range(n):
            tally.add(Record(str(number), 1, target, target), "original")
    own = summary("mmfakebench", {"mmfakebench": tally.scores()}, 1000, protocol="standard")
    found = published(own, "vila llama2-7b")
    assert found is not None
    lines = {line["what"]: line for line in found["rows"]}
    for what in ("F1", "precision", "recall"):
        assert abs(lines[f"macro {what}, four classes"]["difference"]) < 0.0006, "always real is VILA's row"
    assert abs(lines["accuracy, four classes"]["difference"]) < 1e-9
    agent = published(own | {"settings": own["settings"] | {"protocol": "mmd-agent"}}, "GPT-4V ChatGPT")
    assert agent is not None
    assert {line["what"] for line in agent["rows"]} >= {"F1 of textual", "F1 of mismatch"}
    assert agent["rows"][0]["published"] == pytest.approx(0.616)
    mixed = published(own | {"settings": own["settings"] | {"protocol": "mixed(text=a@b)"}})
    assert mixed is not None
    assert [line["published"] for line in mixed["rows"]] == pytest.approx([0.225, 0.476])
    assert published(own) is None
    with pytest.raises(UsageError, match="no model"):
        published(own, "VILA")


def test_the_report_says_what_was_not_the_same(cli: Cli) -> None:
    write_run(cli.folder / "run", name="llava-v1.6-vicuna-7b", precision="int8", perturbation="noise:1")
    found = cli("report", "run", "--json").json["published"]
    assert found["model"] == "LLaVA-NEXT-7B"
    said = {c["what"]: c["same"] for c in found["conditions"]}
    different = {what for what, same in said.items() if same is False}
    assert different == {"matcher", "image path", "max new tokens", "perturbation", "questions answered"}
    assert {what for what, same in said.items() if same is None} == {"precision"}
    shown = cli("report", "run", "--markdown")
    assert "### Beside the published LLaVA-NEXT-7B" in shown.out
    assert "| matcher | forensicsbench-2025, then ChatGPT as the judge | strict |" in shown.out
    overall, task = found["rows"][0], next(r for r in found["rows"] if r["what"] == "task TL")
    assert overall["published"] == 0.429
    assert overall["published_over_what_was_asked"] != 0.429, "six categories were asked"
    assert (task["published_over_what_was_asked"], task["run"], task["difference"]) == (None, None, None)

    other = cli("report", "run", "--published", "mPLUG-Owl2", "--json").json["published"]
    assert other["model"] == "mPLUG-Owl2"
    assert {c["what"] for c in other["conditions"] if c["same"] is False} >= {"prompt style"}
    write_run(cli.folder / "which", name="llava-v1.6-34b", protocol="attribution of seed 0, with introductions")
    which = cli("report", "which", "--json").json["published"]
    assert [(line["what"], line["published"]) for line in which["rows"]] == [("overall", 0.557)]
    assert cli("explain", "which", "0").code == 2
    refused = cli("report", "run", "--published", "mplug")
    assert refused.code == 2
    assert "mPLUG-Owl2" in refused.err
    write_run(cli.folder / "own", name="own")
    assert cli("report", "own", "--json").json["published"] is None
    write_run(cli.folder / "pictures", bench="images")
    assert cli("report", "pictures", "--published", "GPT4o").code == 2


def test_robustness_and_prompts_stand_beside_their_own_tables(cli: Cli) -> None:
    """What was lost and gained, in the paper and here, and what else was not the same."""
    model = {"name": "llava-xtuner-7b"}
    write_run(cli.folder / "clean", **model)
    for level in (1, 2):
        write_run(cli.folder / f"noise-{level}", wrong=20 * level, perturbation=f"noise:{level}", **model)
    shown = cli("report", "clean", "noise-1", "noise-2")
    assert "Beside the published LLaVA-v1.5-7B-XTuner" in shown.out
    (found,) = cli("report", "clean", "noise-1", "noise-2", "--json").json["sweep"]["published"]
    lines = {line["what"]: line for line in found["rows"]}
    noise, lost = lines["noise, mean of 2 levels"], lines["noise, lost against clean"]
    assert (noise["published"], noise["run"]) == (0.626, pytest.approx(0.75 - 30 / 400))
    assert (lost["published"], lost["run"]) == (pytest.approx(0.031), pytest.approx(30 / 400))
    assert lines["blur, mean of 0 levels"]["run"] is None, "it was not run"
    assert {c["what"] for c in found["conditions"] if c["same"] is False} >= {"matcher", "image path"}

    write_run(cli.folder / "hint", wrong=8, prompts="forensic-hint@0123456789ab", **model)
    value = cli("report", "clean", "hint", "--json").json["sweep"]
    (found,) = value["published"]
    lines = {line["what"]: line for line in found["rows"]}
    assert lines["forensic-hint: with it"]["published"] == pytest.approx(0.676)
    assert lines["forensic-hint: gained"]["published"] == pytest.approx(0.019)
    assert lines["forensic-hint: gained"]["run"] == pytest.approx(-8 / 400)
    other = cli("report", "clean", "hint", "--published", "LLaVA-NEXT-34B", "--json").json["sweep"]
    assert other["published"] == [None], "it was not tried with that one"
    assert "sweep" not in cli("report", "noise-1", "hint", "--json").json


def test_the_baselines_of_prompts_are_means_of_the_other_tables() -> None:
    """So it is known what a run's number is to be a mean of."""
    for row in table("forensics_published_prompting"):
        by_code = {r["model"]: r for r in table("forensics_published_accuracy")}.get(row["model"])
        if row["experiment"] == "single_image_to_multi_images" and by_code is not None:
            videos = [float(by_code[k.code]) for k in categories().values() if k.modality == "VID"]
            assert abs(sum(videos) / len(videos) - float(row["baseline"])) < 0.051
        elif row["experiment"] == "forensic_prompt":
            own = {r["model"]: r for r in table("forensics_published_scores")}[row["model"]]
            assert own["overall"] == row["baseline"]


def test_the_tables_are_whole(published_tables: Path) -> None:
    models = {row["model"] for row in table("forensics_published_scores")}
    assert {row["model"] for row in table("forensics_asking")} == models
    assert {row["forensics"] for row in table("names")} - {""} <= models
    whole = {f"{r['model']} {r['language_model']}" for r in table("mmfakebench_published_multiclass")}
    detectors = {r["detector"] for r in table("mmfakebench_published_detectors")}
    assert {row["mmfakebench"] for row in table("names")} - {""} <= whole | detectors
