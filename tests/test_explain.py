"""Files that give a class away, files made alike, and maps whose values are known: real runs of a small real graph."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgebench.benches.base import Image as File
from edgebench.benches.base import Question, Sample
from edgebench.benches.container import container_facts, ready
from edgebench.export.manifests import stamped
from edgebench.manifest import Graph, Preprocess, Source, TensorFact, file_fact, write_manifest
from edgebench.media.decode import decode
from edgebench.metrics.container import guesser
from edgebench.records import Record
from edgebench.report.relevancy import said_markdown
from edgebench.trace import Call, Knowledge
from tests import twins
from tests.conftest import Cli, rarely
from tests.test_run import answers

STEEPNESS = 8.0


def corner_model(folder: Path, batch: int | str = "batch") -> Path:
    """P(forged) = sigmoid(8 x (mean of the left upper quarter, in [0, 1], - 0.5)) of 64 x 64 pixels."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    constants = {"begin": [0, 0], "end": [32, 32], "axes": [2, 3], "over": [1, 2, 3]}
    given = [helper.make_tensor(n, onnx.TensorProto.INT64, [len(v)], v) for n, v in constants.items()]
    given += [helper.make_tensor(n, kind, [], [v]) for n, v in (("half", 0.5), ("steep", STEEPNESS))]
    nodes = [
        helper.make_node("Slice", ["pixel_values", "begin", "end", "axes"], ["corner"]),
        helper.make_node("ReduceMean", ["corner", "over"], ["mean"], keepdims=0),
        helper.make_node("Sub", ["mean", "half"], ["centred"]),
        helper.make_node("Mul", ["centred", "steep"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["p_forged"]),
    ]
    takes = helper.make_tensor_value_info("pixel_values", kind, [batch, 3, 64, 64])
    gives = helper.make_tensor_value_info("p_forged", kind, [batch])
    graph = helper.make_graph(nodes, "corner", [takes], [gives], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    folder.mkdir()
    onnx.save(model, str(folder / "model.onnx"))
    part = Graph(
        model=file_fact(folder, "model.onnx"),
        precision="fp32",
        opset=20,
        inputs=(TensorFact("pixel_values", "float32", (batch, 3, 64, 64)),),
        outputs=(TensorFact("p_forged", "float32", (batch,)),),
    )
    facts: dict[str, Any] = {"labels": ("real", "forged"), "parity": None, "source": Source("none", "0" * 64)}
    names = {"name": "corner", "family": "classifier", "dialect": "portable", "precision": "fp32"}
    pixels = Preprocess(kind="resize", height=64, width=64)
    write_manifest(folder, stamped(**names, **facts, graphs={"classifier": part}, preprocess=pixels))
    return folder


def picture(corner: int, seed: int) -> Image.Image:
    """64 x 64, the left upper quarter of one grey, the rest noise."""
    pixels = np.asarray(twins.picture(seed, 64, 64)).copy()
    pixels[:32, :32] = corner
    return Image.fromarray(pixels)


def labelled(folder: Path, count: int = 12) -> Path:
    """Real pictures as JPEG of quality 75, forged ones as PNG: the files alone give the class away."""
    for label, corner, form in (("real", 60, "JPEG"), ("forged", 200, "PNG")):
        (folder / label).mkdir(parents=True)
        for k in range(count):
            file = folder / label / f"{k:02}.{'jpg' if form == 'JPEG' else 'png'}"
            file.write_bytes(twins.encoded(picture(corner, k), form, **({"quality": 75} if form == "JPEG" else {})))
    return folder


def test_a_run_is_checked_made_alike_and_explained(cli: Cli) -> None:
    corner_model(cli.folder / "corner")
    labelled(cli.folder / "set")
    run = ("run", "corner", "--bench", "images", "--data", "set", "--json", "-o")
    found = cli(*run, "plain").json
    records = answers(cli.folder / "plain")
    assert {json.dumps(r["facts"], sort_keys=True) for r in records} == {
        '{"container": "jpeg", "format": "jpg", "pixels": "64x64", "quality": "75"}',
        '{"container": "png", "format": "png", "pixels": "64x64"}',
    }
    assert found["container"]["guesser"]["auroc"] == 1.0
    rows = {row["value"]: row for row in found["container"]["groups"]["container"]}
    assert (rows["jpeg"]["real"], rows["jpeg"]["forged"], rows["png"]["forged"]) == (12, 0, 12)
    assert [row["value"] for row in found["container"]["groups"]["quality"]] == ["75"]
    assert any("the files give the classes away" in note for note in found["notes"])
    text = cli("report", "plain").out
    assert "Container check" in text
    assert "JPEG quality 75" in text

    alike = cli(*run, "alike", "--equalize", "jpeg96").json
    assert alike["settings"]["equalize"] == "jpeg96"
    assert any("made alike (jpeg96)" in note for note in alike["notes"])
    moved = [a["score"] != b["score"] for a, b in zip(records, answers(cli.folder / "alike"), strict=True)]
    assert sum(moved) > len(moved) / 2, "the model saw another compression"
    assert answers(cli.folder / "alike")[0]["facts"] == records[0]["facts"], "facts are of the files as they came"
    assert (
        "equalize: None / jpeg96"
        in cli("compare", "plain", "alike", "--anyway").err + cli("compare", "plain", "alike").err
    )

    done = cli("explain", "plain", "forged/03.png", "--data", "set", "-o", "map.png", "--json")
    assert done.code == 0, done.err
    value = done.json
    (cells,) = value["maps"]
    assert (len(cells), len(cells[0]), value["questions"], value["cell_pixels"]) == (8, 8, 82, 8)
    assert value["value"] == pytest.approx(STEEPNESS * (200 / 255 - 0.5), abs=1e-4)
    assert value["recorded"] == pytest.approx(value["value"], abs=1e-5)
    # A patch inside covers a quarter of the corner: grey in place of its own 200.
    inside = STEEPNESS * (200 - 128) / 255 / 4
    expected = np.zeros((9, 9))
    share = np.array([0.5, 1, 1, 1, 0.5, 0, 0, 0, 0])
    expected = inside * np.outer(share, share)
    mean = (expected[:-1, :-1] + expected[1:, :-1] + expected[:-1, 1:] + expected[1:, 1:]) / 4
    assert np.array(cells) == pytest.approx(mean, abs=1e-4)
    drawn = np.asarray(Image.open(cli.folder / "map.png"))
    assert drawn.shape[2] == 3
    left, right = drawn[60:480, 12:460], drawn[60:480, 472:920]
    reddened = right[..., 0].astype(int) - right[..., 2] - (left[..., 0].astype(int) - left[..., 2])
    assert reddened[20:180, 20:180].mean() > 40, "the corner is red"
    assert abs(reddened[260:, 260:].mean()) < 1, "the rest is as it was"

    for arguments, code, said in (
        (("forged/99.png", "--data", "set"), 9, "did you mean"),
        (("forged/03.png", "--data", "set", "-o", "map.gif"), 2, "neither"),
        (("forged/03.png", "--data", "other"), 9, "were others"),
        (("forged/03.png", "--data", "set", "--artifact", "another"), 9, "another artifact"),
    ):
        if not (cli.folder / "other").exists():
            labelled(cli.folder / "other", count=2)
            corner_model(cli.folder / "another", batch=1)
        refused = cli("explain", "plain", *arguments)
        assert (refused.code, said in refused.err) == (code, True), refused.err


@pytest.mark.parametrize("batch", [rarely("batch"), 1])
def test_an_engine_for_one_picture_at_a_time_gives_the_same_map(cli: Cli, batch: int | str) -> None:
    corner_model(cli.folder / "corner", batch)
    labelled(cli.folder / "set", count=1)
    assert cli("run", "corner", "--bench", "images", "--data", "set", "-o", "out").code == 0
    done = cli("explain", "out", "real/00.jpg", "--data", "set", "--grid", 4, "--json")
    assert done.code == 0, done.err
    assert done.json["output"] == "out/explain-real-00.jpg.png"
    (cells,) = np.array(done.json["maps"])
    assert cells.max() > 0.05, "grey in place of black speaks for forged: the answer 'real' falls"
    assert np.abs(cells[3:, 3:]).max() < 0.01


def test_files_made_alike_hold_the_pixels_that_the_model_would_have_seen(tmp_path: Path) -> None:
    turned = twins.picture(1, 40, 20)
    exif = turned.getexif()
    exif[0x0112] = 6
    data = twins.encoded(turned, "JPEG", quality=90, exif=exif)
    sample = Sample("x", (File("x", data),), Question("?"), "real", "real")
    for how in ("png", "jpeg96"):
        found = ready(sample, how, orientation="exif")
        seen = decode(found.images[0].read())
        assert seen.shape == (40, 20, 3), "the turn is in the pixels now"
        assert np.array_equal(seen, decode(data)) == (how == "png")
        assert found.facts == {"container": "jpeg", "pixels": "40x20", "quality": "90"}
    assert container_facts(found.images[0])["quality"] == "96"
    assert decode(ready(sample, "png", orientation="ignore").images[0].read()).shape == (20, 40, 3)
    own = twins.encoded(turned, "JPEG", qtables=[[max(1, k) for k in range(64)]] * 2)
    assert container_facts(File("own", own))["quality"].startswith("~")
    for quality in (1, 30, 75, 100):
        file = tmp_path / f"{quality}.jpg"
        file.write_bytes(twins.encoded(turned, "JPEG", quality=quality))
        assert container_facts(File("file", path=file))["quality"] == str(quality)
    broken = Sample("b", (File("b", b"no picture"),), Question("?"), "real", "real")
    assert ready(broken) == broken
    assert "no image" in (ready(broken, "png").problem or "")


def test_the_guesser_is_blind_without_a_signal_and_sees_one_that_is_there() -> None:
    draw = np.random.default_rng(0)
    blind = []
    for _ in range(30):
        files = [("jpeg", str(q), f"{w}x256") for q, w in zip(*draw.choice([75, 90, 256], (2, 300)), strict=True)]
        found = guesser(files, list(draw.random(300) < 0.4))
        assert found is not None
        blind.append(found)
    assert abs(np.mean([auroc for auroc, _ in blind]) - 0.5) < 0.03
    assert sum(low > 0.55 for _, (low, _) in blind) <= 1
    forged = draw.random(400) < 0.5
    # Half of the forged files have a size that no real one has: 0.5 + 0.5 / 2.
    sizes = ["512x512" if f and d < 0.5 else "300x200" for f, d in zip(forged, draw.random(400), strict=True)]
    found = guesser([("png", "", size) for size in sizes], list(forged))
    assert found is not None
    assert found[0] == pytest.approx(0.75, abs=0.05)
    assert found[1][0] < found[0] < found[1][1]
    assert guesser([("png", "", "1x1")] * 20, [True] * 15 + [False] * 5) is None


def test_steps_are_readable_and_none_of_their_text_is_markup() -> None:
    evil = "<script>x</script>\n# not a heading | *not bold* " + "W" * 900
    look = Knowledge("Oban", "found", text="A town.", title="Oban", source="wikipedia", elapsed_ns=1)
    trace = (
        Call("entity", prompt="Name one", text=evil, stages_ns={"total": 5_000_000}, prompt_tokens=9, output_tokens=2),
        Call("analysis", prompt="And?", text="Finish[TEXT SUPPORTS].", knowledge=look),
        Call("image_detector", score=0.25),
    )
    text = said_markdown(Record("a|b", 1, "original", "bbc", answer="textual", method="text_verdict", trace=trace))
    lines = text.splitlines()
    assert lines[0] == "# a\\|b"
    assert [line for line in lines if line.startswith("#")][1:] == [
        "## 1. entity",
        "## 2. analysis",
        "## 3. image detector",
    ]
    assert "5.0 ms, 9 tokens read, 2 written" in text
    assert "Looked up 'Oban': found (Oban, wikipedia)" in text
    assert "P(forged) 0.2500" in text
    assert "<script>" not in text
    assert text.count("W" * 200) >= 4, "nothing of what was said is left out"
    assert math.isclose(text.count("> "), sum(line.startswith("> ") for line in lines))
