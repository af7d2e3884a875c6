"""P(forged), from what a classifier's graph gives. Export (for parity) and engines both read it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edgebench.manifest import Manifest


def p_forged(manifest: Manifest, output: NDArray[Any]) -> NDArray[np.float64]:
    """P(forged), in [0, 1], float64 [N].

    Args:
        manifest: says what the output is, and which labels mean forged.
        output: of the graph: floating point [N] of probabilities, or [N, labels] of logits.

    Raises:
        ArtifactError: the output is not what the manifest says.
    """
    if manifest.output == "probability":
        return output.astype(np.float64)
    if output.ndim != 2 or output.shape[1] != len(manifest.labels):
        raise ArtifactError(
            f"the classifier gave logits of shape {list(output.shape)}, its manifest names {len(manifest.labels)} labels"
        )
    return of_logits(output, manifest.forged)


def of_logits(logits: NDArray[Any], forged: Sequence[int]) -> NDArray[np.float64]:
    """P(forged) in double precision, so that scores near 0 keep their order: floating point [N, labels] -> float64 [N].

    A softmax over the labels, of which the forged ones are added up. A single logit is a sigmoid's: the probability of
    its only label, which is the complement where that label means real.
    """
    exact = logits.astype(np.float64)
    if exact.shape[1] == 1:
        one: NDArray[np.float64] = np.exp(-np.logaddexp(0, -exact[:, 0] if forged else exact[:, 0]))
        return one
    with np.errstate(invalid="ignore"):  # infinite logits give NaN, which the caller refuses by name
        weights = np.exp(exact - exact.max(axis=1, keepdims=True))
    share: NDArray[np.float64] = weights[:, list(forged)].sum(axis=1) / weights.sum(axis=1)
    return share
