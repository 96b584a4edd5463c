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

from hingeline.constraints.switches import CHANGES, SEGMENTS, SHARE, CompiledConstraints
from hingeline.solvers.crf import ChainExpectations
from hingeline.structures.chain import layout_of

Array = np.ndarray[Any, Any]

#: Costs above this are as good as infinite, and smaller numbers keep their digits beside it.
LARGEST_COST = 1e4


class Prices(NamedTuple):
    """Costs of labels: at a token, and of a segment that starts there."""

    unary: Array  # (N, stride)
    start: Array  # (N, stride)


class _Term:
    """Some expectations ``sign·E[…] ≤ sign·bound``, each with a multiplier between 0 and its cap.

    A linear penalty is the cap; a squared one, ``curve·excess²``, a term of the dual. The numbers
    are of starts of segments, or else of labels at tokens.
    """

    def __init__(
        self, sign: float, of_starts: bool, bound: Any, cap: Any, curve: float = np.inf
    ) -> None:
        self.sign, self.of_starts = sign, of_starts
        self.bound = sign * np.atleast_1d(np.asarray(bound, dtype=np.float64))
        self.size = len(self.bound)
        self.cap = np.broadcast_to(np.asarray(cap, dtype=np.float64), (self.size,))
        self.curve = np.full(self.size, curve)

    def spread(self, multipliers: Array) -> Array:
        """The multipliers' costs of labels (tokens, stride), or (stride,) for all tokens alike."""
        raise NotImplementedError

    def count(self, table: Array) -> Array:
        """The expectations, signs included, from those of labels or of starts."""
        raise NotImplementedError


class _PerSequence(_Term):
    """Numbers of groups (groups, stride) in every sequence, with bounds of the groups."""

    def __init__(
        self, offsets: Array, groups: Array, sign: float, of_starts: bool, bounds: Any, caps: Any
    ) -> None:
        n = len(offsets) - 1
        super().__init__(sign, of_starts, np.tile(bounds, n), np.tile(caps, n))
        self.offsets, self.groups = offsets, groups.astype(np.float64)
        self.owner = np.repeat(np.arange(n), np.diff(offsets))

    def spread(self, multipliers: Array) -> Array:
        table = self.sign * multipliers.reshape(-1, len(self.groups)) @ self.groups
        return np.asarray(table[self.owner])

    def count(self, table: Array) -> Array:
        sums = np.add.reduceat(table, self.offsets[:-1], axis=0)
        return np.asarray(self.sign * (sums @ self.groups.T).ravel())


class _OfCorpus(_Term):
    """A number in all sequences, with weights of tokens (None: all 1) and of labels (stride,)."""

    def __init__(self, tokens: Array | None, labels: Array, *bounds: Any) -> None:
        super().__init__(*bounds)
        self.tokens, self.labels = tokens, labels

    def spread(self, multipliers: Array) -> Array:
        price = self.sign * float(multipliers[0]) * self.labels
        return price if self.tokens is None else np.outer(self.tokens, price)

    def count(self, table: Array) -> Array:
        counts = table @ self.labels
        total = counts.sum() if self.tokens is None else counts @ self.tokens
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
        self._all = (np.arange(stride) < self.n_labels).astype(np.float64)
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
        self.bound, self.cap, self.curve = (
            np.concatenate([np.zeros(0), *(getattr(term, name) for term in self.terms)])
            for name in ("bound", "cap", "curve")
        )

    def prices(self, multipliers: Array) -> Prices:
        """Costs of labels and of starts under these multipliers."""
        found = Prices(self._labels.copy(), self._starts.copy())
        at = 0
        for term in self.terms:
            target = found.start if term.of_starts else found.unary
            target += term.spread(multipliers[at : at + term.size])
            at += term.size
        return found

    def expected(self, nodes: Array, starts: Array) -> Array:
        """The expectations that ``bound`` bounds."""
        parts = [term.count(starts if term.of_starts else nodes) for term in self.terms]
        return np.concatenate([np.zeros(0), *parts])

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
        self._add_counts(compiled.token_cost, False)
        self._add_counts(starts, True)

    def _add_counts(self, table: Array, of_starts: bool) -> None:
        """Bounds on numbers, read off the costs of each number."""
        rows: dict[float, list[tuple[int, int, float]]] = {1.0: [], -1.0: []}  # by sign
        for g, costs in enumerate(table):
            free = np.flatnonzero(costs == 0.0)
            if not costs.any() or not len(free):
                continue
            low, high = int(free[0]), int(free[-1])
            if low > 0:
                rows[-1.0].append((g, low, min(costs[low - 1], LARGEST_COST)))
            if high + 1 < len(costs):
                rows[1.0].append((g, high, min(costs[high + 1], LARGEST_COST)))
        for sign, found in rows.items():
            if found:
                groups, bounds, caps = zip(*found, strict=True)
                masks = np.array([self._mask(g) for g in groups])
                self.terms.append(_PerSequence(self.offsets, masks, sign, of_starts, bounds, caps))

    def _add_corpus(self, c: int) -> None:
        compiled = self.compiled
        kind, target = int(compiled.corpus_kind[c]), int(compiled.corpus_target[c])
        if kind == SEGMENTS and compiled.member[target].sum() != 1:
            self.left_out.append("average segments of a group of several labels")
            return
        labels = self._mask(target) if kind in (SHARE, SEGMENTS) else self._all
        size = float(self.n_tokens if kind == SHARE else len(self.offsets) - 1)
        bad = None
        if kind == CHANGES:
            # E[bad] − p·E[changes] against 0, in units of a typical number of changes: one in
            # about seven tokens.
            bad = compiled.bad_change[target].astype(np.float64) * self._inside
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
            tokens = None if bad is None else bad - bound * self._inside
            total = bound * size if bad is None else 0.0
            self.terms.append(
                _OfCorpus(tokens, labels / root, sign, kind != SHARE, total / root, cap, curve)
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
    transitions = layout_of(problem)["transition"]
    transitions.padded(scaled)[:] -= relaxation.pair / T
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
    if relaxation.pair.any():
        moved = expectations.features(scaled, np.ones(expectations.n), unary, enter)[1]
        linear += float((transitions.padded(moved) * relaxation.pair).sum())
    return SoftLabels(
        weights=scaled,
        unary=unary,
        enter=enter,
        multipliers=multipliers,
        value=-(relaxation.conjugate(multipliers)[0] + T * float(log_z.sum())),
        nodes=nodes,
        penalty=linear + relaxation.penalty(relaxation.expected(nodes, starts)),
    )
