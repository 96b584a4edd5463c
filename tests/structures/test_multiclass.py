"""Every primitive of the multiclass structure against naive joint features, both ways."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hingeline._jit import kernel
from hingeline.core import primitives as base
from hingeline.structures import multiclass

# isort: split
from naive import brute_force_multiclass, multiclass_joint_feature

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
def small_ones(problem, i, y, z, y_out, scratch):
    base.truth(problem, i, y_out)
    return (
        base.output_length(problem, i),
        problem.n_labels,
        base.plane_loss(problem, i, y),
        base.plane_sqdist(problem, i, y, z, scratch),
    )


@kernel
def decode_by_loss(problem, i, w):
    return base.decode_by_loss(problem, i, w)


@kernel
def all_of(problem, i, w, losses, scores, hinges, inner):
    base.all_prefetch(problem, i, 0, w)
    base.all_hinges(problem, i, w, losses, hinges)
    base.all_losses(problem, i, losses)
    base.all_scores(problem, i, w, scores)
    for j in range(inner.shape[0]):
        for k in range(inner.shape[0]):
            inner[j, k] = base.all_inner(problem, i, j, k)
    return base.all_isotropy(problem, i)


@kernel
def all_add(problem, i, steps, w):
    base.all_add(problem, i, steps, w)


#: Each primitive compiled, and as the plain Python function that kernels are made of.
DECODE = [decode, multiclass.decode]
PLANE_SCORE = [plane_score, multiclass.plane_score]
PLANE_ADD = [plane_add, multiclass.plane_add]
PLANES_SCORE = [planes_score, planes_score.py_func]
PLANES_ADD = [planes_add, planes_add.py_func]
SMALL_ONES = [small_ones, small_ones.py_func]
DECODE_BY_LOSS = [decode_by_loss, multiclass.decode_by_loss]
ALL_OF = [all_of, all_of.py_func]
ALL_ADD = [all_add, multiclass.all_add]


class Case(NamedTuple):
    """A multiclass problem next to the dense data it was made from."""

    problem: multiclass.MulticlassProblem
    X: Any
    y: Any
    K: int
    cost: Any
    rng: np.random.Generator

    def weights(self) -> Any:
        return self.rng.normal(size=self.X.shape[1] * self.K)

    def padded(self, w: Any, fill: float = 0.0) -> Any:
        width = ((0, 0), (0, self.problem.stride - self.K))
        return np.pad(w.reshape(-1, self.K), width, constant_values=fill).ravel()

    def feature(self, i: int, k: int) -> Any:
        return multiclass_joint_feature(self.X[i], k, self.K)

    def differences(self, i: int) -> Any:
        return np.array([self.feature(i, self.y[i]) - self.feature(i, k) for k in range(self.K)])


def make_case(
    seed: int, dtype: Any = np.float64, costs: bool = False, n_classes: int | None = None
) -> Case:
    """Four sparse examples, one of them without any feature."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 7)) if n_classes is None else n_classes
    d = int(rng.integers(1, 8))
    X = (rng.normal(size=(4, d)) * (rng.random((4, d)) < 0.7)).astype(dtype)
    X[2] = 0.0
    y = rng.integers(K, size=4)
    cost = 1.0 - np.eye(K)
    if costs:
        cost *= rng.uniform(0.2, 3.0, (K, K))
    rows = sparse.csr_array(X)
    problem = multiclass.make_problem(rows.indptr, rows.indices, rows.data, y, d, cost)
    assert problem.values.dtype == dtype
    return Case(problem, X, y, K, cost, rng)


@st.composite
def cases(draw, **fixed):
    options = {
        "dtype": draw(st.sampled_from([np.float64, np.float32])),
        "costs": draw(st.booleans()),
        # 40 classes: single entries are cheaper than whole rows of weights
        "n_classes": draw(st.sampled_from([None, None, 40])),
        **fixed,
    }
    return make_case(draw(st.integers(0, 2**20)), **options)


GUARD = -12345.0


def roomy(values: Any) -> Any:
    """A buffer with the room to spare that primitives may use, and one entry that they may not."""
    return np.concatenate([values, np.full(base.PADDING, np.nan), [GUARD]])


def output(k: int) -> Any:
    return np.array([k], dtype=np.int32)


@FEW
@given(cases())
def test_sizes_truth_loss_and_distance(case):
    compiled = multiclass.compile_problem(case.problem)
    assert compiled.n == 4
    assert compiled.n_outputs == case.K
    assert compiled.n_weights == len(case.padded(case.weights()))
    assert compiled.lengths.tolist() == [1] * 4
    for i in range(4):
        a, b = case.rng.integers(case.K, size=2)
        apart = case.feature(i, a) - case.feature(i, b)
        for way in SMALL_ONES:
            gold = output(-7)
            length, count, loss, square = way(
                case.problem, i, output(a), output(b), gold, np.zeros(1)
            )
            assert (length, count, gold[0]) == (1, case.K, case.y[i])
            assert loss == case.cost[case.y[i], a]
            assert square == pytest.approx((apart**2).sum(), rel=1e-12, abs=1e-14)


@FEW
@given(cases(), st.sampled_from([0.0, 1.0, 0.37, 20.0]))
def test_decode_finds_the_maximum(case, loss_scale):
    w = case.weights()
    for i in range(4):
        expected, best = brute_force_multiclass(
            case.X[i], w, case.y[i], loss_scale, case.K, case.cost
        )
        for way in DECODE:
            y = output(-7)
            value = way(case.problem, i, case.padded(w, fill=1e6), loss_scale, y)
            assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
            assert y[0] == best


def test_the_first_of_tied_classes_is_chosen():
    case = make_case(0, n_classes=5)
    w = np.tile([0.0, 1.0, 0.0, 1.0, 1.0], case.X.shape[1])
    for way in DECODE:
        for i in range(4):
            y = output(-7)
            way(case.problem, i, case.padded(w), 0.0, y)
            assert y[0] == np.argmax(np.round([w @ case.feature(i, k) for k in range(5)], 12))


@FEW
@given(cases())
def test_decode_by_loss_knows_every_class(case):
    w = case.padded(case.weights())
    for i in range(4):
        for way in DECODE_BY_LOSS:
            losses, ys = way(case.problem, i, w)
            np.testing.assert_array_equal(ys, np.arange(case.K)[:, None])
            np.testing.assert_array_equal(losses, case.cost[case.y[i]])
    losses[:] = 9.0
    np.testing.assert_array_equal(case.problem.cost[:, : case.K], case.cost)  # it was a copy


@FEW
@given(cases())
def test_planes_are_scored_and_added(case):
    w = case.weights()
    for i in range(4):
        labels = case.rng.integers(case.K, size=5)
        labels[0] = case.y[i]
        labels[2] = labels[1]
        ys = labels.astype(np.int32).reshape(5, 1)
        rows = case.differences(i)[labels]
        steps = case.rng.normal(size=5)
        steps[[1, 4]] = 0.0
        changed = case.padded(w + steps @ rows)
        for one, several in zip(PLANE_SCORE, PLANES_SCORE, strict=True):
            v = case.padded(w, fill=1e6)
            out = np.full(5, np.nan)
            several(case.problem, i, ys, v, out)
            np.testing.assert_allclose(out, rows @ w, rtol=1e-10, atol=1e-10)
            singly = [one(case.problem, i, y, v) for y in ys]
            np.testing.assert_allclose(singly, rows @ w, rtol=1e-10, atol=1e-10)
            assert singly[0] == 0.0
        for one, several in zip(PLANE_ADD, PLANES_ADD, strict=True):
            v = case.padded(w)
            several(case.problem, i, ys, steps, v)
            np.testing.assert_allclose(v, changed, rtol=1e-10, atol=1e-10)
            v = case.padded(w)
            for y, step in zip(ys, steps, strict=True):
                one(case.problem, i, y, step, v)
            np.testing.assert_allclose(v, changed, rtol=1e-10, atol=1e-10)


@FEW
@given(cases())
def test_all_outputs_at_once(case):
    w = case.weights()
    for i in range(4):
        rows = case.differences(i)
        for way in ALL_OF:
            losses, scores, hinges = (roomy(np.full(case.K, np.nan)) for _ in range(3))
            inner = np.full((case.K, case.K), np.nan)
            out = (losses[:-1], scores[:-1], hinges[:-1], inner)
            square = way(case.problem, i, case.padded(w, fill=1e6), *out)
            assert losses[-1] == scores[-1] == hinges[-1] == GUARD
            np.testing.assert_array_equal(hinges[: case.K], (losses - scores)[: case.K])
            np.testing.assert_array_equal(losses[: case.K], case.cost[case.y[i]])
            np.testing.assert_allclose(scores[: case.K], rows @ w, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(inner, rows @ rows.T, rtol=1e-10, atol=1e-12)
            wrong = np.arange(case.K) != case.y[i]
            expected = square * (1.0 + np.eye(int(wrong.sum())))
            np.testing.assert_allclose(inner[np.ix_(wrong, wrong)], expected, atol=1e-12)


def test_planes_are_not_alike_where_a_wrong_class_costs_nothing():
    case = make_case(0, n_classes=4)
    cost = case.cost.copy()
    cost[1, 2] = 0.0
    parts = case.problem
    free = multiclass.make_problem(
        parts.indptr, parts.indices, parts.values, parts.labels, parts.n_features, cost
    )
    for problem, alike in ((case.problem, True), (free, False)):
        assert (multiclass.all_isotropy(problem, 0) > 0.0) == alike


@pytest.mark.parametrize("moved", [0, 1, 3, 40])
@pytest.mark.parametrize("n_classes", [1, 5, 33, 40, 70])
def test_all_add_by_rows_and_by_entries(n_classes, moved):
    """Few steps of many classes touch single entries, the rest whole rows."""
    case = make_case(n_classes, n_classes=n_classes)
    w = case.weights()
    for i in range(4):
        steps = np.zeros(n_classes)
        at = case.rng.permutation(n_classes)[:moved]
        steps[at] = case.rng.normal(size=len(at))
        expected = case.padded(w + steps @ case.differences(i))
        for way in ALL_ADD:
            v, buffer = case.padded(w), roomy(steps)
            way(case.problem, i, buffer[:-1], v)
            np.testing.assert_allclose(v, expected, rtol=1e-10, atol=1e-10)
            assert buffer[-1] == GUARD
            v = case.padded(w)
            own = np.zeros(n_classes)
            own[case.y[i]] = 3.0  # the true class is no plane
            way(case.problem, i, roomy(own)[:-1], v)
            np.testing.assert_array_equal(v, case.padded(w))


def test_squared_norms_survive_large_neighbours():
    """A row of small values keeps its norm behind a row of huge ones."""
    values = np.array([1e9, 1e-3, 2e-3])
    problem = multiclass.make_problem(
        np.array([0, 1, 3]),
        np.array([0, 0, 1], dtype=np.int32),
        values,
        np.zeros(2),
        2,
        1.0 - np.eye(2),
    )
    np.testing.assert_allclose(problem.sqnorm, [1e18, 5e-6], rtol=1e-12)
