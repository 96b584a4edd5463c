"""Every primitive of the chain against naive joint features, compiled and as plain Python."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from hingeline._jit import kernel
from hingeline.core import primitives as base
from hingeline.structures import chain

# isort: split
from naive import (
    brute_force_by_loss,
    brute_force_decode,
    chain_joint_feature,
    chain_size,
    hamming,
    naive_viterbi,
)

#: Rows too long to be read as a whole, and decoding that looks at few predecessors.
MANY = 67
FEW = settings(max_examples=25, deadline=None, derandomize=True)


@kernel
def decode(problem, i, w, loss_scale, y_out):
    return base.decode(problem, i, w, loss_scale, y_out)


@kernel
def plane_score(problem, i, y, w):
    return base.plane_score(problem, i, y, w)


@kernel
def plane_add(problem, i, y, step, w):
    base.plane_add(problem, i, y, step, w)


@kernel
def planes_score(problem, i, ys, w, out):
    base.planes_score(problem, i, ys, w, out)


@kernel
def planes_add(problem, i, ys, steps, w):
    base.planes_add(problem, i, ys, steps, w)


@kernel
def plane_sqdist(problem, i, y, z, scratch):
    return base.plane_sqdist(problem, i, y, z, scratch)


@kernel
def small_ones(problem, i, y, y_out):
    base.truth(problem, i, y_out)
    return base.output_length(problem, i), base.plane_loss(problem, i, y)


@kernel
def decode_by_loss(problem, i, w):
    return base.decode_by_loss(problem, i, w)


#: Each primitive compiled, and as the plain Python function that kernels are made of.
DECODE = [decode, chain.decode]
PLANE_SCORE = [plane_score, chain.plane_score]
PLANE_ADD = [plane_add, chain.plane_add]
PLANES_SCORE = [planes_score, chain.planes_score]
PLANES_ADD = [planes_add, chain.planes_add]
PLANE_SQDIST = [plane_sqdist, chain.plane_sqdist]
SMALL_ONES = [small_ones, small_ones.py_func]
DECODE_BY_LOSS = [decode_by_loss, chain.decode_by_loss]


class Case(NamedTuple):
    """A chain problem next to the dense data it was made from."""

    problem: chain.ChainProblem
    X: list[Any]
    Y: list[Any]
    L: int
    boundary: bool
    cost: Any
    rng: np.random.Generator

    @property
    def d(self) -> int:
        return self.X[0].shape[1]

    def weights(self) -> Any:
        return self.rng.normal(size=chain_size(self.d, self.L, self.boundary))

    def padded(self, w: Any, fill: float = 0.0) -> Any:
        """Naive weights in the problem's layout: both are rows over labels."""
        rows = w.reshape(-1, self.L)
        width = ((0, 0), (0, self.problem.stride - self.L))
        return np.pad(rows, width, constant_values=fill).ravel()

    def feature(self, i: int, y: Any) -> Any:
        return chain_joint_feature(self.X[i], y, self.L, self.boundary)

    def difference(self, i: int, y: Any) -> Any:
        return self.feature(i, self.Y[i]) - self.feature(i, y)

    def outputs(self, i: int, count: int) -> Any:
        """Random outputs, many close to the truth: runs of equal and of different labels."""
        ys = np.tile(self.Y[i], (count, 1))
        wrong = self.rng.random(ys.shape) < self.rng.random((count, 1))
        ys[wrong] = self.rng.integers(self.L, size=int(wrong.sum()))
        return ys.astype(np.int32)

    def scratch(self) -> Any:
        return np.zeros(chain.compile_problem(self.problem).scratch_size)


def make_case(
    seed: int,
    boundary: bool,
    dtype: Any = np.float64,
    whole: bool = False,
    costs: bool = False,
    n_labels: int | None = None,
) -> Case:
    """Three random chains; tokens share features, some are repeated and some are empty."""
    rng = np.random.default_rng(seed)
    L = int(rng.integers(1, 5)) if n_labels is None else n_labels
    if n_labels == MANY:
        dtype = np.float64  # kernels for many labels are compiled for one kind of numbers
    d = int(rng.integers(1, 7))
    lengths = rng.integers(1, 6, size=3)
    tokens = int(lengths.sum())
    x = rng.integers(-3, 4, (tokens, d)) if whole else rng.normal(size=(tokens, d))
    x = (x * (rng.random((tokens, d)) < 0.6)).astype(dtype)
    again = rng.random(tokens) < 0.3
    x[again] = x[rng.integers(tokens, size=int(again.sum()))]
    y = rng.integers(L, size=tokens).astype(np.int32)
    cost = 1.0 - np.eye(L)
    if costs:
        cost *= rng.uniform(0.2, 3.0, (L, L))
    rows = sparse.csr_array(x)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    problem = chain.make_problem(
        rows.indptr, rows.indices, rows.data, offsets, y, d, cost, boundary
    )
    assert problem.values.dtype == dtype
    cuts = offsets[1:-1]
    return Case(problem, np.split(x, cuts), np.split(y, cuts), L, boundary, cost, rng)


@st.composite
def cases(draw, **fixed):
    seed, boundary = draw(st.integers(0, 2**20)), draw(st.booleans())
    options = {
        "dtype": draw(st.sampled_from([np.float64, np.float32])),
        "whole": draw(st.booleans()),
        "costs": draw(st.booleans()),
        **fixed,
    }
    return make_case(seed, boundary, **options)


# Layout -----------------------------------------------------------------------------------------


@FEW
@given(cases())
def test_sizes_truth_and_loss(case):
    compiled = chain.compile_problem(case.problem)
    assert compiled.n == 3
    assert compiled.n_weights == len(case.padded(case.weights()))
    for i in range(3):
        assert compiled.lengths[i] == len(case.Y[i])
        for way in SMALL_ONES:
            y = case.outputs(i, 1)[0]
            gold = np.full(len(y), -7, dtype=np.int32)
            length, loss = way(case.problem, i, y, gold)
            assert length == len(y)
            np.testing.assert_array_equal(gold, case.Y[i])
            assert loss == pytest.approx(hamming(case.Y[i], y, case.cost), abs=1e-12)
            assert way(case.problem, i, gold, gold)[1] == 0.0


def test_rows_are_padded_to_whole_vectors():
    assert [chain.pad_row(k) for k in (1, 4, 5, 22)] == [4, 4, 8, 24]


def test_token_tables_do_not_overlap_and_keep_to_their_budget():
    lengths = np.array([3, base.GRAM_LENGTH + 1, 1, base.GRAM_LENGTH, 2])
    tokens = int(lengths.sum())
    parts = (
        np.arange(tokens + 1),
        np.zeros(tokens, dtype=np.int32),
        np.ones(tokens),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.zeros(tokens, dtype=np.int32),
        1,
        1.0 - np.eye(2),
        True,
    )
    problem = chain.make_problem(*parts)
    owner = np.zeros(len(problem.token_gram), dtype=int)
    for lo, length in zip(parts[3], lengths, strict=False):
        most = base.GRAM_LENGTH if length <= base.GRAM_LENGTH else base.GRAM_OF_LONG
        for s in range(lo, lo + length):
            owner[problem.gram_row[s] + np.arange(max(lo, s + 1 - most), s + 1)] += 1
    assert (owner == 1).all()
    assert np.isnan(problem.token_gram).all()
    small = chain.make_problem(*parts, cache_mb=56 / 2**20)  # room for seven products
    assert small.gram_row[:4].tolist() == [0, 1, 3, 3]
    assert (small.gram_row[4:] == -1).all()
    assert len(small.token_gram) == 7
    none = chain.make_problem(*parts, cache_mb=0)
    assert (none.gram_row == -1).all()
    assert len(none.token_gram) == 0


# Decoding ---------------------------------------------------------------------------------------


@FEW
@given(cases(), st.sampled_from([0.0, 1.0, 0.37, 20.0]))
def test_decode_finds_the_maximum(case, loss_scale):
    w = case.weights()
    for i in range(3):
        expected, best = brute_force_decode(
            case.X[i], w, case.Y[i], loss_scale, case.L, case.boundary, case.cost
        )
        for way in DECODE:
            y = np.full(len(best), -7, dtype=np.int32)
            value = way(case.problem, i, case.padded(w), loss_scale, y)
            assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
            assert tuple(y) == best  # real weights: no ties


@FEW
@given(cases(whole=True, costs=False), st.sampled_from([0.0, 1.0]))
def test_decode_with_ties_reaches_the_maximum(case, loss_scale):
    w = np.round(case.weights())
    for i in range(3):
        expected, _ = brute_force_decode(case.X[i], w, case.Y[i], loss_scale, case.L, case.boundary)
        found = []
        for way in DECODE:
            y = np.full(len(case.Y[i]), -7, dtype=np.int32)
            assert way(case.problem, i, case.padded(w), loss_scale, y) == expected
            assert w @ case.feature(i, y) + loss_scale * hamming(case.Y[i], y) == expected
            found.append(y)
        np.testing.assert_array_equal(*found)


@FEW
@given(cases())
def test_decode_never_chooses_the_padding(case):
    w = case.weights()
    for i in range(3):
        expected, best = brute_force_decode(case.X[i], w, None, 0.0, case.L, case.boundary)
        for way in DECODE:
            y = np.empty(len(best), dtype=np.int32)
            value = way(case.problem, i, case.padded(w, fill=1e6), 0.0, y)
            assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
            assert tuple(y) == best


@FEW
@given(cases(n_labels=MANY, costs=False))
def test_decode_with_many_labels(case):
    w = case.weights()
    for i in range(3):
        # The oracle knows no loss: it becomes the weights of one more feature for each token.
        tokens = np.hstack([case.X[i], np.eye(len(case.Y[i]))])
        for loss_scale in (0.0, 2.0):
            losses = loss_scale * (1.0 - np.eye(case.L)[case.Y[i]])
            weights = np.concatenate([w[: case.d * case.L], losses.ravel(), w[case.d * case.L :]])
            expected, best = naive_viterbi(tokens, weights, case.L, case.boundary)
            for way in DECODE:
                y = np.full(len(best), -7, dtype=np.int32)
                value = way(case.problem, i, case.padded(w, fill=1e6), loss_scale, y)
                assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
                assert tuple(y) == best


@FEW
@given(cases(costs=False), st.sampled_from([1.0, 0.25]))
def test_decode_by_loss_finds_the_best_output_of_every_loss(case, unit):
    case = case._replace(problem=case.problem._replace(cost=unit * case.problem.cost))
    w = case.weights()
    for i in range(3):
        expected = brute_force_by_loss(
            case.X[i], w, case.Y[i], case.L, case.boundary, unit * case.cost
        )
        for way in DECODE_BY_LOSS:
            losses, ys = way(case.problem, i, case.padded(w))
            assert ys.shape == (len(losses), len(case.Y[i]))
            assert losses.tolist() == sorted(expected)
            for loss, y in zip(losses, ys, strict=True):
                assert hamming(case.Y[i], y, unit * case.cost) == loss
                assert w @ case.feature(i, y) == pytest.approx(expected[loss], rel=1e-10, abs=1e-10)


# Planes -----------------------------------------------------------------------------------------


@FEW
@given(cases() | cases(n_labels=MANY))
def test_plane_score_and_planes_score(case):
    w = case.weights()
    v = case.padded(w, fill=1e6)  # the padding is never read
    for i in range(3):
        ys = case.outputs(i, 5)
        ys[0] = case.Y[i]
        expected = [w @ case.difference(i, y) for y in ys]
        for one, several in zip(PLANE_SCORE, PLANES_SCORE, strict=True):
            np.testing.assert_allclose(
                [one(case.problem, i, y, v) for y in ys], expected, rtol=1e-10, atol=1e-10
            )
            assert one(case.problem, i, ys[0], v) == 0.0
            for count in (1, 5):
                out = np.full(count, np.nan)
                several(case.problem, i, ys[:count], v, out)
                np.testing.assert_allclose(out, expected[:count], rtol=1e-10, atol=1e-10)


@FEW
@given(cases() | cases(n_labels=MANY))
def test_plane_add_and_planes_add(case):
    w = case.weights()
    for i in range(3):
        ys = case.outputs(i, 6)
        ys[1] = case.Y[i]
        ys[2] = ys[0]  # the same output, hence the same labels at a position, twice
        steps = case.rng.normal(size=6)
        steps[[3, 5]] = 0.0
        expected = case.padded(
            w + sum(s * case.difference(i, y) for s, y in zip(steps, ys, strict=True))
        )
        for one, several in zip(PLANE_ADD, PLANES_ADD, strict=True):
            v = case.padded(w)
            for y, step in zip(ys, steps, strict=True):
                one(case.problem, i, y, step, v)
            np.testing.assert_allclose(v, expected, rtol=1e-10, atol=1e-10)
            v = case.padded(w)
            several(case.problem, i, ys, steps, v)
            np.testing.assert_allclose(v, expected, rtol=1e-10, atol=1e-10)


@FEW
@given(cases() | cases(n_labels=MANY))
def test_steps_of_zero_change_no_weight(case):
    w = case.padded(case.weights())
    for several in PLANES_ADD:
        v = w.copy()
        for i in range(3):
            several(case.problem, i, case.outputs(i, 4), np.zeros(4), v)
        np.testing.assert_array_equal(v, w)


# Distances --------------------------------------------------------------------------------------


@FEW
@given(cases())
@example(make_case(0, True, whole=True, n_labels=1))
def test_plane_sqdist_by_token_table_and_by_scattering(case):
    without = case.problem._replace(gram_row=np.full_like(case.problem.gram_row, -1))
    for i in range(3):
        ys = case.outputs(i, 4)
        ys[0] = case.Y[i]
        features = [case.feature(i, y) for y in ys]
        size = max(1.0, float((case.X[i].astype(float) ** 2).sum()))
        for way in PLANE_SQDIST:
            fresh = case.problem._replace(token_gram=np.full_like(case.problem.token_gram, np.nan))
            scratch = case.scratch()
            for j, y in enumerate(ys):
                for k, z in enumerate(ys):
                    expected = ((features[j] - features[k]) ** 2).sum()
                    # The table and the plain Python sum over it round differently.
                    for _ in range(2):  # computed, then looked up
                        table = way(fresh, i, y, z, scratch)
                        assert table == pytest.approx(expected, rel=0, abs=4e-6 * size)
                    scattered = way(without, i, y, z, scratch)
                    assert scattered == pytest.approx(expected, rel=1e-12, abs=1e-12 * size)
                    assert not scratch.any()
            assert way(fresh, i, ys[1], ys[1], scratch) == 0.0


@FEW
@given(cases(whole=True))
def test_plane_sqdist_is_exact_for_counts(case):
    """Indicators and counts are whole numbers, which float32 holds: repeated features too."""
    without = case.problem._replace(gram_row=np.full_like(case.problem.gram_row, -1))
    for i in range(3):
        y, z = case.outputs(i, 2)
        expected = ((case.feature(i, y) - case.feature(i, z)) ** 2).sum()
        for way in PLANE_SQDIST:
            assert way(case.problem, i, y, z, case.scratch()) == expected
            assert way(without, i, y, z, case.scratch()) == expected


def test_the_token_table_holds_inner_products():
    case = make_case(3, True, whole=True, n_labels=3)
    for i in range(3):
        T = len(case.Y[i])
        for a, b in ((0, 1), (1, 2), (0, 2)):
            y, z = np.full(T, a, dtype=np.int32), np.full(T, b, dtype=np.int32)
            plane_sqdist(case.problem, i, y, z, case.scratch())
        start = case.problem.gram_row[lo := case.problem.offsets[i]] + lo
        table = case.problem.token_gram[start : start + T * (T + 1) // 2]
        np.testing.assert_array_equal(table, (case.X[i] @ case.X[i].T)[np.tril_indices(T)])


def test_a_long_chain_scatters_where_tokens_are_far_apart():
    rng = np.random.default_rng(5)
    T, L, d = base.GRAM_LENGTH + 10, 3, 4
    x = rng.normal(size=(T, d)) * (rng.random((T, d)) < 0.5)
    rows = sparse.csr_array(x)
    labels = rng.integers(L, size=T)
    problem = chain.make_problem(
        rows.indptr, rows.indices, rows.data, np.array([0, T]), labels, d, 1.0 - np.eye(L), True
    )
    scratch = np.zeros(chain.compile_problem(problem).scratch_size)
    z = problem.labels.copy()
    # Anywhere; within the reach of a token's row, and just outside it.
    reach = base.GRAM_OF_LONG
    for wrong in (
        np.arange(T),
        np.arange(0),
        [T - 1],
        [50, 51 + reach // 2, 49 + reach],
        [50, 50 + reach],
    ):
        y = z.copy()
        y[wrong] = (z[wrong] + rng.integers(1, L, size=len(wrong))) % L
        apart = chain_joint_feature(x, y, L, True) - chain_joint_feature(x, z, L, True)
        for way in PLANE_SQDIST:
            assert way(problem, 0, y, z, scratch) == pytest.approx((apart**2).sum(), rel=1e-12)
            assert not scratch.any()
    assert np.isfinite(problem.token_gram).any()


# Dispatch ---------------------------------------------------------------------------------------


def test_the_primitives_are_found_by_the_class_of_the_problem():
    case = make_case(1, True)
    w = case.padded(case.weights())
    y, z = (np.empty(len(case.Y[0]), dtype=np.int32) for _ in range(2))
    assert base.decode(case.problem, 0, w, 1.0, y) == chain.decode(case.problem, 0, w, 1.0, z)
    np.testing.assert_array_equal(y, z)


def test_an_unknown_primitive_is_refused_by_name():
    with pytest.raises(TypeError, match="plane_colour"):
        base.register(tuple, plane_colour=len)
