"""Sets of labels without pairs: one binary hinge for every label of every example.

Without pairs the structured hinge is a sum over labels, and so are primal and dual. With
``u = w_on = −w_off`` of a label, ``s = ±1`` the truth and b its loss, the problem of one label is::

    P(u) = ‖u‖² + Σ_i cap_i·[b_i − 2·s_i·u·x_i]₊
    D(α) = Σ_i α_i·b_i − ‖u‖²,     u = Σ_i α_i·s_i·x_i,     0 ≤ α_i ≤ cap_i

Every label is solved by itself, in threads: dual coordinate descent with shrinking (C.-J. Hsieh et
al., *A dual coordinate descent method for large-scale linear SVM*, 2008) and, where passes crawl
and features are few, Newton steps (:mod:`hingeline.solvers.newton`). As long as most examples can
move, eight labels visit them in one order, so that the loops over features fill vector registers;
so do looks at all examples. Primals are those of weights averaged over the passes of a sweep, a
fifth to a quarter nearer to the optimum at large C. A large C is approached in stages, a sweep
each. The best primal and the best dual of each label add up to the certificate; passes go to the
labels that hold most of the gap.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, cast

import numpy as np

from hingeline._checks import Array
from hingeline._jit import kernel
from hingeline._simd import aligned_zeros, row_add, row_dot, rows_add, rows_dot
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import PART, Compiled, rows_of
from hingeline.core.results import DualMemory
from hingeline.core.solver import CertifiedSolver, Multipliers

PASSES = 10  # Passes between two looks at all examples.
WIDE = 8  # Labels that are looked at together: one vector register.
TOGETHER = 1.6  # What a visit to their examples costs then, in visits for a single label.
SKIP = 0.3  # Labels whose gap is below this share of the mean are left out of a sweep.
STAGE_FACTOR = 8.0  # Between two stages of C; a power of two keeps multipliers at their bounds.
NEWTON_FEATURES = 1000  # Newton steps are taken with so many features at most.
ROOT_2 = math.sqrt(2.0)


class Tables(NamedTuple):
    """What is known of the labels, a row each.

    ``bounds`` are the largest and the least slope of the pass before: an example at a bound whose
    slope lies beyond them is shrunk, and not looked at before all are.
    """

    sign: Array  # (labels, examples), as the next two
    offset: Array
    alpha: Array
    u: Array  # (labels, features), as the next
    lead: Array  # averaged weights less u
    shrunk: Array  # (labels, examples)
    bounds: Array  # (labels, 2)


@kernel
def descend(
    problem: Any, cap: Array, labels: Array, active: Array, draws: Array, tables: Tables
) -> None:
    """Passes over the examples that can move; one row of ``draws`` shuffles them for each.

    Pass q counts q times in the average of the weights.
    """
    sign, offset, alpha, u, lead, shrunk, bounds = tables
    indptr, indices, values = problem.indptr, problem.indices, problem.values
    live = np.empty_like(active)
    for k in labels:
        own, average = u[k], lead[k]
        count = 0
        for i in active:
            if not shrunk[k, i]:
                live[count] = i
                count += 1
        for q in range(draws.shape[0]):
            most, least = -np.inf, np.inf
            t = 0
            while t < count:
                other = t + int(draws[q, t] * (count - t))
                i = live[other]
                live[other] = live[t]
                live[t] = i
                t += 1
                s = float(sign[k, i])
                slope = offset[k, i] - 2.0 * s * row_dot(indptr, indices, values, i, own)
                before = alpha[k, i]
                low = before == 0.0 and slope <= 0.0
                if low or (before == cap[i] and slope >= 0.0):
                    most, least = max(most, 0.0), min(least, 0.0)
                    if slope < bounds[k, 1] if low else slope > bounds[k, 0]:
                        shrunk[k, i] = True
                        t -= 1
                        count -= 1
                        live[t] = live[count]
                    continue
                most, least = max(most, slope), min(least, slope)
                square = 2.0 * problem.row_sqnorm[i]
                if square > 0.0:
                    after = min(max(before + slope / square, 0.0), cap[i])
                else:
                    after = cap[i] if slope > 0.0 else 0.0
                if after != before:
                    alpha[k, i] = after
                    row_add(indptr, indices, values, i, s * (after - before), own)
            bounds[k, 0] = most if most > 0.0 else np.inf
            bounds[k, 1] = least if least < 0.0 else -np.inf
            share = 2.0 / (q + 2.0)
            for f in range(own.shape[0]):
                average[f] = (1.0 - share) * average[f] + share * own[f]
            if not most - least > 0.0:
                average[:] = own
                break
        for f in range(own.shape[0]):
            average[f] -= own[f]


@kernel
def descend_together(
    problem: Any, cap: Array, labels: Array, active: Array, draws: Array, tables: Tables
) -> None:
    """Passes over all examples for :data:`WIDE` labels at a time: one look at x serves them all.

    Nothing is shrunk, so that what becomes of a label does not depend on its neighbours.
    """
    sign, offset, alpha, u, lead, _, bounds = tables
    indptr, indices, values = problem.indptr, problem.indices, problem.values
    n, d = cap.shape[0], u.shape[1]
    order = np.empty_like(active)
    signs, offsets, masses = np.empty((n, WIDE)), np.empty((n, WIDE)), np.empty((n, WIDE))
    own, average = np.empty(d * WIDE), np.empty(d * WIDE)
    sums, steps = np.empty(WIDE), np.empty(WIDE)
    most, least = np.empty(WIDE), np.empty(WIDE)
    for start in range(0, labels.shape[0], WIDE):
        count = min(WIDE, labels.shape[0] - start)
        signs[:] = 0.0
        masses[:] = 0.0
        own[:] = 0.0
        offsets[:] = -1.0  # where there is no label, nothing moves
        for c in range(count):
            k = labels[start + c]
            for i in range(n):
                signs[i, c], offsets[i, c], masses[i, c] = sign[k, i], offset[k, i], alpha[k, i]
            for f in range(d):
                own[f * WIDE + c] = u[k, f]
        order[:] = active
        average[:] = own
        for q in range(draws.shape[0]):
            most[:] = -np.inf
            least[:] = np.inf
            for t in range(order.shape[0]):
                other = t + int(draws[q, t] * (order.shape[0] - t))
                i = order[other]
                order[other] = order[t]
                order[t] = i
                lo, hi = indptr[i], indptr[i + 1]
                rows_dot(indices, values, lo, hi, own, WIDE, sums, 0)
                bound, inverse = cap[i], 1.0 / max(2.0 * problem.row_sqnorm[i], 1e-300)
                moved = False
                for c in range(WIDE):
                    slope = offsets[i, c] - 2.0 * signs[i, c] * sums[c]
                    before = masses[i, c]
                    stuck = (before == 0.0 and slope <= 0.0) or (before == bound and slope >= 0.0)
                    most[c] = max(most[c], 0.0 if stuck else slope)
                    least[c] = min(least[c], 0.0 if stuck else slope)
                    after = min(max(before + slope * inverse, 0.0), bound)
                    masses[i, c] = after
                    steps[c] = signs[i, c] * (after - before)
                    moved = moved or after != before
                if moved:
                    rows_add(indices, values, lo, hi, steps, own, WIDE)
            share = 2.0 / (q + 2.0)
            for f in range(d * WIDE):
                average[f] = (1.0 - share) * average[f] + share * own[f]
        for c in range(count):
            k = labels[start + c]
            alpha[k, :] = masses[:, c]
            bounds[k, 0] = most[c] if most[c] > 0.0 else np.inf
            bounds[k, 1] = least[c] if least[c] < 0.0 else -np.inf
            for f in range(d):
                u[k, f] = own[f * WIDE + c]
                lead[k, f] = average[f * WIDE + c] - u[k, f]


@kernel
def look(
    problem: Any, cap: Array, labels: Array, tables: Tables, primals: Array, duals: Array
) -> None:
    """Weights from the multipliers again; their true dual, and the true primal of the average."""
    sign, offset, alpha, u, lead, shrunk, bounds = tables
    indptr, indices, values = problem.indptr, problem.indices, problem.values
    n, d = cap.shape[0], u.shape[1]
    own = np.empty(d * WIDE)
    sums, steps = np.empty(WIDE), np.empty(WIDE)
    slack, linear = np.empty(WIDE), np.empty(WIDE)
    for start in range(0, labels.shape[0], WIDE):
        count = min(WIDE, labels.shape[0] - start)
        for room in (own, steps, slack, linear):
            room[:] = 0.0
        for i in range(n):
            some = False
            for c in range(count):
                k = labels[start + c]
                mass = alpha[k, i]
                steps[c] = float(sign[k, i]) * mass
                linear[c] += mass * offset[k, i]
                some = some or mass > 0.0
            if some:
                rows_add(indices, values, indptr[i], indptr[i + 1], steps, own, WIDE)
        for c in range(count):
            k = labels[start + c]
            primals[k] = duals[k] = 0.0
            for f in range(d):
                u[k, f] = own[f * WIDE + c]
                average = u[k, f] + lead[k, f]
                own[f * WIDE + c] = average
                primals[k] += average * average
                duals[k] -= u[k, f] * u[k, f]
        for i in range(n):
            if cap[i] > 0.0:
                rows_dot(indices, values, indptr[i], indptr[i + 1], own, WIDE, sums, 0)
                for c in range(count):
                    k = labels[start + c]
                    hinge = offset[k, i] - 2.0 * float(sign[k, i]) * sums[c]
                    slack[c] += cap[i] * max(hinge, 0.0)
                    shrunk[k, i] = (alpha[k, i] == 0.0 and hinge < bounds[k, 1]) or (
                        alpha[k, i] == cap[i] and hinge > bounds[k, 0]
                    )
        for c in range(count):
            k = labels[start + c]
            primals[k] += slack[c]
            duals[k] += linear[c]


class OneLabel:
    """What Newton steps ask of a solver, for one label: ``w = √2·u`` and the planes ``√2·s·x``."""

    certifies = True

    def __init__(self, whole: ByLabel, k: int) -> None:
        self.whole, self.k = whole, k
        self.form = whole.form._replace(summed=1)
        self.sign = ROOT_2 * whole.sign[k]
        self.w = ROOT_2 * whole.u[k]

    def multipliers(self) -> Multipliers:
        mass = self.whole.alpha[self.k]
        return Multipliers(
            mass, self.whole.offset[self.k], mass, np.ones(len(mass), dtype=np.int64)
        )

    def by_block(self, form: Formulation) -> Formulation:
        return form

    def planes_in_use(self) -> tuple[Array, Array]:
        return np.arange(len(self.sign)), np.ones(len(self.sign), dtype=np.int64)

    def products(self, support: Array, vector: Array) -> Array:
        return np.asarray(self.sign * (self.whole.rows @ vector))

    def combine(self, support: Array, steps: Array, out: Array) -> None:
        out += self.whole.rows.T @ (self.sign * steps)

    def curvature(self, support: Array, parts: Any) -> tuple[Array, None]:
        rows = self.whole.rows[parts.free]
        if isinstance(rows, np.ndarray):
            return 2.0 * (rows.T * parts.sigma[parts.free]) @ rows, None
        return (rows.T.multiply(2.0 * parts.sigma[parts.free]).tocsr() @ rows).toarray(), None

    def dual(self) -> float:
        return float(self.whole.duals[self.k])

    def best(self) -> tuple[Array, float]:
        return ROOT_2 * self.whole.best_u[self.k], float(self.whole.primals[self.k])

    def keep(self, weights: Array, primal: float) -> None:
        if primal < self.whole.primals[self.k]:
            self.whole.best_u[self.k] = weights / ROOT_2
            self.whole.primals[self.k] = primal


class ByLabel(CertifiedSolver):
    """Each label by itself; see the head of this module. Linear slack and a finite C only."""

    name = "by-label"
    certifies = True
    polishes = True
    saved_numbers = ("clock", "oracle_calls", "satisfied")
    saved_arrays = (
        *("alpha", "u", "best_u", "primals", "duals"),
        *("shrunk", "bounds", "crawls", "pace", "width"),
    )

    def _begin(self, start: Array | None) -> None:
        self.exact = self.bounded = True  # whatever inference was asked for: nothing is decoded
        problem = self.compiled.problem
        n, m = self.compiled.n, len(problem.column_start)
        truth = problem.labels.reshape(n, m)
        self.sign = np.ascontiguousarray((2 * truth - 1).T, dtype=np.int8)
        weights = problem.node_weight.reshape(n, m)
        self.offset = np.ascontiguousarray((weights * problem.cost[truth, 1 - truth]).T)
        self.alpha = np.zeros((m, n)) if start is None else start
        self.u, self.lead, self.best_u = np.zeros((3, m, problem.n_features))
        self.shrunk = np.zeros((m, n), dtype=np.bool_)
        self.bounds = np.tile([math.inf, -math.inf], (m, 1))
        known = (self.sign, self.offset, self.alpha, self.u, self.lead, self.shrunk, self.bounds)
        self.known = Tables(*known)
        self.primals, self.duals = np.full(m, math.inf), np.full(m, -math.inf)
        self.crawls = np.zeros(m, dtype=np.bool_)
        self.pace = np.full(m, math.nan)  # how fast sweeps shrink the gap, as a logarithm
        self.width = np.ones(m)  # of Newton steps, see there
        size = max(len(problem.values), 1)
        # Of some fifteen Newton steps, in sweeps; linear algebra is eight times faster than loops.
        pairs = min(problem.n_features**2 / 8, 4 * (size / n) ** 2)
        newton = n / 4 * pairs + problem.n_features**3 / 24 + 4 * size
        self.price = 15.0 * newton / (PASSES * size)
        self._certify(np.arange(m))
        if start is None:  # how many steps fill an average multiplier
            reach = float((self.form.cap * problem.row_sqnorm)[self.active].mean())
            count = int(math.log(max(reach, 1.0), STAGE_FACTOR))
            self.stages = [STAGE_FACTOR**-k for k in range(count, 0, -1)]

    @functools.cached_property
    def rows(self) -> Any:
        """The examples as a matrix, for Newton steps."""
        matrix = rows_of(self.compiled.problem)
        return matrix.toarray() if 3 * matrix.nnz > math.prod(matrix.shape) else matrix

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Array | None:
        """The multipliers, scaled with the bounds of their examples."""
        old = before.multipliers
        if not isinstance(old, np.ndarray):
            return None
        scale = form.cap / np.where(before.form.cap > 0.0, before.form.cap, 1.0)
        return np.minimum(old * scale, form.cap)

    def sweep(self) -> float:
        """Passes over the labels that hold most of the gap, then a look at all their examples."""
        self.clock += 1
        if self.stages:
            self._sweep_stage(self.stages.pop(0))
            return math.inf
        gaps = self.primals - self.duals
        labels = np.flatnonzero(gaps >= SKIP * gaps.mean())
        for k in labels[self.crawls[labels]]:
            self._take_newton_steps(k)
        swept = labels[~self.crawls[labels]]
        self._descend(swept, self.form.cap)
        self._certify(labels)
        now = self.primals - self.duals
        if self.compiled.problem.n_features <= NEWTON_FEATURES:
            # Sweeps are worth it where they shrink the gap a hundredfold at the price of Newton's.
            with np.errstate(divide="ignore", invalid="ignore"):  # gaps of zero, or of rounding
                fresh, old = np.log(gaps[swept] / now[swept]), self.pace[swept]
            self.pace[swept] = np.where(np.isnan(old), fresh, 0.5 * (old + fresh))
            self.crawls[swept] = self.pace[swept] * self.price < math.log(100.0)
        return float(now.sum())

    def _sweep_stage(self, factor: float) -> None:
        """Passes over all labels at a smaller C; the multipliers are scaled up for the next."""
        self._descend(np.arange(len(self.u)), factor * self.form.cap)
        self.alpha *= STAGE_FACTOR
        self.u *= STAGE_FACTOR
        self.shrunk[:] = False
        self.bounds[:] = math.inf, -math.inf

    def _descend(self, labels: Array, cap: Array) -> None:
        draws = self.rng.random((PASSES, len(self.active)))
        problem = self.compiled.problem
        # Of all labels together a visit costs that of one or two: worth it as long as many move.
        alone = len(labels) - self.shrunk[labels].mean(axis=1).sum()
        kernel = descend_together if alone > TOGETHER * -(-len(labels) // WIDE) else descend
        self.workers.over(labels, kernel, problem, cap, PART, self.active, draws, self.known)

    def _take_newton_steps(self, k: int) -> None:
        from hingeline.solvers import newton  # few fits want it

        label = cast(Any, OneLabel(self, k))
        rose, fell, self.width[k] = newton.move_to_proximal_point(label, self.width[k])
        self.crawls[k] = rose or fell

    def _certify(self, labels: Array) -> None:
        """True primals and duals of these labels; the best of both are kept."""
        primals, duals = np.full((2, len(self.u)), math.nan)
        given = (self.compiled.problem, self.form.cap, PART, self.known)
        self.workers.over(labels, look, *given, primals, duals)
        better = primals < self.primals
        self.best_u[better] = self.u[better] + self.lead[better]
        self.lead[labels] = 0.0
        self.primals[better] = primals[better]
        self.duals = np.fmax(self.duals, duals)
        self.oracle_calls += self.compiled.n

    def _flat(self, u: Array) -> Array:
        """Weights as the structure lays them out: u for a label's presence, −u for its absence."""
        problem = self.compiled.problem
        weights = aligned_zeros(self.compiled.n_weights)
        table = weights[: problem.n_features * problem.n_columns].reshape(problem.n_features, -1)
        table[:, problem.column_start + 1] = u.T
        table[:, problem.column_start] = -u.T
        return weights

    def best(self) -> tuple[Array, float]:
        return self._flat(self.best_u), float(self.primals.sum())

    def candidate(self) -> Array:
        return self._flat(self.best_u)

    def primal_of(self, weights: Array) -> float:
        problem = self.compiled.problem
        table = weights[: problem.n_features * problem.n_columns].reshape(problem.n_features, -1)
        lead = table[:, problem.column_start + 1] - table[:, problem.column_start]
        hinges = self.offset - self.sign * np.asarray(self.rows @ lead).T
        slack = np.maximum(hinges, 0.0).sum(axis=0)
        return 0.5 * float(weights @ weights) + float(slack @ self.form.cap)

    def certify(self) -> float:
        return float(self.primals.sum())  # every sweep certifies

    def dual(self) -> float:
        return float(self.duals.sum())

    @property
    def n_planes(self) -> int:
        return int(np.count_nonzero(self.alpha))

    def memory(self) -> Array:
        return self.alpha

    def repair(self) -> None:
        self._certify(np.arange(len(self.u)))
