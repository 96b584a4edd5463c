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
ROWS = 1e7  # Planes are written as rows, once, where these hold fewer numbers altogether.
CG_STEPS = 100  # Conjugate gradient steps to one Newton step, at most.


@helper
def find_level(z: Array, lo: int, hi: int, base: float, rate: float, tau: float) -> float:
    """τ with ``Σ max(0, z − τ) = base + rate·τ``, from one below it (Michelot's projection)."""
    while True:
        mass = 0.0
        count = 0
        for p in range(lo, hi):
            if z[p] > tau:
                mass += z[p]
                count += 1
        better = (mass - base) / (count + rate) if count > 0 else tau
        if not better > tau:  # the same entries as before, or no numbers: τ only rises
            return tau
        tau = better


class Response(NamedTuple):
    """The maximisers α(w) in ψ, and what its Hessian is made of beside the planes."""

    sigma: Array  # one entry per example, as ``rho`` and ``slack``
    centre: Array  # β, one entry per plane in use, as the next two
    alpha: Array
    free: Array  # whether α is strictly inside its bounds
    rho: Array  # what couples those of an example
    slack: Array

    def weigh_rows(self, rows: Array, owners: Array) -> Array:
        """R with ``RᵀR = Σ_i σ_i F_iᵀ(I − ρ_i 11ᵀ)F_i``; F is ``rows``, by owner; in place."""
        if not len(owners):
            return rows
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        counts = np.diff(np.append(starts, len(owners)))
        # I − ρ11ᵀ is the square of I − c11ᵀ.
        factor = 1.0 - np.sqrt(np.maximum(1.0 - self.rho[owners[starts]] * counts, 0.0))
        sums = np.add.reduceat(rows, starts, axis=0) * (factor / counts)[:, None]
        rows -= np.repeat(sums, counts, axis=0)
        rows *= np.sqrt(self.sigma[owners])[:, None]
        return rows

    def square(self, rows: Array, owners: Array) -> Array:
        """``RᵀR``, or R where that has fewer rows; see :func:`solve`."""
        rows = self.weigh_rows(rows, owners)
        return rows if len(rows) < rows.shape[1] else rows.T @ rows


@helper
def respond_one(
    form: Formulation, i: int, span: tuple[int, int], hinges: Array, out: Response
) -> float:
    """:func:`respond` for example i, whose planes are those in ``span``."""
    sigma, centre, alpha, free, rho, slack = out
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
            tau = find_level(alpha, lo, hi, 0.0, 1.0 / (s * ridge), 0.0)
            mass = tau / (s * ridge)
        tight = mass > cap
        if tight:
            tau = find_level(alpha, lo, hi, cap, 0.0, 0.0)
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
def respond(form: Formulation, first: Array, hinges: Array, out: Response) -> float:
    """Fill the response to these hinges, for σ and β as they are; the sum of the maxima in ψ(w).

    Example i's planes are those from ``first[i]`` to ``first[i + 1]``.
    """
    total = 0.0
    for i in range(out.sigma.shape[0]):
        total += respond_one(form, i, (first[i], first[i + 1]), hinges, out)
    return total


class Told(NamedTuple):
    """What examples tell of weights w."""

    value: float  # the sum of the maxima in ψ(w)
    cost: float  # of their slack
    gain: float  # Σ α(w)·b
    ridge: float  # ½ Σ r_i A_i²
    image: Array  # Fᵀα(w)


class Planes:
    """The planes of a solver around a β: its multipliers, or none of them at all."""

    def __init__(self, solver: Any, none: bool) -> None:
        self.solver, self.form = solver, solver.by_block(solver.form)
        known, (self.support, counts) = solver.multipliers(), solver.planes_in_use()
        self.first = np.concatenate([[0], np.cumsum(counts)])
        self.offset = known.offset[self.support]
        centre = np.zeros_like(self.offset) if none else known.mass[self.support]
        cap, ridge = self.form.cap, self.form.ridge
        self.scale = np.where(np.isfinite(cap), cap, 1.0 / np.maximum(ridge, 1e-300))
        self.scale[self.scale == 0.0] = 1.0
        self.owners = np.repeat(np.arange(len(counts)), counts)
        sums = np.bincount(self.owners, centre, len(counts))
        filled = (sums / self.scale)[sums > 0.0]
        self.filled = float(filled.sum()), len(filled)  # how much mass those have that have some
        planes = (centre, np.empty_like(centre), np.zeros(len(centre), dtype=np.bool_))
        self.parts = Response(self.scale, *planes, np.zeros(len(counts)), np.zeros(len(counts)))
        size, self.rows = len(solver.w), None
        if hasattr(solver, "write_rows") and size <= solver.plane_size:  # a row is a shorter plane
            self.rows = solver.write_rows(self.support) if len(self.support) * size < ROWS else None

    def evaluate(self, w: Array, rate: float) -> Told:
        """What ψ is made of at w; σ is ``rate`` times what an example may have."""
        sigma = np.maximum(self.scale * rate, 1e-300)  # kernels divide by it
        self.parts = self.parts._replace(sigma=sigma)
        form, alpha, image = self.form, self.parts.alpha, aligned_zeros(len(w))
        if hasattr(self.solver, "respond"):
            value = self.solver.respond(w, self.parts, image)
        else:
            rows = self.rows
            products = self.solver.products(self.support, w) if rows is None else rows @ w
            self.hinges = self.offset - products
            value = respond(form, self.first, self.hinges, self.parts)
            if rows is None:
                self.solver.combine(self.support, alpha, image)
            else:
                image[:] = alpha @ rows
        ridge = 0.0
        if form.ridge.any():
            ridge = 0.5 * float(form.ridge @ np.bincount(self.owners, alpha, len(form.cap)) ** 2)
        cost = total_slack_cost(form, self.parts.slack)
        return Told(value, cost, float(alpha @ self.offset), ridge, image)

    def list_starts(self) -> list[Array]:
        """Weights to begin with, the best of them; what is likely to be comes last."""
        best, w = self.solver.best()[0], self.solver.w
        some = [] if hasattr(self.solver, "respond") else [aligned_zeros(len(w)), w.copy()]
        return [*some, best.copy()]

    def shorten(self, w: Array, trial: Array) -> float:
        """A factor on the way from w to the last weights, where ψ is too large."""
        return 0.5

    def find_direction(self, gradient: Array) -> Array:
        """Newton's, from where they were evaluated."""
        if self.rows is None:
            matrix, order = self.solver.curvature(self.support, self.parts)
            return solve(matrix, order, gradient)
        free = self.parts.free
        return solve(self.parts.square(self.rows[free], self.owners[free]), None, gradient)

    def keep(self) -> None:
        """Remember α(w)."""
        self.chosen = self.parts.alpha.copy()

    def take(self, image: Array) -> None:
        """Go to the multipliers that were kept last, of this image."""
        self.solver.multipliers().mass[self.support] = self.chosen
        self.solver.w[:] = image


def move_to_proximal_point(
    solver: CertifiedSolver, width: float, gather: Callable[..., Any] | None = None
) -> tuple[bool, bool, float]:
    """Find the next β; whether the dual rose, whether the primal fell, and the next width.

    ``width`` says how far hinges must move to take an example from no mass to as much as those
    with mass have on average: σ is that mass over the width. ``gather`` makes other planes.
    """
    bound = solver.dual()
    none = bound <= 0.0  # worse than no mass at all
    planes = gather(solver, none) if gather else Planes(solver, none)
    total, count = planes.filled
    rate = max((total / count if count else 1.0) / width, 1e-200)

    def evaluate(w: Array) -> tuple[float, Told]:
        told = planes.evaluate(w, rate)
        return 0.5 * float(w @ w) + told.value, told

    value = math.inf
    for start in planes.list_starts():
        reached, found = evaluate(start)
        if not reached > value:
            w, value, told = start, reached, found
    if w is not start:
        value, told = evaluate(w)
    chosen: Array | None = None
    least = solver.best()[1] if solver.certifies else math.inf
    before = least
    for step in range(STEPS):
        primal = 0.5 * float(w @ w) + told.cost
        least = min(least, primal)
        if solver.certifies:
            solver.keep(w, primal)
        dual = told.gain - 0.5 * float(told.image @ told.image) - told.ridge
        if dual > bound:
            bound, chosen = dual, told.image
            planes.keep()
        gradient = w - told.image
        settled = 0.5 * float(gradient @ gradient) <= SHARE * (least - bound)
        if step > 0 and chosen is not None and settled:
            break
        direction = planes.find_direction(gradient)
        slope = float(direction @ gradient)
        if not slope < 0.0:
            break
        length = 1.0
        while True:
            trial = w + length * direction
            reached, told = evaluate(trial)
            if reached <= value + 1e-4 * length * slope or length < 1e-6:
                break
            length *= planes.shorten(w, trial)
        w, value = trial, reached
    if chosen is not None:
        planes.take(chosen)
    # Where it took few steps, the next point may lie farther.
    width *= 1 / 3 if step <= 6 else 0.7 if step <= 12 else 1.5 if step <= 20 else 3.0
    return chosen is not None, least < before, width


def solve(matrix: Any, order: Array | None, gradient: Array) -> Array:
    """``−(I + matrix)⁻¹·gradient``; ``order`` are the weights that rows stand for, None: all.

    The matrix may also be given as what multiplies vectors by it, and its diagonal, or as R, with
    fewer rows than columns, where it is ``RᵀR``.
    """
    if isinstance(matrix, tuple):
        multiply, diagonal = matrix
        return conjugate_gradients(multiply, diagonal, -gradient)
    if not len(matrix):
        return -gradient
    if len(matrix) < matrix.shape[1]:
        return matrix.T @ -solve(matrix @ matrix.T, None, matrix @ gradient) - gradient
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


def conjugate_gradients(multiply: Callable[[Array], Array], diagonal: Array, right: Array) -> Array:
    """``(I + matrix)⁻¹·right`` up to a third; the matrix is what multiplies, and its diagonal."""
    inverse = 1.0 / (1.0 + diagonal)
    found, residual = np.zeros_like(right), right
    direction = ahead = inverse * residual
    product = first = float(residual @ ahead)
    for _ in range(CG_STEPS):
        if not product > 0.1 * first:  # nor where there is nothing to find
            break
        image = direction + multiply(direction)
        step = product / float(direction @ image)
        found += step * direction
        residual = residual - step * image
        ahead = inverse * residual
        before, product = product, float(residual @ ahead)
        direction = ahead + (product / before) * direction
    return found
