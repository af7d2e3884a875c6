"""What a picture's file says without its picture: format, size, JPEG quality; and files made alike for both classes.

Where the files of the two classes were made in different ways, a detector can be right without looking. The facts are
read from each file's header before its question is asked, and stand in its record.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image as Pillow

from edgebench.benches.base import Image
from edgebench.errors import EdgebenchError
from edgebench.media.decode import MAX_PIXELS, decode
from edgebench.media.encode import encode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.benches.base import Sample

Equalize = Literal["png", "jpeg96"]
ENCODINGS: dict[str, str] = {"png": "png", "jpeg96": "jpeg:96"}
"""By the name in a run's settings; jpeg96 is Pillow's JPEG of quality 96, 4:2:0."""


def container_facts(file: Image) -> dict[str, str]:
    """What the header says: `container` ('jpeg', 'png', ...), `pixels` ('WIDTHxHEIGHT') and, of a JPEG, `quality`.

    A quality is that of libjpeg's tables ('75'), or with a '~' the nearest one where the file has tables of its own.
    Of a file that cannot be read nothing is said.
    """
    source: Any = file.path if file.data is None else io.BytesIO(file.data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Pillow.open(source) as opened:
                image: Any = opened
                found = {"container": str(image.format).lower(), "pixels": f"{image.width}x{image.height}"}
                quality = jpeg_quality(getattr(image, "quantization", None))
    except Exception:  # whatever the damage, the decoder says later what it is
        return {}
    return found if quality is None else found | {"quality": quality}


def jpeg_quality(tables: dict[int, list[int]] | None) -> str | None:
    """The quality that libjpeg's quantization tables belong to; '~' and the nearest one for others. None without any.

    Args:
        tables: by number, 64 steps each, as Pillow gives them; table 0, the luminance's, decides.
    """
    if not tables or len(tables.get(0, ())) != 64:
        return None
    distance = np.abs(_luminance() - np.asarray(tables[0], dtype=np.int64)).sum(axis=1)
    nearest = int(distance.argmin())
    return f"{nearest + 1}" if distance[nearest] == 0 else f"~{nearest + 1}"


@lru_cache(maxsize=1)
def _luminance() -> NDArray[np.int64]:
    """The luminance table of libjpeg at each quality from 1 to 100, in Pillow's order: int64 [100, 64]."""
    rows = []
    for quality in range(1, 101):
        stream = io.BytesIO()
        Pillow.new("L", (8, 8)).save(stream, "JPEG", quality=quality)
        written: Any = Pillow.open(io.BytesIO(stream.getvalue()))
        rows.append(written.quantization[0])
    return np.array(rows, dtype=np.int64)


def ready(
    sample: Sample,
    equalize: str | None = None,
    *,
    orientation: Literal["exif", "ignore"] = "exif",
    alpha: Literal["drop", "white"] = "drop",
    max_pixels: int = MAX_PIXELS,
) -> Sample:
    """A sample with the facts of its first picture's file and, where asked for, its pictures encoded anew.

    Args:
        sample: as its bench gives it.
        equalize: a name of `ENCODINGS`; the facts are still those of the files as they came.
        orientation: as the model wants it, since the new file holds no orientation.
        alpha: as the model wants it, since the new file holds no alpha.
        max_pixels: as in `decode`.
    """
    if sample.problem is not None or not sample.images:
        return sample
    sample = replace(sample, facts=sample.facts | container_facts(sample.images[0]))
    if equalize is None:
        return sample
    try:
        pictures = [
            decode(image.read(), orientation=orientation, alpha=alpha, max_pixels=max_pixels) for image in sample.images
        ]
    except EdgebenchError as error:
        return replace(sample, problem=str(error))
    files = [encode(picture, ENCODINGS[equalize])[1] for picture in pictures]
    images = tuple(Image(image.name, data) for image, data in zip(sample.images, files, strict=True))
    return replace(sample, images=images)
