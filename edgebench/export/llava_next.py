"""Family llava_next: `LlavaNextForConditionalGeneration` (LLaVA-1.6: 7B, 13B and 34B), pictures in tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.export.vision_language import Family, export_vision_language

if TYPE_CHECKING:
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Manifest

LLAVA_NEXT = Family("llava_next", "LlavaNextForConditionalGeneration", "LlavaNextConfig")


def export_llava_next(request: ExportRequest) -> Manifest:
    """Write the graphs: a tile of the whole picture, and tiles of the best grid, unpadded, with the ends of rows.

    The vector that ends a row is the last row of the embedding; `edgebench.prompts.placing` says where it stands.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        ParityError: a graph misses the recipe's bound.
    """
    return export_vision_language(request, LLAVA_NEXT)
