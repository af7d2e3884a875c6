"""The forgery operations and the samples made with them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")

from edgebench.demo import operations, questions, scenes
from edgebench.errors import UsageError


def photo(seed: int) -> scenes.Photo:
    """A smooth random picture, 300 x 400."""
    rng = np.random.default_rng(seed)
    small = rng.uniform(0, 255, (12, 16, 3)).astype(np.float32)
    large = operations.cv2.resize(small, (400, 300), interpolation=operations.cv2.INTER_CUBIC)
    return scenes.pyramid(f"p{seed}", np.clip(large, 0, 255).astype(np.uint8))


PHOTOS = (photo(1), photo(2))


@pytest.mark.parametrize("name", sorted(operations.OPERATIONS))
def test_changes_the_mask_and_nothing_else(name: str) -> None:
    image = scenes.crop(PHOTOS[0], np.random.default_rng(0), scenes.CROP)
    donor = scenes.crop(PHOTOS[1], np.random.default_rng(0), scenes.CROP)
    before = image.copy()
    mask = np.zeros(image.shape[:2], dtype=np.float32)
    mask[40:90, 30:80] = 1
    forged = operations.forge(image, name, np.random.default_rng(3), donor, mask)
    again = operations.forge(image, name, np.random.default_rng(3), donor, mask)
    assert forged.dtype == np.float32
    assert forged.shape == image.shape
    assert np.array_equal(forged, again)
    assert np.array_equal(image, before)
    assert np.array_equal(forged[mask == 0], image[mask == 0])
    assert np.abs(forged - image)[mask == 1].mean() > 0.2


def test_unknown_or_maskless_operation_is_an_error() -> None:
    image = np.zeros((64, 64, 3), dtype=np.float32)
    with pytest.raises(UsageError, match="without a mask"):
        operations.forge(image, "splice", np.random.default_rng(0), image, None)
    with pytest.raises(UsageError, match="'dodge'"):
        operations.forge(image, "dodge", np.random.default_rng(0), image, np.zeros((64, 64), np.float32))


def test_a_clip_is_forged_where_it_says() -> None:
    flags = [False, True, False, True]

    def clip(name: str) -> scenes.Sample:
        return scenes.make(PHOTOS, np.random.default_rng(5), name, local=True, frames=4, forged=flags)

    forged, real = clip("resynth"), clip("real")
    same = [np.array_equal(a, b) for a, b in zip(forged.frames, real.frames, strict=True)]
    assert forged.forged == tuple(flags)
    assert same == [not flag for flag in flags]
    assert forged.mask.any()
    assert not real.mask.any()
    assert real.box is None


def test_wrong_masks_keep_their_distance_from_the_right_one() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sample = scenes.make(PHOTOS, rng, "splice", local=True)
        draft = questions.masks(sample, rng, seed % 4)
        assert np.array_equal(draft.candidates[draft.answer], sample.mask)
        assert sum(not mask.any() for mask in draft.candidates) == 1
        wrong = [questions.overlap(m, sample.mask) for k, m in enumerate(draft.candidates) if k != draft.answer]
        assert max(wrong) < 0.9
        assert sum(value >= questions.APART for value in wrong) <= 1


def test_boxes_hold_the_right_one_once() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sample = scenes.make(PHOTOS, rng, "real" if seed % 4 == 0 else "diffusion", local=True)
        draft = questions.boxes(sample, rng, seed % 4)
        assert len(set(draft.options)) == 4
        box = sample.box
        right = "[]" if box is None else "[ [ " + ", ".join(map(str, box)) + " ] ]"
        assert draft.options[draft.answer] == f'{{ "forged area": {right} }}'


def test_a_lying_caption_differs_just_where_it_says() -> None:
    for seed in range(20):
        honest = scenes.caption((0, 1, 2))
        words, places = questions.lie((0, 1, 2), np.random.default_rng(seed), swap=seed % 2 == 0)
        assert tuple(k for k, (a, b) in enumerate(zip(honest, words, strict=True)) if a != b) == places
        assert len(places) >= (2 if seed % 2 == 0 else 1)
