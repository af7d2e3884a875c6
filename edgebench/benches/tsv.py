"""A benchmark TSV of gigabytes, read a row at a time.

The published form is VLMEvalKit's: tab separated, quoted as CSV, UTF-8, a cell may be megabytes of base64 and may
hold line breaks. One pass notes where each row begins; after that any row is read by its offset, and never more
than one row is in memory.
"""

from __future__ import annotations

import csv
import itertools
import sys
from array import array
from typing import IO, TYPE_CHECKING

from edgebench.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PANDAS_NAN = frozenset(
    [
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
    ]
)
"""Cells that the published reader (pandas.read_csv) takes for missing."""


class Rows:
    """The rows of one TSV file."""

    def __init__(self, path: Path, *, stop_after: int | None = None, keep: tuple[str, ...] = ()) -> None:
        """Note the row offsets, the `index` column and those of `keep`, up to `stop_after` rows.

        Raises:
            DataError: unreadable, not UTF-8, without a header, with rows of another length or a repeated index.
        """
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        self.path = path
        self._offsets = array("q")
        self._by_index: dict[str, int] = {}
        self.ids: list[str] = []
        self.columns: list[str] = []
        self._kept: dict[str, list[str]] = {name: [] for name in keep}
        self._next = 0
        self._complete = False
        self.scan(stop_after)

    def scan(self, stop_after: int | None) -> None:
        """Go on noting offsets until there are `stop_after` rows, or to the end of the file."""
        if self._complete:
            return
        with self._open() as stream:
            stream.seek(self._next)
            lines = _Lines(stream, self.path, self._next)
            reader = csv.reader(lines, delimiter="\t")
            if not self.columns:
                self.columns = self._header(reader)
            place = self.columns.index("index") if "index" in self.columns else None
            while stop_after is None or len(self._offsets) < stop_after:
                start = lines.offset
                try:
                    row = next(reader)
                except StopIteration:
                    self._complete = True
                    break
                except csv.Error as error:
                    where = f"row {len(self._offsets) + 1}"
                    raise DataError(f"{where} cannot be parsed: {error}", where=self.path) from error
                if row:
                    self._note(row, start, place)
            self._next = lines.offset

    def _note(self, row: list[str], start: int, place: int | None) -> None:
        number = len(self._offsets)
        if len(row) != len(self.columns):
            raise DataError(
                f"row {number + 1} has {len(row)} cells, the header has {len(self.columns)}", where=self.path
            )
        identity = str(number) if place is None else row[place].strip()
        if identity in self._by_index:
            first = self._by_index[identity] + 1
            raise DataError(f"index {identity!r} appears twice (rows {first} and {number + 1})", where=self.path)
        self._by_index[identity] = number
        self.ids.append(identity)
        self._offsets.append(start)
        for name, cells in self._kept.items():
            cells.append(sys.intern(row[self.columns.index(name)].strip()) if name in self.columns else "")

    def _header(self, reader: Iterator[list[str]]) -> list[str]:
        try:
            columns = next(reader)
        except StopIteration:
            raise DataError("is empty", where=self.path) from None
        except csv.Error as error:
            raise DataError(f"is not a TSV file: {error}", where=self.path) from error
        if not columns:
            raise DataError("begins with an empty line instead of column names", where=self.path)
        repeated = {c for c in columns if columns.count(c) > 1}
        if repeated:
            raise DataError(f"has the column {sorted(repeated)[0]!r} twice", where=self.path)
        return columns

    def __len__(self) -> int:
        return len(self._offsets)

    def kept(self, column: str) -> list[str]:
        """One of the columns that are kept: each row's cell, without spaces at its ends."""
        return self._kept[column]

    def row(self, number: int) -> dict[str, str | None]:
        """One row as column -> text; None where the published reader sees NaN."""
        with self._open() as stream:
            stream.seek(self._offsets[number])
            cells = next(csv.reader(_Lines(stream, self.path, self._offsets[number]), delimiter="\t"))
        return self._named(cells)

    def walk(self, count: int) -> Iterator[dict[str, str | None]]:
        """The first `count` rows in order, as `row` gives each; the file is opened once."""
        if not count:
            return
        with self._open() as stream:
            stream.seek(self._offsets[0])
            found = filter(None, csv.reader(_Lines(stream, self.path, self._offsets[0]), delimiter="\t"))
            for cells in itertools.islice(found, count):
                yield self._named(cells)

    def _named(self, cells: list[str]) -> dict[str, str | None]:
        return {c: None if v in PANDAS_NAN else v for c, v in zip(self.columns, cells, strict=True)}

    def find(self, index: str) -> int | None:
        """The row with that index; numbers are compared as numbers, as the published reader does."""
        index = index.strip()
        found = self._by_index.get(index)
        if found is None:
            self.scan(None)
            found = self._by_index.get(index)
        if found is None and _is_int(index):
            number = int(index)
            found = next((row for key, row in self._by_index.items() if _is_int(key) and int(key) == number), None)
        return found

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", where=self.path) from error


class _Lines:
    """Decoded lines of a binary stream, with the byte offset that has been consumed."""

    def __init__(self, stream: IO[bytes], path: Path, offset: int = 0) -> None:
        self._stream = stream
        self._path = path
        self.offset = offset

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = self._stream.readline()
        if not raw:
            raise StopIteration
        start, self.offset = self.offset, self.offset + len(raw)
        if start == 0:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"is not UTF-8 at byte {start + error.start}", where=self._path) from error


def _is_int(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
