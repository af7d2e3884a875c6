"""HAMMER: a checkpoint of its published layout with random weights, against transformers' ViT and BERT; in a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from edgebench.prompts.captions import CaptionTokens
from tests import news
from tests.conftest import Cli, exported
from tests.export.test_text_classifier import answers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WIDTH, LAYERS, FUSION, PATCH, WORDS = 128, 4, 2, 64, 40
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "##s",
    "##ry",
    *"abcdefghijklmnopqrstuvwxyz",
    "fer",
    "minister",
    "the",
]
VOCABULARY += [f"[unused{k}]" for k in range(WORDS - len(VOCABULARY))]


def layers() -> tuple[Any, Any]:
    """ViT and the layers of BERT that read text alone, as transformers has them."""
    vit = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=4 * WIDTH, image_size=256,
        patch_size=PATCH, layer_norm_eps=1e-6,
    )  # fmt: skip
    bert = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=FUSION, num_attention_heads=2,
        intermediate_size=4 * WIDTH, max_position_embeddings=32,
    )  # fmt: skip
    kinds = (transformers.ViTModel(vit, add_pooling_layer=False), transformers.BertModel(bert, add_pooling_layer=False))
    return kinds[0].eval(), kinds[1].eval()


def names(vit: dict[str, Any]) -> dict[str, Any]:
    """ViT's tensors by DeiT's names."""
    found = {
        "cls_token": vit["embeddings.cls_token"],
        "pos_embed": vit["embeddings.position_embeddings"],
        "patch_embed.proj.weight": vit["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": vit["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": vit["layernorm.weight"],
        "norm.bias": vit["layernorm.bias"],
    }
    stem = next(name for name in vit if re.search(r"layers?\.0\.", name)).split(".0.")[0]
    for k in range(2):
        block = {name.removeprefix(f"{stem}.{k}."): t for name, t in vit.items() if name.startswith(f"{stem}.{k}.")}
        for kind in ("weight", "bias"):
            query, key, value, proj, fc1, fc2 = (
                next(t for name, t in block.items() if re.search(rf"(?:{pattern})\.{kind}$", name))
                for pattern in (
                    *("query|q_proj", "key|k_proj", "value|v_proj"),
                    *(r"attention\.output\.dense|o_proj", r"intermediate\.dense|fc1", r"^output\.dense|fc2"),
                )
            )
            found |= {
                f"blocks.{k}.attn.qkv.{kind}": torch.cat([query, key, value]),
                f"blocks.{k}.attn.proj.{kind}": proj,
            }
            found |= {f"blocks.{k}.mlp.fc1.{kind}": fc1, f"blocks.{k}.mlp.fc2.{kind}": fc2}
            found |= {f"blocks.{k}.norm1.{kind}": block[f"layernorm_before.{kind}"]}
            found |= {f"blocks.{k}.norm2.{kind}": block[f"layernorm_after.{kind}"]}
    return found


def write(folder: Path) -> tuple[Path, dict[str, Any], tuple[Any, Any]]:
    """The checkpoint, all that belongs to it, with BERT's vocabulary beside it."""
    torch.manual_seed(2)
    vit, bert = layers()
    state = {f"visual_encoder.{name}": t for name, t in names(vit.state_dict()).items()}
    state |= {f"text_encoder.bert.{name}": t for name, t in bert.state_dict().items()}
    state["text_encoder.bert.embeddings.position_ids"] = torch.arange(32)[None]
    linear: dict[str, tuple[int, int]] = {"itm_head.0": (256, 128), "itm_head.3": (256, 256), "itm_head.6": (2, 256)}
    normal = {"itm_head.1": 256, "itm_head.4": 256}
    for k in range(FUSION, LAYERS):
        layer = f"text_encoder.bert.encoder.layer.{k}"
        for attention in ("attention", "crossattention"):
            linear |= {f"{layer}.{attention}.self.{part}": (128, 128) for part in ("query", "key", "value")}
            linear[f"{layer}.{attention}.output.dense"] = (128, 128)
            normal[f"{layer}.{attention}.output.LayerNorm"] = 128
        linear |= {f"{layer}.intermediate.dense": (512, 128), f"{layer}.output.dense": (128, 512)}
        normal[f"{layer}.output.LayerNorm"] = 128
    for name, size in linear.items():
        state |= {f"{name}.weight": torch.randn(size) / 8, f"{name}.bias": torch.randn(size[0]) / 8}
    for name, width in normal.items():
        state |= {f"{name}.weight": 1 + torch.randn(width) / 8, f"{name}.bias": torch.randn(width) / 8}
    # What real or fake does not need.
    rest: tuple[str, ...] = (
        "cls_head.0.weight",
        "bbox_head.6.bias",
        "text_encoder.classifier.weight",
        "vision_proj.weight",
        "temp",
    )
    rest += (
        "visual_encoder_m.cls_token",
        "text_encoder_m.bert.embeddings.LayerNorm.weight",
        "image_queue",
        "queue_ptr",
    )
    rest += ("aggregator.in_proj_weight", "it_cross_attn.out_proj.bias", "norm_layer_aggr.bias", "cls_token_local")
    folder.mkdir()
    whole = state | {name: torch.zeros(3) for name in rest}
    torch.save({"model": whole, "epoch": 49, "config": {"image_res": 256}}, folder / "checkpoint_best.pth")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder, state, (vit, bert)


def published(state: dict[str, Any], parts: tuple[Any, Any], pixels: Any, ids: Any) -> float:
    """P(fake): ViT, BERT's first layers, then layers that look at the text and at the picture, by torch's own attention."""
    vit, bert = parts
    functional = torch.nn.functional
    picture = vit(pixel_values=pixels).last_hidden_state
    x = bert(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state

    def linear(name: str, value: Any) -> Any:
        return functional.linear(value, state[f"{name}.weight"], state[f"{name}.bias"])

    def normal(name: str, value: Any, eps: float) -> Any:
        own = state[f"{name}.weight"]
        return functional.layer_norm(value, own.shape, own, state[f"{name}.bias"], eps)

    def attended(name: str, value: Any, other: Any) -> Any:
        q, k, v = (state[f"{name}.self.{part}.weight"] for part in ("query", "key", "value"))
        bias = torch.cat([state[f"{name}.self.{part}.bias"] for part in ("query", "key", "value")])
        found, _ = functional.multi_head_attention_forward(
            value.transpose(0, 1), other.transpose(0, 1), other.transpose(0, 1), WIDTH, 2, None, bias, None, None, False,
            0.0, state[f"{name}.output.dense.weight"], state[f"{name}.output.dense.bias"], training=False,
            use_separate_proj_weight=True, q_proj_weight=q, k_proj_weight=k, v_proj_weight=v,
        )  # fmt: skip
        return normal(f"{name}.output.LayerNorm", found.transpose(0, 1) + value, 1e-12)

    for number in range(FUSION, LAYERS):
        layer = f"text_encoder.bert.encoder.layer.{number}"
        x = attended(f"{layer}.crossattention", attended(f"{layer}.attention", x, x), picture)
        inner = functional.gelu(linear(f"{layer}.intermediate.dense", x))
        x = normal(f"{layer}.output.LayerNorm", linear(f"{layer}.output.dense", inner) + x, 1e-12)
    x = x[:, 0]
    for place in (0, 3):
        x = functional.gelu(normal(f"itm_head.{place + 1}", linear(f"itm_head.{place}", x), 1e-5))
    return float(linear("itm_head.6", x).softmax(-1)[0, 1])


def cleaned(caption: str, words: int) -> str:
    """The published cleaning."""
    caption = re.sub(r"([,.'!?\"()*#:;~])", "", caption.lower()).replace("-", " ").replace("/", " ")
    caption = re.sub(r"\s{2,}", " ", caption.replace("<person>", "person")).rstrip("\n").strip(" ")
    return " ".join(caption.split(" ")[:words])


def test_the_graph_answers_as_the_published_parts_and_decides_the_match(cli: Cli, demo_artifact: Path) -> None:
    folder, state, parts = write(cli.folder / "weights")
    graph = exported("hammer", folder, cli.folder / "hammer")
    artifact = read_artifact(graph)
    manifest = artifact.manifest
    assert manifest.kind == "image-text-classifier"
    assert manifest.text_input is not None
    tokens = CaptionTokens(artifact.path(manifest.text_input.tokenizer), 127)
    theirs = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    for caption in (
        'The minister: "ferry-men/ferries" (a <person>)  sang!\n',
        " Café, the\n\nend  ...",
        "the " * 60 + "ferry",
        "a  b" * 49 + " c d",
        "",
    ):
        wanted = theirs(cleaned(caption, 50), max_length=128, truncation=True).input_ids[:-1]
        assert tokens.ids(caption).tolist() == wanted, caption
    tokens = CaptionTokens(artifact.path(manifest.text_input.tokenizer), manifest.text_input.longest)
    draw, found = np.random.default_rng(1), []
    with OrtEngine(artifact, load_profile("cpu-1-thread"), {}) as engine:
        for caption in ("", "The minister", "A ferry, and a ferry, and a ferry, and a ferry, and a ferry"):
            pixels, ids = draw.normal(size=(1, 3, 256, 256)).astype(np.float32), tokens.ids(caption)
            with torch.inference_mode():
                wanted = published(state, parts, torch.from_numpy(pixels), torch.from_numpy(ids[None]))
            found.append(float(engine.match(pixels, ids)[0]))
            assert found[-1] == pytest.approx(wanted, abs=1e-5)
        other = float(engine.match(-pixels, ids)[0])
    assert abs(other - found[-1]) > 1e-3, "the picture counts"
    assert abs(found[0] - found[1]) > 1e-3, "the caption counts"

    data = news.write(cli.folder)
    alone = cli("run", graph, "--bench", "mmfakebench", "--data", data, "-o", "alone", "--json")
    assert alone.code == 0, alone.err
    assert alone.json["scores"]["mmfakebench"]["binary"]["samples"] == 10
    p = {r["id"]: r["score"] for r in answers(cli.folder / "alone")}
    assert len(set(p.values())) == 10
    common = ("run", demo_artifact, "--bench", "mmfakebench", "--data", data, "--limit", 3, "--max-new-tokens", 4)
    mixed = cli(*common, "--protocol", "mixed", "--cross-detector", graph, "-o", "mixed", "--json")
    assert mixed.code == 0, mixed.err
    for record in answers(cli.folder / "mixed"):
        last = record["trace"][-1]
        assert last["step"] == "cross_detector", "the demo model's few words refute nothing"
        assert last["score"] == pytest.approx(p[record["id"]], abs=1e-6)
        assert record["answer"] == ("mismatch" if last["score"] >= 0.5 else "original")
    map_of = cli("explain", "alone", next(iter(p)), "--data", data, "--artifact", graph, "--grid", 2, "--json")
    assert map_of.code == 0, map_of.err
    assert map_of.json["measure"] == "log-odds"


def test_other_checkpoints_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from edgebench.cli.main import _main

    folder, state, _ = write(tmp_path / "weights")
    for change, said in (
        ({"itm_head.6.bias": torch.zeros(3)}, "misshaped tensors, such as itm_head.6.bias [3] for [2]"),
        ({"head.weight": torch.zeros(1)}, "unexpected tensors, such as head.weight"),
        ({"visual_encoder.pos_embed": None}, "it has no tensor 'visual_encoder.pos_embed'"),
        ({"visual_encoder.pos_embed": torch.zeros(1, 10, WIDTH)}, "takes pictures of 192 x 192, the recipe 256 x 256"),
        (None, "has neither vocab.txt nor tokenizer.json"),
    ):
        if change is None:
            (folder / "vocab.txt").unlink()
        else:
            torch.save({n: t for n, t in (state | change).items() if t is not None}, folder / "checkpoint_best.pth")
        assert _main(["export", "hammer", "--weights", str(folder), "-o", str(tmp_path / "out")]) == 4
        told = capsys.readouterr().err
        assert said in told
        assert "Traceback" not in told
    assert not (tmp_path / "out").exists()
