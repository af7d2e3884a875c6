"""The streaming export against the ordinary one: load everything, trace it, look at every number."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.errors import CheckpointError
from edgebench.export.blocks import int4_rows, int8_rows, nibbles
from edgebench.export.shards import Shards
from edgebench.manifest import read_artifact
from tests import twins
from tests.conftest import Cli, Exports

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
onnx = pytest.importorskip("onnx")
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")


def loaded(twin: Path) -> Any:
    return transformers.LlavaForConditionalGeneration.from_pretrained(twin, attn_implementation="eager").eval()


def tensors(path: Path) -> dict[str, np.ndarray]:
    model = onnx.load(path)
    return {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}


def ordinary(model: Any, folder: Path) -> Path:
    """The portable decoder as torch exports it with its weights in memory, optimised by it."""
    from edgebench.cache import cache_names
    from edgebench.checkpoints.quiet import quiet
    from edgebench.export.graphs import dims
    from edgebench.export.wrappers import PortableDecoder

    c = model.config.text_config
    past, tokens = 3, 5
    cache = [
        torch.zeros(1, c.num_key_value_heads, past, c.hidden_size // c.num_attention_heads)
        for _ in range(2 * c.num_hidden_layers)
    ]
    first = (
        torch.zeros(1, tokens, c.hidden_size),
        torch.ones(1, 8, dtype=torch.int64),
        torch.arange(past, past + tokens)[None],
        torch.tensor([0, 4]),
    )
    names, axes = ["inputs_embeds", "attention_mask", "position_ids", "logits_index"], ([1], [1], [1], [0])
    past_names, present = cache_names(c.num_hidden_layers)
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            PortableDecoder(model.model.language_model, model.lm_head).eval(), (*first, *cache), dynamo=True,
            opset_version=21, dynamic_shapes=(*(dims(a) for a in axes), tuple(dims([2]) for _ in cache)),
            input_names=names + past_names, output_names=["logits", *present], verbose=False,
        )  # fmt: skip
    target = folder / "ordinary.onnx"
    program.save(str(target))
    return target


def test_every_initializer_and_every_logit_equals_the_ordinary_route_s(
    twin: Path, exports: Exports, tmp_path: Path
) -> None:
    import onnxruntime

    model = loaded(twin)
    ours, theirs = exports("fp32", "portable") / "decoder.onnx", ordinary(model, tmp_path)
    state = {name: p.detach().numpy() for name, p in model.named_parameters()}
    found = tensors(ours)
    for name, value in found.items():
        plain = (
            name.removesuffix("_transposed")
            .replace("decoder.", "model.language_model.", 1)
            .replace("head.", "lm_head.", 1)
        )
        if plain in state:
            assert np.array_equal(value, state[plain].T if name.endswith("_transposed") else state[plain]), name
    weights = [n for n in found if n.removesuffix("_transposed").endswith("weight")]
    assert len(weights) == 2 * 9 + 2, "seven products and two norms a layer, the last norm and the head"
    c = model.config.text_config
    rng = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    sessions = [onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]) for p in (ours, theirs)]
    for entry in sessions[0].get_inputs():
        if entry.name.startswith("past"):
            feeds[entry.name] = rng.normal(
                size=(1, c.num_key_value_heads, 4, c.hidden_size // c.num_attention_heads)
            ).astype(np.float32)
    feeds["inputs_embeds"] = rng.normal(size=(1, 6, c.hidden_size)).astype(np.float32)
    feeds["position_ids"] = np.arange(4, 10)[None]
    feeds["logits_index"] = np.arange(6)
    feeds["attention_mask"] = np.ones((1, 10), np.int64)
    mine, other = (s.run(None, feeds) for s in sessions)
    assert len(mine) == len(other)
    assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True))


def rows_of(state: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The checkpoint's rows of one weight of the fused decoder; query, key and value lie one below the other."""
    stem = name.removesuffix(".weight")
    parts = [stem.replace("qkv_proj", f"{k}_proj") for k in "qkv"] if "qkv_proj" in stem else [stem]
    full = [f"{p}.weight" if p == "lm_head" else f"model.language_model.{p}.weight" for p in parts]
    return np.concatenate([state[f] for f in full])


def test_every_weight_of_the_fused_decoder_is_the_checkpoint_s(twin: Path, exports: Exports) -> None:
    state = {name: p.detach().numpy() for name, p in loaded(twin).named_parameters()}
    found = {n: v for n, v in tensors(exports("fp32") / "decoder.onnx").items() if n.endswith(".weight")}
    assert len(found) == 2 * 7 + 2, "five products and two norms a layer, the last norm and the head"
    for name, value in found.items():
        assert np.array_equal(value, rows_of(state, name)), name


def test_quantized_weights_are_those_of_the_checkpoint(twin: Path, exports: Exports) -> None:
    state = {name: p.detach().numpy() for name, p in loaded(twin).named_parameters()}
    for precision in ("int8", "int4"):
        found = tensors(exports(precision) / "decoder.onnx")
        packed = [n for n in found if n.endswith(("_q8", "_q4"))]
        assert len(packed) == 2 * 5 + 1
        for name in packed:
            base = name[:-3]
            weight = rows_of(state, base)
            if name.endswith("_q8"):
                values, scales = int8_rows(weight, found[name].shape[2])
                assert np.array_equal(found[name].reshape(values.shape), (values.astype(int) + 128).astype(np.uint8))
            else:
                quarter, scales, zeros = int4_rows(weight, 2 * found[name].shape[2])
                assert np.array_equal(found[name].reshape(len(weight), -1), nibbles(quarter))
                assert np.array_equal(found[f"{base}_zero_points"].reshape(len(weight), -1), nibbles(zeros))
            assert np.array_equal(found[f"{base}_scales"].reshape(scales.shape), scales)


def test_half_precision_shards_keep_their_embedding(cli: Cli, tmp_path: Path) -> None:
    """An fp16 checkpoint in the names of newer releases: the embedding stays fp16, the rest is read as it is."""
    from safetensors.numpy import load_file, save_file

    folder = twins.write_llava(tmp_path / "twin")
    weights = {k: v.astype(np.float16) for k, v in load_file(folder / "model.safetensors").items()}
    renames = {"language_model.lm_head": "lm_head", "language_model.model.": "model.language_model.",
               "vision_tower.": "model.vision_tower.", "multi_modal_": "model.multi_modal_"}  # fmt: skip
    other = {}
    for name, value in weights.items():
        begin = next(old for old in renames if name.startswith(old))
        other[name.replace(begin, renames[begin], 1)] = value
    assert other.keys() != weights.keys()
    (folder / "model.safetensors").unlink()
    names = sorted(other)
    places = {n: f"model-{k % 2 + 1:05d}-of-00002.safetensors" for k, n in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for k in range(2):
        save_file({n: other[n] for n in names[k::2]}, folder / f"model-{k + 1:05d}-of-00002.safetensors")
    done = cli("export", "llava", "--weights", folder, "--int8", "-o", "out", "--json")
    assert done.code == 0, done.err
    assert done.json["manifest"]["graphs"]["embed"]["precision"] == "fp16"
    embedding = tensors(cli.folder / "out" / "embed.onnx")
    assert [v.dtype for v in embedding.values()] == [np.float16]
    assert done.json["manifest"]["source"]["files"].keys() == {f"model-0000{k}-of-00002.safetensors" for k in (1, 2)}


def test_shards_read_rows_of_every_type(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    rng = torch.Generator().manual_seed(0)
    values = {
        str(kind): torch.randn(6, 5, generator=rng).to(kind)
        for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    }
    save_file(values | {"scalar": torch.tensor(3.5)}, str(tmp_path / "a.safetensors"))
    with Shards(tmp_path) as shards:
        for name, tensor in values.items():
            assert np.array_equal(shards.read(name), tensor.float().numpy())
            assert np.array_equal(shards.read(name, 2, 5), tensor.float().numpy()[2:5])
        assert shards.read("scalar") == 3.5
    save_file({"scalar": torch.tensor(1.0)}, str(tmp_path / "b.safetensors"))
    with pytest.raises(CheckpointError, match=r"which a\.safetensors has too"):
        Shards(tmp_path)
    save_file({"number": torch.tensor([1])}, str(tmp_path / "b.safetensors"))
    with pytest.raises(CheckpointError, match="I64"):
        Shards(tmp_path)


def test_a_kill_leaves_nothing_that_loads(cli: Cli, twin: Path) -> None:
    process = cli.start("export", "llava", "--weights", twin, "-o", "out")
    deadline = time.monotonic() + 120
    while not list(cli.folder.glob(".out.unfinished-*/*.onnx.data")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (cli.folder / "out").exists()
    for rest in cli.folder.glob(".out.unfinished-*"):
        assert not (rest / "manifest.json").exists()
        assert cli("run", rest, "--engine", "ort").code == 6


def test_a_full_disk_is_one_line(cli: Cli, twin: Path) -> None:
    small = cli.folder / "small"
    small.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        done = cli("export", "llava", "--weights", twin, "-o", small / "out")
        assert done.code == 4
        assert "disk is too full" in done.err or "No space left" in done.err
        assert len(done.err.strip().splitlines()) == 1
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert os.path.isdir(small)  # noqa: PTH112


def test_memory_of_the_artifact_is_in_a_file_beside_the_graph(exports: Exports) -> None:
    manifest = read_artifact(exports("int8")).manifest
    for graph in manifest.graphs.values():
        assert [f.file for f in graph.external] == [graph.model.file + ".data"]
        assert graph.model.bytes < 400_000
