"""Device profiles, in `profiles/*.yaml`: what an engine may use, what the device can do at most, and budgets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgebench.config import build, find_yaml, read_yaml
from edgebench.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """A number of a device and where it is from."""

    value: float | None
    """None: the device has it, and how much is not known."""
    source: str


@dataclass(frozen=True)
class Budgets:
    """What a run has to keep; None asks for nothing."""

    latency_p90_ms: float | None = None
    """The 90th percentile of `total`, from encoded bytes to the answer."""
    memory_mib: float | None = None
    """The process's peak, or on a discrete GPU the process's memory there."""
    accuracy_loss_points: float | None = None
    """Percentage points below the base run."""


@dataclass(frozen=True)
class DeviceProfile:
    """One device. Everything but the name may be unknown."""

    name: str
    summary: str
    threads: int | None = None
    """Threads within one operator; None leaves the runtime's default (one per physical core)."""
    spinning: bool = True
    """Whether a thread that waits for the next operator of a graph stays awake. It saves its waking on a quiet
    machine, and takes the core from who works on a busy one. Behind a graph it lasts a few milliseconds."""
    huge_pages: bool = True
    """Whether the process of a language model asks for huge pages, where Linux gives them to who asks: each token reads
    all weights. It loads more slowly."""
    context_tokens: int | None = None
    """Tokens of prompt and answer that compiled plans have room for; None: the model's context, at most 4096."""
    memory_kind: Literal["system", "unified", "discrete"] | None = None
    """system: the CPU's own. unified: CPU and GPU share it (Jetson). discrete: the GPU's own."""
    memory_mib: Figure | None = None
    bandwidth_gb_s: Figure | None = None
    """Peak of that memory, in 10^9 bytes a second."""
    cache_mib: Figure | None = None
    """Last-level cache, whose content needs no bandwidth; None is taken as none."""
    peak_tera_operations: dict[str, Figure] = field(default_factory=dict)
    """By precision, dense, in 10^12 a second; a multiplication and an addition are two. A precision that is not here
    is one the device has no faster arithmetic for; one whose value is null is not known."""
    budgets: Budgets = Budgets()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.peak_tera_operations) - set(PRECISIONS))
        if unknown:
            raise ValueError(f"unknown precision {unknown[0]!r}; known: {', '.join(PRECISIONS)}")
        for figure in (self.memory_mib, self.bandwidth_gb_s, self.cache_mib, *self.peak_tera_operations.values()):
            if figure is not None and figure.value is not None and figure.value < 0:
                raise ValueError(f"{figure.value} is below 0")


PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")


def load_profile(name: str) -> DeviceProfile:
    """A profile by its name, or by the path of a YAML file.

    Raises:
        UsageError: no profile of that name.
        ConfigError: the file is wrong.
    """
    path = find_yaml("profiles", name, what="device profile")
    return build(DeviceProfile, read_yaml(path), where=str(path))


def write_profile(path: Path, profile: DeviceProfile) -> None:
    """A profile as YAML, in one piece.

    Raises:
        UsageError: the file cannot be written.
    """
    import yaml

    def plain(value: Any) -> Any:
        return {k: plain(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value

    found = dataclasses.asdict(profile)
    content = {k: plain(v) for k, v in found.items() if v not in (None, {})}
    content["peak_tera_operations"] = found["peak_tera_operations"]
    try:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", where=path) from error
