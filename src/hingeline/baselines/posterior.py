"""Baselines on a conditional random field: posterior regularisation and DASO.

The labels of the unlabelled sequences are relaxed to a distribution a, and ::

    min_{w, a} ½‖w‖² − C Σ_i log p_w(y_i | x_i)
               + c_u (E_a[−Σ_j log p_w(y | x_j)] + penalty(E_a[φ]) − T·H(a))

is minimised over w and a in turn; neither step raises the objective. For fixed w the distribution
is log-linear with features of the constraints. Constraints act through expectations of labels and
segment starts; :mod:`.relaxation` says what becomes of those that do not decompose.

*Posterior regularisation*: K. Ganchev, J. Graça, J. Gillenwater, B. Taskar, *Posterior
Regularization for Structured Latent Variable Models*, JMLR 11 (2010). T = 1, where a is the
projection of the model's posterior on the constraints, ``argmin_q KL(q ‖ p_w) + penalty(E_q[φ])``.

*DASO*: P. S. Dhillon, S. S. Keerthi, K. Bellare, O. Chapelle, S. Sellamanickam, *Deterministic
Annealing for Semi-supervised Structured Output Learning*, AISTATS 2012. The temperature T falls:
flat distributions first, single labellings in the end.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np

from hingeline._checks import Array, positive, require
from hingeline.baselines.base import Baseline
from hingeline.baselines.relaxation import Relaxation, SoftLabels, project
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.core.results import Result
from hingeline.estimators.crf import ChainCRF
from hingeline.semisupervised.annealing import Rounds
from hingeline.semisupervised.starting import PartlyLabelled
from hingeline.solvers.crf import ChainExpectations, minimise_log_loss, observed_features

TEMPERATURES = (1.0, 0.5, 0.2, 0.1)  # From the posterior of the model to almost a single labelling.


@dataclass(eq=False, repr=False)
class PosteriorRegularization(Baseline):
    """Posterior regularisation (Ganchev et al. 2010), a baseline.

    Alternates between the projection of the posterior of a conditional random field on the
    constraints and learning from it.

    Parameters
    ----------
    base : ChainCRF, optional
    constraints : list of constraints, default=()
        As bounds on expectations of labels and segment starts; others are in ``left_out_``.
    unlabelled_weight : float, default=1.0; of an unlabelled sequence beside a labelled one
    max_rounds : int, default=10
    max_passes : int, default=60; forward-backward passes in a projection, about
    tol : float, default=1e-3; relative fall of the objective at which to stop
    classes : sequence, optional; all labels, where the labelled sequences may lack some

    Attributes
    ----------
    base_ : ChainCRF
        With the weights of the round ``selected_``: the last, or the best on development data.
    rounds_, round_weights_ : list of BaselineRound, list of ndarray; supervised at first
    transduction_ : list of ndarray; all labels in training, those given and the most probable
    left_out_ : list of str
    """

    _: KW_ONLY
    unlabelled_weight: float | Sequence[float] = 1.0
    max_rounds: int = 10
    max_passes: int = 60
    tol: float = 1e-3
    _base_class = ChainCRF
    _no_predicates = "have no expectation"

    def _check(self, model: Any, dev: Any) -> None:
        positive("max_rounds", self.max_rounds, integer=True)
        positive("max_passes", self.max_passes, integer=True)
        positive("tol", self.tol)
        weights, temperatures = self._schedule()
        require(len(temperatures) > 0, "temperatures is empty: give at least one.")
        text = f"unlabelled_weight has {len(weights)} values for {len(temperatures)} temperatures"
        fits = len(weights) == len(temperatures)
        require(fits, f"{text}: give one for each, or a number.")
        for k, pair in enumerate(zip(weights, temperatures, strict=True)):
            positive("unlabelled_weight", pair[0])
            positive(f"temperatures[{k}]", pair[1])

    def _schedule(self) -> tuple[Sequence[float], Sequence[float]]:
        """The weight of an unlabelled sequence at each temperature, and the temperatures."""
        temperatures = getattr(self, "temperatures", (1.0,))
        given: Any = self.unlabelled_weight
        return given if np.ndim(given) else (given,) * len(temperatures), temperatures

    def _run(
        self, data: PartlyLabelled, penalties: Penalties, rounds: Rounds, workers: Workers
    ) -> None:
        task = _Task(data, penalties, workers, int(self.max_passes))
        self.left_out_ = task.relaxation.left_out
        result = minimise_log_loss(task.labelled, task.weights, task.observed, **task.limits)
        soft: SoftLabels | None = None
        for weight, T in zip(*self._schedule(), strict=True):
            task.c_u = float(data.model.C) * float(weight)
            soft = task.project(result.weights, float(T), soft)
            before = task.objective(result.weights, soft)
            if not rounds.steps:
                rounds.add(result, task.find_best_labels(soft), objective=before)
            for _ in range(int(self.max_rounds)):
                result = task.learn(soft, result.weights)
                learned_from = soft
                soft = task.project(result.weights, float(T), soft)
                objective = task.objective(result.weights, soft)
                found = {"objective": objective, "penalty": learned_from.penalty}
                rounds.add(result, task.find_best_labels(soft), temperature=float(T), **found)
                if before - objective <= float(self.tol) * abs(before):
                    break
                before = objective


@dataclass(eq=False, repr=False)
class DASO(PosteriorRegularization):
    """Deterministic annealing for structured output (Dhillon et al. 2012), a baseline.

    Posterior regularisation at a falling temperature.

    Parameters
    ----------
    temperatures : sequence of float, default=(1, 0.5, 0.2, 0.1)
    unlabelled_weight : float or sequence of float, default=1.0
        As for :class:`PosteriorRegularization`, or one value for each temperature.
    max_rounds : int, default=5; at one temperature
    base, constraints, max_passes, tol, classes
        As for :class:`PosteriorRegularization`, and so are the attributes.
    """

    _: KW_ONLY
    temperatures: Sequence[float] = TEMPERATURES
    unlabelled_weight: float | Sequence[float] = 1.0
    max_rounds: int = 5


class _Task:
    """Both halves of an alternation: distributions for weights, and weights for distributions."""

    def __init__(
        self, data: PartlyLabelled, penalties: Penalties, workers: Workers, max_passes: int
    ) -> None:
        model = data.model
        labelled = data.make_problem(0, data.first)
        self.labelled = ChainExpectations(labelled, workers)
        self.unlabelled = ChainExpectations(data.make_problem(data.first, data.n), workers)
        self.all = ChainExpectations(data.make_problem(0, data.n), workers)
        self.weights = float(model.C) * data.weights
        self.c_u = 0.0  # weight of an unlabelled sequence, set for each temperature
        self.observed = observed_features(labelled, self.weights)
        self.relaxation = Relaxation(penalties.compiled, self.unlabelled.problem.stride)
        self.limits: Any = {"tol": float(model.tol), "max_iter": int(model.max_iter)}
        self._project = partial(project, self.unlabelled, self.relaxation, max_passes=max_passes)

    def project(self, w: Array, temperature: float, before: SoftLabels | None) -> SoftLabels:
        return self._project(w, temperature, start=None if before is None else before.multipliers)

    def learn(self, soft: SoftLabels, before: Array) -> Result:
        ones = np.full(self.unlabelled.n, self.c_u)
        expected = self.unlabelled.features(soft.weights, ones, soft.unary, soft.enter)[1]
        weights, target = np.concatenate([self.weights, ones]), self.observed + expected
        return minimise_log_loss(self.all, weights, target, start=before, **self.limits)

    def objective(self, w: Array, soft: SoftLabels) -> float:
        """What is minimised; the dual value, below by a gap, stands for the distributions'."""
        log_z = self.labelled.features(w, self.weights)[0]
        fit = float(self.weights @ log_z) - float(w @ self.observed)
        free = self.unlabelled.marginals(w)[0]
        return 0.5 * float(w @ w) + fit + self.c_u * (float(free.sum()) + soft.value)

    def find_best_labels(self, soft: SoftLabels) -> Array:
        """The most probable label of every unlabelled token."""
        return soft.nodes[:, : self.unlabelled.problem.n_labels].argmax(axis=1).astype(np.int32)
