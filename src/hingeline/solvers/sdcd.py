"""Sequential dual coordinate descent for summed errors: one multiplier at a time, in a box.

P. Balamurugan, S. Shevade, T. Ravindra Babu, *Efficient Algorithms for Linear Summed Error
Structural SVMs*, Algorithm 2. With ``slack="sum"`` the dual (OP3) has no constraint that ties
multipliers together, ``0 ≤ α_i(y) ≤ cap_i``, and one moves alone, (IV.6) and (IV.7)::

    α ← min(max(α + h/‖a·Δf‖², 0), cap),   h = b − a·w·Δf,      w ← w + (α − α_old)·a·Δf

An example is visited, the loss-augmented argmax enters its set V_i (below are the
alternatives), and its multipliers move. Passes that decode (type I) alternate with passes over the
planes known (type II).

``schedule="published"``
    Examples in order, each multiplier once a visit, type I passes until ``iter`` exceeds κ₁ = 10,
    then one in κ₂ = 5. V_i starts empty: the printed V_i = {y_i} has Δf = 0, which gives 0/0 in
    (IV.6). The printed stopping rule, no example with Σδ² above ``delta`` = 1e-4 in a type I pass,
    says nothing about the objective: on OCR letters it stops at a gap of 0.3 % for C = 0.01 and of
    36 % for C = 1. It is used only if ``delta`` is given, and not before κ₁ passes are over: with
    one plane an example, at C = 0.01, no change can be that large.
``schedule="improved"``
    The passes of :mod:`hingeline.solvers.sdm`, by projected gradients; its conjugate gradients go
    over all multipliers strictly inside the box.

All outputs with a positive hinge share in the slack, and the loss-augmented argmax alone does not
find them: once it is in V_i at its bound, no other ever enters, and on chains the result stays 4 to
370 % above the optimum of OP2 (measured on small problems). So there is a choice:

``violators="argmax"``
    what the paper prints (step 10 of Algorithm 2): an estimator of its own, over what is found
an integer k
    the k best, exactly: likewise, over more outputs
``"all"``
    so many that some are new as long as any is violated: OP2 itself, and its true certificate

With the first two the certificate is that of the problem restricted to the outputs found (OP5): the
primal of the *newest* set, and of what is violated now, over a feasible dual. The set, which only
grows, defines the estimator: a certificate adds nothing to it, and primal values of different
moments are not compared.
"""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import finite_helper, helper, kernel
from hingeline.core import blocks, formulations
from hingeline.core.blocks import KEEP, Mass, WorkingSet, insert, slack_of_known
from hingeline.core.blocks import visit as visit_planes
from hingeline.core.formulations import Formulation, add_hinge, most_violated, plane_scale
from hingeline.core.primitives import (
    PART,
    SCRATCH,
    all_add,
    all_isotropy,
    decode_best,
    output_length,
    plane_loss,
    plane_score,
)
from hingeline.core.registry import option, option_names
from hingeline.core.solver import PlaneSolver
from hingeline.solvers import enumerated
from hingeline.solvers.enumerated import EnumeratedSDM, Work
from hingeline.solvers.sdm import SDM, Accelerator

SCHEDULES = ("improved", "published")
BEYOND = 16  # With ``"all"``, so many outputs more than are known are looked at in a sweep.
#: The first number of outputs that a certificate looks at; doubled until none is violated.
FIRST = 64


@helper
def violated(problem: Any, form: Formulation, i: int, w: Array, k: int) -> tuple[Array, Array]:
    """The violated ones among the k best outputs, best first, and their hinges.

    Margin rescaling asks for ``l − w·Δf > 0``, slack rescaling for ``w·Δf < 1``: under each, those
    that are violated are the best outputs with and without the loss.
    """
    ys = np.empty((k, output_length(problem, i)), dtype=np.int32)
    hinges = np.empty(k)
    found = decode_best(problem, i, w, 0.0 if form.rescaled == 1 else 1.0, ys)
    count = 0
    while count < found:
        loss = plane_loss(problem, i, ys[count])
        score = plane_score(problem, i, ys[count], w)
        if (1.0 if form.rescaled == 1 else loss) - score <= 0.0:
            break
        hinges[count] = formulations.plane_offset(form, loss) - plane_scale(form, loss) * score
        count += 1
    return ys[:count], hinges[:count]


@helper
def worst_violated(
    problem: Any, form: Formulation, i: int, w: Array, k: int
) -> tuple[Array, Array]:
    """:func:`violated`; where only one is asked for, the argmax under any hinge."""
    if k == 1:
        ys = np.empty((1, output_length(problem, i)), dtype=np.int32)
        hinges = np.empty(1)
        hinges[0] = most_violated(problem, form, i, w, 1.0, ys[0])
        count = 1 if hinges[0] > 0.0 else 0
        return ys[:count], hinges[:count]
    return violated(problem, form, i, w, k)


@helper
def all_violated(
    problem: Any, form: Formulation, i: int, w: Array, limit: int
) -> tuple[Array, Array, bool]:
    """The violated outputs, up to about ``limit``, and their hinges; whether these are all."""
    k = FIRST
    ys, hinges = violated(problem, form, i, w, k)
    while ys.shape[0] == k and k < limit:
        k = min(4 * k, limit)
        ys, hinges = violated(problem, form, i, w, k)
    return ys, hinges, ys.shape[0] < k


@helper
def add_violators(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    i: int,
    w: Array,
    wanted: int,
    clock: int,
    patience: int,
    scratch: Array,
) -> float:
    """Put violated outputs of example i into its set; the slack of those that found no room."""
    k = wanted if wanted > 0 else ws.used[i] - wanted
    ys, hinges = worst_violated(problem, form, i, w, k)
    left_out = 0.0
    for j in range(ys.shape[0]):
        if insert(problem, form, ws, i, ys[j], clock, patience, scratch) < 0:
            left_out = add_hinge(form, left_out, hinges[j])
    return left_out


@kernel
def find_violators(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    wanted: int,
    clock: int,
    patience: int,
    scratch: Array,
) -> None:
    """Put violated outputs of the examples of ``order`` into their sets; parts may run in threads.

    ``wanted`` best outputs are looked at, or ``−wanted`` more than are known.
    """
    for i in order:
        add_violators(problem, form, ws, i, w, wanted, clock, patience, scratch)


@kernel
def sum_over_found(
    problem: Any, form: Formulation, ws: WorkingSet, order: Array, w: Array, wanted: int, out: Array
) -> None:
    """``out[i]``: the slack over the outputs known and the ``wanted`` most violated ones."""
    for i in order:
        slack = slack_of_known(problem, form, ws, i, w)
        ys, hinges = worst_violated(problem, form, i, w, wanted)
        for j in range(ys.shape[0]):
            if blocks.find(ws, i, ys[j]) < 0:
                slack = add_hinge(form, slack, hinges[j])
        out[i] = slack


@kernel
def sum_violations(
    problem: Any, form: Formulation, order: Array, w: Array, limit: int, out: Array
) -> None:
    """``out[i]``: the slack over *all* outputs; ``inf`` where over ``limit`` are violated."""
    for i in order:
        _, hinges, complete = all_violated(problem, form, i, w, limit)
        slack = 0.0
        for h in hinges:
            slack = add_hinge(form, slack, h)
        out[i] = slack if complete else np.inf


# All outputs as the working set (section V.A): V_i holds every output, and the certificate is the
# true one. Passes, shrinking and stages are those of :mod:`.enumerated`. Where all inner products
# are ``Δf_j·Δf_k = s·(1 + [j = k])``, as in multi-class, an example's multipliers move together to
# their joint optimum: ``α_k = clip(β_k − T, 0, cap)`` with ``β = α + h/s`` and T the sum of all
# changes, the root of an increasing function of one variable.


@finite_helper
def shift(beta: Array, m: int, base: float, cap: float) -> float:
    """The T with ``Σ_k clip(β_k − T, 0, cap) = base + T``, by Newton steps inside a bracket.

    The left side falls and the right side rises with T, both in straight pieces.
    """
    low, high, T = -np.inf, np.inf, 0.0
    for _ in range(100):
        total, inside = 0.0, 0
        for k in range(m):
            value = beta[k] - T
            total += min(max(value, 0.0), cap)
            inside += 1 if 0.0 < value < cap else 0
        excess = total - base - T
        if excess == 0.0:
            break
        low, high = (T, high) if excess > 0.0 else (low, T)
        step = excess / (1.0 + inside)
        if abs(step) <= 1e-15 * (abs(T) + cap):
            break
        T += step
        if not low < T < high:  # both are finite by then: a step leads away from the newer one
            T = 0.5 * (low + high)
    return T


@helper
def visit_in_boxes(
    rule: Any, problem: Any, form: Formulation, i: int, w: Array, coefficient: float, work: Work
) -> float:
    """:func:`.enumerated.visit`, in closed form where there is one."""
    square = all_isotropy(problem, i) if form.rescaled == 0 and rule.precision > 0.0 else 0.0
    if square <= 0.0:
        return enumerated.visit(rule, problem, form, i, w, coefficient, work)
    m = work.chosen.shape[0]
    at, cap = i * m, form.cap[i]
    alpha, losses, values = work.alpha, work.losses, work.values
    enumerated.hinges(problem, form, i, m, w, losses, values)
    slack = total = linear = spread = 0.0
    for k in range(m):
        slack = add_hinge(form, slack, values[k])
        total += alpha[at + k]
        linear += alpha[at + k] * values[k]
        spread = max(spread, abs(slope(values[k], alpha[at + k], cap)))
    gap = formulations.example_gap(form, i, slack, total, linear)
    if spread == 0.0:
        return gap
    new = work.first
    for k in range(m):
        # The true output has loss 0 and no plane.
        new[k] = alpha[at + k] + values[k] / square if losses[k] > 0.0 else -np.inf
    T = shift(new, m, total, cap)
    steps = work.steps
    for k in range(m):
        new[k] = min(max(new[k] - T, 0.0), cap)
        change = new[k] - alpha[at + k]
        alpha[at + k] = new[k]
        work.drift[at + k] += coefficient * change
        steps[k] = plane_scale(form, losses[k]) * change
    all_add(problem, i, steps, w)
    return gap


class EnumeratedSDCD(EnumeratedSDM):
    """Dual coordinate descent over all outputs; see the head of this module."""

    name = "sdcd"
    slacks = ("sum",)

    @dataclass(frozen=True)
    class Options(EnumeratedSDM.Options):
        schedule: str = option("improved", "what a pass does", words=SCHEDULES)
        violators: str = "all"

        def unused(self, slack: str) -> Iterable[str]:
            return option_names(EnumeratedSDM) if self.schedule == "published" else ()

    def _begin(self, start: Array | None) -> None:
        super()._begin(start)
        published = self.options.schedule == "published"
        self.rule = Box(0.0 if published else self.options.precision)
        if published:
            self.stages = []

    def sweep(self) -> float:
        """A pass of the published schedule, or that of :class:`EnumeratedSDM`."""
        if self.options.schedule == "improved":
            return super().sweep()
        self.clock += 1
        if self.clock & (self.clock - 1) == 0:
            self.restart_average()
        self.visit(self.active, self.form)
        return self._look_at_best(self.form, both=self.clock % 4 == 0) - self.dual()


@helper
def slope(gradient: float, alpha: float, cap: float) -> float:
    """The projected gradient: what is left of it inside the box."""
    if (gradient > 0.0 and alpha < cap) or (gradient < 0.0 and alpha > 0.0):
        return gradient
    return 0.0


@helper
def box_step(gram: Array, alpha: Array, gradient: Array, j: int, cap: float) -> float:
    """(IV.6) for multiplier j, alpha and gradient kept current; returns the change."""
    curve, before = gram[j, j], alpha[j]
    if curve > 0.0:
        alpha[j] = min(max(before + gradient[j] / curve, 0.0), cap)
    elif gradient[j] < 0.0:
        alpha[j] = 0.0
    elif gradient[j] > 0.0 and cap < np.inf:
        alpha[j] = cap
    change = alpha[j] - before
    if change != 0.0:
        for k in range(alpha.shape[0]):
            gradient[k] -= change * gram[j, k]
    return change


@kernel
def box_steps(gram: Array, alpha: Array, gradient: Array, cap: float, accuracy: float) -> None:
    """Maximise one example's dual, the multiplier with the most to gain first.

    Stops when no projected gradient exceeds ``accuracy``.
    """
    m = alpha.shape[0]
    for _ in range(10 * m + 10):
        best, gain, worst = -1, 0.0, 0.0
        for j in range(m):
            g = slope(gradient[j], alpha[j], cap)
            if g == 0.0:
                continue
            worst = max(worst, abs(g))
            room = cap - alpha[j] if g > 0.0 else alpha[j]
            step = min(abs(g) / max(gram[j, j], 1e-300), room)
            value = step * (abs(g) - 0.5 * step * gram[j, j])
            if value > gain:
                best, gain = j, value
        if best < 0 or worst <= accuracy:
            break
        box_step(gram, alpha, gradient, best, cap)


class Box(NamedTuple):
    """The rule: multipliers move alone until an example's violations have shrunk by this factor.

    With a precision of 0 each moves once, in the order in which they came. The result is Σδ².
    """

    precision: float


@helper
def _step(
    rule: Box, gram: Array, alpha: Array, before: Array, gradient: Array, mass: Mass
) -> tuple[bool, float]:
    m, cap, spread = alpha.shape[0], mass.cap, 0.0
    for j in range(m):
        spread = max(spread, abs(slope(gradient[j], alpha[j], cap)))
    if spread == 0.0:
        return False, 0.0
    if rule.precision > 0.0:
        box_steps(gram, alpha, gradient, cap, rule.precision * spread)
    else:
        for j in range(m):
            box_step(gram, alpha, gradient, j, cap)
    square = 0.0
    for j in range(m):
        square += (alpha[j] - before[j]) ** 2
    return True, square


blocks.register_rule(Box, _step)
enumerated.VISITS[Box] = visit_in_boxes


@kernel
def published_pass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    rule: Box,
    order: Array,
    w: Array,
    visits: float,
    wanted: int,
    clock: int,
    scratch: Array,
    gaps: Array,
) -> float:
    """Lines 8 to 25 of Algorithm 2 with GetMaxY = 1; the largest Σδ² of an example."""
    largest = 0.0
    for i in order:
        visits += 1.0
        add_violators(problem, form, ws, i, w, wanted, clock, KEEP, scratch)
        square = visit_planes(problem, form, ws, rule, i, w, visits * (visits - 1.0), clock, gaps)
        largest = max(largest, square)
    return largest


class SDCD(PlaneSolver):
    """Sequential dual coordinate descent over planes; see the head of this module."""

    name = "sdcd"
    slacks = ("sum",)

    @dataclass(frozen=True)
    class Options(SDM.Options):
        cached_passes: int = option(3, "as for sdm", least=0)
        patience: int | None = option(None, "as for sdm; None keeps every plane")
        schedule: str = option("improved", "what a pass does", words=SCHEDULES)
        kappa1: int = option(10, "the first passes of the published schedule, which decode")
        kappa2: int = option(5, "after these, one in so many decodes")
        delta: float | None = option(None, "Σδ² of a decoding pass at which to stop, whatever tol")
        max_outputs: int | None = option(None, "violated outputs that a certificate lists")
        violators: str | int = "argmax"
        newton_weights: ClassVar[int] = 0  # type: ignore[misc]  # its steps know no boxes

        def unused(self, slack: str) -> Iterable[str]:
            published = self.schedule == "published"
            yield from option_names(SDM) if published else ("kappa1", "kappa2", "delta")
            if self.violators != "all":
                yield "max_outputs"

    saved_numbers = (*SDM.saved_numbers, "decoding")

    def _begin(self, start: WorkingSet | None) -> None:
        super()._begin(start)
        self.decoding = True
        self.published = self.options.schedule == "published"
        # Algorithm 2 knows no certificate: where its own rule stops it, one at the end is enough.
        self.certifies = self.published and self.options.delta is not None
        self.restricted = self.options.violators != "all" and not self.hard
        self.rule = Box(0.0 if self.published else self.options.precision)
        self.accelerate = Accelerator(self.options.cg_steps)
        if not self.published:
            self.plan_stages_by_sample()

    def sweep(self) -> float:
        """A pass of the published schedule, or a decoding pass and the cached ones after it."""
        if not self.published:
            return super().sweep()
        self.clock += 1
        if self.clock & (self.clock - 1) == 0:
            self.restart_average()
        options = self.options
        passes = self.clock - 1  # the paper's iter
        if self.decoding:
            self.ws = blocks.make_room(self.ws, self.clock, KEEP)  # a free slot for everyone
            known = (self.form, self.ws, self.rule, self.active, self.w, self.visits)
            asked = (self._wanted(), self.clock, self.workers.scratch[0], self.gaps)
            largest = self.run(published_pass, *known, *asked)
            self.visits += len(self.active)
            self.oracle_calls += len(self.active)
            late = passes >= options.kappa1
            if options.delta is not None and late and largest <= options.delta:
                changed = f"by more than delta={options.delta:g}"
                self.settled = f"no example's multipliers changed {changed}"
            self.decoding = not late
        else:
            self.move(self.active, self.form, self.gaps)
            self.decoding = (passes - options.kappa1) % options.kappa2 == 0
        return float(self.gaps.sum())

    def _wanted(self) -> int:
        violators = self.options.violators
        return int({"argmax": 1, "all": -BEYOND}.get(violators, violators))

    def find(self, order: Array, patience: int, epsilon: float = -1.0) -> None:
        """Decode the examples of ``order``, in threads; see :func:`find_violators`."""
        asked = (self._wanted(), self.clock, patience, SCRATCH)
        self.over(order, find_violators, self.form, self.ws, PART, self.w, *asked)

    def _find_violations(self) -> None:
        order, out = self.active, self.violation
        if self.restricted:
            self.over(order, sum_over_found, self.form, self.ws, PART, self.w, self._wanted(), out)
            return
        bound = self.compiled.summed_slack
        limit = self.options.max_outputs or (20000 if bound is None else 300)
        self.over(order, sum_violations, self.form, PART, self.w, limit, out)
        if bound is not None:  # of those with too many violated outputs to list
            self.workers.over(np.flatnonzero(np.isinf(out)), bound, PART, self.w, out)

    def certify(self) -> float:
        """As always, but the restricted primal that counts is that over the newest set."""
        if not self.restricted:
            return super().certify()
        self._certificates += 1
        leads = self._average_leads
        if self._certificates % 3:
            return self._certify_one(leads)
        other = self._certify_one(not leads)
        primal = self._certify_one(leads)
        if other < primal:
            self._average_leads = not leads
            primal = self._certify_one(not leads)  # its weights are the ones to keep
        return primal

    def _certify_one(self, average: bool) -> float:
        """The restricted primal of the averaged weights or of the last ones."""
        with self._average_in_place() if average and self.visits > 0 else nullcontext():
            return self._consider()
