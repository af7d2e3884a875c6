"""Blocks of int8 and int4: nearest values, and packing as the runtimes read it."""

from __future__ import annotations

import numpy as np
import pytest

from edgebench.export.blocks import block_of, int4_rows, int8_rows, nibbles, symmetric_int4_rows


def weights() -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(7, 128)).astype(np.float32)
    rows[3, :64] = 0
    rows[4] = 0.5 + np.abs(rows[4])
    return rows


@pytest.mark.parametrize(("make", "most"), [(int8_rows, 127), (symmetric_int4_rows, 7)])
def test_symmetric_blocks_are_the_nearest(make: object, most: int) -> None:
    rows = weights()
    values, scales = make(rows, 32)  # type: ignore[operator]
    restored = (values.reshape(7, 4, 32) * scales[:, :, None]).reshape(7, 128)
    assert values.dtype == np.int8
    assert np.abs(values).max() == most
    assert (np.abs(restored - rows) <= np.repeat(scales, 32, axis=1) / 2 + 1e-6).all()
    assert (restored[3, :64] == 0).all()


def test_asymmetric_int4_holds_zero_exactly_and_is_the_nearest() -> None:
    rows = weights()
    values, scales, zeros = int4_rows(rows, 32)
    restored = ((values.reshape(7, 4, 32).astype(int) - zeros[:, :, None]) * scales[:, :, None]).reshape(7, 128)
    assert values.max() <= 15
    assert (np.abs(restored - rows) <= np.repeat(scales, 32, axis=1) + 1e-6).all()
    assert (restored[3, :64] == 0).all()
    symmetric, wide = symmetric_int4_rows(rows[4:5], 32)
    other = (symmetric.reshape(1, 4, 32) * wide[:, :, None]).reshape(1, 128)
    assert np.abs(restored[4] - rows[4]).mean() < np.abs(other[0] - rows[4]).mean()


def test_nibbles_put_the_first_value_low() -> None:
    assert nibbles(np.array([[1, 2, 3]], np.uint8)).tolist() == [[0x21, 0x03]]


def test_rows_are_independent() -> None:
    rows = weights()
    whole, parts = int8_rows(rows, 64), [int8_rows(rows[k : k + 2], 64) for k in range(0, 7, 2)]
    assert np.array_equal(whole[0], np.concatenate([p[0] for p in parts]))
    assert np.array_equal(whole[1], np.concatenate([p[1] for p in parts]))


def test_which_matrices_are_quantized() -> None:
    assert block_of(4096, 4096, 8) == 32
    assert block_of(4096, 4096, 4) == 32
    assert block_of(48, 4096, 8) == 16
    assert block_of(100, 4096, 8) is None
    assert block_of(64, 32, 8) is None
