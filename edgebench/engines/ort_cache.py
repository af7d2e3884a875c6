"""The decoder's KV cache in ONNX Runtime: grown in place where the graph allows it, else passed from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.cache import cache_names, empty_cache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.manifest import Decoder

STEP = 64
"""Capacities are multiples of it."""
PLAIN = {"input_ids", "attention_mask", "logits_index"}
"""Inputs of which a step changes the token and lengthens the mask."""
LINE = 64
"""Bytes of a cache line."""


class PassedCache:
    """Each call takes the past and gives the present, one token longer: any graph."""

    def __init__(self, session: Any, decoder: Decoder) -> None:
        self.session, self.decoder = session, decoder
        self.names = cache_names(decoder.layers)
        self.past = 0
        self._values: list[Any] = []

    def begin(self, tokens: int, keep: int = 0, rows: int = 1) -> None:
        """Forget everything, whatever is to be kept; `tokens` are about to be read in each of `rows` prompts."""
        import onnxruntime

        self._values = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in empty_cache(self.decoder, rows)]
        self.past = 0

    def run(self, inputs: dict[str, NDArray[Any]], tokens: int) -> NDArray[Any]:
        """One call of the decoder over `tokens` more tokens; its logits."""
        import onnxruntime

        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(v)) for name, v in inputs.items()}
        past_names, present_names = self.names
        values |= dict(zip(past_names, self._values, strict=True))
        logits, *self._values = self.session.run_with_ort_values(["logits", *present_names], values)
        self.past += tokens
        found: NDArray[Any] = logits.numpy().copy()
        return found


class InPlaceCache:
    """Past and present are one buffer with room for what comes: GroupQueryAttention writes only the new tokens.

    Buffers are bound once and stay for the next prompt; they are made twice as long when they are full. Inputs stay
    bound too, and what changes is written into them; and so do the logits, where one position's are wanted.
    """

    def __init__(self, session: Any, decoder: Decoder) -> None:
        self.session, self.decoder = session, decoder
        self.names = cache_names(decoder.layers)
        self.past = self.capacity = 0
        self.rows = 1
        self._buffers: list[Any] = []
        self._binding: Any = None
        self._inputs: dict[str, NDArray[Any]] = {}
        self._logits: NDArray[Any] | None = None
        self._bound = False
        self._ones = np.ones((1, 0), dtype=np.int64)

    def begin(self, tokens: int, keep: int = 0, rows: int = 1) -> None:
        """Forget everything but the first `keep` tokens; `tokens` of each of `rows` prompts will be held after them."""
        self.past = keep
        if rows != self.rows:
            self.past, self.rows, self.capacity, self._logits = 0, rows, 0, None
        if tokens + STEP > self.capacity:
            self._make(tokens + STEP)

    def run(self, inputs: dict[str, NDArray[Any]], tokens: int) -> NDArray[Any]:
        """One call of the decoder over `tokens` more tokens; its logits."""
        if self.past + tokens > self.capacity:
            self._make(max(self.past + tokens, 2 * self.capacity))
        for name, array in inputs.items():
            self._bind(name, array)
        one = inputs["logits_index"].size == 1 if "logits_index" in inputs else False
        self._bind_logits(one)
        self.session.run_with_iobinding(self._binding)
        self.past += tokens
        if self._bound and self._logits is not None:
            return self._logits.copy()
        logits: NDArray[Any] = self._binding.get_outputs()[0].numpy().copy()
        if one:
            self._logits = logits.copy()
        return logits

    def step(self, token: int) -> NDArray[np.float32] | None:
        """As `run` of one token behind another, float32 [vocab], by the shortest way; None where it is another case.

        The inputs of `run`, made and bound anew for each token, are a hundredth of a small model's time.
        """
        import onnxruntime

        ids, past = self._inputs.get("input_ids"), self.past + 1
        logits = self._logits if self._bound else None
        if ids is None or ids.size != 1 or logits is None or past > self.capacity or self._inputs.keys() != PLAIN:
            return None
        ids[...] = token
        mask = self._inputs["attention_mask"] = self._ones[:, :past]
        self._binding.bind_ortvalue_input("attention_mask", onnxruntime.OrtValue.ortvalue_from_numpy(mask))
        self.session.run_with_iobinding(self._binding)
        self.past = past
        found: NDArray[np.float32] = logits[0, 0].astype(np.float32)
        return found

    def _bind(self, name: str, array: NDArray[Any]) -> None:
        """On the CPU a value does not copy its array: both have to live until the call is over."""
        import onnxruntime

        held = self._inputs.get(name)
        if held is not None and held.shape == array.shape:
            held[...] = array
            return
        held = self._inputs[name] = np.array(array, order="C")
        self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(held))

    def _bind_logits(self, one: bool) -> None:
        """A buffer of their own for those of one position, once its shape is known."""
        import onnxruntime

        if one and self._logits is not None:
            if not self._bound:
                self._binding.bind_ortvalue_output("logits", onnxruntime.OrtValue.ortvalue_from_numpy(self._logits))
            self._bound = True
        else:
            self._binding.bind_output("logits")
            self._bound = False

    def _make(self, tokens: int) -> None:
        """Buffers for so many tokens, with what the old ones hold."""
        import onnxruntime

        self.capacity = -(-tokens // STEP) * STEP
        d = self.decoder
        held = [buffer.numpy()[:, :, : self.past].copy() for buffer in self._buffers] if self.past else []
        self._buffers.clear()
        self._inputs.clear()
        self._ones = np.ones((1, self.capacity), dtype=np.int64)
        self._binding, self._bound = self.session.io_binding(), False
        self._binding.bind_output("logits")
        for number, (past_name, present_name) in enumerate(zip(*self.names, strict=True)):
            array = _aligned((self.rows, d.kv_heads, self.capacity, d.head_dim), d.cache_dtype)
            if held:
                array[:, :, : self.past] = held[number]
            buffer = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            self._binding.bind_ortvalue_input(past_name, buffer)
            self._binding.bind_ortvalue_output(present_name, buffer)
            self._buffers.append(buffer)


def _aligned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Zeros that begin at a cache line, as ONNX Runtime's own buffers do: numpy's begin at any 16 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + LINE, dtype=np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(dtype).reshape(shape)
