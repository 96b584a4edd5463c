"""Feasible points of the dual (12) of the ν-problem, made of points on either side of ν.

Multipliers β within their bounds are feasible if ``L = Σ β·l ≥ ν``. With more, they can be scaled
down to ν; with less they bound nothing, and scaling them up would leave the bounds. Two points
with L on either side of ν have mixtures with ``L = ν``; that of the least ``‖Σ β Δf‖`` is the
best. Only the weights ``Σ β Δf`` are needed, which mix like the multipliers.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from hingeline.solvers.margins import ROUNDING

Array = np.ndarray[Any, Any]


class NuCertificate:
    """What solvers of the ν-problem share: the best dual value, and what gaps are relative to."""

    mixture_numbers: ClassVar[tuple[str, ...]] = (
        "_best_rho",
        "least_hinge",
        "_bound",
        "_high_level",
        "_top_level",
        "_low_level",
    )
    mixture_arrays: ClassVar[tuple[str, ...]] = ("_high", "_top", "_low")

    nu: float

    def _begin(self, nu: float) -> None:
        self.nu = nu
        self._best_rho = 0.0
        self.least_hinge = math.inf  # in units of the loss: a bound on ν_min from above
        self._bound = -math.inf
        self._high: Array | None = None  # Σ β Δf of a good point with L ≥ ν
        self._high_level = math.inf
        self._top: Array | None = None  # the first such point
        self._top_level = math.inf
        self._low: Array | None = None
        self._low_level = 0.0

    def mix(self, weights: Array, level: float) -> None:
        """Take a point into account: its mixture with one from the other side of ν."""
        if level >= self.nu * (1.0 - ROUNDING):
            self._mix_high(weights, level)
        else:
            self._mix_low(weights, level)

    def _mix_high(self, weights: Array, level: float) -> None:
        value = mixed(weights, level, self._low, self._low_level, self.nu)
        self._bound = max(self._bound, value)
        if self._high is None or self._top is None:
            self._top, self._top_level = weights.copy(), level
            self._high, self._high_level = weights.copy(), level
        elif value >= mixed(self._high, self._high_level, self._low, self._low_level, self.nu):
            self._high[:] = weights
            self._high_level = level

    def _mix_low(self, weights: Array, level: float) -> None:
        value = mixed(weights, level, self._high, self._high_level, self.nu)
        wide = mixed(weights, level, self._top, self._top_level, self.nu)
        if wide > value and self._high is not None and self._top is not None:
            # What lies next to ν may be a bad point, and leaves no room for this one.
            value = wide
            self._high[:] = self._top
            self._high_level = self._top_level
        self._bound = max(self._bound, value)
        if self._low is None:
            self._low, self._low_level = weights.copy(), level
        elif value >= mixed(self._low, self._low_level, self._high, self._high_level, self.nu):
            self._low[:] = weights
            self._low_level = level

    def lower_bound(self) -> float:
        """The best value of (12) known."""
        return self._bound

    def positive_part(self, primal: float) -> float:
        """``P + νρ``; 0 while w = 0 with ρ = 0 is the best point known."""
        return primal + self.nu * self._best_rho


def mixed(a: Array, level: float, b: Array | None, its_level: float, nu: float) -> float:
    """``−½ min ‖p·a + q·b‖²`` over p, q ≥ 0, p + q ≤ 1 with ``p·level + q·its_level = ν``.

    −inf where there is no such mixture. Without b, that of a alone.
    """
    least = nu * (1.0 - ROUNDING)
    if b is None or its_level <= 0.0:
        if level < least:
            return -math.inf
        return -0.5 * min(nu / level, 1.0) ** 2 * float(a @ a)
    if level < least:
        # As seen from the point that is feasible by itself.
        return mixed(b, its_level, a, level, nu) if its_level >= least else -math.inf
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
    return -0.5 * (p * p * square + 2.0 * p * q * inner + q * q * other)
