"""From photographs to samples: crops, noise, short clips, forged or not, and their captions.

A sample's frames are uint8 [frames, 96, 96, 3]. Real and forged samples go through the same steps; only the
operation differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.demo import operations
from edgebench.demo.operations import cv2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from edgebench.demo.operations import Picture

TILE = 96
"""Side of a shown picture, pixels."""
CROP = 128
"""Side of the crop on which operations work; its centre is shown."""
REAL = "real"
ATTRIBUTES: tuple[tuple[str, ...], ...] = (("dark", "bright"), ("smooth", "detailed"), ("blue", "green", "red"))
"""The words a caption may use: light, texture, colour."""
_WORDS = 3


@dataclass(frozen=True)
class Photo:
    """A photograph at several sizes."""

    name: str
    sizes: tuple[NDArray[np.uint8], ...]
    person: tuple[float, float] | None = None


@dataclass(frozen=True)
class Sample:
    """One picture or clip."""

    frames: NDArray[np.uint8]
    """[frames, 96, 96, 3], RGB."""
    mask: NDArray[np.bool_]
    """[96, 96]: the forged area of the forged frames; nowhere true when nothing is forged."""
    forged: tuple[bool, ...]
    """One a frame."""
    operation: str
    """A key of `OPERATIONS`, or `real`."""
    photograph: str
    attributes: tuple[int, int, int]
    """What an honest caption says: indexes into `ATTRIBUTES`."""

    @property
    def is_forged(self) -> bool:
        """Whether any frame is."""
        return any(self.forged)

    @property
    def box(self) -> tuple[int, int, int, int] | None:
        """[x1, y1, x2, y2] of the forged area, pixels, the ends outside it; None when nothing is forged."""
        return box_of(self.mask)


def box_of(mask: NDArray[np.bool_]) -> tuple[int, int, int, int] | None:
    """The smallest box around a mask, as x1, y1, x2, y2 with the ends outside; None around nothing."""
    ys, xs = np.nonzero(mask)
    if len(ys) == 0:
        return None
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def pyramid(name: str, image: NDArray[np.uint8], person: tuple[float, float] | None = None) -> Photo:
    """The sizes from which crops are taken: long side 420 to 1400 where that shrinks by 1.25 or more."""
    long = max(image.shape[:2])
    sizes = [image] if long < 1100 else []
    for side in (420, 560, 760, 1000, 1400):
        if long >= 1.25 * side:
            height, width = (max(round(edge * side / long), CROP + 20) for edge in image.shape[:2])
            sizes.append(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))
    return Photo(name, tuple(sizes), person)


def crop(photo: Photo, rng: Generator, side: int, *, on_person: bool = False) -> Picture:
    """A crop float32 [side, side, 3] with some texture, varied in light, contrast and colour."""
    part = photo.sizes[0][:side, :side]
    for _ in range(30):
        image = photo.sizes[int(rng.integers(len(photo.sizes)))]
        height, width = image.shape[:2]
        low_x, high_x, low_y, high_y = 0, width - side, 0, height - side
        if on_person and photo.person is not None:
            x, y = photo.person[0] * width, photo.person[1] * height
            reach = side * 0.3
            low_x, high_x = max(0, round(x - side / 2 - reach)), min(width - side, round(x - side / 2 + reach))
            low_y, high_y = max(0, round(y - side / 2 - reach)), min(height - side, round(y - side / 2 + reach))
        left = int(rng.integers(low_x, max(low_x, high_x) + 1))
        top = int(rng.integers(low_y, max(low_y, high_y) + 1))
        left, top = min(left, width - side), min(top, height - side)
        part = image[top : top + side, left : left + side]
        if part.std() > 13:
            break
    out: NDArray[Any] = part.astype(np.float32)
    if rng.random() < 0.5:
        out = out[:, ::-1]
    if not on_person and rng.random() < 0.15:
        out = np.rot90(out)
    if rng.random() < 0.5:
        out = (out - 128) * rng.uniform(0.75, 1.15) + 128 + rng.uniform(-18, 18)
    if rng.random() < 0.3:
        out = np.asarray(out * rng.uniform(0.88, 1.12, 3), dtype=np.float32)
    return np.ascontiguousarray(out, dtype=np.float32)


def show(image: Picture, rng: Generator) -> NDArray[np.uint8]:
    """The centre of a crop as uint8 [96, 96, 3], rounded with dither."""
    edge = (image.shape[0] - TILE) // 2
    part = image[edge : edge + TILE, edge : edge + TILE]
    shown: NDArray[np.uint8] = np.clip(np.floor(part + rng.random(part.shape, dtype=np.float32)), 0, 255).astype(
        np.uint8
    )
    return shown


def attributes_of(image: NDArray[np.uint8]) -> tuple[int, int, int]:
    """What an honest caption says about a picture: indexes into `ATTRIBUTES`."""
    value = image.astype(np.float32)
    grey = value.mean(axis=2)
    edges = np.abs(np.diff(cv2.GaussianBlur(grey, (0, 0), 1.0), axis=1)).mean()
    red, green, blue = (float(value[..., c].mean()) for c in range(3))
    # The thresholds split photographs about evenly; foliage and sky lean, so green and blue get a small handicap.
    colour = int(np.argmax([blue + 6, green, red - 6]))
    return int(grey.mean() > 112), int(edges > 4.5), colour


def make(
    photos: Sequence[Photo],
    rng: Generator,
    operation: str,
    *,
    local: bool,
    frames: int = 1,
    forged: Sequence[bool] | None = None,
    on_person: bool = False,
    pick: int | None = None,
) -> Sample:
    """One sample.

    Args:
        photos: where crops and donors come from.
        rng: where all settings come from.
        operation: a key of `OPERATIONS`, or `real`.
        local: whether the operation is kept to a region; operations that need one get one in any case.
        frames: 1 for a picture, more for a clip: the crop wanders by up to 2 pixels a frame.
        forged: which frames; None is all of them.
        on_person: keep the face of a photograph with a person in the crop.
        pick: index of the photograph; None draws one.
    """
    place = int(rng.integers(len(photos))) if pick is None else pick
    photo = photos[place]
    others = [k for k in range(len(photos)) if k != place] or [place]
    reach = 2 * (frames - 1)
    whole = crop(photo, rng, CROP + (16 if reach else 0), on_person=on_person)
    donor = crop(photos[others[int(rng.integers(len(others)))]], rng, CROP)
    noise, settings, wander = (int(rng.integers(2**31)) for _ in range(3))
    local = local or operation in operations.LOCAL_ONLY
    hard, soft = operations.local_mask(rng, CROP, TILE)
    flags = tuple(operation != REAL and (forged is None or bool(forged[k])) for k in range(frames))
    step = np.random.default_rng(wander).uniform(-2, 2, 2) if reach else np.zeros(2)
    shown = []
    honest: tuple[int, int, int] | None = None
    for k in range(frames):
        middle = np.array([8.0, 8.0]) + step * (k - (frames - 1) / 2) if reach else np.zeros(2)
        top, left = (int(v) for v in np.round(middle))
        frame = whole[top : top + CROP, left : left + CROP]
        # The same camera for every frame of a clip: its strength is drawn from one seed, its grain from another.
        frame = _frame_noise(frame, noise, k)
        if honest is None:
            honest = attributes_of(np.clip(frame[16:112, 16:112], 0, 255).astype(np.uint8))
        if flags[k]:
            frame = operations.forge(frame, operation, np.random.default_rng(settings), donor, soft if local else None)
        shown.append(show(frame, rng))
    edge = (CROP - TILE) // 2
    mask = hard[edge : edge + TILE, edge : edge + TILE] > 0.5
    if not any(flags):
        mask = np.zeros_like(mask)
    elif not local:
        mask = np.ones_like(mask)
    return Sample(np.stack(shown), mask, flags, operation, photo.name, honest or (0, 0, 0))


def _frame_noise(frame: Picture, seed: int, k: int) -> Picture:
    """`operations.camera` with the strength fixed by `seed` and the grain by `seed` and `k`."""
    strength = np.random.default_rng(seed)
    if strength.random() > 0.8:
        return frame
    sigma = np.exp(strength.uniform(np.log(0.6), np.log(4.5)))
    blurred = strength.random() < 0.5
    grain = np.random.default_rng((seed, k)).standard_normal(frame.shape, dtype=np.float32)
    if blurred:
        grain = cv2.GaussianBlur(grain, (0, 0), 0.6) * 1.6
    light = np.sqrt(np.clip(frame, 8, 255) / 255)
    return np.asarray(frame + grain * light * sigma, dtype=np.float32)


def caption(attributes: Sequence[int]) -> list[str]:
    """A caption's words for these attributes."""
    light, texture, colour = (ATTRIBUTES[k][attributes[k]] for k in range(_WORDS))
    return ["A", light, texture, "picture", "with", colour, "tones"]


PLACES = (1, 2, 5)
"""The positions of the attributes among a caption's words."""
