"""The runs below a folder: found, filtered and summed up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from edgebench.convert.rows import run_row
from edgebench.convert.tables import names
from edgebench.errors import RunError, UsageError
from edgebench.metrics.summary import summarize
from edgebench.records import HEADER, Run

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Found:
    """What lies below a folder."""

    runs: list[Run] = field(default_factory=list)
    """Newest first."""
    damaged: list[str] = field(default_factory=list)
    """Why a folder that should be a run is none."""


def find(folder: Path, **wanted: str | None) -> Found:
    """Runs whose headers fit.

    Args:
        folder: searched at any depth; links are not followed.
        wanted: model, engine, precision, bench: equal; since, until: ISO dates. None is any.

    Raises:
        UsageError: there is no such folder, or a date is none.
    """
    if not folder.is_dir():
        raise UsageError("is no folder", where=folder, hint="pass the folder that holds the runs")
    since, until = _date(wanted.get("since")), _date(wanted.get("until"))
    found = Found()
    for path in sorted(folder.rglob(HEADER)):
        try:
            run = Run(path.parent)
        except RunError as error:
            found.damaged.append(str(error))
            continue
        header, artifact = run.header, run.header.artifact
        facts = {
            "model": artifact and artifact.name,
            "precision": artifact and artifact.precision,
            "engine": header.settings.engine,
            "bench": header.settings.bench,
        }
        day = header.created[:10]
        if any(wanted.get(k) not in {None, v} for k, v in facts.items()):
            continue
        if (since and day < since) or (until and day > until):
            continue
        found.runs.append(run)
    found.runs.sort(key=lambda run: run.header.created, reverse=True)
    return found


def rows_of(runs: list[Run], *, device: str | None) -> tuple[list[Run], list[dict[str, Any]]]:
    """Each run with its row; only those on a device whose name holds `device`.

    Raises:
        RunError: records are damaged.
    """
    kept = []
    for run, name in zip(runs, names(runs), strict=True):
        row = run_row(run, summarize(run), name=name)
        if device is None or device.lower() in (row["device"] or "").lower():
            kept.append((run, row))
    return [run for run, _ in kept], [row for _, row in kept]


def _date(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UsageError(f"{text!r} is no date", hint="write it as 2026-05-01") from error
