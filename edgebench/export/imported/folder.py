"""One import from the folder to its manifest: recognise the layout, read the graphs, write the manifest last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.checkpoints.files import read_json
from edgebench.errors import CheckpointError, UsageError
from edgebench.export.imported import LAYOUTS
from edgebench.export.operations import counted
from edgebench.manifest import is_artifact, read_artifact, write_manifest
from edgebench.registry import load

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.imported.request import ImportRequest
    from edgebench.manifest import Artifact


def import_folder(request: ImportRequest, *, overwrite: bool = False) -> Artifact:
    """Write `manifest.json` into the folder.

    Raises:
        CheckpointError: a file is missing, damaged, or of another layout.
        ParityError: a graph misses the recipe's bound.
        UsageError: the folder has a manifest already, or an option does not fit its layout.
    """
    folder = request.folder
    if is_artifact(folder) and not overwrite:
        raise UsageError("has a manifest already", where=folder, hint="pass --overwrite to replace it")
    take, _ = LAYOUTS[layout_of(folder)]
    manifest = load(take)(request)
    try:
        write_manifest(folder, counted(folder, manifest))
    except OSError as error:
        raise CheckpointError(f"manifest.json cannot be written: {error.strerror or error}", where=folder) from error
    return read_artifact(folder, verify=False)


def layout_of(folder: Path) -> str:
    """The layout, by the files that are there: a name of `LAYOUTS`.

    Raises:
        CheckpointError: it is none of them; the error says what was looked for.
    """
    if not folder.is_dir():
        raise CheckpointError("is no folder", where=folder)
    if (folder / "genai_config.json").is_file():
        return "genai"
    graphs = {path.name for place in (folder, folder / "onnx") for path in place.glob("*.onnx")}
    if any(name.startswith(("vision_encoder", "embed_tokens")) for name in graphs):
        return "onnx-community"
    kinds = [str(kind) for kind in (read_json(folder, "config.json") or {}).get("architectures") or ()]
    if any(kind.endswith("ForImageClassification") for kind in kinds) and any(n.startswith("model") for n in graphs):
        return "classifier"
    if any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in kinds) and any(
        name.startswith(("model", "decoder_model_merged")) for name in graphs
    ):
        return "text-generation"
    there = ", ".join([*sorted(graphs), *kinds]) or "no ONNX file"
    looked = "; ".join(files for _, files in LAYOUTS.values())
    raise CheckpointError(
        f"is of no layout that is known here: it holds {there}", where=folder, hint=f"known: {looked}"
    )
