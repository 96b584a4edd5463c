"""Rows in vector registers against NumPy, for every width of a row and number of terms."""

from __future__ import annotations

import numpy as np
import pytest

from hingeline import _simd
from hingeline._jit import uncached


@uncached
def dot(indices, values, lo, hi, w, stride, out, at):
    _simd.rows_dot(indices, values, lo, hi, w, stride, out, at)


@uncached
def add(indices, values, lo, hi, steps, w, stride):
    _simd.rows_add(indices, values, lo, hi, steps, w, stride)


@uncached
def step(before, start, table, n, stride, out, at):
    _simd.max_plus(before, start, table, n, stride, out, at)


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
    (dot if compiled else _simd.rows_dot)(indices, values, lo, hi, W.ravel(), stride, out, 2)
    np.testing.assert_allclose(out[2 : 2 + stride], (factors * W[chosen]).sum(0), atol=1e-12)
    assert (out[[0, 1, -2, -1]] == 7.0).all()  # nothing beside the row was touched

    steps = rng.normal(size=stride)
    expected = W.copy()
    np.add.at(expected, chosen, factors * steps)
    flat = W.ravel().copy()
    (add if compiled else _simd.rows_add)(indices, values, lo, hi, steps, flat, stride)
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
    (step if compiled else _simd.max_plus)(before, 2, table.ravel(), n, stride, out, 1)
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_strided_vectors_are_refused():
    with pytest.raises(Exception, match="contiguous"):
        step(np.zeros(8)[::2], 0, np.zeros(4), 2, 2, np.zeros(2), 0)


def test_aligned_zeros():
    for size in (1, 9, 1000):
        array = _simd.aligned_zeros(size)
        assert array.shape == (size,)
        assert not array.any()
        assert array.ctypes.data % 64 == 0


@uncached
def row_max(table, start, n):
    return _simd.row_max(table, start, n)


@uncached
def add_max(a, start, b, n, out):
    return _simd.add_max(a, start, b, n, out)


@uncached
def chosen_step(before, start, chosen, count, floor, table, stride, base, out, at):
    _simd.max_plus_chosen(before, start, chosen, count, floor, table, stride, base, out, at)


WIDTHS = [0, 1, 3, 4, 7, 8, 12, 15, 16, 28, 31, 32, 33, 65, 100]
both_ways = pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])


@both_ways
@pytest.mark.parametrize("n", WIDTHS)
def test_row_max(compiled, n):
    rng = np.random.default_rng(n)
    find = row_max if compiled else _simd.row_max
    table = np.full(n + 6, 50.0)  # numbers beside the row are larger
    for place in range(n):  # the largest number may stand anywhere
        table[3 : 3 + n] = rng.normal(size=n)
        table[3 + place] = 9.0 + place
        assert find(table, 3, n) == 9.0 + place
    table[3 : 3 + n] = -np.inf
    assert find(table, 3, n) == -np.inf


@both_ways
@pytest.mark.parametrize("n", WIDTHS)
def test_add_max(compiled, n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=n + 5), rng.normal(size=n + 2)
    a[rng.random(n + 5) < 0.2] = -np.inf
    out = np.full(n + 1, 7.0)
    top = (add_max if compiled else _simd.add_max)(a, 2, b, n, out)
    expected = a[2 : 2 + n] + b[:n]
    np.testing.assert_array_equal(out, [*expected, 7.0])
    assert top == expected.max(initial=-np.inf)


@uncached
def few(indices, values, lo, hi, steps, w, stride, some, out):
    _simd.rows_add_few(indices, values, lo, hi, steps, w, stride)
    _simd.rows_dot_few(indices, values, lo, hi, w, stride, some, out)


@both_ways
def test_few_columns(compiled):
    rng = np.random.default_rng(0)
    indices, values, table = np.array([5, 0, 3, 2]), rng.normal(size=4), rng.normal(size=(6, 9))
    steps = np.zeros(9)
    steps[[2, 7]] = -1.5, 0.5
    expected = table.copy()
    expected[[0, 3]] += np.outer(values[1:3], steps)
    w, out, some = table.ravel(), np.full(9, 7.0), np.array([1, 2, 8])
    (few if compiled else few.py_func)(indices, values, 1, 3, steps, w, 9, some, out)
    np.testing.assert_allclose(w.reshape(6, 9), expected, rtol=1e-14)
    np.testing.assert_allclose(out[some], values[1:3] @ expected[[0, 3]][:, some], rtol=1e-12)
    assert (np.delete(out, some) == 7.0).all()


@both_ways
@pytest.mark.parametrize("stride", [1, 3, 4, 7, 8, 12, 20, 36])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 13])
@pytest.mark.parametrize("floor", [-np.inf, 0.3])
def test_max_plus_chosen(compiled, stride, count, floor):
    rng = np.random.default_rng(stride * 100 + count)
    before = rng.normal(size=16)
    table = rng.normal(size=(14, stride))
    table[rng.random(table.shape) < 0.3] = -np.inf  # masks
    chosen = np.sort(rng.permutation(14)[: count + 1])
    rng.shuffle(chosen)  # the last one is not to be used
    base = rng.normal(size=stride + 3)
    out = np.full(stride + 3, 7.0)
    sums = before[2:][chosen[:count], None] + table[chosen[:count]]
    expected = base[1 : 1 + stride] + np.maximum(sums.max(0, initial=-np.inf), floor)
    (chosen_step if compiled else _simd.max_plus_chosen)(
        before, 2, chosen, count, floor, table.ravel(), stride, base, out, 1
    )
    np.testing.assert_array_equal(out[1 : 1 + stride], expected)
    assert (out[[0, -2, -1]] == 7.0).all()
