"""Margins from max-marginals: by how much the best path beats those that differ somewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper

Array = np.ndarray[Any, Any]


@helper
def against_rest(table: Array) -> None:
    """Turn max-marginals (T, labels) into margins, in place.

    ``table[t, k]`` becomes the value of the best path with label k at position t minus that of
    the best path with another label there: ``−inf`` where k is forbidden, ``inf`` where nothing
    else is allowed.
    """
    n_labels = table.shape[1]
    for t in range(table.shape[0]):
        first = -np.inf
        second = -np.inf
        arg = 0
        for k in range(n_labels):
            value = table[t, k]
            if value > first:
                second = first
                first = value
                arg = k
            elif value > second:
                second = value
        for k in range(n_labels):
            if table[t, k] > -np.inf:  # −inf − (−inf) would be NaN
                table[t, k] -= second if k == arg else first


@helper
def continuations(scores: Array, transitions: Array, n_labels: int) -> Array:
    """``out[t, k]``: value of the best path behind position t, given label k there."""
    length = scores.shape[0]
    out = np.zeros((length, n_labels))
    reach = np.empty(n_labels)
    for t in range(length - 2, -1, -1):
        for k in range(n_labels):
            reach[k] = out[t + 1, k] + scores[t + 1, k]
        for j in range(n_labels):
            best = -np.inf
            for k in range(n_labels):
                best = max(best, transitions[j, k] + reach[k])
            out[t, j] = best
    return out


@helper
def best_without_span(
    scores: Array,
    forward: Array,
    behind: Array,
    transitions: Array,
    inside: Array,
    kind_of: Array,
    kind: int,
    first: int,
    stop: int,
) -> float:
    """Value of the best path in which ``first … stop − 1`` is not read as a span of this kind.

    A span is read from neighbouring labels: ``inside[j, k]`` says that k goes on with the span of
    j, and ``kind_of[k]`` is the kind of span that label k is part of (−1: none). A path without
    the span therefore has a pair of neighbours, from the one into ``first`` to the one out of
    ``stop − 1``, that does not suit it; the best path through each such pair is known from the
    forward maxima and the best continuations.
    """
    length = scores.shape[0]
    n_labels = kind_of.shape[0]
    best = -np.inf
    for t in range(first, min(stop + 1, length)):
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
