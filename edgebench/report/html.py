"""One self-contained page about one run or several: no script, no request, every text escaped."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.errors import MissingExtraError
from edgebench.metrics.delta import SPEEDS, delta, judged
from edgebench.metrics.latency import ESTIMATORS
from edgebench.metrics.pareto import BALANCED
from edgebench.report import plots
from edgebench.report.compare import asked_the_same, overview, pairs
from edgebench.report.delta import delta_tables, points
from edgebench.report.heat import heat, shares
from edgebench.report.labels import distinct, labels, short
from edgebench.report.overview import answered, front_note, limit_cell, numbers, overview_tables, scored_alone
from edgebench.report.render import clean
from edgebench.report.robustness import curves, robustness_table
from edgebench.report.tables import STAGE_NAMES, UNKNOWN, Table, mebibytes, milliseconds, percent, run_tables
from edgebench.report.thermal import thermal_table, traces

if TYPE_CHECKING:
    from edgebench.metrics.delta import Judged
    from edgebench.records import Run

LONG_WORD = 24
"""A longer word may be broken anywhere; a shorter one is wide enough to be kept whole."""
NAMED = 4
"""Runs that are named in a line on top, unless there are more."""
TEMPLATE = Path(__file__).resolve().parent.parent / "data" / "report.html"


def html(runs: list[Run], summaries: list[dict[str, Any]], *, anyway: bool = False) -> str:
    """The page.

    Args:
        runs: the first one without a perturbation is the base; perturbed ones give the robustness curves.
        summaries: of the same runs, see `edgebench.metrics.summary`.
        anyway: show runs that were not asked the same; the differences are listed on top.

    Raises:
        RunError: a run is damaged, or they were not asked the same, and `anyway` is not set.
        MissingExtraError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("--html needs matplotlib", hint="pip install 'edgebench[report]'")
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["clean"] = clean
    environment.filters["cell"] = _cell
    environment.tests["long"] = lambda text: max(map(len, text.split()), default=0) > LONG_WORD
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(_page(runs, summaries, anyway=anyway)) + "\n"


def _cell(text: str) -> str:
    """A cell's text; an interval and a number with its unit stay on one line."""
    shown = re.sub(r"\[[^\[\]]{1,24}\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), clean(text))
    return re.sub(r"(?<=\d) (?=(?:%|ms|s|x|MiB|KiB|points)(?:\W|$))", "\N{NO-BREAK SPACE}", shown)


def _page(runs: list[Run], every_summary: list[dict[str, Any]], *, anyway: bool) -> dict[str, Any]:
    every_answer = [judged(run) for run in runs]
    every_name = [clean(name) for name in distinct(labels(every_summary))]
    main = [k for k, run in enumerate(runs) if run.header.settings.perturbation is None] or list(range(len(runs)))
    differences = asked_the_same([runs[k] for k in main], anyway=anyway) if len(main) > 1 else []
    summaries, answers = [every_summary[k] for k in main], [every_answer[k] for k in main]
    names = [clean(name) for name in distinct(labels(summaries))]
    found = pairs(summaries, answers)
    over = overview(summaries)
    sections = [
        _tradeoffs(summaries, over, names),
        _stages(summaries, names),
        _distribution(answers, summaries, names),
        *_types(found, answers, names, paired=bool(found) and over["one_model"]),
        *_robustness(runs, every_answer, every_name, main),
        *_thermal([runs[k] for k in main], summaries, names),
    ]
    return {
        "title": _title(summaries),
        "facts": _facts(summaries),
        "warnings": _warnings(every_summary, every_name, differences, one_model=over["one_model"]),
        "glance": _glance(summaries, found, over, names),
        "legend": _legend(names),
        "sections": sections,
        "pairs_title": "What changed against the base"
        if over["one_model"]
        else "Question by question, beside the first",
        "pairs": [
            (f"{names[0]} → {name}", delta_tables(p)[: None if over["one_model"] else 1])
            for name, p in zip(names[1:], found, strict=True)
        ],
        "environment": overview_tables(over, summaries, names)[1:],
        "details": [(name, run_tables(s)) for name, s in zip(every_name, every_summary, strict=True)],
        "estimators": ESTIMATORS,
        "version": summaries[0]["edgebench"],
    }


def _legend(names: list[str]) -> list[dict[str, Any]]:
    many = len(names) > 1
    return [
        {"glyph": plots.GLYPHS[k % 8] + (f" {k + 1}" if many else ""), "colour": f"series-{k % 8}", "name": name}
        for k, name in enumerate(names)
    ]


def _title(summaries: list[dict[str, Any]]) -> str:
    models = dict.fromkeys((s["artifact"] or {}).get("name") or "no model" for s in summaries)
    benches = dict.fromkeys(s["settings"]["bench"] for s in summaries)
    shown = ", ".join(models) if len(models) <= 3 else f"{len(models)} models"
    return f"{shown} on {', '.join(benches)}"


def _facts(summaries: list[dict[str, Any]]) -> list[str]:
    """What stands under the title."""
    hosts = [s["host"] for s in summaries if s["host"]]
    devices = dict.fromkeys(f"{h['device_model'] or h['cpu'] or UNKNOWN}, {h['logical_cores']} cores" for h in hosts)
    engines = dict.fromkeys(s["settings"]["engine"] for s in summaries)
    dates = sorted(s["created"][:10] for s in summaries)
    questions = sorted({s["summary"]["questions"] for s in summaries})
    return [
        f"{len(summaries)} {'run' if len(summaries) == 1 else 'runs'}",
        f"{' / '.join(map(str, questions))} questions",
        f"engine {', '.join(engines)}",
        *devices,
        dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    ]


def _warnings(
    summaries: list[dict[str, Any]], names: list[str], differences: list[dict[str, Any]], *, one_model: bool
) -> list[str]:
    """What stands on top; what several runs have in common is said once."""
    found = [
        "the models are compared as wholes: each has its own preprocessing"
        if d["what"] == "preprocessing" and not one_model
        else f"not the same {d['what']}: {' / '.join(map(str, d['values']))}"
        for d in differences
    ]
    said: dict[str, list[str]] = {}
    for summary, name in zip(summaries, names, strict=True):
        s = summary["summary"]
        texts = list(summary["notes"])
        if not s["complete"]:
            texts.append(f"{s['questions']} of {summary['data']['questions']} questions, not finished")
        if s["failed"]:
            texts.append(f"{s['failed']} of {s['questions']} questions failed and are left out")
        if summary["validity"]["timing"] == "invalid":
            texts.append(f"its times are INVALID: {'; '.join(summary['validity']['reasons'])}")
        for text in texts:
            said.setdefault(text, []).append(name)
    invalid = [text for text in said if text.startswith("its times are INVALID")]
    if len(invalid) > NAMED:
        runs = sum(len(said.pop(text)) for text in invalid)
        found.append(f"the times of {runs} of {len(summaries)} runs are INVALID: each says why below")
    return found + [
        f"{', '.join(who) if len(who) <= NAMED else f'{len(who)} of {len(summaries)} runs'}: {text}"
        for text, who in said.items()
    ]


def _glance(
    summaries: list[dict[str, Any]], found: list[dict[str, Any]], over: dict[str, Any], names: list[str]
) -> dict[str, Any]:
    """The first table: a line a run, what a decision needs. Runs of different models have no base."""
    front = over["pareto"]
    paired = bool(found) and over["one_model"]
    scored = scored_alone(front)
    limited = any(p["latency_ms_least"] is not None for p in front["points"])
    partly = len({s["summary"]["answered"] for s in summaries}) > 1
    columns = [
        front["measure"],
        *(["AUROC"] if scored else []),
        *(["answered"] if partly else []),
        *(["against the base"] if paired else []),
        "total p50 / p90",
        *(["limit (estimate)"] if limited else []),
        *(["time, ratio"] if paired else []),
        "peak memory",
        "on disk",
        *(["Pareto front"] if found else []),
    ]
    rows = []
    for k, (s, point, beaten) in enumerate(zip(summaries, front["points"], front["dominated_by"], strict=True)):
        total, pair = s["latency_ms"].get("total") or {}, found[k - 1] if k and found else None
        speed = next((r for r in pair["speed"] if r["what"] == "total"), None) if pair else None
        cells = [percent(point["accuracy"], point["accuracy_interval"])]
        if scored:
            cells.append(percent(s["scores"]["binary"]["auroc"], s["scores"]["binary"]["auroc_interval"]))
        if partly:
            cells.append(answered(s))
        if paired:
            cells.append("base" if pair is None else _change(pair["paired"]))
        cells.append(" / ".join(milliseconds(total.get(f"p{q}")) for q in (50, 90)) + " ms")
        if limited:
            cells.append(limit_cell(point, " ms"))
        if paired:
            cells.append("base" if pair is None else _ratio(speed))
        cells += [mebibytes(s["memory"]["peak_bytes"]), mebibytes(s["memory"]["artifact_bytes"])]
        if found:
            cells.append(UNKNOWN if beaten is None else f"dominated by {numbers(beaten)}" if beaten else "on it")
        rows.append({**_legend(names)[k], "cells": cells})
    return {"columns": columns, "rows": rows, "note": front_note(front["measure"]) if found else ""}


def _change(paired: dict[str, Any]) -> str:
    if paired["difference"] is None:
        return "no common questions"
    return f"{points(paired['difference'], paired['difference_interval'])}: {paired['verdict']}"


def _ratio(speed: dict[str, Any] | None) -> str:
    if speed is None or speed["ratio"] is None:
        return UNKNOWN
    interval = speed["interval"]
    return f"{speed['ratio']:.2f}" + ("" if interval is None else f"  [{interval[0]:.2f}, {interval[1]:.2f}]")


def _tradeoffs(summaries: list[dict[str, Any]], over: dict[str, Any], names: list[str]) -> dict[str, Any]:
    front, measure = over["pareto"], over["pareto"]["measure"]
    shown = [
        p | {"memory_mib": None if p["memory_bytes"] is None else p["memory_bytes"] / 2**20} for p in front["points"]
    ]
    most = max(s["summary"]["answered"] for s in summaries)
    sized = len({p["memory_bytes"] for p in shown} - {None}) > 1
    figures = []
    for x, cost, label, words in (
        ("latency_ms", "latency_ms", "total p50, ms", "latency"),
        ("memory_mib", "memory_bytes", "engine process, peak, MiB", "memory"),
    ):
        best = [k for k, beaten in enumerate(front[f"dominated_by_{cost}"]) if beaten == []]
        titles = [
            f"{name}: {percent(p['accuracy'])}, {UNKNOWN if p[x] is None else f'{p[x]:.3g}'} {label.rpartition(' ')[2]}"
            + (f", {mebibytes(p['memory_bytes'])}" if x == "latency_ms" else "")
            for name, p in zip(names, shown, strict=True)
        ]
        if any(p["accuracy"] is not None and p[x] is not None for p in shown):
            picture = plots.tradeoff(
                shown,
                x=x,
                x_label=label,
                y_label=measure,
                front=best,
                titles=titles,
                sized=sized and x == "latency_ms",
                chance=0.5 if measure == BALANCED else None,
            )
            figures.append((f"{measure.capitalize()} against {words}", picture))
    text = ["Bars are 95 % intervals."]
    if sized:
        sizes = sorted(p["memory_bytes"] for p in shown if p["memory_bytes"] is not None)
        text.append(
            f"Against latency, the larger a mark, the more memory its process needed ({mebibytes(sizes[0])} to {mebibytes(sizes[-1])})."
        )
    if any(p["latency_ms_least"] is not None for p in shown):
        text.append(
            "The tick to the left of a mark is the physical limit: what this device cannot beat, an estimate without "
            "the decoding of pictures."
        )
    if len(names) > 1:
        text.append("The dashed line is the Pareto front of the picture; hollow marks lie behind it.")
    return {
        "title": "Accuracy, latency, memory",
        "text": " ".join(text),
        "figures": figures,
        "legend": _legend(
            [
                name if s["summary"]["answered"] == most else f"{name}, {answered(s)}"
                for name, s in zip(names, summaries, strict=True)
            ]
        ),
        "tables": [],
    }


def _stages(summaries: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    means = [
        {k: row["mean"] for k, row in s["latency_ms"].items() if k in plots.STAGES and row["mean"] is not None}
        for s in summaries
    ]
    shown = [stage for stage in STAGE_NAMES if any(s["latency_ms"].get(stage) for s in summaries)]
    rows = [
        (name, *(UNKNOWN if (c := s["latency_ms"].get(stage)) is None else milliseconds(c["mean"]) for stage in shown))
        for name, s in zip(names, summaries, strict=True)
    ]
    seen = [k for k, stage in enumerate(plots.STAGES) if any(stage in m for m in means)]
    return {
        "title": "Where the time goes",
        "text": "Mean time of a question by stage. Means add up to the total; percentiles do not.",
        "figures": [("Stages", plots.stages(means, short(names)))] if seen else [],
        "legend": [{"glyph": "■", "colour": f"stage-{k}", "name": plots.STAGES[k]} for k in seen],
        "tables": [Table("Mean, ms a question", ("run", *(STAGE_NAMES[stage] for stage in shown)), tuple(rows))],
    }


def _distribution(
    answers: list[dict[str, Judged]], summaries: list[dict[str, Any]], names: list[str]
) -> dict[str, Any]:
    drawn, numbers = [], []
    for k, given in enumerate(answers):
        times = [j.times_ns["total"] / 1e6 for j in given.values() if "total" in j.times_ns]
        if times:
            across = list(plots.quantiles(times))
            drawn.append(([t for t, _ in across], [share for _, share in across]))
            numbers.append(k)
    rows = []
    for what in SPEEDS:
        for k, name in enumerate(names):
            row = summaries[k]["latency_ms"].get(what)
            if row is not None:
                rows.append((STAGE_NAMES[what], name, *(_with_interval(row, q) for q in (50, 90, 99)), str(row["n"])))
    columns = ("time", "run", "p50", "p90", "p99", "n")
    note = "nearest rank; 95 % order-statistic intervals; '–' where there are too few samples"
    return {
        "title": "How latency is spread",
        "text": "The share of questions that took so long or less.",
        "figures": [("Total time of a question", plots.distribution(drawn, numbers, "total, ms"))] if drawn else [],
        "legend": _legend(names),
        "tables": [Table("Percentiles, ms", columns, tuple(rows), note)],
    }


def _with_interval(row: dict[str, Any], q: int) -> str:
    interval = row[f"p{q}_interval"]
    ends = UNKNOWN if interval is None else ", ".join(milliseconds(v) for v in interval)
    return UNKNOWN if row[f"p{q}"] is None else f"{milliseconds(row[f'p{q}'])}  [{ends}]"


def _types(
    found: list[dict[str, Any]], answers: list[dict[str, Judged]], names: list[str], *, paired: bool
) -> list[dict[str, Any]]:
    cards = found if paired else [delta(given, given) for given in answers]
    groups = [
        (heat if paired else shares)(title, [card[key] for card in cards])
        for key, title in (("by_task", "task"), ("by_kind", "forgery type"))
        if len(cards[0][key]) > 1
    ]
    if not groups:
        return []
    text = "Accuracy in percent."
    if paired:
        text += (
            " Against the base: percentage points over the same questions, '=' where no answer changed; bold where McNemar's exact p is below 0.05, "
            "of each row alone, not corrected for how many rows there are."
        )
    return [
        {
            "title": "Which forgeries",
            "text": text,
            "figures": [],
            "legend": [],
            "tables": [],
            "heat": {"names": _legend(names), "groups": groups},
        }
    ]


def _robustness(
    runs: list[Run], answers: list[dict[str, Judged]], names: list[str], main: list[int]
) -> list[dict[str, Any]]:
    sections = []
    every = curves(runs, answers, names)
    ends = [
        end
        for found in every.values()
        for curve in found
        for row in curve["levels"]
        for end in (row["accuracy"], *(row["interval"] or ()))
    ]
    within = (max(0, min(ends) - 0.02), min(1, max(ends) + 0.02)) if ends else None
    for perturbation, found in every.items():
        taken = {main.index(c["run"]) for c in found if c["run"] in main}
        free = iter(k for k in range(len(found) + len(taken)) if k not in taken)
        numbers = [main.index(c["run"]) if c["run"] in main else next(free) for c in found]
        legend = [
            {"glyph": plots.GLYPHS[k % 8], "colour": f"series-{k % 8}", "name": c["label"]}
            for k, c in zip(numbers, found, strict=True)
        ]
        sections.append(
            {
                "title": f"Robustness: {clean(perturbation)}",
                "text": "Accuracy against the level of the perturbation, over the questions that all levels answered; all on one "
                "scale.",
                "figures": [(f"Accuracy against {clean(perturbation)}", plots.levels(found, numbers, within=within))],
                "legend": legend,
                "tables": [robustness_table(perturbation, found)],
            }
        )
    return sections


def _thermal(runs: list[Run], summaries: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    found = traces(runs)
    if not found:
        return []
    drawn = [
        (f"{t['what'].capitalize()} over the run", plots.trace(t["lines"], f"{t['what']}, {t['unit']}")) for t in found
    ]
    return [
        {
            "title": "The machine meanwhile",
            "text": "Of the hottest sensor and the fastest CPU; dashed lines are the GPU's. A clock that falls as the "
            "temperature rises is a machine that was held back.",
            "figures": drawn,
            "legend": _legend(names),
            "tables": [thermal_table(found, summaries, names)],
        }
    ]
