"""MulticlassSSVM as a scikit-learn classifier."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from hingeline import MulticlassSSVM
from hingeline._checks import as_csr, number_classes
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Workers
from hingeline.solvers.enumerated import EnumeratedSDM

# isort: split
from reference import random_multiclass

L, D = 3, 4


@parametrize_with_checks([MulticlassSSVM(tol=1e-8)])
def test_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def data() -> Any:
    return random_multiclass(np.random.default_rng(0), 60, D, L)


@pytest.fixture(scope="module")
def fitted(data: Any) -> Any:
    return MulticlassSSVM(tol=1e-6, random_state=0).fit(*data)


def fit(X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Any:
    params = {"tol": 1e-8, "random_state": 0, **params}
    return MulticlassSSVM(**params).fit(X, y, sample_weight=sample_weight)


def test_public_attributes(data: Any, fitted: Any) -> None:
    assert is_classifier(fitted)
    assert fitted.coef_.shape == (L, D)
    assert fitted.intercept_.shape == (L,)
    np.testing.assert_array_equal(fitted.classes_, [0, 1, 2])
    assert fitted.n_features_in_ == D
    assert fitted.weights_.dtype == np.float64
    assert fitted.weights_.ndim == 1


def test_coefficients_are_views(data: Any) -> None:
    model = fit(*data)
    assert np.shares_memory(model.coef_, model.weights_)
    assert np.shares_memory(model.intercept_, model.weights_)
    before = model.decision_function(data[0])
    model.coef_[1] += 1.0
    model.intercept_[1] += 1.0
    expected = before.copy()
    expected[:, 1] += data[0].sum(axis=1) + 1.0
    np.testing.assert_allclose(model.decision_function(data[0]), expected)
    without = fit(*data, fit_intercept=False)
    np.testing.assert_array_equal(without.intercept_, np.zeros(L))


def test_decision_function_and_predict(data: Any, fitted: Any) -> None:
    X, y = data
    scores = fitted.decision_function(X)
    assert scores.shape == (len(X), L)
    np.testing.assert_allclose(scores, X @ fitted.coef_.T + fitted.intercept_)
    np.testing.assert_array_equal(fitted.predict(X), scores.argmax(axis=1))
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y)
    half = np.arange(len(y)) % 2
    assert fitted.score(X, y, sample_weight=half) == pytest.approx(
        np.average(fitted.predict(X) == y, weights=half)
    )
    np.testing.assert_allclose(fitted.decision_function(sp.csr_matrix(X)), scores)


def test_binary_decision_function_is_one_dimensional(data: Any) -> None:
    X, y = data
    y = np.where(y == 2, "yes", "no")
    model = fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (len(X),)
    assert model.coef_.shape == (2, D)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, "yes", "no"))


def test_parameters_and_clone(data: Any) -> None:
    model = MulticlassSSVM(
        2.0, slack="squared", loss=1 - np.eye(L), solver_options={"passes": 3}, random_state=4
    )
    twin = clone(model)
    for name, value in model.get_params().items():
        np.testing.assert_equal(twin.get_params()[name], value)
    np.testing.assert_array_equal(twin.fit(*data).weights_, model.fit(*data).weights_)
    assert not hasattr(clone(model), "weights_")
    assert model.set_params(C=3.0).C == 3.0
    assert "C=3.0" in repr(model)


@pytest.mark.parametrize("warm_start", [False, True])
def test_pickle(data: Any, warm_start: bool) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([data[0]] * 40) + 0.1 * rng.normal(size=(2400, D))
    y = np.concatenate([data[1]] * 40)
    model = MulticlassSSVM(random_state=0, warm_start=warm_start).fit(X, y)
    if warm_start:
        model.partial_fit(X[:5], y[:5])
    stored = pickle.dumps(model)
    assert len(stored) < 10_000  # X alone takes 76 800 bytes, one number per example 19 200
    again = pickle.loads(stored)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert again.duality_gap_ == model.duality_gap_
    assert repr(again.history_) == repr(model.history_)
    again.fit(X, y)


def test_forms_of_X(data: Any) -> None:
    X, y = data
    expected = fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        np.save(path, X)
        mapped = np.load(path, mmap_mode="r")
        forms = {
            "list": X.tolist(),
            "fortran": np.asfortranarray(X),
            "strided": np.repeat(X, 2, axis=1)[:, ::2],
            "memmap": mapped,
            "csr": sp.csr_matrix(X),
            "csc": sp.csc_matrix(X),
            "coo array": sp.coo_array(X),
        }
        for name, form in forms.items():
            model = fit(form, y)
            np.testing.assert_array_equal(model.weights_, expected.weights_, err_msg=name)
            np.testing.assert_allclose(
                model.decision_function(form), expected.decision_function(X), err_msg=name
            )
        del mapped, forms


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_read_only_sparse(data: Any, fit_intercept: bool) -> None:
    X, y = data
    matrix = sp.csr_matrix(X)
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    expected = fit(X, y, fit_intercept=fit_intercept)
    model = fit(matrix, y, fit_intercept=fit_intercept)
    np.testing.assert_array_equal(model.weights_, expected.weights_)


def test_sparse_with_room_to_spare(data: Any) -> None:
    X, y = data
    roomy = sp.csr_matrix(X)
    roomy.data, roomy.indices = np.append(roomy.data, np.nan), np.append(roomy.indices, 0)
    fitted = MulticlassSSVM(random_state=0).fit(roomy, y)
    wanted = MulticlassSSVM(random_state=0).fit(sp.csr_matrix(X), y)
    np.testing.assert_array_equal(fitted.weights_, wanted.weights_)
    np.testing.assert_array_equal(fitted.predict(roomy), wanted.predict(X))
    assert len(roomy.data) > roomy.indptr[-1]  # the caller's matrix is left alone


def test_sparse_with_duplicates_and_unsorted_indices(data: Any) -> None:
    X, y = data
    n, d = X.shape
    rows = np.repeat(np.arange(n), 2 * d)
    columns = np.tile(np.concatenate([np.arange(d)[::-1], np.arange(d)]), n)
    values = 0.5 * X[rows, columns]
    indptr = np.arange(0, 2 * d * n + 1, 2 * d)
    matrix = sp.csr_matrix((values, columns, indptr), shape=(n, d))
    before = matrix.data.copy()
    model = fit(matrix, y)
    assert model.primal_objective_ == pytest.approx(fit(X, y).primal_objective_, rel=2e-8)
    np.testing.assert_array_equal(matrix.data, before)  # the caller's matrix is left alone


def test_float32(data: Any) -> None:
    X, y = data
    single = X.astype(np.float32)
    model = fit(single, y, tol=1e-6)
    double = fit(single.astype(np.float64), y, tol=1e-6)
    assert model.primal_objective_ == pytest.approx(double.primal_objective_, rel=1e-6)
    assert model.weights_.dtype == np.float64
    np.testing.assert_array_equal(model.predict(single), double.predict(single))


@pytest.mark.parametrize(
    "names",
    [["a", "b", "c"], [-1, 0, 1], [10, -7, 3], [False, True, True], [0.0, 1.0, 2.0]],
    ids=str,
)
def test_labels_of_any_kind(data: Any, names: Any) -> None:
    X, y = data
    labels = np.array(names)[y]
    model = fit(X, labels)
    np.testing.assert_array_equal(model.classes_, np.unique(labels))
    predicted = model.predict(X)
    assert predicted.dtype == labels.dtype
    assert set(predicted.tolist()) <= set(names)
    assert model.score(X, labels) > 0.5
    plain = fit(X, np.unique(labels, return_inverse=True)[1])
    np.testing.assert_array_equal(model.weights_, plain.weights_)


@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
def test_class_weight_is_sample_weight(data: Any, solver: str) -> None:
    X, y = data
    given = {0: 0.5, 2: 3.0}
    balanced = len(y) / (L * np.bincount(y))
    for class_weight, by_class in ((given, np.array([0.5, 1.0, 3.0])), ("balanced", balanced)):
        model = fit(X, y, solver=solver, class_weight=class_weight)
        twin = fit(X, y, by_class[y], solver=solver)
        assert model.primal_objective_ == pytest.approx(twin.primal_objective_, rel=2e-8)
        np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-3)
    both = fit(X, y, by_class[y], solver=solver, class_weight=given)
    twin = fit(X, y, by_class[y] * np.array([0.5, 1.0, 3.0])[y], solver=solver)
    assert both.primal_objective_ == pytest.approx(twin.primal_objective_, rel=2e-8)


def test_class_weight_by_string_labels(data: Any) -> None:
    X, y = data
    names = np.array(["a", "b", "c"])[y]
    model = fit(X, names, class_weight={"a": 2.0, "absent": 5.0})
    twin = fit(X, y, np.where(y == 0, 2.0, 1.0))
    np.testing.assert_array_equal(model.weights_, twin.weights_)


@pytest.mark.parametrize("slack", ["max", "squared"])
def test_weights_are_repetition(data: Any, slack: str) -> None:
    X, y = data
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = fit(X, y, counts, slack=slack)
    repeated = fit(np.repeat(X, counts, axis=0), np.repeat(y, counts), slack=slack)
    assert weighted.primal_objective_ == pytest.approx(repeated.primal_objective_, rel=2e-8)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-3)
    scaled = fit(X, y, np.full(len(y), 3.0), slack=slack, C=1.0)
    larger = fit(X, y, slack=slack, C=3.0)
    assert scaled.primal_objective_ == pytest.approx(larger.primal_objective_, rel=2e-8)


def test_with_weights(data: Any, fitted: Any) -> None:
    X, _ = data
    other = fitted.with_weights(2.0 * fitted.weights_)
    np.testing.assert_allclose(other.coef_, 2.0 * fitted.coef_)
    np.testing.assert_allclose(other.decision_function(X), 2.0 * fitted.decision_function(X))
    np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
    assert np.isnan(other.duality_gap_)
    assert not other.converged_
    assert other.get_params() == fitted.get_params()
    other.coef_[:] = 0.0
    assert fitted.coef_.any()
    with pytest.raises(ValueError, match=r"weights has shape \(3,\), expected"):
        fitted.with_weights(np.zeros(3))


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_liblinear(data: Any, C: float) -> None:
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    for features, labels in ((X, y), data):
        peer = LinearSVC(
            C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=10**6
        ).fit(features, labels)
        scores = features @ peer.coef_.T
        own = scores[np.arange(len(labels)), labels]
        margin = scores - own[:, None] + 1.0
        margin[np.arange(len(labels)), labels] = 0.0
        objective = 0.5 * np.sum(peer.coef_**2) + C * margin.max(axis=1).sum()
        for solver in ("sdm", "fsmo"):
            model = fit(
                features, labels, C=C, solver=solver, fit_intercept=False, tol=1e-5, max_iter=10**4
            )
            assert model.primal_objective_ == pytest.approx(objective, rel=1e-4)


def test_model_selection() -> None:
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), MulticlassSSVM(random_state=0)),
        {"multiclassssvm__C": [0.01, 1.0], "multiclassssvm__slack": ["max", "squared"]},
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.9
    assert cross_val_score(MulticlassSSVM(), X, y, scoring="accuracy").shape == (5,)


def test_wide_tables_of_classes() -> None:
    """More classes than a vector is long, some rare, and a row of zeros."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(70), rng.integers(70, size=200)])
    X = rng.normal(size=(70, 20))[y] + 0.3 * rng.normal(size=(270, 20))
    X[5] = 0.0
    sdm = fit(X, y, tol=1e-5)
    fsmo = fit(X, y, tol=1e-5, solver="fsmo", max_iter=10**4)
    assert sdm.primal_objective_ == pytest.approx(fsmo.primal_objective_, rel=1e-5)
    assert sdm.score(X, y) > 0.9


@pytest.mark.parametrize("zeros", [False, True])
def test_dense_input_as_scipy_would_have_it(zeros):
    """Tables without zeros take a way of their own, which must leave the caller's array alone."""
    X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    X[2, 1] = 0.0 if zeros else 1.0
    for given in (X, X[::2], np.asfortranarray(X)):
        found, wanted = as_csr(given), sp.csr_matrix(given)
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
            assert getattr(found, name).dtype == getattr(wanted, name).dtype
        assert not np.shares_memory(found.data, given)
    assert as_csr(np.zeros((0, 3))).shape == (0, 3)


def test_labels_that_are_no_classes():
    X = np.arange(1.0, 7.0).reshape(6, 1)
    with pytest.raises(ValueError, match="continuous"):
        MulticlassSSVM().fit(X, np.linspace(0.0, 1.0, 6))


def test_stages_are_left_where_visits_crawl():
    """Columns of other scales: stages of C would only put Newton steps off."""
    rng = np.random.default_rng(0)
    y = np.arange(1500) % 5
    X = rng.normal(size=(5, 12))[y] + 2.0 * rng.normal(size=(1500, 12))
    stages = {}
    for name, scales in (("even", np.ones(12)), ("uneven", 10.0 ** np.linspace(-1.0, 2.0, 12))):
        model = MulticlassSSVM(C=0.1, tol=0.3, random_state=0)
        rows = as_csr(X * scales)
        model.classes_ = np.unique(y)
        problem = model._make(rows, None, y.astype(np.int32))
        form = make_formulation(0.1, "max", "margin", np.ones(len(y)))
        with Workers(1, 1) as workers:
            solver = EnumeratedSDM(model._compile(problem), form, workers, 0)
            assert 1 <= len(solver.stages) <= 3
            solver.sweep()
            stages[name] = len(solver.stages)
    assert stages["even"] > 0
    assert stages["uneven"] == 0


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-128, 127] * 200, dtype=np.int8),
        np.array([3, 1, 1, 7, 3]),
        np.array([5]),
        np.array([2**62, -(2**62)]),
        np.array([[1, 2], [2, 1]]),
        np.array(["b", "a"]),
    ],
)
def test_classes_are_counted_as_sorting_finds_them(labels: Any) -> None:
    for found, expected in zip(
        number_classes(labels), np.unique(labels, return_inverse=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
