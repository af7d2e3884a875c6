"""From photographs to the demo model's checkpoint, in one command.

`python training/train_demo.py --photographs FOLDER [--seed 0] [--out FOLDER]`

FOLDER is the `backgrounds` folder of the wallpaper packages in `wallpapers.py`. The seed fixes the data, the start
and the order; kernels and thread counts may still differ in the last digits between machines. On one core the data
take about 4 minutes and the two stages 15 and 30. No test photograph is opened before the scores at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from banks import make_banks
from card import DEFAULT_NOTE, card
from checkpoint import write_checkpoint
from decoder import train_decoder
from evaluate import MODEL, load_checkpoint, scores, show
from threshold import balance
from tower import train_tower


def main() -> None:
    """Train, write, and print the scores on the test photographs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiles", type=int, default=40_000, help="training pictures")
    parser.add_argument("--clips", type=int, default=2_400, help="training clips of 8 frames")
    parser.add_argument("--steps-a", type=int, default=STEPS_A, help="batches of 64 for the tower")
    parser.add_argument("--steps-b", type=int, default=STEPS_B, help="batches for the decoder")
    given = parser.parse_args()
    started = time.monotonic()
    bank = make_banks(given.photographs, seed=given.seed, tiles=given.tiles, clips=given.clips, workers=given.threads)
    print(f"data: {time.monotonic() - started:.0f} s", flush=True)
    torch.set_num_threads(given.threads)
    tower, heads = train_tower(bank, seed=given.seed, steps=given.steps_a)
    model, tokenizer = train_decoder(tower, heads, bank, seed=given.seed, steps=given.steps_b)
    print(f"threshold: {balance(model, tokenizer, heads.maps['forged'].weight[0].detach())}", flush=True)
    write_checkpoint(model, tokenizer, given.out)
    print(f"trained: {time.monotonic() - started:.0f} s", flush=True)
    found = scores(*load_checkpoint(given.out))
    print(show(found))
    (given.out / "scores.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (given.out / "MODEL_CARD.md").write_text(card(given.out, DEFAULT_NOTE), encoding="utf-8")


STEPS_A, STEPS_B = 1500, 2400

if __name__ == "__main__":
    main()
