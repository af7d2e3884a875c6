"""All precisions of one model against its checkpoint, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def speed_tables(found: dict[str, Any]) -> list[Table]:
    """What `edgebench.speeds.speeds` measured, and what is fastest."""
    rows = []
    least = f"{100 * found['agrees']:.0f} %"
    for number, row in enumerate(found["rows"]):
        said = [row["error"]] if row["error"] else []
        if number == found["prefill"]:
            said.append(f"fastest prefill with {least} top-1 agreement")
        if number == found["decode"]:
            said.append("fastest decode")
        speeds = (UNKNOWN if row[k] is None else f"{row[k]:.1f}" for k in ("prefill_tokens_s", "decode_tokens_s"))
        top1 = UNKNOWN if row["top1"] is None else f"{100 * row['top1']:.1f} %"
        rows.append((row["form"], row["engine"], *speeds, top1, "; ".join(said)))
    columns = ("precision", "engine", "prefill, tokens/s", "decode, tokens/s", "top-1 agreement", "")
    host, verdict = found["host"], found["validity"]
    notes = [f"{host['cpu'] or UNKNOWN}, {host['logical_cores']} cores, profile {found['profile']}", found["note"]]
    notes.append(f"timing {verdict['timing']} {'; '.join(verdict['reasons'] + verdict['unknown'])}".strip())
    if found["prefill"] is None:
        notes.append(f"no form is known to agree in {least}")
    notes += [f"not installed: {', '.join(found['left_out'])}"] if found["left_out"] else []
    return [Table(f"Speed, {found['rounds']} rounds in turn", columns, tuple(rows), "; ".join(notes))]
