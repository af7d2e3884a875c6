"""MesoNet: Meso4 and MesoInception4.

Source: D. Afchar et al., "MesoNet: a compact facial video forgery detection network", WIFS 2018. The published
Keras networks give P(real); these give P(forged) = 1 - P(real). Input: a face crop, RGB in [0, 1], 256 x 256.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from edgebench.checkpoints.networks.detector import Detector
from edgebench.checkpoints.networks.weights import exists, fill
from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPSILON = 1e-3
"""Keras' own for batch normalisation."""


class _Head(nn.Module):
    """Flatten in Keras' order, dense 16, LeakyReLU 0.1, dense 1: the logit of P(real), [N, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.dense_1 = nn.Linear(1024, 16)
        self.dense_2 = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.permute(0, 2, 3, 1).flatten(1)
        hidden = nn.functional.leaky_relu(self.dense_1(flat), 0.1)
        logit: torch.Tensor = self.dense_2(hidden)
        return logit


class _Block(nn.Module):
    """Convolution, ReLU, batch normalisation, max pooling."""

    def __init__(self, inputs: int, outputs: int, kernel: int, pool: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
        self.normal = nn.BatchNorm2d(outputs, eps=EPSILON)
        self.pool = nn.MaxPool2d(pool)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.pool(self.normal(torch.relu(self.convolution(x))))
        return pooled


class _Inception(nn.Module):
    """1x1, and three pairs of 1x1 and dilated 3x3 (dilation 1, 2, 3), side by side; then normalised and pooled."""

    def __init__(self, inputs: int, outputs: tuple[int, int, int, int]) -> None:
        super().__init__()
        first, *others = outputs
        self.straight = nn.Conv2d(inputs, first, 1)
        self.narrow = nn.ModuleList(nn.Conv2d(inputs, n, 1) for n in others)
        self.wide = nn.ModuleList(nn.Conv2d(n, n, 3, padding=d, dilation=d) for d, n in enumerate(others, 1))
        self.normal = nn.BatchNorm2d(sum(outputs), eps=EPSILON)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [torch.relu(self.straight(x))]
        parts += [torch.relu(wide(torch.relu(narrow(x)))) for narrow, wide in zip(self.narrow, self.wide, strict=True)]
        pooled: torch.Tensor = self.pool(self.normal(torch.cat(parts, dim=1)))
        return pooled

    def convolutions(self) -> Iterator[nn.Module]:
        """In the order in which Keras made them."""
        yield self.straight
        for narrow, wide in zip(self.narrow, self.wide, strict=True):
            yield narrow
            yield wide


class Meso4(Detector):
    """Four convolution blocks. float32 [N, 3, 256, 256] -> P(forged) [N]."""

    LABELS, FORGED = ("real",), ()

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([_Block(3, 8, 3, 2), _Block(8, 8, 5, 2), _Block(8, 16, 5, 2), _Block(16, 16, 5, 4)])
        self.head = _Head()

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """That of P(real)."""
        x = pixel_values
        for block in self.blocks:
            x = block(x)
        logit: torch.Tensor = self.head(x)
        return logit


class MesoInception4(Detector):
    """Two inception blocks and two convolution blocks. float32 [N, 3, 256, 256] -> P(forged) [N]."""

    LABELS, FORGED = ("real",), ()

    def __init__(self) -> None:
        super().__init__()
        self.inceptions = nn.ModuleList([_Inception(3, (1, 4, 4, 2)), _Inception(11, (2, 4, 4, 2))])
        self.blocks = nn.ModuleList([_Block(12, 16, 5, 2), _Block(16, 16, 5, 4)])
        self.head = _Head()

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """That of P(real)."""
        x = pixel_values
        for block in (*self.inceptions, *self.blocks):
            x = block(x)
        logit: torch.Tensor = self.head(x)
        return logit


def load_meso4(path: Path) -> nn.Module:
    """Meso4 from its published Keras .h5 file.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    network = Meso4()
    blocks: list[Any] = list(network.blocks)
    return _load(network, path, [b.convolution for b in blocks], [b.normal for b in blocks])


def load_meso_inception4(path: Path) -> nn.Module:
    """MesoInception4 from its published Keras .h5 file.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    network = MesoInception4()
    inceptions: list[Any] = list(network.inceptions)
    blocks: list[Any] = list(network.blocks)
    convolutions = [c for i in inceptions for c in i.convolutions()] + [b.convolution for b in blocks]
    return _load(network, path, convolutions, [b.normal for b in (*inceptions, *blocks)])


def _load(network: Meso4 | MesoInception4, path: Path, convolutions: list[Any], normals: list[Any]) -> nn.Module:
    """Give Keras' layers, in the order in which they were made, to the modules."""
    layers = _read_keras(path)
    groups = {
        "conv2d": convolutions,
        "batch_normalization": normals,
        "dense": [network.head.dense_1, network.head.dense_2],
    }
    names = {module: name for name, module in network.named_modules()}
    state: dict[str, torch.Tensor] = {}
    for kind, modules in groups.items():
        found = layers.get(kind, [])
        if len(found) != len(modules):
            raise CheckpointError(
                f"is not a {type(network).__name__}: {len(found)} {kind} layers, {len(modules)} are needed", where=path
            )
        for module, layer in zip(modules, found, strict=True):
            state |= {f"{names[module]}.{key}": value for key, value in _to_torch(layer).items()}
    return fill(network, state, path)


def _to_torch(layer: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = {
        "gamma": "weight",
        "beta": "bias",
        "moving_mean": "running_mean",
        "moving_variance": "running_var",
        "bias": "bias",
        "kernel": "weight",
    }
    found = {}
    for name, value in layer.items():
        if name not in names:
            continue
        turned = value.permute(3, 2, 0, 1) if value.ndim == 4 else value.T if value.ndim == 2 else value
        found[names[name]] = turned.contiguous()
    return found


def _read_keras(path: Path) -> dict[str, list[dict[str, torch.Tensor]]]:
    """Kind of layer -> its layers' tensors, in the order of their numbers."""
    import h5py

    exists(path)
    numbered: dict[str, list[tuple[int, dict[str, torch.Tensor]]]] = {}
    try:
        with h5py.File(path, "r") as file:
            root = file.get("model_weights", file)
            for name, group in root.items():
                kind, _, number = name.rpartition("_")
                tensors: dict[str, torch.Tensor] = {}

                def take(key: str, value: Any, into: dict[str, torch.Tensor] = tensors) -> None:
                    if isinstance(value, h5py.Dataset):
                        into[key.rsplit("/", 1)[-1].split(":")[0]] = torch.from_numpy(value[()]).float()

                group.visititems(take)
                if tensors and number.isdigit():
                    numbered.setdefault(kind, []).append((int(number), tensors))
    except (OSError, KeyError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"is no Keras .h5 file: {one_line(error)[:120]}", where=path) from error
    return {kind: [tensors for _, tensors in sorted(rows, key=lambda row: row[0])] for kind, rows in numbered.items()}
