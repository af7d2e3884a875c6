"""A corpus of odd and broken files: each gives the reference's pixels or one clear reason, and a run over all ends."""

from __future__ import annotations

import io
import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from edgebench.errors import SampleError
from edgebench.media.decode import decode
from edgebench.media.video import sample_video

if TYPE_CHECKING:
    from tests.conftest import Cli, Exports


@dataclass(frozen=True)
class Case:
    """One file."""

    name: str
    data: bytes
    says: str | None = None
    """None: it is decoded as Pillow does; else the reason, or a part of it."""


def photograph(width: int = 61, height: int = 43) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    planes = (128 + 100 * np.sin(x / 9), 128 + 100 * np.sin(y / 7), (x * 3 + y * 5) % 256)
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def saved(image: Image.Image, kind: str, **how: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **how)
    return stream.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is huge."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def arithmetic(data: bytes) -> bytes:
    """The same JPEG with the frame marker of arithmetic coding."""
    at = data.find(b"\xff\xc0")
    return data[:at] + b"\xff\xc9" + data[at + 2 :]


def corpus() -> list[Case]:
    photo = photograph()
    jpeg = saved(photo, "JPEG", quality=90)
    png, webp, gif = saved(photo, "PNG"), saved(photo, "WEBP"), saved(photo.convert("P"), "GIF")
    clear = photo.convert("RGBA")
    clear.putalpha(Image.fromarray((np.arange(61 * 43).reshape(43, 61) % 256).astype(np.uint8)))
    palette = photo.convert("P", palette=Image.Palette.ADAPTIVE)
    frames = [photograph().rotate(k) for k in (0, 90, 180)]
    sixteen = Image.fromarray((np.arange(61 * 43).reshape(43, 61) * 25).astype(np.uint16))
    exif = []
    for k in range(1, 9):
        tags = Image.Exif()
        tags[0x0112] = k
        exif.append(Case(f"exif-{k}.jpg", saved(photo, "JPEG", quality=90, exif=tags)))
    damaged = bytearray(jpeg)
    damaged[len(jpeg) // 2 : len(jpeg) // 2 + 40] = bytes(40)
    return [
        Case("plain.jpg", jpeg),
        Case("444.jpg", saved(photo, "JPEG", quality=90, subsampling=0)),
        Case("422.jpg", saved(photo, "JPEG", quality=90, subsampling=1)),
        Case("quality-1.jpg", saved(photo, "JPEG", quality=1)),
        Case("progressive.jpg", saved(photo, "JPEG", progressive=True)),
        Case("grey.jpg", saved(photo.convert("L"), "JPEG")),
        Case("cmyk.jpg", saved(photo.convert("CMYK"), "JPEG")),
        Case("rgb.jpg", saved(photo, "JPEG", keep_rgb=True)),
        Case("one-pixel.jpg", saved(photograph(1, 1), "JPEG")),
        Case("one-row.jpg", saved(photograph(500, 1), "JPEG")),
        Case("one-column.png", saved(photograph(1, 500), "PNG")),
        Case("trailing-bytes.jpg", jpeg + b"more" * 50),
        Case("two-in-one.jpg", jpeg + saved(photograph(9, 9), "JPEG")),
        Case("zeros-inside.jpg", bytes(damaged)),
        *exif,
        Case("plain.png", png),
        Case("interlaced-like.png", saved(photo, "PNG", optimize=True)),
        Case("16-bit.png", saved(sixteen, "PNG")),
        Case("1-bit.png", saved(photo.convert("1"), "PNG")),
        Case("grey-alpha.png", saved(clear.convert("LA"), "PNG")),
        Case("alpha.png", saved(clear, "PNG")),
        Case("palette-transparent.png", saved(palette, "PNG", transparency=3)),
        Case("trns.png", saved(photo, "PNG", transparency=(128, 128, 0))),
        Case("plain.gif", gif),
        Case(
            "animated.gif", saved(frames[0].convert("P"), "GIF", save_all=True, append_images=frames[1:], duration=50)
        ),
        Case("plain.webp", webp),
        Case("lossless-alpha.webp", saved(clear, "WEBP", lossless=True)),
        Case("animated.webp", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:])),
        Case("plain.bmp", saved(photo, "BMP")),
        Case("float.tif", saved(photo, "TIFF")),
        Case("png-called.jpg", png),
        Case("jpeg-called.png", jpeg),
        Case("empty.jpg", b"", "empty (0 bytes)"),
        Case("text.jpg", b"<html>not found</html>", "no image that can be decoded"),
        Case("zeros.png", bytes(4096), "no image that can be decoded"),
        Case("half.jpg", jpeg[: len(jpeg) // 2], "truncated"),
        Case("header-only.jpg", jpeg[:200], "image"),
        Case("half.png", png[: len(png) // 2], "truncated"),
        Case("signature-only.png", png[:8], "no image that can be decoded"),
        Case("bad-crc.png", png[:60] + bytes([png[60] ^ 255]) + png[61:], "image"),
        Case("half.webp", webp[: len(webp) // 2], "image"),
        Case("half.gif", gif[: len(gif) // 3], "image"),
        Case("arithmetic.jpg", arithmetic(jpeg)),
        Case("bomb.png", bomb(30_000, 30_000), "over the limit of 178956970 pixels"),
        Case("huge-side.png", bomb(2_000_000_000, 1), "image"),
        Case(
            "svg.png", b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', "no image that can be decoded"
        ),
        Case("pdf.jpg", b"%PDF-1.4\n%%EOF", "no image that can be decoded"),
    ]


CASES = corpus()


def reference(data: bytes) -> np.ndarray:
    """By Pillow alone, with the stated rules for 16 bits and alpha."""
    image: Image.Image = Image.open(io.BytesIO(data))
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return np.repeat((np.asarray(image).astype(int) >> 8).astype(np.uint8)[..., None], 3, -1)
    return np.asarray(image.convert("RGB"))


def test_there_are_enough() -> None:
    assert len(CASES) >= 50
    assert len({c.name for c in CASES}) == len(CASES)
    assert sum(c.says is not None for c in CASES) >= 14


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_pixels_or_one_reason(case: Case) -> None:
    if case.says is None:
        assert np.array_equal(decode(case.data), reference(case.data))
        return
    with pytest.raises(SampleError) as caught:
        decode(case.data)
    text = str(caught.value)
    assert case.says in text
    assert len(text.splitlines()) == 1
    assert len(text) < 400


def test_a_truncated_file_is_accepted_on_request() -> None:
    whole = saved(photograph(200, 160), "JPEG", quality=90)
    half = whole[: len(whole) // 2]
    accepted = decode(half, truncated="accept")
    full = decode(whole)
    assert accepted.shape == full.shape
    assert np.array_equal(accepted[:40], full[:40])
    assert not np.array_equal(accepted[-20:], full[-20:])
    with pytest.raises(SampleError, match="truncated"):
        decode(half)


def test_the_limit_is_read_from_the_header() -> None:
    with pytest.raises(SampleError, match="61 x 43, over the limit of 2622 pixels"):
        decode(CASES[0].data, max_pixels=61 * 43 - 1)
    assert decode(CASES[0].data, max_pixels=61 * 43).shape == (43, 61, 3)


def test_the_limit_may_be_above_pillow_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert decode(CASES[0].data, max_pixels=3000).shape == (43, 61, 3)
    assert Image.MAX_IMAGE_PIXELS == 1000
    with pytest.raises(SampleError, match="over the limit of 1500 pixels"):
        decode(CASES[0].data, max_pixels=1500)


def test_a_run_over_all_of_them_completes(cli: Cli, exports: Exports) -> None:
    """With an unreadable file, a missing one and a folder among them."""
    root = cli.folder / "odd"
    (root / "real").mkdir(parents=True)
    (root / "forged").mkdir()
    for k, case in enumerate(CASES):
        (root / ("real", "forged")[k % 2] / case.name).write_bytes(case.data)
    expected = {case.name: case.says for case in CASES}
    lines = ["file,label", "gone.png,real", "real,real"]
    lines += [f"{p.relative_to(root).as_posix()},{p.parent.name}" for p in sorted(root.rglob("*.*"))]
    if os.geteuid() != 0:
        (root / "real" / "locked.png").write_bytes(CASES[0].data)
        (root / "real" / "locked.png").chmod(0)
        lines.append("real/locked.png,real")
        expected["locked.png"] = "cannot be read"
    (root / "list.csv").write_text("\n".join(lines) + "\n")
    expected |= {"gone.png": "cannot be read", "real": "cannot be read"}
    done = cli("run", exports(), "--bench", "images", "--data", root / "list.csv", "-o", "run", "--json")
    assert done.code == 1, done.err
    import json

    records = [json.loads(line) for line in (cli.folder / "run" / "records.jsonl").read_text().splitlines()]
    answers = {r["id"].rsplit("/", 1)[-1]: r for r in records if r["kind"] == "answer"}
    assert answers.keys() == expected.keys()
    for name, says in expected.items():
        if says is None:
            assert answers[name].get("error") is None, name
        else:
            assert says in answers[name]["error"], name
    assert done.json["summary"]["failed"] == sum(says is not None for says in expected.values())


def test_files_without_a_picture_in_them() -> None:
    """Containers that hold sound only, or a video stream without a frame."""
    av = pytest.importorskip("av")
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), format="fltp", layout="mono")
        frame.rate = 16000
        container.mux(sound.encode(frame))
        container.mux(sound.encode())
    with pytest.raises(SampleError, match="holds no video stream"):
        sample_video(stream.getvalue(), 4)
    empty = io.BytesIO()
    with av.open(empty, "w", format="matroska") as container:
        video = container.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        container.start_encoding()
    with pytest.raises(SampleError, match=r"no frame|no video"):
        sample_video(empty.getvalue(), 4)
