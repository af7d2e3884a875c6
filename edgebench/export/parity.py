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
    """Smooth pictures with some noise, the same on every machine. uint8 [H, W, 3] each."""
    generator = np.random.Generator(np.random.Philox(SEED))
    rows, columns = np.mgrid[0:height, 0:width]
    found = []
    for _ in range(count):
        waves = generator.integers(1, 9, size=(3, 2))
        picture = np.stack(
            [128 + 100 * np.sin(rows * a / height * 3.1 + columns * b / width * 2.3) for a, b in waves], axis=-1
        )
        found.append(np.clip(picture + generator.integers(-20, 21, size=picture.shape), 0, 255).astype(np.uint8))
    return found
