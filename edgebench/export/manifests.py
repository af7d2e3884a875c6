"""The last step of every family: its facts as a manifest."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from edgebench import __version__
from edgebench.environment import installed
from edgebench.manifest import FORMAT, Manifest

if TYPE_CHECKING:
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Graph, Parity, Preprocess, Source

TOOLS = (
    "torch",
    "transformers",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "numpy",
    "pillow",
    "tokenizers",
    "safetensors",
    "h5py",
)


def stamped(**facts: Any) -> Manifest:
    """A manifest of these facts, in today's form, with the tools that made it and the time."""
    return Manifest(
        format=FORMAT,
        tools={"edgebench": __version__, **installed(TOOLS)},
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **facts,
    )


def manifest_of(
    request: ExportRequest,
    *,
    graphs: dict[str, Graph],
    preprocess: Preprocess | None,
    source: Source,
    parity: Parity | None,
    **rest: Any,
) -> Manifest:
    """The manifest of a finished export; `rest` is what one family has and others have not."""
    return stamped(
        name=request.recipe.name,
        family=request.recipe.family,
        dialect=request.dialect,
        precision=request.precision,
        graphs=graphs,
        preprocess=preprocess,
        source=source,
        parity=parity,
        **rest,
    )
