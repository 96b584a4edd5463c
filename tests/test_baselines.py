"""The semi-supervised baselines on a task where constraints help."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

from hingeline import ChainCRF, ChainSSVM
from hingeline import constraints as cs
from hingeline.baselines import CODL, DASO, PosteriorRegularization, TransductiveSSVM
from hingeline.features.dicts import DictEncoder

# isort: split
from fields import knowledge, records

SSVM = ChainSSVM(C=0.1, random_state=0)
CRF = ChainCRF(C=1.0)
METHODS = [CODL, TransductiveSSVM, PosteriorRegularization, DASO]


def make(method, constraints=None, **params):
    base = CRF if method in (PosteriorRegularization, DASO) else SSVM
    params.setdefault("base", base)
    return method(constraints=knowledge() if constraints is None else constraints, **params)


@pytest.fixture(scope="module")
def data():
    (X, y), (U, _) = records(0, 4), records(1, 60)
    return X + U, y + [None] * len(U), records(2, 100)


@pytest.fixture(scope="module")
def encoded(data):
    """The same with features as sparse matrices, and the words beside them."""
    X, y, _ = data
    matrix = DictEncoder().fit_transform(X)
    offsets = matrix.offsets
    rows = [matrix.matrix[lo:hi] for lo, hi in pairwise(offsets)]
    return rows, y, X


@pytest.mark.parametrize("method", METHODS)
def test_constraints_and_unlabelled_sequences_help(method, data):
    X, y, (T, y_true) = data
    base = clone(make(method).base).set_params(features=DictEncoder())  # one feature per token
    model = make(method, base=base).fit(X, y)
    models = [model.base_.with_weights(weights) for weights in model.round_weights_]
    rounds = [m.score(T, y_true) for m in models]
    assert model.score(T, y_true) == rounds[-1]
    assert rounds[-1] > rounds[0] + 0.1
    assert len(model.rounds_) == len(rounds) == model.selected_ + 1
    assert [len(labels) for labels in model.transduction_] == [len(x) for x in X]
    assert model.transduction_[0].tolist() == y[0]
    wrong = cs.check(knowledge()[:-1], X, model.transduction_)
    plain = cs.check(knowledge()[:-1], X, models[0].predict(X))
    assert wrong.violation < 0.2 * plain.violation


@pytest.mark.parametrize("method", METHODS)
def test_fits_are_the_same_bit_for_bit(method, data):
    X, y, _ = data
    model = make(method, max_rounds=1 if method is DASO else 2)
    threads = make(method, base=type(model.base)(**{**model.base.get_params(), "n_jobs": 2}))
    threads.set_params(**{k: v for k, v in model.get_params(deep=False).items() if k[:4] == "max_"})
    assert np.array_equal(model.fit(X, y).weights_, threads.fit(X, y).weights_)


def test_codl_with_gamma_one_is_the_supervised_model(encoded):
    X, y, words = encoded
    model = make(CODL, gamma=1.0, max_rounds=2).fit(X, y, words=words)
    supervised = ChainSSVM(C=0.1, random_state=0).fit(X[:4], y[:4])
    assert np.array_equal(model.weights_, supervised.weights_)


def test_codl_mixes_with_what_the_constrained_labels_teach(encoded):
    X, y, words = encoded
    model = make(CODL, gamma=0.7, max_rounds=1).fit(X, y, words=words)
    first = make(CODL, gamma=0.7, max_rounds=1).fit(X, y, words=words, dev=(X[:4], y[:4]))
    labels = [part.tolist() for part in CODL(SSVM, knowledge(), gamma=1.0, max_rounds=1)
              .fit(X, y, words=words).transduction_[4:]]  # fmt: skip
    taught = ChainSSVM(C=0.1, random_state=0).fit(X[4:], labels)
    supervised = ChainSSVM(C=0.1, random_state=0).fit(X[:4], y[:4])
    np.testing.assert_allclose(
        model.weights_, 0.7 * supervised.weights_ + 0.3 * taught.weights_, atol=1e-12
    )
    scores = [row.dev_score for row in first.rounds_]
    assert first.selected_ == int(np.argmax(scores))


@pytest.mark.parametrize("method", [PosteriorRegularization, DASO])
def test_without_constraints_soft_labels_teach_nothing(method, encoded):
    """The posterior of the supervised model is its own best answer (DASO: at temperature 1)."""
    X, y, words = encoded
    params = {"temperatures": [1.0]} if method is DASO else {}
    base = ChainCRF(C=1.0, tol=1e-8)
    model = make(method, constraints=(), base=base, **params).fit(X, y, words=words)
    supervised = ChainCRF(C=1.0, tol=1e-8).fit(X[:4], y[:4])
    np.testing.assert_allclose(model.weights_, supervised.weights_, atol=1e-3)


def test_the_objective_of_posterior_regularisation_never_rises(data):
    X, y, _ = data
    base = ChainCRF(C=1.0, tol=1e-6)
    model = make(PosteriorRegularization, base=base, max_passes=500).fit(X, y)
    objectives = [row.objective for row in model.rounds_]
    assert len(objectives) > 2
    assert all(b <= a + 1e-4 * abs(a) for a, b in pairwise(objectives))


def test_temperatures_are_taken_in_turn(data):
    X, y, _ = data
    model = make(DASO, temperatures=(1.0, 0.3, 0.05), max_rounds=2).fit(X, y)
    warm = [row.temperature for row in model.rounds_]
    assert np.isnan(warm[0])
    assert warm[-1] == 0.05


def test_the_unlabelled_weight_may_be_annealed_with_the_temperature(data):
    X, y, _ = data
    parts = {"temperatures": (1.0, 0.3), "max_rounds": 1}
    both = make(DASO, unlabelled_weight=(0.1, 1.0), **parts).fit(X, y)
    light = make(DASO, unlabelled_weight=0.1, **parts).fit(X, y)
    assert np.array_equal(both.round_weights_[1], light.round_weights_[1])
    assert not np.array_equal(both.round_weights_[2], light.round_weights_[2])
    assert both.rounds_[2].objective > light.rounds_[2].objective  # ten times as dear


@pytest.mark.slow
def test_the_transductive_problem_is_the_convex_one_of_its_labels(encoded):
    X, y, words = encoded
    base = ChainSSVM(C=0.1, tol=1e-4, random_state=0)
    model = TransductiveSSVM(base, knowledge(), C_u=2.0, max_rounds=1).fit(X, y, words=words)
    labels = CODL(base, knowledge(), gamma=1.0, max_rounds=1).fit(X, y, words=words)
    weights = [1.0] * 4 + [2.0 / (60 * 0.1)] * 60
    completed = [part.tolist() for part in labels.transduction_]
    wanted = ChainSSVM(C=0.1, tol=1e-4, random_state=0).fit(X, completed, sample_weight=weights)
    assert model.rounds_[1].objective == pytest.approx(wanted.primal_objective_, rel=2e-4)


def test_what_has_no_expectation_is_named(data):
    X, y, _ = data
    model = make(PosteriorRegularization, [cs.MinLength("A", length=2)], max_rounds=1).fit(X, y)
    assert model.left_out_ == ["minimum lengths"]


@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_refused(method, data):
    X, y, _ = data
    with pytest.raises(ValueError, match="None for all"):
        make(method).fit(X, [None] * len(X))
    with pytest.raises(ValueError, match="labels for all sequences"):
        make(method).fit(X[:4], y[:4])
    with pytest.raises(TypeError, match="base must be a Chain"):
        make(method, base="svm").fit(X, y)
    with pytest.raises(ValueError, match="predicates"):
        make(method, [cs.Predicate(lambda x, y: 0.0)]).fit(X, y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CODL(gamma=1.5), "gamma must be at most 1"),
        (CODL(beam=0), "beam must be"),
        (CODL(ChainSSVM(slack="squared")), "base's slack"),
        (TransductiveSSVM(C_u=0.0), "C_u must be"),
        (DASO(temperatures=()), "temperatures is empty"),
        (DASO(temperatures=(1.0, -1.0)), r"temperatures\[1\]"),
        (PosteriorRegularization(unlabelled_weight=0.0), "unlabelled_weight must be"),
        (DASO(unlabelled_weight=(0.1, 1.0)), "2 values for 4 temperatures"),
    ],
)
def test_parameters_without_a_meaning_are_refused(model, message, data):
    X, y, _ = data
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(X, y)
