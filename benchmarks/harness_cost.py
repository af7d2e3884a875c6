"""What the harness itself costs: the null engine over many questions in its process, as in any run.

    python benchmarks/harness_cost.py [--questions 63292] [--media] [--one-at-a-time] [--repeats 3]

Counted, a question: the wall time of the whole loop from question 1,000 to the last one over their number. In it: the
row of the TSV, the query, both ways through the pipe, the engine's process, the record, its line on the disk, and the
command's own progress. Not in it: starting, noting the file's rows, loading, the warm-up and the first 1,000 questions
(`before_s`). Questions have no picture; with `--media` each has one of 90 bytes that is no picture, of which base64 is
decoded and a header is looked for. The null engine answers so fast that questions are sent ahead (`edgebench.ahead`);
with `--one-at-a-time` they are not, as with every model that computes something. `own_cpu_us` and `engine_cpu_us` are the CPU time of either process over the same
loop, `timed_us` is what the records say of the null engine itself. Memory is VmRSS of either process at question 1,000
and at the end. Scoring is the library's call, and `score_command_s` the whole of `edgebench score --json`. `full_scoring_s` is the library's call over the same
records after each was given all that a vision-language model's record holds: a score, the options' probabilities, six
stages, tokens, peaks of memory and the facts of a file.

Run by hand on a quiet Linux machine; prints a line of JSON for each repeat. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench import ahead
from edgebench.benches import BENCHES
from edgebench.benches.forensics import Forensics
from edgebench.cli.output import Bar
from edgebench.lines import to_line
from edgebench.metrics.summary import summarize
from edgebench.pipeline import run
from edgebench.plan import RunPlan
from edgebench.records import RECORDS, Run

if TYPE_CHECKING:
    from edgebench.benches.base import Image

FIRST = 1_000
"""Questions before it is counted."""
SIZES = ["96x96", "512x512", "1024x768"]


class WithoutMedia(Forensics):
    """The same rows, whose pictures are left alone."""

    def _images(self, identity: str, row: dict[str, str | None]) -> tuple[Image, ...]:
        return ()


@dataclass(frozen=True)
class Moment:
    """Of both processes, the engine's last: CPU seconds and KiB of resident memory."""

    wall_s: float
    cpu_s: tuple[float, float]
    resident_kib: tuple[int, int]


class Counting(Bar):
    """The command's own progress, and a look at both processes at question 1,000 and at the last one."""

    def __init__(self, total: int) -> None:
        super().__init__("asking")
        self._left, self._total = total, total
        self.moments: list[Moment] = []

    def advance(self, failed: bool) -> None:
        """One more."""
        super().advance(failed)
        self._left -= 1
        if self._left in {0, self._total - FIRST}:
            pids = os.getpid(), next(p.pid for p in multiprocessing.active_children() if p.pid is not None)
            resident = _resident_kib(pids[0]), _resident_kib(pids[1])
            self.moments.append(Moment(time.perf_counter(), (_cpu_s(pids[0]), _cpu_s(pids[1])), resident))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def write(path: Path, count: int) -> None:
    """Questions whose picture is a few bytes: the null engine never decodes it."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["index", "image", "question", "A", "B", "answer", "category"])
        for i in range(count):
            row = [i, "AAAA" * 30, "What is the authenticity of the image?", "AI-generated", "non AI-generated"]
            writer.writerow([*row, "AB"[i % 2], "human_entiresynthesis_gan_visibleimage_category"])


def fill(folder: Path) -> None:
    """Give each record what a model's own holds, drawn by a fixed seed."""
    path, draw = folder / RECORDS, random.Random(0)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open("wb") as stream:
        for line in lines:
            kind = line.pop("kind")
            if kind == "answer":
                score = draw.random()
                parts = {stage: draw.randrange(10**6, 10**7) for stage in ("preprocess", "vision", "prefill", "decode")}
                line |= {
                    "text": "AB"[score < 0.5],
                    "score": score,
                    "option_logprobs": {"A": math.log(score), "B": math.log1p(-score)},
                    "stages_ns": {"read": 4_000, **parts, "total": sum(parts.values())},
                    "tiles": 1,
                    "prompt_tokens": draw.choice([77, 93, 177, 250]),
                    "output_tokens": 2,
                    "peak_anonymous_bytes": 94_474_240,
                    "peak_file_backed_bytes": 48_533_504,
                    "facts": {"task": "BC", "container": draw.choice(["png", "jpeg"]), "pixels": draw.choice(SIZES)},
                }
            stream.write(to_line(kind, line))


def measured(data: Path, output: Path, count: int) -> dict[str, Any]:
    """One run, and its scoring."""
    began = time.perf_counter()
    with Counting(count) as counting:
        folder = run(RunPlan(artifact=None, engine="null", bench="forensics", data=data, output=output), counting)
    first, last = counting.moments
    each = 1e6 / (count - FIRST)
    own, engine = (each * (b - a) for a, b in zip(first.cpu_s, last.cpu_s, strict=True))
    grown = [b - a for a, b in zip(first.resident_kib, last.resident_kib, strict=True)]
    scoring = time.perf_counter()
    summary = summarize(Run(folder))
    scored = time.perf_counter()
    command = [sys.executable, "-m", "edgebench", "score", str(folder), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    commanded = time.perf_counter()
    fill(folder)
    filled = time.perf_counter()
    full = summarize(Run(folder))["scores"]["binary"]["auroc"]
    full_s = time.perf_counter() - filled
    return {
        "answered": summary["summary"]["answered"],
        "us_per_question": round(each * (last.wall_s - first.wall_s), 1),
        "own_cpu_us": round(own, 1),
        "engine_cpu_us": round(engine, 1),
        "timed_us": round(1e3 * summary["latency_ms"]["total"]["mean"], 2),
        "before_s": round(first.wall_s - began, 2),
        "own_growth_kib": grown[0],
        "engine_growth_kib": grown[1],
        "scoring_s": round(scored - scoring, 2),
        "score_command_s": round(commanded - scored, 2),
        "full_scoring_s": round(full_s, 2),
        "full_auroc": round(full, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=63_292)
    parser.add_argument("--media", action="store_true")
    parser.add_argument("--one-at-a-time", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if not given.media:
        BENCHES["forensics"] = (f"{__name__}:WithoutMedia", "without media")
    if given.one_at_a_time:
        ahead.BELOW_NS = 0
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "ForensicsBench.tsv"
        write(data, given.questions)
        for repeat in range(given.repeats):
            found = measured(data, Path(place) / f"run-{repeat}", given.questions)
            asked = {"media": given.media, "one_at_a_time": given.one_at_a_time}
            print(json.dumps({**asked, **found, "load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
