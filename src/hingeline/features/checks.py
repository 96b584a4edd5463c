"""Checks of the parameters that encoders share."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np


def check_min_count(min_count: Any) -> None:
    """Refuse what is not a count."""
    whole = isinstance(min_count, numbers.Integral) and not isinstance(min_count, bool)
    if not whole or min_count < 1:
        raise ValueError(f"min_count must be an integer ≥ 1, got {min_count!r}.")


def check_dtype(dtype: Any) -> None:
    """Refuse values that are not floats."""
    try:
        name = "" if dtype is None else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype must be np.float32 or np.float64, got {dtype!r}.")
