"""Forged areas: masks as they are read, their boxes, and wrong ones that look like right ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from PIL import Image

from edgebench.errors import SampleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]
    Box = tuple[int, int, int, int]
    Shapes = tuple["Shape", ...]

T = TypeVar("T")

SIDE = 256
"""Masks of other pictures are kept at this size."""
APART = 0.35
"""Areas that overlap by more (intersection over union) are never options of one question."""
SPECK = 0.002
"""Connected areas of a smaller share of the picture give no box."""
MOST_BOXES = 4
NEAR = (0.3, 0.8)
"""How much a perturbed mask still overlaps the true one."""


@dataclass(frozen=True)
class Shape:
    """The forged area of one picture, small, in units of the picture."""

    packed: bytes
    """[SIDE, SIDE] bits."""
    boxes: tuple[tuple[float, float, float, float], ...]
    """x1, y1, x2, y2 of its connected areas, 0..1; empty when there are too many."""

    def bits(self) -> Bits:
        """The mask, [SIDE, SIDE]."""
        flat = np.unpackbits(np.frombuffer(self.packed, np.uint8))
        return flat.reshape(SIDE, SIDE).astype(np.bool_)


def binary_mask(picture: NDArray[np.uint8], height: int, width: int) -> Bits:
    """A mask picture -> bits of the picture's size: what is brighter than half its brightest is forged.

    Raises:
        SampleError: another shape, nothing forged, or everything.
    """
    grey = picture.max(axis=2)
    if abs(math.log((grey.shape[1] / grey.shape[0]) / (width / height))) > 0.01:
        raise SampleError(f"the mask is {grey.shape[1]} x {grey.shape[0]}, the picture {width} x {height}")
    bits: Bits = grey > max(int(grey.max()) // 2, 0)
    found = resized(bits, height, width)
    if not found.any():
        raise SampleError("the mask is empty")
    if found.all():
        raise SampleError("the mask covers everything")
    return found


def shape_of(mask: Bits) -> Shape:
    """What is kept of a mask [H, W]."""
    height, width = mask.shape
    small = resized(mask, SIDE, SIDE)
    boxes = tuple((x1 / width, y1 / height, x2 / width, y2 / height) for x1, y1, x2, y2 in boxes_of(mask))
    return Shape(np.packbits(small).tobytes(), boxes)


def boxes_of(mask: Bits) -> list[Box]:
    """Boxes x1, y1, x2, y2 (ends outside) of the connected areas, largest first; none when there are too many."""
    from scipy import ndimage

    labels, count = ndimage.label(mask, structure=np.ones((3, 3)))
    areas = ndimage.sum_labels(mask, labels, range(1, count + 1)) if count else []
    kept = [k for k in range(count) if areas[k] >= SPECK * mask.size]
    if not kept or len(kept) > MOST_BOXES:
        return []
    slices = ndimage.find_objects(labels)
    kept.sort(key=lambda k: -areas[k])
    return [(slices[k][1].start, slices[k][0].start, slices[k][1].stop, slices[k][0].stop) for k in kept]


def resized(mask: Bits, height: int, width: int) -> Bits:
    """Nearest neighbour."""
    if mask.shape == (height, width):
        return mask
    small = Image.fromarray(mask.astype(np.uint8) * 255).resize((width, height), Image.Resampling.NEAREST)
    found: Bits = np.asarray(small) > 127
    return found


def overlap(one: Bits, other: Bits) -> float:
    """Intersection over union, 0..1."""
    union = int((one | other).sum())
    return float((one & other).sum() / union) if union else 0.0


def others(truth: Bits | None, pool: Sequence[Shapes], rng: Generator, count: int) -> list[list[Bits]]:
    """So many masks [SIDE, SIDE] of other pictures, in random order and left-right mirrored at random, apart from each other.

    Args:
        truth: the right mask, [SIDE, SIDE]; of a clip that of the middle frame.
        pool: masks of other items, one a frame.
        rng: of the order.
        count: how many.

    Raises:
        SampleError: the pool has too few.
    """
    kept = [] if truth is None else [truth]
    found: list[list[Bits]] = []
    for shapes in _drawn(pool, rng):
        flip = rng.random() < 0.5
        new = [_mirrored(shape.bits(), flip) for shape in shapes]
        middle = new[len(new) // 2]
        if all(overlap(middle, old) < APART for old in kept):
            kept.append(middle)
            found.append(new)
            if len(found) == count:
                return found
    raise SampleError(f"has too few other masks to choose from ({len(pool)})")


def other_boxes(
    truth: Sequence[Box], pool: Sequence[Shape], rng: Generator, count: int, *, height: int, width: int
) -> list[list[Box]]:
    """So many lists of boxes of other pictures, scaled to this picture's size, apart from each other.

    Raises:
        SampleError: the pool has too few.
    """
    kept = [_filled(truth, height, width)] if truth else []
    found: list[list[Box]] = []
    for shape in _drawn([s for s in pool if s.boxes], rng):
        flip = rng.random() < 0.5
        boxes = [_scaled(box, flip, height, width) for box in shape.boxes]
        new = _filled(boxes, height, width)
        if new.any() and all(overlap(new, old) < APART for old in kept):
            kept.append(new)
            found.append(boxes)
            if len(found) == count:
                return found
    raise SampleError(f"has too few other boxes to choose from ({len(pool)})")


def perturbed(truth: Bits, rng: Generator) -> Bits:
    """The true mask moved, scaled and holed at random until it overlaps the true one by 0.3 to 0.8."""
    height, width = truth.shape
    image = Image.fromarray(truth.astype(np.uint8) * 255)
    new = truth
    for _ in range(100):
        scale = math.exp(rng.uniform(-0.35, 0.35))
        dx, dy = rng.uniform(-0.25, 0.25, 2) * (width, height)
        ys, xs = np.nonzero(truth)
        cx, cy = float(xs.mean()), float(ys.mean())
        matrix = (1 / scale, 0, cx - (cx + dx) / scale, 0, 1 / scale, cy - (cy + dy) / scale)
        moved = np.asarray(image.transform((width, height), Image.Transform.AFFINE, matrix)) > 127
        if rng.random() < 0.3:
            holes = Image.fromarray((rng.random((height // 8 + 1, width // 8 + 1)) < 0.2).astype(np.uint8) * 255)
            moved = moved & ~(np.asarray(holes.resize((width, height), Image.Resampling.NEAREST)) > 127)
        new = moved
        if NEAR[0] < overlap(new, truth) < NEAR[1]:
            break
    return new


def rectangle(rng: Generator, height: int, width: int) -> Bits:
    """A white rectangle near the border, as the published wrong masks of real pictures have."""
    found = np.zeros((height, width), dtype=np.bool_)
    h, w = (int(side * rng.uniform(0.15, 0.4)) for side in (height, width))
    top = int(rng.choice([0, height - h])) if rng.random() < 0.5 else int(rng.integers(0, height - h + 1))
    left = int(rng.choice([0, width - w]))
    found[top : top + h, left : left + w] = True
    return found


def _drawn(pool: Sequence[T], rng: Generator) -> Iterator[T]:
    """Every shape once in random order, and then once more: mirrored otherwise it may fit."""
    for _ in range(2):
        for k in rng.permutation(len(pool)):
            yield pool[int(k)]


def _mirrored(mask: Bits, flip: bool) -> Bits:
    return mask[:, ::-1] if flip else mask


def _scaled(box: tuple[float, float, float, float], flip: bool, height: int, width: int) -> Box:
    x1, y1, x2, y2 = box
    if flip:
        x1, x2 = 1 - x2, 1 - x1
    return round(x1 * width), round(y1 * height), round(x2 * width), round(y2 * height)


def _filled(boxes: Sequence[Box], height: int, width: int) -> Bits:
    found = np.zeros((SIDE, SIDE), dtype=np.bool_)
    for x1, y1, x2, y2 in boxes:
        top, bottom = y1 * SIDE // height, -(-y2 * SIDE // height)
        found[top:bottom, x1 * SIDE // width : -(-x2 * SIDE // width)] = True
    return found
