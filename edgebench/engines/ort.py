"""ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.cache import step_inputs, wanted_logits
from edgebench.engines.ort_cache import InPlaceCache, PassedCache
from edgebench.engines.ort_prepacked import lean_options, load_options, prepacked, return_large_blocks
from edgebench.engines.ort_providers import available
from edgebench.errors import EngineError, did_you_mean, one_line
from edgebench.forged import p_forged

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.engines.base import Availability
    from edgebench.manifest import Artifact, Graph
    from edgebench.profiles import DeviceProfile

DEFAULT_PROVIDER = "cpu"


class OrtEngine:
    """An artifact in ONNX Runtime, on one execution provider. It never falls back to another one in silence."""

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        if artifact is None:
            raise EngineError("the engine 'ort' needs an artifact", hint="run `edgebench export` first")
        self.artifact = artifact
        self.profile = profile
        self.wanted = options.get("provider", DEFAULT_PROVIDER)
        self.memory = options.get("memory", "normal")
        if self.memory == "low" and self.wanted.removesuffix("ExecutionProvider").lower() != DEFAULT_PROVIDER:
            raise EngineError(f"--memory low is for the provider cpu, not {self.wanted!r}", hint="leave --memory out")
        self._packed: dict[str, Path] | None = None
        self._sessions: dict[str, Any] = {}
        self._cache: InPlaceCache | PassedCache | None = None

    @classmethod
    def available(cls) -> Availability:
        """Every provider of this build of ONNX Runtime, tried."""
        return available(None)

    def prepare(self) -> bool:
        """Low memory: make the copies of the graphs that are not there yet. Whether one was made.

        Raises:
            EngineError: one cannot be made.
        """
        made = False
        if self.memory == "low":
            return_large_blocks()
            self._packed, made = prepacked(self.artifact)
        return made

    def __enter__(self) -> Self:
        if self._packed is None:
            self.prepare()
        for name, graph in self.artifact.manifest.graphs.items():
            self._sessions[name] = self._open(name, graph)
        decoder = self.artifact.manifest.decoder
        if decoder is not None:
            kind = InPlaceCache if decoder.in_place and self.wanted == DEFAULT_PROVIDER else PassedCache
            self._cache = kind(self._sessions["decoder"], decoder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sessions.clear()
        self._cache = None

    def facts(self) -> dict[str, Any]:
        """Version, providers in use and threads."""
        import onnxruntime

        return {
            "engine": "ort",
            "onnxruntime": onnxruntime.__version__,
            "providers": {name: session.get_providers() for name, session in self._sessions.items()},
            "memory": self.memory,
            "intra_op_spinning": self.profile.spinning,
            "intra_op_threads": self.profile.threads or "one per physical core (ONNX Runtime's default)",
        }

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """P(forged). float32 [N, 3, H, W] -> float32 [N]."""
        return p_forged(self.artifact.manifest, self._run("classifier", {"pixel_values": pixels})[0])

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [tiles, 3, H, W] -> float32 [tiles * tokens, hidden]."""
        features: NDArray[np.float32] = self._run("vision", {"pixel_values": pixels})[0]
        return features.reshape(-1, features.shape[-1]).astype(np.float32, copy=False)

    @property
    def keeps_prefix(self) -> bool:
        """Where the cache is one buffer that stays."""
        return isinstance(self._cache, InPlaceCache)

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """float32 [vocab] behind the prompt."""
        if self._cache is None:
            raise EngineError("the artifact is no language model", where=self.artifact.folder)
        self._cache.begin(len(ids), keep)
        return self._decode(self._first(ids, features)[:, self._cache.past :])

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        ids = np.array([[token]], dtype=np.int64)
        return self._decode(self._run("embed", {"input_ids": ids})[0] if "embed" in self._sessions else ids)

    def _first(self, ids: NDArray[np.int64], features: NDArray[np.float32]) -> NDArray[Any]:
        """What the decoder reads of the prompt: ids, or embeddings with the features in their places."""
        if "embed" not in self._sessions:
            return ids[None]
        text = self.artifact.manifest.text
        places = np.zeros(len(ids), dtype=bool) if text is None or text.images is None else ids == text.images.id
        if int(places.sum()) != len(features):
            raise EngineError(f"the prompt holds {int(places.sum())} image tokens, the images give {len(features)}")
        # The embedding may have no row for the image token, whose place a feature takes.
        embeds = self._run("embed", {"input_ids": np.where(places, 0, ids)[None]})[0].astype(np.float32, copy=False)
        if len(features):
            embeds[0, places] = features
        return embeds

    def _decode(self, first: NDArray[Any]) -> NDArray[np.float32]:
        cache = self._cache
        if cache is None:
            raise EngineError("the artifact is no language model", where=self.artifact.folder)
        graph, wanted = self.artifact.manifest.graphs["decoder"], np.array([first.shape[1] - 1], dtype=np.int64)
        try:
            logits = cache.run(step_inputs(graph, first, cache.past, wanted), first.shape[1])
        except Exception as error:  # ONNX Runtime raises its own untyped exceptions
            raise EngineError(f"the decoder failed: {one_line(error)}") from error
        last: NDArray[np.float32] = wanted_logits(graph, logits, wanted)[0]
        return last.astype(np.float32, copy=False)

    def _run(self, name: str, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        graph = self.artifact.manifest.graphs.get(name)
        if graph is None:
            raise EngineError(f"the artifact has no graph {name!r}", where=self.artifact.folder)
        # Graphs that others exported may take half precision.
        types = {fact.name: fact.dtype for fact in graph.inputs}
        feeds = {key: value.astype(types.get(key, value.dtype), copy=False) for key, value in inputs.items()}
        try:
            out: list[NDArray[Any]] = self._sessions[name].run(None, feeds)
        except Exception as error:  # ONNX Runtime raises its own untyped exceptions
            raise EngineError(f"the graph {name!r} failed: {one_line(error)}") from error
        return out

    def _open(self, name: str, graph: Graph) -> Any:
        import onnxruntime

        provider = provider_name(self.wanted, onnxruntime.get_available_providers())
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # Each graph has threads of its own: those that spin between graphs take the cores from the graph that works.
        if self.profile.spinning:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        else:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if self.profile.threads is not None:
            options.intra_op_num_threads = self.profile.threads
        path = (self._packed or {}).get(name)
        if path is not None:
            load_options(options)
        elif self.memory == "low":
            lean_options(options)
        path = path or self.artifact.path(graph.model)
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # ONNX Runtime raises its own untyped exceptions
            raise EngineError(f"the graph {name!r} does not load: {one_line(error)}", where=path) from error
        session.disable_fallback()
        used = session.get_providers()
        if not used or used[0] != provider:
            raise EngineError(
                f"{provider} was asked for and ONNX Runtime fell back to {', '.join(used)}",
                where=path,
                hint="check its driver and libraries, or pass --provider cpu",
            )
        return session


def provider_name(wanted: str, available: list[str]) -> str:
    """ONNX Runtime's name of a provider: 'cpu', 'CUDA' and 'CUDAExecutionProvider' are all understood.

    Raises:
        EngineError: this build of ONNX Runtime does not have it.
    """
    short = {name.removesuffix("ExecutionProvider").lower(): name for name in available}
    key = wanted.removesuffix("ExecutionProvider").lower()
    if key not in short:
        hint = (
            "pip install 'edgebench[gpu]' in place of onnxruntime"
            if key in {"cuda", "tensorrt"}
            else did_you_mean(key, short)
        )
        raise EngineError(f"this ONNX Runtime has no provider {wanted!r}; it has {', '.join(sorted(short))}", hint=hint)
    return short[key]
