"""The decoder for ONNX Runtime, written node by node from its configuration: ten fused operators a layer.

RMSNorm and residual are one operator, query, key and value are one product, and GroupQueryAttention turns positions
and keeps the cache, in place when past and present are the same buffer. onnxruntime-genai loads the graph as it is:
inputs and outputs have its names, and `logits_index`, which it does not know, has a default: the last position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.cache import cache_names
from edgebench.errors import CheckpointError
from edgebench.export import blocks
from edgebench.export.initializers import Fill, float_type, matmul_nbits, new_value, traced
from edgebench.export.streaming import BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from edgebench.export.initializers import Stored, Traced
    from edgebench.export.shards import Weights
    from edgebench.export.smoothing import Smoothing

OPSET = 21
MODEL_TYPES = frozenset(["llama", "mistral", "qwen2"])
ROPE_TYPES = frozenset(["default", "linear", "llama3", "yarn"])


def fused_decoder(
    config: Any,
    weights: Weights,
    name_of: Callable[[str], str],
    stored: Callable[[str], Stored],
    rotary: tuple[NDArray[np.float32], NDArray[np.float32]],
    *,
    dtype: str,
    from_ids: str | None,
    smoothing: Smoothing | None = None,
) -> Traced:
    """The graph, its weights still to be written.

    Args:
        config: transformers' configuration of the language model.
        weights: the checkpoint's.
        name_of: parameter such as 'layers.0.mlp.up_proj.weight' or 'lm_head.weight' -> tensor of the checkpoint.
        stored: tensor of the checkpoint -> how it is stored.
        rotary: cosine and sine, float32 [positions, head_dim / 2] each.
        dtype: 'float32' or 'float16', what it computes in.
        from_ids: the embedding's type where the graph takes token ids, such as 'bfloat16'; None: it takes
            `inputs_embeds`.
        smoothing: the factors of channels; with them products behind a norm round their activations too.

    Raises:
        CheckpointError: the model has no fused form.
    """
    check(config)
    return _Decoder(config, weights, name_of, stored, dtype, smoothing).build(rotary, from_ids)


def check(config: Any) -> None:
    """Whether a language model has a fused form.

    Raises:
        CheckpointError: it has none.
    """
    hint = "export with --dialect portable"
    if config.model_type not in MODEL_TYPES:
        raise CheckpointError(f"the decoder {config.model_type!r} has no fused form here", hint=hint)
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in ROPE_TYPES or (config.rope_parameters or {}).get("partial_rotary_factor", 1) != 1:
        raise CheckpointError(f"positions of type {rope!r} have no fused form here", hint=hint)
    if config.hidden_act not in {"silu", "swish"}:
        raise CheckpointError(f"the activation {config.hidden_act!r} has no fused form here", hint=hint)
    if _window(config) is not None:
        raise CheckpointError("attention within a sliding window has no fused form here", hint=hint)


def rotary_tables(rotary: Any, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine by transformers' own module, float32 [positions, head_dim / 2] each."""
    import torch

    with torch.no_grad():
        both = rotary(torch.zeros(1, 1, 1), torch.arange(positions)[None])
    cosine, sine = (np.ascontiguousarray(t[0, :, : t.shape[-1] // 2].float().numpy()) for t in both)
    return cosine, sine


def _window(config: Any) -> int | None:
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    return int(window) if window < config.max_position_embeddings else None


class _Decoder:
    def __init__(
        self,
        config: Any,
        weights: Weights,
        name_of: Callable[[str], str],
        stored: Callable[[str], Stored],
        dtype: str,
        smoothing: Smoothing | None,
    ) -> None:
        import onnx_ir as ir

        self.smoothing = smoothing

        self.ir, self.config = ir, config
        self.weights, self.name_of, self.stored = weights, name_of, stored
        self.dtype = ir.DataType.FLOAT16 if dtype == "float16" else ir.DataType.FLOAT
        self.nodes: list[Any] = []
        self.fills: list[Fill] = []
        self.constants: list[Any] = []
        self.kept: list[str] = []
        self.shared: dict[str, Any] = {}

    def build(self, rotary: tuple[NDArray[np.float32], NDArray[np.float32]], from_ids: str | None) -> Traced:
        ir, c = self.ir, self.config
        head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        batch, tokens = "batch_size", "sequence_length"
        mask = new_value("attention_mask", ir.DataType.INT64, (batch, "total_sequence_length"))
        wanted = self.constant("logits_index", np.array([-1], dtype=np.int64))
        wanted.shape = ir.Shape(["logits"])
        if from_ids is None:
            first = new_value("inputs_embeds", ir.DataType.FLOAT, (batch, tokens, c.hidden_size))
            hidden = first if self.dtype == ir.DataType.FLOAT else self.cast(first, self.dtype)
        else:
            first = new_value("input_ids", ir.DataType.INT64, (batch, tokens))
            table = self.plain("embed_tokens.weight", float_type(from_ids))
            hidden = self.op("Gather", [table, first], "embed_tokens")
            hidden = hidden if table.dtype == self.dtype else self.cast(hidden, self.dtype)
        one = self.constant("one", np.array([1], dtype=np.int64))
        summed = self.op("Sub", [self.op("ReduceSum", [mask, one], "mask_sum", keepdims=0), one], "last_position")
        seqlens = self.cast(summed, ir.DataType.INT32)
        total = self.op("Gather", [self.op("Shape", [mask], "mask_shape"), self.constant("axis", np.array(1))], "total")
        total = self.cast(total, ir.DataType.INT32)
        cosine, sine = (
            self.constant(name, table.astype(self.dtype.numpy()))
            for name, table in zip(("cos_cache", "sin_cache"), rotary, strict=True)
        )
        past_names, present_names = cache_names(c.num_hidden_layers)
        shape = (batch, c.num_key_value_heads, "past_sequence_length", head_dim)
        past = [new_value(name, self.dtype, shape) for name in past_names]
        present: list[Any] = []
        shape = (batch, c.num_key_value_heads, "total_sequence_length", head_dim)
        attributes = {
            "num_heads": c.num_attention_heads,
            "kv_num_heads": c.num_key_value_heads,
            "scale": float(head_dim**-0.5),
            "do_rotary": 1,
        }
        normed = self.op(
            "SimplifiedLayerNormalization",
            [hidden, self.norm_weight("layers.0.input_layernorm")],
            "layers.0.input_layernorm",
            axis=-1,
            epsilon=float(c.rms_norm_eps),
            stash_type=1,
        )
        for layer in range(c.num_hidden_layers):
            at = f"layers.{layer}"
            modules, norm = [f"{at}.self_attn.{n}_proj" for n in "qkv"], f"{at}.input_layernorm"
            qkv = self.linear(normed, modules, f"{at}.self_attn.qkv_proj", norm)
            inputs = [qkv, None, None, *past[2 * layer : 2 * layer + 2], seqlens, total, cosine, sine]
            attended, *kept = self.ops(
                "GroupQueryAttention", inputs, f"{at}.self_attn", 3, domain="com.microsoft", **attributes
            )
            for value, name in zip(kept, present_names[2 * layer : 2 * layer + 2], strict=True):
                value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(self.dtype)
                present.append(value)
            attended = self.linear(attended, [f"{at}.self_attn.o_proj"], f"{at}.self_attn.o_proj")
            normed, hidden = self.skip_norm(hidden, attended, f"{at}.post_attention_layernorm")
            norm = f"{at}.post_attention_layernorm"
            gate = self.linear(normed, [f"{at}.mlp.gate_proj"], f"{at}.mlp.gate_proj", norm)
            gate = self.op("QuickGelu", [gate], f"{at}.mlp.silu", domain="com.microsoft", alpha=1.0)
            up = self.linear(normed, [f"{at}.mlp.up_proj"], f"{at}.mlp.up_proj", norm)
            product = self.op("Mul", [gate, up], f"{at}.mlp.product")
            down = self.linear(product, [f"{at}.mlp.down_proj"], f"{at}.mlp.down_proj")
            last = layer + 1 == c.num_hidden_layers
            normed, hidden = self.skip_norm(
                hidden, down, "norm" if last else f"layers.{layer + 1}.input_layernorm", ends=last
            )
        chosen = self.op("Gather", [normed, wanted], "wanted", axis=1)
        logits = self.linear(chosen, ["lm_head"], "lm_head")
        if self.dtype != ir.DataType.FLOAT:
            logits = self.cast(logits, ir.DataType.FLOAT)
        logits.name, logits.type = "logits", ir.TensorType(ir.DataType.FLOAT)
        # genai reads from this 1 that the logits are those of the last position, as they are by default.
        logits.shape = ir.Shape([batch, 1 if from_ids else "logits", c.vocab_size])
        graph = ir.Graph(
            [first, mask, *past, wanted],
            [logits, *present],
            nodes=self.nodes,
            initializers=self.constants,
            opset_imports={"": OPSET, "com.microsoft": 1},
            name="decoder",
        )
        calibration = None if self.smoothing is None else self.smoothing.calibration
        model = ir.Model(graph, ir_version=10, producer_name="edgebench")
        return traced(model, self.fills, self.kept, "ort", calibration)

    def ops(
        self, kind: str, inputs: Sequence[Any], name: str, outputs: int, domain: str = "", **attributes: Any
    ) -> Any:
        """One node; its outputs."""
        made = self.ir.convenience.convert_attributes(attributes)
        node = self.ir.Node(domain, kind, inputs, made, num_outputs=outputs, name=name)
        for number, value in enumerate(node.outputs):
            value.name = f"{name}.{number}"
        self.nodes.append(node)
        return node.outputs

    def op(self, kind: str, inputs: Sequence[Any], name: str, domain: str = "", **attributes: Any) -> Any:
        """One node of one output."""
        return self.ops(kind, inputs, name, 1, domain, **attributes)[0]

    def cast(self, value: Any, dtype: Any) -> Any:
        return self.op("Cast", [value], f"{value.name}.cast", to=int(dtype))

    def constant(self, name: str, array: NDArray[Any]) -> Any:
        value = new_value(name, self.ir.DataType.from_numpy(array.dtype), array.shape)
        value.const_value = self.ir.tensor(array, name=name)
        self.constants.append(value)
        return value

    def plain(self, parameter: str, dtype: Any = None) -> Any:
        """A weight as it is, in the type that the graph computes in where no other is given."""
        source = self.name_of(parameter)
        if source not in self.shared:
            value = self.shared[source] = new_value(parameter, dtype or self.dtype, self.weights.tensors[source].shape)
            self.fills.append(Fill((source,), "plain", [value]))
        return self.shared[source]

    def skip_norm(self, hidden: Any, added: Any, name: str, *, ends: bool = False) -> tuple[Any, Any]:
        """RMSNorm of the sum, and the sum."""
        inputs = [hidden, added, self.norm_weight(name)]
        found = self.ops(
            "SkipSimplifiedLayerNormalization", inputs, name, 1 if ends else 4, domain="com.microsoft",
            epsilon=float(self.config.rms_norm_eps),
        )  # fmt: skip
        if ends:
            return found[0], None
        for unused in found[1:3]:
            unused.name = ""
        return found[0], found[3]

    def factors(self, norm: str) -> NDArray[np.float32] | None:
        """Of the channels behind a norm; None where they are left as they are."""
        return None if self.smoothing is None else self.smoothing.columns.get(norm)

    def norm_weight(self, name: str) -> Any:
        """Of an RMSNorm, its channels divided by their factors."""
        factors = self.factors(name)
        if factors is None:
            return self.plain(f"{name}.weight")
        value = new_value(f"{name}.weight", self.dtype, factors.shape)
        self.fills.append(Fill((self.name_of(f"{name}.weight"),), "plain", [value], factors=np.float32(1) / factors))
        return value

    def dynamic(self, x: Any, sources: tuple[str, ...], n: int, factors: NDArray[np.float32], name: str) -> Any:
        """A product whose activations are rounded to int8 at each call."""
        k = len(factors)
        whole = new_value(f"{name}.weight_q8", self.ir.DataType.INT8, (k, n))
        scales = new_value(f"{name}.weight_scales", self.dtype, (n,))
        self.fills.append(Fill(sources, "dynamic-8", [whole, scales], k, factors))
        return self.op("DynamicQuantizeMatMul", [x, whole, scales], name, domain="com.microsoft")

    def linear(self, x: Any, modules: Sequence[str], name: str, norm: str = "") -> Any:
        """X times one or several weights, one below the other, and their biases; `norm` is what x comes from."""
        sources = tuple(self.name_of(f"{module}.weight") for module in modules)
        shapes = [self.weights.tensors[source].shape for source in sources]
        n, k = sum(shape[0] for shape in shapes), shapes[0][1]
        stored = self.stored(sources[0])
        factors = self.factors(norm)
        bits = BITS.get(stored)
        block = None if bits is None else blocks.block_of(k, n, bits)
        if factors is not None:
            out = self.dynamic(x, sources, n, factors, name)
        elif bits is not None and block is not None:
            values, attributes = matmul_nbits(f"{name}.weight", self.dtype, n, k, bits, block)
            self.fills.append(Fill(sources, "ort-8" if bits == 8 else "ort-4", values, block))
            out = self.op("MatMulNBits", [x, *values], name, domain="com.microsoft", **attributes)
        else:
            if bits is not None:
                self.kept += [blocks.why_kept(s, *shape) for s, shape in zip(sources, shapes, strict=True)]
            out = self.product(x, sources, (n, k), name, stored)
        return self.biased(out, modules, n, name)

    def product(self, x: Any, sources: tuple[str, ...], shape: tuple[int, int], name: str, stored: Stored) -> Any:
        """X times the transpose of a weight in floating point."""
        half = self.ir.DataType.BFLOAT16 if stored == "bf16" else self.dtype
        weight = self.shared.get(sources[0]) if len(sources) == 1 else None
        if weight is None or weight.dtype != half:
            weight = new_value(f"{name}.weight", half, shape)
            self.fills.append(Fill(sources, "plain", [weight]))
        if half != self.dtype:
            weight = self.cast(weight, self.dtype)
        return self.op("FusedMatMul", [x, weight], name, domain="com.microsoft", transB=1)

    def biased(self, out: Any, modules: Sequence[str], n: int, name: str) -> Any:
        sources = []
        for module in modules:
            try:
                sources.append(self.name_of(f"{module}.bias"))
            except KeyError:
                return out
        bias = new_value(f"{name}.bias", self.dtype, (n,))
        self.fills.append(Fill(tuple(sources), "plain", [bias]))
        return self.op("Add", [out, bias], f"{name}.add")
