"""Prediction under constraints: the labels of the highest score minus penalty.

``Σ_t scores[t, y_t] + Σ_t transitions[y_{t−1}, y_t] − penalty(y)`` is maximised over the labels of
one sequence at a time; the penalty is that of the instance constraints. *Beam search* is a kernel
and says how far from the best its labels may be; wide enough, it is exact. Python predicates are
heeded by hill climbing from its labels.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from hingeline._checks import positive, require
from hingeline._jit import helper, kernel
from hingeline._simd import copy
from hingeline.constraints.base import Constraint, InstanceConstraint
from hingeline.constraints.penalties import Penalties, SwitchEvaluator, as_constraints
from hingeline.constraints.switches import Array, CompiledConstraints

SWEEPS = 100  # Sweeps of hill climbing, at most.
LEAST_GAIN = 1e-9  # A switch must gain more than this, which rounding could explain.

Floors = tuple[Array, Array]


def search_by_beam(
    compiled: CompiledConstraints, scores: Array, moves: Array, labels: Array, widest: int | None
) -> Array:
    """The best labels among at most ``widest`` hypotheses kept at each position (None: any number).

    A hypothesis is ranked by a bound on what any continuation of it is worth: its score, minus
    what its counts cost at least whatever follows, plus the best rest of the chain under the
    constraints that decompose over it. Of hypotheses with equal futures (same label, same counts
    that matter) only the best is kept. If no hypothesis that was dropped has a bound above the
    labels found, these are optimal; if not, the search is repeated with more.
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
    search = partial(_run_beam, compiled, floors, matters, scores, moves, labels)
    gaps = np.zeros(len(compiled.offsets) - 1)
    for i in np.flatnonzero(np.diff(compiled.offsets)).tolist():
        width, most = 0, np.inf if widest is None else widest
        while not width or (gaps[i] > 0.0 and width < most):
            # One hypothesis is nearly always enough: the best rest knows most constraints.
            width = int(min(max(8, 4 * width) if width else 1, most))
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
    K, G = transitions.shape[0], compiled.member.shape[0]
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
    now, new = np.zeros((2, width, size), dtype=np.int32)
    trial, last = np.zeros(size, dtype=np.int32), np.zeros(width, dtype=np.int32)
    value, new_value = np.zeros((2, width))
    worth, bound = np.empty((2, width * K))
    back, kept = np.zeros((2, length, width), dtype=np.int32)
    count, dropped = 1, -np.inf
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
            b, k = c // K, c % K
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
            new_value[found], back[t, found], kept[t, found] = worth[c], b, k
            found += 1
        now, new = new, now
        copy(new_value, value[:found])
        copy(kept[t], last[:found])
        count = found
    best, top = 0, -np.inf
    for b in range(count):
        s = value[b]
        for g in range(G):
            n, m = now[b, g], now[b, G + g]
            s -= compiled.token_cost[g, n] - floors[0][g, n]
            s -= compiled.segment_cost[g, m] - floors[1][g, m]
            s -= compiled.length_cost[g, min(now[b, 2 * G + g], cap)]
        if s > top:
            best, top = b, s
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
    G, P = compiled.member.shape[0], compiled.order.shape[0]
    cost = 0.0
    for g in range(G):
        n, m, run = counts[g], counts[G + g], counts[2 * G + g]
        out[g], out[G + g], out[2 * G + g] = n, m, 0
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
        before = after = 0
        for g in range(G):
            if compiled.repeat_member[r, g]:
                before += 1 if counts[G + g] > 1 else 0
                after += 1 if out[G + g] > 1 else 0
        cost += compiled.repeat_cost[r, after] - compiled.repeat_cost[r, before]
    for p in range(P):
        seen, broken = counts[3 * G + p], counts[3 * G + P + p]
        if compiled.member[compiled.order[p, 0], k] and seen and not broken:
            broken = 1
            cost += compiled.order_cost[p]
        if compiled.member[compiled.order[p, 1], k]:
            seen = 1
        out[3 * G + p], out[3 * G + P + p] = seen, broken
    return cost


@helper
def _are_same(a: Array, b: Array, matters: Array) -> bool:
    s = 0
    while s < matters.shape[0] and (a[s] == b[s] or not matters[s]):
        s += 1
    return s == matters.shape[0]


def constrained_decode(
    constraints: Iterable[Constraint],
    X: Iterable[Sequence[Any]],
    classes: Sequence[Any],
    scores: Array,
    transitions: Array,
    *,
    beam: int | None = 128,
    token: Any = None,
    unknown: str = "warn",
) -> Array:
    """Label sequences under constraints; returns for each token an index into ``classes``.

    Instance constraints count; corpus constraints are left out, so that the labels of a sequence
    do not depend on other sequences.

    Parameters
    ----------
    constraints : iterable of Constraint
    X : iterable of sequences of tokens
    classes : sequence of labels, in the order of the columns of ``scores``
    scores : ndarray of shape (tokens, labels)
        For all sequences, one after the other; the weights of first and last labels must already
        be added to the first and last row of each sequence.
    transitions : ndarray of shape (labels, labels), from the first index to the second
    beam : int or None
        The most hypotheses that the beam keeps; it starts with few and widens until the labels
        are proven best. None: there is no limit. Python predicates are obeyed by hill climbing
        from the beam's labels, without a proof.
    token, unknown : as for :class:`Penalties`
    """
    if beam is not None:
        positive("beam", beam, integer=True)
    found = [c for c in as_constraints(constraints) if isinstance(c, InstanceConstraint)]
    penalties = Penalties(found, X, classes, token=token, unknown=unknown)
    compiled = penalties.compiled
    N, K = compiled.unary.shape
    scores = _finite("scores", scores, (N, K))
    transitions = _finite("transitions", transitions, (K, K))
    labels = np.zeros(N, dtype=np.int32)
    search_by_beam(compiled, scores, transitions, labels, beam)
    if penalties.predicates:
        labels = climb_with_predicates(penalties, scores, transitions, labels)
    return labels


def _finite(name: str, values: Array, shape: tuple[int, int]) -> Array:
    array = np.ascontiguousarray(values, dtype=np.float64)
    require(array.shape == shape, f"{name} has shape {array.shape}, expected {shape}.")
    text = f"{name} must be finite; forbid labels by a hard constraint instead of an infinity."
    require(np.isfinite(array).all(), text)
    return array


def climb_with_predicates(
    penalties: Penalties, scores: Array, transitions: Array, labels: Array
) -> Array:
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
