"""Distances between the planes of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


@helper
def _token_dot(problem: ChainProblem, s: int, t: int) -> float:
    """``x_s·x_t`` of two CSR rows with sorted indices."""
    p = problem.indptr[s]
    q = problem.indptr[t]
    p_end = problem.indptr[s + 1]
    q_end = problem.indptr[t + 1]
    total = 0.0
    while p < p_end and q < q_end:
        f = problem.indices[p]
        g = problem.indices[q]
        if f == g:
            total += problem.values[p] * problem.values[q]
            p += 1
            q += 1
        elif f < g:
            p += 1
        else:
            q += 1
    return total


@helper
def _emission_sqdist_gram(problem: ChainProblem, i: int, y: Array, z: Array, where: Array) -> float:
    """``‖Σ_t x_t ⊗ (e_{y_t} − e_{z_t})‖²`` from the sequence's table of token products.

    ``where`` lists the positions at which y and z differ.
    """
    lo = problem.offsets[i]
    gram = problem.token_gram
    base = problem.gram_start[i]
    total = 0.0
    for p in range(where.shape[0]):
        s = where[p]
        for q in range(p + 1):
            t = where[q]
            sign = int(y[s] == y[t]) + int(z[s] == z[t]) - int(y[s] == z[t]) - int(z[s] == y[t])
            if sign == 0:
                continue
            at = base + s * (s + 1) // 2 + t
            value = gram[at]
            if np.isnan(value):
                value = _token_dot(problem, lo + s, lo + t)
                gram[at] = value
            total += sign * value if p == q else 2 * sign * value
    return total


@helper
def _emission_sqdist_scatter(
    problem: ChainProblem, i: int, y: Array, z: Array, where: Array, scratch: Array
) -> float:
    """The same by summing the tokens of one label at a time: linear in the length."""
    lo = problem.offsets[i]
    total = 0.0
    for k in range(problem.n_labels):
        touched = False
        for t in where:
            if y[t] == k or z[t] == k:
                touched = True
                sign = 1.0 if y[t] == k else -1.0
                for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                    scratch[problem.indices[p]] += sign * problem.values[p]
        if touched:
            for t in where:
                if y[t] == k or z[t] == k:
                    for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                        f = problem.indices[p]
                        total += scratch[f] * scratch[f]
                        scratch[f] = 0.0
    return total


@helper
def plane_sqdist(problem: ChainProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    """``‖f(x_i, y) − f(x_i, z)‖²``; ``scratch`` is zero before and after."""
    length = y.shape[0]
    stride = problem.stride
    where = np.empty(length, dtype=np.int64)
    count = 0
    for t in range(length):
        if y[t] != z[t]:
            where[count] = t
            count += 1
    where = where[:count]
    if problem.gram_start[i] >= 0:
        total = _emission_sqdist_gram(problem, i, y, z, where)
    else:
        total = _emission_sqdist_scatter(problem, i, y, z, where, scratch)
    # Transitions into each differing position, and out of the last of a run.
    counts = scratch[problem.n_features :]
    for clear in range(2):
        for p in range(count):
            for t in range(where[p], where[p] + 2):
                if t == 0 or t == length or (t > where[p] and y[t] != z[t]):
                    continue
                here = y[t - 1] * stride + y[t]
                there = z[t - 1] * stride + z[t]
                if clear == 0:
                    counts[here] += 1.0
                    counts[there] -= 1.0
                else:
                    total += counts[here] * counts[here]
                    counts[here] = 0.0
                    total += counts[there] * counts[there]
                    counts[there] = 0.0
    if problem.boundary == 1 and count > 0:
        if where[0] == 0:
            total += 2.0
        if where[count - 1] == length - 1:
            total += 2.0
    return total
