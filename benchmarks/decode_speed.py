"""Decode and prefill of one language model, the same weights in several runtimes, in turn.

`python benchmarks/decode_speed.py ARTIFACT... [--genai FOLDER...] [--gguf FILE] [--checkpoint FOLDER]`

ARTIFACT: what `edgebench export` or `edgebench precisions` wrote of the model; those of the dialect ort run in the
engines ort and, where it is installed, genai, those of the dialect portable in openvino. FOLDER of --genai: what
genai's own builder wrote. --gguf: llama.cpp (xllamacpp). --checkpoint: transformers, eager, float32 and bfloat16.
Each round runs every runtime once, in an order that is drawn anew and in a process of its own, which loads it, warms up
and takes the median of some repeats: of several runtimes in one process the first loaded was up to 5 % slower, whichever
it was. Engines of ours ask for huge pages there, as in `edgebench run`; the others have their own defaults. Printed are
medians of tokens per second over the rounds, ratios to the first, the two goals (decode in int8 at least genai's, with
the interval of the ratio; of what agrees with the checkpoint in 99 % of tokens, a prefill that no runtime beats), and
JSON on the last line. The same number of threads for all. Run by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgebench.environment import asking_for_huge_pages
from edgebench.export.precision import AGREES, agreement
from edgebench.metrics.intervals import order_statistics
from edgebench.speeds import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgebench.engines.base import Engine
    from edgebench.manifest import Artifact

REPEATS = 3
"""Of prompt and answer in one process, behind one that warms up."""


class Runtime(Protocol):
    """One way to run the model."""

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt; returns when the first token's logits are there."""

    def decode(self, steps: int) -> None:
        """So many further tokens, greedily."""


class Edgebench:
    """An engine of ours on an artifact."""

    def __init__(self, engine: str, artifact: Artifact, threads: int, options: dict[str, str]) -> None:
        from edgebench.engines import ENGINES
        from edgebench.profiles import DeviceProfile
        from edgebench.registry import load

        profile = DeviceProfile(name="here", summary="", threads=threads)
        self.engine: Engine = load(ENGINES[engine][0])(artifact, profile, options).__enter__()
        self.empty = np.zeros((0, artifact.manifest.decoder.hidden_size), np.float32)  # type: ignore[union-attr]

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt."""
        self.token = int(self.engine.prefill(np.array(ids, dtype=np.int64), self.empty).argmax())

    def decode(self, steps: int) -> None:
        """Further tokens."""
        for _ in range(steps):
            self.token = int(self.engine.step(self.token).argmax())


class Genai:
    """onnxruntime-genai on a folder."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime_genai as og

        self.og = og
        config = og.Config(str(folder))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = og.Model(config)

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt."""
        params = self.og.GeneratorParams(self.model)
        params.set_search_options(max_length=len(ids) + 160, do_sample=False)
        self.generator = self.og.Generator(self.model, params)
        self.generator.append_tokens(np.array(ids, dtype=np.int32))
        self.generator.generate_next_token()  # chosen from the prompt's logits: the model does not run

    def decode(self, steps: int) -> None:
        """Further tokens."""
        for _ in range(steps):
            self.generator.generate_next_token()


class Torch:
    """transformers, eager."""

    def __init__(self, folder: Path, threads: int, dtype: str) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch = torch
        kind: Any = transformers.AutoModelForCausalLM
        self.model = kind.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager").eval()

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt."""
        with self.torch.inference_mode():
            out = self.model(input_ids=self.torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        self.cache, self.token = out.past_key_values, out.logits[0, -1].argmax()

    def decode(self, steps: int) -> None:
        """Further tokens."""
        with self.torch.inference_mode():
            for _ in range(steps):
                out = self.model(input_ids=self.token[None, None], past_key_values=self.cache, use_cache=True)
                self.token = out.logits[0, -1].argmax()


class Llama:
    """llama.cpp's server in this process, by its own clock."""

    def __init__(self, file: Path, threads: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel = 2048, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self.server = xllamacpp.Server(params)
        self.ids: list[int] = []

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt."""
        self.ids = ids

    def decode(self, steps: int) -> None:
        """Further tokens."""
        request = {
            "prompt": self.ids,
            "n_predict": steps + 1,
            "temperature": 0,
            "cache_prompt": False,
            "ignore_eos": True,
        }
        found = self.server.handle_completions(request)
        self.timings = (found if isinstance(found, dict) else json.loads(found))["timings"]


def runtimes_of(given: argparse.Namespace) -> tuple[dict[str, Callable[[], Runtime]], dict[str, float]]:
    """Name -> what loads the runtime; and top-1 agreement with the checkpoint of those where it is known."""
    from edgebench.manifest import read_artifact

    found: dict[str, Callable[[], Runtime]] = {}
    agreeing: dict[str, float] = {}
    genai = find_spec("onnxruntime_genai") is not None
    for folder in given.artifact:
        artifact = read_artifact(folder, verify=False)
        m = artifact.manifest
        engines = ["openvino"] if m.dialect == "portable" else ["ort", *(["genai"] if genai and m.companions else [])]
        for engine, options in ((e, o) for e in engines for o in WAYS.get(e, ({},))):
            name = f"edgebench {m.precision}, engine {' '.join([engine, *(f'{k}={v}' for k, v in options.items())])}"
            found[name] = partial(Edgebench, engine, artifact, given.threads, options)
            if (agreed := agreement(m.parity)) is not None:
                agreeing[name] = agreed[0]
    for folder in given.genai if genai else ():
        found[f"genai, {folder.name}"] = partial(Genai, folder, given.threads)
    if given.gguf:
        found[f"llama.cpp {given.gguf.stem.rsplit('.', 1)[-1]}"] = partial(Llama, given.gguf, given.threads)
    if given.checkpoint:
        for dtype in ("float32", "bfloat16"):
            found[f"transformers eager {dtype}"] = partial(Torch, given.checkpoint, given.threads, dtype)
        agreeing["transformers eager float32"] = 1.0
    return found, agreeing


def measured(runtime: Runtime, prompt: int, steps: int) -> tuple[float, float]:
    """Tokens per second of prefill and of decode, medians of `REPEATS`."""
    ids = np.random.default_rng(0).integers(100, 40000, prompt).tolist()
    pairs = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        runtime.prefill(ids)
        filled = time.perf_counter()
        runtime.decode(steps)
        end = time.perf_counter()
        pairs.append((prompt / (filled - begin), steps / (end - filled)))
        if isinstance(runtime, Llama):  # the first token is the prompt's
            own = runtime.timings
            pairs[-1] = (own["prompt_per_second"], 1e3 * (own["predicted_n"] - 1) / own["predicted_ms"])
    prefill, decode = (statistics.median(pair[k] for pair in pairs[1:]) for k in (0, 1))
    return prefill, decode


def in_its_own_process(name: str) -> tuple[float, float]:
    """`measured`, by this script called as it was, with --only; an engine of ours as `edgebench run` starts it."""
    command = [sys.executable, *sys.argv, "--only", name]
    own = asking_for_huge_pages() if name.startswith("edgebench") else {}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **own})
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    prefill, decode = json.loads(done.stdout.splitlines()[-1])
    return prefill, decode


def ratio(ones: list[tuple[float, float]], others: list[tuple[float, float]], k: int) -> tuple[float, str]:
    """The median over the rounds of one speed over another's, and its 95 % interval in words, free of a distribution."""
    ratios = sorted(a[k] / b[k] for a, b in zip(ones, others, strict=True))
    ranks = order_statistics(len(ratios), 0.5)
    within = "" if ranks is None else f" ({ratios[ranks[0] - 1]:.3f} to {ratios[ranks[1] - 1]:.3f})"
    return statistics.median(ratios), within


def verdicts(speeds: dict[str, list[tuple[float, float]]], agreeing: dict[str, float]) -> list[str]:
    """What came of the two goals."""
    said = []
    ours = [name for name in speeds if name.startswith(("edgebench int8", "edgebench w8a8"))]
    for own in ours:
        for other in (name for name in speeds if name.startswith("genai, ")):
            found, within = ratio(speeds[own], speeds[other], 1)
            verdict = "at least" if found >= 1 else "less than"
            said.append(f"decode: {own} / {other} = {found:.3f}{within}, {verdict} as fast")
    good = [name for name in speeds if agreeing.get(name, 0) >= AGREES]
    best = max(good, key=lambda name: statistics.median(p[0] for p in speeds[name]), default=None)
    if best is not None:
        said.append(f"prefill, of {len(good)} with top-1 agreement of {100 * AGREES:.0f} % or more: {best} is fastest")
        said += [
            f"prefill: {best} / {name} = {ratio(speeds[best], speeds[name], 0)[0]:.2f}" for name in good if name != best
        ]
    return said


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=Path, nargs="+")
    parser.add_argument("--genai", type=Path, nargs="*", default=[])
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    runtimes, agreeing = runtimes_of(given)
    if given.only:
        print(json.dumps(measured(runtimes[given.only](), given.prompt, given.steps)))
        return
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in runtimes}
    order = random.Random(0)
    load = os.getloadavg()[0]
    for round_ in range(given.rounds):
        for name in order.sample(list(runtimes), len(runtimes)):
            speeds[name].append(in_its_own_process(name))
            print(f"\rround {round_ + 1} of {given.rounds}: {name:60}", end="", file=sys.stderr)
    print(file=sys.stderr)
    base = speeds[next(iter(runtimes))]
    rows = {}
    print(
        f"{given.prompt} tokens of prompt, {given.steps} steps, {given.threads} threads, {given.rounds} rounds of {REPEATS}, load before {load:.1f}"
    )
    print(f"{'':48}{'prefill t/s':>12}{'ratio':>7}{'decode t/s':>12}{'ratio':>7}{'top-1':>8}")
    for name, found in speeds.items():
        prefill, decode = (statistics.median(p[k] for p in found) for k in (0, 1))
        ratios = [ratio(found, base, k)[0] for k in (0, 1)]
        top1 = agreeing.get(name)
        rows[name] = {"prefill": prefill, "decode": decode, "prefill_ratio": ratios[0], "decode_ratio": ratios[1], "top1": top1, "rounds": found}  # fmt: skip
        shown = "–" if top1 is None else f"{100 * top1:.1f} %"
        print(f"{name:48}{prefill:12.1f}{ratios[0]:7.2f}{decode:12.1f}{ratios[1]:7.2f}{shown:>8}")
    said = verdicts(speeds, agreeing)
    print("\n".join(said))
    print(json.dumps({"rows": rows, "verdicts": said}))


if __name__ == "__main__":
    main()
