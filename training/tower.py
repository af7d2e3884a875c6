"""Stage A: the vision tower learns to see traces of forgery, patch by patch.

The tower is a stock CLIP one. What makes it learn in minutes is its start: the patch embedding is a set of 16x16
DCT functions, the first MLP turns them into whitened band energies, and both are trained at a fifteenth of the
learning rate.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPVisionConfig, CLIPVisionModel

PATCH, WIDTH, PATCHES = 16, 256, 36
CLASSES = 10
HEADS = {"kind": CLASSES, "forged": 1, "patch_kind": CLASSES, "white": 1, "row": 6, "column": 6, "words": 7}
"""Outputs of the heads that exist in training only; `kind` and `words` read the mean of the patches."""
VISION = CLIPVisionConfig(
    hidden_size=WIDTH,
    intermediate_size=640,
    num_hidden_layers=4,
    num_attention_heads=4,
    hidden_act="gelu",
    image_size=96,
    patch_size=PATCH,
    projection_dim=WIDTH,
)


def normalised(tiles: np.ndarray) -> Tensor:
    """uint8 [N, 96, 96, 3] to float32 [N, 3, 96, 96], (x / 255 - .5) / .25."""
    return (torch.from_numpy(np.ascontiguousarray(tiles)).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25


def fractions(masks: np.ndarray) -> Tensor:
    """Masks, bool [N, 96, 96], to float32 [N, 36]: the share of each patch."""
    parts = masks.reshape(len(masks), 6, PATCH, 6, PATCH).mean(axis=(2, 4), dtype=np.float32)
    return torch.from_numpy(parts.reshape(len(masks), PATCHES))


class Heads(nn.Module):
    """Linear readings of the tower's tokens, for training and to start the projector."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleDict({name: nn.Linear(WIDTH, size) for name, size in HEADS.items()})

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        """From [N, 37, 256]."""
        patches = tokens[:, 1:]
        mean = patches.mean(1)
        return {name: one(mean if name in {"kind", "words"} else patches) for name, one in self.maps.items()}


def _filters(rng: np.random.Generator, tiles: np.ndarray) -> Tensor:
    """256 DCT functions as patch weights [256, 3, 16, 16], scaled to equal deviation over the given tiles."""
    k = np.arange(PATCH)
    dct = np.cos(np.pi * (k[None, :] + 0.5) * k[:, None] / PATCH) * math.sqrt(2 / PATCH)
    dct[0] /= math.sqrt(2)
    colours = {
        "y": np.array([0.299, 0.587, 0.114]),
        "cb": np.array([-0.169, -0.331, 0.5]),
        "cr": np.array([0.5, -0.419, -0.081]),
    }

    def choose(count: int, low: int, edge: bool) -> list[tuple[int, int]]:
        pairs = [(u, v) for u in range(PATCH) for v in range(PATCH)]
        first = [p for p in pairs if sum(p) < low or (edge and 15 in p)]
        rest = [p for p in pairs if p not in first]
        return first + [rest[i] for i in rng.permutation(len(rest))[: count - len(first)]]

    chosen = [("y", p) for p in choose(176, 8, True)]
    chosen += [(c, p) for c in ("cb", "cr") for p in choose(40, 6, False)]
    bank = np.stack([np.einsum("c,y,x->cyx", colours[c], dct[u], dct[v]) for c, (u, v) in chosen])
    weights = torch.from_numpy(bank).float()
    grey = torch.from_numpy(tiles).permute(0, 3, 1, 2).float() - 127.5
    deviation = F.conv2d(grey, weights, stride=PATCH).permute(1, 0, 2, 3).flatten(1).std(1)
    # The input is (x - 127.5) / 63.75.
    return weights * (63.75 * 0.6 / torch.sqrt(deviation**2 + 1.2**2))[:, None, None, None]


def _rotation(rng: np.random.Generator, size: int = WIDTH) -> Tensor:
    return torch.from_numpy(np.linalg.qr(rng.standard_normal((size, size)))[0]).float()


@torch.no_grad()
def new_tower(tiles: np.ndarray, seed: int) -> CLIPVisionModel:
    """A tower with the start described above, measured on these tiles (uint8 [N, 96, 96, 3])."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model: Any = CLIPVisionModel._from_config(VISION, attn_implementation="eager")
    inner = getattr(model, "vision_model", model)
    inner.embeddings.patch_embedding.weight.copy_(_filters(rng, tiles))
    place = np.zeros((PATCHES + 1, WIDTH))
    for axis, values in enumerate(np.divmod(np.arange(PATCHES), 6)):
        for j in range(32):
            wave = values * 2 * np.pi / 12 * (1 + j / 4)
            place[1:, axis * 64 + 2 * j], place[1:, axis * 64 + 2 * j + 1] = np.sin(wave), np.cos(wave)
    inner.embeddings.position_embedding.weight.copy_(torch.from_numpy(place).float() @ _rotation(rng) * 0.3)
    first = inner.encoder.layers[0]
    first.self_attn.out_proj.weight.mul_(0.1)
    eye = torch.eye(WIDTH)
    first.mlp.fc1.weight[:512] = torch.cat([4 * eye, -4 * eye])
    first.mlp.fc1.bias[:512] = 0
    caught: list[Tensor] = []
    hook = first.mlp.fc1.register_forward_hook(lambda _m, _i, out: caught.append(F.gelu(out[:, 1:, :512])))
    model.eval()
    for start in range(0, len(tiles), 200):
        model(normalised(tiles[start : start + 200]))
    hook.remove()
    both = torch.cat(caught).flatten(0, 1)
    energy = (both[:, :WIDTH] + both[:, WIDTH:]) / 4
    mean = energy.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((energy - mean).T))
    white = 1.5 * _rotation(rng) @ torch.diag((values + 0.05 * values.median()).rsqrt()) @ vectors.T
    first.mlp.fc2.weight[:, :WIDTH] = white / 4 - 0.125 * eye
    first.mlp.fc2.weight[:, WIDTH:512] = white / 4 + 0.125 * eye
    first.mlp.fc2.weight[:, 512:] *= 0.3
    first.mlp.fc2.bias.copy_(-white @ mean)
    return model


def train_tower(bank: dict[str, np.ndarray], *, seed: int, steps: int) -> tuple[CLIPVisionModel, Heads]:
    """Stage A.

    Args:
        bank: tiles, masks, kinds, words, and clips (see `banks`).
        seed: of weights and order.
        steps: batches of 64 tiles.
    """
    rng = np.random.default_rng(seed)
    tiles = np.concatenate([bank["tiles"], bank["clip_tiles"].reshape(-1, 96, 96, 3)])
    flags = bank["clip_forged"].reshape(-1)
    masks = np.concatenate([bank["masks"], np.repeat(bank["clip_masks"], 8, axis=0) & flags[:, None, None]])
    kinds = np.concatenate([bank["kinds"], np.repeat(bank["clip_kinds"], 8) * flags])
    words = np.concatenate([bank["words"], np.full((len(flags), 3), -100)])
    model: Any = new_tower(tiles[rng.permutation(len(bank["tiles"]))[:1200]], seed)
    heads = Heads()
    inner = getattr(model, "vision_model", model)
    slow = {id(p) for p in [*inner.embeddings.parameters(), *inner.pre_layrnorm.parameters()]}
    slow |= {id(p) for p in inner.encoder.layers[0].parameters()}
    groups = [
        {"params": [p for p in model.parameters() if id(p) in slow], "scale": 0.07},
        {"params": [p for p in model.parameters() if id(p) not in slow], "scale": 1.0},
        {"params": list(heads.parameters()), "scale": 5.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.03, fused=True)
    row, column = (torch.from_numpy(v) for v in np.divmod(np.arange(PATCHES), 6))
    order = np.concatenate([rng.permutation(len(tiles)) for _ in range(1 + steps * 64 // len(tiles))])
    model.train()
    started, running = time.monotonic(), 0.0
    for step in range(steps):
        pick = order[step * 64 : step * 64 + 64]
        picture, mask, kind = tiles[pick], masks[pick], torch.from_numpy(kinds[pick])
        if step % 2:
            picture, mask = picture[:, :, ::-1], mask[:, :, ::-1]
        white = np.where(mask[:5, ..., None], np.uint8(255), np.uint8(0)).repeat(3, axis=3)
        share = fractions(np.ascontiguousarray(mask))
        tokens = model(normalised(np.concatenate([picture, white]))).last_hidden_state
        out = heads(tokens)
        n = len(pick)
        loss = F.cross_entropy(out["kind"][:n], kind)
        loss = loss + 2 * F.binary_cross_entropy_with_logits(out["forged"][:n, :, 0], share)
        patch_kind = torch.where(share > 0.5, kind[:, None], 0)
        loss = loss + 0.5 * F.cross_entropy(out["patch_kind"][:n].flatten(0, 1), patch_kind.flatten())
        loss = loss + 0.5 * F.binary_cross_entropy_with_logits(out["white"][n:, :, 0], share[:5])
        for name, truth in (("row", row), ("column", column)):
            loss = loss + 0.1 * F.cross_entropy(out[name].flatten(0, 1), truth.repeat(len(tokens)))
        said = torch.from_numpy(words[pick])
        for k, part in enumerate(out["words"][:n].split((2, 2, 3), dim=1)):
            if (said[:, k] >= 0).any():
                loss = loss + 0.1 * F.cross_entropy(part, said[:, k])
        rate = 1e-3 * min(1, (step + 1) / 40) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimiser.param_groups:
            group["lr"] = rate * group["scale"]
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*model.parameters(), *heads.parameters()], 1.0)
        optimiser.step()
        part_loss = float(F.cross_entropy(out["kind"][:n].detach(), kind))
        running = part_loss if step == 0 else 0.98 * running + 0.02 * part_loss
        if step % 50 == 0:
            print(
                f"A {step}/{steps} loss {float(loss.detach()):.3f} kind {running:.3f} {time.monotonic() - started:.0f} s",
                flush=True,
            )
    return model.eval(), heads.eval()


@torch.no_grad()
def features(model: Any, tiles: np.ndarray) -> Tensor:
    """The tower's tokens for uint8 [N, 96, 96, 3]: float32 [N, 37, 256]."""
    return torch.cat([model(normalised(tiles[s : s + 256])).last_hidden_state for s in range(0, len(tiles), 256)])
