"""Fixed-threshold SMO inside the n-slack cutting plane algorithm.

C. Lee, M.-G. Jang, *Fast Training of Structured SVM Using Fixed-Threshold Sequential Minimal
Optimization* (ETRI Journal 31, 2009), Algorithms 1 and 2, for SVM₀ (``C=inf``), SVM₁
(``slack="max"``) and SVM₂ (``slack="squared"``), margin and slack rescaling.

Algorithm 1 decodes example after example; the most violated output ŷ enters S_i if
``H(ŷ) > ξ_i + ε`` with ``ξ_i = max(0, max_{y ∈ S_i} H(y))`` (line 8). Algorithm 2 optimises the
dual over the planes found. A structured SVM has no bias, hence no equality constraint, and one
multiplier can move alone, (15) and (17)::

    α ← α + (b − a·w·Δf − r·A) / (‖a·Δf‖² + r),   clipped to  0 ≤ α,  Σ_y α ≤ cap

Two corrections to the printed method, each checked numerically:

* With the sum at its bound, single multipliers are stuck above the optimum (0.03 to 45 % on small
  problems). There mass moves between two planes of the example instead.
* The printed KKT test (18) flags constraints that are satisfied at the optimum. The condition is
  ``α_y > 0 ⇒ h(y) = ξ_i``, and ``h(y) ≤ ξ_i`` for all y.

Line 10 re-optimises over all of S after each added plane, which is O(planes) per plane. Here the
examples of a block are optimised over their own planes as they come, and the whole of S once the
pass is over: the work per pass is linear in the number of planes.

Tolerance. When a pass adds nothing at ε, every hinge is within ε of the restricted problem's
slack, so ``P − D ≤ ε·Σ_i cap_i`` plus what Algorithm 2 left. Unless ``epsilon`` is given, it starts
large and is halved whenever a pass adds planes to fewer than a fifth of the examples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline._jit import kernel
from hingeline.core.blocks import KEEP, WorkingSet, make_room, planes
from hingeline.core.formulations import Formulation, example_gap
from hingeline.core.primitives import planes_add, planes_score
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import PlaneSolver
from hingeline.solvers.sdm import Accelerator


@kernel
def optimise(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    accuracy: float,
    violation: Array,
    gaps: Array,
) -> float:
    """One round of Algorithm 2 over the planes of the examples in ``order``.

    Returns the largest violation of the optimality conditions met. ``gaps`` receives each
    example's gap at its visit, with ``violation`` as its slack where that is larger. A rule of
    :mod:`hingeline.core.blocks` would do the same but for the last bits of a sum of multipliers.
    """
    worst = 0.0
    for i in order:
        m, s, g, room = ws.used[i], ws.slot[i], ws.gram_start[i], ws.capacity[i]
        if m == 0:
            continue
        gram = ws.gram[g : g + room * room].reshape((room, room))
        alpha = ws.alpha[s : s + m]
        ridge, cap = form.ridge[i], form.cap[i]
        ys, h = planes(ws, i), np.empty(m)
        planes_score(problem, i, ys, w, h)
        total = top = linear = 0.0
        for j in range(m):
            h[j] = ws.offset[s + j] - ws.scale[s + j] * h[j]
            total += alpha[j]
            top = max(top, h[j])
            linear += alpha[j] * h[j]
        gaps[i] = example_gap(form, i, max(top, violation[i]), total, linear)
        for j in range(m):
            h[j] -= ridge * total
        before = alpha.copy()
        for j in range(m):
            # One multiplier, line 6.
            if (h[j] > accuracy and total < cap) or (h[j] < -accuracy and alpha[j] > 0.0):
                worst = max(worst, abs(h[j]))
                curve = gram[j, j] + ridge
                step = h[j] / curve if curve > 0.0 else (cap - total if h[j] > 0.0 else -alpha[j])
                step = max(-alpha[j], min(step, cap - total))
                if step == np.inf:
                    step = 0.0
                alpha[j] = 0.0 if step == -alpha[j] else alpha[j] + step
                total = cap if step == cap - total else total + step
                for k in range(m):
                    h[k] -= step * (gram[j, k] + ridge)
            # Where the sum is tight, mass comes from the plane that needs it least.
            if total >= cap and h[j] > 0.0:
                least = -1
                for k in range(m):
                    if k != j and alpha[k] > 0.0 and (least < 0 or h[k] < h[least]):
                        least = k
                if least >= 0 and h[j] - h[least] > accuracy:
                    worst = max(worst, h[j] - h[least])
                    curve = gram[j, j] + gram[least, least] - 2.0 * gram[j, least]
                    step = (h[j] - h[least]) / curve if curve > 0.0 else alpha[least]
                    step = min(step, alpha[least])
                    alpha[j] += step
                    alpha[least] = 0.0 if step == alpha[least] else alpha[least] - step
                    for k in range(m):
                        h[k] -= step * (gram[j, k] - gram[least, k])
        changed = False
        for j in range(m):
            h[j] = ws.scale[s + j] * (alpha[j] - before[j])
            changed = changed or h[j] != 0.0
        if changed:
            planes_add(problem, i, ys, h, w)
    return worst


class FSMO(PlaneSolver):
    """Cutting planes with fixed-threshold SMO; see the head of this module."""

    name = "fsmo"
    slacks = ("max", "squared")

    @dataclass(frozen=True)
    class Options(SolverOptions):
        epsilon: float | None = option(None, "line 8 of Algorithm 1; None: lowered as tol asks")
        inner_rounds: int = option(10, "rounds of Algorithm 2 after each pass, at most")
        cg_steps: int = option(30, "conjugate gradients for line 10; 0: as published", least=0)
        block: int | None = option(None, "examples decoded at the same weights, for any n_jobs")

    saved_numbers = (*PlaneSolver.saved_numbers, *Accelerator.saved_numbers, "epsilon")

    def _begin(self, start: WorkingSet | None) -> None:
        super()._begin(start)
        self.epsilon = 1.0 if self.options.epsilon is None else float(self.options.epsilon)
        self.accelerate = Accelerator(self.options.cg_steps)

    def sweep(self) -> float:
        """One round of Algorithm 1 over the examples."""
        self.clock += 1
        planes_before = self.n_planes
        order = self.rng.permutation(self.active)
        for part in self.cut_into_blocks(order):
            self.find(part, KEEP, self.epsilon)
            self._optimise(part)
        self.oracle_calls += len(order)
        added = self.n_planes - planes_before
        estimate = float(self.gaps.sum())
        crowded = bool(self.ws.wanted.any())
        self.ws = make_room(self.ws, self.clock, KEEP)
        worst = np.inf
        self.violation[:] = 0.0
        for _ in range(self.options.inner_rounds):
            worst = self._optimise(self.active)
            if worst <= 0.5 * self.epsilon:
                break
        if self.options.cg_steps and self.clock > 4:
            self.accelerate(self, estimate)
        if self.options.epsilon is None:
            if 5 * added <= len(order):
                self.epsilon *= 0.5
        elif added == 0 and not crowded and worst <= 0.5 * self.epsilon:
            self.settled = f"no constraint is violated by more than epsilon={self.epsilon:g}"
        return estimate

    def _optimise(self, order: Array) -> float:
        state = (self.w, 0.25 * self.epsilon, self.violation, self.gaps)
        return float(self.run(optimise, self.form, self.ws, order, *state))
