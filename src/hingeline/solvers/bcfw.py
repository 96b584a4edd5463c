"""Block-coordinate Frank-Wolfe: decode an example, step towards the plane found, exactly far.

S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher, *Block-Coordinate Frank-Wolfe Optimization
for Structural SVMs* (2013), Algorithm 4, for the dual of :mod:`hingeline.core.formulations` with
``slack="max"``::

    max  Σ α·b − ½‖w‖²,   w = Σ_i w_i,   w_i = Σ_y α_i(y)·a·Δf_i(y),   α_i ≥ 0, Σ_y α_i(y) ≤ cap_i

A visit decodes example i, which is the linear oracle of its block, and moves α_i along one of the
directions below by exact line search: the dual never falls. The slopes of the plain directions, one
an example, sum to the duality gap at the same weights.

``steps="plain"`` without a cache
    The published method, in order and one example at a time; see :func:`plain_pass`. Plain steps
    never empty a plane, so planes add up from pass to pass.
``steps="pairwise"`` and ``"away"``
    A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien, *Minding the Gaps for
    Block Frank-Wolfe Optimization of Structured SVMs* (2016). They take mass off planes that should
    have none, and converge linearly where plain steps crawl. Planes without mass make room again.
    The inner products of an example's planes are kept, so that a step costs O(planes).
Cache
    N. Shah, V. Kolmogorov, C. Lampert, *A Multi-Plane Block-Coordinate Frank-Wolfe Algorithm for
    Training Structural SVMs with a Costly Max-Oracle* (2015). Passes over the planes already there
    follow each pass that decodes, as long as the last one gained more than all since the decodes:
    per second in the paper, here by counted work, so that runs can be repeated.
Sampling
    Permutations; uniform draws; or, as by Osokin et al., draws in proportion to the gap that an
    example had at its last visit, with a pass over all of them now and then, because gaps that
    are out of date would starve an example. Draws are made for a quarter of a pass at a time, in
    which none comes twice.
Averaging
    The candidates for the primal are the last iterate and the average with weights ∝ k of the
    iterates w_k, which is that of the paper: ``w̄ ← k/(k+2)·w̄ + 2/(k+2)·w_k``. Over all of them
    (``"all"``, as published), or over the later half of the run at most (``"recent"``).

Newton and conjugate gradient steps
    Where passes make little progress, steps over all planes with mass, as those of
    :mod:`hingeline.solvers.sdm`; not with the published method.

But for the published method, a block of examples is decoded against the same weights, in threads,
and a step goes to the best plane that the example then knows: with ``block=1`` the one decoded.
Block and order are the same for any number of threads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline.core.blocks import KEEP, Mass, WorkingSet, insert, make_room, planes, register_rule
from hingeline.core.formulations import Formulation, example_gap, most_violated
from hingeline.core.primitives import output_length, plane_score, planes_add, planes_score
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import PlaneSolver
from hingeline.solvers.sdm import Accelerator, speed_up

# Steps on one example's block: the simplex of multipliers over all its outputs, the true one
# included, whose plane is zero and holds the rest ``cap − Σ α`` of the mass. With the hinges
# ``h(y) = b(y) − a(y)·w·Δf(y)``, which are the gradient of the dual, s the output of the largest
# hinge and v that of the smallest among those with mass::
#
#     plain      d = cap·e_s − α         slope  cap·h(s) − Σ α·h           γ ≤ 1
#     away       d = α − cap·e_v         slope  Σ α·h − cap·h(v)           γ ≤ α(v)/(cap − α(v))
#     pairwise   d = e_s − e_v           slope  h(s) − h(v)                γ ≤ α(v)
#
# The dual is a parabola along d, so ``γ = slope/‖Σ d·a·Δf‖²``, cut off at its limit, is exact and
# the gain ``γ·slope − ½γ²‖Σ d·a·Δf‖²`` is never negative. ``AWAY`` takes the steeper of the first.

PLAIN, AWAY, PAIRWISE = range(3)
KINDS = {"plain": PLAIN, "away": AWAY, "pairwise": PAIRWISE}
SAMPLING = ("permutation", "gap", "uniform")
AVERAGING = ("recent", "all", "none")

#: A rest of the bound smaller than this share of it is rounding, and belongs to no output.
REST_ROUNDING = 1e-13
#: Away from a plane that has all mass but this share of it, the direction would be rounding.
ALL_BUT = 1e-9


@helper
def line_search(slope: float, curve: float, most: float) -> float:
    """The γ in [0, most] at which ``γ·slope − ½γ²·curve`` is largest."""
    if slope <= 0.0:
        return 0.0
    return min(slope / curve, most) if curve > 0.0 else most


class FrankWolfe(NamedTuple):
    """The rule: so many steps of one kind over an example's planes, at most."""

    kind: int
    limit: int


@helper
def _step(
    rule: FrankWolfe, gram: Array, alpha: Array, before: Array, hinges: Array, mass: Mass
) -> tuple[bool, float]:
    """The result is what the dual gains."""
    m, cap = alpha.shape[0], mass.cap
    own = np.zeros(m)  # a·Δf·w_i of every plane, w_i the example's share in the weights
    if rule.kind != PAIRWISE:
        for j in range(m):
            if alpha[j] > 0.0:
                for k in range(m):
                    own[k] += alpha[j] * gram[j, k]
    gain = 0.0
    for _ in range(rule.limit):
        total = linear = 0.0
        up = -1  # −1 is the true output: hinge 0, plane 0
        top = 0.0
        for j in range(m):
            total += alpha[j]
            linear += alpha[j] * hinges[j]
            if hinges[j] > top:
                up, top = j, hinges[j]
        rest = cap - total
        if rest <= REST_ROUNDING * cap:
            rest = 0.0
        down, least = -1, 0.0 if rest > 0.0 else np.inf
        for j in range(m):
            if alpha[j] > 0.0 and hinges[j] < least:
                down, least = j, hinges[j]
        if top - least <= 0.0:
            break
        room = rest if down == -1 else alpha[down]
        if rule.kind == PAIRWISE:
            slope = top - least
            curve = 0.0
            if up >= 0:
                curve += gram[up, up]
            if down >= 0:
                curve += gram[down, down]
            if up >= 0 and down >= 0:
                curve -= 2.0 * gram[up, down]
            step = line_search(slope, curve, room)
            if up >= 0:
                alpha[up] += step
                for k in range(m):
                    hinges[k] -= step * gram[up, k]
            if down >= 0:
                # Exactly zero when emptied, so that the slot can be used again.
                alpha[down] = 0.0 if step == room else alpha[down] - step
                for k in range(m):
                    hinges[k] += step * gram[down, k]
        else:
            # d = sign·(cap·e_at − α), so the plane of d is sign·(cap·a·Δf_at − w_i).
            forward, backward = cap * top - linear, linear - cap * least
            toward = rule.kind == PLAIN or forward >= backward or room >= (1.0 - ALL_BUT) * cap
            at, sign, slope = (up, 1.0, forward) if toward else (down, -1.0, backward)
            most = 1.0 if toward else room / (cap - room)
            curve = 0.0
            for k in range(m):
                curve += alpha[k] * own[k]
            if at >= 0:
                curve += cap * (cap * gram[at, at] - 2.0 * own[at])
            step = line_search(slope, curve, most)
            keep = 1.0 - sign * step
            for k in range(m):
                change = -own[k] if at < 0 else cap * gram[at, k] - own[k]
                hinges[k] -= sign * step * change
                own[k] += sign * step * change
                alpha[k] = 0.0 if keep <= 0.0 else keep * alpha[k]
            if at >= 0:
                dropped = not toward and step == most
                alpha[at] = 0.0 if dropped else max(alpha[at] + sign * step * cap, 0.0)
        if step == 0.0:
            break
        gain += step * (slope - 0.5 * step * curve)
    if rule.kind != PAIRWISE:  # a long way away from a plane magnifies rounding of the others
        total = 0.0
        for j in range(m):
            total += alpha[j]
        if total > (1.0 + REST_ROUNDING) * cap:
            for j in range(m):
                alpha[j] *= cap / total
    return True, gain


register_rule(FrankWolfe, _step)


@kernel
def plain_pass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    squares: Array,
    visits: float,
    averaged: float,
    clock: int,
    patience: int,
    scratch: Array,
    gaps: Array,
) -> None:
    """Decode the examples of ``order`` in turn, each at the weights the one before left.

    Each makes one plain step towards the plane of its largest hinge. Its share ``w_i = Σ α·a·Δf``
    in the weights is kept as its planes and multipliers, and ``squares[i] = ‖w_i‖²`` beside it.
    Taken out of w for a moment it gives the one inner product that the line search lacks:
    ``a·Δf·w_i = a·Δf·w − a·Δf·(w − w_i)``. All planes are scored and added together, which costs
    what they touch, however many they are.
    """
    for i in order:
        visits += 1.0
        coefficient = averaged * visits * (visits - 1.0)
        y = np.empty(output_length(problem, i), dtype=np.int32)
        if most_violated(problem, form, i, w, 1.0, y) > 0.0:
            insert(problem, form, ws, i, y, clock, patience, scratch)
        m, s, cap = ws.used[i], ws.slot[i], form.cap[i]
        gaps[i] = 0.0
        if m == 0:
            continue
        alpha, ys, scores = ws.alpha[s : s + m], planes(ws, i), np.empty(m)
        planes_score(problem, i, ys, w, scores)
        up = -1
        top = total = linear = 0.0
        for j in range(m):
            hinge = ws.offset[s + j] - ws.scale[s + j] * scores[j]
            total += alpha[j]
            linear += alpha[j] * hinge
            if hinge > top:
                up, top = j, hinge
        gap = example_gap(form, i, top, total, linear)
        if gap <= 0.0:
            continue
        gaps[i] = gap
        at_best = scores[up] if up >= 0 else 0.0
        steps = scores
        if total > 0.0:
            for j in range(m):
                steps[j] = -ws.scale[s + j] * alpha[j]
            planes_add(problem, i, ys, steps, w)
        corner = cross = 0.0  # ‖w_s‖² and w_s·w_i, w_s = cap·a·Δf of the plane to move towards
        if up >= 0:
            a = cap * ws.scale[s + up]
            corner = a * a * ws.sqnorm[s + up]
            if total > 0.0:
                cross = a * (at_best - plane_score(problem, i, ys[up], w))
        own = squares[i]
        step = line_search(gap, corner - 2.0 * cross + own, 1.0)
        keep = 1.0 - step
        squares[i] = keep * keep * own + 2.0 * step * keep * cross + step * step * corner
        for j in range(m):
            mass = keep * alpha[j]
            if j == up:
                mass += step * cap
            ws.drift[s + j] += coefficient * (mass - alpha[j])
            alpha[j] = mass
            if mass > 0.0:
                ws.stamp[s + j] = clock
            steps[j] = ws.scale[s + j] * mass
        planes_add(problem, i, ys, steps, w)


@kernel
def own_squares(problem: Any, ws: WorkingSet, w: Array, out: Array) -> None:
    """``‖w_i‖²`` of every example; w is left as it was but for rounding: give a copy."""
    for i in range(ws.used.shape[0]):
        m, s = ws.used[i], ws.slot[i]
        steps, back = np.empty(m), np.empty(m)
        for j in range(m):
            steps[j] = ws.scale[s + j] * ws.alpha[s + j]
            back[j] = -steps[j]
        out[i] = 0.0
        if not steps.any():
            continue
        ys, whole, without = planes(ws, i), np.empty(m), np.empty(m)
        planes_score(problem, i, ys, w, whole)
        planes_add(problem, i, ys, back, w)
        planes_score(problem, i, ys, w, without)
        planes_add(problem, i, ys, steps, w)
        square = 0.0
        for j in range(m):
            square += steps[j] * (whole[j] - without[j])
        out[i] = max(square, 0.0)


PARTS = 4  # Sampled passes are drawn in so many parts, each with the gaps known by then.
CACHED_COST = 0.4  # What a visit without a decode costs, in visits with one.
SKIP = 0.1  # Cached passes leave out examples whose last gap was below this share of the mean.


class BCFW(PlaneSolver):
    """Block-coordinate Frank-Wolfe; see the head of this module."""

    name = "bcfw"
    slacks = ("max",)
    soft_only = "it steps towards corners of the feasible set, which must be bounded"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        steps: str = option("pairwise", "directions of the steps", words=KINDS)
        sampling: str = option("permutation", "which examples a pass visits", words=SAMPLING)
        averaging: str = option("recent", "iterates in the average", words=AVERAGING)
        cached_passes: int | None = option(None, "passes between decodes; None: 0 or 10", least=0)
        inner_steps: int = option(10, "steps of a visit, at most; 1 is as published")
        max_planes: int = option(64, "of an example; where all have mass, a new one must wait")
        patience: int = option(5, "passes after which a plane without mass may go")
        refresh: int = option(5, "with sampling='gap' one pass in so many visits all examples")
        block: int | None = option(None, "examples decoded at the same weights, for any n_jobs")
        newton_weights: int = option(2000, "Newton steps with so many weights at most", least=0)
        cg_steps: int = option(30, "conjugate gradient steps, as for sdm; 0: none", least=0)

        @property
        def passes(self) -> int:
            """Passes over known planes, at most."""
            if self.cached_passes is None:
                return 0 if self.steps == "plain" else 10
            return self.cached_passes

        @property
        def published(self) -> bool:
            """Plain steps and no cache."""
            return self.steps == "plain" and not self.passes

        def unused(self, slack: str) -> Iterable[str]:
            if self.steps == "plain" or self.averaging == "all":
                yield from ("max_planes", "patience")
            if self.published:
                yield from ("inner_steps", "block", "newton_weights", "cg_steps")
            if self.sampling != "gap":
                yield "refresh"

    saved_numbers = (*PlaneSolver.saved_numbers, *Accelerator.saved_numbers)
    saved_arrays = (*PlaneSolver.saved_arrays, "squares")

    def _begin(self, start: WorkingSet | None) -> None:
        self.inner_products = not self.options.published
        super()._begin(start)
        self.rule = FrankWolfe(KINDS[self.options.steps], self.options.inner_steps)
        self.averaged = self.options.averaging != "none"
        self.accelerate = Accelerator(0) if self.options.published else speed_up(self)
        # Plain steps leave mass on every plane they met, and the average over all iterates a share.
        keeps_all = self.options.steps == "plain" or self.options.averaging == "all"
        self.most_planes = KEEP if keeps_all else int(self.options.max_planes)
        self.squares = np.zeros(self.compiled.n)  # ‖w_i‖², for plain steps without inner products
        if self.options.published and not self.fresh:
            self.run(own_squares, self.ws, self.w.copy(), self.squares)

    def sweep(self) -> float:
        """One pass that decodes, and passes over known planes as long as they are worth it."""
        self.clock += 1
        if self.options.averaging == "recent":
            self.restart_average_in_time()
        known = self.n_planes
        gain = work = 0.0
        for part in self._draws():
            self.ws = make_room(self.ws, self.clock - 1, self.patience, self.most_planes)
            gain += self._visit(part)
            work += len(part)
        self.oracle_calls += int(work)
        estimate = float(self.gaps.sum())
        gaps = self.gaps.copy()  # over known planes; those of the decodes are for the draws
        for _ in range(self.options.passes):
            order = self.rng.permutation(np.flatnonzero(gaps > SKIP * gaps[self.active].mean()))
            if not len(order):
                break
            gained, cost = self._move(order, gaps), CACHED_COST * len(order)
            gain, work = gain + gained, work + cost
            if gained * work < gain * cost:
                break
        # Where a set is full, mass on all its planes would leave none to make room.
        if not self.options.published and (self.ws.used < self.most_planes).all():
            cost = 2.0 * self.plane_size * max(self.n_planes, 1) * work / len(self.active)
            growth = (self.n_planes - known) / len(self.active)
            leapt = self.accelerate(self, estimate, cost, growth) and self.accelerate.newton
            if leapt and self.options.averaging == "recent":
                self.restart_average()  # it is left behind
        return estimate

    def _draws(self) -> Iterator[Array]:
        """The examples of a pass, in parts; those of a part may depend on the gaps so far."""
        sampling = self.options.sampling
        n = len(self.active)
        whole = sampling == "gap" and (self.clock - 1) % self.options.refresh == 0
        if sampling == "permutation" or whole:
            yield self.rng.permutation(self.active)
            return
        size = -(-n // PARTS)
        for lo in range(0, n, size):
            count = min(size, n - lo)
            if sampling == "uniform":
                yield self.rng.choice(self.active, count, replace=False)
                continue
            gaps = self.gaps[self.active]
            some = np.flatnonzero(gaps > 0.0)
            # The smallest of exponential clocks at these rates: draws without replacement
            # (P. Efraimidis, P. Spirakis, 2006).
            clocks = self.rng.exponential(size=len(some)) / gaps[some]
            yield self.active[some[np.argsort(clocks, kind="stable")[:count]]]

    def _visit(self, order: Array) -> float:
        """Decode and visit examples, block by block; what the dual gains, where that matters."""
        gain = 0.0
        for part in self.cut_into_blocks(order):
            if self.options.published:  # each is decoded at the weights the one before left
                known = (self.form, self.ws, part, self.w, self.squares, self.visits)
                asked = (float(self.averaged), self.clock, self.patience)
                self.run(plain_pass, *known, *asked, self.workers.scratch[0], self.gaps)
                self.visits += self.averaged * len(part)
            else:
                self.find(part, self.patience)
                gain += self._move(part, self.gaps)
        return gain

    def _move(self, order: Array, gaps: Array) -> float:
        """Step over the planes known; what the dual gains."""
        gain = self.move(order, self.form, gaps, averaged=self.averaged)
        gaps[order] = np.maximum(gaps[order], 0.0)
        return gain

    def repair(self) -> None:
        super().repair()
        if self.options.published:
            self.run(own_squares, self.ws, self.w.copy(), self.squares)
