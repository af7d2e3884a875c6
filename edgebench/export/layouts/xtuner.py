"""XTuner's layout: xtuner/llava-v1.5-7b-xtuner, xtuner/llava-llama-3-8b-v1_1.

Sources, in the XTuner repository: `to_xtuner_llava` of `xtuner/model/llava.py` writes `projector/`, and, of language
model and tower each, a LoRA (`llm_adapter/`, `visual_encoder_adapter/`) or the whole (at the top, in older versions
in `llm/`; `visual_encoder/`) or, where it stayed as it was, nothing. The projector is
`xtuner/model/modules/projector/modeling_projector.py`; its names, and that of the tower, map to transformers' as in
`convert_xtuner_weights_to_hf.py`. Features are those of layer -2 without the class token, of pictures padded to a
square (`chat` of the same file; `LLaVA_XTuner` of VLMEvalKit).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.errors import CheckpointError, UsageError
from edgebench.export.layouts.checkpoint import Parts, assembled, text_config
from edgebench.export.layouts.presented import Place, adapted, open_weights, weight_files
from edgebench.export.layouts.vision import OPENAI, as_llava, tower_config, tower_places

if TYPE_CHECKING:
    from edgebench.export.layouts.checkpoint import Checkpoint
    from edgebench.export.request import ExportRequest

_PROJECTOR = {"model.0": "linear_1", "model.2": "linear_2"}
LANGUAGES = ("llama", "mistral", "qwen2")
"""Types of language models, of config.json."""


def is_xtuner(folder: Path) -> bool:
    """Whether a folder is in this layout."""
    return (folder / "projector" / "config.json").is_file()


def open_xtuner(request: ExportRequest) -> Checkpoint:
    """A folder in this layout, with the folders of what it does not hold, as one checkpoint.

    Raises:
        CheckpointError: a part is missing, damaged, or has a form that is not known here.
        UsageError: a part is given that the folder holds.
    """
    folder = request.weights
    language = _part(
        folder, _inside_language(folder), request.language, "language", "llm_adapter", "the language model"
    )
    inside = folder / "visual_encoder" if (folder / "visual_encoder").is_dir() else None
    tower = _part(folder, inside, request.vision_tower, "vision-tower", "visual_encoder_adapter", OPENAI)
    folders = {"projector": folder / "projector", "language": language, "vision_tower": tower}
    words, bias = _projector(folder / "projector")
    config = read_json(language, "config.json")
    if config is None:
        raise CheckpointError("has no config.json", where=language)
    if config.get("model_type") not in LANGUAGES:
        raise CheckpointError(
            f"is a {config.get('model_type')!r}, not one of {', '.join(LANGUAGES)}", where=language / "config.json"
        )
    spoken = open_weights(language)
    said = {name: Place(spoken, name) for name in spoken.tensors}
    seen = tower_places(open_weights(tower))
    if (adapter := folder / "llm_adapter").is_dir():
        said = adapted(said, adapter, "language model")
        folders["llm_adapter"] = adapter
    if (adapter := folder / "visual_encoder_adapter").is_dir():
        named = {f"{prefix}{name}": place for name, place in seen.items() for prefix in ("vision_model.", "")}
        changed = adapted(named, adapter, "vision tower")
        seen = {
            name: next((p for k in (f"vision_model.{name}", name) if (p := changed[k]).change), place)
            for name, place in seen.items()
        }
        folders["visual_encoder_adapter"] = adapter
    return assembled(
        request,
        Parts(
            language=text_config(config, config["model_type"], language / "config.json"),
            vision=tower_config(tower, OPENAI),
            projector=bias,
            places={**words, **{f"language_model.{name}": place for name, place in said.items()}, **as_llava(seen)},
            folders=folders,
            tokenizer=language,
            processor=tower,
            pads=True,
        ),
    )


def _inside_language(folder: Path) -> Path | None:
    if (folder / "llm").is_dir():
        return folder / "llm"
    return folder if weight_files(folder) else None


def _part(folder: Path, inside: Path | None, given: Path | None, option: str, adapter: str, else_named: str) -> Path:
    """The folder of a part: in the checkpoint, or as given.

    Raises:
        CheckpointError: it is neither; the advice names what it was trained with.
        UsageError: it is both.
    """
    if inside is not None and given is not None:
        raise UsageError(f"--{option} was given, and the checkpoint has its own", where=inside)
    config = read_json(folder / adapter, "adapter_config.json") or {}
    named = config.get("base_model_name_or_path") or else_named
    found = inside or given
    if found is None:
        hint = f"pass --{option} FOLDER with {named}"
        raise CheckpointError(f"holds an adapter or a projector alone, for {named}", where=folder, hint=hint)
    if not found.is_dir():
        raise CheckpointError("does not exist", where=found, hint=f"--{option} takes a folder with {named}")
    return found


def _projector(folder: Path) -> tuple[dict[str, Place], dict[str, Any]]:
    """Its tensors, and what `LlavaConfig` says of it.

    Raises:
        CheckpointError: it is no projector of two layers.
    """
    config = read_json(folder, "config.json") or {}
    if config.get("depth", 2) != 2:
        raise CheckpointError(f"depth {config['depth']!r} has no form here, only 2", where=folder / "config.json")
    weights = open_weights(folder)
    places: dict[str, Place] = {}
    for name in weights.tensors:
        layer, _, rest = name.rpartition(".")
        if layer not in _PROJECTOR:
            raise CheckpointError(f"holds {name!r}, which no projector has here", where=folder)
        places[f"multi_modal_projector.{_PROJECTOR[layer]}.{rest}"] = Place(weights, name)
    return places, {
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": config.get("hidden_act", "gelu"),
        "multimodal_projector_bias": bool(config.get("bias", True)),
    }
