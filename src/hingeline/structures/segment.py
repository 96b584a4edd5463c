"""Segments: sequences cut into labelled pieces, with weights for tokens, pieces and moves.

An output is a segmentation: pieces of at most ``max_length[k]`` tokens of label k that cover the
sequence. With tokens ``x_1 … x_T`` and segments ``(s_j, t_j, k_j)``, both ends included::

    w·f(x, y) = Σ_j  Σ_{s_j ≤ r ≤ t_j} x_r·E[k_j] + x_{s_j}·F[k_j] + x_{t_j}·G[k_j]
                   + N[bucket(t_j − s_j + 1), k_j] + Σ_{features q of (s_j, t_j)} S[q, k_j]
                   + A[k_{j−1}, k_j]                      (a[k_1] first, b[k_J] last)

Labels whose segments have one token have no F and G. The flat weight vector holds the *token* table
(one row per feature: E, F and G of all labels), then the *tail*: N, S, A, a, b, rows of labels
padded to ``stride``. How outputs are numbers, one per token, is said in
:mod:`hingeline.inference.segments`.

The loss is the number of tokens whose IOB2 tag is wrong (of label or beginning), or of spans missed
plus spans invented; ``weight[k]`` multiplies what a true token, or a span, of label k counts. A
span is a segment of any label but ``outside``. As a sum over segments, the latter is a constant,
the true spans, plus 1 for each predicted span, minus 2 where it is true.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_reference, helper, kernel
from hingeline._simd import list_some, rows_add, rows_dot
from hingeline.core.primitives import (
    Compiled,
    Layout,
    lay_out_tokens,
    list_differences,
    pad_row,
    register,
    rows_sqdist,
    stack_blocks,
)
from hingeline.inference.chain import gather_rows
from hingeline.inference.segments import (
    SegmentScores,
    best_segments,
    n_best_segments,
    read_label,
    read_length,
    read_place,
)
from hingeline.structures.chain import stretch

ROLES = 3  # Any token of a segment, its first, its last.


@by_reference
class SegmentProblem(NamedTuple):
    """Sequences as one CSR matrix of tokens, and features of their possible segments."""

    indptr: Array  # (tokens + 1,) int64
    indices: Array  # int32
    values: Array  # float64 or float32
    offsets: Array  # (n + 1,) int64: the tokens of sequence i
    labels: Array  # (tokens,) int32: the true segmentations
    segment_ptr: Array  # (tokens + 1,) int64: features of segments that end at a token,
    segment_length: Array  # int32: by length, rising,
    segment_feature: Array  # int32
    max_length: Array  # (labels,) int64
    bucket: Array  # (longest,) int64: the row of N for a length less one
    weight: Array  # (labels,) float64: of an error in the loss
    token_gram: Array  # NaN where not yet computed
    gram_row: Array  # (tokens,) int64: ``x_s·x_t`` is at ``gram_row[s] + t``; −1: s has no row
    n_features: int
    n_segment_features: int
    n_labels: int
    stride: int
    bits: int  # of a length in an output
    outside: int  # label of what is no span; −1 if there is none
    by_span: int  # 1 if the loss counts spans
    boundary: int  # 1 if there are start and end weights


def buckets(longest: int) -> Array:
    """Rows of length weights for the lengths from 1 on: 1, 2, 3, 4, 5–6, 7–8, 9–12, 13–16, …"""
    below = np.arange(longest)
    power = np.floor(np.log2(np.maximum(below, 1))).astype(np.int64)
    half = (below >> np.maximum(power - 1, 0)) & 1
    return np.where(below < 2, below, 2 * power + half)


def layout(
    n_features: int,
    n_labels: int,
    *,
    longest: int,
    n_segment_features: int = 0,
    constant: bool = False,
    boundary: bool = True,
) -> Layout:
    """Where the weights lie; ``constant`` puts a constant feature behind those of tokens."""
    columns = ROLES * n_labels
    tokens = {"token": n_features, **({"intercept": 1} if constant else {})}
    found = stack_blocks(tokens, columns, pad_row(columns))
    tail = {
        "length": int(buckets(longest)[-1]) + 1,
        **({"segment": n_segment_features} if n_segment_features else {}),
        "transition": n_labels,
        **({"start": 1, "end": 1} if boundary else {}),
    }
    return stack_blocks(tail, n_labels, pad_row(n_labels), found)


def layout_of(problem: SegmentProblem) -> Layout:
    """Where the weights of a problem lie, a constant feature among the others."""
    return layout(
        problem.n_features,
        problem.n_labels,
        longest=len(problem.bucket),
        n_segment_features=problem.n_segment_features,
        boundary=bool(problem.boundary),
    )


def compile_problem(problem: SegmentProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    size = layout_of(problem).size
    tail = size - problem.n_features * pad_row(ROLES * problem.n_labels)
    return Compiled(
        problem,
        lengths=np.diff(problem.offsets),
        n_weights=size,
        scratch_size=int(tail + problem.n_features),
        end=problem.n_labels << 2 * problem.bits,
        stretch=stretch,
        truths=problem.labels,
        breakable=False,
    )


def number_segments(
    first: Array, stop: Array, kind: Array, n_tokens: int, outside: int, bits: int
) -> Array:
    """The segmentation of stacked tokens that has these spans, and single tokens outside them."""
    y = np.full(n_tokens, max(outside, 0) << (2 * bits), dtype=np.int32)
    length = stop - first
    place = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    code = (kind << (2 * bits)) | ((length - 1) << bits)
    y[np.repeat(first, length) + place] = np.repeat(code, length) | place
    return y


def list_spans(y: Array, outside: int, bits: int) -> tuple[Array, Array, Array]:
    """First token, token after the last, and label of every span of a segmentation."""
    kind = read_label(y, bits)
    first = np.flatnonzero((read_place(y, bits) == 0) & (kind != outside))
    return first, first + read_length(y[first], bits), kind[first]


def make_problem(
    indptr: Array,
    indices: Array,
    values: Array,
    offsets: Array,
    labels: Array,
    n_features: int,
    max_length: Array,
    bits: int,
    *,
    segments: tuple[Array, Array, Array],
    n_segment_features: int,
    weight: Array,
    outside: int,
    by_span: bool,
    boundary: bool,
    cache_mb: float = 512.0,
) -> SegmentProblem:
    """Lay out sequences for the kernels; ``segments`` are offsets, lengths and features."""
    return SegmentProblem(
        **lay_out_tokens(indptr, indices, values, offsets, labels, cache_mb),
        segment_ptr=np.ascontiguousarray(segments[0], dtype=np.int64),
        segment_length=np.ascontiguousarray(segments[1], dtype=np.int32),
        segment_feature=np.ascontiguousarray(segments[2], dtype=np.int32),
        max_length=np.ascontiguousarray(max_length, dtype=np.int64),
        bucket=buckets(int(np.max(max_length))),
        weight=np.ascontiguousarray(weight, dtype=np.float64),
        n_features=int(n_features),
        n_segment_features=int(n_segment_features),
        n_labels=len(max_length),
        stride=pad_row(len(max_length)),
        bits=int(bits),
        outside=int(outside),
        by_span=int(by_span),
        boundary=int(boundary),
    )


@helper
def _tail(problem: SegmentProblem, w: Array) -> Array:
    """The weights behind those of tokens, a view."""
    return w[problem.n_features * pad_row(ROLES * problem.n_labels) :]


@helper
def _moves_at(problem: SegmentProblem) -> int:
    """Where the weights of moves begin in the tail."""
    n_buckets = problem.bucket[problem.bucket.shape[0] - 1] + 1
    return (n_buckets + problem.n_segment_features) * problem.stride


# What an output has at one token: columns of the token table, and places in the tail.


@helper
def _has_role(problem: SegmentProblem, code: int, role: int) -> bool:
    """Whether a token is one of its segment's (0), its first (1), its last (2)."""
    if role == 0:
        return True
    if problem.max_length[read_label(code, problem.bits)] == 1:
        return False
    place = read_place(code, problem.bits)
    return place == 0 if role == 1 else place + 1 == read_length(code, problem.bits)


@helper
def has_column(problem: SegmentProblem, code: int, column: int) -> bool:
    role, k = divmod(column, problem.n_labels)
    return k == read_label(code, problem.bits) and _has_role(problem, code, role)


@helper
def count_shared(problem: SegmentProblem, a: int, b: int) -> int:
    count = 0
    if read_label(a, problem.bits) == read_label(b, problem.bits):
        for role in range(ROLES):
            count += int(_has_role(problem, a, role) and _has_role(problem, b, role))
    return count


@helper
def _columns(problem: SegmentProblem, code: int, out: Array) -> int:
    """Write the columns of the token table that count for a token; how many they are."""
    count = 0
    for role in range(ROLES):
        if _has_role(problem, code, role):
            out[count] = role * problem.n_labels + read_label(code, problem.bits)
            count += 1
    return count


@helper
def _most_places(problem: SegmentProblem, i: int, length: int) -> int:
    """How many places a segment of sequence i can have, at most."""
    most = 0
    for t in range(problem.offsets[i], problem.offsets[i] + length):
        most = max(most, problem.segment_ptr[t + 1] - problem.segment_ptr[t])
    return most + 4


@helper
def _places(problem: SegmentProblem, i: int, y: Array, t: int, whole: bool, out: Array) -> int:
    """Write the places of the segment that begins at token t, or of the move into it alone."""
    bits, stride = problem.bits, problem.stride
    if read_place(y[t], bits) != 0:
        return 0
    k = read_label(y[t], bits)
    moves = _moves_at(problem)
    ends = moves + problem.n_labels * stride
    count = 0
    if t > 0:
        out[0] = moves + read_label(y[t - 1], bits) * stride + k
        count = 1
    elif problem.boundary == 1:
        out[0] = ends + k
        count = 1
    if not whole:
        return count
    length = read_length(y[t], bits)
    out[count] = problem.bucket[length - 1] * stride + k
    count += 1
    if problem.n_segment_features > 0:
        end = problem.offsets[i] + t + length - 1
        first = (problem.bucket[problem.bucket.shape[0] - 1] + 1) * stride
        for p in range(problem.segment_ptr[end], problem.segment_ptr[end + 1]):
            if problem.segment_length[p] == length:
                out[count] = first + np.int64(problem.segment_feature[p]) * stride + k
                count += 1
    if problem.boundary == 1 and t + length == y.shape[0]:
        out[count] = ends + stride + k
        count += 1
    return count


@helper
def _changes(y: Array, z: Array, t: int) -> int:
    """What two outputs differ in at token t: 2 the segments, 1 at most the moves into them."""
    if y[t] != z[t]:
        return 2
    return 1 if t > 0 and y[t - 1] != z[t - 1] else 0


@helper
def _follow_tail(
    problem: SegmentProblem, i: int, y: Array, z: Array, step: float, places: Array, tail: Array
) -> float:
    """Add ``step`` times what y has in the tail, less what z has; without a step their score."""
    total = 0.0
    for t in range(y.shape[0]):
        changes = _changes(y, z, t)
        for side in range(2 if changes > 0 else 0):
            given, sign = (y, 1.0) if side == 0 else (z, -1.0)
            for p in range(_places(problem, i, given, t, changes == 2, places)):
                if step == 0.0:
                    total += sign * tail[places[p]]
                else:
                    tail[places[p]] += sign * step
    return total


@helper
def planes_score(problem: SegmentProblem, i: int, ys: Array, w: Array, out: Array) -> None:
    """``w·Δf`` of all planes: the weights of a token's features are summed once for all."""
    lo, size = problem.offsets[i], pad_row(ROLES * problem.n_labels)
    m, length = ys.shape
    gold = problem.labels[lo : lo + length]
    places = np.empty(_most_places(problem, i, length), dtype=np.int64)
    columns = np.empty(ROLES, dtype=np.int64)
    row = np.empty(size)
    tail = _tail(problem, w)
    for j in range(m):
        out[j] = _follow_tail(problem, i, gold, ys[j], 0.0, places, tail)
    for t in range(length):
        known = False
        true = 0.0
        for j in range(m):
            if ys[j, t] == gold[t]:
                continue
            if not known:
                known = True
                first, last = problem.indptr[lo + t], problem.indptr[lo + t + 1]
                rows_dot(problem.indices, problem.values, first, last, w, size, row, 0)
                for c in range(_columns(problem, gold[t], columns)):
                    true += row[columns[c]]
            out[j] += true
            for c in range(_columns(problem, ys[j, t], columns)):
                out[j] -= row[columns[c]]


@helper
def planes_add(problem: SegmentProblem, i: int, ys: Array, steps: Array, w: Array) -> None:
    """``w += Σ_j steps_j·Δf(y_j)``: changes of one token are summed, then spread."""
    lo, size = problem.offsets[i], pad_row(ROLES * problem.n_labels)
    m, length = ys.shape
    gold = problem.labels[lo : lo + length]
    places = np.empty(_most_places(problem, i, length), dtype=np.int64)
    columns = np.empty(ROLES, dtype=np.int64)
    change = np.zeros(size)
    moved = np.empty(m, dtype=np.int64)  # the planes that move
    count = list_some(steps, moved)
    tail = _tail(problem, w)
    for p in range(count):
        _follow_tail(problem, i, gold, ys[moved[p]], steps[moved[p]], places, tail)
    for t in range(length):
        some = False
        for p in range(count):
            j = moved[p]
            if ys[j, t] == gold[t]:
                continue
            some = True
            for c in range(_columns(problem, gold[t], columns)):
                change[columns[c]] += steps[j]
            for c in range(_columns(problem, ys[j, t], columns)):
                change[columns[c]] -= steps[j]
        if some:
            first, last = problem.indptr[lo + t], problem.indptr[lo + t + 1]
            rows_add(problem.indices, problem.values, first, last, change, w, size)
            for k in range(size):
                change[k] = 0.0


@helper
def plane_sqdist(problem: SegmentProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    length = y.shape[0]
    where = list_differences(y, z)
    total = rows_sqdist(problem, i, y, z, where, ROLES * problem.n_labels, scratch)
    places = np.empty(_most_places(problem, i, length), dtype=np.int64)
    tail = scratch[problem.n_features :]
    _follow_tail(problem, i, y, z, 1.0, places, tail)
    for t in range(length):
        changes = _changes(y, z, t)
        if changes > 0:
            for side in range(2):
                given = y if side == 0 else z
                for p in range(_places(problem, i, given, t, changes == 2, places)):
                    total += tail[places[p]] * tail[places[p]]
                    tail[places[p]] = 0.0
    return total


# Losses and decoding.


@helper
def plane_loss(problem: SegmentProblem, i: int, y: Array) -> float:
    bits = problem.bits
    gold = problem.labels[problem.offsets[i] :]
    total = 0.0
    for t in range(y.shape[0]):
        if y[t] == gold[t]:
            continue
        a, b = read_label(gold[t], bits), read_label(y[t], bits)
        begins, begun = read_place(gold[t], bits) == 0, read_place(y[t], bits) == 0
        if problem.by_span == 0:
            total += problem.weight[a] if a != b or begins != begun else 0.0
        else:
            total += problem.weight[a] if begins and a != problem.outside else 0.0
            total += problem.weight[b] if begun and b != problem.outside else 0.0
    return total


@helper
def _add_loss(problem: SegmentProblem, i: int, scale: float, inside: Array, first: Array) -> float:
    """Add the loss of tokens, or of spans without the true ones; the constant that is left."""
    bits = problem.bits
    constant = 0.0
    for t in range(inside.shape[0]):
        code = problem.labels[problem.offsets[i] + t]
        true = read_label(code, bits)
        begins = read_place(code, bits) == 0
        cost = scale * problem.weight[true]
        if problem.by_span == 0:
            for k in range(problem.n_labels):
                inside[t, k] += cost
            inside[t, true] -= 0.0 if begins else cost
            first[t, true] += -cost if begins else cost
        else:
            for k in range(problem.n_labels):
                first[t, k] += 0.0 if k == problem.outside else scale * problem.weight[k]
            constant += cost if begins and true != problem.outside else 0.0
    return constant


@helper
def _list_extras(
    problem: SegmentProblem, i: int, tail: Array, scale: float
) -> tuple[Array, Array, Array]:
    """Scores of single segments, by their last token and length: their features, and their loss."""
    lo, hi = problem.offsets[i], problem.offsets[i + 1]
    stride, bits = problem.stride, problem.bits
    first = (problem.bucket[problem.bucket.shape[0] - 1] + 1) * stride
    counts_spans = problem.by_span == 1 and scale != 0.0
    room = problem.segment_ptr[hi] - problem.segment_ptr[lo] + (hi - lo if counts_spans else 0)
    ends = np.zeros(hi - lo + 1, dtype=np.int64)
    lengths = np.empty(room, dtype=np.int64)
    extra = np.zeros((room, stride))
    n = 0
    for t in range(lo, hi):
        true = -1  # length of the true span that ends here
        code = problem.labels[t]
        k = read_label(code, bits)
        if counts_spans and k != problem.outside:
            length = read_length(code, bits)
            true = length if read_place(code, bits) + 1 == length else -1
        p, stop = problem.segment_ptr[t], problem.segment_ptr[t + 1]
        while p < stop or true > 0:
            length = problem.segment_length[p] if p < stop else true
            length = min(length, true) if true > 0 else length
            lengths[n] = length - 1
            while p < stop and problem.segment_length[p] == length:
                at = first + np.int64(problem.segment_feature[p]) * stride
                for c in range(stride):
                    extra[n, c] += tail[at + c]
                p += 1
            if length == true:
                extra[n, k] -= 2.0 * scale * problem.weight[k]
                true = -1
            n += 1
        ends[t - lo + 1] = n
    return ends, lengths, extra


@helper
def score_segments(
    problem: SegmentProblem, i: int, w: Array, loss_scale: float
) -> tuple[SegmentScores, float]:
    """The scores of all segments of sequence i with the scaled loss, and what is left of that."""
    lo, hi = problem.offsets[i], problem.offsets[i + 1]
    m, stride, size = problem.n_labels, problem.stride, pad_row(ROLES * problem.n_labels)
    length = hi - lo
    rows = np.empty((length, size))
    gather_rows(problem.indptr, problem.indices, problem.values, lo, hi, w, rows)
    inside = np.zeros((length, stride))
    first = np.zeros((length, stride))
    last = np.zeros((length, stride))
    for t in range(length):
        for k in range(m):
            inside[t, k] = rows[t, k]
            first[t, k] = rows[t, m + k]
            last[t, k] = rows[t, 2 * m + k]
    tail = _tail(problem, w)
    at = _moves_at(problem)
    moves = tail[at : at + m * stride].reshape((m, stride))
    if problem.boundary == 1:
        for k in range(m):
            first[0, k] += tail[at + m * stride + k]
            last[length - 1, k] += tail[at + (m + 1) * stride + k]
    constant = 0.0
    if loss_scale != 0.0:
        constant = _add_loss(problem, i, loss_scale, inside, first)
    lengths = np.full((min(length, problem.bucket.shape[0]), stride), -np.inf)
    for d in range(lengths.shape[0]):
        for k in range(m):
            if d < problem.max_length[k]:
                lengths[d, k] = tail[problem.bucket[d] * stride + k]
    ends, extra_length, extra = _list_extras(problem, i, tail, loss_scale)
    scores = SegmentScores(inside, first, last, lengths, ends, extra_length, extra, moves, m)
    return scores, constant


@helper
def decode(problem: SegmentProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    scores, constant = score_segments(problem, i, w, loss_scale)
    return best_segments(scores, problem.bits, y_out) + constant


@helper
def decode_best(problem: SegmentProblem, i: int, w: Array, loss_scale: float, ys: Array) -> int:
    scores, _ = score_segments(problem, i, w, loss_scale)
    return n_best_segments(scores, problem.bits, ys, np.empty(ys.shape[0]))


register(SegmentProblem, vars())


@kernel
def decode_all(problem: Any, order: Array, w: Array, y_out: Array) -> None:
    """The best segmentation of every sequence."""
    for i in order:
        decode(problem, i, w, 0.0, y_out[problem.offsets[i] : problem.offsets[i + 1]])


@kernel
def n_best_all(
    problem: Any, order: Array, w: Array, paths: Array, values: Array, counts: Array
) -> None:
    """The n best segmentations of every sequence, n being the width of ``values``.

    Those of sequence i stand in ``paths[n·offsets[i] : n·offsets[i + 1]]``, one after another.
    """
    n = values.shape[1]
    for i in order:
        lo, hi = problem.offsets[i], problem.offsets[i + 1]
        ys = paths[n * lo : n * hi].reshape((n, hi - lo))
        scores, _ = score_segments(problem, i, w, 0.0)
        counts[i] = n_best_segments(scores, problem.bits, ys, values[i])
