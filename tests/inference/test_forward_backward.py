"""Sums over paths against enumeration, compiled and as plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import chain_sums as forward_backward

# isort: split
from naive import enumerate_outputs

TABLE = settings(max_examples=40, deadline=None, derandomize=True)


@kernel
def scale_moves(transitions, n_labels):
    return forward_backward.scale_moves(transitions, n_labels)


@kernel
def scaled_sums(scores, scaled, enter, n_labels, weight, out):
    return forward_backward.scaled_sums(scores, scaled, enter, n_labels, weight, out)


@kernel
def log_sums(scores, transitions, enter, n_labels, weight, out):
    return forward_backward.log_sums(scores, transitions, enter, n_labels, weight, out)


COMPILED = (scale_moves, scaled_sums, log_sums)
PLAIN = (forward_backward.scale_moves, forward_backward.scaled_sums, forward_backward.log_sums)


@st.composite
def tables(draw):
    """Scores, transitions, entry scores (perhaps none) and the number of labels.

    The padding is filled with a large number, which no result may show.
    """
    T, L = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    stride = draw(st.sampled_from([s for s in (L, 4, 8) if s >= L]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    size = draw(st.sampled_from([0.0, 1.0, 10.0, 300.0, 5000.0]))
    hole = draw(st.sampled_from([0.0, 0.0, 0.3]))

    def numbers(rows, forbid=True):
        block = size * rng.normal(size=(rows, L))
        if forbid:
            block[rng.random((rows, L)) < hole] = -np.inf
        table = np.full((rows, stride), 1e6)
        table[:, :L] = block
        return table

    enter = numbers(T, forbid=False) if draw(st.booleans()) else np.zeros((0, stride))
    return numbers(T), numbers(L), enter, L


def enumerated(scores, transitions, enter, L):
    """Log Z, and probabilities of labels, of staying and of moves, by listing all paths."""
    T = len(scores)
    paths = [np.array(y) for y in enumerate_outputs(T, L)]
    values = []
    for y in paths:
        value = scores[np.arange(T), y].sum()
        for t, (j, k) in enumerate(itertools.pairwise(y), start=1):
            value += transitions[j, k] + (enter[t, k] if j != k and len(enter) else 0.0)
        values.append(value)
    best = max(values)
    if best == -np.inf:
        return best, None, None, None
    log_z = best + np.log(np.exp(np.array(values) - best).sum())
    nodes, stays, moves = np.zeros((T, L)), np.zeros((T, L)), np.zeros((L, L))
    for y, value in zip(paths, values, strict=True):
        p = np.exp(value - log_z)
        nodes[np.arange(T), y] += p
        for t, (j, k) in enumerate(itertools.pairwise(y), start=1):
            moves[j, k] += p
            stays[t, k] += p * (j == k)
    return log_z, nodes, stays, moves


def run(ways, scaled, scores, transitions, enter, L, weight=1.0):
    prepare, by_scaling, by_logs = ways
    T, stride = scores.shape
    nodes, stays, moves = np.zeros((T, stride)), np.zeros((T, stride)), np.zeros((L, stride))
    if scaled:
        moved = prepare(transitions, L)
        value = by_scaling(scores, moved, enter, L, weight, (nodes, stays, moves))
    else:
        value = by_logs(scores, transitions, enter, L, weight, (nodes, stays, moves))
    return value, nodes, stays, moves


@pytest.mark.parametrize("ways", [COMPILED, PLAIN], ids=["compiled", "python"])
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "log"])
@given(table=tables())
@TABLE
def test_sums_are_those_of_all_paths(ways, scaled, table):
    scores, _, _, L = table
    wanted, nodes, stays, moves = enumerated(*table)
    value, *found = run(ways, scaled, *table, weight=2.0)
    if scaled and np.isnan(value):  # not safe: nothing may have been added
        assert not found[2].any()
        return
    if wanted == -np.inf:
        assert value == -np.inf
        return
    scale = max(1.0, np.abs(np.where(np.isfinite(scores[:, :L]), scores[:, :L], 0)).max())
    assert value == pytest.approx(wanted, rel=1e-12, abs=1e-12 * scale)
    for mine, theirs in zip(found, (nodes, stays, moves), strict=True):
        np.testing.assert_allclose(mine[:, :L] / 2.0, theirs, atol=1e-10)
        assert not mine[:, L:].any()


def test_moderate_numbers_are_done_by_scaling():
    """Weights up to some hundreds need no logarithms."""
    rng = np.random.default_rng(0)
    scores, transitions = rng.normal(size=(30, 4)) * 100, rng.normal(size=(4, 4)) * 20
    args = (scores, transitions, np.zeros((0, 4)), 4)
    a, b = run(COMPILED, True, *args), run(COMPILED, False, *args)
    assert a[0] == pytest.approx(b[0], rel=1e-13)
    for mine, theirs in zip(a[1:], b[1:], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


def test_a_label_that_underflows_but_matters_is_noticed():
    """What is worth e^−900 of its row is the only way on from there."""
    scores = np.array([[0.0, -900.0], [0.0, 0.0], [-1e4, 0.0]])
    transitions = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    args = (scores, transitions, np.zeros((0, 2)), 2)
    assert np.isnan(run(COMPILED, True, *args)[0])
    value, nodes, _, _ = run(COMPILED, False, *args)
    assert value == pytest.approx(-900.0)
    np.testing.assert_allclose(nodes, [[0, 1], [0, 1], [0, 1]], atol=1e-12)


def test_long_chains_neither_overflow_nor_vanish():
    scores = np.full((100_000, 4), 3.0)
    transitions = np.full((4, 4), -1.0)
    value, nodes, _, moves = run(COMPILED, True, scores, transitions, np.zeros((0, 4)), 4)
    assert value == pytest.approx(100_000 * 3.0 - 99_999 + 100_000 * np.log(4), rel=1e-10)
    np.testing.assert_allclose(nodes, 0.25, rtol=1e-10)
    assert moves.sum() == pytest.approx(99_999, rel=1e-10)
