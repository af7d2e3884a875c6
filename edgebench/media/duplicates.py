"""Near-duplicates across splits: what calibrates or trains must not be what tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DISTANCE = 6
"""Perceptual hashes of 64 bits that differ in at most so many are taken for the same picture."""
_ROWS = 128
_ONES = np.array([bin(k).count("1") for k in range(1 << 16)], dtype=np.uint8)
"""Bits set in every 16-bit word."""


@dataclass(frozen=True)
class Hashed:
    """A picture's perceptual hash."""

    name: str
    split: str
    value: int


@dataclass(frozen=True)
class NearDuplicate:
    """Two pictures of different splits that look alike."""

    one: str
    one_split: str
    other: str
    other_split: str
    distance: int
    """Bits of 64."""


def perceptual_hash(picture: NDArray[np.uint8]) -> int:
    """The 64 bits of imagehash's `phash` (DCT of the 32 x 32 grey picture) of uint8 [H, W, 3]."""
    import imagehash

    bits = imagehash.phash(Image.fromarray(picture)).hash.reshape(-1)
    return int("".join("1" if b else "0" for b in bits), 2)


def near_duplicates(pictures: Sequence[Hashed], distance: int = DISTANCE) -> list[NearDuplicate]:
    """All pairs across different splits within `distance` bits, nearest first."""
    values = np.array([p.value for p in pictures], dtype=np.uint64)
    names = sorted({p.split for p in pictures})
    splits = np.array([names.index(p.split) for p in pictures])
    found = []
    for start in range(0, len(values), _ROWS):
        rows = slice(start, start + _ROWS)
        words = (values[rows, None] ^ values[None, :]).view(np.uint16).reshape(-1, len(values), 4)
        bits = _ONES[words].sum(axis=2)
        close = (bits <= distance) & (splits[rows, None] < splits[None, :])
        for a, b in zip(*np.nonzero(close), strict=True):
            one, other = pictures[start + int(a)], pictures[int(b)]
            found.append(NearDuplicate(one.name, one.split, other.name, other.split, int(bits[a, b])))
    return sorted(found, key=lambda pair: (pair.distance, pair.one, pair.other))
