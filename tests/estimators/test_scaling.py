"""Columns of similar sizes: scale=True is a scaler before the estimator, kept in the model."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import hingeline
from hingeline import MulticlassSSVM, MultilabelSSVM


def make(kind, n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = np.argmax(X + 0.5 * rng.normal(size=(n, 5)), axis=1) % 3
    X = X * [1e-3, 1.0, 30.0, 1e4, 0.0] + [0.0, 5.0, 0.0, -1e4, 7.0]
    return X, y if kind is MulticlassSSVM else np.eye(3, dtype=int)[y]


@pytest.mark.parametrize("kind", [MulticlassSSVM, MultilabelSSVM])
@pytest.mark.parametrize("sparse", [False, True])
def test_as_a_scaler_before_it(kind, sparse, tmp_path):
    X, y = make(kind)
    X = sp.csr_matrix(X) if sparse else X
    scaler = (MaxAbsScaler() if sparse else StandardScaler()).fit(X)
    options = {"C": 0.1, "tol": 1e-8, "max_iter": 10_000, "random_state": 0}
    model = kind(scale=True, **options).fit(X, y)
    plain = kind(**options).fit(scaler.transform(X), y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-4)
    assert model.primal_objective_ == pytest.approx(plain.primal_objective_, rel=1e-6)
    found = model.decision_function(X)
    np.testing.assert_allclose(found, plain.decision_function(scaler.transform(X)), atol=1e-3)
    other = X.toarray() if sparse else sp.csr_matrix(X)  # whatever comes later
    np.testing.assert_allclose(model.decision_function(other), found, atol=1e-9)
    model.save(tmp_path / "m.hinge")
    back = hingeline.load(tmp_path / "m.hinge")
    assert back.scale is True
    assert back.decision_function(X).tobytes() == found.tobytes()


def test_unscaled_numbers_converge():
    X, y = make(MulticlassSSVM)
    scaled = MulticlassSSVM(scale=True, random_state=0).fit(X, y)
    assert scaled.converged_
    assert scaled.score(X, y) > 0.6


def test_later_columns_stay_as_they_are(tmp_path):
    X, y = make(MulticlassSSVM)
    model = MulticlassSSVM(C=0.1, scale=True, random_state=0).partial_fit(X[:, :3], y)
    model.partial_fit(X[:, [0, 1, 2, 1]], y)
    assert model.feature_scales_[3] == 1.0
    assert model.feature_means_[3] == 0.0
    assert model.feature_scales_[2] > 20.0
    model.save(tmp_path / "m.hinge", state=True)
    assert hingeline.load(tmp_path / "m.hinge").feature_scales_.shape == (4,)


def test_a_fit_without_it_forgets(tmp_path):
    X, y = make(MulticlassSSVM)
    model = MulticlassSSVM(C=0.1, scale=True).fit(X, y)
    model.set_params(scale=False, C=1e-9).fit(X, y)
    assert not hasattr(model, "feature_scales_")
    with pytest.raises(TypeError, match="scale must be True or False"):
        MulticlassSSVM(scale="yes").fit(X, y)
