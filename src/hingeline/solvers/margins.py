"""Margins of given weights: the best ρ for them, and who errs, lies on the margin or beyond it.

For weights w the ν-problem (7) is, in ρ alone, ``½‖w‖² − q(ρ)`` with the concave function::

    q(ρ) = νρ − Σ_i s̄_i·max_y [ρ·l_i(y) − w·Δf_i(y)]₊,     q'(ρ) = ν − Σ_i s̄_i·l_i(ŷ_i)

where ŷ_i is the maximiser. So ρ is best for w where the risk ``Σ s̄_i·l_i(ŷ_i)``, which grows with
ρ, passes ν; from below it is the risk of margin errors with the smallest loss among tied
maximisers, from above the risk of support vectors with the largest. Proposition 1 of S. Kim et
al., *ν-Structured Support Vector Machines* (2010), with ties, is the same as q having its maximum
at ρ: it holds for the best ρ of any weights.

Scaling. Over all multiples c of w, with ρ/c fixed, the least value of (7) is ``−½q²/‖w‖²``, at
``c = q/‖w‖²``: a primal value needs no ρ, only a direction and a ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import kernel
from hingeline.solvers.parallel import Workers
from hingeline.structures.base import (
    Compiled,
    decode_excess,
    output_length,
    plane_loss,
    plane_score,
)

Array = np.ndarray[Any, Any]

#: Outputs count as tied, and examples as on the margin, where a change of ρ by this share decides.
TIE = 1e-3
#: Risks that differ from ν by no more than this share differ by rounding.
ROUNDING = 1e-12
#: How steeply the risk rises with ρ, in logarithms: a first guess.
USUAL_SLOPE = 0.4
#: The search for the best ρ ends here; it needs about five.
MOST_LOOKS = 60


@kernel
def hinges_at(
    problem: Any, shares: Array, order: Array, w: Array, rho: float, hinges: Array, losses: Array
) -> None:
    """``max_y [ρ·l − w·Δf]₊`` and the loss of the maximiser, 0 where the true output wins."""
    longest = 1
    for i in order:
        longest = max(longest, output_length(problem, i))
    buffer = np.empty(longest, dtype=np.int32)
    for i in order:
        hinges[i] = 0.0
        losses[i] = 0.0
        if shares[i] > 0.0:
            y = buffer[: output_length(problem, i)]
            excess = decode_excess(problem, i, w, rho, y)
            loss = plane_loss(problem, i, y)
            h = rho * loss - plane_score(problem, i, y, w) + excess
            if h > 0.0:
                hinges[i] = h
                losses[i] = loss


class Look(NamedTuple):
    """What one decode per example says of weights at a ratio ρ."""

    rho: float
    lead: float  # q(ρ)
    risk: float  # Σ s̄·l of the maximisers
    hinges: Array
    losses: Array


@dataclass(frozen=True)
class Margins:
    """Examples, their shares s̄ and ν: what margins are measured with."""

    compiled: Compiled
    shares: Array
    workers: Workers
    nu: float

    def look(self, w: Array, rho: float) -> Look:
        """Hinges and risk at (w, ρ), in threads."""
        hinges = np.zeros(self.compiled.n)
        losses = np.zeros(self.compiled.n)
        find = self.compiled.bind(hinges_at)
        self.workers.map(
            lambda part, scratch: find(
                self.compiled.problem, self.shares, part, w, rho, hinges, losses
            ),
            np.arange(self.compiled.n),
        )
        risk = float(self.shares @ losses)
        if abs(risk - self.nu) <= ROUNDING * self.nu:
            risk = self.nu
        return Look(rho, self.nu * rho - float(self.shares @ hinges), risk, hinges, losses)

    def highest(self) -> float:
        """``Σ s̄_i·max_y l_i(y)``: above it no ν is feasible in (12)."""
        nothing = np.zeros(self.compiled.n_weights)
        return self.look(nothing, 1.0).risk

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


def scaled(lead: float, square: float) -> tuple[float, float]:
    """The least value of (7) over multiples of weights, and the multiple; (0, 0) is always there.

    ``lead`` is q at a ratio ρ, ``square`` is ``‖w‖²``.
    """
    if lead <= 0.0 or square <= 0.0:
        return 0.0, 0.0
    return -0.5 * lead * lead / square, lead / square
