"""Low memory: the same answers to the bit, and copies that are made, trusted, made again and swept as they should."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines import ort_prepacked
from edgebench.engines.kept import MADE
from edgebench.engines.ort import OrtEngine
from edgebench.engines.ort_prepacked import FOLDER, WEIGHTS, prepacked
from edgebench.errors import EngineError
from edgebench.manifest import Artifact, read_artifact
from edgebench.profiles import load_profile
from tests import twins
from tests.conftest import Cli, Exports, rarely
from tests.test_run import answers


@pytest.fixture
def artifact(tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """An int4 twin of its own, which a test may spoil."""
    monkeypatch.setenv("EDGEBENCH_CACHE", str(tmp_path / "user-cache"))
    return own(exports("int4"), tmp_path / "artifact")


def own(folder: Path, target: Path) -> Artifact:
    shutil.copytree(folder, target)
    return read_artifact(target)


def logits(artifact: Artifact, memory: str) -> list[Any]:
    """Image features, the prompt's logits and those of four tokens: everything that an answer comes from."""
    manifest = artifact.manifest
    assert manifest.text is not None
    assert manifest.text.images is not None
    assert manifest.preprocess is not None
    side = manifest.preprocess.height
    pixels = np.random.default_rng(0).standard_normal((1, 3, side, side)).astype(np.float32)
    with OrtEngine(artifact, load_profile("cpu"), {"memory": memory}) as engine:
        features = engine.see(pixels)
        ids = np.array([1, *[manifest.text.images.id] * len(features), *range(6, 30)])
        found = [features, engine.prefill(ids, features)]
        found += [engine.step(token) for token in (6, 9, 12, 15)]
    return found


@pytest.mark.parametrize(
    ("precision", "dialect"),
    [
        ("fp32", "ort"),
        rarely("fp16", "ort"),
        ("int8", "ort"),
        ("int4", "ort"),
        ("fp32", "portable"),
        rarely("int8", "portable"),
    ],
)
def test_features_and_logits_are_the_same_to_the_bit(
    tmp_path: Path, exports: Exports, precision: str, dialect: str
) -> None:
    artifact = own(exports(precision, dialect), tmp_path / "artifact")
    assert not (artifact.folder / FOLDER).exists()
    normal, low = logits(artifact, "normal"), logits(artifact, "low")
    assert (artifact.folder / FOLDER).is_dir()
    assert len(normal) == 6
    for one, other in zip(normal, low, strict=True):
        assert np.isfinite(one).all()
        assert np.array_equal(one, other)


def test_the_demo_model_answers_the_same_and_says_what_it_cost(cli: Cli, demo_artifact: Path) -> None:
    own(demo_artifact, cli.folder / "demo")
    twins.write_tsv(cli.folder / "data.tsv", twins.rows(8))
    runs = {}
    for name, options in (("normal", []), ("first", ["--memory", "low"]), ("second", ["--memory", "low"])):
        done = cli("run", "demo", "--data", "data.tsv", "--max-new-tokens", 4, *options, "-o", name, "--json")
        assert done.code == 0, done.err
        runs[name] = done.json
    said = [[(r["text"], r["option_logprobs"]) for r in answers(cli.folder / name)] for name in runs]
    assert said[0] == said[1] == said[2]
    assert [runs[name]["settings"]["memory"] for name in runs] == ["normal", "low", "low"]
    assert [runs[name]["engine"].get("prepack_s") is not None for name in runs] == [False, True, False]
    assert runs["first"]["engine"]["prepack_s"] > 0
    assert "pre-packing the weights" in cli("report", "first").out
    assert cli("compare", "normal", "second").code == 0, "the mode changes no answer, so the runs compare"
    refused = cli("run", "demo", "--data", "data.tsv", "-o", "second", "--resume", "--max-new-tokens", 4)
    assert refused.code == 9
    assert "memory 'low' -> 'normal'" in refused.err


def test_a_copy_is_made_once(artifact: Artifact) -> None:
    paths, made = prepacked(artifact)
    assert made
    assert set(paths) == {"vision", "decoder"}
    written = {name: path.stat().st_mtime_ns for name, path in paths.items()}
    again, made = prepacked(artifact)
    assert not made
    assert again == paths
    assert {name: path.stat().st_mtime_ns for name, path in again.items()} == written


def spoil_sidecar(entry: Path) -> None:
    value = json.loads((entry / MADE).read_text())
    value["made_for"]["onnxruntime"] = "0.0.1"
    (entry / MADE).write_text(json.dumps(value))


def spoil_json(entry: Path) -> None:
    (entry / MADE).write_text("{")


def spoil_weights(entry: Path) -> None:
    with (entry / WEIGHTS).open("r+b") as stream:
        stream.truncate(100)


def spoil_by_unfinished(entry: Path) -> None:
    (entry / MADE).unlink()


@pytest.mark.parametrize("spoil", [spoil_sidecar, spoil_json, spoil_weights, spoil_by_unfinished])
def test_a_stale_or_unfinished_copy_is_made_again(artifact: Artifact, spoil: Any) -> None:
    entry = prepacked(artifact)[0]["decoder"].parent
    good = {p.name: p.stat().st_size for p in entry.iterdir()}
    spoil(entry)
    (entry / "left-over").write_text("of the old one")
    paths, made = prepacked(artifact)
    assert made
    assert paths["decoder"].parent == entry
    assert {p.name: p.stat().st_size for p in entry.iterdir()} == good
    assert not prepacked(artifact)[1]


def test_other_weights_take_another_copy_and_old_ones_are_swept(artifact: Artifact) -> None:
    entry = prepacked(artifact)[0]["decoder"].parent
    stale, other_cpu, partial = (entry.with_name(f"decoder-{name}") for name in ("old", "cpu", "x.1.partial"))
    shutil.copytree(entry, stale)
    shutil.copytree(entry, other_cpu)
    value = json.loads((other_cpu / MADE).read_text())
    value["made_for"]["cpu"] = "another"
    (other_cpu / MADE).write_text(json.dumps(value))
    partial.mkdir()
    spoil_by_unfinished(entry)
    assert prepacked(artifact)[1]
    assert entry.exists()
    assert other_cpu.exists(), "another machine that shares the folder keeps its own"
    assert not stale.exists()
    assert not partial.exists()


def test_the_key_knows_the_weights_and_not_only_the_graph(tmp_path: Path, exports: Exports, artifact: Artifact) -> None:
    twin = exports.twin
    other = tmp_path / "other-twin"
    twins.write_llava(other, seed=1)
    done = exports.cli("export", "llava", "--weights", other, "--int4", "--no-parity", "-o", tmp_path / "other")
    assert done.code == 0, done.err
    another = read_artifact(tmp_path / "other")
    assert twin != other
    graphs = [a.manifest.graphs["decoder"] for a in (artifact, another)]
    assert graphs[0].external != graphs[1].external
    names = [prepacked(a)[0]["decoder"].parent.name for a in (artifact, another)]
    assert names[0] != names[1]


def test_a_folder_that_cannot_be_written_uses_the_users_cache(artifact: Artifact, tmp_path: Path) -> None:
    (artifact.folder / FOLDER).write_text("a file in the way")
    paths, made = prepacked(artifact)
    assert made
    assert all(path.is_relative_to(tmp_path / "user-cache" / "ort") for path in paths.values())
    assert not prepacked(artifact)[1]
    (tmp_path / "user-cache").rename(tmp_path / "moved")
    (tmp_path / "user-cache").write_text("a file in the way")
    with pytest.raises(EngineError, match=r"can be written.*EDGEBENCH_CACHE"):
        prepacked(artifact)


def test_too_little_disk_is_said_before_anything_is_written(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_prepacked, "DISK_FACTOR", {True: 1e12, False: 1e12})
    with pytest.raises(EngineError, match=r"GiB for the packed weights of 'vision'.*are free.*--memory low"):
        prepacked(artifact)
    assert [p.name for p in (artifact.folder / FOLDER).iterdir()] == ["lock"]


def test_a_graph_that_does_not_load_is_one_line_and_leaves_nothing(artifact: Artifact) -> None:
    (artifact.folder / "vision.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match="'vision' cannot be packed") as raised:
        prepacked(artifact)
    assert "\n" not in str(raised.value)
    assert [p.name for p in (artifact.folder / FOLDER).iterdir()] == ["lock"]


def test_engines_without_the_mode_refuse_it(cli: Cli, artifact: Artifact) -> None:
    twins.write_tsv(cli.folder / "data.tsv", twins.rows(1))
    null = cli("run", "--engine", "null", "--data", "data.tsv", "--memory", "low")
    assert null.code == 2
    assert "no low-memory mode" in null.err
    with pytest.raises(EngineError, match="for the provider cpu"):
        OrtEngine(artifact, load_profile("cpu"), {"memory": "low", "provider": "cuda"})
