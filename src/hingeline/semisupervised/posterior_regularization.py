"""Posterior regularisation, as a baseline.

K. Ganchev, J. Graça, J. Gillenwater, B. Taskar, *Posterior Regularization for Structured Latent
Variable Models*, JMLR 11 (2010), on a conditional random field. In turn, the posterior of the
unlabelled sequences is projected on the constraints, whose expectations may be violated at the
price of the penalty, and the weights are learned from the labels and the projected posterior::

    q ← argmin_q KL(q ‖ p_w) + penalty(E_q[φ])
    w ← argmin_w ½‖w‖² − C Σ_i log p_w(y_i | x_i) − c_u Σ_j E_q[log p_w(y | x_j)]

Neither step raises the objective. Constraints act through expectations of labels and segment
starts; :mod:`.relaxation` says what becomes of those that do not decompose.
"""

from __future__ import annotations

from hingeline.semisupervised.rounds import Rounds
from hingeline.semisupervised.soft_labels import SoftLabels, SoftTask


def posterior_regularization(
    task: SoftTask, rounds: Rounds, *, max_rounds: int = 10, tol: float = 1e-3
) -> SoftLabels:
    """Alternate until the objective falls by less than ``tol`` of itself.

    Parameters
    ----------
    task : SoftTask
    rounds : Rounds
        Receives a row for the supervised solution and for every round.
    max_rounds : int
    tol : float

    Returns
    -------
    SoftLabels
        The last projected posterior.
    """
    result = task.supervised()
    soft = task.label(result.weights, 1.0, None)
    before = task.objective(result.weights, soft)
    rounds.add(result, task.best_labels(soft), objective=before)
    for _ in range(max_rounds):
        result = task.learn(soft, result.weights)
        learned_from = soft
        soft = task.label(result.weights, 1.0, soft)
        objective = task.objective(result.weights, soft)
        rounds.add(
            result,
            task.best_labels(soft),
            objective=objective,
            penalty=learned_from.penalty,
            temperature=1.0,
        )
        if before - objective <= tol * abs(before):
            break
        before = objective
    return soft
