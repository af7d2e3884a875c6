"""CNNSpot, a detector of pictures that convolutional generators made: ResNet-50 with one logit.

Source: S.-Y. Wang et al., "CNN-generated images are surprisingly easy to spot... for now", CVPR 2020; the names of the
tensors are those of torchvision's ResNet (K. He et al., CVPR 2016, the stride in the 3x3 convolution).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from edgebench.checkpoints.networks.detector import Detector
from edgebench.checkpoints.networks.weights import fill, read_torch

if TYPE_CHECKING:
    from pathlib import Path

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels, blocks and stride of each stage."""
EXPANSION = 4


class _Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, each with its normalisation, and a shortcut."""

    def __init__(self, entering: int, channels: int, stride: int) -> None:
        super().__init__()
        leaving = channels * EXPANSION
        self.conv1 = nn.Conv2d(entering, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, leaving, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(leaving)
        self.downsample = (
            nn.Sequential(nn.Conv2d(entering, leaving, 1, stride, bias=False), nn.BatchNorm2d(leaving))
            if stride != 1 or entering != leaving
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return torch.relu(self.bn3(self.conv3(x)) + shortcut)


class CnnSpot(Detector):
    """float32 [N, 3, H, W], ImageNet-normalised RGB -> P(forged) [N]. LNP reads more `channels` with it."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        entering = 64
        for number, (width, blocks, stride) in enumerate(STAGES, 1):
            stage = [_Bottleneck(entering, width, stride)]
            entering = width * EXPANSION
            stage += [_Bottleneck(entering, width, 1) for _ in range(blocks - 1)]
            self.add_module(f"layer{number}", nn.Sequential(*stage))
        self.fc = nn.Linear(entering, 1)

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """That of P(forged)."""
        x = torch.relu(self.bn1(self.conv1(pixel_values)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        logit: torch.Tensor = self.fc(x.mean(dim=(2, 3)))
        return logit


def load_cnnspot(path: Path) -> nn.Module:
    """The published weights, such as blur_jpg_prob0.1.pth.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    return fill(CnnSpot(), read_torch(path), path)
