"""What watching costs: CPU time of one look at the machine, and of marking one question's time and energy.

    python benchmarks/sampler_cost.py [--looks 200]

Run by hand; prints one line of JSON. The looks come once a second in a thread of the harness's process; the engine
has a process of its own. Where the machine has no counter of energy a tree of files stands for RAPL's.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from edgebench.host_files import host_root
from edgebench.sensors.energy import Rapl, Unsupported
from edgebench.sensors.watch import PERIOD_S, Watch


def cpu_us(step: Callable[[], object], times: int) -> float:
    """Microseconds of this thread's CPU time a call."""
    begin = time.thread_time_ns()
    for _ in range(times):
        step()
    return (time.thread_time_ns() - begin) / 1e3 / times


def rapl() -> tuple[Rapl, str]:
    """The machine's own, or one of files."""
    try:
        return Rapl(host_root()), "RAPL"
    except Unsupported:
        zone = Path(tempfile.mkdtemp()) / "sys/class/powercap/intel-rapl:0"
        zone.mkdir(parents=True)
        for name, content in (("name", "package-0"), ("energy_uj", "1"), ("max_energy_range_uj", "9")):
            (zone / name).write_text(content)
        return Rapl(zone.parents[3]), "files in RAPL's place"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, Watch(Path(place), 1) as watch:
        look = cpu_us(watch.look, given.looks)
        question = cpu_us(lambda: watch.since(watch.mark()), 10_000)
        source, what = rapl()
        watch.engine_pids = (os.getpid(),)
        found = {
            "look_us": round(look, 1),
            "of_one_core_percent": round(look / 1e4 / PERIOD_S, 4),
            "mark_a_question_us": round(question, 2),
            "read_energy_us": round(cpu_us(source.joules, 2000), 2),
            "energy": what,
            "last_look_with_pss_us": round(cpu_us(lambda: watch.look(last=True), 20), 1),
            "processes": sum(p.name.isdigit() for p in Path("/proc").iterdir()),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
