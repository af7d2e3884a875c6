"""Forensics-Bench's other protocols as a whole, by the command line: the demo model over all of `forensics-mini`.

    python benchmarks/whole_protocols.py FOLDER [--protocol robustness,attribution,introductions,variants] [--kill-at 0.4]

A plain run, then each protocol: its process is killed when so large a part of the answers is there, and continued with
`--resume`. Printed as a line of JSON each: seconds of the whole commands, both sittings together, and over those of the
plain run; answers before and after the kill, and whether what was there stayed as it was, each question answered once.
The report of the last one, with its grid or its table, is the command's own and stays in FOLDER.

Run by hand on a quiet machine, on one thread.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ASK = ("--bench", "forensics-mini", "--profile", "cpu-1-thread")
PROTOCOLS: dict[str, tuple[str, ...]] = {
    "robustness": ("--protocol", "robustness"),
    "attribution": ("--protocol", "attribution"),
    "introductions": ("--protocol", "attribution", "--introductions"),
    "variants": ("--variants", "all"),
}


def edgebench(*words: object) -> list[str]:
    """The words of a command, shown."""
    print("$ edgebench", *words, file=sys.stderr, flush=True)
    return [sys.executable, "-m", "edgebench", *map(str, words)]


def lines(folder: Path) -> dict[Path, list[bytes]]:
    """The complete lines of each run below a folder."""
    return {path: path.read_bytes().split(b"\n")[:-1] for path in sorted(folder.rglob("records.jsonl"))}


def answers(found: dict[Path, list[bytes]]) -> list[tuple[Path, str]]:
    """Which questions were answered, by run."""
    records = ((path, json.loads(line)) for path, rows in found.items() for line in rows)
    return [(path, record["id"]) for path, record in records if record["kind"] == "answer"]


def count(folder: Path) -> int:
    """How many lines there are by now, without reading what they hold."""
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("records.jsonl"))


def killed_and_resumed(folder: Path, asked: tuple[object, ...], most: int) -> dict[str, Any]:
    """Run a command, kill it behind so many answers, continue it.

    Raises:
        SystemExit: the continued command failed.
    """
    began = time.perf_counter()
    process = subprocess.Popen(edgebench(*asked), stdout=subprocess.DEVNULL)
    while process.poll() is None and count(folder) < most:
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = lines(folder)
    killed_s = time.perf_counter() - began
    began = time.perf_counter()
    code = subprocess.run(edgebench(*asked, "--resume"), stdout=subprocess.DEVNULL, check=False).returncode
    resumed_s = time.perf_counter() - began
    if code:
        raise SystemExit(f"{folder}: exit code {code}")
    after = lines(folder)
    return {
        "seconds": round(killed_s + resumed_s, 1),
        "before_kill": len(answers(before)),
        "answers": len(answers(after)),
        "each_once": len(set(answers(after))) == len(answers(after)),
        "beginning_unchanged": all(after[path][: len(rows)] == rows for path, rows in before.items()),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--protocol", default=",".join(PROTOCOLS), help="those to run, with commas")
    parser.add_argument("--kill-at", type=float, default=0.4, help="the part of the answers behind which it is killed")
    given = parser.parse_args()
    folder, demo = given.folder, given.folder / "demo"
    folder.mkdir(parents=True)
    subprocess.run(edgebench("export", "edgebench-demo", "-o", demo), check=True, stdout=subprocess.DEVNULL)

    def plain(name: str) -> tuple[float, int]:
        began = time.perf_counter()
        subprocess.run(edgebench("run", demo, *ASK, "-o", folder / name), check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began, len(answers(lines(folder / name)))

    first_s, questions = plain("plain-before")
    print(json.dumps({"run": "plain", "seconds": round(first_s, 1), "answers": questions}), flush=True)
    found = {}
    for name in given.protocol.split(","):
        each = {"robustness": 31 * questions, "variants": 5 * questions}.get(name, 290)
        target = folder / name
        command = ("run", demo, *ASK, *PROTOCOLS[name], "-o", target)
        found[name] = killed_and_resumed(target, command, round(given.kill_at * each))
        print(json.dumps({"run": name, **found[name]}), flush=True)
    last_s, _ = plain("plain-after")
    print(json.dumps({"run": "plain", "seconds": round(last_s, 1), "answers": questions}), flush=True)
    if "robustness" in found:
        ratio = found["robustness"]["seconds"] / ((first_s + last_s) / 2)
        print(json.dumps({"robustness_over_plain": round(ratio, 1)}), flush=True)


if __name__ == "__main__":
    main()
