"""Perturbations: the published golden values, and the same bytes whoever asks in whatever order."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("cv2")

from edgebench.errors import SampleError, UsageError
from edgebench.media import perturb as module
from edgebench.media.perturb import LEVELS, PROTOCOL, Perturbation, perturb, perturb_clip

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import Cli, Exports

GOLDEN = {
    "saturation": ("233adec7ca965e91", "df1f1cd47292b99c", "a4de42d211471b1d", "1d3062ee9a652801", "40d9417b46b39da4"),
    "contrast": ("ef53bd66e3bcb94b", "d57463627bcd3d6e", "d8403e82605f4cf6", "27bd3a192d99bde7", "b39268978870256d"),
    "blur": ("b97544c195cae705", "640d289636534f0f", "8756c0b058099e9d", "d1a86a32f878cd12", "1802453c77ab1b40"),
    "pixel": ("7dfcfc2d71a83f19", "1e14c76ed033a00c", "d85ee3a5dd017c07", "cbd99396340abc5f", "237971a14ca652e9"),
}
"""SHA-256 (first 16 digits) of the published functions' output on the test picture, as BGR."""


def golden_picture() -> NDArray[np.uint8]:
    y, x, c = np.mgrid[:64, :96, :3]
    return np.ascontiguousarray(((7 * y + 13 * x + 89 * c) % 256).astype(np.uint8)[..., ::-1])


def digest(image: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:16]


def photograph(height: int = 300, width: int = 401) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name: str) -> None:
    picture = golden_picture()
    before = picture.copy()
    found = [digest(perturb(picture, Perturbation(name, level), "s")[..., ::-1]) for level in range(1, 6)]
    assert tuple(found) == GOLDEN[name]
    assert np.array_equal(picture, before)


@pytest.mark.parametrize("level", range(1, 6))
def test_fast_saturation_is_at_most_one_level_off(level: int) -> None:
    every = np.stack(np.meshgrid(*[np.arange(0, 256, 5, dtype=np.uint8)] * 3, indexing="ij"), -1).reshape(52, -1, 3)
    exact = perturb(every, Perturbation("saturation", level), "s").astype(int)
    fast = perturb(every, Perturbation("saturation", level, "fast"), "s").astype(int)
    difference = np.abs(exact - fast)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.06


@pytest.mark.parametrize("level", range(1, 6))
def test_noise_has_the_published_deviation(level: int) -> None:
    grey = np.full((600, 600, 3), 128, np.uint8)
    noisy = perturb(grey, Perturbation("noise", level), "s").astype(float)
    # The published function, in floating point, with its own random numbers.
    rng = np.random.default_rng(0)
    y, cb, cr = 255 * LEVELS["noise"][1][level - 1] ** 0.5 * rng.standard_normal((3, 600, 600))
    y, cb, cr = y * 255 / 219, cb * 255 / 224, cr * 255 / 224
    planes = (y + 1.403 * cr, y - 0.714 * cr - 0.344 * cb, y + 1.773 * cb)
    straight = np.stack([np.floor(np.clip(128 + plane, 0, 255)) for plane in planes], -1)
    assert np.allclose(noisy.std((0, 1)), straight.std((0, 1)), atol=0.25)
    assert np.allclose(noisy.mean((0, 1)), straight.mean((0, 1)), atol=0.35)
    between = np.corrcoef(noisy.reshape(-1, 3).T) - np.corrcoef(straight.reshape(-1, 3).T)
    assert np.abs(between).max() < 0.01


def test_random_ones_are_the_same_bytes_everywhere() -> None:
    """Pinned: Philox's raw words, the table and integer sums are the same on every machine."""
    picture = photograph()
    assert digest(module.normal_table()) == "dfb502e75754a646"
    assert digest(perturb(picture, Perturbation("noise", 3), "a")) == "bf3e2fc8aa7a3483"
    assert digest(perturb(picture, Perturbation("block", 3), "a")) == "4c206c7ae1f4c408"
    assert digest(perturb(picture, Perturbation("noise", 3), "b")) != "bf3e2fc8aa7a3483"
    assert digest(perturb(picture, Perturbation("noise", 3), "a", frame=1)) != "bf3e2fc8aa7a3483"


@pytest.mark.parametrize("name", ["noise", "block", "saturation:2:fast"])
def test_threads_and_order_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = Perturbation.parse(name if ":" in name else f"{name}:2")
    picture = photograph()
    names = [f"sample {k}" for k in range(24)]
    alone = [digest(perturb(picture, how, n)) for n in names]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda n: digest(perturb(picture, how, n)), reversed(names)))
    assert together[::-1] == alone
    monkeypatch.setenv("EDGEBENCH_PIXELS", "pillow")
    assert [digest(perturb(picture, how, n)) for n in names[:3]] == alone[:3]


@pytest.mark.parametrize("vectors", [True, False])
def test_the_matrix_is_the_same_with_and_without_vectors(vectors: bool) -> None:
    from edgebench.media.pixels import extension

    code = extension()
    assert code is not None
    rng = np.random.default_rng(2)
    for width in range(1, 40):
        image = rng.integers(0, 256, (3, width, 3), dtype=np.uint8)
        matrix = rng.integers(-20000, 20000, 12, dtype=np.int32)
        out = np.empty_like(image)
        code.vectors(vectors)
        code.colour_matrix(image, out, matrix)
        code.vectors(True)
        m = matrix.reshape(3, 4).astype(np.int64)
        expected = np.clip((image.astype(np.int64) @ m[:, :3].T + m[:, 3]) >> 14, 0, 255)
        assert np.array_equal(out, expected)
        again = image.copy()
        code.colour_matrix(again, again, matrix)
        assert np.array_equal(again, expected)


def test_blocks_follow_the_published_rule() -> None:
    picture = np.zeros((512, 700, 3), np.uint8)
    covered = (perturb(picture, Perturbation("block", 1), "s") == 128).all(-1)
    assert 0 < covered.sum() <= 32 * 64
    assert covered.sum() > 0.9 * 32 * 64
    small = photograph(255, 400)
    assert np.array_equal(perturb(small, Perturbation("block", 5), "s"), small)


def test_recompression_is_real_and_gets_worse() -> None:
    y, x = np.mgrid[:121, :160]
    picture = np.stack([(x * 3) % 256, (y * 5) % 256, (x + y) % 256], -1).astype(np.uint8)
    for name in ("jpeg", "h264"):
        losses = []
        for level in (1, 5):
            found = perturb(picture, Perturbation(name, level), "s")
            assert found.shape == picture.shape
            assert np.array_equal(found, perturb(picture, Perturbation(name, level), "s"))
            losses.append(float(np.abs(found.astype(int) - picture).mean()))
        assert 0 < losses[0] < losses[1]


def test_clips_redraw_what_is_random_and_compress_as_one() -> None:
    still = [photograph(256, 256)] * 3
    noisy = perturb_clip(still, Perturbation("noise", 1), "s")
    assert len({digest(f) for f in noisy}) == 3
    assert len({digest(f) for f in perturb_clip(still, Perturbation("blur", 1), "s")}) == 1
    assert len(perturb_clip(still, Perturbation("h264", 1), "s")) == 3


@pytest.mark.parametrize("text", ["fog:1", "noise", "noise:0", "noise:6", "noise:1:slow", ""])
def test_unknown_ones_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Perturbation.parse(text)


def test_too_small_a_picture_has_a_reason() -> None:
    tiny = np.zeros((3, 3, 3), np.uint8)
    with pytest.raises(SampleError, match="too small"):
        perturb(tiny, Perturbation("pixel", 5), "s")
    for name in LEVELS:
        if name != "pixel":
            assert perturb(tiny, Perturbation(name, 1), "s").shape == (3, 3, 3)


def test_a_run_records_its_perturbation(cli: Cli, exports: Exports, tsv: Path) -> None:
    plain = cli("run", exports(), "--data", tsv, "--limit", 6, "-o", "plain", "--json")
    done = cli("run", exports(), "--data", tsv, "--limit", 6, "--perturb", "noise:5", "-o", "noisy", "--json")
    assert done.code == plain.code == 0, done.err
    assert done.json["settings"]["perturbation"] == "noise:5"
    import json

    lines = [json.loads(line) for line in (cli.folder / "noisy" / "records.jsonl").read_text().splitlines()]
    answers = [line for line in lines if line["kind"] == "answer"]
    assert len(answers) == 6
    for line in answers:
        assert line["facts"]["perturbation"] == "noise:5"
        assert line["facts"]["variance"] == "0.05"
        assert line["stages_ns"]["perturb"] > 0
    refused = cli("compare", "plain", "noisy")
    assert refused.code == 9
    assert "perturbation: None / noise:5" in refused.err
    wrong = cli("run", exports(), "--data", tsv, "--perturb", "nois:1")
    assert wrong.code == 2
    assert "did you mean 'noise'" in wrong.err


def test_the_protocol_s_six() -> None:
    assert PROTOCOL == ("saturation", "contrast", "block", "noise", "blur", "pixel")
    assert all(len(values) == 5 for _, values in LEVELS.values())
