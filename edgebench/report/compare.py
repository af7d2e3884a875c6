"""Several runs -> one comparison, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.errors import RunError
from edgebench.metrics.delta import delta, judged
from edgebench.metrics.pareto import COSTS, figures, measure_of, pareto
from edgebench.metrics.summary import summarize
from edgebench.records import CHECKPOINT
from edgebench.report.labels import labels

if TYPE_CHECKING:
    from edgebench.metrics.delta import Judged
    from edgebench.records import Run

MUST_AGREE = (
    "bench",
    "scoring",
    "matcher",
    "prompt_style",
    "image_path",
    "limit",
    "perturbation",
    "equalize",
    "reuse",
    "protocol",
    "prompts",
    "knowledge",
    "subset",
)
"""Settings that change an answer for a reason other than the model, the precision or the runtime."""
SHOWN = 12


def compare(runs: list[Run], *, anyway: bool = False) -> dict[str, Any]:
    """Summaries side by side, and each run paired with the first.

    Args:
        runs: two or more; the first is the base.
        anyway: compare runs of other data, other pixels or other settings too; the differences are listed.

    Raises:
        RunError: they were not asked the same, and `anyway` is not set.
    """
    if len(runs) < 2:
        raise RunError("a comparison takes two runs or more")
    differences = asked_the_same(runs, anyway=anyway)
    summaries = [summarize(run) for run in runs]
    found = pairs(summaries, [judged(run) for run in runs])
    speed = len({run.header.settings.scenario for run in runs}) == 1
    return {"runs": summaries, "pairs": found, "differences": differences, "speed_compared": speed} | overview(
        summaries
    )


def asked_the_same(runs: list[Run], *, anyway: bool) -> list[dict[str, Any]]:
    """What decides an answer and is not the same in all runs; nothing, unless `anyway` is set.

    Raises:
        RunError: something differs, or the base was never compared with its checkpoint, and `anyway` is not set.
    """
    differences = _differences(runs)
    if differences and not anyway:
        named = "; ".join(f"{d['what']}: {' / '.join(map(str, d['values']))}" for d in differences)
        raise RunError(
            f"these runs were not asked the same ({named})", hint="pass --anyway to compare them all the same"
        )
    base = runs[0].header.artifact
    if base is not None and base.parity is None and base.dialect != CHECKPOINT and not anyway:
        raise RunError(
            "the base was never compared with its checkpoint, so a difference from it says nothing",
            where=runs[0].folder,
            hint="export it with --parity, or pass --anyway",
        )
    return differences


def pairs(summaries: list[dict[str, Any]], answers: list[dict[str, Judged]]) -> list[dict[str, Any]]:
    """Each run against the first, question by question."""
    names = labels(summaries)
    base, *others = answers
    return [
        {
            "base": names[0],
            "other": name,
            **delta(base, other),
            "memory": _memory(summaries[0], summary),
            "categories": _categories(summaries[0], summary),
        }
        for name, other, summary in zip(names[1:], others, summaries[1:], strict=True)
    ]


def overview(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of all runs at once: which of them are dominated, and what differs around them."""
    measure = measure_of(summaries)
    points = [figures(s, measure) for s in summaries]
    return {
        "pareto": {
            "measure": measure,
            "points": points,
            "dominated_by": pareto(points),
            **{f"dominated_by_{c}": pareto(points, (c,)) for c in COSTS},
        },
        "one_model": len({_model(s) for s in summaries}) == 1,
        "environment": environment(summaries),
    }


def environment(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Facts of hosts, packages, engines and profiles that are not the same in all runs."""
    facts = [_facts(s) for s in summaries]
    names = dict.fromkeys(name for f in facts for name in f)
    rows = [{"what": name, "values": [f.get(name) for f in facts]} for name in names]
    return [row for row in rows if any(v != row["values"][0] for v in row["values"][1:])]


def _model(summary: dict[str, Any]) -> tuple[Any, ...]:
    """What is the same for all precisions and dialects of one checkpoint."""
    artifact, endpoint = summary["artifact"] or {}, summary["settings"]["endpoint"] or {}
    return artifact.get("source_sha256"), endpoint.get("base_url"), endpoint.get("model")


def _facts(summary: dict[str, Any]) -> dict[str, Any]:
    host: dict[str, Any] = dict(summary["host"] or {})
    packages: dict[str, Any] = host.pop("packages", {})
    settings = summary["settings"]
    return (
        host
        | packages
        | {f"engine: {k}": str(v) for k, v in (summary["engine"] or {}).items()}
        | {name: settings[name] for name in ("engine", "provider", "memory", "scenario", "batch")}
    )


def _memory(base: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    """Ratios other / base. Each is one reading a run, so there is no interval."""
    rows = []
    for name in ("artifact_bytes", "after_load_bytes", "peak_bytes"):
        values = [s["memory"][name] for s in (base, other)]
        ratio = values[1] / values[0] if values[0] and values[1] is not None else None
        rows.append({"what": name, "base": values[0], "other": values[1], "ratio": ratio, "interval": None})
    return rows


def _differences(runs: list[Run]) -> list[dict[str, Any]]:
    found = []
    for name in MUST_AGREE:
        values = [getattr(run.header.settings, name) for run in runs]
        if len(set(values)) > 1:
            found.append({"what": name, "values": values})
    data = [run.header.data.fingerprint for run in runs]
    if len(set(data)) > 1:
        found.append(
            {"what": "data", "values": [f"{run.header.data.name} ({run.header.data.fingerprint[-8:]})" for run in runs]}
        )
    passports = [_passport(run) for run in runs]
    if len(set(passports)) > 1:
        found.append({"what": "preprocessing", "values": passports})
    return found


def _passport(run: Run) -> str:
    """What tells apart how the pictures were made."""
    header = run.header
    if header.settings.endpoint is not None:
        return header.settings.endpoint.passport
    return ((header.artifact and header.artifact.passport) or "none")[:8]


def _categories(base: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for slug, row in base["categories"].items():
        twin = other["categories"].get(slug)
        if twin is None or row["accuracy"] is None or twin["accuracy"] is None or row["accuracy"] == twin["accuracy"]:
            continue
        rows.append(
            {
                "category": slug,
                "answered": row["answered"],
                "base": row["accuracy"],
                "other": twin["accuracy"],
                "difference": twin["accuracy"] - row["accuracy"],
            }
        )
    return sorted(rows, key=lambda r: (-abs(r["difference"]), r["category"]))[:SHOWN]
