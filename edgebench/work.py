"""What a graph has to do at least: operations and bytes. Counted at export, kept in the manifest, used for limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """The least work of one call of a graph on so many items: tiles of a picture, or tokens.

    Two operations are one multiplication and one addition. Only matrix products, convolutions and attention count;
    all else is left out, so the true work is larger.
    """

    precision: str
    """The graph's: what its arithmetic may be rounded to."""
    operations_per_item: int | None
    """None where the graph's shapes could not be followed."""
    operations_per_pair: int = 0
    """Attention: for each token and each position that it sees."""
    operations_once: int = 0
    """Of the last token alone: its logits."""
    weight_bytes: int = 0
    """Read by every call; tables that are only looked up are left out."""

    def operations(self, items: int, pairs: float = 0) -> float | None:
        """Of one call on `items`, whose tokens see `pairs` positions in all."""
        if self.operations_per_item is None:
            return None
        return items * self.operations_per_item + pairs * self.operations_per_pair + self.operations_once


def pairs(tokens: int, kept: int = 0) -> int:
    """Positions that the tokens of a prompt see together, each itself and all before it; the first `kept` ask none."""
    return (tokens * (tokens + 1) - kept * (kept + 1)) // 2
