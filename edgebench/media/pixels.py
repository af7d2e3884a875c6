"""uint8 RGB pictures -> the graph's input, bit for bit as transformers' Pillow processors compute it.

Resizing is Pillow's antialiased resample over uint8, in one pass with cropping, padding, normalising and layout by
our C extension, or in several by Pillow itself where the extension was not built. Both give the same bits.
Normalising goes through a table of 256 values a channel, computed in the reference's own order: float64 product with
the scale, rounded to float32, minus the mean, over the deviation.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from edgebench.media.geometry import Placement, placements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

    Picture = NDArray[np.uint8]

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "uint8": np.uint8}


def pixels(image: Picture, preprocess: Preprocess, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """The input of one picture.

    Args:
        image: uint8 [H, W, 3], RGB.
        preprocess: the artifact's own.
        out: where to write, of the shape and type that would be returned; any strides. None: a new array.

    Returns:
        [tiles, 3, height, width] or, for layout 'nhwc', [tiles, height, width, 3], of the preprocess' dtype; several
        tiles for 'tile_rows' and 'anyres_tiles'. For 'smart_resize' patches [patches, 3 x temporal x patch x patch].

    Raises:
        SampleError: the picture does not suit this kind.
        ValueError: `out` has another shape or type.
    """
    tiles = placements(image, preprocess)
    rows, columns = tiles[0].window
    planes = preprocess.layout == "nchw"
    shape = (len(tiles), 3, rows, columns) if planes else (len(tiles), rows, columns, 3)
    patches = preprocess.kind == "smart_resize"
    dtype = DTYPES[preprocess.dtype]
    if out is not None and not patches and (out.shape != shape or out.dtype != dtype):
        raise ValueError(f"out is {out.dtype} {out.shape}, not {np.dtype(dtype)} {shape}")
    target = np.empty(shape, dtype=dtype) if out is None or patches else out
    table = None if preprocess.dtype == "uint8" else _table(preprocess)
    for place, tile in zip(tiles, target, strict=True):
        render(image, place, tile, table, preprocess)
    if not patches:
        return target
    flat = _patches(target[0] if planes else target[0].transpose(2, 0, 1), preprocess)
    if out is None:
        return flat
    if out.shape != flat.shape or out.dtype != dtype:
        raise ValueError(f"out is {out.dtype} {out.shape}, not {np.dtype(dtype)} {flat.shape}")
    out[...] = flat
    return out


def geometry(image: Picture, preprocess: Preprocess) -> list[Picture]:
    """The tiles of one picture as uint8 [height, width, 3] each, before normalising."""
    found = []
    for place in placements(image, preprocess):
        tile = np.empty((*place.window, 3), dtype=np.uint8)
        _draw(image, place, tile, None, False, preprocess)
        found.append(tile)
    return found


def render(
    image: Picture, place: Placement, out: NDArray[Any], table: NDArray[Any] | None, preprocess: Preprocess
) -> None:
    """Write one tile into `out`, [3, rows, columns] or [rows, columns, 3] by the preprocess' layout."""
    _draw(image, place, out, table, preprocess.layout == "nchw", preprocess)


def extension() -> Any | None:
    """The C extension; None where it was not built, or where EDGEBENCH_PIXELS=pillow asks for none."""
    if os.environ.get("EDGEBENCH_PIXELS") == "pillow":
        return None
    return _extension()


def in_use() -> str:
    """Which code makes the pixels, for the run's header: 'C, AVX2', 'C, NEON', 'C, portable' or 'Pillow'."""
    code = extension()
    return "Pillow" if code is None else f"C, {code.vectors(True)}"


@lru_cache(maxsize=1)
def _extension() -> Any | None:
    try:
        return import_module("edgebench.media._pixels")
    except ImportError:
        return None


def _draw(
    image: Picture,
    place: Placement,
    out: NDArray[Any],
    table: NDArray[Any] | None,
    planes: bool,
    preprocess: Preprocess,
) -> None:
    top, left, bottom, right = place.box
    part = image[top:bottom, left:right]
    full = place.full or part.shape[:2]
    first = vertical_first(full, place.resized, preprocess.pass_order)
    code = extension()
    if code is None or preprocess.filter == "nearest":
        _draw_with_pillow(part, place, out, table, planes, first, preprocess)
        return
    if part.strides[1:] != (3, 1) or part.strides[0] < 0:
        part = np.ascontiguousarray(part)
    code.render(
        part, out, table, planes, place.resized, place.corner, full, place.place, place.pad, preprocess.filter, first
    )


def vertical_first(size: tuple[int, int], resized: tuple[int, int], order: str) -> bool:
    """Whether columns are resampled before rows: Pillow 13's rule, or never, as up to Pillow 12."""
    shrink = size[0] - resized[0]
    return order == "pillow-13" and shrink > 0 and shrink > 2 * (size[1] - resized[1])


def _draw_with_pillow(
    part: Picture,
    place: Placement,
    out: NDArray[Any],
    table: NDArray[Any] | None,
    planes: bool,
    columns_first: bool,
    preprocess: Preprocess,
) -> None:
    if place.full is not None and place.full != part.shape[:2]:
        padded = np.empty((*place.full, 3), dtype=np.uint8)
        padded[:] = np.array(place.pad, dtype=np.uint8)
        y, x = place.place
        padded[y : y + part.shape[0], x : x + part.shape[1]] = part
        part = padded
    rows, columns = place.resized
    picture = Image.fromarray(np.ascontiguousarray(part))
    kernel = _FILTERS[preprocess.filter]
    if picture.size != (columns, rows):
        if preprocess.filter != "nearest":
            # One direction at a time, so that the order does not depend on Pillow's version.
            picture = picture.resize((picture.width, rows) if columns_first else (columns, picture.height), kernel)
        picture = picture.resize((columns, rows), kernel)
    resized = np.asarray(picture, dtype=np.uint8)
    window = np.zeros((*place.window, 3), dtype=np.uint8)
    (y, x), (high, wide) = place.corner, place.window
    y0, y1, x0, x1 = max(y, 0), min(y + high, rows), max(x, 0), min(x + wide, columns)
    if y1 > y0 and x1 > x0:
        window[y0 - y : y1 - y, x0 - x : x1 - x] = resized[y0:y1, x0:x1]
    for channel in range(3):
        values = window[..., channel] if table is None else table[channel][window[..., channel]]
        if planes:
            out[channel] = values
        else:
            out[..., channel] = values


@lru_cache(maxsize=8)
def _table(preprocess: Preprocess) -> NDArray[Any]:
    """[3, 256]: what every byte becomes."""
    scaled = (np.arange(256).astype(np.float64) * preprocess.scale).astype(np.float32)
    mean = np.array(preprocess.mean, dtype=np.float32)[:, None]
    std = np.array(preprocess.std, dtype=np.float32)[:, None]
    table: NDArray[Any] = np.ascontiguousarray((scaled[None, :] - mean) / std, dtype=DTYPES[preprocess.dtype])
    return table


def _patches(tile: NDArray[Any], preprocess: Preprocess) -> NDArray[Any]:
    """[3, rows, columns] -> Qwen2-VL's patches: merge x merge neighbours follow each other, frames are repeated."""
    side, merge, frames = preprocess.patch, preprocess.merge, preprocess.temporal
    _, rows, columns = tile.shape
    high, wide = rows // side, columns // side
    cut = tile.reshape(3, high // merge, merge, side, wide // merge, merge, side).transpose(1, 4, 2, 5, 0, 3, 6)
    repeated = np.broadcast_to(cut[:, :, :, :, :, None], (*cut.shape[:5], frames, side, side))
    return repeated.reshape(high * wide, 3 * frames * side * side)
