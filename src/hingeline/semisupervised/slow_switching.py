"""Label switching where a penalty is a Python function: one position at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.constraints.evaluator import SwitchEvaluator
from hingeline.inference.max_marginals import (
    augmented_maxima,
    path_score,
    step_backward,
    step_forward,
    switch_gains,
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
    stride = problem.stride
    length = y.shape[0]
    A = moves(problem, w)
    onwards = A.reshape(A.size)
    backwards = transposed(A, n_labels).reshape(n_labels * stride)
    cost = problem.cost.reshape(problem.cost.size)
    unit = uniform_cost(problem.cost)
    table = position_scores(problem, i, w, 0.0)
    scores = table.reshape(table.size)
    ahead = np.zeros(length * stride)
    behind = np.zeros(length * stride)
    reach = np.empty(stride)
    row = np.empty(n_labels)
    for t in range(length - 1, 0, -1):
        step_backward(scores, cost, y[t], backwards, n_labels, stride, t, behind, reach)
    for t in range(length - 1):
        step_forward(scores, cost, y[t], onwards, n_labels, stride, t, ahead, reach)
    score = path_score(table, A, y)
    for t in range(length):
        for k in range(n_labels):
            at = t * stride + k
            row[k] = ahead[at] + scores[at] + behind[at]
        augmented_maxima(row, problem.cost, unit, n_labels, maxima[t])
        switch_gains(scores, onwards, backwards, y, stride, n_labels, t, row)
        for k in range(n_labels):
            out[t, k] = maxima[t, k] - score - row[k]


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
