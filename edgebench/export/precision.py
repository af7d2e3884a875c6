"""What a precision means for each part of a language model: the stated rule, and a recipe's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from edgebench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgebench.export.initializers import Stored
    from edgebench.manifest import Parity

Kind = Literal["fp32", "fp16", "bf16", "int8", "int4", "w8a8", "source"]
"""fp32, fp16: stored and computed so. bf16: stored so, computed in float32. int8, int4: weights in blocks, computed in
float32. w8a8: weights and activations in int8, by calibration; in a decoder of the dialect 'ort' the products behind
a norm, the others and the dialect 'portable' in blocks. source: the embedding in the checkpoint's own type."""
PARTS = ("vision", "embed", "decoder", "lm_head")
RULES: dict[str, dict[str, Kind]] = {
    "fp32": dict.fromkeys(PARTS, "fp32"),
    "fp16": dict.fromkeys(PARTS, "fp16"),
    "bf16": {**dict.fromkeys(PARTS, "bf16"), "embed": "source"},
    "int8": {**dict.fromkeys(PARTS, "int8"), "embed": "source"},
    "int4": {"vision": "int8", "embed": "source", "decoder": "int4", "lm_head": "int8"},
    "w8a8": {"vision": "w8a8", "embed": "source", "decoder": "w8a8", "lm_head": "int8"},
}
"""Precision -> part -> kind. The embedding is looked up, not multiplied: it keeps its type. Vision and lm_head, whose
errors reach every token, take 8 bits where the decoder's layers take 4."""
_CAN: dict[str, tuple[Kind, ...]] = {
    "vision": ("fp32", "fp16", "bf16", "int8", "int4", "w8a8"),
    "embed": ("fp32", "fp16", "bf16", "source"),
    "decoder": ("fp32", "fp16", "bf16", "int8", "int4", "w8a8"),
    "lm_head": ("fp32", "fp16", "bf16", "int8", "int4"),
}


AGREES = 0.99
"""Top-1 agreement from which a prefill counts as the checkpoint's."""
PROMPT = ("text", "prefill")
"""The rows of parity that read prompts."""


@dataclass(frozen=True)
class Parts:
    """The kind of each part."""

    vision: Kind
    embed: Kind
    decoder: Kind
    lm_head: Kind

    @property
    def decoder_float(self) -> Literal["float32", "float16"]:
        """What decoder and lm_head compute in."""
        return "float16" if self.decoder == "fp16" else "float32"

    @property
    def vision_float(self) -> Literal["float32", "float16"]:
        """What the vision tower computes in."""
        return "float16" if self.vision == "fp16" else "float32"

    def stored(self, part: str) -> Callable[[str], Stored]:
        """Tensor of the checkpoint -> how it is stored in a graph: 'vision', 'embed' or 'decoder'."""
        if part == "embed":
            return lambda source: "float"
        if part == "vision":
            # The vision graph is written in floating point first, and its activations measured on that.
            return lambda source: "float" if self.vision == "w8a8" else _stored(self.vision)
        return lambda source: _stored(self.lm_head if "lm_head" in source or "embed_tokens" in source else self.decoder)


def parts_of(precision: str, own: Mapping[str, Mapping[str, str]], where: str) -> Parts:
    """The parts of a precision: the recipe's own where it states some, else the rule's.

    Raises:
        ConfigError: a part or kind is unknown, or two do not go together.
    """
    chosen: dict[str, str] = dict(RULES.get(precision, RULES["fp32"]))
    for part, kind in own.get(precision, {}).items():
        if part not in PARTS:
            raise ConfigError(f"unknown part {part!r} in precisions", where=where, hint=did_you_mean(part, PARTS))
        if kind not in get_args(Kind) or kind not in _CAN[part]:
            raise ConfigError(f"{part} cannot be {kind!r}", where=where, hint=f"it can be {', '.join(_CAN[part])}")
        chosen[part] = kind
    if ("fp16" in (chosen["decoder"], chosen["lm_head"])) and chosen["decoder"] != chosen["lm_head"]:
        raise ConfigError("decoder and lm_head are one graph: both fp16, or neither", where=where)
    return Parts(**chosen)  # type: ignore[arg-type] # each kind was looked up


def prefill_statement(parts: Parts, precision: str, dialect: str, parity: Parity | None) -> str:
    """How the decoder computes a prompt, why so, and whether its top-1 agreement with the checkpoint reaches `AGREES`.

    Args:
        parts: what each part became.
        precision: what was asked for.
        dialect: 'ort' or 'portable'.
        parity: None where it was not measured.
    """
    in_blocks = "activations in int8 by blocks (MatMulNBits, accuracy_level 4)" if dialect == "ort" else "float32"
    how = {
        "fp16": "float16",
        "int8": f"int8 weights, {in_blocks}",
        "int4": f"int4 weights, {in_blocks}",
        "w8a8": "int8 weights and activations behind a norm, the rest as int8" if dialect == "ort" else in_blocks,
    }.get(parts.decoder, "float32")
    said = f"{how}: what {precision!r} asks for, in prefill and decode alike"
    agreed = agreement(parity)
    if agreed is None:
        return f"{said}; agreement with the checkpoint not measured"
    top1, total = agreed
    verdict = "at least" if top1 >= AGREES else "less than"
    return f"{said}; top-1 agreement with the checkpoint {100 * top1:.1f} % of {total}, {verdict} {100 * AGREES:.0f} %"


def agreement(parity: Parity | None) -> tuple[float, int] | None:
    """Top-1 agreement with the checkpoint over prompts, and over how many positions; None where it is not known."""
    known = [] if parity is None else [(r.top1_agreement, r.positions) for r in parity.rows if r.what in PROMPT]
    shares = [(share, n) for share, n in known if share is not None]
    total = sum(n for _, n in shares)
    return (sum(share * n for share, n in shares) / total, total) if total else None


def _stored(kind: Kind) -> Stored:
    return kind if kind == "bf16" or kind == "int8" or kind == "int4" or kind == "w8a8" else "float"
