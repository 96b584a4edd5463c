"""Constraints on expectations, distributions that keep them, and weights for distributions.

Posterior regularisation and DASO give the unlabelled sequences distributions instead of labels.
With weights w, temperature T and penalties g on expectations the distribution a over labellings
minimises::

    Σ_j E_a[cost − w·f(x_j, y)] + Σ_c g_c(E_a[φ_c]) − T·H(a)

Its dual has one multiplier between 0 and a cap for each bound, the distribution is the log-linear
``a(y) ∝ exp((w·f − cost − Σ_c λ_c·φ_c(y))/T)``, and the gradient of the dual is the expected
violation: forward and backward passes, and L-BFGS with bounds on λ. At T = 1 this is the
projection of the model's posterior of Ganchev et al. (2010): up to a constant, the divergence
``KL(a ‖ p_w)`` plus penalties.

Only expectations of functions that decompose over a chain can be computed. From the compiled
constraints these are taken:

* costs of labels at tokens, of changes at tokens and of pairs of neighbours, as they are: their
  expectation is linear in the distribution;
* numbers of tokens of a group of labels in a sequence: the penalty is applied to the expected
  number;
* numbers of segments of one label in a sequence (``AtMostOneSegment``, ``Occurs`` with segments):
  to the expected number of positions at which a segment of that label starts. "Each label at most
  once" (``NoRepeats``) becomes at most one expected start of each label, a surrogate as in Dhillon
  et al. (2012);
* corpus constraints: shares and averages of expected numbers. The share of changes is a ratio; it
  is bounded in the form ``E[bad changes] ≤ p·E[changes]``.

Beyond its bounds a number of one sequence costs per unit what the first unit costs there. Minimum
lengths, orders, and segments of groups of several labels do not decompose into expectations of
labels and starts; they are left out and named in ``left_out``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize

from hingeline.constraints.switches import (
    ALL_SEGMENTS,
    CHANGES,
    SEGMENTS,
    SHARE,
    CompiledConstraints,
)
from hingeline.core.primitives import Workers
from hingeline.core.results import Result
from hingeline.solvers.crf import ChainExpectations, minimise_log_loss, observed_features
from hingeline.structures.chain import ChainProblem, layout_of

Array = np.ndarray[Any, Any]

#: Costs above this are as good as infinite, and smaller numbers keep their digits beside it.
LARGEST_COST = 1e4


class Prices(NamedTuple):
    """Costs of labels: at a token, and of a segment that starts there."""

    unary: Array  # (N, stride)
    start: Array  # (N, stride)


class _Term:
    """Some expectations ``sign·E[…] ≤ sign·bound``, each with a multiplier between 0 and its cap.

    A linear penalty is the cap; a squared one, ``curve·excess²``, a term of the dual.
    """

    def __init__(self, size: int, sign: float, bound: Any, cap: Any, curve: Any = np.inf) -> None:
        self.size, self.sign = size, sign
        self.bound = sign * np.broadcast_to(np.asarray(bound, dtype=np.float64), (size,))
        self.cap = np.broadcast_to(np.asarray(cap, dtype=np.float64), (size,))
        self.curve = np.broadcast_to(np.asarray(curve, dtype=np.float64), (size,))

    def charge(self, multipliers: Array, prices: Prices) -> None:
        """Add the multipliers' costs."""
        raise NotImplementedError

    def expected(self, nodes: Array, starts: Array) -> Array:
        """The expectations, signs included."""
        raise NotImplementedError


class _PerSequence(_Term):
    """Numbers of tokens, or of starts, of groups in every sequence."""

    def __init__(
        self,
        offsets: Array,
        groups: Array,
        sign: float,
        bounds: Array,
        caps: Array,
        of_starts: bool,
    ) -> None:
        n = len(offsets) - 1
        super().__init__(n * len(groups), sign, np.tile(bounds, n), np.tile(caps, n))
        self.offsets, self.of_starts = offsets, of_starts
        self.groups = groups.astype(np.float64)  # (groups, stride)
        self.owner = np.repeat(np.arange(n), np.diff(offsets))

    def charge(self, multipliers: Array, prices: Prices) -> None:
        table = self.sign * multipliers.reshape(-1, len(self.groups)) @ self.groups
        target = prices.start if self.of_starts else prices.unary
        target += table[self.owner]

    def expected(self, nodes: Array, starts: Array) -> Array:
        table = starts if self.of_starts else nodes
        sums = np.add.reduceat(table, self.offsets[:-1], axis=0)
        return self.sign * (sums @ self.groups.T).ravel()


class _OfCorpus(_Term):
    """A number of labels, or of starts, in all sequences, with weights of tokens and of labels."""

    def __init__(
        self,
        tokens: Any,
        labels: Array,
        of_starts: bool,
        sign: float,
        bound: float,
        cap: float,
        curve: float,
    ) -> None:
        super().__init__(1, sign, bound, cap, curve)
        self.tokens, self.labels, self.of_starts = tokens, labels, of_starts

    def charge(self, multipliers: Array, prices: Prices) -> None:
        price = self.sign * float(multipliers[0]) * self.labels
        target = prices.start if self.of_starts else prices.unary
        target += price if np.ndim(self.tokens) == 0 else np.outer(self.tokens, price)

    def expected(self, nodes: Array, starts: Array) -> Array:
        counts = (starts if self.of_starts else nodes) @ self.labels
        total = counts.sum() if np.ndim(self.tokens) == 0 else counts @ self.tokens
        return np.array([self.sign * float(total)])


class Relaxation:
    """Constraints over the unlabelled sequences as bounds on ``n`` expectations.

    Excess over ``bound`` (n,) costs ``cap`` (n,) per unit, or ``curve`` (n,) times its square;
    ``pair`` (labels, stride) holds the costs of pairs of neighbours, and ``left_out`` names what
    has no form here. The stride is the length of a row of labels, padding included.
    """

    def __init__(self, compiled: CompiledConstraints, stride: int) -> None:
        self.compiled, self.stride = compiled, stride
        self.offsets = compiled.offsets
        self.n_tokens, self.n_labels = compiled.unary.shape
        self.pair = self._widen(compiled.pair)
        self._labels = self._widen(compiled.unary)
        change = np.minimum(compiled.change, LARGEST_COST)
        inside = np.ones(self.n_tokens)
        inside[self.offsets[:-1]] = 0.0  # a sequence's first label is no change
        self._inside = inside
        self._starts = np.repeat((change * inside)[:, None], stride, axis=1)
        self.left_out: list[str] = []
        self.terms: list[_Term] = []
        self._add_sequences()
        for c in range(len(compiled.corpus_kind)):
            self._add_corpus(c)
        self.n = sum(term.size for term in self.terms)
        none = [np.zeros(0)]
        self.bound = np.concatenate([*none, *(term.bound for term in self.terms)])
        self.cap = np.concatenate([*none, *(term.cap for term in self.terms)])
        self.curve = np.concatenate([*none, *(term.curve for term in self.terms)])

    def prices(self, multipliers: Array) -> Prices:
        """Costs of labels and of starts under these multipliers."""
        found = Prices(self._labels.copy(), self._starts.copy())
        at = 0
        for term in self.terms:
            term.charge(multipliers[at : at + term.size], found)
            at += term.size
        return found

    def expected(self, nodes: Array, starts: Array) -> Array:
        """The expectations that ``bound`` bounds."""
        parts = [term.expected(nodes, starts) for term in self.terms]
        return np.concatenate(parts) if parts else np.zeros(0)

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

    # What the constraints become -----------------------------------------------------------

    def _widen(self, table: Array) -> Array:
        out = np.zeros((len(table), self.stride))
        out[:, : table.shape[1]] = np.minimum(table, LARGEST_COST)
        return out

    def _mask(self, g: int) -> Array:
        mask = np.zeros(self.stride)
        mask[: self.n_labels] = self.compiled.member[g]
        return mask

    def _all(self) -> Array:
        return (np.arange(self.stride) < self.n_labels).astype(np.float64)

    def _add_sequences(self) -> None:
        compiled = self.compiled
        n_groups = len(compiled.member)
        single = compiled.member.sum(axis=1) == 1
        starts = compiled.segment_cost.copy()
        for r in range(len(compiled.repeat_cost)):
            price = compiled.repeat_cost[r, 1] if compiled.repeat_cost.shape[1] > 1 else 0.0
            counts = np.maximum(np.arange(starts.shape[1]) - 1, 0)
            starts[compiled.repeat_member[r]] += price * counts
        if n_groups and starts[~single].any():
            self.left_out.append("segments of a group of several labels")
        starts[~single] = 0.0
        if compiled.length_cost.any():
            self.left_out.append("minimum lengths")
        if len(compiled.order):
            self.left_out.append("orders of two labels")
        for table, of_starts in ((compiled.token_cost, False), (starts, True)):
            self._add_counts(table, of_starts)

    def _add_counts(self, table: Array, of_starts: bool) -> None:
        """Bounds on numbers, read off the costs of each number."""
        upper: list[tuple[int, float, float]] = []
        lower: list[tuple[int, float, float]] = []
        for g, costs in enumerate(table):
            free = np.flatnonzero(costs == 0.0)
            if not costs.any() or not len(free):
                continue
            low, high = int(free[0]), int(free[-1])
            if low > 0:
                lower.append((g, low, min(costs[low - 1], LARGEST_COST)))
            if high + 1 < len(costs):
                upper.append((g, high, min(costs[high + 1], LARGEST_COST)))
        for sign, rows in ((1.0, upper), (-1.0, lower)):
            if rows:
                masks = np.array([self._mask(g) for g, _, _ in rows])
                bounds, caps = (np.array([row[c] for row in rows]) for c in (1, 2))
                self.terms.append(_PerSequence(self.offsets, masks, sign, bounds, caps, of_starts))

    def _add_corpus(self, c: int) -> None:
        compiled = self.compiled
        kind, target = int(compiled.corpus_kind[c]), int(compiled.corpus_target[c])
        low, high = (float(bound) for bound in compiled.corpus_bounds[c])
        n = len(self.offsets) - 1
        if kind == CHANGES:
            self._add_changes(c, target, low, high)
            return
        if kind == SHARE:
            size, labels = float(self.n_tokens), self._mask(target)
        elif kind == ALL_SEGMENTS:
            size, labels = float(n), self._all()
        else:
            assert kind == SEGMENTS
            if compiled.member[target].sum() != 1:
                self.left_out.append("average segments of a group of several labels")
                return
            size, labels = float(n), self._mask(target)
        # Numbers are divided by √size, which makes multipliers of all terms alike in size.
        if np.isfinite(high):
            self._add_corpus_bound(c, 1.0, labels, kind != SHARE, 1.0, high * size, size)
        if low > 0.0:
            self._add_corpus_bound(c, 1.0, labels, kind != SHARE, -1.0, low * size, size)

    def _add_changes(self, c: int, row: int, low: float, high: float) -> None:
        """``E[bad] − p·E[changes]`` against 0, in units of a typical number of changes."""
        bad = self.compiled.bad_change[row].astype(np.float64) * self._inside
        size = float(max(self._inside.sum() * 0.15, 1.0))  # one change in about seven tokens
        for sign, p in ((1.0, high), (-1.0, low)):
            if not np.isfinite(p) or (sign < 0 and p <= 0.0):
                continue
            per_token = bad - p * self._inside
            self._add_corpus_bound(c, per_token, self._all(), True, sign, 0.0, size)

    def _add_corpus_bound(
        self,
        c: int,
        tokens: Any,
        labels: Array,
        of_starts: bool,
        sign: float,
        bound: float,
        size: float,
    ) -> None:
        """A penalty on ``number/size``, as one on ``number/√size``."""
        compiled = self.compiled
        root = np.sqrt(size)
        weight, scale = float(compiled.corpus_weight[c]), float(compiled.corpus_scale[c])
        squared = int(compiled.corpus_power[c]) == 2
        self.terms.append(
            _OfCorpus(
                tokens,
                labels / root,
                of_starts,
                sign,
                bound / root,
                np.inf if squared else weight * scale / root,
                weight * (scale / root) ** 2 if squared else np.inf,
            )
        )


@dataclass
class SoftLabels:
    """A distribution over the labellings of the unlabelled sequences.

    Its scores, the temperature included, are as :class:`ChainExpectations` takes them.
    """

    weights: Array
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

    ``start`` are multipliers to begin with; there are about ``max_passes`` forward-backward passes;
    ``tol`` is the largest violation of the optimality conditions of a multiplier.
    """
    problem = expectations.problem
    T = float(temperature)
    scaled = w / T
    layout_of(problem)["transition"].padded(scaled)[:] -= relaxation.pair / T
    scaled.reshape(-1, problem.stride)[:, problem.n_labels :] = 0.0
    first = problem.offsets[:-1]

    def scores(multipliers: Array) -> tuple[Array, Array]:
        unary, start_cost = relaxation.prices(multipliers)
        unary[first] += start_cost[first]  # a first label always starts a segment
        return unary / -T, start_cost / -T

    def dual(multipliers: Array) -> tuple[float, Array]:
        """Negated, so that it is to be minimised."""
        unary, enter = scores(multipliers)
        log_z, nodes, stays = expectations.marginals(scaled, unary, enter)
        expected = relaxation.expected(nodes, nodes - stays)
        value, slope = relaxation.conjugate(multipliers)
        return value + T * float(log_z.sum()), slope - expected

    multipliers = np.zeros(relaxation.n) if start is None else np.array(start)
    if relaxation.n:
        found = minimize(
            dual,
            multipliers,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, relaxation.cap),
            options={"maxfun": max_passes, "maxiter": max_passes, "gtol": tol, "ftol": 1e-12},
        )
        multipliers = found.x
    unary, enter = scores(multipliers)
    log_z, nodes, stays = expectations.marginals(scaled, unary, enter)
    starts = nodes - stays
    costs = relaxation.prices(np.zeros(relaxation.n))
    linear = float((nodes * costs.unary).sum() + (starts * costs.start).sum())
    linear += _pair_cost(expectations, scaled, unary, enter, relaxation)
    return SoftLabels(
        weights=scaled,
        unary=unary,
        enter=enter,
        multipliers=multipliers,
        value=-(relaxation.conjugate(multipliers)[0] + T * float(log_z.sum())),
        nodes=nodes,
        penalty=linear + relaxation.penalty(relaxation.expected(nodes, starts)),
    )


def _pair_cost(
    expectations: ChainExpectations, w: Array, unary: Array, enter: Array, relaxation: Relaxation
) -> float:
    """Expected cost of pairs of neighbours, mostly without having to ask."""
    if not relaxation.pair.any():
        return 0.0
    problem = expectations.problem
    expected = expectations.features(w, np.ones(expectations.n), unary, enter)[1]
    moved = layout_of(problem)["transition"].padded(expected)
    return float((moved * relaxation.pair).sum())


class SoftTask:
    """Labelled and unlabelled sequences of a log-linear chain: both halves of an alternation.

    Minimises in turn, over w and a,
    ``½‖w‖² + Σ_i c_i·(log Z_i − w·f(x_i, y_i)) + c_u (Σ_j E_a[log Z_j − w·f(x_j, y)] + …)``,
    with costs, penalties and ``−T·H(a)`` for the dots. ``weights`` are the c_i and
    ``unlabelled_weight`` is c_u; ``tol`` and ``max_iter`` are of the convex problems in w, and
    ``max_passes`` bounds the passes over the unlabelled sequences in one projection, about.
    """

    def __init__(
        self,
        labelled: ChainProblem,
        unlabelled: ChainProblem,
        weights: Array,
        unlabelled_weight: float,
        relaxation: Relaxation,
        workers: Workers,
        *,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_passes: int = 60,
    ) -> None:
        self.labelled = ChainExpectations(labelled, workers)
        self.unlabelled = ChainExpectations(unlabelled, workers)
        self.weights, self.c_u = weights, unlabelled_weight
        self.relaxation = relaxation
        self.tol, self.max_iter, self.max_passes = tol, max_iter, max_passes
        self.observed = observed_features(labelled, weights)
        self._both = _Both(self.labelled, self.unlabelled)

    def learn_supervised(self) -> Result:
        """The weights of the labelled sequences alone."""
        return minimise_log_loss(
            self.labelled, self.weights, self.observed, tol=self.tol, max_iter=self.max_iter
        )

    def project(self, w: Array, temperature: float, before: SoftLabels | None) -> SoftLabels:
        """Distributions for weights."""
        return project(
            self.unlabelled,
            self.relaxation,
            w,
            temperature,
            start=None if before is None else before.multipliers,
            max_passes=self.max_passes,
        )

    def learn(self, soft: SoftLabels, before: Array) -> Result:
        """Weights for distributions."""
        ones = np.full(self.unlabelled.n, self.c_u)
        expected = self.unlabelled.features(soft.weights, ones, soft.unary, soft.enter)[1]
        both: Any = self._both
        return minimise_log_loss(
            both,
            np.concatenate([self.weights, ones]),
            self.observed + expected,
            start=before,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def objective(self, w: Array, soft: SoftLabels) -> float:
        """What is minimised, for weights and the distributions that belong to them.

        The dual value stands for that of the distributions: it is below by their gap.
        """
        log_z = self.labelled.features(w, self.weights)[0]
        fit = float(self.weights @ log_z) - float(w @ self.observed)
        free = self.unlabelled.marginals(w)[0]
        return 0.5 * float(w @ w) + fit + self.c_u * (float(free.sum()) + soft.value)

    def find_best_labels(self, soft: SoftLabels) -> Array:
        """The most probable label of every unlabelled token."""
        return soft.nodes[:, : self.unlabelled.problem.n_labels].argmax(axis=1).astype(np.int32)


class _Both:
    """The expectations of two sets of sequences as one."""

    def __init__(self, first: ChainExpectations, second: ChainExpectations) -> None:
        self.first, self.second = first, second
        self.n = first.n + second.n
        self.n_weights = first.n_weights

    def features(self, w: Array, weights: Array) -> tuple[Array, Array]:
        """As :meth:`ChainExpectations.features`."""
        a = self.first.features(w, weights[: self.first.n])
        b = self.second.features(w, weights[self.first.n :])
        return np.concatenate([a[0], b[0]]), a[1] + b[1]
