"""Axes of charts: ranges, scales and readable ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline.report.words import power_of_ten, significant

Array = np.ndarray[Any, Any]

#: Room beyond the data, as a share of the range.
PADDING = 0.05
#: Values that differ by more than this factor are shown on a logarithmic scale.
LOG_FROM = 100.0


@dataclass(frozen=True)
class Axis:
    """A range of values, and where its ticks are."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, values: Any) -> Any:
        """Where values lie between the ends, 0 to 1."""
        values = np.asarray(values, dtype=np.float64)
        if self.log:
            span = math.log10(self.high / self.low)
            return np.log10(values / self.low) / span
        return (values - self.low) / (self.high - self.low)


def make_axis(
    values: Any, *, log: bool = False, from_zero: bool = False, whole: bool = False
) -> Axis:
    """An axis that holds all values.

    Parameters
    ----------
    values : array-like
        Finite, at least one; positive for a logarithmic scale.
    log : bool, default=False
    from_zero : bool, default=False
        Begin a linear axis at zero and end it at the largest value, without room.
    whole : bool, default=False
        Ticks at whole numbers only.
    """
    low, high = float(np.min(values)), float(np.max(values))
    if log:
        return _log_axis(low, high)
    if from_zero:
        low, high = 0.0, high if high > 0 else 1.0
    else:
        # A range far narrower than its values would need labels of many digits.
        room = max(PADDING * (high - low), 5e-4 * max(abs(low), abs(high)))
        if low == high:
            room = 0.1 * abs(low) or 1.0
        low, high = low - room, high + room
    step = nice_step((high - low) / 5)
    if whole:
        step = max(step, 1.0)
    return Axis(low, high, False, *_linear_ticks(low, high, step))


def suits_log(values: Any) -> bool:
    """Whether values are positive and spread so far that a linear scale hides most of them."""
    values = np.asarray(values)
    return len(values) > 1 and bool(values.min() > 0 and values.max() > LOG_FROM * values.min())


def nice_step(raw: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below ``raw``."""
    power: float = 10.0 ** math.floor(math.log10(raw))
    for factor in (1.0, 2.0, 5.0):
        if factor * power >= raw * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def _linear_ticks(low: float, high: float, step: float) -> tuple[tuple[float, ...], Any]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(k * step for k in range(first, last + 1))
    largest = max((abs(tick) for tick in ticks), default=0.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if 1e-4 <= largest < 1e6:
        return ticks, tuple(f"{tick + 0.0:,.{decimals}f}".replace("-", "−") for tick in ticks)
    # One power of ten for all, in the short form, because room beside an axis is scarce.
    power = math.floor(math.log10(max(largest, step)) + 1e-9)
    decimals = max(0, power - math.floor(math.log10(step) + 1e-9))
    labels = [
        f"{tick / 10.0**power:.{decimals}f}e{power}".replace("-", "−") if tick else "0"
        for tick in ticks
    ]
    return ticks, tuple(labels)


def _log_axis(low: float, high: float) -> Axis:
    span = max(math.log10(high / low), 0.3)
    middle = math.log10(low) + math.log10(high)
    half = 0.5 * span * (1 + 2 * PADDING)
    low, high = 10 ** (0.5 * middle - half), 10 ** (0.5 * middle + half)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [p for p in powers if low <= 10.0**p <= high]
    if len(inside) >= 3:
        every = math.ceil(len(inside) / 6)
        ticks = [10.0**p for p in inside if p % every == 0]
    else:
        ticks = [f * 10.0**p for p in powers for f in (1, 2, 5) if low <= f * 10.0**p <= high]
        if len(ticks) < 2:  # so short a range is nearly linear
            return Axis(low, high, True, *_linear_ticks(low, high, nice_step((high - low) / 5)))
    labels = [significant(tick, 1) for tick in ticks]
    if len(inside) >= 3 and any("×" in label for label in labels):
        # All by powers of ten where one must be.
        labels = [power_of_ten(round(math.log10(tick))) for tick in ticks]
    return Axis(low, high, True, tuple(ticks), tuple(labels))
