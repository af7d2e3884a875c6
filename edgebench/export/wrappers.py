"""Parts of a model as plain functions of tensors, ready to be traced.

Each wrapper calls the modules of the checkpoint; none has weights of its own. The cache goes in and out as flat
tensors, so that a runtime can keep it wherever it likes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class PortableDecoder(nn.Module):
    """Decoder with plain scaled-dot-product attention, for any ONNX runtime."""

    def __init__(self, decoder: Any, head: Any, *, from_ids: bool = False) -> None:
        """Wrap a language model.

        Args:
            decoder: layers and the last norm.
            head: hidden -> logits.
            from_ids: take token ids and embed them.
        """
        super().__init__()
        self.decoder, self.head, self.from_ids = decoder, head, from_ids
        self.layers = decoder.config.num_hidden_layers

    def forward(
        self,
        first: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        logits_index: torch.Tensor,
        *past: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """One prefill or one decode step.

        Args:
            first: float32 [batch, tokens, hidden], or int64 [batch, tokens].
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
        embeds = self.decoder.get_input_embeddings()(first) if self.from_ids else first
        hidden = self.decoder(
            inputs_embeds=embeds.to(dtype),
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        logits = self.head(hidden.index_select(1, logits_index)).float()
        kept: list[Any] = cache.layers
        present = [tensor for layer in kept for tensor in (layer.keys, layer.values)]
        return (logits, *present)
