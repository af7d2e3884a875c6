"""The decoder graph's inputs by name, from a manifest's facts. Export (for parity) and engines both feed it so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgebench.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from edgebench.manifest import Decoder, Graph


def cache_names(layers: int) -> tuple[list[str], list[str]]:
    """Names of the cache's inputs and outputs, key and value of each layer in turn."""
    kinds = [(layer, kind) for layer in range(layers) for kind in ("key", "value")]
    return [f"past_key_values.{i}.{k}" for i, k in kinds], [f"present.{i}.{k}" for i, k in kinds]


def bytes_per_token(decoder: Decoder) -> int:
    """What the cache of one token takes: a key and a value in each layer."""
    return 2 * decoder.layers * decoder.kv_heads * decoder.head_dim * np.dtype(decoder.cache_dtype).itemsize


def empty_cache(decoder: Decoder, rows: int = 1) -> list[NDArray[np.generic]]:
    """A cache of no tokens, [rows, kv_heads, 0, head_dim] for key and value of each layer."""
    shape = (rows, decoder.kv_heads, 0, decoder.head_dim)
    return [np.zeros(shape, dtype=decoder.cache_dtype) for _ in range(2 * decoder.layers)]


def step_inputs(
    graph: Graph, first: NDArray[np.generic], past: int, wanted: NDArray[np.int64]
) -> dict[str, NDArray[np.generic]]:
    """Everything but the cache for one call of the decoder: those inputs that the graph has, in its types.

    Args:
        graph: the decoder.
        first: what it reads: float32 [rows, tokens, hidden], or token ids int64 [rows, tokens].
        past: tokens in the cache, of each row.
        wanted: int64 [k], the positions of this call whose logits are wanted.

    Raises:
        ArtifactError: the graph takes an input that is not known here.
    """
    rows, tokens = first.shape[:2]
    total = past + tokens
    known: dict[str, Callable[[], NDArray[np.generic]]] = {
        "inputs_embeds": lambda: first,
        "input_ids": lambda: first,
        "position_ids": lambda: np.tile(np.arange(past, total, dtype=np.int64), (rows, 1)),
        "logits_index": lambda: wanted,
        "seqlens_k": lambda: np.full(rows, total - 1, dtype=np.int32),
        "total_sequence_length": lambda: np.array(total, dtype=np.int32),
        "attention_mask": lambda: np.ones((rows, total), dtype=np.int64),
        "num_logits_to_keep": lambda: np.array(tokens - int(wanted.min()), dtype=np.int64),
    }
    found: dict[str, NDArray[np.generic]] = {}
    for fact in graph.inputs:
        if fact.name in known:
            found[fact.name] = known[fact.name]().astype(fact.dtype, copy=False)
        elif not fact.name.startswith("past_key_values."):
            raise ArtifactError(f"the decoder takes the input {fact.name!r}, which is not known here")
    return found


def wanted_logits(graph: Graph, logits: NDArray[np.float32], wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """The logits [rows, k, vocab] of the wanted positions, of what a decoder gave, [rows, positions, vocab].

    A decoder without `logits_index` gives the logits of all positions, or of the last ones.
    """
    names = {fact.name for fact in graph.inputs}
    if "logits_index" in names:
        found = logits
    elif "num_logits_to_keep" in names:
        found = logits[:, wanted - int(wanted.min())]
    else:
        found = logits[:, wanted]
    return found
