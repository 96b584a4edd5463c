"""Baselines on a conditional random field: posterior regularisation and DASO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hingeline._checks import positive
from hingeline.baselines.base import Baseline, BaselineData, Rounds
from hingeline.baselines.relaxation import Relaxation, SoftLabels, SoftTask
from hingeline.core.workers import Workers
from hingeline.estimators.crf import ChainCRF

# Posterior regularisation, as a baseline.
#
# K. Ganchev, J. Graça, J. Gillenwater, B. Taskar, *Posterior Regularization for Structured Latent
# Variable Models*, JMLR 11 (2010), on a conditional random field. In turn, the posterior of the
# unlabelled sequences is projected on the constraints, whose expectations may be violated at the
# price of the penalty, and the weights are learned from the labels and the projected posterior::
#
#     q ← argmin_q KL(q ‖ p_w) + penalty(E_q[φ])
#     w ← argmin_w ½‖w‖² − C Σ_i log p_w(y_i | x_i) − c_u Σ_j E_q[log p_w(y | x_j)]
#
# Neither step raises the objective. Constraints act through expectations of labels and segment
# starts; :mod:`.relaxation` says what becomes of those that do not decompose.


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


# Deterministic annealing for structured output (DASO), as a baseline.
#
# P. S. Dhillon, S. S. Keerthi, K. Bellare, O. Chapelle, S. Sellamanickam, *Deterministic
# Annealing for Semi-supervised Structured Output Learning*, AISTATS 2012, on a conditional random
# field. The labels of the unlabelled sequences are relaxed to a distribution a, and ::
#
#     min_{w, a} ½‖w‖² − C Σ_i log p_w(y_i | x_i)
#                + c_u (E_a[−Σ_j log p_w(y | x_j)] + penalty(E_a[φ]) − T·H(a))
#
# is minimised over w and a in turn, for a temperature T that falls: flat distributions first,
# single labellings in the end. For fixed w the distribution is log-linear with features of the
# constraints (:mod:`.soft_labels`); at T = 1 it is the projection of posterior regularisation.
# Constraints act through expectations of labels and segment starts; :mod:`.relaxation` says what
# becomes of those that do not decompose.

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
    constraints and learning from it: :mod:`hingeline.baselines.likelihood`.

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
    temperature: :mod:`hingeline.baselines.likelihood`.

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
