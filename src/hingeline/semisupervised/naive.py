"""Label switching as Algorithm 2 prints it, but for its errors: a Viterbi pass for every trial.

The slow twin of :mod:`.label_switching`, for tests and benchmarks; its decisions are the same up to
ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._numba import kernel
from hingeline.constraints.compiled import commit_switch, switch_costs
from hingeline.inference.max_marginals import path_score
from hingeline.semisupervised.rounding import is_lower
from hingeline.structures.chain import decode, moves, position_scores
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


@kernel
def naive_sweep(
    problem: ChainProblem,
    first: int,
    w: Array,
    scale: float,
    constraints: Any,
    state: Any,
    order: Array,
    limit: int,
    slack: Array,
) -> int:
    """:func:`.label_switching.sweep_in_order` with a decode for every candidate.

    The labels switched are those in the problem itself, which ``decode`` reads.
    """
    A = moves(problem, w)
    penalties = np.zeros(problem.n_labels)
    start = problem.offsets[first]
    labels = problem.labels[start:]
    switches = 0
    for i in order:
        y = labels[problem.offsets[first + i] - start : problem.offsets[first + i + 1] - start]
        violator = np.empty(y.shape[0], dtype=np.int32)
        maximum = decode(problem, first + i, w, 1.0, violator)
        scores = position_scores(problem, first + i, w, 0.0)
        slack[i] = maximum - path_score(scores, A, y)
        for t in range(y.shape[0]):
            if switches >= limit:
                return switches
            now = y[t]
            switch_costs(constraints, state, labels, i, t, penalties)
            best = now
            least = 0.0
            reached = slack[i]
            for k in range(problem.n_labels):
                if k == now:
                    continue
                y[t] = k
                trial = decode(problem, first + i, w, 1.0, violator) - path_score(scores, A, y)
                change = scale * (trial - slack[i]) + penalties[k]
                if change < least and is_lower(change, scale, maximum, penalties[k]):
                    least = change
                    best = k
                    reached = trial
            y[t] = now
            if best != now:
                commit_switch(constraints, state, labels, i, t, best)
                slack[i] = reached
                switches += 1
    return switches
