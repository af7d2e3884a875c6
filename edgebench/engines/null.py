"""The engine that does nothing: it measures the harness, drives the CLI's tests and is the example to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.engines.base import Availability

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile


class NullEngine:
    """Answers without looking: P(forged) is 0.5, image features are zeros, and the first token ends the answer.

    Without an artifact there is no tokenizer either; the runner then takes the answer to be 'A'.
    """

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        self.artifact = artifact

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @classmethod
    def available(cls) -> Availability:
        """Always."""
        return Availability(runs=True)

    def facts(self) -> dict[str, Any]:
        """Its name."""
        return {"engine": "null"}

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        """0.5 for every image."""
        return np.full(len(pixels), 0.5)

    def read(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """0.5 for every text."""
        return np.full(1, 0.5)

    def match(self, pixels: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """0.5 for every pair."""
        return np.full(1, 0.5)

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Zeros of the right shape."""
        text, decoder = (
            (None, None) if self.artifact is None else (self.artifact.manifest.text, self.artifact.manifest.decoder)
        )
        tokens, hidden = (text.images.per_tile if text and text.images else 0), (decoder.hidden_size if decoder else 0)
        return np.zeros((len(pixels) * tokens, hidden), dtype=np.float32)

    @property
    def keeps_prefix(self) -> bool:
        """There is no cache."""
        return False

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """Logits whose only peak is the end of the answer."""
        return self._end()

    def step(self, token: int) -> NDArray[np.float32]:
        """The same again."""
        return self._end()

    def _end(self) -> NDArray[np.float32]:
        text = None if self.artifact is None else self.artifact.manifest.text
        logits = np.zeros(text.vocab_size if text else 1, dtype=np.float32)
        if text is not None and text.eos_token_ids:
            logits[text.eos_token_ids[0]] = 1
        return logits
