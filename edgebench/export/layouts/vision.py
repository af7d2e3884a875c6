"""CLIP vision towers in folders of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.export.layouts.presented import Place

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.shards import Weights

OPENAI = "openai/clip-vit-large-patch14-336"
PUBLISHED = frozenset(
    [
        OPENAI,
        "Lin-Chen/ShareGPT4V-7B_Pretrained_vit-large336-l12",
        "Lin-Chen/ShareGPT4V-13B_Pretrained_vit-large336-l12",
    ]
)
"""Towers of CLIP ViT-L/14's shape at 336 pixels: OpenAI's, and ShareGPT4V's, which are OpenAI's trained further (its
model zoo, docs/ModelZoo.md of the ShareGPT4V repository)."""
_VIT_L_336: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
    "projection_dim": 768,
}
"""The vision_config of openai/clip-vit-large-patch14-336 where it is not transformers' default."""
_TEXT_SIDE = ("text_model.", "text_projection.", "visual_projection.", "logit_scale")


def tower_config(folder: Path | None, published: str) -> Any:
    """Transformers' configuration of a tower, from its folder, or of a published one.

    Raises:
        CheckpointError: the folder holds no CLIP, or the name is unknown and there is no folder.
    """
    import transformers

    if folder is None:
        if published not in PUBLISHED:
            hint = f"pass --vision-tower FOLDER with {published}"
            raise CheckpointError(f"the shape of the vision tower {published!r} is not known", hint=hint)
        return transformers.CLIPVisionConfig.from_dict(_VIT_L_336)
    if not folder.is_dir():
        raise CheckpointError("does not exist", where=folder, hint=f"--vision-tower takes a folder with {published}")
    where = folder / "config.json"
    config = read_json(folder, "config.json")
    if config is None:
        raise CheckpointError(
            "has no config.json", where=folder, hint=f"--vision-tower takes a folder with {published}"
        )
    if config.get("model_type") == "clip":
        config = config.get("vision_config") or {}
    elif config.get("model_type") != "clip_vision_model":
        raise CheckpointError(f"is a {config.get('model_type')!r}, not a CLIP model", where=where)
    try:
        with quiet():
            return transformers.CLIPVisionConfig.from_dict(config)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=where) from error


def tower_places(weights: Weights) -> dict[str, Place]:
    """The tensors of CLIPModel's or CLIPVisionModel's vision side, by their names within the tower."""
    return {
        name.removeprefix("vision_model."): Place(weights, name)
        for name in weights.tensors
        if not name.startswith(_TEXT_SIDE)
    }


def as_llava(places: dict[str, Place]) -> dict[str, Place]:
    """By the names of llava-hf's checkpoints."""
    return {f"vision_tower.vision_model.{name}": place for name, place in places.items()}
