"""Classifiers through the command line: export, run, compare, on real detectors and real pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebench.manifest import read_artifact
from tests.conftest import Cli

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("recipe", "file"), [("mesonet-df", "Meso4_DF.h5"), ("mesoinception-df", "MesoInception_DF.h5")]
)
def test_mesonet_from_keras_to_ort(recipe: str, file: str, cli: Cli, shared_data: Path) -> None:
    """From the .h5 file to four right answers in ONNX Runtime, the graph within 1e-5 of torch."""
    done = cli("export", recipe, "--weights", shared_data / "detectors" / "mesonet" / file, "-o", "artifact", "--json")
    assert done.code == 0, done.err
    parity = done.json["manifest"]["parity"]
    assert parity["max_abs_bound"] == 1e-5
    assert max(row["max_abs_difference"] for row in parity["rows"]) <= 1e-5
    done = cli(
        "run",
        "artifact",
        "--bench",
        "images",
        "--data",
        shared_data / "field" / "face_swap_mesonet",
        "-o",
        "out",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json["summary"]["questions"] == done.json["summary"]["answered"] == 4
    assert done.json["summary"]["accuracy"] == 1.0
    assert done.json["scores"]["binary"]["auroc"] == 1.0
    assert done.json["latency_ms"]["total"]["p50"] > 0
    assert done.json["latency_ms"]["total"]["p99"] is None


def test_tiny_ladeda_fp32_and_int8_in_one_report(cli: Cli, shared_data: Path) -> None:
    weights = shared_data / "detectors" / "tiny_ladeda" / "WildRF_Tiny_LaDeDa.pth"
    field = shared_data / "field"
    assert cli("export", "tiny-ladeda-wildrf", "--weights", weights).code == 0
    assert cli("export", "tiny-ladeda-wildrf", "--weights", weights, "--int8", "-o", "weight-only").code == 0
    static = cli("export", "tiny-ladeda-wildrf", "--weights", weights, "--int8", "--calibration", field / "real_bsds")
    assert static.code == 0, static.err
    manifest = read_artifact(cli.folder / "tiny-ladeda-wildrf-int8").manifest
    quantization = manifest.graphs["classifier"].quantization
    assert quantization is not None
    assert quantization.quantized == 5, "four convolutions and the gradient"
    assert "real_bsds, 30 images, sha256:" in (quantization.calibration or "")
    for name in ("tiny-ladeda-wildrf-fp32", "tiny-ladeda-wildrf-int8", "weight-only"):
        done = cli(
            "run",
            name,
            "--bench",
            "images",
            "--data",
            field / "ai_generated_dragon_openfake",
            "-o",
            f"run-{name}",
            "--json",
        )
        assert done.code == 0, done.err
        assert done.json["summary"]["answered"] == 93
    done = cli("compare", "run-tiny-ladeda-wildrf-fp32", "run-tiny-ladeda-wildrf-int8", "run-weight-only", "--json")
    assert done.code == 0, done.err
    base, *others = done.json["runs"]
    assert base["scores"]["binary"]["auroc"] == pytest.approx(0.827, abs=0.002)
    assert sorted(other["artifact"]["precision"] for other in others) == ["int8", "w8a8"]
    for other in others:
        assert abs(other["scores"]["binary"]["auroc"] - base["scores"]["binary"]["auroc"]) < 0.1
        assert other["memory"]["peak_bytes"] > 10_000_000
        assert other["latency_ms"]["vision"]["p90"] > 0
    assert done.json["pairs"][0]["paired"]["both"] == 93
    text = cli("compare", "run-tiny-ladeda-wildrf-fp32", "run-tiny-ladeda-wildrf-int8").out
    for row in ("accuracy", "AUROC", "total, ms", "engine process, peak", "model on disk", "exact McNemar p"):
        assert row in text


def test_minifasnet_finds_the_face_itself(cli: Cli, shared_data: Path) -> None:
    weights = shared_data / "detectors" / "minifasnet" / "2.7_80x80_MiniFASNetV2.pth"
    yunet = str(shared_data / "detectors" / "yunet" / "face_detection_yunet_2023mar.onnx")
    attack = shared_data / "field" / "presentation_attack"
    assert cli("export", "minifasnet-v2", "--weights", weights).code == 0
    done = cli(
        "run", "minifasnet-v2", "--bench", "images", "--data", attack, "--json", "-o", "out", EDGEBENCH_YUNET=yunet
    )
    assert done.code == 0, done.err
    assert done.json["summary"]["accuracy"] == 1.0
    done = cli("run", "minifasnet-v2", "--bench", "images", "--data", attack, "--json", "-o", "blind")
    assert done.code == 1
    assert done.json["summary"]["failed"] == 3
    assert done.json["summary"]["accuracy"] is None
    assert "EDGEBENCH_YUNET" in done.json["summary"]["errors"][0]["error"]


def test_half_precision(cli: Cli, shared_data: Path) -> None:
    weights = shared_data / "detectors" / "tiny_ladeda" / "WildRF_Tiny_LaDeDa.pth"
    done = cli("export", "tiny-ladeda-wildrf", "--weights", weights, "--fp16", "--json")
    assert done.code == 0, done.err
    import onnx

    model = onnx.load(cli.folder / "tiny-ladeda-wildrf-fp16" / "classifier.onnx")
    assert {i.data_type for i in model.graph.initializer if len(i.dims) == 4} == {onnx.TensorProto.FLOAT16}


def test_a_bound_that_is_missed_fails_and_leaves_nothing(cli: Cli, shared_data: Path) -> None:
    from edgebench.config import data_folder

    recipe = (data_folder("recipes") / "tiny-ladeda-wildrf.yaml").read_text()
    recipe = recipe.replace("fp16: {max_abs: 0.05}", "fp16: {max_abs: 1e-9}").replace(
        "name: tiny-ladeda-wildrf", "name: mine"
    )
    (cli.folder / "mine.yaml").write_text(recipe)
    weights = shared_data / "detectors" / "tiny_ladeda" / "WildRF_Tiny_LaDeDa.pth"
    done = cli("export", "mine.yaml", "--weights", weights, "--fp16", "-o", "missed")
    assert done.code == 5
    assert "the bound is 1e-09" in done.err
    assert not [p.name for p in cli.folder.iterdir() if "missed" in p.name]


def test_no_path_of_this_machine_in_an_artifact(cli: Cli, shared_data: Path) -> None:
    weights = shared_data / "detectors" / "mesonet" / "Meso4_DF.h5"
    assert cli("export", "mesonet-df", "--weights", weights).code == 0
    for path in (cli.folder / "mesonet-df-fp32").iterdir():
        data = path.read_bytes()
        assert str(cli.folder).encode() not in data
        assert b"site-packages" not in data
        assert str(Path(__file__).parents[2]).encode() not in data
    json.loads((cli.folder / "mesonet-df-fp32" / "manifest.json").read_text())
