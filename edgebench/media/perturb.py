"""Perturbations of pictures: the six of the published robustness protocol, and real recompression.

Source: DeeperForensics-1.0 (its function for "JPEG" pixelates; that is `pixel` here) with five levels each. Blocks
and noise are drawn there from an unseeded global generator; here from Philox, a counter-based generator whose raw
words are the same on every machine, keyed by sample, perturbation, level and frame: no order and no thread count
changes them. Of a clip every frame is perturbed alike, but blocks and noise are drawn anew for each.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from edgebench.errors import MissingExtraError, SampleError, UsageError, did_you_mean
from edgebench.media.decode import decode
from edgebench.media.pixels import extension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

Exactness = Literal["exact", "fast"]

LEVELS: dict[str, tuple[str, tuple[float, ...]]] = {
    "saturation": ("chroma_gain", (0.4, 0.3, 0.2, 0.1, 0.0)),
    "contrast": ("gain", (0.85, 0.725, 0.6, 0.475, 0.35)),
    "block": ("blocks_factor", (16, 32, 48, 64, 80)),
    "noise": ("variance", (0.001, 0.002, 0.005, 0.01, 0.05)),
    "blur": ("kernel", (7, 9, 13, 17, 21)),
    "pixel": ("factor", (2, 3, 4, 5, 6)),
    "jpeg": ("quality", (90, 75, 60, 40, 20)),
    "h264": ("crf", (30, 32, 35, 38, 40)),
}
"""Name -> its parameter and the parameter at levels 1 to 5. The first six are the protocol's."""
PROTOCOL = ("saturation", "contrast", "block", "noise", "blur", "pixel")
_NOISE_UNIT = 7000
"""Standard deviation of the noise table, whose ends (4.2 deviations) fit into 16 bits."""
_BLOCK = 8


@dataclass(frozen=True)
class Perturbation:
    """One perturbation at one level."""

    name: str
    level: int
    exactness: Exactness = "exact"
    """fast: saturation by an integer matrix, at most one grey level off; the others are the same either way."""

    @classmethod
    def parse(cls, text: str) -> Perturbation:
        """`noise:3`, or `saturation:2:fast`.

        Raises:
            UsageError: no such perturbation or level.
        """
        name, _, rest = text.partition(":")
        level, _, exactness = rest.partition(":")
        if name not in LEVELS:
            raise UsageError(f"no perturbation is called {name!r}", hint=did_you_mean(name, LEVELS))
        if level not in {"1", "2", "3", "4", "5"} or exactness not in {"", "exact", "fast"}:
            raise UsageError(f"{text!r} is no perturbation", hint=f"write {name}:1 to {name}:5")
        return cls(name, int(level), "fast" if exactness == "fast" else "exact")

    def check(self) -> None:
        """Raise MissingExtraError where a package that it needs is not installed."""
        needed = {"saturation": "cv2", "blur": "cv2", "pixel": "cv2", "h264": "av"}.get(self.name)
        if needed is not None and (self.name, self.exactness) != ("saturation", "fast") and find_spec(needed) is None:
            raise MissingExtraError(f"{self.name} needs the package {needed}", hint="pip install 'edgebench[perturb]'")

    def value(self) -> float:
        """The parameter at this level."""
        return LEVELS[self.name][1][self.level - 1]

    def facts(self) -> dict[str, str]:
        """What a record keeps of it."""
        return {"perturbation": str(self), LEVELS[self.name][0]: f"{self.value():g}"}

    def __str__(self) -> str:
        return f"{self.name}:{self.level}" + (":fast" if self.exactness == "fast" else "")


def perturb(image: Picture, how: Perturbation, sample: str, *, frame: int = 0) -> Picture:
    """One picture, perturbed.

    Args:
        image: uint8 [H, W, 3], RGB; it is left as it is.
        how: which perturbation.
        sample: the sample's id; with the frame it decides where blocks and noise fall.
        frame: number of the frame in its clip.

    Returns:
        uint8 [H, W, 3].

    Raises:
        SampleError: the picture is too small for it.
    """
    p = how.value()
    if how.name == "saturation":
        return saturation(image, p, how.exactness)
    if how.name == "contrast":
        darker: Picture = np.take(_table_of_contrast(p), image)
        return darker
    if how.name == "block":
        return _blocks(image, int(p), words(sample, how, frame))
    if how.name == "noise":
        return noise(image, p, words(sample, how, frame))
    if how.name == "blur":
        return _blur(image, int(p))
    if how.name == "pixel":
        return _pixelated(image, int(p))
    if how.name == "jpeg":
        return jpeg(image, int(p))
    return h264([image], int(p))[0]


def perturb_clip(frames: Sequence[Picture], how: Perturbation, sample: str) -> list[Picture]:
    """The frames of a clip; h264 compresses them as one video, the others one by one."""
    if how.name == "h264":
        return h264(frames, int(how.value()))
    return [perturb(image, how, sample, frame=k) for k, image in enumerate(frames)]


def words(sample: str, how: Perturbation, frame: int = 0) -> np.random.Philox:
    """The generator of a sample's frame, of which only raw words may be used."""
    digest = hashlib.sha256(f"{sample}\0{how.name}\0{how.level}\0{frame}".encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"))


def saturation(image: Picture, gain: float, exactness: Exactness) -> Picture:
    """Chroma times `gain` in the protocol's YCbCr, whose neutral chroma is not quite grey."""
    if exactness == "fast" and (code := extension()) is not None:
        out = np.empty_like(image, order="C")
        code.colour_matrix(np.ascontiguousarray(image), out, _matrix_of_saturation(gain))
        return out
    if exactness == "fast":
        matrix = _matrix_of_saturation(gain).reshape(3, 4).astype(np.int64)
        wide = (image.astype(np.int64) @ matrix[:, :3].T + matrix[:, 3]) >> 14
        clipped: Picture = np.clip(wide, 0, 255).astype(np.uint8)
        return clipped
    cv2 = _cv2()
    ycrcb = cv2.cvtColor(np.ascontiguousarray(image[..., ::-1]).astype(np.float32), cv2.COLOR_BGR2YCrCb)
    ycc = ycrcb[:, :, (0, 2, 1)].astype(np.float32)
    ycc[:, :, 0] = (ycc[:, :, 0] * (235 - 16) + 16) / 255.0
    ycc[:, :, 1:] = (ycc[:, :, 1:] * (240 - 16) + 16) / 255.0
    ycc[:, :, 1] = 0.5 + (ycc[:, :, 1] - 0.5) * gain
    ycc[:, :, 2] = 0.5 + (ycc[:, :, 2] - 0.5) * gain
    ycc[:, :, 0] = (ycc[:, :, 0] * 255.0 - 16) / (235 - 16)
    ycc[:, :, 1:] = (ycc[:, :, 1:] * 255.0 - 16) / (240 - 16)
    back = cv2.cvtColor(np.ascontiguousarray(ycc[:, :, (0, 2, 1)]), cv2.COLOR_YCrCb2BGR)
    return np.ascontiguousarray(back.astype(np.uint8)[..., ::-1])


def noise(image: Picture, variance: float, generator: np.random.Philox) -> Picture:
    """White Gaussian noise of `variance` (of the range 0..1) in Y, Cb and Cr, drawn for each pixel."""
    count = image.size
    raw = np.asarray(generator.random_raw(-(-count // 4)), dtype="<u8").view("<u2")[:count]
    matrix = _matrix_of_noise(variance)
    code = extension()
    if code is not None:
        out = np.empty_like(image, order="C")
        code.coloured_noise(
            np.ascontiguousarray(image), out, np.ascontiguousarray(raw, np.uint16), normal_table(), matrix
        )
        return out
    drawn = normal_table()[raw].reshape(3, *image.shape[:2]).transpose(1, 2, 0).astype(np.int64)
    added = (drawn @ matrix.reshape(3, 3).T.astype(np.int64)) >> 16
    noisy: Picture = np.clip(image + added, 0, 255).astype(np.uint8)
    return noisy


@lru_cache(maxsize=1)
def normal_table() -> NDArray[np.int16]:
    """The normal quantile of every 16-bit word's middle, in units of 1/7000; and one entry that is never looked up."""
    normal = NormalDist()
    upper = [round(_NOISE_UNIT * normal.inv_cdf((k + 0.5) / 65536)) for k in range(32768, 65536)]
    return np.array([-v for v in reversed(upper)] + upper + [0], dtype=np.int16)


def jpeg(image: Picture, quality: int) -> Picture:
    """One JPEG pass, 4:2:0."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=quality, subsampling=2)
    return decode(stream.getvalue())


def h264(frames: Sequence[Picture], crf: int) -> list[Picture]:
    """One H.264 pass at a constant rate factor, 4:2:0, x264's medium preset, one thread."""
    import av

    opened: Any = av.open
    height, width = frames[0].shape[:2]
    stream = io.BytesIO()
    with opened(stream, "w", format="mp4") as container:
        video = container.add_stream("libx264", rate=25, options={"crf": str(crf), "preset": "medium"})
        video.width, video.height, video.pix_fmt = width + width % 2, height + height % 2, "yuv420p"
        video.codec_context.thread_count = 1
        for frame in frames:
            even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            container.mux(video.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(video.encode())
    stream.seek(0)
    with opened(stream) as coded:
        decoded = [frame.to_ndarray(format="rgb24")[:height, :width] for frame in coded.decode(video=0)]
    if len(decoded) != len(frames):
        raise SampleError(f"H.264 gave {len(decoded)} of {len(frames)} frames back")
    return [np.ascontiguousarray(frame, dtype=np.uint8) for frame in decoded]


@lru_cache(maxsize=8)
def _table_of_contrast(gain: float) -> Picture:
    """Img * gain, truncated: it darkens, there is no pivot."""
    return (np.arange(256, dtype=np.float32) * np.float32(gain)).astype(np.uint8)


@lru_cache(maxsize=8)
def _matrix_of_saturation(gain: float) -> NDArray[np.int32]:
    """The whole way to YCbCr and back as one affine map [3, 4] of RGB, in 1/16384."""
    luma = np.array([0.299, 0.587, 0.114])
    cr, cb = 0.713 * (np.array([1, 0, 0]) - luma), 0.564 * (np.array([0, 0, 1]) - luma)
    # C = gain * C + offset: both chromas are moved on the scale of the limited range, where 0.5 is the pivot.
    offset = ((0.5 - 0.5 * gain) * 255 - 16 + 16 * gain) / 224 + 0.5 * gain
    rows = []
    for from_cr, from_cb in ((1.403, 0.0), (-0.714, -0.344), (0.0, 1.773)):
        row = luma + gain * (from_cr * cr + from_cb * cb)
        rows.append([*row, (from_cr + from_cb) * (offset - 0.5)])
    matrix = np.round(np.array(rows) * 16384)
    matrix[:, 3] += 8  # whole values stay whole, as the float path's rounding mostly keeps them
    return matrix.astype(np.int32).reshape(-1)


@lru_cache(maxsize=8)
def _matrix_of_noise(variance: float) -> NDArray[np.int32]:
    """Noise in (Y, Cb, Cr) -> noise in (R, G, B), for the units of the table, in 1/65536."""
    deviation = 255 * variance**0.5
    luma, chroma = deviation * 255 / 219, deviation * 255 / 224
    rows = [[luma, 0, 1.403 * chroma], [luma, -0.344 * chroma, -0.714 * chroma], [luma, 1.773 * chroma, 0]]
    return np.round(np.array(rows) * 65536 / _NOISE_UNIT).astype(np.int32).reshape(-1)


def _blocks(image: Picture, factor: int, generator: np.random.Philox) -> Picture:
    """Grey blocks of 8 x 8; none in pictures whose shorter side is below 256, as published."""
    height, width = image.shape[:2]
    count = min(height, width) // 256 * factor
    out = image.copy()
    if count == 0:
        return out
    raw = np.asarray(generator.random_raw(count), dtype="<u8").view("<u4").reshape(count, 2).astype(np.uint64)
    lefts = (raw[:, 0] * np.uint64(width - _BLOCK)) >> np.uint64(32)
    tops = (raw[:, 1] * np.uint64(height - _BLOCK)) >> np.uint64(32)
    for left, top in zip(lefts.tolist(), tops.tolist(), strict=True):
        out[top : top + _BLOCK, left : left + _BLOCK] = 128
    return out


def _blur(image: Picture, kernel: int) -> Picture:
    found: Picture = _cv2().GaussianBlur(np.ascontiguousarray(image), (kernel, kernel), kernel / 6)
    return found


def _pixelated(image: Picture, factor: int) -> Picture:
    cv2 = _cv2()
    height, width = image.shape[:2]
    if height < factor or width < factor:
        raise SampleError(f"the picture is {width} x {height}: too small to be shrunk by {factor}")
    small = cv2.resize(np.ascontiguousarray(image), (width // factor, height // factor))
    found: Picture = cv2.resize(small, (width, height))
    return found


def _cv2() -> Any:
    """OpenCV with one thread: the caller's threads are the ones that are counted."""
    import cv2

    cv2.setNumThreads(1)
    return cv2
