"""Labels of high score under constraints: beam search and label switching, as kernels.

Both maximise ``Σ_t scores[t, y_t] + Σ_t transitions[y_{t−1}, y_t] − penalty(y)`` over the labels of
one sequence; the penalty is that of the instance constraints.
"""

from __future__ import annotations

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.constraints.compiled import commit_switch, start_state, switch_costs
from hingeline.constraints.tables import Array, CompiledConstraints, State


@kernel
def chain_search(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array
) -> None:
    """Viterbi with what decomposes over a chain: words, ends, changes, pairs."""
    K = transitions.shape[0]
    for i in range(compiled.offsets.shape[0] - 1):
        lo = compiled.offsets[i]
        hi = compiled.offsets[i + 1]
        if hi == lo:
            continue
        best = np.empty((hi - lo, K))
        back = np.zeros((hi - lo, K), dtype=np.int32)
        for k in range(K):
            best[0, k] = scores[lo, k] - compiled.unary[lo, k]
        for t in range(1, hi - lo):
            for k in range(K):
                top = -np.inf
                for j in range(K):
                    s = best[t - 1, j] + transitions[j, k] - compiled.pair[j, k]
                    if j != k:
                        s -= compiled.change[lo + t]
                    if s > top:
                        top = s
                        back[t, k] = j
                best[t, k] = top + scores[lo + t, k] - compiled.unary[lo + t, k]
        k = int(np.argmax(best[hi - lo - 1]))
        for t in range(hi - lo - 1, -1, -1):
            labels[lo + t] = k
            k = back[t, k]


@kernel
def switching_search(
    compiled: CompiledConstraints, scores: Array, transitions: Array, labels: Array, sweeps: int
) -> None:
    """Hill climbing from ``labels``: the best switch of each position, then of each segment.

    Relabelling a whole segment leaves optima in which every single switch breaks a constraint.
    """
    K = transitions.shape[0]
    state = start_state(compiled, compiled.offsets, labels)
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
                top = 1e-9
                for k in range(K):
                    gain = _span_gain(scores, transitions, labels, lo, length, t, t + 1, k)
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
    top = 1e-9
    for k in range(transitions.shape[0]):
        if k == a:
            continue
        gain = _span_gain(scores, transitions, labels, lo, length, begin, end, k)
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
def _span_gain(
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
def _floors(costs: Array) -> Array:
    """The least that a count can still cost: counts only grow along a sequence."""
    floors = costs.copy()
    for g in range(costs.shape[0]):
        for n in range(costs.shape[1] - 2, -1, -1):
            floors[g, n] = min(floors[g, n], floors[g, n + 1])
    return floors


@kernel
def beam_search(
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
    token_floor = _floors(compiled.token_cost)
    segment_floor = _floors(compiled.segment_cost)
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
        rest = _best_rest(compiled, scores, transitions, i)
        width = min(8, widest)
        while True:
            gaps[i] = _beam(
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
def _best_rest(compiled: CompiledConstraints, scores: Array, transitions: Array, i: int) -> Array:
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
def _beam(
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
                if kept[t, d] == k and _same(new[d], trial, use_tokens, use_segments):
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
def _same(a: Array, b: Array, use_tokens: Array, use_segments: Array) -> bool:
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
