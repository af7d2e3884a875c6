"""The whole way: a folder or a CSV file -> a benchmark TSV, and a report of what was packed and what was not."""

from __future__ import annotations

import base64
import csv
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgebench.errors import DataError, SampleError
from edgebench.manifest import sha256_file
from edgebench.media.duplicates import DISTANCE, Hashed, NearDuplicate, near_duplicates, perceptual_hash
from edgebench.pack import areas, asking, categories
from edgebench.pack.items import Skipped, read_items
from edgebench.wording import FORGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edgebench.pack.areas import Shape, Shapes
    from edgebench.pack.asking import Asked, Panels, WrongMasks
    from edgebench.pack.items import Item

COLUMNS = (
    "index",
    "image",
    "question",
    "A",
    "B",
    "C",
    "D",
    "answer",
    "category",
    "split",
    "source",
    "forgery_type",
    "generator",
)
SPLIT = "test"
"""The split of an item that names none."""
CALIBRATION = "calibration"
"""The split of pictures that are only compared."""
TASKS = ("BC", "SLS", "SLD", "TL")


class Progress(Protocol):
    """Who watches."""

    def begin(self, total: int, done: int) -> None:
        """So many steps in all."""

    def advance(self, failed: bool) -> None:
        """One more."""


@dataclass(frozen=True)
class PackPlan:
    """What `edgebench pack` was asked for."""

    source: Path
    output: Path
    seed: int = 0
    panels: Panels = field(default_factory=asking.Panels)
    wrong_masks: WrongMasks = "others"
    against: Path | None = None
    """A folder or CSV of calibration or training pictures to compare with."""
    overwrite: bool = False


@dataclass
class Packed:
    """What came out."""

    questions: dict[str, dict[str, int]]
    """Task -> how many `forged` and `real`."""
    skipped: list[Skipped]
    near_duplicates: list[NearDuplicate]
    notes: list[str]


@dataclass
class _Seen:
    """What one look at every item found."""

    items: list[Item] = field(default_factory=list)
    masks: dict[str, Shapes] = field(default_factory=dict)
    """Item -> its masks, one a sampled frame."""
    frames: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Clip -> which of its eight sampled frames are forged."""
    hashes: list[Hashed] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def pack(plan: PackPlan, progress: Progress) -> Packed:
    """Write the benchmark, and beside it `NAME.pack.json` with what this returns.

    Raises:
        DataError: the source cannot be read or holds nothing, or the output exists or cannot be written.
    """
    if plan.output.exists() and not plan.overwrite:
        raise DataError("exists", where=plan.output, hint="pass --overwrite, or another --output")
    items, skipped = read_items(plan.source)
    others = [] if plan.against is None else read_items(plan.against)[0]
    progress.begin(2 * len(items) + len(others), 0)
    seen = _Seen(skipped=skipped)
    digests: dict[str, str] = {}
    for item in items:
        _look(item, seen, digests)
        progress.advance(False)
    if not seen.items:
        raise DataError(f"holds nothing that can be read: {seen.skipped[0].why}", where=plan.source)
    for other in others:
        _hash(other, CALIBRATION, seen)
        progress.advance(False)
    packed = Packed(
        questions={task: {"forged": 0, "real": 0} for task in TASKS},
        skipped=seen.skipped,
        near_duplicates=near_duplicates(seen.hashes),
        notes=_notes(seen, plan),
    )
    try:
        _write(plan, seen, packed, progress)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", where=plan.output) from error
    return packed


def as_json(plan: PackPlan, packed: Packed) -> dict[str, Any]:
    """What was packed, as plain data."""
    return {
        "benchmark": plan.output.name,
        "source": plan.source.name,
        "seed": plan.seed,
        "panel": asdict(plan.panels),
        "wrong_masks": plan.wrong_masks,
        "near_duplicate_bits": DISTANCE,
        **asdict(packed),
    }


def _look(item: Item, seen: _Seen, digests: dict[str, str]) -> None:
    """Open one item whole, once: it can be read, its masks fit, nobody gave the same bytes before."""
    try:
        if item.path.is_file():
            first = digests.setdefault(sha256_file(item.path), item.name)
            if first != item.name:
                raise SampleError(f"has the same bytes as {first}")
        if item.kind == "image":
            picture = asking.open_picture(item.path)
        else:
            frames, _, _ = asking.open_frames(item.path, asking.STRIP)
            picture = frames[len(frames) // 2]
    except (SampleError, OSError) as error:
        seen.skipped.append(Skipped(item.name, "file", _why(error)))
        return
    seen.items.append(item)
    seen.hashes.append(Hashed(item.name, item.split or SPLIT, perceptual_hash(picture)))
    if item.mask is not None:
        count = 1 if item.kind == "image" else asking.STRIP
        try:
            masks = asking.masks_of(item, count, *picture.shape[:2])
            seen.masks[item.name] = tuple(areas.shape_of(mask) for mask in masks)
        except SampleError as error:
            seen.skipped.append(Skipped(item.name, "SLS, SLD", str(error)))
    if item.kind != "image" and (item.forged_frames is not None or not item.forged):
        try:
            _, places, _ = asking.open_frames(item.path, asking.CLIP)
            seen.frames[item.name] = asking.sampled_truth(item, places)
        except SampleError as error:
            seen.skipped.append(Skipped(item.name, "TL", str(error)))


def _hash(item: Item, split: str, seen: _Seen) -> None:
    try:
        picture = asking.open_picture(item.path) if item.kind == "image" else asking.open_frames(item.path, 1)[0][0]
    except SampleError as error:
        seen.skipped.append(Skipped(item.name, "comparison", str(error)))
        return
    seen.hashes.append(Hashed(item.name, split, perceptual_hash(picture)))


@dataclass(frozen=True)
class _Job:
    task: str
    item: Item
    position: int
    pair: tuple[str, str] = FORGED


def _jobs(seen: _Seen, seed: int) -> list[_Job]:
    """Every question to ask, in the order of the file: mixed, so that the first hundred are a fair sample."""
    rng = np.random.default_rng((seed, 1))
    jobs = [*_binary_jobs(seen, rng)]
    for task, forged, real in _area_and_frame_items(seen):
        # The empty option is right as often as each of the other three.
        many = round(len(forged) / 3)
        chosen = [*forged, *(real[int(k)] for k in sorted(rng.permutation(len(real))[:many]))]
        positions = rng.permutation([k % 4 for k in range(len(chosen))])
        jobs += [_Job(task, item, int(p)) for item, p in zip(chosen, positions, strict=True)]
    return [jobs[int(k)] for k in rng.permutation(len(jobs))]


def _binary_jobs(seen: _Seen, rng: np.random.Generator) -> Iterator[_Job]:
    """Both sides get the pairs of answers and their order in the same proportion."""
    groups: dict[tuple[str, bool], list[Item]] = {}
    for item in seen.items:
        groups.setdefault((item.kind, bool(item.caption)), []).append(item)
    for group in groups.values():
        forged = [item for item in group if item.forged]
        pairs = [categories.options(item) for item in forged] or [FORGED]
        for side in (forged, [item for item in group if not item.forged]):
            positions = rng.permutation([k % 2 for k in range(len(side))])
            own = pairs if side is forged else _dealt(pairs, len(side), rng)
            for item, position, pair in zip(side, positions, own, strict=True):
                yield _Job("BC", item, int(position), pair)


def _dealt(pairs: Sequence[tuple[str, str]], many: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """So many pairs in the proportion of the given ones."""
    ordered = sorted(pairs)
    dealt = [ordered[int((k + 0.5) * len(ordered) / many)] for k in range(many)]
    return [dealt[int(k)] for k in rng.permutation(many)]


def _area_and_frame_items(seen: _Seen) -> Iterator[tuple[str, list[Item], list[Item]]]:
    """(task, forged items, real items to choose from), pictures and clips apart."""
    masked = [item for item in seen.items if item.forged and item.name in seen.masks]
    for clip in (False, True):
        real = [item for item in seen.items if not item.forged and (item.kind != "image") == clip]
        yield "SLS", [item for item in masked if (item.kind != "image") == clip], real
    pictures = [item for item in masked if item.kind == "image"]
    yield "SLD", pictures, [item for item in seen.items if not item.forged and item.kind == "image"]
    clips = [item for item in seen.items if item.name in seen.frames]
    yield "TL", [item for item in clips if item.forged], [item for item in clips if not item.forged]


def _ask(job: _Job, seen: _Seen, plan: PackPlan) -> Asked:
    item, rng = job.item, asking.chance_of(plan.seed, job.item, job.task)
    if job.task == "BC":
        return asking.binary(item, job.pair, job.position, plan.panels)
    if job.task == "TL":
        known = [truth for name, truth in seen.frames.items() if truth and name != item.name]
        return asking.temporal(item, known, rng, job.position, plan.panels)
    count = 1 if item.kind == "image" else asking.STRIP
    pool = [masks for name, masks in seen.masks.items() if name != item.name and len(masks) == count]
    if job.task == "SLS":
        return asking.masks(item, pool, rng, job.position, plan.panels, plan.wrong_masks)
    single: list[Shape] = [masks[0] for masks in pool]
    return asking.boxes(item, single, rng, job.position)


def _write(plan: PackPlan, seen: _Seen, packed: Packed, progress: Progress) -> None:
    jobs = _jobs(seen, plan.seed)
    progress.begin(len(seen.items) + len(jobs), len(seen.items))
    plan.output.parent.mkdir(parents=True, exist_ok=True)
    partial = plan.output.with_name(plan.output.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
            writer.writerow(COLUMNS)
            index = 0
            for job in jobs:
                try:
                    asked = _ask(job, seen, plan)
                except (SampleError, OSError) as error:
                    packed.skipped.append(Skipped(job.item.name, job.task, _why(error)))
                    progress.advance(True)
                    continue
                writer.writerow(_row(index, asked))
                packed.questions[job.task]["forged" if job.item.forged else "real"] += 1
                index += 1
                progress.advance(False)
        report = plan.output.with_suffix(".pack.json")
        report.write_text(json.dumps(as_json(plan, packed), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, plan.output)  # noqa: PTH105 - atomic on every platform
    finally:
        partial.unlink(missing_ok=True)


def _row(index: int, asked: Asked) -> list[object]:
    options = [*asked.options, "", ""][:4]
    picture = base64.b64encode(asked.data).decode("ascii")
    item = asked.item
    return [
        index,
        picture,
        asked.question,
        *options,
        "ABCD"[asked.answer],
        asked.category(),
        item.split or SPLIT,
        item.name,
        item.forgery_type,
        item.generator,
    ]


def _notes(seen: _Seen, plan: PackPlan) -> list[str]:
    notes = []
    sides = Counter(item.forged for item in seen.items)
    if not sides[False] or not sides[True]:
        notes.append(f"everything is {'forged' if sides[True] else 'real'}: a guesser is always right")
    elif max(sides.values()) > 1.5 * min(sides.values()):
        notes.append(f"{sides[True]} forged and {sides[False]} real: read the balanced accuracy")
    if plan.wrong_masks == "perturbed":
        notes.append("with perturbed masks the options alone tell much: compare with --wrong-masks others")
    hidden = [item for item in seen.items if item.kind != "image" and item.forged and item.forged_frames is None]
    if hidden:
        notes.append(f"{len(hidden)} forged clips have no forged_frames: no question about their frames")
    return notes


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, SampleError) else f"cannot be read: {error}"
