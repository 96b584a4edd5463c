"""Frank-Wolfe steps on one example's block of the dual, each with its exact line search.

Block i is the simplex of multipliers over all outputs of the example, the true one included: the
latter's plane is zero and holds the rest ``cap − Σ α`` of the mass. With the hinges
``h(y) = b(y) − a(y)·w·Δf(y)``, which are the gradient of the dual, s the output of the largest
hinge and v that of the smallest among those with mass::

    plain      d = cap·e_s − α         slope  cap·h(s) − Σ α·h           γ ≤ 1
    away       d = α − cap·e_v         slope  Σ α·h − cap·h(v)           γ ≤ α(v)/(cap − α(v))
    pairwise   d = e_s − e_v           slope  h(s) − h(v)                γ ≤ α(v)

The dual is a parabola along d, so ``γ = slope/‖Σ d·a·Δf‖²``, cut off at its limit, is exact and
the gain ``γ·slope − ½γ²‖Σ d·a·Δf‖²`` is never negative. The slope of the plain direction is the
example's share of the duality gap. With ``AWAY`` the steeper of the first two is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.formulations import Formulation, example_gap, most_violated
from hingeline.solvers.dual_state import longest_output
from hingeline.structures.base import output_length, plane_score, planes_add, planes_score
from hingeline.working_set import WorkingSet, insert, plane, planes

Array = np.ndarray[Any, Any]

PLAIN, AWAY, PAIRWISE = range(3)

#: A rest of the bound smaller than this share of it is rounding, and belongs to no output.
ROUNDING = 1e-13
#: Away from a plane that has all mass but this share of it, the direction would be rounding.
ALL_BUT = 1e-9


@helper
def line_search(slope: float, curve: float, most: float) -> float:
    """The γ in [0, most] at which ``γ·slope − ½γ²·curve`` is largest."""
    if slope <= 0.0:
        return 0.0
    return min(slope / curve, most) if curve > 0.0 else most


@kernel
def block_steps(
    gram: Array, alpha: Array, hinges: Array, cap: float, rule: int, accuracy: float, limit: int
) -> float:
    """At most ``limit`` steps over the planes of one example; what the dual gains.

    ``gram`` holds their inner products; alpha and hinges change in place. Stops when the largest
    hinge exceeds the least one that has mass by no more than ``accuracy``.
    """
    m = alpha.shape[0]
    own = np.zeros(m)  # a·Δf·w_i of every plane, w_i the example's share in the weights
    if rule != PAIRWISE:
        for j in range(m):
            if alpha[j] > 0.0:
                for k in range(m):
                    own[k] += alpha[j] * gram[j, k]
    gain = 0.0
    for _ in range(limit):
        total = 0.0
        linear = 0.0
        up = -1  # −1 is the true output: hinge 0, plane 0
        top = 0.0
        for j in range(m):
            total += alpha[j]
            linear += alpha[j] * hinges[j]
            if hinges[j] > top:
                top = hinges[j]
                up = j
        rest = cap - total
        if rest <= ROUNDING * cap:
            rest = 0.0
        down = -1
        least = 0.0 if rest > 0.0 else np.inf
        for j in range(m):
            if alpha[j] > 0.0 and hinges[j] < least:
                least = hinges[j]
                down = j
        if top - least <= accuracy:
            break
        room = rest if down == -1 else alpha[down]
        if rule == PAIRWISE:
            slope = top - least
            curve = 0.0
            if up >= 0:
                curve += gram[up, up]
            if down >= 0:
                curve += gram[down, down]
            if up >= 0 and down >= 0:
                curve -= 2.0 * gram[up, down]
            step = line_search(slope, curve, room)
            if up >= 0:
                alpha[up] += step
                for k in range(m):
                    hinges[k] -= step * gram[up, k]
            if down >= 0:
                # Exactly zero when emptied, so that the slot can be used again.
                alpha[down] = 0.0 if step == room else alpha[down] - step
                for k in range(m):
                    hinges[k] += step * gram[down, k]
        else:
            # d = sign·(cap·e_at − α), so the plane of d is sign·(cap·a·Δf_at − w_i).
            forward = cap * top - linear
            backward = linear - cap * least
            toward = rule == PLAIN or forward >= backward or room >= (1.0 - ALL_BUT) * cap
            at = up if toward else down
            sign = 1.0 if toward else -1.0
            slope = forward if toward else backward
            most = 1.0 if toward else room / (cap - room)
            curve = 0.0
            for k in range(m):
                curve += alpha[k] * own[k]
            if at >= 0:
                curve += cap * (cap * gram[at, at] - 2.0 * own[at])
            step = line_search(slope, curve, most)
            keep = 1.0 - sign * step
            for k in range(m):
                change = -own[k] if at < 0 else cap * gram[at, k] - own[k]
                hinges[k] -= sign * step * change
                own[k] += sign * step * change
                alpha[k] = 0.0 if keep <= 0.0 else keep * alpha[k]
            if at >= 0:
                dropped = not toward and step == most
                alpha[at] = 0.0 if dropped else max(alpha[at] + sign * step * cap, 0.0)
        if step == 0.0:
            break
        gain += step * (slope - 0.5 * step * curve)
    return gain


@helper
def visit(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    i: int,
    w: Array,
    rule: int,
    limit: int,
    coefficient: float,
    clock: int,
    gaps: Array,
) -> float:
    """Steps over the planes that example i has, and the change into w; what the dual gains.

    ``gaps[i]`` becomes the gap that the example had before, over these planes.
    """
    m = ws.used[i]
    gaps[i] = 0.0
    if m == 0:
        return 0.0
    s = ws.slot[i]
    room = ws.capacity[i]
    g = ws.gram_start[i]
    gram = ws.gram[g : g + room * room].reshape((room, room))
    alpha = ws.alpha[s : s + m]
    before = alpha.copy()
    ys = planes(ws, i)
    hinges = np.empty(m)
    planes_score(problem, i, ys, w, hinges)
    top = 0.0
    total = 0.0
    linear = 0.0
    for j in range(m):
        hinges[j] = ws.offset[s + j] - ws.scale[s + j] * hinges[j]
        top = max(top, hinges[j])
        total += alpha[j]
        linear += alpha[j] * hinges[j]
    gaps[i] = max(example_gap(form, i, top, total, linear), 0.0)
    gain = block_steps(gram, alpha, hinges, form.cap[i], rule, 0.0, limit)
    steps = hinges  # no longer needed: the buffer serves again
    changed = False
    for j in range(m):
        if alpha[j] > 0.0:
            ws.stamp[s + j] = clock
        change = alpha[j] - before[j]
        changed = changed or change != 0.0
        ws.drift[s + j] += coefficient * change
        steps[j] = ws.scale[s + j] * change
    if changed:
        planes_add(problem, i, ys, steps, w)
    return gain


@kernel
def move_mass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    rule: int,
    limit: int,
    visits: float,
    averaged: int,
    clock: int,
    gaps: Array,
) -> float:
    """Visit the examples of ``order`` in turn; ``visits`` were made before (for the average)."""
    k = visits
    gain = 0.0
    for i in order:
        k += 1.0
        coefficient = averaged * k * (k - 1.0)
        gain += visit(problem, form, ws, i, w, rule, limit, coefficient, clock, gaps)
    return gain


# As published: one decode, one plain step, no inner products ---------------------------------


@helper
def plain_visit(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    i: int,
    w: Array,
    squares: Array,
    coefficient: float,
    clock: int,
    gaps: Array,
) -> None:
    """One plain step of example i towards the plane of its largest hinge.

    The example's share ``w_i = Σ α·a·Δf`` in the weights is kept as its planes and multipliers,
    and ``squares[i] = ‖w_i‖²`` beside it. Taken out of w for a moment it gives the one inner
    product that the line search lacks: ``a·Δf·w_i = a·Δf·w − a·Δf·(w − w_i)``. All planes are
    scored and added together, which costs what they touch, however many they are.
    """
    m = ws.used[i]
    gaps[i] = 0.0
    if m == 0:
        return
    s = ws.slot[i]
    cap = form.cap[i]
    alpha = ws.alpha[s : s + m]
    ys = planes(ws, i)
    scores = np.empty(m)
    planes_score(problem, i, ys, w, scores)
    up = -1
    top = 0.0
    total = 0.0
    linear = 0.0
    for j in range(m):
        hinge = ws.offset[s + j] - ws.scale[s + j] * scores[j]
        total += alpha[j]
        linear += alpha[j] * hinge
        if hinge > top:
            top = hinge
            up = j
    gap = example_gap(form, i, top, total, linear)
    if gap <= 0.0:
        return
    gaps[i] = gap
    at_best = scores[up] if up >= 0 else 0.0
    steps = scores
    if total > 0.0:
        for j in range(m):
            steps[j] = -ws.scale[s + j] * alpha[j]
        planes_add(problem, i, ys, steps, w)
    corner = 0.0  # ‖w_s‖², w_s = cap·a·Δf of the plane to move towards
    cross = 0.0  # w_s·w_i
    if up >= 0:
        a = cap * ws.scale[s + up]
        corner = a * a * ws.sqnorm[s + up]
        if total > 0.0:
            cross = a * (at_best - plane_score(problem, i, plane(ws, i, up), w))
    own = squares[i]
    step = line_search(gap, corner - 2.0 * cross + own, 1.0)
    keep = 1.0 - step
    squares[i] = keep * keep * own + 2.0 * step * keep * cross + step * step * corner
    for j in range(m):
        mass = keep * alpha[j]
        if j == up:
            mass += step * cap
        ws.drift[s + j] += coefficient * (mass - alpha[j])
        alpha[j] = mass
        if mass > 0.0:
            ws.stamp[s + j] = clock
        steps[j] = ws.scale[s + j] * mass
    planes_add(problem, i, ys, steps, w)


@kernel
def plain_pass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    squares: Array,
    visits: float,
    averaged: int,
    clock: int,
    patience: int,
    scratch: Array,
    gaps: Array,
) -> None:
    """Decode the examples of ``order`` in turn, each at the weights the one before left."""
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    k = visits
    for i in order:
        k += 1.0
        y = buffer[: output_length(problem, i)]
        if most_violated(problem, form, i, w, 1.0, y) > 0.0:
            insert(problem, form, ws, i, y, clock, patience, scratch)
        coefficient = averaged * k * (k - 1.0)
        plain_visit(problem, form, ws, i, w, squares, coefficient, clock, gaps)


@kernel
def own_squares(problem: Any, ws: WorkingSet, w: Array, out: Array) -> None:
    """``‖w_i‖²`` of every example; w is left as it was but for rounding: give a copy."""
    for i in range(ws.used.shape[0]):
        m = ws.used[i]
        s = ws.slot[i]
        out[i] = 0.0
        total = 0.0
        for j in range(m):
            total += ws.alpha[s + j]
        if total == 0.0:
            continue
        ys = planes(ws, i)
        steps = ws.scale[s : s + m] * ws.alpha[s : s + m]
        whole = np.empty(m)
        without = np.empty(m)
        planes_score(problem, i, ys, w, whole)
        planes_add(problem, i, ys, -steps, w)
        planes_score(problem, i, ys, w, without)
        planes_add(problem, i, ys, steps, w)
        square = 0.0
        for j in range(m):
            square += steps[j] * (whole[j] - without[j])
        out[i] = max(square, 0.0)
