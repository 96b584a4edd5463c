"""Label switching as Algorithm 2 prints it, but for its errors.

Every trial costs a Viterbi pass and the penalty of the sequence, counted anew; what the other
sequences contribute to corpus constraints is remembered. The slow twin of
:mod:`hingeline.semisupervised.annealing`, plain Python that can be compiled; its decisions are the
same up to ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.constraints.switches import (
    CHANGES,
    SEGMENTS,
    SHARE,
    commit_switch,
    count_sequence,
    price_excess,
)
from hingeline.inference.chain import path_score
from hingeline.semisupervised.annealing import is_lower
from hingeline.structures.chain import ChainProblem, decode, moves, position_scores

Array = np.ndarray[Any, Any]


@helper
def _penalty_anew(
    constraints: Any, state: Any, labels: Array, i: int, own: Array, anew: Any
) -> float:
    """The penalty of sequence ``i`` and of the corpus, the sequence counted from its labels.

    ``own`` are the changes of label that the state counts for this sequence; ``anew`` is a second
    state, scratch space.
    """
    changes = anew.changes
    changes[:] = 0
    total = count_sequence(constraints, i, labels, anew)
    n = constraints.offsets.shape[0] - 1
    for c in range(constraints.corpus_kind.shape[0]):
        kind = constraints.corpus_kind[c]
        g = constraints.corpus_target[c]
        everyone = state.changes[0] - own[0] + changes[0]
        if kind == SHARE:
            count = state.all_tokens[g] - state.tokens[i, g] + anew.tokens[i, g]
            value = count / constraints.unary.shape[0]
        elif kind == SEGMENTS:
            value = (state.all_segments[g] - state.segments[i, g] + anew.segments[i, g]) / n
        elif kind == CHANGES:
            bad = state.changes[1 + g] - own[1 + g] + changes[1 + g]
            value = bad / max(everyone, 1)
        else:
            value = (everyone + g) / n
        total += price_excess(constraints.corpus_bounds[c], constraints.corpus_price[c], value)
    return total


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
    anew: Any,
) -> int:
    """``sweep_labels`` in order, with a decode for every candidate.

    The labels switched are those in the problem itself, which ``decode`` reads; ``anew`` is a
    second state, scratch space.
    """
    A = moves(problem, w)
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
            anew.changes[:] = 0
            count_sequence(constraints, i, labels, anew)
            own = anew.changes.copy()
            paid = _penalty_anew(constraints, state, labels, i, own, anew)
            best = now
            least = 0.0
            reached = slack[i]
            for k in range(problem.n_labels):
                if k == now:
                    continue
                y[t] = k
                trial = decode(problem, first + i, w, 1.0, violator) - path_score(scores, A, y)
                dearer = _penalty_anew(constraints, state, labels, i, own, anew) - paid
                change = scale * (trial - slack[i]) + dearer
                if change < least and is_lower(change, scale, maximum, dearer):
                    least = change
                    best = k
                    reached = trial
            y[t] = now
            if best != now:
                commit_switch(constraints, state, labels, i, t, best)
                slack[i] = reached
                switches += 1
    return switches
