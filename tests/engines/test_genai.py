"""onnxruntime-genai beside ONNX Runtime: the same artifact, the same tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebench.engines import genai
from edgebench.engines.genai import GenaiEngine
from edgebench.engines.ort import OrtEngine
from edgebench.errors import EngineError
from edgebench.manifest import Artifact, read_artifact
from edgebench.profiles import load_profile
from tests import twins
from tests.conftest import Cli, rarely

pytest.importorskip("onnxruntime_genai")
pytest.importorskip("transformers")
NONE = np.zeros((0, 0), np.float32)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twins.write_language(tmp_path_factory.mktemp("language") / "twin")


@pytest.mark.parametrize("precision", ["--int8", rarely("--fp32"), rarely("--int4")])
def test_the_same_logits_as_ort(cli: Cli, checkpoint: Path, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit: behind a prompt, behind each greedy token, past the end of the cache, and with a kept prefix."""
    monkeypatch.setattr(genai, "ROOM", 16)
    done = cli("export", "language", "--weights", checkpoint, "-o", "out", "--no-parity", precision)
    assert done.code == 0, done.err
    artifact, profile = read_artifact(cli.folder / "out"), load_profile("cpu-1-thread")
    ids = np.random.default_rng(0).integers(5, 60, 20)
    found = []
    for kind in (OrtEngine, GenaiEngine):
        with kind(artifact, profile, {}) as engine:
            assert engine.keeps_prefix
            logits = [engine.prefill(ids, NONE)]
            logits += [engine.step(int(logits[-1].argmax())) for _ in range(40)]
            logits += [engine.prefill(ids[:12], NONE, keep=7), engine.prefill(ids[:12], NONE), engine.step(7)]
        found.append(np.stack(logits))
        assert all(np.isfinite(row).all() and row.dtype == np.float32 for row in logits)
    assert np.array_equal(*found)
    assert len(set(found[0].argmax(1).tolist())) > 1
    refuses_what_it_does_not_take(artifact)


def refuses_what_it_does_not_take(artifact: Artifact) -> None:
    """Another dialect, models that see, another graph than the manifest's, a library."""
    path = artifact.folder / genai.CONFIG
    config = json.loads(path.read_text())
    decoder = config["model"]["decoder"]
    for key, value, says in (
        ("session_options", {"custom_ops_library": "other.so"}, "session_options.custom_ops_library"),
        ("filename", "../decoder.onnx", r"names the graph '\.\./decoder.onnx'"),
    ):
        decoder[key] = value
        path.write_text(json.dumps(config))
        with pytest.raises(EngineError, match=says), GenaiEngine(artifact, load_profile("cpu"), {}):
            pass
        decoder["session_options"] = {}
    sees = replace(artifact.manifest, graphs=artifact.manifest.graphs | {"vision": artifact.manifest.graphs["decoder"]})
    with pytest.raises(EngineError, match="takes language models of text alone, this is a vision-language model"):
        GenaiEngine(replace(artifact, manifest=sees), load_profile("cpu"), {})
    portable = replace(artifact, manifest=replace(artifact.manifest, dialect="portable"))
    with pytest.raises(EngineError, match="dialect 'ort'"):
        GenaiEngine(portable, load_profile("cpu"), {})
