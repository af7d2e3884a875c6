"""onnxruntime-genai: its own KV cache and calls around the decoder of a language artifact of the dialect `ort`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.engines.ort import thread_settings
from edgebench.errors import EngineError, MissingExtraError, one_line

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile

CONFIG = "genai_config.json"
ROOM = 512
"""Tokens of an answer that the cache has room for. Where it is full, twice as large a one is filled as the first was."""
KNOWN = {
    "": {"model", "search"},
    "model": {"bos_token_id", "context_length", "decoder", "eos_token_id", "pad_token_id", "type", "vocab_size"},
    "decoder": {
        *("session_options", "filename", "head_size", "hidden_size", "inputs", "outputs"),
        *("num_attention_heads", "num_hidden_layers", "num_key_value_heads"),
    },
    "session_options": {"log_id", "provider_options"},
}
"""What a configuration may hold. Others name further files and libraries, which no manifest vouches for."""


class GenaiEngine:
    """A decoder from token ids in onnxruntime-genai, on the CPU."""

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        if artifact is None:
            raise EngineError("the engine 'genai' needs an artifact", hint="run `edgebench export` first")
        kind = artifact.manifest.kind
        if kind != "language":
            raise EngineError(
                f"the engine 'genai' takes language models of text alone, this is a {kind} model",
                where=artifact.folder,
                hint="run it with --engine ort",
            )
        if artifact.manifest.dialect != "ort":
            raise EngineError(
                f"the engine 'genai' takes the dialect 'ort', this is {artifact.manifest.dialect!r}",
                where=artifact.folder,
                hint="export it with --dialect ort",
            )
        if options.get("provider", "cpu").lower() != "cpu":
            raise EngineError(f"the engine 'genai' runs on cpu, not {options['provider']!r}", hint="pass --engine ort")
        self.artifact, self.profile = artifact, profile
        self._model: Any = None
        self._generator: Any = None
        self._capacity = 0
        self._ids: list[int] = []
        self._prompt = 0

    def __enter__(self) -> Self:
        try:
            import onnxruntime_genai
        except ImportError as error:
            raise MissingExtraError(
                f"the engine 'genai' needs the package onnxruntime-genai: {one_line(error)}",
                hint="pip install 'edgebench[genai]'",
            ) from error
        onnxruntime_genai.disable_telemetry_events()
        _check(self.artifact)
        # Threads as in the engine `ort`: 0 is ONNX Runtime's own number; genai's is half of the logical cores.
        session: dict[str, Any] = {
            **thread_settings(self.profile, 1),
            "intra_op_num_threads": self.profile.threads or 0,
        }
        try:
            config = onnxruntime_genai.Config(str(self.artifact.folder))
            config.clear_providers()
            config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
            self._model = onnxruntime_genai.Model(config)
        except Exception as error:  # onnxruntime-genai raises RuntimeError and its own
            raise EngineError(f"does not load: {one_line(error)}", where=self.artifact.folder) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._generator = self._model = None

    def facts(self) -> dict[str, Any]:
        """Versions, device and threads."""
        import onnxruntime
        import onnxruntime_genai

        return {
            "engine": "genai",
            "onnxruntime-genai": onnxruntime_genai.__version__,
            "onnxruntime": onnxruntime.__version__,
            "device": self._model.device_type,
            "intra_op_spinning": self.profile.spinning,
            "intra_op_threads": self.profile.threads or "one per physical core (ONNX Runtime's default)",
        }

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        """Never: no classifier is taken."""
        raise EngineError("the artifact is no classifier", where=self.artifact.folder)

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Never: no model with a vision part is taken."""
        raise EngineError("the artifact has no graph 'vision'", where=self.artifact.folder)

    @property
    def keeps_prefix(self) -> bool:
        """The cache can be cut back to any length."""
        return True

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """float32 [vocab] behind the prompt."""
        try:
            if self._generator is None or len(ids) + ROOM > self._capacity:
                self._make(len(ids) + ROOM)
                keep = 0
            else:
                self._generator.rewind_to(keep)
        except Exception as error:
            raise self._failed(error) from error
        self._ids, self._prompt = ids.tolist(), len(ids)
        return self._read(self._ids[keep:])

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        self._ids.append(token)
        if len(self._ids) <= self._capacity:
            return self._read([token])
        try:
            self._make(2 * self._capacity)
        except Exception as error:
            raise self._failed(error) from error
        # Quantized kernels round one token otherwise than several: each is read as it was.
        logits = self._read(self._ids[: self._prompt])
        for known in self._ids[self._prompt :]:
            logits = self._read([known])
        return logits

    def _make(self, tokens: int) -> None:
        """A cache for so many tokens, empty. The model's whole context would take its memory at once."""
        import onnxruntime_genai

        text = self.artifact.manifest.text
        self._generator = None
        self._capacity = min(tokens, text.context_length) if text else tokens
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(max_length=self._capacity, do_sample=False, num_beams=1)
        self._generator = onnxruntime_genai.Generator(self._model, params)

    def _read(self, ids: list[int]) -> NDArray[np.float32]:
        try:
            self._generator.append_tokens(np.array(ids, dtype=np.int32))
            logits: NDArray[np.float32] = self._generator.get_logits().reshape(-1)
        except Exception as error:
            raise self._failed(error) from error
        return logits.astype(np.float32)

    def _failed(self, error: Exception) -> EngineError:
        self._generator = None
        return EngineError(f"the decoder failed: {one_line(error)}")


def _check(artifact: Artifact) -> None:
    """Refuse a configuration that names another graph than the manifest's, or anything beyond one decoder.

    Raises:
        EngineError: it does, or there is none.
    """
    path = artifact.folder / CONFIG
    hint = "export it again, or run it with --engine ort"
    try:
        parts: dict[str, Any] = {"": json.loads(path.read_text(encoding="utf-8"))}
        parts["model"] = parts[""]["model"]
        parts["decoder"] = parts["model"]["decoder"]
        parts["session_options"] = parts["decoder"].get("session_options", {})
        named = parts["decoder"]["filename"]
        unknown = [f"{part}.{key}".lstrip(".") for part, known in KNOWN.items() for key in parts[part].keys() - known]
    except OSError as error:
        raise EngineError(f"has no readable {CONFIG}", where=artifact.folder, hint=hint) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"does not describe one decoder: {one_line(error)}", where=path, hint=hint) from error
    if unknown:
        raise EngineError(f"holds {unknown[0]!r}, which the manifest does not vouch for", where=path, hint=hint)
    graph = artifact.manifest.graphs["decoder"].model.file
    if named != graph:
        raise EngineError(f"names the graph {named!r}, the manifest {graph!r}", where=path, hint=hint)
