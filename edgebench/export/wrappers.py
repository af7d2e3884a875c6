"""The three parts of a LLaVA as plain functions of tensors, ready to be traced.

Each wrapper calls the modules of the loaded checkpoint; none has weights of its own. The cache goes in and out as
flat tensors, so that a runtime can keep it wherever it likes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edgebench.errors import CheckpointError

GQA = "edgebench_gqa"


class VisionPart(nn.Module):
    """Vision tower, the layer that the checkpoint names, and the projector."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        layers = config.vision_feature_layer
        self.layers = [layers] if isinstance(layers, int) else list(layers)
        self.drop_class_token = config.vision_feature_select_strategy == "default"
        self.tower = model.model.vision_tower
        self.projector = model.model.multi_modal_projector

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """float32 [tiles, 3, H, W] -> float32 [tiles, tokens, hidden]."""
        dtype = next(self.projector.parameters()).dtype
        hidden = self.tower(pixel_values.to(dtype), output_hidden_states=True).hidden_states
        chosen = [hidden[layer][:, 1:] if self.drop_class_token else hidden[layer] for layer in self.layers]
        features: torch.Tensor = self.projector(torch.cat(chosen, dim=-1))
        return features.float()


class EmbedPart(nn.Module):
    """Token embedding."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embed = model.get_input_embeddings()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """int64 [batch, tokens] -> float32 [batch, tokens, hidden]."""
        embedded: torch.Tensor = self.embed(input_ids)
        return embedded.float()


class PortableDecoder(nn.Module):
    """Decoder with plain scaled-dot-product attention, for any ONNX runtime."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.model.language_model
        self.head = model.lm_head
        self.layers = self.decoder.config.num_hidden_layers

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        logits_index: torch.Tensor,
        *past: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """One prefill or one decode step.

        Args:
            inputs_embeds: float32 [batch, tokens, hidden].
            attention_mask: int64 [batch, past + tokens], 1 for real tokens.
            position_ids: int64 [batch, tokens].
            logits_index: int64 [k]: the positions of `tokens` whose logits are wanted.
            past: key and value of each layer in turn, [batch, kv_heads, past, head_dim].

        Returns:
            float32 logits [batch, k, vocab], then key and value of each layer, [batch, kv_heads, past + tokens, head_dim].
        """
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache([(past[2 * i], past[2 * i + 1]) for i in range(self.layers)])
        dtype = self.head.weight.dtype
        hidden = self.decoder(
            inputs_embeds=inputs_embeds.to(dtype),
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        logits = self.head(hidden.index_select(1, logits_index)).float()
        kept: list[Any] = cache.layers
        present = [tensor for layer in kept for tensor in (layer.keys, layer.values)]
        return (logits, *present)


class _PassingCache:
    """Stands in for transformers' cache while the fused attention keeps the real one."""

    is_compileable = False
    is_initialized = True

    def __init__(self, past: tuple[torch.Tensor, ...], seqlens_k: torch.Tensor, total: torch.Tensor) -> None:
        self.past = past
        self.present: list[torch.Tensor] = []
        self.seqlens_k = seqlens_k
        self.total = total

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key, value

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        return self.past[0].shape[2]

    def get_mask_sizes(self, *_: Any, **__: Any) -> tuple[Any, int]:
        return self.past[0].shape[2], 0


_active: list[_PassingCache] = []


def _grouped_query_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    cache, layer = _active[-1], int(module.layer_idx)  # type: ignore[arg-type] # set by transformers on each layer
    batch, heads, tokens, head_dim = query.shape
    kv_heads = key.shape[1]
    past_key, past_value = cache.past[2 * layer], cache.past[2 * layer + 1]
    flat = [t.transpose(1, 2).reshape(batch, tokens, -1) for t in (query, key, value)]
    present_shape = (batch, kv_heads, past_key.shape[2] + tokens, head_dim)
    out, present_key, present_value = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        (*flat, past_key, past_value, cache.seqlens_k, cache.total),
        attrs={"num_heads": heads, "kv_num_heads": kv_heads, "scale": float(scaling)},
        dtypes=(query.dtype, query.dtype, query.dtype),
        shapes=((batch, tokens, heads * head_dim), present_shape, present_shape),
        version=1,
    )
    cache.present += [present_key, present_value]
    return out.reshape(batch, tokens, heads, head_dim), None


class OrtDecoder(nn.Module):
    """Decoder with ONNX Runtime's fused GroupQueryAttention. One sequence a call; no padding."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        from transformers import AttentionInterface

        AttentionInterface.register(GQA, _grouped_query_attention)
        self.decoder = model.model.language_model
        self.head = model.lm_head
        kind = type(self.decoder).__name__
        if kind not in {"LlamaModel", "MistralModel", "Qwen2Model"}:
            raise CheckpointError(f"the decoder {kind} has no fused form here", hint="export with --dialect portable")

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        seqlens_k: torch.Tensor,
        total_sequence_length: torch.Tensor,
        logits_index: torch.Tensor,
        *past: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """One prefill or one decode step.

        Args:
            inputs_embeds: float32 [1, tokens, hidden].
            position_ids: int64 [1, tokens].
            seqlens_k: int32 [1]: past + tokens - 1.
            total_sequence_length: int32 scalar: past + tokens.
            logits_index: int64 [k]: the positions of `tokens` whose logits are wanted.
            past: key and value of each layer in turn, [1, kv_heads, past, head_dim].

        Returns:
            float32 logits [1, k, vocab], then key and value of each layer.
        """
        cache = _PassingCache(past, seqlens_k, total_sequence_length)
        config = self.decoder.config
        before, config._attn_implementation = config._attn_implementation, GQA
        _active.append(cache)
        try:
            dtype = self.head.weight.dtype
            hidden = self.decoder(
                inputs_embeds=inputs_embeds.to(dtype),
                attention_mask=None,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
        finally:
            _active.pop()
            config._attn_implementation = before
        return (self.head(hidden.index_select(1, logits_index)).float(), *cache.present)
