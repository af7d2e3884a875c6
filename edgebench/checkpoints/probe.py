"""A linear probe: its file, and an encoder with it as one module."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SUFFIXES = (".safetensors", ".npz", ".pth", ".pt")


@dataclass(frozen=True)
class Probe:
    """P(forged) = sigmoid(weight . features + bias)."""

    weight: NDArray[np.float32]
    """[D]."""
    bias: float
    unit_length: bool = False
    """Whether the features are brought to length 1 before."""


def read_probe(path: Path, *, unit_length: bool = False) -> Probe:
    """A probe from .safetensors, .npz, or a torch state dict (.pth, .pt) that holds tensors alone.

    It has `weight` [1, D] and `bias` [1], whose sigmoid is P(forged); or [2, D] and [2], whose softmax has the class
    'forged' last. Two classes are one difference: softmax(z)[1] = sigmoid(z[1] - z[0]).

    Raises:
        CheckpointError: the file is missing or damaged, or has other keys or sizes.
    """
    tensors = _tensors(path)
    for what, names in (
        ("missing", {"weight", "bias"} - tensors.keys()),
        ("unexpected", tensors.keys() - {"weight", "bias"}),
    ):
        if names:
            raise CheckpointError(
                f"{len(names)} {what} keys, such as {', '.join(sorted(names)[:3])}",
                where=path,
                hint="a probe has weight [1, D] or [2, D], and bias",
            )
    weight, bias = tensors["weight"], tensors["bias"]
    if weight.ndim != 2 or weight.shape[0] not in {1, 2} or bias.shape != weight.shape[:1]:
        raise CheckpointError(
            f"weight is {list(weight.shape)} and bias {list(bias.shape)}, not [1, D] and [1], or [2, D] and [2]",
            where=path,
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise CheckpointError("holds values that are not finite", where=path)
    if len(weight) == 2:
        weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    return Probe(weight[0].astype(np.float32), float(bias[0]), unit_length)


def _tensors(path: Path) -> dict[str, NDArray[np.float64]]:
    if not path.is_file():
        raise CheckpointError("does not exist", where=path, hint="--probe takes a file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(path)
        elif path.suffix == ".npz":
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                return {name: np.asarray(stored[name], dtype=np.float64) for name in stored.files}
        elif path.suffix in SUFFIXES:
            found = torch.load(path, map_location="cpu", weights_only=True)
        else:
            raise CheckpointError(f"is none of {', '.join(SUFFIXES)}", where=path)
        return {str(name): value.double().numpy() for name, value in found.items()}
    except CheckpointError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"is damaged: {one_line(error)}", where=path) from error
    except Exception as error:  # torch and safetensors raise many kinds
        raise CheckpointError(
            f"is damaged, or holds more than tensors: {type(error).__name__}",
            where=path,
            hint="save the probe's state dict alone",
        ) from error


class ProbedEncoder(nn.Module):
    """An encoder of transformers, one of its features, and the probe. The probe is float32 in every precision."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, encoder: Any, feature: str, probe: Probe) -> None:
        super().__init__()
        self.encoder = encoder
        self.feature = feature
        self.unit_length = probe.unit_length
        self.inner = feature == "pooler_output" and hasattr(encoder, "visual_projection")
        self.register_buffer("weight", torch.from_numpy(probe.weight))
        self.register_buffer("bias", torch.tensor(probe.bias, dtype=torch.float32))

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """float32 [N, 3, H, W] -> the logit of P(forged), float32 [N, 1], and the features, float32 [N, D]."""
        encoder = self.encoder.vision_model if self.inner else self.encoder
        dtype = next(encoder.parameters()).dtype
        features = getattr(encoder(pixel_values=pixel_values.to(dtype)), self.feature).float()
        if self.unit_length:
            features = features / features.norm(dim=-1, keepdim=True)
        logit = (features * self.weight).sum(-1, keepdim=True) + self.bias
        return logit, features
