"""What a family's export function is asked for, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgebench.environment import available_memory_bytes
from edgebench.errors import ParityError
from edgebench.manifest import Parity, ParityRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgebench.recipes import Bound, Precision, Recipe


@dataclass(frozen=True)
class ExportRequest:
    """One export."""

    recipe: Recipe
    weights: Path
    """A file (classifier) or a folder (all others)."""
    precision: Precision
    dialect: Literal["ort", "portable"]
    folder: Path
    """An empty folder that becomes the artifact."""
    say: Callable[[str], None]
    """Called with the name of each step as it begins."""
    calibration: Path | None = None
    """Images that set the ranges of activations; None leaves activations in floating point."""
    against: Path | None = None
    """Evaluation pictures that no calibration image may look like; None leaves it unchecked, which is recorded."""
    probe: Path | None = None
    """encoder: the linear layer on the features."""
    vision_tower: Path | None = None
    """llava: the folder of the vision tower, where the checkpoint has none."""
    language: Path | None = None
    """llava: the folder of the language model, where the checkpoint has none."""
    parity: bool | None = None
    """Whether to compare with the checkpoint; None: where it fits into memory. Classifiers and encoders always are."""
    wrote: Callable[[int, int], None] = lambda done, total: None
    """Called with the bytes of weights that are written, and all that will be."""


def skipped(request: ExportRequest, parameters: int) -> str | None:
    """Why parity is not measured; None where it is."""
    needed, free = 10 * parameters, available_memory_bytes()
    if request.parity is False:
        return "parity was not measured: it was switched off"
    if request.parity is None and free is not None and needed > free:
        return (
            f"parity was not measured: the checkpoint in float32 and the graphs need {needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free"
        )
    return None


def checked(rows: list[ParityRow], bound: Bound) -> Parity:
    """The rows with their bounds.

    Raises:
        ParityError: a row misses one; it says by how much.
    """
    for row in rows:
        ratio = (
            None
            if row.perplexity is None or not row.reference_perplexity
            else row.perplexity / row.reference_perplexity
        )
        limits = [
            ("KL divergence", row.kl, bound.kl, (row.kl or 0) > (bound.kl or 0)),
            ("perplexity over the checkpoint's", ratio, bound.perplexity, (ratio or 0) > (bound.perplexity or 0)),
            ("max |difference|", row.max_abs_difference, bound.max_abs, row.max_abs_difference > (bound.max_abs or 0)),
            ("relative RMS", row.relative_rms, bound.relative_rms, row.relative_rms > (bound.relative_rms or 0)),
            ("top-1 agreement", row.top1_agreement, bound.top1, (row.top1_agreement or 0) < (bound.top1 or 0)),
        ]
        for name, value, limit, missed in limits:
            finite = value is None or value == value  # a NaN is never within a bound
            if limit is not None and value is not None and (missed or not finite):
                raise ParityError(
                    f"{row.what}: {name} {value:.3g} against {row.against}, the bound is {limit:.3g}",
                    hint="nothing was exported",
                )
    return Parity(
        rows=tuple(rows),
        max_abs_bound=bound.max_abs,
        relative_rms_bound=bound.relative_rms,
        top1_bound=bound.top1,
        kl_bound=bound.kl,
        perplexity_bound=bound.perplexity,
    )
