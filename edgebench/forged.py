"""P(forged), from what a classifier's graph gives. Export (for parity) and engines both read it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.errors import ArtifactError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Manifest


def p_forged(manifest: Manifest, output: NDArray[Any]) -> NDArray[np.float32]:
    """P(forged), in [0, 1], float32 [N].

    A graph of logits gives a softmax over its labels, of which the forged ones are added up. A single logit is a
    sigmoid's: the probability of its only label, which is the complement where that label means real.

    Args:
        manifest: says what the output is, and which labels mean forged.
        output: of the graph: floating point [N] of probabilities, or [N, labels] of logits.

    Raises:
        ArtifactError: the output is not what the manifest says.
    """
    if manifest.output == "probability":
        return output.astype(np.float32, copy=False)
    if output.ndim != 2 or output.shape[1] != len(manifest.labels):
        raise ArtifactError(
            f"the classifier gave logits of shape {list(output.shape)}, its manifest names {len(manifest.labels)} labels"
        )
    logits = output.astype(np.float64)
    if logits.shape[1] == 1:
        first = 0.5 * (1 + np.tanh(logits[:, 0] / 2))
        return (first if manifest.forged else 1 - first).astype(np.float32)
    with np.errstate(invalid="ignore"):  # infinite logits give NaN, which the caller refuses by name
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    share: NDArray[np.float64] = weights[:, list(manifest.forged)].sum(axis=1) / weights.sum(axis=1)
    return share.astype(np.float32)
