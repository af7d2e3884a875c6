"""LLaVA-1.5-7B at its true shape, with random weights, through the export on this machine: time, memory and disk.

`python benchmarks/export_7b.py --folder FOLDER [--precision int8 int4] [--layers 32]`

Writes 14 GB of fp16 shards once, exports them by the command line, and prints one line of JSON for each: wall time,
peak resident memory of the export's process, sizes. Run by hand; needs about 30 GB of disk. With `--run` the int4
artifact answers one question by `edgebench run`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
          "image_size": 336, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000, "model_type": "clip_vision_model"}  # fmt: skip
TEXT = {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 32064, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "model_type": "llama",
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False}  # fmt: skip
IMAGE_TOKEN_ID = 32000


def write_checkpoint(folder: Path, layers: int) -> None:
    """Shards of random fp16 weights, one a layer, with tokenizer and settings; distinct values in every tensor."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    h, m, v = TEXT["hidden_size"], TEXT["intermediate_size"], VISION["hidden_size"]
    pool = (np.random.default_rng(0).standard_normal(1 << 26) * 0.02).astype(np.float16)
    at = 0

    def weight(*shape: int) -> np.ndarray:
        nonlocal at
        count = int(np.prod(shape))
        at = (at + 104729) % (len(pool) // 2)
        part = pool[at : at + count]
        return (part if len(part) == count else np.resize(part, count)).reshape(shape)

    def norm(size: int) -> np.ndarray:
        return (1 + weight(size)).astype(np.float16)

    for k in range(layers):
        p = f"language_model.model.layers.{k}."
        attention = {f"{p}self_attn.{n}_proj.weight": weight(h, h) for n in "qkvo"}
        mlp = {f"{p}mlp.{n}_proj.weight": weight(m, h) for n in ("gate", "up")} | {
            f"{p}mlp.down_proj.weight": weight(h, m)
        }
        norms = {f"{p}{n}_layernorm.weight": norm(h) for n in ("input", "post_attention")}
        save_file(attention | mlp | norms, folder / f"model-{k:05d}.safetensors")
    rest = {"language_model.model.embed_tokens.weight": weight(TEXT["vocab_size"], h), "language_model.model.norm.weight": norm(h),
            "language_model.lm_head.weight": weight(TEXT["vocab_size"], h)}  # fmt: skip
    for n, (a, b) in {"1": (h, v), "2": (h, h)}.items():
        rest |= {
            f"multi_modal_projector.linear_{n}.weight": weight(a, b),
            f"multi_modal_projector.linear_{n}.bias": weight(a),
        }
    p, patches = "vision_tower.vision_model.", (VISION["image_size"] // VISION["patch_size"]) ** 2
    rest |= {f"{p}embeddings.class_embedding": weight(v), f"{p}embeddings.patch_embedding.weight": weight(v, 3, 14, 14),
             f"{p}embeddings.position_embedding.weight": weight(patches + 1, v)}  # fmt: skip
    for n in (
        "pre_layrnorm",
        "post_layernorm",
        *(f"encoder.layers.{k}.layer_norm{i}" for k in range(24) for i in (1, 2)),
    ):
        rest |= {f"{p}{n}.weight": norm(v), f"{p}{n}.bias": weight(v)}
    for k in range(24):
        for n in ("q_proj", "k_proj", "v_proj", "out_proj"):
            rest |= {
                f"{p}encoder.layers.{k}.self_attn.{n}.weight": weight(v, v),
                f"{p}encoder.layers.{k}.self_attn.{n}.bias": weight(v),
            }
        rest |= {f"{p}encoder.layers.{k}.mlp.fc1.weight": weight(4096, v), f"{p}encoder.layers.{k}.mlp.fc1.bias": weight(4096),
                 f"{p}encoder.layers.{k}.mlp.fc2.weight": weight(v, 4096), f"{p}encoder.layers.{k}.mlp.fc2.bias": weight(v)}  # fmt: skip
    save_file(rest, folder / "model-rest.safetensors")
    config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": IMAGE_TOKEN_ID,
              "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "projector_hidden_act": "gelu",
              "vision_config": VISION, "text_config": TEXT | {"num_hidden_layers": layers}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    words = {word: k for k, word in enumerate(["<unk>", "<s>", "</s>", *"ABCD"])}
    words |= {f"w{k}": k for k in range(len(words), IMAGE_TOKEN_ID)} | {"<image>": IMAGE_TOKEN_ID}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    tokenizer.add_special_tokens(["<s>", "</s>", "<image>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


def measured(command: list[str]) -> dict[str, float | int]:
    """Wall time and peak resident memory of a command and its children."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    return {
        "exit": os.waitstatus_to_exitcode(status),
        "seconds": round(time.monotonic() - begin, 1),
        "peak_mib": usage.ru_maxrss // 1024,
    }


def main() -> None:
    """Write, export, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--precision", nargs="+", default=["int8", "int4"])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args()
    checkpoint = given.folder / "checkpoint"
    if not (checkpoint / "tokenizer_config.json").exists():
        begin = time.monotonic()
        write_checkpoint(checkpoint, given.layers)
        print(
            json.dumps(
                {
                    "wrote": f"{sum(p.stat().st_size for p in checkpoint.iterdir()) / 1e9:.1f} GB",
                    "seconds": round(time.monotonic() - begin),
                }
            )
        )
    tool = [sys.executable, "-m", "edgebench"]
    for precision in given.precision:
        out = given.folder / precision
        shutil.rmtree(out, ignore_errors=True)
        found = measured(
            [
                *tool,
                "export",
                "llava-v1.5-7b",
                "--weights",
                str(checkpoint),
                f"--{precision}",
                "--no-parity",
                "-o",
                str(out),
            ]
        )
        size = sum(p.stat().st_size for p in out.iterdir()) if out.exists() else 0
        print(json.dumps({"export": precision, **found, "artifact_gb": round(size / 1e9, 2)}), flush=True)
    if given.run:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from tests import twins

        twins.write_tsv(given.folder / "ForensicsBench.tsv", twins.rows(1))
        found = measured([*tool, "run", str(given.folder / given.precision[-1]), "--data", str(given.folder / "ForensicsBench.tsv"),
                          "--no-warmup", "--max-new-tokens", "2", "-o", str(given.folder / f"run-{time.time_ns()}")])  # fmt: skip
        print(
            json.dumps(
                {
                    "run": given.precision[-1],
                    **found,
                    "peak_of_children_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
                }
            )
        )


if __name__ == "__main__":
    main()
