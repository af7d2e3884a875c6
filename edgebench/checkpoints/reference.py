"""A checkpoint in transformers, as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.quiet import quiet, silence
from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from pathlib import Path


def load_reference(folder: Path, model_class: str, *, dtype: str = "float32", **rest: Any) -> Any:
    """The checkpoint in transformers, eager.

    Args:
        folder: of the checkpoint.
        model_class: a name in transformers.
        dtype: 'float32' or 'bfloat16'.
        rest: further arguments of `from_pretrained`.

    Raises:
        CheckpointError: it is damaged, or its keys do not fit.
    """
    import torch
    import transformers

    silence()
    kind: Any = getattr(transformers, model_class)
    try:
        with quiet():
            model, found = kind.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                attn_implementation="eager",
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=False,
                **{"use_safetensors": True, **rest},
            )
    except Exception as error:  # damaged shards raise the errors of several libraries
        raise CheckpointError(f"cannot be loaded: {one_line(error)}", where=folder) from error
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = sorted(str(k) for k in found.get(what, ()))
        if names:
            raise CheckpointError(
                f"{len(names)} {what.replace('_', ' ')}, such as {', '.join(names[:3])}", where=folder
            )
    return model.eval()
