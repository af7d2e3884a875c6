"""Moves the model's threshold between real and forged, on the calibration photographs.

A model trained on other photographs calls too many real ones forged. One number repairs that: the projector's first
bias is moved along the direction in which the tower says "forged". The number with the best balanced accuracy on
the binary questions of the calibration split is kept; the test split is not looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from evaluate import answers, compressed, table

from edgebench.demo.mini import drafts

GRID = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
"""How far, in units of the tower's verdict (logits of a patch)."""


@torch.no_grad()
def move(model: Any, verdict: torch.Tensor, step: float) -> None:
    """Let the decoder see every verdict lowered by `step`; `verdict` is the weight row [256] of stage A's head."""
    first = model.model.multi_modal_projector.linear_1
    first.bias -= step * (first.weight.float() @ (verdict / verdict.square().sum()))


def balance(model: Any, tokenizer: Any, verdict: torch.Tensor) -> float:
    """Choose the step on the calibration split, plain and after JPEG 75 alike, and keep it in the weights."""
    asked = [
        (e.category, d) for seed in (0, 1) for e, d in drafts(seed=seed, split="calibration") if d.task == "category"
    ]
    asked += [(category, compressed(draft)) for category, draft in asked]
    found: dict[float, float] = {}
    at = 0.0
    for step in GRID:
        move(model, verdict, step - at)
        at = step
        row = table(asked, answers(model, tokenizer, [draft for _, draft in asked]))["BC"]
        found[step] = row["balanced"]
        print(
            f"threshold {step}: balanced {row['balanced']:.3f} real {row['real']:.3f} forged {row['forged']:.3f}",
            flush=True,
        )
    best = max(found, key=lambda step: found[step])
    move(model, verdict, best - at)
    return best
