"""The block of one example: its planes and multipliers, and what happens when it is visited.

A visit opens the block (hinges, slack and gap of its planes at the weights of the moment), lets a
*rule* move mass between the planes on their Gram matrix, and closes it: multipliers, stamps, the
averaging sums, and the weights, which are touched once. Rules are ``NamedTuple`` classes that
solvers register; kernels find the code of a rule by its class, as they do for structures. Nothing
but its ``step`` tells one solver of planes from another.

Averaging. With iterates ``w_1 … w_K`` (one a visit) the average with weights ∝ k is
``w̄ = w_K − u/(K(K+1))`` for ``u = Σ_k k(k−1)·(w_k − w_{k−1})``. The sum is kept per plane
(``drift``), not per weight: it costs nothing at a visit and no second copy of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import by_class, helper, kernel
from hingeline.core.formulations import (
    Formulation,
    add_hinge,
    example_gap,
    most_violated,
    most_violated_sum,
)
from hingeline.core.planes import WorkingSet, insert, planes
from hingeline.core.primitives import output_length, planes_add, planes_score

Array = np.ndarray[Any, Any]

_STEPS: dict[type, Callable[..., tuple[bool, float]]] = {}


def register_rule(rule: type, step: Callable[..., tuple[bool, float]]) -> None:
    """Tell the kernels how a rule moves mass; ``step`` has the arguments of :func:`step`."""
    _STEPS[rule] = step


class Mass(NamedTuple):
    """The mass of one example, and what bounds it."""

    total: float  # the sum of its multipliers
    cap: float
    ridge: float


def step(
    rule: Any, gram: Array, alpha: Array, before: Array, gradient: Array, mass: Mass
) -> tuple[bool, float]:
    """Move mass between the planes of one example; whether there was a reason to, and a result.

    ``gram`` holds their inner products without the ridge, ``before`` is a copy of ``alpha``, and
    ``gradient`` is ``h − ridge·total``; both change in place. What the result means is the rule's
    own affair.
    """
    return _STEPS[type(rule)](rule, gram, alpha, before, gradient, mass)


by_class(step, _STEPS.get)


@helper
def visit(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    rule: Any,
    i: int,
    w: Array,
    coefficient: float,
    clock: int,
    gaps: Array,
) -> float:
    """Let a rule move the mass of example i, and carry the change into w; the rule's result.

    ``gaps[i]`` becomes the gap that the example had before, over the planes it knows.
    """
    gaps[i] = 0.0
    m = ws.used[i]
    if m == 0:
        return 0.0
    s = ws.slot[i]
    room = ws.capacity[i]
    g = ws.gram_start[i]
    gram = ws.gram[g : g + room * room].reshape((room, room))
    alpha = ws.alpha[s : s + m]
    before = alpha.copy()
    ys = planes(ws, i)
    values = np.empty(m)
    planes_score(problem, i, ys, w, values)
    total = 0.0
    for j in range(m):
        total += alpha[j]
    slack = 0.0
    linear = 0.0
    for j in range(m):
        values[j] = ws.offset[s + j] - ws.scale[s + j] * values[j]
        slack = add_hinge(form, slack, values[j])
        linear += alpha[j] * values[j]
    gaps[i] = example_gap(form, i, slack, total, linear)
    ridge = form.ridge[i]
    if ridge > 0.0:
        for j in range(m):
            values[j] -= ridge * total
    moved, result = step(rule, gram, alpha, before, values, Mass(total, form.cap[i], ridge))
    if not moved:
        return result
    changed = False
    for j in range(m):
        if alpha[j] > 0.0:
            ws.stamp[s + j] = clock
        change = alpha[j] - before[j]
        changed = changed or change != 0.0
        ws.drift[s + j] += coefficient * change
        values[j] = ws.scale[s + j] * change
    if changed:
        planes_add(problem, i, ys, values, w)
    return result


@kernel
def move_mass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    rule: Any,
    order: Array,
    w: Array,
    visits: float,
    averaged: float,
    clock: int,
    gaps: Array,
) -> tuple[float, float]:
    """Visit the examples of ``order`` in turn; the sum and the largest of the rule's results.

    ``visits`` were made before, for the average (``averaged`` is 1, or 0 where there is none).
    """
    k = visits
    total = 0.0
    largest = 0.0
    for i in order:
        k += 1.0
        coefficient = averaged * k * (k - 1.0)
        result = visit(problem, form, ws, rule, i, w, coefficient, clock, gaps)
        total += result
        largest = max(largest, result)
    return total, largest


# Finding planes ----------------------------------------------------------------------------------


@helper
def slack_of_known(problem: Any, form: Formulation, ws: WorkingSet, i: int, w: Array) -> float:
    """The slack of example i over the planes it has."""
    m = ws.used[i]
    scores = np.empty(m)
    if m > 0:
        planes_score(problem, i, planes(ws, i), w, scores)
    slack = 0.0
    s = ws.slot[i]
    for j in range(m):
        slack = add_hinge(form, slack, ws.offset[s + j] - ws.scale[s + j] * scores[j])
    return slack


@helper
def longest_output(problem: Any, order: Array) -> int:
    """Length of the longest output among the examples of ``order``, at least 1."""
    longest = 1
    for i in order:
        longest = max(longest, output_length(problem, i))
    return longest


@kernel
def find_planes(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    epsilon: float,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """Decode the examples of ``order`` against w and put what is violated into their sets.

    Writes ``violation[i] = max(0, max_y H_i(y))``. Examples are independent here, so parts of
    ``order`` may run in threads. For hinges that are sums of score and loss; ``epsilon`` is
    negative and counts for nothing: what most runs need, and quick to compile.
    """
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    for i in order:
        violation[i] = 0.0
        if form.cap[i] > 0.0:
            y = buffer[: output_length(problem, i)]
            h = most_violated_sum(problem, form, i, w, 1.0, y)
            violation[i] = max(h, 0.0)
            if h > 0.0:
                insert(problem, form, ws, i, y, clock, patience, scratch)


@kernel
def find_planes_above(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    epsilon: float,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """:func:`find_planes` for any hinge.

    A plane enters if its hinge exceeds that of all planes known by more than ``epsilon``; with a
    negative epsilon, which spares the comparison, if it is violated at all.
    """
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    for i in order:
        violation[i] = 0.0
        if form.cap[i] > 0.0:
            y = buffer[: output_length(problem, i)]
            h = most_violated(problem, form, i, w, 1.0, y)
            violation[i] = max(h, 0.0)
            if h > 0.0 and (epsilon < 0.0 or h > slack_of_known(problem, form, ws, i, w) + epsilon):
                insert(problem, form, ws, i, y, clock, patience, scratch)


# Sums over all planes ----------------------------------------------------------------------------


@kernel
def add_planes(problem: Any, ws: WorkingSet, masses: Array, factor: float, w: Array) -> None:
    """``w += factor · Σ mass·a·Δf`` with one mass per slot (multipliers, or their drift)."""
    for i in range(ws.used.shape[0]):
        m = ws.used[i]
        s = ws.slot[i]
        steps = np.empty(m)
        some = False
        for j in range(m):
            steps[j] = factor * masses[s + j] * ws.scale[s + j]
            some = some or steps[j] != 0.0
        if some:
            planes_add(problem, i, planes(ws, i), steps, w)


@kernel
def score_planes(problem: Any, ws: WorkingSet, wanted: Array, w: Array, out: Array) -> None:
    """``a·w·Δf`` of every plane whose entry in ``wanted`` is not 0."""
    for i in range(ws.used.shape[0]):
        m = ws.used[i]
        s = ws.slot[i]
        some = False
        for j in range(m):
            some = some or wanted[s + j] != 0.0
        if some:
            planes_score(problem, i, planes(ws, i), w, out[s : s + m])
            for j in range(m):
                out[s + j] *= ws.scale[s + j]
