"""What the harness itself costs: the null engine over many questions, time a question and memory growth.

    python benchmarks/harness_cost.py [--questions 63292]

Run by hand on a quiet machine; prints one line of JSON. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import tempfile
import time
from pathlib import Path

from edgebench.metrics.summary import summarize
from edgebench.pipeline import run
from edgebench.plan import RunPlan
from edgebench.records import Run


class Quiet:
    """Watches nothing, but reads the memory at the start."""

    start_kib = 0

    def begin(self, total: int, done: int) -> None:
        """Remember the resident memory."""
        self.start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def advance(self, failed: bool) -> None:
        """Nothing."""

    def say(self, step: str) -> None:
        """Nothing."""


def write(path: Path, count: int) -> None:
    """Questions whose image is a few bytes: the null engine never decodes it."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["index", "image", "question", "A", "B", "answer", "category"])
        for i in range(count):
            row = [i, "AAAA" * 30, "What is the authenticity of the image?", "AI-generated", "non AI-generated"]
            writer.writerow([*row, "AB"[i % 2], "human_entiresynthesis_gan_visibleimage_category"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=63_292)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "ForensicsBench.tsv"
        write(data, given.questions)
        watcher = Quiet()
        begin = time.perf_counter_ns()
        folder = run(
            RunPlan(artifact=None, engine="null", bench="forensics", data=data, output=Path(place) / "run"), watcher
        )
        asked = time.perf_counter_ns()
        summary = summarize(Run(folder))
        end = time.perf_counter_ns()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - watcher.start_kib
        found = {
            "questions": summary["summary"]["answered"],
            "us_per_question": (asked - begin) / 1e3 / given.questions,
            "memory_growth_kib": grown,
            "scoring_s": (end - asked) / 1e9,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
