"""The mini benchmark: forgery questions in the published form, made from photographs that dependencies ship.

The categories are those of Forensics-Bench whose kind of trace the operations imitate. They are stand-ins: no
network forged these pictures. Categories "human" show the photograph with a person, except for clips and captions,
which the taxonomy knows for human subjects only: there every photograph of the split stands in. NIR is left out.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.demo import questions, scenes
from edgebench.demo.panels import composite, encode
from edgebench.demo.photographs import load, of_split
from edgebench.demo.scenes import REAL, caption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.random import Generator

    from edgebench.demo.questions import Draft
    from edgebench.demo.scenes import Photo, Sample

COLUMNS = ("index", "image", "question", "A", "B", "C", "D", "answer", "category", "split")
_SALT = {"train": 1, "calibration": 2, "test": 3}


@dataclass(frozen=True)
class Entry:
    """One category of the mini benchmark."""

    category: str
    """Slug: semantic, type, model, modality, task."""
    count: int
    """Test questions; a third of it for the other splits."""
    operation: str = REAL
    local: bool = True
    generated: bool = False
    """Whether the binary options speak of generation."""
    lie: str = ""
    """What is wrong with the caption: nothing, `swap` or `change`."""
    whole_clip: bool = True
    part: bool = False
    """Boxes with caption: ask which part is forged rather than where."""


def _e(category: str, count: int, operation: str = REAL, **more: Any) -> Entry:
    return Entry(category, count, operation, **more)


PLAN: tuple[Entry, ...] = (
    # binary, picture
    _e("nonhuman_generalcopymove_traditional_visibleimage_category", 18, "copymove"),
    _e("nonhuman_generalsplicing_traditional_visibleimage_category", 18, "splice"),
    _e("nonhuman_generalremove_encoderdecoder_visibleimage_category", 18, "removal"),
    _e("nonhuman_imageenhancement_encoderdecoder_visibleimage_category", 18, "enhance", local=False),
    _e("nonhuman_styletransfer_encoderdecoder_visibleimage_category", 18, "style", local=False),
    _e("nonhuman_entiresynthesis_vae_visibleimage_category", 18, "resynth", local=False, generated=True),
    _e("nonhuman_entiresynthesis_diffusion_visibleimage_category", 18, "diffusion", local=False, generated=True),
    _e("nonhuman_real_none_visibleimage_category", 90),
    _e("nonhuman_real_none_visibleimage_category", 36, generated=True),
    _e("human_faceswaponeface_traditional_visibleimage_category", 12, "splice"),
    _e("human_faceedit_encoderdecoder_visibleimage_category", 12, "resynth"),
    _e("human_faceedit_diffusion_visibleimage_category", 12, "diffusion"),
    _e("human_faceantispoofing_print_visibleimage_category", 12, "print", local=False),
    _e("human_faceantispoofing_replay_visibleimage_category", 12, "replay", local=False),
    _e("human_entiresynthesis_gan_visibleimage_category", 10, "resynth", local=False, generated=True),
    _e("human_entiresynthesis_diffusion_visibleimage_category", 10, "diffusion", local=False, generated=True),
    _e("human_real_none_visibleimage_category", 60),
    _e("human_real_none_visibleimage_category", 20, generated=True),
    # binary, video
    _e("nonhuman_entiresynthesis_diffusion_video_category", 12, "diffusion", local=False, generated=True),
    _e("nonhuman_entiresynthesis_autoregressive_video_category", 12, "resynth", local=False, generated=True),
    _e("human_faceswaponeface_encoderdecoder_video_category", 10, "resynth"),
    _e("human_faceswaponeface_traditional_video_category", 10, "splice"),
    _e("human_real_none_video_category", 20),
    _e("human_real_none_video_category", 24, generated=True),
    # binary, picture and caption
    _e("human_faceedit_encoderdecoder_visibleimagetext_category", 10, "resynth"),
    _e("human_textswap_retrieval_visibleimagetext_category", 10, lie="swap"),
    _e("human_textattributemanipulation_transformer_visibleimagetext_category", 10, lie="change"),
    _e("human_faceedittextswap_encoderdecoderretrieval_visibleimagetext_category", 10, "resynth", lie="swap"),
    _e("human_real_none_visibleimagetext_category", 40),
    # masks
    _e("nonhuman_generalcopymove_traditional_visibleimage_seg", 30, "copymove"),
    _e("nonhuman_generalsplicing_traditional_visibleimage_seg", 30, "splice"),
    _e("nonhuman_generalremove_encoderdecoder_visibleimage_seg", 30, "removal"),
    _e("human_faceedit_encoderdecoder_visibleimage_seg", 30, "resynth"),
    _e("human_faceswaponeface_traditional_visibleimage_seg", 15, "splice"),
    _e("nonhuman_real_none_visibleimage_seg", 30),
    _e("human_real_none_visibleimage_seg", 15),
    _e("human_faceswaponeface_encoderdecoder_video_seg", 9, "resynth"),
    _e("human_faceswaponeface_traditional_video_seg", 9, "splice"),
    _e("human_real_none_video_seg", 6),
    # boxes
    _e("human_faceswapmultiplefaces_gan_visibleimage_det", 42, "resynth"),
    _e("human_real_none_visibleimage_det", 7),
    _e("nonhuman_real_none_visibleimage_det", 7),
    _e("human_faceswaponeface_encoderdecoder_visibleimagetext_det", 24, "resynth"),
    _e("human_faceedit_encoderdecoder_visibleimagetext_det", 24, "diffusion"),
    _e("human_faceedit_gan_visibleimagetext_det", 24, "style"),
    _e("human_real_none_visibleimagetext_det", 24),
    _e("human_faceswaponeface_encoderdecoder_visibleimagetext_det", 20, "resynth", part=True),
    _e("human_textswap_retrieval_visibleimagetext_det", 10, lie="swap", part=True),
    _e("human_textattributemanipulation_transformer_visibleimagetext_det", 10, lie="change", part=True),
    _e("human_faceswaponefacetextswap_encoderdecoderretrieval_visibleimagetext_det", 10, "resynth", lie="swap", part=True),
    _e("human_faceedittextattributemanipulation_encoderdecodertransformer_visibleimagetext_det", 10, "diffusion",
       lie="change", part=True),
    _e("human_real_none_visibleimagetext_det", 20, part=True),
    # temporal
    _e("human_faceswaponeface_encoderdecoder_video_temporal", 45, "resynth", whole_clip=False),
    _e("human_faceswaponeface_RNN_video_temporal", 30, "diffusion", whole_clip=False),
    _e("human_facetransferoneface_traditional_video_temporal", 20, "splice", whole_clip=False),
    _e("human_faceswaponefacefaceedit_encoderdecoder_video_temporal", 25, "enhance", whole_clip=False),
    _e("human_real_none_video_temporal", 40, whole_clip=False),
)  # fmt: skip
"""What the benchmark asks. Real and forged are equally many in every kind of binary question; in the other tasks
the empty option is right in a quarter of the questions."""


def write_forensics_mini(
    path: Path, *, seed: int = 0, split: str = "test", progress: Callable[[int, int], None] | None = None
) -> int:
    """Write the mini benchmark as a TSV in the published form. Same seed and library versions, same bytes.

    Args:
        path: the file to write; it appears when it is complete.
        seed: of everything that is drawn.
        split: which photographs: `test`, `calibration` or `train`.
        progress: called with (questions done, questions in all).

    Returns:
        How many questions it holds.
    """
    total = count(split)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(COLUMNS)
        for index, (entry, draft) in enumerate(drafts(seed=seed, split=split)):
            options = [*draft.options, "", ""][:4]
            row = [index, encode(composite(draft)), draft.question, *options]
            writer.writerow([*row, "ABCD"[draft.answer], entry.category, split])
            if progress is not None:
                progress(index + 1, total)
    os.replace(partial, path)  # noqa: PTH105 - atomic on every platform
    return total


def count(split: str = "test") -> int:
    """How many questions a split has."""
    return sum(_count(entry, split) for entry in PLAN)


def drafts(*, seed: int = 0, split: str = "test") -> Iterator[tuple[Entry, Draft]]:
    """The questions in the order of the file, with the category of each."""
    photos = split_photos(split)
    salt = _SALT[split]
    jobs = [(number, k) for number, entry in enumerate(PLAN) for k in range(_count(entry, split))]
    order = np.random.default_rng((seed, salt, 1)).permutation(len(jobs))
    positions = _positions(np.random.default_rng((seed, salt, 2)), split)
    for job in order:
        number, k = jobs[int(job)]
        rng = np.random.default_rng((seed, salt, 3, number, k))
        yield PLAN[number], draft(PLAN[number], photos, rng, positions[number][k])


@lru_cache(maxsize=3)
def split_photos(split: str) -> tuple[Photo, ...]:
    """The photographs of a split at their sizes."""
    return tuple(scenes.pyramid(p.name, load(p), p.person) for p in of_split(split))


def draft(entry: Entry, photos: tuple[Photo, ...], rng: Generator, position: int) -> Draft:
    """One question of a category.

    Args:
        entry: the category.
        photos: where the pictures come from.
        rng: of everything that is drawn.
        position: where the right option stands.
    """
    semantic, _, _, modality, task = entry.category.split("_")
    sample = _sample(entry, photos, rng, semantic, modality, task)
    words: list[str] = []
    lies: tuple[int, ...] = ()
    if modality == "visibleimagetext":
        words = caption(sample.attributes)
        if entry.lie:
            words, lies = questions.lie(sample.attributes, rng, swap=entry.lie == "swap")
    if task == "category":
        forged = sample.is_forged or bool(lies)
        return questions.binary(
            sample, rng, position if forged else 1 - position, generated=entry.generated, words=words
        )
    if task == "seg":
        return questions.masks(sample, rng, position)
    if task == "temporal":
        return questions.temporal(sample, rng, position)
    if entry.part:
        return questions.which_part(sample, rng, position, words, lies)
    return questions.boxes(sample, rng, position, words=words, lies=lies)


def _sample(entry: Entry, photos: tuple[Photo, ...], rng: Generator, semantic: str, modality: str, task: str) -> Sample:
    people = [k for k, photo in enumerate(photos) if photo.person]
    things = [k for k, photo in enumerate(photos) if not photo.person]
    anyone = modality in {"video", "visibleimagetext"} or task == "det"
    chosen = (people or things) if semantic == "human" and not anyone else things
    if anyone:
        chosen = list(range(len(photos)))
    frames = 8 if task == "temporal" else 4 if modality == "video" else 1
    local, flags = entry.local, None
    if task == "temporal":
        local = bool(rng.random() < 0.5)
        picked = questions.forged_frames(rng, frames)
        flags = [k in picked for k in range(frames)]
    pick = chosen[int(rng.integers(len(chosen)))]
    person = semantic == "human" and photos[pick].person is not None
    return scenes.make(
        photos, rng, entry.operation, local=local, frames=frames, forged=flags, on_person=person, pick=pick
    )


def _count(entry: Entry, split: str) -> int:
    return entry.count if split == "test" else -(-entry.count // 3)


def _positions(rng: Generator, split: str) -> list[list[int]]:
    """Places of the right option, as many of each letter as possible in each task and each side of it.

    Binary questions balance real and forged apart, so that the letter says nothing about the answer.
    """
    pools: dict[tuple[object, ...], list[int]] = {}
    keys = []
    for entry in PLAN:
        modality, task = entry.category.split("_")[3:]
        real = entry.operation == REAL and not entry.lie
        keys.append((modality, task, real if task == "category" else None, entry.part))
    for key in dict.fromkeys(keys):
        many = sum(_count(entry, split) for entry, own in zip(PLAN, keys, strict=True) if own == key)
        letters = 2 if key[1] == "category" else 4
        pool = [k % letters for k in range(many)]
        pools[key] = [pool[k] for k in rng.permutation(many)]
    return [[pools[key].pop() for _ in range(_count(entry, split))] for entry, key in zip(PLAN, keys, strict=True)]
