"""Pixels -> encoded bytes, by stated rules: for models that take pictures over a wire."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def encode(picture: NDArray[np.uint8], encoding: str, max_side: int | None = None) -> tuple[str, bytes]:
    """Encode one picture.

    Args:
        picture: uint8 [H, W, 3], RGB.
        encoding: 'png' (lossless), or 'jpeg:QUALITY' (Pillow's, 4:2:0).
        max_side: a longer side is brought to it first, by Pillow's Lanczos filter.

    Returns:
        The media type, and the bytes.
    """
    image = Image.fromarray(picture)
    longest = max(image.size)
    if max_side is not None and longest > max_side:
        width, height = (max(1, round(side * max_side / longest)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    kind, _, quality = encoding.partition(":")
    if kind == "png":
        image.save(stream, "PNG", compress_level=1)
    else:
        image.save(stream, "JPEG", quality=int(quality))
    return f"image/{kind}", stream.getvalue()
