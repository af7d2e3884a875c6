"""uint8 RGB pixels -> the graph's input, bit for bit as transformers' Pillow processors compute it.

Resizing is Pillow's antialiased resample over uint8. Normalising goes through a table of 256 values a channel,
computed in the reference's own order: float64 product with the scale, rounded to float32, minus the mean, over
the deviation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from edgebench.errors import SampleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def pixels(image: NDArray[np.uint8], preprocess: Preprocess) -> NDArray[np.float32]:
    """The input tiles of one image.

    Args:
        image: uint8 [H, W, 3], RGB.
        preprocess: the artifact's own.

    Returns:
        float32 [tiles, 3, height, width]; one tile, except for 'tile_rows'.
    """
    tiles = geometry(image, preprocess)
    table = _table(preprocess)
    out = np.empty((len(tiles), 3, preprocess.height, preprocess.width), dtype=np.float32)
    for place, tile in zip(out, tiles, strict=True):
        for channel in range(3):
            np.take(table[channel], tile[..., channel], out=place[channel])
    return out


def geometry(image: NDArray[np.uint8], preprocess: Preprocess) -> list[NDArray[np.uint8]]:
    """The tiles of one image as uint8 [height, width, 3] each, before normalising."""
    kind = preprocess.kind
    if kind == "resize":
        return [_resize(image, preprocess.height, preprocess.width, preprocess)]
    if kind == "shortest_edge_crop":
        return [_shortest_edge_crop(image, preprocess, preprocess.shortest_edge or preprocess.height)]
    if kind == "pad_square":
        return [_resize(_pad_square(image, preprocess), preprocess.height, preprocess.width, preprocess)]
    if kind == "tile_rows":
        return _tile_rows(image, preprocess)
    from edgebench.media.faces import crop_face

    return [_resize(crop_face(image, preprocess), preprocess.height, preprocess.width, preprocess)]


@lru_cache(maxsize=8)
def _table(preprocess: Preprocess) -> NDArray[np.float32]:
    scaled = (np.arange(256).astype(np.float64) * preprocess.scale).astype(np.float32)
    mean = np.array(preprocess.mean, dtype=np.float32)[:, None]
    std = np.array(preprocess.std, dtype=np.float32)[:, None]
    table: NDArray[np.float32] = (scaled[None, :] - mean) / std
    return table


def _resize(image: NDArray[np.uint8], height: int, width: int, preprocess: Preprocess) -> NDArray[np.uint8]:
    if image.shape[:2] == (height, width):
        return image
    return np.asarray(Image.fromarray(image).resize((width, height), _FILTERS[preprocess.filter]), dtype=np.uint8)


def _shortest_edge_crop(image: NDArray[np.uint8], preprocess: Preprocess, shortest: int) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    short, long = min(height, width), max(height, width)
    new_long = int(shortest * long / short)
    height, width = (new_long, shortest) if width <= height else (shortest, new_long)
    image = _resize(image, height, width, preprocess)
    return _centre(image, preprocess.height, preprocess.width)


def _centre(image: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """The centre; where the image is smaller it is padded with zeros, the odd pixel above and left."""
    height, width = image.shape[:2]
    if height < rows or width < columns:
        padded = np.zeros((max(height, rows), max(width, columns), 3), dtype=np.uint8)
        top, left = -((height - padded.shape[0]) // 2), -((width - padded.shape[1]) // 2)
        padded[top : top + height, left : left + width] = image
        # The reference cuts at the crop's place in the unpadded image, shifted by the padding.
        top, left = top + (height - rows) // 2, left + (width - columns) // 2
        return padded[top : top + rows, left : left + columns]
    top, left = (height - rows) // 2, (width - columns) // 2
    return image[top : top + rows, left : left + columns]


def _pad_square(image: NDArray[np.uint8], preprocess: Preprocess) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    if height == width:
        return image
    side = max(height, width)
    square = np.empty((side, side, 3), dtype=np.uint8)
    square[:] = np.array(preprocess.pad_colour or (0, 0, 0), dtype=np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = image
    return square


def _tile_rows(image: NDArray[np.uint8], preprocess: Preprocess) -> list[NDArray[np.uint8]]:
    """Cut a composite of panels into its tiles.

    One row of tiles with gaps; or rows of tiles, each tile under a title strip, with gaps between rows. Any other
    size is one tile: shortest edge to the tile's, then the centre.
    """
    height, width = image.shape[:2]
    tile, gap, title = preprocess.height, preprocess.gap, preprocess.title
    if preprocess.height != preprocess.width:
        raise SampleError("tile_rows needs square tiles")
    columns, odd = divmod(width + gap, tile + gap)
    if odd == 0 and columns >= 1:
        lefts = [c * (tile + gap) for c in range(columns)]
        if height == tile:
            return [image[:, left : left + tile] for left in lefts]
        rows, odd = divmod(height + gap, title + tile + gap)
        if odd == 0 and rows >= 1:
            tops = [r * (title + tile + gap) + title for r in range(rows)]
            return [image[top : top + tile, left : left + tile] for top in tops for left in lefts]
    return [_shortest_edge_crop(image, preprocess, tile)]
