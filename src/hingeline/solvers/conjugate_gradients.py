"""Conjugate gradients over all planes that have mass: what cures the slow tail of single visits.

Visits change one example at a time and crawl where the problem is ill-conditioned. Once they have
found which planes have mass, the dual restricted to these is a plain quadratic::

    max_δ  gᵀδ − ½ δᵀQδ,   Q = [a_j Δf_j·a_k Δf_k] + r,   Σ_y δ_i(y) = 0 where the sum is tight

With ``slack="sum"`` no sums are bound; multipliers at their upper bound stay there.

Conjugate gradient steps on it need Q only through ``v = Σ δ_j a_j Δf_j`` and ``a_j Δf_j·v``, one
pass over these planes each. The step found is cut back to the feasible set and taken only if the
dual rises, so the dual never falls. J. Moré, G. Toraldo, *On the solution of large quadratic
programming problems with bound constraints* (1991) is the scheme.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hingeline.core.formulations import Formulation, cut_back
from hingeline.core.solver import CertifiedSolver

Array = np.ndarray[Any, Any]


#: With this few multipliers the step costs next to nothing.
SMALL = 200
#: With more, it is tried once a sweep gains less than this fraction of the gap that is left.
SLOW = 1.0 / 200.0
#: Steps in a row on small problems; each may run into a bound.
ROUNDS = 30


class Accelerator:
    """Decides when a step over all planes with mass is worth its price, about ten sweeps.

    On small problems always. On others it is tried where sweeps crawl, and again after twice as
    many sweeps whenever it gained less than ten of the sweeps before it. Decided by dual values,
    not by the clock, so that runs can be repeated.
    """

    #: Where a solver that has it as ``accelerate`` keeps its state.
    saved_numbers = ("accelerate.wait", "accelerate.since", "accelerate.last")

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self.wait = 8
        self.since = 0
        self.last = 0.0

    def __call__(self, solver: CertifiedSolver, estimate: float) -> bool:
        """Improve the multipliers that have mass, all at once; whether the dual rose."""
        if np.count_nonzero(solver.multipliers().mass) <= SMALL:
            rounds = 0
            while rounds < ROUNDS and _ascend(solver, self.iterations):
                rounds += 1
            return rounds > 0
        value = solver.dual()
        swept, self.last = value - self.last, value
        self.since += 1
        if self.since < self.wait or swept > SLOW * estimate:
            return False
        self.since = 0
        rose = _ascend(solver, self.iterations)
        self.last = solver.dual()
        self.wait = 1 if self.last - value > 10.0 * swept else min(2 * self.wait, 64)
        return rose


def _ascend(solver: CertifiedSolver, iterations: int) -> bool:
    """One step on the face of the multipliers that have mass; whether it led anywhere.

    The whole step, cut back to the feasible set, may gain most or lose; the part of it up to the
    first bound gains for certain, and takes a multiplier off the face or makes a sum tight.
    """
    form, known = solver.form, solver.multipliers()
    masses, owners = known.mass, known.owners
    inside = masses > 0.0
    if form.summed:
        inside &= masses < form.cap[owners]
    support = np.flatnonzero(inside)
    if len(support) < 2:
        return False
    before = masses[support].copy()
    owner = owners[support]
    n = len(form.cap)
    sums = np.bincount(owner, weights=before, minlength=n)
    tight = np.zeros(n, dtype=bool) if form.summed else sums >= form.cap * (1.0 - 1e-12)
    members = np.maximum(np.bincount(owner, minlength=n), 1)

    def project(z: Array) -> Array:
        mean = np.bincount(owner, weights=z, minlength=n) / members
        return z - np.where(tight, mean, 0.0)[owner]

    def image(z: Array) -> Array:
        vector = np.zeros_like(solver.w)
        solver.combine(support, z, vector)
        out = solver.products(support, vector)
        if form.ridge.any():
            out += (form.ridge * np.bincount(owner, weights=z, minlength=n))[owner]
        return out

    def put(values: Array) -> float:
        """Set the multipliers; the dual. Weights from nothing: a step leaves no rounding behind."""
        masses[support] = values
        solver.w[:] = 0.0
        solver.add(masses, 1.0, solver.w)
        return solver.dual()

    hinges = known.offset[support] - solver.products(support, solver.w)
    residual = project(hinges - (form.ridge * sums)[owner])
    far = 1e3 * float(before.max())
    total = _conjugate_gradients(residual, image, project, iterations, far)
    if not total.any():
        return False
    value = solver.dual()
    kept = solver.w.copy()
    best, best_value = before, value
    for trial in _trials(form, before, total, owner, sums, tight):
        reached = put(trial)
        if reached > best_value * (1.0 + 1e-15):
            best, best_value = trial, reached
    if best is before:
        # The last trial, up to a bound that was met at once, frees the next step of that bound.
        on_bound = (trial == 0.0) | (trial == form.cap[owner] if form.summed else False)
        if reached >= value * (1.0 - 1e-15) and on_bound.any():
            return True
        masses[support] = before
        solver.w[:] = kept
        return False
    if best is not trial:
        put(best)
    return True


def _trials(
    form: Formulation, before: Array, total: Array, owner: Array, sums: Array, tight: Array
) -> Iterator[Array]:
    """Multipliers after the whole step, after a quarter of it, and at its first bound."""
    if form.summed:
        yield from _trials_in_boxes(before, total, form.cap[owner])
        return
    cap = form.cap
    change = np.bincount(owner, weights=total, minlength=len(cap))
    falling = total < 0.0
    own = np.where(falling, before / np.where(falling, -total, 1.0), np.inf)
    rising = (change > 0.0) & ~tight & np.isfinite(cap)
    bound = np.where(rising, cap, 0.0)
    whole = np.where(rising, (bound - sums) / np.where(rising, change, 1.0), np.inf)
    first = min(1.0, float(own.min()), float(whole.min()))
    for factor in (1.0, 0.25, first):
        trial = np.where(own <= factor, 0.0, np.maximum(before + factor * total, 0.0))
        yield cut_back(form, trial, owner)


def _trials_in_boxes(before: Array, total: Array, cap: Array) -> Iterator[Array]:
    """The same where every multiplier has an upper bound of its own."""
    room = np.where(total < 0.0, before, cap - before)
    reach = room / np.maximum(np.abs(total), 1e-300)
    bound = np.where(total < 0.0, 0.0, cap)
    for factor in (1.0, 0.25, min(1.0, float(reach.min()))):
        yield np.where(reach <= factor, bound, np.clip(before + factor * total, 0.0, cap))


def _conjugate_gradients(
    residual: Array, image: Any, project: Any, iterations: int, far: float
) -> Array:
    """Approximate maximiser of the quadratic, from zero; ``far`` where it has none."""
    direction = residual.copy()
    total = np.zeros_like(residual)
    square = first = float(residual @ residual)
    steepest = 0.0
    for _ in range(min(iterations, len(residual))):
        if square <= 1e-24 * max(first, 1e-300):
            break
        mapped = image(direction)
        length = float(direction @ direction)
        curve = float(direction @ mapped)
        steepest = max(steepest, curve / length)
        if curve <= 1e-12 * steepest * length:
            # No curvature: the dual rises along this direction until a bound stops it.
            return total + direction * (far / np.abs(direction).max())
        step = square / curve
        total += step * direction
        residual = residual - step * project(mapped)
        square, last = float(residual @ residual), square
        direction = residual + (square / last) * direction
    return total
