"""The container check as a table."""

from __future__ import annotations

from typing import Any

from edgebench.report.tables import UNKNOWN, Table, percent

NAMES = {"container": "format", "quality": "JPEG quality", "pixels": "size"}


def container_table(check: dict[str, Any]) -> Table:
    """Accuracy by what a file's header says, and what a guess from it alone reaches."""
    rows = [
        (
            f"{title} {row['value']}",
            str(row["samples"]),
            f"{row['real']} / {row['forged']}" if row["real"] + row["forged"] else UNKNOWN,
            percent(row["accuracy"], row["interval"]),
        )
        for name, title in NAMES.items()
        for row in check["groups"][name]
    ]
    guess = check["guesser"]
    shown = UNKNOWN if guess is None else percent(guess["auroc"], guess["interval"])
    note = (
        f"a guess of real or forged from the file alone: AUROC {shown}; {check['note']}; '~': nearest libjpeg quality"
    )
    columns = ("files", "samples", "real / forged", "accuracy")
    return Table("Container check", columns, tuple(rows), note)
