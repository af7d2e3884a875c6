"""Names of models and data as file names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgebench.records import Run


def model_name(run: Run) -> str:
    """Model, precision and engine, and the perturbation where there is one."""
    artifact, settings = run.header.artifact, run.header.settings
    parts = ["no-model"] if artifact is None else [artifact.name, artifact.precision]
    return _safe("-".join([*parts, settings.engine, *([settings.perturbation] if settings.perturbation else [])]))


def dataset_name(run: Run) -> str:
    """The data's name without its suffix; of a generated benchmark, whose data's name holds versions, the bench's."""
    name, bench = run.header.data.name, run.header.settings.bench
    return _safe(bench if name.startswith(bench) else re.sub(r"\.(tsv|csv)$", "", name))


def _safe(text: str) -> str:
    """One part of a path: letters, digits, '.', '-'; nothing that leads out of a folder; 80 characters at most."""
    return re.sub(r"[^A-Za-z0-9.\-]+", "-", text).strip(".-")[:80] or "unnamed"
