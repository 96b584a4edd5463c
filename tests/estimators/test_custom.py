"""SSVM with structures of a user's own, interpreted and compiled."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numba import njit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from hingeline import SSVM, ChainSSVM, MulticlassSSVM, Structure
from hingeline.report.outcome import compare
from hingeline.testing import check_structure

# isort: split
from marks import slow
from reference import random_chains, random_multiclass

L, D = 3, 4


@pytest.fixture(scope="module")
def chains() -> Any:
    return random_chains(np.random.default_rng(3), 12, D, L, 3)


@pytest.fixture(scope="module")
def labelled() -> Any:
    X, y = random_multiclass(np.random.default_rng(0), 25, D, L)
    return list(X), [int(k) for k in y]


@pytest.mark.slow
def test_interpreted_equals_compiled(chains: Any, python_chain: Any, compiled_chain: Any) -> None:
    X, y = chains
    # Rounding decides between outputs of equal value, so the ways differ; the optimum does not.
    a = SSVM(python_chain(), 0.1, tol=1e-12, random_state=0).fit(X, y)
    b = SSVM(compiled_chain(), 0.1, tol=1e-12, random_state=0).fit(X, y)
    np.testing.assert_allclose(a.weights_, b.weights_, rtol=0, atol=1e-6)
    assert a.primal_objective_ == pytest.approx(b.primal_objective_, rel=1e-11)
    assert abs(a.n_iter_ - b.n_iter_) <= 2
    for p, q in zip(a.predict(X), b.predict(X), strict=True):
        np.testing.assert_array_equal(p, q)


@pytest.mark.slow
def test_equals_the_library_s_own_chains(chains: Any, compiled_chain: Any) -> None:
    X, y = chains
    own = ChainSSVM(0.1, tol=1e-6, fit_intercept=False, boundary=False, random_state=0).fit(X, y)
    custom = SSVM(compiled_chain(), 0.1, tol=1e-6, random_state=0).fit(X, y)
    assert custom.primal_objective_ == pytest.approx(own.primal_objective_, rel=1e-6)


def test_equals_the_library_s_own_classes(labelled: Any, python_multiclass: Any) -> None:
    X, y = labelled
    own = MulticlassSSVM(1.0, tol=1e-6, fit_intercept=False, random_state=0).fit(X, y)
    custom = SSVM(python_multiclass(), tol=1e-6, random_state=0).fit(X, y)
    assert custom.primal_objective_ == pytest.approx(own.primal_objective_, rel=1e-6)
    np.testing.assert_allclose(custom.weights_.reshape(D, L), own.coef_.T, atol=2e-2)


def test_predict_score_and_decision_function(
    labelled: Any, chains: Any, python_multiclass: Any, python_chain: Any
) -> None:
    X, y = labelled
    model = SSVM(python_multiclass(), random_state=0).fit(X, y)
    predicted = model.predict(X)
    assert all(p.dtype == np.int32 and p.shape == (1,) for p in predicted)
    wrong = [p[0] != k for p, k in zip(predicted, y, strict=True)]
    assert model.score(X, y) == pytest.approx(-np.mean(wrong))
    scores = np.array(X) @ model.weights_.reshape(D, L)
    np.testing.assert_allclose(model.decision_function(X), scores.max(axis=1))
    X, y = chains
    model = SSVM(python_chain(), tol=0.5, random_state=0).fit(X, y)
    errors = [np.sum(p != k) for p, k in zip(model.predict(X), y, strict=True)]
    assert model.score(X, y) == pytest.approx(-np.mean(errors))
    assert model.decision_function(X).shape == (len(X),)


def test_unfitted(python_multiclass: Any) -> None:
    model = SSVM(python_multiclass())
    for call in (model.predict, model.decision_function, lambda X: model.score(X, [0])):
        with pytest.raises(NotFittedError):
            call([np.ones(D)])


class Words(Structure):
    """Inputs and outputs that are no arrays: whether a word is capitalised."""

    def pack(self, y: Any) -> Any:
        return np.array([["lower", "upper"].index(y)], dtype=np.int32)

    def unpack(self, vector: Any) -> Any:
        return ["lower", "upper"][vector[0]]

    def joint_feature(self, x: Any, y: Any) -> Any:
        f = np.zeros(4)
        f[2 * y[0] + x[0].isupper()] = 1.0
        return f

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true[0] != y[0])

    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        scores = [w @ self.joint_feature(x, [k]) for k in (0, 1)]
        if loss_scale:
            scores[1 - y_true[0]] += loss_scale
        return [int(scores[1] > scores[0])]


def test_pack_and_unpack() -> None:
    X = ["abc", "Abc", "x", "Yes", "no", "No"]
    y = ["lower", "upper", "lower", "upper", "lower", "upper"]
    model = SSVM(Words(), 10.0, random_state=0).fit(X, y)
    assert model.predict(["hello", "World"]) == ["lower", "upper"]
    assert model.score(X, y) == 0.0
    scores = cross_val_score(model, X, y, cv=KFold(2), error_score="raise")
    np.testing.assert_array_equal(scores, 0.0)
    search = GridSearchCV(model, {"C": [0.1, 10.0]}, cv=KFold(2), error_score="raise").fit(X, y)
    assert search.best_score_ == 0.0


class Faster(Structure):
    """Plane primitives of its own, which must agree with the derived ones."""

    used: set[str] = set()  # noqa: RUF012

    def joint_feature(self, x: Any, y: Any) -> Any:
        f = np.zeros((L, D))
        f[y[0]] = x
        return f.ravel()

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true[0] != y[0])

    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        scores = w.reshape(L, D) @ x
        if loss_scale:
            scores = scores + loss_scale * (np.arange(L) != y_true[0])
        return np.array([np.argmax(scores)])


class Fastest(Faster):
    def plane_score(self, x: Any, y_true: Any, y: Any, w: Any) -> float:
        self.used.add("plane_score")
        W = w.reshape(L, D)
        return float(x @ (W[y_true[0]] - W[y[0]]))

    def plane_add(self, x: Any, y_true: Any, y: Any, step: float, w: Any) -> None:
        self.used.add("plane_add")
        W = w.reshape(L, D)
        W[y_true[0]] += step * x
        W[y[0]] -= step * x

    def plane_sqdist(self, x: Any, y: Any, z: Any) -> float:
        self.used.add("plane_sqdist")
        return float(2.0 * x @ x) if y[0] != z[0] else 0.0


def test_own_plane_primitives_are_used(labelled: Any) -> None:
    X, y = labelled
    Fastest.used.clear()
    a = SSVM(Faster(), tol=1e-4, random_state=0).fit(X, y)
    assert not Fastest.used
    b = SSVM(Fastest(), tol=1e-4, random_state=0).fit(X, y)
    assert Fastest.used == {"plane_score", "plane_add", "plane_sqdist"}
    np.testing.assert_allclose(a.weights_, b.weights_, atol=1e-8)


def test_clone_pickle_and_with_weights(labelled: Any) -> None:
    X, y = labelled
    X, y = X * 40, y * 40
    for warm_start in (False, True):
        model = SSVM(Faster(), tol=0.5, warm_start=warm_start, random_state=0).fit(X, y)
        stored = pickle.dumps(model)
        assert len(stored) < 7_000  # one number per example alone takes 8 000 bytes
        again = pickle.loads(stored)
        for a, b in zip(again.predict(X[:9]), model.predict(X[:9]), strict=True):
            np.testing.assert_array_equal(a, b)
        again.fit(X, y)
    twin = clone(model)
    assert isinstance(twin.structure, Faster)
    other = model.with_weights(2 * model.weights_)
    np.testing.assert_allclose(other.decision_function(X[:5]), 2 * model.decision_function(X[:5]))


@pytest.mark.slow
def test_compiling_is_announced_once(chains: Any, compiled_chain: Any, capsys: Any) -> None:
    X, y = chains
    SSVM(compiled_chain(), 0.1, random_state=0).fit(X, y)
    capsys.readouterr()
    SSVM(compiled_chain(), 0.1, random_state=0).fit(X, y)
    assert "compiling" not in capsys.readouterr().err


@pytest.mark.slow
def test_integer_inputs_of_a_compiled_structure(chains: Any, compiled_chain: Any) -> None:
    """Integers of one dtype throughout: kernels are compiled for it once more, and fit."""
    X, y = chains
    whole = [np.round(x) for x in X]
    expected = SSVM(compiled_chain(), 0.1, random_state=0).fit(whole, y)
    mixed = [x.astype(int) if i % 2 else x for i, x in enumerate(whole)]
    model = SSVM(compiled_chain(), 0.1, random_state=0).fit(mixed, y)
    np.testing.assert_array_equal(model.weights_, expected.weights_)
    assert len(model.predict(whole)) == len(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_decode_that_forgets_the_loss(chains: Any, python_chain: Any) -> None:
    """It would converge to a gap of 0, for another problem."""

    class Forgetful(python_chain):  # type: ignore[misc]
        def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
            return super().decode(x, w, y_true, 0.0)

    with pytest.raises(ValueError, match=r"decode does not find.*loss_scale.*exact = False"):
        SSVM(Forgetful()).fit(*chains)
    Forgetful.exact = False
    assert np.isnan(SSVM(Forgetful(), max_iter=3).fit(*chains).duality_gap_)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("knows", ["no loss", "nothing"])
def test_a_ranking_that_forgets_the_loss(seed: int, knows: str) -> None:
    """With zero weights it returns the first item, a mistake like any other in most examples."""

    class Forgetful(Structure):
        def joint_feature(self, x: Any, y: Any) -> Any:
            return x[y[0]]

        def loss(self, y_true: Any, y: Any) -> float:
            return float(y_true[0] != y[0])

        def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
            return np.array([np.argmax(x @ w) if knows == "no loss" else 0])

    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((5, 3)) for _ in range(20)]
    X = [x for x in X if np.argmax(x @ [1.0, -2.0, 0.5])]
    y = [int(np.argmax(x @ [1.0, -2.0, 0.5])) for x in X]
    with pytest.raises(ValueError, match=r"decode does not find.*score plus loss is"):
        SSVM(Forgetful()).fit(X, y)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("exact", [True, False])
def test_a_loss_that_is_none(labelled: Any, wrong: float, exact: bool) -> None:
    """Of the true output it is 0; for others a fit would run to max_iter and blame the oracle."""

    class Lossy(Faster):
        def loss(self, y_true: Any, y: Any) -> float:
            return wrong if y_true[0] != y[0] else 0.0

    Lossy.exact = exact
    with pytest.raises(ValueError, match=r"loss\(y\[\d\], y\) is .*finite and at least 0"):
        SSVM(Lossy(), max_iter=3).fit(*labelled)


class Priced(Structure):
    """Three classes; what a mistake costs is the last number of x."""

    def joint_feature(self, x, y):
        f = np.zeros((3, len(x) - 1))
        f[y[0]] = x[:-1]
        return f.ravel()

    def loss(self, x, y_true, y):
        return x[-1] * (y_true[0] != y[0])

    def decode(self, x, w, y_true, loss_scale):
        scores = w.reshape(3, -1) @ x[:-1]
        if loss_scale:
            scores = scores + loss_scale * x[-1] * (np.arange(3) != y_true[0])
        return np.array([np.argmax(scores)])


@njit
def _priced_feature(x, y):
    f = np.zeros(3 * (len(x) - 1))
    for k in range(len(x) - 1):
        f[y[0] * (len(x) - 1) + k] = x[k]
    return f


@njit
def _priced_loss(x, y_true, y):
    return x[-1] if y_true[0] != y[0] else 0.0


@njit
def _priced_decode(x, w, y_true, loss_scale):
    best, found = -np.inf, np.zeros(1, dtype=np.int32)
    for a in range(3):
        score = 0.0 if loss_scale == 0.0 or y_true[0] == a else loss_scale * x[-1]
        for k in range(len(x) - 1):
            score += w[a * (len(x) - 1) + k] * x[k]
        if score > best:
            best, found[0] = score, a
    return found


class CompiledPriced(Structure):
    joint_feature = staticmethod(_priced_feature)
    loss = staticmethod(_priced_loss)
    decode = staticmethod(_priced_decode)


@pytest.mark.parametrize("kind", [Priced, slow(CompiledPriced)])
def test_a_loss_may_depend_on_the_input(labelled: Any, kind: Any) -> None:
    X, y = labelled
    costs = np.random.default_rng(1).uniform(0.2, 3.0, len(X))
    X = [np.append(x, cost) for x, cost in zip(X, costs, strict=True)]
    check_structure(kind(), X[:5], y[:5], outputs=lambda x: range(3))
    model = SSVM(kind(), 0.3, tol=1e-4, random_state=0).fit(X, y)
    assert 0.0 <= model.duality_gap_ <= 1e-4 * model.primal_objective_
    W = model.weights_.reshape(3, -1)
    slacks = [
        max(cost * (a != true) + (W[a] - W[true]) @ x[:-1] for a in range(3))
        for x, true, cost in zip(X, y, costs, strict=True)
    ]
    primal = 0.5 * (W**2).sum() + 0.3 * sum(slacks)
    assert model.primal_objective_ == pytest.approx(primal, rel=1e-9)
    found = [int(label[0]) for label in model.predict(X)]
    assert model.score(X, y) == pytest.approx(-np.mean(costs * (np.array(found) != y)))
    with pytest.raises(ValueError, match="depends on x, which a report does not have"):
        compare(model, None, y, y, None)
