"""Conjugate gradients over all planes that have mass: what cures the slow tail of single visits.

Visits change one example at a time and crawl where the problem is ill-conditioned. Once they have
found which planes have mass, the dual restricted to these is a plain quadratic::

    max_δ  gᵀδ − ½ δᵀQδ,   Q = [a_j Δf_j·a_k Δf_k] + r,   Σ_y δ_i(y) = 0 where the sum is tight

Conjugate gradient steps on it need Q only through ``v = Σ δ_j a_j Δf_j`` and ``a_j Δf_j·v``, one
pass over these planes each. The step found is cut back to the feasible set and taken only if the
dual rises, so the dual never falls. J. Moré, G. Toraldo, *On the solution of large quadratic
programming problems with bound constraints* (1991) is the scheme.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hingeline.formulations import Formulation

Array = np.ndarray[Any, Any]


class Face(Protocol):
    """What the step asks of a solver; ``masses`` and the like are flat, one entry per plane."""

    form: Formulation
    w: Array

    def masses(self) -> Array:
        """All multipliers, as a flat array that may be written to."""

    def owners(self) -> Array:
        """The example of each multiplier."""

    def hinges_of(self, support: Array) -> Array:
        """``b − a·w·Δf`` of the planes in ``support``."""

    def products(self, support: Array, vector: Array) -> Array:
        """``a·Δf·vector`` of the planes in ``support``."""

    def combine(self, support: Array, steps: Array, out: Array) -> None:
        """``out += Σ steps·a·Δf``."""

    def dual(self) -> float:
        """Dual objective."""


#: With this few multipliers the step costs next to nothing.
SMALL = 200
#: With more, it is tried once a sweep gains less than this fraction of the gap that is left.
SLOW = 1.0 / 200.0


class Accelerator:
    """Decides when a step over all planes with mass is worth its price, about ten sweeps.

    On small problems always. On others it is tried where sweeps crawl, and again after twice as
    many sweeps whenever it gained less than ten of the sweeps before it. Decided by dual values,
    not by the clock, so that runs can be repeated.
    """

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self.wait = 8
        self.since = 0
        self.last = 0.0

    def __call__(self, face: Face, estimate: float) -> bool:
        """Improve the multipliers that have mass, all at once; whether the dual rose."""
        if np.count_nonzero(face.masses()) <= SMALL:
            # Each round may run into a bound, which takes a multiplier or an example out.
            rounds = 0
            while rounds < 10 and _ascend(face, self.iterations):
                rounds += 1
            return rounds > 0
        value = face.dual()
        swept, self.last = value - self.last, value
        self.since += 1
        if self.since < self.wait or swept > SLOW * estimate:
            return False
        self.since = 0
        rose = _ascend(face, self.iterations)
        self.last = face.dual()
        self.wait = 1 if self.last - value > 10.0 * swept else min(2 * self.wait, 64)
        return rose


def _ascend(face: Face, iterations: int) -> bool:
    """One step on the face of the multipliers that have mass; whether the dual rose."""
    form = face.form
    masses = face.masses()
    support = np.flatnonzero(masses > 0.0)
    if len(support) < 2:
        return False
    before = masses[support].copy()
    owner = face.owners()[support]
    n = len(form.cap)
    sums = np.bincount(owner, weights=before, minlength=n)
    tight = sums >= form.cap * (1.0 - 1e-12)
    members = np.maximum(np.bincount(owner, minlength=n), 1)

    def project(z: Array) -> Array:
        mean = np.bincount(owner, weights=z, minlength=n) / members
        return z - np.where(tight, mean, 0.0)[owner]

    def image(z: Array) -> Array:
        vector = np.zeros_like(face.w)
        face.combine(support, z, vector)
        out = face.products(support, vector)
        if form.ridge.any():
            out += (form.ridge * np.bincount(owner, weights=z, minlength=n))[owner]
        return out

    residual = project(face.hinges_of(support) - (form.ridge * sums)[owner])
    far = 1e3 * float(before.max())
    total = _conjugate_gradients(residual, image, project, iterations, far)
    if not total.any():
        return False
    change = np.bincount(owner, weights=total, minlength=n)
    value = face.dual()
    kept = face.w.copy()
    for factor in (1.0, 0.25, _first_bound(before, total, sums, change, form.cap, tight)):
        trial = np.maximum(before + factor * total, 0.0)
        new = np.bincount(owner, weights=trial, minlength=n)
        trial *= np.where(new > form.cap, form.cap / np.where(new > 0.0, new, 1.0), 1.0)[owner]
        masses[support] = trial
        # From nothing, not by the difference: a long step must leave no rounding behind.
        face.w[:] = 0.0
        face.combine(support, trial, face.w)
        if face.dual() > value * (1.0 + 1e-15):
            return True
        face.w[:] = kept
    masses[support] = before
    return False


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


def _first_bound(
    before: Array, total: Array, sums: Array, change: Array, cap: Array, tight: Array
) -> float:
    """Largest part of the step, at most 1, that meets no bound: it cannot lower the dual."""
    falling = total < 0.0
    part = float((before[falling] / -total[falling]).min(initial=1.0))
    rising = (change > 0.0) & ~tight & np.isfinite(cap)
    return min(part, float(((cap[rising] - sums[rising]) / change[rising]).min(initial=1.0)))
