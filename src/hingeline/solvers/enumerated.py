"""Sequential dual method where all outputs are the working set: nothing needs to be found.

The problem is that of :mod:`hingeline.solvers.sdm`; the multipliers are a dense (examples, outputs)
table. One sweep over x scores every output at once. Only outputs that have mass, or whose gradient
exceeds the least one that has, can gain: the rule of :func:`visit` runs on these few.
Multi-class with any positive costs has a closed form, :func:`visit_isotropic`. Rules are those of
:mod:`hingeline.core.blocks`, visits are not: there are no planes to load, no slots and no stamps.

Shrinking. Mass is moved in several passes over the examples with something to gain, in order. Then
one look at all examples, at fixed weights and in threads, gives every example's gap for the next
sweep and, for nothing, the true primal of the average of the iterates (or of the last one, where
that is better). Late in a run few examples are worth a visit, which is LIBLINEAR's edge too
(S. Keerthi et al., *A sequential dual method for large scale multi-class linear SVMs*, 2008,
section 4).
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_reference, by_table, finite_helper, helper, kernel, prefetch
from hingeline._simd import aligned_zeros, copy
from hingeline.core.blocks import Mass, WorkingSet, step
from hingeline.core.formulations import (
    Formulation,
    add_hinge,
    example_gap,
    plane_offset,
    plane_scale,
    total_slack_cost,
)
from hingeline.core.primitives import (
    PADDING,
    PART,
    Compiled,
    all_add,
    all_hinges,
    all_inner,
    all_isotropy,
    all_losses,
    all_prefetch,
    all_scores,
)
from hingeline.core.registry import SolverOptions, option
from hingeline.core.results import DualMemory
from hingeline.core.solver import CertifiedSolver, Multipliers, carry_over
from hingeline.solvers.newton import Response, respond_one
from hingeline.solvers.sdm import SMALL, Accelerator, Pair, unused_stages

RUN, MANY = 8, 512  # Runs of so many examples are shuffled where there are as many examples.
NEAR_STAGES = 3  # Stages at most where Newton steps may begin soon.
STAGE_PASSES, BINDS = 7, 1.5  # Passes of a stage; it binds where so many times α would be better.
SHRUNK = 0.1  # Passes end where gaps have come down to this share.
VISITED = 0.4  # The share of examples that a pass visits, on average.
CONJUGATE = 4.0  # What conjugate gradients of a Newton step cost, in sweeps over all examples.
WORTH_A_LOOK, MOST = 2.0, 3.0  # Visits per example before a look; passes may be so many times more.
LONG_PASS = 1e8  # Multiplications and additions; Ctrl-C is heard after every pass as long as this.
GAP_ROUNDING = 1e-14  # A gap of this share of ``Σ α·hinge`` is none: a visit would only round.
CAP_ROUNDING = 1e-12  # Multipliers may miss the bound of their sum by this share of it.


@finite_helper
def hinges(
    problem: Any, form: Formulation, i: int, m: int, w: Array, losses: Array, out: Array
) -> None:
    """``b_k − a_k w·Δf_k`` of every output; their losses in ``losses``."""
    if form.root == 0 and form.rescaled == 0:
        all_hinges(problem, i, w, losses, out)
    else:
        all_losses(problem, i, losses)
        all_scores(problem, i, w, out)
        for k in range(m):
            out[k] = plane_offset(form, losses[k]) - plane_scale(form, losses[k]) * out[k]


@kernel
def find_gaps(
    problem: Any, form: Formulation, order: Array, w: Array, alpha: Array, out: Array, gaps: Array
) -> None:
    """Each example's slack, in ``out``, and gap at fixed weights; parts may run in threads."""
    m = alpha.shape[1]
    losses = np.empty(m + PADDING)
    values = np.empty(m + PADDING)
    plain = form.root == 0 and form.rescaled == 0  # at once, and not a call deeper: a tenth faster
    for i in order:
        if plain:
            all_hinges(problem, i, w, losses, values)
        else:
            hinges(problem, form, i, m, w, losses, values)
        slack = total = linear = 0.0
        for k in range(m):
            slack = add_hinge(form, slack, values[k])
            total += alpha[i, k]
            linear += alpha[i, k] * values[k]
        out[i] = slack if form.cap[i] > 0.0 else 0.0
        gaps[i] = example_gap(form, i, slack, total, linear)


@finite_helper
def threshold(
    beta: Array, m: int, largest: tuple[float, float, float], base: float, rate: float, pack: Array
) -> float:
    """θ with ``Σ_k max(0, β_k − θ) = base + rate·θ``; ``largest`` are the three largest β.

    With fewer entries θ is less, so the two largest bound it from below, and mostly no other entry
    is above that bound. The set of positive entries shrinks from those that are and never has to
    take one back (Michelot's projection onto a simplex).
    """
    first, second, third = largest
    of_one = (first - base) / (1.0 + rate)
    of_two = (first + second - base) / (2.0 + rate)
    theta = max(of_one, of_two)
    if rate > 0.0:
        theta = max(theta, -base / rate)
    if third <= theta:
        return of_two if second > theta else of_one if first > theta else theta
    count = 0
    mass = 0.0
    for k in range(m):  # no branches: a slot is overwritten until an entry stays
        inside = beta[k] > theta
        pack[count] = beta[k]
        count += 1 if inside else 0
        mass += beta[k] if inside else 0.0
    while count > 0:
        theta = (mass - base) / (count + rate)
        left = 0
        mass = 0.0
        for k in range(count):
            value = pack[k]
            inside = value > theta
            pack[left] = value
            left += 1 if inside else 0
            mass += value if inside else 0.0
        if left == count or left == 0:  # rounding may drop the last one
            break
        count = left
    return theta


@by_reference
class Work(NamedTuple):
    """The tables of multipliers and their drift, flat, and room to work in.

    The five have one number per output, padding included; separate arrays cost no views.
    """

    alpha: Array
    drift: Array
    losses: Array
    values: Array
    first: Array
    second: Array
    steps: Array
    chosen: Array  # (m,)
    gram: Array  # (m, m)


@finite_helper
def visit_isotropic(
    rule: Any, problem: Any, form: Formulation, i: int, w: Array, coefficient: float, work: Work
) -> float:
    """:func:`visit` in closed form: ``Δf_j·Δf_k = square·(1 + [j = k])`` and no plane is scaled.

    Then ``α_k = max(0, β_k − θ)`` with ``β = α + g/square``, and θ balances the sum T of the new
    multipliers: ``θ = κ·(T(θ) − T_old)``, ``κ = 1 + ridge/square``, or ``T(θ) = cap`` where that
    exceeds the bound.
    """
    square = all_isotropy(problem, i)
    m = work.chosen.shape[0]
    at = i * m
    alpha, drift, losses, values = work.alpha, work.drift, work.losses, work.values
    if form.root == 0:
        all_hinges(problem, i, w, losses, values)
    else:
        hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    top = total = linear = 0.0
    for k in range(m):
        top = max(top, values[k])
        total += alpha[at + k]
        linear += alpha[at + k] * values[k]
    gap = example_gap(form, i, top, total, linear)
    if gap <= GAP_ROUNDING * linear:
        return gap
    ridge = form.ridge[i]
    shift = ridge * total
    beta = work.first
    inverse = 1.0 / square
    first = second = third = -np.inf
    for k in range(m):
        # The true output has loss 0 and no plane.
        value = alpha[at + k] + (values[k] - shift) * inverse if losses[k] > 0.0 else -np.inf
        beta[k] = value
        third = max(third, min(second, value))
        second = max(second, min(first, value))
        first = max(first, value)
    largest = (first, second, third)
    kappa = 1.0 + ridge * inverse
    pack = work.second
    # An example at its bound mostly stays there: try that first.
    theta = threshold(beta, m, largest, cap, 0.0, pack) if total >= cap else -np.inf
    tight = True
    if theta < kappa * (cap - total):  # the bound, if it was tried, does not hold the mass back
        theta = threshold(beta, m, largest, total, 1.0 / kappa, pack)
        tight = theta > kappa * (cap - total)
        if tight:
            theta = threshold(beta, m, largest, cap, 0.0, pack)
    steps = work.steps
    some = False
    mass = 0.0
    for k in range(m):
        new = max(0.0, beta[k] - theta)
        change = new - alpha[at + k]
        some = some or change != 0.0
        steps[k] = change
        drift[at + k] += coefficient * change
        alpha[at + k] = new
        mass += new
    if tight and abs(mass - cap) > CAP_ROUNDING * cap:
        # Beside g/square the bound is so small that β − θ has lost digits: fill it exactly.
        factor = cap / mass if mass > 0.0 else 0.0
        for k in range(m):
            new = alpha[at + k] * factor
            if mass == 0.0 and beta[k] == first:
                new = cap
                first = np.inf  # one takes it all
            change = new - alpha[at + k]
            some = some or change != 0.0
            steps[k] += change
            drift[at + k] += coefficient * change
            alpha[at + k] = new
    if some:
        all_add(problem, i, steps, w)
    return gap


@helper
def visit(
    rule: Any, problem: Any, form: Formulation, i: int, w: Array, coefficient: float, work: Work
) -> float:
    """Let a rule solve example i's dual and carry the change into w; the gap it had before."""
    m = work.chosen.shape[0]
    at = i * m
    alpha, losses, values = work.alpha, work.losses, work.values
    hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    slack = total = linear = 0.0
    for k in range(m):
        slack = add_hinge(form, slack, values[k])
        total += alpha[at + k]
        linear += alpha[at + k] * values[k]
    if total == 0.0 and slack == 0.0:
        return 0.0
    gap = example_gap(form, i, slack, total, linear)
    # Gradients are ``values − ridge·total``; the true output stands for gradient 0. Only planes
    # with mass, or above the least that has, can take part where mass moves between them.
    shift = form.ridge[i] * total
    least = 0.0 if total < cap else np.inf
    for k in range(m):
        if alpha[at + k] > 0.0:
            least = min(least, values[k] - shift)
    if form.summed == 1:
        least = -np.inf
    masses = work.first
    gradient = work.second
    chosen = work.chosen
    count = 0
    for k in range(m):
        if alpha[at + k] > 0.0 or values[k] - shift > least:
            if plane_scale(form, losses[k]) == 0.0 or (
                losses[k] == 0.0 and all_inner(problem, i, k, k) == 0.0
            ):
                continue  # the true output, or one that no weights can tell from it
            masses[count] = alpha[at + k]
            gradient[count] = values[k] - shift
            chosen[count] = k
            count += 1
    if count == 0:
        return gap
    gram = work.gram
    before = values[:count]
    for p in range(count):
        before[p] = masses[p]
        a = plane_scale(form, losses[chosen[p]])
        for q in range(p + 1):
            b = plane_scale(form, losses[chosen[q]])
            value = a * b * all_inner(problem, i, chosen[p], chosen[q])
            gram[p, q] = value
            gram[q, p] = value
    mass = Mass(total, cap, form.ridge[i])
    moved, _ = step(rule, gram, masses[:count], before, gradient[:count], mass)
    if not moved:
        return gap
    steps = work.steps
    steps[:] = 0.0
    for p in range(count):
        k = chosen[p]
        change = masses[p] - before[p]
        if change != 0.0:
            alpha[at + k] = masses[p]
            work.drift[at + k] += coefficient * change
            steps[k] = plane_scale(form, losses[k]) * change
    all_add(problem, i, steps, w)
    return gap


@helper
def visit_by_pairs(
    rule: Any, problem: Any, form: Formulation, i: int, w: Array, coefficient: float, work: Work
) -> float:
    """In closed form where there is one."""
    if form.rescaled == 0 and all_isotropy(problem, i) > 0.0:
        return visit_isotropic(rule, problem, form, i, w, coefficient, work)
    return visit(rule, problem, form, i, w, coefficient, work)


class Isotropic(NamedTuple):
    """The rule where every visit has the closed form, which is quicker to compile."""

    precision: float


#: How an example is visited under a rule.
VISITS: dict[type, Callable[..., float]] = {Isotropic: visit_isotropic, Pair: visit_by_pairs}
visit_under = by_table(VISITS)


@kernel
def visit_in_turn(
    problem: Any,
    form: Formulation,
    rule: Any,
    order: Array,
    work: Work,
    w: Array,
    visits: float,
    gaps: Array,
) -> None:
    """Visit the examples of ``order``; ``visits`` were made before (for the average)."""
    m = work.chosen.shape[0]
    k = visits
    for t in range(order.shape[0]):
        if t + 2 < order.shape[0]:  # send for what the next visits will read
            all_prefetch(problem, order[t + 1], order[t + 2], w)
            for p in range(order[t + 2] * m, (order[t + 2] + 1) * m, 8):
                prefetch(work.alpha, p)
                prefetch(work.drift, p)
        i = order[t]
        k += 1.0
        gaps[i] = visit_under(rule, problem, form, i, w, k * (k - 1.0), work)


@helper
def choose_worth(gaps: Array, skip: float, draws: Array, order: Array) -> tuple[int, float]:
    """Put the examples whose gap is not below ``skip`` times the mean in a random order.

    Where they are many, short runs are shuffled: neighbours in memory stay together. How many there
    are, and the sum of all gaps.
    """
    total = 0.0
    for i in range(gaps.shape[0]):
        total += gaps[i]
    least = max(skip * total / gaps.shape[0], 1e-300)  # who weighs nothing has none
    count = 0
    for i in range(gaps.shape[0]):  # no branches: a place is overwritten until an example stays
        order[count] = i
        count += 1 if gaps[i] >= least else 0
    run = RUN if count >= MANY else 1
    runs = count // run
    for r in range(runs):
        other = r + int(draws[r] * (runs - r))
        for p in range(run):
            i = order[r * run + p]
            order[r * run + p] = order[other * run + p]
            order[other * run + p] = i
    return count, total


@kernel
def pass_over(
    problem: Any,
    form: Formulation,
    rule: Any,
    skip: float,
    draws: Array,
    work: Work,
    w: Array,
    visits: float,
    gaps: Array,
    pace: Array,
) -> float:
    """A pass for each row of ``draws`` over what is worth a visit; all visits so far.

    ``pace`` has the number of passes before, and the sum of the gaps that the first one found:
    once it has come down to a share of that, a look at all examples is worth more.
    """
    order = np.empty(gaps.shape[0] + 1, dtype=np.int64)
    for q in range(draws.shape[0]):
        count, total = choose_worth(gaps, skip, draws[q], order)
        if pace[0] == 1.0:
            pace[1] = total
        elif pace[0] > 1.0 and total <= SHRUNK * pace[1]:
            break
        pace[0] += 1.0
        visit_in_turn(problem, form, rule, order[:count], work, w, visits, gaps)
        visits += count
    return visits


@kernel
def add_all(problem: Any, form: Formulation, masses: Array, factor: float, w: Array) -> None:
    """``w += factor · Σ mass·a·Δf`` over all examples and outputs."""
    n, m = masses.shape
    losses = np.empty(m + PADDING)
    steps = np.empty(m + PADDING)
    for i in range(n):
        if masses[i].any():
            all_losses(problem, i, losses)
            for k in range(m):
                steps[k] = factor * masses[i, k] * plane_scale(form, losses[k])
            all_add(problem, i, steps, w)


@kernel
def score_all(problem: Any, form: Formulation, wanted: Array, w: Array, out: Array) -> None:
    """``a·w·Δf`` of all outputs of examples with any entry in ``wanted`` that is not 0."""
    n, m = wanted.shape
    losses = np.empty(m + PADDING)
    scores = np.empty(m + PADDING)
    for i in range(n):
        if wanted[i].any():
            all_losses(problem, i, losses)
            all_scores(problem, i, w, scores)
            for k in range(m):
                out[i, k] = plane_scale(form, losses[k]) * scores[k]


@kernel
def respond_all(problem: Any, form: Formulation, w: Array, out: Response, image: Array) -> float:
    """:func:`hingeline.solvers.newton.respond` at these weights; adds ``Fᵀα`` to ``image``."""
    n, alpha = form.cap.shape[0], out.alpha
    m = alpha.shape[0] // n
    losses = np.empty(m + PADDING)
    values = np.empty(m + PADDING)
    found = np.empty(alpha.shape[0])
    total = 0.0
    for i in range(n):
        at = i * m
        hinges(problem, form, i, m, w, losses, values)
        copy(values, found[at : at + m])
        total += respond_one(form, i, (at, at + m), found, out)
        some = False
        for k in range(m):
            values[k] = alpha[at + k] * plane_scale(form, losses[k])
            some = some or values[k] != 0.0
        if some:
            all_add(problem, i, values, image)
    return total


def make_table(multipliers: WorkingSet | Array, n_outputs: int) -> Array:
    """A dense (examples, outputs) table; planes, which streams have, are single labels."""
    if isinstance(multipliers, np.ndarray):
        table = np.zeros((len(multipliers), n_outputs))
        table[:, : multipliers.shape[1]] = multipliers
        return table
    table = np.zeros((len(multipliers.used), n_outputs))
    some = np.flatnonzero(multipliers.alpha)
    owners = np.repeat(np.arange(len(table)), multipliers.capacity)
    table[owners[some], multipliers.y[some]] = multipliers.alpha[some]
    return table


class EnumeratedSDM(CertifiedSolver):
    """Sequential dual method over all outputs; see the head of this module."""

    name = "sdm"
    slacks: ClassVar[tuple[str, ...]] = ("max", "squared")
    all_outputs = True
    by_example = True
    polishes = True

    @dataclass(frozen=True)
    class Options(SolverOptions):
        passes: int = option(10, "passes after each look at all examples; fewer at first")
        precision: float = option(0.1, "factor by which a visit shrinks an example's violations")
        skip: float = option(0.3, "passes leave out gaps below this share of the mean", least=0)
        stage_factor: float = option(3.2, "large C is approached in steps of this factor")
        stage_sweeps: int = option(2, "sweeps of a stage")
        newton_weights: int = option(2000, "weights of Newton's matrices at most; 0: none", least=0)
        cg_steps: int = option(30, "conjugate gradient steps over all planes with mass", least=0)
        unused = unused_stages

    own = ("_distance", "_visited")
    saved_numbers = (*CertifiedSolver.saved_numbers, *Accelerator.saved_numbers, *own)
    saved_arrays = (*CertifiedSolver.saved_arrays, "alpha", "drift")

    def _begin(self, start: Array | None) -> None:
        compiled, form = self.compiled, self.form
        shape = (compiled.n, compiled.n_outputs)
        self.alpha = np.zeros(shape) if start is None else start
        self.drift = np.zeros(shape)
        tables = (self.alpha.reshape(-1), self.drift.reshape(-1))
        rows = np.empty((5, shape[1] + PADDING))
        chosen, gram = np.empty(shape[1], dtype=np.int64), np.empty((shape[1], shape[1]))
        self.work = Work._make((*tables, *rows, chosen, gram))
        self.counts = np.full(*shape)
        self._everyone = np.arange(compiled.n)
        self._spare = aligned_zeros(compiled.n_weights)  # small beside the tables above
        self.squares, losses = compiled.output_squares, compiled.output_losses()
        self.offsets = np.sqrt(losses) if form.root else losses
        # Views: what writes to the tables, writes to these.
        self._flat = Multipliers(tables[0], self.offsets.reshape(-1), tables[1], self.counts)
        closed = compiled.isotropic and not form.rescaled
        self.rule: Any = (Isotropic if closed else Pair)(self.options.precision)
        few = not self.hard and self.options.newton_weights and compiled.matrix_order is not None
        # Visits to few examples are cheaper than conjugate gradients, and Newton steps follow.
        n_weights, most = (compiled.matrix_size, -1) if few else (math.inf, SMALL)
        self.accelerate = Accelerator(self.options.cg_steps, n_weights, VISITED, CONJUGATE, most)
        self._distance = math.inf  # of the last look's primal from the dual
        self._visited = compiled.n  # examples by the last passes
        self._near = False  # Newton steps may begin soon
        self.certifies = self.looks = not self.hard
        if start is not None:
            self.add(self.alpha, 1.0, self.w)
        elif np.isfinite(form.cap).all():
            self._near = self.accelerate.price(self._work(10)) <= 30.0
            most = NEAR_STAGES if self._near else 20
            self.plan_stages(float(form.cap.mean()) * self.mean_square(), most)
        # The first sweep from nothing is far from the optimum: the next visits all, unseen.
        self._blind = 1 if start is not None or self.stages or self.hard else 2

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Array | None:
        """The table of multipliers made feasible; there may be more examples and outputs now."""
        old = before.multipliers
        if not isinstance(old, WorkingSet | np.ndarray) or not before.same_kind(form):
            return None
        if isinstance(old, WorkingSet) and not before.same_planes(compiled, form):
            return None
        alpha = np.zeros((compiled.n, compiled.n_outputs))
        alpha[: len(before.form.cap)] = make_table(old, compiled.n_outputs)
        counts = np.full(*alpha.shape)
        return carry_over(before.form, form, alpha.reshape(-1), counts).reshape(alpha.shape)

    @property
    def n_planes(self) -> int:
        return int(np.count_nonzero(self.alpha))

    def sweep(self) -> float:
        """Passes over the examples with something to gain, then a look at all of them."""
        self.clock += 1
        if self.accelerate.newton:
            self.accelerate(self, self._distance)
            self.restart_average()
            self._distance = self.best()[1] - self.dual()
            return self._distance
        stage = self.stage()
        if self.clock <= 8 or self.clock % 16 == 0:
            self.restart_average()  # early iterates would only hold it back
        if self.clock == 1 and self.w.any():
            self._look(stage)
        elif self.clock <= self._blind or self.stage_begins(self.clock):
            self.gaps[self.active] = 1.0  # nothing is known: all are worth a visit
        passes = self.options.passes
        if not self.stages:  # the first gaps are soon out of date
            passes = min(passes, 4 + 2 * self.clock)
        if stage is not self.form:
            passes = min(passes, STAGE_PASSES)
        n = len(self.active)
        if self.looks and stage is self.form and self.clock > 4:  # few visits make looks dear
            passes = round(passes * min(max(WORTH_A_LOOK * n / max(self._visited, 1), 1.0), MOST))
        # Where few examples have much to gain, others soon do: all that have anything take part.
        skip = 0.0 if self.clock > 1 and self._visited < n else float(self.options.skip)
        self._visited, self._pace = 0, np.zeros(2)
        draws = self.rng.random((passes, max(n // RUN, min(n, MANY))))
        for part in np.array_split(draws, passes) if self._work(1) > LONG_PASS else (draws,):
            self.pass_over(part, stage, skip)
        final = stage is self.form and self.clock > 1
        if final and math.isfinite(self._distance):
            # ½‖w − w*‖² is at most the gap: by such a share of ‖w‖ hinges may still move.
            half = max(0.5 * float(self.w @ self.w), 1e-300)
            self.accelerate.width = min(max(math.sqrt(max(self._distance, 0.0) / half), 1e-3), 10.0)
        work = self._work(self._visited / (VISITED * max(n, 1)))  # as much as so many passes
        leapt = final and self.accelerate(self, self._distance, work)
        if stage is not self.form and self._best_multiple() < BINDS:
            self.stages, stage = [], self.form  # its bounds hardly bind: the end comes at once
        crawls = self.clock == 1 and self._near  # perhaps: a look will tell
        if self.clock < self._blind or (self.stage_begins(self.clock + 1) and not crawls):
            return math.inf
        # A step over all planes leaves the average behind; the first look says which one leads.
        both = leapt or self.clock % 8 == 0 or self.clock == self._blind == 2
        primal = self._look_at_best(stage, both)
        if crawls:
            scale = 0.5 * float(self.w @ self.w) + total_slack_cost(stage, self.violation)
            if self.gaps.sum() > 0.5 * scale:  # visits crawl at a small C, too: no detours
                self.stages = []
        self._distance = primal - self.dual()
        return self._distance if stage is self.form else math.inf

    def _work(self, passes: float) -> float:
        """Multiplications and additions of so many passes."""
        return 2.0 * self.compiled.size * self.alpha.shape[1] * passes

    def _best_multiple(self) -> float:
        """The factor on all multipliers that lifts the dual most, bounds aside."""
        return self.linear() / max(float(self.w @ self.w), 1e-300)

    def _scale(self, factor: float) -> None:
        """As the base does, but not far beyond what is best: twice that would be worth nothing."""
        super()._scale(min(factor, max(BINDS * self._best_multiple(), 1.0)))

    def _look_at_best(self, form: Formulation, both: bool) -> float:
        """The true primal of the average or of the last iterate, whichever led before."""
        standing = self._average_in_spare
        return self._try_average_or_last(lambda: self._look(form), both, standing=standing)

    @contextlib.contextmanager
    def _average_in_spare(self) -> Iterator[None]:
        """The average stands where the weights do, which come back without rounding."""
        self._spare[:] = self.w
        self._add_drift(self.w)
        yield
        self.w, self._spare = self._spare, self.w

    def _look(self, form: Formulation) -> float:
        """Hinges and gaps of all examples, in threads; the true primal of ``self.w``."""
        self._find_gaps(form)
        primal = 0.5 * float(self.w @ self.w) + total_slack_cost(self.form, self.violation)
        self.keep(self.w, primal)
        return primal

    def _find_gaps(self, form: Formulation) -> None:
        known, out = (self.compiled.problem, form), (self.alpha, self.violation, self.gaps)
        self.workers.over(self._everyone, find_gaps, *known, PART, self.w, *out)
        self.oracle_calls += self.compiled.n

    def pass_over(self, draws: Array, form: Formulation, skip: float) -> None:
        """Passes over the examples with something to gain."""
        known = (self.compiled.problem, form, self.rule, skip, draws)
        visits = pass_over(*known, self.work, self.w, self.visits, self.gaps, self._pace)
        self._visited += int(visits - self.visits)
        self.oracle_calls += int(visits - self.visits)
        self.visits = visits

    def visit(self, order: Array, form: Formulation) -> None:
        """Visit examples in the order given."""
        known = (self.compiled.problem, form, self.rule, order)
        visit_in_turn(*known, self.work, self.w, self.visits, self.gaps)
        self.visits += len(order)
        self.oracle_calls += len(order)

    def multipliers(self) -> Multipliers:
        return self._flat

    def add(self, masses: Array, factor: float, out: Array) -> None:
        add_all(self.compiled.problem, self.form, masses.reshape(self.alpha.shape), factor, out)

    def score(self, wanted: Array, vector: Array, out: Array) -> None:
        shape, known = self.alpha.shape, (self.compiled.problem, self.form)
        score_all(*known, wanted.reshape(shape), vector, out.reshape(shape))

    def planes_in_use(self) -> tuple[Any, Array]:
        return slice(None), self.counts

    def respond(self, w: Array, out: Response, image: Array) -> float:
        """See :func:`respond_all`."""
        return respond_all(self.compiled.problem, self.form, w, out, image)

    def curvature(self, support: Any, parts: Any) -> tuple[Any, Array | None]:
        """Made by the structure, which knows what planes share; a product where that is cheaper."""
        size = self.compiled.matrix_size
        free = parts.free.reshape(self.alpha.shape)
        scales = free * (self.offsets if self.form.rescaled else 1.0)
        # Some twenty steps of conjugate gradients, which run at half the speed of a factorisation.
        several = 80.0 * np.count_nonzero(scales.any(axis=1)) * self.plane_size * free.shape[1]
        if size > self.options.newton_weights or size**3 / 3.0 > several:
            return self.compiled.multiply_curvature(scales, parts.rho, parts.sigma), None
        matrix = np.zeros((size, size))
        self.compiled.curvature(scales, parts.rho, parts.sigma, matrix)
        return matrix, self.compiled.matrix_order()

    def mean_square(self) -> float:
        if isinstance(self.rule, Isotropic):  # every wrong output counts
            return float(self.squares.mean())
        wrong = self.offsets > 0.0
        scales = self.offsets**2 if self.form.rescaled else wrong
        return float((scales * self.squares[:, None]).sum()) / max(int(wrong.sum()), 1)

    def memory(self) -> Array:
        return self.alpha

    def _find_violations(self) -> None:
        kept = self.gaps.copy()
        self._find_gaps(self.form)
        self.gaps = kept

    def _sums(self) -> Array:
        return np.asarray(self.alpha.sum(axis=1))

    def _reach(self) -> float:
        least = np.where(self.offsets > 0.0, self.offsets, np.inf).min(axis=1)
        per_norm = np.isfinite(least) if self.form.rescaled else 1.0 / least  # rescaling: a = b
        return float((np.sqrt(self.squares) * per_norm).max(initial=0.0))
