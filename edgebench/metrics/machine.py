"""What a run says of the machine: per sitting, validity, limits, energy, memory by method. Pure functions of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.metrics.energy import EnergyTally
from edgebench.metrics.latency import stage_ms
from edgebench.metrics.limit import least_stages
from edgebench.metrics.validity import validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.metrics.limit import Least
    from edgebench.records import Record, RunHeader, Sitting
    from edgebench.sensors.observation import Observation
    from edgebench.sensors.power_log import PowerLog

LIKE_TOKENS = 32
"""Prompts whose lengths differ by less are of one kind."""
PEAKS = ("peak_memory_bytes", "peak_anonymous_bytes", "peak_file_backed_bytes")
"""Of a record: the engine process's peaks so far."""


class Machine:
    """Takes a run's lines in order; keeps a few numbers of each."""

    def __init__(self, header: RunHeader, log: PowerLog | None) -> None:
        """Begin.

        Args:
            header: the run's.
            log: an external meter's readings.
        """
        self._header = header
        self._works = header.artifact.work if header.artifact is not None else {}
        self._cache = None if header.artifact is None else header.artifact.cache_bytes_per_token
        self._energy = EnergyTally(log)
        self._sittings: list[Sitting] = []
        self._times: dict[int, dict[str, list[int]]] = {}
        self._series: dict[int, list[tuple[Any, int]]] = {}
        self._ratios: dict[str, list[tuple[float, float]]] = {}
        self._by: dict[str, dict[str, int]] = {}
        self._least: dict[Any, dict[str, Least]] = {}
        self._tokens = 0
        self.peaks: dict[str, int] = {}
        """The largest of each of `PEAKS`."""

    def sit(self, sitting: Sitting) -> None:
        """A sitting begins."""
        self._sittings.append(sitting)

    def add(self, record: Record, *, right: bool) -> None:
        """One line."""
        for name in PEAKS:
            value = getattr(record, name)
            if value is not None and value > self.peaks.get(name, -1):
                self.peaks[name] = value
        if record.error is not None or record.not_asked is not None:
            return
        self._energy.add(record, right)
        if record.prompt_tokens is not None:
            self._tokens = max(self._tokens, record.prompt_tokens + (record.output_tokens or 0))
        measured = _measured(record)
        times = self._times.setdefault(record.sitting, {})
        for name, ns in measured.items():
            times.setdefault(name, []).append(ns)
        if self._header.settings.reuse:
            return
        like = _like_work(record)
        if like is not None:
            self._series.setdefault(record.sitting, []).append(like)
        if self._works:
            self._limit(record, measured)

    def _limit(self, record: Record, measured: dict[str, int]) -> None:
        sitting = next((s for s in reversed(self._sittings) if s.sitting == record.sitting), None)
        if sitting is None or sitting.device is None:
            return
        key = (record.sitting, record.tiles, record.prompt_tokens, record.output_tokens)
        if key not in self._least:
            self._least[key] = least_stages(
                self._works,
                sitting.device,
                tiles=record.tiles,
                prompt_tokens=record.prompt_tokens,
                output_tokens=record.output_tokens,
                cache_bytes_per_token=self._cache,
            )
        for name, time in self._least[key].items():
            if name in measured and time.ns > 0:
                self._ratios.setdefault(name, []).append((time.ns, measured[name]))
                by = self._by.setdefault(name, {})
                by[time.by] = by.get(time.by, 0) + 1

    def found(self, observations: Sequence[Observation]) -> dict[str, Any]:
        """The parts of a summary: sittings_detail, validity, physical_limits, energy, memory_methods."""
        return {
            "sittings_detail": [self._sitting(s) for s in self._sittings],
            "pooled_sittings": len([s for s in self._sittings if self._times.get(s.sitting)]) > 1,
            "validity": validity(
                self._sittings, observations, {number: _relative(series) for number, series in self._series.items()}
            ),
            "physical_limits": self._limits(),
            "energy": self._energy.found(self._sittings),
            "memory_methods": self._memory(observations),
        }

    def _sitting(self, sitting: Sitting) -> dict[str, Any]:
        times = self._times.get(sitting.sitting, {})
        return {
            "sitting": sitting.sitting,
            "started": sitting.started,
            "profile": sitting.profile,
            "answered": len(times.get("total", [])),
            "latency_ms": {name: stage_ms(values) for name, values in times.items()},
        }

    def _limits(self) -> dict[str, Any] | None:
        """Measured over least, question by question; None where no peak of the device is known."""
        if not self._ratios:
            return None
        rows = {}
        for name, values in self._ratios.items():
            least, measured = (np.array(column, dtype=np.float64) for column in zip(*values, strict=True))
            rows[name] = {
                "n": len(values),
                "least_ms": float(np.median(least)) / 1e6,
                "measured_ms": float(np.median(measured)) / 1e6,
                "measured_over_least": float(np.median(measured / least)),
                "by": max(self._by[name], key=lambda by: self._by[name][by]),
            }
        return {
            "estimate": True,
            "profile": self._sittings[-1].profile,
            "stages": rows,
            "note": "an estimate: medians of the least time by the device's peaks (operations, or bytes not in its cache), "
            "of the measured time, and of their ratio",
        }

    def _memory(self, observations: Sequence[Observation]) -> list[dict[str, Any]]:
        """Each figure with its method; a figure that could not be had is None, and the method says why."""
        artifact, last = self._header.artifact, self._sittings[-1] if self._sittings else None
        seen = [o for o in observations if last is not None and o.sitting == last.sitting]
        weights = sum(w.weight_bytes for w in self._works.values()) if self._works else None
        cache = self._cache * self._tokens if self._cache is not None and self._tokens else None
        grown = None
        if last is not None and last.anonymous_after_load_bytes is not None and "peak_anonymous_bytes" in self.peaks:
            grown = max(0, self.peaks["peak_anonymous_bytes"] - last.anonymous_after_load_bytes)
        available = [o.available_bytes for o in seen if o.available_bytes is not None]
        fall = max(0, available[0] - min(available)) if len(available) > 1 else None
        rows = [
            ("artifact on disk", None if artifact is None else artifact.bytes, "file sizes, from the manifest"),
            ("weights", weights, "stored tensors that a call reads, counted at export" if self._works else "its manifest does not state it"),
            ("keys and values, longest question", cache, "computed: layers x heads x size x (prompt + output tokens)"),
            ("arena, activations and cache", grown, "peak of RssAnon while answering, less RssAnon after loading"),
            ("process peak", self.peaks.get("peak_memory_bytes"), last.memory_method if last is not None else "not measured"),
            ("process, proportional", _last(seen, "pss_bytes"), "Pss of smaps_rollup, at the end"),
            ("control group, peak", _last(seen, "cgroup_peak_bytes"), "memory.peak or max_usage_in_bytes, since it was made"),
            ("system", fall, "fall of MemAvailable since before loading; others' changes are in it"),
            ("GPU", max((o.gpu_process_bytes for o in seen if o.gpu_process_bytes is not None), default=None),
             "NVML, by process; unknown without NVML, on a Jetson, and where pids differ"),
        ]  # fmt: skip
        return [{"what": what, "bytes": size, "method": method} for what, size, method in rows]


def _last(seen: Sequence[Observation], name: str) -> int | None:
    return next((value for o in reversed(seen) if (value := getattr(o, name)) is not None), None)


def _measured(record: Record) -> dict[str, int]:
    """Times of a question by name, TTFT and TPOT among them."""
    stages = record.stages_ns
    found: dict[str, int] = {name: stages[name] for name in ("vision", "prefill", "total") if name in stages}
    if "ttft" in stages:
        found["ttft"] = stages["ttft"]
    elif "prefill" in stages:
        found["ttft"] = stages["total"] - stages["decode"]
    if "decode" in stages and record.output_tokens is not None and record.output_tokens >= 2:
        found["tpot"] = stages["decode"] // (record.output_tokens - 1)
    return found


def _like_work(record: Record) -> tuple[Any, int] | None:
    """A time, and the kind of work that it is of: questions of one kind take the same where nothing changes."""
    stages = record.stages_ns
    if record.tiles and "vision" in stages:
        return ("tiles", record.tiles), stages["vision"]
    if record.prompt_tokens and "prefill" in stages:
        return ("tokens", record.prompt_tokens // LIKE_TOKENS), stages["prefill"]
    return None


def _relative(series: list[tuple[Any, int]]) -> list[float]:
    """Each time over the median of its kind, in order; kinds of fewer than five are left out."""
    kinds: dict[Any, list[int]] = {}
    for kind, ns in series:
        kinds.setdefault(kind, []).append(ns)
    medians = {kind: float(np.median(values)) for kind, values in kinds.items() if len(values) >= 5}
    return [ns / medians[kind] for kind, ns in series if medians.get(kind)]
