"""A twin rewritten into each layout that LLaVA is published in: the same graphs, the same answers, errors in one line."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edgebench.manifest import read_artifact
from tests import twins
from tests.conftest import Cli, rarely

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
onnx = pytest.importorskip("onnx")

RECIPE = """
name: rewritten
summary: The twin, with its prompt and pixels stated, so that every layout is asked alike.
family: llava
source: a test
licence: none
preprocess: {kind: pad_square, height: 28, width: 28, mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711], pad_colour: [122, 116, 104]}
prompt:
  style: llava
  chat_template: "USER: {% for part in messages[0]['content'] %}{% if part['type'] == 'image' %}<image>\\n{% else %}{{ part['text'] }}{% endif %}{% endfor %} ASSISTANT:"
parity:
  fp32: {max_abs: 1e-4, top1: 1.0}
"""
RANK, ALPHA = 4, 8
"""Of every adapter."""


@dataclass
class Taken:
    """The twin in its parts."""

    folder: Path
    config: dict[str, Any]
    language: dict[str, Any]
    vision: dict[str, Any]
    projector: dict[str, Any]


@pytest.fixture(scope="module")
def taken(twin: Path) -> Taken:
    tensors = safetensors.load_file(twin / "model.safetensors")

    def part(prefix: str) -> dict[str, Any]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    found = Taken(
        twin,
        json.loads((twin / "config.json").read_text()),
        part("language_model."),
        {k.removeprefix("vision_model."): v for k, v in part("vision_tower.").items()},
        part("multi_modal_projector."),
    )
    assert len(found.language) + len(found.vision) + len(found.projector) == len(tensors)
    return found


def speak(taken: Taken, folder: Path) -> None:
    """The tokenizer as it is before LLaVA: no image token; that of the twin stands for nothing."""
    plain = (taken.folder / "tokenizer.json").read_text().replace(twins.IMAGE_TOKEN, "<unused>")
    (folder / "tokenizer.json").write_text(plain)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


def language(taken: Taken, folder: Path, tensors: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = taken.config["text_config"] | {"architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save_file(taken.language if tensors is None else tensors, folder / "model.safetensors")
    speak(taken, folder)
    return folder


def tower(taken: Taken, folder: Path, *, whole: bool = False, tensors: dict[str, Any] | None = None) -> Path:
    """CLIPVisionModel, or CLIPModel with a text side."""
    folder.mkdir(parents=True)
    vision = taken.config["vision_config"]
    config = {"model_type": "clip", "vision_config": vision, "text_config": {}} if whole else vision
    (folder / "config.json").write_text(json.dumps(config))
    named = {f"vision_model.{k}": v for k, v in (tensors or taken.vision).items()}
    if whole:
        named |= {"text_model.final_layer_norm.bias": torch.ones(3), "logit_scale": torch.tensor(2.0)}
    safetensors.save_file(named, folder / "model.safetensors")
    shutil.copyfile(taken.folder / "preprocessor_config.json", folder / "preprocessor_config.json")
    return folder


def original(taken: Taken, folder: Path, *, inside: bool = False, pickled: bool = False, **more: Any) -> Path:
    """LLaVA's own layout."""
    folder.mkdir()
    config = {k: v for k, v in taken.config["text_config"].items() if k not in {"rope_parameters", "head_dim"}}
    config |= {
        "model_type": "llava",
        "architectures": ["LlavaLlamaForCausalLM"],
        "rope_theta": 10000.0,
        "mm_vision_tower": "openai/clip-vit-large-patch14-336",
        "mm_hidden_size": 64,
        "mm_projector_type": "mlp2x_gelu",
        "mm_vision_select_layer": -2,
        "mm_vision_select_feature": "patch",
        "image_aspect_ratio": "pad",
    }
    (folder / "config.json").write_text(json.dumps(config | more))
    steps = {"linear_1": "0", "linear_2": "2"}
    tensors = dict(taken.language)
    tensors |= {f"model.mm_projector.{steps[k[:8]]}{k[8:]}": v for k, v in taken.projector.items()}
    if inside:
        tensors |= {f"model.vision_tower.vision_tower.vision_model.{k}": v for k, v in taken.vision.items()}
    names = sorted(tensors)
    halves = [{k: tensors[k] for k in names[i::2]} for i in range(2)]
    for i, half in enumerate(halves, 1):
        if pickled:
            torch.save(half, folder / f"pytorch_model-0000{i}-of-00002.bin")
        else:
            safetensors.save_file(half, folder / f"model-0000{i}-of-00002.safetensors")
    speak(taken, folder)
    return folder


def projector(taken: Taken, folder: Path) -> None:
    (folder / "projector").mkdir(parents=True)
    config = {"model_type": "projector", "visual_hidden_size": 64, "llm_hidden_size": 128, "depth": 2, "bias": True}
    (folder / "projector" / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    steps = {"linear_1": "0", "linear_2": "2"}
    tensors = {f"model.{steps[k[:8]]}{k[8:]}": v for k, v in taken.projector.items()}
    safetensors.save_file(tensors, folder / "projector" / "model.safetensors")


def split(tensors: dict[str, Any], folder: Path, prefix: str, ends: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """Write a LoRA whose products are exact in float32, and give the weights that it has to be added to."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(3)
    base, adapter = dict(tensors), {}
    scale = ALPHA / RANK**0.5 if more.get("use_rslora") else ALPHA / RANK
    for name in [n for n in tensors if n.endswith(ends) and tensors[n].ndim == 2]:
        n, k = tensors[name].shape
        up = torch.randint(-8, 9, (n, RANK), generator=generator) / 32.0
        down = torch.randint(-8, 9, (RANK, k), generator=generator) / 32.0
        base[name] = tensors[name] - scale * (up @ down)
        module = f"base_model.model.{prefix}{name.removesuffix('.weight')}"
        adapter |= {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}
    assert adapter
    safetensors.save_file(adapter, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "fan_in_fan_out": False}
    (folder / "adapter_config.json").write_text(json.dumps(config | more))
    return base


Q_AND_UP = ("q_proj.weight", "up_proj.weight")
VICUNA = {"base_model_name_or_path": "lmsys/vicuna-7b-v1.5"}


def adapters(taken: Taken, folder: Path) -> tuple[Path, Path, Path]:
    """XTuner's layout with two adapters, the language model and the tower elsewhere."""
    made = folder / "xtuner"
    projector(taken, made)
    base = split(taken.language, made / "llm_adapter", "", Q_AND_UP, **VICUNA)
    eyes = split(taken.vision, made / "visual_encoder_adapter", "vision_model.", ("fc1.weight",), use_rslora=True)
    assert (base["model.layers.0.self_attn.q_proj.weight"] - taken.language["model.layers.0.self_attn.q_proj.weight"]).abs().max() > 0.05  # fmt: skip
    return made, language(taken, folder / "base", base), tower(taken, folder / "eyes", tensors=eyes)


class Rewritten:
    """Exports of one recipe, each made once, by the command line."""

    def __init__(self, folder: Path) -> None:
        self.cli = Cli(folder)
        (folder / "rewritten.yaml").write_text(RECIPE)

    def __call__(self, name: str, make: Callable[[Path], list[object]]) -> Path:
        target = self.cli.folder / name
        if not target.exists():
            made = self.cli.folder / f"{name}-source"
            made.mkdir()
            done = self.cli("export", "./rewritten.yaml", "--weights", *make(made), "-o", target)
            assert done.code == 0, done.err
            assert not done.err.strip(), "nothing of other libraries"
        return target


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Rewritten:
    return Rewritten(tmp_path_factory.mktemp("rewritten"))


LAYOUTS: dict[str, Callable[[Taken, Path], list[object]]] = {
    "original, tower elsewhere": lambda t, f: [
        original(t, f / "llava"),
        "--vision-tower",
        tower(t, f / "clip", whole=True),
    ],
    "original, all inside, torch files": lambda t, f: [
        original(t, f / "share4v", inside=True, pickled=True, architectures=["Share4VLlamaForCausalLM"]),
        "--vision-tower",
        tower(t, f / "clip", tensors={"class_embedding": torch.zeros(1)}),
    ],
    "xtuner, all inside": lambda t, f: [xtuner_whole(t, f / "xtuner")],
    "xtuner, adapters": lambda t, f: list(with_options(*adapters(t, f))),
}


def xtuner_whole(taken: Taken, folder: Path) -> Path:
    projector(taken, folder)
    tower(taken, folder / "visual_encoder")
    return language(taken, folder)


def with_options(made: Path, base: Path, eyes: Path) -> tuple[object, ...]:
    return made, "--language", base, "--vision-tower", eyes


def weights_of(folder: Path) -> dict[tuple[str, str], Any]:
    found = {}
    for graph in ("vision", "embed", "decoder"):
        for tensor in onnx.load(folder / f"{graph}.onnx").graph.initializer:
            found[graph, tensor.name] = onnx.numpy_helper.to_array(tensor, str(folder))
    return found


@pytest.mark.parametrize(
    "layout", [rarely(name) if "torch files" in name or name == "xtuner, all inside" else name for name in LAYOUTS]
)
def test_a_rewritten_twin_gives_the_same_graphs_and_answers(
    rewritten: Rewritten, taken: Taken, tmp_path: Path, layout: str
) -> None:
    """The twin itself goes the whole way through transformers; the rewritten one never does."""
    own = rewritten("twin", lambda f: [taken.folder])
    ours = rewritten(layout.replace(", ", "-").replace(" ", "-"), lambda f: LAYOUTS[layout](taken, f))
    expected, found = weights_of(own), weights_of(ours)
    assert expected.keys() == found.keys()
    assert sum(v.size for v in expected.values()) > 400_000
    changed = []
    for key, value in expected.items():
        if layout != "xtuner, adapters":
            assert value.tobytes() == found[key].tobytes(), key
        elif value.tobytes() != found[key].tobytes():
            assert np.abs(value.astype(np.float64) - found[key]).max() <= 1e-6, key
            changed.append(key)
    assert {graph for graph, _ in changed} <= {"vision", "decoder"}
    artifact = read_artifact(ours)
    manifest, text = artifact.manifest, artifact.manifest.text
    assert manifest.parity is not None
    assert max(row.max_abs_difference for row in manifest.parity.rows) <= 1e-4
    assert text is not None
    assert text.images is not None
    assert (text.images.token, text.images.id, text.vocab_size) == ("<image>", 89, 89), "no row of the embedding"
    asked = twins.write_tsv(tmp_path / "ForensicsBench.tsv", twins.rows(12))
    said = []
    for folder in (own, ours):
        done = rewritten.cli("run", folder, "--data", asked, "-o", tmp_path / folder.name)
        assert done.code == 0, done.err
        lines = (tmp_path / folder.name / "records.jsonl").read_text().splitlines()
        said.append({r["id"]: r for r in map(json.loads, lines) if r["kind"] == "answer"})
    assert len(said[0]) == 12
    assert len({record["text"] for record in said[0].values()}) > 6
    for name, record in said[0].items():
        assert record["text"] == said[1][name]["text"]
        assert record["prompt_tokens"] == said[1][name]["prompt_tokens"]
        assert record["option_logprobs"] == pytest.approx(said[1][name]["option_logprobs"], abs=2e-4)


def test_the_source_names_every_folder(rewritten: Rewritten, taken: Taken) -> None:
    folder = rewritten("xtuner-adapters", lambda f: LAYOUTS["xtuner, adapters"](taken, f))
    assert set(read_artifact(folder).manifest.source.files) == {
        "projector/model.safetensors",
        "language/model.safetensors",
        "vision_tower/model.safetensors",
        "llm_adapter/adapter_model.safetensors",
        "visual_encoder_adapter/adapter_model.safetensors",
    }


def test_an_adapter_is_merged_row_by_row(taken: Taken, tmp_path: Path) -> None:
    from edgebench.export.layouts.presented import Place, Presented, adapted, open_weights

    base = split(taken.language, tmp_path / "adapter", "", Q_AND_UP)
    weights = open_weights(language(taken, tmp_path / "base", base))
    shown = Presented(tmp_path, adapted({n: Place(weights, n) for n in weights.tensors}, tmp_path / "adapter", "model"))
    for name, value in taken.language.items():
        rows = [shown.read(name, begin, min(begin + 7, len(value))) for begin in range(0, len(value), 7)]
        assert np.abs(np.concatenate(rows) - value.numpy()).max() <= 1e-6
        assert np.abs(shown.read(name) - value.numpy()).max() <= 1e-6
        assert shown.tensors[name].shape == tuple(value.shape)


def test_pixels_follow_the_folder_where_the_recipe_is_silent(cli: Cli, taken: Taken) -> None:
    (cli.folder / "silent.yaml").write_text(
        "\n".join(line for line in RECIPE.replace("rewritten", "silent").splitlines() if "preprocess" not in line)
    )
    eyes = tower(taken, cli.folder / "clip")
    for aspect, kind in (("pad", "pad_square"), ("square", "shortest_edge_crop")):
        made = original(taken, cli.folder / aspect, image_aspect_ratio=aspect)
        done = cli(
            "export", "./silent.yaml", "--weights", made, "--vision-tower", eyes, "--no-parity", "-o", f"{aspect}-out"
        )
        assert done.code == 0, done.err
        preprocess = read_artifact(cli.folder / f"{aspect}-out").manifest.preprocess
        assert preprocess is not None
        assert (preprocess.kind, preprocess.height) == (kind, 28)
        assert preprocess.pad_colour == ((122, 116, 104) if aspect == "pad" else None)


def sentencepiece(path: Path) -> Path:
    """A BPE model of few words, as sentencepiece stores it."""
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model: Any = proto.ModelProto()  # type: ignore[attr-defined]
    model.trainer_spec.model_type = 2
    for piece, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        model.pieces.add(piece=piece, score=0, type=kind)
    merged = ["▁i", "▁is", "▁▁", "re", "rea", "real"]
    for k, piece in enumerate([*merged, "▁", "i", "s", "r", "e", "a", "l", "\n"]):
        model.pieces.add(piece=piece, score=-k, type=1)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_sentencepiece_model_is_converted_and_pieces_between_images_begin_alike(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    from edgebench.export.layouts.tokenizer import write_tokenizer

    (tmp_path / "out").mkdir()
    sentencepiece(tmp_path / "tokenizer.model")
    fact, image = write_tokenizer(tmp_path, tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / fact.file))
    assert image == tokenizer.token_to_id("<image>") == 17, "the next free id"
    assert tokenizer.encode("is<image>is real<image>\nreal").tokens == [
        "<s>", "▁is", "<image>", "▁is", "▁", "real", "<image>", "▁", "\n", "real",
    ]  # fmt: skip
    ids = tokenizer.encode("is real").ids
    assert tokenizer.decode(ids) == "is real"
    assert tokenizer.decode([image], skip_special_tokens=True) == ""


def damaged(taken: Taken, folder: Path, what: str) -> tuple[list[object], int, str]:
    """Arguments of an export that cannot be, its exit code, and words of what it says."""
    share = "Lin-Chen/ShareGPT4V-7B_Pretrained_vit-large336-l12"
    if what == "no tower":
        return [original(taken, folder / "x", mm_vision_tower=share)], 4, f"pass --vision-tower FOLDER with {share}"
    if what == "tower is nowhere":
        return [original(taken, folder / "x"), "--vision-tower", folder / "no"], 4, "does not exist"
    if what == "tower is a language model":
        return (
            [original(taken, folder / "x"), "--vision-tower", language(taken, folder / "y")],
            4,
            "is a 'llama', not a CLIP",
        )
    if what == "tower of another shape":
        return [original(taken, folder / "x", inside=True)], 4, "missing keys"
    if what == "own tower":
        return [taken.folder, "--vision-tower", tower(taken, folder / "y")], 2, "has its own"
    if what == "anyres":
        return [original(taken, folder / "x", image_aspect_ratio="anyres")], 4, "family llava_next"
    if what == "linear projector":
        return [original(taken, folder / "x", mm_projector_type="linear")], 4, "only 'mlp2x_gelu'"
    if what == "other language":
        return [original(taken, folder / "x", architectures=["LlavaMptForCausalLM"])], 4, "LlavaMptForCausalLM"
    if what == "no tokenizer":
        made = original(taken, folder / "x", inside=True)
        (made / "tokenizer.json").unlink()
        return [made, "--vision-tower", tower(taken, folder / "y")], 4, "save the fast tokenizer"
    if what == "damaged tokenizer.model":
        made = original(taken, folder / "x", inside=True)
        (made / "tokenizer.json").rename(made / "tokenizer.model")
        return [made, "--vision-tower", tower(taken, folder / "y")], 4, "save the fast tokenizer"
    if what == "no weights":
        made = original(taken, folder / "x")
        for path in made.glob("*.safetensors"):
            path.unlink()
        return [made], 4, "holds neither"
    if what == "pickled code":
        made = original(taken, folder / "x")
        for path in made.glob("*.safetensors"):
            path.unlink()
        torch.save({"model.norm.weight": Path("anything")}, made / "pytorch_model.bin")
        return [made], 4, "save them as safetensors"
    made, base, eyes = adapters(taken, folder)
    options: list[object] = list(with_options(made, base, eyes))
    if what == "no language":
        return [made, "--vision-tower", eyes], 4, "pass --language FOLDER with lmsys/vicuna-7b-v1.5"
    if what == "no eyes":
        return options[:3], 4, "pass --vision-tower FOLDER with openai/clip-vit-large-patch14-336"
    if what == "two languages":
        language(taken, made / "llm")
        return options, 2, "has its own"
    adapter = made / "llm_adapter"
    config = json.loads((adapter / "adapter_config.json").read_text())
    if what == "dora":
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
        return options, 4, "merge the adapter with peft first"
    if what == "other rank":
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"r": 8}))
        return options, 4, "does not fit its adapter"
    assert what == "adapter of more layers"
    tensors = safetensors.load_file(adapter / "adapter_model.safetensors")
    named = {k.replace("layers.1.", "layers.9."): v for k, v in tensors.items()}
    safetensors.save_file(named, adapter / "adapter_model.safetensors")
    return options, 4, "model.layers.9."


@pytest.mark.parametrize(
    "what",
    [
        "no tower",
        "tower is nowhere",
        "tower is a language model",
        "tower of another shape",
        "own tower",
        "anyres",
        "linear projector",
        "other language",
        "no tokenizer",
        "damaged tokenizer.model",
        "no weights",
        "pickled code",
        "no language",
        "no eyes",
        "two languages",
        "dora",
        "other rank",
        "adapter of more layers",
    ],
)
def test_what_cannot_be_is_said_in_one_line_with_nothing_left(cli: Cli, taken: Taken, what: str) -> None:
    (cli.folder / "rewritten.yaml").write_text(RECIPE)
    (cli.folder / "parts").mkdir()
    arguments, code, says = damaged(taken, cli.folder / "parts", what)
    done = cli("export", "./rewritten.yaml", "--weights", *arguments, "-o", "out")
    assert (done.code, says in done.err) == (code, True), done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not [p for p in cli.folder.iterdir() if "out" in p.name]


def test_parts_are_for_llava_alone(cli: Cli, taken: Taken) -> None:
    done = cli("export", "smollm2-135m", "--weights", taken.folder, "--vision-tower", taken.folder, "-o", "out")
    assert done.code == 2
    assert "family llava" in done.err
