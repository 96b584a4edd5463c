"""ChainSSVM: forms of sequences, model selection, max-marginals."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from hingeline import ChainSSVM, MulticlassSSVM

# isort: split
from marks import slow
from naive import chain_joint_feature
from reference import random_chains

L, D = 3, 4
NAMES = np.array(["A", "B", "C"])


@pytest.fixture(scope="module")
def data() -> Any:
    return random_chains(np.random.default_rng(3), 40, D, L, 4)


@pytest.fixture(scope="module")
def fitted(data: Any) -> Any:
    return fit(*data)


def fit(X: Any, y: Any, lengths: Any = None, sample_weight: Any = None, **params: Any) -> Any:
    model = ChainSSVM(**{"tol": 1e-7, "random_state": 0, **params})
    return model.fit(X, y, lengths=lengths, sample_weight=sample_weight)


def test_forms_of_X(data: Any) -> None:
    X, y = data
    lengths = [len(x) for x in X]
    stacked, labels = np.concatenate(X), np.concatenate(y)
    ragged = np.empty(len(X), dtype=object)
    ragged[:] = X
    forms = {
        "csr": ([sp.csr_matrix(x) for x in X], y, None),
        "csr arrays": ([sp.csr_array(x) for x in X], y, None),
        "mixed": ([sp.csc_matrix(x) if i % 2 else x for i, x in enumerate(X)], y, None),
        "lists": ([x.tolist() for x in X], [labels.tolist() for labels in y], None),
        "tuple": (tuple(X), tuple(y), None),
        "object array": (ragged, y, None),
        "stacked": (stacked, labels, lengths),
        "stacked csr": (sp.csr_matrix(stacked), labels.tolist(), np.array(lengths)),
        "fortran": ([np.asfortranarray(x) for x in X], y, None),
    }
    fitted = fit(X, y, tol=0.1)
    scores = fitted.decision_function(X)
    for name, (inputs, outputs, sizes) in forms.items():
        model = fit(inputs, outputs, sizes, tol=0.1)
        np.testing.assert_array_equal(model.weights_, fitted.weights_, err_msg=name)
        predicted = model.predict(inputs, lengths=sizes)
        for a, b in zip(predicted, fitted.predict(X), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        for a, b in zip(model.decision_function(inputs, lengths=sizes), scores, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        assert model.score(inputs, outputs, lengths=sizes) == fitted.score(X, y)


def test_one_array_of_equal_lengths() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3, D))
    y = rng.integers(L, size=(20, 3))
    model = fit(X, y)
    np.testing.assert_array_equal(model.weights_, fit(list(X), list(y)).weights_)
    assert np.array(model.predict(X)).shape == (20, 3)


def test_float32_and_integers(data: Any) -> None:
    X, y = data
    single = [x.astype(np.float32) for x in X]
    model = fit(single, y, tol=1e-6)
    double = fit([x.astype(np.float64) for x in single], y, tol=1e-6)
    assert model.primal_objective_ == pytest.approx(double.primal_objective_, rel=2e-6)
    whole = [np.round(x).astype(int) for x in X]
    rounded = fit([x.astype(float) for x in whole], y, tol=0.1).weights_
    np.testing.assert_array_equal(fit(whole, y, tol=0.1).weights_, rounded)
    truth = fit([(x > 0) for x in X], y, tol=0.1)
    expected = fit([(x > 0).astype(float) for x in X], y, tol=0.1)
    np.testing.assert_array_equal(truth.weights_, expected.weights_)
    half = [np.round(x).astype(np.float16) for x in X]
    np.testing.assert_array_equal(fit(half, y, tol=0.1).weights_, rounded)


def test_read_only_input(data: Any, fitted: Any) -> None:
    X, y = data
    matrix = sp.csr_matrix(np.concatenate(X))
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    lengths = [len(x) for x in X]
    model = fit(matrix, np.concatenate(y), lengths)
    np.testing.assert_array_equal(model.weights_, fitted.weights_)


def test_blocks_are_views(data: Any) -> None:
    model = fit(*data)
    assert model.emission_coef_.shape == (L, D)
    assert model.transition_coef_.shape == (L, L)
    blocks = (
        model.emission_coef_,
        model.transition_coef_,
        model.start_coef_,
        model.end_coef_,
        model.intercept_,
    )
    for block in blocks:
        assert np.shares_memory(block, model.weights_)
    for shape in (block.shape for block in blocks[2:]):
        assert shape == (L,)
    square = sum(float(np.sum(block**2)) for block in blocks)
    assert square == pytest.approx(float(model.weights_ @ model.weights_), rel=1e-12)
    plain = fit(*data, boundary=False, fit_intercept=False)
    for block in (plain.start_coef_, plain.end_coef_, plain.intercept_):
        np.testing.assert_array_equal(block, np.zeros(L))


def score_of(model: Any, x: Any, y: Any) -> float:
    """The score of a labelling from the named blocks."""
    total = model.start_coef_[y[0]] + model.end_coef_[y[-1]]
    for t, label in enumerate(y):
        total += x[t] @ model.emission_coef_[label] + model.intercept_[label]
        if t:
            total += model.transition_coef_[y[t - 1], label]
    return float(total)


@pytest.mark.parametrize("boundary", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_max_marginals(data: Any, boundary: bool, fit_intercept: bool) -> None:
    X, y = data
    model = fit(X, y, boundary=boundary, fit_intercept=fit_intercept, tol=1e-3)
    marginals = model.predict_max_marginals(X)
    margins = model.decision_function(X)
    predicted = model.predict(X)
    assert len(marginals) == len(predicted) == len(X)
    for x, table, margin, labels in zip(X, marginals, margins, predicted, strict=True):
        paths = list(itertools.product(range(L), repeat=len(x)))
        scores = np.array([score_of(model, x, path) for path in paths])
        expected, rest = np.full((2, len(x), L), -np.inf)
        for path, value in zip(paths, scores, strict=True):
            for t, label in itertools.product(range(len(x)), range(L)):
                side = expected if path[t] == label else rest
                side[t, label] = max(side[t, label], value)
        np.testing.assert_allclose(table, expected, atol=1e-10)
        np.testing.assert_allclose(margin, expected - rest, atol=1e-10)
        assert (margin.max(axis=1) >= 0).all()
        assert score_of(model, x, labels) == pytest.approx(scores.max(), abs=1e-10)
        if np.sum(scores > scores.max() - 1e-9) == 1:
            np.testing.assert_array_equal(labels, table.argmax(axis=1))
            np.testing.assert_array_equal(labels, margin.argmax(axis=1))


def test_blocks_agree_with_joint_features(data: Any) -> None:
    X, y = data
    model = fit(X, y, fit_intercept=False)
    blocks = (model.emission_coef_.T, model.transition_coef_, model.start_coef_, model.end_coef_)
    flat = np.concatenate([block.ravel() for block in blocks])
    for x, labels in zip(X, y, strict=True):
        expected = flat @ chain_joint_feature(x, labels, L, True)
        assert score_of(model, x, labels) == pytest.approx(expected, abs=1e-10)


def test_score(data: Any, fitted: Any) -> None:
    X, y = data
    predicted = fitted.predict(X)
    right = np.concatenate(predicted) == np.concatenate(y)
    assert fitted.score(X, y) == pytest.approx(right.mean())
    weights = np.arange(len(X)) % 3
    per_token = np.repeat(weights, [len(x) for x in X])
    expected = np.average(right, weights=per_token)
    assert fitted.score(X, y, sample_weight=weights) == pytest.approx(expected)


def test_threads_in_prediction(data: Any, fitted: Any) -> None:
    X, _ = data
    threaded = clone(fitted).set_params(n_jobs=3).fit(*data)
    for a, b in zip(threaded.predict(X), fitted.predict(X), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(threaded.decision_function(X), fitted.decision_function(X), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(threaded.predict(X[:1])) == 1


@pytest.mark.parametrize(
    "names",
    [
        ["A", "B", "C"],
        [-1, 0, 1],
        [5, "x", 2.5],
        [("B", "NP"), ("I", "NP"), ("O", "")],
        [frozenset({1}), frozenset({2}), frozenset()],
    ],
    ids=["strings", "minus one", "mixed", "tuples", "sets"],
)
def test_labels_of_any_kind(data: Any, fitted: Any, names: Any) -> None:
    X, y = data
    labels = [[names[k] for k in row] for row in y]
    model = fit(X, labels)
    assert sorted(map(str, model.classes_)) == sorted(map(str, names))
    assert model.primal_objective_ == pytest.approx(fitted.primal_objective_, rel=2e-7)
    assert model.score(X, labels) == pytest.approx(fitted.score(X, y), abs=0.02)
    assert all(label in names for row in model.predict(X) for label in row)


def test_class_weight_multiplies_the_loss(data: Any) -> None:
    X, y = data
    counts = np.bincount(np.concatenate(y))
    balanced = counts.sum() / (L * counts)
    for class_weight, costs in (
        ({0: 2.0, 2: 0.5}, np.array([2.0, 1.0, 0.5])),
        ("balanced", balanced),
    ):
        model = fit(X, y, class_weight=class_weight, tol=0.1)
        twin = fit(X, y, loss=costs, tol=0.1)
        np.testing.assert_array_equal(model.weights_, twin.weights_)


@pytest.mark.parametrize("slack", ["max", slow("squared")])
def test_weights_are_repetition(data: Any, slack: str) -> None:
    X, y = data
    counts = np.random.default_rng(0).integers(0, 3, len(y))
    pick = np.repeat(np.arange(len(y)), counts)
    weighted = fit(X, y, sample_weight=counts, slack=slack)
    repeated = fit([X[i] for i in pick], [y[i] for i in pick], slack=slack)
    assert weighted.primal_objective_ == pytest.approx(repeated.primal_objective_, rel=2e-7)


def test_single_tokens_are_multiclass() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, D)), rng.integers(L, size=40)
    tagger = fit([x[None] for x in X], [[k] for k in y], boundary=False, C=1.0)
    classifier = MulticlassSSVM(1.0, tol=1e-7, random_state=0).fit(X, y)
    assert tagger.primal_objective_ == pytest.approx(classifier.primal_objective_, rel=2e-7)
    np.testing.assert_array_equal(tagger.transition_coef_, np.zeros((L, L)))


def test_one_label_only(data: Any) -> None:
    X, _ = data
    model = fit(X, [["O"] * len(x) for x in X])
    assert model.converged_
    assert model.primal_objective_ == 0.0
    assert model.score(X, [["O"] * len(x) for x in X]) == 1.0
    margins = model.decision_function(X[:2])
    assert [p.shape for p in margins] == [(len(x), 1) for x in X[:2]]
    assert all((p == np.inf).all() for p in margins)
    assert [len(found) for found in model.predict_nbest(X[:2], 5)] == [1, 1]


def test_pickle(data: Any) -> None:
    X, y = data
    many, labels = X * 60, y * 60
    for warm_start in (False, True):
        model = fit(many, labels, warm_start=warm_start, tol=0.1)
        stored = pickle.dumps(model)
        assert len(stored) < 10_000  # one number per sequence alone takes 19 200 bytes
        again = pickle.loads(stored)
        for a, b in zip(again.predict(X), model.predict(X), strict=True):
            np.testing.assert_array_equal(a, b)
        assert repr(again.history_) == repr(model.history_)


def test_with_weights(data: Any, fitted: Any) -> None:
    X, _ = data
    other = fitted.with_weights(3.0 * fitted.weights_)
    for a, b in zip(other.decision_function(X), fitted.decision_function(X), strict=True):
        np.testing.assert_allclose(a, 3.0 * b)
    assert np.isnan(other.duality_gap_)
    assert np.isnan(other.primal_objective_)
    assert fitted.history_
    assert other.history_ == []
    with pytest.raises(ValueError, match="weights has shape"):
        fitted.with_weights(fitted.weights_[:-1])


class Scale(TransformerMixin, BaseEstimator):
    """Maps lists of arrays to lists of arrays."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def fit(self, X: Any, y: Any = None) -> Scale:
        self.mean_ = np.concatenate(X).mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return [self.factor * (x - self.mean_) for x in X]


def test_pipeline_and_grid_search(data: Any) -> None:
    X, y = data
    pipeline = make_pipeline(Scale(), ChainSSVM(tol=0.1, random_state=0))
    search = GridSearchCV(
        pipeline, {"scale__factor": [0.1, 1.0], "chainssvm__C": [0.01, 1.0]}, cv=2
    ).fit(X, y)
    assert 0.3 < search.best_score_ <= 1.0
    assert len(search.predict(X)) == len(X)
    assert len(cross_val_score(ChainSSVM(tol=0.1), X, y, cv=KFold(4), error_score="raise")) == 4
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    assert 0.0 <= fit(X_train, y_train).score(X_test, y_test) <= 1.0


@pytest.mark.parametrize(
    "params", [{}, {"class_weight": {"rare": 2.0}}, {"class_weight": "balanced"}]
)
def test_a_fold_that_lacks_a_label(data: Any, params: Any) -> None:
    X, y = data
    labels = [NAMES[row].tolist() for row in y]
    labels[0] = ["rare"] * len(labels[0])
    model = ChainSSVM(tol=0.3, random_state=0, **params)
    scores = cross_val_score(model, X, labels, cv=KFold(4), error_score="raise")
    assert np.isfinite(scores).all()
    search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=KFold(2), error_score="raise")
    assert set(search.fit(X, labels).best_estimator_.classes_) == {*NAMES, "rare"}


def test_clone_and_parameters() -> None:
    model = ChainSSVM(
        0.3, loss=(2.0, "hamming"), boundary=False, scheme="auto", solver_options={"block": 4}
    )
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert ChainSSVM().C == "scale"
    assert ChainSSVM().scheme is None
    assert "boundary=False" in repr(model)


@pytest.mark.parametrize("intercept", [True, False])
def test_C_by_the_scale_of_the_features(data: Any, intercept: bool) -> None:
    X, y = data
    params = {"fit_intercept": intercept, "tol": 1e-3}
    model = fit(X, y, **params)
    assert model.C == "scale"
    assert pytest.approx(3.0 / (1.0 + (np.concatenate(X) ** 2).sum(axis=1).mean())) == model.C_
    twin = fit(X, y, C=model.C_, **params)
    assert twin.C_ == model.C_
    np.testing.assert_array_equal(model.weights_, twin.weights_)
    large = fit([1e3 * x for x in X], y, scale=False, **params)
    assert pytest.approx(3e-6 / (np.concatenate(X) ** 2).sum(axis=1).mean(), rel=1e-4) == large.C_
    assert pickle.loads(pickle.dumps(model)).C_ == model.C_
    with pytest.raises(TypeError, match="C must be a number, 'auto' or 'scale', got 'scaled'"):
        fit(X, y, C="scaled")


def test_C_of_a_stream(data: Any) -> None:
    X, y = data
    first = ChainSSVM(random_state=0).partial_fit(X[:20], y[:20], classes=range(L), passes=1)
    price = first.C_
    assert price == fit(X[:20], y[:20]).C_
    assert price == first.partial_fit(X[20:], y[20:], passes=1).C_  # as those before
    whole = first.partial_fit(X[:1], y[:1])
    assert pytest.approx(fit([*X, X[0]], [*y, y[0]]).C_) == whole.C_


def test_what_zero_one_loss_does_not_go_with(data: Any) -> None:
    X, y = data
    for params, named in (
        ({"slack": "sum"}, "slack='sum'"),
        ({"class_weight": {0: 2.0}}, "class_weight"),
    ):
        with pytest.raises(ValueError, match=f"{named} does not work with loss='zero_one'"):
            ChainSSVM(loss="zero_one", **params).fit(X, y)
    model = ChainSSVM(loss="zero_one", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="summed_slack_bounds does not work with"):
        model.summed_slack_bounds(X, y)
    with pytest.raises(ValueError, match="choose one of 'hamming', 'zero_one'"):
        ChainSSVM(loss="zero-one").fit(X, y)
    # A sequence costs C at most, whatever its length.
    assert model.primal_objective_ <= model.C_ * len(X) * (1.0 + 1e-9)
    stream = ChainSSVM(random_state=0).partial_fit(X[:20], y[:20], passes=1)
    with pytest.raises(ValueError, match="loss or class_weight has changed"):
        stream.set_params(loss="zero_one").partial_fit(X[20:], y[20:], passes=1)


def test_long_sequences(data: Any) -> None:
    """Beyond the length up to which inner products of tokens are kept."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(length, D)) for length in (150, 3, 140, 20)]
    y = [np.argmax(x[:, :L] + 0.3 * rng.normal(size=(len(x), L)), axis=1) for x in X]
    sdm = fit(X, y, C=0.01, tol=1e-5)
    fsmo = fit(X, y, C=0.01, tol=1e-5, solver="fsmo", max_iter=10**4)
    assert sdm.primal_objective_ == pytest.approx(fsmo.primal_objective_, rel=1e-5)
    assert sdm.score(X, y) > 0.7
