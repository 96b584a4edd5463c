"""Kernels over many sequences; parts of ``order`` may run in threads."""

from collections.abc import Callable

import numpy as np

from hingeline._checks import Array
from hingeline._jit import kernel, strict_kernel
from hingeline.inference import chain, chain_sums
from hingeline.structures.chain import ChainProblem, find_path, moves, position_scores

BINS = 1000  # Bins of a certificate: what the bound exceeds the sum by is mostly below 1e-4 of it.


def summed_slack_above(problem: ChainProblem) -> Callable[[Array, Array, Array], None]:
    """The bound from above, as solvers ask for it."""

    def fill(order: Array, w: Array, out: Array) -> None:
        found = np.empty((len(out), 4))
        summed_slack_all(problem, order, w, BINS, found)
        out[order] = found[order, 1]

    return fill


@kernel
def summed_slack_all(problem: ChainProblem, order: Array, w: Array, bins: int, out: Array) -> None:
    """Bounds on ``Σ_y [l_i(y) − w·Δf_i(y)]₊`` and on the number of outputs with a positive term.

    The loss of the true labels is 0, so they are the path that the others are compared with. Rows
    of ``out`` are what :func:`hingeline.inference.chain_sums.better_paths` writes.
    """
    A = moves(problem, w)
    for i in order:
        truth = problem.labels[problem.offsets[i] : problem.offsets[i + 1]]
        scores = position_scores(problem, i, w, 1.0)
        chain_sums.better_paths(scores, A, problem.n_labels, truth, bins, out[i])


# Expected features of chains under the log-linear model, feature by feature.
#
# ``p(y | x) ∝ exp(w·f(x, y))``, with the weights and masks of :mod:`hingeline.structures.chain`.
# Two kernels share the work: one computes the probabilities of labels and moves, sequence by
# sequence; the other sums those of labels over the tokens of each feature. Each writes only what
# belongs to its own sequences or features, so that results do not depend on threads.


@kernel
def expect_all(
    problem: ChainProblem,
    order: Array,
    cuts: Array,
    w: Array,
    weights: Array,
    unary: Array,
    enter: Array,
    first: int,
    nodes: Array,
    stays: Array,
    moved: Array,
    ends: Array,
    log_z: Array,
) -> None:
    """Probabilities of labels and moves in some parts; c is ``cuts[c] ≤ i < cuts[c + 1]``.

    Every probability is multiplied by the entry of its sequence in ``weights`` (n,). ``unary``
    (tokens, stride), or without rows, is added to the score of a token's label, and ``enter``
    likewise where that differs from the one before. ``first`` is the token of the first row of
    ``nodes`` and ``stays`` (tokens of a block, stride), which are written as by
    :func:`hingeline.inference.chain_sums.log_sums`; ``stays`` may have no rows. ``moved[c]``
    (labels, stride) gains the expected numbers of moves, ``ends[c]`` (2, stride) the probabilities
    of first and last labels; ``log_z`` (n,) is written.
    """
    A = moves(problem, w)
    n_labels = problem.n_labels
    scaled = chain_sums.scale_moves(A, n_labels)
    for c in order:
        for i in range(cuts[c], cuts[c + 1]):
            a, b = problem.offsets[i], problem.offsets[i + 1]
            scores = position_scores(problem, i, w, 0.0)
            if unary.shape[0] > 0:
                for t in range(a, b):
                    for k in range(n_labels):
                        scores[t - a, k] += unary[t, k]
            entered = enter[a:b] if enter.shape[0] > 0 else enter
            own = nodes[a - first : b - first]
            stayed = stays[a - first : b - first] if stays.shape[0] > 0 else stays
            out = (own, stayed, moved[c])
            value = chain_sums.scaled_sums(scores, scaled, entered, n_labels, weights[i], out)
            if np.isnan(value):
                value = chain_sums.log_sums(scores, A, entered, n_labels, weights[i], out)
            log_z[i] = value
            if value == -np.inf:
                continue
            for k in range(n_labels):
                ends[c, 0, k] += own[0, k]
                ends[c, 1, k] += own[b - a - 1, k]


@strict_kernel
def add_by_feature(
    indptr: Array, tokens: Array, values: Array, features: Array, nodes: Array, out: Array
) -> None:
    """``out[f] += Σ_t x_tf·nodes[t]`` for some features; the matrix is CSC."""
    stride = nodes.shape[1]
    total = np.empty(stride)
    for f in features:
        total[:] = 0.0
        for p in range(indptr[f], indptr[f + 1]):
            v = values[p]
            row = nodes[tokens[p]]
            for k in range(stride):
                total[k] += v * row[k]
        for k in range(stride):
            out[f, k] += total[k]


@kernel
def decode_all(problem: ChainProblem, order: Array, w: Array, y_out: Array, values: Array) -> None:
    """Best label of every token; ``values[i]`` is the score of sequence i."""
    A = moves(problem, w)
    for i in order:
        scores = position_scores(problem, i, w, 0.0)
        y = y_out[problem.offsets[i] : problem.offsets[i + 1]]
        values[i] = find_path(problem, scores, A, y)


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
        lo, hi = problem.offsets[i], problem.offsets[i + 1]
        ys = paths[n * lo : n * hi].reshape((n, hi - lo))
        scores = position_scores(problem, i, w, 0.0)
        counts[i] = chain.n_best(scores, A, problem.n_labels, ys, values[i])


@kernel
def max_marginals_all(problem: ChainProblem, order: Array, w: Array, out: Array) -> None:
    """Max-marginals of every token; ``out`` is (tokens, labels)."""
    A = moves(problem, w)
    for i in order:
        own = out[problem.offsets[i] : problem.offsets[i + 1]]
        chain.max_marginals(position_scores(problem, i, w, 0.0), A, problem.n_labels, own)


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
        best = chain.max_sum(forward, A, problem.n_labels, y)
        behind = chain.continuations(scores, A, problem.n_labels)
        for s in range(bounds[i], bounds[i + 1]):
            other = chain.best_without_span(scores, forward, behind, A, (inside, kind_of), spans[s])
            out[s] = max(best - other, 0.0)  # rounding aside it is not negative
