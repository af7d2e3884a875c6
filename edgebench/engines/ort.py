"""ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.cache import pieces
from edgebench.engines.graphs import GraphEngine
from edgebench.engines.ort_cache import InPlaceCache, PassedCache
from edgebench.engines.ort_prepacked import lean_options, load_options, prepacked, return_large_blocks
from edgebench.engines.ort_providers import available
from edgebench.errors import EngineError, did_you_mean, one_line
from edgebench.host_files import usable_cpus

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from edgebench.engines.base import Availability
    from edgebench.manifest import Artifact, Graph
    from edgebench.profiles import DeviceProfile

DEFAULT_PROVIDER = "cpu"
SPIN, SPIN_US, SPIN_ALONE_US = "session.intra_op.spin_duration_us", 1_000, 10_000
"""How long threads wait awake for work, of one of several graphs and of an only one. That reaches from one token to the
next, and then leaves the cores to the next graph's threads: without a limit they wait so for tens of milliseconds, and
put to sleep behind each call they cost 6 % of a token."""


class OrtEngine(GraphEngine):
    """An artifact in ONNX Runtime, on one execution provider. It never falls back to another one in silence."""

    NAME = "ort"

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        super().__init__(artifact, profile)
        self.wanted = options.get("provider", DEFAULT_PROVIDER)
        self.memory = options.get("memory", "normal")
        if self.memory == "low" and self.wanted.removesuffix("ExecutionProvider").lower() != DEFAULT_PROVIDER:
            raise EngineError(f"--memory low is for the provider cpu, not {self.wanted!r}", hint="leave --memory out")
        self._packed: dict[str, Path] | None = None
        self._sessions: dict[str, Any] = {}

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

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        try:
            found = self._cache.step(token) if isinstance(self._cache, InPlaceCache) else None
        except Exception as error:  # ONNX Runtime raises its own untyped exceptions
            raise EngineError(f"the decoder failed: {one_line(error)}") from error
        return super().step(token) if found is None else found

    @property
    def keeps_prefix(self) -> bool:
        """Where the cache is one buffer that stays."""
        return isinstance(self._cache, InPlaceCache)

    @property
    def sees_aside(self) -> bool:
        """Where the profile leaves as many cores to a second graph."""
        threads, cores = self.profile.threads, len(usable_cpus())
        alone = self.memory == "low" or self.wanted != DEFAULT_PROVIDER
        return not alone and threads is not None and 2 * threads <= cores

    @property
    def batches(self) -> bool:
        """Where no graph that rows go through, as pictures or prompts, fixes how many."""
        inputs = [i for name, s in self._sessions.items() if name != "vision" for i in s.get_inputs()]
        return not any(i.shape and isinstance(i.shape[0], int) for i in inputs)

    def _pieces(self, rows: int, tokens: int) -> list[slice]:
        decoder = self.artifact.manifest.decoder
        if decoder is None or not isinstance(self._cache, InPlaceCache):
            return super()._pieces(rows, tokens)
        return pieces(decoder, self._types, rows, tokens)

    def _call(self, name: str, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        out: list[NDArray[Any]] = self._sessions[name].run(None, feeds)
        return out

    def _open(self, name: str, graph: Graph) -> Any:
        import onnxruntime

        provider = provider_name(self.wanted, onnxruntime.get_available_providers())
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        for entry, value in thread_settings(self.profile, len(self.artifact.manifest.graphs)).items():
            options.add_session_config_entry(entry, value)
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


def thread_settings(profile: DeviceProfile, graphs: int) -> dict[str, str]:
    """Entries of the configuration of one of so many graphs: whether its threads wait awake, and how long."""
    if not profile.spinning:
        return {"session.intra_op.allow_spinning": "0"}
    return {SPIN: str(SPIN_ALONE_US if graphs == 1 else SPIN_US)}


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
