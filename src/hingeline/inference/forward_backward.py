"""Sums over all paths of a chain: log Z and the probabilities of labels and moves.

The value of a path is ``Σ_t scores[t, y_t] + Σ_{t>0} transitions[y_{t−1}, y_t]``, plus
``enter[t, y_t]`` wherever ``y_{t−1} ≠ y_t``. ``−inf`` forbids a label or a move.

Forward and backward sums are kept as probabilities, each row scaled to the sum 1, which takes one
exponential per label and position. What underflows there is smaller than 1e-308 of its row; it
could matter only where a row's sum or the overlap of a forward with its backward row is tiny
itself. Both are looked at, and a sequence in which one falls below :data:`SMALL` is done again
in the log domain, which is slower and safe for any finite numbers.

The arithmetic is done as written, so that equal numbers in other places of memory give equal
results. Sums over labels therefore run in the outer loop, and the inner ones still vectorise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hingeline._jit import strict_helper

Array = np.ndarray[Any, Any]

#: Scaled sums below this are not trusted.
SMALL = 1e-100


@strict_helper
def off_and_diagonal(
    transitions: Array, n_labels: int, off: Array, back: Array, diagonal: Array
) -> float:
    """``exp(transitions − top)`` apart for moves to other labels and to the same; returns top.

    ``off`` and ``back``, its transpose, are (labels, stride) with zeros as padding.
    """
    stride = transitions.shape[1]
    top = -np.inf
    for j in range(n_labels):
        for k in range(n_labels):
            top = max(top, transitions[j, k])
    if top == -np.inf:
        top = 0.0
    for j in range(n_labels):
        for k in range(n_labels, stride):
            off[j, k] = 0.0
            back[j, k] = 0.0
        for k in range(n_labels):
            off[j, k] = math.exp(transitions[j, k] - top)
            back[k, j] = off[j, k]
        diagonal[j] = off[j, j]
        off[j, j] = 0.0
        back[j, j] = 0.0
    for k in range(n_labels, stride):
        diagonal[k] = 0.0
    return top


@strict_helper
def _entries(enter: Array, t: int, n_labels: int, out: Array) -> float:
    """Factors for moves to other labels at t, at most 1; their logarithm's shift is returned."""
    stride = out.shape[0]
    if enter.shape[0] == 0:
        for k in range(stride):
            out[k] = 1.0
        return 0.0
    top = 0.0
    for k in range(n_labels):
        top = max(top, enter[t, k])
    for k in range(n_labels):
        out[k] = math.exp(enter[t, k] - top)
    return top


@strict_helper
def scaled_sums(
    scores: Array,
    off: Array,
    back: Array,
    diagonal: Array,
    top: float,
    enter: Array,
    n_labels: int,
    weight: float,
    nodes: Array,
    stays: Array,
    moves: Array,
) -> float:
    """Log Z and expectations by scaled sums; NaN, and moves as before, where that is not safe.

    Parameters as for :func:`log_sums`, with the output of :func:`off_and_diagonal`.
    """
    length, stride = scores.shape
    table = np.zeros((n_labels, stride))  # moves, still to be multiplied by ``off``
    forward = np.zeros((length, stride))
    emitted = np.zeros((length, stride))  # exp(score − the row's largest)
    entry = np.ones((length, stride))
    same = np.ones(length)  # factor of moves to the same label
    total = 0.0
    row = np.empty(stride)
    for t in range(length):
        best = -np.inf
        for k in range(n_labels):
            best = max(best, scores[t, k])
        if best == -np.inf:
            return -np.inf
        for k in range(n_labels):
            emitted[t, k] = math.exp(scores[t, k] - best)
        shift = best
        if t == 0:
            for k in range(stride):
                row[k] = 1.0
        else:
            for k in range(stride):
                row[k] = 0.0
            for j in range(n_labels):
                a = forward[t - 1, j]
                for k in range(stride):
                    row[k] += a * off[j, k]
            extra = _entries(enter, t, n_labels, entry[t])
            same[t] = math.exp(-extra)
            shift += top + extra
            for k in range(stride):
                row[k] = row[k] * entry[t, k] + same[t] * forward[t - 1, k] * diagonal[k]
        mass = 0.0
        for k in range(stride):
            forward[t, k] = row[k] * emitted[t, k]
            mass += forward[t, k]
        if not mass > SMALL:
            return np.nan
        for k in range(stride):
            forward[t, k] /= mass
        total += shift + math.log(mass)

    behind = np.zeros(stride)
    for k in range(n_labels):
        behind[k] = 1.0
    staying = np.empty(stride)
    going = np.empty(stride)
    stayed = np.zeros(n_labels)
    for t in range(length - 1, -1, -1):
        overlap = 0.0
        for k in range(stride):
            overlap += forward[t, k] * behind[k]
        if not overlap > SMALL:
            return np.nan
        for k in range(stride):
            nodes[t, k] = weight * (forward[t, k] * behind[k] / overlap)
        if t == 0:
            break
        # What is behind label j at t − 1 is Σ_k move[j, k]·emitted[t, k]·behind[k].
        for k in range(stride):
            staying[k] = same[t] * diagonal[k] * emitted[t, k] * behind[k]
            going[k] = entry[t, k] * emitted[t, k] * behind[k]
        for j in range(stride):
            behind[j] = staying[j]
        for k in range(n_labels):
            a = going[k]
            for j in range(stride):
                behind[j] += a * back[k, j]
        joint = 0.0
        mass = 0.0
        for j in range(n_labels):
            joint += forward[t - 1, j] * behind[j]
            mass += behind[j]
        if not (mass > SMALL and joint > SMALL):
            return np.nan
        factor = weight / joint
        for j in range(n_labels):
            a = factor * forward[t - 1, j]
            if stays.shape[0] > 0:
                stays[t, j] = a * staying[j]
            stayed[j] += a * staying[j]
            for k in range(stride):
                table[j, k] += a * going[k]
        for j in range(n_labels):
            behind[j] /= mass
    for j in range(n_labels):
        for k in range(stride):
            moves[j, k] += table[j, k] * off[j, k]
        moves[j, j] += stayed[j]
    return total


@strict_helper
def _log_sum(values: Array, n: int) -> float:
    best = -np.inf
    for k in range(n):
        best = max(best, values[k])
    if best == -np.inf:
        return best
    s = 0.0
    for k in range(n):
        s += math.exp(values[k] - best)
    return best + math.log(s)


@strict_helper
def _move(transitions: Array, enter: Array, t: int, j: int, k: int) -> float:
    if j != k and enter.shape[0] > 0:
        return transitions[j, k] + enter[t, k]
    return transitions[j, k]


@strict_helper
def log_sums(
    scores: Array,
    transitions: Array,
    enter: Array,
    n_labels: int,
    weight: float,
    nodes: Array,
    stays: Array,
    moves: Array,
) -> float:
    """Log Z and expectations in the log domain.

    Parameters
    ----------
    scores : (T, stride)
    transitions : (labels, stride)
    enter : (T, stride) or (0, stride)
        Added where position t has label k and the one before has another; row 0 is not looked at.
    n_labels : int
    weight : float
        Multiplies the expectations, not log Z.
    nodes : (T, stride), out
        ``weight·P(y_t = k)``.
    stays : (T, stride) or (0, stride), out
        ``weight·P(y_{t−1} = y_t = k)`` for t > 0.
    moves : (labels, stride)
        Gains ``weight·Σ_t P(y_{t−1} = j, y_t = k)``.

    Returns
    -------
    float
        log Z, ``−inf`` where no path is allowed (expectations are then undefined).
    """
    length, stride = scores.shape
    forward = np.full((length, stride), -np.inf)
    terms = np.empty(n_labels)
    for k in range(n_labels):
        forward[0, k] = scores[0, k]
    for t in range(1, length):
        for k in range(n_labels):
            for j in range(n_labels):
                terms[j] = forward[t - 1, j] + _move(transitions, enter, t, j, k)
            forward[t, k] = _log_sum(terms, n_labels) + scores[t, k]
    total = _log_sum(forward[length - 1], n_labels)
    if total == -np.inf:
        return total
    behind = np.zeros(n_labels)
    ahead = np.empty(n_labels)
    for t in range(length - 1, -1, -1):
        for k in range(stride):
            nodes[t, k] = 0.0
        for k in range(n_labels):
            nodes[t, k] = weight * math.exp(forward[t, k] + behind[k] - total)
        if t == 0:
            break
        for k in range(n_labels):
            ahead[k] = scores[t, k] + behind[k]
        for j in range(n_labels):
            for k in range(n_labels):
                terms[k] = _move(transitions, enter, t, j, k) + ahead[k]
                share = weight * math.exp(forward[t - 1, j] + terms[k] - total)
                moves[j, k] += share
                if j == k and stays.shape[0] > 0:
                    stays[t, j] = share
            behind[j] = _log_sum(terms, n_labels)
    return total
