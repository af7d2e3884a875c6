"""Composite pictures: tiles in rows with gaps and, where the published figures have them, titles.

The sizes are those of the demo model's image processor (`tile_rows`): tile 96, gap 16, title strip 16, all
multiples of 16, so that the blocks of a JPEG pass never reach across two tiles.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from edgebench.demo.scenes import TILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.demo.questions import Draft

GAP = 16
TITLE = 16


def composite(draft: Draft) -> NDArray[np.uint8]:
    """The picture of a question, uint8 [H, W, 3], white between the panels.

    Without titles: one row, height 96. With titles: a strip of 16 above each row.
    """
    columns = draft.columns
    rows = len(draft.tiles) // columns
    width = columns * TILE + (columns - 1) * GAP
    if draft.titles is None:
        out = np.full((TILE, width, 3), 255, dtype=np.uint8)
        _row(out, draft.tiles, 0)
        return out
    out = np.full((rows * (TITLE + TILE) + (rows - 1) * GAP, width, 3), 255, dtype=np.uint8)
    for row in range(rows):
        top = row * (TITLE + TILE + GAP)
        if rows == 1:
            for column, title in enumerate(draft.titles):
                left = column * (TILE + GAP)
                out[:TITLE, left : left + TILE] = _strip(title, TILE)
        else:
            out[top : top + TITLE] = _strip(draft.titles[row], width)
        _row(out, draft.tiles[row * columns : (row + 1) * columns], top + TITLE)
    return out


def encode(image: NDArray[np.uint8]) -> str:
    """PNG in base64."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG", compress_level=3)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _row(out: NDArray[np.uint8], tiles: NDArray[np.uint8], top: int) -> None:
    for column, tile in enumerate(tiles):
        left = column * (TILE + GAP)
        out[top : top + TILE, left : left + TILE] = tile


@lru_cache(maxsize=64)
def _strip(title: str, width: int) -> NDArray[np.uint8]:
    """A title, black on white, centred: uint8 [16, width, 3]."""
    image = Image.new("RGB", (width, TITLE), "white")
    draw = ImageDraw.Draw(image)
    draw.text((width // 2, TITLE // 2), title, fill="black", font=ImageFont.load_default(11), anchor="mm")
    return np.asarray(image, dtype=np.uint8)
