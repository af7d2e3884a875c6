"""A language model's own next-token distributions over a fixed text, and how far a graph is from them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.cache import empty_cache
from edgebench.checkpoints.quiet import quiet
from edgebench.export.parity import compare, reader, session

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.manifest import Decoder, Graph, ParityRow

WINDOW, WINDOWS = 512, 4
"""Tokens of a window, and most windows."""
PREFIX, STEPS = 32, 32
"""Of the first window: tokens that are read at once, and tokens that follow one by one."""
AGAINST = "transformers, eager, fp32"


@dataclass(frozen=True)
class Window:
    """A piece of the text and what the checkpoint says of it."""

    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    """[tokens, vocab]."""

    @property
    def targets(self) -> NDArray[np.int64]:
        """The token that follows each; -1 behind the last."""
        return np.append(self.ids[1:], -1)


def parity_text() -> str:
    """The fixed text: plain English about pictures, written for this purpose."""
    return (files("edgebench") / "data" / "parity_text.txt").read_text(encoding="utf-8")


def reference_windows(model: Any, tokenizer: Path) -> list[Window]:
    """The checkpoint's logits over the fixed text, in windows that know nothing of each other."""
    import torch
    from tokenizers import Tokenizer

    ids = np.array(Tokenizer.from_file(str(tokenizer)).encode(parity_text()).ids, dtype=np.int64)
    found = []
    for begin in range(0, min(len(ids), WINDOW * WINDOWS), WINDOW):
        part = ids[begin : begin + WINDOW]
        with quiet(), torch.inference_mode():
            logits = model(input_ids=torch.from_numpy(part[None]), use_cache=False).logits[0]
        found.append(Window(part, logits.float().numpy()))
    return found


def parity_rows(folder: Path, graph: Graph, decoder: Decoder, windows: list[Window]) -> list[ParityRow]:
    """The graph over the same windows at once, and over the beginning of the first token by token.

    Raises:
        ParityError: the graph does not load, or gives numbers that are not finite.
    """
    forward = reader(session(folder / graph.model.file), graph, decoder)
    read = np.concatenate([forward(window.ids[None], empty_cache(decoder))[0] for window in windows])
    reference = np.concatenate([window.logits for window in windows])
    tokens = sum(len(window.ids) for window in windows)
    first = windows[0]
    steps = first.ids[PREFIX : PREFIX + STEPS]
    _, cache = forward(first.ids[None, :PREFIX], empty_cache(decoder))
    said = []
    for token in steps:
        logits, cache = forward(np.array([[token]]), cache)
        said.append(logits[0])
    return [
        compare(
            "text",
            AGAINST,
            f"the fixed text, {tokens} tokens in {len(windows)} windows",
            reference,
            read,
            top1="argmax",
            targets=np.concatenate([window.targets for window in windows]),
        ),
        compare(
            "decode",
            AGAINST,
            f"{len(steps)} tokens of it, one by one behind {PREFIX}",
            first.logits[PREFIX : PREFIX + STEPS],
            np.stack(said),
            top1="argmax",
        ),
    ]
