"""Dynamic programs over chains: kernels on flat arrays, nothing about losses or slacks.

Label rows are padded to ``stride`` (a multiple of eight) so that every inner loop runs over
whole vectors: weights of one feature, or of one "from" label, are contiguous over labels. Only
forward maxima are stored; the winning predecessor is searched again on the way back, which
costs one row per position instead of a second select in the innermost loop.
"""

from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline._jit import finite_helper, helper, prefetch
from hingeline._simd import add_max, copy, largest, max_plus, max_plus_chosen, row_max, rows_dot


@helper
def gather_rows(
    indptr: Array, indices: Array, values: Array, lo: int, hi: int, w: Array, out: Array
) -> None:
    """``out[t] = Σ_f x_tf W[f]`` for the CSR rows ``lo ≤ t < hi``; W is w, cut into rows."""
    stride = out.shape[1]
    sums = out.reshape(out.size)
    for t in range(lo, hi):
        if t + 1 < hi:  # rows of rare features come from far away: ask for them a token ahead
            for p in range(indptr[t + 1], indptr[t + 2]):
                first = indices[p] * stride
                for k in range(0, stride, 8):
                    prefetch(w, first + k)
        rows_dot(indices, values, indptr[t], indptr[t + 1], w, stride, sums, (t - lo) * stride)


@helper
def find_predecessor(
    forward: Array, row: int, transitions: Array, n_labels: int, label: int
) -> int:
    """The label of a row of forward maxima from which a label behind it is reached best."""
    arg, top = 0, forward[row, 0] + transitions[0, label]
    for j in range(1, n_labels):
        s = forward[row, j] + transitions[j, label]
        if s > top:
            arg, top = j, s
    return arg


@helper
def max_sum(scores: Array, transitions: Array, n_labels: int, y_out: Array) -> float:
    """Best path through ``scores`` (T, stride), which becomes the table of forward maxima."""
    length, stride = scores.shape
    flat, table = scores.reshape(scores.size), transitions.reshape(transitions.size)
    for t in range(1, length):
        max_plus(flat, (t - 1) * stride, table, n_labels, stride, flat, t * stride)
    last = largest(flat, (length - 1) * stride, n_labels)
    value = scores[length - 1, last]
    y_out[length - 1] = last
    for t in range(length - 1, 0, -1):
        y_out[t - 1] = find_predecessor(scores, t - 1, transitions, n_labels, y_out[t])
    return value


@helper
def max_sum_by_errors(
    scores: Array, transitions: Array, n_labels: int, y_true: Array, best: Array, ys: Array
) -> None:
    """Best path for every number of positions at which it differs from ``y_true``.

    ``best[e]`` and ``ys[e]`` receive the value and the path with exactly e errors (``-inf``
    where there is none, as with a single label). Viterbi over (label, errors so far), about T
    times the price of :func:`max_sum`.
    """
    length, stride = scores.shape
    moves = transitions.reshape(transitions.size)
    table = np.full((length, length + 1, stride), -np.inf)
    for k in range(n_labels):
        e = 0 if k == y_true[0] else 1
        table[0, e, k] = scores[0, k]
    reach = np.empty(stride)
    for t in range(1, length):
        truth = y_true[t]
        for e in range(t + 1):
            reach[:] = 0.0
            max_plus(table[t - 1, e], 0, moves, n_labels, stride, reach, 0)
            wrong = table[t, e + 1]
            for k in range(n_labels):
                wrong[k] = max(wrong[k], reach[k] + scores[t, k])
            # The true label makes no error: it belongs one level lower.
            table[t, e, truth] = reach[truth] + scores[t, truth]
        # Level e+1 of the true label was overwritten when it was reached as "wrong" at level e;
        # restore the topmost one, which no level of its own rewrites.
        table[t, t + 1, truth] = -np.inf
    for errors in range(length + 1):
        last = largest(table[length - 1, errors], 0, n_labels)
        best[errors] = table[length - 1, errors, last]
        if best[errors] == -np.inf:
            continue
        ys[errors, length - 1] = last
        e = errors
        for t in range(length - 1, 0, -1):
            k = ys[errors, t]
            if k != y_true[t]:
                e -= 1
            ys[errors, t - 1] = find_predecessor(table[t - 1], e, transitions, n_labels, k)


@helper
def continuations(scores: Array, transitions: Array, n_labels: int) -> Array:
    """``out[t, k]``: value of the best path behind position t, given label k there."""
    out, reach = np.zeros((scores.shape[0], n_labels)), np.empty(n_labels)
    for t in range(scores.shape[0] - 2, -1, -1):
        for k in range(n_labels):
            reach[k] = out[t + 1, k] + scores[t + 1, k]
        augmented_maxima(reach, transitions, n_labels, out[t])
    return out


@helper
def max_marginals(scores: Array, transitions: Array, n_labels: int, out: Array) -> None:
    """``out[t, k]``: value of the best path that has label k at position t."""
    behind, forward = continuations(scores, transitions, n_labels), scores.copy()
    max_sum(forward, transitions, n_labels, np.empty(scores.shape[0], dtype=np.int32))
    for t in range(scores.shape[0]):
        for k in range(n_labels):
            out[t, k] = forward[t, k] + behind[t, k]


# Exact best paths through chains with many labels, looking at few predecessors.
#
# With L labels the forward maxima ``f[t, k] = s[t, k] + max_j (f[t−1, j] + A[j, k])`` cost L² per
# position, and almost all of it goes to predecessors that no good path uses. Here only the
# *chosen* predecessors of a position, those of the largest promise ``f[j] + max_k A[j, k]``, are
# tried one by one; the largest promise of the others, the *floor*, stands in for all of them,
# which makes each f an upper bound. The best path under these bounds is followed back. Where each
# of its moves comes from a chosen predecessor that beats the floor, it is the best path of all;
# where one does not, that position gets as many more predecessors as its move calls for, and the
# table behind it is made again. N. Kaji et al., *Efficient staggered decoding for sequence
# labeling* (2010) have the scheme, with groups of labels in place of predecessors.
#
# The result is that of :func:`max_sum`, bit by bit and tie by tie: sums are taken in the same
# order, rounding is monotone (a bound stays one when rounded), and a tie with the floor is lost.

MANY_LABELS = 64  # With fewer labels the full table is quicker.
#: Predecessors are chosen at first if their promise is within this share of the spread of the
#: rows' maxima from the best one: enough to be right at once more often than not.
_FIRST_WIDTH = 0.6
#: After so many rounds the full table takes over: scores are too even to tell labels apart.
_ROUNDS = 10


@helper
def _choose(promise: Array, n_labels: int, least: float, chosen: Array) -> tuple[int, float]:
    """List the labels that promise at least ``least``; their number, and the best of the others."""
    count, floor = 0, -np.inf
    for j in range(n_labels):
        value = promise[j]
        chosen[count] = j  # without a branch; the next one overwrites what does not stay
        stays = value >= least
        count += 1 if stays else 0
        floor = max(floor, -np.inf if stays else value)
    return count, floor


@helper
def best_path(scores: Array, transitions: Array, n_labels: int, y_out: Array) -> float:
    """Best path through ``scores`` (T, stride), which may change."""
    length, stride = scores.shape
    sums, table = scores.reshape(scores.size), transitions.reshape(transitions.size)
    best = np.full(stride, -np.inf)  # max_k A[j, k] of every label, −inf in the padding
    low, high = np.inf, -np.inf
    for j in range(n_labels):
        best[j] = row_max(table, j * stride, n_labels)
        if best[j] > -np.inf:
            low, high = min(low, best[j]), max(high, best[j])
    forward, promise = np.empty(scores.size), np.empty(stride)
    chosen = np.empty((length, n_labels), dtype=np.int64)
    count, floor, top = np.empty(length, dtype=np.int64), np.empty(length), np.empty(length)
    width = np.full(length, _FIRST_WIDTH * max(high - low, 0.0))
    copy(sums, forward[:stride])
    first = 0  # tables are good before this position
    for _ in range(_ROUNDS):
        for t in range(first, length - 1):
            at = t * stride
            top[t] = add_max(forward, at, best, stride, promise)
            if top[t] == -np.inf:  # no path goes on from here, and ties are all there is
                return max_sum(scores, transitions, n_labels, y_out)
            count[t], floor[t] = _choose(promise, n_labels, top[t] - width[t], chosen[t])
            chances = (chosen[t], count[t], floor[t])
            max_plus_chosen(forward, at, *chances, table, stride, sums, forward, at + stride)
        at = (length - 1) * stride
        last = largest(forward, at, n_labels)
        value = forward[at + last]
        y_out[length - 1] = last
        first = length
        for t in range(length - 2, -1, -1):
            k = y_out[t + 1]
            arg, most = 0, -np.inf
            for p in range(count[t]):
                j = chosen[t, p]
                s = forward[t * stride + j] + table[j * stride + k]
                if s > most:
                    arg, most = j, s
            y_out[t] = arg
            if most <= floor[t]:
                width[t] = top[t] - (most if most > -np.inf else floor[t])
                first = t
        if first == length:
            return value
    return max_sum(scores, transitions, n_labels, y_out)


# The n best paths of a chain, exactly.
#
# Lawler's partition: all paths but the best one are told apart by the last position at which they
# leave it and the label they have there. With the forward maxima at hand the best path of such a
# cell costs one addition, and the cell of a path that is taken is partitioned again. One pass
# over the table per path, on top of one ordinary decode. Cells not taken yet are kept in order, and
# never more than there are paths to come.


@helper
def keep_cell(cells: Array, values: Array, count: int, value: float, cell: tuple[int, ...]) -> int:
    """Keep a cell if it is among the best, for which there is room; how many there are now."""
    if count == values.shape[0]:
        if value <= values[count - 1]:
            return count
        count -= 1
    at = count
    while at > 0 and values[at - 1] < value:
        values[at] = values[at - 1]
        copy(cells[at - 1], cells[at])
        at -= 1
    values[at] = value
    for p in range(cells.shape[1]):
        cells[at, p] = cell[p]
    return count + 1


@helper
def drop_cell(cells: Array, values: Array, count: int) -> int:
    """Take the first cell away; how many are left."""
    for c in range(count - 1):
        values[c] = values[c + 1]
        copy(cells[c + 1], cells[c])
    return count - 1


@helper
def n_best(scores: Array, transitions: Array, n_labels: int, ys: Array, values: Array) -> int:
    """Write the best paths to ``ys`` (n, T) and ``values`` (n,), best first; return how many.

    The first path is that of :func:`max_sum`. Among paths of equal value the one whose cell was
    opened first goes first, so that the result does not depend on n. Paths of value ``−inf`` do
    not count.
    """
    n, length = ys.shape
    forward = scores.copy()
    values[0] = max_sum(forward, transitions, n_labels, ys[0])
    if values[0] == -np.inf:
        return 0
    cell_value = np.empty(n)
    cells = np.empty((n, 3), dtype=np.int64)  # path, position where it leaves it, label there
    count = 0
    split = length  # positions before this one are still free in the newest path
    for newest in range(n - 1):
        y = ys[newest]
        best = cell_value[: n - 1 - newest]
        behind = 0.0  # value of the labels after t and of the moves between them
        for t in range(length - 1, -1, -1):
            for j in range(n_labels if t < split else 0):
                if j == y[t]:
                    continue
                value = forward[t, j] + behind
                if t + 1 < length:
                    value += transitions[j, y[t + 1]]
                value = min(value, values[newest])  # rounding must not spoil the order
                if value > -np.inf:
                    count = keep_cell(cells, best, count, value, (newest, t, j))
            behind += scores[t, y[t]]
            if t + 1 < length:
                behind += transitions[y[t], y[t + 1]]
        if count == 0:
            return newest + 1
        split = cells[0, 1]
        taken = ys[newest + 1]
        copy(ys[cells[0, 0]], taken)
        taken[split] = cells[0, 2]
        for t in range(split, 0, -1):
            taken[t - 1] = find_predecessor(forward, t - 1, transitions, n_labels, taken[t])
        values[newest + 1] = cell_value[0]
        count = drop_cell(cells, cell_value, count)
    return n


# Max-marginals under a loss that changes at one position: what a label switch needs.
#
# With emission scores ``S`` (T, stride), transitions ``A``, a labelling ŷ and a cost table c, the
# loss-augmented maximum is ``max_y Σ_t S[t, y_t] + c[ŷ_t, y_t] + Σ_t A[y_{t−1}, y_t]``. Its part
# without the loss at position t is, for every label k there, ``F[t, k] + S[t, k] + B[t, k]``: the
# best beginning before t and the best continuation behind it. Another label r for ŷ_t changes
# nothing in these, so that the maximum for r is ``max_k F + S + B + c[r, k]``.


@helper
def transposed(transitions: Array, n_labels: int) -> Array:
    """``out[to, from]``, padded like the transitions."""
    out = np.zeros((n_labels, transitions.shape[1]))
    for j in range(n_labels):
        for k in range(n_labels):
            out[k, j] = transitions[j, k]
    return out


@helper
def step_maxima(
    scores: Array, cost: Array, y: Array, moves: Array, t: int, by: int, table: Array, reach: Array
) -> None:
    """Row ``t + by`` of the best beginnings (1) or continuations (−1) from row t.

    Continuations want the transitions transposed. All tables are flat, rows as long as ``reach``:
    views made in a loop over positions cost more than the work.
    """
    stride = reach.shape[0]
    here, there, loss = t * stride, (t + by) * stride, y[t] * stride
    for k in range(stride):
        reach[k] = table[here + k] + scores[here + k] + cost[loss + k]
        table[there + k] = 0.0
    max_plus(reach, 0, moves, moves.shape[0] // stride, stride, table, there)


@helper
def switch_gains(
    scores: Array, transitions: Array, backwards: Array, y: Array, stride: int, t: int, out: Array
) -> None:
    """What the score of a path gains with each label at position t; flat tables as above."""
    here, n_labels = t * stride, out.shape[0]
    copy(scores[here:], out)
    if t > 0:
        row = y[t - 1] * stride
        for k in range(n_labels):
            out[k] += transitions[row + k]
    if t + 1 < y.shape[0]:
        row = y[t + 1] * stride
        for k in range(n_labels):
            out[k] += backwards[row + k]
    held = out[y[t]]
    for k in range(n_labels):
        out[k] -= held


@finite_helper
def augmented_maxima(base: Array, cost: Array, n_labels: int, out: Array) -> None:
    """``out[r] = max_k base[k] + cost[r, k]``."""
    for r in range(n_labels):
        best = -np.inf
        for k in range(n_labels):
            best = max(best, base[k] + cost[r, k])
        out[r] = best


@helper
def path_score(scores: Array, transitions: Array, y: Array) -> float:
    """Score of one path."""
    total = scores[0, y[0]]
    for t in range(1, scores.shape[0]):
        total += transitions[y[t - 1], y[t]] + scores[t, y[t]]
    return total


def against_rest(table: Array) -> None:
    """Turn max-marginals (T, labels) into margins, in place; NumPy will do.

    ``table[t, k]`` becomes the value of the best path with label k at position t minus that of
    the best path with another label there: ``−inf`` where k is forbidden, ``inf`` where nothing
    else is allowed.
    """
    lowest = np.full((len(table), 1), -np.inf)
    second, first = np.sort(np.hstack([lowest, table]), axis=1)[:, -2:].T[:, :, None]
    rival = np.where(table == first, second, first)  # two that are level are each other's
    np.subtract(table, rival, out=table, where=table > -np.inf)  # −inf − (−inf) would be NaN


@helper
def best_without_span(
    scores: Array, forward: Array, behind: Array, transitions: Array, scheme: Any, span: Array
) -> float:
    """Value of the best path in which ``first … stop − 1`` is not read as a span of this kind.

    ``span`` is kind, first and stop; ``scheme`` says how spans are read from neighbouring labels:
    ``inside[j, k]`` that k goes on with the span of j, and ``kind_of[k]`` is the kind of span that
    label k is part of (−1: none). A path without the span therefore has a pair of neighbours, from
    the one into ``first`` to the one out of ``stop − 1``, that does not suit it; the best path
    through each such pair is known from the forward maxima and the best continuations.
    """
    inside, kind_of = scheme
    kind, first, stop = span[0], span[1], span[2]
    n_labels, best = kind_of.shape[0], -np.inf
    for t in range(first, min(stop + 1, scores.shape[0])):
        for k in range(n_labels):
            ahead = scores[t, k] + behind[t, k]
            if t == 0:
                if kind_of[k] != kind:
                    best = max(best, ahead)
                continue
            for j in range(n_labels):
                suits = inside[j, k]
                if t == first:
                    suits = not suits and kind_of[k] == kind
                elif t == stop:
                    suits = not suits
                if not suits:
                    best = max(best, forward[t - 1, j] + transitions[j, k] + ahead)
    return best
