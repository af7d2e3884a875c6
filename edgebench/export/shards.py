"""Weights read a few rows at a time from safetensors, so that no whole model is ever in memory.

A safetensors file is eight bytes of header length, a JSON header with each tensor's type, shape and place, and the
bytes. Reading with `pread` keeps no page of the file in this process, which mapping it would.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F64": np.dtype("<f8"),
}
_LARGEST_HEADER = 100 << 20
CHUNK_BYTES = 16 << 20
"""About so many bytes of a tensor are in memory at a time."""


@dataclass(frozen=True)
class Tensor:
    """Where one tensor lies."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    begin: int
    """Of its bytes in the file."""

    @property
    def count(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))


class Weights(Protocol):
    """Where weights come from: safetensors, or GGUF."""

    folder: Path

    @property
    def tensors(self) -> Mapping[str, Any]:
        """Name -> something with `kind`, `shape` and `count`."""

    def read(self, name: str, begin: int = 0, end: int | None = None) -> NDArray[np.float32]:
        """Rows [begin, end) of a tensor as float32."""

    def rows_at_a_time(self, name: str) -> int:
        """How many rows should be read at a time."""


class Shards:
    """All tensors of a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        """Read the headers.

        Raises:
            CheckpointError: there is no safetensors file, or one is damaged, truncated or of a type without a form
                here, or two hold the same tensor.
        """
        self.folder = folder
        self.tensors: dict[str, Tensor] = {}
        self._open: dict[Path, int] = {}
        for path in sorted(folder.glob("*.safetensors")):
            for name, tensor in _header(path).items():
                if name in self.tensors:
                    raise CheckpointError(f"holds {name!r}, which {self.tensors[name].file.name} has too", where=path)
                self.tensors[name] = tensor
        if not self.tensors:
            pickled = any(p.suffix in {".bin", ".pt", ".pth"} for p in folder.iterdir())
            hint = "pickled weights are not loaded; convert them to safetensors"
            raise CheckpointError(
                "holds no *.safetensors", where=folder, hint=hint if pickled else "--weights takes a checkpoint folder"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def read(self, name: str, begin: int = 0, end: int | None = None) -> NDArray[np.float32]:
        """Rows [begin, end) of a tensor as float32; a tensor without dimensions is one row.

        Raises:
            CheckpointError: the file ends early or cannot be read.
        """
        tensor = self.tensors[name]
        kind = _TYPES[tensor.kind]
        rows = tensor.shape[0] if tensor.shape else 1
        end = rows if end is None else end
        row = tensor.count // rows if rows else 0
        size = (end - begin) * row * kind.itemsize
        place = tensor.begin + begin * row * kind.itemsize
        parts: list[bytes] = []
        try:
            if tensor.file not in self._open:
                self._open[tensor.file] = os.open(tensor.file, os.O_RDONLY)
            while size > 0 and (part := os.pread(self._open[tensor.file], min(size, 1 << 30), place)):
                parts.append(part)
                size -= len(part)
                place += len(part)
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror or error}", where=tensor.file) from error
        if size:
            raise CheckpointError(f"ends within {name!r}", where=tensor.file)
        raw = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), kind)
        if tensor.kind == "BF16":
            values: NDArray[np.float32] = (raw.astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.astype(np.float32)
        return values.reshape((end - begin, *tensor.shape[1:]) if tensor.shape else ())

    def rows_at_a_time(self, name: str) -> int:
        """How many rows make about CHUNK_BYTES as float32."""
        tensor = self.tensors[name]
        row = 4 * tensor.count // max(1, tensor.shape[0] if tensor.shape else 1)
        return max(1, CHUNK_BYTES // max(1, row))


def _header(path: Path) -> dict[str, Tensor]:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise CheckpointError("is no safetensors file, or a truncated one", where=path)
            value: Any = json.loads(stream.read(length))
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror or error}", where=path) from error
    except ValueError as error:
        raise CheckpointError(f"has a damaged header: {one_line(error)}", where=path) from error
    found: dict[str, Tensor] = {}
    try:
        for name, entry in value.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] == "I64" and name.endswith("position_ids"):
                continue  # a counter that older checkpoints store beside their weights
            begin, end = (int(v) for v in entry["data_offsets"])
            tensor = Tensor(path, str(entry["dtype"]), tuple(int(v) for v in entry["shape"]), 8 + length + begin)
            if tensor.kind not in _TYPES:
                raise CheckpointError(f"{name!r} is {tensor.kind}, which has no form here", where=path)
            if begin < 0 or end - begin != tensor.count * _TYPES[tensor.kind].itemsize:
                raise CheckpointError(f"{name!r} has another size than its shape", where=path)
            if 8 + length + end > size:
                raise CheckpointError(f"is truncated: it ends before {name!r} does", where=path)
            found[name] = tensor
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"has a damaged header: {one_line(error)}", where=path) from error
    return found
