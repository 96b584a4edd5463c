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

The schedule is :meth:`SDM.sweep`, the rule is :class:`Pair`. Where outputs fall apart, their parts
take the place of examples: :mod:`hingeline.solvers.parts`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline.core.blocks import Mass, WorkingSet, register_rule
from hingeline.core.formulations import Formulation, cut_back
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import CertifiedSolver, PlaneSolver

VARIANTS = ("parts", "enumerated", "nu")  # More files of this solver, in the order to look at them.


@helper
def pair_steps(
    gram: Array, alpha: Array, gradient: Array, cap: float, ridge: float, accuracy: float, most: int
) -> None:
    """Maximise one example's dual over its planes by pair steps, second-order choice.

    ``gram`` is (m, m) without the ridge; alpha and gradient change in place. Stops when the
    largest gradient exceeds the least one that still has mass by no more than ``accuracy``.
    """
    m = alpha.shape[0]
    total = 0.0
    for j in range(m):
        total += alpha[j]
    for _ in range(most):
        up, top = -1, 0.0  # −1 is the true output: gradient 0, curvature 0
        for j in range(m):
            if gradient[j] > top:
                up, top = j, gradient[j]
        # The partner promises the largest gain (top − g)²/curvature among those with mass.
        down, gain, span, curve = -2, 0.0, 0.0, 1.0
        if up >= 0 and total < cap:
            down, span, curve = -1, top, gram[up, up] + ridge
            gain = span * span / max(curve, 1e-300)
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
                        down, gain, span, curve = j, value, difference, c
        if down == -2 or worst <= accuracy:
            break
        room = cap - total if down == -1 else alpha[down]
        step = min(span / curve if curve > 0.0 else np.inf, room)
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
    top, least = 0.0, 0.0 if mass.total < mass.cap else np.inf
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


# Conjugate gradients over all planes that have mass: what cures the slow tail of single visits.
#
# Visits change one example at a time and crawl where the problem is ill-conditioned. Once they have
# found which planes have mass, the dual restricted to these is a plain quadratic::
#
#     max_δ  gᵀδ − ½ δᵀQδ,   Q = [a_j Δf_j·a_k Δf_k] + r,   Σ_y δ_i(y) = 0 where the sum is tight
#
# With ``slack="sum"`` no sums are bound; multipliers at their upper bound stay there.
#
# Conjugate gradient steps on it need Q only through ``v = Σ δ_j a_j Δf_j`` and ``a_j Δf_j·v``, one
# pass over these planes each. The step found is cut back to the feasible set and taken only if the
# dual rises, so the dual never falls. J. Moré, G. Toraldo, *On the solution of large quadratic
# programming problems with bound constraints* (1991) is the scheme.

SMALL_FIT = 2e7  # Multiplications and additions that take no time worth saving.
#: With this few multipliers the step costs next to nothing, where planes are light, too.
SMALL = 200
SMALL_PLANE = 2000
#: With more, it is tried once a sweep gains less than this fraction of the gap that is left.
SLOW = 1.0 / 200.0
ROUNDS = 30  # Steps in a row on small problems; each may run into a bound.
#: But if one costs more than so many multiplications and additions, no more than so many sweeps do.
CHEAP, SWEEPS = 5e5, 10.0


@dataclass
class Accelerator:
    """Decides when a step over all planes with mass is worth its price, about ten sweeps.

    Where weights are few it is a Newton step (:mod:`hingeline.solvers.newton`). Otherwise, on small
    problems always; on others it is tried where sweeps crawl, and again after twice as many sweeps
    whenever it gained less than ten of the sweeps before it. Decided by dual values and counted
    work, not by the clock, so that runs can be repeated.
    """

    iterations: int
    n_weights: float = math.inf
    visited: float = 1.0  # the share of examples that a sweep visits, on average
    conjugate: float = math.inf  # sweeps over all that a Newton step costs without a matrix
    small: int = SMALL  # so many multipliers always take steps
    newton: bool = False  # Newton steps are under way
    width: float = 1.0  # theirs, see there
    mark: float = math.inf  # the gap some sweeps ago
    sweeps: int = 0  # since then
    idle: int = 0  # Newton steps in a row that led nowhere
    wait: int = 8
    since: int = 0
    last: float = 0.0
    #: Where a solver that has it as ``accelerate`` keeps its state.
    saved_numbers: ClassVar[tuple[str, ...]] = (
        *("accelerate.wait", "accelerate.since", "accelerate.last", "accelerate.newton"),
        *("accelerate.width", "accelerate.mark", "accelerate.sweeps", "accelerate.idle"),
    )

    def __call__(
        self, solver: CertifiedSolver, estimate: float, work: float = 0.0, growth: float = 0.0
    ) -> bool:
        """Improve all multipliers at once where it is worth it; whether the dual rose.

        ``work`` says what a sweep costs, in multiplications and additions, and ``growth`` how many
        planes it found for an example. As long as every other example still finds one, the best
        mass of those known is not worth its price: long sequences, of which there are few and
        which need many planes each, spent most of their time on it.
        """
        if self.newton or self.crawls(estimate, self.price(work)):
            return self.take_newton_steps(solver)
        if solver.clock <= 4:
            return False
        light = solver.plane_size <= SMALL_PLANE
        masses = np.count_nonzero(solver.multipliers().mass) if light else math.inf
        if masses <= self.small:
            cost = 4.0 * self.iterations * masses * solver.plane_size
            dear = work > 0.0 and cost > CHEAP
            most = min(ROUNDS, int(SWEEPS * work / cost)) if dear else ROUNDS
            rounds = 0
            while rounds < most and _ascend(solver, self.iterations):
                rounds += 1
            if most:
                return rounds > 0
        value = solver.dual()
        swept, self.last = value - self.last, value
        self.since += 1
        if self.since < self.wait or swept > SLOW * estimate or growth > 0.5:
            return False
        self.since = 0
        rose = _ascend(solver, self.iterations)
        self.last = solver.dual()
        self.wait = 1 if self.last - value > 10.0 * swept else min(2 * self.wait, 64)
        return rose

    def price(self, work: float) -> float:
        """What 25 Newton steps cost, in sweeps of so many multiplications and additions.

        Linear algebra is some eight times faster than loops over planes. Small fits, which end soon
        in any case, should not have to compile the kernels of these steps.
        """
        work = max(work, 1.0)
        algebra = min(self.n_weights**3 / (24.0 * work), self.conjugate) / self.visited
        return 25.0 * (0.2 + algebra) + SMALL_FIT / work

    def crawls(self, gap: float, price: float) -> bool:
        """Whether Newton steps promise more than sweeps at the same price; then they begin."""
        if not math.isfinite(self.n_weights + gap):
            return False
        self.sweeps += 1
        if math.isfinite(self.mark) and self.sweeps < min(max(round(price / 5.0), 1), 8):
            return False
        # Sweeps are worth it where they shrink the gap a hundredfold at the same price.
        self.newton = gap > self.mark * 0.01 ** (self.sweeps / price)
        self.mark, self.sweeps = gap, 0
        return self.newton

    def take_newton_steps(self, solver: CertifiedSolver, *gather: Any) -> bool:
        """Move to the next proximal point, of the planes that ``gather`` tells of."""
        from hingeline.solvers import newton  # few fits want it

        rose, fell, self.width = newton.move_to_proximal_point(solver, self.width, *gather)
        self.idle = 0 if rose or fell else self.idle + 1
        if self.idle > 2:
            self.newton, self.idle, self.mark, self.sweeps = False, 0, math.inf, 0
        return rose


def _ascend(solver: CertifiedSolver, iterations: int) -> bool:
    """One step on the face of the multipliers that have mass; whether it led anywhere.

    The whole step, cut back to the feasible set, may gain most or lose; the part of it up to the
    first bound gains for certain, and takes a multiplier off the face or makes a sum tight.
    """
    form, known = solver.by_block(solver.form), solver.multipliers()
    masses, owners = known.mass, known.owners
    inside = masses > 0.0
    if form.summed:
        inside &= masses < form.cap[owners]
    support = np.flatnonzero(inside)
    if len(support) < 2:
        return False
    before, owner, n = masses[support], owners[support], len(form.cap)
    sums = np.bincount(owner, weights=before, minlength=n)
    tight = np.zeros(n, dtype=bool) if form.summed else sums >= form.cap * (1.0 - 1e-12)
    members = np.maximum(np.bincount(owner, minlength=n), 1)

    def project(z: Array) -> Array:
        return z - np.where(tight, np.bincount(owner, weights=z, minlength=n) / members, 0.0)[owner]

    def image(z: Array) -> Array:
        vector = np.zeros_like(solver.w)
        solver.combine(support, z, vector)
        out = solver.products(support, vector)
        if form.ridge.any():
            out += (form.ridge * np.bincount(owner, weights=z, minlength=n))[owner]
        return out

    def put(values: Array) -> float:
        """Set the multipliers; the dual. Weights from nothing: a step leaves no rounding behind."""
        masses[support] = values
        solver.w[:] = 0.0
        solver.add(masses, 1.0, solver.w)
        return solver.dual()

    hinges = known.offset[support] - solver.products(support, solver.w)
    residual = project(hinges - (form.ridge * sums)[owner])
    total = _conjugate_gradients(residual, image, project, iterations, 1e3 * float(before.max()))
    if not total.any():
        return False
    value, kept = solver.dual(), solver.w.copy()
    best, best_value = before, value
    for trial in _trials(form, before, total, owner, sums, tight):
        reached = put(trial)
        if reached > best_value * (1.0 + 1e-15):
            best, best_value = trial, reached
    if best is before:
        # The last trial, up to a bound that was met at once, frees the next step of that bound.
        on_bound = (trial == 0.0) | (trial == form.cap[owner] if form.summed else False)
        if reached >= value * (1.0 - 1e-15) and on_bound.any():
            return True
        masses[support] = before
        solver.w[:] = kept
        return False
    if best is not trial:
        put(best)
    return True


def _trials(
    form: Formulation, before: Array, total: Array, owner: Array, sums: Array, tight: Array
) -> Iterator[Array]:
    """Multipliers after the whole step, after a quarter of it, and at its first bound."""
    falling, most = total < 0.0, form.cap[owner] if form.summed else np.inf  # of each alone
    reach = np.where(falling, before, most - before) / np.maximum(np.abs(total), 1e-300)
    change = np.bincount(owner, weights=total, minlength=len(form.cap))
    rising = (change > 0.0) & ~tight & np.isfinite(form.cap) & (form.summed == 0)
    whole = (form.cap - sums)[rising] / change[rising]
    for factor in (1.0, 0.25, min(1.0, float(reach.min()), float(whole.min(initial=1.0)))):
        inside = np.clip(before + factor * total, 0.0, most)
        yield cut_back(form, np.where(reach <= factor, np.where(falling, 0.0, most), inside), owner)


def _conjugate_gradients(
    residual: Array, image: Any, project: Any, iterations: int, far: float
) -> Array:
    """Approximate maximiser of the quadratic, from zero; ``far`` where it has none."""
    direction, total = residual.copy(), np.zeros_like(residual)
    square = first = float(residual @ residual)
    steepest = 0.0
    for _ in range(min(iterations, len(residual))):
        if square <= 1e-24 * max(first, 1e-300):
            break
        mapped = image(direction)
        length, curve = float(direction @ direction), float(direction @ mapped)
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


def take_pair_steps(solver: Any) -> None:
    """Set the rule of a solver of planes, and what speeds up its tail."""
    solver.rule, solver.accelerate = Pair(solver.options.precision), speed_up(solver)


def speed_up(solver: Any) -> Accelerator:
    """What speeds up the tail of a solver of planes."""
    few = len(solver.w) <= solver.options.newton_weights and not solver.hard
    return Accelerator(solver.options.cg_steps, len(solver.w) if few else np.inf)


def unused_stages(options: Any, slack: str) -> Iterable[str]:
    """Stages scale a bound on mass: squared slack has none, and with ν it moves all the time."""
    return () if slack in ("max", "sum") else ("stage_factor", "stage_sweeps")


class SDM(PlaneSolver):
    """Sequential dual method over planes; see the head of this module."""

    name = "sdm"
    slacks: ClassVar[tuple[str, ...]] = ("max", "squared")

    @dataclass(frozen=True)
    class Options(SolverOptions):
        block: int | None = option(None, "examples decoded at the same weights, for any n_jobs")
        cached_passes: int = option(1, "passes over known planes, five times as many late", least=0)
        precision: float = option(0.1, "factor by which a visit shrinks an example's violations")
        patience: int | None = option(5, "passes after which a plane without mass may go")
        skip: float = option(0.1, "type II passes leave out gaps below it, over the mean", least=0)
        stage_factor: float = option(2.0, "a large C is approached in two steps of this factor")
        stage_sweeps: int = option(1, "sweeps of a stage")
        newton_weights: int = option(2000, "Newton steps with so many weights at most", least=0)
        cg_steps: int = option(30, "conjugate gradient steps over all planes, late", least=0)
        unused = unused_stages

    saved_numbers = (*PlaneSolver.saved_numbers, *Accelerator.saved_numbers)

    def _begin(self, start: WorkingSet | None) -> None:
        super()._begin(start)
        take_pair_steps(self)
        self.plan_stages_by_sample()
