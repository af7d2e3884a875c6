"""MMFakeBench: is a news picture with its caption real, or is its text, its picture or their match faked?

Source: arXiv 2406.08772 and the released JSON of its validation and test splits, in every form that is about:
`gt_answers` as a text or a list, image paths with a leading slash, the JSON beside the split's folder or in its
`source/`, and the folder once more inside itself. Nothing of the data is shipped.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.benches.base import Image, Question, Sample, fingerprint
from edgebench.errors import ArtifactError, DataError, SampleError
from edgebench.manifest import inside
from edgebench.records import DataFact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgebench.manifest import Kind

PUBLISHED = "https://huggingface.co/datasets/liuxuannan/MMFakeBench"
TARGETS = {
    "original": "original",
    "textual_veracity_distortion": "textual",
    "visual_veracity_distortion": "visual",
    "mismatch": "mismatch",
}
"""`fake_cls` -> class."""
GROUND_TRUTH = {"True": True, "Fake": False, "False": False}
"""`gt_answers` -> whether the sample is real."""
TYPES = {
    "fever_AI": "artificial rumour",
    "politicat_match": "natural rumour",
    "rumor_match": "natural rumour",
    "gossipcop_match": "natural rumour",
    "gossipcop_midjourney": "natural rumour",
    "chatgpt_match": "GPT-generated rumour",
    "llm_gossip_md_generation": "GPT-generated rumour",
    "llm_science_md_generation": "GPT-generated rumour",
    "llm_rewrite": "GPT-generated rumour",
    "Fakeddit_photo_edit": "edited picture",
    "antifact_image_generation": "generated picture",
    "Newsclipings_person": "repurposed picture",
    "Newsclipings_scene": "repurposed picture",
    "Newsclipings_semantic": "repurposed picture",
    "DGM4_text_edit_senti": "edited caption",
    "coco_text_edit": "edited caption",
    "coco_image_edit": "edited picture of a pair",
}
"""Sub-category -> type of rumour or forgery, by what each of them is made of."""
KEPT = ("text_source", "image_source")
_SPLIT_ENDING = re.compile(r"_(?:val|test)(?:_\d+)?$")


class MMFakeBench:
    """One split of MMFakeBench."""

    name = "mmfakebench"
    protocols = ("standard", "mmd-agent", "mixed")
    """How it can be asked; see `edgebench.protocols`."""

    def __init__(self, samples: list[Sample], data: DataFact) -> None:
        self._samples = samples
        self._data = data

    @classmethod
    def open(cls, data: Path | None, *, limit: int | None = None) -> MMFakeBench:
        """Open a JSON file, or the folder that holds one, and find every image.

        Raises:
            DataError: there is none or more than one, it is not of the released form, or images are missing.
        """
        if data is None:
            raise DataError(
                "the bench 'mmfakebench' needs --data",
                hint=f"the folder of MMFakeBench_val or MMFakeBench_test, or its JSON file; published at {PUBLISHED}",
            )
        path = _json_file(data)
        rows = _rows(path)[:limit]
        root = _root(path, rows)
        seen: dict[str, int] = {}
        samples, missing, digest = [], [], hashlib.sha256(fingerprint(path).encode())
        for number, row in enumerate(rows):
            sample = _sample(root, number, row)
            seen[sample.id] = seen.get(sample.id, 0) + 1
            if seen[sample.id] > 1:
                sample = replace(sample, id=f"{sample.id}#{seen[sample.id]}")
            for image in sample.images:
                if image.path is None or not image.path.is_file():
                    missing.append(image.name)
                else:
                    digest.update(f"{image.name}\0{image.path.stat().st_size}\n".encode())
            samples.append(sample)
        if missing:
            raise DataError(
                f"{len(missing)} of {len(rows)} images are missing, such as {missing[0]}",
                where=root,
                hint="unzip the split's archive again, or pass the JSON file beside it",
            )
        fact = DataFact(
            name=path.stem,
            bytes=path.stat().st_size,
            fingerprint=f"json+image-sizes-sha256:{digest.hexdigest()}",
            questions=len(samples),
        )
        return cls(samples, fact)

    def data(self) -> DataFact:
        """Name, size and fingerprint of the split."""
        return self._data

    def count(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def samples(self) -> Iterator[Sample]:
        """All samples in file order. The question is the caption: a protocol says how it is put."""
        return iter(self._samples)

    def suits(self, kind: Kind, sample: Sample) -> bool:
        """Every model can be asked: a classifier of pictures sees no caption, a model of text alone no picture."""
        return True


def _json_file(data: Path) -> Path:
    if data.is_file():
        return data
    if not data.is_dir():
        raise DataError("does not exist", where=data, hint=f"the data are published at {PUBLISHED}")
    for pattern in ("*.json", "source/*.json", "*/source/*.json", "*/*.json", "*/*/source/*.json", "*/*/*.json"):
        found = sorted(p for p in data.glob(pattern) if p.is_file())
        found = [p for p in found if re.search(r"(?:val|test)$", p.stem)] or found
        if len(found) > 1:
            names = ", ".join(p.relative_to(data).as_posix() for p in found[:3])
            raise DataError(f"holds several JSON files ({names})", where=data, hint="pass one of them as --data")
        if found:
            return found[0]
    raise DataError("holds no JSON file of MMFakeBench", where=data, hint=f"the data are published at {PUBLISHED}")


def _rows(path: Path) -> list[Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=path) from error
    except ValueError as error:
        raise DataError(f"is not JSON: {error}", where=path) from error
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        raise DataError("is not a list of samples", where=path, hint=f"the released file is at {PUBLISHED}")
    missing = [key for key in ("image_path", "text", "fake_cls", "gt_answers") if key not in value[0]]
    if missing:
        raise DataError(f"its samples have no {', '.join(map(repr, missing))}", where=path)
    return value


def _root(path: Path, rows: list[Any]) -> Path:
    """The folder that image paths are relative to: the first one of the released layouts that holds an image."""
    near = [path.parent / path.stem, path.parent]
    if path.parent.name == "source":
        near += [path.parent.parent / path.stem, path.parent.parent]
    candidates = [inner for folder in near for inner in (folder, folder / path.stem)]
    names = [name for row in rows[:50] if isinstance(name := row.get("image_path"), str)]
    for folder in candidates:
        if any((folder / name.lstrip("/")).is_file() for name in names):
            return folder
    places = ", ".join(dict.fromkeys(str(p) for p in candidates))
    raise DataError(
        f"its images are in none of {places}", where=path, hint="unzip the split's archive beside the JSON file"
    )


def _sample(root: Path, number: int, row: dict[str, Any]) -> Sample:
    name = row.get("image_path")
    identity = name.lstrip("/") if isinstance(name, str) and name.strip("/") else f"sample {number}"
    category = _category(identity)
    try:
        target = _target(row)
        text = row.get("text")
        if not isinstance(text, str) or not text.strip():
            raise SampleError("has no caption")
        images = (Image(identity, path=inside(root, identity)),)
    except (SampleError, ArtifactError) as error:
        return Sample(
            id=identity,
            images=(),
            question=Question(""),
            target=str(row.get("fake_cls")),
            category=category,
            problem=error.what,
        )
    facts = {key: value.strip() for key in KEPT if isinstance(value := row.get(key), str) and value.strip()}
    kind = "real" if target == "original" else TYPES.get(category, target)
    return Sample(
        id=identity,
        images=images,
        question=Question(text, verbatim=True),
        target=target,
        category=category,
        facts=facts | {"type": kind, "format": Path(identity).suffix.lower().lstrip(".").replace("jpeg", "jpg")},
    )


def _target(row: dict[str, Any]) -> str:
    said, kind = row.get("gt_answers"), row.get("fake_cls")
    if isinstance(said, list) and len(said) == 1:
        said = said[0]
    if not isinstance(said, str) or said not in GROUND_TRUTH:
        raise SampleError(f"gt_answers is {said!r}, none of {', '.join(GROUND_TRUTH)}")
    if kind not in TARGETS:
        raise SampleError(f"fake_cls is {kind!r}, none of {', '.join(TARGETS)}")
    if GROUND_TRUTH[said] != (kind == "original"):
        raise SampleError(f"gt_answers says {said!r} and fake_cls {kind!r}")
    return TARGETS[kind]


def _category(path: str) -> str:
    """The sub-category: the second part of the path without its split's ending."""
    parts = path.split("/")
    return _SPLIT_ENDING.sub("", parts[1]) if len(parts) > 2 else "unknown"
