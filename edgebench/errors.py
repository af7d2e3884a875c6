"""The error family. Each error says what, where and what to do; the CLI prints it and exits with its code.

Exit codes 0, 1 and 2 are not errors of this family: 0 is done, 1 is done with failed samples, and 2 is wrong
usage (click's own code, shared by `UsageError`).
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class EdgebenchError(Exception):
    """An error with a place and an advice. `str()` is the one line that a user reads."""

    exit_code: ClassVar[int] = 10
    family: ClassVar[str] = "unexpected failure"

    def __init__(self, what: str, *, where: str | Path | None = None, hint: str | None = None) -> None:
        self.what = " ".join(what.split())
        self.where = None if where is None else str(where)
        self.hint = None if hint is None else " ".join(hint.split())
        super().__init__(self.what)

    def __str__(self) -> str:
        line = self.what if self.where is None else f"{self.where}: {self.what}"
        return line if self.hint is None else f"{line} ({self.hint})"


class UsageError(EdgebenchError):
    """A name, an option or a combination that does not exist."""

    exit_code = 2
    family = "wrong usage: unknown name, option or combination"


class ConfigError(EdgebenchError):
    """A recipe, a profile or a settings file that does not say what it should."""

    exit_code = 3
    family = "a recipe or a profile is wrong"


class CheckpointError(EdgebenchError):
    """Weights or their companion files that are missing, damaged or of another shape."""

    exit_code = 4
    family = "a checkpoint is missing, damaged or of another shape"


class ParityError(EdgebenchError):
    """An exported graph that does not say what its source says."""

    exit_code = 5
    family = "an exported graph differs from its source by more than its bound"


class ArtifactError(EdgebenchError):
    """An exported artifact that is unfinished, damaged or from another version."""

    exit_code = 6
    family = "an exported artifact is unfinished, damaged or unknown"


class EngineError(EdgebenchError):
    """A runtime that cannot load, cannot run or died."""

    exit_code = 7
    family = "an engine could not load, could not run or died"


class DataError(EdgebenchError):
    """Benchmark data that are missing or not in the published form."""

    exit_code = 8
    family = "benchmark data are missing or malformed"


class RunError(EdgebenchError):
    """A run folder that is damaged, in use, or of another configuration."""

    exit_code = 9
    family = "a run folder is damaged, in use or of other settings"


class SampleError(EdgebenchError):
    """One sample that cannot be read. It becomes a record with its reason; the run goes on."""

    exit_code = 1
    family = "done, with failed samples"


class MissingExtraError(EdgebenchError):
    """A command that needs packages of an extra that is not installed."""

    exit_code = 11
    family = "an optional package is not installed"


class GateError(EdgebenchError):
    """A run that misses a budget, or is not known to keep it."""

    exit_code = 12
    family = "a run misses a budget of its device profile, or is not known to keep it"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The advice for an unknown name: its nearest neighbours, or all names when nothing is near."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    return "known: " + ", ".join(names) if names else "none is known"


def one_line(error: BaseException) -> str:
    """A foreign exception as one line: its type and the first line of its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def exit_codes() -> list[tuple[int, str]]:
    """All exit codes with their meaning, in order; `edgebench --help` prints them."""
    rows: dict[int, str] = {0: "done", 1: "done, with failed samples"}
    for kind in EdgebenchError.__subclasses__():
        rows.setdefault(kind.exit_code, kind.family)
    rows[EdgebenchError.exit_code] = EdgebenchError.family
    return sorted(rows.items())
