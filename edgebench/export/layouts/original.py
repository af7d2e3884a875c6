"""The layout of LLaVA's own code: liuhaotian/llava-v1.5-7b, Lin-Chen/ShareGPT4V-7B and what was trained with it.

Sources: names and modules are those of `llava/model/llava_arch.py`, `multimodal_encoder/clip_encoder.py` and
`multimodal_projector/builder.py` of the LLaVA repository; how they map to transformers' is
`convert_llava_weights_to_hf.py` of transformers. ShareGPT4V's code is LLaVA's with other names (`share4v/`).
config.json is LlamaConfig's with `mm_*` beside. The tower is in the folder only where it was saved with the rest
(`model.vision_tower.vision_tower.*`), and is taken from there; else `mm_vision_tower` names it. Lin-Chen/ShareGPT4V-7B names
Lin-Chen/ShareGPT4V-7B_Pretrained_vit-large336-l12, whose later layers were trained: OpenAI's is not the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.errors import CheckpointError
from edgebench.export.layouts.checkpoint import Parts, assembled, text_config
from edgebench.export.layouts.presented import Place, open_weights
from edgebench.export.layouts.vision import as_llava, tower_config, tower_places

if TYPE_CHECKING:
    from edgebench.export.layouts.checkpoint import Checkpoint
    from edgebench.export.request import ExportRequest

LANGUAGES = {
    "LlavaLlamaForCausalLM": "llama",
    "Share4VLlamaForCausalLM": "llama",
    "LlavaMistralForCausalLM": "mistral",
}
"""`architectures` of config.json -> the language model's type in transformers."""
_INSIDE = "model.vision_tower.vision_tower."
_PROJECTOR = {"model.mm_projector.0.": "linear_1.", "model.mm_projector.2.": "linear_2."}


def is_original(folder: Path) -> bool:
    """Whether a folder is in this layout."""
    return "mm_vision_tower" in (read_json(folder, "config.json") or {})


def open_original(request: ExportRequest) -> Checkpoint:
    """A folder in this layout as one checkpoint.

    Raises:
        CheckpointError: it is damaged, has a form that is not known here, or its vision tower is elsewhere.
    """
    folder = request.weights
    where = folder / "config.json"
    config = read_json(folder, "config.json") or {}
    projector = _checked(config, where)
    weights = open_weights(folder)
    places: dict[str, Place] = {}
    inside: dict[str, Place] = {}
    for name in weights.tensors:
        place = Place(weights, name)
        prefix = name[: len("model.mm_projector.0.")]
        if name.startswith(_INSIDE):
            inside[name.removeprefix(_INSIDE).removeprefix("vision_model.")] = place
        elif prefix in _PROJECTOR:
            places[f"multi_modal_projector.{_PROJECTOR[prefix]}{name.removeprefix(prefix)}"] = place
        else:
            places[f"language_model.{name}"] = place
    named = str(config["mm_vision_tower"])
    tower = request.vision_tower or (Path(named) if Path(named).is_dir() else None)
    folders = {"": folder}
    if tower is None and not inside:
        hint = f"pass --vision-tower FOLDER with {named}"
        raise CheckpointError(f"holds no vision tower; it was trained with {named}", where=folder, hint=hint)
    vision = tower_config(tower, named)
    if not inside and tower is not None:
        inside = tower_places(open_weights(tower))
        folders["vision_tower"] = tower
    return assembled(
        request,
        Parts(
            language=text_config(config, LANGUAGES[config["architectures"][0]], where),
            vision=vision,
            projector=projector,
            places={**places, **as_llava(inside)},
            folders=folders,
            tokenizer=folder,
            processor=tower,
            pads=config.get("image_aspect_ratio") == "pad",
        ),
    )


def _checked(config: dict[str, Any], where: Path) -> dict[str, Any]:
    """What the configuration says of the projector and its features, as `LlavaConfig` says it.

    Raises:
        CheckpointError: it says what has no form here.
    """
    architectures = config.get("architectures")
    if not (isinstance(architectures, list) and architectures and architectures[0] in LANGUAGES):
        raise CheckpointError(f"is of {architectures}, not of {', '.join(LANGUAGES)}", where=where)
    wanted = (
        ("mm_projector_type", "mlp2x_gelu", "linear"),
        ("mm_use_im_start_end", False, False),
        ("s2", False, False),
    )
    for key, value, default in wanted:
        if (config.get(key, default) or False) != value:
            raise CheckpointError(f"{key} {config.get(key, default)!r} has no form here, only {value!r}", where=where)
    if config.get("image_aspect_ratio") not in {"pad", "square", None}:
        hint = "LLaVA-1.6 is exported from llava-hf's checkpoints, family llava_next"
        raise CheckpointError(
            f"image_aspect_ratio {config['image_aspect_ratio']!r} has no form here", where=where, hint=hint
        )
    features = {"patch": "default", "cls_patch": "full"}
    feature, layer = config.get("mm_vision_select_feature", "patch"), config.get("mm_vision_select_layer", -2)
    if feature not in features or not isinstance(layer, int):
        raise CheckpointError(f"mm_vision_select_feature {feature!r} of layer {layer!r} has no form here", where=where)
    return {
        "vision_feature_layer": layer,
        "vision_feature_select_strategy": features[feature],
        "projector_hidden_act": "gelu",
    }
