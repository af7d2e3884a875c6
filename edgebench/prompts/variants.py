"""Prompt variants, as data: what is said besides the question, and how its pictures are shown.

Source of the experiments: arXiv 2503.15024v2, section 10 (Tables 11, 12 and 14). Where the sentence stands there and
how boxes are drawn is not published.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw

from edgebench.benches.base import Image
from edgebench.benches.taxonomy import own_category
from edgebench.config import build, read_yaml
from edgebench.errors import SampleError, UsageError, did_you_mean
from edgebench.media.decode import decode
from edgebench.media.faces import check_detector, find_faces
from edgebench.prompts.boxes import Boxes, read_boxes

if TYPE_CHECKING:
    from edgebench.benches.base import Sample
    from edgebench.media.faces import Box

DEFAULT = "default"
FRAMES = 4
"""Of a binary question's video, side by side."""
ROW_HEIGHT = 512
"""Pixels of pictures that are pasted into one row, as VLMEvalKit does it."""
COLOUR = (255, 0, 0)


@dataclass(frozen=True)
class Variant:
    """One way to put the questions. A question that it does not apply to is put plainly."""

    summary: str
    name: str = DEFAULT
    text: str | None = None
    boxes: Literal["none", "faces", "given"] = "none"
    pictures: Literal["separate-frames", "one-row"] | None = None
    given: Boxes | None = None
    """Of `boxes: given`; never in the file of variants."""

    @property
    def label(self) -> str | None:
        """For a run's settings: name and hash; None for the plain way."""
        if self.name == DEFAULT:
            return None
        told = {k: v for k, v in asdict(self).items() if k not in {"summary", "name"}}
        return f"{self.name}@{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}"

    def put(self, sample: Sample) -> Sample:
        """The sample in this way; with its problem where its pictures cannot be read."""
        if sample.problem is not None or self.name == DEFAULT:
            return sample
        try:
            return self._put(sample)
        except SampleError as error:
            return replace(sample, problem=str(error))

    def _put(self, sample: Sample) -> Sample:
        kind = own_category(sample.category)
        images = sample.images
        if self.pictures == "separate-frames" and (kind.modality, kind.task, len(images)) == ("VID", "BC", 1):
            images = _frames(images[0])
        elif self.pictures == "one-row" and len(images) > 1:
            images = (_row(images),)
        if self.boxes != "none":
            if self.boxes == "faces" and (kind.semantic, kind.task) != ("HS", "BC"):
                return sample
            own = (self.given or {}).get(sample.id, {})
            marked = [
                _boxed(image, None if self.boxes == "faces" else own.get(k, [])) for k, image in enumerate(images)
            ]
            if not any(marked):
                return replace(sample, facts=sample.facts | {"boxes": "0"})
            sample = replace(sample, facts=sample.facts | {"boxes": str(sum(n for _, n in filter(None, marked)))})
            images = tuple(found[0] if found else image for found, image in zip(marked, images, strict=True))
        question = sample.question
        if self.text is not None:
            question = replace(question, text=f"{question.text} {self.text}")
        return replace(sample, images=images, question=question)


@lru_cache(maxsize=1)
def variants() -> dict[str, Variant]:
    """All by name, the plain way first."""
    path = Path(__file__).resolve().parent.parent / "data" / "prompt_variants.yaml"
    rows = read_yaml(path)
    return {name: build(Variant, {"name": name, **row}, where=f"{path.name}: {name}") for name, row in rows.items()}


def load_variant(name: str | None, boxes: Path | None = None) -> Variant:
    """The variant of that name; the plain way for None.

    Args:
        name: of the file of variants.
        boxes: a file of `edgebench.prompts.boxes`, for the variant that draws given ones.

    Raises:
        UsageError: there is none, or it draws given boxes and none are given.
        DataError: the boxes cannot be read.
        EngineError: it draws boxes around faces, and YuNet's weights are not there.
    """
    known = variants()
    if name is not None and name not in known:
        raise UsageError(f"unknown prompt variant {name!r}", hint=did_you_mean(name, known))
    found = known[name or DEFAULT]
    if found.boxes == "faces":
        check_detector()
    if found.boxes == "given":
        if boxes is None:
            raise UsageError(f"the variant {found.name!r} draws boxes, and none are given", hint="pass --boxes FILE")
        return replace(found, given=read_boxes(boxes))
    return found


def _frames(image: Image) -> tuple[Image, ...]:
    """A strip's frames, from left to right."""
    strip = decode(image.read())
    edges = [round(k * strip.shape[1] / FRAMES) for k in range(FRAMES + 1)]
    if strip.shape[1] < FRAMES:
        raise SampleError(f"a strip of {strip.shape[1]} pixels has no {FRAMES} frames", where=image.name)
    return tuple(
        _png(Pillow.fromarray(strip[:, a:b]), f"{image.name}_{k}") for k, (a, b) in enumerate(itertools.pairwise(edges))
    )


def _row(images: tuple[Image, ...]) -> Image:
    """Pictures side by side, each `ROW_HEIGHT` high."""
    shown = [Pillow.fromarray(decode(image.read())) for image in images]
    sized = [p.resize((max(1, round(p.width * ROW_HEIGHT / p.height)), ROW_HEIGHT)) for p in shown]
    row = Pillow.new("RGB", (sum(p.width for p in sized), ROW_HEIGHT))
    left = 0
    for picture in sized:
        row.paste(picture, (left, 0))
        left += picture.width
    return _png(row, images[0].name)


def _boxed(image: Image, given: list[Box] | None) -> tuple[Image, int] | None:
    """With the given boxes, or for None one around each face, and how many; None without any."""
    if given == []:
        return None
    pixels = decode(image.read())
    faces = find_faces(pixels) if given is None else given
    if not faces:
        return None
    picture = Pillow.fromarray(np.ascontiguousarray(pixels))
    width = max(2, round(min(picture.size) / 100))
    for x, y, w, h in faces:
        left, top = max(0, int(x)), max(0, int(y))
        right, bottom = min(picture.width - 1, round(x + w)), min(picture.height - 1, round(y + h))
        if right > left and bottom > top:
            ImageDraw.Draw(picture).rectangle((left, top, right, bottom), outline=COLOUR, width=width)
        elif given is not None:
            size = f"{picture.width} x {picture.height}"
            raise SampleError(f"the box {x:g},{y:g},{w:g},{h:g} is not in the picture of {size}", where=image.name)
    return _png(picture, image.name), len(faces)


def _png(picture: Pillow.Image, name: str) -> Image:
    stream = io.BytesIO()
    picture.save(stream, "PNG", compress_level=1)
    return Image(name, data=stream.getvalue())
