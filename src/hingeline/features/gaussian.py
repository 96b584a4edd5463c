"""Numeric tokens: Gaussian emissions, and any transformer of rows applied to sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array
from hingeline.features.tables import SparseSequences


class Sequences:
    """Tokens stacked, and how to cut them again."""

    def __init__(self, X: Any) -> None:
        self.tokens, self.offsets = X, None
        if isinstance(X, SparseSequences):
            self.tokens, self.offsets = X.matrix, X.offsets
        elif not isinstance(X, (list, tuple, np.ndarray)) or not len(X):
            return
        elif sp.issparse(X[0]) or np.ndim(X[0]) == 2:
            self._stack(list(X))

    def _stack(self, parts: list[Any]) -> None:
        parts = [part if sp.issparse(part) else np.asarray(part) for part in parts]
        for i, part in enumerate(parts):
            if part.ndim != 2 or part.shape[1] != parts[0].shape[1]:
                what = f"X[{i}] has shape {part.shape}, but X[0] has {parts[0].shape}"
                form = "an array (tokens, features), all with the same features"
                raise ValueError(f"{what}: a sequence is {form}.")
        sparse = any(sp.issparse(part) for part in parts)
        self.tokens = sp.vstack(parts, format="csr") if sparse else np.concatenate(parts)
        self.offsets = np.cumsum([0, *(part.shape[0] for part in parts)])

    def dense(self) -> Any:
        """The tokens, not sparse."""
        return self.tokens.toarray() if sp.issparse(self.tokens) else self.tokens

    def cut(self, tokens: Any) -> Any:
        """New tokens in the form of the old sequences."""
        if self.offsets is None:
            return tokens
        if sp.issparse(tokens):
            return SparseSequences(sp.csr_matrix(tokens), self.offsets)
        return np.split(np.asarray(tokens), self.offsets[1:-1])


class GaussianEmissions(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Each token x as ``(1, x, upper triangle of x xᵀ)``.

    A linear score of these is any quadratic function of x, as the logarithm of a normal density
    is: with them ``ChainSSVM`` has the emissions of a Gaussian hidden Markov model. d features
    become ``1 + d + d(d + 1)/2``, so reduce the dimension first where d is large. The first of
    them is the constant that ``ChainSSVM(fit_intercept=True)`` would add: set it to False.

    Attributes
    ----------
    n_features_in_, n_features_out_ : int; d, and the width of the result

    Examples
    --------
    >>> from hingeline.features import GaussianEmissions
    >>> GaussianEmissions().fit_transform([[2.0, 3.0]])
    array([[1., 2., 3., 4., 6., 9.]])

    PCA knows rows, not sequences; ``PerToken`` applies it to their tokens:

    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> from hingeline import ChainSSVM
    >>> from hingeline.features import PerToken
    >>> tagger = make_pipeline(
    ...     PerToken(PCA(8)), GaussianEmissions(), ChainSSVM(fit_intercept=False)
    ... )
    """

    def fit(self, X: Any, y: Any = None) -> GaussianEmissions:
        """Note the number of features of an array (tokens, features), or of a list of them."""
        from sklearn.preprocessing import PolynomialFeatures  # slow to import, and few want it

        self._expansion = PolynomialFeatures(2).fit(Sequences(X).dense())
        self.n_features_in_ = self._expansion.n_features_in_
        self.n_features_out_ = self._expansion.n_output_features_
        return self

    def transform(self, X: Any) -> Any:
        """Expand tokens; sequences come back as a list of arrays, one array as one."""
        check_is_fitted(self, "n_features_in_")
        sequences = Sequences(X)
        return sequences.cut(self._expansion.transform(sequences.dense()))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """``1``, ``x0``, …, ``x0^2``, ``x0 x1``, …, or with other names for x0, x1, …"""
        check_is_fitted(self, "n_features_in_")
        return np.asarray(self._expansion.get_feature_names_out(input_features))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class PerToken(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """A transformer of rows, applied to the tokens of sequences.

    Parameters
    ----------
    transformer : scikit-learn transformer
        Fitted on all tokens, one row each; a list of label sequences becomes one label per row.

    Attributes
    ----------
    transformer_ : the fitted transformer

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from hingeline.features import PerToken
    >>> X = [np.array([[1.0], [3.0]]), np.array([[2.0]])]
    >>> PerToken(StandardScaler(with_std=False)).fit_transform(X)
    [array([[-1.],
           [ 1.]]), array([[0.]])]
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: Any = None) -> PerToken:
        """Fit the transformer on all tokens.

        X is a list of arrays or sparse matrices (tokens, features), or SparseSequences; y is None
        or a list of label sequences.
        """
        sequences = Sequences(X)
        if y is not None and sequences.offsets is not None:
            y = [label for labels in y for label in labels]
        self.transformer_ = clone(self.transformer).fit(sequences.tokens, y)
        return self

    def transform(self, X: Any) -> Any:
        """Transform all tokens and cut them into sequences again."""
        check_is_fitted(self, "transformer_")
        sequences = Sequences(X)
        return sequences.cut(self.transformer_.transform(sequences.tokens))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The transformer's names."""
        check_is_fitted(self, "transformer_")
        return np.asarray(self.transformer_.get_feature_names_out(input_features), dtype=object)
