"""A run beside the paper's row of the same model, and which conditions were not the same.

Source: Forensics-Bench (arXiv 2503.15024v2) and MMFakeBench (arXiv 2406.08772); the numbers are in `data/published/`.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.benches.taxonomy import FAMILY, PERSPECTIVES, categories
from edgebench.errors import UsageError, did_you_mean
from edgebench.metrics.forensics import overall, perspective
from edgebench.metrics.mmfakebench import BENCH as MMFAKEBENCH

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).resolve().parent.parent / "data" / "published"
ATTRIBUTION = "attribution"
FORENSICS, FORENSICS_SOURCE = "forensics", "Forensics-Bench, arXiv 2503.15024v2, Tables 2 and 15 to 26"
MMFAKEBENCH_SOURCE = "MMFakeBench, arXiv 2406.08772, Tables 2 to 6"
QUESTIONS = {"val": 1000, "test": 10_000}
JUDGE = "forensicsbench-2025, then ChatGPT as the judge"
CLASS_OF = {"real": "original", "tvd": "textual", "vvd": "visual", "ccd": "mismatch"}
Condition = dict[str, Any]


def published(summary: Mapping[str, Any], name: str | None = None) -> dict[str, Any] | None:
    """The paper's numbers beside those of a run.

    Args:
        summary: see `edgebench.metrics.summary`.
        name: the paper's name of a model; None: the one that the run's recipe or endpoint is known by.

    Returns:
        None where the run's benchmark or model is in neither paper, or too little was answered.

    Raises:
        UsageError: a name was given and the paper has no such model, or the benchmark has no paper.
    """
    bench = summary["settings"]["bench"]
    if name is None and bench not in {FORENSICS, MMFAKEBENCH}:
        return None
    if name is not None and bench not in {*FAMILY, MMFAKEBENCH}:
        raise UsageError(f"nothing is published about the bench {bench!r}", hint="leave --published out")
    known = _names(bench)
    model = known_as(summary, bench) if name is None else known.get(name.casefold())
    if model is None:
        if name is None:
            return None
        raise UsageError(f"the paper has no model {name!r}", hint=did_you_mean(name, set(known.values())))
    return _mmfakebench(summary, model) if bench == MMFAKEBENCH else _forensics(summary, model)


@lru_cache(maxsize=16)
def table(name: str) -> tuple[dict[str, str], ...]:
    """One of the published tables, a dict a row, as printed."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


def _names(bench: str) -> dict[str, str]:
    """Casefolded -> the paper's name of a model."""
    if bench == MMFAKEBENCH:
        rows = [_whole(row) for row in table("mmfakebench_published_multiclass")]
        rows += [row["detector"] for row in table("mmfakebench_published_detectors") if row["trained_on"] != "corpus"]
    else:
        rows = [row["model"] for row in table("forensics_published_scores")]
    return {name.casefold(): name for name in rows}


def _whole(row: Mapping[str, str]) -> str:
    """MMFakeBench names a model by its family and its language model."""
    return f"{row['model']} {row['language_model']}".strip()


def known_as(summary: Mapping[str, Any], bench: str) -> str | None:
    """The paper's name of a run's model, by its recipe's or its endpoint's."""
    artifact, endpoint = summary["artifact"], summary["settings"]["endpoint"]
    own = endpoint["model"] if endpoint is not None else None if artifact is None else artifact["name"]
    if own is None:
        return None
    if bench == MMFAKEBENCH and str(summary["settings"]["protocol"] or "").startswith("mixed"):
        return "Mixed Detection"
    own = own.casefold().rpartition("/")[2]
    column = MMFAKEBENCH if bench == MMFAKEBENCH else FORENSICS
    found = {row["name"]: row[column] for row in table("names")}.get(own)
    return found or _names(bench).get(own)


def percent_of(text: str | None) -> float | None:
    """A fraction of a table's percentage; None where it has none."""
    return float(text) / 100 if text else None


def _row(what: str, paper: float | None, same: float | None, run: float | None, interval: Any = None) -> dict[str, Any]:
    difference = None if run is None or same is None else run - same
    return {
        "what": what,
        "published": paper,
        "published_over_what_was_asked": same,
        "run": run,
        "interval": interval,
        "difference": difference,
    }


def plain(what: str, paper: float | None, run: float | None, interval: Any = None) -> dict[str, Any]:
    """A row of a paper that has no numbers of a part of its questions: the difference is to the whole."""
    return _row(what, paper, paper, run, interval) | {"published_over_what_was_asked": None}


def _forensics(summary: Mapping[str, Any], model: str) -> dict[str, Any] | None:
    scores = summary["scores"].get("forensics")
    if scores is None:
        return None
    protocol = summary["settings"]["protocol"]
    if protocol is not None:
        return _attribution(summary, model) if protocol.startswith(ATTRIBUTION) else None
    paper = next(row for row in table("forensics_published_scores") if row["model"] == model)
    by_code = next(row for row in table("forensics_published_accuracy") if row["model"] == model)
    every = {slug: float(by_code[kind.code]) / 100 for slug, kind in categories().items()}
    asked = {slug: row["answered"] for slug, row in summary["categories"].items() if row["answered"]}
    same = {slug: every[slug] for slug in asked if slug in every} if set(asked) <= set(every) else {}
    rows = [
        _row(
            "overall",
            percent_of(paper["overall"]),
            overall(same, asked),
            scores["overall"],
            summary["summary"]["accuracy_interval"],
        )
    ]
    for name in PERSPECTIVES:
        own = percent_of(paper["model_perspective" if name == "model" else name])
        rows.append(_row(name, own, perspective(same, name)[0], scores["perspectives"][name]["score"]))
    everything, over_asked = perspective(every, "task")[1], perspective(same, "task")[1]
    for task, value in everything.items():
        run = scores["perspectives"]["task"]["values"].get(task)
        rows.append(_row(f"task {task}", value, over_asked.get(task), run))
    return {
        "model": model,
        "source": FORENSICS_SOURCE,
        "rows": rows,
        "conditions": conditions(summary, forensics_asked(model), sum(c.samples for c in categories().values())),
        "note": "the published numbers are also given over the categories that were asked, each as often as here; the difference is to those",
    }


def _attribution(summary: Mapping[str, Any], model: str) -> dict[str, Any] | None:
    """Which forgery model was it: the paper has four models, and of introductions the overall score alone."""
    paper = next((row for row in table("forensics_published_attribution") if row["model"] == model), None)
    if paper is None:
        return None
    scores, introduced = summary["scores"]["forensics"], "introductions" in summary["settings"]["protocol"]
    own = percent_of(paper["overall_with_introductions" if introduced else "overall"])
    rows = [plain("overall", own, scores["overall"], summary["summary"]["accuracy_interval"])]
    for name in () if introduced else PERSPECTIVES:
        own = percent_of(paper["model_perspective" if name == "model" else name])
        rows.append(plain(name, own, scores["perspectives"][name]["score"]))
    asked = forensics_asked(model) | {"protocol": None}
    return {
        "model": model,
        "source": "Forensics-Bench, arXiv 2503.15024v2, Tables 4 and 13",
        "rows": rows,
        "conditions": conditions(summary, asked, None),
        "note": "which options the paper drew is not known",
    }


def forensics_asked(model: str) -> dict[str, Any]:
    """How the paper asked; None is not stated."""
    asking = next(row for row in table("forensics_asking") if row["model"] == model)
    return {
        "bench": FORENSICS,
        "scoring": "generate",
        "matcher": JUDGE,
        "image_path": "official-jpeg75",
        "prompts": "the question alone",
        "prompt_style": asking["prompt_style"] or None,
        "max_new_tokens": int(asking["max_new_tokens"]) if asking["max_new_tokens"] else None,
    }


def _mmfakebench(summary: Mapping[str, Any], model: str) -> dict[str, Any] | None:
    scores, settings = summary["scores"].get(MMFAKEBENCH), summary["settings"]
    if scores is None or scores["binary"] is None:
        return None
    split = _split(summary["data"])
    asked: dict[str, Any] = {"bench": MMFAKEBENCH}
    detector = next((row for row in table("mmfakebench_published_detectors") if row["detector"] == model), None)
    rows = []
    if detector is not None:
        for key, kind in (("multiclass_f1", "multiclass"), ("binary_f1", "binary")):
            paper, own = percent_of(detector[key]), scores[kind] or {}
            rows.append(plain(f"macro F1, {_KIND[kind]}", paper, own.get("f1"), own.get("f1_interval")))
        split = "val"
    else:
        agent = settings["protocol"] == "mmd-agent"
        prompting = "MMD-Agent" if agent else "-" if model == "Human" else "Standard"
        asked |= {
            "scoring": "generate",
            "matcher": "mmfakebench-2024",
            "image_path": "lossless",
            "max_new_tokens": 512,
            "protocol": prompting.lower(),
            "prompts": "the paper's own words",
        }
        if agent:
            asked["knowledge"] = "wikipedia"
        for kind in ("multiclass", "binary"):
            found = [
                r for r in table(f"mmfakebench_published_{kind}") if (_whole(r), r["prompting"]) == (model, prompting)
            ]
            for key in _MEASURES if found else ():
                paper, own = percent_of(found[0][f"{split}_{key}"]), scores[kind] or {}
                interval = own.get("f1_interval") if key == "f1" else None
                what = f"{_MEASURES[key]}, {_KIND[kind]}"
                rows.append(plain(what, paper, own.get(key), interval))
        rows += _short(scores, model, prompting, split)
    if not rows:
        return None
    return {
        "model": model,
        "source": f"{MMFAKEBENCH_SOURCE}, {'validation' if split == 'val' else 'test'}",
        "rows": rows,
        "conditions": conditions(summary, asked, QUESTIONS[split]),
        "note": "the published numbers are over the whole split",
        "costs": _costs(summary, model, settings["protocol"]),
    }


def _costs(summary: Mapping[str, Any], model: str, protocol: str | None) -> list[dict[str, Any]]:
    """Seconds and memory of a sample, where the paper has them; its device is not stated beside them."""
    name = next((row["mmfakebench_short"] for row in table("names") if row[MMFAKEBENCH] == model), None)
    for row in table("mmfakebench_published_efficiency"):
        if (row["model"], row["prompting"].casefold()) == (name, protocol):
            calls, peak = summary["scores"][MMFAKEBENCH]["calls"], summary["memory"]["peak_bytes"]
            return [
                {
                    "what": "seconds a sample",
                    "published": float(row["seconds_per_sample"]),
                    "run": calls["seconds_per_sample"],
                },
                {
                    "what": "memory, GB",
                    "published": float(row["memory_gb"]),
                    "run": None if peak is None else peak / 1e9,
                },
            ]
    return []


_MEASURES = {"f1": "macro F1", "precision": "macro precision", "recall": "macro recall", "accuracy": "accuracy"}
_KIND = {"multiclass": "four classes", "binary": "real/fake"}


def _split(data: Mapping[str, Any]) -> str:
    said = re.search(r"val|test", data["name"].casefold())
    return said[0] if said else "val" if data["questions"] <= QUESTIONS["val"] else "test"


def _short(scores: Mapping[str, Any], model: str, prompting: str, split: str) -> list[dict[str, Any]]:
    """F1 of each class (validation) and the rates of following (standard prompt), where the paper has them."""
    name = next((row["mmfakebench_short"] for row in table("names") if row[MMFAKEBENCH] == model), None)
    rows = []
    for row in table("mmfakebench_published_per_source_f1"):
        if (row["model"], row["prompting"]) == (name, prompting) and split == "val" and scores["multiclass"]:
            for key, own in CLASS_OF.items():
                paper = percent_of(row[key])
                rows.append(plain(f"F1 of {own}", paper, scores["multiclass"]["classes"][own]["f1"]))
    for row in table("mmfakebench_published_following") if prompting == "Standard" else ():
        if row["model"] == name:
            for key in ("match_rate", "consistency_rate"):
                paper = percent_of(row[key])
                rows.append(plain(key.replace("_", " "), paper, scores[key]))
    return rows


def conditions(summary: Mapping[str, Any], asked: Mapping[str, Any], questions: int | None) -> list[Condition]:
    """What the paper did and what the run did; `same` is None where one of them is not known."""
    settings, artifact, s = summary["settings"], summary["artifact"], summary["summary"]
    if asked["bench"] == FORENSICS:
        settings = settings | {"prompts": settings["prompts"] or asked["prompts"]}
    found = [_condition(what.replace("_", " "), value, settings[what]) for what, value in asked.items()]
    found.append(_condition("precision", None, None if artifact is None else artifact["precision"]))
    for what in ("perturbation", "equalize"):
        found.append(_condition(what, "none", settings[what] or "none"))
    if settings["endpoint"] is not None:
        sent = settings["endpoint"]
        found.append(_condition("pictures sent as", None, f"{sent['image']}, longest side {sent['max_side'] or 'own'}"))
    found.append(_condition("questions answered", questions, s["answered"]))
    return found


def _condition(what: str, paper: Any, run: Any) -> Condition:
    return {
        "what": what,
        "published": paper,
        "run": run,
        "same": None if paper is None or run is None else str(paper) == str(run),
    }
