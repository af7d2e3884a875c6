"""An external meter's CSV: time and watts, from which a question's energy is integrated."""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from edgebench.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

POWER = "power.csv"
"""An external meter's readings during a run, in its folder."""
TIME = ("time", "timestamp", "unix_s", "time_s", "seconds", "datetime")
WATTS = ("watts", "watt", "power", "power_w", "w")


class PowerLog:
    """Power over time. Between two readings it is taken to change evenly."""

    GAP_S = 5.0
    """Across a longer gap nothing is known."""

    def __init__(self, times: list[float], watts: list[float]) -> None:
        """Readings in order.

        Args:
            times: Unix seconds, rising.
            watts: at those times.
        """
        self.times, self.watts = times, watts
        self._joules = [0.0]
        for k in range(1, len(times)):
            step = (times[k] - times[k - 1]) * (watts[k] + watts[k - 1]) / 2
            self._joules.append(self._joules[-1] + step)

    def joules(self, begin_s: float, end_s: float) -> float | None:
        """Energy between two moments; None where the log does not cover them."""
        if not self.times or begin_s < self.times[0] or end_s > self.times[-1] or end_s < begin_s:
            return None
        first, last = bisect_left(self.times, begin_s), bisect_left(self.times, end_s)
        if any(self.times[k] - self.times[k - 1] > self.GAP_S for k in range(max(1, first), last + 1)):
            return None
        return self._until(end_s) - self._until(begin_s)

    def _until(self, moment: float) -> float:
        k = bisect_left(self.times, moment)
        if k == 0:
            return 0.0
        gap, passed = self.times[k] - self.times[k - 1], moment - self.times[k - 1]
        watts = self.watts[k - 1] + (self.watts[k] - self.watts[k - 1]) * passed / gap
        return self._joules[k - 1] + passed * (self.watts[k - 1] + watts) / 2

    def between(self, begin_s: float, end_s: float) -> PowerLog:
        """The part that covers a span, with one reading on either side."""
        first = max(0, bisect_left(self.times, begin_s) - 1)
        last = min(len(self.times), bisect_left(self.times, end_s) + 2)
        return PowerLog(self.times[first:last], self.watts[first:last])


def read_power_log(path: Path) -> PowerLog:
    """A CSV with a header that names a column of time (Unix seconds, or ISO 8601) and one of watts.

    Raises:
        DataError: the file cannot be read, a column is missing, or a line is wrong.
    """
    times: list[float] = []
    watts: list[float] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            header = [name.strip().lower() for name in next(rows, [])]
            columns = [next((header.index(n) for n in names if n in header), None) for names in (TIME, WATTS)]
            if None in columns:
                raise DataError(
                    "has no columns 'time' and 'watts'",
                    where=path,
                    hint="time: Unix seconds, or ISO 8601 with its zone",
                )
            at, power = (c for c in columns if c is not None)
            for line, row in enumerate(rows, 2):
                if not row:
                    continue
                try:
                    moment, value = _seconds(row[at].strip()), float(row[power])
                except (ValueError, IndexError) as error:
                    raise DataError("is not a time and a number of watts", where=f"{path}:{line}") from error
                if not (0 <= value < math.inf and math.isfinite(moment)) or (times and moment <= times[-1]):
                    raise DataError("the watts are below 0, or the time does not rise", where=f"{path}:{line}")
                times.append(moment)
                watts.append(value)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", where=path) from error
    return PowerLog(times, watts)


def power_log_of(folder: Path) -> PowerLog | None:
    """Of a run; None where there was no external meter."""
    path = folder / POWER
    return read_power_log(path) if path.exists() else None


def write_power_log(path: Path, log: PowerLog) -> None:
    """The same again, in Unix seconds."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["time", "watts"])
        writer.writerows([f"{t:.6f}", f"{w:g}"] for t, w in zip(log.times, log.watts, strict=True))


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
