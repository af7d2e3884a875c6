"""HAMMER, DGM4's detector of news pictures and captions that were manipulated: whether a pair is real or fake.

Source: R. Shao, T. Wu and Z. Liu, "Detecting and Grounding Multi-Modal Media Manipulation", CVPR 2023; its parts are
ALBEF's (J. Li et al., NeurIPS 2021): a ViT with DeiT's names, and a BERT whose later layers look at the picture.

Taken: `visual_encoder`, `text_encoder.bert` and `itm_head`, which give real or fake. Not taken, and known by name: the
heads of the four kinds of manipulation, of the box and of the tokens, and what training alone needs (projections,
momentum copies, queues). Sizes are read off the tensors; heads are of 64 numbers, as in ViT-B and BERT-base.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from edgebench.checkpoints.networks.weights import fill, read_torch
from edgebench.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEAD = 64
TAKEN = ("visual_encoder.", "text_encoder.bert.", "itm_head.")
LEFT = (
    *("cls_head.", "bbox_head.", "text_encoder.classifier.", "text_encoder.bert.pooler."),
    *("text_encoder.bert.embeddings.position_ids", "cls_token_local", "aggregator.", "norm_layer_aggr."),
    *("it_cross_attn.", "norm_layer_it_cross_atten."),
    *("vision_proj", "text_proj", "visual_encoder_m.", "text_encoder_m.", "temp"),
    *("image_queue", "text_queue", "queue_ptr"),
)
"""Beginnings of names that a whole checkpoint has beside those."""


class _Attention(nn.Module):
    """What every attention here does once queries, keys and values are there."""

    @staticmethod
    def mixed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
        """[N, queries, width], [N, keys, width] twice, and a mask [N, keys] -> [N, queries, width]."""
        q, k, v = (x.reshape(*x.shape[:2], -1, HEAD).transpose(1, 2) for x in (query, key, value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD)
        if kept is not None:
            scores = scores + (1 - kept[:, None, None].to(scores.dtype)) * -10000.0
        found: torch.Tensor = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        return found


class _ViTAttention(_Attention):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        found: torch.Tensor = self.proj(self.mixed(query, key, value, None))
        return found


class _ViTBlock(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = _ViTAttention(width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, inner), "fc2": nn.Linear(inner, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        told: torch.Tensor = self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm2(x))))
        return x + told


class _VisualEncoder(nn.Module):
    def __init__(self, width: int, inner: int, depth: int, patch: int, positions: int) -> None:
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, positions, width))
        self.blocks = nn.ModuleList(_ViTBlock(width, inner) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed["proj"](pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        found: torch.Tensor = self.norm(x)
        return found


class _Projected(nn.Module):
    """BERT's way out of a sublayer: a projection, the shortcut, the normalisation."""

    def __init__(self, entering: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(entering, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.LayerNorm(self.dense(x) + shortcut)
        return found


class _BertAttention(_Attention):
    def __init__(self, width: int, looked_at: int) -> None:
        super().__init__()
        parts = {"query": width, "key": looked_at, "value": looked_at}
        self.self = nn.ModuleDict({name: nn.Linear(size, width) for name, size in parts.items()})
        self.output = _Projected(width, width)

    def forward(self, x: torch.Tensor, other: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
        part = self.self
        found: torch.Tensor = self.output(
            self.mixed(part["query"](x), part["key"](other), part["value"](other), kept), x
        )
        return found


class _BertLayer(nn.Module):
    def __init__(self, width: int, inner: int, looked_at: int | None) -> None:
        super().__init__()
        self.attention = _BertAttention(width, width)
        self.crossattention = None if looked_at is None else _BertAttention(width, looked_at)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = _Projected(inner, width)

    def forward(self, x: torch.Tensor, kept: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
        x = self.attention(x, x, kept)
        if self.crossattention is not None:
            x = self.crossattention(x, picture, None)
        found: torch.Tensor = self.output(nn.functional.gelu(self.intermediate["dense"](x)), x)
        return found


class _Bert(nn.Module):
    def __init__(self, vocabulary: int, positions: int, width: int, inner: int, looked_at: list[int | None]) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(vocabulary, width),
                "position_embeddings": nn.Embedding(positions, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }
        )
        layers = nn.ModuleList(_BertLayer(width, inner, looked) for looked in looked_at)
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(self, ids: torch.Tensor, kept: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
        part = self.embeddings
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        x: torch.Tensor = part["word_embeddings"](ids) + part["token_type_embeddings"](torch.zeros_like(ids))
        x = part["LayerNorm"](x + part["position_embeddings"](places))
        for layer in self.encoder["layer"]:  # type: ignore[attr-defined]  # a list of modules by another name
            x = layer(x, kept, picture)
        return x


class Hammer(nn.Module):
    """float32 [N, 3, H, W], token ids and mask [N, tokens] -> logits [N, 2]: real, fake."""

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        vision, text = "visual_encoder.", "text_encoder.bert."
        _, positions, seen = state[f"{vision}pos_embed"].shape
        patch = state[f"{vision}patch_embed.proj.weight"].shape[-1]
        inner = len(state[f"{vision}blocks.0.mlp.fc1.bias"])
        self.side = patch * math.isqrt(positions - 1)
        self.visual_encoder = _VisualEncoder(seen, inner, _count(state, f"{vision}blocks."), patch, positions)
        vocabulary, width = state[f"{text}embeddings.word_embeddings.weight"].shape
        self.positions = len(state[f"{text}embeddings.position_embeddings.weight"])
        self.vocabulary = vocabulary
        inner = len(state[f"{text}encoder.layer.0.intermediate.dense.bias"])
        crossed = [
            seen if f"{text}encoder.layer.{k}.crossattention.self.key.weight" in state else None
            for k in range(_count(state, f"{text}encoder.layer."))
        ]
        self.text_encoder = nn.ModuleDict({"bert": _Bert(vocabulary, self.positions, width, inner, crossed)})
        wide = 2 * width
        self.itm_head = nn.Sequential(
            *(nn.Linear(width, wide), nn.LayerNorm(wide), nn.GELU()),
            *(nn.Linear(wide, wide), nn.LayerNorm(wide), nn.GELU()),
            nn.Linear(wide, 2),
        )

    def forward(
        self, pixel_values: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Logits of real and fake."""
        picture = self.visual_encoder(pixel_values)
        text = self.text_encoder["bert"](input_ids, attention_mask, picture)
        logits: torch.Tensor = self.itm_head(text[:, 0])
        return logits


def _count(state: Mapping[str, torch.Tensor], beginning: str) -> int:
    """How many numbered parts there are behind a beginning."""
    return len({name[len(beginning) :].split(".")[0] for name in state if name.startswith(beginning)})


def load_hammer(path: Path) -> Hammer:
    """The published checkpoint, such as checkpoint_best.pth.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    state = {n: t for n, t in read_torch(path).items() if not n.startswith(LEFT)}
    try:
        network = Hammer(state)
    except KeyError as error:
        raise CheckpointError(f"is not a Hammer: it has no tensor {error.args[0]!r}", where=path) from error
    except (ValueError, IndexError) as error:
        raise CheckpointError("is not a Hammer: its tensors are of other shapes", where=path) from error
    return fill(network, state, path)
