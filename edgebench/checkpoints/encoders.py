"""Vision encoders of transformers that a probe stands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.checkpoints.quiet import quiet, silence
from edgebench.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Architecture:
    """One encoder as transformers has it."""

    kinds: dict[str, tuple[str, str]]
    """`model_type` of config.json -> transformers' configuration and model."""
    features: tuple[str, ...]
    """Outputs that a probe may stand on; the first is taken where the recipe names none."""
    any_size: bool = False
    """Whether position embeddings are interpolated to the picture's size."""


ENCODERS: dict[str, Architecture] = {
    "clip": Architecture(
        {
            "clip": ("CLIPConfig", "CLIPVisionModelWithProjection"),
            "clip_vision_model": ("CLIPVisionConfig", "CLIPVisionModelWithProjection"),
        },
        ("image_embeds", "pooler_output"),
    ),
    "siglip": Architecture(
        {
            "siglip": ("SiglipConfig", "SiglipVisionModel"),
            "siglip_vision_model": ("SiglipVisionConfig", "SiglipVisionModel"),
        },
        ("pooler_output",),
    ),
    "dinov2": Architecture(
        {
            "dinov2": ("Dinov2Config", "Dinov2Model"),
            "dinov2_with_registers": ("Dinov2WithRegistersConfig", "Dinov2WithRegistersModel"),
        },
        ("pooler_output",),
        any_size=True,
    ),
}
"""image_embeds: behind the projection (CLIP). pooler_output: the class token behind the last normalisation (CLIP,
DINOv2), or the attention pool (SigLIP)."""


def encoder_configuration(folder: Path, architecture: Architecture) -> tuple[Any, Any]:
    """The class of the vision side, and its configuration.

    Raises:
        CheckpointError: there is none, or it is another architecture's.
    """
    import transformers

    value = read_json(folder, "config.json")
    where = folder / "config.json"
    if value is None:
        raise CheckpointError(
            "has no config.json", where=folder, hint="--weights takes a Hugging Face checkpoint folder"
        )
    names = architecture.kinds.get(str(value.get("model_type")))
    if names is None:
        wanted = " or ".join(map(repr, architecture.kinds))
        raise CheckpointError(
            f"is a {value.get('model_type')!r}, not a {wanted}",
            where=where,
            hint="the recipes clip-probe, siglip-probe and dinov2-probe take one kind of encoder each",
        )
    try:
        with quiet():
            config = getattr(transformers, names[0]).from_dict(value)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=where) from error
    vision = getattr(config, "vision_config", None)
    if vision is not None:
        if hasattr(config, "projection_dim"):
            vision.projection_dim = config.projection_dim
        config = vision
    if not getattr(config, "vision_use_head", True):
        raise CheckpointError("has no pooling head (vision_use_head is false)", where=where)
    return getattr(transformers, names[1]), config


def load_encoder(folder: Path, kind: Any, config: Any, dtype: str = "float32") -> Any:
    """The vision side of a checkpoint in transformers, eager.

    Args:
        folder: of the checkpoint.
        kind: the class, as `encoder_configuration` gives it.
        config: its configuration.
        dtype: 'float32' or 'bfloat16'.

    Raises:
        CheckpointError: transformers cannot load it.
    """
    import torch

    silence()
    try:
        with quiet():
            model = kind.from_pretrained(
                folder,
                config=config,
                dtype=getattr(torch, dtype),
                attn_implementation="eager",
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"transformers cannot load it: {one_line(error)}", where=folder) from error
    return model.eval()
