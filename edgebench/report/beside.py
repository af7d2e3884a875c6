"""A comparison of runs as plain tables: side by side, the Pareto front, each run against the first."""

from __future__ import annotations

from typing import Any

from edgebench.report.delta import delta_tables
from edgebench.report.labels import distinct, labels
from edgebench.report.mmfakebench import comparison_rows
from edgebench.report.overview import overview_tables
from edgebench.report.tables import STAGE_NAMES, UNKNOWN, Table, mebibytes, milliseconds, parity, percent

BESIDE = 6
"""Runs in one table."""


def comparison_tables(comparison: dict[str, Any]) -> list[Table]:
    """Runs side by side; the first one is the base."""
    runs = comparison["runs"]
    names = labels(runs)

    def row(name: str, cells: list[str]) -> tuple[str, ...]:
        return (name, *cells)

    rows = [row("accuracy", [percent(r["summary"]["accuracy"], r["summary"]["accuracy_interval"]) for r in runs])]
    if any("binary" in r["scores"] for r in runs):
        for key, name in (("balanced_accuracy", "balanced accuracy, real/forged"), ("auroc", "AUROC, real/forged")):
            rows.append(
                row(
                    name,
                    [
                        percent(
                            (r["scores"].get("binary") or {}).get(key),
                            (r["scores"].get("binary") or {}).get(f"{key}_interval"),
                        )
                        for r in runs
                    ],
                )
            )
    if any("mmfakebench" in r["scores"] for r in runs):
        rows += comparison_rows([r["scores"].get("mmfakebench") for r in runs])
    rows.append(
        row(
            "answered / unparsed / failed",
            [
                f"{s['answered']} / {s['unparsed']} / {s['failed']}"
                + (f", {s['refused']} refused" if s["refused"] else "")
                for s in (r["summary"] for r in runs)
            ],
        )
    )
    scenarios = [r["throughput"]["scenario"] for r in runs]
    compared = len(set(scenarios)) == 1
    if set(scenarios) != {"single-stream"}:
        rows.append(row("scenario", scenarios))
    if compared:
        rows += _speed_rows(runs)
    rows.append(row("valid for timing", [r["validity"]["timing"].upper() for r in runs]))
    if compared:
        rows += _cost_rows(runs)
    for key, name in (
        ("artifact_bytes", "model on disk"),
        ("after_load_bytes", "engine process after loading"),
        ("peak_bytes", "engine process, peak"),
        ("peak_anonymous_bytes", "engine process, peak anonymous"),
        ("peak_file_backed_bytes", "engine process, peak file-backed"),
    ):
        rows.append(row(name, [mebibytes(r["memory"][key]) for r in runs]))
    rows.append(row("parity at export", [parity(r["artifact"]) for r in runs]))
    note = "accuracy: right / answered, 95 % Wilson interval; '–' is unknown"
    if not compared:
        note += "; the scenarios differ, so that speed is not compared"
    tables = [
        Table(
            "Side by side", ("", *names[k : k + BESIDE]), tuple((r[0], *r[k + 1 : k + 1 + BESIDE]) for r in rows), note
        )
        for k in range(0, len(runs), BESIDE)
    ]
    tables += overview_tables(comparison, runs, distinct(names))
    for pair in comparison["pairs"]:
        # Of different models what each question's answer became says little: --json has it.
        tables += delta_tables(pair)[: None if comparison["one_model"] else 1]
    if comparison["differences"]:
        tables.append(
            Table(
                "Not the same conditions",
                ("what", *names),
                tuple((d["what"], *map(str, d["values"])) for d in comparison["differences"]),
            )
        )
    return tables


def _speed_rows(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Times and samples a second of runs of one scenario."""
    rows: list[tuple[str, ...]] = []
    for stage, name in STAGE_NAMES.items():
        if any(stage in r["latency_ms"] for r in runs):
            found = [r["latency_ms"].get(stage) or {} for r in runs]
            cells = (" / ".join(milliseconds(f.get(f"p{q}")) for q in (50, 90, 99)) for f in found)
            rows.append((f"{name}, ms  p50 / p90 / p99", *cells))
    offline = runs[0]["throughput"]["scenario"] == "offline"
    rates = [
        r["throughput"]["offline"]["samples_per_s"] if offline else r["throughput"]["questions_per_s"] for r in runs
    ]
    name = "samples/s, offline" if offline else "questions/s, one at a time"
    return [*rows, (name, *(UNKNOWN if rate is None else f"{rate:.2f}" for rate in rates))]


def _cost_rows(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Against the physical limit, and energy."""
    rows: list[tuple[str, ...]] = []
    for stage in ("vision", "ttft", "tpot", "total"):
        limits = ((r["physical_limits"] or {"stages": {}})["stages"].get(stage) or {} for r in runs)
        cells = [limit.get("measured_over_least") for limit in limits]
        if any(cell is not None for cell in cells):
            name = f"{STAGE_NAMES[stage]}, measured / limit (estimate)"
            rows.append((name, *(UNKNOWN if cell is None else f"{cell:.1f} x" for cell in cells)))
    joules = [r["energy"]["joules_per_sample"] for r in runs]
    return [*rows, ("energy, joules a sample", *(UNKNOWN if j is None else f"{j:.4g}" for j in joules))]
