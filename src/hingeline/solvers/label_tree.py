"""Sets of labels whose pairs form a tree: multipliers of labels and pairs instead of outputs.

The dual depends on the multipliers ``α_i(y)`` of an example only through the mass of each label
being wrong and of each pair being wrong together, and on a tree all such masses belong to some α if
every pair's do::

    a_k ∈ [0, cap],     max(0, a_k + a_p − cap) ≤ q_k ≤ min(a_k, a_p),     p the parent of k

So an example has two numbers for every label, and no planes. It is visited by steps from one output
to another, ``y⁻`` to ``y⁺``: ``y⁺`` is the most violated one, ``y⁻`` the least violated one made of
pairs that have mass; both are found by a pass over the tree. Where the two differ in several
places that touch nowhere, each has a step of its own, since labels and pairs have weights of their
own: without pairs this is the coordinate descent of :mod:`.by_label`, for all labels at once. Only
the first of these passes reads features: after a step the scores of a label change by ``2‖x‖²`` of
it. The first masses are those of labels solved without pairs (:mod:`.by_label`), which copes with
features of any scale; their weights are a first primal. (D. Garber, O. Meshi, *Linear-memory and
decomposition-invariant linearly convergent conditional gradient algorithm for structured
polytopes*, 2016, without the splitting.)
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from hingeline._checks import Array
from hingeline._jit import by_reference, helper, kernel
from hingeline._simd import aligned_zeros, rows_add, rows_dot
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import PART, Compiled
from hingeline.core.results import DualMemory
from hingeline.core.solver import CertifiedSolver
from hingeline.solvers.by_label import ByLabel

PASSES, FIRST = 5, 20  # Visits to every example in a sweep, after so many sweeps with one.
APART_SWEEPS, APART_GAP = 10, 0.02  # How long labels are solved without pairs to begin with.
NO_MASS = 1e-12  # A share of the bound below which a mass is rounding.


@by_reference
class Tree(NamedTuple):
    """The labels, parents before their children; examples have rows."""

    parent: Array  # (labels,) int64; −1: none
    column: Array  # (labels,) int64: of the weights of its absence
    table: Array  # (labels,) int64: where the weights of the pair with its parent begin
    stride: Array  # (labels,) int64: 2 if it is the first of the pair, else 1
    gold: Array  # (n, labels) int8
    loss: Array  # (n, labels)
    single: Array  # (n, labels): mass of a label being wrong
    double: Array  # (n, labels): of a label and its parent being wrong


@helper
def place(tree: Tree, gold: Array, k: int, own: int, other: int) -> int:
    """The weight of a pair whose label, and whose parent, are wrong or not."""
    stride = tree.stride[k]
    return tree.table[k] + stride * (gold[k] ^ own) + (3 - stride) * (gold[tree.parent[k]] ^ other)


@helper
def mass_of(tree: Tree, i: int, k: int, own: int, other: int, cap: float) -> float:
    """The mass of a pair."""
    both = tree.double[i, k]
    if own == 1:
        return both if other == 1 else tree.single[i, k] - both
    first = tree.single[i, tree.parent[k]]
    return first - both if other == 1 else cap - (tree.single[i, k] + first - both)


@helper
def decode(
    tree: Tree, i: int, gain: Array, w: Array, cap: float, values: Array, choice: Array, z: Array
) -> float:
    """What to take wrong for the largest score and loss above the truth's, which it returns.

    With a ``cap`` for the least, of what has mass.
    """
    gold, m = tree.gold[i], z.shape[0]
    sign = 1.0 if cap == 0.0 else -1.0
    total = 0.0
    for k in range(m):
        values[k, 0], values[k, 1] = 0.0, sign * gain[k]
    for k in range(m - 1, -1, -1):
        p = tree.parent[k]
        if p < 0:
            on = values[k, 1] > values[k, 0]
            if cap > 0.0:
                on = tree.single[i, k] > NO_MASS * cap and (
                    on or cap - tree.single[i, k] <= NO_MASS * cap
                )
            choice[k, 0] = on
            total += values[k, int(on)]
            continue
        truth = w[place(tree, gold, k, 0, 0)]
        for other in range(2):
            best = -np.inf
            for own in range(2):
                if cap > 0.0 and mass_of(tree, i, k, own, other, cap) <= NO_MASS * cap:
                    continue
                value = values[k, own] + sign * (w[place(tree, gold, k, own, other)] - truth)
                if value > best:
                    best, choice[k, other] = value, own
            values[p, other] += best
    for k in range(m):
        z[k] = choice[k, 0 if tree.parent[k] < 0 else z[tree.parent[k]]]
    return total


@kernel
def visit(
    problem: Any, tree: Tree, cap: Array, order: Array, w: Array, hinges: Array, move: bool
) -> None:
    """Note the largest hinge of every example in turn and, where wanted, move its masses."""
    m = tree.parent.shape[0]
    gain = np.empty(m)
    values, choice = np.empty((m, 2)), np.empty((m, 2), dtype=np.int64)
    better, worse, part = np.empty((3, m), dtype=np.int64)
    slope, curve, room = np.empty((3, m))
    sums = np.zeros(problem.n_columns)
    for i in order:
        gold, single, double = tree.gold[i], tree.single[i], tree.double[i]
        bound = cap[i]
        lo, hi = problem.indptr[i], problem.indptr[i + 1]
        rows_dot(problem.indices, problem.values, lo, hi, w, problem.n_columns, sums, 0)
        for k in range(m):
            at = tree.column[k]
            gain[k] = tree.loss[i, k] + sums[at + 1 - gold[k]] - sums[at + gold[k]]
        hinges[i] = decode(tree, i, gain, w, 0.0, values, choice, better)
        if not move:
            continue
        decode(tree, i, gain, w, bound, values, choice, worse)
        for k in range(m):
            p = tree.parent[k]
            above = part[p] if p >= 0 else -1
            part[k] = -1
            turn = better[k] - worse[k]
            if turn != 0:
                c = above if above >= 0 else k
                part[k] = c
                if c == k:
                    slope[k] = curve[k] = 0.0
                    room[k] = bound
                slope[c] += turn * gain[k]
                curve[c] += 2.0 * problem.row_sqnorm[i]
                room[c] = min(room[c], single[k] if turn < 0 else bound - single[k])
            c = max(part[k], above)
            if p >= 0 and c >= 0:
                slope[c] += w[place(tree, gold, k, better[k], better[p])]
                slope[c] -= w[place(tree, gold, k, worse[k], worse[p])]
                curve[c] += 2.0
                room[c] = min(room[c], mass_of(tree, i, k, worse[k], worse[p], bound))
        for k in range(m):
            p, at = tree.parent[k], tree.column[k]
            sums[at] = sums[at + 1] = 0.0
            c = max(part[k], part[p] if p >= 0 else -1)
            step = min(slope[c] / max(curve[c], 1e-300), room[c]) if c >= 0 else 0.0
            if step <= 0.0:
                continue
            change = step * (better[k] - worse[k])
            single[k] = min(max(single[k] + change, 0.0), bound)
            sums[at + gold[k]], sums[at + 1 - gold[k]] = change, -change
            if p >= 0:
                both = double[k] + step * (better[k] * better[p] - worse[k] * worse[p])
                both = max(both, single[k] + single[p] - bound, 0.0)
                double[k] = min(both, single[k], single[p])
                w[place(tree, gold, k, better[k], better[p])] -= step
                w[place(tree, gold, k, worse[k], worse[p])] += step
        rows_add(problem.indices, problem.values, lo, hi, sums, w, problem.n_columns)


@kernel
def add_masses(problem: Any, tree: Tree, cap: Array, w: Array) -> None:
    """``w += Σ α·Δf``."""
    sums = np.zeros(problem.n_columns)
    for i in range(cap.shape[0]):
        gold = tree.gold[i]
        for k in range(gold.shape[0]):
            sums[tree.column[k] + gold[k]] = tree.single[i, k]
            sums[tree.column[k] + 1 - gold[k]] = -tree.single[i, k]
            if tree.parent[k] >= 0:
                for pair in range(1, 4):
                    own, other = pair & 1, pair >> 1
                    mass = mass_of(tree, i, k, own, other, cap[i])
                    w[place(tree, gold, k, 0, 0)] += mass
                    w[place(tree, gold, k, own, other)] -= mass
        lo, hi = problem.indptr[i], problem.indptr[i + 1]
        rows_add(problem.indices, problem.values, lo, hi, sums, w, problem.n_columns)


def order_labels(pairs: Array, m: int) -> tuple[Array, Array]:
    """Labels, parents before their children, and the parent of each label or −1."""
    links = csr_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(m, m))
    parent, order = np.full(m, -1), np.empty(0, dtype=np.int64)
    for root in range(m):
        if root not in order:
            found, before = breadth_first_order(links, root, directed=False)
            parent[found[1:]] = before[found[1:]]
            order = np.append(order, found)
    return order, parent


class LabelTree(CertifiedSolver):
    """See the head of this module. Linear slack and a finite C only."""

    name = "label-tree"
    polishes = True
    saved_arrays = (*CertifiedSolver.saved_arrays, "single", "double", "average")

    def _begin(self, start: Array | None) -> None:
        problem = self.compiled.problem
        n, m = self.compiled.n, len(problem.column_start)
        pairs = problem.graphs.scope.reshape(-1, 2)
        order, parent = order_labels(pairs, m)
        table, stride = np.full((2, m), -1)
        first = parent[pairs[:, 0]] == pairs[:, 1]
        child = np.where(first, pairs[:, 0], pairs[:, 1])
        table[child], stride[child] = problem.factor_table, 1 + first
        gold = problem.labels.reshape(n, m)[:, order].astype(np.int8)
        loss = problem.node_weight.reshape(n, m)[:, order] * problem.cost[gold, 1 - gold]
        self.masses: Array = self._solve_apart(order, parent) if start is None else start
        self.single, self.double = self.masses[0], self.masses[1]
        self.tree = Tree(
            *(np.where(parent >= 0, np.argsort(order)[parent], -1)[order],),
            *(problem.column_start[order], table[order], stride[order]),
            *(gold, loss, self.single, self.double),
        )
        self.average = np.zeros_like(self.w)
        self.repair()

    def _solve_apart(self, order: Array, parent: Array) -> Array:
        """Masses of the labels solved without pairs, roughly; their weights are the first best.

        A pair's mass is what its labels have if they are wrong independently of each other.
        """
        apart = ByLabel(self.compiled, self.form, self.workers, int(self.rng.integers(2**31)))
        for _ in range(len(apart.stages) + APART_SWEEPS):
            if apart.certify() - apart.dual() <= APART_GAP * apart.certify():
                break
            apart.sweep()
        self._best, self._best_primal = apart.best()
        cap, single = self.form.cap[:, None], apart.alpha.T
        above = np.where(parent >= 0, single[:, parent], 0.0)
        double = single * (above / np.maximum(cap, 1e-300))
        double = np.clip(double, np.maximum(single + above - cap, 0.0), np.minimum(single, above))
        return np.ascontiguousarray(np.stack([single, double])[:, :, order])

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Array | None:
        """The masses, scaled with the bounds of their examples."""
        old = before.multipliers
        if not isinstance(old, np.ndarray):
            return None
        scale = form.cap / np.where(before.form.cap > 0.0, before.form.cap, 1.0)
        return np.minimum(old * scale[:, None], form.cap[:, None])

    def sweep(self) -> float:
        """Visits to every example; the average covers the later half of the run."""
        self.clock += 1
        if self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0:
            self.visits = 0.0
        given = (self.compiled.problem, self.tree, self.form.cap)
        for _ in range(1 if self.clock <= FIRST else PASSES):
            order = self.rng.permutation(self.active)
            visit(*given, order, self.w, self.violation, True)
            self.oracle_calls += len(order)
            self.visits += 1.0
            self.average += 2.0 / (self.visits + 1.0) * (self.w - self.average)
        return float(self.violation @ self.form.cap + 0.5 * (self.w @ self.w)) - self.dual()

    def _find_violations(self) -> None:
        given = (self.compiled.problem, self.tree, self.form.cap)
        self.workers.over(self.active, visit, *given, PART, self.w, self.violation, False)

    @contextlib.contextmanager
    def _average_in_place(self) -> Iterator[None]:
        self.w, self.average = self.average, self.w
        yield
        self.w, self.average = self.average, self.w

    def candidate(self) -> Array:
        return self.average.copy()

    def linear(self) -> float:
        return float((self.single * self.tree.loss).sum())

    def memory(self) -> Array:
        return self.masses

    def repair(self) -> None:
        self.w = aligned_zeros(self.compiled.n_weights)
        add_masses(self.compiled.problem, self.tree, self.form.cap, self.w)
        self.visits = 0.0
