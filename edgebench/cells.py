"""One sample under several perturbations, answered without a clock: what they share is made once.

The pictures are decoded once, and the prompt's tokens are found once. A perturbation that leaves the pictures as they
were takes the answer to the plain ones; equal pictures are answered once, equal tiles seen once, and single tiles of
several perturbations together. The engine works while a thread makes the next pictures ready, and sees the next tiles
while it reads a prompt, where it can: no time would be one question's own, so that none is kept.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.batches import BatchRunner, Outcome, Prepared, why
from edgebench.errors import SampleError
from edgebench.media.decode import decode
from edgebench.media.perturb import perturb
from edgebench.media.pixels import pixels
from edgebench.prompts.placing import check_prompt, chosen, placing
from edgebench.sharing import same

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess
    from edgebench.prompts.conversation import Conversation
    from edgebench.runner import Answer, HowToAsk, Query

    Picture = NDArray[np.uint8]
    Look = Callable[[], list[NDArray[np.float32]]]

AT_ONCE = 5
"""Tiles, of one cell at least, in one call of the vision graph. On a CPU more of them gain nothing: of the demo model on
one thread 25 tiles take 40 ms by fives, 43 ms at once and 49 ms alone, but 25 times eight tiles least as eights.

Prompts are read one by one: several at once gain little, and change last bits at some lengths."""
FEATURE_BYTES = 64 << 20
"""Of the features of tiles that may come again within the sample."""


@dataclass(frozen=True)
class Cells:
    """A sample's question, to be put under each perturbation."""

    query: Query
    hows: tuple[HowToAsk, ...]
    """They differ in the perturbation alone."""
    plain: Answer | None
    """What was said to the pictures as they are; None where that is not known."""


@dataclass(frozen=True)
class _Ready:
    """A cell that is ready for the engine."""

    prepared: Prepared
    tile_keys: list[bytes]


class CellRunner(BatchRunner):
    """A runner that is also asked about one sample under several perturbations."""

    _same_together: bool | None = None
    _eyes: ThreadPoolExecutor | None = None
    """Sees tiles beside the reading of prompts; None with an engine that does one thing at a time."""

    def ask_cells(self, cells: Cells) -> Iterator[dict[int, Outcome]]:
        """Answer them: number of a cell -> answer or reason, a few at a time, each once."""
        before, self._seen, self._apart = self.how, None, 0
        try:
            preprocess = None if self.artifact is None else self.artifact.manifest.preprocess
            if preprocess is None or self.chat is not None or self._captions is not None:
                for number, how in enumerate(cells.hows):
                    yield {number: self._alone(replace(cells.query, how=how))}
            else:
                self.how = cells.hows[0]
                yield from self._ask_shared(cells, preprocess)
        finally:
            self.how = before

    def _ask_shared(self, cells: Cells, preprocess: Preprocess) -> Iterator[dict[int, Outcome]]:
        self._features: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        maker = _Maker(cells, preprocess, self.conversation)
        answered: dict[int, Outcome] = {} if cells.plain is None else {-1: (cells.plain, None)}
        equals: dict[int, list[int]] = {}
        group: list[_Ready] = []
        looking: deque[tuple[list[_Ready], Look]] = deque()

        def told(found: dict[int, Outcome]) -> dict[int, Outcome]:
            answered.update(found)
            return found | {k: outcome for number, outcome in found.items() for k in equals.pop(number, [])}

        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="edgebench-cells"))
            self._eyes = None
            if getattr(self.engine, "sees_aside", False) and self.conversation is not None:
                self._eyes = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="edgebench-eyes"))
            numbers = iter(range(len(cells.hows)))
            waiting = deque((k, pool.submit(maker.make, k)) for k in islice(numbers, 2 * AT_ONCE))
            while waiting:
                number, future = waiting.popleft()
                made = future.result()
                waiting.extend((k, pool.submit(maker.make, k)) for k in islice(numbers, 1))
                if isinstance(made, str):
                    yield told({number: (None, made)})
                elif isinstance(made, int) and made in answered:
                    yield told({number: answered[made]})
                elif isinstance(made, int):
                    equals.setdefault(made, []).append(number)
                else:
                    if group and (sum(len(one.tile_keys) for one in [*group, made]) > AT_ONCE):
                        looking.append((group, self._looking(group)))
                        group = []
                        if self._eyes is None or len(looking) > 1:
                            yield told(self._answered(*looking.popleft()))
                    group.append(made)
            if group:
                looking.append((group, self._looking(group)))
            while looking:
                yield told(self._answered(*looking.popleft()))

    def _looking(self, group: list[_Ready]) -> Look:
        """What waits for the features of a group, which the engine is about to see."""
        if self._eyes is None:
            return lambda: self._look(group)
        return self._eyes.submit(self._look, group).result

    def _answered(self, group: list[_Ready], look: Look) -> dict[int, Outcome]:
        try:
            return self._asked(group, look)
        except Exception as error:  # too many for the memory, or one of them: each alone
            if len(group) == 1:
                return {group[0].prepared.number: (None, why(error))}
            found: dict[int, Outcome] = {}
            for one in group:
                found |= self._answered([one], self._looking([one]))
            return found

    def _asked(self, group: list[_Ready], look: Look) -> dict[int, Outcome]:
        if self.conversation is None:
            return {one.prepared.number: self._batch([one.prepared])[0] for one in group}
        found, begin, features = {}, 0, look()
        for one in (r.prepared for r in group):
            tiles = len(features) if not one.pictures else begin + sum(p.tiles for p in one.pictures)
            own = chosen(np.concatenate(features[begin:tiles]), one.pictures) if one.pictures else self._none()
            begin = tiles
            first = self.engine.prefill(one.ids, own)
            tokens: tuple[list[int], str] = ([], "logits")
            if self.how.scoring != "logits":
                tokens = self._generate(first, len(one.ids), self.conversation.text)
            found[one.number] = self._said(one, first, *tokens, self.conversation)
        return found

    def _none(self) -> NDArray[np.float32]:
        return np.zeros((0, self._hidden()), dtype=np.float32)

    def _look(self, group: list[_Ready]) -> list[NDArray[np.float32]]:
        """The features of each tile, in order; one that the engine has seen in this sample is not seen again."""
        keys = [key for one in group for key in one.tile_keys]
        tiles = [tile for one in group for picture in one.prepared.tiles for tile in picture]
        if not self._free(tiles):
            sizes = [len(one.tile_keys) for one in group]
            cuts = np.cumsum(sizes)[:-1]
            return [f for some in np.split(np.arange(len(tiles)), cuts) for f in self._see([tiles[k] for k in some])]
        new = {key: tile for key, tile in zip(keys, tiles, strict=True) if key not in self._features}
        found = {key: self._features[key] for key in keys if key in self._features}
        found |= dict(zip(new, self._see(list(new.values())), strict=True))
        for key in dict.fromkeys(keys):
            self._features[key] = found[key]
            self._features.move_to_end(key)
        while len(self._features) > 1 and sum(f.nbytes for f in self._features.values()) > FEATURE_BYTES:
            self._features.popitem(last=False)
        return [found[key] for key in keys]

    def _see(self, tiles: list[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """The features of each tile, float32 [tokens, hidden], by one call of the engine."""
        if not tiles:
            return []
        seen = self.engine.see(np.stack(tiles))
        return list(seen.reshape(len(tiles), -1, seen.shape[-1]))

    def _free(self, tiles: list[NDArray[np.float32]]) -> bool:
        """Whether tiles may go together in any way: with an engine that gives each the same features to the last bit.

        It is tried once, with the first tiles that are more than one.
        """
        if self._same_together is None and len(tiles) > 1:
            together, alone = self._see(tiles), [self._see([tile])[0] for tile in tiles]
            self._same_together = all(map(np.array_equal, together, alone))
        return self._same_together is True


class _Maker:
    """Makes cells ready, in a thread of its own."""

    def __init__(self, cells: Cells, preprocess: Preprocess, conversation: Conversation | None) -> None:
        self._cells, self._preprocess, self._conversation = cells, preprocess, conversation
        self._decoded: list[Picture] | str | None = None
        self._plain: Hashable = None
        self._first: dict[Hashable, int] = {}
        self._prompts: dict[Any, tuple[list[Any], NDArray[np.int64]]] = {}

    def make(self, number: int) -> _Ready | int | str:
        """A cell; the number of the cell that it is equal to, -1 for the plain pictures; or why it cannot be asked."""
        try:
            return self._make(number)
        except Exception as error:  # a sample's fault, as a rule
            return why(error)

    def _make(self, number: int) -> _Ready | int:
        query, how = self._cells.query, self._cells.hows[number]
        decoded = self._pictures(how)
        shown = decoded
        if how.perturbation is not None:
            shown = [perturb(p, how.perturbation, query.id, frame=k) for k, p in enumerate(decoded)]
        key = same(shown, query, how)
        if self._cells.plain is not None:
            self._first.setdefault(self._plain, -1)
        if (first := self._first.setdefault(key, number)) != number:
            return first
        conversation, p = self._conversation, self._preprocess
        tiles = [pixels(picture, p) for picture in shown]
        if conversation is None and len(tiles) != 1:
            raise SampleError(f"a classifier takes one image, the sample has {len(tiles)}")
        shapes = tuple(picture.shape for picture in shown)
        if shapes not in self._prompts:
            pictures, ids = [], np.zeros(0, dtype=np.int64)
            if conversation is not None:
                if (images := conversation.text.images) is not None:
                    pictures = [placing(s[:2], len(t), p, images) for s, t in zip(shapes, tiles, strict=True)]
                ids = conversation.ids(query.question, pictures, style=how.prompt_style)
                check_prompt(ids, pictures, conversation.text)
            self._prompts[shapes] = pictures, ids
        keys = [hashlib.sha256(np.ascontiguousarray(tile).data).digest() for t in tiles for tile in t]
        return _Ready(Prepared(number, query, tiles, *self._prompts[shapes]), keys)

    def _pictures(self, how: HowToAsk) -> list[Picture]:
        """The sample's pictures, decoded once."""
        if self._decoded is None:
            p, path, most = self._preprocess, how.image_path, how.max_pixels
            try:
                self._decoded = [
                    decode(i.read(), orientation=p.orientation, alpha=p.alpha, image_path=path, max_pixels=most)
                    for i in self._cells.query.images
                ]
            except SampleError as error:
                self._decoded = why(error)
            else:
                self._plain = same(self._decoded, self._cells.query, how)
        if isinstance(self._decoded, str):
            raise SampleError(self._decoded)
        return self._decoded
