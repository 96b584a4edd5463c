"""Newton steps over all planes: what cures problems of few weights and badly scaled features.

Single visits crawl where features differ in scale, or where many examples share few weights. With
a proximal term at β the dual (rows of F are the planes ``a·Δf``)::

    max_α  bᵀα − ½‖Fᵀα‖² − ½ Σ_i r_i A_i² − ½ Σ_i ‖α_i − β_i‖²/σ_i     over the feasible set

is the dual of a problem that is smooth and has no constraints::

    min_w  ψ(w) = ½‖w‖² + Σ_i max_α_i { (b_i − F_i w)·α_i − ½ r_i A_i² − ½ ‖α_i − β_i‖²/σ_i }

The maximiser ``α_i(w)`` projects ``β_i + σ_i·(b_i − F_i w)`` onto example i's feasible set, the
gradient is ``w − Fᵀα(w)``, a generalised Hessian ``I + Σ_i σ_i F_iᵀ(J_i − ρ_i j_i j_iᵀ)F_i``, where
J (diagonal j) picks the multipliers strictly inside their bounds: few examples have any.
Some Newton steps find the minimiser whatever the features' scale; its multipliers are the next β,
and σ grows. Every α(w) is feasible, so its dual is a true bound, and the dual never falls.

R. T. Rockafellar, *Augmented Lagrangians and applications of the proximal point algorithm in convex
programming* (1976); X. Li, D. Sun, K.-C. Toh, *A highly efficient semismooth Newton augmented
Lagrangian method for solving Lasso problems* (2018).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline._simd import aligned_zeros
from hingeline.core.formulations import Formulation, total_slack_cost
from hingeline.core.solver import CertifiedSolver

SHARE = 0.1  # A proximal point is good enough where its error is this share of the gap.
STEPS = 30  # Newton steps to one proximal point, at most.
CG_STEPS = 100  # Conjugate gradient steps to one Newton step, at most.


@helper
def find_level(z: Array, lo: int, hi: int, base: float, rate: float) -> float:
    """τ ≥ 0 with ``Σ max(0, z − τ) = base + rate·τ``, from below (Michelot's projection)."""
    tau = 0.0
    while True:
        mass = 0.0
        count = 0
        for p in range(lo, hi):
            if z[p] > tau:
                mass += z[p]
                count += 1
        better = (mass - base) / (count + rate) if count > 0 else tau
        if better <= tau * (1.0 + 1e-15):
            return tau
        tau = better


@helper
def respond_one(
    form: Formulation,
    i: int,
    span: tuple[int, int],
    sigma: Array,
    centre: Array,
    hinges: Array,
    alpha: Array,
    free: Array,
    rho: Array,
    slack: Array,
) -> float:
    """:func:`respond` for example i, whose planes are those in ``span``."""
    lo, hi = span
    cap = form.cap[i]
    ridge = form.ridge[i]
    s = sigma[i]
    rho[i] = 0.0
    mass = worst = positive = 0.0
    for p in range(lo, hi):
        worst = max(worst, hinges[p])
        positive += max(hinges[p], 0.0)
        alpha[p] = centre[p] + s * hinges[p]
        mass += max(alpha[p], 0.0)
    slack[i] = positive if form.summed == 1 else worst
    tau = 0.0  # α = max(0, z − τ)
    tight = False
    if form.summed == 0:
        if ridge > 0.0:
            tau = find_level(alpha, lo, hi, 0.0, 1.0 / (s * ridge))
            mass = tau / (s * ridge)
        tight = mass > cap
        if tight:
            tau = find_level(alpha, lo, hi, cap, 0.0)
    most = cap if form.summed == 1 else np.inf
    count = 0
    mass = value = distance = 0.0
    for p in range(lo, hi):
        a = min(max(alpha[p] - tau, 0.0), most)
        alpha[p] = a
        free[p] = 0.0 < a < most
        if a > 0.0:
            count += 1
            mass += a
            value += a * hinges[p]
        distance += (a - centre[p]) * (a - centre[p])
    if tight:
        rho[i] = 1.0 / max(count, 1)
        for p in range(lo, hi):  # one that has all the mass there is cannot move
            free[p] = free[p] and count > 1
    elif ridge > 0.0:
        rho[i] = s * ridge / (1.0 + s * ridge * count)
    return value - 0.5 * ridge * mass * mass - 0.5 * distance / s


@kernel
def respond(
    form: Formulation,
    first: Array,
    sigma: Array,
    centre: Array,
    hinges: Array,
    alpha: Array,
    free: Array,
    rho: Array,
    slack: Array,
) -> float:
    """Fill ``alpha`` with α(w) of these hinges; the sum of the maxima in ψ(w).

    Example i's planes are those from ``first[i]`` to ``first[i + 1]``. ``free`` marks multipliers
    strictly inside their bounds, ``rho`` couples those of an example, ``slack`` is its slack.
    """
    total = 0.0
    for i in range(sigma.shape[0]):
        span = (first[i], first[i + 1])
        total += respond_one(form, i, span, sigma, centre, hinges, alpha, free, rho, slack)
    return total


class Curvature(NamedTuple):
    """What the Hessian of ψ is made of, beside the planes."""

    free: Array  # one entry per plane in use
    rho: Array
    sigma: Array

    def multiply_rows(self, rows: Array, owners: Array) -> Array:
        """``Σ_i σ_i F_iᵀ(I − ρ_i 11ᵀ)F_i``; F has these rows, those of an owner side by side."""
        if not len(owners):
            return np.zeros((rows.shape[1], rows.shape[1]))
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        counts = np.diff(np.append(starts, len(owners)))
        # I − ρ11ᵀ is the square of I − c11ᵀ.
        factor = 1.0 - np.sqrt(np.maximum(1.0 - self.rho[owners[starts]] * counts, 0.0))
        sums = np.add.reduceat(rows, starts, axis=0) * (factor / counts)[:, None]
        rows = (rows - np.repeat(sums, counts, axis=0)) * np.sqrt(self.sigma[owners])[:, None]
        return np.asarray(rows.T @ rows)


def move_to_proximal_point(solver: CertifiedSolver, width: float) -> tuple[bool, bool, float]:
    """Find the next β; whether the dual rose, whether the primal fell, and the next width.

    ``width`` says how far hinges must move to take an example from no mass to as much as those
    with mass have on average: σ is that mass over the width.
    """
    form, known = solver.by_block(solver.form), solver.multipliers()
    support, counts = solver.planes_in_use()
    first = np.concatenate([[0], np.cumsum(counts)])
    offset = known.offset[support]
    centre = known.mass[support]
    bound = solver.dual()
    if bound <= 0.0:  # worse than no mass at all
        centre = np.zeros_like(centre)
    scale = np.where(np.isfinite(form.cap), form.cap, 1.0 / np.maximum(form.ridge, 1e-300))
    scale[scale == 0.0] = 1.0
    owners = np.repeat(np.arange(len(counts)), counts)
    sums = np.bincount(owners, centre, len(counts))
    usual = float((sums / scale)[sums > 0.0].mean()) if sums.any() else 1.0
    sigma = scale * (usual / width)
    alpha = np.empty_like(centre)
    slack = np.zeros(len(counts))
    curvature = Curvature(np.zeros(len(centre), dtype=np.bool_), np.zeros(len(counts)), sigma)

    def evaluate(w: Array) -> tuple[float, Array]:
        """ψ(w) and ``Fᵀα(w)``."""
        parts, image = (alpha, curvature.free, curvature.rho, slack), aligned_zeros(len(w))
        if hasattr(solver, "respond"):
            value = solver.respond(sigma, centre, w, *parts, image)
        else:
            hinges = offset - solver.products(support, w)
            value = respond(form, first, sigma, centre, hinges, *parts)
            solver.combine(support, alpha, image)
        return 0.5 * float(w @ w) + value, image

    value = math.inf
    starts = [solver.best()[0].copy()]
    if not hasattr(solver, "respond"):
        starts = [aligned_zeros(len(solver.w)), solver.w.copy(), *starts]
    for start in starts:
        reached, trial_image = evaluate(start)
        if not reached > value:
            w, value, image = start, reached, trial_image
    if w is not start:
        value, image = evaluate(w)
    chosen: tuple[Array, Array] | None = None
    least = solver.best()[1] if solver.certifies else math.inf
    before = least
    for step in range(STEPS):
        primal = 0.5 * float(w @ w) + total_slack_cost(form, slack)
        least = min(least, primal)
        if solver.certifies:
            solver.keep(w, primal)
        dual = float(alpha @ offset) - 0.5 * float(image @ image)
        if form.ridge.any():
            dual -= 0.5 * float(form.ridge @ np.bincount(owners, alpha, len(counts)) ** 2)
        if dual > bound:
            bound, chosen = dual, (alpha.copy(), image)
        gradient = w - image
        if step > 0 and 0.5 * float(gradient @ gradient) <= SHARE * (least - bound):
            break
        direction = _solve(*solver.curvature(support, curvature), gradient)
        slope = float(direction @ gradient)
        if not slope < 0.0:
            break
        length = 1.0
        while True:
            trial = w + length * direction
            reached, image = evaluate(trial)
            if reached <= value + 1e-4 * length * slope or length < 1e-6:
                break
            length *= 0.5
        w, value = trial, reached
    if chosen is not None:
        known.mass[support] = chosen[0]
        solver.w[:] = chosen[1]
    # Where it took few steps, the next point may lie farther.
    width *= 1 / 3 if step <= 6 else 0.7 if step <= 12 else 1.5 if step <= 20 else 3.0
    return chosen is not None, least < before, width


def _solve(matrix: Any, order: Array | None, gradient: Array) -> Array:
    """``−(I + matrix)⁻¹·gradient``; ``order`` are the weights that rows stand for, None: all.

    The matrix may also be given as what multiplies vectors by it, and its diagonal.
    """
    if isinstance(matrix, tuple):
        multiply, diagonal = matrix
        return _conjugate_gradients(multiply, diagonal, -gradient)
    matrix[np.diag_indices(len(matrix))] += 1.0
    right = gradient if order is None else gradient[order]
    try:
        factor = cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:  # rounding: the gradient itself descends, too
        return -gradient
    found = -cho_solve(factor, right, check_finite=False)
    if order is None:
        return np.asarray(found)
    out = np.zeros_like(gradient)
    out[order] = found
    return out


def _conjugate_gradients(
    multiply: Callable[[Array], Array], diagonal: Array, right: Array
) -> Array:
    """``(I + matrix)⁻¹·right`` up to a third; the matrix is what multiplies, and its diagonal."""
    inverse = 1.0 / (1.0 + diagonal)
    found, residual = np.zeros_like(right), right
    direction = ahead = inverse * residual
    product = first = float(residual @ ahead)
    for _ in range(CG_STEPS):
        image = direction + multiply(direction)
        step = product / float(direction @ image)
        found += step * direction
        residual = residual - step * image
        ahead = inverse * residual
        before, product = product, float(residual @ ahead)
        if not product > 0.1 * first:
            break
        direction = ahead + (product / before) * direction
    return found
