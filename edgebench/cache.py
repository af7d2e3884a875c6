"""The decoder graph's inputs by name, from a manifest's facts. Export (for parity) and engines both feed it so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Decoder


def cache_names(layers: int) -> tuple[list[str], list[str]]:
    """Names of the cache's inputs and outputs, key and value of each layer in turn."""
    kinds = [(layer, kind) for layer in range(layers) for kind in ("key", "value")]
    return [f"past_key_values.{i}.{k}" for i, k in kinds], [f"present.{i}.{k}" for i, k in kinds]


def empty_cache(decoder: Decoder) -> list[NDArray[np.generic]]:
    """A cache of no tokens, [1, kv_heads, 0, head_dim] for key and value of each layer."""
    shape = (1, decoder.kv_heads, 0, decoder.head_dim)
    return [np.zeros(shape, dtype=decoder.cache_dtype) for _ in range(2 * decoder.layers)]


def step_inputs(
    dialect: str, embeds: NDArray[np.float32], past: int, wanted: NDArray[np.int64]
) -> dict[str, NDArray[np.generic]]:
    """Everything but the cache for one call of the decoder.

    Args:
        dialect: 'ort' or 'portable'.
        embeds: float32 [1, tokens, hidden].
        past: tokens in the cache.
        wanted: int64 [k], the positions of this call whose logits are wanted.
    """
    tokens = embeds.shape[1]
    total = past + tokens
    inputs: dict[str, NDArray[np.generic]] = {
        "inputs_embeds": embeds,
        "position_ids": np.arange(past, total, dtype=np.int64)[None],
        "logits_index": wanted,
    }
    if dialect == "ort":
        inputs["seqlens_k"] = np.array([total - 1], dtype=np.int32)
        inputs["total_sequence_length"] = np.array(total, dtype=np.int32)
    else:
        inputs["attention_mask"] = np.ones((1, total), dtype=np.int64)
    return inputs
