"""Baselines on a structured SVM: constraint-driven learning and a transductive SVM.

Both label the unlabelled sequences by constrained inference, which maximises the model's score
minus the penalties, and learn from these labels, in turn. Inference is by beam and knows the
constraints on single sequences; corpus constraints are left out.

*CODL*: M.-W. Chang, L. Ratinov, D. Roth, *Guiding Semi-Supervision with Constraint-Driven
Learning*, ACL 2007. A model learned from the labels is mixed with the supervised one:
``w ← γ·w_0 + (1 − γ)·learn(labels)`` with γ = 0.9 as published. The learner here is the structured
SVM instead of the published perceptron or hidden Markov model; the best labelling is learned from
(K = 1 of the published top-K); penalties are the weights of the constraints.

*Transductive SVM*: C.-N. Yu, *Transductive Learning of Structural SVMs via Prior Knowledge
Constraints*, AISTATS 2012. The slack of an unlabelled sequence compares the best labelling of all
with the best one that the prior knowledge lets pass::

    ½‖w‖² + C Σ_i slack_i(w) + C_u/u Σ_j (max_y [w·f(x_j, y) + l(y, y*_j)] − w·f(x_j, y*_j)),
    y*_j = argmax_y w·f(x_j, y) − penalty(y)

a difference of convex functions. The convex-concave procedure fixes y* at the current weights,
which is a convex problem, solves it, and repeats.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from hingeline._checks import Array, positive, require
from hingeline.baselines.base import Baseline
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.core.results import Result
from hingeline.semisupervised.annealing import Rounds, WarmSolver
from hingeline.semisupervised.estimator import check_margin_base
from hingeline.semisupervised.starting import ConstrainedLabels, PartlyLabelled


@dataclass(eq=False, repr=False)
class _MarginBaseline(Baseline):
    """Labels by constrained inference and learning from them, in turn, until they settle."""

    _: KW_ONLY
    max_rounds: int = 10
    beam: int = 10
    _no_predicates = "a beam does not know"

    def _check(self, model: Any, dev: Any) -> None:
        check_margin_base(model)
        positive("beam", self.beam, integer=True)
        positive("max_rounds", self.max_rounds, integer=True)

    def _make_learner(self, data: PartlyLabelled, unlabelled: Any) -> Callable[..., Result]:
        """What learns from the supervised solution and labels of the unlabelled tokens."""
        raise NotImplementedError

    def _run(
        self, data: PartlyLabelled, penalties: Penalties, rounds: Rounds, workers: Workers
    ) -> None:
        unlabelled = data.make_problem(data.first, data.n)

        def decode(w: Array) -> Array:
            width = int(self.beam)
            return ConstrainedLabels(unlabelled, 0, w, 1.0, penalties, workers, width).find()

        learn = self._make_learner(data, unlabelled)
        supervised = WarmSolver(data.model, data.make_problem(0, data.first)).solve(data.weights)
        labels = decode(supervised.weights)
        rounds.add(supervised, labels)
        for _ in range(int(self.max_rounds)):
            result = learn(supervised, labels)
            paid = penalties.total(labels)
            labels = decode(result.weights)
            if rounds.add(result, labels, penalty=paid, objective=result.primal).changed == 0.0:
                break


@dataclass(eq=False, repr=False)
class CODL(_MarginBaseline):
    """Constraint-driven learning (Chang, Ratinov, Roth 2007), a baseline.

    Parameters
    ----------
    base : ChainSSVM, optional; with linear slack, margin rescaling and a finite C
    constraints : list, default=(); corpus constraints are left out, Python predicates refused
    gamma : float, default=0.9; share of the supervised weights; 1 is the supervised model
    max_rounds : int, default=10
    beam : int, default=10; hypotheses that inference keeps
    classes : sequence, optional; all labels, where the labelled sequences may lack some

    Attributes
    ----------
    base_, rounds_, round_weights_, selected_, transduction_
        As for :class:`PosteriorRegularization`.
    """

    _: KW_ONLY
    gamma: float = 0.9

    def _check(self, model: Any, dev: Any) -> None:
        super()._check(model, dev)
        positive("gamma", self.gamma)
        require(self.gamma <= 1, f"gamma must be at most 1, got {self.gamma!r}.")

    def _make_learner(self, data: PartlyLabelled, unlabelled: Any) -> Callable[..., Result]:
        solver, ones = WarmSolver(data.model, unlabelled), np.ones(data.n - data.first)
        gamma, nan = float(self.gamma), math.nan

        def mix(supervised: Result, labels: Array) -> Result:
            learned = solver.solve(ones, labels)
            weights = gamma * supervised.weights + (1.0 - gamma) * learned.weights
            return replace(  # a mixture has no certificate
                learned, weights=weights, primal=nan, dual=nan, gap=nan, relative_gap=nan
            )

        return mix


@dataclass(eq=False, repr=False)
class TransductiveSSVM(_MarginBaseline):
    """Transductive structured SVM with prior knowledge (Yu 2012), a baseline.

    Labels by constrained inference and the convex problem of all sequences, in turn. To use test
    sequences in training, pass them with None for their labels.

    Parameters
    ----------
    C_u : float, default=1.0; weight of the unlabelled sequences, each of u has ``C_u/u``
    base, constraints, max_rounds, beam, classes
        As for :class:`CODL`, and so are the attributes.
    """

    _: KW_ONLY
    C_u: float = 1.0

    def _check(self, model: Any, dev: Any) -> None:
        super()._check(model, dev)
        positive("C_u", self.C_u)

    def _make_learner(self, data: PartlyLabelled, unlabelled: Any) -> Callable[..., Result]:
        u = data.n - data.first
        caps = np.concatenate([data.weights, np.full(u, self.C_u / (u * data.model.C))])
        solver = WarmSolver(data.model, data.make_problem(0, data.n))
        return lambda supervised, labels: solver.solve(caps, labels)
