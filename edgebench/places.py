"""Where edgebench keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$EDGEBENCH_CACHE`, else `$XDG_CACHE_HOME/edgebench`, else `~/.cache/edgebench`. It may not exist yet."""
    if chosen := os.environ.get("EDGEBENCH_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "edgebench"
