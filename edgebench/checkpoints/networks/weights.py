"""Published weights -> a module, with one clear line when they do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

M = TypeVar("M", bound=nn.Module)


def read_torch(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a torch file, read with `weights_only=True`, a leading 'module.' taken off each name. They may lie under 'state_dict' or 'model'.

    Raises:
        CheckpointError: missing, damaged, or not only weights.
    """
    exists(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises the errors of pickle, zip and its own
        raise CheckpointError(f"is no torch file of plain weights: {one_line(error)[:120]}", where=path) from error
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise CheckpointError("holds something other than named tensors", where=path)
    return {str(name).removeprefix("module."): tensor for name, tensor in state.items()}


def exists(path: Path) -> None:
    """Raises CheckpointError when there is no such file."""
    if not path.is_file():
        raise CheckpointError("does not exist" if not path.exists() else "is no file", where=path)


def fill(module: M, state: Mapping[str, torch.Tensor], path: Path) -> M:
    """Put tensors into a module; each must be there, and none may be left over.

    Raises:
        CheckpointError: missing, unexpected or misshaped tensors; the first few are named.
    """
    wanted = {name: tensor for name, tensor in module.state_dict().items() if not name.endswith("num_batches_tracked")}
    given = {name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")}
    shapes = [
        f"{n} {list(given[n].shape)} for {list(wanted[n].shape)}"
        for n in wanted.keys() & given.keys()
        if given[n].shape != wanted[n].shape
    ]
    for kind, names in (
        ("missing", sorted(wanted.keys() - given.keys())),
        ("unexpected", sorted(given.keys() - wanted.keys())),
        ("misshaped", sorted(shapes)),
    ):
        if names:
            raise CheckpointError(
                f"is not a {type(module).__name__}: {len(names)} {kind} tensors, such as {', '.join(names[:3])}",
                where=path,
            )
    module.load_state_dict(given, strict=False)
    return module.eval()
