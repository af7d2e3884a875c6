"""What a bench gives: samples, one at a time, never all in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgebench.errors import SampleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgebench.manifest import Kind
    from edgebench.records import DataFact


@dataclass(frozen=True)
class Image:
    """One encoded image: its bytes, or the file that holds them."""

    name: str
    data: bytes | None = None
    path: Path | None = None

    def read(self) -> bytes:
        """The encoded bytes.

        Raises:
            SampleError: the file cannot be read.
        """
        if self.data is not None:
            return self.data
        if self.path is None:
            raise SampleError("has neither bytes nor a file", where=self.name)
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise SampleError(f"cannot be read: {error.strerror or error}", where=self.name) from error


@dataclass(frozen=True)
class Question:
    """What is asked about the images."""

    text: str
    options: dict[str, str] = field(default_factory=dict)
    """Letter -> text, in order. Empty for a yes/no question."""
    hint: str | None = None
    yes_means: str | None = None
    """yes/no questions: what 'yes' says, 'forged' or 'real'."""
    forged_option: str | None = None
    """Binary questions: the letter that says 'forged'; None where the options do not say it."""
    verbatim: bool = False
    """The text is put as it is, without a style's words around it."""


@dataclass(frozen=True)
class Sample:
    """One question with its right answer. The engine sees neither `target` nor `category`."""

    id: str
    images: tuple[Image, ...]
    question: Question
    target: str
    category: str
    facts: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    """Why this sample cannot be asked; None when it can."""


class Bench(Protocol):
    """A benchmark, opened on its data."""

    name: str

    def data(self) -> DataFact:
        """Which data these are."""

    def count(self) -> int:
        """How many samples there are."""

    def samples(self) -> Iterator[Sample]:
        """All samples in their published order."""

    def suits(self, kind: Kind, sample: Sample) -> bool:
        """Whether a kind of model can be asked this sample."""


def fingerprint(path: Path) -> str:
    """Recognise a file of gigabytes without reading it all: SHA-256 over its size and its first and last MiB."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as stream:
        digest.update(stream.read(1 << 20))
        if size > 1 << 20:
            stream.seek(max(1 << 20, size - (1 << 20)))
            digest.update(stream.read(1 << 20))
    return f"size+ends-sha256:{digest.hexdigest()}"
