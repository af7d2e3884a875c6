"""Time and error of the media path beside other ways, printed together. Run by hand on a quiet machine.

`python benchmarks/media_speed.py [pixels] [video] [perturb] [--json FILE]`

Times are medians of CPU time of the whole process, one thread each, of interleaved repeats; errors are in grey
levels against transformers' Pillow processor. Pictures and videos are made here, from smooth noise.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from edgebench.manifest import Preprocess
from edgebench.media.decode import decode
from edgebench.media.perturb import LEVELS, Perturbation, perturb
from edgebench.media.pixels import in_use, pixels
from edgebench.media.video import sample_video

if TYPE_CHECKING:
    from collections.abc import Callable

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIZES = {"VGA": (480, 640), "FHD": (1080, 1920), "12 MP": (3000, 4000)}
ASK = Preprocess("shortest_edge_crop", 336, 336, shortest_edge=336, mean=MEAN, std=STD)
Row = dict[str, Any]


def photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    small = np.random.default_rng(seed).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def interleaved(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median milliseconds of CPU time of each way."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            taken[name].append(1000 * (time.process_time() - begin))
    return {name: statistics.median(values) for name, values in taken.items()}


def measure_pixels() -> list[Row]:
    """RGB -> float32 NCHW 336 x 336 as CLIP has it, and the same from JPEG bytes."""
    import cv2
    import torch
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    theirs = CLIPImageProcessorPil(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336})
    mean, std = (np.array(v, np.float32) for v in (MEAN, STD))

    def finish(resized: np.ndarray) -> np.ndarray:
        top, left = (resized.shape[0] - 336) // 2, (resized.shape[1] - 336) // 2
        cut = resized[top : top + 336, left : left + 336].astype(np.float32) / np.float32(255)
        return ((cut - mean) / std).transpose(2, 0, 1)[None]

    def pillow(image: np.ndarray) -> np.ndarray:
        return np.asarray(theirs(image, return_tensors="np", input_data_format="channels_last")["pixel_values"])

    def with_torch(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        tensor = torch.from_numpy(image.copy()).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(tensor, size, mode="bicubic", antialias=True)
        return finish(resized[0].permute(1, 2, 0).numpy())

    rows: list[Row] = []
    batch = np.empty((1, 3, 336, 336), np.float32)
    for name, (height, width) in SIZES.items():
        image = photograph(height, width)
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "JPEG", quality=90)
        encoded = stream.getvalue()
        size = (336, int(336 * width / height))

        def from_pillow(data: bytes = encoded) -> np.ndarray:
            return pillow(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))

        ways: dict[str, Callable[[], np.ndarray]] = {
            "CLIPImageProcessorPil": lambda image=image: pillow(image),  # type: ignore[misc]
            "edgebench": lambda image=image: pixels(image, ASK),  # type: ignore[misc]
            "edgebench, into a batch that is there": lambda image=image: pixels(image, ASK, batch),  # type: ignore[misc]
            "torchvision's way (torch, antialias, uint8)": lambda image=image, size=size: with_torch(image, size),  # type: ignore[misc]
            "OpenCV INTER_AREA": lambda image=image, size=size: finish(  # type: ignore[misc]
                cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
            ),
            "OpenCV INTER_CUBIC": lambda image=image, size=size: finish(  # type: ignore[misc]
                cv2.resize(image, size[::-1], interpolation=cv2.INTER_CUBIC)
            ),
            "from JPEG: Pillow + CLIPImageProcessorPil": from_pillow,
            "from JPEG: edgebench": lambda data=encoded: pixels(decode(data), ASK),  # type: ignore[misc]
        }
        times = interleaved(ways, 7 if height > 2000 else 15)
        for way, call in ways.items():
            base = "from JPEG: Pillow + CLIPImageProcessorPil" if way.startswith("from") else "CLIPImageProcessorPil"
            error = np.abs(call() - ways[base]()) * std[:, None, None] * 255
            speed = times[base] / times[way]
            rows.append({"what": name, "way": way, "ms": times[way], "times": speed, "error": float(error.max())})
    return rows


def write_video(path: Path, seconds: int, gop: int) -> Path:
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=30, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = 1920, 1080, "yuv420p"
        stream.codec_context.gop_size = gop
        stream.codec_context.time_base = Fraction(1, 30)
        base = photograph(1080 + 240, 1920 + 240)
        for k in range(30 * seconds):
            y, x = (k * 2) % 240, (k * 3) % 240
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(base[y : y + 1080, x : x + 1920]), format="rgb24")
            frame.pts, frame.time_base = k, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def measure_video() -> list[Row]:
    """8 and 32 frames of 60 s of 1080p with a key frame a second, against decoding every frame."""
    import av

    def every(path: Path, wanted: set[int]) -> list[np.ndarray]:
        with av.open(str(path)) as container:
            container.streams.video[0].thread_type = "SLICE"
            decoded = enumerate(container.decode(video=0))
            return [frame.to_ndarray(format="rgb24") for k, frame in decoded if k in wanted]

    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        path = write_video(Path(folder) / "v.mp4", 60, 30)
        for count in (8, 32):
            begin = time.process_time()
            sampled = sample_video(path, count)
            ours = time.process_time() - begin
            begin = time.process_time()
            full = every(path, set(sampled.positions))
            whole = time.process_time() - begin
            error = max(int(np.abs(a.astype(int) - b).max()) for a, b in zip(full, sampled.frames, strict=True))
            what = f"{count} frames of 60 s 1080p"
            rows.append({"what": what, "way": "full decode", "ms": 1000 * whole, "times": 1.0, "error": 0.0})
            rows.append(
                {"what": what, "way": "edgebench", "ms": 1000 * ours, "times": whole / ours, "error": float(error)}
            )
    return rows


def straightforward(image: np.ndarray, name: str, value: float) -> np.ndarray:
    """The published functions' arithmetic written down plainly in numpy, on RGB."""
    rgb = image.astype(np.float32)
    luma = rgb @ np.array([0.299, 0.587, 0.114], np.float32)
    planes = np.stack([luma, (rgb[..., 2] - luma) * 0.564 + 0.5, (rgb[..., 0] - luma) * 0.713 + 0.5], -1)
    planes = (planes * np.array([219, 224, 224], np.float32) + 16) / 255
    if name == "saturation":
        planes[..., 1:] = 0.5 + (planes[..., 1:] - 0.5) * value
    else:
        planes = 255 * (planes / 255 + np.sqrt(value) * np.random.default_rng(0).standard_normal(planes.shape))
    planes = (planes * 255 - 16) / np.array([219, 224, 224], np.float32)
    y, cb, cr = planes[..., 0], planes[..., 1] - 0.5, planes[..., 2] - 0.5
    found = np.stack([y + 1.403 * cr, y - 0.714 * cr - 0.344 * cb, y + 1.773 * cb], -1)
    return np.clip(found, 0, 255).astype(np.uint8)


def measure_perturbations() -> list[Row]:
    """At 1080p, level 3."""
    image = photograph(1080, 1920)
    rows: list[Row] = []
    for name in LEVELS:
        how = Perturbation(name, 3)
        value = how.value()
        ways: dict[str, Callable[[], np.ndarray]] = {"exact": lambda how=how: perturb(image, how, "s")}  # type: ignore[misc]
        if name == "saturation":
            ways["fast"] = lambda: perturb(image, Perturbation("saturation", 3, "fast"), "s")
        if name in {"saturation", "noise"}:
            ways["straightforward"] = lambda name=name, v=value: straightforward(image, name, v)  # type: ignore[misc]
        times = interleaved(ways, 5)
        base = times.get("straightforward", times["exact"])
        for way, call in ways.items():
            error = None if name == "noise" else float(np.abs(call().astype(int) - ways["exact"]()).max())
            rows.append({"what": f"{name}:3", "way": way, "ms": times[way], "times": base / times[way], "error": error})
    return rows


PARTS = {"pixels": measure_pixels, "video": measure_video, "perturb": measure_perturbations}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, list[Row]] = {}
    for name in given.parts or PARTS:
        found[name] = PARTS[name]()
        table = Table("what", "way", "ms CPU", "x faster", "largest error, grey levels", title=f"{name} ({in_use()})")
        for row in found[name]:
            error = "–" if row["error"] is None else f"{row['error']:.3g}"
            table.add_row(row["what"], row["way"], f"{row['ms']:.2f}", f"{row['times']:.1f}", error)
        Console().print(table)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
