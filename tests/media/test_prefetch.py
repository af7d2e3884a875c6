"""Prefetching: in order, bounded, with reasons and times."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest

from edgebench.errors import SampleError
from edgebench.manifest import Preprocess
from edgebench.media.perturb import Perturbation
from edgebench.media.prefetch import STAGES, Source, prefetch
from tests import twins

ASK = Preprocess("resize", 16, 16)


def sources(count: int, taken: list[int] | None = None) -> list[Source]:
    def one(k: int) -> Source:
        def read() -> bytes:
            if taken is not None:
                taken.append(k)
            time.sleep(0.002 * (k % 3))
            if k % 7 == 3:
                raise SampleError("is gone")
            return twins.encoded(twins.picture(k, 20, 10))

        return Source(f"p{k}", read)

    return [one(k) for k in range(count)]


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_order_reasons_and_times(threads: int) -> None:
    found = list(prefetch(sources(30), ASK, threads=threads, perturbation=Perturbation("noise", 1)))
    assert [f.name for f in found] == [f"p{k}" for k in range(30)]
    for k, loaded in enumerate(found):
        if k % 7 == 3:
            assert (loaded.tiles, loaded.error) == (None, "is gone")
        else:
            assert loaded.tiles is not None
            assert loaded.tiles.shape == (1, 3, 16, 16)
            assert tuple(loaded.stages_ns) == STAGES
            assert all(ns > 0 for ns in loaded.stages_ns.values())


def test_threads_change_no_pixel() -> None:
    one, many = (
        [f.tiles for f in prefetch(sources(20), ASK, threads=threads, perturbation=Perturbation("noise", 3))]
        for threads in (1, 4)
    )
    assert all((a is None and b is None) or np.array_equal(a, b) for a, b in zip(one, many, strict=True))


def test_no_more_than_asked_for_is_held() -> None:
    taken: list[int] = []
    endless = (
        Source(f"{k}", lambda k=k: taken.append(k) or twins.encoded(twins.picture(1, 20, 10)))
        for k in itertools.count()
    )  # type: ignore[misc]
    stream = prefetch(endless, ASK, threads=4, ahead=5)
    for _ in range(10):
        next(stream)
    time.sleep(0.1)
    assert max(taken) + 1 <= 10 + 5
    stream.close()  # type: ignore[attr-defined]
    time.sleep(0.05)
    assert not [t for t in threading.enumerate() if t.name.startswith("edgebench-media")]


def test_a_source_that_fails_ends_the_stream_with_its_error() -> None:
    def broken() -> bytes:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(prefetch([*sources(3), Source("x", broken)], ASK))
