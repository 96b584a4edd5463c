"""What every fitted estimator can do with its weights: replace, save and load them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hingeline.estimators import nu as nu_fits

Array = np.ndarray[Any, Any]


#: What only solvers of relaxations leave behind.
FINDINGS = (
    "relaxed_objective_",
    "relaxed_gap_",
    "structured_objective_",
    "fractional_",
    "soft_rho_",
)


def forget_findings(estimator: Any) -> None:
    """Drop what an earlier fit by a solver of relaxations left."""
    for name in FINDINGS:
        vars(estimator).pop(name, None)


class FittedEstimator(BaseEstimator):
    """An estimator with flat weights and a certificate."""

    def _check_parameters(self) -> None:
        """Refuse parameters that have no meaning."""
        raise NotImplementedError

    def with_weights(self, weights: Array) -> Any:
        """A fitted copy that predicts with other flat weights, e.g. those a callback kept.

        The copy carries no certificate: its gap is ``nan``.
        """
        check_is_fitted(self, "weights_")
        if np.shape(weights) != np.shape(self.weights_):
            raise ValueError(
                f"weights has shape {np.shape(weights)}, expected {np.shape(self.weights_)}."
            )
        other = type(self)(**self.get_params(deep=False))
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(other, name, value)
        other.weights_ = np.array(weights, dtype=np.float64)
        other.primal_objective_ = other.duality_gap_ = np.nan
        other.restricted_objective_ = other.restricted_gap_ = np.nan
        other.converged_ = False
        other.stop_reason_ = "weights were replaced"
        other.history_ = []
        nu_fits.forget(other)
        forget_findings(other)
        return other

    def save(
        self,
        path: Any,
        *,
        dtype: str = "float64",
        sparse: bool | float = False,
        check: tuple[Any, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        state: bool = False,
    ) -> dict[str, Any]:
        """Write the fitted estimator to a model file (``.hinge``), atomically and without pickle.

        Parameters
        ----------
        path : str or path
        dtype : {"float64", "float32", "float16"}, default="float64"
            How weights are stored; only float64 is exact. A loaded model computes in float64.
        sparse : bool or float, default=False
            Store only the weights that are not 0; a number drops those smaller than it.
        check : (X, y), optional
            Data on which predictions before and after are compared.
        metadata : dict, optional
            Anything JSON can hold, e.g. the command and a hash of the data.
        state : bool, default=False
            Store the examples remembered and their multipliers, too, so that ``partial_fit``
            goes on after :meth:`load`, bit for bit as it would have here. The file then holds
            the training data.

        Returns
        -------
        dict
            ``bytes``; ``exact``, and ``largest_change`` and ``largest_relative_change`` of a
            weight; with ``check`` also ``changed_predictions`` (a share), ``score_before`` and
            ``score_after``; ``left_out`` names parameters that a file cannot hold (callbacks, a
            generator as random_state).
        """
        from hingeline.estimators import storage

        return storage.save(
            self, path, dtype=dtype, sparse=sparse, check=check, metadata=metadata, state=state
        )

    @classmethod
    def load(cls, path: Any) -> Any:
        """The fitted estimator in a model file that :meth:`save` wrote.

        It predicts and can be fitted anew; from a file with its state ``partial_fit`` goes on.
        Where weights were rounded to save space the
        certificate is gone: ``duality_gap_`` is ``nan`` and ``stop_reason_`` says why.

        Parameters
        ----------
        path : str or path
        """
        from hingeline.estimators import storage

        return storage.load(path, cls)
