"""Your own data in the form of Forensics-Bench, as `edgebench pack` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.benches.forensics import Forensics
from edgebench.benches.taxonomy import Category, own_category
from edgebench.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


class Packed(Forensics):
    """A packed TSV: categories may use words of their own."""

    name = "packed"
    kept_columns = ("split", "source", "forgery_type", "generator")

    @classmethod
    def open(cls, data: Path | None, *, limit: int | None = None) -> Forensics:
        """Open the given file.

        Raises:
            DataError: none was given, or it is not there.
        """
        if data is None:
            raise DataError(
                "the bench 'packed' needs --data", hint="the TSV file that `edgebench pack` wrote from your pictures"
            )
        if not data.is_file():
            raise DataError(
                "is no file", where=data, hint="the bench 'packed' reads the TSV that `edgebench pack` wrote"
            )
        return cls(data, limit=limit)

    def category(self, slug: str) -> Category:
        """A category of the published form."""
        return own_category(slug)
