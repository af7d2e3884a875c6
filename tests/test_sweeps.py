"""Forensics-Bench beyond the plain run: robustness, attribution, prompt variants, subsets."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edgebench.benches.attribution import Attribution, forgery_models
from edgebench.benches.base import Image, Question, Sample
from edgebench.benches.forensics import Forensics
from edgebench.benches.selected import Selected
from edgebench.benches.taxonomy import categories
from edgebench.cells import CellRunner, Cells
from edgebench.cli.main import _main
from edgebench.engines.ort import OrtEngine
from edgebench.errors import DataError, SampleError
from edgebench.manifest import read_artifact
from edgebench.media.decode import decode
from edgebench.media.encode import encode
from edgebench.media.perturb import PROTOCOL, Perturbation
from edgebench.profiles import load_profile
from edgebench.prompts.variants import load_variant, variants
from edgebench.report.sweeps import robustness_grid, robustness_tables
from edgebench.runner import HowToAsk, Query, Runner
from edgebench.subset import draw, estimate, half_width
from tests import twins
from tests.conftest import SHARED, Cli, Exports, rarely

if TYPE_CHECKING:
    from numpy.typing import NDArray


def png(pixels: NDArray[np.uint8]) -> bytes:
    return encode(pixels, "png")[1]


def answers(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return {line["id"]: line for line in lines if line["kind"] == "answer"}


def torn(folder: Path, kept: int) -> dict[str, dict[str, Any]]:
    """The answers of a run, which is cut down to so many of them and half a line, as a kill leaves it."""
    whole = answers(folder)
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if '"kind":"answer"' in line.replace(" ", "")]
    path.write_text("".join(lines[: at[kept]]) + lines[at[kept]][:40])
    return whole


def same_answers(folder: Path, whole: dict[str, dict[str, Any]]) -> bool:
    """Whether a run holds these answers, each once."""
    text = (folder / "records.jsonl").read_text()
    once = sum(line.startswith("{") and json.loads(line)["kind"] == "answer" for line in text.splitlines())
    told = ("text", "answer", "target", "option_logprobs", "options")
    now = answers(folder)
    return once == len(whole) and all(
        [now[i].get(k) for k in told] == [a.get(k) for k in told] for i, a in whole.items()
    )


def test_robustness_survives_a_kill_and_answers_as_single_runs_do(cli: Cli, exports: Exports, tsv: Path) -> None:
    pytest.importorskip("cv2")
    command = ("run", exports(), "--data", tsv, "--limit", 3, "--protocol", "robustness", "-o", "all")
    process = cli.start(*command)
    begun = cli.folder / "all" / "pixel-5" / "records.jsonl"
    deadline = time.monotonic() + 120
    while not (begun.exists() and begun.read_bytes().count(b"\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    before = answers(cli.folder / "all" / "noise-3")
    assert 0 < len(before) < 3, "it was killed in the middle"

    done = cli(*command, "--resume", "--json")
    assert done.code == 0, done.err
    grid = done.json["artifacts"][0]
    assert list(grid["perturbations"]) == list(PROTOCOL)
    for row in grid["perturbations"].values():
        levels = [level["accuracy"] for level in row["levels"].values()]
        assert len(levels) == 5
        assert row["average"] == pytest.approx(sum(levels) / 5)
        assert row["difference"] == pytest.approx(row["average"] - grid["clean"]["accuracy"])
    assert before.items() <= answers(cli.folder / "all" / "noise-3").items(), "what was answered is not asked again"
    page = (cli.folder / "all" / "report.html").read_text()
    assert "Robustness: noise" in page
    assert "noise:3: answered in" not in page, "cells have no times that could be pooled"
    assert "against clean" in (cli.folder / "all" / "report.md").read_text()

    told = {}
    for perturbation in ("noise:3", "saturation:1"):
        alone = cli("run", exports(), "--data", tsv, "--limit", 3, "-o", perturbation, "--perturb", perturbation)
        assert alone.code == 0
        for folder in (perturbation, f"all/{perturbation.replace(':', '-')}"):
            found = answers(cli.folder / folder)
            told[folder] = [(i, a["text"], a["option_logprobs"], a["output_tokens"]) for i, a in found.items()]
        assert told[perturbation] == told[folder], "to the last bit"
    # Pictures below 256 pixels have no blocks, so the model would see the clean one again.
    blocks, clean = answers(cli.folder / "all" / "block-4"), answers(cli.folder / "all" / "clean")
    assert any(blocks[i]["option_logprobs"] == clean[i]["option_logprobs"] for i in blocks)
    assert all(a["stages_ns"]["total"] > 0 for a in clean.values())
    assert not any(a.get("stages_ns") for a in blocks.values()), "no time of a cell is its own"


@pytest.mark.parametrize(
    ("precision", "apart"), [("fp32", False), rarely("fp32", True), rarely("int8", False), rarely("portable", False)]
)
def test_cells_answer_to_the_bit_what_single_questions_do(
    exports: Exports, precision: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cv2")
    artifact = read_artifact(exports("fp32", "portable") if precision == "portable" else exports(precision))
    how = HowToAsk("generate", "llava", "lossless", 2)
    hows = [replace(how, perturbation=Perturbation(name, level)) for name in PROTOCOL for level in (1, 5)]
    grey = Image("grey", data=png(np.full((30, 30, 3), 90, np.uint8)))
    pictures = [Image(str(k), data=twins.encoded(twins.picture(k))) for k in range(2)]
    question = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})
    with OrtEngine(artifact, load_profile("cpu-1-thread"), {}) as engine:
        runner, calls = CellRunner(engine, artifact, how), []
        see = engine.see

        def counted(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
            calls.append(len(pixels))
            return see(pixels)

        monkeypatch.setattr(engine, "see", counted)
        runner._same_together = False if apart else None
        for images in ((pictures[0],), (grey, pictures[1], grey), (pictures[0], Image("b", data=b"no"))):
            query = Query("s", tuple(images), question)
            alone: list[Any] = []
            for own in hows:
                try:
                    alone.append(Runner(engine, artifact, own).ask(query))
                except SampleError as error:
                    alone.append(str(error))
            single, calls[:] = sum(calls), []
            told: dict[int, Any] = {}
            for some in runner.ask_cells(Cells(query, tuple(hows), None)):
                assert not told.keys() & some.keys(), "each once"
                told |= some
            together, calls[:] = sum(calls), []
            assert sorted(told) == list(range(12))
            for number, (answer, reason) in told.items():
                if answer is None:
                    assert reason == alone[number]
                else:
                    assert answer.stages_ns == {}
                    assert answer == replace(alone[number], stages_ns={})
            if not apart and grey in images:
                assert together < 0.75 * single, "the grey picture is seen a few times"


@pytest.mark.parametrize("precision", [rarely("int8")])
def test_precisions_side_by_side(cli: Cli, exports: Exports, tsv: Path, precision: str) -> None:
    options = ("--data", tsv, "--limit", 1, "--protocol", "robustness")
    done = cli("run", exports(), "--precisions", exports(precision), *options, "-o", "grid")
    assert done.code == 0, done.err
    assert "Robustness by precision" in done.out
    assert [p.name for p in sorted((cli.folder / "grid").iterdir()) if p.is_dir()] == ["llava-fp32", "llava-int8"]


def test_the_grid_over_precisions() -> None:
    def cell(perturbation: str | None, right: float | None, precision: str) -> tuple[str | None, dict[str, Any]]:
        summary = {"accuracy": right, "accuracy_interval": None, "complete": right is not None, "failed": 0}
        settings = {"endpoint": None, "engine": "ort"}
        artifact = {"name": "m", "precision": precision}
        data = {"questions": 10}
        return perturbation, {"summary": summary, "settings": settings, "artifact": artifact, "data": data}

    levels = [0.7, 0.6, 0.5, 0.4, 0.3]
    runs: list[tuple[str, list[float | None]]] = [("fp32", [*levels]), ("int8", [*levels[:4], None])]
    grids = [
        robustness_grid([cell(None, 0.8, name), *(cell(f"blur:{k}", x, name) for k, x in enumerate(values, 1))])
        for name, values in runs
    ]
    assert grids[0]["perturbations"]["blur"]["average"] == pytest.approx(0.5)
    assert grids[0]["perturbations"]["blur"]["difference"] == pytest.approx(-0.3)
    assert grids[1]["perturbations"]["blur"]["average"] is None, "a level is missing"
    assert grids[1]["complete"] is False
    across = robustness_tables(grids)[-1]
    assert across.rows == (("clean", "80.0 %", "80.0 %"), ("blur", "50.0 %  (-30.0 points)", "–  (–)"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--protocol", "robustness"), "-o FOLDER"),
        (("--protocol", "robustness", "-o", "x", "--perturb", "blur:1"), "--perturb"),
        (("--protocol", "robustness", "-o", "x", "--variants", "all"), "two sweeps"),
        (("--precisions", "ARTIFACT"), "robustness"),
        (("--introductions",), "attribution"),
        (("--variant", "forensic"), "forensic-hint"),
        (("--variant", "given-boxes"), "--boxes FILE"),
        (("--boxes", "x.csv"), "given-boxes"),
        (("--variants", "default,forensic", "-o", "x"), "forensic-hint"),
        (("--subset", "3", "--limit", "3"), "leave one"),
        (("--protocol", "mmd-agent"), "mmfakebench"),
        (("--bench", "images", "--subset", "3"), "categories"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    options: tuple[str, ...], why: str, demo_artifact: Path, tsv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(demo_artifact) if o == "ARTIFACT" else o for o in options]
    assert _main(["run", str(demo_artifact), "--data", str(tsv), *given]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") <= 2


def test_attribution_and_a_subset_of_it(cli: Cli, tmp_path: Path) -> None:
    data = twins.write_tsv(tmp_path / "data.tsv", twins.rows(80))
    command = ("run", "--engine", "null", "--data", data, "--protocol", "attribution")
    assert cli(*command, "-o", "all", "--introductions", "--limit", 8).code == 0
    run = json.loads((tmp_path / "all" / "run.json").read_text())
    assert run["settings"]["protocol"] == "attribution of seed 0, with introductions"
    asked = answers(tmp_path / "all")
    assert Counter(a["target"] for a in asked.values()) == dict.fromkeys("ABCD", 2), "the right place is balanced"
    names = {model.name: code for code, model in forgery_models().items()}
    for answer in asked.values():
        category = categories()[answer["category"]]
        assert category.task == "BC"
        assert len(set(answer["options"].values())) == 4
        assert names[answer["options"][answer["target"]]] == category.model == answer["facts"]["forgery_model"]

    done = cli(*command, "-o", "part", "--subset", 8, "--subset-seed", 3, "--json")
    assert done.code == 0, done.err
    assert "expected half-width" in done.err
    part = json.loads((tmp_path / "part" / "run.json").read_text())["subset"]
    assert part["ids"] == list(answers(tmp_path / "part"))
    assert len(part["ids"]) == 8
    assert done.json["subset"]["of"] == sum(part["strata"].values())
    assert cli(*command, "-o", "part", "--subset", 8, "--subset-seed", 4, "--resume").code == 9
    whole = torn(tmp_path / "all", 3)
    assert cli(*command, "-o", "all", "--introductions", "--limit", 8, "--resume").code == 0
    assert same_answers(tmp_path / "all", whole)


def test_every_forgery_model_is_introduced() -> None:
    assert set(forgery_models()) == {c.model for c in categories().values()} - {"REAL"}
    assert all(len(m.introduction) > 80 for m in forgery_models().values())
    sample = Sample("7", (), Question("q"), "A", "human_entiresynthesis_gan_visibleimage_category")
    put = [Attribution(introductions=told).put(0, sample) for told in (False, True)]
    assert put[0].question.text == "What is the forgery model that is applied to this RGB image?"
    assert put[1].question.text.endswith(put[0].question.text)
    assert put[1].question.text.count("\n") == 4
    assert put[0].question.options == put[1].question.options


def test_variants_are_compared_pair_by_pair(cli: Cli, exports: Exports, tsv: Path) -> None:
    command = ("run", exports(), "--data", tsv, "--limit", 6, "-o", "all", "--variants")
    done = cli(*command, "forensic-hint,separate-frames", "--json")
    assert done.code == 0, done.err
    rows = {row["variant"]: row for row in done.json["variants"]}
    assert list(rows) == ["default", "forensic-hint", "separate-frames"]
    assert rows["default"]["paired"] is None
    assert rows["forensic-hint"]["paired"]["both"] == 6
    tokens = {name: answers(cli.folder / "all" / name)["0"]["prompt_tokens"] for name in rows}
    assert tokens["forensic-hint"] > tokens["default"] == tokens["separate-frames"], "row 0 is no video"
    times = {name: answers(cli.folder / "all" / name)["0"]["stages_ns"].keys() for name in rows}
    assert "total" in times["default"] & times["forensic-hint"]
    assert times["separate-frames"] == {"read"}, "the same pictures and words: its answer was there, no time is its own"
    whole = {name: torn(cli.folder / "all" / name, kept) for name, kept in (("default", 3), ("forensic-hint", 2))}
    again = cli(*command, "forensic-hint,separate-frames", "--resume", "--json")
    assert again.json["variants"] == done.json["variants"]
    assert all(same_answers(cli.folder / "all" / name, found) for name, found in whole.items())
    assert cli("compare", "all/default", "all/forensic-hint").code == 9, "they were not asked the same"


def test_pictures_of_a_variant() -> None:
    four = [np.asarray(twins.picture(k).convert("RGB").resize((40, 40))) for k in range(4)]
    strip = np.concatenate(four, axis=1)
    video = next(c.slug for c in categories().values() if (c.modality, c.task) == ("VID", "BC"))
    sample = Sample("v", (Image("v", data=png(strip)),), Question("q"), "A", video)
    frames = load_variant("separate-frames").put(sample)
    assert [decode(i.read()).tolist() for i in frames.images] == [one.tolist() for one in four]
    row = load_variant("one-row").put(frames)
    assert decode(row.images[0].read()).shape == (512, 2048, 3)
    assert load_variant("one-row").put(sample).images == sample.images
    broken = Sample("b", (Image("b", data=b"no"),), Question("q"), "A", video)
    assert load_variant("separate-frames").put(broken).problem


def test_faces_are_boxed(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = SHARED / "data" / "detectors" / "yunet" / "face_detection_yunet_2023mar.onnx"
    pictures = pytest.importorskip("skimage.data")
    if not weights.is_file():
        pytest.skip("YuNet's weights are not at hand")
    monkeypatch.setenv("EDGEBENCH_YUNET", str(weights))
    human = "human_entiresynthesis_gan_visibleimage_category"
    face = pictures.astronaut()
    sample = Sample("f", (Image("f", data=png(np.concatenate([face, face], axis=1))),), Question("q"), "A", human)
    put = load_variant("visual-prompt").put(sample)
    assert put.facts["boxes"] == "2"
    assert put.question.text.startswith("q Pay attention")
    red = (decode(put.images[0].read()) == (255, 0, 0)).all(axis=2)
    assert 500 < red.sum() < 20000
    assert red[:, :512].any()
    assert red[:, 512:].any()
    nothing = Sample("n", (Image("n", data=png(np.zeros((64, 64, 3), np.uint8))),), Question("q"), "A", human)
    assert load_variant("visual-prompt").put(nothing).question == nothing.question


def test_given_boxes_are_drawn(cli: Cli, tsv: Path) -> None:
    (cli.folder / "boxes.csv").write_text("id,x,y,width,height\n0,2,3,20,10\n0,9,9,9,9\n")
    given = ("--variant", "given-boxes", "--boxes", "boxes.csv")
    done = cli("run", "--engine", "null", "--data", tsv, "--limit", 2, *given, "-o", "boxed")
    assert done.code == 0, done.err
    found = answers(cli.folder / "boxed")
    assert [found[i]["facts"]["boxes"] for i in ("0", "1")] == ["2", "0"]
    label = json.loads((cli.folder / "boxed" / "run.json").read_text())["settings"]["prompts"]
    variant = load_variant("given-boxes", cli.folder / "boxes.csv")
    assert label == variant.label
    grey = Image("p", data=png(np.full((64, 64, 3), 128, np.uint8)))
    nir = next(c.slug for c in categories().values() if c.semantic != "HS")
    put = variant.put(Sample("0", (grey,), Question("q"), "A", nir))
    assert put.question.text == "q Pay attention to what is in the boxes."
    red = (decode(put.images[0].read()) == (255, 0, 0)).all(axis=2)
    assert red[3, 2:22].all()
    assert not red[25:].any()
    assert variant.put(Sample("5", (grey,), Question("q"), "A", nir)).images == (grey,)
    for text, why in (
        ("id,x,y,width,height\n0,2,3,0,10\n", "line 2"),
        ("id,x,y\n", "width, height"),
        ("id,x,y,width,height\n0,a,3,1,1\n", "is no box"),
        ("id,x,y,width,height\n", "no box"),
    ):
        (cli.folder / "boxes.csv").write_text(text)
        with pytest.raises(DataError, match=why):
            load_variant("given-boxes", cli.folder / "boxes.csv")
    (cli.folder / "boxes.csv").write_text("id,x,y,width,height\n0,900,3,20,10\n")
    outside = load_variant("given-boxes", cli.folder / "boxes.csv").put(Sample("0", (grey,), Question("q"), "A", nir))
    assert "not in the picture of 64 x 64" in (outside.problem or "")


def test_variants_have_a_name_for_every_wording() -> None:
    labels = [variant.label for variant in variants().values()]
    assert labels[0] is None
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("size", "attribution", "most"),
    [(2000, False, 0.024), (224, False, 0.08), rarely(1000, False, 0.04), (130, True, 0.11)],
)
def test_the_interval_of_a_subset_covers_the_whole(
    size: int, attribution: bool, most: float, published_tables: Path
) -> None:
    """The published accuracies of all models in the categories of 63,292 questions; a hundred seeds each."""
    with (published_tables / "forensics_published_accuracy.csv").open() as stream:
        models = list(csv.DictReader(stream))
    kinds = [c for c in categories().values() if not attribution or Attribution().takes(c.slug)]
    ids = [f"{c.code}-{k}" for c in kinds for k in range(c.samples)]
    slugs = [c.slug for c in kinds for _ in range(c.samples)]
    subset = draw(ids, slugs, size, 0)
    slug_of = dict(zip(ids, slugs, strict=True))
    counts = Counter(slug_of[i] for i in subset.ids)
    assert subset.size == sum(counts.values()) == size
    assert set(counts) == set(slugs), "every category is asked"
    expected = half_width(subset.strata, counts)
    assert expected is not None
    assert expected < most
    # A draw of its own for each seed, by ranks that are as random as those of the hash and faster to make.
    generator = np.random.default_rng(0)
    covered = {}
    for model in models:
        hits = {c.slug: round(float(model[c.code]) / 100 * c.samples) for c in kinds}
        whole, found = sum(hits.values()) / len(ids), []
        for _ in range(100):
            drawn = {
                s: (n, int(generator.hypergeometric(hits[s], subset.strata[s] - hits[s], n))) for s, n in counts.items()
            }
            found.append(estimate(subset.strata, drawn))
        covered[model["model"]] = sum(f["interval"][0] <= whole <= f["interval"][1] for f in found)
        estimates = [f["accuracy"] for f in found]
        assert np.mean(estimates) == pytest.approx(whole, abs=6 * expected / 1.96 / 10), "the estimate has no bias"
        assert np.mean([(f["interval"][1] - f["interval"][0]) / 2 for f in found]) < 1.02 * expected, "as it was said"
    assert covered["LLaVA-NEXT-34B"] >= 93
    assert np.mean(list(covered.values())) >= 94.5, covered
    assert min(covered.values()) >= 90, covered


def test_two_machines_draw_the_same_questions(tmp_path: Path) -> None:
    rows = twins.rows(60)
    drawn: list[Selected] = []
    for order in (rows, rows[::-1]):
        bench = Forensics.open(twins.write_tsv(tmp_path / f"{len(drawn)}.tsv", order))
        drawn.append(Selected(bench, subset=30, seed=7))
        assert drawn[-1].subset is not None
        assert tuple(sample.id for sample in drawn[-1].samples()) == drawn[-1].subset.ids, "exactly those are asked"
    one, other = (d.subset for d in drawn)
    assert one is not None
    assert other is not None
    assert set(one.ids) == set(other.ids), "whatever the order of the file"
    assert one.strata == other.strata
    again = draw(list(one.ids), ["x"] * 30, 10, 7)
    assert again == draw(list(one.ids), ["x"] * 30, 10, 7)
    assert set(again.ids) != set(draw(list(one.ids), ["x"] * 30, 10, 8).ids)


def test_a_subset_of_all_is_certain_and_one_without_a_category_unknown() -> None:
    every = draw(["a", "b", "c"], ["x", "x", "y"], 10, 0)
    assert every.ids == ("a", "b", "c")
    assert estimate(every.strata, {"x": (2, 1), "y": (1, 1)})["interval"] == (2 / 3, 2 / 3)
    assert estimate(every.strata, {"x": (2, 1)}) == {
        "accuracy": None,
        "interval": None,
        "categories_without_answers": 1,
    }
    assert half_width(every.strata, {"x": 1}) is None
    perfect = estimate({"x": 1000, "y": 1000}, {"x": (20, 20), "y": (20, 20)})["interval"]
    assert perfect[0] < 0.95
    assert perfect[1] == pytest.approx(1)
