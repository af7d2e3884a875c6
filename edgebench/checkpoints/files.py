"""A Hugging Face checkpoint folder: its weights' identity and its companion files as data."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.config import build
from edgebench.errors import CheckpointError, one_line
from edgebench.manifest import Preprocess, Source, file_fact, sha256_file

if TYPE_CHECKING:
    from edgebench.manifest import FileFact
    from edgebench.recipes import Recipe

PATTERNS = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model"]
"""All that is fetched from a model hub: no code, no pickle."""
_FILTER_NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")


def looks_like_hub_id(text: str) -> bool:
    """Whether a text has the form `owner/name` of a model hub."""
    return bool(_HUB_ID.match(text))


def fetch(hub_id: str) -> Path:
    """Download a checkpoint from the Hugging Face hub, or take it from its local cache.

    Raises:
        CheckpointError: the hub cannot be reached or has no such model.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=PATTERNS))
    except Exception as error:  # network, permission and hub errors share no base class
        raise CheckpointError(
            f"the weights {hub_id!r} cannot be fetched from the model hub ({type(error).__name__})",
            hint="pass --weights DIR with a downloaded checkpoint folder",
        ) from error


def find_weights(recipe: Recipe, weights: str | None) -> Path:
    """The checkpoint: as given (a path or a hub id), else embedded, else from the recipe's hub id.

    Raises:
        CheckpointError: it is nowhere; the advice says what to pass.
    """
    if weights is not None:
        path = Path(weights).expanduser()
        if path.exists():
            return path
        if recipe.family in {"classifier", "image_text_classifier"} or not looks_like_hub_id(weights):
            raise CheckpointError("does not exist", where=weights, hint=f"--weights takes {_wanted(recipe)}")
        return fetch(weights)
    if recipe.embedded is not None:
        return Path(__file__).resolve().parent.parent / recipe.embedded
    if recipe.hub_id is not None:
        return fetch(recipe.hub_id)
    raise CheckpointError(
        f"{recipe.name} has no weights here", hint=f"pass --weights {_wanted(recipe)}, published at {recipe.source}"
    )


def _wanted(recipe: Recipe) -> str:
    if recipe.beside or recipe.family == "image_text_classifier":
        return f"a folder with {', '.join(filter(None, (recipe.weights_file, *recipe.beside)))}"
    if recipe.family == "classifier":
        return f"the file {recipe.weights_file}" if recipe.weights_file else "a weights file"
    return "a Hugging Face checkpoint folder or a hub id"


def identify(folder: Path, *, parameters: int | None, name: str) -> Source:
    """SHA-256 of every weight file of a folder.

    Raises:
        CheckpointError: there is no safetensors file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        hint = (
            "pickled weights are not loaded; convert them to safetensors"
            if any(folder.glob("*.bin"))
            else "--weights takes a Hugging Face checkpoint folder"
        )
        raise CheckpointError("holds no *.safetensors", where=folder, hint=hint)
    return source_of(files, name=name, parameters=parameters)


def source_of(files: list[Path], *, name: str, parameters: int | None) -> Source:
    """A source made of these weight files."""
    return source_from({path.name: sha256_file(path) for path in files}, name=name, parameters=parameters)


def source_from(hashes: dict[str, str], *, name: str, parameters: int | None) -> Source:
    """A source made of files whose SHA-256 is known."""
    combined = hashlib.sha256("".join(f"{k}\0{v}\n" for k, v in sorted(hashes.items())).encode()).hexdigest()
    return Source(name=name, sha256=combined, files=hashes, parameters=parameters)


def read_json(folder: Path, name: str) -> dict[str, Any] | None:
    """A JSON object of the folder; None when the file is not there.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / name
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"is not readable JSON: {one_line(error)}", where=path) from error
    if not isinstance(value, dict):
        raise CheckpointError("is not a JSON object", where=path)
    return value


def copy_tokenizer(folder: Path, target: Path) -> FileFact:
    """Copy `tokenizer.json` into the artifact.

    Raises:
        CheckpointError: there is none.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError("has no tokenizer.json", where=folder, hint="save the fast tokenizer beside the weights")
    shutil.copyfile(path, target / "tokenizer.json")
    return file_fact(target, "tokenizer.json")


def chat_template(folder: Path) -> str | None:
    """The checkpoint's own chat template, from any of the places it may stand in."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
        value = (read_json(folder, name) or {}).get("chat_template")
        if isinstance(value, str):
            return value
    return None


def preprocess_of(folder: Path) -> Preprocess:
    """The image processor of a checkpoint, as data.

    Raises:
        CheckpointError: there is none, or it does something that is not known here.
    """
    value = read_json(folder, "preprocessor_config.json")
    if value is None:
        value = (read_json(folder, "processor_config.json") or {}).get("image_processor")
    where = folder / "preprocessor_config.json"
    if not isinstance(value, dict):
        raise CheckpointError("has no preprocessor_config.json", where=folder)
    if value.get("kind") == "tile_rows":
        plain = {k: v for k, v in value.items() if k in {"kind", "gap", "title", "mean", "std"}}
        return build(
            Preprocess,
            plain | {"height": value.get("tile"), "width": value.get("tile")},
            where=str(where),
            error=CheckpointError,
        )
    return _from_transformers(value, str(where))


def _from_transformers(value: dict[str, Any], where: str) -> Preprocess:
    for key in ("do_resize", "do_rescale", "do_normalize"):
        if value.get(key, True) is not True:
            raise CheckpointError(
                f"{key} is switched off, which has no form here",
                where=where,
                hint="state the preprocessing in a recipe",
            )
    if value.get("do_image_splitting"):
        raise CheckpointError(
            "splits images into tiles by size, which has no form here yet",
            where=where,
            hint="state the preprocessing in a recipe",
        )
    size, crop = value.get("size", {"shortest_edge": 224}), value.get("crop_size", 224)
    size = {"shortest_edge": size} if isinstance(size, int) else size
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    mean, std = value.get("image_mean"), value.get("image_std")
    if not (isinstance(mean, list) and isinstance(std, list) and len(mean) == len(std) == 3):
        raise CheckpointError("image_mean and image_std should be three numbers each", where=where)
    plain: dict[str, Any] = {
        "filter": _FILTER_NAMES.get(value.get("resample", 3), "bicubic"),
        "scale": float(value.get("rescale_factor", 1 / 255)),
        "mean": mean,
        "std": std,
    }
    cropping = value.get("do_center_crop", False)
    if value.get("image_grid_pinpoints"):
        side = size.get("shortest_edge") or size.get("height")
        if not (side and (not cropping or crop == {"height": side, "width": side})):
            raise CheckpointError(f"tiles of size {size} with crop {crop} have no form here", where=where)
        grids = [list(map(int, grid)) for grid in value["image_grid_pinpoints"]]
        plain |= {"kind": "anyres_tiles", "height": side, "width": side, "grids": grids}
    elif value.get("do_pad") and "height" in size:
        plain |= {
            "kind": "pad_square",
            "height": size["height"],
            "width": size["width"],
            "pad_colour": [int(m * 255) for m in mean],
        }
    elif "shortest_edge" in size and cropping:
        plain |= {
            "kind": "shortest_edge_crop",
            "height": crop["height"],
            "width": crop["width"],
            "shortest_edge": size["shortest_edge"],
        }
    elif "height" in size and (not cropping or crop == size):
        plain |= {"kind": "resize", "height": size["height"], "width": size["width"]}
    else:
        raise CheckpointError(
            f"size {size} with crop {crop} has no form here", where=where, hint="state the preprocessing in a recipe"
        )
    return build(Preprocess, plain, where=where, error=CheckpointError)
