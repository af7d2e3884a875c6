"""An artifact as tables: its graphs, and its parity with the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.report.tables import UNKNOWN, Table, mebibytes

if TYPE_CHECKING:
    from edgebench.manifest import Artifact, ParityRow


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
            note="; ".join(
                filter(None, (m.note, f"prefill: {m.decoder.prefill}" if m.decoder and m.decoder.prefill else ""))
            ),
        )
    ]
    if m.output == "logits":
        meanings = tuple((label, "forged" if k in m.forged else "real") for k, label in enumerate(m.labels))
        tables.append(Table("What its logits stand for", ("label", "means"), meanings))
    if m.parity is not None:
        p = m.parity
        bounds = [
            (n, b)
            for n, b in (
                ("max |difference|", p.max_abs_bound),
                ("relative RMS", p.relative_rms_bound),
                ("KL", p.kl_bound),
                ("top-1", p.top1_bound),
                ("perplexity over the source's", p.perplexity_bound),
            )
            if b is not None
        ]
        note = (
            "against "
            + (p.rows[0].against if p.rows else UNKNOWN)
            + "; bounds: "
            + (", ".join(f"{n} {b:g}" for n, b in bounds) or "none stated")
        )
        rows = tuple((r.what, r.inputs, *parity_cells(r)) for r in p.rows)
        tables.append(Table("Parity with the source", ("graph", "inputs", *PARITY), rows, note))
    return tables


PARITY = ("max |difference|", "relative RMS", "KL, nats", "top-1 agreement", "perplexity (source)")
"""What `parity_cells` shows."""


def parity_cells(row: ParityRow) -> tuple[str, ...]:
    """One row of parity as text."""
    return (
        f"{row.max_abs_difference:.3g}",
        f"{row.relative_rms:.3g}",
        UNKNOWN if row.kl is None else f"{row.kl:.2g}",
        UNKNOWN if row.top1_agreement is None else f"{100 * row.top1_agreement:.1f} %",
        UNKNOWN if row.perplexity is None else f"{row.perplexity:.2f} ({row.reference_perplexity:.2f})",
    )
