"""An exported graph against its source, on fixed inputs, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgebench.errors import ParityError, one_line
from edgebench.manifest import ParityRow

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SEED = 20260101
"""Of every fixed input."""


def session(path: Path) -> Any:
    """An ONNX Runtime session on the CPU, one thread, without any option that changes results.

    Raises:
        ParityError: the graph does not load.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises its own untyped exceptions
        raise ParityError(f"the exported graph does not load: {one_line(error)}", where=path.name) from error


def compare(
    what: str,
    against: str,
    inputs: str,
    reference: NDArray[Any],
    exported: NDArray[Any],
    *,
    top1: Literal["argmax", "threshold"] | None,
) -> ParityRow:
    """One row of parity.

    Args:
        what: the graph or path that is compared.
        against: the reference, with its precision.
        inputs: the fixed inputs, for people.
        reference: float [..., classes or features].
        exported: the same shape.
        top1: how the answer is read: the argmax of the last axis, a probability against one half, or not at all.

    Raises:
        ParityError: the shapes differ, or the export holds no finite numbers.
    """
    if reference.shape != exported.shape:
        raise ParityError(f"{what}: shape {list(exported.shape)} against {list(reference.shape)}")
    a, b = reference.astype(np.float64), exported.astype(np.float64)
    if not np.isfinite(b).all():
        raise ParityError(f"{what}: the exported graph gives values that are not finite")
    power = float(np.sqrt(np.mean(a * a)))
    agreement = None
    if top1 is not None:
        same = a.argmax(-1) == b.argmax(-1) if top1 == "argmax" else (a >= 0.5) == (b >= 0.5)
        agreement = float(np.mean(same))
    return ParityRow(
        what=what,
        against=against,
        inputs=inputs,
        max_abs_difference=float(np.abs(a - b).max()),
        relative_rms=float(np.sqrt(np.mean((a - b) ** 2))) / power if power > 0 else 0.0,
        top1_agreement=agreement,
        positions=int(np.prod(a.shape[:-1])) if a.ndim > 1 else int(a.size),
    )


def fixed_images(count: int, height: int, width: int) -> list[NDArray[np.uint8]]:
    """Pictures with the spectrum of photographs, from plain to rough, the same on every machine.

    Amplitudes fall with frequency as in photographs, so that a detector's output is not driven to 0 or 1, where
    every difference would vanish. uint8 [H, W, 3] each.
    """
    generator = np.random.Generator(np.random.Philox(SEED))
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :]
    frequency = np.sqrt(rows**2 + columns**2)
    frequency[0, 0] = 1
    found = []
    for k in range(count):
        steepness = 2.2 - 1.0 * k / max(1, count - 1)
        white = generator.standard_normal((height, width, 3))
        shaped = np.fft.ifft2(np.fft.fft2(white, axes=(0, 1)) / frequency[..., None] ** steepness, axes=(0, 1)).real
        shaped = shaped.mean(axis=-1, keepdims=True) * 2 + shaped
        contrast = 20 + 30 * generator.random()
        picture = 110 + contrast * (shaped - shaped.mean()) / shaped.std()
        found.append(np.clip(np.rint(picture), 0, 255).astype(np.uint8))
    return found
