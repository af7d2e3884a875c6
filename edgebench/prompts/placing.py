"""Where a picture's features stand in the prompt: which of its tiles' features are used, and what is between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgebench.errors import SampleError
from edgebench.media.geometry import best_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edgebench.manifest import ImageTokens, Preprocess, Text


@dataclass(frozen=True)
class Placing:
    """One picture in the prompt."""

    tiles: int
    tokens: int
    """Positions that it takes, ends of rows included."""
    used: NDArray[np.int64] | None = None
    """Which features of its tiles are used, in order; None: all of them."""
    row_ends: NDArray[np.int64] | None = None
    """LLaVA-NeXT: which of its positions hold the end of a row."""

    @property
    def features(self) -> int:
        """Features that are put into the prompt."""
        return self.tokens - (0 if self.row_ends is None else len(self.row_ends))


def placing(size: tuple[int, int], tiles: int, preprocess: Preprocess, images: ImageTokens) -> Placing:
    """How one picture stands in the prompt.

    Args:
        size: rows and columns of the picture, before any resizing.
        tiles: how many tiles it was cut into.
        preprocess: how it was cut.
        images: the model's image tokens.
    """
    if images.newline_id is None:
        return Placing(tiles, tiles * images.per_tile)
    side = math.isqrt(images.per_tile)
    grid = best_grid(*size, preprocess.grids)
    rows, columns = grid[0] // preprocess.height, grid[1] // preprocess.width
    # Feature numbers of the grid's tiles, laid out as the picture is; the tile of the whole picture comes first.
    numbers = np.arange(side * side, (rows * columns + 1) * side * side, dtype=np.int64)
    picture = numbers.reshape(rows, columns, side, side).transpose(0, 2, 1, 3).reshape(rows * side, columns * side)
    picture = _unpadded(picture, size)
    height, width = picture.shape
    first = side * side
    used = np.concatenate([np.arange(first, dtype=np.int64), picture.reshape(-1)])
    row_ends = first + width + (width + 1) * np.arange(height, dtype=np.int64)
    return Placing(tiles, first + height * (width + 1), used, row_ends)


def chosen(features: NDArray[np.float32], pictures: Sequence[Placing]) -> NDArray[np.float32]:
    """The features that go into the prompt, in its order, of those of all tiles.

    Args:
        features: float32 [tiles * per tile, hidden].
        pictures: in order.
    """
    if all(picture.used is None for picture in pictures):
        return features
    per_tile = len(features) // sum(picture.tiles for picture in pictures)
    each = np.split(features, np.cumsum([p.tiles for p in pictures])[:-1] * per_tile)
    return np.concatenate([f if p.used is None else f[p.used] for f, p in zip(each, pictures, strict=True)])


def _unpadded(picture: NDArray[np.int64], size: tuple[int, int]) -> NDArray[np.int64]:
    """Without the rows or columns that only padding went into, by transformers' rule for LLaVA-NeXT."""
    (height, width), (rows, columns) = size, picture.shape
    if width / height > columns / rows:
        kept = int(round(height * (columns / width), 7))
        cut = (rows - kept) // 2
        return picture[cut : rows - cut]
    kept = int(round(width * (rows / height), 7))
    cut = (columns - kept) // 2
    return picture[:, cut : columns - cut]


def check_prompt(ids: NDArray[np.int64], pictures: list[Placing], text: Text) -> None:
    """Refuse a prompt that the model cannot take.

    Raises:
        SampleError: it is too long, or has not one place for each feature.
    """
    if len(ids) >= text.context_length:
        raise SampleError(f"the prompt has {len(ids)} tokens, the model takes {text.context_length - 1}")
    if text.images is not None:
        places, features = int((ids == text.images.id).sum()), sum(p.features for p in pictures)
        if places != features:
            raise SampleError(f"the prompt holds {places} image tokens for {features} features")
