"""When a switch counts as one."""

from __future__ import annotations

from hingeline._jit import helper

#: A switch must lower the objective by more than this share of its terms.
ROUNDING = 1e-10


@helper
def is_lower(change: float, scale: float, maximum: float, penalty: float) -> bool:
    """Whether a change of the objective is a decrease that rounding does not explain."""
    return change < -ROUNDING * (scale * (1.0 + abs(maximum)) + abs(penalty))
