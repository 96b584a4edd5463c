"""Slack summed over all outputs, for many sequences; parts of ``order`` may run in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.inference.counting import better_paths, workspace
from hingeline.structures.chain import moves, position_scores
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


#: Bins of a certificate: what the bound exceeds the sum by is mostly below 1e-4 of it.
BINS = 1000


def summed_slack_above(problem: ChainProblem) -> Callable[[Array, Array, Array], None]:
    """The bound from above, as solvers ask for it."""

    def fill(order: Array, w: Array, out: Array) -> None:
        lower, count_lower, count_upper = np.empty((3, len(out)))
        summed_slack_all(problem, order, w, BINS, lower, out, count_lower, count_upper)

    return fill


@kernel
def summed_slack_all(
    problem: ChainProblem,
    order: Array,
    w: Array,
    bins: int,
    lower: Array,
    upper: Array,
    count_lower: Array,
    count_upper: Array,
) -> None:
    """Bounds on ``Σ_y [l_i(y) − w·Δf_i(y)]₊`` and on the number of outputs with a positive term.

    The loss of the true labels is 0, so they are the path that the others are compared with.
    """
    A = moves(problem, w)
    longest = 0
    for i in order:
        longest = max(longest, problem.offsets[i + 1] - problem.offsets[i])
    space = workspace(longest, problem.n_labels, bins)
    found = np.empty(4)
    for i in order:
        truth = problem.labels[problem.offsets[i] : problem.offsets[i + 1]]
        scores = position_scores(problem, i, w, 1.0)
        better_paths(scores, A, problem.n_labels, truth, bins, space, found)
        lower[i] = found[0]
        upper[i] = found[1]
        count_lower[i] = found[2]
        count_upper[i] = found[3]
