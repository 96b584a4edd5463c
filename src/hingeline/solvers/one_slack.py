"""Cutting planes with one slack variable: a whole pass over the data gives one plane.

T. Joachims, T. Finley, C.-N. Yu, *Cutting-Plane Training of Structural SVMs* (2009) for
``slack="max"``; P. Balamurugan, S. Shevade, T. Ravindra Babu, *Efficient Algorithms for Linear
Summed Error Structural SVMs*, Algorithm 1 and OP2-1-slack (III.3), for ``slack="sum"``. One slack
variable for all examples, and a constraint for every choice of sets S_1 … S_n of outputs::

    min_w,ξ  ½‖w‖² + ξ,     ξ ≥ b − g·w,     (g, b) = Σ_i cap_i Σ_{y ∈ S_i} (a·Δf_i(y), b_i(y))

S_i is one output or none for ``"max"`` and any set for ``"sum"``. A round decodes every example at
some weights, which gives the most violated constraint there and the true primal with it, adds
this *cut* and solves the dual over all cuts known. Multipliers β of cuts are multipliers
``α_i(y) = cap_i·Σ_k β_k [y ∈ S_i^k]`` of planes, feasible for the dual of all other solvers: the
gap is the true one, in the same units.

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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline._jit import kernel
from hingeline._simd import aligned_zeros
from hingeline.core import blocks, formulations
from hingeline.core.blocks import KEEP, WorkingSet
from hingeline.core.formulations import Formulation, add_hinge, most_violated, plane_scale
from hingeline.core.primitives import (
    PADDING,
    Compiled,
    all_add,
    decode_excess,
    output_length,
    plane_add,
    plane_loss,
    plane_score,
    planes_add,
    planes_score,
)
from hingeline.core.registry import SolverOptions, option
from hingeline.core.results import DualMemory
from hingeline.core.solver import CertifiedSolver
from hingeline.solvers.enumerated import hinges
from hingeline.solvers.sdcd import add_violators, all_violated
from hingeline.solvers.sdm import pair_steps

# ``max(0, b − g·w)`` of a cut bounds the cost of all slack from below. Over the cuts known the dual
# is small::
#
#     max_β  Σ_k β_k b_k − ½‖Σ_k β_k g_k‖²,     β ≥ 0,  Σ_k β_k ≤ 1
#
# and with the hinges ``h = b − G·β`` its gap is ``max(0, max_k h_k) − Σ_k β_k h_k``, exactly. It is
# one example's dual in :mod:`hingeline.solvers.sdm`, and solved by the same steps. Single ones
# (Hildreth) stall where the sum is tight; the rest ``1 − Σβ`` is therefore a cut like any other
# (g = 0, b = 0), and mass moves between two. Cuts of late rounds are nearly parallel and such steps
# crawl: once they have found which cuts have mass, Newton steps on that face may follow.
#
# Memory for K cuts and N weights: ``8·N·K`` bytes for up to ``SHORT`` weights and 12 bytes per
# non-zero beyond, twice that while a cut is added, and ``8·K²``.

#: Up to so many weights the g of cuts are rows of an array, beyond of a sparse matrix.
SHORT = 2**17


move_between_cuts = kernel(pair_steps)  # on the small dual


class Cuts(NamedTuple):
    """The cuts known and their multipliers β.

    Adding and dropping make new ones, so that an interruption leaves one or the other.
    """

    vectors: Any  # (count, weights) g: an array or a CSR matrix
    gram: Array  # (count, count)
    offset: Array  # (count,) b
    beta: Array  # (count,)
    stamp: Array  # (count,) the last round in which the cut had mass

    def with_cut(self, g: Array, b: float, clock: int) -> Cuts:
        """One more cut, without mass."""
        if isinstance(self.vectors, np.ndarray):
            vectors: Any = np.vstack([self.vectors, g])
        else:
            vectors = sp.vstack([self.vectors, sp.csr_matrix(g)], format="csr")
        gram = np.empty((len(self.beta) + 1, len(self.beta) + 1))
        gram[:-1, :-1] = self.gram
        gram[-1, :-1] = gram[:-1, -1] = self.vectors @ g
        gram[-1, -1] = g @ g
        numbers = ((self.offset, b), (self.beta, 0.0), (self.stamp, clock))
        return Cuts(vectors, gram, *(np.append(*pair) for pair in numbers))

    def without_unused(self, clock: int, patience: int) -> Cuts:
        """Without cuts that had no mass for more than ``patience`` rounds, once they are many."""
        self.stamp[self.beta > 0.0] = clock
        keep = np.flatnonzero(self.stamp + patience >= clock)
        if 10 * len(keep) > 9 * len(self.beta):
            return self
        gram = np.ascontiguousarray(self.gram[np.ix_(keep, keep)])
        return Cuts(self.vectors[keep], gram, *(part[keep] for part in self[2:]))

    def times(self, factor: float) -> Cuts:
        """The cuts of a problem whose caps are all ``factor`` times as large; β is kept."""
        vectors, gram = factor * self.vectors, self.gram * (factor * factor)
        rest = (self.offset * factor, self.beta.copy(), np.zeros_like(self.stamp))
        return Cuts(vectors, gram, *rest)

    def linear(self) -> float:
        """``Σ β·b``."""
        return float(self.beta @ self.offset)

    def slack_at(self, weights: Array) -> float:
        """``max(0, max_k b_k − g_k·weights)``."""
        return float((self.offset - self.vectors @ weights).max(initial=0.0))

    def optimise(self, tolerance: float, newton: bool) -> None:
        """Solve the small dual from where β is until its gap is at most ``tolerance``."""
        for _ in range(20):
            hinge = self.offset - self.gram @ self.beta
            if hinge.max(initial=0.0) - float(self.beta @ hinge) <= tolerance:
                break
            # A spread of the hinges with mass bounds the gap, because β sums up to 1 at most.
            limit = 10 * len(self.beta) + 10 if newton else 1000 * (len(self.beta) + 10)
            move_between_cuts(self.gram, self.beta, hinge, 1.0, 0.0, tolerance, limit)
            if newton:
                for _ in range(50):
                    if not self._newton():
                        break
        self.restrain()

    def restrain(self) -> None:
        """Cut back what left the feasible set, by rounding or after an interruption."""
        np.maximum(self.beta, 0.0, out=self.beta)
        total = float(self.beta.sum())
        if total > 1.0:
            self.beta[:] /= total

    def _newton(self) -> bool:
        """A Newton step on the face of the cuts with mass; whether a bound cut it short."""
        face = np.flatnonzero(self.beta)
        if len(face) == 0:
            return False
        before = self.beta[face]
        total = float(before.sum())
        tight = int(total >= 1.0 - 1e-12)
        hinge = (self.offset - self.gram @ self.beta)[face]
        m = len(face)
        system = np.ones((m + tight, m + tight))
        system[:m, :m] = self.gram[np.ix_(face, face)]
        # Parallel cuts make it singular; so little does not move the solution of others.
        system[np.arange(m), np.arange(m)] += 1e-13 * np.trace(system[:m, :m]) / m + 1e-300
        system[m:, m:] = 0.0
        try:
            step = np.linalg.solve(system, np.append(hinge, np.zeros(tight)))[:m]
        except np.linalg.LinAlgError:
            return False
        if not np.isfinite(step).all() or float(step @ hinge) <= 0.0:
            return False
        falling = step < 0.0
        own = np.where(falling, before / np.where(falling, -step, 1.0), np.inf)
        rise = 0.0 if tight else float(step.sum())
        length = min(1.0, float(own.min()), (1.0 - total) / rise if rise > 0.0 else np.inf)
        self.beta[face] = np.where(own <= length, 0.0, np.maximum(before + length * step, 0.0))
        return length < 1.0

    def tables(self) -> dict[str, Array]:
        """The whole state, as named arrays."""
        tables = self._asdict()
        vectors = tables.pop("vectors")
        if isinstance(vectors, np.ndarray):
            return tables | {"rows": vectors}
        return tables | {name: getattr(vectors, name) for name in ("data", "indices", "indptr")}


def cuts_from(tables: dict[str, Array], size: int) -> Cuts:
    """Cuts as :meth:`Cuts.tables` wrote them; KeyError where they do not fit together."""
    count = len(tables["beta"])
    own = {name: tables[name].copy() for name in ("gram", "offset", "beta", "stamp")}
    kinds = [(np.float64, (count, count)), (np.float64, (count,)), (np.float64, (count,))]
    if [(part.dtype, part.shape) for part in own.values()] != [*kinds, (np.int64, (count,))]:
        raise KeyError("cuts that fit together")
    try:
        if size <= SHORT:
            vectors: Any = tables["rows"].copy()
        else:
            parts = tuple(tables[name] for name in ("data", "indices", "indptr"))
            vectors = sp.csr_matrix(parts, shape=(count, size), copy=True)
            vectors.check_format(full_check=True)
    except ValueError:
        raise KeyError(f"cuts of {size} weights") from None
    if vectors.shape != (count, size) or vectors.dtype != np.float64:
        raise KeyError(f"cuts of {size} weights")
    return Cuts(vectors, **own)


# Kernels that add planes up to a cut, at fixed weights: for the examples of ``order``, ``g += Σ_i
# cap_i Σ_{y ∈ S_i} a·Δf_i(y)``, and the result is the sum of ``cap_i·b_i(y)`` over the same
# outputs. ``slacks[i]`` becomes that of the example, so that ``b − g·w = Σ_i cap_i·slack_i``: the
# true primal comes with every cut. S_i is the most violated output, if its hinge is positive
# (``slack="max"``), or all that have a positive hinge (``slack="sum"``), found among all classes,
# by k-best decoding, or only in the set V_i, into which decoding puts new ones.


@kernel
def cut_worst(
    problem: Any, form: Formulation, any_hinge: Any, order: Array, w: Array, g: Array, slacks: Array
) -> float:
    """The most violated outputs; ``any_hinge`` None: hinges are sums of score and loss."""
    b = 0.0
    for i in order:
        y = np.empty(output_length(problem, i), dtype=np.int32)
        excess = 0.0
        if any_hinge is not None:
            h = most_violated(problem, form, i, w, 1.0, y)
        else:  # the slack is what decoding says at most, the cut is made of what it found
            excess = decode_excess(problem, i, w, 1.0, y)
            h = plane_loss(problem, i, y) - plane_score(problem, i, y, w)
        slacks[i] = max(h + excess, 0.0)
        if h > 0.0:
            loss = plane_loss(problem, i, y)
            plane_add(problem, i, y, form.cap[i] * plane_scale(form, loss), g)
            b += form.cap[i] * formulations.plane_offset(form, loss)
    return b


@kernel
def cut_all(
    problem: Any, form: Formulation, m: int, order: Array, w: Array, g: Array, slacks: Array
) -> float:
    """All violated ones of the m outputs that every example has."""
    losses, values = np.empty(m + PADDING), np.empty(m + PADDING)
    b = 0.0
    for i in order:
        hinges(problem, form, i, m, w, losses, values)
        slack, some = 0.0, False
        for k in range(m):
            slack = add_hinge(form, slack, values[k])
            if values[k] > 0.0:
                some = True
                b += form.cap[i] * formulations.plane_offset(form, losses[k])
                values[k] = form.cap[i] * plane_scale(form, losses[k])
            else:
                values[k] = 0.0
        slacks[i] = slack
        if some:
            all_add(problem, i, values, g)
    return b


@kernel
def cut_violated(
    problem: Any, form: Formulation, limit: int, order: Array, w: Array, g: Array, slacks: Array
) -> float:
    """All violated outputs, by k-best decoding; over ``limit`` of them: slack ``inf``."""
    b = 0.0
    for i in order:
        ys, found, complete = all_violated(problem, form, i, w, limit)
        slack, steps = 0.0, np.empty(ys.shape[0])
        for j in range(ys.shape[0]):
            loss = plane_loss(problem, i, ys[j])
            slack = add_hinge(form, slack, found[j])
            steps[j] = form.cap[i] * plane_scale(form, loss)
            b += form.cap[i] * formulations.plane_offset(form, loss)
        planes_add(problem, i, ys, steps, g)
        slacks[i] = slack if complete else np.inf
    return b


@kernel
def cut_known(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    wanted: int,
    clock: int,
    scratch: Array,
    order: Array,
    w: Array,
    g: Array,
    slacks: Array,
) -> float:
    """Lines 8 to 18 of Algorithm 1: the violated outputs in V_i; ``wanted=0`` leaves V_i alone."""
    b = 0.0
    for i in order:
        left_out = 0.0
        if wanted != 0:
            left_out = add_violators(problem, form, ws, i, w, wanted, clock, KEEP, scratch)
        m, s, slack = ws.used[i], ws.slot[i], 0.0
        if m > 0:
            steps = np.empty(m)
            planes_score(problem, i, blocks.planes(ws, i), w, steps)
            for j in range(m):
                h = ws.offset[s + j] - ws.scale[s + j] * steps[j]
                slack = add_hinge(form, slack, h)
                steps[j] = 0.0
                if h > 0.0:
                    steps[j] = form.cap[i] * ws.scale[s + j]
                    b += form.cap[i] * ws.offset[s + j]
            planes_add(problem, i, blocks.planes(ws, i), steps, g)
        slacks[i] = slack + left_out
    return b


#: Every block of examples sums into a vector of its own, and these are summed in order: the same
#: for any count of threads. All have so many entries at most, unless less than four were left.
BLOCK_ENTRIES = 2**21
SHARE = 0.1  # The inner solve leaves this share of the gap or of ε.
OBJECTIVE_ROUNDING = 1e-14  # Smaller shares of the objective drown in rounding.


class CutMemory(NamedTuple):
    """What a run leaves for the next one: cuts, sets V_i where it has them, its best weights."""

    cuts: Cuts
    known: WorkingSet | None
    best: Array


class OneSlack(CertifiedSolver):
    """Cutting planes with one slack variable; see the head of this module."""

    name = "one-slack"
    slacks = ("max", "sum")
    soft_only = "it puts a price on all slack together"
    certifies = True
    polishes = True

    @dataclass(frozen=True)
    class Options(SolverOptions):
        schedule: str = option("improved", "where cuts are made", words=("improved", "published"))
        epsilon: float | None = option(None, "line 19 of Algorithm 1; None: stop by tol alone")
        step: float = option(0.1, "how far from the best weights cuts are made", most=1)
        patience: int = option(50, "rounds after which a cut without mass goes")
        max_outputs: int = option(20000, "violated outputs of an example up to which P is known")
        kappa1: int = option(10, "the first rounds of the published schedule, which decode")
        kappa2: int = option(5, "after these, one in so many decodes")
        violators: str | int = "argmax"

        def unused(self, slack: str) -> Iterable[str]:
            if self.schedule == "published":
                yield "step"
            if self.schedule != "published" or slack == "max":
                yield from ("kappa1", "kappa2")
            if slack == "max" or self.violators != "all":
                yield "max_outputs"

    saved_numbers = (*CertifiedSolver.saved_numbers, "decoding", "found_primal")

    def _begin(self, start: CutMemory | None) -> None:
        compiled, form = self.compiled, self.form
        self.published = self.options.schedule == "published"
        self.known: WorkingSet | None = None  # the sets V_i, where sums are over what was met
        self.limits: tuple[Any, ...] = ()  # what the kernel is told beside the formulation
        kernel: Any = cut_worst
        if not form.summed:  # one output an example
            self.limits = (1 if form.rescaled or form.root else None,)
        elif self.options.violators != "all":
            kernel, self.restricted = cut_known, True
            self.known = blocks.empty_working_set(compiled.lengths, gram=False)
        elif compiled.n_outputs is None:
            kernel, self.limits = cut_violated, (int(self.options.max_outputs),)
        else:
            kernel, self.limits = cut_all, (compiled.n_outputs,)
        self.kernel = compiled.bind(kernel)
        size = compiled.n_weights
        n_blocks = min(max(4, min(64, BLOCK_ENTRIES // size)), max(len(self.active), 1))
        self.blocks = np.array_split(self.active, n_blocks)
        self.sums = np.zeros((n_blocks, size))
        self.offsets = np.zeros(n_blocks)
        none = np.empty((0, size)) if size <= SHORT else sp.csr_matrix((0, size))
        self.cuts = Cuts(none, np.zeros((0, 0)), np.empty(0), np.empty(0), np.empty(0, np.int64))
        self.decoding = True  # in the next round
        self.found_primal = math.inf  # of the best weights, where decoding has bounds only
        caps = form.cap[self.active]
        unit = caps.mean() if form.summed else caps.sum()
        self.epsilon = float(unit) * (self.options.epsilon or 0.0)
        if start is not None:
            self.cuts = start.cuts
            self.known = start.known if self.restricted and start.known else self.known
            self.cuts.optimise(1e-4 * self.cuts.linear(), newton=not self.published)
            self._set_weights()
            self._best = start.best.copy()  # of unknown primal: where the first round cuts

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        """The cuts for other caps: they can be scaled if all caps change by one factor."""
        memory, old = before.multipliers, before.form.cap
        if not isinstance(memory, CutMemory) or not before.same_planes(compiled, form):
            return None
        some = old > 0.0
        if len(old) != len(form.cap) or not some.any() or (form.cap[~some] != 0.0).any():
            return None
        factors = form.cap[some] / old[some]
        if not np.allclose(factors, factors[0], rtol=1e-12, atol=0.0):
            return None
        return memory._replace(cuts=memory.cuts.times(float(factors[0])))

    @property
    def n_planes(self) -> int:
        return len(self.cuts.beta) + (0 if self.known is None else self.known.n_planes)

    def dual(self) -> float:
        return self.cuts.linear() - 0.5 * float(self.w @ self.w)

    def sweep(self) -> float:
        """One round of Algorithm 1; the gap."""
        self.clock += 1
        decode = self.decoding
        # Where to cut: an earlier run's best weights are of unknown primal.
        point, best = self.w, self._best
        if best is not None and self.clock == 1:
            point = best
        elif best is not None and not self.published and math.isfinite(self._best_primal):
            point = np.asarray(best + self.options.step * (self.w - best))
        g, b, primal = self._cut_at(point, decode)
        slack, known = b - float(g @ point), self.cuts.slack_at(point)
        # With bounds only, the best weights are those for the outputs found, now or before: where
        # bounds are least nothing may be learnt (they are tight at w = 0), and no cut lowers them.
        found = 0.5 * float(point @ point) + max(slack, known)
        if decode and (self.exact or self.restricted):
            self.keep(point, primal)
        elif decode:
            if best is not None:  # later cuts may ask more of the best weights than was found there
                then = 0.5 * float(best @ best) + self.cuts.slack_at(best)
                self.found_primal = max(self.found_primal, then)
            if found < self.found_primal:
                self.found_primal, self._best_primal = found, math.inf
                self.keep(point, primal)
        # Lines 14 to 19: what the cut asks for here, beyond what those known do.
        excess = slack - known
        if self.options.epsilon is not None:
            left = excess if self.published else self._distance()
            if decode and left <= self.epsilon:
                above = f"more than epsilon={self.options.epsilon:g}"
                self.settled = f"no constraint is violated by {above}"
        self.decoding = self._decodes_next(decode, excess)
        if excess > OBJECTIVE_ROUNDING * b:
            self.cuts = self.cuts.with_cut(g, b, self.clock)
        # Line 7.
        self.cuts.optimise(self._tolerance(), newton=not self.published)
        self.cuts = self.cuts.without_unused(self.clock, self.options.patience)
        self._set_weights()
        return self._distance()

    def _cut_at(self, point: Array, decode: bool) -> tuple[Array, float, float]:
        """The most violated constraint at a point, block by block in threads, and the primal."""
        given: tuple[Any, ...] = self.limits
        if self.known is not None:
            self.known = blocks.make_room(self.known, self.clock, KEEP)
            asked = self.options.violators
            wanted = (1 if asked == "argmax" else int(asked)) if decode else 0
            given = (self.known, wanted, self.clock)
        self.oracle_calls += len(self.active) * int(decode)
        self.violation[:] = 0.0
        posed = (self.compiled.problem, self.form)

        def cut(part: Array, thread: int) -> None:
            for k in part:
                self.sums[k] = 0.0
                own = given if self.known is None else (*given, self.workers.scratch[thread])
                out = (self.sums[k], self.violation)
                self.offsets[k] = self.kernel(*posed, *own, self.blocks[k], point, *out)

        self.workers.map(cut, np.arange(len(self.blocks)))
        cost = formulations.total_slack_cost(self.form, self.violation)
        return self.sums.sum(axis=0), float(self.offsets.sum()), 0.5 * float(point @ point) + cost

    def certify(self) -> float:
        """Try the last weights, too, where their primal may count."""
        return super().certify() if self.exact or self.restricted else self._best_primal

    def integrality_gap(self, weights: Array) -> float:
        """What the primal has above the outputs found, at the best weights now or before."""
        if self.exact or self.restricted or weights is not self._best:
            return super().integrality_gap(weights)
        return self._best_primal - self.found_primal

    def _distance(self) -> float:
        return min(self._best_primal, self.found_primal) - self.dual()

    def _tolerance(self) -> float:
        """What the inner solve may leave."""
        left = self.epsilon
        if not self.published or self.options.epsilon is None:
            distance = self._distance()
            left = distance if math.isfinite(distance) else self.cuts.linear()
        return max(SHARE * left, OBJECTIVE_ROUNDING * abs(self.dual()), 1e-300)

    def _decodes_next(self, decoded: bool, excess: float) -> bool:
        """The published schedule of type I and type II rounds; ``clock − 1`` is its iter."""
        if not self.published or not self.restricted:
            return True
        since = self.clock - 1 - self.options.kappa1
        if decoded:
            return since < 0
        return since % self.options.kappa2 == 0 or excess <= self._tolerance()

    def _set_weights(self) -> None:
        self.w = aligned_zeros(self.compiled.n_weights)
        self.w += self.cuts.beta @ self.cuts.vectors

    def repair(self) -> None:
        self.cuts.restrain()
        self._set_weights()

    def _find_violations(self) -> None:
        self._cut_at(self.w, True)
        self.oracle_calls -= len(self.active)  # whoever asks has counted them

    def memory(self) -> CutMemory:
        return CutMemory(self.cuts, self.known, self.best()[0])

    def tables(self) -> dict[str, Array]:
        tables = {f"cuts.{name}": value for name, value in self.cuts.tables().items()}
        if self.known is not None:
            tables |= self.known._asdict()
        return tables

    def set_tables(self, tables: dict[str, Array]) -> None:
        own = {name[5:]: value for name, value in tables.items() if name.startswith("cuts.")}
        self.cuts = cuts_from(own, len(self.w))
        if self.known is not None:
            self.known = blocks.planes_from(tables, self.known, self.compiled.end)
