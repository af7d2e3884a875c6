"""`edgebench import` on an image classifier as optimum writes it: model.onnx with pixel_values and logits."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgebench.export.parity import fixed_images
from tests.conftest import Cli

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers")

SIDE = 32


def write_checkpoint(folder: Path, labels: list[str], *, seed: int = 0) -> Path:
    """A tiny ViT with random weights and its image processor, as transformers writes them."""
    torch.manual_seed(seed)
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=SIDE,
        patch_size=8,
        id2label=dict(enumerate(labels)),
        label2id={label: k for k, label in enumerate(labels)},
    )
    model = transformers.ViTForImageClassification(config)
    with torch.no_grad():
        model.classifier.weight.normal_(0, 1)
    model.save_pretrained(folder)
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_convert_rgb": None,
        "do_resize": True,
        "size": {"height": SIDE, "width": SIDE},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def write_published(folder: Path, checkpoint: Path) -> Path:
    """The checkpoint as `optimum-cli export onnx --task image-classification` lays it out, by the exporter it uses."""

    class Logits(torch.nn.Module):  # type: ignore[misc,name-defined] # torch is imported by name
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: Any) -> Any:
            return self.model(pixel_values=pixel_values).logits

    folder.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(checkpoint / name, folder)
    model = transformers.AutoModelForImageClassification.from_pretrained(checkpoint).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Logits(model),
            (torch.zeros(2, 3, SIDE, SIDE),),
            folder / "model.onnx",
            input_names=["pixel_values"],
            output_names=["logits"],
            dynamic_axes={
                "pixel_values": {0: "batch_size", 1: "num_channels", 2: "height", 3: "width"},
                "logits": {0: "batch_size"},
            },
            opset_version=18,
            dynamo=False,
        )
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("vit"), ["Fake", "Real"])


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    return write_published(tmp_path_factory.mktemp("published") / "vit-ONNX", checkpoint)


def copy(published: Path, cli: Cli) -> Path:
    target = cli.folder / "taken"
    shutil.copytree(published, target)
    return target


def edit(path: Path, **changes: object) -> None:
    value = json.loads(path.read_text())
    value.update(changes)
    path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))


def pictures(folder: Path) -> list[Path]:
    """Six pictures in a folder of `real/` and `forged/`."""
    found = []
    for k, picture in enumerate(fixed_images(6, 48, 40)):
        path = folder / ("forged" if k % 2 else "real") / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
        found.append(path)
    return found


def test_scores_are_those_of_transformers_own_pipeline(cli: Cli, published: Path, checkpoint: Path) -> None:
    """From the file to P(forged): transformers' processor and model, softmax, the label 'Fake'."""
    taken = copy(published, cli)
    before = (taken / "model.onnx").read_bytes()
    done = cli("import", taken, "--json")
    assert done.code == 0, done.err
    m = done.json["manifest"]
    assert (m["name"], m["family"], m["precision"], m["dialect"]) == ("taken", "classifier", "fp32", "portable")
    assert (m["labels"], m["forged"], m["output"]) == (["Fake", "Real"], [0], "logits")
    assert m["preprocess"]["filter"] == "bilinear"
    assert m["parity"] is None
    assert "not measured" in m["note"]
    assert (taken / "model.onnx").read_bytes() == before
    files = pictures(cli.folder / "field")
    run = cli("run", taken, "--bench", "images", "--data", cli.folder / "field", "-o", "out", "--json")
    assert run.code == 0, run.err
    lines = [json.loads(line) for line in (cli.folder / "out" / "records.jsonl").read_text().splitlines()]
    scores = {Path(line["id"]).stem: line["score"] for line in lines if line["kind"] == "answer"}
    model = transformers.AutoModelForImageClassification.from_pretrained(checkpoint).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    batch = processor([Image.open(file) for file in files], return_tensors="pt")
    with torch.inference_mode():
        expected = model(**batch).logits.softmax(-1)[:, 0].numpy()
    assert np.ptp(expected) > 0.1, "the pictures should not be all alike to it"
    assert np.allclose([scores[file.stem] for file in files], expected, atol=1e-5)


def test_parity_where_the_checkpoint_is_given(cli: Cli, published: Path, checkpoint: Path) -> None:
    taken = copy(published, cli)
    done = cli("import", taken, "--weights", checkpoint, "--json")
    assert done.code == 0, done.err
    m = done.json["manifest"]
    (row,) = m["parity"]["rows"]
    assert row["what"] == "classifier"
    assert row["positions"] == 16
    assert 0 < row["max_abs_difference"] < 1e-5
    assert m["parity"]["max_abs_bound"] == 1e-4
    assert m["source"]["name"] == checkpoint.name
    assert m["source"]["parameters"] > 10_000


def test_a_graph_of_one_picture_at_a_time(cli: Cli, published: Path, checkpoint: Path) -> None:
    taken = copy(published, cli)
    graph = onnx.load(taken / "model.onnx")
    graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save_model(graph, taken / "model.onnx")
    done = cli("import", taken, "--weights", checkpoint, "--json")
    assert done.code == 0, done.err
    assert done.json["manifest"]["graphs"]["classifier"]["inputs"][0]["shape"][0] == 1
    assert done.json["manifest"]["parity"]["rows"][0]["positions"] == 16


@pytest.mark.parametrize(
    ("size", "labels", "code", "says"),
    [(64, 2, 4, "does not take these pixels"), (SIDE, 3, 4, "has 3 labels, the graph has 2")],
)
def test_a_checkpoint_that_does_not_fit_is_one_line(
    cli: Cli, published: Path, size: int, labels: int, code: int, says: str
) -> None:
    taken = copy(published, cli)
    edit(taken / "preprocessor_config.json", size={"height": size, "width": size})
    other = write_checkpoint(cli.folder / "other", ["real", "fake", "spoof"][:labels])
    done = cli("import", taken, "--weights", other)
    assert done.code == code, done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_another_checkpoint_misses_the_bound(cli: Cli, published: Path) -> None:
    taken = copy(published, cli)
    other = write_checkpoint(cli.folder / "other", ["Fake", "Real"], seed=1)
    done = cli("import", taken, "--weights", other)
    assert done.code == 5
    assert "the bound is 0.0001" in done.err
    assert not (taken / "manifest.json").exists()


def test_variants_in_a_folder_of_their_own(cli: Cli, published: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    taken = copy(published, cli)
    (taken / "onnx").mkdir()
    quantize_dynamic(str(taken / "model.onnx"), str(taken / "onnx" / "model_quantized.onnx"))
    (taken / "model.onnx").unlink()
    refused = cli("import", taken)
    assert refused.code == 4
    assert "holds no model.onnx (there is model_quantized.onnx; choose with --variant)" in refused.err
    done = cli("import", taken, "--variant", "quantized", "--json")
    assert done.code == 0, done.err
    m = done.json["manifest"]
    assert (m["precision"], m["graphs"]["classifier"]["model"]["file"]) == ("int8", "onnx/model_quantized.onnx")
    pictures(cli.folder / "field")
    run = cli("run", taken, "--bench", "images", "--data", cli.folder / "field", "-o", "out", "--json")
    assert run.code == 0, run.err
    assert run.json["summary"]["answered"] == 6


def test_labels_that_do_not_say_it_are_asked_for(cli: Cli, published: Path) -> None:
    taken = copy(published, cli)
    edit(taken / "config.json", id2label={"0": "LABEL_0", "1": "LABEL_1"})
    refused = cli("import", taken)
    assert refused.code == 2
    assert "'LABEL_0', 'LABEL_1'" in refused.err
    assert "pass --forged LABEL" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    done = cli("import", taken, "--forged", "LABEL_1", "--json")
    assert done.code == 0, done.err
    assert done.json["manifest"]["forged"] == [1]
    edit(taken / "config.json", id2label=None)
    again = cli("import", taken, "--forged", "LABEL_0", "--overwrite", "--json")
    assert again.code == 0, again.err
    assert again.json["manifest"]["forged"] == [0]


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("no-graph", 4, "is of no layout that is known here: it holds ViTForImageClassification"),
        ("garbage", 4, "is no ONNX file"),
        ("empty", 4, "has no pixel_values: it is of another layout"),
        ("no-processor", 4, "has no preprocessor_config.json"),
        ("size", 4, "takes pixels ['batch_size', 3, 32, 32], the preprocessing makes [1, 3, 64, 64]"),
        ("labels", 4, "id2label names 3 labels, the graph gives 2 logits"),
        ("gap", 4, "id2label should name the labels 0, 1, ... in turn"),
        ("regression", 4, "problem_type 'regression' gives no P(forged)"),
        ("architecture", 4, "is of no layout that is known here: it holds model.onnx, ViTModel"),
        ("recipe", 2, "the recipe 'llava' is of the family 'llava', this folder is of 'classifier'"),
        ("parts", 2, "--vision, --embed and --decoder: this folder's layout has no use for it"),
        ("missing", 4, "is no folder"),
    ],
)
def test_other_folders_are_one_line(cli: Cli, published: Path, what: str, code: int, says: str) -> None:
    taken = copy(published, cli)
    options: list[str] = []
    if what == "no-graph":
        (taken / "model.onnx").unlink()
    elif what == "garbage":
        (taken / "model.onnx").write_bytes(b"not a graph")
    elif what == "empty":
        (taken / "model.onnx").write_bytes(b"")
    elif what == "no-processor":
        (taken / "preprocessor_config.json").unlink()
    elif what == "size":
        edit(taken / "preprocessor_config.json", size={"height": 64, "width": 64})
        graph = onnx.load(taken / "model.onnx")
        for place, size in enumerate((3, SIDE, SIDE), 1):
            graph.graph.input[0].type.tensor_type.shape.dim[place].dim_value = size
        onnx.save_model(graph, taken / "model.onnx")
    elif what == "labels":
        edit(taken / "config.json", id2label={"0": "real", "1": "fake", "2": "spoof"})
    elif what == "gap":
        edit(taken / "config.json", id2label={"0": "real", "2": "fake"})
    elif what == "regression":
        edit(taken / "config.json", problem_type="regression")
    elif what == "architecture":
        edit(taken / "config.json", architectures=["ViTModel"])
    elif what == "recipe":
        options = ["--recipe", "llava"]
    elif what == "parts":
        options = ["--decoder", "q4"]
    else:
        shutil.rmtree(taken)
    done = cli("import", taken, *options)
    assert done.code == code, done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (taken / "manifest.json").exists()
