"""Deterministic annealing for structured output (DASO), as a baseline.

P. S. Dhillon, S. S. Keerthi, K. Bellare, O. Chapelle, S. Sellamanickam, *Deterministic Annealing
for Semi-supervised Structured Output Learning*, AISTATS 2012, on a conditional random field. The
labels of the unlabelled sequences are relaxed to a distribution a, and ::

    min_{w, a} ½‖w‖² − C Σ_i log p_w(y_i | x_i)
               + c_u (E_a[−Σ_j log p_w(y | x_j)] + penalty(E_a[φ]) − T·H(a))

is minimised over w and a in turn, for a temperature T that falls: flat distributions first, single
labellings in the end. For fixed w the distribution is log-linear with features of the constraints
(:mod:`.soft_labels`); at T = 1 it is the projection of posterior regularisation. Constraints
act through expectations of labels and segment starts; :mod:`.relaxation` says what becomes of those
that do not decompose.
"""

from __future__ import annotations

from collections.abc import Sequence

from hingeline.semisupervised.rounds import Rounds
from hingeline.semisupervised.soft_labels import SoftLabels, SoftTask

#: From the posterior of the model to almost a single labelling.
TEMPERATURES = (1.0, 0.5, 0.2, 0.1)


def daso(
    task: SoftTask,
    rounds: Rounds,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    max_alternations: int = 5,
    tol: float = 1e-3,
) -> SoftLabels:
    """Alternate at each temperature until the objective falls by less than ``tol`` of itself.

    Parameters
    ----------
    task : SoftTask
    rounds : Rounds
        Receives a row for the supervised solution and for every alternation.
    temperatures : sequence of float
        In the order in which they are taken.
    max_alternations : int
        At one temperature.
    tol : float

    Returns
    -------
    SoftLabels
        The last distribution.
    """
    result = task.supervised()
    soft = task.label(result.weights, temperatures[0], None)
    rounds.add(result, task.best_labels(soft), objective=task.objective(result.weights, soft))
    for number, T in enumerate(temperatures):
        if number:
            soft = task.label(result.weights, T, soft)
        before = task.objective(result.weights, soft)
        for _ in range(max_alternations):
            result = task.learn(soft, result.weights)
            learned_from = soft
            soft = task.label(result.weights, T, soft)
            objective = task.objective(result.weights, soft)
            rounds.add(
                result,
                task.best_labels(soft),
                objective=objective,
                penalty=learned_from.penalty,
                temperature=T,
            )
            if before - objective <= tol * abs(before):
                break
            before = objective
    return soft
