"""What all published classifiers have in common: logits, which labels mean forged, and P(forged)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn


class Detector(nn.Module):
    """float32 [N, 3, H, W] -> P(forged) [N].

    An exported graph ends in the logits: a sigmoid or softmax in single precision is 0 or 1 for all that the network is
    sure of, and how soon is the runtime's own, so that the order of those scores would be lost.
    """

    LABELS: ClassVar[tuple[str, ...]] = ("forged",)
    FORGED: ClassVar[tuple[int, ...]] = (0,)
    """Places of the labels that mean forged."""

    def logits(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """float32 [N, 3, H, W] -> float32 [N, labels]; a single one is a sigmoid's."""
        raise NotImplementedError

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """P(forged), as published."""
        logits = self.logits(pixel_values)
        if logits.shape[1] == 1:
            first = torch.sigmoid(logits[:, 0])
            return first if self.FORGED else 1 - first
        return torch.softmax(logits, dim=1)[:, list(self.FORGED)].sum(dim=1)
