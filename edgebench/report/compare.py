"""Several runs -> one comparison, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.errors import RunError
from edgebench.metrics.delta import delta, judged
from edgebench.metrics.summary import summarize
from edgebench.records import CHECKPOINT
from edgebench.report.tables import label

if TYPE_CHECKING:
    from edgebench.records import Run

MUST_AGREE = (
    "bench",
    "scoring",
    "matcher",
    "prompt_style",
    "image_path",
    "limit",
    "perturbation",
    "reuse",
    "protocol",
    "prompts",
    "knowledge",
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
    summaries = [summarize(run) for run in runs]
    differences = _differences(runs)
    if differences and not anyway:
        named = "; ".join(f"{d['what']}: {' / '.join(map(str, d['values']))}" for d in differences)
        raise RunError(
            f"these runs were not asked the same ({named})", hint="pass --anyway to compare them all the same"
        )
    base_artifact = runs[0].header.artifact
    unmeasured = base_artifact is not None and base_artifact.parity is None and base_artifact.dialect != CHECKPOINT
    if unmeasured and not anyway:
        raise RunError(
            "the base was never compared with its checkpoint, so a difference from it says nothing",
            where=runs[0].folder,
            hint="export it with --parity, or pass --anyway",
        )
    answers = [judged(run) for run in runs]
    pairs = [
        {
            "base": label(summaries[0]),
            "other": label(summaries[k]),
            **delta(answers[0], answers[k]),
            "categories": _categories(summaries[0], summaries[k]),
        }
        for k in range(1, len(runs))
    ]
    return {"runs": summaries, "pairs": pairs, "differences": differences}


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
