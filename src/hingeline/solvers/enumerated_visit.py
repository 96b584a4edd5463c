"""Visits where all outputs are the working set: one example's small dual, solved exactly.

The problem is that of :mod:`hingeline.solvers.sdm`. One sweep over x scores every output at once.
Only outputs that have mass, or whose gradient exceeds the least one that has, can gain: the pair
steps of :func:`visit` run on these few. Multi-class with any positive costs has a closed form,
:func:`visit_isotropic`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import finite_helper, helper, kernel, prefetch
from hingeline.formulations import Formulation, example_gap, joined, plane_offset, plane_scale
from hingeline.solvers.sdm import pair_steps
from hingeline.structures.base import (
    PADDING,
    all_add,
    all_inner,
    all_isotropy,
    all_losses,
    all_prefetch,
    all_scores,
)

Array = np.ndarray[Any, Any]


@finite_helper
def hinges(
    problem: Any, form: Formulation, i: int, m: int, w: Array, losses: Array, out: Array
) -> None:
    """``b_k − a_k w·Δf_k`` of every output; their losses in ``losses``."""
    all_losses(problem, i, losses)
    all_scores(problem, i, w, out)
    if form.root == 0 and form.rescaled == 0:
        for k in range(m):
            out[k] = losses[k] - out[k]
    else:
        for k in range(m):
            out[k] = plane_offset(form, losses[k]) - plane_scale(form, losses[k]) * out[k]


@kernel
def find_gaps(
    problem: Any,
    form: Formulation,
    order: Array,
    w: Array,
    alpha: Array,
    violation: Array,
    gaps: Array,
) -> None:
    """Each example's slack and gap at fixed weights; parts may run in threads."""
    m = alpha.shape[1]
    losses = np.empty(m + PADDING)
    values = np.empty(m + PADDING)
    for i in order:
        hinges(problem, form, i, m, w, losses, values)
        slack = 0.0
        total = 0.0
        linear = 0.0
        for k in range(m):
            slack = joined(form, slack, values[k])
            total += alpha[i, k]
            linear += alpha[i, k] * values[k]
        violation[i] = slack if form.cap[i] > 0.0 else 0.0
        gaps[i] = example_gap(form, i, slack, total, linear)


@finite_helper
def threshold(
    beta: Array, m: int, first: float, second: float, base: float, rate: float, pack: Array
) -> float:
    """θ with ``Σ_k max(0, β_k − θ) = base + rate·θ``; ``first`` and ``second`` are the largest β.

    With fewer entries θ is less, so the two largest bound it from below, and mostly few entries
    are above that bound. The set of positive entries shrinks from these and never has to take
    one back (Michelot's projection onto a simplex).
    """
    theta = (first - base) / (1.0 + rate)
    theta = max(theta, (first + second - base) / (2.0 + rate))
    if rate > 0.0:
        theta = max(theta, -base / rate)
    count = 0
    mass = 0.0
    for k in range(m):  # no branches: a slot is overwritten until an entry stays
        inside = beta[k] > theta
        pack[count] = beta[k]
        count += 1 if inside else 0
        mass += beta[k] if inside else 0.0
    while count > 0:
        theta = (mass - base) / (count + rate)
        left = 0
        mass = 0.0
        for k in range(count):
            value = pack[k]
            inside = value > theta
            pack[left] = value
            left += 1 if inside else 0
            mass += value if inside else 0.0
        if left == count or left == 0:  # rounding may drop the last one
            break
        count = left
    return theta


class Buffers(NamedTuple):
    """Room for one number per output, padding included; separate arrays cost no views."""

    losses: Array
    values: Array
    first: Array
    second: Array
    steps: Array


@helper
def make_buffers(m: int) -> Buffers:
    """Uninitialised buffers for m outputs."""
    size = m + PADDING
    return Buffers(np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size))


@finite_helper
def visit_isotropic(
    problem: Any,
    form: Formulation,
    i: int,
    m: int,
    alpha: Array,
    drift: Array,
    w: Array,
    coefficient: float,
    square: float,
    work: Buffers,
) -> float:
    """:func:`visit` in closed form: ``Δf_j·Δf_k = square·(1 + [j = k])`` and no plane is scaled.

    Then ``α_k = max(0, β_k − θ)`` with ``β = α + g/square``, and θ balances the sum T of the new
    multipliers: ``θ = κ·(T(θ) − T_old)``, ``κ = 1 + ridge/square``, or ``T(θ) = cap`` where that
    exceeds the bound.
    """
    at = i * m
    losses = work.losses
    values = work.values
    hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    top = 0.0
    total = 0.0
    linear = 0.0
    for k in range(m):
        top = max(top, values[k])
        total += alpha[at + k]
        linear += alpha[at + k] * values[k]
    gap = example_gap(form, i, top, total, linear)
    if total == 0.0 and top == 0.0:
        return gap
    ridge = form.ridge[i]
    shift = ridge * total
    beta = work.first
    inverse = 1.0 / square
    first = -np.inf
    second = -np.inf
    for k in range(m):
        # The true output has loss 0 and no plane.
        value = alpha[at + k] + (values[k] - shift) * inverse if losses[k] > 0.0 else -np.inf
        beta[k] = value
        second = max(second, min(first, value))
        first = max(first, value)
    kappa = 1.0 + ridge * inverse
    pack = work.second
    # An example at its bound mostly stays there: try that first.
    theta = threshold(beta, m, first, second, cap, 0.0, pack) if total >= cap else -np.inf
    if theta < kappa * (cap - total):  # the bound, if it was tried, does not hold the mass back
        theta = threshold(beta, m, first, second, total, 1.0 / kappa, pack)
        if theta > kappa * (cap - total):
            theta = threshold(beta, m, first, second, cap, 0.0, pack)
    steps = work.steps
    some = False
    for k in range(m):
        new = max(0.0, beta[k] - theta)
        change = new - alpha[at + k]
        some = some or change != 0.0
        steps[k] = change
        drift[at + k] += coefficient * change
        alpha[at + k] = new
    if some:
        all_add(problem, i, steps, w)
    return gap


@helper
def visit(
    problem: Any,
    form: Formulation,
    i: int,
    m: int,
    alpha: Array,
    drift: Array,
    w: Array,
    coefficient: float,
    precision: float,
    work: Buffers,
    chosen: Array,
    gram: Array,
) -> float:
    """Solve example i's dual and carry the change into w; returns the gap it had before.

    ``alpha`` and ``drift`` are the whole tables, flat; ``work``, ``chosen`` and ``gram`` are room
    to work in.
    """
    at = i * m
    losses = work.losses
    values = work.values
    hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    top = 0.0
    total = 0.0
    linear = 0.0
    for k in range(m):
        top = max(top, values[k])
        total += alpha[at + k]
        linear += alpha[at + k] * values[k]
    if total == 0.0 and top == 0.0:
        return 0.0
    ridge = form.ridge[i]
    gap = example_gap(form, i, top, total, linear)
    # Gradients are ``values − ridge·total``; the true output stands for gradient 0.
    shift = ridge * total
    least = 0.0 if total < cap else np.inf
    for k in range(m):
        if alpha[at + k] > 0.0:
            least = min(least, values[k] - shift)
    spread = max(0.0, top - shift) - least
    if spread <= 0.0:
        return gap
    # Only planes with mass, or above the least that has, can take part.
    masses = work.first
    gradient = work.second
    count = 0
    for k in range(m):
        if alpha[at + k] > 0.0 or values[k] - shift > least:
            if plane_scale(form, losses[k]) == 0.0 or (
                losses[k] == 0.0 and all_inner(problem, i, k, k) == 0.0
            ):
                continue  # the true output, or one that no weights can tell from it
            masses[count] = alpha[at + k]
            gradient[count] = values[k] - shift
            chosen[count] = k
            count += 1
    if count == 0:
        return gap
    for p in range(count):
        a = plane_scale(form, losses[chosen[p]])
        for q in range(p + 1):
            b = plane_scale(form, losses[chosen[q]])
            value = a * b * all_inner(problem, i, chosen[p], chosen[q])
            gram[p, q] = value
            gram[q, p] = value
    pair_steps(
        gram, masses[:count], gradient[:count], cap, ridge, precision * spread, 10 * count + 10
    )
    steps = work.steps
    for k in range(m):
        steps[k] = 0.0
    for p in range(count):
        k = chosen[p]
        change = masses[p] - alpha[at + k]
        if change != 0.0:
            alpha[at + k] = masses[p]
            drift[at + k] += coefficient * change
            steps[k] = plane_scale(form, losses[k]) * change
    all_add(problem, i, steps, w)
    return gap


@kernel
def move_all(
    problem: Any,
    form: Formulation,
    order: Array,
    alpha: Array,
    drift: Array,
    w: Array,
    visits: float,
    precision: float,
    gaps: Array,
) -> None:
    """Visit the examples of ``order`` in turn; ``visits`` were made before (for the average)."""
    m = alpha.shape[1]
    flat_alpha = alpha.reshape(alpha.size)
    flat_drift = drift.reshape(drift.size)
    work = make_buffers(m)
    chosen = np.empty(m, dtype=np.int64)
    gram = np.empty((m, m))
    k = visits
    for t in range(order.shape[0]):
        if t + 2 < order.shape[0]:
            all_prefetch(problem, order[t + 1], order[t + 2], w)
            for p in range(order[t + 2] * m, (order[t + 2] + 1) * m, 8):
                prefetch(flat_alpha, p)
                prefetch(flat_drift, p)
        i = order[t]
        k += 1.0
        square = all_isotropy(problem, i) if form.rescaled == 0 else 0.0
        if square > 0.0:
            gaps[i] = visit_isotropic(
                problem, form, i, m, flat_alpha, flat_drift, w, k * (k - 1.0), square, work
            )
        else:
            gaps[i] = visit(
                problem,
                form,
                i,
                m,
                flat_alpha,
                flat_drift,
                w,
                k * (k - 1.0),
                precision,
                work,
                chosen,
                gram,
            )
