"""Several pictures as one: in a row, in stacked rows, in a square, with titles as the published figures have them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

GAP = 16
"""White between two panels. With panels and titles of multiples of 16 no block of a JPEG pass holds two panels."""
TITLE = 16
"""Height of a title strip."""


def stack(
    rows: Sequence[Sequence[Picture]], *, titles: Sequence[str] | None = None, gap: int = GAP, title: int = TITLE
) -> Picture:
    """Rows of panels on white, uint8 [H, W, 3].

    Args:
        rows: panels of one size, uint8 [h, w, 3]; a shorter last row is filled with white.
        titles: one a panel for a single row, one a row for several; None for no title strips.
        gap: pixels between panels.
        title: height of a title strip.

    Raises:
        ValueError: no panel, panels of different sizes, or titles that do not fit the rows.
    """
    shapes = {panel.shape for row in rows for panel in row}
    if len(shapes) != 1:
        raise ValueError(f"panels must have one size, not {sorted(shapes)}")
    height, width, _ = shapes.pop()
    columns = max(map(len, rows))
    if titles is not None and len(titles) != (columns if len(rows) == 1 else len(rows)):
        raise ValueError(f"{len(titles)} titles for {len(rows)} rows of {columns}")
    head = title if titles is not None else 0
    wide = columns * width + (columns - 1) * gap
    out = np.full((len(rows) * (head + height) + (len(rows) - 1) * gap, wide, 3), 255, dtype=np.uint8)
    for number, row in enumerate(rows):
        top = number * (head + height + gap)
        if titles is not None and len(rows) > 1:
            out[top : top + head] = _strip(titles[number], wide, head)
        for column, panel in enumerate(row):
            left = column * (width + gap)
            if titles is not None and len(rows) == 1:
                out[:head, left : left + width] = _strip(titles[column], width, head)
            out[top + head : top + head + height, left : left + width] = panel
    return out


def square(panels: Sequence[Picture], *, gap: int = GAP) -> Picture:
    """Panels in reading order in the smallest square grid that holds them."""
    side = math.ceil(math.sqrt(len(panels)))
    return stack([panels[k : k + side] for k in range(0, len(panels), side)], gap=gap)


@lru_cache(maxsize=64)
def _strip(text: str, width: int, height: int) -> Picture:
    """A title, black on white, centred: uint8 [height, width, 3]."""
    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(max(8, height * 11 // 16))
    ImageDraw.Draw(image).text((width // 2, height // 2), text, fill="black", font=font, anchor="mm")
    return np.asarray(image, dtype=np.uint8)
