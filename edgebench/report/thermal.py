"""Temperature and clock over a run, from what was seen of the machine beside it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from edgebench.report.tables import UNKNOWN, Table
from edgebench.sensors.observation import read_observations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.records import Run
    from edgebench.sensors.observation import Observation

MOST = 300
"""Points of one line."""
SHOWN = (
    ("temperature", "°C", ("temperature_c", "gpu_temperature_c")),
    ("clock", "MHz", ("clock_mhz", "gpu_mhz")),
)
"""What is drawn, its unit, and of what: the CPU or module, and the GPU."""


def traces(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One entry for temperature and one for clocks, each where at least one run has two readings of it.

    Returns:
        what, unit, lines: run (index), of ('CPU', 'GPU'), seconds since the sitting began, values; a line a sitting.
    """
    seen = [list(read_observations(run.folder)) for run in runs]
    found = []
    for what, unit, names in SHOWN:
        lines = [
            {"run": k, "of": of, "seconds": seconds, "values": values}
            for k, observations in enumerate(seen)
            for of, name in zip(("CPU", "GPU"), names, strict=True)
            for seconds, values in _lines(observations, name)
        ]
        if lines:
            found.append({"what": what, "unit": unit, "lines": lines})
    return found


def thermal_table(found: Sequence[dict[str, Any]], summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> Table:
    """Least, median and largest of each, and whether the times may be believed."""
    rows = []
    for k, (summary, name) in enumerate(zip(summaries, names, strict=True)):
        cells = []
        for trace in found:
            for of in ("CPU", "GPU"):
                if any(line["of"] == of for line in trace["lines"]):
                    values = [
                        v for line in trace["lines"] if (line["run"], line["of"]) == (k, of) for v in line["values"]
                    ]
                    cells.append(f"{min(values):.0f} / {median(values):.0f} / {max(values):.0f}" if values else UNKNOWN)
        rows.append((name, *cells, summary["validity"]["timing"]))
    columns = [
        f"{of} {trace['what']}, {trace['unit']}"
        for trace in found
        for of in ("CPU", "GPU")
        if any(line["of"] == of for line in trace["lines"])
    ]
    return Table("Least / median / largest", ("run", *columns, "times are"), tuple(rows))


def _lines(observations: Sequence[Observation], name: str) -> list[tuple[list[float], list[float]]]:
    found = []
    for sitting in dict.fromkeys(o.sitting for o in observations):
        own = [o for o in observations if o.sitting == sitting]
        known = [(o.unix_ns, value) for o in own if (value := getattr(o, name)) is not None]
        if len(known) < 2:
            continue
        step = -(-len(known) // MOST)
        kept = [*known[:-1:step], known[-1]]
        found.append(([(ns - own[0].unix_ns) / 1e9 for ns, _ in kept], [float(value) for _, value in kept]))
    return found
