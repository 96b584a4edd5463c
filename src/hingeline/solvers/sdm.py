"""Sequential dual method: decode, keep the planes, solve each example's small dual exactly.

For the problem of :mod:`hingeline.core.formulations`, one example at a time with all others fixed::

    max  Σ_j δ_j g_j − ½ δᵀ(G + r·11ᵀ)δ     over α ≥ 0, Σ α ≤ cap,   δ = α − α_old

``g_j = b_j − a_j w·Δf_j − r·A`` is the gradient and G the Gram matrix of the example's planes. The
true output is a plane like any other (Δf = 0, b = 0) that holds the rest ``cap − A`` of the mass:
one kind of step does everything: move mass from a plane of small gradient that has some to the one
with the largest. A step costs O(planes) on G; the weights are touched once, at the end.

Passes that decode (type I) find new planes and alternate with passes over the planes already
there (type II), in which examples with little left to gain are skipped. S. Keerthi et al., *A
sequential dual method for large scale multi-class linear SVMs* (2008); P. Balamurugan et al.,
*A sequential dual method for structural SVMs* (2011).

The schedule is :meth:`hingeline.core.solver.PlaneSolver.sweep`, the rule is :class:`Pair`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._jit import helper
from hingeline.core.blocks import Mass, WorkingSet, register_rule
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import PlaneSolver
from hingeline.solvers.conjugate_gradients import Accelerator

Array = np.ndarray[Any, Any]


@helper
def pair_steps(
    gram: Array,
    alpha: Array,
    gradient: Array,
    cap: float,
    ridge: float,
    accuracy: float,
    limit: int,
) -> None:
    """Maximise one example's dual over its planes by pair steps, second-order choice.

    ``gram`` is (m, m) without the ridge; alpha and gradient change in place. Stops when the
    largest gradient exceeds the least one that still has mass by no more than ``accuracy``.
    """
    m = alpha.shape[0]
    total = 0.0
    for j in range(m):
        total += alpha[j]
    for _ in range(limit):
        up = -1  # −1 is the true output: gradient 0, curvature 0
        top = 0.0
        for j in range(m):
            if gradient[j] > top:
                top = gradient[j]
                up = j
        # The partner promises the largest gain (top − g)²/curvature among those with mass.
        down = -2
        gain = 0.0
        span = 0.0
        curve = 1.0
        if up >= 0 and total < cap:
            span = top
            curve = gram[up, up] + ridge
            gain = span * span / max(curve, 1e-300)
            down = -1
        worst = span
        for j in range(m):
            if alpha[j] > 0.0 and j != up:
                difference = top - gradient[j]
                worst = max(worst, difference)
                if difference > 0.0:
                    if up >= 0:
                        c = gram[up, up] + gram[j, j] - 2.0 * gram[up, j]
                    else:
                        c = gram[j, j] + ridge
                    value = difference * difference / max(c, 1e-300)
                    if value > gain:
                        gain = value
                        span = difference
                        curve = c
                        down = j
        if down == -2 or worst <= accuracy:
            break
        step = span / curve if curve > 0.0 else np.inf
        room = cap - total if down == -1 else alpha[down]
        step = min(step, room)
        if step == np.inf:
            break
        if up >= 0:
            alpha[up] += step
        if down >= 0:
            # Exactly zero when emptied, so that the slot can be used again.
            alpha[down] = 0.0 if step == room else alpha[down] - step
        if up >= 0 and down >= 0:
            for k in range(m):
                gradient[k] -= step * (gram[up, k] - gram[down, k])
        elif up >= 0:
            total = cap if step == room else total + step
            for k in range(m):
                gradient[k] -= step * (gram[up, k] + ridge)
        else:
            total -= step
            for k in range(m):
                gradient[k] += step * (gram[down, k] + ridge)


class Pair(NamedTuple):
    """The rule: pair steps until an example's largest violation has shrunk by this factor."""

    precision: float


@helper
def _step(
    rule: Pair, gram: Array, alpha: Array, before: Array, gradient: Array, mass: Mass
) -> tuple[bool, float]:
    m = alpha.shape[0]
    top = 0.0
    least = 0.0 if mass.total < mass.cap else np.inf
    for j in range(m):
        top = max(top, gradient[j])
        if alpha[j] > 0.0:
            least = min(least, gradient[j])
    spread = top - least
    if spread <= 0.0:
        return False, 0.0
    accuracy = rule.precision * spread
    pair_steps(gram, alpha, gradient, mass.cap, mass.ridge, accuracy, 10 * m + 10)
    return True, 0.0


register_rule(Pair, _step)


class SDM(PlaneSolver):
    """Sequential dual method over planes; see the head of this module."""

    name = "sdm"
    slacks: ClassVar[tuple[str, ...]] = ("max", "squared")

    @dataclass(frozen=True)
    class Options(SolverOptions):
        block: int | None = option(
            None, "examples decoded at the same weights, the same number for any n_jobs"
        )
        cached_passes: int = option(
            1,
            "type II passes after each type I pass; five times as many once decoding finds new "
            "planes for fewer than one example in twenty",
            least=0,
        )
        precision: float = option(0.1, "factor by which a visit shrinks an example's violations")
        patience: int | None = option(
            5, "passes after which a plane without mass may make room for a new one"
        )
        skip: float = option(
            0.1, "type II passes leave out gaps below this share of the mean", least=0
        )
        stage_factor: float = option(
            2.0, "large C is approached in up to two stages, each at so many times less"
        )
        stage_sweeps: int = option(1, "sweeps of a stage")
        cg_steps: int = option(
            30, "conjugate gradient steps over all planes with mass, late in the run", least=0
        )

    saved_numbers = (*PlaneSolver.saved_numbers, *Accelerator.saved_numbers)

    def _begin(self, start: WorkingSet | None) -> None:
        super()._begin(start)
        self.rule = Pair(self.options.precision)
        self.accelerate = Accelerator(self.options.cg_steps)
        self.plan_stages_by_sample()
