"""Which parts of a picture an answer hangs on by attention times gradient: the checkpoint itself, in torch.

One forward and one backward pass, in place of a question for each covered place. What it gives is at least 0 and has no
unit: it says where the model looked for this answer, and not how far the answer would fall.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.engines.others import engine_class
from edgebench.errors import EngineError, UsageError
from edgebench.media.geometry import placements, spread
from edgebench.media.pixels import pixels
from edgebench.profiles import load_profile
from edgebench.prompts.conversation import Conversation
from edgebench.prompts.letters import forms
from edgebench.prompts.placing import check_prompt, placing
from edgebench.registry import load

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.benches.base import Question
    from edgebench.manifest import Artifact

ENGINE = "torch"


def attended(
    artifact: Artifact | None,
    question: Question,
    pictures: list[NDArray[np.uint8]],
    answer: str,
    *,
    style: str,
    cell: int,
    profile: str,
    options: dict[str, str],
) -> tuple[list[NDArray[np.float64]], float]:
    """The maps of one answer.

    Args:
        artifact: which checkpoint it is, and how it is asked.
        question: as it was put.
        pictures: uint8 [H, W, 3], as the model is shown them.
        answer: an option's letter, or 'real' or 'forged' of a yes/no question.
        style: of the prompt.
        cell: side of a map's cell, in pixels.
        profile: the device profile.
        options: of the engine.

    Returns:
        A map a picture, float64 [rows, columns]; and the answer's ln P as the first token, or its log-odds.

    Raises:
        UsageError: the model is not one of pictures and text.
        EngineError: the checkpoint cannot be loaded or shows no attention.
        SampleError: the prompt is too long.
    """
    manifest = None if artifact is None else artifact.manifest
    if artifact is None or manifest is None or manifest.kind != "vision-language":
        raise UsageError(
            "attention is looked at in a language model that sees", hint="take --method occlusion, which asks any model"
        )
    text, p = manifest.text, manifest.preprocess
    if text is None or text.images is None or p is None:
        raise UsageError("the model sees no pictures", hint="take --method occlusion")
    tiles = [pixels(picture, p) for picture in pictures]
    put = [placing(picture.shape[:2], len(own), p, text.images) for picture, own in zip(pictures, tiles, strict=True)]
    conversation = Conversation(text, artifact.path(text.tokenizer))
    ids = conversation.ids(question, put, style=style)
    check_prompt(ids, put, text)
    wanted = _tokens(conversation, question, answer)
    begin, used = 0, []
    for one in put:
        own = one.tiles * text.images.per_tile
        used.append(begin + (np.arange(own, dtype=np.int64) if one.used is None else one.used))
        begin += own
    with load(engine_class(ENGINE))(artifact, load_profile(profile), options) as engine:
        found, value = engine.relevance(np.concatenate(tiles), np.concatenate(used), ids, wanted)
    side = math.isqrt(found.shape[1])
    if side * side != found.shape[1]:
        raise EngineError(f"a tile has {found.shape[1]} patches, which make no square", hint="take --method occlusion")
    maps, begin = [], 0
    for picture in pictures:
        places = placements(picture, p)
        over = np.zeros(picture.shape[:2])
        for number, place in enumerate(places, begin):
            spread(found[number].reshape(side, side), place, over)
        begin += len(places)
        maps.append(_cells(over, cell))
    return maps, value


def _cells(over: NDArray[np.float64], cell: int) -> NDArray[np.float64]:
    """Sums of cells."""
    rows, columns = (math.ceil(length / cell) for length in over.shape)
    whole = np.zeros((rows * cell, columns * cell))
    whole[: over.shape[0], : over.shape[1]] = over
    found: NDArray[np.float64] = whole.reshape(rows, cell, columns, cell).sum(axis=(1, 3))
    return found


def _tokens(conversation: Conversation, question: Question, answer: str) -> tuple[list[int], list[int]]:
    """Those that may stand first for the answer, and for the one that it is set against: none against all others."""
    words: Any = forms(question)
    against: list[str] = []
    if not question.options:
        answer = "yes" if answer == question.yes_means else "no"
        against = words["no" if answer == "yes" else "yes"]
    for_it = sorted({i for form in words[answer] for i in conversation.first_ids(form)})
    if not for_it:
        raise UsageError(f"the answer {answer!r} is not one token of this model", hint="take --method occlusion")
    return for_it, sorted({i for form in against for i in conversation.first_ids(form)})
