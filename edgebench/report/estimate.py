"""The tables of an estimate, of a gate and of a device profile."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgebench.report.tables import UNKNOWN, Table, counted, mebibytes, milliseconds

if TYPE_CHECKING:
    from edgebench.profiles import DeviceProfile

STAGES = {"vision": "vision", "prefill": "prefill", "ttft": "TTFT", "tpot": "TPOT (a token)"}
BY = {"operations": "arithmetic", "memory": "memory bandwidth"}


def estimate_tables(found: dict[str, Any]) -> list[Table]:
    """What `edgebench estimate` prints."""
    memory, question, device = found["memory"], found["question"], found["profile"]
    fits = {True: "may fit", False: "CANNOT FIT", None: UNKNOWN}[memory["fits"]]
    rows = [
        ("weights", mebibytes(memory["weight_bytes"])),
        ("keys and values of the question", mebibytes(memory["cache_bytes"])),
        ("least memory, without the runtime's own", mebibytes(memory["least_bytes"])),
        ("the device's memory", mebibytes(memory["device_bytes"])),
        ("verdict", fits),
    ]
    parts = [counted(question["tiles"], "tile")]
    if question["prompt_tokens"] is not None:
        parts += [
            counted(question["prompt_tokens"], "prompt token"),
            counted(question["output_tokens"], "output token"),
        ]
    asked = ", ".join(parts)
    times = [
        (STAGES[name], f"{milliseconds(time['ms'])} ms", BY[time["by"]]) for name, time in found["least_ms"].items()
    ]
    times.append(("whole answer", _ms(found["least_total_ms"]), ""))
    title = f"{found['model']} {found['precision']} on {device['name']}: an estimate"
    tables = [
        Table(title, ("", ""), tuple(rows), f"{asked}; sizes and operations: {found['model_source']}"),
        Table(
            "No runtime can be faster there (estimate)",
            ("stage", "at least", "set by"),
            tuple(times),
            "operations at the device's peak, or bytes at its bandwidth, whichever takes longer; decoding pictures is left out",
        ),
    ]
    if found["budgets"]:
        verdicts = {True: "open", False: "CANNOT BE KEPT", None: UNKNOWN}
        rows3 = tuple(
            (b["budget"], f"{b['allowed']:g}", UNKNOWN if b["least"] is None else f"{b['least']:.4g}", verdicts[b["can_be_kept"]])
            for b in found["budgets"]
        )  # fmt: skip
        tables.append(Table("Budgets of the profile", ("budget", "allowed", "at least", ""), rows3))
    return [*tables, _figures(device)]


def device_table(profile: DeviceProfile) -> Table:
    """One profile, with the source of each figure."""
    return _figures(asdict(profile))


def profile_table(profiles: list[DeviceProfile]) -> Table:
    """Profiles by name."""
    rows = tuple(
        (
            p.name,
            *(UNKNOWN if f is None or f.value is None else f"{f.value:g}" for f in (p.memory_mib, p.bandwidth_gb_s)),
            ", ".join(
                f"{n} {UNKNOWN if f.value is None else f'{f.value:g}'}" for n, f in p.peak_tera_operations.items()
            ),
            p.summary,
        )
        for p in profiles
    )
    return Table("Device profiles", ("name", "MiB", "GB/s", "peak, 10^12 operations/s", "summary"), rows)


def _figures(device: dict[str, Any]) -> Table:
    rows = [
        (
            name,
            UNKNOWN if figure is None or figure["value"] is None else f"{figure['value']:g}",
            (figure or {}).get("source", ""),
        )
        for name, figure in (
            ("memory, MiB", device["memory_mib"]),
            ("bandwidth, GB/s", device["bandwidth_gb_s"]),
            ("last-level cache, MiB", device["cache_mib"]),
            *((f"peak {p}, 10^12/s", f) for p, f in device["peak_tera_operations"].items()),
        )
    ]
    return Table(f"{device['name']}: {device['summary']}", ("", "", "source"), tuple(rows))


def gate_tables(found: dict[str, Any]) -> list[Table]:
    """What `edgebench gate` prints."""
    rows = tuple(
        (
            row["budget"],
            f"{row['allowed']:g}",
            UNKNOWN if row["measured"] is None else f"{row['measured']:.4g}",
            row["verdict"],
            row["why"],
        )
        for row in found["rows"]
    )
    return [
        Table(
            f"Gate {found['profile']}: {found['verdict']}",
            ("budget", "allowed", "measured", "", ""),
            rows,
            "PASS only where every budget is known to be kept",
        )
    ]


def _ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{milliseconds(value)} ms"
