"""Device profiles: what an engine may use of a device, in `profiles/*.yaml`."""

from __future__ import annotations

from dataclasses import dataclass

from edgebench.config import build, find_yaml, read_yaml


@dataclass(frozen=True)
class DeviceProfile:
    """One device, as far as an engine needs it."""

    name: str
    summary: str
    threads: int | None = None
    """Threads within one operator; None leaves the runtime's default (one per physical core)."""
    spinning: bool = True
    """Whether a thread that waits for the next operator of a graph stays awake. It saves its waking on a quiet
    machine, and takes the core from who works on a busy one. Between graphs none does."""
    context_tokens: int | None = None
    """Tokens of prompt and answer that compiled plans have room for; None: the model's context, at most 4096."""


def load_profile(name: str) -> DeviceProfile:
    """A profile by its name, or by the path of a YAML file.

    Raises:
        UsageError: no profile of that name.
        ConfigError: the file is wrong.
    """
    path = find_yaml("profiles", name, what="device profile")
    return build(DeviceProfile, read_yaml(path), where=str(path))
