"""The photographs behind the mini benchmark: shipped inside the wheels of scikit-image and scikit-learn.

Nothing is downloaded. Training, calibration and test use different photographs. Licences are those stated by
scikit-image's `skimage.data` docstrings and by scikit-learn's `datasets/images/README.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from edgebench.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPLITS = ("train", "calibration", "test")


@dataclass(frozen=True)
class Photograph:
    """One photograph in a wheel."""

    name: str
    package: str
    """Top-level package whose wheel holds the file."""
    file: str
    """Path inside the package, `/` between parts."""
    split: str
    licence: str
    person: tuple[float, float] | None = None
    """Centre of the face, as fractions of width and height; None when the photograph shows no person."""


def _skimage(name: str, file: str, split: str, licence: str, person: tuple[float, float] | None = None) -> Photograph:
    return Photograph(name, "skimage", f"data/{file}", split, licence, person)


PHOTOGRAPHS: tuple[Photograph, ...] = (
    _skimage("astronaut", "astronaut.png", "test", "public domain (NASA)", (0.44, 0.22)),
    _skimage("chelsea", "chelsea.png", "test", "CC0 (Stefan van der Walt)"),
    _skimage("coffee", "coffee.png", "test", "CC0 (Rachel Michetti)"),
    _skimage("motorcycle", "motorcycle_left.png", "test", "CC0 (Middlebury stereo 2014, Daniel Scharstein)"),
    _skimage("rocket", "rocket.jpg", "test", "public domain (SpaceX)"),
    Photograph("china", "sklearn", "datasets/images/china.jpg", "test", "CC BY 2.0 (danielbuechele)"),
    _skimage("camera", "camera.png", "calibration", "CC0 (Lav Varshney)", (0.47, 0.2)),
    Photograph("flower", "sklearn", "datasets/images/flower.jpg", "calibration", "CC BY 2.0 (vultilion)"),
    _skimage("brick", "brick.png", "train", "CC0 (CC0Textures)"),
    _skimage("coins", "coins.png", "train", "no known copyright restrictions (Brooklyn Museum)"),
    _skimage("grass", "grass.png", "train", "CC0 (linolafett)"),
    _skimage("gravel", "gravel.png", "train", "CC0 (CC0Textures)"),
    _skimage("hubble", "hubble_deep_field.jpg", "train", "public domain (NASA)"),
    _skimage("ihc", "ihc.png", "train", "no known copyright restrictions (Human Protein Atlas)"),
    _skimage("retina", "retina.jpg", "train", "CC0 (Mikael Haggstrom)"),
)


def of_split(split: str) -> tuple[Photograph, ...]:
    """The photographs of one split, in a fixed order.

    Raises:
        UsageError: there is no such split.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}", hint="one of " + ", ".join(SPLITS))
    return tuple(p for p in PHOTOGRAPHS if p.split == split)


def load(photograph: Photograph) -> NDArray[np.uint8]:
    """The photograph as uint8 [height, width, 3], RGB, at its own size.

    Raises:
        MissingExtraError: the package that ships it is not installed.
    """
    spec = find_spec(photograph.package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"the photograph {photograph.name!r} comes with {photograph.package}, which is not installed",
            hint="pip install 'edgebench[demo]'",
        )
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*photograph.file.split("/"))
    if not path.is_file():
        raise MissingExtraError(
            f"this version of {photograph.package} does not ship the photograph {photograph.name!r}",
            where=path,
            hint="pip install 'edgebench[demo]'",
        )
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=np.uint8)
