"""int8 activations of a decoder that keep their meaning: channels that run high are made even before they are rounded.

What goes into query, key, value, gate and up comes from an RMSNorm, whose weight can take a factor for each channel
for free: the norm gives x / s and the products multiply by W * s, the same numbers in the real ones. With
`s = max|x| ** A / max|W| ** (1 - A)` (SmoothQuant, Xiao et al. 2023) one int8 range fits all channels. The maxima come
from a forward pass of the checkpoint over fixed questions in plain numpy, layer by layer, weights read a few rows at
a time, so that it needs no more memory than the rest of the export.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench import wording

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from edgebench.export.shards import Weights

ALPHA = 0.7
"""A: how much of the difficulty moves from activations to weights; .5 and .85 were worse on a real model."""
TOKENS = 256


@dataclass(frozen=True)
class Smoothing:
    """The factors of a decoder."""

    columns: dict[str, NDArray[np.float32]]
    """Norm, such as 'layers.0.input_layernorm' -> s, float32 [hidden]."""
    calibration: str
    """What the maxima were taken from, with its hash."""


def smoothing(
    config: Any,
    weights: Weights,
    name_of: Callable[[str], str],
    rotary: tuple[NDArray[np.float32], NDArray[np.float32]],
    encode: Callable[[str], list[int]],
    say: Callable[[str], None],
) -> Smoothing:
    """Run the decoder over fixed questions and set the factors.

    Args:
        config: transformers' configuration of the language model.
        weights: the checkpoint's.
        name_of: parameter -> tensor of the checkpoint.
        rotary: cosine and sine, float32 [positions, head_dim / 2] each.
        encode: text -> token ids.
        say: called with the layer that begins.
    """
    ids = encode(questions())[:TOKENS]
    forward = _Forward(config, weights, name_of, rotary)
    hidden = np.concatenate([forward.rows("embed_tokens.weight", i, i + 1) for i in ids])
    columns: dict[str, NDArray[np.float32]] = {}
    for layer in range(config.num_hidden_layers):
        say(f"measuring activations, layer {layer + 1} of {config.num_hidden_layers}")
        hidden = forward.layer(hidden, layer, columns)
    digest = hashlib.sha256(np.array(ids, dtype="<i8").tobytes()).hexdigest()
    return Smoothing(columns, f"{len(ids)} tokens of fixed questions, sha256:{digest}")


def questions() -> str:
    """The fixed questions, in the benchmark's words; no answer and no benchmark item is among them."""
    pairs = ((wording.IMAGE, wording.GENERATED), (wording.VIDEO, wording.MANIPULATED), (wording.IMAGE, wording.FORGED))
    lines = [f"{text}\nA. {first}\nB. {second}" for text, (first, second) in pairs]
    caption = "The mayor opens the new bridge across the river in front of a large crowd, 12 May."
    lines += [wording.IMAGE_TEXT.format(caption=caption), wording.MASKS, wording.MASK_SETS, wording.FRAMES]
    lines += [f"{letter}. {wording.frame_list(range(k, k + 3))}" for k, letter in enumerate("ABCD")]
    lines.append(wording.BOXES.format(width=640, height=480))
    lines += [f"{letter}. {wording.forged_parts([(7 * k, 12, 310, 94 + k)])}" for k, letter in enumerate("ABCD")]
    lines.append("Answer with the option's letter from the given choices directly.")
    return "\n".join(lines)


class _Forward:
    """A Llama-shaped decoder in numpy: RMSNorm, rotary grouped-query attention, SwiGLU."""

    def __init__(
        self,
        config: Any,
        weights: Weights,
        name_of: Callable[[str], str],
        rotary: tuple[NDArray[np.float32], NDArray[np.float32]],
    ) -> None:
        self.c, self.weights, self.name_of, self.rotary = config, weights, name_of, rotary

    def rows(self, parameter: str, begin: int = 0, end: int | None = None) -> NDArray[np.float32]:
        return self.weights.read(self.name_of(parameter), begin, end)

    def layer(
        self, hidden: NDArray[np.float32], layer: int, columns: dict[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        at = f"layers.{layer}"
        x = self.norm(hidden, f"{at}.input_layernorm")
        query, key, value = (self.linear(x, f"{at}.self_attn.{n}_proj") for n in "qkv")
        columns[f"{at}.input_layernorm"] = _factors(x, [w for _, w in (query, key, value)])
        attended = self.attention(query[0], key[0], value[0])
        hidden = hidden + self.linear(attended, f"{at}.self_attn.o_proj")[0]
        x = self.norm(hidden, f"{at}.post_attention_layernorm")
        (gate, gate_most), (up, up_most) = (self.linear(x, f"{at}.mlp.{n}_proj") for n in ("gate", "up"))
        columns[f"{at}.post_attention_layernorm"] = _factors(x, [gate_most, up_most])
        with np.errstate(over="ignore"):
            product = gate / (1 + np.exp(-gate)) * up
        out: NDArray[np.float32] = hidden + self.linear(product, f"{at}.mlp.down_proj")[0]
        return out

    def norm(self, hidden: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        power = np.mean(hidden.astype(np.float64) ** 2, axis=-1, keepdims=True)
        scaled = hidden / np.sqrt(power + self.c.rms_norm_eps) * self.rows(f"{name}.weight")
        found: NDArray[np.float32] = scaled.astype(np.float32)
        return found

    def linear(self, x: NDArray[np.float32], module: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """X times the weight's transpose and its bias; and the largest weight of each input channel."""
        source = self.name_of(f"{module}.weight")
        count, inputs = self.weights.tensors[source].shape
        step = self.weights.rows_at_a_time(source)
        out, most = np.empty((len(x), count), np.float32), np.zeros(inputs, np.float32)
        for begin in range(0, count, step):
            part = self.weights.read(source, begin, min(count, begin + step))
            out[:, begin : begin + len(part)] = x @ part.T
            np.maximum(most, np.abs(part).max(axis=0), out=most)
        try:
            bias = self.rows(f"{module}.bias")
        except KeyError:
            return out, most
        return out + bias, most

    def attention(
        self, query: NDArray[np.float32], key: NDArray[np.float32], value: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        tokens, heads, groups = len(query), self.c.num_attention_heads, self.c.num_key_value_heads
        q, k, v = (t.reshape(tokens, n, -1).swapaxes(0, 1) for t, n in ((query, heads), (key, groups), (value, groups)))
        q, k = self.turned(q), self.turned(k)
        mask = np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)
        out = []
        for head in range(heads):
            group = head * groups // heads
            scores = q[head] @ k[group].T / np.sqrt(np.float32(q.shape[-1])) + mask
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out.append(scores / scores.sum(axis=-1, keepdims=True) @ v[group])
        found: NDArray[np.float32] = np.concatenate(out, axis=-1)
        return found

    def turned(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rotated by position; [heads, tokens, head_dim]."""
        cosine, sine = (table[: x.shape[1]] for table in self.rotary)
        low, high = np.split(x, 2, axis=-1)
        out: NDArray[np.float32] = np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)
        return out


def _factors(x: NDArray[np.float32], most: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    activations = np.maximum(np.abs(x).max(axis=0), 1e-5)
    weights = np.maximum(np.max(most, axis=0), 1e-5)
    factors = activations**ALPHA / weights ** (1 - ALPHA)
    found: NDArray[np.float32] = (factors / np.exp(np.log(factors).mean())).astype(np.float32)
    return found
