"""What an engine makes once for a device and keeps beside the artifact.

An entry is a folder: its name carries a hash of all that decides it, and its `made.json`, written last, says what it
was made for and how long its files are. An entry that is unfinished, cut short or for something else is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from edgebench.errors import EngineError
from edgebench.lock import lock
from edgebench.places import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edgebench.manifest import Artifact

MADE = "made.json"


def places_of(artifact: Artifact, beside: str, user: str) -> tuple[Path, Path]:
    """Where entries may lie: in the folder `beside` of the artifact, or in the user's cache where that is read-only."""
    return artifact.folder / beside, cache_folder() / user / artifact.manifest_sha256[:16]


def entry_of(place: Path, name: str, facts: dict[str, Any]) -> Path:
    """The folder of what is made for these facts."""
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return place / f"{name}-{key}"


def sidecar_of(entry: Path) -> dict[str, Any] | None:
    """What an entry's `made.json` says; None where there is none."""
    try:
        value = json.loads((entry / MADE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def is_whole(entry: Path, facts: dict[str, Any], main: str) -> bool:
    """Whether an entry was finished, is for these facts and has its files at their sizes, `main` among them."""
    sidecar = sidecar_of(entry)
    if sidecar is None or sidecar.get("made_for") != facts or not isinstance(sidecar.get("bytes"), dict):
        return False
    try:
        return main in sidecar["bytes"] and all(
            (entry / file).stat().st_size == size for file, size in sidecar["bytes"].items()
        )
    except OSError:
        return False


def find(places: Sequence[Path], name: str, facts: dict[str, Any], main: str) -> Path | None:
    """The whole entry for these facts, where there is one."""
    return next((e for p in places if is_whole(e := entry_of(p, name, facts), facts, main)), None)


def first_writable(places: Sequence[Path], what: str, hint: str) -> Path:
    """The first place that can be written, made where it is missing.

    Raises:
        EngineError: none can be.
    """
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            with (place / "lock").open("ab"):
                return place
    raise EngineError(f"neither it nor the user's cache can be written, and {what} there", where=places[0], hint=hint)


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """One maker at a time; the lock ends with its process."""
    with (place / "lock").open("ab") as stream:
        lock(stream, wait=True)
        yield


@contextlib.contextmanager
def becoming(entry: Path) -> Iterator[Path]:
    """A folder to fill, which becomes the entry when it was filled, and is gone when it was not.

    Raises:
        EngineError: the disk cannot be written.
    """
    partial = entry.with_name(f"{entry.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(entry)
    except OSError as error:
        raise EngineError(f"cannot be written: {error.strerror or error}", where=entry.parent) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def finish(partial: Path, facts: dict[str, Any], files: Sequence[str], **more: Any) -> None:
    """Bring the files to the disk, and then say what they are."""
    sizes = {}
    for file in files:
        with (partial / file).open("rb") as stream:
            os.fsync(stream.fileno())
        sizes[file] = (partial / file).stat().st_size
    with (partial / MADE).open("w", encoding="utf-8") as made:
        json.dump({"made_for": facts, "bytes": sizes, **more}, made, indent=1)
        made.flush()
        os.fsync(made.fileno())


def sweep(place: Path, name: str, facts: dict[str, Any], same: Sequence[str]) -> None:
    """Remove entries of this name that are unfinished, or that these facts replace: those with the `same` ones."""
    for old in place.glob(f"{name}-*"):
        made_for = (sidecar_of(old) or {}).get("made_for")
        if not isinstance(made_for, dict) or all(made_for.get(key) == facts[key] for key in same):
            shutil.rmtree(old, ignore_errors=True)
