"""A large model's true shape, with random weights, through export and run on this machine: time, memory and disk.

`python benchmarks/export_large.py --folder FOLDER [--shape llava-v1.5-7b] [--layers N] [--precision int8 int4] [--run]`

Writes fp16 shards once (14 GB for the 7B) and exports them by the command line; prints one line of JSON for each: wall
time and peak resident memory of the export's process beside their goals, sizes, and the load average, since other
work on the machine disturbs times. With `--run` the artifact of the last precision answers one forensics question by
`edgebench run`, in normal and in low-memory mode, a line of JSON each: the report's row. Other precisions' artifacts
are removed once they are measured. By hand; the 7B needs 40 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GOAL_S, GOAL_MIB = 360, 1536
"""Of an export; GOAL_MIB is also the goal of a low-memory run's anonymous memory."""
VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
          "image_size": 336, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000, "model_type": "clip_vision_model"}  # fmt: skip
LLAMA = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "model_type": "llama", "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False}  # fmt: skip
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


@dataclass(frozen=True)
class Shape:
    """One published model, as far as its size goes."""

    family: str
    architecture: str
    layers: int
    image_token_id: int
    text: dict[str, Any]
    pinpoints: list[list[int]] | None = None
    """LLaVA-NeXT: sizes that a picture is tiled to."""


SHAPES = {
    "llava-v1.5-7b": Shape("llava", "LlavaForConditionalGeneration", 32, 32000,
        LLAMA | {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
                 "num_key_value_heads": 32, "vocab_size": 32064}),
    "llava-v1.6-34b": Shape("llava_next", "LlavaNextForConditionalGeneration", 60, 64000,
        LLAMA | {"hidden_size": 7168, "intermediate_size": 20480, "num_attention_heads": 56,
                 "num_key_value_heads": 8, "vocab_size": 64064, "rope_theta": 5e6}, PINPOINTS),
}  # fmt: skip


class Values:
    """Random fp16 values; every tensor begins elsewhere in one pool, so that no two are alike."""

    def __init__(self) -> None:
        self.pool = (np.random.default_rng(0).standard_normal(1 << 26) * 0.02).astype(np.float16)
        self.at = 0

    def weight(self, *shape: int) -> np.ndarray:
        """A tensor of this shape."""
        count = int(np.prod(shape))
        self.at = (self.at + 104729) % (len(self.pool) // 2)
        part = self.pool[self.at : self.at + count]
        return (part if len(part) == count else np.resize(part, count)).reshape(shape)

    def norm(self, size: int) -> np.ndarray:
        """Near one."""
        return (1 + self.weight(size)).astype(np.float16)


def write_checkpoint(folder: Path, shape: Shape, layers: int) -> None:
    """Shards of random fp16 weights, one a layer, with tokenizer and settings; distinct values in every tensor."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    values = Values()
    w, t = values.weight, shape.text
    h, m, v, vocabulary = t["hidden_size"], t["intermediate_size"], VISION["hidden_size"], t["vocab_size"]
    kv = h // t["num_attention_heads"] * t["num_key_value_heads"]
    for k in range(layers):
        p = f"language_model.model.layers.{k}."
        rows = {"self_attn.q": (h, h), "self_attn.k": (kv, h), "self_attn.v": (kv, h), "self_attn.o": (h, h),
                "mlp.gate": (m, h), "mlp.up": (m, h), "mlp.down": (h, m)}  # fmt: skip
        tensors = {f"{p}{n}_proj.weight": w(*size) for n, size in rows.items()}
        tensors |= {f"{p}{n}_layernorm.weight": values.norm(h) for n in ("input", "post_attention")}
        save_file(tensors, folder / f"model-{k:05d}.safetensors")
    for n, name in enumerate(("model.embed_tokens", "lm_head")):
        save_file({f"language_model.{name}.weight": w(vocabulary, h)}, folder / f"model-end-{n}.safetensors")
    save_file(vision_tensors(values, shape, h, int(v)), folder / "model-rest.safetensors")
    config = {"model_type": shape.family, "architectures": [shape.architecture], "image_token_index": shape.image_token_id,
              "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "projector_hidden_act": "gelu",
              "vision_config": VISION, "text_config": t | {"num_hidden_layers": layers}}  # fmt: skip
    processor = {"image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 336},
                 "do_center_crop": True, "crop_size": {"height": 336, "width": 336}, "resample": 3, "do_rescale": True,
                 "do_normalize": True, "image_mean": MEAN, "image_std": STD}  # fmt: skip
    if shape.pinpoints is not None:
        config["image_grid_pinpoints"] = processor["image_grid_pinpoints"] = shape.pinpoints
        processor["image_processor_type"] = "LlavaNextImageProcessor"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    write_tokenizer(folder, shape.image_token_id)


def vision_tensors(values: Values, shape: Shape, h: int, v: int) -> dict[str, np.ndarray]:
    """CLIP ViT-L/14 at 336 pixels, the projector, the last norm, and NeXT's end of a row."""
    w = values.weight
    found = {"language_model.model.norm.weight": values.norm(h)}
    if shape.pinpoints is not None:
        found["image_newline"] = w(h)
    for n, (a, b) in {"1": (h, v), "2": (h, h)}.items():
        found |= {f"multi_modal_projector.linear_{n}.weight": w(a, b), f"multi_modal_projector.linear_{n}.bias": w(a)}
    p = "vision_tower.vision_model."
    found |= {f"{p}embeddings.class_embedding": w(v), f"{p}embeddings.patch_embedding.weight": w(v, 3, 14, 14),
              f"{p}embeddings.position_embedding.weight": w(24 * 24 + 1, v)}  # fmt: skip
    norms = [f"encoder.layers.{k}.layer_norm{i}" for k in range(24) for i in (1, 2)]
    for n in ("pre_layrnorm", "post_layernorm", *norms):
        found |= {f"{p}{n}.weight": values.norm(v), f"{p}{n}.bias": w(v)}
    for k in range(24):
        sizes = {f"self_attn.{n}": (v, v) for n in ("q_proj", "k_proj", "v_proj", "out_proj")}
        for n, (a, b) in (sizes | {"mlp.fc1": (4096, v), "mlp.fc2": (v, 4096)}).items():
            found |= {f"{p}encoder.layers.{k}.{n}.weight": w(a, b), f"{p}encoder.layers.{k}.{n}.bias": w(a)}
    return found


def write_tokenizer(folder: Path, image_token_id: int) -> None:
    """Words, of which only the letters and the special tokens mean anything."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: k for k, word in enumerate(["<unk>", "<s>", "</s>", *"ABCD"])}
    words |= {f"w{k}": k for k in range(len(words), image_token_id)} | {"<image>": image_token_id}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    tokenizer.add_special_tokens(["<s>", "</s>", "<image>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


def write_recipe(path: Path, name: str, family: str) -> Path:
    """A recipe of that family, which takes the checkpoint's own preprocessing, and LLaVA-1.5's prompt."""
    template = "USER: {% for part in messages[0]['content'] %}{% if part['type'] == 'image' %} <image> {% else %}{{ part['text'] }}{% endif %}{% endfor %} ASSISTANT:"
    path.write_text(
        f"name: {name}\nsummary: Its true shape, random weights.\nfamily: {family}\nsource: random\nlicence: none\n"
        f"prompt:\n  style: llava\n  max_new_tokens: 64\n  chat_template: {json.dumps(template)}\n"
        "parity:\n  fp32: {max_abs: 1e-3}\n  fp16: {relative_rms: 0.02}\n  int8: {relative_rms: 0.1}\n  int4: {relative_rms: 0.35}\n"
    )
    return path


def load_average() -> float:
    """Of the last minute."""
    return round(os.getloadavg()[0], 1)


def show(row: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(row), flush=True)


def export(tool: list[str], recipe: str, checkpoint: Path, precision: str, out: Path) -> dict[str, Any]:
    """Wall time and peak resident memory of one export."""
    shutil.rmtree(out, ignore_errors=True)
    before, begin = load_average(), time.monotonic()
    command = [*tool, "export", recipe, "--weights", str(checkpoint), f"--{precision}", "--no-parity", "-o", str(out)]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds, peak = time.monotonic() - begin, usage.ru_maxrss // 1024
    code = os.waitstatus_to_exitcode(status)
    size = sum(p.stat().st_size for p in out.iterdir()) if out.exists() else 0
    return {"export": precision, "exit": code, "seconds": round(seconds, 1), "goal_s": GOAL_S, "peak_mib": peak,
            "goal_mib": GOAL_MIB, "kept": code == 0 and seconds <= GOAL_S and peak <= GOAL_MIB,
            "artifact_gb": round(size / 1e9, 2), "load_average": [before, load_average()]}  # fmt: skip


def ask(tool: list[str], artifact: Path, data: Path, memory: str, tokens: int) -> tuple[dict[str, Any], Any]:
    """The report's row of one question, and what was answered."""
    folder = artifact.parent / f"run-{memory}-{time.time_ns()}"
    before = load_average()
    command = [*tool, "run", str(artifact), "--data", str(data), "--memory", memory, "--json",
               "--max-new-tokens", str(tokens), "-o", str(folder)]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    said = json.loads(done.stdout)
    held = {k: None if v is None else round(v / 2**20) for k, v in said["memory"].items() if k.endswith("_bytes")}
    stages = {name: round(s["mean"], 1) for name, s in said["latency_ms"].items()}
    row = {"run": artifact.name, "memory": memory, "questions": said["summary"]["answered"], "latency_ms": stages,
           "load_s": round(said["load_ms"] / 1e3, 1), "prepack_s": said["engine"].get("prepack_s"),
           "mib": {k.removesuffix("_bytes"): v for k, v in held.items()},
           "prompt_tokens": said["throughput"]["prompt_tokens_mean"], "load_average": [before, load_average()]}  # fmt: skip
    if memory == "low":
        anonymous = held["peak_anonymous_bytes"]
        row |= {"goal_anonymous_mib": GOAL_MIB, "kept": None if anonymous is None else anonymous <= GOAL_MIB}
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    answers = [{k: line.get(k) for k in ("id", "text", "option_logprobs")} for line in lines if line["kind"] == "answer"]  # fmt: skip
    return row, answers


def main() -> None:
    """Write, export, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llava-v1.5-7b")
    parser.add_argument("--layers", type=int, help="Of the decoder; by default the published number.")
    parser.add_argument("--precision", nargs="+", default=["int8", "int4"])
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--tokens", type=int, default=4, help="Of the answer, at most.")
    given = parser.parse_args()
    shape = SHAPES[given.shape]
    layers = given.layers or shape.layers
    place = given.folder / f"{given.shape}-{layers}"
    checkpoint, tool = place / "checkpoint", [sys.executable, "-m", "edgebench"]
    if not (checkpoint / "tokenizer_config.json").exists():
        begin = time.monotonic()
        # In a process of its own: the peak of a child's memory begins with its parent's.
        writer = multiprocessing.get_context("spawn").Process(target=write_checkpoint, args=(checkpoint, shape, layers))
        writer.start()
        writer.join()
        if writer.exitcode:
            sys.exit(f"the checkpoint could not be written: exit code {writer.exitcode}")
        size = sum(p.stat().st_size for p in checkpoint.iterdir())
        show({"shape": given.shape, "layers": layers, "wrote_gb": round(size / 1e9, 1),
              "seconds": round(time.monotonic() - begin)})  # fmt: skip
    shipped = given.shape == "llava-v1.5-7b"
    recipe = given.shape if shipped else str(write_recipe(place / f"{given.shape}.yaml", given.shape, shape.family))
    for precision in given.precision:
        found = export(tool, recipe, checkpoint, precision, place / precision)
        show({"shape": given.shape, "layers": layers, **found})
        if precision != given.precision[-1]:
            shutil.rmtree(place / precision, ignore_errors=True)
    if given.run:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from tests import twins

        row = twins.rows(1)[0] | {"image": twins.b64(twins.encoded(twins.picture(0, 1000, 750)))}
        data = twins.write_tsv(place / "ForensicsBench.tsv", [row])
        said = []
        for memory in ("normal", "low"):
            found, answers = ask(tool, place / given.precision[-1], data, memory, given.tokens)
            show({"shape": given.shape, "layers": layers, **found})
            said.append(answers)
        show({"same_answer_to_the_bit": said[0] == said[1]})


if __name__ == "__main__":
    main()
