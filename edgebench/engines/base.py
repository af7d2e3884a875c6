"""What an engine is: a context manager with blocking calls. It sees no clock, no label and no metric.

There are two kinds. An `Engine` has loaded an artifact: pixels and tokens go in, logits come out. A `Chat` is asked in
messages and answers in text, wherever its model is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from edgebench.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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

    One whose attribute `sees_aside` is true lets one thread call `see` while another calls `prefill` and `step`.

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

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        """P(forged), in [0, 1]. float32 [N, 3, H, W] -> float64 [N]."""

    def read(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(forged) of one text, in [0, 1]: a classifier of text. int64 [tokens] -> float64 [1]."""

    def match(self, pixels: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same of a picture with its text. float32 [1, 3, H, W], int64 [tokens] -> float64 [1]."""

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


class Batched(Protocol):
    """What an engine may have beside `Engine`; one that has not is asked one question at a time.

    With it `classify` takes pictures of several questions.
    """

    @property
    def batches(self) -> bool:
        """Whether the loaded graphs take several rows."""

    def prefill_batch(self, ids: NDArray[np.int64], features: NDArray[np.float32]) -> NDArray[np.float32]:
        """As `prefill`, of several prompts of one length: nothing is padded.

        Args:
            ids: int64 [rows, tokens].
            features: float32 [image tokens of all rows, hidden], in order.

        Returns:
            float32 [rows, vocab].
        """

    def step_batch(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """As `step`: int64 [rows] -> float32 [rows, vocab]."""


@dataclass(frozen=True)
class Said:
    """One reply of a chat. None is what was not said."""

    text: str
    finish: str | None = None
    """'stop', 'length', 'refused' (by the service, without or in place of an answer) or 'other'."""
    first: tuple[tuple[str, float], ...] | None = None
    """The likeliest first tokens: text and natural logarithm of the probability."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    unseen_tokens: int | None = None
    """Of `output_tokens`, those that were thought and not sent."""
    model: str | None = None
    """Which model says that it answered."""
    attempts: int = 1


class Chat(Protocol):
    """A model that is asked in messages. Its tokens are not seen; `chat` may be called by several threads at once.

    It is built, entered and left as an `Engine` is.
    """

    remote: bool
    """Whether the model is elsewhere. Of edgebench's own engines such a one is asked from the run's process, several
    calls at once, and its memory is unknown."""
    at_once: int
    """How many calls may be under way."""

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        """As an engine's."""

    def __enter__(self) -> Self:
        """Get ready."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of everything."""

    def facts(self) -> dict[str, Any]:
        """Who is asked, and how. For the record of the run; no secret."""

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        pictures: Sequence[NDArray[np.uint8]],
        *,
        max_new_tokens: int,
        note: Callable[[str], None] = lambda what: None,
    ) -> Said:
        """One reply, greedy where the model allows it.

        Args:
            messages: `role` and `content`, a list of {'type': 'text', 'text': ...} and {'type': 'image'}.
            pictures: uint8 [H, W, 3], RGB, one for each image part of all messages, in order.
            max_new_tokens: the longest reply.
            note: called with 'sent' when a request begins (the last one counts), and with 'first' when the first text
                of its reply is there.

        Raises:
            Unavailable: nothing can be asked any more.
            EngineError: no answer came to these messages.
        """


class Unavailable(EngineError):
    """It is of no use to ask on: no key, no such model, a certificate that is not trusted."""
