"""Whether a run's times may be believed, from what was seen of the machine. Its accuracy does not depend on that.

INVALID for timing: others used the CPUs, something was held back, a clock fell, a governor or power mode changed,
sittings differ, or times drift. Unknown, and so not valid, where the CPU time of others could not be read, or the run
was too short to see it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.metrics.drift import ALPHA, BLOCKS, MATTERS, drift

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.records import Sitting
    from edgebench.sensors.observation import Observation

BUSY_CORES = 0.25
"""Others used more than this of one core on average: the run was not quiet."""
BUSY_MOMENT, BUSY_SHARE = 0.5, 0.1
"""Nor was it where they used more than so much of one core in such a share of the time. A quiet machine's own services
take a third of a core for some seconds in a minute."""
SLOW_CLOCK = 0.8
"""A clock below this of its median has fallen."""
SHORTEST_S = 0.4
"""Of a span over which CPU time, counted in hundredths of a second, is compared."""


def validity(
    sittings: Sequence[Sitting], observations: Sequence[Observation], series: dict[int, list[float]]
) -> dict[str, Any]:
    """The verdict on a run's times.

    Args:
        sittings: in order.
        observations: of all sittings, in order.
        series: sitting -> times of like work, in the order of the run.
    """
    found = []
    for sitting in sittings:
        seen = [o for o in observations if o.sitting == sitting.sitting]
        found.append(_sitting(sitting.sitting, seen, series.get(sitting.sitting, [])))
    reasons = [_named(f["sitting"], r, len(found)) for f in found for r in f["reasons"]]
    reasons += _differences(sittings, observations)
    unknown = [_named(f["sitting"], r, len(found)) for f in found for r in f["unknown"]]
    return {
        "timing": "invalid" if reasons else "unknown" if unknown or not found else "valid",
        "accuracy": "valid",
        "reasons": reasons,
        "unknown": unknown,
        "sittings": found,
        "note": f"others busy: more than {BUSY_CORES:g} of a core on average, or {BUSY_MOMENT:g} in at least {100 * BUSY_SHARE:.0f} % of the time, "
        "by /proc/stat less edgebench's own processes; drift: Mann-Kendall "
        f"over {BLOCKS} parts of the run, p < {ALPHA:g}, and more than {100 * MATTERS:.0f} % over the run",
    }


def _named(sitting: int, reason: str, sittings: int) -> str:
    return reason if sittings == 1 else f"sitting {sitting}: {reason}"


def _sitting(number: int, seen: Sequence[Observation], series: list[float]) -> dict[str, Any]:
    before = background([o for o in seen if o.phase == "before"])
    asked = [o for o in seen if o.phase == "during"]
    during = background(asked)
    reasons: list[str] = []
    unknown: list[str] = []
    if not seen:
        unknown.append("nothing was seen of the machine")
    elif any(o.busy_s is None or o.own_s is None for o in seen):
        unknown.append("this system does not say how busy its CPUs are")
    elif during is None:
        unknown.append(f"shorter than {SHORTEST_S:g} s, so that the load of others is not known")
    elif during["mean_cores"] > BUSY_CORES or during["busy_share"] >= BUSY_SHARE:
        reasons.append(f"others used {during['mean_cores']:.2f} cores on average, {during['max_cores']:.2f} at most")
    events = [o.throttle_events for o in asked if o.throttle_events is not None]
    if events and events[-1] > events[0]:
        reasons.append(f"the hardware was held back {events[-1] - events[0]} times")
    for words, times in Counter(w for o in asked for w in o.held_back).most_common():
        reasons.append(f"{words}, in {times} of {len(asked)} looks")
    for name in ("governor", "power_mode"):
        values = list(dict.fromkeys(v for o in asked if (v := getattr(o, name)) is not None))
        if len(values) > 1:
            reasons.append(f"the {name.replace('_', ' ')} changed: {' -> '.join(values)}")
    for name, words in (("clock_mhz", "CPU"), ("gpu_mhz", "GPU")):
        reasons += _clock(words, [v for o in asked if (v := getattr(o, name)) is not None])
    trend = drift(series)
    if trend is not None and trend["drifts"]:
        word = "slower" if trend["change"] > 0 else "faster"
        reasons.append(f"{100 * abs(trend['change']):.0f} % {word} over the run (p = {trend['p']:.1g})")
    return {
        "sitting": number,
        "reasons": reasons,
        "unknown": unknown,
        "looks": len(seen),
        "background_before": before,
        "background": during,
        "drift": trend,
        **{name: _range(asked, name) for name in ("clock_mhz", "temperature_c", "gpu_mhz", "gpu_temperature_c")},
        "governor": next((o.governor for o in asked if o.governor is not None), None),
        "power_mode": next((o.power_mode for o in asked if o.power_mode is not None), None),
    }


def background(seen: Sequence[Observation]) -> dict[str, Any] | None:
    """Cores that others used, over spans of `SHORTEST_S` and more; None where there is no such span."""
    spans: list[tuple[float, float]] = []
    begin = None
    for o in seen:
        if o.busy_s is None or o.own_s is None:
            return None
        if begin is None:
            begin = o
            continue
        seconds = (o.unix_ns - begin.unix_ns) / 1e9
        if seconds < SHORTEST_S:
            continue
        others = (o.busy_s - (begin.busy_s or 0)) - (o.own_s - (begin.own_s or 0))
        spans.append((seconds, max(0.0, others) / seconds))
        begin = o
    if not spans:
        return None
    whole = sum(seconds for seconds, _ in spans)
    return {
        "seconds": whole,
        "mean_cores": sum(seconds * cores for seconds, cores in spans) / whole,
        "max_cores": max(cores for _, cores in spans),
        "busy_share": sum(seconds for seconds, cores in spans if cores > BUSY_MOMENT) / whole,
    }


def _clock(words: str, values: list[float]) -> list[str]:
    if len(values) < 5:
        return []
    typical = float(np.median(values))
    low = [v for v in values if v < SLOW_CLOCK * typical]
    if len(low) < BUSY_SHARE * len(values):
        return []
    return [f"the {words}'s clock fell to {min(low):.0f} MHz from {typical:.0f}"]


def _range(seen: Sequence[Observation], name: str) -> dict[str, float] | None:
    values = [float(v) for o in seen if (v := getattr(o, name)) is not None]
    return {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)} if values else None


def _differences(sittings: Sequence[Sitting], observations: Sequence[Observation]) -> list[str]:
    """What differs between sittings, so that their times are not of one population."""
    if len(sittings) < 2:
        return []
    modes = [
        {(o.governor, o.power_mode) for o in observations if o.sitting == s.sitting and o.phase == "during"}
        for s in sittings
    ]
    facts: dict[str, list[Any]] = {
        "the machine": [(s.host.machine, s.host.cpu, s.host.system, s.host.logical_cores) for s in sittings],
        "the device profile": [(s.profile, s.device) for s in sittings],
        "a version": [tuple(sorted(s.host.packages.items())) for s in sittings],
        "the governor or power mode": [seen for seen in modes if seen],
    }
    return [f"{what} differs between sittings" for what, values in facts.items() if any(v != values[0] for v in values)]
