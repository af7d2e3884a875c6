"""How often the interval of `--subset N` holds what all 63,292 questions would have given, by the command line.

    python benchmarks/subset_coverage.py [--subset 2000] [--seeds 100] [--models LLaVA-NEXT-34B,...]

Writes a TSV of Forensics-Bench's 112 categories at their true sizes, in which the engine `null`, which always says A,
is right as often in each category as a published model was. Asks every question of it once, then asks
`edgebench run --subset N --subset-seed S` for each seed, and counts in how many runs the printed interval holds the
accuracy of the whole. Questions have a picture of a few bytes that nothing decodes.

Prints a line of JSON for each model. An interval of 95 % is missed by 5 of 100 seeds on average, and by more than 7 in
one model of eight.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from edgebench.benches.taxonomy import categories
from edgebench.metrics.published import FOLDER

PICTURE = "AAAA" * 30


def write(path: Path, percent: dict[str, str]) -> int:
    """The TSV of a model with these accuracies, in percent by a category's code; how many answers are right."""
    right = number = 0
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["index", "image", "question", "A", "B", "answer", "category"])
        for kind in categories().values():
            hits = round(float(percent[kind.code]) / 100 * kind.samples)
            right += hits
            for k in range(kind.samples):
                options = ["AI-generated", "non AI-generated"]
                said = "What is the authenticity of the image?"
                writer.writerow([number, PICTURE, said, *options, "A" if k < hits else "B", kind.slug])
                number += 1
    return right


def run(data: Path, output: Path, *options: str) -> dict[str, Any]:
    """One run's summary, by the command line."""
    command = [
        sys.executable,
        "-m",
        "edgebench",
        "run",
        "--engine",
        "null",
        "--bench",
        "forensics",
        "--data",
        str(data),
    ]
    done = subprocess.run([*command, "-o", str(output), *options, "--json"], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subset", default="2000")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--models", default="LLaVA-NEXT-34B", help="names of the published table, with commas")
    given = parser.parse_args()
    with (FOLDER / "forensics_published_accuracy.csv").open(encoding="utf-8") as stream:
        table = {row["model"]: row for row in csv.DictReader(stream)}
    for model in given.models.split(","):
        with tempfile.TemporaryDirectory() as place:
            data = Path(place) / "ForensicsBench.tsv"
            right = write(data, table[model])
            whole = run(data, Path(place) / "whole")["summary"]
            assert round(whole["accuracy"] * whole["answered"]) == right, whole
            widths, covered = [], 0
            for seed in range(given.seeds):
                options = ("--subset", given.subset, "--subset-seed", str(seed))
                low, high = run(data, Path(place) / f"run-{seed}", *options)["subset"]["interval"]
                covered += low <= whole["accuracy"] <= high
                widths.append((high - low) / 2)
        told = {"model": model, "questions": whole["answered"], "accuracy": round(whole["accuracy"], 4)}
        told |= {"subset": int(given.subset), "seeds": given.seeds, "covered": covered}
        print(json.dumps({**told, "half_width": round(sum(widths) / len(widths), 4)}), flush=True)


if __name__ == "__main__":
    main()
