"""Block-coordinate descent of the softly constrained dual over the factors of graphs.

Algorithm 1 of O. Meshi, N. Srebro, T. Hazan, *Efficient Training of Structured SVMs via Soft
Constraints* (2015). Where exact inference is hard, the hinge of an example is replaced by its LP
relaxation, written with messages δ between its factors::

    g(w, δ)   = ½‖w‖² + Σ_i c_i Σ_blocks max_s θ̂(s; w, δ),           c_i = C·s_i
    g_ρ(w, δ) = g(w, δ) + (ρ/2) Σ_i c_i‖δ_i‖²

The dual f_ρ has marginals on a simplex for every block, and no constraint that those of a factor
agree with those of its variables: disagreement is what messages are made of,
``δ = (μ_c − μ_v)/ρ``. So a step is local: it reads and writes one block, its weights and its
neighbours' marginals (:mod:`hingeline.solvers.relaxed.blocks`).

ρ is that of an example: messages are at most 1/ρ, however many examples there are. The paper prints
a penalty that is M = Σ_i s_i times as large; then weights of pairs fall like 1/M, and with many
examples the model has hardly any edges: ``rho_scale="printed"``. By default ρ is a share of the
loss of a wrong label, which is what the messages have to outweigh.

``schedule="published"``
    Blocks are drawn at random and make a Frank-Wolfe step with exact line search.
``schedule="improved"``
    Blocks of all examples are visited in random order and solved, those that are worth visiting
    together in a row (:mod:`hingeline.solvers.relaxed.passes`). Every ``passes`` passes all blocks
    are evaluated, in threads, and blocks with little to gain are left out until the next time.
    Where ρ is large, ``(η/2)‖w − w'‖²`` is added after the first few sweeps, w' being the weights
    of the sweep before (a proximal point method). Thousands of factors share a table of weights,
    and have to differ: their messages, 1/ρ, bend the dual far less than their own share of w, c_i,
    which they may ignore together but not one by one. With c_i/(1 + η) they move further.

Certificate. ``g_ρ(w, δ) − f_ρ(μ)`` with the messages of μ is the sum of the blocks' Frank-Wolfe
gaps: primal, dual and gap are those of the softly constrained problem, whose optimum is at least
that of the relaxation. Any messages make a bound, though, and the improved schedule certifies with
some made for the weights: by ``rounds`` rounds over the blocks of an example with fixed weights.

``constraints="hard"`` solves the relaxation itself: its certificate is g(w, δ) against the dual
value of marginals that agree. Whenever the gap of the soft problem is small beside that one,

``hardening="centre"``
    the penalty becomes ``(ρ/2) Σ c_i‖δ_i − δ̄_i‖²`` with the messages reached as its centre δ̄: the
    proximal method of multipliers. ρ need not go to 0. It is divided by ``rho_factor``, down to
    where 1/ρ is the mean of ``c_i‖x‖²`` over the factors: there messages and weights bend the
    dual alike, and passes gain the most.
``hardening="rho"``
    ρ is divided by ``rho_factor``, and goes to 0: continuation as published. Blocks hang together
    ever more stiffly, and passes gain ever less.

Memory. Variables' marginals and their factors' sums are float64, a factor's marginals float32
without the true joint state. Steps are taken by what was stored, so that rounding does not build up
in w. Of pages that no step has touched, most systems keep none.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._simd import aligned_zeros
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import PART, Compiled, mean_loss
from hingeline.core.registry import SolverOptions, option
from hingeline.core.results import DualMemory
from hingeline.core.solver import CertifiedSolver
from hingeline.inference.map import NO_ORACLE
from hingeline.solvers.nu import Margins
from hingeline.solvers.relaxed import passes as kernels
from hingeline.solvers.relaxed.blocks import Dual
from hingeline.solvers.relaxed.passes import CENTRE, FRACTIONAL, HINGE, LINEAR, PENALTY, Units
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import AnyFactors, BinaryPairs

STEPS, SAMPLING = ("exact", "plain"), ("permutation", "random", "gap")
#: ρ is lowered, or the centre moved, when the soft gap is at most this share of the relaxation's.
LOWER_RHO_AT, MOVE_CENTRE_AT = 0.25, 1.0
DEFAULT_RHO = 0.3  # ρ by default, over the mean loss of a wrong label.
#: Units drawn at a time, and parts of a pass that goes by gaps.
UNITS_DRAWN, PARTS_BY_GAP = 1 << 18, 8
PAIRS_TOGETHER = 64  # Pairs of binary variables in a unit.
#: Seconds of exact decoding that a look at the structured hinge may cost, about.
LOOK_SECONDS = 0.0105
AVERAGED_ITERATES = 32  # Iterates of a pass that enter the average.
PLAIN_SWEEPS = 3  # Sweeps before proximal ones: far from the optimum plain steps gain more.
PROXIMAL_SHARE, MOST_PROXIMAL = 0.2, 9.0  # η by default, over c_i·ρ, and at most.


class Marginals(NamedTuple):
    """What another run can start from: marginals are feasible whatever C and ρ are."""

    mu: Array
    mass: Array
    centre: Array  # of messages; empty: zero


class SoftBCFW(CertifiedSolver):
    """Soft constraints; see the head of this module."""

    name = "soft-bcfw"
    slacks = ("max",)
    rescalings = ("margin",)
    decodes = False
    soft_only = "it steps towards corners of the feasible set, which must be bounded"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        rho: float | None = option(None, "softness ρ, the first one of hard constraints")
        rho_scale: str = option("example", "what ρ is a share of", words=("example", "printed"))
        constraints: str = option("soft", "whose gap tol is for", words=("soft", "hard"))
        hardening: str = option("centre", "how they become hard", words=("centre", "rho"))
        rho_factor: float = option(4.0, "what ρ is divided by when hard constraints are approached")
        schedule: str = option("improved", "what a pass does", words=("improved", "published"))
        steps: str | None = option(None, "of a block; None: by schedule", words=STEPS)
        sampling: str | None = option(None, "order of blocks; None: by schedule", words=SAMPLING)
        passes: int = option(4, "passes between two evaluations of all blocks")
        rounds: int = option(1, "rounds that fit messages to the weights evaluated", least=0)
        proximal: float | None = option(None, "η of proximal passes; None: by c_i·ρ", least=0)
        skip: float = option(0.1, "blocks with gaps below this share of the mean wait", least=0)
        total_weight: float | None = None

        def unused(self, slack: str) -> Iterable[str]:
            published = self.schedule == "published"
            order = self.sampling or ("random" if published else "permutation")
            if published:
                yield from ("passes", "rounds", "proximal")
            if order != "permutation" and (published or self.rounds == 0):
                yield "skip"
            if self.constraints == "soft":
                yield from ("hardening", "rho_factor")

    _numbers = ("rho", "value", "relaxed", "soft", "relaxed_bound", "fractional", "best_relaxed")
    _arrays = ("mu", "sums", "mass", "gaps", "centre", "centre_sums", "anchor")
    saved_numbers = (*CertifiedSolver.saved_numbers, *_numbers)
    saved_arrays = (*CertifiedSolver.saved_arrays, *_arrays)

    def _begin(self, start: Marginals | None) -> None:
        compiled, form = self.compiled, self.form
        self.blocks = graph_blocks.lay_out_blocks(compiled, self.name)
        self.problem = compiled.problem._replace(oracle=NO_ORACLE)
        published = self.options.schedule == "published"
        #: Only exact steps have a closed form for pairs.
        self.exact_steps = (self.options.steps or ("plain" if published else "exact")) == "exact"
        if not self.exact_steps:
            self.blocks = self.blocks._replace(factors=AnyFactors())
        self.sampling = self.options.sampling or ("random" if published else "permutation")
        together = PAIRS_TOGETHER if isinstance(self.blocks.factors, BinaryPairs) else 1
        if published:
            together = 0
        elif not graph_blocks.shares_weights(self.problem):
            together = self.blocks.most_blocks
        starts, owners = np.empty(self.blocks.n + 1, np.int64), np.empty(self.blocks.n, np.int32)
        count = kernels.cut_units(self.problem, self.blocks, together, starts, owners)
        starts[count] = self.blocks.n
        self.units = Units(starts[: count + 1], owners[:count])
        self.active_units = np.flatnonzero(form.cap[self.units.owners] > 0.0)
        self.exact, self.bounded = False, True  # blocks are enumerated, no example is decoded
        self.constrained = self.options.constraints == "hard"
        self.certifies = not published
        rho = self.options.rho or DEFAULT_RHO / mean_loss(compiled.problem, form.cap)
        printed = self.options.rho_scale == "printed"
        self.rho = float(rho * (self.options.total_weight or len(self.active)) if printed else rho)
        self.mu = np.zeros(int(self.blocks.unary_at[-1]))
        self.sums = np.zeros(len(self.mu))
        self.mass = np.zeros(int(self.blocks.mass_at[-1]), dtype=np.float32)
        self.gaps = np.zeros(self.blocks.n, dtype=np.float32)
        centred = self.constrained and self.options.hardening == "centre"
        self.centre = np.zeros(int(self.blocks.message_at[-1]) if centred else 0, dtype=np.float32)
        self.centre_sums = np.zeros(len(self.mu) if centred else 0)
        self.terms = np.zeros((compiled.n, 5))  # of the objectives, by example
        self.rounds = 0 if published else int(self.options.rounds)
        self.value, self.fractional = 0.0, 0.0  # f_ρ; share of variables
        self.relaxed = self.soft = math.inf  # g and g_ρ at the last evaluation
        self.best_relaxed = math.inf  # g(w, δ) of the best weights
        self.relaxed_bound = -math.inf  # best dual value of marginals that agree
        #: ρ at which messages and weights bend the dual alike
        self.balance = 1.0 / max(graph_blocks.mean_square(compiled.problem, form.cap), 1e-300)
        self.total = aligned_zeros(compiled.n_weights)  # of iterates, for their average
        self._averaged = 0
        self.anchor = aligned_zeros(compiled.n_weights)  # weights that proximal passes stay near
        if start is not None:
            self.mu[:], self.mass[:] = start.mu, start.mass
            if len(self.centre) == len(start.centre):
                self.centre[:] = start.centre
            self.repair()
        else:  # at the truth, where factors already are, and w is 0
            problem, graphs = self.problem, self.problem.graphs
            example = np.repeat(np.arange(compiled.n), np.diff(problem.offsets))
            own = problem.graph[example]
            place = graphs.node_ptr[own] + own + np.arange(len(own)) - problem.offsets[example]
            truth = self.blocks.unary_at[example] + graphs.unary_start[place] + problem.labels
            self.mu[truth], self.sums[truth] = 1.0, np.diff(graphs.incident_start)[place]

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        """Marginals are feasible for any C."""
        return before.multipliers if isinstance(before.multipliers, Marginals) else None

    def at(self, weights: Array, cap: Array, least: float = 0.0, exact: bool = True) -> Dual:
        """The marginals with these weights, as the kernels take them."""
        arrays = self.mu, self.sums, self.mass, self.gaps, self.centre, self.centre_sums
        return Dual(self.blocks, exact, least, weights, cap, 1.0 / self.rho, *arrays)

    @property
    def n_planes(self) -> int:
        """Blocks that are known to have something to gain."""
        return int(np.count_nonzero(self.gaps))

    def sweep(self) -> float:
        """Passes over the blocks; the gaps met in them, or the gap of the evaluation after them."""
        self.clock += 1
        if self.options.schedule == "published":
            return self._pass(self.form.cap, first=self.clock == 1)
        self.total[:] = 0.0
        self._averaged = 0
        weights = self._proximal_passes() if self.clock > PLAIN_SWEEPS else None
        if weights is None:
            for k in range(self.options.passes):
                self._pass(self.form.cap, first=self.clock == 1 and k == 0)
            weights = self.w
        self.total /= self._averaged
        both = self.clock % 4 == 0
        average = last = math.inf
        if self._average_leads or both:
            average = self._evaluate_and_keep(self.total, self.rounds)
        if not self._average_leads or both:
            last = self._evaluate_and_keep(weights, self.rounds)
        if both:
            self._average_leads = average <= last
        self.anchor[:] = self.total if self.clock <= PLAIN_SWEEPS else weights
        self._update_dual()
        return min(average, last) - self.lower_bound()

    def _proximal_passes(self) -> Array | None:
        """Passes with ``(η/2)‖w − anchor‖²`` added; the weights ``(Ψμ + η·anchor)/(1 + η)``.

        Those of a block move, and bend, by ``c_i/(1 + η)``. ``self.w`` is Ψμ again afterwards.
        """
        eta = self.options.proximal
        if eta is None:  # small problems and hard constraints are as well conditioned without
            eta = min(PROXIMAL_SHARE * self.rho / self.balance, MOST_PROXIMAL)
            eta = eta if eta >= 1.0 else 0.0
        if eta == 0.0:
            return None
        self.w += eta * self.anchor
        self.w /= 1.0 + eta
        self.gaps /= np.float32(1.0 + eta)
        for _ in range(self.options.passes):
            self._pass(self.form.cap / (1.0 + eta))
        weights = self.w.copy()
        self.w *= 1.0 + eta
        self.w -= eta * self.anchor
        return weights

    def _pass(self, cap: Array, first: bool = False) -> float:
        """As many visits as there are units, or one to each unit worth it; the gaps met.

        At the truth factors have nothing to gain until their variables move: the ``first`` pass
        takes all blocks, variables before factors where it is a permutation. Later ones that
        choose by gaps know those of the weights they begin with, but for the improved schedule's
        permutations, whose gaps are those met last.
        """
        self.oracle_calls += len(self.active)
        ordered = self.sampling == "permutation"
        by_gap = self.sampling == "gap" and not first
        if by_gap or (ordered and not first and self.options.schedule == "published"):
            self._evaluate(self.w, self.terms)
        known, starts = self.active_units, self.units.starts[:-1]
        least = met = 0.0
        if ordered and not first:
            least = float(self.options.skip * self.gaps.mean(dtype=np.float64))
            worth = known[np.maximum.reduceat(self.gaps, starts)[known] >= least]
            known = worth if len(worth) else known
        order = self.rng.permutation(known) if ordered else known
        if first and ordered:
            ends = self.blocks.block_at[:-1] + np.diff(self.problem.offsets)
            factors = starts[order] >= ends[self.units.owners[order]]
            order = order[np.argsort(factors, kind="stable")]
        most = max(-(-len(order) // PARTS_BY_GAP), 1) if by_gap else UNITS_DRAWN
        for lo in range(0, len(order), most):
            part = order[lo : lo + most]
            if by_gap:
                upto = np.cumsum(np.add.reduceat(self.gaps, starts, dtype=np.float64)[known])
                if upto[-1] <= 0.0:
                    break
                drawn = np.searchsorted(upto, self.rng.random(len(part)) * upto[-1], side="right")
                part = known[np.minimum(drawn, len(known) - 1)]
            elif not ordered:
                part = known[self.rng.integers(0, len(known), len(part))]
            every = max(len(part) // AVERAGED_ITERATES, 1)
            point = self.at(self.w, cap, least, self.exact_steps)
            given = (self.problem, point, self.units, part, every, self.total)
            some, gain = kernels.pass_units(*given)
            self._averaged += len(part) // every
            met, self.value = met + some, self.value + gain
        return float(self.gaps.sum(dtype=np.float64)) if by_gap or ordered else met

    def _evaluate(self, weights: Array, out: Array, rounds: int = 0) -> None:
        """Gaps of all blocks and sums over those of each example, in threads."""
        least = float(self.options.skip * self.gaps.mean(dtype=np.float64)) if rounds > 0 else 0.0
        dual, still = (
            self.at(weights, cap, least) for cap in (self.form.cap, np.zeros_like(self.form.cap))
        )
        given = (self.problem, dual, still, PART, rounds, out)
        self.workers.over(self.active, kernels.evaluate, *given)

    def _objectives(self, weights: Array, rounds: int) -> tuple[float, float]:
        """``g`` and ``g_ρ`` of evaluated weights; with ``rounds`` messages may be made for them."""
        half, kappa = 0.5 * float(weights @ weights), 1.0 / self.rho
        hinge, penalty = self.terms[:, HINGE], 0.5 * kappa * self.terms[:, PENALTY]
        if rounds > 0:
            refined = np.zeros_like(self.terms)
            self._evaluate(weights, refined, rounds)
            other = 0.5 * kappa * refined[:, PENALTY]
            share = 0.0 if self.constrained else 1.0
            better = refined[:, HINGE] + share * other < hinge + share * penalty
            hinge = np.where(better, refined[:, HINGE], hinge)
            penalty = np.where(better, other, penalty)
        relaxed = half + float(self.form.cap @ hinge)
        return relaxed, relaxed + float(self.form.cap @ penalty)

    def _evaluate_and_keep(self, weights: Array, rounds: int = 0) -> float:
        """Evaluate weights and keep them if their primal is the least so far."""
        primal = self.primal_of(weights, rounds)
        if self.keep(weights, primal):
            self.best_relaxed = self.relaxed
        return primal

    def _soft_dual(self) -> float:
        """``f_ρ = Σ c_i·μ·l − ½‖w‖² − (ρ/2) Σ c_i‖δ_i‖² + …`` from the terms evaluated last."""
        cap, kappa = self.form.cap, 1.0 / self.rho
        penalty = 0.5 * kappa * float(cap @ self.terms[:, PENALTY])
        linear, centred = float(cap @ self.terms[:, LINEAR]), float(cap @ self.terms[:, CENTRE])
        return linear - 0.5 * float(self.w @ self.w) - penalty + centred

    def _update_dual(self) -> None:
        """The dual side after an evaluation; hard constraints are hardened where it is time."""
        variables = np.diff(self.problem.offsets)[self.active].sum()
        self.fractional = float(self.terms[:, FRACTIONAL].sum() / max(variables, 1))
        self.value = self._soft_dual()
        if not self.constrained:
            return
        self._bound_relaxation()
        near = LOWER_RHO_AT if len(self.centre) == 0 else MOVE_CENTRE_AT
        if self.soft - self.value > near * (self.best_relaxed - self.relaxed_bound):
            return
        lower = self.rho / self.options.rho_factor
        if len(self.centre) > 0:
            self._move_centre(1.0)
            self.terms[:, CENTRE] -= 1.0 / self.rho * self.terms[:, PENALTY]
            lower = max(lower, self.balance)
        self.rho = lower
        self.value = self._soft_dual()

    def _move_centre(self, step: float) -> None:
        dual = self.at(self.w, self.form.cap)
        self.workers.over(self.active, kernels.move_centre, self.problem, dual, PART, step)

    def _bound_relaxation(self) -> None:
        """Bound the relaxation: the best point between the truth and marginals that agree."""
        weights = aligned_zeros(len(self.w))
        weights[:] = self.w
        kernels.add_weights(self.problem, self.at(weights, self.form.cap), True)
        linear, square = float(self.form.cap @ self.terms[:, LINEAR]), float(weights @ weights)
        part = min(linear / square, 1.0) if square > 0.0 else 1.0
        self.relaxed_bound = max(self.relaxed_bound, part * linear - 0.5 * part**2 * square)

    def certify(self) -> float:
        """The primal of the weights made anew from the marginals."""
        self.w = aligned_zeros(self.compiled.n_weights)
        kernels.add_weights(self.problem, self.at(self.w, self.form.cap), False)
        primal = self._evaluate_and_keep(self.w)
        self._update_dual()
        return primal

    def primal_of(self, weights: Array, rounds: int | None = None) -> float:
        """The primal of given weights with the messages of the marginals."""
        self._evaluate(weights, self.terms)
        rounds = self.rounds if rounds is None else rounds
        self.relaxed, self.soft = self._objectives(weights, rounds)
        return self.relaxed if self.constrained else self.soft

    def lower_bound(self) -> float:
        """``f_ρ``, or the bound on the relaxation where constraints are hard."""
        return self.relaxed_bound if self.constrained else self.value

    def measures(self) -> dict[str, Any]:
        return {"relaxed": self.best_relaxed, "fractional": self.fractional}

    def findings(self, weights: Array) -> dict[str, float]:
        """Objectives of the relaxation and, where decoding is exact, of the structured hinge."""
        self._evaluate(self.w, self.terms)
        self._bound_relaxation()
        found = {
            "relaxed_objective_": self.best_relaxed,
            "relaxed_gap_": max(self.best_relaxed - self.relaxed_bound, 0.0),
            "fractional_": self.fractional,
            "soft_rho_": self.rho,
        }
        problem = self.compiled.problem
        exactly = graph_blocks.decodes_exactly(problem)
        if exactly and graph_blocks.decoding_seconds(problem) <= LOOK_SECONDS:
            margins = Margins(self.compiled, self.form.cap, self.workers, 0.0)
            hinges = margins.look(weights, 1.0).hinges
            half = 0.5 * float(weights @ weights)
            found["structured_objective_"] = half + float(self.form.cap @ hinges)
        return found

    def repair(self) -> None:
        """Weights, sums, gaps and f_ρ from the marginals."""
        if len(self.centre) > 0:
            self._move_centre(0.0)
        self.certify()

    def memory(self) -> Marginals:
        return Marginals(self.mu, self.mass, self.centre)
