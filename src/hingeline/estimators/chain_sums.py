"""The slack of a fitted chain summed over all outputs: certified bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline.estimators.chain_constraints import choose_scheme
from hingeline.estimators.encoding import known_tokens
from hingeline.estimators.online import OnlineSSVM
from hingeline.estimators.sequences import number_labels, stack_labels
from hingeline.estimators.validation import positive
from hingeline.solvers.parallel import Workers, effective_n_jobs
from hingeline.structures.chain_problem import ChainProblem
from hingeline.structures.chain_sums import summed_slack_all

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SummedSlack:
    """Bounds on the summed slack of sequences.

    Attributes
    ----------
    lower, upper : ndarray of shape (sequences,)
        Around ``Σ_y [l_i(y) − w·Δf_i(y)]₊``, a sum over all labellings; ``upper`` is ``inf``
        where there are more than about 1e290 violating ones.
    count_lower, count_upper : ndarray of shape (sequences,)
        Around the number of labellings with a positive term. Numbers beyond 2⁵² are rounded.
    """

    lower: Array
    upper: Array
    count_lower: Array
    count_upper: Array

    @property
    def total_lower(self) -> float:
        """Lower bound on the sum over all sequences."""
        return math.fsum(self.lower)

    @property
    def total_upper(self) -> float:
        """Upper bound on the sum over all sequences."""
        if np.isinf(self.upper).any():
            return math.inf
        return math.nextafter(math.fsum(self.upper), math.inf)


def summed_slack(problem: ChainProblem, w: Array, bins: int, workers: Workers) -> SummedSlack:
    """Bounds for all sequences of a problem at the weights w."""
    n = len(problem.offsets) - 1
    found = SummedSlack(*(np.empty(n) for _ in range(4)))
    out = (found.lower, found.upper, found.count_lower, found.count_upper)
    workers.map(lambda part, scratch: summed_slack_all(problem, part, w, bins, *out), np.arange(n))
    return found


class ChainSums(OnlineSSVM):
    """What a fitted chain says of all labellings at once; :class:`ChainSSVM` has the rest."""

    scheme_: str | None

    def _make(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        stride: int | None = None,
        cache_mb: float = 512.0,
    ) -> ChainProblem:
        raise NotImplementedError

    def summed_slack_bounds(
        self, X: Any, y: Any, lengths: Any = None, bins: int = 1000
    ) -> SummedSlack:
        """Certified bounds on the slack summed over all labellings, for each sequence.

        That is ``Σ_y [l_i(y) − w·Δf_i(y)]₊``, the slack of ``slack="sum"``, with the model's own
        loss and margin rescaling, over the labellings that its scheme allows; and the number of
        labellings that contribute. Counted by dynamic programming over a histogram of scores, at
        any length; see :mod:`hingeline.inference.counting`.

        Parameters
        ----------
        X, y, lengths : as for :meth:`fit`
            With ``class_weight="balanced"`` the weights are those of this y.
        bins : int, default=1000
            At least so many bins. Time grows with it, and the distance of the bounds shrinks
            with its square.

        Returns
        -------
        SummedSlack
            ``lower``, ``upper``, ``count_lower`` and ``count_upper`` per sequence;
            ``total_lower`` and ``total_upper``.
        """
        check_is_fitted(self, "weights_")
        positive("bins", bins, integer=True)
        matrix, offsets = known_tokens(getattr(self, "encoder_", None), X, lengths)
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}."
            )
        index = {label: k for k, label in enumerate(self.classes_.tolist())}
        flat = stack_labels(y, offsets, lengths)
        for label in flat:
            if label not in index:
                raise ValueError(
                    f"y holds {label!r}, which is not among classes_: leave its sequence out."
                )
        labels = number_labels(flat, index)
        choose_scheme(self.scheme_, self.classes_, labels, offsets)  # refuses invalid labels
        problem = self._make(self._with_constant(matrix), offsets, labels, cache_mb=0.0)
        with Workers(effective_n_jobs(self.n_jobs), 0) as workers:
            return summed_slack(problem, self.weights_, int(bins), workers)
