"""Kernels over many sequences for prediction; parts of ``order`` may run in threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.inference.margins import against_rest, best_without_span, continuations
from hingeline.inference.nbest import n_best
from hingeline.inference.pruned import MANY_LABELS, best_moves, best_path
from hingeline.inference.viterbi import max_marginals, max_sum
from hingeline.structures.chain import moves, position_scores
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


@kernel
def decode_all(problem: ChainProblem, order: Array, w: Array, y_out: Array, values: Array) -> None:
    """Best label of every token; ``values[i]`` is the score of sequence i."""
    A = moves(problem, w)
    many = problem.n_labels >= MANY_LABELS
    best = best_moves(A, problem.n_labels if many else 0)
    for i in order:
        scores = position_scores(problem, i, w, 0.0)
        y = y_out[problem.offsets[i] : problem.offsets[i + 1]]
        if many:
            values[i] = best_path(scores, A, best, problem.n_labels, y)
        else:
            values[i] = max_sum(scores, A, problem.n_labels, y)


@kernel
def n_best_all(
    problem: ChainProblem, order: Array, w: Array, paths: Array, values: Array, counts: Array
) -> None:
    """The n best paths of every sequence, n being the width of ``values``.

    Those of sequence i stand in ``paths[n·offsets[i] : n·offsets[i + 1]]``, one after another.
    """
    A = moves(problem, w)
    n = values.shape[1]
    for i in order:
        lo = problem.offsets[i]
        hi = problem.offsets[i + 1]
        ys = paths[n * lo : n * hi].reshape((n, hi - lo))
        scores = position_scores(problem, i, w, 0.0)
        counts[i] = n_best(scores, A, problem.n_labels, ys, values[i])


@kernel
def max_marginals_all(problem: ChainProblem, order: Array, w: Array, out: Array) -> None:
    """Max-marginals of every token; ``out`` is (tokens, labels)."""
    A = moves(problem, w)
    for i in order:
        max_marginals(
            position_scores(problem, i, w, 0.0),
            A,
            problem.n_labels,
            out[problem.offsets[i] : problem.offsets[i + 1]],
        )


@kernel
def against_rest_all(table: Array) -> None:
    """Turn max-marginals into margins, in place."""
    against_rest(table)


@kernel
def sequence_margins_all(problem: ChainProblem, order: Array, w: Array, out: Array) -> None:
    """``out[i]``: best score minus that of the second-best path, NaN where there is no path.

    The second-best path has another label than the best one somewhere, so that the smallest
    margin of a token is the margin of the sequence.
    """
    A = moves(problem, w)
    for i in order:
        length = problem.offsets[i + 1] - problem.offsets[i]
        table = np.empty((length, problem.n_labels))
        max_marginals(position_scores(problem, i, w, 0.0), A, problem.n_labels, table)
        if table[0].max() == -np.inf:
            out[i] = np.nan
            continue
        against_rest(table)
        smallest = np.inf
        for t in range(length):
            smallest = min(smallest, table[t].max())
        out[i] = smallest


@kernel
def span_margins_all(
    problem: ChainProblem,
    order: Array,
    w: Array,
    spans: Array,
    bounds: Array,
    inside: Array,
    kind_of: Array,
    out: Array,
) -> None:
    """``out[s]``: best score minus that of the best path without span s, which the best path has.

    ``spans`` is (spans, 3): kind, first token, token after the last, counted within the sequence;
    those of sequence i are the rows ``bounds[i]`` to ``bounds[i + 1] − 1``. See
    :func:`best_without_span` for ``inside`` and ``kind_of``.
    """
    A = moves(problem, w)
    for i in order:
        if bounds[i] == bounds[i + 1]:
            continue
        scores = position_scores(problem, i, w, 0.0)
        forward = scores.copy()
        y = np.empty(scores.shape[0], dtype=np.int32)
        best = max_sum(forward, A, problem.n_labels, y)
        behind = continuations(scores, A, problem.n_labels)
        for s in range(bounds[i], bounds[i + 1]):
            other = best_without_span(
                scores,
                forward,
                behind,
                A,
                inside,
                kind_of,
                spans[s, 0],
                spans[s, 1],
                spans[s, 2],
            )
            out[s] = max(best - other, 0.0)  # rounding aside it is not negative
