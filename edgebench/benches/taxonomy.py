"""The taxonomy of Forensics-Bench: 112 categories seen from five perspectives.

Source: arXiv 2503.15024v2, Tables 5 to 8; `data/forensics_types.csv` is that table as data.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgebench.errors import DataError, did_you_mean

PERSPECTIVES = ("semantic", "modality", "task", "type", "model")
FAMILY = frozenset(["forensics", "forensics-mini", "packed"])
"""Benchmarks whose categories are of this form."""


@dataclass(frozen=True)
class Category:
    """One of the 112 forgery detection types."""

    slug: str
    code: str
    semantic: str
    modality: str
    task: str
    type: str
    model: str
    samples: int
    """How many of the 63,292 published questions it has."""

    def value(self, perspective: str) -> str:
        """Its value from one of the five perspectives."""
        value = getattr(self, perspective)
        if not isinstance(value, str):
            raise TypeError(perspective)
        return value


@lru_cache(maxsize=1)
def categories() -> dict[str, Category]:
    """All 112 by slug, in published order."""
    with (Path(__file__).resolve().parent.parent / "data" / "forensics_types.csv").open(
        encoding="utf-8", newline=""
    ) as stream:
        rows = [
            Category(
                slug=row["category"],
                code=row["code"],
                semantic=row["semantic"],
                modality=row["modality"],
                task=row["task"],
                type=row["forgery_type"],
                model=row["forgery_model"],
                samples=int(row["samples"]),
            )
            for row in csv.DictReader(stream)
        ]
    return {row.slug: row for row in rows}


def category(slug: str) -> Category:
    """The category of that slug. Case matters, as in the published data (`3D`, `RNN`).

    Raises:
        DataError: it is none of the 112.
    """
    known = categories()
    if slug not in known:
        raise DataError(f"{slug!r} is none of the 112 categories", hint=did_you_mean(slug, known))
    return known[slug]


def own_category(slug: str) -> Category:
    """One of the 112, or one of the same form `semantic_type_model_modality_task` with other types and models.

    Raises:
        DataError: it is not of that form.
    """
    known = categories().get(slug)
    if known is not None:
        return known
    parts = slug.split("_")
    codes = _codes()
    if len(parts) != len(PERSPECTIVES) or any(parts[k] not in codes[k] for k in (0, 3, 4)) or not all(parts):
        raise DataError(
            f"{slug!r} is no category", hint="the form is semantic_type_model_modality_task, as in the 112 categories"
        )
    semantic, kind, model, modality, task = (codes[k].get(part, part) for k, part in enumerate(parts))
    return Category(slug, f"{semantic}-{modality}-{task}-{kind}-{model}", semantic, modality, task, kind, model, 0)


@lru_cache(maxsize=1)
def _codes() -> tuple[dict[str, str], ...]:
    """Word -> code, for each of the five places of a slug."""
    found: tuple[dict[str, str], ...] = ({}, {}, {}, {}, {})
    for row in categories().values():
        codes = (row.semantic, row.type, row.model, row.modality, row.task)
        for place, word, code in zip(found, row.slug.split("_"), codes, strict=True):
            place[word] = code
    return found
