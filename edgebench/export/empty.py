"""A model of the right shape without weights, and where in the checkpoint each of its parameters lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.shards import Weights


def empty_model(kind: Any, config: Any, dtype: str, attention: str) -> Any:
    """A model of a transformers class whose parameters take no memory and whose buffers are real.

    Args:
        kind: the class.
        config: its configuration.
        dtype: of the parameters, such as 'float32'.
        attention: the attention implementation.
    """
    import torch

    with torch.device("meta"):
        model = kind._from_config(config, attn_implementation=attention)
    for module in model.modules():
        lost = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        if lost:
            fresh = type(module)(module.config)
            for name in lost:
                module._buffers[name] = getattr(fresh, name)
    retype(model, dtype)
    return model.eval()


def empty_model_of(where: Path, kind: Any, config: Any, dtype: str) -> Any:
    """`empty_model` of a checkpoint, eager.

    Raises:
        CheckpointError: transformers builds no model of its configuration.
    """
    try:
        with quiet():
            return empty_model(kind, config, dtype, "eager")
    except Exception as error:  # transformers raises many kinds for a wrong configuration
        raise CheckpointError(f"no model can be built from it: {one_line(error)}", where=where) from error


def retype(module: Any, dtype: str) -> None:
    """Give every parameter of a module without weights a type; one that is tied to another stays tied."""
    import torch

    made: dict[int, Any] = {}
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None and id(parameter) not in made:
                empty = torch.zeros((), dtype=getattr(torch, dtype)).expand(parameter.shape)
                made[id(parameter)] = (parameter, torch.nn.Parameter(empty, requires_grad=False))
            if parameter is not None:
                part._parameters[name] = made[id(parameter)][1]


def source_names(model: Any, weights: Weights) -> dict[str, str]:
    """Parameter of the model -> tensor of the checkpoint, by transformers' own renaming rules.

    Raises:
        CheckpointError: a tensor is missing, unexpected, or of another shape.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings: Any = [r for r in rules if isinstance(r, WeightRenaming)]
    converters: Any = [r for r in rules if isinstance(r, WeightConverter)]
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    state: Any = dict.fromkeys(wanted, True)
    found: dict[str, str] = {}
    unexpected: list[str] = []
    for key in weights.tensors:
        name, _ = rename_source_key(key, renamings, converters, model.base_model_prefix, state)
        if name in wanted:
            found[name] = key
        elif not name.endswith(("rotary_emb.inv_freq", "position_ids")):
            unexpected.append(key)
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    for name, other in tied.items():
        if name not in found and other in found:
            found[name] = found[other]
    missing = sorted(wanted.keys() - found.keys())
    where = weights.folder
    for what, names in (("missing", missing), ("unexpected", sorted(unexpected))):
        if names:
            raise CheckpointError(f"{len(names)} {what} keys, such as {', '.join(names[:3])}", where=where)
    for name, key in found.items():
        shape = weights.tensors[key].shape
        if shape != wanted[name]:
            raise CheckpointError(f"{key!r} is {list(shape)}, the configuration says {list(wanted[name])}", where=where)
    return found
