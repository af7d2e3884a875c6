"""The demo model on an NVIDIA GPU: fp16 and int8 by `edgebench run --engine trt`, against ONNX Runtime on the CPU.

    python benchmarks/trt_device.py OUT [--artifacts FOLDER] [--provider tensorrt_rtx] [--limit 100]

Needs the extras `trt` and `demo`, and TensorRT or `trt-rtx`; with --artifacts (FOLDER/fp16 and FOLDER/int8, of
`edgebench export edgebench-demo --fp16 --dialect portable`) no torch. It ends with 1 where answers differ in more than one
of a hundred questions, or log-probabilities of options by more than the bound.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgebench.records import Record, Run

PRECISIONS = ("fp16", "int8")
SAME_ANSWERS = 0.99
LOGPROB_BOUND = {"fp16": 0.1, "int8": 0.1}
"""Largest difference of an option's log-probability, in nats."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="a new folder for artifacts and runs")
    parser.add_argument("--artifacts", type=Path, help="where fp16/ and int8/ lie, exported before")
    parser.add_argument("--provider", choices=["tensorrt", "tensorrt_rtx"], help="default: what is installed")
    parser.add_argument("--limit", type=int, default=100, help="questions of the mini benchmark")
    return parser.parse_args(arguments)


def edgebench(*words: object) -> dict[str, Any]:
    """One command with --json; its reason on stderr when it fails."""
    command = [sys.executable, "-m", "edgebench", *map(str, words), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return dict(json.loads(done.stdout))


def answers(folder: Path) -> dict[str, Record]:
    return {line.id: line for line in Run(folder).lines() if isinstance(line, Record) and line.error is None}


def compared(ours: dict[str, Record], theirs: dict[str, Record]) -> tuple[float, float]:
    """The fraction of questions with the same answer, and the largest difference of an option's log-probability."""
    both = [(ours[key], theirs[key]) for key in ours.keys() & theirs.keys() if theirs[key].text is not None]
    if not both or ours.keys() != theirs.keys():
        sys.exit("the runs did not answer the same questions")
    same = sum(a.text == b.text for a, b in both) / len(both)
    pairs = [(a.option_logprobs, b.option_logprobs) for a, b in both]
    differences = [abs(x[key] - y[key]) for x, y in pairs if x is not None and y is not None for key in x]
    return same, max(differences, default=float("nan"))


def main() -> None:
    options = parse(sys.argv[1:])
    options.out.mkdir(parents=True)
    wrong = False
    for precision in PRECISIONS:
        artifact = (options.artifacts or options.out) / precision
        if options.artifacts is None:
            edgebench("export", "edgebench-demo", f"--{precision}", "--dialect", "portable", "-o", artifact)
        summaries = {}
        for engine in ("trt", "ort"):
            provider = ["--provider", options.provider] if engine == "trt" and options.provider else []
            run = options.out / f"{precision}-{engine}"
            words = ["--engine", engine, *provider, "--bench", "forensics-mini", "--limit", options.limit, "-o", run]
            summaries[engine] = edgebench("run", artifact, *words)
        same, difference = compared(*(answers(options.out / f"{precision}-{e}") for e in ("trt", "ort")))
        print(f"{precision}: {100 * same:.1f} % the same answers, option log-probabilities differ by {difference:.4f}")
        for engine, summary in summaries.items():
            latency = {stage: row["p50"] for stage, row in summary["latency_ms"].items() if row is not None}
            print(f"  {engine}: p50 ms {latency}; {summary['engine']}")
        wrong |= not (same >= SAME_ANSWERS and difference <= LOGPROB_BOUND[precision])
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
