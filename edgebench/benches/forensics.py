"""Forensics-Bench, read from `ForensicsBench.tsv` as it is published.

Source: arXiv 2503.15024v2 and its VLMEvalKit fork. The columns: `index`, `image` (base64 of one image, the index
of another row that has the image, or a Python list of base64 texts), `image_path`, `question`, `hint`, `A`.. `Z`,
`answer`, `category` (one of the 112 slugs), `split`.
"""

from __future__ import annotations

import ast
import base64
import binascii
import os
import string
from pathlib import Path
from typing import TYPE_CHECKING

from edgebench.benches.base import Image, Question, Sample, fingerprint
from edgebench.benches.taxonomy import category
from edgebench.benches.tsv import Rows
from edgebench.errors import DataError, EdgebenchError, SampleError
from edgebench.manifest import inside
from edgebench.records import DataFact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgebench.benches.taxonomy import Category
    from edgebench.manifest import Kind

FILE = "ForensicsBench.tsv"
PUBLISHED = "https://huggingface.co/datasets/Forensics-bench/Forensics-bench"
REFERENCE_LENGTH = 64
"""An `image` cell of at most so many characters is another row's index."""


class Forensics:
    """Forensics-Bench over one TSV file."""

    name = "forensics"
    kept_columns: tuple[str, ...] = ("split",)
    """Columns that become facts of a sample."""

    def __init__(self, path: Path, *, limit: int | None = None, note: str = "") -> None:
        """Note where each row begins.

        Raises:
            DataError: the file is not of the published form.
        """
        self.path = path
        self._note = note
        self._rows = Rows(path, stop_after=limit, keep=("category",))
        self._count = len(self._rows) if limit is None else min(limit, len(self._rows))
        missing = [c for c in ("index", "question", "answer", "category") if c not in self._rows.columns]
        if not {"image", "image_path"} & set(self._rows.columns):
            missing.append("image")
        if missing:
            raise DataError(
                f"has no column {', '.join(map(repr, missing))}",
                where=path,
                hint=f"the published file is {FILE} at {PUBLISHED}",
            )
        self._letters = [c for c in string.ascii_uppercase if c in self._rows.columns]

    @classmethod
    def open(cls, data: Path | None, *, limit: int | None = None) -> Forensics:
        """Open the given file or folder, or look where VLMEvalKit keeps it."""
        return cls(find_file(data), limit=limit)

    def data(self) -> DataFact:
        """Name, size and fingerprint of the TSV file."""
        return DataFact(
            name=self.path.name,
            bytes=self.path.stat().st_size,
            fingerprint=fingerprint(self.path),
            questions=self._count,
            note=self._note,
        )

    def count(self) -> int:
        """Number of questions."""
        return self._count

    def ids(self) -> list[str]:
        """Of all questions, in file order."""
        return self._rows.ids[: self._count]

    def slugs(self) -> list[str]:
        """Their categories, without reading a picture."""
        return self._rows.kept("category")[: self._count]

    def samples(self, numbers: Sequence[int] | None = None) -> Iterator[Sample]:
        """All questions in file order, or those of these rows; one that cannot be asked carries its problem."""
        rows = self._rows.walk(self._count) if numbers is None else map(self._rows.row, numbers)
        ids = self._rows.ids if numbers is None else [self._rows.ids[n] for n in numbers]
        for identity, row in zip(ids, rows, strict=False):
            slug = (row["category"] or "").strip()
            target = (row["answer"] or "").strip()
            try:
                yield self._sample(identity, row, slug, target)
            except EdgebenchError as error:
                yield Sample(
                    id=identity, images=(), question=Question(""), target=target, category=slug, problem=str(error)
                )

    def suits(self, kind: Kind, sample: Sample) -> bool:
        """A classifier can be asked the binary questions whose options say what is forged, a text model none."""
        if sample.problem is not None or kind == "vision-language":
            return True
        return kind == "classifier" and sample.question.forged_option is not None

    def category(self, slug: str) -> Category:
        """The category of a slug.

        Raises:
            DataError: it is none of this benchmark's.
        """
        return category(slug)

    def _sample(self, identity: str, row: dict[str, str | None], slug: str, target: str) -> Sample:
        options = {c: text for c in self._letters if (text := row[c]) is not None}
        kind = self.category(slug)
        question = row["question"]
        if question is None:
            raise SampleError("has no question")
        if target not in options:
            raise SampleError(f"the answer {target!r} is none of the options {''.join(options)!r}")
        return Sample(
            id=identity,
            images=self._images(identity, row),
            question=Question(
                text=question,
                options=options,
                hint=row.get("hint"),
                forged_option=forged_option(options) if kind.task == "BC" else None,
            ),
            target=target,
            category=slug,
            facts={"task": kind.task} | {c: text for c in self.kept_columns if (text := row.get(c))},
        )

    def _images(self, identity: str, row: dict[str, str | None]) -> tuple[Image, ...]:
        cell = row.get("image")
        if cell is None:
            return self._files(row)
        seen = {identity}
        while len(cell) <= REFERENCE_LENGTH and not cell.startswith("["):
            number = self._rows.find(cell)
            if number is None:
                raise SampleError(f"its image is that of row {cell!r}, which does not exist")
            if self._rows.ids[number] in seen:
                raise SampleError(f"its image is that of row {cell!r}, which leads back to itself")
            seen.add(self._rows.ids[number])
            referred = self._rows.row(number).get("image")
            if referred is None:
                raise SampleError(f"its image is that of row {cell!r}, which has none")
            cell = referred
        parts = _list(cell) if cell.startswith("[") else [cell]
        names = [identity] if len(parts) == 1 else [f"{identity}_{i}" for i in range(len(parts))]
        return tuple(Image(name=name, data=_bytes(part)) for name, part in zip(names, parts, strict=True))

    def _files(self, row: dict[str, str | None]) -> tuple[Image, ...]:
        cell = row.get("image_path")
        if cell is None:
            raise SampleError("has no image")
        names = _list(cell) if cell.startswith("[") else [cell]
        return tuple(Image(name=name, path=inside(self.path.parent, name)) for name in names)


def find_file(data: Path | None, file: str = FILE) -> Path:
    """The TSV file: as given, else in $EDGEBENCH_DATA, $LMUData or ~/LMUData.

    Raises:
        DataError: it is nowhere; the advice says where it is published and where to put it.
    """
    if data is not None:
        found = data / file if data.is_dir() else data
        if not found.is_file():
            raise DataError("does not exist", where=found, hint=f"the file is published at {PUBLISHED}")
        return found
    home = Path.home() / "LMUData"
    places = [Path(value) for name in ("EDGEBENCH_DATA", "LMUData") if (value := os.environ.get(name))] + [home]
    for place in places:
        found = place / file if place.is_dir() else place
        if found.is_file():
            return found
    raise DataError(
        f"{file} is not in {', '.join(map(str, places))}",
        hint=f"download it from {PUBLISHED} into {home}, set EDGEBENCH_DATA to its folder, or pass --data",
    )


def forged_option(options: dict[str, str]) -> str | None:
    """The letter that says 'forged' in a binary question such as AI-generated / non AI-generated; None if unclear."""
    if len(options) != 2:
        return None
    negated = [c for c, text in options.items() if text.strip().casefold().startswith(("non ", "non-", "not "))]
    return None if len(negated) != 1 else next(c for c in options if c != negated[0])


def _bytes(cell: str) -> bytes:
    try:
        return base64.b64decode("".join(cell.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SampleError(f"its image is not base64: {error}") from error


def _list(cell: str) -> list[str]:
    try:
        value = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise SampleError("its image cell begins like a list and is none") from error
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise SampleError("its image cell is not a list of texts")
    return value
