"""PerToken, with quadratic features among others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, PolynomialFeatures, StandardScaler

from hingeline import ChainSSVM
from hingeline.features import PerToken, SparseSequences


def quadratic() -> PerToken:
    return PerToken(PolynomialFeatures(2))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 100))
def test_any_quadratic_function_is_linear(d: int, n: int, seed: int) -> None:
    """A random quadratic form, written by its symmetric matrix, is reproduced by weights."""
    rng = np.random.default_rng(seed)
    x, A, b, c = rng.normal(size=(n, d)), rng.normal(size=(d, d)), rng.normal(size=d), rng.normal()
    expanded = quadratic().fit_transform(x)
    symmetric = A + A.T
    upper = [symmetric[i, j] if i != j else A[i, i] for i in range(d) for j in range(i, d)]
    weights = np.concatenate([[c], b, upper])
    expected = np.einsum("ni,ij,nj->n", x, A, x) + x @ b + c
    np.testing.assert_allclose(expanded @ weights, expected, atol=1e-10)


def test_forms_and_names() -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(k, 3)) for k in (2, 4, 1)]
    encoder = quadratic().fit(X)
    stacked = encoder.transform(np.concatenate(X))
    offsets = [0, 2, 6, 7]
    ragged = np.empty(3, dtype=object)
    ragged[:] = X
    for form in (X, tuple(X), ragged, [x.tolist() for x in X]):
        parts = encoder.transform(form)
        assert [len(part) for part in parts] == [2, 4, 1]
        np.testing.assert_array_equal(np.concatenate(parts), stacked)
    sequences = SparseSequences(sp.csr_matrix(np.concatenate(X)), offsets)
    for form in ([sp.csr_matrix(x) for x in X], sequences):
        parts = encoder.transform(form)
        assert np.diff(parts.offsets).tolist() == [2, 4, 1]
        np.testing.assert_array_equal(parts.matrix.toarray(), stacked)
    assert len(encoder.transform(rng.normal(size=(5, 2, 3)))) == 5
    assert encoder.get_feature_names_out().tolist() == (
        ["1", "x0", "x1", "x2", "x0^2", "x0 x1", "x0 x2", "x1^2", "x1 x2", "x2^2"]
    )
    assert encoder.get_feature_names_out(["a", "b", "c"])[5] == "a b"
    assert encoder.transform(X[0].astype(np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="length equal to number of features"):
        encoder.get_feature_names_out(["a"])
    with pytest.raises(ValueError, match=r"X\[1\] has shape \(4, 2\)"):
        encoder.transform([X[0], X[1][:, :2]])


def rings() -> tuple[list[Any], list[list[str]]]:
    """Two classes that only the distance from the origin tells apart."""
    rng = np.random.default_rng(1)
    X, y = [], []
    for _ in range(40):
        labels = rng.integers(2, size=5)
        angle = rng.uniform(0, 2 * np.pi, 5)
        radius = np.where(labels == 1, 2.0, 0.5)
        X.append(np.c_[radius * np.cos(angle), radius * np.sin(angle)])
        y.append(["in" if k == 0 else "out" for k in labels])
    return X, y


def test_pipeline() -> None:
    X, y = rings()
    plain = ChainSSVM(C=1.0, random_state=0).fit(X, y).score(X, y)
    tagger = make_pipeline(
        PerToken(make_pipeline(PCA(2), PolynomialFeatures(2))),
        ChainSSVM(C=1.0, fit_intercept=False, random_state=0),
    )
    assert plain < 0.8
    assert tagger.fit(X, y).score(X, y) > 0.97
    name = "pertoken__transformer__pca__n_components"
    assert GridSearchCV(tagger, {name: [1, 2]}, cv=2).fit(X, y).best_params_ == {name: 2}
    stacked, lengths = np.concatenate(X), [len(x) for x in X]
    flat = [label for labels in y for label in labels]
    rows = make_pipeline(
        PCA(2), PolynomialFeatures(2), ChainSSVM(C=1.0, fit_intercept=False, random_state=0)
    )
    rows.fit(stacked, flat, chainssvm__lengths=lengths)
    np.testing.assert_allclose(rows[-1].weights_, tagger[-1].weights_, atol=1e-8)
    inside = ChainSSVM(C=1.0, fit_intercept=False, features=quadratic(), random_state=0).fit(X, y)
    assert inside.score(X, y) > 0.97
    assert inside.score(stacked, flat, lengths=lengths) == inside.score(X, y)
    assert inside.feature_names_[0] == "1"


def test_per_token() -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(k, 3)) for k in (2, 4, 3)]
    y = [["a", "b"], ["a", "a", "b", "b"], ["a", "b", "a"]]
    scaled = PerToken(StandardScaler()).fit(X)
    expected = StandardScaler().fit_transform(np.concatenate(X))
    np.testing.assert_array_equal(np.concatenate(scaled.transform(X)), expected)
    np.testing.assert_array_equal(scaled.transform(np.concatenate(X)), expected)
    assert len(scaled.get_feature_names_out()) == 3
    supervised = PerToken(LinearDiscriminantAnalysis()).fit(X, y)
    assert [part.shape for part in supervised.transform(X)] == [(2, 1), (4, 1), (3, 1)]
    sparse = PerToken(MaxAbsScaler()).fit_transform([sp.csr_matrix(x) for x in X])
    assert isinstance(sparse, SparseSequences)
    assert abs(sparse.matrix).max() == 1.0
