"""Features of similar sizes: what ``scale=True`` does to a table before it is learnt from."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, require

FITTED = ("feature_means_", "feature_scales_")  # What a model file keeps of it.


class Scaled:
    """For estimators of tables.

    Parameters
    ----------
    scale : bool, default=False
        Standardise the columns of a dense X (mean 0, deviation 1), and divide those of a sparse X
        by their largest absolute value. Weights are then those of the scaled features.

    Attributes
    ----------
    feature_means_, feature_scales_ : ndarray of shape (features,); what ``scale=True`` found
    """

    scale = False
    feature_means_: Array
    feature_scales_: Array

    def _scaled(self, X: Any, first: bool = False) -> Any:
        """X with scaled columns; the ``first`` one says how."""
        if first:
            for name in FITTED:
                vars(self).pop(name, None)
        if not self.scale:
            return X
        if first and sp.issparse(X):
            self.feature_means_ = np.zeros(X.shape[1])
            self.feature_scales_ = _no_zeros(abs(X).max(axis=0).toarray().ravel())
        elif first:
            with np.errstate(over="ignore"):  # what is too large is refused later
                self.feature_means_ = X.mean(axis=0, dtype=np.float64)
                self.feature_scales_ = _no_zeros(X.std(axis=0, dtype=np.float64))
        more = (0, X.shape[1] - len(self.feature_means_))  # columns that came later
        self.feature_means_ = means = np.pad(self.feature_means_, more)
        self.feature_scales_ = sizes = np.pad(self.feature_scales_, more, constant_values=1.0)
        if sp.issparse(X) and not means.any():
            return sp.csr_matrix(X @ sp.diags(1.0 / sizes), dtype=X.dtype)
        dense = X.toarray() if sp.issparse(X) else X
        return ((dense - means) / sizes).astype(X.dtype)


def _no_zeros(sizes: Array) -> Array:
    """Columns that are constant, or overflow, stay as they are."""
    sizes = sizes.astype(np.float64)
    return np.where((sizes > 0.0) & np.isfinite(sizes), sizes, 1.0)


def restore_scaling(model: Any, arrays: dict[str, Array]) -> None:
    """Take what a model file says; any exception where it makes no sense."""
    for name in FITTED if getattr(model, "scale", False) else ():
        values = arrays[name]
        fine = values.dtype == np.float64 and values.shape == (model.n_features_in_,)
        fine = fine and np.isfinite(values).all() and (name == FITTED[0] or (values > 0.0).all())
        require(fine, f"{name} must be a number for every feature")
        setattr(model, name, values)
