"""The ν-problem, solved exactly by a warm-started search over C.

S. Kim, J. Kim, S. Yun, C. D. Yoo, *ν-Structured Support Vector Machines* (2010), in our units, with
``s̄ = s/Σs``::

    (7)   min  ½‖w‖² − νρ + Σ_i s̄_i·max_y [ρ·l_i(y) − w·Δf_i(y)]₊,     ρ ≥ 0
    (12)  max  −½‖Σ β Δf‖²,     β ≥ 0,  Σ_y β_i ≤ s̄_i,  Σ β·l ≥ ν

For ρ > 0 the weights are ρ times those of ``slack="max"`` with ``C·s_i = s̄_i/ρ``, and
``β = ρ·α``. So a solver of that problem is run while ρ is steered until ``L = Σ β·l``, which is
continuous in ρ and does not fall with it, is ν. A change of ρ leaves β as it is, so every pass
starts from the last.

Certificate. Any weights v of the C-problem with mean hinge ``R = Σ s̄_i·max_y [l − v·Δf]₊`` give
the primal value ``−½(ν − R)²/‖v‖²``, at ``ρ = (ν − R)/‖v‖²``. On the dual side two points with L on
either side of ν are mixed (:class:`NuCertificate`); the error of that is of second order
in their distance, so ν need not be met exactly.

The ends. ``ν(C)`` falls from ``ν_max = Σ s̄_i·max_y l_i(y)`` at C → 0 to the least mean hinge of any
weights, ``ν_min``, at C → ∞ (0 where the data are separable). Above ν_max (12) has no feasible
point; at or below ν_min its solution is w = 0 with ρ = 0. On a plateau of ν(C) every ρ of an
interval solves (7), all with the same w: one of them is found.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline.core.formulations import Formulation, find_hinges, make_formulation
from hingeline.core.primitives import PART, Compiled, Workers
from hingeline.core.results import DualMemory
from hingeline.core.solver import LEAST_MARGIN, CertifiedSolver, PlaneSolver
from hingeline.solvers.enumerated import EnumeratedSDM
from hingeline.solvers.sdm import SDM, take_pair_steps

# Margins of given weights. For them (7) is, in ρ alone, ``½‖w‖² − q(ρ)``, q concave::
#
#     q(ρ) = νρ − Σ_i s̄_i·max_y [ρ·l_i(y) − w·Δf_i(y)]₊,     q'(ρ) = ν − Σ_i s̄_i·l_i(ŷ_i)
#
# where ŷ_i is the maximiser. So ρ is best for w where the risk ``Σ s̄_i·l_i(ŷ_i)``, which grows
# with ρ, passes ν; from below it is the risk of margin errors with the smallest loss among tied
# maximisers, from above the risk of support vectors with the largest. Proposition 1 of the paper,
# with ties, is the same as q having its maximum at ρ: it holds for the best ρ of any weights.

#: Outputs count as tied, and examples as on the margin, where a change of ρ by this share decides.
TIE = 1e-3
RISK_ROUNDING = 1e-12  # Risks that differ from ν by no more than this share differ by rounding.
USUAL_SLOPE = 0.4  # How steeply the risk rises with ρ, in logarithms: a first guess.
MOST_LOOKS = 60  # The search for the best ρ ends here; it needs about five.


class Look(NamedTuple):
    """What one decode per example says of weights at a ratio ρ."""

    rho: float
    lead: float  # q(ρ)
    risk: float  # Σ s̄·l of the maximisers
    hinges: Array  # 0 where the true output wins, as the next
    losses: Array


@dataclass(frozen=True)
class Margins:
    """Examples, their shares s̄ and ν: what margins are measured with."""

    compiled: Compiled
    shares: Array
    workers: Workers
    nu: float

    @classmethod
    def of(cls, compiled: Compiled, weights: Array, workers: Workers, nu: float = 1.0) -> Margins:
        """Those of examples of these weights."""
        return cls(compiled, make_formulation(1.0, "nu", "margin", weights).cap, workers, nu)

    def look(self, w: Array, rho: float) -> Look:
        """Hinges and risk at (w, ρ), in threads."""
        find = self.compiled.bind(find_hinges)
        hinges, excess, losses = np.zeros((3, self.compiled.n))
        given = (self.compiled.problem, PART, w, rho, hinges, excess, losses)
        self.workers.over(np.flatnonzero(self.shares), find, *given)
        hinges = np.maximum(hinges + excess, 0.0)
        losses[hinges == 0.0] = 0.0
        risk = float(self.shares @ losses)
        if abs(risk - self.nu) <= RISK_ROUNDING * self.nu:
            risk = self.nu
        return Look(rho, self.nu * rho - float(self.shares @ hinges), risk, hinges, losses)

    def highest(self) -> float:
        """``Σ s̄_i·max_y l_i(y)``: above it no ν is feasible in (12)."""
        return self.look(np.zeros(self.compiled.n_weights), 1.0).risk

    def bracket(self, w: Array, rho: float) -> tuple[Look, Look, int]:
        """Two looks on either side of the best ρ for w, at most ``TIE`` apart; and their number.

        The risk is a step function of ρ that rises, close to a line in logarithms where there are
        many examples: secant steps, and halving where they do not get on.
        """
        low: Look | None = None
        high: Look | None = None
        step, at = 0.99 * TIE, rho / (1.0 + 0.5 * TIE)
        for count in range(1, MOST_LOOKS + 1):
            found = self.look(w, at)
            if found.risk <= self.nu and (low is None or at >= low.rho):
                low = found
            if found.risk >= self.nu and (high is None or at <= high.rho):
                high = found
            if low is None or high is None:
                if count == 1 and found.risk > 0.0:
                    step = max(step, 1.5 * abs(math.log(self.nu / found.risk)) / USUAL_SLOPE)
                at = at * (1.0 + step) if high is None else at / (1.0 + step)
                step *= 4.0
                continue
            room = math.log(high.rho / low.rho)
            if room <= TIE:
                break
            share = 0.5
            if count % 4 and low.risk > 0.0 and high.risk > low.risk:
                share = math.log(self.nu / low.risk) / math.log(high.risk / low.risk)
            # A little past the guess, on the side that is farther away: the next closes the gap.
            edge = 0.4 * TIE / room
            share += edge if share < 0.5 else -edge
            at = low.rho * math.exp(min(max(share, edge), 1.0 - edge) * room)
        return low or found, high or found, count


def best_multiple(lead: float, square: float) -> tuple[float, float]:
    """The least value of (7) over c·w with ρ/c fixed, and c; lead is q, square ``‖w‖²``."""
    if lead <= 0.0 or square <= 0.0:
        return 0.0, 0.0
    return -0.5 * lead * lead / square, lead / square


# Feasible points of (12). Multipliers within their bounds need ``L = Σ β·l ≥ ν``. With more, they
# can be scaled down to ν; with less they bound nothing, and scaling them up would leave the bounds.
# Two points with L on either side of ν have mixtures with ``L = ν``; that of the least ``‖Σ β Δf‖``
# is the best. Only the weights ``Σ β Δf`` are needed, which mix like the multipliers.

#: Points that are kept: a good one on either side of ν, and the first one above.
HIGH, LOW, TOP = range(3)


class NuCertificate:
    """What solvers of the ν-problem share: the best dual value, and what gaps are relative to."""

    nu_numbers: ClassVar[tuple[str, ...]] = ("_best_rho", "least_hinge", "_bound")
    nu_arrays: ClassVar[tuple[str, ...]] = ("_points", "_levels")
    polishes = False  # primals are those of the best multiple already
    decodes: ClassVar[bool] = False  # its primal is another

    margins: Margins
    oracle_calls: int
    active: Array

    def _set_margins(self, margins: Margins) -> None:
        self.margins, self.nu = margins, margins.nu
        self._best_rho = 0.0
        self.least_hinge = math.inf  # in units of the loss: a bound on ν_min from above
        self._bound = -math.inf
        self._points = np.zeros((3, margins.compiled.n_weights))  # Σ β Δf
        self._levels = np.full(3, math.nan)  # L of each, nan where there is none yet

    def mix(self, weights: Array, level: float) -> None:
        """Take a point into account: its mixture with one from the other side of ν."""
        above = level >= self.nu * (1.0 - RISK_ROUNDING)
        side, other = (HIGH, LOW) if above else (LOW, HIGH)
        value = self._mixture(weights, level, other)
        if not above:
            wide = self._mixture(weights, level, TOP)
            if wide > value:
                # What lies next to ν may be a bad point, and leaves no room for this one.
                value = wide
                self._points[HIGH], self._levels[HIGH] = self._points[TOP], self._levels[TOP]
        self._bound = max(self._bound, value)
        if above and math.isnan(self._levels[TOP]):
            self._points[TOP], self._levels[TOP] = weights, level
        known = self._levels[side]
        if math.isnan(known) or value >= self._mixture(self._points[side], known, other):
            self._points[side], self._levels[side] = weights, level

    def _mixture(self, weights: Array, level: float, other: int) -> float:
        known = (self._points[other], float(self._levels[other]))
        return mixture_value(weights, level, *known, self.nu)

    def lower_bound(self) -> float:
        return self._bound

    def positive_part(self, primal: float) -> float:
        """``P + νρ``; 0 while w = 0 with ρ = 0 is the best point known."""
        return primal + self.nu * self._best_rho

    def _primal_near(self, weights: Array, rho: float) -> float:
        """The value of (7) at given weights and the best ρ for them, which is near ``rho``."""
        low, high, count = self.margins.bracket(weights, rho)
        self.oracle_calls += count * len(self.active)
        best = max(low, high, key=lambda look: look.lead)
        self._best_rho = best.rho
        return 0.5 * float(weights @ weights) - best.lead


def mixture_value(a: Array, level: float, b: Array, its_level: float, nu: float) -> float:
    """``−½ min ‖p·a + q·b‖²`` over p, q ≥ 0, p + q ≤ 1 with ``p·level + q·its_level = ν``.

    −inf where there is no such mixture. That of a alone where the level of b is nan.
    """
    least = nu * (1.0 - RISK_ROUNDING)
    if not its_level > 0.0:
        if level < least:
            return -math.inf
        return -0.5 * min(nu / level, 1.0) ** 2 * float(a @ a)
    if level < least:
        # As seen from the point that is feasible by itself.
        return mixture_value(b, its_level, a, level, nu) if its_level >= least else -math.inf
    square, inner, other = float(a @ a), float(a @ b), float(b @ b)
    # p = (ν − q·its_level)/level, so the square is a quadratic in q.
    slope = its_level / level
    base = min(nu / level, 1.0)
    most = base / slope
    if slope < 1.0:
        most = min((1.0 - base) / (1.0 - slope), most)
    curve = other - 2.0 * slope * inner + slope * slope * square
    q = base * (slope * square - inner) / curve if curve > 0.0 else 0.0
    q = min(max(q, 0.0), most)
    p = base - q * slope
    # By rounding the square may fall below 0, where a and b point opposite ways.
    return -0.5 * max(p * p * square + 2.0 * p * q * inner + q * q * other, 0.0)


LARGEST_STEP = 16.0  # ρ changes by at most this factor between two passes.
#: Beyond this difference of logarithms from ν the level need not settle before ρ moves on.
FAR = 0.2
#: The level has settled where a pass moves it by less than this share of its way to ν.
SETTLED = 0.3
PAST = 1.2  # Steps beyond all levels known are this much longer than needed,
#: and while all points are on one side of ν longer by this difference of the level's logarithm.
BEYOND = 0.01
CLOSE = 0.01  # Above this share of νρ the gap of (7) calls for haste.
#: ρ is left alone while the gap of the C-problem is at least so many times that of (7).
MATTERS = 1.5
NEAR = 0.3  # Averages go on over changes of ρ by less than this difference of logarithms.
#: With so many examples the first ρ is that of samples: one example in so many, or this number
#: (at most one in four); and, before that, a quarter of it.
SAMPLED = 300
ONE_IN = 16
ENOUGH = 400
SAMPLE_PASSES = (6, 4)  # Passes over the two samples.
ROOM = 1.05  # A sample whose largest ν is less than so many times ν says nothing.
#: Why a run ends where ν is out of reach from below.
TOO_LOW = "nu is not above its least value: rho is 0"


@dataclass
class Steering:
    """Chooses ρ from the levels ``L`` that passes reach: regula falsi in logarithms, with brakes.

    Passes only come near the level of their ρ. While they move it further than what is left to ν,
    they go on; far from ν, and while all points are on one side of it, the next ρ is guessed from
    where the level is heading.
    """

    low: float = -math.inf  # log ρ
    low_value: float = 0.0  # log L/ν < 0 there
    high: float = math.inf
    high_value: float = 0.0
    side: float = 0.0  # of the last settled level
    visited: float = math.nan
    slope: float = 0.25  # of log L over log ρ
    x: float = math.nan  # where it was measured last
    value: float = 0.0
    trusted: bool = False  # whether that level had settled
    moved: float = 0.0  # by the last pass
    rate: float = 0.5  # of what is left of that in the next

    def next(self, x: float, level: float, before: float, nu: float, enclosed: bool) -> float:
        """Log of the next ρ; ``enclosed``: whether points on both sides of ν are known."""
        value = math.log(max(level, 1e-300) / nu)
        if value == 0.0:
            return x
        moved, left = level - before, level - nu
        # What is left of the level's movement from one pass to the next.
        if x == self.visited and moved * self.moved > 0.0:
            self.rate = min(moved / self.moved, 0.8)
        self.moved = moved
        # The first pass at a new ρ goes only part of the way.
        settled = SETTLED if x == self.visited else SETTLED / 3.0
        self.visited = x
        if abs(moved) > settled * abs(left) and moved * left < 0.0:
            ahead = self.heading(level, before, nu)
            if ahead * value <= 0.0 or (enclosed and abs(ahead) <= FAR):
                return x
            self._measure(x, ahead, False)
            return self._free(x, ahead, enclosed)
        # A level on its way from ν has its side, but does not tell a slope yet.
        return self._settled(x, value, abs(moved) <= settled * abs(left), enclosed)

    def heading(self, level: float, before: float, nu: float) -> float:
        """``log L/ν`` where the level will settle if it goes on as it did."""
        end = level + (level - before) * self.rate / (1.0 - self.rate)
        return math.log(max(end, 1e-3 * nu) / nu)

    def _free(self, x: float, value: float, enclosed: bool) -> float:
        most = math.log(LARGEST_STEP)
        # A little too far: two sides of ν make a better dual point than one.
        past = PAST * value if enclosed else value + math.copysign(BEYOND, value)
        there = x - min(max(past / self.slope, -most), most)
        if self.low < x < self.high:  # within what is known
            there = min(max(there, 0.5 * (x + self.low)), 0.5 * (x + self.high))
        return there

    def _measure(self, x: float, value: float, settled: bool) -> None:
        """Take the slope from the last point to this one, if both can be trusted that far."""
        if abs(x - self.x) > (0.0 if settled and self.trusted else 1.0):
            self.slope = min(max((value - self.value) / (x - self.x), 0.05), 1.5)
        self.x, self.value, self.trusted = x, value, settled

    def _settled(self, x: float, value: float, trusted: bool, enclosed: bool) -> float:
        self._measure(x, value, trusted)
        side = math.copysign(1.0, value)
        if value < 0.0:
            if x >= self.high:
                self.high = math.inf
            self.low, self.low_value = x, value
        else:
            if x <= self.low:
                self.low = -math.inf
            self.high, self.high_value = x, value
        # Illinois: an end that stays counts half, so that the other side is reached too.
        if side == self.side and side < 0.0:
            self.high_value *= 0.5
        elif side == self.side:
            self.low_value *= 0.5
        self.side = side
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return self._free(x, value, enclosed)
        share = self.low_value / (self.low_value - self.high_value)
        if not 0.02 <= share <= 0.98:  # to the end itself: it may have been judged too early
            share = round(share)
        return self.low + share * (self.high - self.low)


class NuSearch(NuCertificate, CertifiedSolver):
    """A solver of the C-problem whose C is steered; see the head of this module."""

    rescalings = ("margin",)
    search_numbers: ClassVar[tuple[str, ...]] = (
        *("rho", "_before", "_inner", "_outer", *NuCertificate.nu_numbers),
        *(f"steering.{part.name}" for part in fields(Steering)),
    )

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        """What the inner solver starts from, and the bounds that it was found under."""
        start = super().start_from(before, compiled, form)
        return None if start is None else (start, before.form.cap)

    def _begin(self, start: Any) -> None:
        self.shares = self.form.cap
        self._rho = 1.0
        inner, caps = (None, np.empty(0)) if start is None else start
        super()._begin(inner)
        self._set_margins(Margins(self.compiled, self.shares, self.workers, float(self.options.nu)))
        self.stages = []
        self.steering = Steering()
        self._before = math.nan  # the level before the last pass
        self._inner = 0.0  # gap of the C-problem after it, in the units of (7)
        self._outer = math.inf  # gap of (7)
        if start is None:
            square = self.mean_square() or 1.0
            self.rho = max(float(self.shares[self.active].mean()) * square, 1e-300)
            if len(self.active) >= SAMPLED and not self.all_outputs:
                self._ask_samples()
        elif 0.0 < float(caps.sum()) < math.inf:  # multipliers were scaled to a ρ of 1
            self._go_to(float(self.shares[: len(caps)].sum()) / float(caps.sum()))

    def _ask_samples(self) -> None:
        """Take the first ρ from searches over fewer examples.

        Weights fit fewer examples better, and leave them a larger ρ, the more so the smaller ν is:
        what the step from the smaller sample to the larger took off tells of the step to all.
        """
        order = self.rng.permutation(self.active)
        rho = before = math.nan
        most = max(len(order) // ONE_IN, min(len(order) // 4, ENOUGH))
        for size, passes in zip((most // 4, most), SAMPLE_PASSES, strict=True):
            sample = self._sample(order[:size])
            if sample is None:
                return
            if rho > 0.0:
                sample.rho = rho
            for _ in range(passes):
                sample.sweep()
            self.oracle_calls += sample.oracle_calls
            # The ρ at which the level would be ν, if that is near.
            away = math.log(max(sample.level(), 1e-300) / self.nu) / sample.steering.slope
            away = min(max(away, -math.log(LARGEST_STEP)), math.log(LARGEST_STEP))
            before, rho = rho, sample.rho * math.exp(-away)
        self.rho = rho * math.sqrt(min(rho / before, 1.0))

    def _sample(self, examples: Array) -> NuSearch | None:
        """The same search over some of the examples; None where ν is too large for them."""
        shares = np.zeros_like(self.shares)
        shares[examples] = self.shares[examples] / self.shares[examples].sum()
        if Margins(self.compiled, shares, self.workers, self.nu).highest() < ROOM * self.nu:
            return None
        seed = int(self.rng.integers(2**31))
        form = self.form._replace(cap=shares)
        return type(self)(self.compiled, form, self.workers, seed, asdict(self.options))

    @property
    def rho(self) -> float:
        """The margin steered to; the formulation's C is ``1/(ρ·Σs)``."""
        return self._rho

    @rho.setter
    def rho(self, rho: float) -> None:
        self._rho = rho
        self.form = self.form._replace(cap=self.shares / rho)

    def _go_to(self, rho: float) -> None:
        factor = self._rho / rho
        self.rho = rho
        visits = self.visits if abs(math.log(factor)) < NEAR else 0.0
        drift = factor * self.multipliers().drift if visits > 0.0 else None
        self._scale(factor)
        if drift is not None:
            # In the units of (7) the weights are where they were, and so is their average.
            self.multipliers().drift[:] = drift
            self.visits = visits

    def level(self) -> float:
        """``L = Σ β·l``."""
        return self._rho * self.linear()

    def sweep(self) -> float:
        """One pass of the inner solver at the ρ that the passes before suggest."""
        if self.clock > 0 and (self._far() or self._inner < MATTERS * self._outer):
            x = math.log(self._rho)
            close = self._outer < CLOSE * self.nu * self._rho
            enclosed = close and not np.isnan(self._levels).any()
            there = self.steering.next(x, self.level(), self._before, self.nu, enclosed)
            if there != x:
                self._go_to(math.exp(there))
        self._before = self.level()
        estimate = super().sweep()  # type: ignore[safe-super]
        self.mix(self._rho * self.w, self.level())
        # The primal to expect: the gap of the C-problem tells its mean hinge.
        square = float(self.w @ self.w)
        hinge = self._rho * (self.dual() + estimate - 0.5 * square)
        self._inner = self._rho**2 * estimate
        self._outer = max(best_multiple(self.nu - hinge, square)[0] - self._bound, 0.0)
        return self._outer

    def _far(self) -> bool:
        """Whether the level is far from ν and not on its way there."""
        ahead = self.steering.heading(self.level(), self._before, self.nu)
        return abs(ahead) > FAR and ahead * (self.level() - self.nu) > 0.0

    def repair(self) -> None:
        super().repair()
        self.mix(self._rho * self.w, self.level())

    def finished(self) -> str | None:
        """Whether the margin, which (12) bounds from above, is none beside the data's radius."""
        if math.sqrt(max(-2.0 * self._bound, 0.0)) > self.nu * LEAST_MARGIN * self._reach():
            return None
        self.certify()  # for the least hinge
        self.satisfied = True
        self._best = np.zeros_like(self.w)
        self._best_primal = self._best_rho = 0.0
        return TOO_LOW

    def keep(self, weights: Array, primal: float, factor: float = 1.0) -> bool:
        """Remember the best multiple of the weights, whose hinges are in ``violation``."""
        hinge = float(self.shares @ self.violation)
        self.least_hinge = min(self.least_hinge, hinge)
        value, factor = best_multiple(self.nu - hinge, float(weights @ weights))
        kept = super().keep(weights, value, factor)
        if kept:
            self._best_rho = factor
        return kept

    def candidate(self) -> Array:
        return self._rho * super().candidate()

    def primal_of(self, weights: Array) -> float:
        return self._primal_near(weights, self._rho)


class NuSDM(NuSearch, PlaneSolver):
    """The search over planes found by decoding."""

    name = "sdm"
    slacks = ("nu",)

    @dataclass(frozen=True)
    class Options(SDM.Options):
        nu: float = 1.0
        newton_weights: ClassVar[int] = 0  # type: ignore[misc]  # its steps know no moving C

    saved_numbers = (*SDM.saved_numbers, *NuSearch.search_numbers)
    saved_arrays = (*SDM.saved_arrays, *NuCertificate.nu_arrays)

    def _begin(self, start: Any) -> None:
        super()._begin(start)
        take_pair_steps(self)


class NuEnumeratedSDM(NuSearch, EnumeratedSDM):
    """The search where all outputs are the working set."""

    slacks = ("nu",)

    @dataclass(frozen=True)
    class Options(EnumeratedSDM.Options):
        nu: float = 1.0
        newton_weights: ClassVar[int] = 0  # type: ignore[misc]  # its steps know no moving C

    saved_numbers = (*EnumeratedSDM.saved_numbers, *NuSearch.search_numbers)
    saved_arrays = (*EnumeratedSDM.saved_arrays, *NuCertificate.nu_arrays)
