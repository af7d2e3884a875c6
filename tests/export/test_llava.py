"""LLaVA twins: parity in numbers, an independent check of it, and checkpoints that are broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.benches.base import Image, Question
from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.media.pixels import pixels
from edgebench.profiles import load_profile
from edgebench.prompts.conversation import Conversation
from edgebench.prompts.placing import Placing
from edgebench.runner import HowToAsk, Query, Runner
from tests import twins
from tests.conftest import Cli, Exports, rarely

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
QUESTION = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})


@pytest.mark.parametrize("dialect", ["ort", "portable"])
@pytest.mark.parametrize("images", [1, 3])
def test_fp32_agrees_with_torch_in_prefill_and_16_steps(
    twin: Path, exports: Exports, dialect: str, images: int
) -> None:
    """Not the export's own check: transformers generates from pixels, the engine answers, logits and tokens are compared."""
    artifact = read_artifact(exports("fp32", dialect))
    text = artifact.manifest.text
    assert text is not None
    assert artifact.manifest.preprocess is not None
    batch = np.concatenate(
        [pixels(np.asarray(twins.picture(70 + i)), artifact.manifest.preprocess) for i in range(images)]
    )
    conversation = Conversation(text, artifact.path(text.tokenizer))
    ids = conversation.encode(conversation.prompt(QUESTION, [Placing(1, 4)] * images))
    model = transformers.LlavaForConditionalGeneration.from_pretrained(twin, attn_implementation="eager").eval()
    with torch.inference_mode():
        out = model.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            pixel_values=torch.from_numpy(batch),
            max_new_tokens=17,
            min_new_tokens=17,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    expected = torch.cat(out.logits).numpy()
    with OrtEngine(artifact, load_profile("cpu"), {}) as engine:
        logits = [engine.prefill(np.array(ids), engine.see(batch))]
        tokens = out.sequences[0, len(ids) :].tolist()
        for token in tokens[:16]:
            logits.append(engine.step(token))
        free = engine.prefill(np.array(ids), engine.see(batch))
        greedy = []
        for _ in range(17):
            # transformers was told not to stop, so it never takes the end token.
            free[list(text.eos_token_ids)] = -np.inf
            greedy.append(int(free.argmax()))
            free = engine.step(greedy[-1])
    found = np.stack(logits)
    assert np.abs(found - expected).max() < 1e-4
    assert greedy == tokens


def test_the_manifest_says_what_was_measured(exports: Exports) -> None:
    for precision, dialect, bound in (("fp32", "ort", 1e-4), ("fp32", "portable", 1e-4)):
        parity = read_artifact(exports(precision, dialect)).manifest.parity
        assert parity is not None
        assert parity.relative_rms_bound == 1e-4
        assert {(r.what, "3 fixed images" in r.inputs) for r in parity.rows} == {
            (w, m) for w in ("vision", "prefill", "decode") for m in (False, True)
        }
        assert all(r.max_abs_difference <= bound for r in parity.rows)
        assert all(r.top1_agreement in {1.0, None} for r in parity.rows)
    manifest = read_artifact(exports("int8", "ort")).manifest
    assert manifest.parity is not None
    assert all(r.relative_rms > 1e-4 for r in manifest.parity.rows), "int8 drifts, and the manifest says how much"
    assert manifest.source.files.keys() == {"model.safetensors"}
    assert manifest.graphs["embed"].precision == "fp32"
    assert manifest.graphs["decoder"].quantization is not None
    assert "MatMulNBits, accuracy_level 4" in manifest.graphs["decoder"].quantization.scheme


def test_int8_weights_really_changed_type(exports: Exports) -> None:
    onnx = pytest.importorskip("onnx")
    ort = onnx.load(exports("int8", "ort") / "decoder.onnx")
    kinds = [n.op_type for n in ort.graph.node]
    assert kinds.count("MatMulNBits") == 2 * 5 + 1, "query, key and value are one product"
    assert kinds.count("GroupQueryAttention") == 2
    assert "DynamicQuantizeLinear" not in kinds
    portable = onnx.load(exports("int8", "portable") / "decoder.onnx")
    domains = {n.domain for n in portable.graph.node}
    assert domains <= {"", "ai.onnx"}
    assert [n.op_type for n in portable.graph.node].count("DequantizeLinear") == 15
    fp32 = onnx.load(exports("fp32", "portable") / "decoder.onnx")
    assert portable.ByteSize() < fp32.ByteSize() / 2.5


def test_int4_follows_its_stated_rule(exports: Exports) -> None:
    """Layers in 4 bits with zero points, vision and lm_head in 8, the embedding as it was."""
    onnx = pytest.importorskip("onnx")
    folder = exports("int4")
    decoder = onnx.load(folder / "decoder.onnx")
    bits = [{a.name: a.i for a in n.attribute}["bits"] for n in decoder.graph.node if n.op_type == "MatMulNBits"]
    assert (bits.count(4), bits.count(8)) == (2 * 5, 1)
    assert all(
        len(n.input) == (4 if b == 4 else 3)
        for n, b in zip([n for n in decoder.graph.node if n.op_type == "MatMulNBits"], bits, strict=True)
    )
    vision = onnx.load(folder / "vision.onnx")
    assert {a.i for n in vision.graph.node for a in n.attribute if a.name == "bits"} == {8}
    manifest = read_artifact(folder).manifest
    assert {name: g.precision for name, g in manifest.graphs.items()} == {
        "vision": "int8",
        "embed": "fp32",
        "decoder": "int4",
    }
    assert manifest.parity is not None
    worst = {p: max(r.relative_rms for r in read_artifact(exports(p)).manifest.parity.rows) for p in ("int8", "int4")}  # type: ignore[union-attr]
    assert worst["int8"] < worst["int4"] < 0.3


@pytest.mark.parametrize("dialect", ["ort", rarely("portable")])
def test_int4_answers(cli: Cli, exports: Exports, tsv: Path, dialect: str) -> None:
    done = cli("run", exports("int4", dialect), "--data", tsv, "--limit", 8, "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["answered"] == 8


def test_parity_can_be_left_out_and_the_manifest_says_so(cli: Cli, twin: Path) -> None:
    done = cli("export", "llava", "--weights", twin, "--int8", "--no-parity", "-o", "out")
    assert done.code == 0, done.err
    assert "not measured" in done.out
    manifest = read_artifact(cli.folder / "out").manifest
    assert manifest.parity is None
    assert "not measured" in (manifest.note or "")


def test_the_runner_times_with_the_clock_it_is_given(exports: Exports) -> None:
    artifact = read_artifact(exports("fp32"))
    ticks = iter(range(0, 1_000_000, 10))
    how = HowToAsk("generate", "llava", "lossless", 3)
    data = twins.encoded(twins.picture(1))
    with OrtEngine(artifact, load_profile("cpu"), {}) as engine:
        answer = Runner(engine, artifact, how, clock=lambda: next(ticks)).ask(
            Query("x", (Image("x", data=data),), QUESTION)
        )
    assert answer.stages_ns == {"preprocess": 10, "vision": 10, "prefill": 10, "decode": 10, "total": 40, "read": 10}
    assert answer.output_tokens in {1, 2, 3}
    assert answer.prompt_tokens is not None
    assert answer.prompt_tokens > 4


def broken(twin: Path, folder: Path, what: str) -> Path:
    copy = folder / "broken"
    shutil.copytree(twin, copy)
    weights = copy / "model.safetensors"
    config: dict[str, Any] = json.loads((copy / "config.json").read_text())
    if what == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif what == "garbage":
        weights.write_bytes(b"\xff" * 4096)
    elif what == "none":
        weights.rename(copy / "pytorch_model.bin")
    elif what == "other-shape":
        config["text_config"]["intermediate_size"] = 512
    elif what == "more-layers":
        config["text_config"]["num_hidden_layers"] = 3
    elif what == "fewer-layers":
        config["text_config"]["num_hidden_layers"] = 1
    elif what == "other-family":
        config["model_type"] = "qwen2_vl"
    elif what == "no-tokenizer":
        (copy / "tokenizer.json").unlink()
    elif what == "no-template":
        (copy / "tokenizer_config.json").write_text("{}")
    elif what == "no-processor":
        (copy / "preprocessor_config.json").unlink()
    elif what == "no-config":
        (copy / "config.json").unlink()
        return copy
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("truncated", "is truncated: it ends before"),
        ("garbage", "is no safetensors file"),
        ("none", "pickled weights are not loaded"),
        ("other-shape", "broken"),
        ("more-layers", "missing keys"),
        ("fewer-layers", "unexpected keys"),
        ("other-family", "not a 'llava'"),
        ("no-tokenizer", "no tokenizer.json"),
        ("no-template", "no chat template"),
        ("no-processor", "preprocessor_config.json"),
        ("no-config", "no config.json"),
    ],
)
def test_broken_checkpoints_in_one_line_with_nothing_left(cli: Cli, twin: Path, what: str, says: str) -> None:
    done = cli("export", "llava", "--weights", broken(twin, cli.folder, what), "-o", "out")
    assert done.code == 4, done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not [p for p in cli.folder.iterdir() if "out" in p.name]


def test_weights_that_cannot_be_reached(cli: Cli) -> None:
    done = cli("export", "llava-v1.5-7b", "--int8")
    assert done.code == 4
    assert "pass --weights DIR" in done.err
    assert len(done.err.strip().splitlines()) == 1
    for weights in ("no/such", "nowhere", "/no/such/place"):
        assert cli("export", "llava", "--weights", weights).code == 4
    assert cli("export", "llava").code == 4


def test_an_export_is_not_overwritten_by_accident(cli: Cli, exports: Exports, twin: Path) -> None:
    shutil.copytree(exports("fp32"), cli.folder / "out")
    done = cli("export", "llava", "--weights", twin, "-o", "out")
    assert done.code == 2
    assert "--overwrite" in done.err
    (cli.folder / "mine").mkdir()
    (cli.folder / "mine" / "thesis.txt").write_text("precious")
    assert cli("export", "llava", "--weights", twin, "-o", "mine", "--overwrite").code == 2
    assert (cli.folder / "mine" / "thesis.txt").exists()


def test_engines_trust_only_a_whole_artifact(cli: Cli, exports: Exports, tsv: Path) -> None:
    shutil.copytree(exports("fp32"), cli.folder / "copy")
    graph = cli.folder / "copy" / "vision.onnx"
    data = bytearray(graph.read_bytes())
    data[len(data) // 2] ^= 1
    graph.write_bytes(data)
    done = cli("run", "./copy", "--data", tsv)
    assert done.code == 6
    assert "vision.onnx" in done.err
    (cli.folder / "copy" / "manifest.json").unlink()
    done = cli("run", "./copy", "--data", tsv)
    assert done.code == 6
    assert "unfinished" in done.err
    manifest = json.loads((exports("fp32") / "manifest.json").read_text())
    manifest["graphs"]["vision"]["model"]["file"] = "../../etc/passwd"
    (cli.folder / "copy" / "manifest.json").write_text(json.dumps(manifest))
    done = cli("run", "./copy", "--data", tsv)
    assert done.code == 6
    assert "outside its folder" in done.err
