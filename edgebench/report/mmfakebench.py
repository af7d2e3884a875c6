"""MMFakeBench's scores as tables."""

from __future__ import annotations

from typing import Any

from edgebench.report.tables import UNKNOWN, Table, milliseconds, percent

GROUPS = {
    "type": "Type of rumour or forgery",
    "sub_category": "Sub-category",
    "text_source": "Source of the caption",
    "image_source": "Source of the picture",
}
MACRO = (("f1", "macro F1"), ("precision", "macro precision"), ("recall", "macro recall"), ("accuracy", "accuracy"))


def mmfakebench_tables(scores: dict[str, Any]) -> list[Table]:
    """The published scores, each class, each group, and what a sample took."""
    multi, binary = scores["multiclass"], scores["binary"]
    rows = [
        (name, _score(multi, key), _score(binary, key))
        for key, name in MACRO
        if binary is not None or multi is not None
    ]
    rows += [
        ("match rate", percent(scores["match_rate"]), ""),
        ("consistency rate", percent(scores["consistency_rate"]), ""),
    ]
    note = f"F1 with its 95 % bootstrap interval; an answer without a class costs recall; {scores['rates_note']}"
    tables = [Table("MMFakeBench", ("", "four classes", "real / fake"), tuple(rows), note)]
    for found, what in ((multi, "four classes"), (binary, "real / fake")):
        if found is not None:
            tables.append(_classes(found, what))
    tables += [_group(title, scores["groups"][key]) for key, title in GROUPS.items() if scores["groups"].get(key)]
    tables.append(_calls(scores))
    return tables


def comparison_rows(scores: list[dict[str, Any] | None]) -> list[tuple[str, ...]]:
    """Rows of a comparison, one cell a run; a run of another bench has none."""
    known = [s or {} for s in scores]
    rows = []
    for kind, name in (("multiclass", "four classes"), ("binary", "real/fake")):
        rows.append((f"macro F1, {name}", *(_score(s.get(kind), "f1") for s in known)))
    rows.append(("match rate", *(percent(s.get("match_rate")) for s in known)))
    calls = [s.get("calls") or {} for s in known]
    rows.append(("calls a sample", *(UNKNOWN if c.get("mean") is None else f"{c['mean']:.2f}" for c in calls)))
    rows.append(("model time a sample", *(_seconds(c.get("seconds_per_sample")) for c in calls)))
    return rows


def _score(found: dict[str, Any] | None, key: str) -> str:
    if found is None:
        return UNKNOWN
    return percent(found[key], found["f1_interval"] if key == "f1" else None)


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g} s"


def _classes(found: dict[str, Any], what: str) -> Table:
    names = list(found["classes"])
    rows = tuple(
        (
            name,
            str(row["samples"]),
            percent(row["f1"]),
            percent(row["precision"]),
            percent(row["recall"]),
            *(str(found["confusion"][name][answer]) for answer in (*names, "Z")),
        )
        for name, row in found["classes"].items()
    )
    columns = ("right answer", "samples", "F1", "precision", "recall", *(f"said {n}" for n in names), "no class")
    return Table(f"Each class, {what}", columns, rows)


def _group(title: str, rows: dict[str, Any]) -> Table:
    shown = tuple(
        (
            name,
            str(row["samples"]),
            percent(row["accuracy"]),
            percent(row["binary_accuracy"], row["binary_interval"]),
            percent(row["called_forged"]),
            str(row["unmatched"]),
        )
        for name, row in rows.items()
    )
    columns = (title.lower(), "samples", "accuracy, four classes", "accuracy, real/fake", "called fake", "no class")
    return Table(title, columns, shown, "95 % Wilson intervals")


def _calls(scores: dict[str, Any]) -> Table:
    calls, knowledge = scores["calls"], scores["knowledge"]
    rows = [
        ("calls a sample, mean / most", f"{_mean(calls['mean'])} / {calls['most'] or UNKNOWN}"),
        ("samples by number of calls", ", ".join(f"{k}: {n}" for k, n in calls["samples_by_calls"].items())),
        ("model time a sample", _seconds(calls["seconds_per_sample"])),
    ]
    if calls["prompt_tokens_per_sample"] is not None:
        both = f"{calls['prompt_tokens_per_sample']:.0f}, {calls['reused_tokens_per_sample']:.0f}"
        rows.append(("tokens of a sample's prompts, of them there from the call before", both))
    if calls["steps"]:
        rows.append(("steps", ", ".join(f"{step} {n}" for step, n in calls["steps"].items())))
        unread = ", ".join(f"{step} {n}" for step, n in calls["unread_conclusions"].items())
        rows.append(("conclusions that say nothing", unread or "none"))
    if knowledge["lookups"]:
        rows.append(("knowledge", ", ".join(f"{status} {n}" for status, n in knowledge["lookups"].items())))
    if knowledge["lookup_ms"] is not None:
        mean = knowledge["lookup_ms"]["mean"]
        rows.append(("a lookup, mean", f"{milliseconds(mean)} ms, not part of the model time"))
    return Table("What a sample took", ("", ""), tuple(rows))


def _mean(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
