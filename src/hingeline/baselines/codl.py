"""Constraint-driven learning (CODL), as a baseline.

M.-W. Chang, L. Ratinov, D. Roth, *Guiding Semi-Supervision with Constraint-Driven Learning*, ACL
2007. In turn, the unlabelled sequences are labelled by constrained inference, which maximises the
model's score minus the penalties of the constraints, and a model learned from these labels is mixed
with the supervised one: ``w ← γ·w_0 + (1 − γ)·learn(labels)`` with γ = 0.9 as published.

The learner here is the structural SVM instead of the published perceptron or hidden Markov model;
the best labelling is learned from (K = 1 of the published top-K); penalties are the weights of the
constraints. Inference is by beam, as published, and knows the constraints on single sequences;
corpus constraints are left out, as they have no part in the published method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hingeline._checks import positive
from hingeline.baselines.base import (
    Array,
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
from hingeline.core.results import Result
from hingeline.semisupervised.starting import PartlyLabelled


@dataclass(eq=False, repr=False)
class CODL(Baseline):
    """Constraint-driven learning (Chang, Ratinov, Roth 2007), a baseline.

    Labels by constrained inference, and weights learned from them mixed with the supervised ones,
    in turn.

    Parameters
    ----------
    base : ChainSSVM, optional
        With linear slack, margin rescaling and a finite C.
    constraints : list of constraints, default=()
        Corpus constraints are left out, and Python predicates refused.
    gamma : float, default=0.9
        Share of the supervised weights; 1 is the supervised model.
    max_rounds : int, default=10
    beam : int, default=10
        Hypotheses that inference keeps.
    classes : sequence, optional
        All labels there are, where the labelled sequences may lack some.

    Attributes
    ----------
    base_ : ChainSSVM
        With the weights of the round that was kept.
    rounds_, round_weights_, selected_, transduction_
        As for :class:`PosteriorRegularization`.
    """

    gamma: float = field(default=0.9, kw_only=True)
    max_rounds: int = field(default=10, kw_only=True)
    beam: int = field(default=10, kw_only=True)
    _no_predicates = "a beam does not know"

    def _check(self, model: Any) -> None:
        check_margin_base(model)
        positive("beam", self.beam, integer=True)
        positive("max_rounds", self.max_rounds, integer=True)
        positive("gamma", self.gamma)
        if self.gamma > 1:
            raise ValueError(f"gamma must be at most 1, got {self.gamma!r}.")

    def _run(
        self, data: PartlyLabelled, penalties: Penalties, rounds: Rounds, workers: Workers
    ) -> None:
        unlabelled = data.make_problem(data.first, data.n)
        supervised = learn_supervised(data)
        learn = make_learner(data.model, unlabelled, np.ones(data.n - data.first))
        gamma, nan = float(self.gamma), math.nan

        def mix(labels: Array) -> Result:
            learned = learn(labels)
            weights = gamma * supervised.weights + (1.0 - gamma) * learned.weights
            return replace(  # a mixture has no certificate
                learned, weights=weights, primal=nan, dual=nan, gap=nan, relative_gap=nan
            )

        decode = make_decoder(data.model, unlabelled, penalties, int(self.beam))
        alternate(supervised, decode, mix, penalties, rounds, int(self.max_rounds))
