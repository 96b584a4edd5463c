"""Dual coordinate descent for summed errors where all outputs are the working set.

The all-classes mode of P. Balamurugan, S. Shevade, T. Ravindra Babu, *Efficient Algorithms for
Linear Summed Error Structural SVMs*, section V.A: V_i holds every output and the violator step is
left out. For multi-class this is the SVM of Weston and Watkins, and its certificate is the true
one. Passes, shrinking and stages are those of :mod:`.enumerated`.

Where all inner products are ``Δf_j·Δf_k = s·(1 + [j = k])``, as in multi-class, an example's
multipliers move together to their joint optimum: ``α_k = clip(β_k − T, 0, cap)`` with
``β = α + h/s`` and T the sum of all changes, the root of an increasing function of one variable.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hingeline._jit import finite_helper, helper, kernel
from hingeline.formulations import Formulation, example_gap, joined, plane_scale
from hingeline.solvers.enumerated import EnumeratedSDM, shuffled
from hingeline.solvers.enumerated_visit import Buffers, hinges, make_buffers
from hingeline.solvers.sdcd import box_step, box_steps, slope
from hingeline.structures.base import all_add, all_inner, all_isotropy

Array = np.ndarray[Any, Any]


@finite_helper
def shift(beta: Array, m: int, base: float, cap: float) -> float:
    """The T with ``Σ_k clip(β_k − T, 0, cap) = base + T``, by Newton steps inside a bracket.

    The left side falls and the right side rises with T, both in straight pieces.
    """
    low = -np.inf
    high = np.inf
    T = 0.0
    for _ in range(100):
        total = 0.0
        inside = 0
        for k in range(m):
            value = beta[k] - T
            total += min(max(value, 0.0), cap)
            inside += 1 if 0.0 < value < cap else 0
        excess = total - base - T
        if excess == 0.0:
            break
        if excess > 0.0:
            low = T
        else:
            high = T
        step = excess / (1.0 + inside)
        if abs(step) <= 1e-15 * (abs(T) + cap):
            break
        T += step
        if not low < T < high:  # both are finite by then: a step leads away from the newer one
            T = 0.5 * (low + high)
    return T


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
    gram: Array,
) -> float:
    """Move the multipliers of example i and carry the change into w; the gap it had before.

    With a precision of 0 each moves once, in order, as printed.
    """
    at = i * m
    losses = work.losses
    values = work.values
    hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    slack = 0.0
    total = 0.0
    linear = 0.0
    spread = 0.0
    for k in range(m):
        slack = joined(form, slack, values[k])
        total += alpha[at + k]
        linear += alpha[at + k] * values[k]
        spread = max(spread, abs(slope(values[k], alpha[at + k], cap)))
    gap = example_gap(form, i, slack, total, linear)
    if spread == 0.0:
        return gap
    new = work.first
    square = all_isotropy(problem, i) if form.rescaled == 0 and precision > 0.0 else 0.0
    if square > 0.0:
        for k in range(m):
            # The true output has loss 0 and no plane.
            new[k] = alpha[at + k] + values[k] / square if losses[k] > 0.0 else -np.inf
        T = shift(new, m, total, cap)
        for k in range(m):
            new[k] = min(max(new[k] - T, 0.0), cap)
    else:
        for j in range(m):
            new[j] = alpha[at + j]
            a = plane_scale(form, losses[j])
            for k in range(j + 1):
                value = a * plane_scale(form, losses[k]) * all_inner(problem, i, j, k)
                gram[j, k] = value
                gram[k, j] = value
        if precision > 0.0:
            box_steps(gram, new[:m], values[:m], cap, precision * spread, 10 * m + 10)
        else:
            for k in range(m):
                box_step(gram, new[:m], values[:m], k, cap)
    steps = work.steps
    for k in range(m):
        change = new[k] - alpha[at + k]
        alpha[at + k] = new[k]
        drift[at + k] += coefficient * change
        steps[k] = plane_scale(form, losses[k]) * change
    all_add(problem, i, steps, w)
    return gap


@kernel
def move_in_boxes(
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
    gram = np.empty((m, m))
    k = visits
    for i in order:
        k += 1.0
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
            gram,
        )


class EnumeratedSDCD(EnumeratedSDM):
    """Dual coordinate descent over all outputs; see the head of this module.

    Options
    -------
    schedule : {"improved", "published"}
        ``"published"``: examples in order, every multiplier once a pass.
    violators : "all"
        All outputs are known here.
    passes, precision, skip, stage_factor, stage_sweeps, cg_steps
        As for ``"sdm"``; the published schedule uses none of them.
    """

    name = "sdcd"
    defaults: ClassVar[dict[str, Any]] = {
        **EnumeratedSDM.defaults,
        "schedule": "improved",
        "violators": "all",
    }
    words: ClassVar[dict[str, tuple[str, ...]]] = {
        "schedule": ("improved", "published"),
        "violators": ("all",),
    }
    idle: ClassVar[dict[str, tuple[str, ...]]] = {"published": (*EnumeratedSDM.defaults,)}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.options["schedule"] == "published":
            self.stages = []

    def sweep(self) -> float:
        """A pass of the published schedule, or that of :class:`EnumeratedSDM`."""
        if self.options["schedule"] == "improved":
            return super().sweep()
        self.clock += 1
        if self.clock & (self.clock - 1) == 0:
            self.restart_average()
        self._move_in(self.active, self.form, 0.0)
        return self._look_at_best(self.form, both=self.clock % 4 == 0) - self.dual()

    def _move(self, examples: Array, form: Formulation) -> None:
        self._move_in(shuffled(self.rng, examples), form, self.options["precision"])

    def _move_in(self, order: Array, form: Formulation, precision: float) -> None:
        move_in_boxes(
            self.compiled.problem,
            form,
            order,
            self.alpha,
            self.drift,
            self.w,
            self.visits,
            precision,
            self.gaps,
        )
        self.visits += len(order)
        self.oracle_calls += len(order)
