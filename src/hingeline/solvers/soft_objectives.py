"""Objectives of the softly constrained problem, and how its constraints are hardened.

See :mod:`hingeline.solvers.soft_bcfw` for what they mean.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hingeline._simd import aligned_zeros
from hingeline.solvers.certificate import CertifiedSolver
from hingeline.solvers.soft_look import (
    DRAWN,
    FRACTIONAL,
    HINGE,
    LINEAR,
    PENALTY,
    add_coupled,
    look,
    look_refined,
    move_centre,
)
from hingeline.solvers.soft_variables import DualPoint
from hingeline.structures.graph_blocks import Blocks

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
        return float(self.options["skip"]) * float(self.gaps.mean(dtype=np.float64))

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
        lower = self.rho / self.options["rho_factor"]
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
