"""The systems that the semi-supervised structured SVM is compared with, with the same constraints.

A leaf: nothing else in the package imports it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, minimize

from hingeline._checks import Array, effective_n_jobs, positive, require
from hingeline.constraints.penalties import Penalties
from hingeline.constraints.switches import CHANGES, SEGMENTS, SHARE, CompiledConstraints
from hingeline.core.primitives import Workers
from hingeline.core.results import Result
from hingeline.estimators.chain import ChainCRF
from hingeline.semisupervised.annealing import ConstrainedLabels, Rounds, WarmSolver
from hingeline.semisupervised.estimator import FewLabelsEstimator, PartlyLabelled, check_margin_base
from hingeline.solvers.crf import ChainExpectations, minimise_log_loss, observed_features
from hingeline.structures.chain import layout_of

__all__ = ["CODL", "DASO", "PosteriorRegularization", "TransductiveSSVM"]


class BaselineRound(NamedTuple):
    """One round of labelling and learning; the first is the supervised solution."""

    objective: float = math.nan  # what the method minimises, nan where it minimises nothing
    penalty: float = math.nan  # of the (expected) labels learned from; nan in the first round
    changed: float = math.nan  # share of unlabelled tokens whose label is new; likewise
    temperature: float = math.nan  # nan where there is none
    dev_score: float = math.nan  # nan without development data
    time: float = 0.0  # seconds


class Baseline(FewLabelsEstimator):
    """The fit around a method, ``_run(data, penalties, rounds, workers)`` of the subclass."""

    _run: ClassVar[Any]
    _no_predicates: ClassVar[str]  # why a method cannot use Python predicates

    def _learn(self, data: PartlyLabelled, dev: Any) -> None:
        model = data.model
        text = "y has labels for all sequences: mark unlabelled ones with None"
        require(data.first < data.n, f"{text}, or fit {type(model).__name__} itself.")
        penalties = Penalties(self.constraints, data.words, model.classes_.tolist())
        text = f"{type(self).__name__} cannot use Python predicates, which {self._no_predicates}"
        require(not penalties.predicates, f"{text}: leave them out, or use SemiSupervisedSSVM.")
        rounds = Rounds(BaselineRound, model, dev)
        with Workers(effective_n_jobs(model.n_jobs), 0) as workers:
            self._run(data, penalties, rounds, workers)
        scores = [row.dev_score for row in rounds.steps]
        chosen = len(scores) - 1 if dev is None else int(np.argmax(scores))
        model._store(rounds.results[chosen])
        self._keep(model, chosen)
        self.transduction_ = data.restore_order(rounds.labels[chosen])
        self.rounds_ = rounds.steps
        self.round_weights_ = [result.weights for result in rounds.results]


@dataclass(eq=False, repr=False)
class _MarginBaseline(Baseline):
    """Constrained inference, and learning from the labels it finds, in turn, until they settle.

    Inference maximises the model's score minus the penalties, by beam; it knows the constraints on
    single sequences.
    """

    _: KW_ONLY
    max_rounds: int = 10
    beam: int = 10
    _no_predicates = "a beam does not know"

    def _check(self, model: Any, dev: Any) -> None:
        check_margin_base(model)
        positive("beam", self.beam, integer=True)
        positive("max_rounds", self.max_rounds, integer=True)

    #: (data, unlabelled): what learns from the supervised solution and labels of unlabelled tokens
    _make_learner: ClassVar[Any]

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
    """Constraint-driven learning, a baseline: ``w ← γ·w_0 + (1 − γ)·learn(labels)``.

    M.-W. Chang, L. Ratinov, D. Roth, *Guiding Semi-Supervision with Constraint-Driven Learning*,
    ACL 2007. The learner is the structured SVM instead of the published perceptron or hidden Markov
    model; the best labelling is learned from (K = 1 of the published top-K).

    Parameters
    ----------
    base : ChainSSVM, optional; with linear slack, margin rescaling and a finite C
    constraints : list, default=(); corpus constraints are left out, Python predicates refused
    gamma : float, default=0.9; share of the supervised weights; 1 is the supervised model
    max_rounds : int, default=10
    beam : int, default=10; hypotheses that inference keeps
    classes : sequence, optional; all labels, if the labelled sequences may lack some

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
    """Transductive structured SVM with prior knowledge, a baseline.

    C.-N. Yu, *Transductive Learning of Structural SVMs via Prior Knowledge Constraints*, AISTATS
    2012. A difference of convex functions is minimised by fixing y*, solving what is convex then,
    and so on: ``½‖w‖² + C Σ_i slack_i(w) + C_u/u Σ_j slack_j(w, y*_j)`` with
    ``y*_j = argmax_y w·f(x_j, y) − penalty(y)``.
    To use test sequences in training, pass them with None for their labels.

    Parameters
    ----------
    C_u : float, default=1.0; weight of the u unlabelled sequences; each has ``C_u/u``
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


# Baselines on a conditional random field: posterior regularisation and DASO.
#
# The labels of the unlabelled sequences are relaxed to a distribution a, and ::
#
#     min_{w, a} ½‖w‖² − C Σ_i log p_w(y_i | x_i)
#                + c_u (E_a[−Σ_j log p_w(y | x_j)] + penalty(E_a[φ]) − T·H(a))
#
# is minimised over w and a in turn; neither step raises the objective.
#
# *Posterior regularisation*: K. Ganchev, J. Graça, J. Gillenwater, B. Taskar, *Posterior
# Regularization for Structured Latent Variable Models*, JMLR 11 (2010). T = 1, where a is the
# projection of the model's posterior on the constraints, ``argmin_q KL(q‖p_w) + penalty(E_q[φ])``.
#
# *DASO*: P. S. Dhillon, S. S. Keerthi, K. Bellare, O. Chapelle, S. Sellamanickam, *Deterministic
# Annealing for Semi-supervised Structured Output Learning*, AISTATS 2012. The temperature T falls:
# flat distributions first, single labellings in the end.
#
# The dual over a, with penalties g on expectations, has one multiplier between 0 and a cap for each
# bound. The distribution is the log-linear ``a(y) ∝ exp((w·f − cost − Σ_c λ_c·φ_c(y))/T)``, and the
# gradient is the expected violation: forward and backward passes, and L-BFGS with bounds on λ.
#
# Only expectations of functions that decompose over a chain can be computed. From the compiled
# constraints these are taken:
#
# * costs of labels at tokens, of changes at tokens and of pairs of neighbours, as they are: their
#   expectation is linear in the distribution;
# * numbers of tokens of a group of labels in a sequence: the penalty is applied to the expected
#   number;
# * numbers of segments of one label in a sequence (``AtMostOneSegment``, ``Occurs`` with segments):
#   to the expected number of its starts. "Each label at most once" (``NoRepeats``) becomes at most
#   one expected start of each label, a surrogate as in Dhillon et al. (2012);
# * corpus constraints: shares and averages of expected numbers. The share of changes is a ratio; it
#   is bounded in the form ``E[bad changes] ≤ p·E[changes]``.
#
# Beyond its bounds a number of one sequence costs per unit what the first unit costs there. Minimum
# lengths, orders, and segments of groups of several labels do not decompose into expectations of
# labels and starts; they are left out and named in ``left_out``.

TEMPERATURES = (1.0, 0.5, 0.2, 0.1)  # From the posterior of the model to almost a single labelling.
#: Costs above this are as good as infinite, and smaller numbers keep their digits beside it.
LARGEST_COST = 1e4


class Relaxation:
    """Constraints over the unlabelled sequences as bounds on ``n`` expectations.

    Expectations are rows of a matrix over (2 · tokens · stride) entries, of labels at tokens and
    then of starts of segments, with signs such that ``bound`` (n,) is an upper one. Excess costs
    ``cap`` (n,) per unit, or ``curve`` (n,) times its square; ``pair`` (labels, stride) holds the
    costs of pairs of neighbours, and ``left_out`` names what has no form here. The stride is the
    length of a row of labels, padding included.
    """

    def __init__(self, compiled: CompiledConstraints, stride: int) -> None:
        self.compiled, self.stride = compiled, stride
        self.offsets = compiled.offsets
        self.n_tokens, self.n_labels = compiled.unary.shape
        self.pair = self._widen(compiled.pair)
        self._inside = np.ones(self.n_tokens)
        self._inside[self.offsets[:-1]] = 0.0  # a sequence's first label is no change
        change = np.minimum(compiled.change, LARGEST_COST) * self._inside
        starts = np.repeat(change[:, None], stride, axis=1)
        self._costs = np.stack([self._widen(compiled.unary), starts])
        self.left_out: list[str] = []
        self._matrices: list[Any] = [sp.csr_array((0, self._costs.size))]
        self._limits: list[tuple[float, float, float]] = []
        self._add_sequences()
        for c in range(len(compiled.corpus_kind)):
            self._add_corpus(c)
        self._matrix = sp.vstack(self._matrices).tocsr()
        limits = np.array(self._limits, dtype=np.float64).reshape(-1, 3)
        self.n, (self.bound, self.cap, self.curve) = len(limits), limits.T.copy()

    def prices(self, multipliers: Array) -> tuple[Array, Array]:
        """Costs (N, stride) of labels at a token, and of a segment that starts there."""
        labels, starts = self._costs + (multipliers @ self._matrix).reshape(self._costs.shape)
        return labels, starts

    def expected(self, nodes: Array, starts: Array) -> Array:
        """The expectations that ``bound`` bounds."""
        return np.asarray(self._matrix @ np.concatenate([nodes.ravel(), starts.ravel()]))

    def conjugate(self, multipliers: Array) -> tuple[float, Array]:
        """What the penalties contribute to the (negated) dual, and its gradient."""
        bend = 0.5 / self.curve
        value = float(np.sum(multipliers * (self.bound + 0.5 * bend * multipliers)))
        return value, self.bound + bend * multipliers

    def penalty(self, expected: Array) -> float:
        """The penalties of expectations, without the costs that are linear throughout."""
        excess = np.maximum(expected - self.bound, 0.0)
        squared = np.isfinite(self.curve)
        linear = float(self.cap[~squared] @ excess[~squared])
        return linear + float(self.curve[squared] @ excess[squared] ** 2)

    def _widen(self, table: Array) -> Array:
        out = np.zeros((len(table), self.stride))
        out[:, : table.shape[1]] = np.minimum(table, LARGEST_COST)
        return out

    def _add_rows(
        self, sign: float, of_starts: bool, matrix: Any, bound: float, cap: float, curve: float
    ) -> None:
        """Bound all rows of a matrix, over labels or starts alone: from above, or from below."""
        rows = sp.csr_array(sign * matrix)
        both = [rows, sp.csr_array(rows.shape)]
        self._matrices.append(sp.hstack(both[::-1] if of_starts else both))
        self._limits += [(sign * bound, cap, curve)] * rows.shape[0]

    def _add_sequences(self) -> None:
        compiled = self.compiled
        single = compiled.member.sum(axis=1) == 1
        starts = compiled.segment_cost.copy()
        for member, costs in zip(compiled.repeat_member, compiled.repeat_cost, strict=True):
            starts[member] += costs[1:2].sum() * np.maximum(np.arange(starts.shape[1]) - 1, 0)
        if starts[~single].any():
            self.left_out.append("segments of a group of several labels")
        starts[~single] = 0.0
        if compiled.length_cost.any():
            self.left_out.append("minimum lengths")
        if len(compiled.order):
            self.left_out.append("orders of two labels")
        self._add_counts(compiled.token_cost, False)
        self._add_counts(starts, True)

    def _add_counts(self, table: Array, of_starts: bool) -> None:
        """Bounds on numbers in every sequence, read off the costs of each number."""
        sums = sp.csr_array((np.ones(self.n_tokens), np.arange(self.n_tokens), self.offsets))
        for g, costs in enumerate(table):
            free = np.flatnonzero(costs == 0.0)
            if not costs.any() or not len(free):
                continue
            low, high = int(free[0]), int(free[-1])
            matrix = sp.kron(sums, self._widen(self.compiled.member[g : g + 1]))
            for sign, bound, beyond in ((-1.0, low, low - 1), (1.0, high, high + 1)):
                if 0 <= beyond < len(costs):
                    cap = min(costs[beyond], LARGEST_COST)
                    self._add_rows(sign, of_starts, matrix, bound, cap, np.inf)

    def _add_corpus(self, c: int) -> None:
        compiled = self.compiled
        kind, target = int(compiled.corpus_kind[c]), int(compiled.corpus_target[c])
        if kind == SEGMENTS and compiled.member[target].sum() != 1:
            self.left_out.append("average segments of a group of several labels")
            return
        every = np.ones((1, self.n_labels))
        some = compiled.member[target : target + 1] if kind in (SHARE, SEGMENTS) else every
        labels = self._widen(some)
        tokens = np.ones(self.n_tokens)
        size = float(self.n_tokens if kind == SHARE else len(self.offsets) - 1)
        if kind == CHANGES:
            # E[bad] − p·E[changes] against 0, in units of a typical number of changes: one in
            # about seven tokens.
            size = float(max(self._inside.sum() * 0.15, 1.0))
        # A penalty on number/size is one on number/√size: multipliers of all terms are alike.
        root = np.sqrt(size)
        scale, weight, squared = (float(number) for number in compiled.corpus_price[c])
        cap = np.inf if squared else weight * scale / root
        curve = weight * (scale / root) ** 2 if squared else np.inf
        low, high = (float(bound) for bound in compiled.corpus_bounds[c])
        for sign, bound in ((1.0, high), (-1.0, low)):
            if not np.isfinite(bound) or (sign < 0 and bound <= 0.0):
                continue
            total = bound * size
            if kind == CHANGES:
                tokens, total = (compiled.bad_change[target] - bound) * self._inside, 0.0
            matrix = np.outer(tokens, labels / root).reshape(1, -1)
            self._add_rows(sign, kind != SHARE, matrix, total / root, cap, curve)


@dataclass
class SoftLabels:
    """A distribution over the labellings of the unlabelled sequences."""

    weights: Array  # this and the next two with the temperature, as ChainExpectations takes them
    unary: Array
    enter: Array
    multipliers: Array
    value: float  # the dual objective, a bound from below on what is minimised
    nodes: Array  # (tokens, stride) probabilities of labels
    penalty: float  # expected costs and penalties


def project(
    expectations: ChainExpectations,
    relaxation: Relaxation,
    w: Array,
    temperature: float = 1.0,
    *,
    start: Array | None = None,
    max_passes: int = 60,
    tol: float = 1e-3,
) -> SoftLabels:
    """The distribution of smallest cost, penalty and negative entropy for weights w.

    ``start`` are multipliers; ``tol`` is the largest violation of their optimality conditions.
    """
    problem = expectations.problem
    T = float(temperature)
    scaled = w / T
    transitions = layout_of(problem)["transition"]
    transitions.padded(scaled)[:] -= relaxation.pair / T
    scaled.reshape(-1, problem.stride)[:, problem.n_labels :] = 0.0
    first = problem.offsets[:-1]

    def look(multipliers: Array) -> tuple[Array, Array, Array, Array, float]:
        """Scores of labels and of starts, their probabilities, and the negated dual."""
        unary, enter = relaxation.prices(multipliers)
        unary[first] += enter[first]  # a first label always starts a segment
        unary, enter = unary / -T, enter / -T
        log_z, nodes, stays = expectations.marginals(scaled, unary, enter)
        value = relaxation.conjugate(multipliers)[0] + T * float(log_z.sum())
        return unary, enter, nodes, nodes - stays, value

    def dual(multipliers: Array) -> tuple[float, Array]:
        *_, nodes, starts, value = look(multipliers)
        return value, relaxation.conjugate(multipliers)[1] - relaxation.expected(nodes, starts)

    multipliers = np.zeros(relaxation.n) if start is None else np.array(start)
    if relaxation.n:
        limits = {"maxfun": max_passes, "maxiter": max_passes, "gtol": tol, "ftol": 1e-12}
        known: Any = {"jac": True, "method": "L-BFGS-B", "bounds": Bounds(0.0, relaxation.cap)}
        multipliers = minimize(dual, multipliers, **known, options=limits).x
    unary, enter, nodes, starts, value = look(multipliers)
    costs, start_costs = relaxation.prices(np.zeros(relaxation.n))
    linear = float((nodes * costs).sum() + (starts * start_costs).sum())
    if relaxation.pair.any():
        moved = expectations.features(scaled, np.ones(expectations.n), unary, enter)[1]
        linear += float((transitions.padded(moved) * relaxation.pair).sum())
    penalty = linear + relaxation.penalty(relaxation.expected(nodes, starts))
    return SoftLabels(scaled, unary, enter, multipliers, -value, nodes, penalty)


@dataclass(eq=False, repr=False)
class PosteriorRegularization(Baseline):
    """Posterior regularisation (Ganchev et al. 2010), a baseline.

    Alternates between projecting the posterior of a conditional random field onto the constraints
    and learning from the projection.

    Parameters
    ----------
    base : ChainCRF, optional
    constraints : list of constraints, default=()
        As bounds on expectations of labels and segment starts; others are in ``left_out_``.
    unlabelled_weight : float, default=1.0; of an unlabelled sequence relative to a labelled one
    max_rounds : int, default=10
    max_passes : int, default=60; forward-backward passes in a projection, approximately
    tol : float, default=1e-3; stop when the objective falls by less than this share
    classes : sequence, optional; all labels, where the labelled sequences may lack some

    Attributes
    ----------
    base_ : ChainCRF
        With the weights of the round ``selected_``: the last, or the best on development data.
    rounds_, round_weights_ : list of BaselineRound, list of ndarray; supervised at first
    transduction_ : list of ndarray; all labels in training, given or most probable
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
        require(len(weights) == len(temperatures), f"{text}: give one for each, or a number.")
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
        C = float(data.model.C)
        limits: Any = {"tol": float(data.model.tol), "max_iter": int(data.model.max_iter)}
        parts = (0, data.first), (data.first, data.n), (0, data.n)
        problems = (data.make_problem(lo, hi) for lo, hi in parts)
        known, unknown, everyone = (ChainExpectations(p, workers) for p in problems)
        weights = C * data.weights
        observed = observed_features(known.problem, weights)
        relaxation = Relaxation(penalties.compiled, unknown.problem.stride)
        self.left_out_ = relaxation.left_out

        def find(w: Array, before: Any, T: float, c_u: float) -> tuple[SoftLabels, float, Array]:
            """Distributions for weights, the objective of both, and the most probable labels."""
            start = None if before is None else before.multipliers
            soft = project(unknown, relaxation, w, T, start=start, max_passes=int(self.max_passes))
            fit = float(weights @ known.features(w, weights)[0]) - float(w @ observed)
            # The dual value, below by a gap, stands for the distributions' own.
            free = float(unknown.marginals(w)[0].sum()) + soft.value
            labels = soft.nodes[:, : unknown.problem.n_labels].argmax(axis=1).astype(np.int32)
            return soft, 0.5 * float(w @ w) + fit + c_u * free, labels

        result, soft = minimise_log_loss(known, weights, observed, **limits), None
        for weight, T in zip(*self._schedule(), strict=True):
            T, c_u = float(T), C * float(weight)
            soft, before, labels = find(result.weights, soft, T, c_u)
            if not rounds.steps:
                rounds.add(result, labels, objective=before)
            ones = np.full(unknown.n, c_u)
            both = np.concatenate([weights, ones])
            for _ in range(int(self.max_rounds)):
                expected = unknown.features(soft.weights, ones, soft.unary, soft.enter)[1]
                target, start, paid = observed + expected, result.weights, soft.penalty
                result = minimise_log_loss(everyone, both, target, start=start, **limits)
                soft, objective, labels = find(result.weights, soft, T, c_u)
                rounds.add(result, labels, temperature=T, objective=objective, penalty=paid)
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
    max_rounds : int, default=5; rounds at each temperature
    base, constraints, max_passes, tol, classes
        As for :class:`PosteriorRegularization`, and so are the attributes.
    """

    _: KW_ONLY
    temperatures: Sequence[float] = TEMPERATURES
    max_rounds: int = 5
