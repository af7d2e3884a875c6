"""Weights of several folders under the names of one transformers checkpoint, adapters merged as rows are read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.files import read_json
from edgebench.errors import CheckpointError, one_line
from edgebench.export.shards import CHUNK_BYTES, Shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.export.shards import Weights

_TORCH_FILES = ("pytorch_model*.bin", "adapter_model.bin")
_KINDS = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16", "torch.float64": "F64"}
_MORE_THAN_LORA = (
    "use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "alpha_pattern", "rank_pattern",
    "modules_to_save", "layer_replication",
)  # fmt: skip
"""Settings of adapter_config.json that do more than add one product of one scale to a matrix."""
_LORA = re.compile(r"^base_model\.model\.(.+)\.lora_([AB])(?:\.default)?\.weight$")


@dataclass(frozen=True)
class Change:
    """What a LoRA adds to a matrix [N, K]: `up` [N, r] times `down` [r, K], times `scale`."""

    weights: Weights
    down: str
    up: str
    scale: float


@dataclass(frozen=True)
class Place:
    """Where one tensor lies, and what changes it."""

    weights: Weights
    name: str
    change: Change | None = None

    @property
    def kind(self) -> str:
        """Type as safetensors names it."""
        return str(self.weights.tensors[self.name].kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return tuple(self.weights.tensors[self.name].shape)

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class Presented:
    """Places as one checkpoint."""

    def __init__(self, folder: Path, tensors: Mapping[str, Place]) -> None:
        self.folder, self.tensors = folder, dict(tensors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self.tensors.values():
            for weights in (place.weights, place.change.weights if place.change else None):
                if isinstance(weights, Shards):
                    weights.__exit__(kind, error, trace)

    def read(self, name: str, begin: int = 0, end: int | None = None) -> NDArray[np.float32]:
        """Rows [begin, end) of a tensor as float32, its adapter merged.

        Raises:
            CheckpointError: a file ends early or cannot be read.
        """
        place = self.tensors[name]
        rows = place.weights.read(place.name, begin, end)
        if place.change is None:
            return rows
        change = place.change
        added = change.weights.read(change.up, begin, end) @ change.weights.read(change.down)
        merged: NDArray[np.float32] = rows + added * np.float32(change.scale)
        return merged

    def rows_at_a_time(self, name: str) -> int:
        """How many rows should be read at a time."""
        return self.tensors[name].weights.rows_at_a_time(self.tensors[name].name)


@dataclass(frozen=True)
class Held:
    """Type and sizes of a tensor."""

    kind: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class TorchFiles:
    """Weights in torch's own files, mapped rather than read; only tensors are unpickled (`weights_only`)."""

    def __init__(self, folder: Path, files: Iterable[Path]) -> None:
        """Map the files.

        Raises:
            CheckpointError: one is damaged, holds anything but tensors, or what another holds too.
        """
        import torch

        self.folder = folder
        self.tensors: dict[str, Held] = {}
        self._mapped: dict[str, Any] = {}
        for path in files:
            try:
                found = dict(torch.load(path, map_location="cpu", mmap=True, weights_only=True))
            except Exception as error:  # torch raises many kinds for a damaged file
                hint = "save them as safetensors"
                raise CheckpointError(f"cannot be read: {one_line(error)}", where=path, hint=hint) from error
            for name, tensor in found.items():
                if name in self.tensors:
                    raise CheckpointError(f"holds {name!r}, which another file has too", where=path)
                if str(name).endswith("position_ids"):
                    continue  # a counter that older checkpoints store beside their weights
                kind = _KINDS.get(str(getattr(tensor, "dtype", None)))
                if kind is None:
                    raise CheckpointError(f"{name!r} has no form here", where=path, hint="save them as safetensors")
                self.tensors[name] = Held(kind, tuple(tensor.shape))
                self._mapped[name] = tensor

    def read(self, name: str, begin: int = 0, end: int | None = None) -> NDArray[np.float32]:
        """Rows [begin, end) of a tensor as float32; a tensor without dimensions is one row."""
        tensor = self._mapped[name]
        rows: NDArray[np.float32] = (tensor[begin:end] if tensor.ndim else tensor).detach().float().numpy()
        return rows

    def rows_at_a_time(self, name: str) -> int:
        """How many rows make about CHUNK_BYTES as float32."""
        shape = self.tensors[name].shape
        return max(1, CHUNK_BYTES // max(1, 4 * math.prod(shape[1:])))


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights: safetensors, else torch's own."""
    found = sorted(folder.glob("*.safetensors"))
    return found or sorted({path for pattern in _TORCH_FILES for path in folder.glob(pattern)})


def open_weights(folder: Path) -> Weights:
    """The weights of a folder.

    Raises:
        CheckpointError: there are none, or they are damaged.
    """
    files = weight_files(folder)
    if not files:
        hint = "download the weights beside the configuration; from a hub, safetensors alone are fetched"
        raise CheckpointError("holds neither *.safetensors nor pytorch_model*.bin", where=folder, hint=hint)
    return Shards(folder) if files[0].suffix == ".safetensors" else TorchFiles(folder, files)


def adapted(places: Mapping[str, Place], folder: Path, what: str) -> dict[str, Place]:
    """Places with a LoRA upon them: W + B A alpha / r (peft; alpha / sqrt(r) where `use_rslora`).

    Args:
        places: by the names of the model that the adapter was made for.
        folder: the adapter's, as peft writes it.
        what: that model, for people.

    Raises:
        CheckpointError: the adapter is damaged, does not fit, or does more than LoRA on matrices.
    """
    config = read_json(folder, "adapter_config.json")
    if config is None:
        raise CheckpointError("has no adapter_config.json", where=folder)
    where = folder / "adapter_config.json"
    if config.get("peft_type", "LORA") != "LORA":
        raise CheckpointError(f"is a {config['peft_type']!r}, which has no form here", where=where)
    for key in _MORE_THAN_LORA:
        if config.get(key):
            raise CheckpointError(f"{key} has no form here", where=where, hint="merge the adapter with peft first")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not (isinstance(rank, int) and rank > 0 and isinstance(alpha, int | float)):
        raise CheckpointError("states no r and lora_alpha", where=where)
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    weights = open_weights(folder)
    changed: dict[str, dict[str, str]] = {}
    for name in weights.tensors:
        match = _LORA.match(name)
        if match is None:
            raise CheckpointError(f"holds {name!r}, which is no LoRA of a matrix", where=folder)
        changed.setdefault(f"{match[1]}.weight", {})[match[2]] = name
    result = dict(places)
    for target, pair in changed.items():
        place = places.get(target)
        if place is None or len(pair) != 2:
            raise CheckpointError(f"changes {target!r}, which the {what} has not, or holds half of it", where=folder)
        down, up = (tuple(weights.tensors[pair[side]].shape) for side in "AB")
        if len(place.shape) != 2 or up != (place.shape[0], rank) or down != (rank, place.shape[1]):
            raise CheckpointError(f"{target!r} is {list(place.shape)} and does not fit its adapter", where=folder)
        result[target] = Place(place.weights, place.name, Change(weights, pair["A"], pair["B"], scale))
    return result
