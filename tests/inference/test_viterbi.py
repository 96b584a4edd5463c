"""The dynamic programs over chains against enumeration, compiled and as plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import chain as viterbi

# isort: split
from naive import enumerate_outputs, naive_viterbi

TABLE = settings(max_examples=40, deadline=None, derandomize=True)


@kernel
def gather_rows(indptr, indices, values, lo, hi, w, out):
    viterbi.gather_rows(indptr, indices, values, lo, hi, w, out)


@kernel
def max_sum(scores, transitions, n_labels, y_out):
    return viterbi.max_sum(scores, transitions, n_labels, y_out)


@kernel
def max_sum_by_errors(scores, transitions, n_labels, y_true, best, ys):
    viterbi.max_sum_by_errors(scores, transitions, n_labels, y_true, best, ys)


GATHER = [gather_rows, viterbi.gather_rows]
MAX_SUM = [max_sum, viterbi.max_sum]
BY_ERRORS = [max_sum_by_errors, viterbi.max_sum_by_errors]
WAYS = ["compiled", "python"]


@st.composite
def tables(draw, hole=0.0):
    """Scores (T, stride), transitions (L, stride), L and a true path; small integers make ties.

    The padding is filled with a large number, which no result may show.
    """
    T, L = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    stride = draw(st.sampled_from([s for s in (L, 4, 8) if s >= L]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    ties = draw(st.booleans())

    def numbers(rows):
        block = rng.integers(-2, 3, (rows, L)).astype(float) if ties else rng.normal(size=(rows, L))
        if hole:
            block[rng.random((rows, L)) < hole] = -np.inf
        table = np.full((rows, stride), 1e6)
        table[:, :L] = block
        return table

    return numbers(T), numbers(L), L, rng.integers(L, size=T).astype(np.int32)


def path_value(scores, transitions, path):
    value = sum(scores[t, k] for t, k in enumerate(path))
    return value + sum(transitions[j, k] for j, k in itertools.pairwise(path))


def brute_force(scores, transitions, L):
    return max(path_value(scores, transitions, y) for y in enumerate_outputs(len(scores), L))


def brute_force_by_errors(scores, transitions, L, y_true):
    best = np.full(len(scores) + 1, -np.inf)
    for y in enumerate_outputs(len(scores), L):
        errors = int((np.array(y) != y_true).sum())
        best[errors] = max(best[errors], path_value(scores, transitions, y))
    return best


def run_max_sum(way, scores, transitions, L):
    y = np.full(len(scores), -7, dtype=np.int32)
    return MAX_SUM[WAYS.index(way)](scores.copy(), transitions, L, y), y


def run_by_errors(way, scores, transitions, L, y_true):
    T = len(scores)
    best, ys = np.full(T + 1, np.nan), np.full((T + 1, T), -7, dtype=np.int32)
    kept = scores.copy()
    BY_ERRORS[WAYS.index(way)](scores, transitions, L, y_true, best, ys)
    np.testing.assert_array_equal(scores, kept)
    return best, ys


# Emissions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", WAYS)
def test_gather_rows_is_a_matrix_product(way, dtype):
    rng = np.random.default_rng(0)
    gather = GATHER[WAYS.index(way)]
    d, stride = 9, 8
    W = rng.normal(size=(d, stride))
    counts = np.arange(10)  # every remainder of the sweep by fours, an empty row included
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([rng.permutation(d)[:c] for c in counts]).astype(np.int32)
    values = rng.normal(size=len(indices)).astype(dtype)
    dense = np.zeros((10, d))
    for t in range(10):
        np.add.at(dense[t], indices[indptr[t] : indptr[t + 1]], values[indptr[t] : indptr[t + 1]])
    for lo, hi in [(0, 10), (3, 4), (5, 9), (2, 2)]:
        out = np.full((hi - lo, stride), np.nan)
        gather(indptr, indices, values, lo, hi, W.ravel(), out)
        np.testing.assert_allclose(out, dense[lo:hi] @ W, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_gather_rows_sums_a_feature_that_occurs_twice(way):
    W = np.arange(8.0).reshape(2, 4)
    out = np.empty((1, 4))
    GATHER[WAYS.index(way)](
        np.array([0, 5]),
        np.array([1, 0, 1, 1, 0], dtype=np.int32),
        np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        0,
        1,
        W.ravel(),
        out,
    )
    np.testing.assert_array_equal(out[0], 7.0 * W[0] + 8.0 * W[1])


# The best path ----------------------------------------------------------------------------------


@TABLE
@given(tables())
def test_max_sum_finds_the_best_path(table):
    scores, transitions, L, _ = table
    expected = brute_force(scores, transitions, L)
    for way in WAYS:
        value, y = run_max_sum(way, scores, transitions, L)
        assert value == pytest.approx(expected, abs=1e-12)
        assert path_value(scores, transitions, y) == pytest.approx(expected, abs=1e-12)


@TABLE
@given(st.integers(0, 2**20), st.booleans())
def test_ties_are_broken_as_in_the_textbook(seed, boundary):
    """First label at the end, first predecessor on the way back; small integers sum exactly."""
    rng = np.random.default_rng(seed)
    T, L = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    E, A = rng.integers(-1, 2, (T, L)).astype(float), rng.integers(-1, 2, (L, L)).astype(float)
    ends = rng.integers(-1, 2, (2, L)).astype(float)
    w = np.concatenate([E.ravel(), A.ravel(), ends.ravel() if boundary else []])
    expected, path = naive_viterbi(np.eye(T), w, L, boundary)
    scores, transitions = np.zeros((T, 8)), np.zeros((L, 8))
    scores[:, :L], transitions[:, :L] = E, A
    if boundary:
        scores[0, :L] += ends[0]
        scores[-1, :L] += ends[1]
    for way in WAYS:
        value, y = run_max_sum(way, scores, transitions, L)
        assert value == expected
        assert tuple(y) == path


def test_max_sum_leaves_the_forward_maxima_behind():
    scores = np.array([[1.0, 2.0], [0.0, 0.0]])
    y = np.empty(2, dtype=np.int32)
    value = max_sum(scores, np.array([[3.0, 0.0], [0.0, 0.0]]), 2, y)
    np.testing.assert_array_equal(scores, [[1.0, 2.0], [4.0, 2.0]])
    assert value == 4.0
    assert y.tolist() == [0, 0]


@TABLE
@given(tables(hole=0.3))
def test_max_sum_with_forbidden_labels_and_steps(table):
    scores, transitions, L, _ = table
    expected = brute_force(scores, transitions, L)
    for way in WAYS:
        value, y = run_max_sum(way, scores, transitions, L)
        if expected == -np.inf:
            assert value == -np.inf
            assert ((y >= 0) & (y < L)).all()
        else:
            assert value == pytest.approx(expected, abs=1e-12)
            assert path_value(scores, transitions, y) == pytest.approx(expected, abs=1e-12)


# The best path of every number of errors --------------------------------------------------------


@TABLE
@given(tables())
def test_max_sum_by_errors_finds_the_best_path_of_each_level(table):
    scores, transitions, L, y_true = table
    expected = brute_force_by_errors(scores, transitions, L, y_true)
    for way in WAYS:
        best, ys = run_by_errors(way, scores, transitions, L, y_true)
        np.testing.assert_allclose(best, expected, atol=1e-12)
        for errors in np.flatnonzero(np.isfinite(expected)):
            assert (ys[errors] != y_true).sum() == errors
            value = path_value(scores, transitions, ys[errors])
            assert value == pytest.approx(expected[errors], abs=1e-12)


@TABLE
@given(tables(hole=0.3))
def test_max_sum_by_errors_with_forbidden_labels_and_steps(table):
    scores, transitions, L, y_true = table
    expected = brute_force_by_errors(scores, transitions, L, y_true)
    for way in WAYS:
        best, ys = run_by_errors(way, scores, transitions, L, y_true)
        np.testing.assert_allclose(best, expected, atol=1e-12)
        for errors, row in enumerate(ys):
            if expected[errors] == -np.inf:
                assert (row == -7).all()  # there is no such path, so none is written
            else:
                assert (row != y_true).sum() == errors
                value = path_value(scores, transitions, row)
                assert value == pytest.approx(expected[errors], abs=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_a_single_label_can_make_no_error(way):
    best, ys = run_by_errors(
        way, np.ones((3, 4)), np.full((1, 4), 0.5), 1, np.zeros(3, dtype=np.int32)
    )
    np.testing.assert_array_equal(best, [4.0, -np.inf, -np.inf, -np.inf])
    np.testing.assert_array_equal(ys[0], 0)
