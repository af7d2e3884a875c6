"""The composite picture of a question of the mini benchmark.

Tiles of 96 with gaps and title strips of 16: what the demo model's image processor (`tile_rows`) cuts apart.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from PIL import Image

from edgebench.media.grids import GAP, TITLE, stack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgebench.demo.questions import Draft


def composite(draft: Draft) -> NDArray[np.uint8]:
    """The picture of a question, uint8 [H, W, 3], white between the panels."""
    tiles = list(draft.tiles)
    rows = [tiles[k : k + draft.columns] for k in range(0, len(tiles), draft.columns)]
    return stack(rows, titles=draft.titles)


def encode(image: NDArray[np.uint8]) -> str:
    """PNG in base64."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG", compress_level=3)
    return base64.b64encode(stream.getvalue()).decode("ascii")


__all__ = ["GAP", "TITLE", "composite", "encode"]
