"""Label switching where a penalty is a Python function: one position at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._numba import kernel
from hingeline.constraints.evaluator import SwitchEvaluator
from hingeline.inference.max_marginals import (
    augmented_maxima,
    path_score,
    step_backward,
    step_forward,
    switch_gain,
    transposed,
    uniform_cost,
)
from hingeline.semisupervised.rounding import is_lower
from hingeline.structures.chain import moves, position_scores
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


@kernel
def slack_table(
    problem: ChainProblem, i: int, w: Array, y: Array, maxima: Array, out: Array
) -> None:
    """``out[t, k]``: slack of the labelling y of sequence i with label k at position t instead.

    ``inf`` where that is forbidden; ``maxima[t, k]`` is the loss-augmented maximum in it.
    """
    n_labels = problem.n_labels
    length = y.shape[0]
    A = moves(problem, w)
    backwards = transposed(A, n_labels)
    unit = uniform_cost(problem.cost)
    scores = position_scores(problem, i, w, 0.0)
    ahead = np.zeros((length, problem.stride))
    behind = np.zeros((length, problem.stride))
    reach = np.empty(problem.stride)
    row = np.empty(n_labels)
    for t in range(length - 1, 0, -1):
        step_backward(scores, problem.cost[y[t]], backwards, t, behind, reach)
    for t in range(length - 1):
        step_forward(scores, problem.cost[y[t]], A, t, ahead, reach)
    score = path_score(scores, A, y)
    for t in range(length):
        for k in range(n_labels):
            row[k] = ahead[t, k] + scores[t, k] + behind[t, k]
        augmented_maxima(row, problem.cost, unit, n_labels, maxima[t])
        for k in range(n_labels):
            gain = 0.0 if k == y[t] else switch_gain(scores, A, y, t, k)
            out[t, k] = maxima[t, k] - score - gain


def sweep_slowly(
    problem: ChainProblem,
    first: int,
    w: Array,
    scale: float,
    evaluator: SwitchEvaluator,
    order: Array,
    limit: int,
    slack: Array,
    trials: tuple[Array, Array] | None = None,
) -> int:
    """A sweep as :func:`.label_switching.sweep_in_order`, or with ``trials`` at random.

    Slack comes from the kernels, made anew after every accepted switch; penalties come from the
    evaluator, which holds the labels.
    """
    start = problem.offsets[first]
    switches = 0
    for i in order.tolist():
        lo, hi = (int(at - start) for at in problem.offsets[first + i : first + i + 2])
        y = evaluator.labels[lo:hi]
        maxima = np.empty((hi - lo, problem.n_labels))
        table = np.empty_like(maxima)
        slack_table(problem, first + i, w, y, maxima, table)
        for trial in range(hi - lo):
            if switches >= limit:
                break
            t = trial if trials is None else int(trials[0][lo + trial])
            now = int(y[t])
            penalties = evaluator.switch_costs(i, t)
            changes = scale * (table[t] - table[t, now]) + penalties
            if trials is None:
                changes[now] = 0.0
                best = int(np.argmin(changes))
            else:
                best = int(trials[1][lo + trial])
                best += best >= now
            if best != now and is_lower(changes[best], scale, maxima[t, now], penalties[best]):
                evaluator.commit_switch(i, t, best)
                switches += 1
                slack_table(problem, first + i, w, y, maxima, table)
        slack[i] = max(table[0, y[0]], 0.0)
    return switches
