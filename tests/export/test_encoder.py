"""Encoders with a linear probe: every exported graph against transformers' own model and processor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgebench.errors import CheckpointError, DataError, EdgebenchError, ParityError, UsageError
from edgebench.export.parity import fixed_images, session
from edgebench.export.run import export
from edgebench.forged import p_forged
from edgebench.manifest import read_artifact
from edgebench.media.decode import decode
from edgebench.media.pixels import pixels
from edgebench.recipes import Bound, load_recipe
from edgebench.records import Run
from tests import twins
from tests.conftest import Cli, rarely

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
onnx = pytest.importorskip("onnx")
from edgebench.checkpoints.probe import read_probe  # noqa: E402 # needs torch

FEATURES = {"clip": 24, "siglip": 64, "dinov2": 64}
KINDS = [("clip", False), ("clip", True), ("siglip", False), ("siglip", True), ("dinov2", False)]


class Encoders:
    """Checkpoints, probes and artifacts, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cli = folder, Cli(folder)
        self.pictures = folder / "pictures"
        for k, picture in enumerate(fixed_images(10, 90, 120)):
            target = self.pictures / ("real" if k % 2 else "forged") / f"{k}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(target)
        self.calibration = folder / "calibration"
        self.calibration.mkdir()
        for k, picture in enumerate(fixed_images(26, 80, 100)[10:]):
            Image.fromarray(picture[:, ::-1]).save(self.calibration / f"{k}.png")

    def checkpoint(self, kind: str, whole: bool = False) -> Path:
        target = self.folder / f"{kind}-{whole}"
        return target if target.exists() else twins.write_encoder(target, kind, whole=whole)

    def probe(self, kind: str, suffix: str = ".pth", classes: int = 1) -> Path:
        return twins.write_probe(self.folder / f"{kind}-{classes}{suffix}", FEATURES[kind], classes=classes)

    def __call__(
        self,
        kind: str,
        precision: str = "fp32",
        *,
        dialect: str = "ort",
        calibrated: bool = False,
        against: Path | None = None,
        whole: bool = False,
        classes: int = 1,
    ) -> Path:
        """The artifact, made in this process: torch is loaded once."""
        words = [kind, precision, dialect, calibrated, against and "checked", whole, classes]
        target = self.folder / "-".join(map(str, words))
        if not target.exists():
            export(
                load_recipe(f"{kind}-probe"),
                weights=str(self.checkpoint(kind, whole)),
                probe=self.probe(kind, classes=classes),
                precision=precision,  # type: ignore[arg-type]
                dialect=dialect,  # type: ignore[arg-type]
                output=target,
                say=lambda step: None,
                calibration=self.calibration if calibrated else None,
                against=against,
            )
        return target


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Encoders:
    return Encoders(tmp_path_factory.mktemp("encoders"))


def processor(folder: Path) -> Any:
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    kinds = (BitImageProcessorPil, CLIPImageProcessorPil, SiglipImageProcessorPil)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    kind = next(k for k in kinds if k.__name__ == settings["image_processor_type"] + "Pil")
    return kind.from_pretrained(folder)


def reference(
    folder: Path,
    kind: str,
    probe: Path,
    pictures: list[Path],
    feature: str | None = None,
    *,
    unit_length: bool = False,
) -> np.ndarray:
    """P(forged) by transformers' model and processor, and the probe as its authors write it."""
    kinds = {
        "clip": transformers.CLIPVisionModelWithProjection,
        "siglip": transformers.SiglipVisionModel,
        "dinov2": transformers.Dinov2Model,
    }
    model: Any = kinds[kind].from_pretrained(folder, dtype=torch.float32).eval()
    images = [Image.open(p).convert("RGB") for p in pictures]
    values = processor(folder)(images, return_tensors="pt")["pixel_values"]
    layer = torch.load(probe, weights_only=True)
    with torch.inference_mode():
        if feature == "pooler_output":
            features = model.vision_model(values).pooler_output
        else:
            features = model(values)["image_embeds" if kind == "clip" else "pooler_output"]
        if unit_length:
            features = torch.nn.functional.normalize(features)
        logits = torch.nn.functional.linear(features, layer["weight"], layer["bias"])
        p = torch.sigmoid(logits)[:, 0] if logits.shape[1] == 1 else torch.softmax(logits, -1)[:, 1]
    found: np.ndarray = p.numpy()
    return found


def asked(encoders: Encoders, artifact: Path) -> dict[str, float]:
    """P(forged) of every picture, by the command line."""
    done = encoders.cli("run", artifact, "--bench", "images", "--data", encoders.pictures, "-o", f"{artifact}-run", "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["summary"]["answered"] == 10
    return {r.id: r.score for r in Run(Path(f"{artifact}-run")).records() if r.score is not None}


def scored(encoders: Encoders, artifact: Path) -> dict[str, float]:
    """The same without the command line."""
    manifest = read_artifact(artifact).manifest
    preprocess = manifest.preprocess
    assert preprocess is not None
    run = session(artifact / "classifier.onnx")
    found = {}
    for path in sorted(encoders.pictures.rglob("*.png")):
        values = pixels(decode(path.read_bytes()), preprocess)
        (score,) = p_forged(manifest, run.run(None, {"pixel_values": values})[0])
        found[path.relative_to(encoders.pictures).as_posix()] = float(score)
    return found


@pytest.mark.parametrize(("kind", "whole"), KINDS)
def test_a_run_says_what_transformers_says(encoders: Encoders, kind: str, whole: bool) -> None:
    """From the picture's file to P(forged), within 1e-5."""
    scores = scored(encoders, encoders(kind, whole=whole))
    pictures = [encoders.pictures / name for name in scores]
    expected = reference(encoders.checkpoint(kind, whole), kind, encoders.probe(kind), pictures)
    assert np.ptp(expected) > 0.02, "the pictures are told apart"
    assert np.abs(np.array(list(scores.values())) - expected).max() <= 1e-5
    manifest = read_artifact(encoders(kind, whole=whole)).manifest
    assert (manifest.family, manifest.kind, manifest.labels) == ("encoder", "classifier", ("forged",))
    assert [f.name for f in manifest.graphs["classifier"].outputs] == ["logits"]
    assert manifest.parity is not None
    answer, features = manifest.parity.rows
    assert answer.max_abs_difference <= 1e-5
    assert features.max_abs_difference <= 1e-4
    assert features.positions == 16
    assert not (encoders(kind, whole=whole) / "features.onnx").exists()
    assert set(manifest.source.files) == {"model.safetensors", f"{kind}-1.pth"}


def test_by_the_command_line(encoders: Encoders) -> None:
    target = encoders.folder / "by-hand"
    ask = ["--weights", encoders.checkpoint("clip"), "--probe", encoders.probe("clip"), "-o", target]
    done = encoders.cli("export", "clip-probe", *ask)
    assert done.code == 0, done.err
    assert asked(encoders, target) == pytest.approx(scored(encoders, encoders("clip")), abs=1e-6)


def test_two_classes_are_a_softmax_with_forged_last(encoders: Encoders) -> None:
    scores = scored(encoders, encoders("clip", classes=2))
    pictures = [encoders.pictures / name for name in scores]
    expected = reference(encoders.checkpoint("clip"), "clip", encoders.probe("clip", classes=2), pictures)
    assert np.abs(np.array(list(scores.values())) - expected).max() <= 1e-5


def test_the_feature_is_the_recipe_s(encoders: Encoders) -> None:
    """CLIP's class token before the projection has another size, and other numbers; the probe may want length 1."""
    probe = twins.write_probe(encoders.folder / "before.pth", 64)
    weights = encoders.checkpoint("clip")
    artifact = export(
        replace(load_recipe("clip-probe"), feature="pooler_output", unit_length=True),
        weights=str(weights),
        probe=probe,
        precision="fp32",
        dialect="ort",
        output=encoders.folder / "before",
        say=lambda step: None,
    )
    scores = scored(encoders, artifact.folder)
    pictures = [encoders.pictures / name for name in scores]
    expected = reference(weights, "clip", probe, pictures, feature="pooler_output", unit_length=True)
    assert np.abs(np.array(list(scores.values())) - expected).max() <= 1e-5


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize(
    ("precision", "dialect", "bound"),
    [("fp16", "ort", 0.005), ("int8", "ort", 0.03), rarely("int8", "portable", 0.03)],
)
def test_other_precisions_stay_near(encoders: Encoders, kind: str, precision: str, dialect: str, bound: float) -> None:
    artifact = encoders(kind, precision, dialect=dialect)
    exact, near = scored(encoders, encoders(kind)), scored(encoders, artifact)
    differences = [abs(exact[name] - near[name]) for name in exact]
    assert 0 < max(differences) <= bound
    graph = read_artifact(artifact).manifest.graphs["classifier"]
    model = onnx.load(artifact / "classifier.onnx")
    types = {i.name: i.data_type for i in model.graph.initializer}
    if precision == "fp16":
        assert not [n for n, t in types.items() if t == onnx.TensorProto.FLOAT and "encoder." in n]
        return
    assert graph.quantization is not None
    fused = {n.op_type for n in model.graph.node} & {"MatMulNBits", "DequantizeLinear"}
    assert fused == ({"DequantizeLinear"} if dialect == "portable" else {"MatMulNBits"})
    assert graph.quantization.quantized >= 18, "six products a layer"


@pytest.mark.parametrize("kind", FEATURES)
def test_calibrated_int8_changes_every_product_and_nothing_within_attention(encoders: Encoders, kind: str) -> None:
    artifact = encoders(kind, "int8", calibrated=True)
    exact, near = scored(encoders, encoders(kind)), scored(encoders, artifact)
    assert 0 < max(abs(exact[name] - near[name]) for name in exact) <= 0.05
    model = onnx.load(artifact / "classifier.onnx")
    values = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    made_by = {output: node for node in model.graph.node for output in node.output}
    static = []
    for node in model.graph.node:
        inputs = [made_by.get(name) for name in node.input]
        if node.op_type != "MatMul" or not (inputs[1] and inputs[1].op_type == "DequantizeLinear"):
            continue
        weight, scales, zero = (values[name] for name in inputs[1].input)
        assert weight.dtype == np.int8
        assert scales.shape == (weight.shape[1],), "one scale an output channel"
        assert not zero.any()
        assert inputs[0] is not None
        assert inputs[0].op_type == "DequantizeLinear"
        assert values[inputs[0].input[2]] == 0, "activations are symmetric"
        assert values[inputs[0].input[2]].dtype == np.int8
        static.append(inputs[1].input[0])
    quantization = read_artifact(artifact).manifest.graphs["classifier"].quantization
    assert quantization is not None
    assert len(static) == quantization.quantized >= 18
    assert "softmax" not in {p.op_type.lower() for n in model.graph.node if n.op_type == "QuantizeLinear" for p in [made_by.get(n.input[0])] if p}  # fmt: skip
    assert quantization.calibration is not None
    assert quantization.calibration.startswith("calibration, 16 images, sha256:")
    assert quantization.calibration.endswith("not checked against evaluation pictures")


def test_calibration_must_not_look_like_the_evaluation(encoders: Encoders) -> None:
    pytest.importorskip("imagehash")
    artifact = encoders("clip", "int8", calibrated=True, against=encoders.pictures)
    quantization = read_artifact(artifact).manifest.graphs["classifier"].quantization
    assert quantization is not None
    assert "no near-duplicate (at most 6 of 64 bits of the perceptual hash) among the 10 pictures of pictures, sha256:" in (quantization.calibration or "")  # fmt: skip
    mixed = encoders.folder / "mixed"
    mixed.mkdir()
    for path in encoders.calibration.iterdir():
        (mixed / path.name).write_bytes(path.read_bytes())
    copied = Image.open(encoders.pictures / "real" / "3.png").resize((150, 110))
    copied.save(mixed / "copied.jpg", quality=70)
    ask = ["export", "clip-probe", "--weights", encoders.checkpoint("clip"), "--probe", encoders.probe("clip")]
    done = encoders.cli(*ask, "--int8", "--calibration", mixed, "--against", encoders.pictures, "-o", "refused")
    assert done.code == 8
    assert "1 of 17 calibration pictures look like pictures of pictures: copied.jpg and real/3.png" in done.err
    assert not (encoders.folder / "refused").exists()
    with pytest.raises(DataError, match="does not exist"):
        encoders("clip", "int8", calibrated=True, against=encoders.folder / "nowhere", classes=2)
    with pytest.raises(UsageError, match="--against checks the pictures of --calibration"):
        encoders("clip", "int8", against=encoders.pictures, classes=2)


def test_without_imagehash_the_extra_is_named(encoders: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgebench.errors import MissingExtraError
    from edgebench.export import calibration

    monkeypatch.setattr(calibration, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="edgebench\\[pack\\]"):
        calibration.disjoint([], encoders.pictures, where=encoders.calibration)


def test_what_does_not_fit_is_one_line(encoders: Encoders, tmp_path: Path) -> None:
    clip, probe = encoders.checkpoint("clip"), encoders.probe("clip")

    def refused(match: str, recipe: str, weights: Path, file: Path | None, precision: str = "fp32") -> None:
        with pytest.raises(EdgebenchError) as caught:
            export(
                load_recipe(recipe),
                weights=str(weights),
                probe=file,
                precision=precision,  # type: ignore[arg-type]
                dialect="ort",
                output=tmp_path / "out",
                say=lambda step: None,
            )
        assert match in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == (2 if "--" in match.split()[0] else 4)
        assert not [p for p in tmp_path.iterdir() if "out" in p.name]

    refused("needs a probe (pass --probe FILE (fc_weights.pth, published at", "univfd", clip, None)
    siglip = encoders.probe("siglip")
    refused("the probe takes 64 features, the encoder's image_embeds has 24", "clip-probe", clip, siglip)
    refused("is a 'clip_vision_model', not a 'siglip' or 'siglip_vision_model'", "siglip-probe", clip, siglip)
    refused("pictures are made 224 x 224, the encoder takes 56 x 56", "univfd", clip, probe)
    refused("does not exist (--probe takes a file)", "clip-probe", clip, tmp_path / "none.pth")
    refused("has no config.json", "clip-probe", probe, probe)
    refused("--probe is for encoders", "mesonet-df", probe, probe)
    refused("--int4 is for language models", "clip-probe", clip, probe, "int4")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in clip.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    from safetensors.torch import load_file, save_file

    tensors = load_file(damaged / "model.safetensors")
    name = next(n for n in tensors if n.endswith("post_layernorm.weight"))
    save_file({n: t for n, t in tensors.items() if n != name}, damaged / "model.safetensors")
    refused("1 missing keys, such as", "clip-probe", damaged, probe)
    save_file({**tensors, "lora.weight": torch.zeros(2)}, damaged / "model.safetensors")
    refused("1 unexpected keys, such as lora.weight", "clip-probe", damaged, probe)
    old = {"vision_model.embeddings.position_ids": torch.arange(17)[None], "text_model.x": torch.zeros(2)}
    save_file({**tensors, **old}, damaged / "model.safetensors")
    export(
        load_recipe("clip-probe"),
        weights=str(damaged),
        probe=probe,
        precision="fp32",
        dialect="ort",
        output=tmp_path / "old",
        say=lambda step: None,
    )  # as OpenAI's own checkpoints are published


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".npz", ".safetensors"])
def test_a_probe_is_read_from_every_form(suffix: str, tmp_path: Path) -> None:
    probes = [read_probe(twins.write_probe(tmp_path / f"p{s}", 8, seed=3)) for s in (suffix, ".pth")]
    assert np.array_equal(probes[0].weight, probes[1].weight)
    assert probes[0].bias == probes[1].bias


def test_a_wrong_probe_is_refused(tmp_path: Path) -> None:
    def refused(match: str, name: str = "probe.pth") -> None:
        with pytest.raises(CheckpointError, match=match):
            read_probe(tmp_path / name)

    good = {"weight": torch.zeros(1, 8), "bias": torch.zeros(1)}
    for value, match in (
        ({"weight": good["weight"]}, "1 missing keys, such as bias"),
        ({**good, "scale": good["bias"]}, "1 unexpected keys, such as scale"),
        ({**good, "weight": torch.zeros(3, 8)}, r"weight is \[3, 8\] and bias \[1\]"),
        ({**good, "bias": torch.zeros(2)}, r"weight is \[1, 8\] and bias \[2\]"),
        ({**good, "bias": torch.tensor([float("nan")])}, "not finite"),
        (good["weight"], "more than tensors"),
    ):
        torch.save(value, tmp_path / "probe.pth")
        refused(match)
    torch.save({"weight": good["weight"], "bias": tmp_path}, tmp_path / "probe.pth")
    refused("more than tensors")  # a pickled object is never loaded
    (tmp_path / "probe.npz").write_bytes(b"PK\x03\x04nothing")
    refused("is damaged", "probe.npz")
    (tmp_path / "probe.safetensors").write_bytes(b"nothing")
    refused("is damaged", "probe.safetensors")
    (tmp_path / "probe.bin").write_bytes(b"nothing")
    refused("is none of .safetensors", "probe.bin")


def test_a_bound_that_is_missed_fails(encoders: Encoders) -> None:
    """The features have a bound of their own: a probe may hide what changed."""
    for bound, row in ((Bound(relative_rms=1e-9), "features"), (Bound(max_abs=1e-9), "classifier")):
        with pytest.raises(ParityError, match=f"{row}.*the bound is 1e-09"):
            export(
                replace(load_recipe("clip-probe"), parity={"fp16": bound}),
                weights=str(encoders.checkpoint("clip")),
                probe=encoders.probe("clip"),
                precision="fp16",
                dialect="ort",
                output=encoders.folder / "missed",
                say=lambda step: None,
            )
        assert not (encoders.folder / "missed").exists()


def test_no_path_of_this_machine_in_an_artifact(encoders: Encoders) -> None:
    for artifact in (encoders("clip"), encoders("clip", "int8", calibrated=True)):
        for path in artifact.iterdir():
            data = path.read_bytes()
            assert str(encoders.folder).encode() not in data, path.name
            assert b"site-packages" not in data, path.name
            assert str(Path(__file__).parents[2]).encode() not in data, path.name
