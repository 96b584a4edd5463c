"""Prediction under constraints: the labels of the highest score minus penalty.

Every method maximises ``Σ_t scores[t, y_t] + Σ_t transitions[y_{t−1}, y_t] − penalty(y)`` over the
labels of one sequence at a time; the penalty is that of the instance constraints.

*Beam search* and *switching* (hill climbing) are kernels. The *exact* method is one mixed-integer
program per sequence, solved by HiGHS, with variables ``y[t, k]`` (binary) and ``z[t, j, k]`` for
the pair of labels at t and t + 1, whose marginals are y. Numbers of tokens and of segments of a
group are sums of these. A cost that is convex in such a number is the largest of its tangents at
the integers, so it needs one more variable; hard constraints become bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from hingeline._checks import one_of, positive
from hingeline._jit import helper, kernel
from hingeline.constraints.base import HARD, Constraint, InstanceConstraint
from hingeline.constraints.penalties import Penalties, SwitchEvaluator, as_constraints
from hingeline.constraints.switches import (
    Array,
    CompiledConstraints,
    State,
    commit_switch,
    switch_costs,
)

METHODS = ("beam", "switching", "exact")

#: Sweeps of hill climbing, at most.
SWEEPS = 100
#: A switch must gain more than this, which rounding could explain.
LEAST_GAIN = 1e-9
#: Costs above this come from a hard constraint.
FORBIDDEN_COST = HARD / 2

Floors = tuple[Array, Array]


# Beam search and switching ---------------------------------------------------------------------


@kernel
def search_by_switching(
    compiled: CompiledConstraints, state: State, scores: Array, transitions: Array, labels: Array
) -> None:
    """Hill climbing from ``labels``: the best switch of each position, then of each segment.

    Relabelling a whole segment leaves optima in which every single switch breaks a constraint.
    """
    costs = np.empty(transitions.shape[0])
    for i in range(compiled.offsets.shape[0] - 1):
        lo = compiled.offsets[i]
        length = compiled.offsets[i + 1] - lo
        for _ in range(SWEEPS):
            changed = False
            for t in range(length):
                changed |= _relabel(
                    compiled, state, scores, transitions, labels, i, t, t + 1, costs
                )
            begin = 0
            while begin < length:
                end = begin + 1
                while end < length and labels[lo + end] == labels[lo + begin]:
                    end += 1
                if end > begin + 1:
                    changed |= _relabel(
                        compiled, state, scores, transitions, labels, i, begin, end, costs
                    )
                begin = end
            if not changed:
                break


@helper
def _relabel(
    compiled: CompiledConstraints,
    state: State,
    scores: Array,
    transitions: Array,
    labels: Array,
    i: int,
    begin: int,
    end: int,
    costs: Array,
) -> bool:
    """Give positions ``begin`` to ``end − 1``, of one label, the label that gains most, if any."""
    lo = compiled.offsets[i]
    a = labels[lo + begin]
    if end == begin + 1:
        switch_costs(compiled, state, labels, i, begin, costs)
    else:
        before = state.penalty[0]
        for k in range(costs.shape[0]):
            for t in range(begin, end):
                commit_switch(compiled, state, labels, i, t, k)
            costs[k] = state.penalty[0] - before
            for t in range(begin, end):
                commit_switch(compiled, state, labels, i, t, a)
            state.penalty[0] = before  # not its rounding
    best = a
    top = LEAST_GAIN
    for k in range(costs.shape[0]):
        gain = 0.0
        for t in range(lo + begin, lo + end):
            gain += scores[t, k] - scores[t, a]
        gain += (end - begin - 1) * (transitions[k, k] - transitions[a, a])
        if begin > 0:
            left = labels[lo + begin - 1]
            gain += transitions[left, k] - transitions[left, a]
        if lo + end < compiled.offsets[i + 1]:
            right = labels[lo + end]
            gain += transitions[k, right] - transitions[a, right]
        if k != a and gain - costs[k] > top:
            top = gain - costs[k]
            best = k
    if best != a:
        for t in range(begin, end):
            commit_switch(compiled, state, labels, i, t, best)
    return best != a


def search_by_beam(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array, widest: int
) -> Array:
    """The best labels among at most ``widest`` hypotheses kept at each position.

    A hypothesis is ranked by a bound on what any continuation of it is worth: its score, minus
    what its counts cost at least whatever follows, plus the best rest of the chain under the
    constraints that decompose over it. Of hypotheses with equal futures (same label, same counts
    that matter) only the best is kept. If no hypothesis that was dropped has a bound above the
    labels found, these are optimal; if not, the search is repeated four times as wide.
    Returns the difference of each sequence, 0 where its labels are proven best.
    """
    by_tokens, by_segments = compiled.token_cost, compiled.segment_cost
    # Counts only grow along a sequence: the least that a count can still cost.
    floors: Any = tuple(
        np.ascontiguousarray(np.minimum.accumulate(costs[:, ::-1], axis=1)[:, ::-1])
        for costs in (by_tokens, by_segments)
    )
    segments_matter = by_segments.any(1) | compiled.repeat_member.any(0)
    others = np.ones(len(by_tokens) + 2 * len(compiled.order), dtype=bool)  # runs and orders
    matters = np.concatenate([by_tokens.any(1), segments_matter, others])
    search = partial(_run_beam, compiled, floors, matters, scores, transitions, labels)
    gaps = np.zeros(len(compiled.offsets) - 1)
    for i in np.flatnonzero(np.diff(compiled.offsets)).tolist():
        width = min(8, widest)
        gaps[i] = search(i, width)
        while gaps[i] > 0.0 and width < widest:
            width = min(4 * width, widest)
            gaps[i] = search(i, width)
    return gaps


@kernel
def _run_beam(
    compiled: CompiledConstraints,
    floors: Floors,
    matters: Array,
    scores: Array,
    transitions: Array,
    labels: Array,
    i: int,
    width: int,
) -> float:
    """One beam over one sequence; returns how far its labels may be from the best."""
    K = transitions.shape[0]
    G = compiled.member.shape[0]
    cap = compiled.length_cost.shape[1] - 1
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
    # The best value of what follows each label at each position, as on a chain.
    rest = np.zeros((length, K))
    for t in range(length - 2, -1, -1):
        after = lo + t + 1
        for j in range(K):
            top = -np.inf
            for k in range(K):
                s = transitions[j, k] - compiled.pair[j, k] + scores[after, k]
                s += rest[t + 1, k] - compiled.unary[after, k]
                if j != k:
                    s -= compiled.change[after]
                top = max(top, s)
            rest[t, j] = top
    # Counts of a hypothesis: tokens, segments and run of each group; second group seen and order
    # broken of each pair.
    size = matters.shape[0]
    now = np.zeros((width, size), dtype=np.int32)
    new = np.zeros((width, size), dtype=np.int32)
    trial = np.zeros(size, dtype=np.int32)
    value = np.zeros(width)
    last = np.zeros(width, dtype=np.int32)
    new_value = np.zeros(width)
    worth = np.empty(width * K)
    bound = np.empty(width * K)
    back = np.zeros((length, width), dtype=np.int32)
    kept = np.zeros((length, width), dtype=np.int32)
    count = 1
    dropped = -np.inf
    for t in range(length):
        for b in range(count):
            for k in range(K):
                s = value[b] + scores[lo + t, k] - compiled.unary[lo + t, k]
                if t > 0:
                    j = last[b]
                    s += transitions[j, k] - compiled.pair[j, k]
                    if j != k:
                        s -= compiled.change[lo + t]
                s -= _extend(compiled, floors, now[b], k, trial)
                worth[b * K + k] = s
                bound[b * K + k] = -s - rest[t, k]
        ranking = np.argsort(bound[: count * K], kind="mergesort")
        found = 0
        for c in ranking:
            b = c // K
            k = c % K
            _extend(compiled, floors, now[b], k, trial)
            twin = False
            for d in range(found):
                twin = twin or (kept[t, d] == k and _are_same(new[d], trial, matters))
            if twin:
                continue
            if found == width:
                dropped = max(dropped, -bound[c])
                break
            new[found] = trial
            new_value[found] = worth[c]
            back[t, found] = b
            kept[t, found] = k
            found += 1
        now, new = new, now
        value[:found] = new_value[:found]
        last[:found] = kept[t, :found]
        count = found
    best = 0
    top = -np.inf
    for b in range(count):
        s = value[b]
        for g in range(G):
            n = now[b, g]
            m = now[b, G + g]
            s -= compiled.token_cost[g, n] - floors[0][g, n]
            s -= compiled.segment_cost[g, m] - floors[1][g, m]
            s -= compiled.length_cost[g, min(now[b, 2 * G + g], cap)]
        if s > top:
            top = s
            best = b
    for t in range(length - 1, -1, -1):
        labels[lo + t] = kept[t, best]
        best = back[t, best]
    gap = dropped - top
    return gap if gap > 1e-12 * (1.0 + abs(top)) else 0.0  # a tie may differ by rounding


@helper
def _extend(
    compiled: CompiledConstraints, floors: Floors, counts: Array, k: int, out: Array
) -> float:
    """Counts after one more token of label k in ``out``; returns what they cost more at least."""
    cap = compiled.length_cost.shape[1] - 1
    G = compiled.member.shape[0]
    P = compiled.order.shape[0]
    cost = 0.0
    for g in range(G):
        n = counts[g]
        m = counts[G + g]
        run = counts[2 * G + g]
        out[g] = n
        out[G + g] = m
        out[2 * G + g] = 0
        if compiled.member[g, k]:
            cost += floors[0][g, n + 1] - floors[0][g, n]
            out[g] = n + 1
            if run == 0:
                cost += floors[1][g, m + 1] - floors[1][g, m]
                out[G + g] = m + 1
            out[2 * G + g] = min(run + 1, max(cap, 1))
        elif run > 0:
            cost += compiled.length_cost[g, min(run, cap)]
    for r in range(compiled.repeat_cost.shape[0]):
        before = 0
        after = 0
        for g in range(G):
            if compiled.repeat_member[r, g]:
                before += 1 if counts[G + g] > 1 else 0
                after += 1 if out[G + g] > 1 else 0
        cost += compiled.repeat_cost[r, after] - compiled.repeat_cost[r, before]
    for p in range(P):
        seen = counts[3 * G + p]
        broken = counts[3 * G + P + p]
        if compiled.member[compiled.order[p, 0], k] and seen and not broken:
            broken = 1
            cost += compiled.order_cost[p]
        if compiled.member[compiled.order[p, 1], k]:
            seen = 1
        out[3 * G + p] = seen
        out[3 * G + P + p] = broken
    return cost


@helper
def _are_same(a: Array, b: Array, matters: Array) -> bool:
    s = 0
    while s < matters.shape[0] and (a[s] == b[s] or not matters[s]):
        s += 1
    return s == matters.shape[0]


# Mixed-integer programs ------------------------------------------------------------------------


class _Program:
    """Variables and rows of one program, collected one by one."""

    def __init__(self) -> None:
        self.n = 0
        self.variables: list[tuple[Array, Array, Array]] = []  # costs, upper bounds, integrality
        self.rows: list[tuple[Array, Array, float, float]] = []  # variables, coefficients, bounds

    def add_variables(self, cost: Any, upper: float = 1.0, integral: bool = False) -> Array:
        """Numbers from 0 to ``upper``; to 0 alone where they cost what a hard constraint does."""
        cost = np.asarray(cost, dtype=np.float64)
        closed = cost >= FORBIDDEN_COST
        costs, bounds = np.where(closed, 0.0, cost), np.where(closed, 0.0, upper)
        self.variables.append((costs.ravel(), bounds.ravel(), np.full(cost.size, integral)))
        self.n += cost.size
        return np.arange(self.n - cost.size, self.n).reshape(cost.shape)

    def add_row(self, low: float, high: float, *terms: tuple[Array, float]) -> None:
        """``low ≤ Σ coefficient · Σ variables ≤ high`` over pairs of variables and coefficient."""
        columns = np.concatenate([np.ravel(variables) for variables, _ in terms])
        entries = np.repeat([c for _, c in terms], [np.size(v) for v, _ in terms])
        self.rows.append((columns, entries, low, high))

    def add_convex(self, variables: Array, costs: Array, most: int) -> None:
        """The cost ``costs[n]`` of the integer n = Σ variables, which is at most ``most``."""
        fine = np.flatnonzero(costs[: most + 1] < FORBIDDEN_COST)
        if not len(fine):
            raise _ImpossibleError
        if fine[0] > 0 or fine[-1] < most:
            self.add_row(int(fine[0]), int(fine[-1]), (variables, 1.0))
        if not np.any(costs[fine]):
            return
        value = self.add_variables(1.0, np.inf)
        if len(fine) == 1:
            self.add_row(float(costs[fine[0]]), np.inf, (value, 1.0))
        slopes = np.diff(costs)[fine[:-1]]
        starts = costs[fine[:-1]] - slopes * fine[:-1]  # value ≥ start + slope · n
        for slope, start in dict.fromkeys(zip(slopes.tolist(), starts.tolist(), strict=True)):
            self.add_row(start, np.inf, (value, 1.0), (variables, -slope))

    def solve(self) -> Array:
        columns, entries, low, high = zip(*self.rows, strict=True)
        rows = np.repeat(np.arange(len(columns)), [len(part) for part in columns])
        places = rows, np.concatenate(columns)
        matrix = coo_array((np.concatenate(entries), places), shape=(len(columns), self.n))
        cost, upper, integral = map(np.concatenate, zip(*self.variables, strict=True))
        result = milp(
            cost,
            integrality=integral,
            bounds=Bounds(0.0, upper),
            constraints=LinearConstraint(matrix.tocsc(), low, high),
            options={"mip_rel_gap": 0.0},
        )
        if result.status == 2:
            raise _ImpossibleError
        if result.x is None or result.status != 0:
            raise RuntimeError(f"HiGHS gave up: {result.message}")
        return np.asarray(result.x)


class _ImpossibleError(Exception):
    """No labels keep the hard constraints."""


def search_exactly(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array
) -> None:
    """Labels of the highest score minus penalty, sequence by sequence, into ``labels``."""
    for i, (lo, hi) in enumerate(pairwise(compiled.offsets.tolist())):
        try:
            if hi > lo:
                labels[lo:hi] = _solve_one(compiled, scores, transitions, lo, hi)
        except _ImpossibleError:
            raise ValueError(
                f"sequence {i}: no labels keep all hard constraints; make some of them soft "
                "(hard=False), or use method='beam', which breaks as few as it can."
            ) from None


def _solve_one(c: CompiledConstraints, scores: Array, transitions: Array, lo: int, hi: int) -> Any:
    T, K = hi - lo, scores.shape[1]
    p = _Program()
    y = p.add_variables(c.unary[lo:hi] - scores[lo:hi], integral=True)
    for t in range(T):
        p.add_row(1.0, 1.0, (y[t], 1.0))
    changes = c.change[lo + 1 : hi, None, None] * (1.0 - np.eye(K))
    z = p.add_variables(c.pair - transitions + changes)
    for t in range(T - 1):
        for k in range(K):
            p.add_row(0.0, 0.0, (z[t, k], 1.0), (y[t, k], -1.0))
            p.add_row(0.0, 0.0, (z[t, :, k], 1.0), (y[t + 1, k], -1.0))
    segments = []
    for g, inside in enumerate(c.member):
        # A segment begins at the start, or after a label outside.
        starts = [y[0, inside], *(pairs[np.ix_(~inside, inside)].ravel() for pairs in z)]
        segments.append(np.concatenate(starts))
        if np.any(c.token_cost[g]):
            p.add_convex(y[:, inside], c.token_cost[g], T)
        if np.any(c.segment_cost[g]):
            p.add_convex(segments[g], c.segment_cost[g], (T + 1) // 2)
        if np.any(c.length_cost[g]):
            _add_lengths(p, c.length_cost[g], inside, y, starts)
    for member, costs in zip(c.repeat_member, c.repeat_cost, strict=True):
        groups = np.flatnonzero(member)
        repeated = p.add_variables(np.zeros(len(groups)), integral=True)
        for g, flag in zip(groups.tolist(), repeated, strict=True):  # segments ≤ 1 + T · flag
            p.add_row(-np.inf, 1.0, (segments[g], 1.0), (flag, -float(T)))
        p.add_convex(repeated, costs, len(groups))
    for (first, second), cost in zip(c.order, c.order_cost, strict=True):
        _add_order(p, y[:, c.member[first]], y[:, c.member[second]], cost)
    return np.argmax(p.solve()[y], axis=1)


def _add_lengths(p: _Program, costs: Array, inside: Array, y: Array, starts: list[Array]) -> None:
    """A flag for each place and length of a short segment."""
    T = len(y)
    for begin, start in enumerate(starts):
        for length in range(1, min(len(costs), T - begin + 1)):
            if costs[length] == 0:
                continue
            end = begin + length
            flag = p.add_variables(costs[length])
            # flag ≥ start + (all inside) + (outside at the end) − what these sum to otherwise
            terms = [(flag, 1.0), (start, -1.0), (y[begin + 1 : end, inside], -1.0)]
            if end < T:
                terms.append((y[end, ~inside], -1.0))
            p.add_row(1.0 - length - (end < T), np.inf, *terms)


def _add_order(p: _Program, first: Array, second: Array, cost: float) -> None:
    """A flag that is up where a token of ``first`` follows one of ``second``."""
    broken = p.add_variables(cost)
    seen = None
    for t in range(1, len(first)):  # seen: a token of ``second`` stood before t
        here = p.add_variables(0.0)
        for v in (*second[t - 1], *([] if seen is None else [seen])):
            p.add_row(0.0, np.inf, (here, 1.0), (v, -1.0))
        for v in first[t]:
            p.add_row(-1.0, np.inf, (broken, 1.0), (here, -1.0), (v, -1.0))
        seen = here


# What callers see ------------------------------------------------------------------------------


def constrained_decode(
    constraints: Iterable[Constraint],
    X: Iterable[Sequence[Any]],
    classes: Sequence[Any],
    scores: Array,
    transitions: Array,
    *,
    method: str = "beam",
    beam: int = 128,
    token: Any = None,
    unknown: str = "warn",
) -> Array:
    """Label sequences under constraints.

    The instance constraints count; corpus constraints are left out, so that the labels of a
    sequence do not depend on the sequences beside it.

    Parameters
    ----------
    constraints : iterable of Constraint
    X : iterable of sequences of tokens
    classes : sequence
        The labels, in the order of the columns of ``scores``.
    scores : ndarray of shape (tokens, labels)
        Of all sequences, one after the other; weights of first and last labels are added to the
        first and last row of each sequence.
    transitions : ndarray of shape (labels, labels)
        From the first index to the second.
    method : {"beam", "switching", "exact"}
        Beam search over labels and counts; hill climbing by switches of positions and segments
        from the best chain; or a mixed-integer program (HiGHS), for short sequences. Python
        predicates are known to ``"switching"`` alone.
    beam : int
        Hypotheses that the beam keeps at most; it starts with few and widens until the labels
        are proven best.
    token, unknown
        As for :func:`compile_constraints`.

    Returns
    -------
    int32 ndarray of shape (tokens,)
        Numbers into ``classes``.
    """
    one_of("method", method, METHODS)
    positive("beam", beam, integer=True)
    found = [c for c in as_constraints(constraints) if isinstance(c, InstanceConstraint)]
    penalties = Penalties(found, X, classes, token=token, unknown=unknown)
    if penalties.predicates and method != "switching":
        raise ValueError(
            f"method={method!r} cannot keep the Python predicate {penalties.predicates[0].title}; "
            "use method='switching'."
        )
    compiled = penalties.compiled
    N, K = compiled.unary.shape
    scores = _finite("scores", scores, (N, K))
    transitions = _finite("transitions", transitions, (K, K))
    labels = np.zeros(N, dtype=np.int32)
    if method == "beam":
        search_by_beam(compiled, scores, transitions, labels, beam)
    elif method == "exact":
        search_exactly(compiled, scores, transitions, labels)
    else:
        # From the best labels under what decomposes over a chain; a hypothesis per label is exact.
        search_by_beam(drop_from(compiled, "member"), scores, transitions, labels, K)
        search_by_switching(compiled, penalties.state(labels), scores, transitions, labels)
    if penalties.predicates:
        labels = _switch_slowly(penalties, scores, transitions, labels)
    return labels


def drop_from(compiled: CompiledConstraints, field: str) -> CompiledConstraints:
    """The same with this field and all behind it empty.

    Without ``"bad_change"`` these are the instance constraints; without ``"member"`` they are what
    decomposes over a chain: words, ends, changes, pairs.
    """
    names = compiled._fields[compiled._fields.index(field) :]
    tables = {name: getattr(compiled, name) for name in names}
    return compiled._replace(**{n: a[(slice(0),) * a.ndim] for n, a in tables.items()})


def _finite(name: str, values: Array, shape: tuple[int, int]) -> Array:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(
            f"{name} must be finite; forbid labels by a hard constraint instead of an infinity."
        )
    return array


def _switch_slowly(penalties: Penalties, scores: Array, transitions: Array, labels: Array) -> Array:
    """Hill climbing by single switches with predicates evaluated in Python."""
    evaluator = SwitchEvaluator(penalties, labels)
    y = evaluator.labels
    for i, (lo, hi) in enumerate(pairwise(penalties.compiled.offsets.tolist())):
        for _ in range(SWEEPS):
            changed = False
            for t in range(lo, hi):
                gain = scores[t] - evaluator.switch_costs(i, t - lo)
                if t > lo:
                    gain = gain + transitions[y[t - 1]]
                if t + 1 < hi:
                    gain = gain + transitions[:, y[t + 1]]
                k = int(np.argmax(gain))
                if gain[k] - gain[y[t]] > LEAST_GAIN:
                    evaluator.commit_switch(i, t - lo, k)
                    changed = True
            if not changed:
                break
    return evaluator.labels
