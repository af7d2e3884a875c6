"""The delta card: what one run changed against the base, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.report.labels import spelled
from edgebench.report.tables import STAGE_NAMES, UNKNOWN, Table, mebibytes, milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 12
LISTED = 40
"""Questions that were answered differently; JSON has all."""


def delta_tables(pair: dict[str, Any]) -> list[Table]:
    """One pair of runs."""
    p = pair["paired"]
    rows = [
        ("questions answered by both", str(p["both"])),
        ("right -> wrong", str(p["lost"])),
        ("wrong -> right", str(p["won"])),
        ("difference of accuracy", points(p["difference"], p["difference_interval"])),
        ("exact McNemar p", f"{_number(p['mcnemar_p'])}: {p['verdict'] or UNKNOWN}"),
        ("answered differently, right or wrong", str(len(pair["disagreements"]))),
    ]
    for target in pair["targets"]:
        verdict = {None: UNKNOWN, True: "PASS", False: "FAIL"}[target["passed"]]
        rows.append((f"keeps {100 * target['target']:g} % of the base's accuracy", verdict))
    rows.append(("unparsed, base / other", " / ".join(percent(v) for v in pair["unparsed"])))
    if pair["output_length_ratio"] is not None:
        rows.append(("output tokens, other / base", f"{pair['output_length_ratio']:.3f}"))
    shift = pair["option_shift"]
    if shift is not None:
        moved = f"{shift['mean_total_variation']:.4f}, likeliest changed in {percent(shift['likeliest_changed'])}"
        rows.append((f"option probabilities moved (mean total variation, {shift['questions']} questions)", moved))
        largest = pair["largest_logprob_difference"]
        rows.append(("largest change of an option's log-probability, nats", _number(largest)))
        errors = " / ".join(_number(v) for v in pair["calibration_error"])
        rows.append(("expected calibration error, 10 bins, base / other", errors))
    c = pair["classifier"]
    if c is not None:
        for key, name in (("auroc", "AUROC"), ("eer", "EER")):
            rows.append((f"{name}, base / other", " / ".join(percent(v) for v in c[key])))
        for key, name in (("false_positive_rate", "false alarms"), ("true_positive_rate", "forged found")):
            shown = " / ".join(percent(v) for v in c[key])
            rows.append((f"{name} at the base's threshold {c['threshold']:.3g}, base / other", shown))
    title = f"{pair['base']}  ->  {pair['other']}"
    found = [Table(title, ("", ""), tuple(rows), "the same questions, one by one; 95 % paired bootstrap interval")]
    found.append(_costs(pair))
    if pair["disagreements"]:
        found.append(_disagreements(pair["disagreements"]))
    for key, name in (("by_task", "task"), ("by_kind", "forgery type")):
        if len(pair[key]) > 1:
            found.append(_groups(name, pair[key]))
    if pair["categories"]:
        changed = tuple(
            (
                c["category"],
                str(c["answered"]),
                percent(c["base"]),
                percent(c["other"]),
                f"{100 * c['difference']:+.1f}",
            )
            for c in pair["categories"]
        )
        columns = ("category", "questions", "base", "other", "points")
        found.append(Table("Categories that changed most", columns, changed))
    return found


def _disagreements(found: list[dict[str, str | None]]) -> Table:
    rows = tuple(tuple(d[key] or UNKNOWN for key in ("id", "kind", "target", "base", "other")) for d in found[:LISTED])
    more = len(found) - len(rows)
    note = f"and {more} more: --json lists all" if more else "all of them"
    return Table("Answered differently", ("question", "of", "right is", "base", "other"), rows, note)


def _costs(pair: dict[str, Any]) -> Table:
    """Ratios of times and memory."""
    rows = [
        (f"{STAGE_NAMES[r['what']]}, ms", milliseconds(r["base_ms"]), milliseconds(r["other_ms"]), _ratio(r))
        for r in pair["speed"]
    ]
    names = {
        "artifact_bytes": "model on disk",
        "after_load_bytes": "engine process after loading",
        "peak_bytes": "engine process, peak",
    }
    rows += [(names[r["what"]], mebibytes(r["base"]), mebibytes(r["other"]), _ratio(r)) for r in pair["memory"]]
    note = (
        "times: ratio of medians over the same questions, 95 % paired bootstrap; memory: one reading a run, no interval"
    )
    return Table("Speed and memory", ("", "base", "other", "other / base"), tuple(rows), note)


def _ratio(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return UNKNOWN
    ends = "" if row["interval"] is None else f"  [{row['interval'][0]:.3f}, {row['interval'][1]:.3f}]"
    return f"{row['ratio']:.3f}{ends}"


def _groups(name: str, groups: list[dict[str, Any]]) -> Table:
    ordered = sorted(groups, key=lambda g: -abs(g["difference"] or 0))[:SHOWN]
    rows = tuple(
        (
            spelled(g["name"]),
            str(g["questions"]),
            percent(g["base"], g["base_interval"]),
            percent(g["other"], g["other_interval"]),
            f"{g['lost']} / {g['won']}",
            points(g["difference"], g["difference_interval"]),
            _number(g["mcnemar_p"]),
        )
        for g in ordered
    )
    columns = (name, "questions", "base", "other", "lost / won", "difference", "McNemar p")
    note = "p is of each row alone, not corrected for how many rows there are"
    return Table(f"By {name}", columns, rows, note)


def points(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A difference of fractions in percentage points, with its interval."""
    if value is None:
        return UNKNOWN
    ends = "" if interval is None else f"  [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"
    return f"{100 * value:+.1f} points{ends}"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"
