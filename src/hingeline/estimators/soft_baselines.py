"""Baselines on a conditional random field: posterior regularisation and DASO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hingeline.estimators.baseline_fits import Baseline, BaselineData
from hingeline.estimators.chain_crf import ChainCRF
from hingeline.estimators.validation import positive
from hingeline.semisupervised.daso import TEMPERATURES, daso
from hingeline.semisupervised.posterior_regularization import posterior_regularization
from hingeline.semisupervised.relaxation import Relaxation
from hingeline.semisupervised.rounds import Rounds
from hingeline.semisupervised.soft_labels import SoftTask
from hingeline.solvers.parallel import Workers


class _SoftBaseline(Baseline):
    """On a conditional random field, with distributions over labels."""

    unlabelled_weight: float
    max_passes: int
    tol: float
    _default = ChainCRF

    def _check(self, model: Any) -> None:
        positive("unlabelled_weight", self.unlabelled_weight)
        positive("max_passes", self.max_passes, integer=True)
        positive("tol", self.tol)

    def _task(self, data: BaselineData, workers: Workers) -> SoftTask:
        if data.penalties.predicates:
            raise ValueError(
                f"{type(self).__name__} cannot use Python predicates, which have no expectation: "
                "leave them out, or use SemiSupervisedSSVM."
            )
        model = data.model
        unlabelled = data.problem(data.first, data.n)
        relaxation = Relaxation(data.penalties.compiled, unlabelled.stride)
        self.left_out_ = relaxation.left_out
        return SoftTask(
            data.problem(0, data.first),
            unlabelled,
            float(model.C) * data.weights,
            float(model.C) * float(self.unlabelled_weight),
            relaxation,
            workers,
            tol=float(model.tol),
            max_iter=int(model.max_iter),
            max_passes=int(self.max_passes),
        )


class PosteriorRegularization(_SoftBaseline):
    """Posterior regularisation (Ganchev et al. 2010), a baseline.

    Alternates between the projection of the posterior of a conditional random field on the
    constraints and learning from it: :mod:`hingeline.semisupervised.posterior_regularization`.

    Parameters
    ----------
    base : ChainCRF, optional
    constraints : list of constraints, default=()
        Bounds on expectations of labels and segment starts; "at most one segment" bounds the
        expected number of starts. What has no such form is named in ``left_out_``.
    unlabelled_weight : float, default=1.0
        Weight of an unlabelled sequence beside that of a labelled one.
    max_rounds : int, default=10
    max_passes : int, default=60
        Forward-backward passes in a projection, about.
    tol : float, default=1e-3
        Relative fall of the objective at which to stop.
    classes : sequence, optional
        All labels there are, where the labelled sequences may lack some.

    Attributes
    ----------
    base_ : ChainCRF
        With the weights of the round that was kept.
    rounds_ : list of BaselineRound
        The first is the supervised solution.
    round_weights_ : list of ndarray
    selected_ : int
        The round kept: the last, or the best on development data.
    transduction_ : list of ndarray
        Labels of all training sequences: those given, and the most probable ones.
    left_out_ : list of str
    """

    def __init__(
        self,
        base: ChainCRF | None = None,
        constraints: Any = (),
        *,
        unlabelled_weight: float = 1.0,
        max_rounds: int = 10,
        max_passes: int = 60,
        tol: float = 1e-3,
        classes: Any = None,
    ) -> None:
        self.base = base
        self.constraints = constraints
        self.unlabelled_weight = unlabelled_weight
        self.max_rounds = max_rounds
        self.max_passes = max_passes
        self.tol = tol
        self.classes = classes

    def _check(self, model: Any) -> None:
        super()._check(model)
        positive("max_rounds", self.max_rounds, integer=True)

    def _run(self, data: BaselineData, rounds: Rounds, workers: Workers) -> None:
        posterior_regularization(
            self._task(data, workers), rounds, max_rounds=int(self.max_rounds), tol=float(self.tol)
        )


class DASO(_SoftBaseline):
    """Deterministic annealing for structured output (Dhillon et al. 2012), a baseline.

    Distributions over labels and weights of a conditional random field in turn, at a falling
    temperature: :mod:`hingeline.semisupervised.daso`.

    Parameters
    ----------
    base : ChainCRF, optional
    constraints : list of constraints, default=()
        As for :class:`PosteriorRegularization`.
    temperatures : sequence of float, default=(1, 0.5, 0.2, 0.1)
    unlabelled_weight : float, default=1.0
        Weight of an unlabelled sequence beside that of a labelled one.
    max_alternations : int, default=5
        At one temperature.
    max_passes, tol, classes
        As for :class:`PosteriorRegularization`.

    Attributes
    ----------
    base_, rounds_, round_weights_, selected_, transduction_, left_out_
        As for :class:`PosteriorRegularization`.
    """

    def __init__(
        self,
        base: ChainCRF | None = None,
        constraints: Any = (),
        *,
        temperatures: Sequence[float] = TEMPERATURES,
        unlabelled_weight: float = 1.0,
        max_alternations: int = 5,
        max_passes: int = 60,
        tol: float = 1e-3,
        classes: Any = None,
    ) -> None:
        self.base = base
        self.constraints = constraints
        self.temperatures = temperatures
        self.unlabelled_weight = unlabelled_weight
        self.max_alternations = max_alternations
        self.max_passes = max_passes
        self.tol = tol
        self.classes = classes

    def _check(self, model: Any) -> None:
        super()._check(model)
        positive("max_alternations", self.max_alternations, integer=True)
        if len(self.temperatures) == 0:
            raise ValueError("temperatures is empty: give at least one.")
        for k, value in enumerate(self.temperatures):
            positive(f"temperatures[{k}]", value)

    def _run(self, data: BaselineData, rounds: Rounds, workers: Workers) -> None:
        daso(
            self._task(data, workers),
            rounds,
            temperatures=[float(T) for T in self.temperatures],
            max_alternations=int(self.max_alternations),
            tol=float(self.tol),
        )
