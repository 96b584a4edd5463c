"""Constraint-driven learning (CODL), as a baseline.

M.-W. Chang, L. Ratinov, D. Roth, *Guiding Semi-Supervision with Constraint-Driven Learning*, ACL
2007. In turn, the unlabelled sequences are labelled by constrained inference, which maximises the
model's score minus the penalties of the constraints, and a model learned from these labels is
mixed with the supervised one: ``w ← γ·w_0 + (1 − γ)·learn(labels)`` with γ = 0.9 as published.

The learner here is the structural SVM instead of the published perceptron or hidden Markov model;
the best labelling is learned from (K = 1 of the published top-K); penalties are the weights of the
constraints. Inference is by beam, as published, and knows the constraints on single sequences;
corpus constraints are left out, as they have no part in the published method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from hingeline.semisupervised.rounds import Rounds
from hingeline.solvers.history import Result

Array = np.ndarray[Any, Any]


def codl(
    supervised: Result,
    complete: Callable[[Array], Array],
    learn: Callable[[Array], Result],
    penalty: Callable[[Array], float],
    rounds: Rounds,
    *,
    gamma: float = 0.9,
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
        Labels of the unlabelled tokens to weights, learned from these alone.
    penalty : callable
        Labels to the penalty of the constraints.
    rounds : Rounds
        Receives a row for the supervised solution and for every round.
    gamma : float
        Share of the supervised weights in the mixture.
    max_rounds : int
    """
    weights = supervised.weights
    labels = complete(weights)
    rounds.add(supervised, labels)
    for _ in range(max_rounds):
        learned = learn(labels)
        weights = gamma * supervised.weights + (1.0 - gamma) * learned.weights
        nan = float("nan")
        result = dataclasses.replace(  # a mixture has no certificate
            learned, weights=weights, primal=nan, dual=nan, gap=nan, relative_gap=nan
        )
        paid = penalty(labels)
        labels = complete(weights)
        if rounds.add(result, labels, penalty=paid) == 0.0:
            break
