"""The decoder graph's inputs by name, from a manifest's facts. Export (for parity) and engines both feed it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgebench.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgebench.manifest import Decoder, Graph

PIECE = 192
"""Most tokens of a prompt that a decoder with its cache in place reads at once."""


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


def _total(first: NDArray[np.generic], past: int) -> int:
    return past + int(first.shape[1])


Known = Callable[[NDArray[np.generic], int, NDArray[np.int64]], NDArray[np.generic]]
KNOWN: dict[str, Known] = {
    "inputs_embeds": lambda first, past, wanted: first,
    "input_ids": lambda first, past, wanted: first,
    "position_ids": lambda first, past, wanted: np.tile(np.arange(past, _total(first, past)), (len(first), 1)),
    "logits_index": lambda first, past, wanted: wanted,
    "seqlens_k": lambda first, past, wanted: np.full(len(first), _total(first, past) - 1),
    "total_sequence_length": lambda first, past, wanted: np.array(_total(first, past)),
    "attention_mask": lambda first, past, wanted: np.ones((len(first), _total(first, past)), dtype=np.int64),
    "num_logits_to_keep": lambda first, past, wanted: np.array(first.shape[1] - int(wanted.min())),
}
"""Input of a decoder -> what is in it, from what is read, the tokens in the cache and the wanted positions."""


def pieces(decoder: Decoder, types: Mapping[str, str], rows: int, tokens: int) -> list[slice]:
    """How a prompt is read: at once, or in even pieces by a decoder of ours that keeps its cache in place.

    GroupQueryAttention on a CPU multiplies each query by all keys of a call, later ones too: in pieces of 512 tokens
    that is two thirds of the work, on scores that stay near the core. Behind a past it takes several tokens of one row
    only. Even, since a product with one row is rounded otherwise in int8.
    """
    count = -(-tokens // PIECE) if decoder.in_place and rows == 1 and "logits_index" in types else 1
    size = -(-tokens // count)
    return [slice(begin, min(begin + size, tokens)) for begin in range(0, tokens, size)]


def step_types(graph: Graph) -> dict[str, str]:
    """Name -> type of the decoder's inputs but for the cache.

    Raises:
        ArtifactError: it takes one that is not known here.
    """
    found = {fact.name: fact.dtype for fact in graph.inputs if not fact.name.startswith("past_key_values.")}
    for name in found:
        if name not in KNOWN:
            raise ArtifactError(f"the decoder takes the input {name!r}, which is not known here")
    return found


def step_inputs(
    types: Mapping[str, str], first: NDArray[np.generic], past: int, wanted: NDArray[np.int64]
) -> dict[str, NDArray[np.generic]]:
    """Everything but the cache for one call of the decoder: those inputs that the graph has, in its types.

    Args:
        types: the decoder's `step_types`.
        first: what it reads: float32 [rows, tokens, hidden], or token ids int64 [rows, tokens].
        past: tokens in the cache, of each row.
        wanted: int64 [k], the positions of this call whose logits are wanted.
    """
    return {name: KNOWN[name](first, past, wanted).astype(dtype, copy=False) for name, dtype in types.items()}


def wanted_logits(
    types: Mapping[str, str], logits: NDArray[np.float32], wanted: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The logits [rows, k, vocab] of the wanted positions, of what a decoder gave, [rows, positions, vocab].

    A decoder without `logits_index` gives the logits of all positions, or of the last ones.
    """
    if "logits_index" in types:
        found = logits
    elif "num_logits_to_keep" in types:
        found = logits[:, wanted - int(wanted.min())]
    else:
        found = logits[:, wanted]
    return found
