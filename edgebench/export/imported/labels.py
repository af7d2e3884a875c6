"""Which of a classifier's labels mean forged, by their words."""

from __future__ import annotations

import re
from typing import Literal

from edgebench.errors import UsageError, did_you_mean

REAL = frozenset({
    "real", "realism", "realistic", "authentic", "genuine", "human", "humans", "live", "bonafide", "original",
    "originals", "natural", "nature", "pristine", "camera", "photo", "photograph", "photographic", "untampered",
    "unaltered", "unedited", "unmanipulated",
})  # fmt: skip
"""Words that say that a picture is as it was taken."""
FORGED = frozenset({
    "fake", "fakes", "forged", "forgery", "ai", "aigc", "aigenerated", "generated", "artificial", "synthetic",
    "spoof", "spoofed", "spoofing", "manipulated", "manipulation", "deepfake", "deepfakes", "tampered", "altered",
    "edited", "inpainted", "attack", "faceswap", "gan", "diffusion", "replay", "print", "spliced", "fraud",
    "fraudulent",
})  # fmt: skip
"""Words that say that it was made or changed."""
NOT = frozenset({"non", "not", "no"})
Meaning = Literal["real", "forged"]


def meaning(label: str) -> Meaning | None:
    """What a label means; None where its words say nothing, or both.

    'non', 'not' and 'no' turn round what follows them: 'non AI-generated' means real.
    """
    if label.isupper():
        label = label.lower()
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label).lower())
    found: set[Meaning] = set()
    turned = False
    for before, word in zip(["", *words], words, strict=False):
        forms = {word, before + word}  # 'bona fide' and 'face swap' are one word, written as two
        turned = turned or word in NOT
        if forms & REAL or forms & FORGED:
            found.add("real" if bool(forms & REAL) != turned else "forged")
    return next(iter(found)) if len(found) == 1 else None


def forged_places(labels: tuple[str, ...], chosen: tuple[str, ...]) -> tuple[int, ...]:
    """The places of the labels that mean forged.

    Args:
        labels: in the order of the logits.
        chosen: labels that the user says mean forged, all others meaning real; empty: by their words.

    Raises:
        UsageError: the words do not say it, or a chosen label is not there.
    """
    named = ", ".join(map(repr, labels))
    advice = f"pass --forged LABEL for each of the labels that mean forged; they are {named}"
    for label in chosen:
        if label not in labels:
            raise UsageError(f"--forged: no label is called {label!r}", hint=did_you_mean(label, labels))
    if chosen:
        places = tuple(k for k, label in enumerate(labels) if label in chosen)
    else:
        meanings = [meaning(label) for label in labels]
        unclear = [repr(label) for label, found in zip(labels, meanings, strict=True) if found is None]
        if unclear:
            raise UsageError(f"it is not clear whether {', '.join(unclear)} means forged", hint=advice)
        places = tuple(k for k, found in enumerate(meanings) if found == "forged")
    if len(labels) > 1 and not 0 < len(places) < len(labels):
        raise UsageError(f"{'all' if places else 'none'} of the labels would mean forged", hint=advice)
    return places
