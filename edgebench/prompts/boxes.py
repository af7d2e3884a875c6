"""Boxes that a user gives for a benchmark's pictures: a CSV, a row a box."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING

from edgebench.errors import DataError
from edgebench.media.faces import Box

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = ("id", "x", "y", "width", "height")
PICTURE = "picture"

Boxes = dict[str, dict[int, list[Box]]]
"""Sample's id -> number of its picture, from 0 -> boxes."""


def read_boxes(path: Path) -> Boxes:
    """The boxes of a file: the columns id, x, y, width, height in pixels, and `picture` where a sample has several.

    Raises:
        DataError: it cannot be read, a column is missing, or a row is no box.
    """
    found: Boxes = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"has no column {', '.join(missing)}", where=path, hint=f"needed: {', '.join(NEEDED)}")
            for row in reader:
                where = f"{path}: line {reader.line_num}"
                try:
                    x, y, width, height = (float(row[name]) for name in NEEDED[1:])
                    number = int(row.get(PICTURE) or 0)
                except (TypeError, ValueError) as error:
                    raise DataError("is no box", where=where, hint="numbers of pixels, and a whole picture") from error
                if not all(map(math.isfinite, (x, y, width, height))) or width <= 0 or height <= 0 or number < 0:
                    raise DataError("is no box: its size has to be above 0", where=where)
                found.setdefault(row["id"], {}).setdefault(number, []).append((x, y, width, height))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV: {error}", where=path) from error
    if not found:
        raise DataError("holds no box", where=path)
    return found
