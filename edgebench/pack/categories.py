"""The category of an item: the published form `semantic_type_model_modality_task`, in the published words where
an item's own words mean one of them, else in its own words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgebench.wording import FORGED, GENERATED, MANIPULATED

if TYPE_CHECKING:
    from edgebench.pack.items import Item

TYPES: dict[str, tuple[str, ...]] = {
    "entiresynthesis": ("fully synthetic", "synthetic", "entire synthesis", "ai generated", "generated", "synthesis"),
    "faceswaponeface": ("face swap", "faceswap", "deepfake"),
    "facereenactment": ("face reenactment", "reenactment"),
    "faceedit": ("face edit", "face editing"),
    "faceantispoofing": ("presentation attack", "spoof", "spoofing", "face anti spoofing"),
    "styletransfer": ("style transfer", "style translation", "style"),
    "imageenhancement": ("image enhancement", "enhancement", "enhance"),
    "generalcopymove": ("copy move", "copymove"),
    "generalsplicing": ("splicing", "splice"),
    "generalremove": ("removal", "inpainting", "removal inpainting", "remove"),
    "outofcontext": ("out of context",),
    "textswap": ("text swap", "caption swap"),
    "textattributemanipulation": ("text attribute manipulation", "attribute change"),
}
"""Published type -> what people call it."""
_BY_WORD = {word: name for name, words in TYPES.items() for word in (name, *words)}
TASKS = {"BC": "category", "SLS": "seg", "SLD": "det", "TL": "temporal"}
_FACES = ("face",)


def slug(item: Item, task: str) -> str:
    """The category of a question of task BC, SLS, SLD or TL about an item."""
    modality = "visibleimagetext" if item.caption else "visibleimage" if item.kind == "image" else "video"
    kind, model = ("real", "none") if not item.forged else _type_and_model(item)
    human = item.semantic == "human" or (not item.semantic and kind.startswith(_FACES))
    return "_".join(("human" if human else "nonhuman", kind, model, modality, TASKS[task]))


def options(item: Item) -> tuple[str, str]:
    """The pair of answers that fits a forged item's type: generated, manipulated, or just forged if unknown."""
    if not item.forgery_type:
        return FORGED
    return GENERATED if _type_and_model(item)[0] == "entiresynthesis" else MANIPULATED


def _type_and_model(item: Item) -> tuple[str, str]:
    """`removal/inpainting` is a published type; `fully_synthetic(diffusion)` names the model family in brackets."""
    outside, _, bracket = item.forgery_type.partition("(")
    words = " ".join(re.sub(r"[^a-z0-9]+", " ", outside.casefold()).split())
    kind = _BY_WORD.get(words) or _squeeze(outside) or "unknown"
    within = bracket.rstrip(")") if kind in _BY_WORD.values() and "/" not in bracket else ""
    model = item.generator or (within if within and within.casefold() not in _BY_WORD else "")
    return kind, _squeeze(model) or "unknown"


def _squeeze(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text)
