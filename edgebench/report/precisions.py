"""All precisions of one model against its checkpoint, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.report.artifact import PARITY, parity_cells
from edgebench.report.tables import UNKNOWN, Table, mebibytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgebench.manifest import Artifact


def precision_tables(model: str, found: Mapping[str, Artifact | str]) -> list[Table]:
    """The table.

    Args:
        model: its name.
        found: precision and dialect -> the artifact, or why there is none.
    """
    rows: list[tuple[str, ...]] = []
    against = UNKNOWN
    for name, entry in found.items():
        if isinstance(entry, str):
            rows.append((name, UNKNOWN, "missed its bound", entry, *[UNKNOWN] * len(PARITY)))
            continue
        size = mebibytes(entry.manifest.bytes)
        parity = entry.manifest.parity
        if parity is None:
            rows.append((name, size, "not measured", entry.manifest.note, *[UNKNOWN] * len(PARITY)))
            continue
        for number, row in enumerate(parity.rows):
            against = row.against
            rows.append((*((name, size) if number == 0 else ("", "")), row.what, row.inputs, *parity_cells(row)))
    columns = ("precision", "size", "graph", "inputs", *PARITY)
    return [Table(f"{model}: every precision against its checkpoint", columns, tuple(rows), f"against {against}")]
