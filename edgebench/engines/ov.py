"""OpenVINO: artifacts of the dialect portable on a CPU, and on Intel's GPU or NPU by name.

What computes is stated and never left to the device's taste: float32 on a CPU (OpenVINO's own choice on newer ones is
bfloat16, int8 for the cache, and int8 for what enters weights of few bits), and half precision only where an artifact
in fp16 runs on a GPU or an NPU.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgebench.cache import cache_names, empty_cache
from edgebench.engines.graphs import GraphEngine
from edgebench.errors import EngineError, UsageError, one_line
from edgebench.places import cache_folder

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.manifest import Artifact, Decoder, Graph
    from edgebench.profiles import DeviceProfile

FOLDER = ".ov-cache"
"""Compiled models, beside the artifact. OpenVINO itself makes one again for another version, device or setting."""
HINTS = ("latency", "throughput")
CACHES = ("state", "passed")
BATCH = "beam_idx"
"""The input that says which rows of the cache go on; OpenVINO's fused attention is looked for behind it."""


class OpenVinoEngine(GraphEngine):
    """An artifact in OpenVINO on one device. It never falls back to another one."""

    NAME = "openvino"
    OPTIONS: ClassVar[dict[str, str]] = {
        "hint": "latency (as it is) or throughput: OpenVINO's performance hint",
        "cache": "state (as it is), quicker by the token, or passed in and out, quicker with prompts",
    }

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        super().__init__(artifact, profile)
        self.device = options.get("provider", "cpu").upper()
        self.hint = options.get("hint", HINTS[0])
        self.cache_form = options.get("cache", CACHES[0])
        for what, value, known in (("hint", self.hint, HINTS), ("cache", self.cache_form, CACHES)):
            if value not in known:
                raise UsageError(f"the {what} {value!r} is unknown", hint=f"known: {', '.join(known)}")
        if self.artifact.manifest.dialect != "portable":
            raise EngineError(
                "OpenVINO takes the dialect portable",
                where=self.artifact.folder,
                hint="export it again with --dialect portable",
            )
        self._compiled: dict[str, Any] = {}
        self._requests: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.need("openvino", "openvino")
        import openvino

        core = openvino.Core()
        have = core.available_devices
        if self.device not in {*have, *(name.partition(".")[0] for name in have)}:
            raise EngineError(
                f"OpenVINO has no device {self.device!r} here",
                hint=f"it has: {', '.join(have)}; a GPU or an NPU needs its driver",
            )
        for name, graph in self.artifact.manifest.graphs.items():
            self._compiled[name] = self._compile(core, name, graph)
            self._requests[name] = self._compiled[name].create_infer_request()
        decoder = self.artifact.manifest.decoder
        if decoder is not None and self.cache_form == "state":
            self._cache = StatefulCache(self._requests["decoder"])
        elif decoder is not None:
            self._cache = PassedCache(
                self._requests["decoder"], self._compiled["decoder"].create_infer_request(), decoder
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cache = None
        self._requests.clear()
        self._compiled.clear()

    def facts(self) -> dict[str, Any]:
        """Version, device, and of each graph what OpenVINO says that it does: precision, streams, threads."""
        import openvino

        return {
            "engine": "openvino",
            "openvino": openvino.get_version(),
            "device": {name: list(model.get_property("EXECUTION_DEVICES")) for name, model in self._compiled.items()},
            "device_name": openvino.Core().get_property(self.device, "FULL_DEVICE_NAME"),
            "hint": self.hint,
            "precision": self._say("INFERENCE_PRECISION_HINT"),
            "streams": self._say("NUM_STREAMS"),
            "threads": self._say("INFERENCE_NUM_THREADS"),
            "loaded_from_cache": {
                name: bool(m.get_property("LOADED_FROM_CACHE")) for name, m in self._compiled.items()
            },
            "cache": self._cache_said(),
        }

    def _cache_said(self) -> str | None:
        decoder = self.artifact.manifest.decoder
        if self._cache is None or decoder is None:
            return None
        if self.cache_form == "state":
            return f"stateful, {self._settings('decoder')['KV_CACHE_PRECISION']}"
        return f"passed in and out, {decoder.cache_dtype}"

    def _say(self, name: str) -> dict[str, str]:
        """A setting of each graph as the device took it; those that have it."""
        found = {}
        for graph, model in self._compiled.items():
            if name in model.get_property("SUPPORTED_PROPERTIES"):
                value = model.get_property(name)
                found[graph] = value.get_type_name() if hasattr(value, "get_type_name") else str(value)
        return found

    def _settings(self, name: str) -> dict[str, Any]:
        half = not self.device.startswith("CPU") and self.artifact.manifest.graphs[name].precision == "fp16"
        settings: dict[str, Any] = {
            "PERFORMANCE_HINT": self.hint.upper(),
            "INFERENCE_PRECISION_HINT": "f16" if half else "f32",
        }
        if name == "decoder":
            settings["KV_CACHE_PRECISION"] = "f16" if half else "f32"
        if self.device.startswith("CPU"):
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
            if self.profile.threads is not None:
                settings["INFERENCE_NUM_THREADS"] = self.profile.threads
        return settings

    def _compile(self, core: Any, name: str, graph: Graph) -> Any:
        path = self.artifact.path(graph.model)
        settings = self._settings(name)
        kept = self._kept(name, graph)
        if kept is not None:
            settings["CACHE_DIR"] = str(kept)
        try:
            model = core.read_model(str(path))
            if name == "decoder" and self.artifact.manifest.decoder is not None and self.cache_form == "state":
                make_stateful(model, self.artifact.manifest.decoder)
            return core.compile_model(model, self.device, settings)
        except Exception as error:  # OpenVINO raises RuntimeError for everything
            raise EngineError(f"OpenVINO does not take the graph {name!r}: {one_line(error)}", where=path) from error

    def _kept(self, name: str, graph: Graph) -> Path | None:
        """Where this graph's compiled form is kept: beside the artifact, else in the user's cache, else nowhere."""
        hashes = [graph.model.sha256, *(fact.sha256 for fact in graph.external)]
        key = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:16]
        for place in (self.artifact.folder / FOLDER, cache_folder() / "openvino"):
            folder = place / f"{name}-{key}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "lock").touch()
            except OSError:
                continue
            return folder
        return None

    def _call(self, name: str, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        # The request keeps its outputs' memory for the next call.
        return [np.array(value) for value in self._requests[name].infer(feeds, share_inputs=True).values()]


class StatefulCache:
    """Keys and values are states of the request, grown in place by OpenVINO's fused attention."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.past = 0

    def begin(self, tokens: int, keep: int = 0, rows: int = 1) -> None:
        """Forget everything but the first `keep` tokens; `tokens` will be held after the prompt. One row alone."""
        import openvino

        if keep == 0:
            self.request.reset_state()
        elif keep < self.past:
            for state in self.request.query_state():
                state.state = openvino.Tensor(np.ascontiguousarray(state.state.data[:, :, :keep]))
        self.past = keep

    def run(self, inputs: dict[str, NDArray[Any]], tokens: int) -> NDArray[Any]:
        """One call of the decoder over `tokens` more tokens; its logits."""
        out = self.request.infer(inputs | {BATCH: np.zeros(1, dtype=np.int32)}, share_inputs=True)
        self.past += tokens
        return np.array(out["logits"])


class PassedCache:
    """Each call takes the past and gives the present: a copy a token, and plain attention over the prompt at once."""

    def __init__(self, request: Any, other: Any, decoder: Decoder) -> None:
        # They take turns: what one gave, the other reads where it lies.
        self.request, self.other, self.decoder = request, other, decoder
        self.names = cache_names(decoder.layers)
        self.past = 0
        self._values: list[NDArray[Any]] = []

    def begin(self, tokens: int, keep: int = 0, rows: int = 1) -> None:
        """Forget everything but the first `keep` tokens; `tokens` will be held after the prompt. One row alone."""
        if keep == 0 or not self._values:
            self._values, self.past = empty_cache(self.decoder), 0
        elif keep < self.past:
            self._values, self.past = [np.ascontiguousarray(v[:, :, :keep]) for v in self._values], keep

    def run(self, inputs: dict[str, NDArray[Any]], tokens: int) -> NDArray[Any]:
        """One call of the decoder over `tokens` more tokens; its logits."""
        past_names, present_names = self.names
        feeds = inputs | dict(zip(past_names, self._values, strict=True))
        out = self.request.infer(feeds, share_inputs=True, share_outputs=True)
        self._values = [out[name] for name in present_names]
        self.request, self.other = self.other, self.request
        self.past += tokens
        return np.array(out["logits"])


def make_stateful(model: Any, decoder: Decoder) -> None:
    """Turn the cache's inputs and outputs into states, in the form that OpenVINO's fused attention is found in.

    That form is: a state that begins empty, a choice of its rows, the new tokens behind it, attention. Attention as one
    operation comes of OpenVINO's own transformations, which importing an ONNX file leaves out.
    """
    from openvino import opset13, passes
    from openvino._offline_transformations import apply_moc_transformations

    apply_moc_transformations(model, cf=False)
    rows = opset13.parameter([-1], np.int32, name=BATCH)
    rows.output(0).get_tensor().add_names({BATCH})
    model.add_parameters([rows])
    past_names, present_names = cache_names(decoder.layers)
    shape = [1, decoder.kv_heads, -1, decoder.head_dim]
    for name in past_names:
        past = model.input(name)
        readers = past.get_target_inputs()
        past.get_node().set_partial_shape(_partial(shape))
        chosen = opset13.gather(past.get_node(), rows, opset13.constant(0, dtype=np.int32))
        for reader in readers:
            reader.replace_source_output(chosen.output(0))
    model.validate_nodes_and_infer_types()
    manager = passes.Manager()
    manager.register_pass(passes.MakeStateful(dict(zip(past_names, present_names, strict=True))))
    manager.run_passes(model)
    nothing = np.array([1, decoder.kv_heads, 0, decoder.head_dim], dtype=np.int64)
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            zero = opset13.constant(0, dtype=np.dtype(decoder.cache_dtype))
            node.set_arguments([opset13.broadcast(zero, opset13.constant(nothing)).output(0)])
    model.validate_nodes_and_infer_types()


def _partial(shape: list[int]) -> Any:
    from openvino import PartialShape

    return PartialShape(shape)
