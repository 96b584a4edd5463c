"""Rows in vector registers against NumPy, for every width of a row and number of terms."""

from __future__ import annotations

import numpy as np
import pytest

from hingeline import _vector
from hingeline._numba import uncached


@uncached
def dot(indices, values, lo, hi, w, stride, out, at):
    _vector.rows_dot(indices, values, lo, hi, w, stride, out, at)


@uncached
def add(indices, values, lo, hi, steps, w, stride):
    _vector.rows_add(indices, values, lo, hi, steps, w, stride)


@uncached
def step(before, start, table, n, stride, out, at):
    _vector.max_plus(before, start, table, n, stride, out, at)


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stride", [1, 3, 4, 7, 8, 12, 15, 20, 28])
@pytest.mark.parametrize("terms", [0, 1, 3, 4, 5, 19])
def test_rows(compiled, dtype, stride, terms):
    rng = np.random.default_rng(stride * 100 + terms)
    W = rng.normal(size=(30, stride))
    indices = rng.integers(0, 30, terms + 5).astype(np.int32)  # with repetitions
    values = rng.normal(size=terms + 5).astype(dtype)
    lo, hi = 2, 2 + terms
    chosen, factors = indices[lo:hi], values[lo:hi, None].astype(np.float64)

    out = np.full(stride + 4, 7.0)
    (dot if compiled else _vector.rows_dot)(indices, values, lo, hi, W.ravel(), stride, out, 2)
    np.testing.assert_allclose(out[2 : 2 + stride], (factors * W[chosen]).sum(0), atol=1e-12)
    assert (out[[0, 1, -2, -1]] == 7.0).all()  # nothing beside the row was touched

    steps = rng.normal(size=stride)
    expected = W.copy()
    np.add.at(expected, chosen, factors * steps)
    flat = W.ravel().copy()
    (add if compiled else _vector.rows_add)(indices, values, lo, hi, steps, flat, stride)
    np.testing.assert_allclose(flat.reshape(W.shape), expected, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("stride", [1, 3, 4, 7, 8, 12, 15, 28])
@pytest.mark.parametrize("n", [1, 3, 4, 6, 23])
def test_max_plus(compiled, stride, n):
    rng = np.random.default_rng(stride * 100 + n)
    before = rng.normal(size=n + 2)
    table = rng.normal(size=(n, stride))
    table[rng.random(table.shape) < 0.3] = -np.inf  # masks
    out = rng.normal(size=stride + 3)
    expected = out.copy()
    expected[1 : 1 + stride] += (before[2:, None] + table).max(0)
    (step if compiled else _vector.max_plus)(before, 2, table.ravel(), n, stride, out, 1)
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_strided_vectors_are_refused():
    with pytest.raises(Exception, match="contiguous"):
        step(np.zeros(8)[::2], 0, np.zeros(4), 2, 2, np.zeros(2), 0)


def test_aligned_zeros():
    for size in (1, 9, 1000):
        array = _vector.aligned_zeros(size)
        assert array.shape == (size,)
        assert not array.any()
        assert array.ctypes.data % 64 == 0
