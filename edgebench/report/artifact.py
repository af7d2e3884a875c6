"""An artifact as tables: its graphs, and its parity with the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.report.tables import UNKNOWN, Table, mebibytes

if TYPE_CHECKING:
    from edgebench.manifest import Artifact


def artifact_tables(artifact: Artifact) -> list[Table]:
    """What was exported."""
    m = artifact.manifest
    graphs = tuple(
        (
            name,
            g.precision,
            mebibytes(g.bytes),
            str(g.opset),
            UNKNOWN if g.quantization is None else f"{g.quantization.quantized} weights: {g.quantization.scheme}",
        )
        for name, g in m.graphs.items()
    )
    tables = [
        Table(
            f"{m.name}, {m.family}, {m.precision}, dialect {m.dialect}",
            ("graph", "precision", "size", "opset", "quantized"),
            graphs,
            note=m.note,
        )
    ]
    if m.output == "logits":
        meanings = tuple((label, "forged" if k in m.forged else "real") for k, label in enumerate(m.labels))
        tables.append(Table("What its logits stand for", ("label", "means"), meanings))
    if m.parity is not None:
        rows = tuple(
            (
                r.what,
                r.inputs,
                f"{r.max_abs_difference:.3g}",
                f"{r.relative_rms:.3g}",
                UNKNOWN if r.top1_agreement is None else f"{100 * r.top1_agreement:.1f} %",
            )
            for r in m.parity.rows
        )
        p = m.parity
        bounds = [
            (n, b)
            for n, b in (
                ("max |difference|", p.max_abs_bound),
                ("relative RMS", p.relative_rms_bound),
                ("top-1", p.top1_bound),
            )
            if b is not None
        ]
        note = (
            "against "
            + (m.parity.rows[0].against if m.parity.rows else UNKNOWN)
            + "; bounds: "
            + (", ".join(f"{n} {b:g}" for n, b in bounds) or "none stated")
        )
        tables.append(
            Table(
                "Parity with the source",
                ("graph", "inputs", "max |difference|", "relative RMS", "top-1 agreement"),
                rows,
                note,
            )
        )
    return tables
