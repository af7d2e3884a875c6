"""Encoded bytes -> uint8 RGB pixels, by stated rules: Pillow's pixels, faster where another library has the same.

Ordinary JPEG (YCbCr or grey, 8 bits) goes through simplejpeg with libjpeg-turbo's accurate DCT and smooth upsampling,
which are Pillow's; all else, and every JPEG that simplejpeg refuses, goes through Pillow.
"""

from __future__ import annotations

import io
import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from edgebench.errors import SampleError, one_line

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PIXELS = 178_956_970
"""Pillow's own limit: larger images are refused from their header, before anything is allocated."""
ImagePath = Literal["lossless", "official-jpeg75"]
_ORIENTATION = 0x0112
_METADATA = 1 << 18
"""An orientation is looked for in so many bytes; only where there may be one is the header read by Pillow too."""
_SWITCHES = threading.Lock()
"""Pillow's switches for truncated and for huge files are one for the whole process."""


def decode(
    data: bytes,
    *,
    orientation: Literal["exif", "ignore"] = "exif",
    alpha: Literal["drop", "white"] = "drop",
    image_path: ImagePath = "lossless",
    max_pixels: int = MAX_PIXELS,
    truncated: Literal["refuse", "accept"] = "refuse",
) -> NDArray[np.uint8]:
    """Decode one image.

    Args:
        data: the encoded bytes; of an animation the first frame is taken.
        orientation: apply the EXIF orientation once, or not at all.
        alpha: drop an alpha channel, or composite it on white.
        image_path: 'official-jpeg75' puts the picture through one more JPEG pass with Pillow's defaults (quality
            75, 4:2:0), ignoring EXIF, as the published Forensics-Bench scores did.
        max_pixels: the largest width x height, read from the header.
        truncated: refuse a file that ends early, or take what is there and grey for the rest.

    Returns:
        uint8 [H, W, 3], RGB.

    Raises:
        SampleError: no image, a truncated one, or one that is too large.
    """
    if not data:
        raise SampleError("the image is empty (0 bytes)")
    if image_path == "lossless" and (fast := _fast_jpeg(data, orientation, max_pixels)) is not None:
        return fast
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = _open(data, max_pixels)
            if image.width * image.height > max_pixels:
                raise SampleError(f"the image is {image.width} x {image.height}, over the limit of {max_pixels} pixels")
            _load(image, truncated)
            if image_path == "official-jpeg75":
                image = _second_jpeg(image)
            elif orientation == "exif":
                image = ImageOps.exif_transpose(image)
            return np.asarray(_rgb(image, alpha), dtype=np.uint8)
    except SampleError:
        raise
    except UnidentifiedImageError as error:
        raise SampleError("the bytes are no image that can be decoded") from error
    except Exception as error:  # Pillow's decoders raise whatever their format's damage leads to
        raise SampleError(f"the image cannot be decoded: {one_line(error)}") from error


def _open(data: bytes, max_pixels: int) -> Image.Image:
    """Read the header."""
    try:
        return Image.open(io.BytesIO(data))
    except Image.DecompressionBombError as error:
        if max_pixels <= 2 * (Image.MAX_IMAGE_PIXELS or max_pixels):
            raise SampleError(f"the image is over the limit of {max_pixels} pixels by its header") from error
    with _SWITCHES:
        before = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = None
        try:
            return Image.open(io.BytesIO(data))
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _fast_jpeg(data: bytes, orientation: str, max_pixels: int) -> NDArray[np.uint8] | None:
    """The pixels of an ordinary upright JPEG; None for what Pillow should decode, or refuse."""
    if simplejpeg is None or not data.startswith(b"\xff\xd8\xff"):
        return None
    marks = (b"Exif", b"tiff:Orientation")
    try:
        if orientation == "exif" and any(mark in data[:_METADATA] for mark in marks):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if Image.open(io.BytesIO(data)).getexif().get(_ORIENTATION, 1) != 1:
                    return None
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in {"YCbCr", "Gray"} or height * width > max_pixels:
            return None
        found: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB", fastdct=False, fastupsample=False)
    except Exception:  # whatever the damage, Pillow decides what it is
        return None
    return found


def _load(image: Image.Image, truncated: str) -> None:
    if truncated == "refuse":
        image.load()
        return
    with _SWITCHES:
        before: Any = ImageFile.LOAD_TRUNCATED_IMAGES
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            image.load()
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = before


def _rgb(image: Image.Image, alpha: Literal["drop", "white"]) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        # Pillow's own conversion clips 16-bit greys to white; keep the upper byte.
        grey = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        image = Image.fromarray(grey)
    if alpha == "white" and ("A" in image.getbands() or "transparency" in image.info):
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, (255, 255, 255, 255)), over)
    return image.convert("RGB")


def _second_jpeg(image: Image.Image) -> Image.Image:
    """Pillow's default JPEG and back. Only modes that JPEG cannot hold are converted first, as published."""
    if image.mode not in {"RGB", "L", "CMYK"}:
        image = image.convert("RGB")
    stream = io.BytesIO()
    image.save(stream, format="JPEG")
    stream.seek(0)
    again: Image.Image = Image.open(stream)
    again.load()
    return again
