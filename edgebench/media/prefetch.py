"""Pictures made ready by several threads, in order, a bounded number ahead of whoever takes them."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgebench.errors import SampleError
from edgebench.media.decode import MAX_PIXELS, ImagePath, decode
from edgebench.media.perturb import Perturbation, perturb
from edgebench.media.pixels import pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from edgebench.manifest import Preprocess

STAGES = ("read", "decode", "perturb", "pixels")


@dataclass(frozen=True)
class Source:
    """One picture to come."""

    name: str
    read: Callable[[], bytes]
    """Gives the encoded bytes; a SampleError is kept."""


@dataclass
class Loaded:
    """One picture, ready, or the reason why not."""

    name: str
    tiles: NDArray[Any] | None = None
    """As `edgebench.media.pixels.pixels` gives it."""
    error: str | None = None
    stages_ns: dict[str, int] = field(default_factory=dict)
    """Wall clock of its own thread by stage."""


def prefetch(
    sources: Iterable[Source],
    preprocess: Preprocess,
    *,
    threads: int = 2,
    ahead: int = 8,
    perturbation: Perturbation | None = None,
    image_path: ImagePath = "lossless",
    max_pixels: int = MAX_PIXELS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Iterator[Loaded]:
    """Make pictures ready in the background and give them in the order of `sources`.

    At most `ahead` pictures are held beside the one that was given last; with `threads=0` nothing runs in the
    background. A picture that cannot be read is given with its reason. Whatever order the threads finish in, the
    pixels are the same.

    Args:
        sources: read lazily, never more than `ahead` in advance.
        preprocess: the artifact's own.
        threads: how many.
        ahead: how many pictures are made in advance, at least 1.
        perturbation: put on every picture.
        image_path: as in `decode`.
        max_pixels: as in `decode`.
        clock: nanoseconds.
    """

    def load(source: Source) -> Loaded:
        found = Loaded(source.name)
        at = clock()

        def done(stage: str) -> None:
            nonlocal at
            now = clock()
            found.stages_ns[stage] = now - at
            at = now

        try:
            data = source.read()
            done("read")
            picture = decode(
                data,
                orientation=preprocess.orientation,
                alpha=preprocess.alpha,
                image_path=image_path,
                max_pixels=max_pixels,
            )
            done("decode")
            if perturbation is not None:
                picture = perturb(picture, perturbation, source.name)
                done("perturb")
            found.tiles = pixels(picture, preprocess)
            done("pixels")
        except SampleError as error:
            found.error = str(error)
        return found

    if threads == 0:
        yield from map(load, sources)
        return
    waiting: deque[Future[Loaded]] = deque()
    upcoming = iter(sources)
    with ThreadPoolExecutor(threads, thread_name_prefix="edgebench-media") as pool:
        try:
            for source in upcoming:
                waiting.append(pool.submit(load, source))
                if len(waiting) >= max(1, ahead):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
