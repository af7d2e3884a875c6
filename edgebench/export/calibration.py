"""Pictures that set the ranges of activations, and the check that they are not those that test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from edgebench.benches.base import Image
from edgebench.benches.images import SUFFIXES as EVALUATED
from edgebench.benches.images import Images
from edgebench.errors import CheckpointError, DataError, MissingExtraError, SampleError
from edgebench.media.decode import decode
from edgebench.media.duplicates import DISTANCE, Hashed, near_duplicates, perceptual_hash
from edgebench.media.prefetch import Source, prefetch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".webp", ".bmp"])
MAX_IMAGES = 128
_LISTED = 20
"""Near-duplicates that an error names."""


@dataclass(frozen=True)
class Calibration:
    """Images that set the ranges of activations."""

    name: str
    """The folder's name, the number of images, the SHA-256 over theirs, the preprocessing, and what they were checked
    against."""
    batches: list[NDArray[np.float32]]
    """float32 [1, 3, H, W] each."""


def read_calibration(folder: Path, preprocess: Preprocess, against: Path | None = None) -> Calibration:
    """Images of a folder in order of name, 128 at most, through the artifact's own preprocessing.

    Args:
        folder: searched with all below it.
        preprocess: the artifact's own.
        against: evaluation pictures that none of these may look like; None leaves that unknown, and `name` says so.

    Raises:
        CheckpointError: there is no readable image.
        DataError: an image looks like one of `against`, or nothing there can be read.
        MissingExtraError: imagehash is not installed, and `against` is given.
    """
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)[:MAX_IMAGES] if folder.is_dir() else []
    if not paths:
        raise CheckpointError("holds no image to calibrate with", where=folder)
    batches, used, digest = [], [], hashlib.sha256()
    sources = (Source(str(path), Image(path.name, path=path).read) for path in paths)
    for path, loaded in zip(paths, prefetch(sources, preprocess), strict=True):
        if loaded.tiles is not None:
            batches.append(loaded.tiles[:1])
            used.append(Image(path.relative_to(folder).as_posix(), path=path))
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    if not batches:
        raise CheckpointError("holds no readable image to calibrate with", where=folder)
    checked = "not checked against evaluation pictures" if against is None else disjoint(used, against, where=folder)
    name = f"{folder.resolve().name}, {len(batches)} images, sha256:{digest.hexdigest()}"
    return Calibration(f"{name}, preprocessing {preprocess.passport()[:8]}, {checked}", batches)


def disjoint(images: list[Image], against: Path, *, where: Path) -> str:
    """Refuse pictures that look like evaluation pictures, by perceptual hash.

    Args:
        images: what calibrates.
        against: a folder of pictures, or what `--bench images --data` takes.
        where: what calibrates, for the error.

    Returns:
        What was checked, for the manifest.

    Raises:
        DataError: two look alike (at most `DISTANCE` of 64 bits differ), or nothing of `against` can be read.
        MissingExtraError: imagehash is not installed.
    """
    if find_spec("imagehash") is None:
        raise MissingExtraError("--against needs imagehash", hint="pip install 'edgebench[pack]'")
    mine, _ = _hashes(images, "calibration")
    digest = hashlib.sha256()
    others, unread = _hashes(_evaluated(against), "evaluation", digest)
    if not others:
        raise DataError("holds no readable picture", where=against, hint="--against takes the evaluation pictures")
    found = near_duplicates([*mine, *others])
    if found:
        alike = {p.one if p.one_split == "calibration" else p.other for p in found}
        pairs = [f"{p.one} and {p.other} ({p.distance} bits)" for p in found[:_LISTED]]
        more = f" and {len(found) - _LISTED} more pairs" if len(found) > _LISTED else ""
        raise DataError(
            f"{len(alike)} of {len(mine)} calibration pictures look like pictures of {against.name}: "
            f"{', '.join(pairs)}{more}",
            where=where,
            hint="take them out: what calibrates must not test",
        )
    left = f", {unread} unreadable" if unread else ""
    return (
        f"no near-duplicate (at most {DISTANCE} of 64 bits of the perceptual hash) among the {len(others)} pictures of "
        f"{against.resolve().name}{left}, sha256:{digest.hexdigest()}"
    )


def _evaluated(against: Path) -> Iterable[Image]:
    if against.is_dir():
        paths = sorted(p for p in against.rglob("*") if p.suffix.lower() in EVALUATED and p.is_file())
        return [Image(p.relative_to(against).as_posix(), path=p) for p in paths]
    return [image for sample in Images.open(against).samples() for image in sample.images]


def _hashes(images: Iterable[Image], split: str, digest: hashlib._Hash | None = None) -> tuple[list[Hashed], int]:
    """The pictures' hashes, and how many could not be read; `digest` takes the SHA-256 of each file."""
    found, unread = [], 0
    for image in images:
        try:
            data = image.read()
            found.append(Hashed(image.name, split, perceptual_hash(decode(data))))
        except SampleError:
            unread += 1
            continue
        if digest is not None:
            digest.update(hashlib.sha256(data).digest())
    return found, unread
