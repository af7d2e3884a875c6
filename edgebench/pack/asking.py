"""Items -> questions with their pictures.

In every question about areas or frames one option is the empty one; it is right where nothing is forged. Wrong
areas and frames come from other items, so that the options alone do not show which is right.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from edgebench.errors import SampleError
from edgebench.media.decode import decode
from edgebench.media.grids import stack
from edgebench.media.video import sample_video
from edgebench.pack import areas
from edgebench.pack.categories import slug
from edgebench.pack.items import files_of
from edgebench.wording import (
    BOXES,
    CANDIDATES,
    FRAMES,
    IMAGE,
    IMAGE_TEXT,
    MASK_SETS,
    MASKS,
    QUERY,
    VIDEO,
    forged_parts,
    frame_list,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray

    from edgebench.pack.areas import Bits, Shape, Shapes
    from edgebench.pack.items import Item

    Picture = NDArray[np.uint8]

STRIP = 4
"""Frames of a clip in a binary or a mask question, as published."""
CLIP = 8
"""Frames of a clip in a question about frames, as published."""
WrongMasks = Literal["others", "perturbed"]


@dataclass(frozen=True)
class Panels:
    """How pictures are fitted into the panels of a composite."""

    side: int = 512
    """Longest side of a panel; smaller pictures keep their size."""
    square: bool = False
    """Pad panels to side x side with black."""

    def fit(self, picture: Picture) -> Picture:
        """A picture as a panel."""
        height, width = self.size(picture.shape[0], picture.shape[1])
        if (height, width) != picture.shape[:2]:
            shrunk = Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC)
            picture = np.asarray(shrunk, dtype=np.uint8)
        return self._pad(picture)

    def fit_mask(self, mask: Bits, height: int, width: int) -> Picture:
        """A mask of a picture of height x width, white on black."""
        small = areas.resized(mask, *self.size(height, width))
        return self._pad(np.repeat(small[..., None] * np.uint8(255), 3, axis=2))

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a picture in its panel."""
        scale = min(1.0, self.side / max(height, width))
        return max(1, round(height * scale)), max(1, round(width * scale))

    def _pad(self, picture: Picture) -> Picture:
        if not self.square:
            return picture
        out = np.zeros((self.side, self.side, 3), dtype=np.uint8)
        top, left = (self.side - picture.shape[0]) // 2, (self.side - picture.shape[1]) // 2
        out[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
        return out


@dataclass(frozen=True)
class Asked:
    """One row of the benchmark."""

    item: Item
    task: str
    """BC, SLS, SLD or TL."""
    question: str
    options: tuple[str, ...]
    answer: int
    data: bytes
    """The encoded picture."""

    def category(self) -> str:
        """Its category's slug."""
        return slug(self.item, self.task)


def chance_of(seed: int, item: Item, task: str) -> Generator:
    """A generator that depends on the seed, the item's name and the task only."""
    key = hashlib.sha256(f"{seed}\0{task}\0{item.name}".encode()).digest()
    return np.random.default_rng(list(key[:16]))


def open_picture(path: Path) -> Picture:
    """One picture, upright.

    Raises:
        SampleError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}") from error
    return decode(data)


def open_frames(path: Path, count: int) -> tuple[list[Picture], list[int], int]:
    """(frames, their numbers in the clip, how many the clip has) of a video file or a folder of frames.

    Raises:
        SampleError: unreadable, or fewer than `count` frames.
    """
    if path.is_dir():
        files = files_of(path)
        if len(files) < count:
            raise SampleError(f"has {len(files)} frames, {count} are needed")
        places = [int((k + 0.5) * len(files) / count) for k in range(count)]
        frames, total = [open_picture(files[k]) for k in places], len(files)
    else:
        sampled = sample_video(path, count)
        frames, places, total = list(sampled.frames), list(sampled.positions), sampled.total
        if len(frames) < count:
            raise SampleError(f"has {len(frames)} frames, {count} are needed")
    if len({f.shape for f in frames}) > 1:
        raise SampleError("has frames of different sizes")
    return frames, places, total


def binary(item: Item, pair: tuple[str, str], position: int, panels: Panels) -> Asked:
    """Real or forged; `position` is where "forged" stands. A picture goes in as the bytes of its file."""
    text = IMAGE_TEXT.format(caption=item.caption) if item.caption else IMAGE if item.kind == "image" else VIDEO
    if item.kind == "image":
        data = item.path.read_bytes()
    else:
        frames, _, _ = open_frames(item.path, STRIP)
        data = png(stack([[panels.fit(f) for f in frames]], gap=0))
    answer = position if item.forged else 1 - position
    return Asked(item, "BC", text, pair if position == 0 else pair[::-1], answer, data)


def masks(
    item: Item, pool: Sequence[Shapes], rng: Generator, position: int, panels: Panels, wrong: WrongMasks
) -> Asked:
    """Which of four masks (of a clip: sets of masks) is right.

    Raises:
        SampleError: a file is unreadable, a mask does not fit, or there are too few other masks.
    """
    if item.kind == "image":
        frames = [open_picture(item.path)]
    else:
        frames, _, _ = open_frames(item.path, STRIP)
    height, width = frames[0].shape[:2]
    truth = masks_of(item, len(frames), height, width) if item.forged else None
    right, rest = _candidates(truth, len(frames), (height, width), pool, rng, wrong)
    rest = [rest[int(k)] for k in rng.permutation(3)]
    ordered = [*rest[:position], right, *rest[position:]]
    rows = [[panels.fit(f) for f in frames], *([panels.fit_mask(m, height, width) for m in c] for c in ordered)]
    if len(frames) == 1:
        rows = [[row[0] for row in rows]]
    picture = stack(rows, titles=(QUERY, *CANDIDATES))
    text = MASKS if len(frames) == 1 else MASK_SETS
    return Asked(item, "SLS", text, CANDIDATES, position, png(picture))


def masks_of(item: Item, frames: int, height: int, width: int) -> list[Bits]:
    """The true masks [height, width] of an item's sampled frames.

    Raises:
        SampleError: none, unreadable or of another shape.
    """
    if item.mask is None:
        raise SampleError("has no mask")
    if not item.mask.exists():
        raise SampleError("names a mask that does not exist")
    if item.kind == "image":
        return [areas.binary_mask(open_picture(item.mask), height, width)]
    pictures, _, _ = open_frames(item.mask, frames)
    return [areas.binary_mask(p, height, width) for p in pictures]


def boxes(item: Item, pool: Sequence[Shape], rng: Generator, position: int) -> Asked:
    """Where the forged areas are: none, or one of three lists of boxes. The picture goes in as its file.

    Raises:
        SampleError: as for `masks`; or the mask has more than four areas.
    """
    height, width = open_picture(item.path).shape[:2]
    truth: list[areas.Box] = []
    if item.forged:
        truth = areas.boxes_of(masks_of(item, 1, height, width)[0])
        if not truth:
            raise SampleError(f"has a mask of more than {areas.MOST_BOXES} areas, or only specks")
    wrong = areas.other_boxes(truth, pool, rng, 2 if truth else 3, height=height, width=width)
    rest = [*wrong, []] if truth else wrong
    rest = [rest[int(k)] for k in rng.permutation(3)]
    options = tuple(forged_parts(entry) for entry in [*rest[:position], truth, *rest[position:]])
    text = BOXES.format(width=width, height=height)
    return Asked(item, "SLD", text, options, position, item.path.read_bytes())


def temporal(item: Item, pool: Sequence[tuple[int, ...]], rng: Generator, position: int, panels: Panels) -> Asked:
    """Which of eight frames are forged.

    Raises:
        SampleError: unreadable, or no sampled frame is one of the forged ones.
    """
    frames, places, _ = open_frames(item.path, CLIP)
    truth = sampled_truth(item, places)
    wrong: list[tuple[int, ...]] = []
    candidates = [pool[int(k)] for k in rng.permutation(len(pool))] if pool else []
    while len(wrong) < (2 if truth else 3):
        new = candidates.pop() if candidates else _shuffled(rng.choice([len(p) for p in pool] or [3]), rng)
        if new and new != truth and new not in wrong:
            wrong.append(new)
    rest = [*wrong, ()] if truth else wrong
    rest = [rest[int(k)] for k in rng.permutation(3)]
    options = tuple(frame_list(entry) for entry in [*rest[:position], truth, *rest[position:]])
    titles = [f"Frame {k}" for k in range(CLIP)]
    picture = stack([[panels.fit(f) for f in frames]], titles=titles)
    return Asked(item, "TL", FRAMES, options, position, png(picture))


def sampled_truth(item: Item, places: Sequence[int]) -> tuple[int, ...]:
    """Which of the sampled frames are forged.

    Raises:
        SampleError: the clip is forged and none of the sampled frames is.
    """
    forged = item.forged_frames or frozenset()
    found = tuple(k for k, place in enumerate(places) if place in forged)
    if item.forged and not found:
        raise SampleError("none of the sampled frames is one of the forged ones")
    return found


def png(picture: Picture) -> bytes:
    """A picture as PNG."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", compress_level=3)
    return stream.getvalue()


def _candidates(
    truth: list[Bits] | None,
    frames: int,
    size: tuple[int, int],
    pool: Sequence[Shapes],
    rng: Generator,
    wrong: WrongMasks,
) -> tuple[list[Bits], list[list[Bits]]]:
    """(the right masks, three wrong ones), one a frame each."""
    if wrong == "perturbed":
        black = [np.zeros(size, dtype=np.bool_)] * frames
        if truth is None:
            return black, [[areas.rectangle(rng, *size)] * frames for _ in range(3)]
        small = [_small(mask) for mask in truth]
        return truth, [[areas.perturbed(mask, rng) for mask in small] for _ in range(3)]
    black = [np.zeros((areas.SIDE, areas.SIDE), dtype=np.bool_)] * frames
    if truth is None:
        return black, areas.others(None, pool, rng, 3)
    # The right mask goes through the same small size as the others, or its finer edge would give it away.
    small = [areas.resized(mask, areas.SIDE, areas.SIDE) for mask in truth]
    return small, [*areas.others(small[len(small) // 2], pool, rng, 2), black]


def _small(mask: Bits) -> Bits:
    """At most 512 on the long side: a mask is moved and scaled a hundred times."""
    height, width = Panels().size(*mask.shape)
    return areas.resized(mask, height, width)


def _shuffled(many: int, rng: Generator) -> tuple[int, ...]:
    return tuple(sorted(int(k) for k in rng.choice(CLIP, int(many), replace=False)))
