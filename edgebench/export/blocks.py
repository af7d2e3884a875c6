"""Weights in blocks along K: the numbers of int8 and int4, and their packing for each dialect.

int8 is symmetric: `scale = max|w| / 127`. int4 is asymmetric: `scale = (max - min) / 15` over a range that holds
zero, and a zero point. Rows are those of a linear layer's weight, [N, K]; each row's blocks are independent, so any
number of rows may be quantized at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = {8: (32, 16), 4: (32, 16)}
"""Bits -> sizes of blocks, best first; the first that divides K is taken."""
SMALL = 4096
"""Matrices of fewer values stay in floating point: nothing is gained."""


def block_of(k: int, n: int, bits: int) -> int | None:
    """The block of a matrix [N, K]; None for one that stays in floating point."""
    return None if k * n < SMALL else next((b for b in BLOCKS[bits] if k % b == 0), None)


def why_kept(source: str, n: int, k: int) -> str:
    """Why a matrix [N, K] was not quantized, for the manifest."""
    return f"{source} [{n}, {k}]: " + ("small" if k * n < SMALL else "no block divides K")


def symmetric_rows(
    rows: NDArray[np.floating[Any]], block: int, most: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Float [n, K] -> int8 [n, K] in -most..most and float32 scales [n, K / block]."""
    n, k = rows.shape
    blocks = rows.astype(np.float32).reshape(n, k // block, block)
    scale = np.abs(blocks).max(axis=2) / np.float32(most)
    safe = np.where(scale == 0, np.float32(1), scale)
    values = np.clip(np.rint(blocks / safe[:, :, None]), -most, most).astype(np.int8)
    return values.reshape(n, k), scale.astype(np.float32)


def int8_rows(rows: NDArray[np.floating[Any]], block: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """`symmetric_rows` in -127..127."""
    return symmetric_rows(rows, block, 127)


def symmetric_int4_rows(rows: NDArray[np.floating[Any]], block: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """`symmetric_rows` in -7..7: int4 for runtimes without zero points."""
    return symmetric_rows(rows, block, 7)


def int4_rows(
    rows: NDArray[np.floating[Any]], block: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.uint8]]:
    """Float [n, K] -> 0..15 as uint8 [n, K], float32 scales and zero points 0..15 [n, K / block]."""
    n, k = rows.shape
    blocks = rows.astype(np.float32).reshape(n, k // block, block)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    scale = (high - low) / np.float32(15)
    safe = np.where(scale == 0, np.float32(1), scale)
    zero = np.clip(np.rint(-low / safe), 0, 15)
    values = np.clip(np.rint(blocks / safe[:, :, None]) + zero[:, :, None], 0, 15).astype(np.uint8)
    return values.reshape(n, k), scale.astype(np.float32), zero.astype(np.uint8)


def nibbles(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """0..15, [..., k] -> two a byte, the first in the lower half, [..., ceil(k / 2)]."""
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.uint8)], axis=-1)
    upper: NDArray[np.uint8] = np.left_shift(values[..., 1::2], 4, dtype=np.uint8)
    packed: NDArray[np.uint8] = values[..., 0::2] | upper
    return packed
