"""Pixels, bit for bit, and files of every kind."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgebench.errors import SampleError
from edgebench.manifest import Preprocess
from edgebench.media.decode import decode
from edgebench.media.faces import around
from edgebench.media.pixels import geometry, pixels
from tests import twins

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@pytest.mark.parametrize("seed", range(40))
def test_bit_identical_to_transformers(seed: int) -> None:
    """CLIP's shortest edge and centre crop, and LLaVA's padding, over random sizes: zero difference in float32."""
    pytest.importorskip("transformers")
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    generator = np.random.default_rng(seed)
    height, width = (int(v) for v in generator.integers(1, 500, 2))
    edge, side = (int(v) for v in generator.integers(8, 200, 2))
    if max(height, width) / min(height, width) * edge > 5000:
        width = height
    image = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    ask: dict[str, Any] = {"return_tensors": "np", "input_data_format": "channels_last"}
    clip = CLIPImageProcessorPil(size={"shortest_edge": edge}, crop_size={"height": side, "width": side})
    ours = pixels(image, Preprocess("shortest_edge_crop", side, side, shortest_edge=edge, mean=MEAN, std=STD))
    assert np.array_equal(clip(image, **ask)["pixel_values"], ours)
    llava = LlavaImageProcessorPil(size={"height": side, "width": side}, do_center_crop=False, do_pad=True)
    colour = tuple(int(m * 255) for m in MEAN)
    ours = pixels(
        image, Preprocess("pad_square", side, side, pad_colour=(colour[0], colour[1], colour[2]), mean=MEAN, std=STD)
    )
    assert np.array_equal(llava(image, **ask)["pixel_values"], ours)


def test_tile_rows() -> None:
    p = Preprocess("tile_rows", 8, 8, gap=2, title=3)
    numbered = np.zeros((8, 3 * 8 + 2 * 2, 3), dtype=np.uint8)
    for k in range(3):
        numbered[:, k * 10 : k * 10 + 8] = k + 1
    assert [int(t[0, 0, 0]) for t in geometry(numbered, p)] == [1, 2, 3]
    titled = np.full((2 * 11 + 2, 18, 3), 99, dtype=np.uint8)
    for row in range(2):
        for column in range(2):
            titled[row * 13 + 3 : row * 13 + 11, column * 10 : column * 10 + 8] = 1 + row * 2 + column
    assert [set(t.ravel().tolist()) for t in geometry(titled, p)] == [{1}, {2}, {3}, {4}]
    assert pixels(titled, p).shape == (4, 3, 8, 8)
    assert [t.shape for t in geometry(np.zeros((50, 31, 3), dtype=np.uint8), p)] == [(8, 8, 3)]


def test_decoding_rules(tmp_path: Path) -> None:
    image = twins.picture(3, 20, 10)
    plain = np.asarray(image)
    assert np.array_equal(decode(twins.encoded(image)), plain)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = twins.encoded(image, "PNG", exif=exif)
    assert decode(turned).shape == (20, 10, 3)
    assert decode(turned, orientation="ignore").shape == (10, 20, 3)
    clear = image.convert("RGBA")
    clear.putalpha(0)
    assert np.array_equal(decode(twins.encoded(clear)), plain)
    assert (decode(twins.encoded(clear), alpha="white") == 255).all()
    grey16 = Image.fromarray(np.arange(200, dtype=np.uint16).reshape(10, 20) * 300)
    assert np.array_equal(decode(twins.encoded(grey16))[..., 0], np.asarray(grey16).astype(int) >> 8)
    assert decode(twins.encoded(image.convert("CMYK"), "JPEG")).shape == (10, 20, 3)
    assert decode(twins.encoded(image.convert("P"), "GIF")).shape == (10, 20, 3)
    assert decode(twins.encoded(image, "WEBP")).shape == (10, 20, 3)
    assert decode(twins.encoded(image.convert("L"))).shape == (10, 20, 3)


def test_official_path_is_pillows_default_jpeg() -> None:
    image = twins.picture(4, 64, 48)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=75, subsampling="4:2:0")
    expected = np.asarray(Image.open(stream))
    assert np.array_equal(decode(twins.encoded(image), image_path="official-jpeg75"), expected)
    assert np.array_equal(decode(twins.encoded(image.convert("RGBA")), image_path="official-jpeg75"), expected)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"hello", "no image"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "image"),
        (twins.encoded(twins.picture(1, 200, 200), "JPEG")[:3000], "truncated"),
        (twins.encoded(twins.picture(1, 200, 200), "PNG")[:3000], "cannot be decoded"),
    ],
)
def test_broken_files_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(SampleError, match=says) as caught:
        decode(data)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused_from_its_header() -> None:
    with pytest.raises(SampleError, match="over the limit of 100 pixels"):
        decode(twins.encoded(twins.picture(1, 11, 10)), max_pixels=100)


@pytest.mark.parametrize("seed", range(200))
def test_face_crops_stay_in_the_picture(seed: int) -> None:
    generator = np.random.default_rng(seed)
    width, height = (int(v) for v in generator.integers(20, 400, 2))
    w, h = (float(v) for v in generator.uniform(2, 150, 2))
    box = (float(generator.uniform(-20, width)), float(generator.uniform(-20, height)), w, h)
    left, top, right, bottom = around(box, float(generator.uniform(1, 5)), width, height)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
