"""One export from the recipe's name to the finished folder: find the weights, export, write the manifest last."""

from __future__ import annotations

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgebench.checkpoints.files import find_weights
from edgebench.errors import CheckpointError, EdgebenchError, MissingExtraError, UsageError
from edgebench.export import FAMILIES
from edgebench.export.operations import counted
from edgebench.export.request import ExportRequest
from edgebench.manifest import is_artifact, read_artifact, write_manifest
from edgebench.registry import load, lookup

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgebench.manifest import Artifact
    from edgebench.recipes import Precision, Recipe

NEEDED = {
    "classifier": ("torch", "onnx", "onnxscript", "h5py"),
    "encoder": ("torch", "transformers", "onnx", "onnxscript", "safetensors"),
    "text_classifier": ("torch", "transformers", "onnx", "onnxscript", "safetensors"),
    "image_text_classifier": ("torch", "onnx", "onnxscript"),
    "llava": ("torch", "transformers", "onnx", "onnxscript", "safetensors"),
    "llava_next": ("torch", "transformers", "onnx", "onnxscript", "safetensors"),
    "language": ("torch", "transformers", "onnx", "onnxscript", "safetensors", "gguf"),
}
ONE_ANSWER = ("classifier", "encoder", "text_classifier", "image_text_classifier")
"""Families of one graph that gives P(forged)."""


def export(
    recipe: Recipe,
    *,
    weights: str | None,
    precision: Precision,
    dialect: Literal["ort", "portable"],
    output: Path,
    say: Callable[[str], None],
    calibration: Path | None = None,
    against: Path | None = None,
    probe: Path | None = None,
    vision_tower: Path | None = None,
    language: Path | None = None,
    overwrite: bool = False,
    parity: bool | None = None,
    wrote: Callable[[int, int], None] = lambda done, total: None,
) -> Artifact:
    """Export one model.

    Everything is written into a folder beside `output` and renamed at the very end, so that a kill leaves nothing
    that an engine would trust.

    Args:
        recipe: the model.
        weights: a path, a hub id, or None for the recipe's own.
        precision: of the graphs.
        dialect: 'portable' for any runtime; 'ort' with ONNX Runtime's fused operators.
        output: the artifact's folder.
        say: called with the name of each step as it begins.
        calibration: a folder of images, for models that see in int8.
        against: evaluation pictures that calibration must not look like.
        probe: the linear layer on an encoder's features.
        vision_tower: the folder of LLaVA's vision tower, where the checkpoint has none.
        language: the folder of LLaVA's language model, where the checkpoint has none.
        overwrite: replace an artifact that is there.
        parity: whether a language model is compared with its checkpoint; None: where it fits into memory.
        wrote: called with the bytes of weights that are written, and all that will be.

    Raises:
        EdgebenchError: of the family that fits; nothing is left behind.
    """
    if output.exists() and not (overwrite and is_artifact(output)) and (not output.is_dir() or any(output.iterdir())):
        hint = "pass --overwrite to replace it" if is_artifact(output) else "pass another --output"
        raise UsageError("exists already", where=output, hint=hint)
    missing = [name for name in NEEDED[recipe.family] if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"export needs {', '.join(missing)}", hint="pip install 'edgebench[export]'")
    if calibration is not None and (
        recipe.family in {"language", "text_classifier", "image_text_classifier"} or precision not in {"int8", "w8a8"}
    ):
        raise UsageError("--calibration is for models that see, in int8", hint="pass --w8a8, or leave it out")
    if calibration is not None:
        precision = "w8a8"
    elif precision == "w8a8" and recipe.family != "language":
        raise UsageError("--w8a8 needs pictures to calibrate with", hint="pass --calibration FOLDER")
    if against is not None and calibration is None:
        raise UsageError("--against checks the pictures of --calibration, and there are none")
    if probe is not None and recipe.family != "encoder":
        raise UsageError(f"--probe is for encoders, and {recipe.name} is of the family {recipe.family}")
    for option, part in (("--vision-tower", vision_tower), ("--language", language)):
        if part is not None and recipe.family != "llava":
            raise UsageError(f"{option} is for the family llava, and {recipe.name} is of the family {recipe.family}")
    if precision in {"int4", "bf16"} and recipe.family in ONE_ANSWER:
        raise UsageError(f"--{precision} is for language models", hint="classifiers and encoders take --int8 or --fp16")
    source = find_weights(recipe, weights)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output.name}.unfinished-", dir=output.parent))
    try:
        request = ExportRequest(
            recipe=recipe,
            weights=source,
            precision=precision,
            dialect=dialect if recipe.family not in {"classifier", "image_text_classifier"} else "portable",
            folder=partial,
            say=say,
            calibration=calibration,
            against=against,
            probe=probe,
            vision_tower=vision_tower,
            language=language,
            parity=parity,
            wrote=wrote,
        )
        manifest = load(lookup(FAMILIES, recipe.family, what="family"))(request)
        write_manifest(partial, counted(partial, manifest))
        if output.exists():
            shutil.rmtree(output)
        partial.chmod(0o755)
        partial.replace(output)
    except OSError as error:
        raise CheckpointError(f"the export cannot be written: {error.strerror or error}", where=output) from error
    except MemoryError as error:
        raise EdgebenchError("not enough memory for this export") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return read_artifact(output, verify=False)
