"""MiniFASNet V2 and V1SE, face anti-spoofing networks of about 0.4 million weights.

Source: Minivision's Silent-Face-Anti-Spoofing; a MobileFaceNet with pruned channels. Three classes, of which 1 is a
live face; P(forged) = 1 - P(live). The published input is BGR in 0..255; these take RGB in [0, 1] and turn it
themselves. 80 x 80 crops of `scale` (2.7 for V2, 4.0 for V1SE) times the face box.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from edgebench.checkpoints.networks.detector import Detector
from edgebench.checkpoints.networks.weights import fill, read_torch

if TYPE_CHECKING:
    from pathlib import Path

STAGES_V2 = ((13, 13, 13, 13), (231, 52, 26, 77, 26, 26), (26, 26))
"""Inner channels of the residual units of each stage."""
STAGES_V1SE = ((13, 26, 13, 52), (154, 52, 26, 52, 26, 26), (26, 26))


class _Convolution(nn.Module):
    """Convolution without bias, batch normalisation, PReLU where wanted."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        *,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        if not linear:
            self.prelu = nn.PReLU(outputs)
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x))
        return x if self.linear else self.prelu(x)


class _Excitation(nn.Module):
    """Squeeze and excitation: each channel weighted by what the mean of all channels says."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // 4, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels // 4)
        self.fc2 = nn.Conv2d(channels // 4, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.relu(self.bn1(self.fc1(x.mean(dim=(2, 3), keepdim=True))))
        return x * torch.sigmoid(self.bn2(self.fc2(weight)))


class _Unit(nn.Module):
    """1x1, depthwise 3x3, 1x1; with a shortcut where the shape stays, and squeeze-and-excitation where wanted."""

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, *, excite: bool = False) -> None:
        super().__init__()
        self.conv = _Convolution(inputs, inner)
        self.conv_dw = _Convolution(inner, inner, 3, stride, 1, groups=inner)
        self.project = _Convolution(inner, outputs, linear=True)
        self.shortcut, self.excite = stride == 1 and inputs == outputs, excite
        if excite:
            self.se_module = _Excitation(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.project(self.conv_dw(self.conv(x)))
        if self.excite:
            out = self.se_module(out)
        return x + out if self.shortcut else out


class _Stage(nn.Module):
    def __init__(self, channels: int, inner: tuple[int, ...], *, excite: bool) -> None:
        super().__init__()
        last = len(inner) - 1
        self.model = nn.Sequential(
            *(_Unit(channels, n, channels, 1, excite=excite and i == last) for i, n in enumerate(inner))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(x)
        return out


class MiniFASNet(Detector):
    """float32 [N, 3, 80, 80], RGB in [0, 1] -> P(forged) [N]."""

    LABELS, FORGED = ("one attack", "live", "another attack"), (0, 2)

    def __init__(self, stages: tuple[tuple[int, ...], ...], *, excite: bool) -> None:
        super().__init__()
        self.conv1 = _Convolution(3, 32, 3, 2, 1)
        self.conv2_dw = _Convolution(32, 32, 3, 1, 1, groups=32)
        self.conv_23 = _Unit(32, 103, 64, 2)
        self.conv_3 = _Stage(64, stages[0], excite=excite)
        self.conv_34 = _Unit(64, 231, 128, 2)
        self.conv_4 = _Stage(128, stages[1], excite=excite)
        self.conv_45 = _Unit(128, 308, 128, 2)
        self.conv_5 = _Stage(128, stages[2], excite=excite)
        self.conv_6_sep = _Convolution(128, 512)
        self.conv_6_dw = _Convolution(512, 512, 5, groups=512, linear=True)
        self.linear = nn.Linear(512, 128, bias=False)
        self.bn = nn.BatchNorm1d(128)
        self.prob = nn.Linear(128, 3, bias=False)

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Of its three labels."""
        x = pixel_values.flip(1) * 255
        for part in (
            self.conv1,
            self.conv2_dw,
            self.conv_23,
            self.conv_3,
            self.conv_34,
            self.conv_4,
            self.conv_45,
            self.conv_5,
        ):
            x = part(x)
        x = self.conv_6_dw(self.conv_6_sep(x)).flatten(1)
        logits: torch.Tensor = self.prob(self.bn(self.linear(x)))
        return logits


def load_minifasnet_v2(path: Path) -> nn.Module:
    """MiniFASNetV2, for crops of 2.7 times the face box.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    return fill(MiniFASNet(STAGES_V2, excite=False), read_torch(path), path)


def load_minifasnet_v1se(path: Path) -> nn.Module:
    """MiniFASNetV1SE, for crops of 4.0 times the face box.

    Raises:
        CheckpointError: missing, damaged or of another network.
    """
    return fill(MiniFASNet(STAGES_V1SE, excite=True), read_torch(path), path)
