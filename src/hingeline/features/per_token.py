"""Numeric tokens: any transformer of rows applied to sequences."""

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

    def cut(self, tokens: Any) -> Any:
        """New tokens in the form of the old sequences."""
        if self.offsets is None:
            return tokens
        if sp.issparse(tokens):
            return SparseSequences(sp.csr_matrix(tokens), self.offsets)
        return np.split(np.asarray(tokens), self.offsets[1:-1])


class PerToken(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """A transformer of rows, applied to the tokens of sequences.

    With ``PolynomialFeatures(2)``, each token x as ``(1, x, upper triangle of x xᵀ)``, a chain has
    the emissions of a Gaussian hidden Markov model: a linear score of these is any quadratic
    function of x. The 1 is the constant that ``ChainSSVM(fit_intercept=True)`` would add.

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
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> PerToken(PolynomialFeatures(2)).fit_transform([np.array([[2.0, 3.0]])])
    [array([[1., 2., 3., 4., 6., 9.]])]
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
