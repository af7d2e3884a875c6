"""What `edgebench pack` made and left out, as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgebench.report.tables import Table

if TYPE_CHECKING:
    from edgebench.pack.write import Packed

SHOWN = 10
NAMES = {"BC": "real or forged", "SLS": "which mask", "SLD": "which boxes", "TL": "which frames"}


def packed_tables(packed: Packed) -> list[Table]:
    """Questions by task, what was skipped by reason, near-duplicates."""
    rows = [
        (f"{task}: {NAMES[task]}", str(n["forged"]), str(n["real"]), str(n["forged"] + n["real"]))
        for task, n in packed.questions.items()
    ]
    total = [sum(n[side] for n in packed.questions.values()) for side in ("forged", "real")]
    rows.append(("all", str(total[0]), str(total[1]), str(sum(total))))
    tables = [Table("Questions", ("task", "forged", "real", "all"), tuple(rows), note="; ".join(packed.notes))]
    if packed.skipped:
        reasons = Counter((s.what, s.why) for s in packed.skipped)
        first = {(s.what, s.why): s.name for s in reversed(packed.skipped)}
        shown = reasons.most_common(SHOWN)
        tables.append(
            Table(
                f"Skipped: {len(packed.skipped)}",
                ("for", "why", "times", "first"),
                tuple((what, why, str(n), first[what, why]) for (what, why), n in shown),
                note=_rest(len(reasons), "reasons"),
            )
        )
    if packed.near_duplicates:
        tables.append(
            Table(
                f"Near-duplicates across splits: {len(packed.near_duplicates)}",
                ("picture", "split", "looks like", "split", "bits of 64"),
                tuple(
                    (d.one, d.one_split, d.other, d.other_split, str(d.distance))
                    for d in packed.near_duplicates[:SHOWN]
                ),
                note=_rest(len(packed.near_duplicates), "pairs"),
            )
        )
    return tables


def _rest(count: int, what: str) -> str:
    return f"{count - SHOWN} more {what} are in the file .pack.json" if count > SHOWN else ""
