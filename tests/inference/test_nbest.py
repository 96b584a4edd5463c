"""The n best paths against enumeration, compiled and as plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import chain as nbest
from hingeline.inference import chain as viterbi

# isort: split
from naive import enumerate_outputs

TABLE = settings(max_examples=60, deadline=None, derandomize=True)


@kernel
def n_best(scores, transitions, n_labels, ys, values):
    return nbest.n_best(scores, transitions, n_labels, ys, values)


WAYS = {"compiled": n_best, "python": nbest.n_best}


@st.composite
def tables(draw, hole=0.0):
    """Scores (T, stride), transitions (L, stride) and L; the padding holds a large number."""
    T, L = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    ties = draw(st.booleans())

    def numbers(rows):
        table = np.full((rows, 4), 1e6)
        block = rng.integers(-2, 3, (rows, L)) if ties else rng.normal(size=(rows, L))
        table[:, :L] = np.where(rng.random((rows, L)) < hole, -np.inf, block)
        return table

    return numbers(T), numbers(L), L


def path_value(scores, transitions, path):
    value = sum(scores[t, k] for t, k in enumerate(path))
    return value + sum(transitions[j, k] for j, k in itertools.pairwise(path))


def run(way, table, n):
    scores, transitions, L = table
    ys, values = np.full((n, len(scores)), -7, dtype=np.int32), np.full(n, np.nan)
    kept = scores.copy()
    count = WAYS[way](scores, transitions, L, ys, values)
    np.testing.assert_array_equal(scores, kept)
    return ys[:count], values[:count]


def check(table, n):
    scores, transitions, L = table
    every = [path_value(scores, transitions, y) for y in enumerate_outputs(len(scores), L)]
    expected = sorted((value for value in every if value > -np.inf), reverse=True)[:n]
    for way in WAYS:
        ys, values = run(way, table, n)
        np.testing.assert_allclose(values, expected, atol=1e-12)
        assert (np.diff(values) <= 0).all()
        assert len({tuple(y) for y in ys}) == len(expected)
        for y, value in zip(ys, values, strict=True):
            assert path_value(scores, transitions, y) == pytest.approx(value, abs=1e-12)


@TABLE
@given(tables(), st.integers(1, 300))
def test_the_best_paths_in_order_and_no_more_than_there_are(table, n):
    check(table, n)


@TABLE
@given(tables(hole=0.3), st.integers(1, 300))
def test_forbidden_labels_and_moves(table, n):
    check(table, n)


@TABLE
@given(tables(hole=0.1), st.integers(1, 40), st.integers(1, 40))
def test_ties_do_not_depend_on_n(table, n, m):
    for way in WAYS:
        few, many = run(way, table, min(n, m))[0], run(way, table, max(n, m))[0]
        np.testing.assert_array_equal(few, many[: len(few)])
    np.testing.assert_array_equal(run("compiled", table, n)[0], run("python", table, n)[0])


@TABLE
@given(tables())
def test_the_first_is_the_decoded_path(table):
    scores, transitions, L = table
    y = np.empty(len(scores), dtype=np.int32)
    value = viterbi.max_sum(scores.copy(), transitions, L, y)
    ys, values = run("compiled", table, 3)
    np.testing.assert_array_equal(ys[0], y)
    assert values[0] == value


def test_rounding_keeps_the_order():
    """Sums of one value in many orders: scores differ in the last digit only."""
    rng = np.random.default_rng(0)
    scores = rng.choice([0.1, 0.2, 0.3], size=(8, 4))
    ys, values = run("compiled", (scores, np.full((4, 4), 0.7), 4), 2000)
    assert (np.diff(values) <= 0).all()
    assert len({tuple(y) for y in ys}) == 2000
