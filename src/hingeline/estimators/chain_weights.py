"""The weights of a fitted chain by name, and new sequences as its kernels want them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hingeline.estimators.encoding import known_tokens
from hingeline.estimators.sequences import with_constant
from hingeline.structures import chain

Array = np.ndarray[Any, Any]


class ChainWeights:
    """Named views of ``weights_``, and the encoder at work."""

    classes_: Array
    weights_: Array
    n_features_in_: int
    fit_intercept: bool
    boundary: bool

    # Weights by name -----------------------------------------------------------------------

    def _block(self, first: int, count: int) -> Array:
        stride = chain.padded(len(self.classes_))
        rows = self.weights_.reshape(-1, stride)[first : first + count]
        return rows[:, : len(self.classes_)]

    @property
    def _n_rows(self) -> int:
        check_is_fitted(self, "weights_")
        return int(self.n_features_in_ + bool(self.fit_intercept))

    @property
    def emission_coef_(self) -> Array:
        """(labels, features), a view."""
        check_is_fitted(self, "weights_")
        return self._block(0, self.n_features_in_).T

    @property
    def feature_names_(self) -> Array:
        """Names of the features, in the order of ``emission_coef_``'s columns."""
        check_is_fitted(self, "weights_")
        encoder: Any = getattr(self, "encoder_", None)
        if hasattr(encoder, "get_feature_names_out"):
            names = np.asarray(encoder.get_feature_names_out(), dtype=object)
            return names[: self.n_features_in_]
        numbered = [f"x{k}" for k in range(self.n_features_in_)]
        return np.array(getattr(self, "feature_names_in_", numbered), dtype=object)

    @property
    def intercept_(self) -> Array:
        """Weights of the constant feature, zero without one."""
        check_is_fitted(self, "weights_")
        if not self.fit_intercept:
            return np.zeros(len(self.classes_))
        return self._block(self.n_features_in_, 1)[0]

    @property
    def transition_coef_(self) -> Array:
        """``[from, to]``, a view."""
        return self._block(self._n_rows, len(self.classes_))

    @property
    def start_coef_(self) -> Array:
        """Weights of the first label, zero without ``boundary``."""
        check_is_fitted(self, "weights_")
        if not self.boundary:
            return np.zeros(len(self.classes_))
        return self._block(self._n_rows + len(self.classes_), 1)[0]

    @property
    def end_coef_(self) -> Array:
        """Weights of the last label, zero without ``boundary``."""
        check_is_fitted(self, "weights_")
        if not self.boundary:
            return np.zeros(len(self.classes_))
        return self._block(self._n_rows + len(self.classes_) + 1, 1)[0]

    # Prediction ----------------------------------------------------------------------------

    def _ready(self, X: Any, lengths: Any) -> chain.ChainProblem:
        check_is_fitted(self, "weights_")
        encoder = getattr(self, "encoder_", None)
        matrix, offsets = known_tokens(encoder, X, lengths)
        if encoder is not None and matrix.shape[1] > self.n_features_in_:
            matrix = matrix[:, : self.n_features_in_]  # another model taught the encoder more
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}."
            )
        matrix = with_constant(matrix) if self.fit_intercept else matrix
        n_labels = len(self.classes_)
        return chain.make_problem(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            offsets,
            np.zeros(matrix.shape[0], dtype=np.int32),
            matrix.shape[1],
            np.zeros((n_labels, n_labels)),
            self.boundary,
            cache_mb=0.0,
        )
