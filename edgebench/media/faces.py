"""Face crops for detectors that take faces: YuNet finds the box, the published rule cuts around it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from edgebench.errors import EngineError, SampleError, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

MODEL_VARIABLE = "EDGEBENCH_YUNET"
MODEL_FILE = "face_detection_yunet_2023mar.onnx"
MINIMUM_SCORE = 0.6
SIDE = 640
"""Larger pictures are shrunk into a square of this side for detection; the crop is cut from the full picture."""
STRIDES = (8, 16, 32)
OVERLAP = 0.3
"""Intersection over union above which two boxes are of one face, as in OpenCV's own use of YuNet."""

Box = tuple[float, float, float, float]
"""x, y, width, height in pixels."""


def face_box(image: NDArray[np.uint8], preprocess: Preprocess) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of the crop around the most certain face, `face_scale` times its box.

    Args:
        image: uint8 [H, W, 3], RGB.
        preprocess: of kind 'face_crop'.

    Raises:
        SampleError: no face is found.
        EngineError: YuNet's weights are not there.
    """
    left, top, right, bottom = around(find_face(image), preprocess.face_scale or 1.0, image.shape[1], image.shape[0])
    return top, left, bottom, right


def around(box: Box, scale: float, width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom (right and bottom outside) of `scale` times a box, moved into the picture.

    The scale is lowered until the crop fits, then the crop is shifted, not cut, at the borders. Source: the crop
    rule published with MiniFASNet, whose last row and column are part of the crop.
    """
    x, y, w, h = box
    scale = min((height - 1) / h, (width - 1) / w, scale)
    new_w, new_h = w * scale, h * scale
    left, top = x + w / 2 - new_w / 2, y + h / 2 - new_h / 2
    left, top = max(left, 0.0), max(top, 0.0)
    left, top = min(left, width - 1 - new_w), min(top, height - 1 - new_h)
    return int(left), int(top), int(left + new_w) + 1, int(top + new_h) + 1


def find_face(image: NDArray[np.uint8]) -> Box:
    """The box of the face that YuNet is most certain of.

    Raises:
        SampleError: there is none above `MINIMUM_SCORE`.
    """
    scores, boxes = _candidates(image)
    best = int(scores.argmax())
    if scores[best] < MINIMUM_SCORE:
        raise SampleError(f"no face is found (the best score is {scores[best]:.2f})")
    x, y, w, h = (float(int(v)) for v in boxes[best])
    return x, y, max(w, 1.0), max(h, 1.0)


def find_faces(image: NDArray[np.uint8]) -> list[Box]:
    """The boxes of all faces above `MINIMUM_SCORE`, the most certain first; of those that overlap, the best one.

    Args:
        image: uint8 [H, W, 3], RGB.
    """
    scores, boxes = _candidates(image)
    found: list[Box] = []
    for place in np.argsort(-scores, kind="stable"):
        if scores[place] < MINIMUM_SCORE:
            break
        x, y, w, h = (float(v) for v in boxes[place])
        if all(_overlap((x, y, w, h), other) <= OVERLAP for other in found):
            found.append((x, y, w, h))
    return found


def check_detector() -> None:
    """Refuse early where YuNet's weights are not there.

    Raises:
        EngineError: they are not.
    """
    _detector()


def _overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    width = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    height = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    common = max(0.0, width) * max(0.0, height)
    return common / (one[2] * one[3] + other[2] * other[3] - common or 1.0)


def _candidates(image: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores [n] and boxes [n, 4] in the picture's pixels, n = all places of the three strides.

    YuNet runs in ONNX Runtime on the picture shrunk into 640 x 640.
    """
    height, width = image.shape[:2]
    shrink = min(1.0, SIDE / max(height, width))
    small = Image.fromarray(image).resize(
        (max(1, round(width * shrink)), max(1, round(height * shrink))), Image.Resampling.BOX
    )
    canvas = np.zeros((SIDE, SIDE, 3), dtype=np.float32)
    canvas[: small.height, : small.width] = np.asarray(small)
    batch = np.ascontiguousarray(canvas[..., ::-1].transpose(2, 0, 1)[None])
    session = _detector()
    names = [output.name for output in session.get_outputs()]
    out = dict(zip(names, session.run(None, {session.get_inputs()[0].name: batch}), strict=True))
    scores, boxes = [], []
    for stride in STRIDES:
        scores.append(
            np.sqrt(np.clip(out[f"cls_{stride}"][0, :, 0], 0, 1) * np.clip(out[f"obj_{stride}"][0, :, 0], 0, 1))
        )
        row, column = np.divmod(np.arange(len(scores[-1])), SIDE // stride)
        dx, dy, log_w, log_h = out[f"bbox_{stride}"][0].astype(np.float64).T
        w, h = np.exp(log_w) * stride, np.exp(log_h) * stride
        boxes.append(np.stack([(column + dx) * stride - w / 2, (row + dy) * stride - h / 2, w, h], axis=1))
    return np.concatenate(scores).astype(np.float64), np.concatenate(boxes) / shrink


@lru_cache(maxsize=1)
def _detector() -> Any:
    import onnxruntime

    path = os.environ.get(MODEL_VARIABLE)
    if not path or not Path(path).is_file():
        raise EngineError(
            f"this model needs face crops, and those need YuNet's weights ({MODEL_FILE})",
            hint=f"set {MODEL_VARIABLE} to the file; it is published in OpenCV's model zoo",
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises its own untyped exceptions
        raise EngineError(f"is no face detector: {one_line(error)}", where=path) from error
