"""What an engine is: a context manager with blocking calls. It sees no clock, no label and no metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile


@dataclass(frozen=True)
class Availability:
    """What an engine can do on this machine; `edgebench doctor` shows it."""

    runs: bool
    builds: bool | None = None
    """Whether it can make what it runs (a plan, a compiled model); None where it makes nothing."""
    reason: str | None = None
    """Why it cannot do one of the two."""
    install: str | None = None
    """The line that helps."""
    versions: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str | None] = field(default_factory=dict)
    """What it can compute on -> None, or why not."""


class Engine(Protocol):
    """One loaded artifact.

    Every call returns when its result is there: nothing is still under way on a device. An engine is made for one
    artifact; `classify` is for the family classifier, the rest for language models.

    An engine that makes something for the device once and keeps it may have `prepare(self) -> bool` (whether it was
    made now), called before it is entered; its time is told apart from loading. One with an attribute `say` finds there
    a function to call with one line on what goes on while it prepares and loads.

    An engine may have a class method `available() -> Availability`. It is called in a process of its own, so it may
    import what is heavy and try what may crash. Without it, `edgebench.engines.probe` imports what the engine needs.
    """

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        """Remember what to load; nothing is loaded yet.

        Args:
            artifact: None only for engines that need none.
            profile: what may be used of the device.
            options: the engine's own options, such as 'provider'.
        """

    def __enter__(self) -> Self:
        """Load.

        Raises:
            EngineError: it cannot be loaded, or not on the provider that was asked for.
        """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of everything."""

    def facts(self) -> dict[str, Any]:
        """What was loaded: versions, providers, threads. For the record of the run."""

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """P(forged), in [0, 1]. float32 [N, 3, H, W] -> float32 [N]."""

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Image features. float32 [tiles, 3, H, W] -> float32 [tiles * tokens, hidden]."""

    @property
    def keeps_prefix(self) -> bool:
        """Whether `prefill` can keep the beginning of the cache."""

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """Begin a new answer: forget the cache, read the prompt.

        Args:
            ids: int64 [tokens], the image tokens in place.
            features: float32 [image tokens, hidden], in order.
            keep: the cache of so many tokens, with which this prompt and the last one begin, stays as it is. 0 for
                engines that cannot.

        Returns:
            float32 [vocab]: logits of the first token of the answer.
        """

    def step(self, token: int) -> NDArray[np.float32]:
        """Append one token. float32 [vocab]: logits of the next one."""
