"""What a folder or a CSV file lists: pictures and videos with what is known of them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgebench.benches.images import SUFFIXES as IMAGE_SUFFIXES
from edgebench.errors import ArtifactError, DataError, did_you_mean
from edgebench.manifest import inside
from edgebench.media.video import SUFFIXES as VIDEO_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["image", "video", "frames"]
COLUMNS = (
    "file",
    "label",
    "forgery_type",
    "generator",
    "mask",
    "caption",
    "semantic",
    "split",
    "forged_frames",
)
"""What a CSV may say of each file; `file` and `label` it must."""
REAL_WORDS = frozenset(["real", "authentic", "original", "pristine", "genuine"])
FORGED_WORDS = frozenset(["forged", "fake", "manipulated", "tampered", "synthetic", "generated"])
SEMANTICS = ("human", "nonhuman")
MASKS = "masks"


@dataclass(frozen=True)
class Item:
    """One picture or clip."""

    name: str
    """As the source names it."""
    path: Path
    kind: Kind
    forged: bool
    forgery_type: str = ""
    generator: str = ""
    mask: Path | None = None
    """A picture whose white is forged; for a clip a video or a folder of such pictures."""
    caption: str = ""
    semantic: str = ""
    """`human`, `nonhuman` or empty for unknown."""
    split: str = ""
    forged_frames: frozenset[int] | None = None
    """Frames of a clip that are forged, from 0; None where nobody says."""


@dataclass(frozen=True)
class Skipped:
    """Something that does not become a question, and why."""

    name: str
    what: str
    """`file`, or the task it could not serve."""
    why: str


def read_items(source: Path) -> tuple[list[Item], list[Skipped]]:
    """Items of a folder (`real/`, `forged/TYPE/GENERATOR/`, `masks/`) or of a CSV file, in a fixed order.

    Raises:
        DataError: neither, or nothing in it.
    """
    if source.is_dir():
        found, skipped = _folder(source)
    elif source.is_file():
        found, skipped = _csv(source)
    else:
        raise DataError("does not exist", where=source)
    if not found:
        reason = f"; the first file was skipped because it {skipped[0].why}" if skipped else ""
        raise DataError(
            f"holds nothing to pack{reason}",
            where=source,
            hint="pass a folder with real/ and forged/, or a CSV with the columns file and label",
        )
    return found, skipped


def files_of(folder: Path) -> list[Path]:
    """The frames of a folder of frames: its pictures, sorted by the numbers in their names."""
    files = [p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES]
    return sorted(files, key=lambda p: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", p.name)])


def frame_numbers(text: str) -> frozenset[int]:
    """`3-7 9` or `3-7, 9` as frames; an empty text is no frame.

    Raises:
        ValueError: it says something else.
    """
    found: set[int] = set()
    for part in re.split(r"[\s,;]+", text.strip()):
        if not part:
            continue
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if ends is None:
            raise ValueError(part)
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first or last - first > 10_000_000:
            raise ValueError(part)
        found.update(range(first, last + 1))
    return frozenset(found)


def _folder(root: Path) -> tuple[list[Item], list[Skipped]]:
    if not any((root / label).is_dir() for label in ("real", "forged")):
        raise DataError(
            "has neither real/ nor forged/", where=root, hint="or pass a CSV with the columns file and label"
        )
    found: list[Item] = []
    skipped: list[Skipped] = []
    for label in ("real", "forged"):
        for path in sorted(p for p in (root / label).rglob("*") if p.is_file()):
            name = path.relative_to(root).as_posix()
            kind = _kind(path)
            if kind is None:
                skipped.append(Skipped(name, "file", "is no picture and no video by its suffix"))
                continue
            forged = label == "forged"
            parts = path.relative_to(root / label).parts[:-1]
            words = (*parts, "", "") if forged else ("", "")
            mask = _mask_beside(root, path.relative_to(root / label)) if forged else None
            found.append(Item(name, path, kind, forged, words[0], words[1], mask))
    return found, skipped


def _mask_beside(root: Path, place: Path) -> Path | None:
    folder = root / MASKS / place.parent
    if not folder.is_dir():
        return None
    return next((p for p in sorted(folder.iterdir()) if p.stem == place.stem), None)


def _csv(path: Path) -> tuple[list[Item], list[Skipped]]:
    found: list[Item] = []
    skipped: list[Skipped] = []
    seen: set[str] = set()
    for number, row in _rows(path):
        name = (row.get("file") or "").strip() or f"row {number}"
        item = _item(path, row) if name not in seen else "is listed twice"
        seen.add(name)
        if isinstance(item, Item):
            found.append(item)
        else:
            skipped.append(Skipped(name, "file", item))
    return found, skipped


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            names = reader.fieldnames or []
            for needed in ("file", "label"):
                if needed not in names:
                    raise DataError(f"has no column {needed!r}", where=path, hint=did_you_mean(needed, names))
            yield from enumerate(reader, 2)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", where=path) from error


def _item(path: Path, row: dict[str, str | None]) -> Item | str:
    """The item of a row, or why there is none."""
    cell = {name: (row.get(name) or "").strip() for name in COLUMNS}
    label = cell["label"].casefold()
    if not cell["file"]:
        return "has no file"
    if label not in REAL_WORDS | FORGED_WORDS:
        return f"has the label {cell['label']!r}, which is neither real nor forged"
    if cell["semantic"] and cell["semantic"] not in SEMANTICS:
        return f"has the semantic {cell['semantic']!r}, which is neither human nor nonhuman"
    try:
        target = inside(path.parent, cell["file"])
        mask = inside(path.parent, cell["mask"]) if cell["mask"] else None
    except ArtifactError:
        return "lies outside the CSV's folder, or its mask does"
    frames = None
    if row.get("forged_frames") is not None and (cell["forged_frames"] or label in REAL_WORDS):
        try:
            frames = frame_numbers(cell["forged_frames"])
        except ValueError:
            return f"has forged_frames {cell['forged_frames']!r}; write them like 3-7 9"
    if not target.exists():
        return "does not exist"
    kind = _kind(target)
    if kind is None:
        return "is no picture and no video by its suffix"
    return Item(
        name=cell["file"],
        path=target,
        kind=kind,
        forged=label in FORGED_WORDS,
        forgery_type=cell["forgery_type"],
        generator=cell["generator"],
        mask=mask,
        caption=" ".join(cell["caption"].split()),
        semantic=cell["semantic"],
        split=cell["split"],
        forged_frames=frames,
    )


def _kind(path: Path) -> Kind | None:
    if path.is_dir():
        return "frames"
    suffix = path.suffix.lower()
    return "image" if suffix in IMAGE_SUFFIXES else "video" if suffix in VIDEO_SUFFIXES else None
