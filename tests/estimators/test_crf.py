"""The conditional random field: against CRFsuite and enumeration, and as an estimator."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import hingeline
from hingeline import ChainCRF, ChainSSVM

# isort: split
from naive import enumerate_outputs

WORDS = ["the", "a", "dog", "cat", "sees", "likes", "old", "red"]
TAGS = {"the": "D", "a": "D", "dog": "N", "cat": "N", "sees": "V", "likes": "V"}


def sentences(seed=0, n=40, noise=0.15):
    """Lists of attributes, and tags that mostly follow from the word."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words = [WORDS[k] for k in rng.integers(len(WORDS), size=rng.integers(1, 9))]
        X.append(
            [[f"w={w}", f"e={w[-1]}", f"p={p}"] for w, p in zip(words, ["^", *words], strict=False)]
        )
        y.append([TAGS.get(w, "J") if rng.random() > noise else "N" for w in words])
    return X, y


def numbers(seed=0, n=15, d=4, labels=("a", "b", "c")):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, n)
    X = [rng.normal(size=(t, d)) for t in lengths]
    y = [[labels[k] for k in rng.integers(len(labels), size=t)] for t in lengths]
    return X, y


def brute_force(model, x):
    """Probabilities of all labellings, from the weights by name."""
    emissions = x @ model.emission_coef_.T + model.intercept_
    outputs = [np.array(y) for y in enumerate_outputs(len(x), len(model.classes_))]
    values = np.array(
        [
            emissions[np.arange(len(x)), y].sum()
            + model.transition_coef_[y[:-1], y[1:]].sum()
            + model.start_coef_[y[0]]
            + model.end_coef_[y[-1]]
            for y in outputs
        ]
    )
    log_z = np.log(np.exp(values).sum())
    return outputs, values - log_z


@pytest.mark.parametrize("c2", [1.0, 0.1])
def test_weights_and_likelihood_are_those_of_crfsuite(c2, tmp_path):
    """``C = 1/(2·c2)``; CRFsuite stops at a relative change of its objective of 1e-9."""
    crfsuite = pytest.importorskip("pycrfsuite")
    X, y = sentences()
    ours = ChainCRF(C=0.5 / c2, tol=1e-9, fit_intercept=False, boundary=False).fit(X, y)
    trainer = crfsuite.Trainer(verbose=False)
    for x, labels in zip(X, y, strict=True):
        trainer.append(x, labels)
    trainer.set_params(
        {
            "c1": 0.0,
            "c2": c2,
            "max_iterations": 5000,
            "epsilon": 1e-9,
            "delta": 1e-13,
            "feature.possible_states": True,
            "feature.possible_transitions": True,
        }
    )
    trainer.train(str(tmp_path / "model"))
    tagger = crfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    theirs = tagger.info()
    classes = ours.classes_.tolist()
    feature = {name: k for k, name in enumerate(ours.feature_names_.tolist())}
    states = np.zeros_like(ours.emission_coef_)
    for (name, label), weight in theirs.state_features.items():
        states[classes.index(label), feature[name]] = weight
    moves = np.zeros_like(ours.transition_coef_)
    for (a, b), weight in theirs.transitions.items():
        moves[classes.index(a), classes.index(b)] = weight
    np.testing.assert_allclose(ours.emission_coef_, states, atol=2e-4)
    np.testing.assert_allclose(ours.transition_coef_, moves, atol=2e-4)
    likelihood = 0.0
    marginals = ours.predict_marginals(X)
    for x, labels, table in zip(X, y, marginals, strict=True):
        tagger.set(x)
        likelihood += np.log(tagger.probability(labels))
        for t in range(len(x)):
            for k, label in enumerate(classes):
                assert table[t, k] == pytest.approx(tagger.marginal(label, t), abs=1e-4)
    weights = ours.weights_
    mine = -(ours.primal_objective_ - 0.5 * weights @ weights) / ours.C
    assert mine == pytest.approx(likelihood, rel=1e-5)


@pytest.mark.parametrize("params", [{}, {"fit_intercept": False, "boundary": False}])
def test_marginals_and_objective_are_those_of_all_labellings(params):
    X, y = numbers()
    model = ChainCRF(C=2.0, **params).fit(X, y)
    loss = 0.0
    for x, labels, table in zip(X, y, model.predict_marginals(X), strict=True):
        outputs, log_p = brute_force(model, x)
        for t in range(len(x)):
            for k in range(3):
                share = np.exp(log_p[[output[t] == k for output in outputs]]).sum()
                assert table[t, k] == pytest.approx(share, abs=1e-10)
        truth = [model.classes_.tolist().index(label) for label in labels]
        loss -= next(
            p for output, p in zip(outputs, log_p, strict=True) if output.tolist() == truth
        )
    primal = 0.5 * model.weights_ @ model.weights_ + 2.0 * loss
    assert model.primal_objective_ == pytest.approx(primal, rel=1e-10)
    assert model.converged_
    assert model.duality_gap_ <= 1e-3 * primal
    assert model.dual_objective_ <= model.primal_objective_


def test_sample_weight_is_repetition():
    X, y = numbers(n=6)
    counts = [0, 1, 2, 3, 1, 2]
    weighted = ChainCRF(tol=1e-9).fit(X, y, sample_weight=counts)
    X2 = [x for x, c in zip(X, counts, strict=True) for _ in range(c)]
    y2 = [x for x, c in zip(y, counts, strict=True) for _ in range(c)]
    repeated = ChainCRF(tol=1e-9).fit(X2, y2)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, atol=1e-4)


def test_forms_of_input_give_the_same_model():
    X, y = numbers()
    model = ChainCRF().fit(X, y)
    for other in ([sp.csr_matrix(x) for x in X], np.concatenate(X)):
        if isinstance(other, list):
            found = ChainCRF().fit(other, y)
        else:
            flat = [label for labels in y for label in labels]
            found = ChainCRF().fit(other, flat, lengths=[len(x) for x in X])
        assert np.array_equal(found.weights_, model.weights_)


def test_threads_change_no_bit():
    X, y = sentences(n=100)
    a, b = ChainCRF(n_jobs=1).fit(X, y), ChainCRF(n_jobs=2).fit(X, y)
    assert np.array_equal(a.weights_, b.weights_)


def test_saved_and_pickled_models_predict_the_same(tmp_path):
    X, y = sentences()
    model = ChainCRF(C=3.0).fit(X, y)
    report = model.save(tmp_path / "m.hinge", check=(X, y))
    assert report["exact"]
    assert report["changed_predictions"] == 0.0
    for other in (
        ChainCRF.load(tmp_path / "m.hinge"),
        hingeline.load(tmp_path / "m.hinge"),
        pickle.loads(pickle.dumps(model)),
        pickle.loads(pickle.dumps(ChainCRF.load(tmp_path / "m.hinge"))),
    ):
        assert type(other) is ChainCRF
        assert np.array_equal(other.weights_, model.weights_)
        assert other.duality_gap_ == model.duality_gap_
        for a, b in zip(other.predict_marginals(X), model.predict_marginals(X), strict=True):
            assert np.array_equal(a, b)
    with pytest.raises(ValueError, match="partial_fit"):
        model.save(tmp_path / "m.hinge", state=True)


def test_labels_that_are_not_allowed_have_probability_zero():
    X, y = numbers()
    model = ChainCRF().fit(X, y)
    table = model.predict_marginals(X[:1], allowed=[{0: ["a", "b"]}])[0]
    assert table[0, 2] == 0.0
    np.testing.assert_allclose(table.sum(axis=1), 1.0)


def test_scheme_forbids_in_training_and_prediction():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 3)) for _ in range(10)]
    y = [["O", "B-X", "I-X", "O", "O"], ["B-X", "I-X", "I-X", "O", "B-X"]] * 5
    model = ChainCRF(scheme="IOB2").fit(X, y)
    inside = model.classes_.tolist().index("I-X")
    for table in model.predict_marginals(X):
        assert table[0, inside] == 0.0
    assert model.converged_


def test_it_is_an_estimator():
    X, y = sentences()
    grid = GridSearchCV(ChainCRF(), {"C": [0.01, 1.0]}, cv=3).fit(X, y)
    assert grid.best_score_ > 0.75
    assert clone(ChainCRF(C=7.0)).C == 7.0
    ssvm = ChainSSVM(C=1.0, random_state=0).fit(X, y)
    crf = ChainCRF().fit(X, y)
    assert list(crf.feature_names_) == list(ssvm.feature_names_)
    assert abs(crf.score(X, y) - ssvm.score(X, y)) < 0.1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0.0}, "C must be greater than 0"),
        ({"C": float("inf")}, "C must be greater than 0"),
        ({"tol": -1.0}, "tol must be"),
        ({"max_iter": 1.5}, "max_iter must be an integer"),
        ({"boundary": "no"}, "boundary must be True or False"),
        ({"n_jobs": 0}, "n_jobs=0 has no meaning"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    X, y = numbers(n=2)
    with pytest.raises((TypeError, ValueError), match=message):
        ChainCRF(**params).fit(X, y)


def test_too_few_passes_warn():
    X, y = numbers()
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=3 and"):
        model = ChainCRF(max_iter=3, tol=1e-9).fit(X, y)
    assert model.n_iter_ == 3
    assert not model.converged_
    assert len(model.history_) == 3


def test_the_certificate_survives_the_last_bits():
    """A tolerance below what rounding allows ends without an endless search."""
    X, y = numbers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ChainCRF(tol=1e-30).fit(X, y)
    assert model.n_iter_ < 1000
    assert model.duality_gap_ < 1e-10
