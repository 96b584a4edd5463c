"""Transductive structural SVM with prior knowledge, as a baseline.

C.-N. Yu, *Transductive Learning of Structural SVMs via Prior Knowledge Constraints*, AISTATS 2012.
The slack of an unlabelled sequence compares the best labelling of all with the best one that the
prior knowledge lets pass::

    ½‖w‖² + C Σ_i slack_i(w) + C_u/u Σ_j (max_y [w·f(x_j, y) + l(y, y*_j)] − w·f(x_j, y*_j)),
    y*_j = argmax_y w·f(x_j, y) − penalty(y)

a difference of convex functions. The convex-concave procedure fixes y* at the current weights,
which is a convex problem, solves it, and repeats. Completing the labels is constrained inference by
beam, which knows the constraints on single sequences; corpus constraints are left out. Against
:mod:`hingeline.semisupervised.annealing` there is one value of C_u, and labels maximise the score
minus the penalty instead of trading the slack for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hingeline._checks import positive
from hingeline.baselines.base import (
    Baseline,
    Rounds,
    alternate,
    check_margin_base,
    learn_supervised,
    make_decoder,
    make_learner,
)
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.semisupervised.starting import PartlyLabelled


@dataclass(eq=False, repr=False)
class TransductiveSSVM(Baseline):
    """Transductive structural SVM with prior knowledge (Yu 2012), a baseline.

    Labels by constrained inference and the convex problem of all sequences, in turn. To use test
    sequences in training, pass them with None for their labels.

    Parameters
    ----------
    base : ChainSSVM, optional
        With linear slack, margin rescaling and a finite C.
    constraints : list of constraints, default=()
        Corpus constraints are left out, and Python predicates refused.
    C_u : float, default=1.0
        Weight of the unlabelled sequences together; each of u has ``C_u/u``.
    max_rounds : int, default=10
    beam, classes
        As for :class:`CODL`.

    Attributes
    ----------
    base_ : ChainSSVM
        With the weights of the round that was kept.
    rounds_, round_weights_, selected_, transduction_
        As for :class:`PosteriorRegularization`.
    """

    C_u: float = field(default=1.0, kw_only=True)
    max_rounds: int = field(default=10, kw_only=True)
    beam: int = field(default=10, kw_only=True)
    _no_predicates = "a beam does not know"

    def _check(self, model: Any) -> None:
        check_margin_base(model)
        positive("beam", self.beam, integer=True)
        positive("max_rounds", self.max_rounds, integer=True)
        positive("C_u", self.C_u)

    def _run(
        self, data: PartlyLabelled, penalties: Penalties, rounds: Rounds, workers: Workers
    ) -> None:
        u = data.n - data.first
        caps = np.concatenate([data.weights, np.full(u, self.C_u / (u * data.model.C))])
        learn = make_learner(data.model, data.make_problem(0, data.n), caps)
        unlabelled = data.make_problem(data.first, data.n)
        decode = make_decoder(data.model, unlabelled, penalties, int(self.beam))
        supervised = learn_supervised(data)
        alternate(supervised, decode, learn, penalties, rounds, int(self.max_rounds))
