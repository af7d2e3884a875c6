"""`edgebench import` on decoders from token ids, as optimum and onnxruntime-genai write them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.benches.base import Question
from edgebench.cache import cache_names
from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from edgebench.prompts.conversation import Conversation
from tests import twins
from tests.conftest import Cli

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers")

LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 32
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() }}: {% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights, its tokenizer and chat template, as transformers writes them."""
    folder = tmp_path_factory.mktemp("llama")
    tok = twins.tokenizer()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=tok.get_vocab_size(),
        hidden_size=4 * HEAD_DIM,
        intermediate_size=256,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tok, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return folder


def decoder(checkpoint: Path, *, positions: bool) -> Any:
    """The checkpoint as one graph with a cache; without `position_ids` it counts them itself."""
    from edgebench.checkpoints.quiet import quiet
    from edgebench.export.graphs import trace

    class Decoder(torch.nn.Module):  # type: ignore[misc,name-defined] # torch is imported by name
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> Any:
            from transformers.cache_utils import DynamicCache

            cache = DynamicCache([(past[2 * k], past[2 * k + 1]) for k in range(LAYERS)])
            out = self.model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
            )
            return (out.logits, *(t for layer in cache.layers for t in (layer.keys, layer.values)))

    class Counting(Decoder):  # type: ignore[misc] # its base is torch's
        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> Any:
            place = torch.arange(past[0].shape[2], past[0].shape[2] + input_ids.shape[1])[None]
            return super().forward(input_ids, attention_mask, place, *past)

    model = transformers.LlamaForCausalLM.from_pretrained(checkpoint, attn_implementation="eager").eval()
    past, present = cache_names(LAYERS)
    cache = [torch.zeros(1, KV_HEADS, 3, HEAD_DIM) for _ in past]
    ids, mask, place = (
        torch.zeros(1, 5, dtype=torch.int64),
        torch.ones(1, 8, dtype=torch.int64),
        torch.arange(3, 8)[None],
    )
    first, names = ((ids, mask, place), ["input_ids", "attention_mask", "position_ids"])
    if not positions:
        first, names = first[:2], names[:2]
    with quiet():
        return trace(
            (Decoder if positions else Counting)(model),
            (*first, *cache),
            inputs=[*names, *past],
            outputs=["logits", *present],
            dynamic=(*([1] for _ in first), tuple([2] for _ in cache)),
            opset=18,
        )


@pytest.fixture(scope="module")
def optimum(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    """As `optimum-cli export onnx --task text-generation-with-past` lays it out."""
    folder = tmp_path_factory.mktemp("published") / "llama-ONNX"
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    onnx.save_model(decoder(checkpoint, positions=True), str(folder / "model.onnx"))
    return folder


@pytest.fixture(scope="module")
def genai(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    """As onnxruntime-genai's model builder lays it out for the CPU."""
    folder = tmp_path_factory.mktemp("published") / "llama-genai"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(checkpoint / name, folder)
    config = {
        "model": {
            "bos_token_id": 1,
            "context_length": 512,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": HEAD_DIM,
                "hidden_size": 4 * HEAD_DIM,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": 4,
                "num_hidden_layers": LAYERS,
                "num_key_value_heads": KV_HEADS,
            },
            "eos_token_id": [2, 0],
            "pad_token_id": 0,
            "type": "llama",
            "vocab_size": twins.tokenizer().get_vocab_size(),
        },
        "search": {"do_sample": False, "max_length": 512, "past_present_share_buffer": True},
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    proto = decoder(checkpoint, positions=False)
    onnx.save_model(
        proto, str(folder / "model.onnx"), save_as_external_data=True, location="model.onnx.data", size_threshold=1024
    )
    return folder


@pytest.fixture(params=["optimum", "genai"])
def published(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def copy(published: Path, cli: Cli) -> Path:
    target = cli.folder / "taken"
    shutil.copytree(published, target)
    return target


def edit(path: Path, *keys: str, value: object) -> None:
    """Set (or with None remove) one value of a JSON file."""
    whole = json.loads(path.read_text())
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    if value is None:
        del inner[keys[-1]]
    path.write_text(json.dumps(whole))


def test_the_manifest_of_optimums_folder(cli: Cli, optimum: Path) -> None:
    taken = copy(optimum, cli)
    done = cli("import", taken, "--json")
    assert done.code == 0, done.err
    m = read_artifact(taken).manifest
    assert (m.name, m.family, m.kind, m.dialect, m.precision) == ("taken", "language", "language", "portable", "fp32")
    assert list(m.graphs) == ["decoder"]
    assert m.preprocess is None
    assert m.parity is None
    assert m.decoder is not None
    assert (m.decoder.layers, m.decoder.kv_heads, m.decoder.head_dim) == (LAYERS, KV_HEADS, HEAD_DIM)
    assert (m.decoder.hidden_size, m.decoder.cache_dtype) == (4 * HEAD_DIM, "float32")
    assert m.text is not None
    assert m.text.images is None
    assert (m.text.chat_template, m.text.prompt_style) == (CHAT_TEMPLATE, "default")
    assert (m.text.bos_token, m.text.eos_token, m.text.eos_token_ids) == ("<s>", "</s>", (2,))
    assert (m.text.vocab_size, m.text.context_length) == (twins.tokenizer().get_vocab_size(), 512)


def test_the_manifest_of_genais_folder(cli: Cli, genai: Path) -> None:
    taken = copy(genai, cli)
    done = cli("import", taken, "--json")
    assert done.code == 0, done.err
    m = read_artifact(taken).manifest
    assert (m.family, m.dialect, m.precision) == ("language", "ort", "fp32")
    assert [f.file for f in m.graphs["decoder"].external] == ["model.onnx.data"]
    assert m.decoder is not None
    assert (m.decoder.layers, m.decoder.kv_heads, m.decoder.head_dim) == (LAYERS, KV_HEADS, HEAD_DIM)
    assert m.text is not None
    assert m.text.eos_token_ids == (2, 0)
    assert (m.text.chat_template, m.text.context_length) == (CHAT_TEMPLATE, 512)


def test_the_decoder_answers_as_the_checkpoint(cli: Cli, published: Path, checkpoint: Path) -> None:
    taken = copy(published, cli)
    assert cli("import", taken).code == 0
    artifact = read_artifact(taken)
    text = artifact.manifest.text
    assert text is not None
    ids = Conversation(text, taken / "tokenizer.json").ids(
        Question("Is the image forged?", {"A": "yes", "B": "no"}), []
    )
    assert len(ids) > 10
    model = transformers.LlamaForCausalLM.from_pretrained(checkpoint, attn_implementation="eager").eval()
    tokens = [int(i) for i in ids]
    with OrtEngine(artifact, load_profile("cpu"), {}) as engine, torch.inference_mode():
        logits = engine.prefill(ids, np.zeros((0, 4 * HEAD_DIM), dtype=np.float32))
        for _ in range(6):
            expected = model(input_ids=torch.tensor([tokens])).logits[0, -1].numpy()
            assert np.abs(logits - expected).max() < 1e-4
            tokens.append(int(expected.argmax()))
            logits = engine.step(tokens[-1])


def test_weights_in_blocks_are_int4(cli: Cli, genai: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    taken = copy(genai, cli)
    quantizer = MatMulNBitsQuantizer(onnx.load(str(taken / "model.onnx")), block_size=32, bits=4)
    quantizer.process()
    (taken / "model.onnx.data").unlink()
    quantizer.model.save_model_to_file(str(taken / "model.onnx"), use_external_data_format=False)
    done = cli("import", taken, "--json")
    assert done.code == 0, done.err
    m = done.json["manifest"]
    assert (m["precision"], m["graphs"]["decoder"]["external"]) == ("int4", [])


def test_parity_where_the_checkpoint_is_given(cli: Cli, published: Path, checkpoint: Path) -> None:
    done = cli("import", copy(published, cli), "--weights", checkpoint, "--json")
    assert done.code == 0, done.err
    rows = done.json["manifest"]["parity"]["rows"]
    assert [row["what"] for row in rows] == ["text", "decode"]
    assert all(row["max_abs_difference"] < 1e-4 and row["top1_agreement"] == 1 for row in rows)
    assert all(row["kl"] < 1e-9 for row in rows)


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("no-cache", 4, "takes no past_key_values"),
        ("layers", 4, "has not the 3 layers"),
        ("heads", 4, "past_key_values.0.key is [1, 2, "),
        ("no-tokenizer", 4, "has no tokenizer.json"),
        ("bad-tokenizer", 4, "is no tokenizer"),
        ("no-template", 4, "has no chat template (pass --recipe"),
        ("bad-template", 4, "the chat template is wrong"),
        ("model-type", 4, "is no configuration"),
        ("branch", 4, "takes use_cache_branch, which is not known here"),
        ("forged", 2, "--forged: this folder's layout has no use for it"),
        ("recipe", 2, "this folder is of 'language'"),
    ],
)
def test_what_optimums_folder_lacks_is_one_line(cli: Cli, optimum: Path, what: str, code: int, says: str) -> None:
    taken = copy(optimum, cli)
    options: list[str] = []
    if what in {"no-cache", "branch"}:
        graph = onnx.load(str(taken / "model.onnx"))
        if what == "branch":
            graph.graph.input.append(onnx.helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1]))
        else:
            kept = [i for i in graph.graph.input if not i.name.startswith("past")]
            del graph.graph.input[:]
            graph.graph.input.extend(kept)
        onnx.save_model(graph, str(taken / "model.onnx"))
    elif what == "layers":
        edit(taken / "config.json", "num_hidden_layers", value=3)
    elif what == "heads":
        edit(taken / "config.json", "num_key_value_heads", value=4)
    elif what == "no-tokenizer":
        (taken / "tokenizer.json").unlink()
    elif what == "bad-tokenizer":
        (taken / "tokenizer.json").write_text("{}")
    elif what == "no-template":
        (taken / "chat_template.jinja").unlink()
    elif what == "bad-template":
        (taken / "chat_template.jinja").write_text("{% for %}")
    elif what == "model-type":
        edit(taken / "config.json", "model_type", value="of-tomorrow")
    elif what == "forged":
        options = ["--forged", "fake"]
    else:
        options = ["--recipe", "llava"]
    refused(cli, taken, options, code, says)


@pytest.mark.parametrize(
    ("keys", "value", "code", "says"),
    [
        (("model",), None, 4, "has no model.decoder"),
        (("model", "vision"), {"filename": "vision.onnx"}, 4, "has model.vision: only models of one decoder"),
        (("model", "decoder", "filename"), "other.onnx", 4, "names the graph 'other.onnx', which is not in the folder"),
        (
            ("model", "decoder", "inputs", "past_key_names"),
            "past.%d.k",
            4,
            "model.decoder.inputs.past_key_names is 'past.%d.k', not 'past_key_values.%d.key'",
        ),
        (("model", "decoder", "outputs", "logits"), "scores", 4, "model.decoder.outputs.logits is 'scores'"),
        (("model", "decoder", "num_hidden_layers"), 1, 4, "has not the 1 layers"),
        (("model", "decoder", "head_size"), 64, 4, "the configuration has 2 heads of 64"),
        (("model", "decoder", "head_size"), None, 4, "head_dim: should be int"),
        (("model", "vocab_size"), None, 4, "model.vocab_size should be a count"),
    ],
)
def test_what_genais_configuration_lacks_is_one_line(
    cli: Cli, genai: Path, keys: tuple[str, ...], value: object, code: int, says: str
) -> None:
    taken = copy(genai, cli)
    edit(taken / "genai_config.json", *keys, value={} if keys == ("model",) else value)
    refused(cli, taken, [], code, says)


def test_genai_has_no_variants_and_needs_its_weights(cli: Cli, genai: Path) -> None:
    taken = copy(genai, cli)
    refused(cli, taken, ["--variant", "q4"], 2, "--variant: this folder's layout has no use for it")
    (taken / "model.onnx.data").unlink()
    refused(cli, taken, [], 4, "names the weights 'model.onnx.data', which are not in the folder")


def refused(cli: Cli, taken: Path, options: list[str], code: int, says: str) -> None:
    done = cli("import", taken, *options)
    assert done.code == code, done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (taken / "manifest.json").exists()


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_a_folder_of_genais_own_builder(cli: Cli, checkpoint: Path, precision: str) -> None:
    pytest.importorskip("onnxruntime_genai")
    command = ["-m", "onnxruntime_genai.models.builder", "-i", checkpoint, "-o", cli.folder / "built", "-p", precision]
    command += ["-e", "cpu", "--extra_options", "hf_token=false"]
    subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True, env=cli.environment)
    done = cli("import", cli.folder / "built", "--json")
    assert done.code == 0, done.err
    m = done.json["manifest"]
    assert (m["dialect"], m["precision"]) == ("ort", precision)
    assert m["text"]["chat_template"] == CHAT_TEMPLATE
