"""Tiny-LaDeDa, a detector of AI-generated images with 1,297 weights.

Source: B. Cavia et al., "Real-Time Deepfake Detection in the Real-World", arXiv 2406.09398. The published input is
a picture resized to 256 x 256 (bilinear), in RGB, normalised by ImageNet's mean and deviation; the network looks at
its left-diagonal gradient (WildRF weights) or at its residual behind a nearest-neighbour halving (ForenSynth).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from edgebench.checkpoints.networks.detector import Detector
from edgebench.checkpoints.networks.weights import fill, read_torch

if TYPE_CHECKING:
    from pathlib import Path

LEFT_DIAGONAL = ((0.0, 1.0, 2.0), (-1.0, 0.0, 1.0), (-2.0, -1.0, 0.0))


class _Bottleneck(nn.Module):
    """1x1, normal, ReLU, 3x3 with stride 2, normal, ReLU; no padding, no shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=2, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)))


class TinyLaDeDa(Detector):
    """float32 [N, 3, H, W], ImageNet-normalised RGB -> P(forged) [N]."""

    gradient: torch.Tensor

    def __init__(self, view: Literal["left-diagonal gradient", "nearest residual"]) -> None:
        super().__init__()
        self.view = view
        self.conv1 = nn.Conv2d(3, 8, 1, bias=False)
        self.conv2 = nn.Conv2d(8, 8, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(_Bottleneck(8))
        self.fc = nn.Linear(8, 1)
        self.register_buffer("gradient", torch.tensor(LEFT_DIAGONAL).repeat(3, 1, 1, 1), persistent=False)

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """That of P(forged)."""
        x = self._look(pixel_values)
        x = torch.relu(self.bn1(self.conv2(self.conv1(x))))
        x = self.layer1(x).mean(dim=(2, 3))
        logit: torch.Tensor = self.fc(x)
        return logit

    def _look(self, x: torch.Tensor) -> torch.Tensor:
        if self.view == "left-diagonal gradient":
            return nn.functional.conv2d(x, self.gradient.to(x.dtype), groups=3, padding=1)
        # Halving by nearest neighbour keeps the even pixels; doubling repeats each of them.
        even = x[:, :, ::2, ::2]
        return x - even.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)


def load_tiny_ladeda_wildrf(path: Path) -> nn.Module:
    """The WildRF weights: left-diagonal gradient.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    return fill(TinyLaDeDa("left-diagonal gradient"), read_torch(path), path)


def load_tiny_ladeda_forensynth(path: Path) -> nn.Module:
    """The ForenSynth weights: nearest-neighbour residual.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    return fill(TinyLaDeDa("nearest residual"), read_torch(path), path)
