"""The shapes of a plan: which sizes are fixed, and the range of the others.

The past of the decoder has one size in each profile: a decode step reads the whole cache, whose unused places the
mask leaves out, so every step has the same shapes; a prompt reads one masked place, so no tensor is empty.
Dynamic are the tokens of a prompt, and the tiles of models that cut pictures up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.errors import EngineError

if TYPE_CHECKING:
    from edgebench.manifest import Decoder, Graph, Manifest

Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]
"""Least, usual and largest."""
Profile = dict[str, Range]
"""Input -> its range."""
CAPACITY = 4096
"""Tokens of prompt and answer that plans have room for, where neither model nor device profile says less."""
PAST_OF_PROMPT = 1
PROMPT, STEP = 0, 1
"""Numbers of the profiles of 'embed' and 'decoder'. Other graphs have one."""
TILES_OF_ROWS = 8
"""Tiles of a composite that are seen at a time."""
WORDS = 128
"""Of a usual question."""


def capacity_of(manifest: Manifest, wanted: int | None) -> int:
    """Tokens of prompt and answer that there is room for."""
    context = CAPACITY if manifest.text is None else manifest.text.context_length
    return min(context, wanted or CAPACITY)


def tiles_of(manifest: Manifest) -> int:
    """Tiles that the vision graph sees at a time; more are seen in turns."""
    p = manifest.preprocess
    if p is None or p.kind not in {"anyres_tiles", "tile_rows"}:
        return 1
    if p.kind == "tile_rows":
        return TILES_OF_ROWS
    return 1 + max((rows // p.height) * (columns // p.width) for rows, columns in p.grids)


def pixels_shape(graph: Graph, tiles: int) -> Shape:
    """Of `pixel_values`.

    Raises:
        EngineError: the graph takes something else.
    """
    fact = graph.inputs[0]
    sizes = fact.shape[1:]
    if len(graph.inputs) != 1 or len(fact.shape) != 4 or any(isinstance(size, str) for size in sizes):
        raise EngineError("a graph that looks at pictures should take one input [N, 3, height, width]")
    return (tiles, *(int(size) for size in sizes))


def decoder_shapes(graph: Graph, decoder: Decoder, tokens: int, past: int) -> dict[str, Shape]:
    """Of all inputs of the decoder, for one prompt or step.

    Raises:
        EngineError: the graph takes an input that is not known here.
    """
    known: dict[str, Shape] = {
        "inputs_embeds": (1, tokens, decoder.hidden_size),
        "input_ids": (1, tokens),
        "attention_mask": (1, past + tokens),
        "position_ids": (1, tokens),
        "logits_index": (1,),
    }
    found: dict[str, Shape] = {}
    for fact in graph.inputs:
        if fact.name.startswith("past_key_values."):
            found[fact.name] = (1, decoder.kv_heads, past, decoder.head_dim)
        elif fact.name in known:
            found[fact.name] = known[fact.name]
        else:
            raise EngineError(
                f"the decoder takes the input {fact.name!r}", hint="export it with --dialect portable for TensorRT"
            )
    missing = {"attention_mask", "position_ids", "logits_index"} - found.keys()
    if missing:
        raise EngineError(f"the decoder does not take {', '.join(sorted(missing))}, which a fixed cache needs")
    return found


def profiles_of(manifest: Manifest, capacity: int) -> dict[str, tuple[Profile, ...]]:
    """Graph -> its profiles.

    Raises:
        EngineError: a graph takes what it should not.
    """
    found: dict[str, tuple[Profile, ...]] = {}
    images = None if manifest.text is None else manifest.text.images
    usual = min(capacity, WORDS + (images.per_tile if images else 0))
    for name, graph in manifest.graphs.items():
        if name == "decoder" and manifest.decoder is not None:
            decoder = manifest.decoder
            prompts = [decoder_shapes(graph, decoder, tokens, PAST_OF_PROMPT) for tokens in (1, usual, capacity)]
            step = decoder_shapes(graph, decoder, 1, capacity)
            found[name] = (
                {key: (prompts[0][key], prompts[1][key], prompts[2][key]) for key in step},
                {key: (shape, shape, shape) for key, shape in step.items()},
            )
        elif name == "embed":
            found[name] = (
                {"input_ids": ((1, 1), (1, usual), (1, capacity))},
                {"input_ids": ((1, 1), (1, 1), (1, 1))},
            )
        else:
            most = tiles_of(manifest) if name == "vision" else 1
            shapes = [pixels_shape(graph, tiles) for tiles in (1, min(most, 4), most)]
            found[name] = ({graph.inputs[0].name: (shapes[0], shapes[1], shapes[2])},)
    return found
