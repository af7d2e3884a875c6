"""Questions about samples: the text, the options and the picture's panels, none of which gives the answer away.

Wrong boxes, masks and frame lists come from the law of the right ones. Where nothing is forged the right option is
the empty one, and the empty option is offered in every such question, right as often as each other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgebench import wording
from edgebench.demo.operations import cv2, local_mask
from edgebench.demo.scenes import ATTRIBUTES, CROP, PLACES, TILE, box_of, caption
from edgebench.wording import (
    CANDIDATES,
    FRAMES,
    GENERATED,
    IMAGE,
    IMAGE_TEXT,
    MANIPULATED,
    MASK_SETS,
    MASKS,
    QUERY,
    VIDEO,
    forged_parts,
    frame_list,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from edgebench.demo.scenes import Sample

    Bits = NDArray[np.bool_]

BOXES = wording.BOXES.format(width=TILE, height=TILE)
BOXES_TEXT = wording.BOXES_TEXT.replace("{width}", str(TILE)).replace("{height}", str(TILE))
APART = 0.35
"""Regions that overlap by more (intersection over union) are never options of one question, but for the near miss."""


@dataclass(frozen=True)
class Draft:
    """A question before it is written down."""

    task: str
    """`category`, `seg`, `det` or `temporal`."""
    question: str
    options: tuple[str, ...]
    answer: int
    """Index of the right option."""
    tiles: NDArray[np.uint8]
    """[tiles, 96, 96, 3] in reading order."""
    columns: int
    """Tiles a row."""
    titles: tuple[str, ...] | None
    """One a tile for a single row, one a row for several; None when the picture has no titles."""
    sample: Sample
    candidates: tuple[Bits, ...] = ()
    """Masks [96, 96] in the order of the options."""


def binary(sample: Sample, rng: Generator, position: int, *, generated: bool, words: Sequence[str] = ()) -> Draft:
    """Real or forged. With `words`, the caption is asked about too and may be what is forged.

    Args:
        sample: a picture or a clip.
        rng: unused settings; every question takes one.
        position: where the option "forged" stands, 0 or 1.
        generated: whether the options speak of generation or of manipulation.
        words: the caption.
    """
    pair = GENERATED if generated else MANIPULATED
    options = pair if position == 0 else pair[::-1]
    lies = bool(words) and list(words) != caption(sample.attributes)
    answer = position if sample.is_forged or lies else 1 - position
    text = IMAGE_TEXT.format(caption=" ".join(words)) if words else VIDEO if len(sample.frames) > 1 else IMAGE
    return Draft("category", text, options, answer, sample.frames, len(sample.frames), None, sample)


def masks(sample: Sample, rng: Generator, position: int) -> Draft:
    """Which of four masks is right; one of the four is always all black, and right when nothing is forged.

    Two of the three white masks resemble each other. The right mask is one of those two in two of three forged
    questions, so that neither the odd one out nor the pair is the better guess.
    """
    if sample.is_forged:
        truth = sample.mask
        if rng.random() < 2 / 3:
            white = [truth, near_miss(truth, rng), *apart([truth], rng, 1)]
        else:
            other = apart([truth], rng, 1)[0]
            white = [truth, other, near_miss(other, rng)]
        order = [white[0]]
        rest = [*white[1:], np.zeros_like(truth)]
    else:
        first = apart([], rng, 1)[0]
        order = [np.zeros_like(first)]
        rest = [first, near_miss(first, rng), *apart([first], rng, 1)]
    rest = [rest[k] for k in rng.permutation(3)]
    candidates = (*rest[:position], order[0], *rest[position:])
    options = CANDIDATES
    count = len(sample.frames)
    panels = [
        np.repeat(np.where(m, np.uint8(255), np.uint8(0))[None, :, :, None], 3, axis=3).repeat(count, axis=0)
        for m in candidates
    ]
    tiles = np.concatenate([sample.frames, *panels])
    titles = (QUERY, *options)
    columns = 5 if count == 1 else count
    text = MASKS if count == 1 else MASK_SETS
    return Draft("seg", text, options, position, tiles, columns, titles, sample, candidates)


def temporal(sample: Sample, rng: Generator, position: int) -> Draft:
    """Which frames are forged; one of the four lists is always the empty one."""
    truth = tuple(k for k, flag in enumerate(sample.forged) if flag)
    lists: list[tuple[int, ...]] = [truth] if truth else []
    while len(lists) < 3:
        other = forged_frames(rng, len(sample.frames))
        if other not in lists:
            lists.append(other)
    rest: list[tuple[int, ...]] = [entry for entry in [*lists, ()] if entry != truth]
    rest = [rest[k] for k in rng.permutation(3)]
    ordered = [*rest[:position], truth, *rest[position:]]
    titles = tuple(f"Frame {k}" for k in range(len(sample.frames)))
    options = tuple(frame_list(entry) for entry in ordered)
    return Draft("temporal", FRAMES, options, position, sample.frames, len(sample.frames), titles, sample)


def forged_frames(rng: Generator, count: int) -> tuple[int, ...]:
    """Frames to forge: one to half plus one of them, a run or scattered."""
    many = int(rng.integers(1, count // 2 + 2))
    if rng.random() < 0.5:
        start = int(rng.integers(0, count - many + 1))
        return tuple(range(start, start + many))
    return tuple(sorted(int(k) for k in rng.choice(count, many, replace=False)))


def boxes(
    sample: Sample, rng: Generator, position: int, *, words: Sequence[str] = (), lies: Sequence[int] = ()
) -> Draft:
    """Where the forged area is: no area or one of three boxes. With `words`, all options agree on the caption.

    Args:
        sample: one picture.
        rng: where the wrong boxes come from.
        position: where the right option stands.
        words: the caption; empty asks about the picture alone.
        lies: the forged token positions of the caption.
    """
    truth = sample.box
    areas = _boxes([sample.mask] if truth else [], rng, 3)
    rest: list[tuple[int, int, int, int] | None] = [area for area in [*areas, None] if area != truth]
    rest = [rest[k] for k in rng.permutation(3)]
    ordered = [*rest[:position], truth, *rest[position:]]
    options = tuple(forged_parts([area] if area else [], lies if words else None) for area in ordered)
    text = BOXES_TEXT.format(caption=" ".join(words), length=len(words)) if words else BOXES
    return Draft("det", text, options, position, sample.frames, 1, None, sample)


def which_part(sample: Sample, rng: Generator, position: int, words: Sequence[str], lies: Sequence[int]) -> Draft:
    """What is forged: picture or not, caption or not. All four combinations are the options."""
    truth = sample.box
    area = truth or _boxes([], rng, 1)[0]
    places = tuple(lies) or lie(sample.attributes, rng, swap=bool(rng.random() < 0.5))[1]
    right = (truth, tuple(lies))
    rest = [(a, p) for a in (None, area) for p in ((), places) if (a, p) != right]
    rest = [rest[k] for k in rng.permutation(3)]
    ordered = [*rest[:position], right, *rest[position:]]
    options = tuple(forged_parts([a] if a else [], p) for a, p in ordered)
    text = BOXES_TEXT.format(caption=" ".join(words), length=len(words))
    return Draft("det", text, options, position, sample.frames, 1, None, sample)


def lie(attributes: Sequence[int], rng: Generator, *, swap: bool) -> tuple[list[str], tuple[int, ...]]:
    """A caption that does not fit: one attribute changed, or several, as another picture's caption would differ.

    Returns:
        (words, forged token positions).
    """
    changed = list(attributes)
    which = rng.permutation(len(ATTRIBUTES))[: int(rng.integers(2, 4)) if swap else 1]
    for k in which:
        changed[k] = int((changed[k] + rng.integers(1, len(ATTRIBUTES[k]))) % len(ATTRIBUTES[k]))
    return caption(changed), tuple(sorted(PLACES[int(k)] for k in which))


def region(rng: Generator) -> Bits:
    """A mask [96, 96] from the law of the forged regions."""
    edge = (CROP - TILE) // 2
    hard, _ = local_mask(rng, CROP, TILE)
    found: Bits = hard[edge : edge + TILE, edge : edge + TILE] > 0.5
    return found


def overlap(one: Bits, other: Bits) -> float:
    """Intersection over union of two masks, 0..1."""
    union = int((one | other).sum())
    return float((one & other).sum() / union) if union else 0.0


def apart(given: Sequence[Bits], rng: Generator, count: int) -> list[Bits]:
    """So many regions that overlap neither each other nor the given ones by more than `APART`."""
    found: list[Bits] = []
    while len(found) < count:
        new = region(rng)
        if all(overlap(new, old) < APART for old in (*given, *found)):
            found.append(new)
    return found


def near_miss(mask: Bits, rng: Generator) -> Bits:
    """The mask moved, scaled (.75 to 1.33) and turned until it overlaps the old one by .3 to .65."""
    moved = mask
    for _ in range(200):
        scale = float(np.exp(rng.uniform(-0.29, 0.29)))
        matrix = cv2.getRotationMatrix2D((TILE / 2, TILE / 2), float(rng.uniform(-40, 40)), scale)
        matrix[:, 2] += rng.uniform(-26, 26, 2)
        moved = cv2.warpAffine(mask.astype(np.uint8), matrix, (TILE, TILE), flags=cv2.INTER_NEAREST) > 0
        share = moved.sum() / (TILE * TILE)
        if 0.3 < overlap(moved, mask) < 0.65 and 0.04 < share < 0.36:
            break
    return moved


def _boxes(given: Sequence[Bits], rng: Generator, count: int) -> list[tuple[int, int, int, int]]:
    """`count` boxes in all, those of the given masks first; none overlaps another by more than `APART`."""
    found = [box for box in map(box_of, given) if box]
    while len(found) < count:
        new = box_of(region(rng))
        if new and all(overlap(_fill(new), _fill(old)) < APART for old in found):
            found.append(new)
    return found


def _fill(box: tuple[int, int, int, int]) -> Bits:
    x1, y1, x2, y2 = box
    full = np.zeros((TILE, TILE), dtype=np.bool_)
    full[y1:y2, x1:x2] = True
    return full
