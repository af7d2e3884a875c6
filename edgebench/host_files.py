"""Small files of /proc and /sys, below a root of choice."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = "EDGEBENCH_HOST_ROOT"
"""Where the host's /proc and /sys are, for containers that have them elsewhere."""


def host_root() -> Path:
    """`$EDGEBENCH_HOST_ROOT`, else '/'."""
    return Path(os.environ.get(ROOT) or "/")


def text(path: Path) -> str | None:
    """The stripped content; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def number(path: Path, base: int = 10) -> int | None:
    """The content as an integer; None where there is none."""
    found = text(path)
    try:
        return None if found is None else int(found.split()[0], base)
    except (ValueError, IndexError):
        return None
