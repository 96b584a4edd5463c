"""What every estimator of sequences keeps to: scikit-learn's habits, for lists of sentences."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict

from hingeline import ChainSSVM, DependencySSVM, SegmentSSVM

WORDS = [["Ann", "saw", "New", "York"], ["Bob", "ran"], ["Eve", "left", "Oslo"], ["it", "rained"]]
TAGS = [["B-P", "O", "B-L", "I-L"], ["B-P", "O"], ["B-P", "O", "B-L"], ["O", "O"]]
TREES = [
    [(2, "subj"), (0, "root"), (4, "name"), (2, "obj")],
    [(2, "subj"), (0, "root")],
    [(2, "subj"), (0, "root"), (2, "obj")],
    [(2, "subj"), (0, "root")],
]
X = 3 * WORDS
CASES = {
    "chain": (ChainSSVM(C=1.0, tol=1e-7, random_state=0), 3 * TAGS),
    "segments": (SegmentSSVM(C=1.0, tol=1e-7, random_state=0), 3 * TAGS),
    "dependencies": (DependencySSVM(C=1.0, tol=1e-7, random_state=0), 3 * TREES),
}


def plain(found: Any) -> list[list[Any]]:
    return [list(own) for own in found]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def fitted(case):
    return clone(case[0]).fit(X, case[1])


def test_fit_returns_itself_and_changes_nothing_it_was_given(case):
    model, y = clone(case[0]), case[1]
    before = copy.deepcopy((X, y, model.get_params()))
    assert model.fit(X, y) is model
    model.predict(X)
    assert (X, y, model.get_params()) == before
    assert 0.0 <= model.duality_gap_ <= 1e-7 * model.primal_objective_
    assert model.dual_objective_ <= model.primal_objective_
    assert model.converged_


def test_a_clone_knows_nothing_and_learns_the_same_bits(case, fitted):
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        other.predict(X)
    assert (other.fit(X, case[1]).weights_ == fitted.weights_).all()
    assert (fitted.fit(X, case[1]).weights_ == other.weights_).all()


def test_a_pickle_predicts_the_same(fitted):
    other = pickle.loads(pickle.dumps(fitted))
    assert (other.weights_ == fitted.weights_).all()
    assert plain(other.predict(X)) == plain(fitted.predict(X))


def test_sentences_are_predicted_by_themselves(fitted):
    together = plain(fitted.predict(X[::-1]))
    assert together == [plain(fitted.predict([sentence]))[0] for sentence in X[::-1]]
    assert together == plain(CASES_OF[type(fitted)])[::-1]  # which it has learnt by heart


CASES_OF = {type(model): y for model, y in CASES.values()}


def test_a_weight_is_a_number_of_copies(case):
    model, y = case
    weights = np.ones(len(X))
    weights[0], weights[1] = 2.0, 0.0
    weighted = clone(model).fit(X, y, sample_weight=weights)
    copies = clone(model).fit([X[0], *X[:1], *X[2:]], [y[0], *y[:1], *y[2:]])
    assert weighted.primal_objective_ == pytest.approx(copies.primal_objective_, rel=1e-6)
    assert weighted.dual_objective_ <= copies.primal_objective_
    assert copies.dual_objective_ <= weighted.primal_objective_


def test_folds_and_grids(case):
    model, y = case
    found = cross_val_predict(clone(model).set_params(tol=0.1), X, y, cv=3)
    assert plain(found) == plain(y)  # every fold has seen each sentence
    search = GridSearchCV(model, {"tol": [0.1, 0.01]}, cv=2).fit(X, y)
    assert search.best_score_ == 1.0
    assert plain(search.predict(X)) == plain(y)


def test_y_of_another_length_is_refused(case):
    model, y = case
    with pytest.raises(ValueError, match="12"):
        clone(model).fit(X, y[:-1])
    with pytest.raises(ValueError, match=r"\[0\]|sequence 0|sentence"):
        clone(model).fit(X, [y[0][:-1], *y[1:]])
