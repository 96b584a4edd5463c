"""Margins from max-marginals: by how much the best path beats those that differ somewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._numba import helper

Array = np.ndarray[Any, Any]


@helper
def against_rest(table: Array) -> None:
    """Turn max-marginals (T, labels) into margins, in place.

    ``table[t, k]`` becomes the value of the best path with label k at position t minus that of
    the best path with another label there: ``−inf`` where k is forbidden, ``inf`` where nothing
    else is allowed.
    """
    n_labels = table.shape[1]
    for t in range(table.shape[0]):
        first = -np.inf
        second = -np.inf
        arg = 0
        for k in range(n_labels):
            value = table[t, k]
            if value > first:
                second = first
                first = value
                arg = k
            elif value > second:
                second = value
        for k in range(n_labels):
            if table[t, k] > -np.inf:  # −inf − (−inf) would be NaN
                table[t, k] -= second if k == arg else first
