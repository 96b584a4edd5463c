"""The n best paths of a chain, exactly.

Lawler's partition: all paths but the best one are told apart by the last position at which they
leave it and the label they have there. With the forward maxima at hand the best path of such a
cell costs one addition, and the cell of a path that is taken is partitioned again. One pass over
the table per path, on top of one ordinary decode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.viterbi import max_sum

Array = np.ndarray[Any, Any]


@helper
def n_best(scores: Array, transitions: Array, n_labels: int, ys: Array, values: Array) -> int:
    """Write the best paths to ``ys`` (n, T) and ``values`` (n,), best first; return how many.

    The first path is that of :func:`max_sum`. Among paths of equal value the one whose cell was
    opened first goes first, so that the result does not depend on n. Paths of value ``−inf`` do
    not count.
    """
    n = ys.shape[0]
    length = scores.shape[0]
    forward = scores.copy()
    values[0] = max_sum(forward, transitions, n_labels, ys[0])
    if values[0] == -np.inf:
        return 0
    # Cells not taken yet, best first; never more than there are paths to come.
    cell_value = np.empty(n)
    cell_path = np.empty(n, dtype=np.int64)
    cell_at = np.empty(n, dtype=np.int64)
    cell_label = np.empty(n, dtype=np.int32)
    count = 0
    split = length  # positions before this one are still free in the newest path
    for newest in range(n - 1):
        room = n - 1 - newest
        y = ys[newest]
        behind = 0.0  # value of the labels after t and of the moves between them
        for t in range(length - 1, -1, -1):
            if t < split:
                for j in range(n_labels):
                    if j == y[t]:
                        continue
                    value = forward[t, j] + behind
                    if t + 1 < length:
                        value += transitions[j, y[t + 1]]
                    value = min(value, values[newest])  # rounding must not spoil the order
                    if value == -np.inf or (count == room and value <= cell_value[count - 1]):
                        continue
                    at = count if count < room else count - 1
                    while at > 0 and cell_value[at - 1] < value:
                        cell_value[at] = cell_value[at - 1]
                        cell_path[at] = cell_path[at - 1]
                        cell_at[at] = cell_at[at - 1]
                        cell_label[at] = cell_label[at - 1]
                        at -= 1
                    cell_value[at] = value
                    cell_path[at] = newest
                    cell_at[at] = t
                    cell_label[at] = j
                    if count < room:
                        count += 1
            behind += scores[t, y[t]]
            if t + 1 < length:
                behind += transitions[y[t], y[t + 1]]
        if count == 0:
            return newest + 1
        split = cell_at[0]
        taken = ys[newest + 1]
        taken[:] = ys[cell_path[0]]
        taken[split] = cell_label[0]
        for t in range(split, 0, -1):
            k = taken[t]
            arg = 0
            top = forward[t - 1, 0] + transitions[0, k]
            for j in range(1, n_labels):
                s = forward[t - 1, j] + transitions[j, k]
                if s > top:
                    top = s
                    arg = j
            taken[t - 1] = arg
        values[newest + 1] = cell_value[0]
        count -= 1
        for c in range(count):
            cell_value[c] = cell_value[c + 1]
            cell_path[c] = cell_path[c + 1]
            cell_at[c] = cell_at[c + 1]
            cell_label[c] = cell_label[c + 1]
    return n
