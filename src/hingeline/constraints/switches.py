"""Constraints as flat arrays, and what one label switch changes.

Everything a constraint may ask of one sequence is one of these:

* a cost of a label at a token (words, first and last token), of a change of label at a token, or
  of a pair of neighbouring labels: tables that are added up;
* a function of a *group's* counts, a group being a label or a set of labels that counts as one:
  tokens in the group, segments of the group, lengths of its segments, the order of two groups;
* a function of the number of groups that have more than one segment.

Corpus constraints are functions of the groups' counts in all sequences and of the numbers of
changes. Relabelling one token changes a group's counts by 0 or 1, so its effect is known from the
counts and the two neighbours: O(1) for each group and candidate label, but for the lengths of
the runs beside the token (up to the longest minimum length) and the next token of a group where
the first or last one of an ordered pair is switched away. A hard constraint costs
:data:`hingeline.constraints.base.HARD` per unit of violation in these tables.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline.constraints.base import VIOLATION_ROUNDING

SHARE, SEGMENTS, CHANGES, ALL_SEGMENTS = 0, 1, 2, 3  # Kinds of corpus constraints.


class CompiledConstraints(NamedTuple):
    """Constraints over given sequences and labels; n sequences, N tokens, K labels, G groups."""

    offsets: Array  # (n + 1,) where sequences begin.
    unary: Array  # (N, K) cost of a label at a token: words, first and last tokens.
    change: Array  # (N,) cost of a change of label between a token and its predecessor.
    pair: Array  # (K, K) cost of a label (second index) directly after another.
    member: Array  # (G, K) whether a label belongs to a group, and the same as lists:
    member_ptr: Array
    member_labels: Array
    counted: Array  # (G,) whether a group's counts cost anything, or matter to repeats alone.
    token_cost: Array  # (G, longest + 2) cost of a number of tokens in a sequence,
    segment_cost: Array  # and of segments.
    length_cost: Array  # (G, longest minimum + 1) cost of a segment so long; the last: or longer.
    repeat_member: Array  # (R, G) groups that may not repeat,
    repeat_cost: Array  # (R, G + 1) cost of a number of groups that do.
    order: Array  # (P, 2) groups of which the first must stand before the second,
    order_cost: Array  # (P,) cost of a breach.
    bad_change: Array  # (M, N) whether a change at a token counts for a share of changes.
    corpus_kind: Array  # (C,) kinds of corpus constraints,
    corpus_target: Array  # (C,) group or row of ``bad_change``,
    corpus_bounds: Array  # (C, 2) the free interval,
    corpus_price: Array  # (C, 3) scale of the violation, weight, whether it is squared (1 or 0).


class State(NamedTuple):
    """Counts of a labelling: what the constraints need to know of it."""

    tokens: Array  # (n, G) of each group in each sequence, as the next three:
    segments: Array
    first: Array  # position; the length where the group is absent
    last: Array  # position; -1 where it is absent
    repeats: Array  # (n, R) number of groups with more than one segment.
    #: (G,) tokens and segments in the corpus; (1 + M,) changes, and those that count.
    all_tokens: Array
    all_segments: Array
    changes: Array


@kernel
def start_state(compiled: CompiledConstraints, labels: Array) -> tuple[State, float]:
    """Count everything in ``labels`` (N,); and the penalty of the instance constraints."""
    n, G = compiled.offsets.shape[0] - 1, compiled.member.shape[0]
    tokens, segments, first, last = np.zeros((4, n, G), dtype=np.int32)
    repeats = np.zeros((n, compiled.repeat_cost.shape[0]), dtype=np.int32)
    everywhere = np.zeros((2, G), dtype=np.int64)
    changes = np.zeros(1 + compiled.bad_change.shape[0], dtype=np.int64)
    counts = tokens, segments, first, last, repeats
    state, total = State(*counts, everywhere[0], everywhere[1], changes), 0.0
    for i in range(n):
        total += count_sequence(compiled, i, labels, state)
        for g in range(G):
            state.all_tokens[g] += state.tokens[i, g]
            state.all_segments[g] += state.segments[i, g]
    return state, total


@helper
def count_sequence(compiled: CompiledConstraints, i: int, labels: Array, state: State) -> float:
    """Count everything in sequence ``i``; the penalty of its instance constraints.

    Its rows of the state are overwritten; ``changes`` are added to.
    """
    tokens, segments, repeats = state.tokens[i], state.segments[i], state.repeats[i]
    first, last, changes = state.first[i], state.last[i], state.changes
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
    cap = compiled.length_cost.shape[1] - 1
    total = 0.0
    for t in range(length):
        a = labels[lo + t]
        total += compiled.unary[lo + t, a]
        if t > 0:
            before = labels[lo + t - 1]
            total += compiled.pair[before, a]
            if before != a:
                total += compiled.change[lo + t]
                changes[0] += 1
                for m in range(compiled.bad_change.shape[0]):
                    if compiled.bad_change[m, lo + t]:
                        changes[1 + m] += 1
    for g in range(compiled.member.shape[0]):
        tokens[g] = segments[g] = run = 0
        first[g], last[g] = length, -1
        for t in range(length):
            if compiled.member[g, labels[lo + t]]:
                if run == 0:
                    segments[g] += 1
                run += 1
                tokens[g] += 1
                first[g] = min(first[g], t)
                last[g] = t
            else:
                total += compiled.length_cost[g, min(run, cap)]
                run = 0
        total += compiled.length_cost[g, min(run, cap)]
        total += compiled.token_cost[g, tokens[g]]
        total += compiled.segment_cost[g, segments[g]]
    for r in range(compiled.repeat_cost.shape[0]):
        repeats[r] = 0
        for g in range(compiled.member.shape[0]):
            if compiled.repeat_member[r, g] and segments[g] > 1:
                repeats[r] += 1
        total += compiled.repeat_cost[r, repeats[r]]
    for p in range(compiled.order.shape[0]):
        if first[compiled.order[p, 1]] < last[compiled.order[p, 0]]:
            total += compiled.order_cost[p]
    return total


@helper
def switch_costs(compiled: Any, state: State, labels: Array, i: int, t: int, out: Array) -> None:
    """What each label at position ``t`` (from 0) of sequence ``i`` adds to the total penalty.

    ``state`` holds the counts of ``labels`` (N,); ``out`` (K,) receives the differences, 0 for the
    label that is there. One long function: a call that passes all the arrays costs more than most
    of what is done here.
    """
    unary = compiled.unary
    member, member_ptr, member_labels = compiled.member, compiled.member_ptr, compiled.member_labels
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
    here = lo + t
    K = unary.shape[1]
    a = labels[here]
    left = labels[here - 1] if t > 0 else -1
    right = labels[here + 1] if t + 1 < length else -1
    for k in range(K):
        cost = unary[here, k]
        if left >= 0:
            cost += compiled.pair[left, k]
            if k != left:
                cost += compiled.change[here]
        if right >= 0:
            cost += compiled.pair[k, right]
            if k != right:
                cost += compiled.change[here + 1]
        out[k] = cost
    cap = compiled.length_cost.shape[1] - 1
    for g in range(member.shape[0]):
        if not compiled.counted[g]:
            continue
        mine = 1 if member[g, a] else 0
        joint = _count_new(member, g, left, right)
        n = state.tokens[i, g] - mine
        s = state.segments[i, g] - mine * joint
        gain = compiled.token_cost[g, n + 1] - compiled.token_cost[g, n]
        gain += compiled.segment_cost[g, s + joint] - compiled.segment_cost[g, s]
        if cap > 0 and compiled.length_cost[g, 1] > 0:
            start, stop = max(lo, here - cap) - 1, min(lo + length, here + 1 + cap)
            before = here - 1 - _walk(member, g, labels, here - 1, -1, start, True)
            after = _walk(member, g, labels, here + 1, 1, stop, True) - here - 1
            gain += compiled.length_cost[g, min(before + 1 + after, cap)]
            gain -= compiled.length_cost[g, before] + compiled.length_cost[g, after]
        for m in range(member_ptr[g], member_ptr[g + 1]):
            out[member_labels[m]] += gain
    if compiled.repeat_cost.shape[0] > 0:
        _add_repeat_costs(compiled, state, i, a, left, right, out)
    for p in range(compiled.order.shape[0]):
        A, B = compiled.order[p, 0], compiled.order[p, 1]
        last = state.last[i, A]
        if last == t:
            last = _walk(member, A, labels, here - 1, -1, lo - 1, False) - lo
        first = state.first[i, B]
        if first == t:
            first = _walk(member, B, labels, here + 1, 1, lo + length, False) - lo
        for k in range(K):
            end = max(last, t) if member[A, k] else last
            begin = min(first, t) if member[B, k] else first
            if begin < end:
                out[k] += compiled.order_cost[p]
    sequences = compiled.offsets.shape[0] - 1
    for c in range(compiled.corpus_kind.shape[0]):
        kind, target = compiled.corpus_kind[c], compiled.corpus_target[c]
        bounds, price = compiled.corpus_bounds[c], compiled.corpus_price[c]
        if kind in (SHARE, SEGMENTS):
            step, size = 1, unary.shape[0]
            count = state.all_tokens[target]
            if kind == SEGMENTS:
                step, size = _count_new(member, target, left, right), sequences
                count = state.all_segments[target]
            if member[target, a]:
                count -= step
            gain = price_excess(bounds, price, (count + step) / size)
            gain -= price_excess(bounds, price, count / size)
            for m in range(member_ptr[target], member_ptr[target + 1]):
                out[member_labels[m]] += gain
            continue
        for k in range(K):
            at_left = 0 if left < 0 else (1 if left != k else 0) - (1 if left != a else 0)
            at_right = 0 if right < 0 else (1 if right != k else 0) - (1 if right != a else 0)
            changes = state.changes[0] + at_left + at_right
            if kind == ALL_SEGMENTS:
                cost = price_excess(bounds, price, (changes + target) / sequences)
            else:
                bad = state.changes[1 + target]
                if compiled.bad_change[target, here]:
                    bad += at_left
                if right >= 0 and compiled.bad_change[target, here + 1]:
                    bad += at_right
                cost = price_excess(bounds, price, bad / max(changes, 1))
            out[k] += cost
    held = out[a]
    for k in range(K):
        out[k] -= held


@helper
def commit_switch(
    compiled: CompiledConstraints, state: State, labels: Array, i: int, t: int, k: int
) -> None:
    """Give position ``t`` of sequence ``i`` the label ``k``, in ``labels`` and in the counts."""
    lo = compiled.offsets[i]
    length = compiled.offsets[i + 1] - lo
    here = lo + t
    a = labels[here]
    if a == k:
        return
    left = labels[here - 1] if t > 0 else -1
    right = labels[here + 1] if t + 1 < length else -1
    for side in range(2):
        beside = left if side == 0 else right
        if beside >= 0:
            step = (1 if beside != k else 0) - (1 if beside != a else 0)
            state.changes[0] += step
            for m in range(compiled.bad_change.shape[0]):
                if compiled.bad_change[m, here + side]:
                    state.changes[1 + m] += step
    labels[here] = k
    member = compiled.member
    for g in range(member.shape[0]):
        was = member[g, a]
        if was == member[g, k]:
            continue
        joint = _count_new(member, g, left, right)
        sign = -1 if was else 1
        before = state.segments[i, g]
        state.tokens[i, g] += sign
        state.segments[i, g] += sign * joint
        state.all_tokens[g] += sign
        state.all_segments[g] += sign * joint
        repeated = (1 if state.segments[i, g] > 1 else 0) - (1 if before > 1 else 0)
        for r in range(compiled.repeat_cost.shape[0]):
            if compiled.repeat_member[r, g]:
                state.repeats[i, r] += repeated
        if was:
            if state.last[i, g] == t:
                state.last[i, g] = _walk(member, g, labels, here - 1, -1, lo - 1, False) - lo
            if state.first[i, g] == t:
                state.first[i, g] = _walk(member, g, labels, here + 1, 1, lo + length, False) - lo
        else:
            state.last[i, g] = max(state.last[i, g], t)
            state.first[i, g] = min(state.first[i, g], t)


@kernel
def sum_penalties(compiled: CompiledConstraints, labels: Array) -> float:
    """The penalty of all constraints, instance and corpus."""
    state, total = start_state(compiled, labels)
    n, N = max(compiled.offsets.shape[0] - 1, 1), max(compiled.unary.shape[0], 1)
    for c in range(compiled.corpus_kind.shape[0]):
        kind, target = compiled.corpus_kind[c], compiled.corpus_target[c]
        if kind == SHARE:
            value = state.all_tokens[target] / N
        elif kind == SEGMENTS:
            value = state.all_segments[target] / n
        elif kind == CHANGES:
            value = state.changes[1 + target] / max(state.changes[0], 1)
        else:  # the target is the number of sequences that are not empty
            value = (state.changes[0] + target) / n
        total += price_excess(compiled.corpus_bounds[c], compiled.corpus_price[c], value)
    return total


@helper
def price_excess(bounds: Array, price: Array, value: float) -> float:
    """The penalty of a corpus constraint at a value; its rows of bounds and of prices."""
    violation = price[0] * max(bounds[0] - value, value - bounds[1])
    if violation <= VIOLATION_ROUNDING:
        return 0.0
    if price[2] == 1.0:
        violation *= violation
    return price[1] * violation


@helper
def _add_repeat_costs(
    compiled: CompiledConstraints, state: State, i: int, a: int, left: int, right: int, out: Array
) -> None:
    """Costs of the number of groups with more than one segment."""
    member = compiled.member
    gains = np.empty(member.shape[1], dtype=np.int64)
    for r in range(compiled.repeat_cost.shape[0]):
        gains[:] = 0
        for g in range(member.shape[0]):
            if not compiled.repeat_member[r, g]:
                continue
            joint = _count_new(member, g, left, right)
            s = state.segments[i, g] - (joint if member[g, a] else 0)
            gain = (1 if s + joint > 1 else 0) - (1 if s > 1 else 0)
            for m in range(compiled.member_ptr[g], compiled.member_ptr[g + 1]):
                gains[compiled.member_labels[m]] += gain
        for k in range(gains.shape[0]):
            out[k] += compiled.repeat_cost[r, state.repeats[i, r] + gains[k] - gains[a]]


@helper
def _count_new(member: Array, g: int, left: int, right: int) -> int:
    """Segments that a token of group g adds between these neighbours; −1 where it joins two."""
    joint = 1
    if left >= 0 and member[g, left]:
        joint -= 1
    if right >= 0 and member[g, right]:
        joint -= 1
    return joint


@helper
def _walk(member: Array, g: int, labels: Array, at: int, step: int, stop: int, inside: bool) -> int:
    """The first token from ``at`` on that is not ``inside`` a group, or is, or else ``stop``."""
    while at != stop and member[g, labels[at]] == inside:
        at += step
    return at
