"""`edgebench import` on a folder as onnx-community publishes them: three graphs, variants, no logits_index."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from tests.conftest import Cli, Exports

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, twin: Path) -> Path:
    """The twin in that layout: graphs in onnx/, all logits, attention_mask and position_ids, an fp16 variant."""
    from edgebench.cache import cache_names
    from edgebench.checkpoints.quiet import quiet
    from edgebench.checkpoints.vision import VisionPart
    from edgebench.export.graphs import trace
    from edgebench.export.wrappers import PortableDecoder

    class AllLogits(PortableDecoder):
        def forward(self, first: Any, attention_mask: Any, position_ids: Any, *past: Any) -> Any:
            return super().forward(first, attention_mask, position_ids, torch.arange(first.shape[1]), *past)

    transformers = pytest.importorskip("transformers")
    folder: Path = tmp_path_factory.mktemp("published") / "llava-ONNX"
    shutil.copytree(twin, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "onnx").mkdir()
    model = transformers.LlavaForConditionalGeneration.from_pretrained(twin, attn_implementation="eager").eval()
    for variant in ("", "_fp16"):
        dtype = torch.float16 if variant else torch.float32
        model = model.to(dtype)
        c = model.config.text_config
        cache = [torch.zeros(1, 2, 3, c.hidden_size // 4, dtype=dtype) for _ in range(2 * c.num_hidden_layers)]
        past, present = cache_names(c.num_hidden_layers)
        positions = torch.arange(3, 8)[None]
        parts: list[tuple[str, Any, tuple[Any, ...], list[str], list[str], tuple[Any, ...]]] = [
            ("vision_encoder", VisionPart(model), (torch.zeros(2, 3, 28, 28),), ["pixel_values"], ["image_features"], ([0],)),
            ("embed_tokens", model.get_input_embeddings(), (torch.zeros(1, 5, dtype=torch.int64),), ["input_ids"], ["inputs_embeds"], ([1],)),
            ("decoder_model_merged", AllLogits(model.model.language_model, model.lm_head), (torch.zeros(1, 5, c.hidden_size), torch.ones(1, 8, dtype=torch.int64), positions, *cache),
             ["inputs_embeds", "attention_mask", "position_ids", *past], ["logits", *present], ([1], [1], [1], *([2] for _ in cache))),
        ]  # fmt: skip
        for name, part, arguments, inputs, outputs, dynamic in parts:
            flat = (*dynamic[:3], tuple(dynamic[3:])) if name.startswith("decoder") else dynamic
            with quiet():
                proto = trace(part.eval(), arguments, inputs=inputs, outputs=outputs, dynamic=flat, opset=18)
            external = {"save_as_external_data": True, "location": f"{name}{variant}.onnx_data", "size_threshold": 1024}
            onnx.save_model(
                proto,
                str(folder / "onnx" / f"{name}{variant}.onnx"),
                **(external if name.startswith("decoder") else {}),
            )
    return folder


def copy(published: Path, cli: Cli) -> Path:
    target = cli.folder / "taken"
    shutil.copytree(published, target)
    return target


def test_it_answers_as_our_own_export_does(cli: Cli, published: Path, exports: Exports, tsv: Path) -> None:
    taken = copy(published, cli)
    done = cli("import", taken, "--json")
    assert done.code == 0, done.err
    manifest = done.json["manifest"]
    assert manifest["parity"] is None
    assert "not measured" in manifest["note"]
    assert manifest["graphs"]["decoder"]["model"]["file"] == "onnx/decoder_model_merged.onnx"
    assert [f["file"] for f in manifest["graphs"]["decoder"]["external"]] == ["onnx/decoder_model_merged.onnx_data"]
    runs = {}
    for name, folder in (("ours", exports("fp32", "portable")), ("theirs", taken)):
        run = cli("run", folder, "--data", tsv, "-o", name, "--json")
        assert run.code in {0, 1}, run.err
        lines = [json.loads(line) for line in (cli.folder / name / "records.jsonl").read_text().splitlines()]
        runs[name] = {line["id"]: line.get("text") for line in lines if line["kind"] == "answer"}
    assert runs["ours"] == runs["theirs"]
    refused = cli("compare", "theirs", "ours")
    assert refused.code == 9
    assert "never compared with its checkpoint" in refused.err


def test_parity_where_the_checkpoint_is_given(cli: Cli, published: Path, twin: Path) -> None:
    taken = copy(published, cli)
    manifest = cli("import", taken, "--weights", twin, "--json").json["manifest"]
    assert {row["what"] for row in manifest["parity"]["rows"]} == {"vision", "prefill", "decode"}
    assert max(row["max_abs_difference"] for row in manifest["parity"]["rows"]) < 1e-4
    again = cli("import", taken)
    assert again.code == 2
    assert "--overwrite" in again.err


def test_variants_for_each_part(cli: Cli, published: Path) -> None:
    taken = copy(published, cli)
    done = cli("import", taken, "--variant", "fp16", "--embed", "", "--json")
    assert done.code == 0, done.err
    graphs = done.json["manifest"]["graphs"]
    assert {k: g["precision"] for k, g in graphs.items()} == {"vision": "fp16", "embed": "fp32", "decoder": "fp16"}
    artifact = read_artifact(taken)
    assert artifact.manifest.decoder is not None
    assert artifact.manifest.decoder.cache_dtype == "float16"
    with OrtEngine(artifact, load_profile("cpu"), {}) as engine:
        assert np.isfinite(engine.prefill(np.array([1, 5, 6]), np.zeros((0, 128), np.float32))).all()
        assert np.isfinite(engine.step(7)).all()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (
            "no-decoder",
            "holds no decoder_model_merged.onnx (there is decoder_model_merged_fp16.onnx; choose with --variant)",
        ),
        ("no-weights", "names the weights"),
        ("garbage", "is no ONNX file"),
        ("swapped", "another layout"),
        ("layers", "has not the 3 layers"),
        ("config", "no config.json"),
    ],
)
def test_other_folders_are_one_line(cli: Cli, published: Path, what: str, says: str) -> None:
    taken = copy(published, cli)
    decoder = taken / "onnx" / "decoder_model_merged.onnx"
    if what == "no-decoder":
        decoder.unlink()
    elif what == "no-weights":
        decoder.with_suffix(".onnx_data").unlink()
    elif what == "garbage":
        decoder.write_bytes(b"not a graph")
    elif what == "swapped":
        shutil.copy(taken / "onnx" / "embed_tokens.onnx", taken / "onnx" / "vision_encoder.onnx")
    elif what == "layers":
        config = json.loads((taken / "config.json").read_text())
        config["text_config"]["num_hidden_layers"] = 3
        (taken / "config.json").write_text(json.dumps(config))
    else:
        (taken / "config.json").unlink()
    done = cli("import", taken)
    assert done.code == 4
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (taken / "manifest.json").exists()
