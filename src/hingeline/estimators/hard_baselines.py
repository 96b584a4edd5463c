"""Baselines on a structural SVM: constraint-driven learning and the transductive SVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.constraints.prediction import decode_compiled
from hingeline.estimators.baseline_fits import Baseline, BaselineData
from hingeline.estimators.chain import ChainSSVM
from hingeline.estimators.chain_constraints import moves_of
from hingeline.estimators.validation import one_of, positive
from hingeline.estimators.warm_start import DualMemory
from hingeline.semisupervised.codl import codl
from hingeline.semisupervised.planes import retarget
from hingeline.semisupervised.rounds import Rounds
from hingeline.semisupervised.transductive import transductive
from hingeline.solvers.history import Result
from hingeline.solvers.parallel import Workers
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]

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
            result, dual, _ = model._solve_with(compiled, weights, start, model._kind)
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
        K, d, stride = unlabelled.n_labels, unlabelled.n_features, unlabelled.stride
        tokens = sp.csr_matrix(
            (unlabelled.values, unlabelled.indices, unlabelled.indptr),
            shape=(len(unlabelled.labels), d),
        )
        first, last = unlabelled.offsets[:-1], unlabelled.offsets[1:] - 1
        valid = moves_of(model.classes_, model.scheme_)

        def complete(w: Array) -> Array:
            rows = w.reshape(-1, stride)[:, :K]
            scores = np.asarray(tokens @ rows[:d])
            moves = rows[d : d + K].copy()
            if unlabelled.boundary:
                scores[first] += rows[d + K]
                scores[last] += rows[d + K + 1]
            if valid is not None:
                scores[first] += np.where(valid[0], 0.0, _FORBIDDEN)
                scores[last] += np.where(valid[2], 0.0, _FORBIDDEN)
                moves += np.where(valid[1], 0.0, _FORBIDDEN)
            return decode_compiled(data.penalties.compiled, scores, moves, beam=int(self.beam))

        return complete


class CODL(_HardBaseline):
    """Constraint-driven learning (Chang, Ratinov, Roth 2007), a baseline.

    Labels by constrained inference, weights from these mixed with the supervised ones, in turn:
    :mod:`hingeline.semisupervised.codl`.

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
    :mod:`hingeline.semisupervised.transductive`. To use test sequences in training, pass them with
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
