"""Joules of a run: in all, a sample, a right answer. Unknown where no source covers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.records import Record, Sitting
    from edgebench.sensors.power_log import PowerLog


@dataclass
class EnergyTally:
    """Adds up answered questions."""

    log: PowerLog | None
    """An external meter's readings; they come before the machine's own counter."""
    joules: list[float] = field(default_factory=list)
    seconds: float = 0.0
    answered: int = 0
    right: int = 0
    """Of those whose energy is known."""

    def add(self, record: Record, right: bool) -> None:
        """One answered question."""
        self.answered += 1
        energy = record.energy_j
        if self.log is not None:
            energy = None
            if record.asked_unix_ns is not None and record.took_ns is not None:
                begin = record.asked_unix_ns / 1e9
                energy = self.log.joules(begin, begin + record.took_ns / 1e9)
        if energy is not None and record.took_ns is not None:
            self.joules.append(energy)
            self.seconds += record.took_ns / 1e9
            self.right += right

    def found(self, sittings: Sequence[Sitting]) -> dict[str, Any]:
        """The figures, with their source or the reason why there are none."""
        sources = list(dict.fromkeys(s.energy_source for s in sittings if s.energy_source is not None))
        source = "external meter" if self.log is not None else "; ".join(sources) or None
        known, total = len(self.joules), sum(self.joules)
        if known == 0:
            reasons = dict.fromkeys(s.no_energy for s in sittings if s.no_energy is not None)
            why = "; ".join(reasons) or "it was not measured"
            if self.log is not None:
                why = "the external meter's readings do not cover the questions"
        return {
            "source": source,
            "unsupported": why if known == 0 else None,
            "measured": known,
            "answered": self.answered,
            "joules": total if known else None,
            "joules_per_sample": total / known if known else None,
            "joules_per_right_answer": total / self.right if self.right else None,
            "watts_mean": total / self.seconds if known and self.seconds else None,
            "note": "from the question put to its answer back, idle power in it; counters that step slower than a question "
            "are right in the mean only",
        }
