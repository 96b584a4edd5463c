"""Stochastic subgradient descent, with a dual point of its own.

Algorithm 1 of S. Kim, J. Kim, S. Yun, C. D. Yoo, *ν-Structured Support Vector Machines* (2010)::

    w_t = w_{t−1} − μ_t (w_{t−1} − n·s̄_i·Δf_i(ŷ)),     ρ_t = [ρ_{t−1} − μ'_t (n·s̄_i·l_i(ŷ) − ν)]₊

with ŷ the most violated output of example i at (w_{t−1}, ρ_{t−1}). ``slack="max"`` is the same with
ρ = 1 for good and the bounds ``C·s_i`` for s̄_i.

Steps. The paper names its step schedules but prints none. Here every pass visits the examples in a
new random order, and in pass k ``μ_t = k/W_t`` where ``W_t`` sums the k of all steps so far: about
``2/t``, the schedule for strongly convex problems. Then ``w_t = (1/W_t) Σ k·n·s̄_i·Δf_i(ŷ)`` is a
mean of planes, and after each whole pass every example has had the same share in it: these weights
belong to multipliers that are feasible, ``Σ_y β_i = s̄_i``, without keeping any plane. For ρ the
step is ``μ'_t = gain·ρ/(ν·(t + n))``, ρ that of the pass's beginning.

Averaging. Candidates for the primal are the averages of the iterates with weights ``W_t``, about
``t²``; ``Σ W_t·w_t`` needs one more vector and no work per step but for the plane's own entries.

Certificate. The primal of the averaged weights against the dual of the mean of planes. With ν
these multipliers have ``L = Σ β·l`` near ν, on one side or the other; points of both sides are
mixed to meet it (:mod:`hingeline.solvers.nu`). The first from above is that of the largest losses.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hingeline._checks import Array
from hingeline._jit import kernel
from hingeline._simd import aligned_zeros
from hingeline.core.primitives import decode, output_length, plane_add, plane_loss, plane_score
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import CertifiedSolver
from hingeline.solvers.nu import Margins, NuCertificate, best_multiple

STEPS, TOTAL, RHO, MEAN_RHO, MASS, LINEAR, HINGES = range(7)  # Entries of the kernel's state.


@kernel
def descend(
    problem: Any,
    cap: Array,
    order: Array,
    weight: float,
    nu: float,
    gain: float,
    state: Array,
    planes: Array,
    moments: Array,
) -> None:
    """One pass; ``w = planes/W``. ``gain`` is 0 where ρ stays.

    ``planes`` sums the steps' planes with their weight, ``moments`` the same times the step's
    number, which is what the averages of the iterates are made of.
    """
    n = order.shape[0]
    for i in order:
        y = np.empty(output_length(problem, i), dtype=np.int32)
        rho = state[RHO]
        total = max(state[TOTAL], 1e-300)
        decode(problem, i, planes, rho * total, y)
        loss = plane_loss(problem, i, y)
        hinge = rho * loss - plane_score(problem, i, y, planes) / total
        state[HINGES] += cap[i] * max(hinge, 0.0)
        share = n * cap[i]
        state[STEPS] += 1.0
        step = weight * share
        plane_add(problem, i, y, step, planes)
        plane_add(problem, i, y, step * state[STEPS], moments)
        state[LINEAR] += step * loss
        state[TOTAL] += weight
        if gain > 0.0:
            state[RHO] = max(rho - gain / (state[STEPS] + n) * (share * loss - nu), 0.0)
        state[MEAN_RHO] += state[TOTAL] * state[RHO]
        state[MASS] += state[TOTAL]


class Subgradient(CertifiedSolver):
    """Stochastic subgradient descent for ``slack="max"``; see the head of this module."""

    name = "subgradient"
    slacks: ClassVar[tuple[str, ...]] = ("max",)
    rescalings = ("margin",)
    soft_only = "it descends on the price of slack"
    polishes = True

    @dataclass(frozen=True)
    class Options(SolverOptions):
        nu: float = 0.0

    saved_arrays: ClassVar[tuple[str, ...]] = ("planes", "moments", "state", "_best")

    def _begin(self, start: None) -> None:
        self.margins = Margins(self.compiled, self.form.cap, self.workers, float(self.options.nu))
        self.planes, self.moments = aligned_zeros(len(self.w)), aligned_zeros(len(self.w))
        self.state = np.zeros(7)
        self.state[RHO] = 1.0

    def _gain(self) -> float:
        return 0.0  # ρ stays

    def mean(self) -> Array:
        """The last iterate, a mean of planes."""
        return np.asarray(self.planes / max(self.state[TOTAL], 1e-300))

    def sweep(self) -> float:
        self.clock += 1
        self.state[HINGES] = 0.0
        order, weight = self.rng.permutation(self.active), float(self.clock)
        known = (self.form.cap, order, weight, self.margins.nu, self._gain())
        self.run(descend, *known, self.state, self.planes, self.moments)
        self.oracle_calls += len(self.active)
        w = self.mean()
        return 0.5 * float(w @ w) + float(self.state[HINGES]) - self.lower_bound()

    def _level(self) -> float:
        """``Σ β·l`` of the mean of planes."""
        return float(self.state[LINEAR] / max(self.state[TOTAL], 1e-300))

    def lower_bound(self) -> float:
        w = self.mean()
        return self._level() - 0.5 * float(w @ w)

    def average(self) -> tuple[Array, float]:
        """Averaged weights and ρ."""
        steps, mass = self.state[STEPS], max(self.state[MASS], 1e-300)
        weights = ((steps + 1.0) * self.planes - self.moments) / mass
        return weights, float(self.state[MEAN_RHO] / mass)

    def candidate(self) -> Array:
        return self.average()[0]

    def certify(self) -> float:
        weights = self.candidate()
        primal = self.primal_of(weights)
        self.keep(weights, primal)
        return primal

    def primal_of(self, weights: Array) -> float:
        self.oracle_calls += len(self.active)
        hinges = float(self.form.cap @ self.margins.look(weights, 1.0).hinges)
        return 0.5 * float(weights @ weights) + hinges

    def repair(self) -> None:
        """Go on from where an interruption left the sums; the pass it fell into bounds nothing."""
        self.state[LINEAR] = -math.inf


class NuSubgradient(NuCertificate, Subgradient):
    """Algorithm 1 for the ν-problem."""

    slacks = ("nu",)
    soft_only = ""  # there is no C

    @dataclass(frozen=True)
    class Options(Subgradient.Options):
        gain: float = option(8.0, "length of ρ's steps, about 1 over the slope of risk in log ρ")
        nu: float = 1.0

    saved_numbers = (*Subgradient.saved_numbers, *NuCertificate.nu_numbers, "_first_rho")
    saved_arrays = (*Subgradient.saved_arrays, *NuCertificate.nu_arrays)

    def _begin(self, start: None) -> None:
        super()._begin(start)
        self._set_margins(self.margins)
        # The mean of the planes of the largest losses is feasible whatever ν is.
        n, state = len(self.active), self.state.copy()
        state[TOTAL] = 1e300  # so large that scores count for nothing beside losses
        planes, moments = aligned_zeros(len(self.w)), aligned_zeros(len(self.w))
        self.run(descend, self.form.cap, self.active, 1.0, 0.0, 0.0, state, planes, moments)
        self.oracle_calls += n
        self.mix(planes / n, float(state[LINEAR]) / n)
        # With the largest losses throughout, νρ is at least the square of the weights.
        self._first_rho = float((planes / n) @ (planes / n)) / self.nu
        self.state[RHO] = self._first_rho

    def _gain(self) -> float:
        rho = max(float(self.state[RHO]), 1e-2 * self._first_rho)
        return float(self.options.gain) * rho / self.nu

    def sweep(self) -> float:
        super().sweep()
        w = self.mean()
        self.mix(w, self._level())
        lead = self.nu * float(self.state[RHO]) - float(self.state[HINGES])
        return max(best_multiple(lead, float(w @ w))[0] - self._bound, 0.0)

    def certify(self) -> float:
        """The value of (7) at the best multiple of the averaged weights and ρ."""
        weights, rho = self.average()
        self.oracle_calls += len(self.active)
        lead = self.margins.look(weights, rho).lead
        if rho > 0.0:
            self.least_hinge = min(self.least_hinge, self.nu - lead / rho)
        primal, factor = best_multiple(lead, float(weights @ weights))
        if self.keep(weights, primal, factor):
            self._best_rho = factor * rho
        return primal

    def primal_of(self, weights: Array) -> float:
        return self._primal_near(weights, max(self.average()[1], 1e-300))
