"""Exact labels under constraints: one mixed-integer program per sequence, solved by HiGHS.

Variables: ``y[t, k]`` (binary), ``z[t, j, k]`` for the pair of labels at t and t + 1, whose
marginals are y. Numbers of tokens and of segments of a group are sums of these. A cost that is
convex in such a number is the largest of its tangents at the integers, so it needs one more
variable; hard constraints become bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from hingeline.constraints.base import HARD
from hingeline.constraints.compiled import Array, CompiledConstraints

#: Costs above this come from a hard constraint.
_FORBIDDEN = HARD / 2

Terms = dict[int, float]


class _Program:
    """Variables and rows of one program, collected one by one."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[Terms, float, float]] = []

    def variable(self, cost: float, upper: float = 1.0, integral: bool = False) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.integral.append(int(integral))
        return len(self.cost) - 1

    def row(self, terms: Terms, low: float = -np.inf, high: float = np.inf) -> None:
        """``low ≤ Σ coefficient · variable ≤ high``."""
        self.rows.append((terms, low, high))

    def convex(self, terms: Terms, costs: Array, most: int) -> None:
        """The cost ``costs[n]`` of the integer n = Σ terms, which is at most ``most``."""
        fine = np.flatnonzero(costs[: most + 1] < _FORBIDDEN)
        if not len(fine):
            raise _ImpossibleError
        if fine[0] > 0 or fine[-1] < most:
            self.row(terms, int(fine[0]), int(fine[-1]))
        if not np.any(costs[fine]):
            return
        value = self.variable(1.0, np.inf)
        first = {value: 1.0}
        if len(fine) == 1:
            self.row(first, float(costs[fine[0]]))
            return
        slopes = set()
        for n in fine[:-1]:
            slope = float(costs[n + 1] - costs[n])
            start = float(costs[n]) - slope * n  # value ≥ start + slope · n
            if (slope, start) not in slopes:
                slopes.add((slope, start))
                row = first | {v: -slope * c for v, c in terms.items()}
                self.row(row, start)

    def solve(self) -> Array:
        row = [r for r, (terms, _, _) in enumerate(self.rows) for _ in terms]
        column = [v for terms, _, _ in self.rows for v in terms]
        entries = [c for terms, _, _ in self.rows for c in terms.values()]
        matrix = coo_array((entries, (row, column)), shape=(len(self.rows), len(self.cost)))
        low = [low for _, low, _ in self.rows]
        high = [high for _, _, high in self.rows]
        result = milp(
            np.array(self.cost),
            integrality=np.array(self.integral),
            bounds=Bounds(0.0, np.array(self.upper)),
            constraints=LinearConstraint(matrix.tocsc(), low, high) if self.rows else None,
            options={"mip_rel_gap": 0.0},
        )
        if result.status == 2:
            raise _ImpossibleError
        if result.x is None or result.status != 0:
            raise RuntimeError(f"HiGHS gave up: {result.message}")
        return np.asarray(result.x)


class _ImpossibleError(Exception):
    """No labels keep the hard constraints."""


def exact_search(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array
) -> None:
    """Labels of the highest score minus penalty, sequence by sequence, into ``labels``."""
    for i in range(len(compiled.offsets) - 1):
        lo, hi = compiled.offsets[i : i + 2]
        if lo == hi:
            continue
        try:
            labels[lo:hi] = _solve_one(compiled, scores, transitions, int(lo), int(hi))
        except _ImpossibleError:
            raise ValueError(
                f"sequence {i}: no labels keep all hard constraints; make some of them soft "
                "(hard=False), or use method='beam', which breaks as few as it can."
            ) from None


def _solve_one(c: CompiledConstraints, scores: Array, transitions: Array, lo: int, hi: int) -> Any:
    T, K = hi - lo, scores.shape[1]
    p = _Program()
    y = np.empty((T, K), dtype=np.int64)
    for t in range(T):
        for k in range(K):
            cost = c.unary[lo + t, k] - scores[lo + t, k]
            closed = cost >= _FORBIDDEN
            y[t, k] = p.variable(0.0 if closed else cost, 0.0 if closed else 1.0, integral=True)
        p.row(dict.fromkeys(y[t].tolist(), 1.0), 1.0, 1.0)
    z = np.empty((max(T - 1, 0), K, K), dtype=np.int64)
    for t in range(T - 1):
        for j in range(K):
            for k in range(K):
                cost = c.pair[j, k] - transitions[j, k] + (c.change[lo + t + 1] if j != k else 0.0)
                closed = cost >= _FORBIDDEN
                z[t, j, k] = p.variable(0.0 if closed else cost, 0.0 if closed else 1.0)
        for k in range(K):
            out = {int(v): 1.0 for v in z[t, k]}
            p.row(out | {int(y[t, k]): -1.0}, 0.0, 0.0)
            into = {int(v): 1.0 for v in z[t, :, k]}
            p.row(into | {int(y[t + 1, k]): -1.0}, 0.0, 0.0)
    segments = [_segment_terms(c.member[g], y, z) for g in range(len(c.member))]
    for g in range(len(c.member)):
        inside = y[:, c.member[g]]
        if np.any(c.token_cost[g]):
            p.convex({int(v): 1.0 for v in inside.ravel()}, c.token_cost[g], T)
        if np.any(c.segment_cost[g]):
            p.convex(segments[g], c.segment_cost[g], (T + 1) // 2)
        if np.any(c.length_cost[g]):
            _add_lengths(p, c.length_cost[g], c.member[g], y, z)
    for r in range(len(c.repeat_cost)):
        repeated = {}
        groups = np.flatnonzero(c.repeat_member[r]).tolist()
        for g in groups:
            flag = p.variable(0.0, integral=True)
            repeated[flag] = 1.0  # segments ≤ 1 + T · flag
            p.row(segments[g] | {flag: -float(T)}, high=1.0)
        p.convex(repeated, c.repeat_cost[r], len(groups))
    for (first, second), cost in zip(c.order, c.order_cost, strict=True):
        _add_order(p, y[:, c.member[first]], y[:, c.member[second]], float(cost))
    x = p.solve()
    return np.argmax(x[y], axis=1)


def _segment_terms(inside: Array, y: Array, z: Array) -> Terms:
    """The number of segments of a group: it begins at the start, or after another label."""
    terms = {int(v): 1.0 for v in y[0, inside]}
    for t in range(len(z)):
        terms.update({int(v): 1.0 for v in z[t][np.ix_(~inside, inside)].ravel()})
    return terms


def _add_lengths(p: _Program, costs: Array, inside: Array, y: Array, z: Array) -> None:
    """A flag for each place and length of a short segment."""
    T = len(y)
    for begin in range(T):
        start = y[0, inside] if begin == 0 else z[begin - 1][np.ix_(~inside, inside)].ravel()
        for length in range(1, len(costs)):
            end = begin + length
            if end > T or costs[length] == 0:
                continue
            hard = costs[length] >= _FORBIDDEN
            flag = p.variable(0.0 if hard else float(costs[length]), 0.0 if hard else 1.0)
            # flag ≥ start + (all inside) + (outside at the end) − what these sum to otherwise
            terms = {flag: 1.0} | {int(v): -1.0 for v in start}
            for t in range(begin + 1, end):
                terms |= {int(v): -1.0 for v in y[t, inside]}
            low = 1.0 - length
            if end < T:
                terms |= {int(v): -1.0 for v in y[end, ~inside]}
                low -= 1.0
            p.row(terms, low=low)


def _add_order(p: _Program, first: Array, second: Array, cost: float) -> None:
    """A flag that is up where a token of ``first`` follows one of ``second``."""
    hard = cost >= _FORBIDDEN
    broken = p.variable(0.0 if hard else cost, 0.0 if hard else 1.0)
    seen = -1
    for t in range(len(first)):
        if t > 0:  # seen: a token of ``second`` stood before t
            here = p.variable(0.0)
            for v in second[t - 1]:
                p.row({here: 1.0, int(v): -1.0}, low=0.0)
            if seen >= 0:
                p.row({here: 1.0, seen: -1.0}, low=0.0)
            seen = here
            for v in first[t]:
                p.row({broken: 1.0, seen: -1.0, int(v): -1.0}, low=-1.0)
