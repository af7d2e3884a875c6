"""Family llava: `LlavaForConditionalGeneration` -> vision, embed and decoder graphs.

Vision tower and projector become one graph, the token embedding another, the decoder with its KV cache the third.
The decoder takes `logits_index`, so that a prefill does not compute the vocabulary for every position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.benches.base import Question
from edgebench.cache import cache_names, empty_cache, step_inputs
from edgebench.errors import CheckpointError, one_line
from edgebench.export.checkpoint import chat_template, copy_tokenizer, identify, preprocess_of, read_json
from edgebench.export.graphs import quiet, save, trace
from edgebench.export.parity import compare, fixed_images, session
from edgebench.export.quantize import weight_only_int8
from edgebench.export.request import checked
from edgebench.manifest import Decoder, Graph, Manifest, ParityRow, Text
from edgebench.media.pixels import pixels
from edgebench.prompts.conversation import Conversation

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.export.request import ExportRequest

STEPS = 16
"""Decode steps of the parity check."""
OPSETS = {"ort": 18, "portable": 21}


def export_llava(request: ExportRequest) -> Manifest:
    """Write the three graphs and the tokenizer, and measure their parity with the checkpoint.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        ParityError: a graph misses the recipe's bound.
    """
    from edgebench.export.manifests import manifest_of

    request.say("loading the checkpoint")
    model = _load(request.weights)
    text = _text(request, model)
    preprocess = request.recipe.preprocess or preprocess_of(request.weights)
    config = model.config.text_config
    decoder = Decoder(
        layers=config.num_hidden_layers,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        hidden_size=config.hidden_size,
        cache_dtype="float16" if request.precision == "fp16" else "float32",
    )
    reference = _Reference(model, text, Conversation(text, request.folder / text.tokenizer.file), preprocess)
    request.say("asking the checkpoint")
    expected = [reference.answer(images) for images in (1, 3)]
    graphs = _graphs(request, model, preprocess.height, preprocess.width)
    request.say("comparing with the checkpoint")
    rows = [row for answer in expected for row in _parity(request, graphs, decoder, answer)]
    parameters = sum(p.numel() for p in model.parameters())
    return manifest_of(
        request,
        graphs=graphs,
        preprocess=preprocess,
        source=identify(request.weights, parameters=parameters, name=request.weights.resolve().name),
        parity=checked(rows, request.recipe.bound(request.precision)),
        text=text,
        decoder=decoder,
    )


def _load(folder: Path) -> Any:
    import torch
    import transformers

    config = read_json(folder, "config.json")
    if config is None:
        raise CheckpointError(
            "has no config.json", where=folder, hint="--weights takes a Hugging Face checkpoint folder"
        )
    if config.get("model_type") != "llava":
        raise CheckpointError(f"is a {config.get('model_type')!r}, not a 'llava'", where=folder / "config.json")
    identify(folder, parameters=None, name="")
    log: Any = transformers.utils.logging
    log.set_verbosity_error()
    log.disable_progress_bar()
    kind: Any = transformers.LlavaForConditionalGeneration
    try:
        with quiet():
            model, found = kind.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
    except Exception as error:  # damaged shards raise the errors of several libraries
        raise CheckpointError(f"cannot be loaded: {one_line(error)}", where=folder) from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = sorted(str(k) for k in found.get(kind, ()))
        if names:
            raise CheckpointError(
                f"{len(names)} {kind.replace('_', ' ')}, such as {', '.join(names[:3])}", where=folder
            )
    return model.eval()


def _text(request: ExportRequest, model: Any) -> Text:
    folder, prompt = request.weights, request.recipe.prompt
    if prompt is None:
        raise CheckpointError("the recipe states no prompt", where=request.recipe.name)
    tokenizer = copy_tokenizer(folder, request.folder)
    template = prompt.chat_template or chat_template(folder)
    if template is None:
        raise CheckpointError("has no chat template, and neither has the recipe", where=folder)
    tokens = read_json(folder, "tokenizer_config.json") or {}
    config, image_id = model.config, model.config.image_token_id
    patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
    preprocessor = read_json(folder, "preprocessor_config.json") or {}
    from tokenizers import Tokenizer

    try:
        image_token = Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token(image_id)
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"is no tokenizer: {one_line(error)}", where=folder / "tokenizer.json") from error
    if image_token is None:
        raise CheckpointError(f"the tokenizer has no token {image_id}, the checkpoint's image token", where=folder)
    eos = (read_json(folder, "generation_config.json") or {}).get("eos_token_id") or config.text_config.eos_token_id
    return Text(
        tokenizer=tokenizer,
        chat_template=template,
        image_token=image_token,
        image_token_id=image_id,
        tokens_per_tile=patches + (config.vision_feature_select_strategy != "default"),
        tile_suffix=str(preprocessor.get("tile_suffix", "")),
        bos_token=_token(tokens.get("bos_token")),
        eos_token=_token(tokens.get("eos_token")),
        eos_token_ids=tuple(eos) if isinstance(eos, (list, tuple)) else (int(eos),) if eos is not None else (),
        vocab_size=config.text_config.vocab_size,
        context_length=config.text_config.max_position_embeddings,
        prompt_style=prompt.style,
        max_new_tokens=prompt.max_new_tokens,
    )


def _token(value: Any) -> str:
    """A special token as the tokenizer's settings write it: a text, or a mapping with its content."""
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")


class _Reference:
    """The checkpoint itself, eager, fp32: what the graphs are compared with."""

    def __init__(self, model: Any, text: Text, conversation: Conversation, preprocess: Any) -> None:
        self.model, self.text, self.conversation, self.preprocess = model, text, conversation, preprocess

    def answer(self, images: int) -> dict[str, Any]:
        """Greedy answer to a fixed question on fixed images, through transformers' own forward.

        Returns:
            pixels [tiles, 3, H, W], ids [tokens], features [tiles, tokens, hidden], prefill logits [tokens, vocab],
            step logits [STEPS, vocab] and the greedy tokens.
        """
        import torch

        p = self.preprocess
        question = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})
        tiles = [pixels(image, p) for image in fixed_images(images, p.height, p.width)]
        ids = self.conversation.encode(self.conversation.prompt(question, [len(t) for t in tiles]))
        batch = np.concatenate(tiles)
        with quiet(), torch.inference_mode():
            features = self.model.model.get_image_features(pixel_values=torch.from_numpy(batch))
            pooled = features.pooler_output if hasattr(features, "pooler_output") else features
            out = self.model(input_ids=torch.tensor([ids]), pixel_values=torch.from_numpy(batch), use_cache=True)
            prefill, cache, steps, tokens = out.logits[0].numpy(), out.past_key_values, [], []
            token = int(prefill[-1].argmax())
            for _ in range(STEPS):
                tokens.append(token)
                out = self.model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
                steps.append(out.logits[0, -1].numpy())
                token = int(steps[-1].argmax())
        stacked = torch.cat(list(pooled)) if isinstance(pooled, (list, tuple)) else pooled
        return {
            "images": images,
            "pixels": batch,
            "ids": ids,
            "features": stacked.reshape(-1, stacked.shape[-1]).numpy(),
            "prefill": prefill,
            "steps": np.stack(steps),
            "tokens": tokens,
            "image_token_id": self.text.image_token_id,
        }


def _graphs(request: ExportRequest, model: Any, height: int, width: int) -> dict[str, Graph]:
    import torch

    from edgebench.export.wrappers import EmbedPart, OrtDecoder, PortableDecoder, VisionPart

    if request.precision == "fp16":
        model = model.half()
    opset = OPSETS[request.dialect]
    config = model.config.text_config
    hidden, layers, tokens, past = config.hidden_size, config.num_hidden_layers, 5, 3
    dtype = torch.float16 if request.precision == "fp16" else torch.float32
    head_dim = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    cache = [torch.zeros(1, config.num_key_value_heads, past, head_dim, dtype=dtype) for _ in range(2 * layers)]
    embeds, positions, wanted = (
        torch.zeros(1, tokens, hidden),
        torch.arange(past, past + tokens)[None],
        torch.tensor([0, tokens - 1]),
    )
    if request.dialect == "ort":
        decoder: Any = OrtDecoder(model)
        arguments: tuple[torch.Tensor, ...] = (
            embeds,
            positions,
            torch.tensor([past + tokens - 1], dtype=torch.int32),
            torch.tensor(past + tokens, dtype=torch.int32),
            wanted,
        )
        names = ["inputs_embeds", "position_ids", "seqlens_k", "total_sequence_length", "logits_index"]
        axes: tuple[Any, ...] = ([1], [1], [], [], [0])
    else:
        decoder = PortableDecoder(model)
        arguments = (embeds, torch.ones(1, past + tokens, dtype=torch.int64), positions, wanted)
        names = ["inputs_embeds", "attention_mask", "position_ids", "logits_index"]
        axes = ([1], [1], [1], [0])
    past_names, present_names = cache_names(layers)
    graphs: dict[str, Graph] = {}
    parts: list[tuple[str, Any, tuple[Any, ...], list[str], list[str], tuple[Any, ...]]] = [
        (
            "vision",
            VisionPart(model),
            (torch.zeros(2, 3, height, width),),
            ["pixel_values"],
            ["image_features"],
            ([0],),
        ),
        (
            "embed",
            EmbedPart(model),
            (torch.zeros(1, tokens, dtype=torch.int64),),
            ["input_ids"],
            ["inputs_embeds"],
            ([1],),
        ),
        (
            "decoder",
            decoder,
            (*arguments, *cache),
            names + past_names,
            ["logits", *present_names],
            (*axes, tuple([2] for _ in cache)),
        ),
    ]
    for name, module, example, inputs, outputs, dynamic in parts:
        request.say(f"tracing {name}")
        proto = trace(module.eval(), example, inputs=inputs, outputs=outputs, dynamic=dynamic, opset=opset)
        quantization, precision = None, "fp32" if request.precision == "int8" else str(request.precision)
        if request.precision == "int8" and name != "embed":
            request.say(f"quantizing {name}")
            quantization, precision = weight_only_int8(proto, request.dialect), "int8"
        graphs[name] = save(proto, request.folder, name, precision, quantization)
    return graphs


def _parity(
    request: ExportRequest, graphs: dict[str, Graph], decoder: Decoder, expected: dict[str, Any]
) -> list[ParityRow]:
    """The exported graphs, fed as an engine feeds them, against the reference's answer, teacher-forced."""
    vision, embed, step = (session(request.folder / graphs[name].model.file) for name in ("vision", "embed", "decoder"))
    past_names, _ = cache_names(decoder.layers)
    ids = np.array([expected["ids"]], dtype=np.int64)
    features: NDArray[np.float32] = vision.run(None, {"pixel_values": expected["pixels"]})[0]
    features = features.reshape(-1, features.shape[-1])
    places = ids[0] == expected["image_token_id"]
    if int(places.sum()) != len(features):
        raise CheckpointError(
            f"the prompt holds {int(places.sum())} image tokens, the vision graph gives {len(features)}"
        )

    def run(
        embeds: NDArray[np.float32], cache: list[NDArray[Any]], wanted: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], list[NDArray[Any]]]:
        feeds = step_inputs(request.dialect, embeds, cache[0].shape[2], wanted)
        logits, *present = step.run(None, {**feeds, **dict(zip(past_names, cache, strict=True))})
        return logits[0], present

    embeds = embed.run(None, {"input_ids": ids})[0].copy()
    embeds[0, places] = features
    prefill, cache = run(embeds, empty_cache(decoder), np.arange(ids.shape[1], dtype=np.int64))
    steps = []
    for token in expected["tokens"]:
        logits, cache = run(
            embed.run(None, {"input_ids": np.array([[token]], dtype=np.int64)})[0], cache, np.zeros(1, dtype=np.int64)
        )
        steps.append(logits[0])
    against = "transformers, eager, fp32"
    inputs = f"fixed question, {expected['images']} fixed image{'s' if expected['images'] > 1 else ''}, {ids.shape[1]} tokens"
    return [
        compare("vision", against, inputs, expected["features"], features, top1=None),
        compare("prefill", against, inputs, expected["prefill"], prefill, top1="argmax"),
        compare(
            "decode",
            against,
            f"{inputs}, {STEPS} steps on the reference's own tokens",
            expected["steps"],
            np.stack(steps),
            top1="argmax",
        ),
    ]
