"""What each kind of preprocessing cuts out of a picture and where it puts it: geometry as data, no pixel touched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgebench.errors import SampleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

BLACK = (0, 0, 0)
MOST_ASPECT = 200
"""smart_resize refuses pictures that are longer than so many times their width, as its reference does."""


@dataclass(frozen=True)
class Placement:
    """One tile: take `box` of the picture, put it on `full` at `place`, resize that, write the window from `corner`."""

    box: tuple[int, int, int, int]
    """Top, left, bottom, right of the part of the picture that is used."""
    resized: tuple[int, int]
    """Rows and columns after resizing."""
    window: tuple[int, int]
    """Rows and columns that are written; what lies outside the resized picture is black."""
    corner: tuple[int, int] = (0, 0)
    """Where the window begins in the resized picture; may be negative."""
    full: tuple[int, int] | None = None
    """Rows and columns with padding; None for no padding."""
    place: tuple[int, int] = (0, 0)
    """Where the box lies in `full`."""
    pad: tuple[int, int, int] = BLACK


def placements(image: NDArray[np.uint8], preprocess: Preprocess) -> list[Placement]:
    """The tiles of one picture [H, W, 3], in order.

    Raises:
        SampleError: the picture does not suit this kind (no face, too long).
        EngineError: the face detector's weights are missing.
    """
    height, width = image.shape[0], image.shape[1]
    whole, size = (0, 0, height, width), (preprocess.height, preprocess.width)
    kind = preprocess.kind
    if kind == "resize":
        return [Placement(whole, size, size)]
    if kind == "shortest_edge_crop":
        return [_shortest_edge_crop(height, width, preprocess.shortest_edge or preprocess.height, size)]
    if kind == "centre_crop":
        corner = (_centre(height, preprocess.height), _centre(width, preprocess.width))
        return [Placement(whole, (height, width), size, corner)]
    if kind == "pad_square":
        side = max(height, width)
        place = ((side - height) // 2, (side - width) // 2)
        return [Placement(whole, size, size, full=(side, side), place=place, pad=preprocess.pad_colour or BLACK)]
    if kind == "anyres_tiles":
        return _anyres_tiles(height, width, preprocess)
    if kind == "smart_resize":
        resized = smart_size(height, width, preprocess)
        return [Placement(whole, resized, resized)]
    if kind == "tile_rows":
        return _tile_rows(height, width, preprocess)
    from edgebench.media.faces import face_box

    return [Placement(face_box(image, preprocess), size, size)]


def spread(values: NDArray[np.float32], place: Placement, out: NDArray[np.float64]) -> None:
    """Lay a grid of values over one tile back onto the picture that it was cut from, in place.

    Args:
        values: float32 [rows, columns], of equal parts of the tile's window.
        place: how the tile was cut.
        out: float64 [H, W]; each value is added where its part lies, evenly over its pixels, so that sums are kept.
            What lies on padding is lost.
    """
    rows, columns = values.shape
    top, left, bottom, right = place.box
    full = place.full or (bottom - top, right - left)
    edges = []
    for axis, (count, begin, end) in enumerate(((rows, top, bottom), (columns, left, right))):
        steps = place.corner[axis] + place.window[axis] * np.arange(count + 1) / count
        edges.append((steps * full[axis] / place.resized[axis] - place.place[axis] + begin, begin, end))
    shares = [_shares(*edge, length) for edge, length in zip(edges, out.shape, strict=True)]
    out += shares[0].T @ values.astype(np.float64) @ shares[1]


def _shares(edges: NDArray[np.float64], begin: int, end: int, length: int) -> NDArray[np.float64]:
    """[parts, pixels]: which share of each part lies on each pixel of one axis, from `begin` to `end`."""
    pixels = np.arange(length)
    inside = (pixels >= begin) & (pixels < end)
    low, high = np.maximum(edges[:-1, None], pixels), np.minimum(edges[1:, None], pixels + 1)
    shares: NDArray[np.float64] = np.maximum(high - low, 0) * inside / (edges[1:] - edges[:-1])[:, None]
    return shares


def smart_size(height: int, width: int, preprocess: Preprocess) -> tuple[int, int]:
    """Qwen2-VL's size: multiples of patch x merge, pixels within the limits, the aspect ratio nearly kept.

    Raises:
        SampleError: the picture is more than 200 times as long as wide.
    """
    if max(height, width) / min(height, width) > MOST_ASPECT:
        raise SampleError(f"the picture is {width} x {height}: more than {MOST_ASPECT} times as long as wide")
    factor = preprocess.patch * preprocess.merge
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    least, most = preprocess.min_pixels or 0, preprocess.max_pixels or 0
    if rows * columns > most:
        shrink = math.sqrt((height * width) / most)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < least:
        grow = math.sqrt(least / (height * width))
        rows, columns = math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
    return rows, columns


def best_grid(height: int, width: int, grids: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """LLaVA-NeXT's choice: the most pixels of the picture kept, then the least area wasted."""
    best, kept_most, wasted_least = grids[0], 0, math.inf
    for rows, columns in grids:
        scale = min(columns / width, rows / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        wasted = rows * columns - kept
        if kept > kept_most or (kept == kept_most and wasted < wasted_least):
            best, kept_most, wasted_least = (rows, columns), kept, wasted
    return best


def _shortest_edge_crop(height: int, width: int, shortest: int, size: tuple[int, int]) -> Placement:
    short, long = min(height, width), max(height, width)
    new_long = int(shortest * long / short)
    resized = (new_long, shortest) if width <= height else (shortest, new_long)
    # Python's floor puts the odd pixel above and left where the picture is smaller than the crop, as the reference.
    corner = ((resized[0] - size[0]) // 2, (resized[1] - size[1]) // 2)
    return Placement((0, 0, height, width), resized, size, corner)


def _centre(length: int, crop: int) -> int:
    """As torchvision's CenterCrop: half to even where something is cut, the odd pixel below where something is added."""
    return round((length - crop) / 2) if length >= crop else -((crop - length) // 2)


def _anyres_tiles(height: int, width: int, preprocess: Preprocess) -> list[Placement]:
    """The whole picture squeezed into one tile, then the tiles of the best grid, row by row."""
    whole, size = (0, 0, height, width), (preprocess.height, preprocess.width)
    grid = best_grid(height, width, preprocess.grids)
    scale_w, scale_h = grid[1] / width, grid[0] / height
    if scale_w < scale_h:
        resized = (min(math.ceil(height * scale_w), grid[0]), grid[1])
    else:
        resized = (grid[0], min(math.ceil(width * scale_h), grid[1]))
    top, left = (grid[0] - resized[0]) // 2, (grid[1] - resized[1]) // 2
    tiles = [Placement(whole, size, size)]
    for row in range(0, grid[0], size[0]):
        for column in range(0, grid[1], size[1]):
            tiles.append(Placement(whole, resized, size, (row - top, column - left)))
    return tiles


def _tile_rows(height: int, width: int, preprocess: Preprocess) -> list[Placement]:
    """Cut a composite of panels into its tiles.

    One row of tiles with gaps; or rows of tiles, each tile under a title strip, with gaps between rows. Any other
    size is one tile: shortest edge to the tile's, then the centre.
    """
    tile, gap, title = preprocess.height, preprocess.gap, preprocess.title
    if preprocess.height != preprocess.width:
        raise SampleError("tile_rows needs square tiles")
    size = (tile, tile)
    columns, odd = divmod(width + gap, tile + gap)
    if odd == 0 and columns >= 1:
        lefts = [c * (tile + gap) for c in range(columns)]
        tops = [0] if height == tile else []
        rows, odd = divmod(height + gap, title + tile + gap)
        if not tops and odd == 0:
            tops = [r * (title + tile + gap) + title for r in range(rows)]
        if tops:
            return [Placement((t, c, t + tile, c + tile), size, size) for t in tops for c in lefts]
    return [_shortest_edge_crop(height, width, tile, size)]
