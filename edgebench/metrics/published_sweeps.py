"""A robustness run, or prompt variants, beside the paper's rows of the same model.

Source: Forensics-Bench (arXiv 2503.15024v2), Tables 3, 11, 12 and 14. What the baselines of the prompting tables are
means of was found from Tables 15 to 26: over all questions (forensic prompt), and the plain mean over the categories of
videos (several pictures); no mean over them gives those of the boxes, so that scope is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.benches.taxonomy import categories
from edgebench.metrics.published import conditions, forensics_asked, known_as, percent_of, plain, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Summary = Mapping[str, Any]

BENCH = "forensics"
EXPERIMENTS = {
    "forensic-hint": ("forensic_prompt", "all questions"),
    "separate-frames": ("single_image_to_multi_images", "videos, plain mean over categories"),
    "visual-prompt": ("visual_prompt_boxes", "binary questions of human subjects; the paper's scope is not known"),
}
"""Variant -> the experiment's name in the table, and what is averaged."""


def published_robustness(cells: Sequence[tuple[str | None, Summary]], name: str | None = None) -> dict[str, Any] | None:
    """The paper's averages over five levels beside those of a run.

    Args:
        cells: (perturbation such as 'noise:3', or None for clean; the run's summary), of one artifact.
        name: the paper's name of the model; None: the one that the recipe or endpoint is known by.

    Returns:
        None where the paper has no such row, or the clean run is not of Forensics-Bench.
    """
    clean = next((summary for cell, summary in cells if cell is None), None)
    if clean is None or clean["settings"]["bench"] != BENCH:
        return None
    model = name or known_as(clean, BENCH)
    paper = next((row for row in table("forensics_published_robustness") if row["model"] == model), None)
    if paper is None or model is None:
        return None
    own = next(row for row in table("forensics_published_scores") if row["model"] == model)
    whole = percent_of(own["overall"])
    rows = [plain("clean", whole, clean["summary"]["accuracy"], clean["summary"]["accuracy_interval"])]
    for kind, value in paper.items():
        if kind == "model":
            continue
        mine = [summary["summary"]["accuracy"] for cell, summary in cells if cell and cell.partition(":")[0] == kind]
        average = sum(mine) / len(mine) if mine and None not in mine else None
        rows.append(plain(f"{kind}, mean of {len(mine)} levels", percent_of(value), average))
        lost, lost_here = _fall(whole, percent_of(value)), _fall(clean["summary"]["accuracy"], average)
        rows.append(plain(f"{kind}, lost against clean", lost, lost_here))
    asked = forensics_asked(model)
    questions = sum(c.samples for c in categories().values())
    return {
        "model": model,
        "source": "Forensics-Bench, arXiv 2503.15024v2, Tables 2 and 3",
        "rows": rows,
        "conditions": conditions(clean, asked, questions),
        "note": "the paper's seeds, and whether it perturbed before or after its own JPEG pass, are not known",
    }


def published_variants(
    names: Sequence[str], summaries: Sequence[Summary], name: str | None = None
) -> dict[str, Any] | None:
    """What a variant changed in the paper, beside what it changed here.

    Args:
        names: of the variants; the first is the plain way.
        summaries: of their runs.
        name: see `published_robustness`.

    Returns:
        None where the paper has tried none of these variants with this model.
    """
    base = summaries[0]
    if base["settings"]["bench"] != BENCH:
        return None
    model = name or known_as(base, BENCH)
    rows = []
    for variant, summary in zip(names[1:], summaries[1:], strict=True):
        experiment, scope = EXPERIMENTS.get(variant, (None, ""))
        for row in table("forensics_published_prompting"):
            if (row["model"], row["experiment"]) != (model, experiment):
                continue
            before, after = percent_of(row["baseline"]), percent_of(row["changed"])
            here = [_scope(s, variant) for s in (base, summary)]
            rows.append(plain(f"{variant}: before ({scope})", before, here[0]))
            rows.append(plain(f"{variant}: with it", after, here[1]))
            rows.append(plain(f"{variant}: gained", _fall(after, before), _fall(here[1], here[0])))
    if not rows or model is None:
        return None
    return {
        "model": model,
        "source": "Forensics-Bench, arXiv 2503.15024v2, Tables 11, 12 and 14",
        "rows": rows,
        "conditions": conditions(base, forensics_asked(model), None),
        "note": "where the paper put the sentence, and its boxes and their wording, are not known",
    }


def _scope(summary: Summary, variant: str) -> float | None:
    """Accuracy over what the paper's experiment was about."""
    known = categories()
    rows = [(known[slug], r) for slug, r in summary["categories"].items() if slug in known and r["answered"]]
    if variant == "separate-frames":
        each = [r["accuracy"] for kind, r in rows if kind.modality == "VID"]
        return sum(each) / len(each) if each else None
    if variant == "visual-prompt":
        rows = [(kind, r) for kind, r in rows if (kind.semantic, kind.task) == ("HS", "BC")]
    answered = sum(r["answered"] for _, r in rows)
    return sum(r["accuracy"] * r["answered"] for _, r in rows) / answered if answered else None


def _fall(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
