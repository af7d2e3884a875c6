"""Family llava: `LlavaForConditionalGeneration` -> vision, embed and decoder graphs.

Vision tower and projector become one graph, the token embedding another, the decoder with its KV cache the third.
The decoder takes `logits_index`, so that a prefill does not compute the vocabulary for every position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.cache import cache_names
from edgebench.environment import available_memory_bytes
from edgebench.errors import CheckpointError, one_line
from edgebench.export.checkpoint import chat_template, copy_tokenizer, identify, preprocess_of, read_json
from edgebench.export.empty import empty_model, source_names
from edgebench.export.graphs import quiet
from edgebench.export.llava_parity import Reference, load_reference, parity_rows
from edgebench.export.request import checked
from edgebench.export.shards import Shards
from edgebench.export.streaming import trace_empty, write_graph
from edgebench.manifest import Decoder, Graph, ImageTokens, Manifest, Text
from edgebench.prompts.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgebench.export.request import ExportRequest
    from edgebench.export.streaming import Traced
    from edgebench.manifest import FileFact
    from edgebench.recipes import Recipe

OPSETS = {"ort": 18, "portable": 21}


def export_llava(request: ExportRequest) -> Manifest:
    """Write the three graphs and the tokenizer, and measure their parity with the checkpoint where it fits into memory.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        ParityError: a graph misses the recipe's bound.
    """
    import torch
    import transformers

    from edgebench.export.manifests import manifest_of

    config = config_of(request.weights)
    request.say("reading the checkpoint's headers")
    with Shards(request.weights) as shards:
        tokenizer = copy_tokenizer(request.weights, request.folder)
        text = text_of(request.weights, tokenizer, request.recipe, config)
        preprocess = request.recipe.preprocess or preprocess_of(request.weights)
        language = config.text_config
        decoder = decoder_of(language, "float16" if request.precision == "fp16" else "float32")
        dtype = torch.float16 if request.precision == "fp16" else torch.float32
        try:
            with quiet():
                model = empty_model(transformers.LlavaForConditionalGeneration, config, dtype, "eager")
        except Exception as error:  # transformers raises many kinds for a wrong configuration
            raise CheckpointError(f"no model can be built from it: {one_line(error)}", where=request.weights) from error
        sources = source_names(model, shards)
        parameters = sum(shards.tensors[key].count for key in set(sources.values()))
        graphs = _graphs(request, model, sources, shards, (preprocess.height, preprocess.width))
    del model
    parity, note = None, ""
    needed, free = 10 * parameters, available_memory_bytes()
    if request.parity is False:
        note = "parity was not measured: it was switched off"
    elif request.parity is None and free is not None and needed > free:
        note = (
            f"parity was not measured: the checkpoint in float32 and the graphs need {needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free"
        )
    else:
        request.say("asking the checkpoint")
        conversation = Conversation(text, request.folder / text.tokenizer.file)
        reference = Reference(load_reference(request.weights), text, conversation, preprocess)
        expected = [reference.answer(images) for images in (1, 3)]
        del reference
        request.say("comparing with the checkpoint")
        rows = [row for answer in expected for row in parity_rows(request.folder, graphs, decoder, answer)]
        parity = checked(rows, request.recipe.bound(request.precision))
    request.say("hashing the checkpoint")
    return manifest_of(
        request,
        graphs=graphs,
        preprocess=preprocess,
        source=identify(request.weights, parameters=parameters, name=request.weights.resolve().name),
        parity=parity,
        text=text,
        decoder=decoder,
        note=note,
    )


def decoder_of(language: Any, cache_dtype: str) -> Decoder:
    """The shape of the decoder's cache, from transformers' configuration of the language model."""
    return Decoder(
        layers=language.num_hidden_layers,
        kv_heads=language.num_key_value_heads,
        head_dim=getattr(language, "head_dim", None) or language.hidden_size // language.num_attention_heads,
        hidden_size=language.hidden_size,
        cache_dtype=cache_dtype,
    )


def config_of(folder: Path) -> Any:
    """The checkpoint's configuration.

    Raises:
        CheckpointError: there is none, or it is another architecture's.
    """
    import transformers

    config = read_json(folder, "config.json")
    if config is None:
        raise CheckpointError(
            "has no config.json", where=folder, hint="--weights takes a Hugging Face checkpoint folder"
        )
    if config.get("model_type") != "llava":
        raise CheckpointError(f"is a {config.get('model_type')!r}, not a 'llava'", where=folder / "config.json")
    try:
        with quiet():
            return transformers.LlavaConfig.from_dict(config)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=folder / "config.json") from error


def text_of(folder: Path, tokenizer: FileFact, recipe: Recipe, config: Any) -> Text:
    """The text side of a checkpoint folder.

    Args:
        folder: has the tokenizer and its settings.
        tokenizer: its file in the artifact.
        recipe: how the model is asked.
        config: transformers' configuration.

    Raises:
        CheckpointError: the tokenizer is damaged or lacks the image token, or there is no chat template.
    """
    prompt = recipe.prompt
    if prompt is None:
        raise CheckpointError("the recipe states no prompt", where=recipe.name)
    template = prompt.chat_template or chat_template(folder)
    if template is None:
        raise CheckpointError("has no chat template, and neither has the recipe", where=folder)
    tokens = read_json(folder, "tokenizer_config.json") or {}
    image_id = config.image_token_id
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
        images=ImageTokens(
            token=image_token,
            id=image_id,
            per_tile=patches + (config.vision_feature_select_strategy != "default"),
            tile_suffix=str(preprocessor.get("tile_suffix", "")),
        ),
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


def _bits(precision: str, part: str) -> Callable[[str], int | None]:
    """Tensor of the checkpoint -> bits, by the stated rule.

    int8: every matrix product of vision and decoder. int4: the decoder's layers; vision and lm_head, whose errors
    reach every token, take 8 bits. The embedding is looked up, not multiplied: it keeps floating point.
    """
    if part == "embed" or precision not in {"int8", "int4"}:
        return lambda source: None
    if part == "vision" or precision == "int8":
        return lambda source: 8
    return lambda source: 8 if "lm_head" in source or "embed_tokens" in source else 4


def _graphs(
    request: ExportRequest, model: Any, sources: dict[str, str], shards: Shards, size: tuple[int, int]
) -> dict[str, Graph]:
    import torch

    from edgebench.export.wrappers import EmbedPart, OrtDecoder, PortableDecoder, VisionPart

    embedding = model.get_input_embeddings()
    name = next(n for n, p in model.named_parameters(remove_duplicate=False) if p is embedding.weight)
    if request.precision in {"int8", "int4"} and shards.tensors[sources[name]].kind == "F16":
        # Half precision is what the checkpoint has: nothing is lost.
        halved = torch.nn.Parameter(torch.zeros((), dtype=torch.float16).expand(embedding.weight.shape), False)
        embedding._parameters["weight"] = halved
    by_id = {id(p): sources[n] for n, p in model.named_parameters(remove_duplicate=False)}
    height, width = size
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
    traced: dict[str, Traced] = {}
    for part, module, example, inputs, outputs, dynamic in parts:
        request.say(f"tracing {part}")
        traced[part] = trace_empty(
            module.eval(),
            example,
            by_id,
            inputs=inputs,
            outputs=outputs,
            dynamic=dynamic,
            opset=opset,
            dialect=request.dialect,
            bits=_bits(request.precision, part),
        )
    total = sum(t.bytes for t in traced.values())
    done = 0
    request.say(f"writing {total / 1e9:.2f} GB of weights")
    request.wrote(0, total)

    def wrote(more: int) -> None:
        nonlocal done
        done += more
        request.wrote(done, total)

    for part, graph in traced.items():
        precision = "int4" if request.precision == "int4" and part == "decoder" else str(request.precision)
        if part == "embed" and request.precision in {"int8", "int4"}:
            precision = "fp16" if embedding.weight.dtype == torch.float16 else "fp32"
        elif part == "vision" and request.precision == "int4":
            precision = "int8"
        graphs[part] = write_graph(graph, shards, request.folder, part, precision, wrote)
    return graphs
