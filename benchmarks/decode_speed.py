"""Decode and prefill of one language model, the same weights in several runtimes, interleaved in one run.

`python benchmarks/decode_speed.py ARTIFACT [--genai FOLDER] [--gguf FILE] [--checkpoint FOLDER] [--openvino ARTIFACT]`

ARTIFACT: what `edgebench export smollm2-135m --int8` wrote; it runs in edgebench's own engine and, as it is, in
onnxruntime-genai where that is installed. FOLDER of --genai: what genai's own builder wrote. --gguf: llama.cpp
(xllamacpp). --openvino: an artifact of the dialect portable in fp32. --checkpoint: transformers, eager, float32 and bfloat16. Each round runs every runtime once, in an order
that turns; medians of tokens per second and the ratio to edgebench are printed, and JSON on the last line. The same
number of threads for all. Run by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Runtime(Protocol):
    """One way to run the model."""

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt; returns when the first token's logits are there."""

    def decode(self, steps: int) -> None:
        """So many further tokens, greedily."""


class Edgebench:
    """Our engine on our artifact."""

    def __init__(self, folder: Path, threads: int) -> None:
        from edgebench.engines.ort import OrtEngine
        from edgebench.manifest import read_artifact
        from edgebench.profiles import DeviceProfile

        artifact = read_artifact(folder, verify=False)
        self.engine = OrtEngine(artifact, DeviceProfile(name="here", summary="", threads=threads), {}).__enter__()
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


class OpenVino:
    """OpenVINO on an artifact of the dialect 'portable', computing in float32."""

    def __init__(self, folder: Path, threads: int) -> None:
        import openvino

        from edgebench.manifest import read_artifact

        self.decoder = read_artifact(folder, verify=False).manifest.decoder
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        compiled = openvino.Core().compile_model(str(folder / "decoder.onnx"), "CPU", settings)
        self.request = compiled.create_infer_request()

    def _run(self, ids: np.ndarray) -> None:
        past = self.cache[0].shape[2]
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones((1, past + ids.shape[1]), np.int64),
            "position_ids": np.arange(past, past + ids.shape[1])[None],
            "logits_index": np.array([ids.shape[1] - 1]),
        }
        for layer in range(self.decoder.layers):  # type: ignore[union-attr]
            feeds[f"past_key_values.{layer}.key"], feeds[f"past_key_values.{layer}.value"] = self.cache[2 * layer : 2 * layer + 2]  # fmt: skip
        out = list(self.request.infer(feeds, share_inputs=True).values())
        self.cache = [np.array(value) for value in out[1:]]
        self.token = int(out[0][0, -1].argmax())

    def prefill(self, ids: list[int]) -> None:
        """Read the prompt."""
        d = self.decoder
        self.cache = [np.zeros((1, d.kv_heads, 0, d.head_dim), np.float32)] * (2 * d.layers)  # type: ignore[union-attr]
        self._run(np.array([ids], dtype=np.int64))

    def decode(self, steps: int) -> None:
        """Further tokens."""
        for _ in range(steps):
            self._run(np.array([[self.token]], dtype=np.int64))


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=Path, nargs="+")
    parser.add_argument("--genai", type=Path, nargs="*", default=[])
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--openvino", type=Path)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    runtimes: dict[str, Runtime] = {f"edgebench {a.name}": Edgebench(a, given.threads) for a in given.artifact}
    try:
        import onnxruntime_genai  # noqa: F401

        for artifact in given.artifact:
            if (artifact / "genai_config.json").is_file():
                runtimes[f"genai on edgebench's {artifact.name}"] = Genai(artifact, given.threads)
        for folder in given.genai:
            runtimes[f"genai on its own {folder.name}"] = Genai(folder, given.threads)
    except ImportError:
        print("onnxruntime-genai is not installed: left out")
    if given.gguf:
        runtimes[f"llama.cpp {given.gguf.stem.rsplit('.', 1)[-1]}"] = Llama(given.gguf, given.threads)
    if given.openvino:
        runtimes[f"OpenVINO f32 on {given.openvino.name}"] = OpenVino(given.openvino, given.threads)
    if given.checkpoint:
        for dtype in ("float32", "bfloat16"):
            runtimes[f"transformers eager {dtype}"] = Torch(given.checkpoint, given.threads, dtype)
    ids = np.random.default_rng(0).integers(100, 40000, given.prompt).tolist()
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in runtimes}
    names = list(runtimes)
    for round_ in range(given.rounds + 1):
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            runtime = runtimes[name]
            begin = time.perf_counter()
            runtime.prefill(ids)
            filled = time.perf_counter()
            runtime.decode(given.steps)
            end = time.perf_counter()
            pair = (given.prompt / (filled - begin), given.steps / (end - filled))
            if isinstance(runtime, Llama):
                pair = (runtime.timings["prompt_per_second"], runtime.timings["predicted_per_second"])
            if round_:  # the first warms up
                speeds[name].append(pair)
    base = speeds[names[0]]
    rows = {}
    print(
        f"{given.prompt} tokens of prompt, {given.steps} steps, {given.threads} threads, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'':44}{'prefill t/s':>12}{'ratio':>7}{'decode t/s':>12}{'ratio':>7}")
    for name, found in speeds.items():
        prefill, decode = (statistics.median(p[k] for p in found) for k in (0, 1))
        ratios = [statistics.median(f[k] / b[k] for f, b in zip(found, base, strict=True)) for k in (0, 1)]
        rows[name] = {"prefill": prefill, "decode": decode, "prefill_ratio": ratios[0], "decode_ratio": ratios[1]}
        print(f"{name:44}{prefill:12.1f}{ratios[0]:7.2f}{decode:12.1f}{ratios[1]:7.2f}")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
