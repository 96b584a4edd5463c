"""Max-marginals under a loss that changes at one position: what a label switch needs.

With emission scores ``S`` (T, stride), transitions ``A``, a labelling ŷ and a cost table c, the
loss-augmented maximum is ``max_y Σ_t S[t, y_t] + c[ŷ_t, y_t] + Σ_t A[y_{t−1}, y_t]``. Its part
without the loss at position t is, for every label k there, ``F[t, k] + S[t, k] + B[t, k]``: the
best beginning before t and the best continuation behind it. Another label r for ŷ_t changes
nothing in these, so that the maximum for r is ``max_k F + S + B + c[r, k]``. Where all errors cost
the same, two numbers of the row, its largest and its second, answer that for all r.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline._simd import max_plus

Array = np.ndarray[Any, Any]


@helper
def uniform_cost(cost: Array) -> float:
    """The cost of an error where all errors cost the same and being right nothing; else −1."""
    n_labels = cost.shape[0]
    unit = cost[0, 1] if n_labels > 1 else 1.0
    for j in range(n_labels):
        for k in range(n_labels):
            if cost[j, k] != (0.0 if j == k else unit):
                return -1.0
    return unit


@helper
def transposed(transitions: Array, n_labels: int) -> Array:
    """``out[to, from]``, padded like the transitions."""
    out = np.zeros((n_labels, transitions.shape[1]))
    for j in range(n_labels):
        for k in range(n_labels):
            out[k, j] = transitions[j, k]
    return out


@helper
def step_forward(
    scores: Array,
    cost: Array,
    label: int,
    transitions: Array,
    n_labels: int,
    stride: int,
    t: int,
    ahead: Array,
    reach: Array,
) -> None:
    """Row t + 1 of the best beginnings from row t, where the loss is that of ``label``.

    All tables are flat, rows ``stride`` long: views made in a loop over positions cost more than
    the work.
    """
    here = t * stride
    loss = label * stride
    there = here + stride
    for k in range(stride):
        reach[k] = ahead[here + k] + scores[here + k] + cost[loss + k]
        ahead[there + k] = 0.0
    max_plus(reach, 0, transitions, n_labels, stride, ahead, there)


@helper
def step_backward(
    scores: Array,
    cost: Array,
    label: int,
    backwards: Array,
    n_labels: int,
    stride: int,
    t: int,
    behind: Array,
    reach: Array,
) -> None:
    """Row t − 1 of the best continuations from row t; ``backwards`` are transitions transposed."""
    here = t * stride
    loss = label * stride
    there = here - stride
    for k in range(stride):
        reach[k] = behind[here + k] + scores[here + k] + cost[loss + k]
        behind[there + k] = 0.0
    max_plus(reach, 0, backwards, n_labels, stride, behind, there)


@helper
def switch_gains(
    scores: Array,
    transitions: Array,
    backwards: Array,
    y: Array,
    stride: int,
    n_labels: int,
    t: int,
    out: Array,
) -> None:
    """What the score of a path gains with each label at position t; flat tables as above."""
    here = t * stride
    for k in range(n_labels):
        out[k] = scores[here + k]
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


@helper
def augmented_maxima(base: Array, cost: Array, unit: float, n_labels: int, out: Array) -> None:
    """``out[r] = max_k base[k] + cost[r, k]``; ``unit`` is :func:`uniform_cost` of the costs."""
    if unit < 0.0:
        for r in range(n_labels):
            best = -np.inf
            for k in range(n_labels):
                best = max(best, base[k] + cost[r, k])
            out[r] = best
        return
    first = -np.inf
    second = -np.inf
    arg = 0
    for k in range(n_labels):
        if base[k] > first:
            second = first
            first = base[k]
            arg = k
        elif base[k] > second:
            second = base[k]
    for r in range(n_labels):
        out[r] = first + unit
    out[arg] = max(first, second + unit)


@helper
def path_score(scores: Array, transitions: Array, y: Array) -> float:
    """Score of one path."""
    total = scores[0, y[0]]
    for t in range(1, scores.shape[0]):
        total += transitions[y[t - 1], y[t]] + scores[t, y[t]]
    return total
