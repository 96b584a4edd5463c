"""Block-coordinate descent of the softly constrained dual over the factors of graphs.

Algorithm 1 of O. Meshi, N. Srebro, T. Hazan, *Efficient Training of Structured SVMs via Soft
Constraints* (2015). Where exact inference is hard, the hinge of an example is replaced by its LP
relaxation, written with messages δ between its factors::

    g(w, δ)   = ½‖w‖² + Σ_i c_i Σ_blocks max_s θ̂(s; w, δ),           c_i = C·s_i
    g_ρ(w, δ) = g(w, δ) + (ρM/2) Σ_i c_i‖δ_i‖²,                       M = Σ_i s_i

(λ = 1/(CM) of the paper, all values times CM.) The dual f_ρ has marginals on a simplex for every
block, and no constraint that those of a factor agree with those of its variables: disagreement is
what messages are made of, ``δ = (μ_c − μ_v)/(ρM)``. So a step is local: it reads and writes one
block, its weights and its neighbours' marginals (:mod:`hingeline.solvers.relaxed.passes`).

``schedule="published"``
    Blocks are drawn at random and make a Frank-Wolfe step with exact line search.
``schedule="improved"``
    Blocks are solved exactly. Examples are visited in random order, the blocks of an example
    together, so that a row of features is read once for all variables that share it. Every
    ``passes`` passes all blocks are looked at, in threads, and blocks with little to gain are left
    out until the next look. After the first few sweeps ``(η/2)‖w − w'‖²`` is added, w' being the
    weights of the sweep before (a proximal point method). Thousands of factors share a table of
    weights, and what they have to do is to differ: their messages, 1/(ρM), bend the dual far less
    than their own share of w, c_i, which they may ignore together but not one by one. With
    c_i/(1 + η) they move further, and w is less noisy.

Certificate. ``g_ρ(w, δ) − f_ρ(μ)`` with the messages of μ is the sum of the blocks' Frank-Wolfe
gaps: primal, dual and gap are those of the softly constrained problem, whose optimum is at least
that of the relaxation. Any messages make a bound, though, and the improved schedule certifies with
messages made for the weights: ``rounds`` rounds over the blocks of an example with fixed weights,
its marginals put back afterwards.

``constraints="hard"`` solves the relaxation itself, and the certificate is that of the relaxation:
g(w, δ) against the dual value of marginals that agree (:mod:`hingeline.solvers.relaxed.passes`).
Whenever the gap of the softly constrained problem is small beside that,

``hardening="centre"``
    the penalty becomes ``(ρM/2) Σ c_i‖δ_i − δ̄_i‖²`` with the messages reached as its centre δ̄: the
    proximal method of multipliers. ρ need not go to 0. It is divided by ``rho_factor``, down to
    where 1/(ρM) is the mean of ``c_i‖x‖²`` over the factors: there messages and weights bend the
    dual alike, and passes gain the most.
``hardening="rho"``
    ρ is divided by ``rho_factor``, and goes to 0: continuation as published. Blocks hang together
    ever more stiffly, and passes gain ever less.

Memory. Variables' marginals and their factors' sums are float64, a factor's marginals float32
without the true joint state: 12 bytes for a pair of binary variables, and 4 for its gap; its centre
of messages takes 16, where there is one. Steps are taken by what was stored, so that rounding does
not build up in w. Of pages that no step has touched, most systems keep none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hingeline._simd import aligned_zeros
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled
from hingeline.core.registry import SolverOptions, option
from hingeline.core.results import DualMemory, same_examples
from hingeline.core.solver import CertifiedSolver
from hingeline.core.workers import Workers
from hingeline.solvers.nu import Margins
from hingeline.solvers.relaxed.blocks import FRANK_WOLFE, PROJECTED, DualPoint
from hingeline.solvers.relaxed.passes import (
    DRAWN,
    FRACTIONAL,
    HINGE,
    LINEAR,
    PENALTY,
    add_coupled,
    add_weights,
    look,
    look_refined,
    move_centre,
    pass_draws,
    pass_examples,
    start_at_truth,
)
from hingeline.structures.graph_blocks import Blocks, blocks_of, decodes_cheaply, mean_square

# Objectives of the softly constrained problem, and how its constraints are hardened.
#
# See :mod:`hingeline.solvers.relaxed.soft` for what they mean.

Array = np.ndarray[Any, Any]

#: ρ is lowered, or the centre moved, when the soft gap is at most this share of the relaxation's.
HARDEN, MOVE = 0.25, 1.0


class SoftObjectives(CertifiedSolver):
    """What a dual point of the softly constrained problem is worth; subclasses move it."""

    blocks: Blocks
    constrained: bool
    rho: float
    balance: float  # ρ at which messages and weights bend the dual alike
    centre: Array
    gaps: Array
    sights: Array
    value: float
    relaxed: float
    soft: float
    relaxed_bound: float
    best_relaxed: float
    fractional: float

    @property
    def point(self) -> DualPoint:
        """The marginals, as the kernels take them."""
        raise NotImplementedError

    @property
    def kappa(self) -> float:
        """``1/(ρM)``, what disagreement is multiplied with to become a message."""
        raise NotImplementedError

    def _look(self, weights: Array) -> None:
        """Gaps of all blocks and sums over those of each example, in threads."""
        self.workers.map(
            lambda part, scratch: look(
                self.compiled.problem,
                self.blocks,
                part,
                self.form.cap,
                self.kappa,
                weights,
                self.point,
                self.sights,
            ),
            self.active,
        )

    def _values(self, weights: Array, rounds: int = 0) -> tuple[float, float]:
        """``g`` and ``g_ρ`` of given weights with the messages of the marginals.

        With ``rounds`` each example may have messages made for these weights instead.
        """
        self._look(weights)
        return self._objectives(weights, rounds)

    def _objectives(self, weights: Array, rounds: int) -> tuple[float, float]:
        """The same once all blocks are looked at."""
        half = 0.5 * float(weights @ weights)
        hinge, penalty = self.sights[:, HINGE], 0.5 * self.kappa * self.sights[:, PENALTY]
        if rounds > 0:
            refined = np.zeros_like(self.sights)
            least = self._worth_a_visit()
            self.workers.map(
                lambda part, scratch: look_refined(
                    self.compiled.problem,
                    self.blocks,
                    part,
                    self.kappa,
                    rounds,
                    least,
                    weights,
                    self.point,
                    refined,
                ),
                self.active,
            )
            other = 0.5 * self.kappa * refined[:, PENALTY]
            share = 0.0 if self.constrained else 1.0
            better = refined[:, HINGE] + share * other < hinge + share * penalty
            hinge = np.where(better, refined[:, HINGE], hinge)
            penalty = np.where(better, other, penalty)
        relaxed = half + float(self.form.cap @ hinge)
        return relaxed, relaxed + float(self.form.cap @ penalty)

    def _worth_a_visit(self) -> float:
        """The gap below which blocks are left out until the next look."""
        return float(self.options.skip) * float(self.gaps.mean(dtype=np.float64))

    def _penalty(self) -> float:
        """``(ρM/2) Σ c_i‖δ_i‖²``, which f_ρ loses and g_ρ gains."""
        return 0.5 * self.kappa * float(self.form.cap @ self.sights[:, PENALTY])

    def _linear(self) -> float:
        """``Σ c_i·μ·l``."""
        return float(self.form.cap @ self.sights[:, LINEAR])

    def _try(self, weights: Array, rounds: int = 0) -> float:
        """Look at weights and remember them if their primal is the least so far."""
        self._look(weights)
        return self._remember(weights, rounds)

    def _remember(self, weights: Array, rounds: int = 0) -> float:
        """The same once all blocks are looked at."""
        self.relaxed, self.soft = self._objectives(weights, rounds)
        primal = self.relaxed if self.constrained else self.soft
        if primal < self._best_primal or self._best is None:
            if self._best is None:
                self._best = aligned_zeros(len(self.w))
            self._best_primal = math.inf  # should an interruption come between the two
            self._best[:] = weights
            self._best_primal, self.best_relaxed = primal, self.relaxed
        return primal

    def _soft_dual(self) -> float:
        """``f_ρ`` from the sums of the last look."""
        drawn = float(self.form.cap @ self.sights[:, DRAWN])
        return self._linear() - 0.5 * float(self.w @ self.w) - self._penalty() + drawn

    def _settle(self) -> None:
        """The dual side after a look; hard constraints are hardened where it is time."""
        variables = np.diff(self.compiled.problem.node_offset)[self.active].sum()
        self.fractional = float(self.sights[:, FRACTIONAL].sum() / max(variables, 1))
        self.value = self._soft_dual()
        if not self.constrained:
            return
        self._bound()
        near = HARDEN if len(self.centre) == 0 else MOVE
        if self.soft - self.value > near * (self.best_relaxed - self.relaxed_bound):
            return
        lower = self.rho / self.options.rho_factor
        if len(self.centre) > 0:
            self._move_centre(1.0)
            self.sights[:, DRAWN] -= self.kappa * self.sights[:, PENALTY]
            lower = max(lower, self.balance)
        self.rho = lower
        self.value = self._soft_dual()

    def _move_centre(self, step: float) -> None:
        """Move the centre by ``step`` times the way to the messages of this moment."""
        self.workers.map(
            lambda part, scratch: move_centre(
                self.compiled.problem, self.blocks, part, self.kappa, step, self.point
            ),
            self.active,
        )

    def _bound(self) -> None:
        """A lower bound on the relaxation from marginals that agree.

        Between them and the truth, which agrees with itself, the best point is taken.
        """
        weights = aligned_zeros(len(self.w))
        weights[:] = self.w
        add_coupled(self.compiled.problem, self.blocks, self.form.cap, self.point, weights)
        linear, square = self._linear(), float(weights @ weights)
        part = min(linear / square, 1.0) if square > 0.0 else 1.0
        self.relaxed_bound = max(self.relaxed_bound, part * linear - 0.5 * part**2 * square)


#: Blocks drawn at a time.
_CHUNK = 1 << 18
#: Iterates of a pass that enter the average.
AVERAGED = 32
#: Sweeps before proximal ones: far from the optimum plain steps gain more.
PLAIN = 3
#: η by default, over c_i·ρM, and at most.
NEAR, MOST_NEAR = 0.2, 9.0


class Marginals(NamedTuple):
    """What another run can start from: marginals are feasible whatever C and ρ are."""

    mu: Array
    mass: Array
    centre: Array  # of messages; empty: zero


class SoftBCFW(SoftObjectives):
    """Soft constraints; see the head of this module."""

    name = "soft-bcfw"
    slacks = ("max",)
    rescalings = ("margin",)
    soft_only = "it steps towards corners of the feasible set, which must be bounded"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        rho: float = option(
            1.0, "softness ρ of the constraints; where they are hard, the one to begin with"
        )
        constraints: str = option(
            "soft",
            "'hard': until the certified gap of the relaxation itself meets tol",
            words=("soft", "hard"),
        )
        hardening: str = option(
            "centre", "how hard constraints are approached", words=("centre", "rho")
        )
        rho_factor: float = option(4.0, "what ρ is divided by when hard constraints are approached")
        schedule: str = option("improved", "what a pass does", words=("improved", "published"))
        steps: str | None = option(
            None,
            "exact solution of a block, or a step towards its best state; None: as the schedule",
            words=("projected", "frank-wolfe"),
        )
        sampling: str | None = option(
            None,
            "blocks in a random order of the examples, drawn evenly, or drawn in proportion to "
            "their last gaps; None: as the schedule",
            words=("permutation", "random", "gap"),
        )
        passes: int = option(4, "passes between two looks at all blocks")
        rounds: int = option(
            1,
            "rounds over the blocks of each example that fit messages to looked-at weights",
            least=0,
        )
        proximal: float | None = option(
            None,
            "η of proximal passes, 0 for none; None: in proportion to c_i·ρM, up to 9",
            least=0,
        )
        skip: float = option(
            0.1, "blocks whose last gap was below this share of the mean are left out", least=0
        )
        total_weight: float | None = None

    saved_numbers = (
        *CertifiedSolver.saved_numbers,
        "rho",
        "value",
        "relaxed",
        "soft",
        "relaxed_bound",
        "fractional",
        "best_relaxed",
        "_average_leads",
    )
    saved_arrays = (
        *CertifiedSolver.saved_arrays,
        "mu",
        "sums",
        "mass",
        "gaps",
        "centre",
        "pull",
        "anchor",
    )

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: Marginals | None = None,
    ) -> None:
        super().__init__(compiled, form, workers, seed, options)
        if self.hard or form.rescaled:
            raise ValueError(
                f"solver={self.name!r} needs a finite C and rescale='margin': the relaxation has "
                "no other form."
            )
        self.blocks = blocks_of(compiled, self.name)
        published = self.options.schedule == "published"
        self.steps = self.options.steps or ("frank-wolfe" if published else "projected")
        self.sampling = self.options.sampling or ("random" if published else "permutation")
        self.exact = True  # every block is enumerated, however hard its example is
        self.constrained = self.options.constraints == "hard"
        self.certifies = not published
        self.rho = float(self.options.rho)
        self.M = float(self.options.total_weight or len(self.active))
        self.mu = np.zeros(int(self.blocks.unary_at[-1]))
        self.sums = np.zeros(len(self.mu))
        self.mass = np.zeros(int(self.blocks.mass_at[-1]), dtype=np.float32)
        self.gaps = np.zeros(self.blocks.n, dtype=np.float32)
        centred = self.constrained and self.options.hardening == "centre"
        self.centre = np.zeros(int(self.blocks.message_at[-1]) if centred else 0, dtype=np.float32)
        self.pull = np.zeros(len(self.mu) if centred else 0)
        self.sights = np.zeros((compiled.n, 6))
        self.rounds = 0 if published else int(self.options.rounds)
        self.value = 0.0  # f_ρ
        self.relaxed = self.soft = math.inf  # g and g_ρ at the last look
        self.relaxed_bound = -math.inf  # best dual value of marginals that agree
        self.fractional = 0.0  # share of variables
        self.best_relaxed = math.inf  # g(w, δ) of the best weights
        #: ρ at which messages and weights bend the dual alike
        self.balance = 1.0 / max(mean_square(compiled.problem, form.cap) * self.M, 1e-300)
        self.total = aligned_zeros(compiled.n_weights)  # of iterates, for their average
        self.visits = 0
        self.anchor = aligned_zeros(compiled.n_weights)  # weights that proximal passes stay near
        self._average_leads = True
        start_at_truth(compiled.problem, self.blocks, form.cap, self.point, self.sights)
        if start is None:
            self._remember(self.w)
            self._settle()
            return
        self.mu[:] = start.mu
        self.mass[:] = start.mass
        if len(self.centre) == len(start.centre):
            self.centre[:] = start.centre
        self.repair()

    @classmethod
    def start_from(
        cls, before: DualMemory, compiled: Compiled, form: Formulation
    ) -> Marginals | None:
        """Marginals are feasible for any C; the layout of other examples is another."""
        old, problem = before.compiled.problem, compiled.problem
        same = old is problem or same_examples(old, problem)
        return before.multipliers if same and isinstance(before.multipliers, Marginals) else None

    @property
    def point(self) -> DualPoint:
        """The marginals, as the kernels take them."""
        return DualPoint(self.mu, self.sums, self.mass, self.gaps, self.centre, self.pull)

    @property
    def kappa(self) -> float:
        """``1/(ρM)``, what disagreement is multiplied with to become a message."""
        return 1.0 / (self.rho * max(self.M, 1e-300))

    @property
    def n_planes(self) -> int:
        """Blocks that are known to have something to gain."""
        return int(np.count_nonzero(self.gaps))

    # Passes --------------------------------------------------------------------------------

    def sweep(self) -> float:
        """Passes over the blocks; the gaps met in them, or the gap of the look after them."""
        self.clock += 1
        if self.options.schedule == "published":
            return self._pass(self.form.cap)
        self.total[:] = 0.0
        self.visits = 0
        weights = self._proximal_passes() if self.clock > PLAIN else None
        if weights is None:
            for _ in range(self.options.passes):
                self._pass(self.form.cap)
            weights = self.w
        both = self.clock % 4 == 0
        average = last = math.inf
        if self.visits > 0:
            self.total /= self.visits
        if self.visits > 0 and (self._average_leads or both):
            average = self._try(self.total, self.rounds)
        if self.visits == 0 or not self._average_leads or both:
            last = self._try(weights, self.rounds)
        if both and self.visits > 0:
            self._average_leads = average <= last
        self.anchor[:] = self.total if self.visits > 0 and self.clock <= PLAIN else weights
        self._settle()
        return min(average, last) - self.lower_bound()

    def _proximal_passes(self) -> Array | None:
        """Passes of the problem with ``(η/2)‖w − anchor‖²`` added; its weights.

        They are ``(Ψμ + η·anchor)/(1 + η)``, so that the weights of a block move, and bend, by
        ``c_i/(1 + η)``. ``self.w`` is Ψμ again afterwards.
        """
        eta = self.options.proximal
        if eta is None:  # small problems and hard constraints are as well conditioned without
            eta = min(NEAR * self.rho / self.balance, MOST_NEAR)
            eta = eta if eta >= 1.0 else 0.0
        if eta == 0.0 or self.sampling != "permutation":
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

    def _pass(self, cap: Array) -> float:
        """As many visits as there are blocks, or one to each block worth it; the gaps met."""
        problem = self.compiled.problem
        steps = PROJECTED if self.steps == "projected" else FRANK_WOLFE
        self.oracle_calls += len(self.active)
        if self.sampling == "permutation":
            least = self._worth_a_visit()
            order = self.rng.permutation(self.active)
            every = max(len(order) // AVERAGED, 1)
            self.value += pass_examples(
                problem,
                self.blocks,
                order,
                cap,
                self.kappa,
                least,
                steps,
                every,
                self.w,
                self.point,
                self.total,
            )
            self.visits += len(order) // every
            return float(self.gaps.sum(dtype=np.float64))
        by_gap = self.sampling == "gap"
        met = 0.0
        left = int(np.diff(self.blocks.block_at)[self.active].sum())
        while left > 0:
            count = min(left, _CHUNK)
            left -= count
            share = np.diff(self.blocks.block_at).astype(np.float64)
            if by_gap:
                share = np.add.reduceat(self.gaps, self.blocks.block_at[:-1], dtype=np.float64)
            share[self.form.cap <= 0.0] = 0.0
            upto = np.cumsum(share)
            if upto[-1] <= 0.0:
                break
            examples = np.searchsorted(upto, self.rng.random(count) * upto[-1], side="right")
            some, gain = pass_draws(
                problem,
                self.blocks,
                np.minimum(examples, self.compiled.n - 1),
                self.rng.random(count),
                by_gap,
                cap,
                self.kappa,
                steps,
                self.w,
                self.point,
            )
            met += some
            self.value += gain
        return met if not by_gap else float(self.gaps.sum(dtype=np.float64))

    # Certificates ----------------------------------------------------------------------------

    def _find_violations(self) -> None:
        """Looks do this."""

    def certify(self) -> float:
        """The primal of the weights made anew from the marginals."""
        self._rebuild()
        primal = self._try(self.w)
        self._settle()
        return primal

    def primal_of(self, weights: Array) -> float:
        """The primal of given weights with the messages of the marginals."""
        relaxed, soft = self._values(weights, self.rounds)
        return relaxed if self.constrained else soft

    def dual(self) -> float:
        """``f_ρ`` of the marginals."""
        return self.value

    def lower_bound(self) -> float:
        """``f_ρ``, or the bound on the relaxation where constraints are hard."""
        return self.relaxed_bound if self.constrained else self.value

    def measures(self) -> dict[str, Any]:
        """What history rows say beside the certificate."""
        return {"relaxed": self.best_relaxed, "fractional": self.fractional}

    def findings(self, weights: Array) -> dict[str, float]:
        """Objectives of the relaxation and, where decoding is exact, of the structured hinge."""
        self._look(self.w)
        self._bound()
        found = {
            "relaxed_objective_": self.best_relaxed,
            "relaxed_gap_": max(self.best_relaxed - self.relaxed_bound, 0.0),
            "fractional_": self.fractional,
            "soft_rho_": self.rho,
        }
        if decodes_cheaply(self.compiled.problem):
            margins = Margins(self.compiled, self.form.cap, self.workers, 0.0)
            hinges = margins.look(weights, 1.0).hinges
            half = 0.5 * float(weights @ weights)
            found["structured_objective_"] = half + float(self.form.cap @ hinges)
        return found

    # State ---------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        self.w = aligned_zeros(self.compiled.n_weights)
        add_weights(self.compiled.problem, self.blocks, self.form.cap, self.point, self.w)

    def repair(self) -> None:
        """Weights, sums, gaps and f_ρ from the marginals."""
        self._rebuild()
        if len(self.centre) > 0:
            self._move_centre(0.0)
        self._try(self.w)
        self._settle()

    def memory(self) -> Marginals:
        """The marginals of all blocks."""
        return Marginals(self.mu, self.mass, self.centre)
