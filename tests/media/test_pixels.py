"""Every processor against transformers' own, over random sizes, by the C extension and by Pillow: zero difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgebench.manifest import Preprocess
from edgebench.media import pixels as module
from edgebench.media.geometry import placements
from edgebench.media.pixels import geometry, in_use, pixels, vertical_first

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
ASK: dict[str, Any] = {"return_tensors": "np", "input_data_format": "channels_last"}
HERE = Path(__file__).parent


@pytest.fixture(params=["extension", "extension without vectors", "pillow"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each way to make pixels."""
    if request.param == "pillow":
        monkeypatch.setenv("EDGEBENCH_PIXELS", "pillow")
        yield
        return
    code = module.extension()
    assert code is not None, "the C extension was not built"
    code.vectors(request.param == "extension")
    yield
    code.vectors(True)


def photographs(seed: int, most: int = 700) -> np.ndarray:
    """Noise of random size, 1 to `most` on both sides, never more than 150 times as long as wide."""
    rng = np.random.default_rng(seed)
    low = most // 2 if seed % 3 == 2 else 1
    height, width = (int(v) for v in rng.integers(low, (17, most, most)[seed % 3] + 1, 2))
    if max(height, width) > 150 * min(height, width):
        width = height
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("seed", range(12))
def test_all_processors_are_bit_identical_to_transformers(seed: int, way: None) -> None:
    pytest.importorskip("transformers")
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    image = photographs(seed)
    rng = np.random.default_rng((seed, 1))
    edge, high, wide = (int(v) for v in rng.integers(8, 200, 3))
    clip = CLIPImageProcessorPil(size={"shortest_edge": edge}, crop_size={"height": high, "width": wide})
    ours = pixels(image, Preprocess("shortest_edge_crop", high, wide, shortest_edge=edge, mean=MEAN, std=STD))
    assert np.array_equal(clip(image, **ASK)["pixel_values"], ours)

    llava = LlavaImageProcessorPil(size={"height": high, "width": high}, do_center_crop=False, do_pad=True)
    grey = (int(MEAN[0] * 255), int(MEAN[1] * 255), int(MEAN[2] * 255))
    ours = pixels(image, Preprocess("pad_square", high, high, pad_colour=grey, mean=MEAN, std=STD))
    assert np.array_equal(llava(image, **ASK)["pixel_values"], ours)

    siglip = SiglipImageProcessorPil(size={"height": high, "width": wide})
    half = (0.5, 0.5, 0.5)
    ours = pixels(image, Preprocess("resize", high, wide, mean=half, std=half))
    assert np.array_equal(siglip(image, **ASK)["pixel_values"], ours)

    following = LlavaNextImageProcessorPil(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336})
    ours = pixels(image, Preprocess("anyres_tiles", 336, 336, grids=GRIDS, mean=MEAN, std=STD))
    assert np.array_equal(following(image, **ASK)["pixel_values"][0], ours)

    qwen = Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 300})
    theirs = qwen(image, **ASK)
    smart = Preprocess("smart_resize", 0, 0, min_pixels=56 * 56, max_pixels=28 * 28 * 300, mean=MEAN, std=STD)
    ours = pixels(image, smart)
    assert np.array_equal(theirs["pixel_values"], ours)
    (place,) = placements(image, smart)
    assert tuple(theirs["image_grid_thw"][0]) == (1, place.resized[0] // 14, place.resized[1] // 14)


@pytest.mark.parametrize("kernel", ["box", "bilinear", "hamming", "bicubic", "lanczos", "nearest"])
def test_resizing_is_pillow_s(kernel: str, way: None) -> None:
    filters = {f.name.lower(): f for f in Image.Resampling}
    rng = np.random.default_rng(len(kernel))
    for turn in range(60):
        sides = rng.integers(1, 17 if turn % 2 else 400, 2)
        high, wide = (int(v) for v in rng.integers(1, 120, 2))
        image = rng.integers(0, 256, (*sides, 3), dtype=np.uint8)
        if turn % 5 == 0:
            high = image.shape[0]
        if turn % 7 == 0:
            wide = image.shape[1]
        (ours,) = geometry(image, Preprocess("resize", high, wide, filter=kernel))  # type: ignore[arg-type]
        theirs = Image.fromarray(image).resize((wide, high), filters[kernel])
        assert np.array_equal(np.asarray(theirs), ours), (sides, high, wide)


@pytest.mark.parametrize("size", [(50, 70), (51, 71), (40, 40), (33, 90), (90, 31), (20, 27), (53, 41)])
def test_the_centre_is_cut_as_torchvision_cuts_it(size: tuple[int, int], way: None) -> None:
    """torchvision.transforms.functional.center_crop in numpy: pad first, then cut at round((length - crop) / 2)."""
    image = np.random.default_rng(size[0]).integers(0, 256, (*size, 3), dtype=np.uint8)
    (ours,) = geometry(image, Preprocess("centre_crop", 40, 42))
    added = [max(0, crop - length) for length, crop in zip(size, (40, 42), strict=True)]
    padded = np.pad(image, [(a // 2, (a + 1) // 2) for a in added] + [(0, 0)])
    top, left = (round((padded.shape[k] - crop) / 2) for k, crop in enumerate((40, 42)))
    assert np.array_equal(padded[top : top + 40, left : left + 42], ours)


def test_the_order_of_the_passes_is_a_choice(way: None) -> None:
    image = np.random.default_rng(3).integers(0, 256, (600, 90, 3), dtype=np.uint8)
    assert vertical_first((600, 90), (60, 80), "pillow-13")
    assert not vertical_first((600, 90), (60, 80), "horizontal")
    (new,) = geometry(image, Preprocess("resize", 60, 80))
    (old,) = geometry(image, Preprocess("resize", 60, 80, pass_order="horizontal"))
    across = Image.fromarray(image).resize((80, 600), Image.Resampling.BICUBIC)
    assert np.array_equal(np.asarray(across.resize((80, 60), Image.Resampling.BICUBIC)), old)
    assert not np.array_equal(new, old)
    assert Preprocess("resize", 60, 80).passport() != Preprocess("resize", 60, 80, pass_order="horizontal").passport()


def test_types_layouts_and_the_caller_s_buffer(way: None) -> None:
    image = photographs(5)
    base = Preprocess("pad_square", 40, 40, pad_colour=(9, 8, 7), mean=MEAN, std=STD)
    reference = pixels(image, base)
    (plain,) = geometry(image, base)
    for dtype in ("float32", "float16", "uint8"):
        for layout in ("nchw", "nhwc"):
            ask = Preprocess(
                "pad_square",
                40,
                40,
                pad_colour=(9, 8, 7),
                mean=MEAN,
                std=STD,
                dtype=dtype,
                layout=layout,  # type: ignore[arg-type]
            )
            made = pixels(image, ask)
            assert made.dtype == np.dtype(dtype)
            turned = made if layout == "nchw" else made.transpose(0, 3, 1, 2)
            expected = plain.transpose(2, 0, 1)[None] if dtype == "uint8" else reference.astype(dtype)
            assert np.array_equal(turned, expected)
            batch = np.full((3, *made.shape[1:]), 77, dtype=made.dtype)
            assert pixels(image, ask, out=batch[1:2]) is not None
            assert np.array_equal(batch[1], made[0])
            assert (batch[[0, 2]] == 77).all()
    grid = np.zeros((100, 130, 3), dtype=np.uint8)
    cell = grid[10:50, 20:60][None]
    raw = Preprocess("pad_square", 40, 40, pad_colour=(9, 8, 7), dtype="uint8", layout="nhwc")
    pixels(image, raw, out=cell)
    assert np.array_equal(grid[10:50, 20:60], plain)
    grid[10:50, 20:60] = 0
    assert not grid.any()
    with pytest.raises(ValueError, match="out is float32"):
        pixels(image, raw, out=np.zeros((1, 40, 40, 3), np.float32))


def test_views_of_pictures(way: None) -> None:
    big = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    ask = Preprocess("shortest_edge_crop", 20, 24, shortest_edge=30, mean=MEAN, std=STD)
    for view in (big[5:70, 7:99], big[::-1], big[:, ::-1], big[::2, ::3], big[..., ::-1]):
        assert np.array_equal(pixels(view, ask), pixels(np.ascontiguousarray(view), ask))


def test_every_field_changes_the_passport() -> None:
    base = Preprocess("pad_square", 40, 40, pad_colour=(0, 0, 0))
    seen = {base.passport()}
    others: list[dict[str, Any]] = [
        {"height": 41}, {"width": 41}, {"filter": "bilinear"}, {"scale": 1 / 127.5}, {"mean": (0.1, 0.0, 0.0)},
        {"std": (1.0, 1.0, 2.0)}, {"pad_colour": (0, 0, 1)}, {"orientation": "ignore"}, {"alpha": "white"},
        {"pass_order": "horizontal"}, {"dtype": "float16"}, {"layout": "nhwc"}, {"kind": "resize"},
    ]  # fmt: skip
    for other in others:
        fields: dict[str, Any] = {"kind": "pad_square", "height": 40, "width": 40, "pad_colour": (0, 0, 0)} | other
        seen.add(Preprocess(**fields).passport())
    assert len(seen) == 1 + len(others)


def test_the_extension_is_in_use() -> None:
    assert in_use().startswith("C, ")


def test_the_extension_refuses_what_it_cannot_do() -> None:
    """A fuzz of its arguments: an error or pixels, never a crash."""
    done = subprocess.run([sys.executable, str(HERE / "fuzz_extension.py"), "3000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    made, refused = map(int, done.stdout.split())
    assert made > 300
    assert refused > 1000


@pytest.mark.slow
def test_the_extension_is_clean_under_sanitizers(tmp_path: Path) -> None:
    """Widths and heights 1 to 16 and 500 random cases, and the fuzz, under address and undefined-behaviour checks."""
    import os
    import shutil
    import sysconfig

    compiler = shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs gcc on Linux")
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc has no address sanitizer here")
    source = Path(module.__file__).with_name("_pixels.c")
    built = tmp_path / "_pixels.so"
    flags = ["-std=c11", "-O2", "-g", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    include = sysconfig.get_paths()["include"]
    subprocess.run([compiler, *flags, f"-I{include}", str(source), "-o", str(built)], check=True)
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",
        "EDGEBENCH_EXTENSION_FOLDER": str(tmp_path),
    }
    for arguments in (["sizes"], ["500"]):
        done = subprocess.run(
            [sys.executable, str(HERE / "fuzz_extension.py"), *arguments],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stderr[-3000:]
