"""What `edgebench run` was asked for, and what follows from it before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from edgebench.engines import ENGINES
from edgebench.errors import UsageError, did_you_mean
from edgebench.media.decode import MAX_PIXELS
from edgebench.prompts.matchers import DEFAULT as DEFAULT_MATCHER
from edgebench.records import Limits
from edgebench.registry import load

if TYPE_CHECKING:
    from edgebench.benches.container import Equalize
    from edgebench.manifest import Artifact
    from edgebench.media.decode import ImagePath

DEFAULT_BATCH = 8


class Progress(Protocol):
    """Who watches a run."""

    def begin(self, total: int, done: int) -> None:
        """The run has `total` samples, `done` of which were answered in an earlier sitting."""

    def advance(self, failed: bool) -> None:
        """One more is on the disk."""

    def note(self, line: str) -> None:
        """Something that the user should know at once."""

    def say(self, step: str) -> None:
        """What the engine does before it can answer."""


@dataclass(frozen=True)
class RunPlan:
    """What `edgebench run` was asked for."""

    artifact: Artifact | None
    engine: str
    bench: str
    data: Path | None
    output: Path | None
    """None: a new folder in `runs/`."""
    resume: bool = False
    retry_failed: bool = False
    """Continue the run, and ask the failed questions again."""
    limit: int | None = None
    provider: str | None = None
    profile: str = "cpu"
    scoring: Literal["generate", "logits"] = "generate"
    matcher: str = DEFAULT_MATCHER
    prompt_style: str | None = None
    image_path: ImagePath = "lossless"
    max_new_tokens: int | None = None
    perturb: str | None = None
    """Such as 'noise:3'."""
    equalize: Equalize | None = None
    """All pictures are encoded anew in this way before they are put; see `edgebench.benches.container`."""
    max_pixels: int = MAX_PIXELS
    reuse: bool = False
    warmup: bool = True
    scenario: Literal["single-stream", "offline"] = "single-stream"
    batch: int | None = None
    """Offline: the most questions in one call of the engine."""
    memory: Literal["normal", "low"] = "normal"
    """low: weights stay in mapped files, for machines whose memory is smaller than the model; engine 'ort'."""
    protocol: str | None = None
    """How MMFakeBench is asked, see `edgebench.protocols`; or 'attribution' of Forensics-Bench's questions."""
    introductions: bool = False
    """attribution: a paragraph on each forgery model that is an option."""
    variant: str | None = None
    """Of the prompt: see `edgebench.prompts.variants`."""
    boxes: Path | None = None
    """For the variant that draws given boxes: see `edgebench.prompts.boxes`."""
    subset: int | None = None
    """So many questions, stratified by category."""
    subset_seed: int = 0
    prompts: str | None = None
    knowledge: str | None = None
    detectors: dict[str, Artifact] = field(default_factory=dict)
    """Stage of `mixed` -> its own artifact."""
    detector_engine: str | None = None
    """Of all of them; None: the run's own, or 'ort' where that one's model is elsewhere."""
    endpoint: dict[str, str] = field(default_factory=dict)
    """Of an engine whose model is elsewhere; see `edgebench.endpoint.endpoint_of`."""
    engine_options: tuple[str, ...] = ()
    """'name=value' each: what the engine's own `OPTIONS` lists."""
    weights: str | None = None
    """The checkpoint, for engines that run it and not the artifact's graphs."""
    limits: Limits = field(default_factory=Limits)
    energy: str = "auto"
    """'auto', 'rapl', 'nvml', 'jetson', or an external meter's CSV; see `edgebench.sensors.energy`."""


def batch_of(plan: RunPlan, *, remote: bool) -> int | None:
    """Offline: the most questions in one call; None where questions are asked one at a time.

    Raises:
        UsageError: the options do not go together.
    """
    if plan.scenario != "offline":
        if plan.batch is not None:
            raise UsageError("--batch is for --scenario offline")
        return None
    if remote or plan.reuse:
        what = f"the engine {plan.engine!r}, whose model is elsewhere" if remote else "--reuse"
        raise UsageError(f"--scenario offline does not go with {what}", hint="leave --scenario out")
    return plan.batch or DEFAULT_BATCH


def engine_options(plan: RunPlan) -> dict[str, str]:
    """What an engine is opened with, but for its own settings."""
    options = {} if plan.provider is None else {"provider": plan.provider}
    if plan.memory != "normal":
        options["memory"] = plan.memory
    options |= plan.endpoint
    if plan.weights is not None:
        options["weights"] = plan.weights
    return options


def built_in(engine: str) -> Any:
    """The class of an engine of ours; None of another package's, which may end the process that imports it."""
    return load(ENGINES[engine][0]) if engine in ENGINES else None


def own_options(plan: RunPlan) -> dict[str, str]:
    """The engine's own settings of a plan, by name.

    Raises:
        UsageError: the engine has no such setting, or takes no checkpoint.
    """
    engine = built_in(plan.engine)
    known, found = getattr(engine, "OPTIONS", {}), {}
    for text in plan.engine_options:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise UsageError(f"the engine {plan.engine!r} has no option {text!r}", hint=did_you_mean(name, known))
        found[name] = value
    if plan.weights is not None and not getattr(engine, "TAKES_WEIGHTS", False):
        raise UsageError(f"the engine {plan.engine!r} runs the artifact's own weights", hint="leave --weights out")
    return found
