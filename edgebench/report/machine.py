"""The tables of what a run says of its machine: validity, sittings, limits, energy, memory by method."""

from __future__ import annotations

from typing import Any

from edgebench.report.tables import STAGE_NAMES, UNKNOWN, Table, mebibytes, milliseconds

SHOWN_ABOVE = ("artifact on disk", "process peak")
"""Of the memory by method: what the table of memory has already."""


def machine_tables(summary: dict[str, Any]) -> list[Table]:
    """All of them; those without a figure are left out, but for validity and energy."""
    found = [_validity(summary["validity"])]
    if summary["pooled_sittings"]:
        found.append(_sittings(summary["sittings_detail"]))
    if summary["physical_limits"] is not None:
        found.append(_limits(summary["physical_limits"]))
    rows = tuple(
        (row["what"], mebibytes(row["bytes"]), row["method"])
        for row in summary["memory_methods"]
        if row["what"] not in SHOWN_ABOVE
    )
    return [*found, Table("Memory by method", ("", "", "how"), rows), _energy(summary["energy"])]


def offline_table(summary: dict[str, Any]) -> Table:
    """How many samples a second, and in batches of which sizes; no latency."""
    offline = summary["throughput"]["offline"]
    speed, together = offline["samples_per_s"], (summary["engine"] or {}).get("asked_in_batches")
    sizes = ", ".join(f"{count} of {size}" for size, count in offline["batch_sizes"].items())
    rows = [
        ("samples/s", UNKNOWN if speed is None else f"{speed:.2f}"),
        ("windows", f"{offline['windows']}, with {offline['answered_in_windows']} of {offline['answered']} answers"),
        ("calls of the engine", f"{sizes or UNKNOWN} (at most {offline['most_in_a_batch']})"),
    ]
    if not offline["windows"]:
        rows = [("samples/s", f"{UNKNOWN}  no complete window; cells of a sweep are asked together, and none is timed")]
    if together is False:
        rows.append(("batches", "none: this engine or artifact takes one question at a time"))
    return Table("Offline", ("", ""), tuple(rows), offline["note"])


def _validity(validity: dict[str, Any]) -> Table:
    rows = [("timing", validity["timing"].upper(), "; ".join(validity["reasons"] + validity["unknown"]))]
    rows.append(("accuracy", validity["accuracy"], "it does not depend on the machine's conditions"))
    for s in validity["sittings"]:
        name = "" if len(validity["sittings"]) == 1 else f", sitting {s['sitting']}"
        before, during = s["background_before"], s["background"]
        rows.append((f"others' CPU use{name}", _cores(during), f"while the engine loaded: {_cores(before)}"))
        trend = s["drift"]
        if trend is not None:
            words = f"{100 * trend['change']:+.1f} % over the run"
            rows.append((f"drift{name}", words, f"Mann-Kendall p = {trend['p']:.2g}, {trend['n']} questions"))
        for key, words, unit in (
            ("clock_mhz", "CPU clock", "MHz"),
            ("gpu_mhz", "GPU clock", "MHz"),
            ("temperature_c", "temperature", "°C"),
            ("gpu_temperature_c", "GPU temperature", "°C"),
        ):
            if (r := s[key]) is not None:
                rows.append((f"{words}{name}", f"{r['min']:.0f} to {r['max']:.0f} {unit}", f"first {r['first']:.0f}, last {r['last']:.0f}"))  # fmt: skip
        for key in ("governor", "power_mode"):
            if s[key] is not None:
                rows.append((f"{key.replace('_', ' ')}{name}", s[key], ""))
    return Table("Validity", ("", "", "why"), tuple(rows), validity["note"])


def _cores(found: dict[str, Any] | None) -> str:
    return UNKNOWN if found is None else f"{found['mean_cores']:.2f} cores, {found['max_cores']:.2f} at most"


def _sittings(sittings: list[dict[str, Any]]) -> Table:
    rows = []
    for s in sittings:
        for stage, row in s["latency_ms"].items():
            cells = (milliseconds(row[f"p{q}"]) for q in (50, 90, 99))
            rows.append((f"{s['sitting']} ({s['started'][:19]})", STAGE_NAMES[stage], *cells, str(row["n"])))
    return Table(
        "Latency by sitting, ms",
        ("sitting", "stage", "p50", "p90", "p99", "n"),
        tuple(rows),
        "the run was continued: the table above pools times of different sittings",
    )


def _limits(limits: dict[str, Any]) -> Table:
    by = {"operations": "arithmetic", "memory": "memory bandwidth"}
    rows = tuple(
        (
            STAGE_NAMES[name],
            milliseconds(row["least_ms"]),
            milliseconds(row["measured_ms"]),
            f"{row['measured_over_least']:.1f} x",
            by[row["by"]],
            str(row["n"]),
        )
        for name, row in limits["stages"].items()
    )
    return Table(
        f"Against the physical limit of {limits['profile']} (estimate), ms",
        ("stage", "least", "measured", "measured / least", "set by", "n"),
        rows,
        limits["note"],
    )


def _energy(energy: dict[str, Any]) -> Table:
    def joules(value: float | None) -> str:
        return UNKNOWN if value is None else f"{value:.4g} J"

    rows = [
        ("a sample", joules(energy["joules_per_sample"])),
        ("a right answer", joules(energy["joules_per_right_answer"])),
        ("mean power while answering", UNKNOWN if energy["watts_mean"] is None else f"{energy['watts_mean']:.3g} W"),
    ]
    if energy["unsupported"] is not None:
        return Table("Energy", ("", ""), (("energy", UNKNOWN), ("why", energy["unsupported"])))
    measured = f"{energy['measured']} of {energy['answered']} answers; source {energy['source']}; {energy['note']}"
    return Table("Energy", ("", ""), tuple(rows), measured)
