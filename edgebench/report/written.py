"""The report that lies in the run's folder: `report.json` and `report.md`, always both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edgebench.errors import RunError
from edgebench.report.render import to_markdown

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.report.tables import Table


def write_report(folder: Path, value: dict[str, Any], tables: list[Table]) -> None:
    """Write both files.

    Raises:
        RunError: the folder cannot be written.
    """
    try:
        (folder / "report.json").write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        (folder / "report.md").write_text(to_markdown(tables), encoding="utf-8")
    except OSError as error:
        raise RunError(f"the report cannot be written: {error.strerror or error}", where=folder) from error
