"""Scores of a checkpoint on a split of the mini benchmark: plain, after a JPEG pass, and with shuffled pictures.

`python training/evaluate.py [--checkpoint FOLDER] [--split test] [--seed 0]`

Needs torch and transformers; reads the checkpoint with transformers itself, not with edgebench's own runtime.
"""

from __future__ import annotations

import argparse
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from tower import normalised
from vocabulary import Encoder

from edgebench.demo.mini import drafts
from edgebench.demo.panels import GAP, TITLE, composite
from edgebench.demo.scenes import TILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.demo.questions import Draft

Asked = list[tuple[str, "Draft"]]
MODEL = Path(__file__).resolve().parent.parent / "edgebench" / "demo" / "model"


def load_checkpoint(folder: Path) -> tuple[Any, Any]:
    """(model in float32, tokenizer) of a checkpoint folder."""
    from tokenizers import Tokenizer
    from transformers import LlavaForConditionalGeneration

    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))


@torch.no_grad()
def answers(model: Any, tokenizer: Any, asked: Sequence[Draft]) -> np.ndarray:
    """The index of the first letter that each question gets by greedy decoding; -1 where it is no letter."""
    encoder = Encoder(tokenizer)
    out = np.full(len(asked), -1)
    by_size: dict[int, list[int]] = {}
    for k, draft in enumerate(asked):
        by_size.setdefault(len(draft.tiles), []).append(k)
    for size, places in by_size.items():
        step = max(1, 64 // size)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            prompts = [encoder(asked[k]).ids for k in part]
            length = max(map(len, prompts))
            ids = torch.zeros(len(part), length, dtype=torch.long)
            for row, prompt in enumerate(prompts):
                ids[row, : len(prompt)] = torch.tensor(prompt)
            pixels = normalised(np.concatenate([asked[k].tiles for k in part]))
            logits = model(input_ids=ids, pixel_values=pixels).logits
            for row, prompt in enumerate(prompts):
                token = int(logits[row, len(prompt) - 1].argmax())
                if token in encoder.letters:
                    out[part[row]] = encoder.letters.index(token)
    return out


def compressed(draft: Draft, quality: int = 75) -> Draft:
    """The same question after one JPEG pass over its whole picture."""
    stream = io.BytesIO()
    Image.fromarray(composite(draft)).save(stream, "JPEG", quality=quality)
    image = np.asarray(Image.open(stream).convert("RGB"))
    head = 0 if draft.titles is None else TITLE
    rows = len(draft.tiles) // draft.columns
    tiles = [
        image[(top := r * (head + TILE + GAP) + head) : top + TILE, (left := c * (TILE + GAP)) : left + TILE]
        for r in range(rows)
        for c in range(draft.columns)
    ]
    return replace(draft, tiles=np.stack(tiles))


def shuffled(asked: Sequence[Draft], seed: int) -> list[Draft]:
    """Every question with the frames of another question of its kind; mask candidates stay where they are."""
    rng = np.random.default_rng(seed)
    out = list(asked)
    kinds: dict[tuple[str, int], list[int]] = {}
    for k, draft in enumerate(asked):
        kinds.setdefault((draft.task, len(draft.tiles)), []).append(k)
    for places in kinds.values():
        order = rng.permutation(len(places))
        for one, other in zip(order, np.roll(order, 1), strict=True):
            target, source = asked[places[one]], asked[places[other]]
            frames = len(source.sample.frames)
            tiles = np.concatenate([source.tiles[:frames], target.tiles[frames:]])
            out[places[one]] = replace(target, tiles=tiles)
    return out


def interval(right: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z, share = 1.959964, right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - half, middle + half


def group_of(category: str) -> str:
    """The row of the score table that a question belongs to."""
    modality, task = category.split("_")[3:]
    names = {"visibleimage": "RGB", "visibleimagetext": "RGB&TXT", "video": "VID"}
    tasks = {"category": "BC", "seg": "SLS", "det": "SLD", "temporal": "TL"}
    return f"{tasks[task]} {names[modality]}"


def table(asked: Asked, given: np.ndarray) -> dict[str, dict[str, Any]]:
    """Scores by task, by task and modality, and for binary questions by operation and photograph."""
    rows: dict[str, list[int]] = {}
    truth = np.array([draft.answer for _, draft in asked])
    forged = np.array(["real" not in category.split("_")[1] for category, _ in asked])
    for k, (category, draft) in enumerate(asked):
        name = group_of(category)
        task = name.split()[0]
        keys = [task, name]
        if task != "BC":
            keys.append(f"{task} {'forged' if forged[k] else 'real'}")
        else:
            keys += [f"BC operation {draft.sample.operation}", f"BC photograph {draft.sample.photograph}"]
        for key in keys:
            rows.setdefault(key, []).append(k)
    out: dict[str, dict[str, Any]] = {}
    for name, chosen in sorted(rows.items()):
        places = np.array(chosen)
        hit = given[places] == truth[places]
        low, high = interval(int(hit.sum()), len(hit))
        row: dict[str, Any] = {"n": len(hit), "accuracy": float(hit.mean()), "low": low, "high": high}
        if name.startswith("BC"):
            sides = [hit[forged[places] == side] for side in (False, True)]
            if all(len(side) for side in sides):
                row |= {"real": float(sides[0].mean()), "forged": float(sides[1].mean())}
                row["balanced"] = (row["real"] + row["forged"]) / 2
        out[name] = row
    return out


def scores(model: Any, tokenizer: Any, *, split: str = "test", seed: int = 0) -> dict[str, dict[str, dict[str, Any]]]:
    """Three tables: `plain`, `jpeg75` and `shuffled`."""
    asked = [(entry.category, draft) for entry, draft in drafts(seed=seed, split=split)]
    plain = [draft for _, draft in asked]
    variants = {"plain": plain, "jpeg75": [compressed(d) for d in plain], "shuffled": shuffled(plain, seed)}
    return {name: table(asked, answers(model, tokenizer, chosen)) for name, chosen in variants.items()}


def show(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The three tables as text."""
    lines = []
    for name, rows in found.items():
        lines.append(name)
        for key, row in rows.items():
            extra = (
                f" balanced {row['balanced']:.3f} (real {row['real']:.3f}, forged {row['forged']:.3f})"
                if "balanced" in row
                else ""
            )
            lines.append(
                f"  {key:32s} n {row['n']:4d} {row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]{extra}"
            )
    return "\n".join(lines)


def main() -> None:
    """Print the scores; `--json` writes them too."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--checkpoint", type=Path, default=MODEL)
    parser.add_argument("--split", default="test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = scores(*load_checkpoint(given.checkpoint), split=given.split, seed=given.seed)
    print(show(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
