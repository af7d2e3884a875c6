"""Banks of training samples, made once on all cores and kept in one file."""

from __future__ import annotations

import io
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from wallpapers import load_wallpapers

from edgebench.demo import scenes
from edgebench.demo.operations import LOCAL_ONLY, OPERATIONS
from edgebench.demo.photographs import load, of_split
from edgebench.demo.questions import forged_frames

NAMES = ("real", *OPERATIONS)
"""Class of each operation: its index."""
CLIP = 8
_PHOTOS: list[scenes.Photo] = []


def photos(folder: Path) -> list[scenes.Photo]:
    """All training photographs at their sizes."""
    found = [scenes.pyramid(p.name, load(p)) for p in of_split("train")]
    return found + [scenes.pyramid(name, image) for name, image in load_wallpapers(folder).items()]


def jpeg(tile: np.ndarray, quality: int) -> np.ndarray:
    """One JPEG pass with 4:2:0 colour, as Pillow's default has it."""
    stream = io.BytesIO()
    Image.fromarray(tile).save(stream, "JPEG", quality=quality, subsampling=2)
    return np.asarray(Image.open(stream).convert("RGB"))


def quality(rng: np.random.Generator) -> int | None:
    """The JPEG quality of a training picture: none (.4), 75 (.35), or 70 to 98 (.25)."""
    draw = rng.random()
    return None if draw < 0.4 else 75 if draw < 0.75 else int(rng.integers(70, 99))


def _start(folder: Path) -> None:
    import cv2

    cv2.setNumThreads(1)
    _PHOTOS.extend(photos(folder))


def _tiles(job: tuple[int, int]) -> dict[str, np.ndarray]:
    seed, count = job
    rng = np.random.default_rng((seed, 11))
    out = {
        "tiles": np.empty((count, 96, 96, 3), np.uint8),
        "masks": np.zeros((count, 96, 96), np.bool_),
        "kinds": np.empty(count, np.int64),
        "words": np.empty((count, 3), np.int64),
    }
    for k in range(count):
        name = "real" if rng.random() < 0.5 else NAMES[int(rng.integers(1, len(NAMES)))]
        sample = scenes.make(_PHOTOS, rng, name, local=name in LOCAL_ONLY or rng.random() < 0.5)
        level = quality(rng)
        out["tiles"][k] = sample.frames[0] if level is None else jpeg(sample.frames[0], level)
        out["masks"][k], out["kinds"][k], out["words"][k] = sample.mask, NAMES.index(name), sample.attributes
    return out


def _clips(job: tuple[int, int]) -> dict[str, np.ndarray]:
    seed, count = job
    rng = np.random.default_rng((seed, 12))
    out = {
        "tiles": np.empty((count, CLIP, 96, 96, 3), np.uint8),
        "masks": np.zeros((count, 96, 96), np.bool_),
        "kinds": np.empty(count, np.int64),
        "forged": np.zeros((count, CLIP), np.bool_),
    }
    usual = ("resynth", "diffusion", "splice", "enhance")
    for k in range(count):
        name = usual[int(rng.integers(4))] if rng.random() < 0.7 else NAMES[int(rng.integers(1, len(NAMES)))]
        flags = np.zeros(CLIP, np.bool_)
        draw = rng.random()
        if draw > 0.35:
            flags[list(forged_frames(rng, CLIP))] = True
        elif draw > 0.2:
            flags[:] = True
        name = name if flags.any() else "real"
        local = name in LOCAL_ONLY or rng.random() < 0.5
        sample = scenes.make(_PHOTOS, rng, name, local=local, frames=CLIP, forged=flags)
        level = quality(rng)
        out["tiles"][k] = [f if level is None else jpeg(f, level) for f in sample.frames]
        out["masks"][k], out["kinds"][k], out["forged"][k] = sample.mask, NAMES.index(name), sample.forged
    return out


def make_banks(folder: Path, *, seed: int, tiles: int, clips: int, workers: int) -> dict[str, np.ndarray]:
    """Tiles and clips with masks, classes, caption attributes and forged frames."""
    part = 500
    jobs = [(seed * 1000 + k, part) for k in range(-(-tiles // part))]
    clip_jobs = [(seed * 1000 + k, part // 8) for k in range(-(-clips // (part // 8)))]
    with ProcessPoolExecutor(workers, initializer=_start, initargs=(folder,)) as pool:
        single = list(pool.map(_tiles, jobs))
        several = list(pool.map(_clips, clip_jobs))
    bank = {key: np.concatenate([s[key] for s in single]) for key in single[0]}
    return bank | {f"clip_{key}": np.concatenate([s[key] for s in several]) for key in several[0]}
