"""TensorRT and TensorRT-RTX, natively: plans that are built once, and everything between pixels and logits on the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.cache import cache_names
from edgebench.engines.base import Availability
from edgebench.engines.trt_api import PORTABLE, Api, find_api
from edgebench.engines.trt_build import FRESH
from edgebench.engines.trt_device import Device
from edgebench.engines.trt_loaded import Plan, loader
from edgebench.engines.trt_plans import facts_of, made_for, plans
from edgebench.engines.trt_shapes import (
    PAST_OF_PROMPT,
    PROMPT,
    STEP,
    capacity_of,
    decoder_shapes,
    pixels_shape,
    profiles_of,
    tiles_of,
)
from edgebench.errors import EngineError, SampleError
from edgebench.forged import p_forged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.engines.trt_shapes import Shape
    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile


class TrtEngine:
    """An artifact in TensorRT or TensorRT-RTX. Its plans are built when they are not there yet."""

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        if artifact is None:
            raise EngineError("the engine 'trt' needs an artifact", hint="run `edgebench export` first")
        m = artifact.manifest
        if m.dialect != "portable" and m.kind != "classifier":
            raise EngineError(
                f"is of the dialect {m.dialect!r}, and TensorRT reads 'portable'",
                where=artifact.folder,
                hint="export it with --dialect portable",
            )
        if options.get("memory", "normal") != "normal":
            raise EngineError("--memory low is for the engine ort", hint="leave --memory out")
        self.artifact, self.wanted = artifact, options.get("provider")
        self.say: Callable[[str], None] = lambda line: None
        self.capacity = capacity_of(m, profile.context_tokens)
        self._profiles = profiles_of(m, self.capacity)
        self._entries: dict[str, Path] = {}
        self._plans: dict[str, Plan] = {}
        self._api: Api | None = None
        self._open: Device | None = None
        self._buffers: dict[str, int] = {}
        self._used_bytes: int | None = None
        self._past = 0

    @classmethod
    def available(cls) -> Availability:
        """Which TensorRT is installed, and whether a GPU is there."""
        try:
            api = find_api(None)
        except EngineError as error:
            install = "pip install 'edgebench[trt,trt-rtx]'"
            return Availability(runs=False, builds=False, reason=error.what, install=install)
        try:
            device, reason, name = Device(), None, "cuda:0"
            name = f"cuda:0, compute capability {device.compute_capability}"
            device.close()
        except EngineError as error:
            reason, name = str(error), "cuda"
        runs = reason is None
        return Availability(
            runs=runs,
            builds=runs or api.portable,
            reason=reason,
            versions={api.name: api.version},
            devices={name: reason},
        )

    def prepare(self) -> bool:
        """Build the plans that are not there yet. Whether one was built.

        Raises:
            EngineError: one cannot be built.
        """
        api = self._api = find_api(self.wanted)
        capability = PORTABLE
        if not api.portable:
            try:
                device = Device()
            except EngineError as error:
                raise EngineError(
                    f"TensorRT builds on the device that a plan is for, and there is none here: {error}",
                    hint="--provider tensorrt_rtx builds anywhere",
                ) from error
            capability = device.compute_capability
            device.close()
        facts = {
            name: made_for(self.artifact.manifest.graphs[name], api.name, api.version, capability, profiles)
            for name, profiles in self._profiles.items()
        }
        self._entries, made = plans(self.artifact, facts, self.say)
        return made

    def __enter__(self) -> Self:
        if self._api is None:
            self.prepare()
        try:
            self._open = Device()
        except EngineError as error:
            places = ", ".join(sorted({str(entry.parent) for entry in self._entries.values()}))
            raise EngineError(
                f"the plans are built and kept in {places}; running them needs an NVIDIA GPU: {error}"
            ) from error
        try:
            self._load(self._open)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _load(self, device: Device) -> None:
        before = device.used_bytes()
        load = loader(self._api, device)
        for name, profiles in self._profiles.items():
            self.say(f"loading the plan of {name}")
            self._plans[name] = load(self._entries[name], len(profiles))
        scratch = max(plan.scratch_bytes for plan in self._plans.values())
        self._buffers["scratch"] = device.allocate(scratch)
        for plan in self._plans.values():
            plan.lend(self._buffers["scratch"], scratch)
        self._bind(device)
        device.wait()
        self._used_bytes = device.used_bytes() - before

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.wait()
        self._plans.clear()
        self._buffers.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    def facts(self) -> dict[str, Any]:
        """Versions, device, what each plan took to build, and the device's memory."""
        api, device = self._api, self._device
        built = {name: facts_of(entry) for name, entry in self._entries.items()}
        return {
            "engine": "trt",
            **({} if api is None else {api.name: api.version}),
            **device.facts(),
            "capacity_tokens": self.capacity,
            "plans": {
                name: {key: value for key, value in facts.items() if key in {"build_s", "peak_memory_bytes", "bytes"}}
                for name, facts in built.items()
            },
            "scratch_bytes": max((plan.scratch_bytes for plan in self._plans.values()), default=0),
            "cache_bytes": self._layer_bytes * 2 * (0 if self._decoder is None else self._decoder.layers),
            "allocated_bytes": device.allocated,
            "device_used_bytes": self._used_bytes,
        }

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        """P(forged). float32 [N, 3, H, W] -> float64 [N]."""
        return p_forged(self.artifact.manifest, self._look("classifier", pixels, 1))

    def read(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Refused: it is for classifiers of text.

        Raises:
            EngineError: always.
        """
        raise EngineError("TensorRT runs no classifiers of text here", hint="run it with --engine ort")

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [tiles, 3, H, W] -> float32 [tiles * tokens, hidden]."""
        features = self._look("vision", pixels, tiles_of(self.artifact.manifest))
        return features.reshape(-1, features.shape[-1]).astype(np.float32, copy=False)

    @property
    def keeps_prefix(self) -> bool:
        """A prompt is always read from its beginning."""
        return False

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """float32 [vocab] behind the prompt."""
        tokens, device, buffers = len(ids), self._device, self._buffers
        if self._decoder is None:
            raise EngineError("the artifact is no language model", where=self.artifact.folder)
        if tokens > self.capacity:
            raise SampleError(
                f"the prompt has {tokens} tokens, the plans have room for {self.capacity} (context_tokens of the profile)"
            )
        graph, names = self.artifact.manifest.graphs["decoder"], cache_names(self._decoder.layers)
        held = self._place(ids, features)
        # The first place of the mask is that of the past, which holds nothing.
        mask = np.concatenate([np.zeros(PAST_OF_PROMPT, np.int64), np.ones(tokens, np.int64)])
        held += [mask, np.arange(tokens, dtype=np.int64), np.array([tokens - 1], dtype=np.int64)]
        for name, array in zip(("attention_mask", "position_ids", "logits_index"), held[-3:], strict=True):
            device.put(buffers[name], array)
        # Keys and values come out without gaps between heads, and are then moved to where the cache has them.
        addresses = {f"{FRESH}{n.removeprefix('present.')}": buffers[n] for n in names[1]}
        plan = self._plans["decoder"]
        plan.bind(PROMPT, decoder_shapes(graph, self._decoder, tokens, PAST_OF_PROMPT), addresses)
        plan.run(PROMPT)
        row = self._row_bytes
        for name in names[1]:
            device.copy(buffers["bounce"], buffers[name], self._decoder.kv_heads * tokens * row)
            device.copy_rows(
                buffers[name],
                self.capacity * row,
                buffers["bounce"],
                tokens * row,
                tokens * row,
                self._decoder.kv_heads,
            )
        logits = self._logits(held)
        # From here on a step sees the whole cache, and itself behind it.
        mask = np.zeros(self.capacity + 1, dtype=np.int64)
        mask[:tokens] = mask[-1] = 1
        device.put(buffers["attention_mask"], mask)
        device.put(buffers["logits_index"], np.zeros(1, dtype=np.int64))
        device.wait()
        self._past = tokens
        return logits

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        device, buffers, decoder = self._device, self._buffers, self._decoder
        if decoder is None:
            raise EngineError("the artifact is no language model", where=self.artifact.folder)
        if self._past >= self.capacity:
            raise SampleError(f"prompt and answer have more than the {self.capacity} tokens that there is room for")
        held = [np.array([token], dtype=np.int64), np.array([self._past], dtype=np.int64), np.ones(1, dtype=np.int64)]
        if "embed" in self._plans:
            device.put(buffers["ids"], held[0])
            self._plans["embed"].run(STEP)
        else:
            device.put(buffers["first"], held[0])
        device.put(buffers["position_ids"], held[1])
        self._plans["decoder"].run(STEP)
        row = self._row_bytes
        for name in cache_names(decoder.layers)[1]:
            device.copy_rows(
                buffers[name] + self._past * row, self.capacity * row, buffers[FRESH + name], row, row, decoder.kv_heads
            )
        device.put(buffers["attention_mask"] + 8 * self._past, held[2])
        self._past += 1
        return self._logits(held)

    @property
    def _decoder(self) -> Any:
        return self.artifact.manifest.decoder

    @property
    def _device(self) -> Device:
        if self._open is None:
            raise EngineError("the engine is not open")
        return self._open

    @property
    def _row_bytes(self) -> int:
        """Of one key or value of one head."""
        decoder = self._decoder
        return 0 if decoder is None else decoder.head_dim * np.dtype(decoder.cache_dtype).itemsize

    @property
    def _layer_bytes(self) -> int:
        """Of the keys, or values, of one layer."""
        return 0 if self._decoder is None else self._decoder.kv_heads * self.capacity * self._row_bytes

    def _bind(self, device: Device) -> None:
        """Make the buffers, and bind what stays where it is."""
        graphs, buffers, decoder = self.artifact.manifest.graphs, self._buffers, self._decoder
        for name in {"vision", "classifier"} & graphs.keys():
            graph = graphs[name]
            most = tiles_of(self.artifact.manifest) if name == "vision" else 1
            buffers["pixels"] = device.allocate(_bytes(graph.inputs[0].dtype, pixels_shape(graph, most)))
            buffers["seen"] = device.allocate(_bytes(graph.outputs[0].dtype, _shape(graph.outputs[0].shape, most)))
        if decoder is None:
            return
        graph = graphs["decoder"]
        inputs = {fact.name: fact for fact in graph.inputs}
        first = "inputs_embeds" if "inputs_embeds" in inputs else "input_ids"
        width = decoder.hidden_size if first == "inputs_embeds" else 1
        sizes = {"attention_mask": self.capacity + 1, "position_ids": self.capacity, "logits_index": 1}
        buffers["first"] = device.allocate(_bytes(inputs[first].dtype, (self.capacity, width)))
        buffers |= {name: device.allocate(_bytes(inputs[name].dtype, (size,))) for name, size in sizes.items()}
        buffers["logits"] = device.allocate(_bytes(graph.outputs[0].dtype, (self._vocabulary,)))
        buffers["bounce"] = device.allocate(self._layer_bytes)
        buffers["nothing"] = device.allocate(decoder.kv_heads * PAST_OF_PROMPT * self._row_bytes)
        addresses = {name: buffers[name] for name in (*sizes, "logits")} | {first: buffers["first"]}
        pasts, presents = cache_names(decoder.layers)
        for name in presents:
            buffers[name] = device.allocate(self._layer_bytes)
            buffers[FRESH + name] = device.allocate(decoder.kv_heads * self._row_bytes)
        plan = self._plans["decoder"]
        plan.bind(PROMPT, {}, addresses | dict.fromkeys(pasts, buffers["nothing"]))
        steps = {FRESH + name.removeprefix("present."): buffers[FRESH + name] for name in presents}
        cache = {past: buffers[present] for past, present in zip(pasts, presents, strict=True)}
        plan.bind(STEP, decoder_shapes(graph, decoder, 1, self.capacity), addresses | steps | cache)
        if "embed" in graphs:
            buffers["ids"] = device.allocate(_bytes("int64", (self.capacity,)))
            ends = {"input_ids": buffers["ids"], "inputs_embeds": buffers["first"]}
            self._plans["embed"].bind(PROMPT, {}, ends)
            self._plans["embed"].bind(STEP, {"input_ids": (1, 1)}, ends)

    @property
    def _vocabulary(self) -> int:
        size = self.artifact.manifest.graphs["decoder"].outputs[0].shape[-1]
        text = self.artifact.manifest.text
        return size if isinstance(size, int) else 0 if text is None else text.vocab_size

    def _look(self, name: str, pixels: NDArray[np.float32], most: int) -> NDArray[Any]:
        """What a graph says of tiles, `most` of them at a time."""
        if name not in self._plans:
            raise EngineError(f"the artifact has no graph {name!r}", where=self.artifact.folder)
        graph, device = self.artifact.manifest.graphs[name], self._device
        fact, found = graph.outputs[0], []
        for begin in range(0, len(pixels), most):
            part = np.ascontiguousarray(pixels[begin : begin + most], dtype=graph.inputs[0].dtype)
            out = np.empty(_shape(fact.shape, len(part)), dtype=fact.dtype)
            device.put(self._buffers["pixels"], part)
            ends = {graph.inputs[0].name: self._buffers["pixels"], fact.name: self._buffers["seen"]}
            self._plans[name].bind(0, {graph.inputs[0].name: part.shape}, ends)
            self._plans[name].run(0)
            device.get(out, self._buffers["seen"])
            device.wait()
            found.append(out)
        return np.concatenate(found)

    def _place(self, ids: NDArray[np.int64], features: NDArray[np.float32]) -> list[NDArray[Any]]:
        """Put what the decoder reads of the prompt to its place; the arrays have to live until that is done."""
        device, text = self._device, self.artifact.manifest.text
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if "embed" not in self._plans:
            device.put(self._buffers["first"], ids)
            return [ids]
        places = np.zeros(len(ids), dtype=bool) if text is None or text.images is None else ids == text.images.id
        if int(places.sum()) != len(features):
            raise EngineError(f"the prompt holds {int(places.sum())} image tokens, the images give {len(features)}")
        # The embedding may have no row for the image token, whose place a feature takes.
        words, features = np.where(places, 0, ids), np.ascontiguousarray(features, dtype=np.float32)
        device.put(self._buffers["ids"], words)
        self._plans["embed"].bind(PROMPT, {"input_ids": (1, len(ids))}, {})
        self._plans["embed"].run(PROMPT)
        edges = np.flatnonzero(np.diff(places.astype(np.int8), prepend=0, append=0))
        done, row = 0, 4 * features.shape[-1]
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            piece = features[done : done + end - begin]
            device.put(self._buffers["first"] + int(begin) * row, piece)
            done += len(piece)
        return [words, features]

    def _logits(self, held: list[NDArray[Any]]) -> NDArray[np.float32]:
        """Wait for the logits; what was copied to the device is `held` until then."""
        logits = np.empty(self._vocabulary, dtype=self.artifact.manifest.graphs["decoder"].outputs[0].dtype)
        self._device.get(logits, self._buffers["logits"])
        self._device.wait()
        held.clear()
        return logits.astype(np.float32, copy=False)


def _shape(shape: tuple[int | str, ...], first: int) -> Shape:
    """Of an output, whose first size follows the input's."""
    return (first, *(int(size) for size in shape[1:]))


def _bytes(dtype: str, shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
