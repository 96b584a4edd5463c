"""All planes of a sequence at once: each position at which any of them differs is visited once.

With few labels the weights of a position's features are summed in whole rows. With many, a row is
long and planes name only a handful of its labels: those weights are picked out one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, prefetch
from hingeline._simd import rows_add, rows_dot
from hingeline.structures.chain_problem import ChainProblem, transition

Array = np.ndarray[Any, Any]

#: Rows at least this long are not read as a whole.
LONG_ROW = 64


@helper
def _fetch_changes(problem: ChainProblem, lo: int, ys: Array, w: Array, differs: Array) -> None:
    """Mark the positions at which any plane differs from the truth, and send for their weights.

    These rows come from far away, and all of them are known before the first is needed.
    """
    m, length = ys.shape
    stride = problem.stride
    for t in range(length):
        some = False
        for j in range(m):
            some = some or ys[j, t] != problem.labels[lo + t]
        differs[t] = some
        if some:
            for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                first = problem.indices[p] * stride
                for k in range(0, stride, 8):
                    prefetch(w, first + k)


@helper
def _fetch_labels(
    problem: ChainProblem, lo: int, ys: Array, w: Array, named: Array, ends: Array
) -> None:
    """List the labels of each position at which planes differ, and send for their weights.

    ``named[: ends[0]]`` are those of the first position, and so on: the true label, then the
    others; none where all planes are right.
    """
    m, length = ys.shape
    stride = problem.stride
    count = 0
    for t in range(length):
        first = count
        named[first] = problem.labels[lo + t]
        count += 1
        for j in range(m):
            b = ys[j, t]
            p = first
            while p < count and named[p] != b:
                p += 1
            if p == count:
                named[count] = b
                count += 1
        if count == first + 1:
            count = first
        for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
            row = problem.indices[p] * stride
            for q in range(first, count):
                prefetch(w, row + named[q])
        ends[t] = count


@helper
def _score_labels(problem: ChainProblem, t: int, labels: Array, w: Array, row: Array) -> None:
    """``row[k] = Σ_f x_tf W[f, k]`` for the given labels."""
    stride = problem.stride
    for k in labels:
        row[k] = 0.0
    for p in range(problem.indptr[t], problem.indptr[t + 1]):
        first = problem.indices[p] * stride
        value = problem.values[p]
        for k in labels:
            row[k] += value * w[first + k]


@helper
def _collect(labels: Array, ys: Array, t: int, row: Array, A: Array, out: Array) -> None:
    """Add what position t and the move into it contribute to the score of every plane."""
    a = labels[t]
    for j in range(ys.shape[0]):
        b = ys[j, t]
        if b != a:
            out[j] += row[a] - row[b]
            if t > 0:
                out[j] += A[labels[t - 1], a] - A[ys[j, t - 1], b]
        elif t > 0 and ys[j, t - 1] != labels[t - 1]:
            out[j] += A[labels[t - 1], a] - A[ys[j, t - 1], b]


@helper
def _score_by_rows(problem: ChainProblem, lo: int, ys: Array, w: Array, out: Array) -> None:
    length = ys.shape[1]
    stride = problem.stride
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    row = np.empty(stride)
    differs = np.empty(length, dtype=np.bool_)
    _fetch_changes(problem, lo, ys, w, differs)
    for t in range(length):
        if not differs[t] and (t == 0 or not differs[t - 1]):
            continue
        if differs[t]:
            first, last = problem.indptr[lo + t], problem.indptr[lo + t + 1]
            rows_dot(problem.indices, problem.values, first, last, w, stride, row, 0)
        _collect(labels, ys, t, row, A, out)


@helper
def _score_by_labels(problem: ChainProblem, lo: int, ys: Array, w: Array, out: Array) -> None:
    m, length = ys.shape
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    row = np.empty(problem.stride)
    named = np.empty((m + 1) * length, dtype=np.int64)
    ends = np.empty(length, dtype=np.int64)
    _fetch_labels(problem, lo, ys, w, named, ends)
    first = 0
    differed = False
    for t in range(length):
        differs = ends[t] > first
        if differs:
            _score_labels(problem, lo + t, named[first : ends[t]], w, row)
        if differs or differed:
            _collect(labels, ys, t, row, A, out)
        differed = differs
        first = ends[t]


@helper
def planes_score(problem: ChainProblem, i: int, ys: Array, w: Array, out: Array) -> None:
    """``w·Δf`` of all planes."""
    lo = problem.offsets[i]
    m, length = ys.shape
    for j in range(m):
        out[j] = 0.0
    if problem.stride < LONG_ROW:
        _score_by_rows(problem, lo, ys, w, out)
    else:
        _score_by_labels(problem, lo, ys, w, out)
    if problem.boundary == 1:
        stride = problem.stride
        labels = problem.labels[lo : lo + length]
        at = (problem.n_features + problem.n_labels) * stride
        for j in range(m):
            out[j] += w[at + labels[0]] - w[at + ys[j, 0]]
            out[j] += w[at + stride + labels[length - 1]] - w[at + stride + ys[j, length - 1]]


@helper
def _add_labels(
    problem: ChainProblem,
    at: int,
    ys: Array,
    t: int,
    a: int,
    moved: Array,
    n_moved: int,
    change: Array,
    w: Array,
) -> None:
    """``W[f, k] += x_f·change[k]`` for token ``at``, k being a or a label of a plane that moves."""
    stride = problem.stride
    named = moved[n_moved:]
    named[0] = a
    count = 1
    for j in moved[:n_moved]:
        b = ys[j, t]
        p = 0
        while p < count and named[p] != b:
            p += 1
        if p == count:
            named[count] = b
            count += 1
    for p in range(problem.indptr[at], problem.indptr[at + 1]):
        row = problem.indices[p] * stride
        for q in range(count):
            w[row + named[q]] += problem.values[p] * change[named[q]]


@helper
def planes_add(problem: ChainProblem, i: int, ys: Array, steps: Array, w: Array) -> None:
    """``w += Σ_j steps_j·Δf(y_j)``: changes of one position are summed, then spread."""
    lo = problem.offsets[i]
    m, length = ys.shape
    stride = problem.stride
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    change = np.zeros(stride)
    moved = np.empty(2 * m + 1, dtype=np.int64)  # the planes that move, and room for labels
    count = 0
    for j in range(m):
        moved[count] = j
        count += 1 if steps[j] != 0.0 else 0
    for t in range(length):
        a = labels[t]
        some = False
        for p in range(count):
            j = moved[p]
            b = ys[j, t]
            if b != a:
                some = True
                change[a] += steps[j]
                change[b] -= steps[j]
            if t > 0 and (b != a or ys[j, t - 1] != labels[t - 1]):
                A[labels[t - 1], a] += steps[j]
                A[ys[j, t - 1], b] -= steps[j]
        if some:
            if stride < LONG_ROW:
                first, last = problem.indptr[lo + t], problem.indptr[lo + t + 1]
                rows_add(problem.indices, problem.values, first, last, change, w, stride)
            else:
                _add_labels(problem, lo + t, ys, t, a, moved, count, change, w)
            for p in range(count):
                change[ys[moved[p], t]] = 0.0
            change[a] = 0.0
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * stride
        for j in range(m):
            w[at + labels[0]] += steps[j]
            w[at + ys[j, 0]] -= steps[j]
            w[at + stride + labels[length - 1]] += steps[j]
            w[at + stride + ys[j, length - 1]] -= steps[j]
