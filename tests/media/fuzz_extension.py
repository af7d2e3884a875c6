"""Drives the C extension in a process of its own: `sizes` compares small and random cases with Pillow; a number fuzzes
the arguments so many times and prints how many calls made pixels and how many were refused.

EDGEBENCH_EXTENSION_FOLDER takes the extension from there: a build with sanitizers.
"""

from __future__ import annotations

import os
import sys
from typing import Any

if folder := os.environ.get("EDGEBENCH_EXTENSION_FOLDER"):
    sys.path.insert(0, folder)
    import _pixels  # type: ignore[import-not-found]
else:
    from edgebench.media import _pixels

import numpy as np
from PIL import Image

KERNELS = {"box": 4, "bilinear": 2, "hamming": 5, "bicubic": 3, "lanczos": 1}


def picture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A picture whose memory ends with its last pixel, so that reading behind it is seen."""
    data = rng.integers(0, 256, height * width * 3, dtype=np.uint8).tobytes()
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def compare(rng: np.random.Generator, height: int, width: int, high: int, wide: int, kernel: str) -> None:
    image = picture(rng, height, width)
    pad = (3, 200, 90)
    full = (height + int(rng.integers(0, 4)), width + int(rng.integers(0, 4)))
    place = (int(rng.integers(0, full[0] - height + 1)), int(rng.integers(0, full[1] - width + 1)))
    padded = np.empty((*full, 3), np.uint8)
    padded[:] = pad
    padded[place[0] : place[0] + height, place[1] : place[1] + width] = image
    shrink = full[0] - high
    first = shrink > 0 and shrink > 2 * (full[1] - wide)
    resized = np.asarray(Image.fromarray(padded).resize((wide, high), KERNELS[kernel]))
    corner = (int(rng.integers(-2, high)), int(rng.integers(-2, wide)))
    window = (int(rng.integers(1, high + 3)), int(rng.integers(1, wide + 3)))
    framed = np.zeros((high + 2 * window[0] + 4, wide + 2 * window[1] + 4, 3), np.uint8)
    framed[window[0] + 2 : window[0] + 2 + high, window[1] + 2 : window[1] + 2 + wide] = resized
    y, x = window[0] + 2 + corner[0], window[1] + 2 + corner[1]
    expected = framed[y : y + window[0], x : x + window[1]]
    table = np.arange(768, dtype=np.float32)
    for vectors in (True, False):
        _pixels.vectors(vectors)
        out = np.empty((*window, 3), np.uint8)
        _pixels.render(image, out, None, False, (high, wide), corner, full, place, pad, kernel, first)
        assert np.array_equal(out, expected), (height, width, high, wide, kernel, vectors)
        planes = np.empty((3, *window), np.float32)
        _pixels.render(image, planes, table, True, (high, wide), corner, full, place, pad, kernel, first)
        assert np.array_equal(planes, expected.transpose(2, 0, 1) + np.float32([[[0]], [[256]], [[512]]]))


def sizes() -> None:
    rng = np.random.default_rng(0)
    names = list(KERNELS)
    for height in range(1, 17):
        for width in range(1, 17):
            high, wide = (int(v) for v in rng.integers(1, 40, 2))
            compare(rng, height, width, high, wide, names[(height + width) % 5])
    for turn in range(500):
        height, width, high, wide = (int(v) for v in np.exp(rng.uniform(0, np.log(300), 4)))
        compare(rng, height, width, high, wide, names[turn % 5])


def anything(rng: np.random.Generator) -> Any:
    choice = int(rng.integers(0, 12))
    shape = [int(v) for v in rng.integers(0, 6, int(rng.integers(0, 5)))]
    return [
        None,
        -1,
        "bicubic",
        b"12345",
        (1, 2),
        (2**40, 1),
        np.zeros(shape, np.uint8),
        np.zeros(shape, np.float64),
        picture(rng, 4, 5)[::-1],
        np.zeros((3, 7, 8), np.float32),
        np.arange(768, dtype=np.float32),
        np.zeros((5, 6, 3), np.uint8)[:, ::2],
    ][choice]


def fuzz(times: int) -> tuple[int, int]:
    rng = np.random.default_rng(1)
    made = refused = 0
    for turn in range(times):
        height, width = (int(v) for v in rng.integers(1, 20, 2))
        out = np.empty((3, int(rng.integers(1, 20)), int(rng.integers(1, 20))), np.float32)
        many = [2**31 - 1, -(2**31), 2**24, 0, 5, 1, 12]
        pair = lambda: tuple(int(v) for v in rng.choice(many[3:] if turn % 3 else many, 2))  # noqa: E731, B023
        arguments: list[Any] = [
            picture(rng, height, width),
            out,
            np.arange(768, dtype=np.float32),
            True,
            (int(rng.integers(1, 30)), int(rng.integers(1, 30))),
            pair(),
            (height, width),
            (0, 0),
            (1, 2, 3),
            "bicubic",
            bool(turn % 2),
        ]
        for _ in range(int(rng.integers(0, 3))):
            arguments[int(rng.integers(0, len(arguments)))] = anything(rng)
        if turn % 5 == 0:
            arguments[6] = pair()
        calls = [(_pixels.render, arguments)]
        image = picture(rng, height, width).copy()
        words = np.zeros(height * width * 3 - (turn % 4 == 0), np.uint16)
        matrix = rng.integers(-(2**31), 2**31 - 1, 9, dtype=np.int32) >> int(rng.integers(0, 31))
        noise: list[Any] = [image, image, words, np.zeros(65537, np.int16), matrix]
        colour: list[Any] = [image, image.copy(), np.zeros(12, np.int32)]
        for listed in (noise, colour):
            if turn % 2:
                listed[int(rng.integers(0, len(listed)))] = anything(rng)
        calls += [(_pixels.coloured_noise, noise), (_pixels.colour_matrix, colour)]
        for call, given in calls:
            try:
                call(*given)
                made += 1
            except (TypeError, ValueError, OverflowError, BufferError, MemoryError):
                refused += 1
    return made, refused


if __name__ == "__main__":
    if sys.argv[1] == "sizes":
        sizes()
    else:
        print(*fuzz(int(sys.argv[1])))
