"""Frames of real encoded videos: which ones, and what is said when there are not enough."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgebench.errors import SampleError
from edgebench.media.video import sample_video, uniform

av = pytest.importorskip("av")
if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def write(
    path: Path, frames: int = 90, *, codec: str = "libx264", step: tuple[int, ...] = (1,), fast: bool = False
) -> Path:
    """A clip whose frame k has a corner of grey level 2k and a white bar of width 2k; `step`: durations, repeated."""
    with av.open(str(path), "w", options={"movflags": "faststart"} if fast else {}) as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = 192, 128, "yuv420p"
        stream.codec_context.gop_size = 250 if "long" in path.name else 20
        stream.codec_context.time_base = Fraction(1, 30)
        if codec == "libx264":
            stream.codec_context.max_b_frames = 2
        pts = 0
        for k in range(frames):
            picture = np.zeros((128, 192, 3), np.uint8)
            picture[64:, : 2 * k + 1] = 255
            picture[:32, :32] = 2 * k
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = pts, Fraction(1, 30)
            pts += step[k % len(step)]
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def decoded(path: Path) -> list[NDArray[np.uint8]]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize(
    ("name", "codec", "step"),
    [
        ("a.mp4", "libx264", (1,)),
        ("vfr.mp4", "libx264", (1, 5)),
        ("burst.mp4", "libx264", (1, 1, 1, 40)),
        ("long.mp4", "libx264", (1,)),
        ("a.mkv", "libx264", (1,)),
        ("a.ts", "libx264", (1,)),
        ("a.avi", "mpeg4", (1,)),
        ("a.webm", "libvpx-vp9", (1,)),
    ],
)
@pytest.mark.parametrize("count", [1, 8, 40])
def test_frames_are_those_of_a_full_decode(
    tmp_path: Path, name: str, codec: str, step: tuple[int, ...], count: int
) -> None:
    path = write(tmp_path / name, codec=codec, step=step)
    every = decoded(path)
    sampled = sample_video(path, count)
    assert sampled.total == len(every) == 90
    assert len(set(sampled.positions)) == count
    assert list(sampled.positions) == sorted(sampled.positions)
    assert not sampled.note
    for place, frame in zip(sampled.positions, sampled.frames, strict=True):
        assert np.array_equal(frame, every[place])
        assert abs(int(frame[:16, :16].mean()) - 2 * place) <= 6


def test_variable_rate_is_sampled_by_time(tmp_path: Path) -> None:
    # Three frames of a thirtieth of a second, then one that stays for more than a second: instants fall on the long ones.
    sampled = sample_video(write(tmp_path / "b.mp4", step=(1, 1, 1, 40)), 10)
    assert [place % 4 for place in sampled.positions].count(3) >= 9
    gaps = np.diff(sampled.times_s)
    assert gaps.max() < 2 * gaps.mean()


def test_uniform_takes_each_frame_once() -> None:
    times = [Fraction(k) for k in (0, 1, 2, 100)]
    assert uniform(times, Fraction(101), 3) == [1, 2, 3]
    assert uniform(times, Fraction(101), 4) == [0, 1, 2, 3]
    assert uniform([Fraction(k) for k in range(8)], Fraction(8), 8) == list(range(8))


def test_a_short_clip_gives_each_frame_once_and_says_so(tmp_path: Path) -> None:
    sampled = sample_video(write(tmp_path / "s.mp4", 3), 8)
    assert sampled.positions == (0, 1, 2)
    assert sampled.note == "3 frames instead of 8: the video has no more"


def test_rotation_is_applied(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "r.mp4").read_bytes())
    matrix = data.find(b"tkhd") + 44
    assert struct.unpack(">9i", data[matrix : matrix + 36])[0] == 1 << 16
    data[matrix : matrix + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 128 << 16, 0, 1 << 30)
    plain = sample_video(write(tmp_path / "p.mp4"), 2).frames
    turned = sample_video(bytes(data), 2).frames
    assert turned[0].shape == (192, 128, 3)
    for one, other in zip(plain, turned, strict=True):
        assert np.array_equal(np.rot90(one, -1), other)


@pytest.mark.parametrize("name", ["t.mp4", "t.mkv", "t.avi"])
def test_a_truncated_file_says_how_much_can_be_decoded(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, codec="mpeg4" if name.endswith("avi") else "libx264", fast=name.endswith("mp4"))
    half = path.read_bytes()[: path.stat().st_size * 6 // 10]
    with pytest.raises(SampleError, match=r"truncated: (\d+) of \d+ frames can be decoded") as caught:
        sample_video(half, 4)
    decodable = int(str(caught.value).split("truncated: ")[1].split()[0])
    assert 20 < decodable < 80
    sampled = sample_video(half, 4, truncated="accept")
    assert sampled.total == decodable
    assert max(sampled.positions) < decodable
    assert "truncated" in sampled.note
    every = decoded(path)
    assert all(np.array_equal(frame, every[k]) for k, frame in zip(sampled.positions, sampled.frames, strict=True))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no video"),
        (b"not a video at all", "no video"),
        (b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n", "no video"),
        (b"ffconcat version 1.0\nfile '/etc/hostname'\n", "no video"),
    ],
)
def test_what_is_no_video_is_said_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(SampleError, match=says):
        sample_video(data, 4)


def test_a_file_without_its_index(tmp_path: Path) -> None:
    path = write(tmp_path / "i.mp4")
    data = path.read_bytes()
    assert data.find(b"moov") > data.find(b"mdat")
    with pytest.raises(SampleError, match="lack their index"):
        sample_video(data[: data.find(b"moov")], 4)


def test_too_large_a_frame_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="192 x 128, over the limit of 1000 pixels"):
        sample_video(write(tmp_path / "l.mp4"), 1, max_pixels=1000)
