"""llama.cpp's own server on loopback, with SmolLM2 and a vision part of random weights: a process of its own.

`python -m tests.llama_server MODEL.gguf MMPROJ.gguf` prints the address and serves until its standard input ends.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
HIDDEN, FEED_FORWARD, PATCH, SIDE, TEXT = 64, 128, 14, 56, 576


def write_vision(path: Path) -> Path:
    """A LLaVA-1.5 vision part of one layer that gives SmolLM2 sixteen tokens for a picture."""
    from gguf import GGUFWriter

    writer = GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", False)
    writer.add_string("clip.projector_type", "mlp")
    sizes = {
        "image_size": SIDE,
        "patch_size": PATCH,
        "embedding_length": HIDDEN,
        "feed_forward_length": FEED_FORWARD,
        "projection_dim": TEXT,
        "block_count": 1,
        "attention.head_count": 2,
    }
    for key, value in sizes.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.48, 0.46, 0.41])
    writer.add_array("clip.vision.image_std", [0.27, 0.26, 0.28])
    shapes: dict[str, tuple[int, ...]] = {
        "v.class_embd": (HIDDEN,),
        "v.patch_embd.weight": (HIDDEN, 3, PATCH, PATCH),
        "v.position_embd.weight": ((SIDE // PATCH) ** 2 + 1, HIDDEN),
    }
    linear = {f"v.blk.0.attn_{part}": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "out")}
    linear |= {"v.blk.0.ffn_up": (FEED_FORWARD, HIDDEN), "v.blk.0.ffn_down": (HIDDEN, FEED_FORWARD)}
    linear |= {"mm.0": (TEXT, HIDDEN), "mm.2": (TEXT, TEXT)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in ("v.pre_ln", "v.blk.0.ln1", "v.blk.0.ln2"):
        shapes |= {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, rng.normal(0, 0.05, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@contextlib.contextmanager
def serving(model: Path, vision: Path, log: Path) -> Iterator[str]:
    """The server's base URL, while it runs."""
    command = [sys.executable, "-m", "tests.llama_server", str(model), str(vision)]
    with (
        log.open("wb") as said,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as server,
    ):
        assert server.stdin is not None and server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), log.read_text(errors="replace")[-2000:]
            yield f"{address}/v1"
        finally:
            server.stdin.close()
            server.wait(timeout=30)


def _serve(model: str, vision: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.mmproj.path = model, vision
    params.model_alias = {"smollm2"}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 2048, 2, 1
    # Nothing is tried out or packed before the first question.
    params.warmup = params.fit_params = params.mmproj_use_gpu = False
    params.no_extra_bufts = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
