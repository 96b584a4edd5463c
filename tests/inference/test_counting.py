"""Paths better than a given one: bounds against enumeration and against exact arithmetic."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import chain_sums as counting

# isort: split
from marks import slow
from naive import enumerate_outputs

TABLE = settings(max_examples=80, deadline=None)


@kernel
def compiled(scores, transitions, n_labels, y, bins, out):
    counting.better_paths(scores, transitions, n_labels, y, bins, out)


WAYS = {"compiled": compiled, "python": counting.better_paths}


def value_of(scores, transitions, path):
    """Exact value of a path; None where it is forbidden."""
    terms = [scores[t, k] for t, k in enumerate(path)]
    terms += [transitions[j, k] for j, k in itertools.pairwise(path)]
    return None if -np.inf in terms else sum(map(Fraction, map(float, terms)))


def enumerated(scores, transitions, n_labels, y):
    """The exact slack and the number of better paths."""
    own = value_of(scores, transitions, y)
    every = (
        value_of(scores, transitions, path) for path in enumerate_outputs(len(scores), n_labels)
    )
    better = [value - own for value in every if value is not None and value > own]
    return sum(better, Fraction(0)), len(better)


def run(way, scores, transitions, n_labels, y, bins):
    out = np.full(4, np.nan)
    kept = scores.copy()
    WAYS[way](scores, transitions, n_labels, np.asarray(y), bins, out)
    np.testing.assert_array_equal(scores, kept)
    return out


def check(bounds, slack, number):
    """True bounds, compared without rounding."""
    assert Fraction(float(bounds[0])) <= slack
    assert bounds[1] == np.inf or slack <= Fraction(float(bounds[1]))
    assert bounds[2] <= number <= bounds[3]


@st.composite
def tables(draw, hole=0.0, kinds=("real", "tenths", "whole", "large")):
    """Scores, transitions (the padding holds a large number), L and a path that is allowed."""
    T, L = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    kind = draw(st.sampled_from(kinds))

    def numbers(rows):
        block = rng.normal(size=(rows, L)) if kind == "real" else rng.integers(-3, 4, (rows, L))
        if kind == "tenths":  # ties that rounding breaks
            block = block * 0.1
        elif kind == "large":
            block = block * 0.1 + 1e6
        table = np.full((rows, 4), 1e6)
        table[:, :L] = np.where(rng.random((rows, L)) < hole, -np.inf, block)
        return table

    scores, transitions = numbers(T), numbers(L)
    allowed = [
        path for path in enumerate_outputs(T, L) if value_of(scores, transitions, path) is not None
    ]
    assume(allowed)
    return scores, transitions, L, np.array(draw(st.sampled_from(allowed)), dtype=np.int32)


BINS = st.sampled_from([1, 2, 3, 10, 77, 1000])


@TABLE
@given(tables(), BINS)
def test_bounds_enclose_the_truth(table, bins):
    slack, number = enumerated(*table)
    check(run("compiled", *table, bins), slack, number)


@TABLE
@given(tables(hole=0.3), BINS)
def test_forbidden_labels_and_moves(table, bins):
    slack, number = enumerated(*table)
    check(run("compiled", *table, bins), slack, number)


@settings(TABLE, max_examples=20)
@given(tables(hole=0.1), st.sampled_from([1, 5, 20]))
def test_plain_python_does_the_same(table, bins):
    np.testing.assert_allclose(
        run("python", *table, bins), run("compiled", *table, bins), rtol=1e-9, atol=1e-9
    )


@TABLE
@given(tables(hole=0.2, kinds=("whole",)), st.sampled_from([64, 100, 1000]))
def test_whole_scores_are_counted_exactly(table, bins):
    """Regrets up to 64 lie on the grid, so that no path is uncertain, ties included."""
    slack, number = enumerated(*table)
    bounds = run("compiled", *table, bins)
    assert bounds[2] == bounds[3] == number
    np.testing.assert_allclose(bounds[:2], float(slack), rtol=1e-11)
    check(bounds, slack, number)


@TABLE
@given(tables(hole=0.2))
def test_the_best_path_has_no_better_one(table):
    scores, transitions, L, _ = table
    values = {
        path: value
        for path in enumerate_outputs(len(scores), L)
        if (value := value_of(scores, transitions, path)) is not None
    }
    best = max(values, key=lambda path: values[path])
    ties = sum(value >= values[best] - Fraction(1, 10**6) for value in values.values()) - 1
    bounds = run("compiled", scores, transitions, L, np.array(best), 50)
    assert bounds[0] == bounds[2] == 0.0
    assert bounds[3] <= ties
    assert bounds[1] <= 1e-6 * ties


@pytest.mark.parametrize("seed", [0, slow(1), slow(2), slow(3)])
def test_bounds_close_with_the_square_of_the_number_of_bins(seed):
    rng = np.random.default_rng(seed)
    T, L = 6, 4
    scores, transitions = rng.normal(size=(T, L)), rng.normal(size=(L, L))
    middle = sorted(
        enumerate_outputs(T, L), key=lambda path: float(value_of(scores, transitions, path))
    )[L**T // 2]
    slack, number = enumerated(scores, transitions, L, middle)
    widths = []
    for bins in (20, 200, 2000, 20000):
        bounds = run("compiled", scores, transitions, L, middle, bins)
        check(bounds, slack, number)
        widths.append((bounds[1] - bounds[0]) / float(slack))
    assert widths[1] < widths[0] / 25
    assert widths[2] < widths[1] / 25
    assert widths[0] < 0.05
    assert widths[3] < 1e-6
    assert bounds[3] - bounds[2] < 1e-3 * number


def test_a_single_label_has_no_other_path():
    scores = np.random.default_rng(0).normal(size=(5, 4))
    assert not run("compiled", scores, scores[:1], 1, np.zeros(5, dtype=int), 10).any()


def test_a_forbidden_path_bounds_nothing():
    scores = np.zeros((3, 2))
    scores[1, 0] = -np.inf
    bounds = run("compiled", scores, np.zeros((2, 2)), 2, np.zeros(3, dtype=int), 10)
    assert bounds.tolist() == [0.0, np.inf, 0.0, np.inf]


def hamming(rng, T, L):
    """Zero weights: the score of a path is the number of its errors."""
    y = rng.integers(0, L, T)
    scores = np.ones((T, L))
    scores[np.arange(T), y] = 0.0
    return scores, np.zeros((L, L)), L, y


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_long_chains_in_closed_form(scale):
    T, L = 150, 26
    scores, transitions, _, y = hamming(np.random.default_rng(0), T, L)
    slack = Fraction(scale) * T * (L - 1) * L ** (T - 1)
    bounds = run("compiled", scores * scale, transitions, L, y, 200)
    check(bounds, slack, L**T - 1)
    assert bounds[1] <= bounds[0] * (1 + 1e-9)
    assert bounds[3] <= bounds[2] * (1 + 1e-9)


def test_more_paths_than_numbers_can_hold():
    T, L = 300, 26
    bounds = run("compiled", *hamming(np.random.default_rng(0), T, L), 300)
    assert bounds[1] == bounds[3] == np.inf
    assert 1e280 < bounds[2] < np.inf
    assert 1e280 < bounds[0] < np.inf


@pytest.mark.parametrize("bins", [16, 100, 1000])
def test_long_chains_against_exact_numbers_of_paths(bins):
    """Whole scores: the distribution of values by a dynamic program in whole numbers."""
    rng = np.random.default_rng(5)
    T, L = 60, 4
    scores, transitions = rng.integers(-4, 5, (T, L)), rng.integers(-4, 5, (L, L))
    y = rng.integers(0, L, T)
    counts = [Counter({int(scores[0, k]): 1}) for k in range(L)]
    for t in range(1, T):
        after = [Counter() for _ in range(L)]
        for j, k in itertools.product(range(L), repeat=2):
            for value, number in counts[j].items():
                after[k][value + int(transitions[j, k] + scores[t, k])] += number
        counts = after
    total = sum(counts, Counter())
    own = sum(scores[t, k] for t, k in enumerate(y))
    own = int(own + sum(transitions[j, k] for j, k in itertools.pairwise(y)))
    slack = sum(number * (value - own) for value, number in total.items() if value > own)
    number = sum(number for value, number in total.items() if value > own)
    for shift in (0.0, 2.0**-25):  # the same for all paths, but too fine to pass as exact
        bounds = run("compiled", scores + shift, transitions * 1.0, L, y, bins)
        check(bounds, slack, number)
        assert bounds[1] < (1.0 + 100.0 / bins**2) * bounds[0] * (1.0 + 1e-9)
