"""Device profiles: what an engine may use of a device, in `profiles/*.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgebench.config import build, data_folder, read_yaml
from edgebench.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class DeviceProfile:
    """One device, as far as an engine needs it."""

    name: str
    summary: str
    threads: int | None = None
    """Threads within one operator; None leaves the runtime's default (one per physical core)."""


def profile_paths() -> dict[str, Path]:
    """Every shipped profile by name."""
    return {path.stem: path for path in sorted(data_folder("profiles").glob("*.yaml"))}


def load_profile(name: str) -> DeviceProfile:
    """A profile by its name, or by the path of a YAML file.

    Raises:
        UsageError: no profile of that name.
        ConfigError: the file is wrong.
    """
    path = profile_paths().get(name)
    if path is None:
        path = Path(name)
        if path.suffix not in {".yaml", ".yml"} or not path.is_file():
            raise UsageError(f"no device profile is called {name!r}", hint=did_you_mean(name, profile_paths()))
    return build(DeviceProfile, read_yaml(path), where=str(path))
