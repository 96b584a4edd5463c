"""Deterministic annealing: labels and weights in turn, unlabelled sequences ever dearer.

The problem of P. Balamurugan, S. Shevade, S. Sellamanickam, *Large Margin Semi-supervised
Structured Output Learning*, (5), over weights w and labels y* of the unlabelled sequences::

    P(w, y*) = ½‖w‖² + C_l/l Σ_i slack_i(w) + C_u/u Σ_j slack_j(w, y*_j) + penalty(y*)

is not convex. Algorithm 1 begins with the labelled sequences alone and raises C_u step by step; at
each it alternates between labels for fixed w and the convex problem in w for fixed labels, until
the labels settle. Only that convex problem has a dual and a certificate; the whole has none.

Labels y* are those of the highest score minus penalty (:mod:`.starting`) or, as printed, such as
label switching reaches (:mod:`.switching`). Where constraints have learned weights, these are in
units of the score, and the penalty enters P times ``C_u/u``, as the slack does.
"""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline.constraints.learning import change_rule
from hingeline.constraints.penalties import Penalties
from hingeline.core.blocks import fill_gram
from hingeline.core.primitives import Workers
from hingeline.core.results import DualMemory, Result
from hingeline.semisupervised.starting import ConstrainedLabels, PartlyLabelled, find_best_labels
from hingeline.semisupervised.switching import measure_slacks, retarget, switch_labels
from hingeline.structures.chain import ChainProblem

NO_LABELS = np.zeros(0, dtype=np.int32)

#: C_u as printed: 1e-4, 3e-4, …, 1.
PRINTED = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
#: What is tried by default: C_u/u, the cost of an unlabelled sequence. C_u up to 1 hardly moves the
#: weights, and what it takes to move them depends on the features, not on C.
PRICES = (0.01, 0.03, 0.1, 0.3)


class AnnealingStep(NamedTuple):
    """One value of C_u. The four parts of the objective are as they enter it, weights included.

    Plain predictions are those of the weights alone on the unlabelled sequences.
    """

    C_u: float  # 0: labelled sequences only
    objective: float  # P: the sum of the next four
    norm: float  # ½‖w‖²
    labelled: float  # slack of the labelled sequences
    unlabelled: float  # slack of the others, for y*
    penalty: float = math.nan  # of y*; nan where there are none yet
    gap: float = math.nan  # of the convex problem with y* fixed
    switches: int = 0  # labels switched in all alternations
    alternations: int = 0
    settled: bool = True  # whether y* came out the same twice, or nearly so (``label_tol``)
    changed: float = math.nan  # share of tokens whose y* differs from that of the step before
    violations: float = math.nan  # penalty of plain predictions
    agreement: float = math.nan  # share of tokens at which plain predictions and y* agree
    stability: float = math.nan  # share of tokens predicted as at the step before
    dev_score: float = math.nan  # nan without development data
    time: float = 0.0  # seconds


#: The table that ``verbose=1`` prints, a row for every step.
_HEADINGS = ("C_u", "objective", "violations", "dev", "seconds", "penalty", "switches", "rounds")
_ROW = "{:>8}  {:>11}  {:>11}  {:>8}  {:>7}  {:>11}  {:>8}  {:>6}  {}"


@dataclass
class Trajectory:
    """All steps, with the weights and certificate of each, and the labels of the last."""

    steps: list[AnnealingStep]
    results: list[Result]
    labels: list[Array]
    interrupted: bool = False


class WarmSolver:
    """The convex problem in the weights for fixed labels, solved again and again.

    Each call begins with the multipliers of the one before; ``changed`` are the sequences whose
    labels were new to it.
    """

    def __init__(self, model: Any, problem: Any) -> None:
        self.model, self.problem = model, problem
        self.compiled = model._compile(problem)
        self._scratch = np.zeros(self.compiled.scratch_size)
        self._memory: DualMemory | None = None

    def solve(self, weights: Array, labels: Array = NO_LABELS) -> Result:
        """Solve with these labels of the problem's last tokens; the others keep theirs."""
        problem = self.problem
        tail = problem.labels[len(problem.labels) - len(labels) :]
        differs = np.zeros(len(problem.labels), dtype=bool)
        differs[len(problem.labels) - len(labels) :] = labels != tail
        tail[:] = labels
        self.changed = np.flatnonzero(np.logical_or.reduceat(differs, problem.offsets[:-1]))
        start, self._memory = self._memory, None
        if start is not None and len(self.changed):
            planes = start.multipliers
            retarget(problem, start.form, planes, self.changed, self._scratch)
            if len(planes.gram):
                fill_gram(problem, planes, self.changed, self._scratch)
        result: Result
        result, self._memory, _ = self.model._solve_with(self.compiled, weights, start)
        return result


class Annealing:
    """Algorithm 1 over sequences some of which are labelled.

    ``settings`` is the estimator whose parameters say how to anneal. Labels of the unlabelled
    sequences are written into the problem.
    """

    def __init__(
        self,
        settings: Any,
        data: PartlyLabelled,
        penalties: Penalties,
        workers: Workers,
        rng: np.random.Generator,
        dev: tuple[Any, Any] | None,
    ) -> None:
        self.settings, self.data, self.penalties = settings, data, penalties
        self.learned = settings.weights == "learned"
        rules = penalties.constraints
        most = max((rule.weight for rule in rules if not rule.hard), default=1.0)
        # Plain predictions may break hard rules, which then count like the heaviest soft one.
        soft = [change_rule(r, hard=False, weight=most) if r.hard else r for r in rules]
        self._counted = Penalties(soft, data.words, penalties.classes, unknown="ignore")
        self.workers, self.rng, self.dev = workers, rng, dev
        self.problem: ChainProblem = data.make_problem(0, data.n)
        self._solver = WarmSolver(data.model, self.problem)
        self._prices = np.zeros(self.problem.n_labels)  # of labels, kept from step to step

    def run(self, schedule: Sequence[float] | None) -> Trajectory:
        """The labelled sequences alone, then every C_u of the schedule.

        An interruption ends it; the steps that are complete are kept.
        """
        if schedule is None:
            schedule = [price * (self.data.n - self.data.first) for price in PRICES]
        began = time.perf_counter()
        result = self._solve(0.0, NO_LABELS)
        path = Trajectory([], [], [], interrupted=result.stop_reason == "interrupted")
        plain = self._predict(result.weights)
        self._record(path, 0.0, result, 0, 0, True, plain, plain, began)
        try:
            for C_u in schedule:
                if not path.interrupted:
                    self._step(path, float(C_u))
        except KeyboardInterrupt:  # between two solves
            path.interrupted = True
        return path

    def _solve(self, C_u: float, labels: Array) -> Result:
        u = self.data.n - self.data.first
        price = C_u / (max(u, 1) * self.data.model.C)
        return self._solver.solve(np.concatenate([self.data.weights, np.full(u, price)]), labels)

    def _step(self, path: Trajectory, C_u: float) -> None:
        began = time.perf_counter()
        settings, problem, first = self.settings, self.problem, self.data.first
        at = problem.offsets[first]
        result = path.results[-1]
        rounds = switches = 0
        settled = False
        while not settled and rounds < settings.max_alternations:
            labels, switched = self._match(result.weights, C_u)
            changed = float(np.mean(labels != problem.labels[at:]))
            settled = rounds > 0 and changed <= float(settings.label_tol)
            if settled:
                break
            rounds += 1
            switches += switched
            result = self._solve(C_u, labels)
            if settings.verbose >= 2:
                print(
                    f"  alternation {rounds}: {100 * changed:.2f} % of tokens relabelled in "
                    f"{len(self._solver.changed)} sequences, {switched} switches",
                    file=sys.stderr,
                )
            if result.stop_reason == "interrupted":
                path.interrupted = True
                return
        labels = problem.labels[at:].copy()
        plain = self._predict(result.weights)
        self._record(path, C_u, result, rounds, switches, settled, labels, plain, began)

    def _match(self, weights: Array, C_u: float) -> tuple[Array, int]:
        """Labels of the unlabelled tokens for these weights, and how many were switched."""
        settings, first = self.settings, self.data.first
        scale = 1.0 if self.learned else C_u / (self.data.n - first)
        if settings.start == "viterbi" or not self.penalties.constraints:
            labels = self._predict(weights)
        else:
            search = ConstrainedLabels(
                self.problem, first, weights, scale, self.penalties, self.workers
            )
            # Learned shares weigh too little to be worth prices.
            labels = search.find() if self.learned else search.find_with_shares(self._prices)
        if not settings.max_sweeps:
            return labels, 0
        found = switch_labels(
            self.problem,
            first,
            weights,
            scale,
            self.penalties,
            labels,
            order=settings.order,
            max_switches=settings.max_switches,
            max_sweeps=settings.max_sweeps,
            rng=self.rng,
        )
        return found.labels, found.switches

    def _record(
        self,
        path: Trajectory,
        C_u: float,
        result: Result,
        rounds: int,
        switches: int,
        settled: bool,
        labels: Array,
        plain: Array,
        began: float,
    ) -> None:
        problem, model, first, n = self.problem, self.data.model, self.data.first, self.data.n
        w = result.weights
        slack = measure_slacks(problem, 0, first, w, self.workers)
        others = measure_slacks(problem, first, n, w, self.workers) if C_u > 0.0 else np.zeros(1)
        norm = 0.5 * float(w @ w)
        labelled = float((float(model.C) * self.data.weights) @ slack)
        unlabelled = C_u / max(n - first, 1) * float(others.sum())
        penalty = self.penalties.total(labels) if rounds else math.nan
        if self.learned and rounds:
            penalty *= C_u / (n - first)
        before = self._predict(path.results[-1].weights) if path.results else plain
        score = math.nan
        if self.dev is not None:
            model.weights_ = w
            score = float(model.score(*self.dev))
        step = AnnealingStep(
            C_u=C_u,
            objective=norm + labelled + unlabelled + (penalty if rounds else 0.0),
            norm=norm,
            labelled=labelled,
            unlabelled=unlabelled,
            penalty=penalty,
            gap=result.gap,
            switches=switches,
            alternations=rounds,
            settled=settled,
            changed=float(np.mean(labels != path.labels[-1])) if path.labels else math.nan,
            violations=self._counted.total(plain),
            agreement=float(np.mean(labels == plain)) if len(labels) else math.nan,
            stability=float(np.mean(before == plain)) if path.results else math.nan,
            dev_score=score,
            time=time.perf_counter() - began,
        )
        path.steps.append(step)
        path.results.append(result)
        path.labels.append(labels)
        if self.settings.verbose:
            if len(path.steps) == 1:
                print(_ROW.format(*_HEADINGS, "").rstrip(), file=sys.stderr)
            numbers = [f"{v:.6g}" for v in (C_u, step.objective, step.violations)]
            dev = "" if math.isnan(score) else f"{100 * score:.2f} %"
            counts = (
                f"{penalty:.6g}" if rounds else "",
                step.switches,
                rounds,
                "" if settled else "not settled",
            )
            print(_ROW.format(*numbers, dev, f"{step.time:.1f}", *counts).rstrip(), file=sys.stderr)

    def _predict(self, weights: Array) -> Array:
        return find_best_labels(self.problem, self.data.first, weights, self.workers)


def choose_by_violations(steps: Sequence[AnnealingStep]) -> int:
    """Choose a step without labels: the first that removes 98 % of the violations.

    The violations are those of plain predictions; all that any step removes of them, counted from
    the supervised solution, is the whole. Later steps only move the predictions further.
    """
    costs = np.array([step.violations for step in steps])
    reach = costs.min() + 0.02 * (costs[0] - costs.min())
    return int(np.argmax(costs <= reach))
