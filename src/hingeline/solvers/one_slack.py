"""Cutting planes with one slack variable: a whole pass over the data gives one plane.

T. Joachims, T. Finley, C.-N. Yu, *Cutting-Plane Training of Structural SVMs* (2009) for
``slack="max"``; P. Balamurugan, S. Shevade, T. Ravindra Babu, *Efficient Algorithms for Linear
Summed Error Structural SVMs*, Algorithm 1 and OP2-1-slack (III.3), for ``slack="sum"``. One slack
variable for all examples, and a constraint for every choice of sets S_1 … S_n of outputs::

    min_w,ξ  ½‖w‖² + ξ,     ξ ≥ b − g·w,     (g, b) = Σ_i cap_i Σ_{y ∈ S_i} (a·Δf_i(y), b_i(y))

S_i is one output or none for ``"max"`` and any set for ``"sum"``. A round decodes every example at
some weights, which gives the most violated constraint there (:mod:`.aggregate`) and the true primal
with it, adds this *cut* and solves the dual over all cuts known (:mod:`.cuts`). Multipliers β of
cuts are multipliers ``α_i(y) = cap_i·Σ_k β_k [y ∈ S_i^k]`` of planes, feasible for the dual of all
other solvers: the gap is the true one, in the same units.

``schedule="published"``
    The cut is made where the restricted problem has its optimum, and pair steps (Hildreth's with
    the bound on the sum) solve the latter, to a tenth of ε or of the gap. With ``"sum"`` and the
    sets V_i of outputs met so far, rounds that decode (type I) are followed by rounds that look for
    the cut in V_i alone (type II) once ``iter`` exceeds κ₁ = 10: κ₂ − 1 at most, fewer when V_i
    offers no violated cut any more.
``schedule="improved"``
    The cut is made near the best weights v seen, at ``v + step·(w − v)`` with w the optimum of the
    restricted problem, which far from the solution swings widely (V. Franc, S. Sonnenburg,
    *Optimized Cutting Plane Algorithm*, 2009). Newton steps end the inner solve.

As printed Algorithm 1 stops after one cut: S_i must be emptied in every round, or line 19 compares
with outputs that are violated no more. V_i starts empty, because y_i itself has Δf = 0 and is void.
ε is in units of ξ: here ``C·ε`` for ``"sum"`` (with sample weights, C is the mean bound) and
``n·C·ε`` for ``"max"``, whose (II.4) has 1/n. Line 19 is tested where the schedule is as published;
the improved one stops when the gap is below that, which is what line 19 guarantees. As elsewhere,
``tol`` may stop either of them earlier.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._simd import aligned_zeros
from hingeline.formulations import Formulation
from hingeline.solvers.aggregate import make_oracle
from hingeline.solvers.certificate import CertifiedSolver, total_slack_cost
from hingeline.solvers.cuts import Cuts, cuts_from, empty_cuts
from hingeline.solvers.parallel import Workers
from hingeline.structures.base import Compiled
from hingeline.working_set import WorkingSet

Array = np.ndarray[Any, Any]

#: Every block of examples sums into a vector of its own; all of them have so many entries at most,
#: unless fewer than four blocks would be left.
BLOCK_ENTRIES = 2**21
#: The inner solve leaves this share of the gap or of ε.
SHARE = 0.1
#: Smaller shares of the objective drown in rounding.
ROUNDING = 1e-14


class CutMemory(NamedTuple):
    """What a run leaves for the next one: cuts, sets V_i where it has them, its best weights."""

    cuts: Cuts
    known: WorkingSet | None
    best: Array


class OneSlack(CertifiedSolver):
    """Cutting planes with one slack variable; see the head of this module.

    Options
    -------
    schedule : {"improved", "published"}
    epsilon : float or None
        The published stopping rule, line 19 of Algorithm 1. None: stop on ``tol`` alone.
    step : float
        How far from the best weights to the restricted optimum the improved schedule cuts.
    patience : int
        Rounds after which a cut without mass goes.
    violators : "argmax", int or "all"
        The estimator's parameter of this name, for ``slack="sum"``.
    max_outputs : int
        With ``violators="all"``, the primal of weights is not known where an example has more
        violated outputs.
    kappa1, kappa2 : int
        When the published schedule decodes, for ``slack="sum"`` with sets V_i.
    """

    name = "one-slack"
    certifies = True
    defaults: ClassVar[dict[str, Any]] = {
        "schedule": "improved",
        "epsilon": None,
        "step": 0.1,
        "patience": 50,
        "violators": "argmax",
        "max_outputs": 20000,
        "kappa1": 10,
        "kappa2": 5,
    }
    words: ClassVar[dict[str, tuple[str, ...]]] = {
        "schedule": ("improved", "published"),
        "violators": ("argmax", "all"),
    }
    idle: ClassVar[dict[str, tuple[str, ...]]] = {
        "improved": ("kappa1", "kappa2"),
        "published": ("step",),
        "max": ("kappa1", "kappa2", "max_outputs"),
    }
    saved_numbers = (*CertifiedSolver.saved_numbers, "decoding", "settled")

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: CutMemory | None = None,
    ) -> None:
        super().__init__(compiled, form, workers, seed, options)
        self.published = self.options["schedule"] == "published"
        self.oracle = make_oracle(compiled, form, self.options)
        self.restricted = self.oracle.restricted
        size = compiled.n_weights
        n_blocks = min(max(4, min(64, BLOCK_ENTRIES // size)), max(len(self.active), 1))
        self.blocks = np.array_split(self.active, n_blocks)
        self.sums = np.zeros((n_blocks, size))
        self.offsets = np.zeros(n_blocks)
        self.cuts = empty_cuts(size)
        self.decoding = True  # in the next round
        self.settled = False
        caps = form.cap[self.active]
        unit = caps.mean() if form.summed else caps.sum()
        self.epsilon = float(unit) * (self.options["epsilon"] or 0.0)
        if start is not None:
            self.cuts = start.cuts
            self.oracle.set_known(start.known)
            self.cuts.optimise(1e-4 * self.cuts.linear(), newton=not self.published)
            self._set_weights()
            self._best = start.best.copy()  # of unknown primal: where the first round cuts

    @property
    def n_planes(self) -> int:
        """Cuts, and outputs in the sets V_i."""
        return self.cuts.known + self.oracle.n_known

    def dual(self) -> float:
        """``Σ β·b − ½‖w‖²``."""
        return self.cuts.linear() - 0.5 * float(self.w @ self.w)

    def sweep(self) -> float:
        """One round of Algorithm 1; the gap."""
        self.clock += 1
        decode = self.decoding
        point = self._point()
        g, b, primal = self._cut_at(point, decode)
        if decode:
            self._keep_point(point, primal)
        # Lines 14 to 19: what the cut asks for here, beyond what those known do.
        excess = b - float(g @ point) - self.cuts.slack_at(point)
        self.settled = decode and self._settles(excess)
        self.decoding = self._decodes_next(decode, excess)
        if excess > ROUNDING * b:
            self.cuts = self.cuts.with_cut(g, b, self.clock)
        # Line 7.
        self.cuts.optimise(self._tolerance(), newton=not self.published)
        self.cuts = self.cuts.without_idle(self.clock, self.options["patience"])
        self._set_weights()
        return self._distance()

    def _point(self) -> Array:
        """Where to cut."""
        best = self._best
        if best is not None and self.clock == 1:
            return best
        if best is None or self.published or not math.isfinite(self._best_primal):
            return self.w
        return np.asarray(best + self.options["step"] * (self.w - best))

    def _cut_at(self, point: Array, decode: bool) -> tuple[Array, float, float]:
        """The most violated constraint at a point, block by block in threads, and the primal."""
        self.oracle.prepare(self.clock)
        self.oracle_calls += len(self.active) * int(decode)
        self.violation[:] = 0.0

        def cut(part: Array, scratch: Array) -> None:
            for k in part:
                self.sums[k] = 0.0
                self.offsets[k] = self.oracle.cut(
                    self.blocks[k], point, self.clock, decode, scratch, self.sums[k], self.violation
                )

        self.workers.map(cut, np.arange(len(self.blocks)))
        primal = 0.5 * float(point @ point) + total_slack_cost(self.form, self.violation)
        return self.sums.sum(axis=0), float(self.offsets.sum()), primal

    def _keep_point(self, point: Array, primal: float) -> None:
        dual_weights, self.w = self.w, point
        self._keep(primal)
        self.w = dual_weights

    # Stopping and tolerances ---------------------------------------------------------------

    def _distance(self) -> float:
        return self._best_primal - self.dual()

    def _settles(self, excess: float) -> bool:
        """Line 19, where ε was given."""
        if self.options["epsilon"] is None:
            return False
        return (excess if self.published else self._distance()) <= self.epsilon

    def _tolerance(self) -> float:
        """What the inner solve may leave."""
        left = self.epsilon
        if not self.published or self.options["epsilon"] is None:
            distance = self._distance()
            left = distance if math.isfinite(distance) else self.cuts.linear()
        return max(SHARE * left, ROUNDING * abs(self.dual()), 1e-300)

    def _decodes_next(self, decoded: bool, excess: float) -> bool:
        """The published schedule of type I and type II rounds; ``clock − 1`` is its iter."""
        if not self.published or not self.restricted:
            return True
        since = self.clock - 1 - self.options["kappa1"]
        if decoded:
            return since < 0
        return since % self.options["kappa2"] == 0 or excess <= self._tolerance()

    def finished(self) -> str | None:
        """The paper's stopping rule, where ``epsilon`` was given."""
        if self.settled:
            self.satisfied = True
            return f"no constraint is violated by more than epsilon={self.options['epsilon']:g}"
        return super().finished()

    # State ---------------------------------------------------------------------------------

    def _set_weights(self) -> None:
        self.w = aligned_zeros(self.compiled.n_weights)
        self.cuts.vectors.combine(self.cuts.beta, self.w)

    def repair(self) -> None:
        """Weights from the multipliers again, after an interruption anywhere."""
        self.cuts.restrain()
        self._set_weights()

    def _find_violations(self) -> None:
        self._cut_at(self.w, True)
        self.oracle_calls -= len(self.active)  # whoever asks has counted them

    def memory(self) -> CutMemory:
        """Cuts, sets V_i and the best weights."""
        return CutMemory(self.cuts, self.oracle.known, self.best()[0])

    def tables(self) -> dict[str, Array]:
        """Cuts and sets V_i, as arrays."""
        tables = {f"cuts.{name}": value for name, value in self.cuts.tables().items()}
        if self.oracle.known is not None:
            tables |= self.oracle.known._asdict()
        return tables

    def set_tables(self, tables: dict[str, Array]) -> None:
        """Take over cuts and sets V_i of the same problem."""
        own = {name[5:]: value for name, value in tables.items() if name.startswith("cuts.")}
        self.cuts = cuts_from(own, len(self.w))
        self.oracle.set_tables(tables)


def carried(memory: CutMemory, before: Formulation, form: Formulation) -> CutMemory | None:
    """Cuts for other caps: they can be scaled if all caps change by one factor."""
    some = before.cap > 0.0
    if len(before.cap) != len(form.cap) or not some.any() or (form.cap[~some] != 0.0).any():
        return None
    factors = form.cap[some] / before.cap[some]
    if not np.allclose(factors, factors[0], rtol=1e-12, atol=0.0):
        return None
    return memory._replace(cuts=memory.cuts.scaled(float(factors[0])))
