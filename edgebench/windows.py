"""Offline: what is known of questions that were asked together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Offline: questions that were answered and timed together. Written behind their records, so it is whole."""

    sitting: int
    number: int
    """Within the sitting."""
    samples: int
    answered: int
    total_ns: int
    """From the encoded bytes of all of them to the last token of the last answer."""
    batches: tuple[int, ...]
    """How many questions went into each call of the engine, in order."""
