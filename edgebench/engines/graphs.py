"""What all engines that run an artifact's graphs have in common: which graph is called with what."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from edgebench.cache import step_inputs, step_types, wanted_logits
from edgebench.errors import EdgebenchError, EngineError, MissingExtraError, one_line
from edgebench.forged import p_forged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile


class Cache(Protocol):
    """The decoder with the keys and values of what it has read."""

    past: int
    """Tokens that it holds."""

    def begin(self, tokens: int, keep: int = 0, rows: int = 1) -> None:
        """Forget everything but the first `keep` tokens, where it can; `tokens` will be held after the prompt.

        More than one of `rows` prompts, all of one length, only where the engine's `batches` says so.
        """

    def run(self, inputs: dict[str, NDArray[Any]], tokens: int) -> NDArray[Any]:
        """One call of the decoder over `tokens` more tokens; its logits."""


class GraphEngine:
    """An engine but for loading: a runtime's own file adds that, `facts`, `_call` and its cache."""

    NAME: ClassVar[str]
    """In the table of engines."""

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile) -> None:
        if artifact is None:
            raise EngineError(f"the engine {self.NAME!r} needs an artifact", hint="run `edgebench export` first")
        self.artifact = artifact
        self.profile = profile
        self._cache: Cache | None = None

    def need(self, package: str, extra: str) -> None:
        """Refuse to load where a package is not installed.

        Raises:
            MissingExtraError: it is not.
        """
        if find_spec(package) is None:
            raise MissingExtraError(
                f"the engine {self.NAME!r} needs {package}", hint=f"pip install 'edgebench[{extra}]'"
            )

    @property
    def keeps_prefix(self) -> bool:
        """Whether `prefill` can keep the beginning of the cache."""
        return True

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        """P(forged). float32 [N, 3, H, W] -> float64 [N]."""
        return p_forged(self.artifact.manifest, self._run("classifier", {"pixel_values": pixels})[0])

    def read(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(forged). int64 [tokens] -> float64 [1]."""
        inputs = {"input_ids": ids[None], "attention_mask": np.ones_like(ids[None])}
        return p_forged(self.artifact.manifest, self._run("classifier", inputs)[0])

    def match(self, pixels: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(forged) of a picture with its text. float32 [1, 3, H, W], int64 [tokens] -> float64 [1]."""
        inputs: dict[str, NDArray[Any]] = {"pixel_values": pixels}
        inputs |= {"input_ids": ids[None], "attention_mask": np.ones_like(ids[None])}
        return p_forged(self.artifact.manifest, self._run("classifier", inputs)[0])

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [tiles, 3, H, W] -> float32 [tiles * tokens, hidden]."""
        features: NDArray[np.float32] = self._run("vision", {"pixel_values": pixels})[0]
        return features.reshape(-1, features.shape[-1]).astype(np.float32, copy=False)

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """float32 [vocab] behind the prompt."""
        cache = self._language()
        cache.begin(len(ids), keep)
        first: NDArray[np.float32] = self._decode(self._first(ids[None], features)[:, cache.past :])[0]
        return first

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        following: NDArray[np.float32] = self.step_batch(np.array([token], dtype=np.int64))[0]
        return following

    @property
    def batches(self) -> bool:
        """Whether several prompts of one length, or several pictures, can be put at once."""
        return False

    def prefill_batch(self, ids: NDArray[np.int64], features: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [rows, vocab] behind the prompts, int64 [rows, tokens]."""
        self._language().begin(ids.shape[1], rows=len(ids))
        return self._decode(self._first(ids, features))

    def step_batch(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """float32 [rows, vocab] behind one more token each, int64 [rows]."""
        ids = tokens[:, None]
        return self._decode(self._run("embed", {"input_ids": ids})[0] if self._embeds else ids)

    def _call(self, name: str, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """One graph without a cache, by the manifest's name: its outputs in order. It may raise anything."""
        raise NotImplementedError

    @property
    def _embeds(self) -> bool:
        return "embed" in self.artifact.manifest.graphs

    def _language(self) -> Cache:
        if self._cache is None:
            raise EngineError("the artifact is no language model", where=self.artifact.folder)
        return self._cache

    def _first(self, ids: NDArray[np.int64], features: NDArray[np.float32]) -> NDArray[Any]:
        """What the decoder reads of the prompts: ids, or embeddings with the features in their places."""
        if not self._embeds:
            return ids
        text = self.artifact.manifest.text
        places = np.zeros(ids.shape, dtype=bool) if text is None or text.images is None else ids == text.images.id
        if int(places.sum()) != len(features):
            raise EngineError(f"the prompt holds {int(places.sum())} image tokens, the images give {len(features)}")
        # The embedding may have no row for the image token, whose place a feature takes.
        embeds = self._run("embed", {"input_ids": np.where(places, 0, ids)})[0].astype(np.float32, copy=False)
        if len(features):
            embeds[places] = features
        return embeds

    @cached_property
    def _types(self) -> dict[str, str]:
        return step_types(self.artifact.manifest.graphs["decoder"])

    def _pieces(self, rows: int, tokens: int) -> list[slice]:
        """How the decoder reads so many tokens: at once."""
        return [slice(0, tokens)]

    def _decode(self, first: NDArray[Any]) -> NDArray[np.float32]:
        cache, tokens = self._language(), first.shape[1]
        for piece in self._pieces(*first.shape[:2]):
            part = first[:, piece]
            # Only the last token of all has wanted logits.
            wanted = np.arange(part.shape[1] - 1, part.shape[1] if piece.stop == tokens else part.shape[1] - 1)
            feeds = step_inputs(self._types, part, cache.past, wanted)
            try:
                logits = cache.run(feeds, part.shape[1])
            except Exception as error:  # runtimes raise their own untyped exceptions
                raise EngineError(f"the decoder failed: {one_line(error)}") from error
        last: NDArray[np.float32] = wanted_logits(self._types, logits, wanted)[:, 0]
        return last.astype(np.float32, copy=False)

    def _run(self, name: str, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        graph = self.artifact.manifest.graphs.get(name)
        if graph is None:
            raise EngineError(f"the artifact has no graph {name!r}", where=self.artifact.folder)
        # Graphs that others exported may take half precision.
        types = {fact.name: fact.dtype for fact in graph.inputs}
        feeds = {key: value.astype(types.get(key, value.dtype), copy=False) for key, value in inputs.items()}
        try:
            return self._call(name, feeds)
        except EdgebenchError:
            raise
        except Exception as error:  # runtimes raise their own untyped exceptions
            raise EngineError(f"the graph {name!r} failed: {one_line(error)}") from error
