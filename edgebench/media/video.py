"""Frames of a video, sampled uniformly by presentation time.

The container is read once without decoding, for the frames' times and key frames; then only the groups of pictures
that hold a wanted frame are decoded. Frames are found by their time, so variable frame rates are right.
"""

from __future__ import annotations

import bisect
import contextlib
import io
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from edgebench.errors import MissingExtraError, SampleError
from edgebench.media.decode import MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Picture: TypeAlias = NDArray[np.uint8]

SUFFIXES = frozenset([".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mpg", ".mpeg", ".flv", ".ogv"])
_FORMATS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,ogg,h264,hevc,mpegvideo,m4v,ivf"
"""Containers that are opened. Playlists, which may name other files and hosts, are not among them."""
_SHORTFALL_S = 0.5
"""A container that ends so much before its stated duration is truncated, where no frame count is stated."""


@dataclass(frozen=True)
class SampledFrames:
    """Frames in the order of presentation."""

    frames: tuple[Picture, ...]
    """uint8 [H, W, 3] each, RGB, rotation applied."""
    positions: tuple[int, ...]
    """Which frame of the video each is, from 0."""
    times_s: tuple[float, ...]
    """When each is presented, from the first frame on."""
    total: int
    """Frames that the video has, or that can be decoded of a truncated one."""
    note: str = ""
    """What the user should know: fewer frames than asked for, a truncated file."""


@dataclass(frozen=True)
class _Index:
    times: list[Fraction]
    """Presentation time of every frame, ascending, seconds."""
    stamps: list[int]
    """The same in the stream's unit."""
    keys: list[int]
    """Those of the frames that a decoder can start from."""
    end: Fraction
    declared: int | None
    """Frames that the container says it has, where it is short of them."""
    seekable: bool


def sample_video(
    source: bytes | Path,
    count: int,
    *,
    truncated: Literal["refuse", "accept"] = "refuse",
    max_pixels: int = MAX_PIXELS,
) -> SampledFrames:
    """Sample `count` frames: those on show in the middles of `count` equal parts of the duration.

    Every frame is taken at most once: where two instants show the same frame, the next free one is taken, and a
    video of fewer than `count` frames gives each of its frames once, with a note.

    Args:
        source: the encoded bytes, or the file.
        count: how many.
        truncated: what to do with a file that ends early: refuse it, or sample what can be decoded.
        max_pixels: the largest width x height.

    Raises:
        SampleError: no video, damaged, truncated (with the number of frames that can be decoded), too large.
        MissingExtraError: PyAV is not installed.
    """
    if count < 1:
        raise ValueError("count must be at least 1")
    av = _av()
    with contextlib.ExitStack() as stack:
        index = _scan(_open(av, source, stack, max_pixels))
        decodable = None
        if index.declared is not None or not index.seekable:
            decodable = _decodable(av, _open(av, source, stack, max_pixels))
        note = ""
        if index.declared is not None and decodable is not None:
            text = f"the video is truncated: {decodable} of {index.declared} frames can be decoded"
            if truncated == "refuse" or decodable == 0:
                raise SampleError(text)
            note = text
        total = len(index.times) if decodable is None else min(decodable, len(index.times) or decodable)
        if total == 0:
            raise SampleError("the video has no frame that can be decoded")
        if total < count:
            short = f"{total} frames instead of {count}: the video has no more"
            note = f"{note}; {short}" if note else short
        times = index.times[:total] or [Fraction(k) for k in range(total)]
        end = index.end if total == len(index.times) else times[-1]
        positions = uniform(times, end, min(count, total))
        container = _open(av, source, stack, max_pixels)
        frames = _by_groups(av, container, index, positions) if index.seekable and decodable is None else None
        if frames is None:
            frames = _in_order(av, _open(av, source, stack, max_pixels), positions)
    first = times[0]
    return SampledFrames(
        frames=tuple(frames),
        positions=tuple(positions),
        times_s=tuple(float(times[k] - first) for k in positions),
        total=total,
        note=note,
    )


def uniform(times: Sequence[Fraction], end: Fraction, count: int) -> list[int]:
    """Which frames are on show in the middles of `count` equal parts of [times[0], end]; each at most once.

    Args:
        times: ascending, at least `count`.
        end: when the last frame ends.
        count: how many.
    """
    step = (end - times[0]) / count
    middles = [times[0] + step * k + step / 2 for k in range(count)]
    found = [max(0, bisect.bisect_right(times, middle) - 1) for middle in middles]
    for k in range(1, count):
        found[k] = max(found[k], found[k - 1] + 1)
    for k in range(count):
        found[k] = min(found[k], len(times) - count + k)
    return found


def _av() -> Any:
    try:
        import av
        import av.logging
    except ImportError as error:
        raise MissingExtraError("videos need PyAV", hint="pip install 'edgebench[video]'") from error
    av.logging.set_level(None)  # damaged files are reported by us, in one line
    return av


def _open(av: Any, source: bytes | Path, stack: contextlib.ExitStack, max_pixels: int) -> Any:
    try:
        stream = io.BytesIO(source) if isinstance(source, bytes) else stack.enter_context(source.open("rb"))
    except OSError as error:
        raise SampleError(f"the video cannot be read: {error.strerror or error}") from error
    try:
        container = stack.enter_context(av.open(stream, options={"format_whitelist": _FORMATS}))
    except (av.error.FFmpegError, ValueError) as error:
        raise SampleError(f"no frame can be decoded: the bytes are no video, or lack their index ({error})") from error
    if not container.streams.video:
        raise SampleError("the file holds no video stream")
    video = container.streams.video[0]
    context = video.codec_context
    if context is None:
        raise SampleError("the video's codec is unknown")
    if context.width * context.height > max_pixels:
        raise SampleError(
            f"the video is {context.width} x {context.height}, over the limit of {max_pixels} pixels a frame"
        )
    video.thread_type = "SLICE"
    return container


def _scan(container: Any) -> _Index:
    """Times and key frames, without decoding."""
    stream = container.streams.video[0]
    stamps: list[int] = []
    keys: list[int] = []
    last = 0
    seekable, packets = True, 0
    with contextlib.suppress(Exception):  # a damaged tail ends the list; it shows as a shortfall below
        for packet in container.demux(stream):
            if packet.size == 0 or packet.is_discard:
                continue
            packets += 1
            if packet.pts is None:
                seekable = False
                continue
            stamps.append(packet.pts)
            last = max(last, packet.pts + (packet.duration or 0))
            if packet.is_keyframe:
                keys.append(packet.pts)
    stamps.sort()
    unit = Fraction(stream.time_base or Fraction(1, 1000))
    seekable = seekable and bool(stamps) and len(set(stamps)) == len(stamps) and bool(keys) and min(keys) == stamps[0]
    times = [stamp * unit for stamp in stamps] if seekable else []
    declared = stream.frames if stream.frames > packets else None
    if declared is None and not stream.frames and times and container.duration:
        stated = Fraction(container.duration, 1_000_000)
        rate = Fraction(len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None
        missing = stated - (last * unit - min(times[0], Fraction(0)))
        if rate and missing > max(Fraction(_SHORTFALL_S), 2 / rate):
            declared = len(times) + int(missing * rate)
    return _Index(
        times, stamps, sorted(keys), max(last * unit, times[-1]) if times else Fraction(0), declared, seekable
    )


def _decoded(av: Any, container: Any) -> Iterator[Any]:
    """Frames in order, until the end or the first damage."""
    stream = container.streams.video[0]
    with contextlib.suppress(av.error.FFmpegError):
        yield from container.decode(stream)


def _decodable(av: Any, container: Any) -> int:
    return sum(1 for frame in _decoded(av, container) if not frame.is_corrupt)


def _in_order(av: Any, container: Any, positions: Sequence[int]) -> list[Picture]:
    wanted = set(positions)
    found = {k: _picture(frame) for k, frame in enumerate(_decoded(av, container)) if k in wanted}
    if len(found) < len(positions):
        raise SampleError(f"the video is damaged: {len(found)} of {len(positions)} wanted frames can be decoded")
    return [found[k] for k in positions]


def _by_groups(av: Any, container: Any, index: _Index, positions: Sequence[int]) -> list[Picture] | None:
    """Decode from the last key frame before each wanted frame, skipping what nothing refers to.

    None where a seek did not lead there, as in transport streams, which have no index.
    """
    stream = container.streams.video[0]
    wanted = {index.stamps[k] for k in positions}
    groups: dict[int, set[int]] = {}
    for stamp in wanted:
        key = index.keys[bisect.bisect_right(index.keys, stamp) - 1]
        groups.setdefault(key, set()).add(stamp)
    found: dict[int, Picture] = {}
    with contextlib.suppress(av.error.FFmpegError):
        for key in sorted(groups):
            left = groups[key] - found.keys()
            if not left:
                continue
            container.seek(key, stream=stream, backward=True, any_frame=False)
            unseen = set(left)
            for packet in container.demux(stream):
                stream.codec_context.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
                frames = packet.decode()
                unseen.discard(packet.pts)
                if not unseen and packet.size:
                    # All that is wanted is in the decoder: let it out, instead of pushing it out with more frames.
                    frames = [*frames, *stream.codec_context.decode(None)]
                for frame in frames:
                    if frame.pts in left:
                        found[frame.pts] = _picture(frame)
                        left.discard(frame.pts)
                if not left or not unseen:
                    break
    return [found[index.stamps[k]] for k in positions] if len(found) == len(wanted) else None


def _picture(frame: Any) -> Picture:
    """RGB, turned as the display matrix says (`rotation` is counter-clockwise, in degrees)."""
    import numpy as np

    picture = frame.to_ndarray(format="rgb24")
    turns = round((frame.rotation or 0) / 90) % 4
    turned: Picture = np.ascontiguousarray(np.rot90(picture, turns))
    return turned
