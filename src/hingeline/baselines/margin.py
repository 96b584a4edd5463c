"""Baselines on a structural SVM: constraint-driven learning and the transductive SVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import one_of, positive
from hingeline.baselines.base import Baseline, BaselineData, Rounds
from hingeline.constraints.decode import decode_compiled
from hingeline.core.results import DualMemory, Result
from hingeline.core.workers import Workers
from hingeline.estimators.allowed import moves_of
from hingeline.estimators.chain import ChainSSVM
from hingeline.semisupervised.switching import retarget
from hingeline.structures.chain import ChainProblem, layout_of

# Constraint-driven learning (CODL), as a baseline.
#
# M.-W. Chang, L. Ratinov, D. Roth, *Guiding Semi-Supervision with Constraint-Driven Learning*,
# ACL 2007. In turn, the unlabelled sequences are labelled by constrained inference, which
# maximises the model's score minus the penalties of the constraints, and a model learned from
# these labels is mixed with the supervised one: ``w ← γ·w_0 + (1 − γ)·learn(labels)`` with γ =
# 0.9 as published.
#
# The learner here is the structural SVM instead of the published perceptron or hidden Markov
# model; the best labelling is learned from (K = 1 of the published top-K); penalties are the
# weights of the constraints. Inference is by beam, as published, and knows the constraints on
# single sequences; corpus constraints are left out, as they have no part in the published method.

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


# Transductive structural SVM with prior knowledge, as a baseline.
#
# C.-N. Yu, *Transductive Learning of Structural SVMs via Prior Knowledge Constraints*, AISTATS
# 2012. The slack of an unlabelled sequence compares the best labelling of all with the best one
# that the prior knowledge lets pass::
#
#     ½‖w‖² + C Σ_i slack_i(w) + C_u/u Σ_j (max_y [w·f(x_j, y) + l(y, y*_j)] − w·f(x_j, y*_j)),
#     y*_j = argmax_y w·f(x_j, y) − penalty(y)
#
# a difference of convex functions. The convex-concave procedure fixes y* at the current weights,
# which is a convex problem, solves it, and repeats. Completing the labels is constrained
# inference by beam, which knows the constraints on single sequences; corpus constraints are left
# out. Against :mod:`.annealing` there is one value of C_u, and labels maximise the score minus
# the penalty instead of trading the slack for it.


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


#: What a move that a tag scheme forbids costs in a beam, which wants finite numbers.
_FORBIDDEN = -1e8


class _HardBaseline(Baseline):
    """On a structural SVM, with one labelling at a time."""

    beam: int
    max_rounds: int
    _default = ChainSSVM

    def _check(self, model: Any) -> None:
        one_of("base's slack", model.slack, ("max",))
        one_of("base's rescale", model.rescale, ("margin",))
        one_of("base's solver", model.solver, ("auto", "sdm"))
        positive("base's C", model.C)
        positive("beam", self.beam, integer=True)
        positive("max_rounds", self.max_rounds, integer=True)

    def _solver(self, data: BaselineData, problem: ChainProblem, weights: Array, at: int) -> Any:
        """Labels of the tokens from ``at`` on to weights, each time from the multipliers before."""
        model = data.model
        compiled = model._compile(problem)
        scratch = np.zeros(compiled.scratch_size)
        memory: list[DualMemory] = []

        def learn(labels: Array) -> Result:
            differs = np.concatenate([np.zeros(at, bool), labels != problem.labels[at:]])
            problem.labels[at:] = labels
            start = memory.pop() if memory else None
            if start is not None:
                changed = np.flatnonzero(np.logical_or.reduceat(differs, problem.offsets[:-1]))
                retarget(problem, start.form, start.multipliers, changed, scratch)
            result, dual, _ = model._solve_with(compiled, weights, start)
            memory.append(dual)
            return result

        return learn

    def _supervised(self, data: BaselineData) -> Result:
        problem = data.problem(0, data.first)
        learn = self._solver(data, problem, data.weights, len(problem.labels))
        result: Result = learn(np.zeros(0, dtype=np.int32))
        return result

    def _complete(self, data: BaselineData, unlabelled: ChainProblem) -> Any:
        """Weights to labels of the unlabelled tokens, under the constraints."""
        if data.penalties.predicates:
            raise ValueError(
                f"{type(self).__name__} cannot use Python predicates, which a beam does not know: "
                "leave them out, or use SemiSupervisedSSVM."
            )
        model = data.model
        layout = layout_of(unlabelled)
        tokens = sp.csr_matrix(
            (unlabelled.values, unlabelled.indices, unlabelled.indptr),
            shape=(len(unlabelled.labels), unlabelled.n_features),
        )
        first, last = unlabelled.offsets[:-1], unlabelled.offsets[1:] - 1
        valid = moves_of(model.classes_, model.scheme_)

        def complete(w: Array) -> Array:
            tables = layout.split(w)
            scores = np.asarray(tokens @ tables["emission"])
            moves = tables["transition"].copy()
            if unlabelled.boundary:
                scores[first] += tables["start"][0]
                scores[last] += tables["end"][0]
            if valid is not None:
                scores[first] += np.where(valid[0], 0.0, _FORBIDDEN)
                scores[last] += np.where(valid[2], 0.0, _FORBIDDEN)
                moves += np.where(valid[1], 0.0, _FORBIDDEN)
            return decode_compiled(data.penalties.compiled, scores, moves, beam=int(self.beam))

        return complete


class CODL(_HardBaseline):
    """Constraint-driven learning (Chang, Ratinov, Roth 2007), a baseline.

    Labels by constrained inference, weights from these mixed with the supervised ones, in turn:
    :mod:`hingeline.baselines.margin`.

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

    def __init__(
        self,
        base: ChainSSVM | None = None,
        constraints: Any = (),
        *,
        gamma: float = 0.9,
        max_rounds: int = 10,
        beam: int = 10,
        classes: Any = None,
    ) -> None:
        self.base = base
        self.constraints = constraints
        self.gamma = gamma
        self.max_rounds = max_rounds
        self.beam = beam
        self.classes = classes

    def _check(self, model: Any) -> None:
        super()._check(model)
        positive("gamma", self.gamma)
        if self.gamma > 1:
            raise ValueError(f"gamma must be at most 1, got {self.gamma!r}.")

    def _run(self, data: BaselineData, rounds: Rounds, workers: Workers) -> None:
        unlabelled = data.problem(data.first, data.n)
        codl(
            self._supervised(data),
            self._complete(data, unlabelled),
            self._solver(data, unlabelled, np.ones(data.n - data.first), 0),
            data.penalties.total,
            rounds,
            gamma=float(self.gamma),
            max_rounds=int(self.max_rounds),
        )


class TransductiveSSVM(_HardBaseline):
    """Transductive structural SVM with prior knowledge (Yu 2012), a baseline.

    Labels by constrained inference and the convex problem of all sequences, in turn:
    :mod:`hingeline.baselines.margin`. To use test sequences in training, pass them with
    None for their labels.

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

    def __init__(
        self,
        base: ChainSSVM | None = None,
        constraints: Any = (),
        *,
        C_u: float = 1.0,
        max_rounds: int = 10,
        beam: int = 10,
        classes: Any = None,
    ) -> None:
        self.base = base
        self.constraints = constraints
        self.C_u = C_u
        self.max_rounds = max_rounds
        self.beam = beam
        self.classes = classes

    def _check(self, model: Any) -> None:
        super()._check(model)
        positive("C_u", self.C_u)

    def _run(self, data: BaselineData, rounds: Rounds, workers: Workers) -> None:
        unlabelled = data.problem(data.first, data.n)
        u = data.n - data.first
        caps = np.concatenate([data.weights, np.full(u, self.C_u / (u * data.model.C))])
        transductive(
            self._supervised(data),
            self._complete(data, unlabelled),
            self._solver(data, data.problem(0, data.n), caps, int(data.offsets[data.first])),
            data.penalties.total,
            rounds,
            max_rounds=int(self.max_rounds),
        )
