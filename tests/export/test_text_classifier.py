"""Classifiers of text, alone and as a detector in MMFakeBench's hierarchy; CNNSpot's network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from edgebench.prompts.captions import CaptionTokens
from tests import news, twins
from tests.conftest import Cli, exported

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def write_roberta(folder: Path, labels: tuple[str, ...] = ("fake", "real")) -> Path:
    """RoBERTa of two layers with random weights, 40 positions, and a word-level tokenizer."""
    torch.manual_seed(3)
    config = transformers.RobertaConfig(
        vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=42, type_vocab_size=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        id2label=dict(enumerate(labels)), label2id={v: k for k, v in enumerate(labels)},
    )  # fmt: skip
    model = transformers.RobertaForSequenceClassification(config).eval()
    with torch.no_grad():
        # Livelier than untrained weights are, so that answers differ from text to text.
        for name, weight in model.named_parameters():
            if name.endswith("weight") and "LayerNorm" not in name and "position" not in name:
                weight *= 12
    model.save_pretrained(folder)
    twins.tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_roberta(tmp_path_factory.mktemp("roberta") / "roberta")


@pytest.fixture(scope="module")
def text(checkpoint: Path) -> Path:
    return exported("text-classifier", checkpoint, checkpoint.with_name("text"))


def test_the_graph_answers_as_the_checkpoint(checkpoint: Path, text: Path) -> None:
    """P(forged) of texts of many lengths."""
    artifact = read_artifact(text)
    manifest = artifact.manifest
    assert manifest.kind == "text-classifier"
    assert (manifest.labels, manifest.forged) == (("fake", "real"), (0,))
    assert manifest.text_input is not None
    assert manifest.text_input.longest == 41, "positions begin behind the padding token's"
    model = transformers.RobertaForSequenceClassification.from_pretrained(checkpoint).eval()
    tokens = CaptionTokens(artifact.path(manifest.text_input.tokenizer), manifest.text_input.longest)
    found = []
    with OrtEngine(artifact, load_profile("cpu-1-thread"), {}) as engine:
        for words in ("", "A", "What is the authenticity of this image ?", "AI generated " * 60):
            ids = tokens.ids(words)
            with torch.inference_mode():
                wanted = float(model(torch.from_numpy(ids[None])).logits.softmax(-1)[0, 0])
            found.append(float(engine.read(ids)[0]))
            assert found[-1] == pytest.approx(wanted, abs=1e-5)
    assert len(ids) == 41, "cut off behind"
    assert max(found) - min(found) > 0.1


def test_alone_and_in_mixed_detection(cli: Cli, text: Path, demo_artifact: Path) -> None:
    """Real against fake by itself; then as the text stage, beside a detector of pictures and a language model."""
    from edgebench.checkpoints.networks.tiny_ladeda import TinyLaDeDa

    data = news.write(cli.folder)
    alone = cli("run", text, "--bench", "mmfakebench", "--data", data, "-o", "alone", "--json")
    assert alone.code == 0, alone.err
    scores = alone.json["scores"]["mmfakebench"]
    assert scores["multiclass"] is None
    assert scores["binary"]["samples"] == 10
    assert alone.json["summary"]["accuracy"] == scores["binary"]["accuracy"]
    p = {r["id"]: r["score"] for r in answers(cli.folder / "alone")}
    assert {value >= 0.5 for value in p.values()} == {True, False}

    torch.manual_seed(5)
    torch.save(TinyLaDeDa("nearest residual").state_dict(), cli.folder / "ladeda.pth")
    picture = exported("tiny-ladeda-forensynth", cli.folder / "ladeda.pth", cli.folder / "picture")
    common = ("run", demo_artifact, "--bench", "mmfakebench", "--data", data, "--protocol", "mixed")
    common += ("--max-new-tokens", 4, "--text-detector", text)
    mixed = cli(*common, "--image-detector", picture, "-o", "mixed", "--json")
    assert mixed.code == 0, mixed.err
    assert "text=text-classifier@" in mixed.json["settings"]["protocol"]
    assert mixed.json["artifact"]["name"] == "edgebench-demo"
    for record in answers(cli.folder / "mixed"):
        steps = [call["step"] for call in record["trace"]]
        assert record["trace"][0]["score"] == pytest.approx(p[record["id"]], abs=1e-6)
        if p[record["id"]] >= 0.5:
            assert (steps, record["answer"]) == (["text_detector"], "textual")
        elif record["trace"][1]["score"] >= 0.5:
            assert (steps, record["answer"]) == (["text_detector", "image_detector"], "visual")
        else:
            assert steps == ["text_detector", "image_detector", "description", "consistency"]
    refused = cli(*common, "--image-detector", text, "-o", "no")
    assert refused.code == 2
    assert "the image stage cannot be a text-classifier model's" in refused.err


def test_labels_that_say_nothing_and_other_precisions_are_refused(cli: Cli) -> None:
    from edgebench.cli.main import _main

    folder = write_roberta(cli.folder / "roberta", ("LABEL_0", "LABEL_1"))
    for extra in ((), ("--int8",)):
        assert _main(["export", "text-classifier", "--weights", str(folder), "-o", str(cli.folder / "o"), *extra]) == 2
    assert not (cli.folder / "o").exists()


def test_cnnspot_is_resnet_50(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the ResNet of transformers, which is another's code, with the same weights and a quarter of the width."""
    from edgebench.checkpoints.networks import cnnspot

    with torch.device("meta"):
        parameters = sum(p.numel() for p in cnnspot.CnnSpot().parameters())
    assert parameters == 25_557_032 - 2_049_000 + 2_049, "ResNet-50's, with one logit in place of a thousand"
    torch.manual_seed(0)
    config = transformers.ResNetConfig(num_labels=1, hidden_sizes=[64, 128, 256, 512])
    monkeypatch.setattr(cnnspot, "STAGES", tuple((c // 4, blocks, stride) for c, blocks, stride in cnnspot.STAGES))
    other = transformers.ResNetForImageClassification(config).eval()
    renamed: dict[str, Any] = {}
    for name, tensor in other.state_dict().items():
        key = name.removeprefix("resnet.")
        key = key.replace("embedder.embedder.convolution", "conv1").replace("embedder.embedder.normalization", "bn1")
        key = key.replace("classifier.1.", "fc.")
        if key.startswith("encoder.stages."):
            stage, block, rest = key.removeprefix("encoder.stages.").replace("layers.", "").split(".", 2)
            part = rest.replace("shortcut.convolution", "downsample.0").replace(
                "shortcut.normalization", "downsample.1"
            )
            if part.startswith("layer."):
                _, number, kind, last = part.split(".")
                part = f"{'conv' if kind == 'convolution' else 'bn'}{int(number) + 1}.{last}"
            key = f"layer{int(stage) + 1}.{block}.{part}"
        renamed[key] = tensor
    ours = cnnspot.CnnSpot()
    ours.load_state_dict(renamed)
    pixels = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 64, 80)).astype(np.float32))
    with torch.inference_mode():
        wanted = other(pixels).logits.sigmoid()[:, 0]
        assert torch.allclose(ours.eval()(pixels), wanted, atol=1e-6)


def answers(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "answer"]
