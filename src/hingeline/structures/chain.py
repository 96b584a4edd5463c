"""Chains: sequences with emission, transition and boundary weights.

An output is one label per position. With tokens ``x_1 … x_T`` and labels ``y_1 … y_T``::

    w·f(x, y) = Σ_t x_t·E[y_t] + Σ_{t>1} A[y_{t−1}, y_t] + a[y_1] + b[y_T]

The flat weight vector holds E feature-major (``E[feature, label]``, rows padded to ``stride``),
then A, then the start weights a and the end weights b. The loss is a sum over positions of
``cost[true label, predicted label]`` (Hamming: 0 on the diagonal, 1 elsewhere).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.nbest import n_best
from hingeline.inference.pruned import MANY_LABELS, best_moves, best_path
from hingeline.inference.viterbi import gather_rows, max_sum, max_sum_by_errors
from hingeline.structures.base import register
from hingeline.structures.chain_distance import plane_sqdist
from hingeline.structures.chain_planes import planes_add, planes_score
from hingeline.structures.chain_problem import (
    GRAM_LENGTH,
    ChainProblem,
    compile_problem,
    constrain,
    emission,
    make_problem,
    padded,
    transition,
)

__all__ = [
    "GRAM_LENGTH",
    "ChainProblem",
    "compile_problem",
    "constrain",
    "make_problem",
    "padded",
    "plane_sqdist",
    "planes_add",
    "planes_score",
]

Array = np.ndarray[Any, Any]


@helper
def moves(problem: ChainProblem, w: Array) -> Array:
    """Transition weights, ``−inf`` where a move is forbidden: a view, or a copy with the mask."""
    A = transition(problem, w)
    if problem.move_mask.shape[0] == 0:
        return A
    masked = np.empty((problem.n_labels, problem.stride))
    for j in range(problem.n_labels):
        for k in range(problem.stride):
            masked[j, k] = A[j, k] + problem.move_mask[j, k]
    return masked


@helper
def _forbid_labels(problem: ChainProblem, i: int, scores: Array) -> None:
    """``−inf`` for labels that may not be first, last, or where they are."""
    lo = problem.offsets[i]
    length, stride = scores.shape
    if problem.end_masks.shape[0] > 0:
        for k in range(stride):
            scores[0, k] += problem.end_masks[0, k]
            scores[length - 1, k] += problem.end_masks[1, k]
    if problem.token_mask.shape[0] > 0:
        for t in range(length):
            row = problem.token_mask[lo + t]
            for k in range(stride):
                scores[t, k] += row[k]


@helper
def position_scores(problem: ChainProblem, i: int, w: Array, loss_scale: float) -> Array:
    """(T, stride) emission scores with boundary weights, masks and the scaled loss added."""
    lo = problem.offsets[i]
    hi = problem.offsets[i + 1]
    stride = problem.stride
    scores = np.empty((hi - lo, stride))
    gather_rows(
        problem.indptr, problem.indices, problem.values, lo, hi, emission(problem, w), scores
    )
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * stride
        start = w[at : at + stride]
        end = w[at + stride : at + 2 * stride]
        for k in range(stride):
            scores[0, k] += start[k]
            scores[hi - lo - 1, k] += end[k]
    if loss_scale != 0.0:
        for t in range(hi - lo):
            row = problem.cost[problem.labels[lo + t]]
            for k in range(stride):
                scores[t, k] += loss_scale * row[k]
    if problem.end_masks.shape[0] + problem.token_mask.shape[0] > 0:
        _forbid_labels(problem, i, scores)
    return scores


@helper
def output_length(problem: ChainProblem, i: int) -> int:
    return problem.offsets[i + 1] - problem.offsets[i]


@helper
def decode(problem: ChainProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    scores = position_scores(problem, i, w, loss_scale)
    if problem.move_mask.shape[0] == 0:  # its own branch: measurably faster than ``moves`` alone
        return _best_path(scores, transition(problem, w), problem.n_labels, y_out)
    return _best_path(scores, moves(problem, w), problem.n_labels, y_out)


@helper
def _best_path(scores: Array, transitions: Array, n_labels: int, y_out: Array) -> float:
    if n_labels < MANY_LABELS:
        return max_sum(scores, transitions, n_labels, y_out)
    return best_path(scores, transitions, best_moves(transitions, n_labels), n_labels, y_out)


@helper
def plane_loss(problem: ChainProblem, i: int, y: Array) -> float:
    lo = problem.offsets[i]
    total = 0.0
    for t in range(y.shape[0]):
        total += problem.cost[problem.labels[lo + t], y[t]]
    return total


@helper
def truth(problem: ChainProblem, i: int, y_out: Array) -> None:
    lo = problem.offsets[i]
    for t in range(y_out.shape[0]):
        y_out[t] = problem.labels[lo + t]


@helper
def plane_score(problem: ChainProblem, i: int, y: Array, w: Array) -> float:
    lo = problem.offsets[i]
    length = y.shape[0]
    E = emission(problem, w)
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    total = 0.0
    changed = False  # whether the label before differs
    for t in range(length):
        a = labels[t]
        b = y[t]
        differs = a != b
        if differs:
            for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                row = E[problem.indices[p]]
                total += problem.values[p] * (row[a] - row[b])
        if t > 0 and (differs or changed):
            total += A[labels[t - 1], a] - A[y[t - 1], b]
        changed = differs
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * problem.stride
        total += w[at + labels[0]] - w[at + y[0]]
        at += problem.stride
        total += w[at + labels[length - 1]] - w[at + y[length - 1]]
    return total


@helper
def plane_add(problem: ChainProblem, i: int, y: Array, step: float, w: Array) -> None:
    lo = problem.offsets[i]
    length = y.shape[0]
    E = emission(problem, w)
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    changed = False
    for t in range(length):
        a = labels[t]
        b = y[t]
        differs = a != b
        if differs:
            for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                row = E[problem.indices[p]]
                v = step * problem.values[p]
                row[a] += v
                row[b] -= v
        if t > 0 and (differs or changed):
            A[labels[t - 1], a] += step
            A[y[t - 1], b] -= step
        changed = differs
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * problem.stride
        w[at + labels[0]] += step
        w[at + y[0]] -= step
        at += problem.stride
        w[at + labels[length - 1]] += step
        w[at + y[length - 1]] -= step


@helper
def decode_by_loss(problem: ChainProblem, i: int, w: Array) -> tuple[Array, Array]:
    """Plain Hamming loss only: other costs are refused before it comes to this."""
    lo = problem.offsets[i]
    hi = problem.offsets[i + 1]
    best = np.empty(hi - lo + 1)
    ys = np.empty((hi - lo + 1, hi - lo), dtype=np.int32)
    max_sum_by_errors(
        position_scores(problem, i, w, 0.0),
        moves(problem, w),
        problem.n_labels,
        problem.labels[lo:hi],
        best,
        ys,
    )
    unit = problem.cost[0, 1] if problem.n_labels > 1 else 1.0
    losses = np.empty(hi - lo + 1)
    count = 0
    for errors in range(hi - lo + 1):
        if best[errors] > -np.inf:
            losses[count] = unit * errors
            for t in range(hi - lo):
                ys[count, t] = ys[errors, t]
            count += 1
    return losses[:count], ys[:count]


@helper
def decode_best(problem: ChainProblem, i: int, w: Array, loss_scale: float, ys: Array) -> int:
    values = np.empty(ys.shape[0])
    scores = position_scores(problem, i, w, loss_scale)
    return n_best(scores, moves(problem, w), problem.n_labels, ys, values)


register(
    ChainProblem,
    output_length=output_length,
    decode=decode,
    plane_score=plane_score,
    plane_add=plane_add,
    plane_sqdist=plane_sqdist,
    planes_score=planes_score,
    planes_add=planes_add,
    plane_loss=plane_loss,
    truth=truth,
    decode_by_loss=decode_by_loss,
    decode_best=decode_best,
)
