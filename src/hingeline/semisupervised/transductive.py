"""Transductive structural SVM with prior knowledge, as a baseline.

C.-N. Yu, *Transductive Learning of Structural SVMs via Prior Knowledge Constraints*, AISTATS 2012.
The slack of an unlabelled sequence compares the best labelling of all with the best one that the
prior knowledge lets pass::

    ½‖w‖² + C Σ_i slack_i(w) + C_u/u Σ_j (max_y [w·f(x_j, y) + l(y, y*_j)] − w·f(x_j, y*_j)),
    y*_j = argmax_y w·f(x_j, y) − penalty(y)

a difference of convex functions. The convex-concave procedure fixes y* at the current weights,
which is a convex problem, solves it, and repeats. Completing the labels is constrained inference by
beam, which knows the constraints on single sequences; corpus constraints are left out. Against
:mod:`.annealing` there is one value of C_u, and labels maximise the score minus the penalty instead
of trading the slack for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hingeline.semisupervised.rounds import Rounds
from hingeline.solvers.history import Result

Array = np.ndarray[Any, Any]


def transductive(
    supervised: Result,
    complete: Callable[[Array], Array],
    learn: Callable[[Array], Result],
    penalty: Callable[[Array], float],
    rounds: Rounds,
    *,
    max_rounds: int = 10,
) -> None:
    """Alternate until the labels settle.

    Parameters
    ----------
    supervised : Result
        Of the labelled sequences.
    complete : callable
        Weights to labels of the unlabelled tokens, under the constraints.
    learn : callable
        Labels of the unlabelled tokens to weights, learned from these and the labelled ones.
    penalty : callable
        Labels to the penalty of the constraints.
    rounds : Rounds
        Receives a row for the supervised solution and for every round.
    max_rounds : int
    """
    labels = complete(supervised.weights)
    rounds.add(supervised, labels)
    for _ in range(max_rounds):
        result = learn(labels)
        paid = penalty(labels)
        labels = complete(result.weights)
        if rounds.add(result, labels, penalty=paid, objective=result.primal) == 0.0:
            break
