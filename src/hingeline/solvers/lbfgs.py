"""Limited-memory BFGS for smooth, strongly convex functions of many variables.

Written here because SciPy's L-BFGS-B spends more time on bounds that are not there than a chain
needs for its gradient, and sums by a BLAS whose threads get into the way of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hingeline._jit import helper, kernel, strict_helper

Array = np.ndarray[Any, Any]

#: Pairs of steps and changes of the gradient that are remembered.
MEMORY = 10
#: A step must bring this share of what the slope promises.
SUFFICIENT = 1e-4
#: Trials along one direction.
MAX_TRIALS = 30


@helper
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@strict_helper
def _add(out: Array, step: float, a: Array) -> None:
    for k in range(out.shape[0]):
        out[k] += step * a[k]


@kernel
def dot(a: Array, b: Array) -> float:
    """``a·b``, summed the same way whatever other threads do."""
    return _dot(a, b)


@kernel
def quasi_newton(
    gradient: Array, steps: Array, changes: Array, first: int, count: int, out: Array
) -> None:
    """``out = −H·gradient`` with the inverse Hessian of the pairs remembered (two-loop recursion).

    Rows ``first, first + 1, …`` of ``steps`` and ``changes``, taken round, are the ``count`` pairs
    from the oldest to the newest.
    """
    size = gradient.shape[0]
    rows = steps.shape[0]
    share = np.empty(count)
    inner = np.empty(count)
    for k in range(size):
        out[k] = -gradient[k]
    for c in range(count - 1, -1, -1):
        s = steps[(first + c) % rows]
        y = changes[(first + c) % rows]
        inner[c] = _dot(s, y)
        share[c] = _dot(s, out) / inner[c]
        _add(out, -share[c], y)
    if count > 0:
        y = changes[(first + count - 1) % rows]
        scale = inner[count - 1] / _dot(y, y)
        for k in range(size):
            out[k] *= scale
    for c in range(count):
        s = steps[(first + c) % rows]
        y = changes[(first + c) % rows]
        rest = share[c] - _dot(y, out) / inner[c]
        _add(out, rest, s)


def descend(function: Callable[[Array], tuple[float, Array]], start: Array) -> None:
    """Minimise until ``function`` raises an exception, or no step goes further down.

    Parameters
    ----------
    function : callable
        ``w -> (value, gradient)``; it sees every point that is tried, keeps the best and decides
        when to stop.
    start : (size,)
    """
    w = np.array(start, dtype=np.float64)
    size = len(w)
    steps, changes = np.empty((MEMORY, size)), np.empty((MEMORY, size))
    first = count = 0
    direction = np.empty(size)
    value, gradient = function(w)
    while True:
        quasi_newton(gradient, steps, changes, first, count, direction)
        slope = dot(direction, gradient)
        if not slope < 0.0:
            return
        # Without a memory of the curvature a step of unit length is safe to begin with.
        step = 1.0 if count else min(1.0, 1.0 / np.sqrt(-slope))
        for _ in range(MAX_TRIALS):
            tried = w + step * direction
            new_value, new_gradient = function(tried)
            if new_value <= value + SUFFICIENT * step * slope:
                break
            # The parabola through value, slope and new value; not too far at once.
            bend = new_value - value - step * slope
            best = -0.5 * slope * step * step / bend if np.isfinite(bend) and bend > 0 else 0.0
            step = min(max(best, 0.1 * step), 0.5 * step)
        else:
            return
        at = (first + count) % MEMORY
        np.subtract(tried, w, out=steps[at])
        np.subtract(new_gradient, gradient, out=changes[at])
        if dot(steps[at], changes[at]) > 0.0:
            if count < MEMORY:
                count += 1
            else:
                first = (first + 1) % MEMORY
        elif count == MEMORY:  # rounding alone; the oldest pair was overwritten
            first, count = (first + 1) % MEMORY, count - 1
        w, value, gradient = tried, new_value, new_gradient
