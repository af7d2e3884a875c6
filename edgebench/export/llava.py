"""Family llava: `LlavaForConditionalGeneration` (LLaVA-1.5 and what has its shape)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.export.vision_language import Family, export_vision_language

if TYPE_CHECKING:
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Manifest

LLAVA = Family("llava", "LlavaForConditionalGeneration", "LlavaConfig")


def export_llava(request: ExportRequest) -> Manifest:
    """Write the graphs: one tile of 336 x 336 pixels a picture, each of its features one token.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        ParityError: a graph misses the recipe's bound.
    """
    return export_vision_language(request, LLAVA)
