"""Conditional random fields: the log-linear chain, with the features of the large-margin one."""

import time
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from hingeline import _checks as checks
from hingeline._checks import Array
from hingeline.core.primitives import Workers
from hingeline.estimators.base import BaseModel, refuse_overflow, share_docs
from hingeline.estimators.chain import ChainModel
from hingeline.solvers.crf import ChainExpectations, minimise_log_loss, observed_features
from hingeline.structures.chain import ChainProblem


@share_docs
@dataclass(eq=False, repr=False)
class ChainCRF(ChainModel, BaseModel):
    """Linear-chain conditional random field, trained to a certificate.

    ``p(y | x) = exp(w·f(x, y))/Z(x)`` with the score of :class:`hingeline.ChainSSVM`,
    ``w·f(x, y) = Σ_t x_t·E[y_t] + Σ_t A[y_{t−1}, y_t] + a[y_1] + b[y_T]``. Training minimises
    ``½‖w‖² + C Σ_i s_i·(log Z(x_i) − w·f(x_i, y_i))`` by L-BFGS. The baseline that large-margin
    training is compared with; features, labels and predictions are the same.

    Parameters
    ----------
    C : float, default=1.0
        Weight of a sequence's negative log-likelihood. CRFsuite's ``c2`` is ``C = 1/(2·c2)``: its
        default of 1 is ``C=0.5``. It has neither a constant feature nor weights for the first and
        last label (``fit_intercept=False, boundary=False``), and uses all weights, as here, with
        ``feature.possible_states`` and ``feature.possible_transitions``.
    tol : float, default=1e-3
        Certified relative gap at which training stops. The duality gap is ``½‖∇P(w)‖²``, which
        usually is far above the true distance to the optimum.
    max_iter : int, default=1000; passes over the data at most
    scheme : None, "auto", "IO", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES" or "BILOU", default=None
        Tag scheme of the labels: labellings that it does not allow have probability 0.

    Attributes
    ----------
    n_iter_, converged_, stop_reason_, history_
        How the run went; a pass is one evaluation of objective and gradient.

    Examples
    --------
    >>> import numpy as np
    >>> from hingeline import ChainCRF
    >>> X = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]]
    >>> y = [["a", "b", "a"], ["a", "b"]]
    >>> tagger = ChainCRF(C=10.0).fit(X, y)
    >>> [list(map(str, labels)) for labels in tagger.predict(X)]
    [['a', 'b', 'a'], ['a', 'b']]
    >>> tagger.predict_marginals(X)[1].round(2)
    array([[0.98, 0.02],
           [0.05, 0.95]])
    """

    C: float = 1.0
    _: KW_ONLY
    tol: float = 1e-3
    max_iter: int = 1000

    def check_parameters(self) -> None:
        """Refuse, in one sentence, parameters that ``fit`` would refuse whatever the data are."""
        checks.positive("C", self.C)
        checks.positive("tol", self.tol)
        checks.positive("max_iter", self.max_iter, integer=True)
        checks.check_switches(self)
        checks.effective_n_jobs(self.n_jobs)

    def fit(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> Self:
        """Train on sequences, given as for :meth:`hingeline.ChainSSVM.fit`.

        ``sample_weight`` multiplies a sequence's log-likelihood; 0 drops it.
        """
        began = time.perf_counter()
        self.check_parameters()
        matrix, offsets, labels = self._read(X, y, lengths)
        weights = float(self.C) * checks.check_sample_weight(sample_weight, len(offsets) - 1)
        problem = self._make(self._with_constant(matrix), offsets, labels)
        refuse_overflow(problem, float(weights.sum()))
        with Workers(checks.effective_n_jobs(self.n_jobs), 0) as workers:
            result = minimise_log_loss(
                ChainExpectations(problem, workers),
                weights,
                observed_features(problem, weights),
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                name=type(self).__name__,
                started=began,
            )
        self._store(result)
        return self

    def _make(self, matrix: sp.csr_matrix, offsets: Array, labels: Array) -> ChainProblem:
        no_cost = np.zeros((len(self.classes_), len(self.classes_)))
        return self._pose(matrix, offsets, labels, no_cost, 0.0)

    def predict_marginals(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Probability of every label at every token, for input as in :meth:`predict`.

        One array (tokens, labels) per sequence, in the order of ``classes_``; rows sum to 1.
        Labellings that are not allowed have probability 0.
        """
        problem = self._prepare(X, lengths, allowed)
        with Workers(checks.effective_n_jobs(self.n_jobs), 0) as workers:
            log_z, nodes, _ = ChainExpectations(problem, workers).marginals(self.weights_)
        self._refuse_infeasible(problem, log_z == -np.inf)
        return np.split(nodes[:, : len(self.classes_)], problem.offsets[1:-1])
