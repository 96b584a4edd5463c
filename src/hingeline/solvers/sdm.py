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

Averaging. With iterates ``w_1 … w_K`` (one a visit) the average with weights ∝ k is
``w̄ = w_K − u/(K(K+1))`` for ``u = Σ_k k(k−1)·(w_k − w_{k−1})``. The sum is kept per plane
(``drift``), not per weight: it costs nothing at a visit and no second copy of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.core.formulations import Formulation, example_gap
from hingeline.core.planes import WorkingSet, grown, planes
from hingeline.core.primitives import planes_add, planes_score
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import PlaneSolver, stages_for
from hingeline.solvers.conjugate_gradients import Accelerator

Array = np.ndarray[Any, Any]


@kernel
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


@helper
def visit(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    i: int,
    w: Array,
    coefficient: float,
    clock: int,
    precision: float,
    floor: float,
) -> float:
    """Solve example i's dual over its planes and carry the change into w.

    Returns the gap the example had before, over the planes it knows.
    """
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
    scores = np.empty(m)
    planes_score(problem, i, ys, w, scores)
    ridge = form.ridge[i]
    total = 0.0
    for j in range(m):
        total += alpha[j]
    gradient = np.empty(m)
    top = 0.0
    linear = 0.0
    least = 0.0 if total < form.cap[i] else np.inf
    for j in range(m):
        value = ws.offset[s + j] - ws.scale[s + j] * scores[j]
        top = max(top, value)
        linear += alpha[j] * value
        gradient[j] = value - ridge * total
        if alpha[j] > 0.0:
            least = min(least, gradient[j])
    gap = example_gap(form, i, top, total, linear)
    spread = max(0.0, top - ridge * total) - least
    if spread <= floor:
        return gap
    pair_steps(
        gram, alpha, gradient, form.cap[i], ridge, max(precision * spread, 0.5 * floor), 10 * m + 10
    )
    steps = scores  # no longer needed: the buffer serves again
    for j in range(m):
        if alpha[j] > 0.0:
            ws.stamp[s + j] = clock
        change = alpha[j] - before[j]
        ws.drift[s + j] += coefficient * change
        steps[j] = ws.scale[s + j] * change
    planes_add(problem, i, ys, steps, w)
    return gap


@kernel
def move_mass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    visits: float,
    clock: int,
    precision: float,
    floor: float,
    gaps: Array,
) -> None:
    """Visit the examples of ``order`` in turn; ``visits`` were made before (for the average)."""
    k = visits
    for i in order:
        k += 1.0
        gaps[i] = visit(problem, form, ws, i, w, k * (k - 1.0), clock, precision, floor)


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

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.accelerate = Accelerator(self.options.cg_steps)
        if self.fresh and np.isfinite(self.form.cap).all():
            self.stages = self._plan_stages()

    @property
    def patience(self) -> int:
        """Passes after which a plane without mass may go."""
        return int(self.options.patience)

    def _plan_stages(self) -> list[float]:
        sample = self.active[: min(100, len(self.active))]
        self.find(sample, self.patience)
        squares = (self.ws.scale**2 * self.ws.sqnorm)[self.ws.sqnorm > 0.0]
        if not len(squares):
            return []
        reach = float(self.form.cap[sample].mean() * squares.mean())
        return stages_for(reach, self.options.stage_factor, most=2)

    def _scale(self, factor: float) -> None:
        self.ws.alpha[:] *= factor
        self.w *= factor
        self.restart_average()

    def sweep(self) -> float:
        """One decoding pass and the cached passes after it."""
        options = self.options
        self.clock += 1
        if self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0:
            self.restart_average()  # it covers the later half of the run, 16 passes at most
        stage = self.stage()
        known = self.n_planes
        order = self.rng.permutation(self.active)
        block = options.block or default_block(len(order))
        for lo in range(0, len(order), block):
            part = order[lo : lo + block]
            self.find(part, self.patience)
            self._move(part, stage)
        self.oracle_calls += len(order)
        self.ws = grown(self.ws, self.clock, self.patience)
        estimate = float(self.gaps.sum())
        passes = options.cached_passes
        if 20 * (self.n_planes - known) <= len(order):  # decoding hardly finds anything any more
            passes *= 5
        for _ in range(passes):
            worth = self.gaps > options.skip * self.gaps[self.active].mean()
            if not worth.any():
                break
            self._move(self.rng.permutation(np.flatnonzero(worth & (self.ws.used > 0))), stage)
        if stage is self.form and self.clock > 4:
            self.accelerate(self, estimate)
        return estimate if stage is self.form else np.inf

    def _move(self, order: Array, form: Formulation) -> None:
        self.compiled.bind(move_mass)(
            self.compiled.problem,
            form,
            self.ws,
            order,
            self.w,
            self.visits,
            self.clock,
            self.options.precision,
            0.0,
            self.gaps,
        )
        self.visits += len(order)


def default_block(n: int) -> int:
    """Block size by the number of examples: small against n, large enough to feed threads."""
    return max(1, min(64, n // 32))
