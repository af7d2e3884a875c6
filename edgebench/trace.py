"""What was done about one sample that takes several calls: each of them, and what was looked up for it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Knowledge:
    """What was looked up, and what came of it."""

    query: str
    status: str
    """found, nothing (no such article), no query (no entity was named), off (no source), not cached (a frozen cache
    that lacks it) or unreachable (the source did not answer)."""
    text: str = ""
    """The beginning of the article, at most five sentences; empty where there is none."""
    title: str | None = None
    source: str | None = None
    reason: str | None = None
    """unreachable: why."""
    elapsed_ns: int | None = None


@dataclass(frozen=True)
class Call:
    """One step of a protocol that takes several: a question to a language model, or a detector's score."""

    step: str
    """entity, analysis, text_verdict, description, image_verdict or consistency; or text_detector, image_detector,
    cross_detector."""
    prompt: str | None = None
    text: str | None = None
    """What the model wrote."""
    score: float | None = None
    """P(forged) of a detector, in [0, 1]."""
    finish: str | None = None
    stages_ns: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reused_tokens: int | None = None
    """Tokens of the prompt whose cache was there from the call before."""
    knowledge: Knowledge | None = None
    """What this step was given."""
