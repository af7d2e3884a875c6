"""Runs that differ in one thing, asked side by side: the robustness protocol, and prompt variants.

A sweep is a folder of ordinary runs, one a cell; what is read out of it are those runs alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgebench.errors import UsageError
from edgebench.media.perturb import LEVELS, PROTOCOL, Perturbation
from edgebench.pipeline import run_side_by_side
from edgebench.prompts.variants import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgebench.manifest import Artifact
    from edgebench.plan import Progress, RunPlan

ROBUSTNESS = "robustness"
CLEAN = "clean"


def robustness(plan: RunPlan, artifacts: Sequence[Artifact | None], progress: Progress) -> list[list[Path]]:
    """Clean, and six perturbations at five levels, of each artifact.

    Args:
        plan: of one cell, without a perturbation; its output is the sweep's folder.
        artifacts: one, or the same model in several precisions.
        progress: counts the answers of each artifact's cells.

    Returns:
        For each artifact the folders of its runs: clean first, then by perturbation and level.

    Raises:
        EdgebenchError: of the family that fits. What was answered before stays answered.
    """
    if plan.perturb is not None:
        raise UsageError("--protocol robustness has perturbations of its own", hint="leave --perturb out")
    if plan.scenario != "single-stream":
        raise UsageError("--protocol robustness puts its questions in a way of its own", hint="leave --scenario out")
    cells = [Perturbation(name, level + 1) for name in PROTOCOL for level in range(len(LEVELS[name][1]))]
    found = []
    for artifact, folder in zip(artifacts, _folders(plan, artifacts), strict=True):
        clean = replace(plan, artifact=artifact, protocol=None, output=folder / CLEAN)
        # A model that is elsewhere is asked one question at a time, and has nothing to share.
        cell = clean if plan.endpoint else replace(clean, scenario="offline", batch=1)
        plans = [replace(cell, perturb=str(p), output=folder / f"{p.name}-{p.level}") for p in cells]
        found.append(run_side_by_side([clean, *plans], progress))
    return found


def compare_variants(plan: RunPlan, names: Sequence[str], progress: Progress) -> list[Path]:
    """The plain way to put the questions, and others beside it.

    Args:
        plan: of one cell; its output is the sweep's folder.
        names: of the variants besides the plain one.
        progress: counts the answers of all of them.

    Returns:
        The folders of the runs, the plain one first.

    Raises:
        EdgebenchError: of the family that fits. What was answered before stays answered.
    """
    if plan.output is None:
        raise UsageError("several runs go into one folder", hint="pass -o FOLDER")
    every = dict.fromkeys([DEFAULT, *names])
    plans = [replace(plan, variant=name, output=plan.output / name) for name in every]
    return run_side_by_side([_sharing(p) for p in plans], progress)


def _sharing(plan: RunPlan) -> RunPlan:
    """Cells share work, and their settings say so; of a model that is elsewhere there is nothing to share."""
    return replace(plan, reuse=plan.endpoint == {})


def _folders(plan: RunPlan, artifacts: Sequence[Artifact | None]) -> list[Path]:
    """Where the cells of each artifact lie."""
    if plan.output is None:
        raise UsageError("several runs go into one folder", hint="pass -o FOLDER")
    if len(artifacts) == 1:
        return [plan.output]
    names = [f"{a.manifest.name}-{a.manifest.precision}" for a in artifacts if a is not None]
    if len(set(names)) < len(artifacts):
        raise UsageError("two of these artifacts have one name and one precision", hint="pass each once")
    return [plan.output / name for name in names]
