"""Which labels mean forged: labels as published detectors have them, and labels that do not say it."""

from __future__ import annotations

import pytest

from edgebench.errors import UsageError
from edgebench.export.imported.labels import forged_places, meaning


@pytest.mark.parametrize(
    ("labels", "places"),
    [
        (("Real", "Fake"), (1,)),
        (("Fake", "Real"), (0,)),
        (("artificial", "human"), (0,)),
        (("Realism", "Deepfake"), (1,)),
        (("AI", "REAL"), (0,)),
        (("live", "spoof"), (1,)),
        (("ai_gen", "human"), (0,)),
        (("AI-generated", "non AI-generated"), (0,)),
        (("NotManipulated", "AIGenerated"), (1,)),
        (("bona fide", "print attack", "replay attack"), (1, 2)),
        (("original", "Deep-Fake", "FaceSwap"), (1, 2)),
        (("fake",), (0,)),
        (("authentic",), ()),
    ],
)
def test_words_that_say_it(labels: tuple[str, ...], places: tuple[int, ...]) -> None:
    assert forged_places(labels, ()) == places


@pytest.mark.parametrize("label", ["LABEL_0", "midjourney", "fake or real", "generated human", "unreal", "", "1"])
def test_words_that_do_not(label: str) -> None:
    assert meaning(label) is None
    with pytest.raises(UsageError) as caught:
        forged_places(("real", label), ())
    assert f"whether {label!r} means forged" in str(caught.value)
    assert f"--forged LABEL for each of the labels that mean forged; they are 'real', {label!r}" in str(caught.value)


def test_chosen_labels_stand_above_words() -> None:
    labels = ("LABEL_0", "fake", "midjourney")
    assert forged_places(labels, ("LABEL_0", "midjourney")) == (0, 2)
    with pytest.raises(UsageError, match="no label is called 'Midjourney'"):
        forged_places(labels, ("Midjourney",))
    with pytest.raises(UsageError, match="all of the labels"):
        forged_places(labels, labels)


def test_labels_of_one_meaning_decide_nothing() -> None:
    with pytest.raises(UsageError, match="all of the labels"):
        forged_places(("gan", "diffusion"), ())
    with pytest.raises(UsageError, match="none of the labels"):
        forged_places(("real", "authentic"), ())
