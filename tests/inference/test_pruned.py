"""Decoding with few predecessors: the same values, paths and ties as the full table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import chain as pruned
from hingeline.inference import chain as viterbi

# isort: split
from naive import enumerate_outputs

TABLE = settings(max_examples=60, deadline=None, derandomize=True)


@kernel
def best_path(scores, transitions, n_labels, y_out):
    return pruned.best_path(scores, transitions, n_labels, y_out)


@kernel
def max_sum(scores, transitions, n_labels, y_out):
    return viterbi.max_sum(scores, transitions, n_labels, y_out)


WAYS = {"compiled": best_path, "python": best_path.py_func}


def table(seed, T, L, pad, kind, hole, spread):
    """Scores and transitions; the padding is filled with a number that no result may show."""
    rng = np.random.default_rng(seed)

    def numbers(rows, scale):
        if kind == "ties":
            block = rng.integers(-1, 2, (rows, L)).astype(float)
        else:
            block = scale * rng.normal(size=(rows, L))
        if kind == "sparse":  # as weights are: most moves count for nothing
            block[rng.random((rows, L)) < 0.9] = 0.0
        block[rng.random((rows, L)) < hole] = -np.inf
        return np.pad(block, ((0, 0), (0, pad)), constant_values=1e6)

    return numbers(T, spread), numbers(L, 1.0), L


@st.composite
def tables(draw, labels, lengths, holes=(0.0, 0.0, 0.4, 0.9)):
    return table(
        draw(st.integers(0, 2**20)),
        draw(lengths),
        draw(labels),
        draw(st.integers(0, 7)),
        draw(st.sampled_from(["ties", "sparse", "dense"])),
        draw(st.sampled_from(holes)),
        draw(st.sampled_from([0.1, 1.0, 5.0])),
    )


def run(way, scores, transitions, L):
    y = np.full(len(scores), -7, dtype=np.int32)
    return way(scores.copy(), transitions, L, y), y.tolist()


@TABLE
@given(tables(st.integers(1, 4), st.integers(1, 5)))
def test_the_best_of_all_paths(case):
    scores, transitions, L = case

    def value_of(path):
        moves = sum(transitions[j, k] for j, k in itertools.pairwise(path))
        return sum(scores[t, k] for t, k in enumerate(path)) + moves

    expected = max(value_of(y) for y in enumerate_outputs(len(scores), L))
    for way in WAYS.values():
        value, y = run(way, scores, transitions, L)
        assert value == pytest.approx(expected, abs=1e-12)
        assert value_of(y) == pytest.approx(expected, abs=1e-12)


@TABLE
@given(tables(st.integers(1, 100), st.integers(1, 12)))
def test_the_same_as_the_full_table(case):
    """Not only nearly: the same bits and, among ties, the same path."""
    expected = run(max_sum, *case)
    for name, way in WAYS.items():
        if name == "compiled" or case[2] <= 30:
            assert run(way, *case) == expected


@pytest.mark.parametrize("seed", range(5))
def test_many_labels(seed):
    for kind, spread in (("sparse", 0.3), ("sparse", 3.0), ("dense", 1.0), ("ties", 1.0)):
        case = table(seed, 30, 200, 4, kind, 0.0, spread)
        assert run(best_path, *case) == run(max_sum, *case)


def test_ties_between_chosen_predecessors_and_others():
    for seed in range(400):
        case = table(seed, 2 + seed % 5, 2 + seed % 7, 1, "ties", (0.0, 0.3)[seed % 2], 1.0)
        assert run(best_path, *case) == run(max_sum, *case)


def test_the_full_table_is_seldom_needed(monkeypatch):
    def refuse(*args):
        raise AssertionError("fell back to the full table")

    monkeypatch.setattr(pruned, "max_sum", refuse)
    for seed in range(5):
        case = table(seed, 8, 60, 4, "sparse", 0.0, 3.0)
        assert run(WAYS["python"], *case) == run(max_sum, *case)


def test_no_path_at_all():
    scores, transitions = np.zeros((3, 72)), np.zeros((72, 72))
    scores[1] = -np.inf
    assert run(best_path, scores, transitions, 70) == (-np.inf, [0, 0, 0])


def test_a_move_that_only_an_unlikely_label_allows():
    """The first predecessors chosen lead nowhere: what comes next must come from the rest."""
    L = 80
    scores, transitions = np.zeros((2, L)), np.full((L, L), -np.inf)
    scores[0, :-1] = 10.0
    scores[0, -1] = -50.0
    transitions[:, 0] = 0.0
    transitions[-1, 5] = -1.0
    scores[1, 5] = 100.0
    assert run(best_path, scores, transitions, L) == (49.0, [L - 1, 5])
