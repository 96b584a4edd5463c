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
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from hingeline._jit import helper, kernel
from hingeline.constraints.build import as_constraints, compile_constraints
from hingeline.constraints.penalties import Penalties, SwitchEvaluator
from hingeline.constraints.rules import HARD, Constraint, InstanceConstraint, Predicate, pick_words
from hingeline.constraints.switches import (
    Array,
    CompiledConstraints,
    State,
    commit_switch,
    start_state,
    switch_costs,
)

METHODS = ("beam", "switching", "exact")

#: Sweeps of hill climbing, at most.
SWEEPS = 100
#: A switch must gain more than this, which rounding could explain.
LEAST_GAIN = 1e-9
#: Costs above this come from a hard constraint.
FORBIDDEN_COST = HARD / 2

Terms = dict[int, float]


# Beam search and switching ---------------------------------------------------------------------


@kernel
def search_chain(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array
) -> None:
    """The best labels under what decomposes over a chain: words, ends, changes, pairs."""
    K = transitions.shape[0]
    for i in range(compiled.offsets.shape[0] - 1):
        lo = compiled.offsets[i]
        rest = _bound_rest(compiled, scores, transitions, i)
        before = -1
        for t in range(rest.shape[0]):
            top = -np.inf
            best = 0
            for k in range(K):
                s = scores[lo + t, k] - compiled.unary[lo + t, k] + rest[t, k]
                if before >= 0:
                    s += transitions[before, k] - compiled.pair[before, k]
                    if k != before:
                        s -= compiled.change[lo + t]
                if s > top:
                    top = s
                    best = k
            labels[lo + t] = best
            before = best


@kernel
def search_by_switching(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array, sweeps: int
) -> None:
    """Hill climbing from ``labels``: the best switch of each position, then of each segment.

    Relabelling a whole segment leaves optima in which every single switch breaks a constraint.
    """
    K = transitions.shape[0]
    state = start_state(compiled, labels)
    costs = np.empty(K)
    for i in range(compiled.offsets.shape[0] - 1):
        lo = compiled.offsets[i]
        length = compiled.offsets[i + 1] - lo
        for _ in range(sweeps):
            changed = False
            for t in range(length):
                switch_costs(compiled, state, labels, i, t, costs)
                a = labels[lo + t]
                best = a
                top = LEAST_GAIN
                for k in range(K):
                    gain = _measure_gain(scores, transitions, labels, lo, length, t, t + 1, k)
                    if gain - costs[k] > top:
                        top = gain - costs[k]
                        best = k
                if best != a:
                    commit_switch(compiled, state, labels, i, t, best)
                    changed = True
            begin = 0
            while begin < length:
                end = begin + 1
                while end < length and labels[lo + end] == labels[lo + begin]:
                    end += 1
                if end > begin + 1:
                    changed |= _relabel(compiled, state, scores, transitions, labels, i, begin, end)
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
) -> bool:
    """Give a segment the label that gains most, if one gains."""
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
    a = labels[lo + begin]
    before = state.penalty[0]
    best = a
    top = LEAST_GAIN
    for k in range(transitions.shape[0]):
        if k == a:
            continue
        gain = _measure_gain(scores, transitions, labels, lo, length, begin, end, k)
        for t in range(begin, end):
            commit_switch(compiled, state, labels, i, t, k)
        gain -= state.penalty[0] - before
        for t in range(begin, end):
            commit_switch(compiled, state, labels, i, t, a)
        state.penalty[0] = before  # not its rounding
        if gain > top:
            top = gain
            best = k
    if best != a:
        for t in range(begin, end):
            commit_switch(compiled, state, labels, i, t, best)
    return best != a


@helper
def _measure_gain(
    scores: Array,
    transitions: Array,
    labels: Array,
    lo: int,
    length: int,
    begin: int,
    end: int,
    k: int,
) -> float:
    """What the score gains if positions ``begin`` to ``end − 1``, of one label, get label k."""
    a = labels[lo + begin]
    gain = 0.0
    for t in range(begin, end):
        gain += scores[lo + t, k] - scores[lo + t, a]
    gain += (end - begin - 1) * (transitions[k, k] - transitions[a, a])
    if begin > 0:
        left = labels[lo + begin - 1]
        gain += transitions[left, k] - transitions[left, a]
    if end < length:
        right = labels[lo + end]
        gain += transitions[k, right] - transitions[a, right]
    return gain


@helper
def _find_floors(costs: Array) -> Array:
    """The least that a count can still cost: counts only grow along a sequence."""
    floors = costs.copy()
    for g in range(costs.shape[0]):
        for n in range(costs.shape[1] - 2, -1, -1):
            floors[g, n] = min(floors[g, n], floors[g, n + 1])
    return floors


@kernel
def search_by_beam(
    compiled: CompiledConstraints,
    scores: Array,
    transitions: Array,
    labels: Array,
    widest: int,
) -> Array:
    """The best labels among at most ``widest`` hypotheses kept at each position.

    A hypothesis is ranked by a bound on what any continuation of it is worth: its score, minus
    what its counts cost at least whatever follows, plus the best rest of the chain under the
    constraints that decompose over it. Of hypotheses with equal futures (same label, same counts
    that matter) only the best is kept. If no hypothesis that was dropped has a bound above the
    labels found, these are optimal; if not, the search is repeated four times as wide.
    Returns the difference of each sequence, 0 where its labels are proven best.
    """
    G = compiled.member.shape[0]
    token_floor = _find_floors(compiled.token_cost)
    segment_floor = _find_floors(compiled.segment_cost)
    use_tokens = np.zeros(G, dtype=np.bool_)
    use_segments = np.zeros(G, dtype=np.bool_)
    for g in range(G):
        use_tokens[g] = np.any(compiled.token_cost[g] != 0.0)
        use_segments[g] = np.any(compiled.segment_cost[g] != 0.0)
        for r in range(compiled.repeat_cost.shape[0]):
            if compiled.repeat_member[r, g]:
                use_segments[g] = True
    gaps = np.zeros(compiled.offsets.shape[0] - 1)
    for i in range(compiled.offsets.shape[0] - 1):
        if compiled.offsets[i + 1] == compiled.offsets[i]:
            continue
        rest = _bound_rest(compiled, scores, transitions, i)
        width = min(8, widest)
        while True:
            gaps[i] = _run_beam(
                compiled,
                scores,
                transitions,
                labels,
                i,
                width,
                rest,
                token_floor,
                segment_floor,
                use_tokens,
                use_segments,
            )
            if gaps[i] == 0.0 or width == widest:
                break
            width = min(4 * width, widest)
    return gaps


@helper
def _bound_rest(compiled: CompiledConstraints, scores: Array, transitions: Array, i: int) -> Array:
    """The best value of what follows each label at each position, as on a chain."""
    K = transitions.shape[0]
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
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
    return rest


@helper
def _run_beam(
    compiled: CompiledConstraints,
    scores: Array,
    transitions: Array,
    labels: Array,
    i: int,
    width: int,
    rest: Array,
    token_floor: Array,
    segment_floor: Array,
    use_tokens: Array,
    use_segments: Array,
) -> float:
    """One beam over one sequence; returns how far its labels may be from the best."""
    K = transitions.shape[0]
    G = compiled.member.shape[0]
    cap = compiled.length_cost.shape[1] - 1
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
    # Counts of a hypothesis: tokens, segments and run of each group; second group seen and order
    # broken of each pair.
    size = 3 * G + 2 * compiled.order.shape[0]
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
                s -= _extend(compiled, token_floor, segment_floor, now[b], k, cap, trial)
                worth[b * K + k] = s
                bound[b * K + k] = -s - rest[t, k]
        ranking = np.argsort(bound[: count * K], kind="mergesort")
        found = 0
        for c in ranking:
            b = c // K
            k = c % K
            _extend(compiled, token_floor, segment_floor, now[b], k, cap, trial)
            twin = False
            for d in range(found):
                if kept[t, d] == k and _are_same(new[d], trial, use_tokens, use_segments):
                    twin = True
                    break
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
            s -= compiled.token_cost[g, n] - token_floor[g, n]
            s -= compiled.segment_cost[g, m] - segment_floor[g, m]
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
    compiled: CompiledConstraints,
    token_floor: Array,
    segment_floor: Array,
    counts: Array,
    k: int,
    cap: int,
    out: Array,
) -> float:
    """Counts after one more token of label k in ``out``; returns what they cost more at least."""
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
            cost += token_floor[g, n + 1] - token_floor[g, n]
            out[g] = n + 1
            if run == 0:
                cost += segment_floor[g, m + 1] - segment_floor[g, m]
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
def _are_same(a: Array, b: Array, use_tokens: Array, use_segments: Array) -> bool:
    """Whether two hypotheses of one label have the same counts that matter."""
    G = use_tokens.shape[0]
    for g in range(G):
        if use_tokens[g] and a[g] != b[g]:
            return False
        if use_segments[g] and a[G + g] != b[G + g]:
            return False
        if a[2 * G + g] != b[2 * G + g]:
            return False
    return bool(np.all(a[3 * G :] == b[3 * G :]))


# Mixed-integer programs ------------------------------------------------------------------------


class _Program:
    """Variables and rows of one program, collected one by one."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[Terms, float, float]] = []

    def add_variable(self, cost: float, upper: float = 1.0, integral: bool = False) -> int:
        """A number from 0 to ``upper``; to 0 alone where it costs what a hard constraint does."""
        closed = cost >= FORBIDDEN_COST
        self.cost.append(0.0 if closed else cost)
        self.upper.append(0.0 if closed else upper)
        self.integral.append(int(integral))
        return len(self.cost) - 1

    def add_row(self, terms: Terms, low: float = -np.inf, high: float = np.inf) -> None:
        """``low ≤ Σ coefficient · variable ≤ high``."""
        self.rows.append((terms, low, high))

    def add_convex(self, terms: Terms, costs: Array, most: int) -> None:
        """The cost ``costs[n]`` of the integer n = Σ terms, which is at most ``most``."""
        fine = np.flatnonzero(costs[: most + 1] < FORBIDDEN_COST)
        if not len(fine):
            raise _ImpossibleError
        if fine[0] > 0 or fine[-1] < most:
            self.add_row(terms, int(fine[0]), int(fine[-1]))
        if not np.any(costs[fine]):
            return
        value = self.add_variable(1.0, np.inf)
        first = {value: 1.0}
        if len(fine) == 1:
            self.add_row(first, float(costs[fine[0]]))
            return
        slopes = set()
        for n in fine[:-1]:
            slope = float(costs[n + 1] - costs[n])
            start = float(costs[n]) - slope * n  # value ≥ start + slope · n
            if (slope, start) not in slopes:
                slopes.add((slope, start))
                row = first | {v: -slope * c for v, c in terms.items()}
                self.add_row(row, start)

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


def search_exactly(
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
            y[t, k] = p.add_variable(cost, integral=True)
        p.add_row(dict.fromkeys(y[t].tolist(), 1.0), 1.0, 1.0)
    z = np.empty((max(T - 1, 0), K, K), dtype=np.int64)
    for t in range(T - 1):
        for j in range(K):
            for k in range(K):
                cost = c.pair[j, k] - transitions[j, k] + (c.change[lo + t + 1] if j != k else 0.0)
                z[t, j, k] = p.add_variable(cost)
        for k in range(K):
            out = {int(v): 1.0 for v in z[t, k]}
            p.add_row(out | {int(y[t, k]): -1.0}, 0.0, 0.0)
            into = {int(v): 1.0 for v in z[t, :, k]}
            p.add_row(into | {int(y[t + 1, k]): -1.0}, 0.0, 0.0)
    segments = [_segment_terms(c.member[g], y, z) for g in range(len(c.member))]
    for g in range(len(c.member)):
        inside = y[:, c.member[g]]
        if np.any(c.token_cost[g]):
            p.add_convex({int(v): 1.0 for v in inside.ravel()}, c.token_cost[g], T)
        if np.any(c.segment_cost[g]):
            p.add_convex(segments[g], c.segment_cost[g], (T + 1) // 2)
        if np.any(c.length_cost[g]):
            _add_lengths(p, c.length_cost[g], c.member[g], y, z)
    for r in range(len(c.repeat_cost)):
        repeated = {}
        groups = np.flatnonzero(c.repeat_member[r]).tolist()
        for g in groups:
            flag = p.add_variable(0.0, integral=True)
            repeated[flag] = 1.0  # segments ≤ 1 + T · flag
            p.add_row(segments[g] | {flag: -float(T)}, high=1.0)
        p.add_convex(repeated, c.repeat_cost[r], len(groups))
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
            flag = p.add_variable(float(costs[length]))
            # flag ≥ start + (all inside) + (outside at the end) − what these sum to otherwise
            terms = {flag: 1.0} | {int(v): -1.0 for v in start}
            for t in range(begin + 1, end):
                terms |= {int(v): -1.0 for v in y[t, inside]}
            low = 1.0 - length
            if end < T:
                terms |= {int(v): -1.0 for v in y[end, ~inside]}
                low -= 1.0
            p.add_row(terms, low=low)


def _add_order(p: _Program, first: Array, second: Array, cost: float) -> None:
    """A flag that is up where a token of ``first`` follows one of ``second``."""
    broken = p.add_variable(cost)
    seen = -1
    for t in range(len(first)):
        if t > 0:  # seen: a token of ``second`` stood before t
            here = p.add_variable(0.0)
            for v in second[t - 1]:
                p.add_row({here: 1.0, int(v): -1.0}, low=0.0)
            if seen >= 0:
                p.add_row({here: 1.0, seen: -1.0}, low=0.0)
            seen = here
            for v in first[t]:
                p.add_row({broken: 1.0, seen: -1.0, int(v): -1.0}, low=-1.0)


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
    token : callable, str or int, optional
        What of a token is its word.
    unknown : {"warn", "ignore", "error"}
        What to do about labels that are not among ``classes``.

    Returns
    -------
    int32 ndarray of shape (tokens,)
        Numbers into ``classes``.
    """
    found = [c for c in as_constraints(constraints) if isinstance(c, InstanceConstraint)]
    predicates = [c for c in found if isinstance(c, Predicate)]
    _check_method(method, beam)
    if predicates and method != "switching":
        raise ValueError(
            f"method={method!r} cannot keep the Python predicate {predicates[0].title}; "
            "use method='switching'."
        )
    words = pick_words(X, token)
    fast = [c for c in found if not isinstance(c, Predicate)]
    compiled = compile_constraints(fast, words, classes, unknown=unknown)
    labels = decode_compiled(compiled, scores, transitions, method=method, beam=beam)
    if predicates:
        labels = _switch_slowly(found, words, classes, scores, transitions, labels)
    return labels


def decode_compiled(
    compiled: CompiledConstraints,
    scores: Array,
    transitions: Array,
    *,
    method: str = "beam",
    beam: int = 128,
) -> Array:
    """The same for constraints that are compiled already; corpus constraints are left out."""
    _check_method(method, beam)
    N, K = compiled.unary.shape
    scores = _finite("scores", scores, (N, K))
    transitions = _finite("transitions", transitions, (K, K))
    labels = np.zeros(N, dtype=np.int32)
    compiled = drop_corpus(compiled)
    if method == "beam":
        search_by_beam(compiled, scores, transitions, labels, beam)
    elif method == "exact":
        search_exactly(compiled, scores, transitions, labels)
    else:
        search_chain(compiled, scores, transitions, labels)
        search_by_switching(compiled, scores, transitions, labels, SWEEPS)
    return labels


def drop_corpus(compiled: CompiledConstraints) -> CompiledConstraints:
    """The instance constraints alone."""
    names = [name for name in compiled._fields if name.startswith("corpus_")]
    return compiled._replace(**{n: getattr(compiled, n)[:0] for n in [*names, "bad_change"]})


def _check_method(method: str, beam: int) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    if isinstance(beam, bool) or not isinstance(beam, int | np.integer) or beam < 1:
        raise ValueError(f"beam must be a positive integer, got {beam!r}.")


def _finite(name: str, values: Array, shape: tuple[int, int]) -> Array:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(
            f"{name} must be finite; forbid labels by a hard constraint instead of an infinity."
        )
    return array


def _switch_slowly(
    constraints: list[InstanceConstraint],
    words: list[list[Any]],
    classes: Sequence[Any],
    scores: Array,
    transitions: Array,
    labels: Array,
) -> Array:
    """Hill climbing by single switches with predicates evaluated in Python."""
    penalties = Penalties(constraints, words, classes, unknown="ignore")
    evaluator = SwitchEvaluator(penalties, labels)
    offsets, y = penalties.compiled.offsets, evaluator.labels
    for i, x in enumerate(words):
        lo = int(offsets[i])
        for _ in range(SWEEPS):
            changed = False
            for t in range(len(x)):
                gain = scores[lo + t] - scores[lo + t, y[lo + t]]
                if t > 0:
                    into = transitions[y[lo + t - 1]]
                    gain = gain + into - into[y[lo + t]]
                if t + 1 < len(x):
                    out = transitions[:, y[lo + t + 1]]
                    gain = gain + out - out[y[lo + t]]
                gain = gain - evaluator.switch_costs(i, t)
                k = int(np.argmax(gain))
                if gain[k] > LEAST_GAIN:
                    evaluator.commit_switch(i, t, k)
                    changed = True
            if not changed:
                break
    return evaluator.labels
