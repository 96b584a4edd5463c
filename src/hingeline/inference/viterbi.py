"""Dynamic programs over chains: kernels on flat arrays, nothing about losses or slacks.

Label rows are padded to ``stride`` (a multiple of eight) so that every inner loop runs over
whole vectors: weights of one feature, or of one "from" label, are contiguous over labels. Only
forward maxima are stored; the winning predecessor is searched again on the way back, which
costs one row per position instead of a second select in the innermost loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, prefetch
from hingeline._simd import max_plus, rows_dot

Array = np.ndarray[Any, Any]


@helper
def gather_rows(
    indptr: Array, indices: Array, values: Array, lo: int, hi: int, W: Array, out: Array
) -> None:
    """``out[t] = Σ_f x_tf W[f]`` for the CSR rows ``lo ≤ t < hi``."""
    stride = W.shape[1]
    flat = W.reshape(W.size)
    sums = out.reshape(out.size)
    for t in range(lo, hi):
        if t + 1 < hi:  # rows of rare features come from far away: ask for them a token ahead
            for p in range(indptr[t + 1], indptr[t + 2]):
                first = indices[p] * stride
                for k in range(0, stride, 8):
                    prefetch(flat, first + k)
        rows_dot(indices, values, indptr[t], indptr[t + 1], flat, stride, sums, (t - lo) * stride)


@helper
def max_sum(scores: Array, transitions: Array, n_labels: int, y_out: Array) -> float:
    """Best path through ``scores`` (T, stride), which becomes the table of forward maxima."""
    length = scores.shape[0]
    stride = scores.shape[1]
    flat = scores.reshape(scores.size)
    table = transitions.reshape(transitions.size)
    for t in range(1, length):
        max_plus(flat, (t - 1) * stride, table, n_labels, stride, flat, t * stride)
    last = 0
    for k in range(1, n_labels):
        if scores[length - 1, k] > scores[length - 1, last]:
            last = k
    value = scores[length - 1, last]
    y_out[length - 1] = last
    for t in range(length - 1, 0, -1):
        k = y_out[t]
        arg = 0
        top = scores[t - 1, 0] + transitions[0, k]
        for j in range(1, n_labels):
            s = scores[t - 1, j] + transitions[j, k]
            if s > top:
                top = s
                arg = j
        y_out[t - 1] = arg
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
    length = scores.shape[0]
    stride = scores.shape[1]
    table = np.full((length, length + 1, stride), -np.inf)
    for k in range(n_labels):
        e = 0 if k == y_true[0] else 1
        table[0, e, k] = scores[0, k]
    reach = np.empty(stride)
    for t in range(1, length):
        truth = y_true[t]
        for e in range(t + 1):
            before = table[t - 1, e]
            for k in range(stride):
                reach[k] = -np.inf
            for j in range(n_labels):
                s = before[j]
                row = transitions[j]
                for k in range(stride):
                    reach[k] = max(reach[k], s + row[k])
            wrong = table[t, e + 1]
            for k in range(n_labels):
                wrong[k] = max(wrong[k], reach[k] + scores[t, k])
            # The true label makes no error: it belongs one level lower.
            table[t, e, truth] = reach[truth] + scores[t, truth]
        # Level e+1 of the true label was overwritten when it was reached as "wrong" at level e;
        # restore the topmost one, which no level of its own rewrites.
        table[t, t + 1, truth] = -np.inf
    for errors in range(length + 1):
        last = 0
        for k in range(1, n_labels):
            if table[length - 1, errors, k] > table[length - 1, errors, last]:
                last = k
        best[errors] = table[length - 1, errors, last]
        if best[errors] == -np.inf:
            continue
        ys[errors, length - 1] = last
        e = errors
        for t in range(length - 1, 0, -1):
            k = ys[errors, t]
            if k != y_true[t]:
                e -= 1
            arg = 0
            top = table[t - 1, e, 0] + transitions[0, k]
            for j in range(1, n_labels):
                s = table[t - 1, e, j] + transitions[j, k]
                if s > top:
                    top = s
                    arg = j
            ys[errors, t - 1] = arg


@helper
def max_marginals(scores: Array, transitions: Array, n_labels: int, out: Array) -> None:
    """``out[t, k]``: value of the best path that has label k at position t."""
    length = scores.shape[0]
    for k in range(n_labels):
        out[0, k] = scores[0, k]
    for t in range(1, length):
        for k in range(n_labels):
            best = -np.inf
            for j in range(n_labels):
                best = max(best, out[t - 1, j] + transitions[j, k])
            out[t, k] = best + scores[t, k]
    after = np.zeros(n_labels)  # best continuation behind each label
    reach = np.empty(n_labels)
    for t in range(length - 2, -1, -1):
        for k in range(n_labels):
            reach[k] = after[k] + scores[t + 1, k]
        for j in range(n_labels):
            best = -np.inf
            for k in range(n_labels):
                best = max(best, transitions[j, k] + reach[k])
            after[j] = best
            out[t, j] += best
