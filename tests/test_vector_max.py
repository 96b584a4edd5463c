"""Maxima over rows in vector registers against NumPy, for every width of a row."""

from __future__ import annotations

import numpy as np
import pytest

from hingeline import _vector_max
from hingeline._numba import uncached


@uncached
def row_max(table, start, n):
    return _vector_max.row_max(table, start, n)


@uncached
def add_max(a, start, b, n, out):
    return _vector_max.add_max(a, start, b, n, out)


@uncached
def chosen_step(before, start, chosen, count, floor, table, stride, base, out, at):
    _vector_max.max_plus_chosen(before, start, chosen, count, floor, table, stride, base, out, at)


WIDTHS = [0, 1, 3, 4, 7, 8, 12, 15, 16, 28, 31, 32, 33, 65, 100]
both_ways = pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])


@both_ways
@pytest.mark.parametrize("n", WIDTHS)
def test_row_max(compiled, n):
    rng = np.random.default_rng(n)
    find = row_max if compiled else _vector_max.row_max
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
    top = (add_max if compiled else _vector_max.add_max)(a, 2, b, n, out)
    expected = a[2 : 2 + n] + b[:n]
    np.testing.assert_array_equal(out, [*expected, 7.0])
    assert top == expected.max(initial=-np.inf)


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
    (chosen_step if compiled else _vector_max.max_plus_chosen)(
        before, 2, chosen, count, floor, table.ravel(), stride, base, out, 1
    )
    np.testing.assert_array_equal(out[1 : 1 + stride], expected)
    assert (out[[0, -2, -1]] == 7.0).all()
