"""Dynamic programs over segmentations: a sequence cut into labelled segments (semi-Markov).

With ``g(s, t, k)`` the score of a segment of label k from token s to token t, both included::

    g(s, t, k) = first[s, k] + Σ_{s ≤ r ≤ t} inside[r, k] + last[t, k] + lengths[t−s, k] + extra

the value of the best segmentation of the tokens up to t whose last segment has label k is::

    value[t, k] = max_s reach[s, k] + g(s, t, k),     reach[s, k] = max_j value[s−1, j] + A[j, k]

The move into a segment is maximised once for each start, not once for each segment, and the sum
over tokens grows by one term as s goes back: O(T·longest·labels + T·labels²). Only these tables
are stored; the winning length and predecessor are searched again on the way back.

An output has one number per token, which tells the whole segment around it: its label, its length
and the token's place in it. Two outputs have the same number at a token where they have the same
segment there. The numbers are ``(label << 2·bits) | (length − 1) << bits | place``.

S. Sarawagi and W. Cohen, *Semi-Markov conditional random fields* (2004).
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline._simd import Block, by_columns, copy, largest, max_plus
from hingeline.inference.chain import drop_cell, find_predecessor, keep_cell


class SegmentScores(NamedTuple):
    """What the segments of a sequence score; rows of labels are ``stride`` long."""

    inside: Array  # (T, stride): a label at a token
    first: Array  # (T, stride): beside it, where a segment begins; weights of a start among it
    last: Array  # (T, stride): where a segment ends
    lengths: Array  # (longest, stride): a segment of this length less one, −inf if that is too long
    ends: Array  # (T + 1,): where the extras of segments that end at a token begin
    extra_length: Array  # (extras,): lengths less one, rising for each end
    extra: Array  # (extras, stride)
    moves: Array  # (labels, stride): A[from, to]
    n_labels: int


@helper
def read_label(code: Any, bits: int) -> Any:
    """The label of the segment around a token."""
    return code >> (2 * bits)


@helper
def read_length(code: Any, bits: int) -> Any:
    """The tokens of the segment."""
    return ((code >> bits) & ((1 << bits) - 1)) + 1


@helper
def read_place(code: Any, bits: int) -> Any:
    """The tokens of the segment before this one."""
    return code & ((1 << bits) - 1)


@helper
def write_segment(y: Array, start: int, length: int, label: int, bits: int) -> None:
    """Number the tokens of one segment."""
    code = (label << (2 * bits)) | ((length - 1) << bits)
    for p in range(length):
        y[start + p] = code | p


@by_columns
def _max_ending(block: Block, first: Any, stride: Any, *arguments: Any) -> None:
    inside, reach, at, lengths, row, lo, hi, total, best = arguments
    builder = block.builder
    sums, tops = (block.pointer(array, first) for array in (total, best))

    def body(d: Any, state: list[Any]) -> list[Any]:
        here = builder.add(builder.sub(at, builder.mul(d, stride)), first)
        so_far = block.add(state[0], block.load(block.pointer(inside, here)))
        move = block.load(block.row(lengths, builder.sub(d, row), stride, first))
        score = block.add(block.add(so_far, block.load(block.pointer(reach, here))), move)
        return [so_far, block.greater(score, state[1])]

    _, (so_far, top) = block.loop(lo, hi, 1, [block.load(sums), block.load(tops)], body)
    builder.store(so_far, sums, align=8)
    builder.store(top, tops, align=8)


@helper
def max_segments(
    inside: Array,
    reach: Array,
    at: int,
    lengths: Array,
    row: int,
    lo: int,
    hi: int,
    stride: int,
    total: Array,
    best: Array,
) -> None:
    """Segments that end in the row at ``at`` and go back d rows, for ``lo ≤ d < hi``.

    ``total[k] += inside[at − d·stride + k]``, then ``best[k]`` is at least
    ``total[k] + reach[at − d·stride + k] + lengths[(d − row)·stride + k]``.
    """
    done = _max_ending(stride, inside, reach, at, lengths, row, lo, hi, total, best)
    for k in range(done, stride):
        for d in range(lo, hi):
            here = at - d * stride + k
            total[k] += inside[here]
            best[k] = max(best[k], total[k] + reach[here] + lengths[(d - row) * stride + k])


@helper
def fill_tables(scores: SegmentScores, reach: Array, value: Array) -> None:
    """Write ``reach`` with the score of a first token added, and ``value``, both (T, stride)."""
    length, stride = scores.inside.shape
    longest = scores.lengths.shape[0]
    inside = scores.inside.reshape(scores.inside.size)
    lengths = scores.lengths.reshape(scores.lengths.size)
    moves = scores.moves.reshape(scores.moves.size)
    reached = reach.reshape(reach.size)
    values = value.reshape(value.size)
    total = np.empty(stride)
    best = np.empty(stride)
    row = np.empty(stride)
    for t in range(length):
        at = t * stride
        copy(scores.first[t], reach[t])
        if t > 0:
            max_plus(values, at - stride, moves, scores.n_labels, stride, reached, at)
        for k in range(stride):
            total[k] = 0.0
            best[k] = -np.inf
        done = 0
        for p in range(scores.ends[t], scores.ends[t + 1]):
            d = scores.extra_length[p]
            max_segments(inside, reached, at, lengths, 0, done, d, stride, total, best)
            for k in range(stride):
                row[k] = scores.lengths[d, k] + scores.extra[p, k]
            max_segments(inside, reached, at, row, d, d, d + 1, stride, total, best)
            done = d + 1
        most = min(longest, t + 1)
        max_segments(inside, reached, at, lengths, 0, done, most, stride, total, best)
        for k in range(stride):
            value[t, k] = best[k] + scores.last[t, k]


@helper
def find_length(scores: SegmentScores, reach: Array, t: int, k: int) -> int:
    """The length of the best segment of label k that ends at token t."""
    best = -np.inf
    total = 0.0
    arg = 1
    p = scores.ends[t]
    for d in range(min(scores.lengths.shape[0], t + 1)):
        total += scores.inside[t - d, k]
        score = reach[t - d, k] + total + scores.lengths[d, k]
        if p < scores.ends[t + 1] and scores.extra_length[p] == d:
            score += scores.extra[p, k]
            p += 1
        if score > best:
            best = score
            arg = d + 1
    return arg


@helper
def _walk_back(
    scores: SegmentScores, reach: Array, value: Array, t: int, k: int, bits: int, y: Array
) -> None:
    """Write the best segments up to token t, the last of them of label k."""
    while t >= 0:
        length = find_length(scores, reach, t, k)
        write_segment(y, t - length + 1, length, k, bits)
        t -= length
        if t >= 0:
            k = find_predecessor(value, t, scores.moves, scores.n_labels, k)


@helper
def best_segments(scores: SegmentScores, bits: int, y: Array) -> float:
    """The best segmentation, and its value."""
    length, stride = scores.inside.shape
    reach = np.empty((length, stride))
    value = np.empty((length, stride))
    fill_tables(scores, reach, value)
    k = largest(value.reshape(value.size), (length - 1) * stride, scores.n_labels)
    _walk_back(scores, reach, value, length - 1, k, bits, y)
    return value[length - 1, k]


# The n best segmentations, by Lawler's partition as for chains: all but the best one are told apart
# by the last segment in which they leave it. One pass over the table for each.


@helper
def n_best_segments(scores: SegmentScores, bits: int, ys: Array, values: Array) -> int:
    """Write the best segmentations to ``ys`` (n, T) and ``values`` (n,); return how many.

    The first is that of :func:`best_segments`; among equals the one whose cell was opened first
    goes first.
    """
    n = ys.shape[0]
    length, stride = scores.inside.shape
    reach = np.empty((length, stride))
    value = np.empty((length, stride))
    total = np.empty(stride)
    fill_tables(scores, reach, value)
    last = largest(value.reshape(value.size), (length - 1) * stride, scores.n_labels)
    _walk_back(scores, reach, value, length - 1, last, bits, ys[0])
    values[0] = value[length - 1, last]
    if values[0] == -np.inf:
        return 0
    cell_value = np.empty(n)  # of cells not taken yet, best first
    cells = np.empty((n, 4), dtype=np.int64)  # path, last token of a segment, its label, its length
    count = 0
    split = length  # segments that end before this token are still free in the newest path
    for newest in range(n - 1):
        y = ys[newest]
        best = cell_value[: n - 1 - newest]
        behind = 0.0  # what the segments after t score, with the moves between them
        follower = -1
        t = length - 1
        while t >= 0:
            own = read_label(y[t], bits)
            own_length = read_length(y[t], bits)
            score = 0.0  # of the own segment
            for k in range(stride):
                total[k] = 0.0
            p = scores.ends[t]
            for d in range(min(scores.lengths.shape[0], t + 1)):
                has_extra = p < scores.ends[t + 1] and scores.extra_length[p] == d
                for k in range(scores.n_labels):
                    total[k] += scores.inside[t - d, k]
                    ahead = total[k] + scores.lengths[d, k] + scores.last[t, k] + behind
                    if has_extra:
                        ahead += scores.extra[p, k]
                    if follower >= 0:
                        ahead += scores.moves[k, follower]
                    if k == own and d + 1 == own_length:
                        score = ahead + scores.first[t - d, k]
                    elif t < split:
                        whole = min(reach[t - d, k] + ahead, values[newest])
                        if whole > -np.inf:
                            count = keep_cell(cells, best, count, whole, (newest, t, k, d + 1))
                p += 1 if has_extra else 0
            behind = score
            follower = own
            t -= own_length
        if count == 0:
            return newest + 1
        end, label, size = cells[0, 1], cells[0, 2], cells[0, 3]
        split = end - size + 1
        taken = ys[newest + 1]
        copy(ys[cells[0, 0]], taken)
        write_segment(taken, split, size, label, bits)
        if split > 0:
            before = find_predecessor(value, split - 1, scores.moves, scores.n_labels, label)
            _walk_back(scores, reach, value, split - 1, before, bits, taken)
        values[newest + 1] = cell_value[0]
        count = drop_cell(cells, cell_value, count)
    return n
