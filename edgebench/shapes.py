"""The shape of a language model, as its config states it: enough for an estimate before anything is exported."""

from __future__ import annotations

from dataclasses import dataclass

from edgebench.work import Work

BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "source": 2.0, "int8": 1 + 4 / 32, "int4": 0.5 + 4.5 / 32, "w8a8": 1.0}
"""Kind of a part -> bytes of a weight: blocks of 32 carry a float32 scale, in int4 a zero point of 4 bits too."""


@dataclass(frozen=True)
class VisionShape:
    """A CLIP-like tower and the two layers that project its patches into the language model."""

    layers: int
    """Those that are run: LLaVA takes the features before the last one."""
    hidden: int
    intermediate: int
    image: int
    """Side of a tile, in pixels."""
    patch: int
    keeps_class: bool = False
    """Whether the class token's features are taken too."""

    @property
    def tokens(self) -> int:
        """Features of one tile."""
        return (self.image // self.patch) ** 2 + self.keeps_class


@dataclass(frozen=True)
class Shape:
    """A Llama-like decoder, with or without eyes."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    vision: VisionShape | None = None

    def cache_bytes_per_token(self, size: int) -> int:
        """Keys and values of one token, each number of `size` bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * size


def works(shape: Shape, kinds: dict[str, str]) -> tuple[dict[str, Work], dict[str, int]]:
    """The work of each graph, and its bytes on the disk; norms and biases are left out of both.

    Args:
        shape: the model.
        kinds: part ('vision', 'embed', 'decoder', 'lm_head') -> kind.
    """
    heads, cached = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layers = shape.layers * shape.hidden * (2 * heads + 2 * cached + 3 * shape.intermediate)
    table = shape.hidden * shape.vocab
    weights = round(layers * BYTES[kinds["decoder"]] + table * BYTES[kinds["lm_head"]])
    per_pair = 4 * shape.layers * heads
    found = {"decoder": Work(kinds["decoder"], 2 * layers, per_pair, 2 * table, weights)}
    on_disk = {"decoder": weights, "embed": round(table * BYTES[kinds["embed"]])}
    v = shape.vision
    if v is not None:
        patches, pixels = (v.image // v.patch) ** 2, 3 * v.patch**2 * v.hidden
        tower = v.layers * (4 * v.hidden**2 + 2 * v.hidden * v.intermediate)
        projector = v.hidden * shape.hidden + shape.hidden**2
        seen = 2 * v.layers * 2 * (patches + 1) ** 2 * v.hidden
        each = 2 * ((patches + 1) * tower + patches * pixels + v.tokens * projector) + seen
        # The first convolution stays in floating point.
        kind = kinds["vision"]
        weights = round((tower + projector) * BYTES[kind]) + pixels * (2 if kind in {"fp16", "bf16"} else 4)
        found["vision"] = Work(kind, each, weight_bytes=weights)
        on_disk["vision"] = weights
    return found, on_disk
