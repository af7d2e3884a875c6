"""ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.cache import cache_names, empty_cache, step_inputs, wanted_logits
from edgebench.errors import EngineError, did_you_mean, one_line
from edgebench.forged import p_forged

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

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
        self._sessions: dict[str, Any] = {}
        self._cache: list[Any] = []
        self._past = 0

    def __enter__(self) -> Self:
        for name, graph in self.artifact.manifest.graphs.items():
            self._sessions[name] = self._open(name, graph)
        decoder = self.artifact.manifest.decoder
        if decoder is not None:
            self._past_names, self._present_names = cache_names(decoder.layers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sessions.clear()
        self._cache.clear()

    def facts(self) -> dict[str, Any]:
        """Version, providers in use and threads."""
        import onnxruntime

        return {
            "engine": "ort",
            "onnxruntime": onnxruntime.__version__,
            "providers": {name: session.get_providers() for name, session in self._sessions.items()},
            "intra_op_spinning": False,
            "intra_op_threads": self.profile.threads or "one per physical core (ONNX Runtime's default)",
        }

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """P(forged). float32 [N, 3, H, W] -> float32 [N]."""
        return p_forged(self.artifact.manifest, self._run("classifier", {"pixel_values": pixels})[0])

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [tiles, 3, H, W] -> float32 [tiles * tokens, hidden]."""
        features: NDArray[np.float32] = self._run("vision", {"pixel_values": pixels})[0]
        return features.reshape(-1, features.shape[-1]).astype(np.float32, copy=False)

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [vocab] behind the prompt."""
        text, decoder = self.artifact.manifest.text, self.artifact.manifest.decoder
        if text is None or decoder is None:
            raise EngineError("the artifact is no language model", where=self.artifact.folder)
        embeds = self._run("embed", {"input_ids": ids[None]})[0].astype(np.float32, copy=False)
        if len(features):
            places = np.zeros(len(ids), dtype=bool) if text.images is None else ids == text.images.id
            if int(places.sum()) != len(features):
                raise EngineError(f"the prompt holds {int(places.sum())} image tokens, the images give {len(features)}")
            embeds[0, places] = features
        import onnxruntime

        self._cache = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in empty_cache(decoder)]
        self._past = 0
        return self._decode(embeds)

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        return self._decode(self._run("embed", {"input_ids": np.array([[token]], dtype=np.int64)})[0])

    def _decode(self, embeds: NDArray[np.float32]) -> NDArray[np.float32]:
        import onnxruntime

        tokens = embeds.shape[1]
        graph, wanted = self.artifact.manifest.graphs["decoder"], np.array([tokens - 1], dtype=np.int64)
        inputs = step_inputs(graph, embeds, self._past, wanted)
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(v)) for name, v in inputs.items()}
        values |= dict(zip(self._past_names, self._cache, strict=True))
        try:
            logits, *self._cache = self._sessions["decoder"].run_with_ort_values(
                ["logits", *self._present_names], values
            )
        except Exception as error:  # ONNX Runtime raises its own untyped exceptions
            raise EngineError(f"the decoder failed: {one_line(error)}") from error
        self._past += tokens
        last: NDArray[np.float32] = wanted_logits(graph, logits.numpy(), wanted)[0]
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
        # Each graph has threads of its own: idle ones that spin take the cores from the graph that works.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if self.profile.threads is not None:
            options.intra_op_num_threads = self.profile.threads
        path = self.artifact.path(graph.model)
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


class TensorRtEngine(OrtEngine):
    """TensorRT through ONNX Runtime's provider; refuses to run where that provider cannot be used."""

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        super().__init__(artifact, profile, {"provider": "tensorrt", **options})
