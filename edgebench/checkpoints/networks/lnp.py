"""LNP, a detector of generated pictures by their learned noise pattern: a denoising network, then ResNet-50.

Source: B. Liu et al., "Detecting Generated Images by Real Images", ECCV 2022; the denoiser is CycleISP's (S. W. Zamir
et al., CVPR 2020), trained on SIDD. As the published code has it, the noise is kept from 0 to 1, rounded to 8 bits,
multiplied by 255 within 8 bits (n becomes 256 - n, 0 stays 0), and read with red and blue changed places.

Two published forms of the classifier are known by the channels of their first convolution: 3 is the noise alone (as
AIGCDetectBenchmark trained it), 5 the authors' own, with the noise's amplitude and phase spectrum behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from edgebench.checkpoints.networks.cnnspot import CnnSpot
from edgebench.checkpoints.networks.detector import Detector
from edgebench.checkpoints.networks.weights import fill, read_torch
from edgebench.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

DENOISER = "sidd_rgb.pth"
"""Published name of the denoiser's weights; they lie beside the classifier's."""
FEATURES, GROUPS, BLOCKS, REDUCTION = 64, 4, 8, 16
CROP = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY = (0.11, 0.59, 0.3)
"""Weights of the three channels' spectra, in the order that the classifier reads them."""
TINY = 1e-8
EXPONENT = 0.8
"""Of the amplitude."""


def _conv(entering: int, leaving: int, size: int = 3, *, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(entering, leaving, size, padding=size // 2, bias=bias)


class _Spatial(nn.Module):
    """A weight for each place, from the largest and the mean channel."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.ModuleDict({"conv": _conv(2, 1, bias=False)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        told = torch.stack([x.amax(dim=1), x.mean(dim=1)], dim=1)
        return x * torch.sigmoid(self.spatial["conv"](told))


class _Channel(nn.Module):
    """A weight for each channel, from its mean."""

    def __init__(self) -> None:
        super().__init__()
        narrow = FEATURES // REDUCTION
        self.conv_du = nn.Sequential(_conv(FEATURES, narrow, 1), nn.ReLU(), _conv(narrow, FEATURES, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weighted: torch.Tensor = x * self.conv_du(x.mean(dim=(2, 3), keepdim=True))
        return weighted


class _Block(nn.Module):
    """CycleISP's dual attention block."""

    def __init__(self, activation: nn.PReLU) -> None:
        super().__init__()
        self.SA = _Spatial()
        self.CA = _Channel()
        self.body = nn.Sequential(_conv(FEATURES, FEATURES), activation, _conv(FEATURES, FEATURES))
        self.conv1x1 = _conv(2 * FEATURES, FEATURES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.body(x)
        both: torch.Tensor = self.conv1x1(torch.cat([self.SA(inner), self.CA(inner)], dim=1))
        return both + x


class _Group(nn.Module):
    """Blocks and a convolution, around which the input is added."""

    def __init__(self, activation: nn.PReLU) -> None:
        super().__init__()
        self.body = nn.Sequential(*(_Block(activation) for _ in range(BLOCKS)), _conv(FEATURES, FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.body(x) + x
        return added


class Denoiser(nn.Module):
    """float32 [N, 3, H, W], RGB from 0 to 1 -> its noise, the same shape. One PReLU serves all of it."""

    def __init__(self) -> None:
        super().__init__()
        activation = nn.PReLU(FEATURES)
        self.head = nn.Sequential(_conv(3, FEATURES))
        groups = [_Group(activation) for _ in range(GROUPS)]
        self.body = nn.Sequential(*groups, _conv(FEATURES, FEATURES), activation)
        self.tail = nn.Sequential(_conv(FEATURES, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the denoised picture is less than the picture."""
        return -self.tail(self.body(self.head(x)))  # type: ignore[no-any-return]


class _Spectrum(nn.Module):
    """float32 [N, 3, CROP, CROP] -> its amplitude and phase, the middle the lowest frequency, [N, 2, CROP, CROP]."""

    def __init__(self) -> None:
        super().__init__()
        places = np.arange(CROP)
        angle = 2 * np.pi * np.outer(np.fft.fftshift(places), places) / CROP
        for name, part in (("cosine", np.cos(angle)), ("sine", -np.sin(angle))):
            # What should be zero is zero, so that the phase of a real frequency is 0 or pi and no matter of rounding.
            part = np.where(np.abs(part) < 1e-9, 0, part) / np.sqrt(CROP)
            self.register_buffer(name, torch.from_numpy(part.astype(np.float32)), persistent=False)
        self.register_buffer("grey", torch.tensor(GREY)[:, None, None], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c, s = self.get_buffer("cosine"), self.get_buffer("sine")
        across_real, across_imaginary = x @ c.T, x @ s.T
        real = c @ across_real - s @ across_imaginary
        imaginary = c @ across_imaginary + s @ across_real
        amplitude = ((real**2 + imaginary**2).sqrt() + TINY) ** EXPONENT
        phase = torch.atan2(imaginary + TINY, real + TINY)
        return torch.stack([(self.get_buffer("grey") * part).sum(dim=1) for part in (amplitude, phase)], dim=1)


class Lnp(Detector):
    """float32 [N, 3, 256, 256], RGB from 0 to 1 -> P(forged) [N]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.denoiser = Denoiser()
        self.classifier = CnnSpot(channels)
        self.spectrum = _Spectrum() if channels == 3 + 2 else None
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(STD)[:, None, None], persistent=False)

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """That of P(forged)."""
        noise = torch.round(self.denoiser(pixel_values).clamp(0, 1) * 255)
        shown = torch.where(noise > 0, 256 - noise, noise)[:, [2, 1, 0]] / 255
        top, left = (round((side - CROP) / 2) for side in shown.shape[2:])
        shown = shown[:, :, top : top + CROP, left : left + CROP]
        x = (shown - self.get_buffer("mean")) / self.get_buffer("std")
        if self.spectrum is not None:
            x = torch.cat([x, self.spectrum(x)], dim=1)
        return self.classifier.logits(x)


def load_lnp(path: Path) -> nn.Module:
    """The classifier's published weights, the denoiser's (`sidd_rgb.pth`) beside them.

    Raises:
        CheckpointError: one is missing, damaged or of another network.
    """
    state = read_torch(path)
    first = state.get("conv1.weight")
    channels = 3 if first is None or first.ndim != 4 else first.shape[1]
    if channels not in {3, 5}:
        raise CheckpointError(f"takes {channels} channels, LNP's classifier 3 or 5", where=path)
    beside = path.with_name(DENOISER)
    if not beside.is_file():
        raise CheckpointError(
            "does not exist: LNP takes the noise with CycleISP's denoiser",
            where=beside,
            hint=f"put its published {DENOISER} beside {path.name}",
        )
    network = Lnp(channels)
    fill(network.classifier, state, path)
    fill(network.denoiser, read_torch(beside), beside)
    return network.eval()
