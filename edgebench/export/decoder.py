"""Embedding and decoder of any language model, in both dialects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgebench.cache import cache_names
from edgebench.export.fused import OPSET, check, fused_decoder, rotary_tables
from edgebench.export.initializers import Fill, float_type, new_value, traced
from edgebench.export.smoothing import smoothing
from edgebench.export.streaming import trace_empty
from edgebench.manifest import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edgebench.export.initializers import Traced
    from edgebench.export.precision import Parts
    from edgebench.export.shards import Weights


@dataclass(frozen=True)
class Language:
    """The language model inside an empty model."""

    decoder: Any
    """torch module: layers and the last norm."""
    head: Any
    """torch module: hidden -> logits."""
    sources: Mapping[int, str]
    """`id` of a parameter -> its tensor in the checkpoint."""

    @property
    def config(self) -> Any:
        """Transformers' configuration."""
        return self.decoder.config

    def source(self, parameter: str) -> str:
        """Tensor of the checkpoint, such as of 'layers.0.mlp.up_proj.weight' or 'lm_head.weight'.

        Raises:
            KeyError: the model has no such parameter.
        """
        if parameter.startswith("lm_head."):
            found = dict(self.head.named_parameters())[parameter.removeprefix("lm_head.")]
        else:
            found = self.decoder.get_parameter(parameter) if self._has(parameter) else None
        if found is None:
            raise KeyError(parameter)
        return self.sources[id(found)]

    def _has(self, parameter: str) -> bool:
        module, _, name = parameter.rpartition(".")
        try:
            return self.decoder.get_submodule(module)._parameters.get(name) is not None
        except AttributeError:
            return False


def facts_of(config: Any, *, cache_dtype: str, in_place: bool) -> Decoder:
    """The shape of the decoder's cache, from transformers' configuration of the language model."""
    return Decoder(
        layers=config.num_hidden_layers,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim_of(config),
        hidden_size=config.hidden_size,
        cache_dtype=cache_dtype,
        in_place=in_place,
    )


def head_dim_of(config: Any) -> int:
    """Values of one key or value of one head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def embed_graph(sources: tuple[str, ...], rows: int, hidden: int, stored: str) -> Traced:
    """Token ids int64 [batch, tokens] -> float32 [batch, tokens, hidden].

    Args:
        sources: the embedding's tensors, one below the other.
        rows: of all of them.
        hidden: columns.
        stored: 'float32', 'float16' or 'bfloat16'.
    """
    import onnx_ir as ir

    dtype = float_type(stored)
    ids = new_value("input_ids", ir.DataType.INT64, ("batch_size", "sequence_length"))
    table = new_value("embed_tokens.weight", dtype, (rows, hidden))
    node = ir.Node("", "Gather", [table, ids], num_outputs=1, name="embed_tokens")
    nodes = [node]
    if dtype != ir.DataType.FLOAT:
        attributes = [ir.AttrInt64("to", int(ir.DataType.FLOAT))]
        nodes.append(ir.Node("", "Cast", [node.outputs[0]], attributes, num_outputs=1, name="embed_tokens.cast"))
        node.outputs[0].name = "embed_tokens.half"
    out = nodes[-1].outputs[0]
    out.name, out.type = "inputs_embeds", ir.TensorType(ir.DataType.FLOAT)
    out.shape = ir.Shape(["batch_size", "sequence_length", hidden])
    graph = ir.Graph([ids], [out], nodes=nodes, opset_imports={"": OPSET}, name="embed")
    return traced(ir.Model(graph, ir_version=10, producer_name="edgebench"), [Fill(sources, "plain", [table])], [], "")


def stored_embedding(kind: str, weights: Weights, source: str) -> str:
    """The type that the embedding is stored in: 'float32', 'float16' or 'bfloat16'."""
    own = {"F16": "float16", "BF16": "bfloat16"}.get(weights.tensors[source].kind, "float32")
    return {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}.get(kind, own)


def trace_decoder(
    language: Language,
    weights: Weights,
    parts: Parts,
    dialect: str,
    from_ids: str | None,
    tokenizer: Path,
    say: Callable[[str], None],
) -> Traced:
    """The decoder with its cache; its weights are still to be written.

    Args:
        language: the model.
        weights: the checkpoint's.
        parts: the kind of each part.
        dialect: 'ort' or 'portable'.
        from_ids: the type of the embedding where the graph takes token ids; None: it takes `inputs_embeds`.
        tokenizer: its file, for the questions that calibrate 'w8a8'.
        say: called with the step's name.

    Raises:
        CheckpointError: it cannot be traced, or has no fused form.
    """
    if dialect == "ort":
        check(language.config)
        rotary = rotary_tables(language.decoder.rotary_emb, language.config.max_position_embeddings)
        smoothed = None
        if parts.decoder == "w8a8":
            from tokenizers import Tokenizer

            encode = Tokenizer.from_file(str(tokenizer)).encode
            smoothed = smoothing(language.config, weights, language.source, rotary, lambda text: encode(text).ids, say)
        return fused_decoder(
            language.config,
            weights,
            language.source,
            parts.stored("decoder"),
            rotary,
            dtype=parts.decoder_float,
            from_ids=from_ids,
            smoothing=smoothed,
        )
    return _portable(language, parts, from_ids is not None)


def _portable(language: Language, parts: Parts, from_ids: bool) -> Traced:
    import torch

    from edgebench.export.wrappers import PortableDecoder

    c = language.config
    tokens, past = 5, 3
    dtype = torch.float16 if parts.decoder_float == "float16" else torch.float32
    first = torch.zeros(1, tokens, dtype=torch.int64) if from_ids else torch.zeros(1, tokens, c.hidden_size)
    cache = [torch.zeros(1, c.num_key_value_heads, past, head_dim_of(c), dtype=dtype)] * (2 * c.num_hidden_layers)
    past_names, present_names = cache_names(c.num_hidden_layers)
    arguments = (
        first,
        torch.ones(1, past + tokens, dtype=torch.int64),
        torch.arange(past, past + tokens)[None],
        torch.tensor([0, tokens - 1]),
        *(t.clone() for t in cache),
    )
    name = "input_ids" if from_ids else "inputs_embeds"
    return trace_empty(
        PortableDecoder(language.decoder, language.head, from_ids=from_ids).eval(),
        arguments,
        language.sources,
        inputs=[name, "attention_mask", "position_ids", "logits_index", *past_names],
        outputs=["logits", *present_names],
        dynamic=([1], [1], [1], [0], tuple([2] for _ in cache)),
        opset=OPSET,
        dialect="portable",
        stored=parts.stored("decoder"),
    )
