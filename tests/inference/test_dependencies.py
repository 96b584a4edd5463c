"""The best dependency tree, projective or not, against trying every tree."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hingeline._jit import kernel
from hingeline.inference import dependencies as module

# isort: split
from naive import all_trees


@kernel
def solve(scores, heads, projective):
    if projective:
        return module.find_projective_tree(scores, heads)
    return module.find_tree(scores, heads)


@kernel
def list_best(table, projective, ys, values):
    return module.find_best_trees(table, projective, ys, values)


@cache
def trees_of(length: int, projective: bool) -> np.ndarray:
    return np.array(all_trees(length, projective))


@st.composite
def scored_sentences(draw):
    """Scores that are equal often, or of very different sizes."""
    length = draw(st.integers(1, 5))
    numbers = draw(st.sampled_from([st.integers(-2, 2), st.floats(-1e6, 1e6), st.floats(-1, 1)]))
    return draw(arrays(np.float64, (length + 1, length + 1), elements=numbers))


@pytest.mark.parametrize("projective", [False, True])
@settings(max_examples=200, deadline=None)
@given(scores=scored_sentences())
def test_best_of_all_trees(projective, scores):
    length = len(scores) - 1
    known = trees_of(length, projective)
    values = scores[np.arange(1, length + 1), known].sum(axis=1)
    heads = np.full(length, -1)
    tolerance = 1e-12 * length**2 * max(1.0, np.abs(scores).max())
    assert solve(scores, heads, projective) == pytest.approx(values.max(), abs=tolerance)
    assert heads.tolist() in known.tolist()


def test_how_many_trees_there_are():
    """T^(T−1) trees, and 1, 2, 7, 30, 143 projective ones, have one word below the root."""
    for length, projective in zip(range(1, 6), (1, 2, 7, 30, 143), strict=True):
        assert len(trees_of(length, False)) == length ** (length - 1)
        assert len(trees_of(length, True)) == projective


def test_long_sentences_are_trees_and_crossing_gains():
    rng = np.random.default_rng(0)
    for length in (20, 90):
        scores = rng.normal(size=(length + 1, length + 1))
        found = np.zeros((2, length), dtype=np.int64)
        values = [solve(scores, found[k], k == 1) for k in (0, 1)]
        assert values[0] >= values[1]
        offsets = np.array([0, length])
        assert module.find_crossing(found[1], offsets) == -1
        assert module.find_crossing(found[0], offsets) == 0
        for heads in found:
            above = np.append(0, heads)
            for _ in range(7):
                above = above[above]
            assert not above.any()
            assert (heads == 0).sum() == 1


def test_crossing_is_found_where_it_is():
    for length in (3, 4, 5):
        projective = {*map(tuple, trees_of(length, True).tolist())}
        for heads in trees_of(length, False):
            crossing = module.find_crossing(heads, np.array([0, length]))
            assert (crossing == -1) == (tuple(heads.tolist()) in projective)


@pytest.mark.parametrize("projective", [False, True])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_best_trees_in_order(projective, data):
    """All labelled trees, the barred ones left out, by sorting."""
    length, n_labels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    shape = (length + 1, length + 1, n_labels)
    numbers = data.draw(st.sampled_from([st.integers(-2, 2), st.floats(-9, 9)]))
    table = data.draw(arrays(np.float64, shape, elements=numbers))
    table[data.draw(arrays(bool, shape, fill=st.just(False)))] = -np.inf
    known = {}
    for heads in trees_of(length, projective).tolist():
        for labels in itertools.product(range(n_labels), repeat=length):
            value = sum(table[m + 1, heads[m], labels[m]] for m in range(length))
            if value > -np.inf:
                known[tuple(h * n_labels + k for h, k in zip(heads, labels, strict=True))] = value
    n = data.draw(st.integers(1, 40))
    ys, values = np.zeros((n, length), dtype=np.int32), np.zeros(n)
    count = list_best(table, projective, ys, values)
    assert count == min(n, len(known))
    np.testing.assert_allclose(values[:count], sorted(known.values())[::-1][:count], atol=1e-9)
    found = [*map(tuple, ys[:count].tolist())]
    assert len({*found}) == count
    np.testing.assert_allclose([known[y] for y in found], values[:count], atol=1e-9)
