"""LLaVA-NeXT: tiles, unpadded rows and their ends, against transformers' own generation from pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgebench.engines.ort import OrtEngine
from edgebench.manifest import read_artifact
from edgebench.media.pixels import pixels
from edgebench.profiles import load_profile
from edgebench.prompts.conversation import Conversation
from edgebench.prompts.placing import chosen, placing
from tests import twins
from tests.conftest import Cli, rarely
from tests.prompts.test_conversation import QUESTION

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
SIZES = [(40, 90), (90, 40), (64, 60), (200, 30), (28, 28)]
"""Rows and columns: wide, high, nearly square, very high, and exactly a tile."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twins.write_llava_next(tmp_path_factory.mktemp("next") / "twin")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> dict[str, Path]:
    cli = Cli(tmp_path_factory.mktemp("exported"))
    for dialect in ("ort", "portable"):
        done = cli("export", "llava-next", "--weights", checkpoint, "--dialect", dialect, "-o", dialect)
        assert done.code == 0, done.err
    return {dialect: cli.folder / dialect for dialect in ("ort", "portable")}


def picture(rows: int, columns: int) -> np.ndarray:
    return np.asarray(Image.fromarray(np.asarray(twins.picture(rows))).resize((columns, rows)).convert("RGB"))


@pytest.mark.parametrize("dialect", ["ort", "portable"])
@pytest.mark.parametrize("sizes", [SIZES[:1], SIZES[1:2], SIZES[2:], SIZES])
def test_answers_are_those_of_transformers(
    checkpoint: Path, exported: dict[str, Path], dialect: str, sizes: list[tuple[int, int]]
) -> None:
    """The processor's pixels and token counts, its model's logits: none of them is taken from our code."""
    artifact = read_artifact(exported[dialect])
    m = artifact.manifest
    assert m.text is not None
    assert m.text.images is not None
    assert m.preprocess is not None
    pictures = [picture(*size) for size in sizes]
    kind: Any = transformers.LlavaNextImageProcessorPil
    processor = kind.from_pretrained(checkpoint)
    shown = processor(images=[Image.fromarray(p) for p in pictures], return_tensors="pt")
    tiles = [pixels(p, m.preprocess) for p in pictures]
    for ours, theirs in zip(tiles, shown["pixel_values"], strict=True):
        assert np.array_equal(ours, theirs[: len(ours)].numpy())
    placed = [placing(p.shape[:2], len(t), m.preprocess, m.text.images) for p, t in zip(pictures, tiles, strict=True)]
    ids = Conversation(m.text, artifact.path(m.text.tokenizer)).ids(QUESTION, placed)
    asked = np.where(ids == m.text.images.newline_id, m.text.images.id, ids)
    model_class: Any = transformers.LlavaNextForConditionalGeneration
    model = model_class.from_pretrained(checkpoint, attn_implementation="eager").eval()
    with torch.inference_mode():
        out = model.generate(
            input_ids=torch.from_numpy(asked[None]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            pixel_values=shown["pixel_values"], image_sizes=shown["image_sizes"], max_new_tokens=9, min_new_tokens=9,
            do_sample=False, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    tokens = out.sequences[0, len(ids) :].tolist()
    expected = torch.stack(out.logits)[:, 0].numpy()
    with OrtEngine(artifact, load_profile("cpu-1-thread"), {}) as engine:
        features = chosen(engine.see(np.concatenate(tiles)), placed)
        found = [engine.prefill(ids, features)] + [engine.step(t) for t in tokens[:-1]]
    assert np.abs(np.stack(found) - expected).max() < 1e-4
    assert np.stack(found).argmax(-1).tolist() == tokens


def test_it_runs_a_benchmark(cli: Cli, exported: dict[str, Path], tsv: Path) -> None:
    done = cli("run", exported["ort"], "--data", tsv, "-o", "run", "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["answered"] == 40


@pytest.mark.parametrize("precision", ["int8", rarely("fp16"), rarely("bf16"), rarely("int4")])
def test_every_precision_keeps_its_bound(cli: Cli, checkpoint: Path, precision: str) -> None:
    for dialect in ("ort", "portable"):
        done = cli("export", "llava-next", "--weights", checkpoint, f"--{precision}", "--dialect", dialect, "-o", dialect, "--json")  # fmt: skip
        assert done.code == 0, done.err
        assert all(r["relative_rms"] > 0 for r in done.json["manifest"]["parity"]["rows"])


def test_another_family_is_one_line(cli: Cli, checkpoint: Path, twin: Path) -> None:
    for recipe, weights, says in (("llava", checkpoint, "not a 'llava'"), ("llava-next", twin, "not a 'llava_next'")):
        done = cli("export", recipe, "--weights", weights, "-o", "out")
        assert done.code == 4
        assert says in done.err
