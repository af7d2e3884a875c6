"""An exported graph against its source, on fixed inputs, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgebench.cache import cache_names, pieces, step_inputs, step_types, wanted_logits
from edgebench.errors import ParityError, one_line
from edgebench.manifest import ParityRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.manifest import Decoder, Graph

SEED = 20260101
"""Of every fixed input."""
_ROWS = 64
"""Positions that are compared at a time: a vocabulary in float64 is large."""


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


def reader(
    run: Any, graph: Graph, decoder: Decoder
) -> Callable[[NDArray[Any], list[NDArray[Any]]], tuple[NDArray[np.float32], list[NDArray[Any]]]]:
    """A decoder that reads as the engine `ort` does, in pieces where that does.

    Returns:
        What one row of ids or embeddings, [1, tokens, ...], and a cache go into, and logits [tokens, vocab] and the
        longer cache come out of.
    """
    types, (past_names, _) = step_types(graph), cache_names(decoder.layers)

    def forward(first: NDArray[Any], cache: list[NDArray[Any]]) -> tuple[NDArray[np.float32], list[NDArray[Any]]]:
        said = []
        for piece in pieces(decoder, types, 1, first.shape[1]):
            part = first[:, piece]
            wanted = np.arange(part.shape[1], dtype=np.int64)
            feeds = step_inputs(types, part, cache[0].shape[2], wanted)
            logits, *cache = run.run(None, {**feeds, **dict(zip(past_names, cache, strict=True))})
            said.append(wanted_logits(types, logits, wanted)[0])
        return np.concatenate(said), cache

    return forward


def compare(
    what: str,
    against: str,
    inputs: str,
    reference: NDArray[Any],
    exported: NDArray[Any],
    *,
    top1: Literal["argmax", "threshold"] | None,
    targets: NDArray[np.int64] | None = None,
) -> ParityRow:
    """One row of parity.

    Args:
        what: the graph or path that is compared.
        against: the reference, with its precision.
        inputs: the fixed inputs, for people.
        reference: float [..., classes or features].
        exported: the same shape.
        top1: how the answer is read: the argmax of the last axis, a probability against one half, or not at all.
        targets: int64 [...], the tokens that a text goes on with; -1 where it ends. They give the perplexity.

    Raises:
        ParityError: the shapes differ, or the export holds no finite numbers.
    """
    if reference.shape != exported.shape:
        raise ParityError(f"{what}: shape {list(exported.shape)} against {list(reference.shape)}")
    width = reference.shape[-1] if reference.ndim > 1 else 1
    ours, theirs = exported.reshape(-1, width), reference.reshape(-1, width)
    next_tokens = None if targets is None else targets.reshape(-1)
    sums = _Sums()
    for begin in range(0, len(theirs), _ROWS):
        part = slice(begin, begin + _ROWS)
        if not np.isfinite(ours[part]).all():
            raise ParityError(f"{what}: the exported graph gives values that are not finite")
        sums.add(theirs[part], ours[part], top1, None if next_tokens is None else next_tokens[part])
    words = top1 == "argmax"
    return ParityRow(
        what=what,
        against=against,
        inputs=inputs,
        max_abs_difference=sums.largest,
        relative_rms=float(np.sqrt(sums.error / sums.power)) if sums.power > 0 else 0.0,
        top1_agreement=None if top1 is None else sums.same / len(theirs),
        positions=len(theirs),
        kl=sums.kl / len(theirs) if words else None,
        perplexity=float(np.exp(sums.loss / sums.tokens)) if sums.tokens else None,
        reference_perplexity=float(np.exp(sums.reference_loss / sums.tokens)) if sums.tokens else None,
    )


class _Sums:
    """What `compare` adds up over positions."""

    def __init__(self) -> None:
        self.largest = self.error = self.power = self.kl = self.loss = self.reference_loss = 0.0
        self.same = self.tokens = 0

    def add(
        self, reference: NDArray[Any], exported: NDArray[Any], top1: str | None, targets: NDArray[np.int64] | None
    ) -> None:
        a, b = reference.astype(np.float64), exported.astype(np.float64)
        self.largest = max(self.largest, float(np.abs(a - b).max(initial=0)))
        self.error += float(((a - b) ** 2).sum())
        self.power += float((a * a).sum())
        if top1 == "threshold":
            self.same += int(((a >= 0.5) == (b >= 0.5)).all(axis=1).sum())
        if top1 != "argmax":
            return
        self.same += int((a.argmax(-1) == b.argmax(-1)).sum())
        log_a, log_b = _log_softmax(a), _log_softmax(b)
        self.kl += float((np.exp(log_a) * (log_a - log_b)).sum())
        if targets is not None:
            at = np.flatnonzero(targets >= 0)
            self.tokens += len(at)
            self.loss -= float(log_b[at, targets[at]].sum())
            self.reference_loss -= float(log_a[at, targets[at]].sum())


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


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
