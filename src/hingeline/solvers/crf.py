"""Log-linear chains: expected features, and the weights of largest penalised likelihood.

With weights c_i of the sequences and a vector of features that are observed, or expected under
some other distribution q, ``target = Σ_i c_i·E_q[f(x_i, y)]``, this is minimised::

    P(w) = ½‖w‖² + Σ_i c_i·log Z_i(w) − w·target

P is strongly convex, and the distributions of w itself are a feasible point of its dual
``D = Σ_i c_i·H(p_i) − ½‖target − Σ_i c_i·E_p[f]‖²`` (plus what is constant). There
``P(w) − D = ½‖∇P(w)‖²``: the certificate costs nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline._jit import kernel, strict_helper, working_time
from hingeline.core.loop import warn_unfinished
from hingeline.core.primitives import PART, Workers, rows_of
from hingeline.core.results import HistoryRow, Result, relative
from hingeline.structures.chain import ChainProblem, compile_problem, layout_of
from hingeline.structures.chain_batch import add_by_feature, expect_all

# Limited-memory BFGS for smooth, strongly convex functions of many variables.
#
# Written here because SciPy's L-BFGS-B spends more time on bounds that are not there than a chain
# needs for its gradient, and sums by a BLAS whose threads get into the way of ours.

MEMORY = 10  # Pairs of steps and changes of the gradient that are remembered.
SUFFICIENT = 1e-4  # A step must bring this share of what the slope promises.
MAX_TRIALS = 30  # Trials along one direction.


@strict_helper
def _add(out: Array, step: float, a: Array) -> None:
    for k in range(out.shape[0]):
        out[k] += step * a[k]


@kernel
def dot(a: Array, b: Array) -> float:
    """``a·b``, summed the same way whatever other threads do."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@kernel
def quasi_newton(
    gradient: Array, steps: Array, changes: Array, first: int, count: int, out: Array
) -> None:
    """``out = −H·gradient`` with the inverse Hessian of the pairs remembered (two-loop recursion).

    Rows ``first, first + 1, …`` of ``steps`` and ``changes``, taken round, are the ``count`` pairs
    from the oldest to the newest.
    """
    size, rows = gradient.shape[0], steps.shape[0]
    share, inner = np.empty(count), np.empty(count)
    for k in range(size):
        out[k] = -gradient[k]
    for c in range(count - 1, -1, -1):
        s, y = steps[(first + c) % rows], changes[(first + c) % rows]
        inner[c] = dot(s, y)
        share[c] = dot(s, out) / inner[c]
        _add(out, -share[c], y)
    if count > 0:
        y = changes[(first + count - 1) % rows]
        scale = inner[count - 1] / dot(y, y)
        for k in range(size):
            out[k] *= scale
    for c in range(count):
        s, y = steps[(first + c) % rows], changes[(first + c) % rows]
        _add(out, share[c] - dot(y, out) / inner[c], s)


def descend(function: Callable[[Array], tuple[float, Array]], start: Array) -> None:
    """Minimise ``w -> (value, gradient)`` until it raises, or no step goes further down."""
    w = np.array(start, dtype=np.float64)
    size = len(w)
    steps, changes = np.empty((MEMORY, size)), np.empty((MEMORY, size))
    first = count = 0
    direction = np.empty(size)
    value, gradient = function(w)
    while True:
        quasi_newton(gradient, steps, changes, first, count, direction)
        slope = dot(direction, gradient)
        if not slope < 0.0:
            return
        # Without a memory of the curvature a step of unit length is safe to begin with.
        step = 1.0 if count else min(1.0, 1.0 / np.sqrt(-slope))
        for _ in range(MAX_TRIALS):
            tried = w + step * direction
            new_value, new_gradient = function(tried)
            if new_value <= value + SUFFICIENT * step * slope:
                break
            # The parabola through value, slope and new value; not too far at once.
            bend = new_value - value - step * slope
            best = -0.5 * slope * step * step / bend if np.isfinite(bend) and bend > 0 else 0.0
            step = min(max(best, 0.1 * step), 0.5 * step)
        else:
            return
        at = (first + count) % MEMORY
        np.subtract(tried, w, out=steps[at])
        np.subtract(new_gradient, gradient, out=changes[at])
        if dot(steps[at], changes[at]) > 0.0:
            first, count = (first + (count == MEMORY)) % MEMORY, min(count + 1, MEMORY)
        elif count == MEMORY:  # rounding alone; the oldest pair was overwritten
            first, count = (first + 1) % MEMORY, count - 1
        w, value, gradient = tried, new_value, new_gradient


#: Probabilities of a block of sequences take at most this many numbers (or one sequence).
BLOCK_NUMBERS = 2**22
#: A block's sequences are cut into so many parts, whose expected moves are summed in order.
PARTS = 16
LEAST_PART = 8  # A part has at least so many sequences.


class _Block(NamedTuple):
    """Some sequences, and their tokens by feature (CSC)."""

    cuts: Array  # the parts: sequences cuts[c] to cuts[c + 1] − 1
    first: int  # its first token
    n_tokens: int
    indptr: Array
    tokens: Array
    values: Array
    features: Array  # those that occur


class ChainExpectations:
    """Expectations over all labellings, summed in the same order for any number of threads."""

    def __init__(self, problem: ChainProblem, workers: Workers) -> None:
        self.problem, self.workers = problem, workers
        self.n = len(problem.offsets) - 1
        self.n_weights = compile_problem(problem).n_weights
        self.nothing = np.zeros((0, problem.stride))
        self._blocks = self._cut()

    def _cut(self) -> list[_Block]:
        problem, offsets = self.problem, self.problem.offsets
        matrix = rows_of(problem)
        room = max(BLOCK_NUMBERS // problem.stride, 1)
        blocks, lo = [], 0
        while lo < self.n:
            hi = int(np.searchsorted(offsets, offsets[lo] + room, side="right")) - 1
            hi = max(hi, lo + 1)
            parts = max(1, min(PARTS, (hi - lo) // LEAST_PART))
            columns = matrix[offsets[lo] : offsets[hi]].tocsc()
            cuts = lo + (hi - lo) * np.arange(parts + 1) // parts
            size, present = int(offsets[hi] - offsets[lo]), np.flatnonzero(np.diff(columns.indptr))
            places = (columns.indptr.astype(np.int64), columns.indices.astype(np.int64))
            blocks.append(_Block(cuts, int(offsets[lo]), size, *places, columns.data, present))
            lo = hi
        return blocks

    def features(
        self, w: Array, weights: Array, unary: Array | None = None, enter: Array | None = None
    ) -> tuple[Array, Array]:
        """Log Z of every sequence, and ``Σ_i weights_i·E[f(x_i, y)]`` as a flat vector.

        ``unary`` and ``enter``, both (tokens, stride), are added to the scores of labels, and of
        labels that differ from the one before.
        """
        log_z, total = np.empty(self.n), np.zeros(self.n_weights)
        tables = {name: b.padded(total) for name, b in layout_of(self.problem).items()}
        for block in self._blocks:
            nodes = np.zeros((block.n_tokens, self.problem.stride))
            found = (nodes, self.nothing, log_z)
            moved, ends = self._expect(block, w, weights, (unary, enter), block.first, *found)
            tables["transition"] += moved
            if self.problem.boundary:
                tables["start"] += ends[0]
                tables["end"] += ends[1]
            rows, out = (block.indptr, block.tokens, block.values), tables["emission"]
            self.workers.over(block.features, add_by_feature, *rows, PART, nodes, out)
        return log_z, total

    def marginals(
        self, w: Array, unary: Array | None = None, enter: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Log Z of every sequence, and ``P(y_t = k)`` and ``P(y_{t−1} = y_t = k)`` of every token.

        The second is 0 at the first token of a sequence. Columns beyond the labels are padding.
        """
        log_z, ones = np.empty(self.n), np.ones(self.n)
        nodes, stays = np.zeros((2, int(self.problem.offsets[-1]), self.problem.stride))
        for block in self._blocks:
            self._expect(block, w, ones, (unary, enter), 0, nodes, stays, log_z)
        return log_z, nodes, stays

    def _expect(
        self, block: _Block, w: Array, weights: Array, added: Any, first: int, *out: Array
    ) -> tuple[Array, Array]:
        """Fill nodes, stays and log Z; expected moves and ends. ``added`` is (unary, enter)."""
        nodes, stays, log_z = out
        extra, entry = (self.nothing if part is None else part for part in added)
        parts, stride = len(block.cuts) - 1, self.problem.stride
        moved = np.zeros((parts, self.problem.n_labels, stride))
        ends = np.zeros((parts, 2, stride))
        known = (self.problem, PART, block.cuts, w, weights, extra, entry, first)
        self.workers.over(np.arange(parts), expect_all, *known, nodes, stays, moved, ends, log_z)
        return moved.sum(axis=0), ends.sum(axis=0)


def observed_features(problem: ChainProblem, weights: Array) -> Array:
    """``Σ_i weights_i·f(x_i, y_i)`` with the labels of the problem, as a flat vector."""
    n_tokens, stride = len(problem.labels), problem.stride
    offsets, labels = problem.offsets, problem.labels
    by_token = np.repeat(weights, np.diff(offsets))
    seen = sp.csr_matrix((by_token, labels, np.arange(n_tokens + 1)), shape=(n_tokens, stride))
    layout = layout_of(problem)
    total = np.zeros(layout.size)
    layout["emission"].padded(total)[:] = (rows_of(problem).T.astype(np.float64) @ seen).toarray()
    inside = np.ones(n_tokens, dtype=bool)
    inside[offsets[:-1]] = False
    after = np.flatnonzero(inside)
    pairs = labels[after - 1], labels[after]
    np.add.at(layout["transition"].table(total), pairs, by_token[after])
    if problem.boundary:
        np.add.at(layout["start"].table(total)[0], labels[offsets[:-1]], weights)
        np.add.at(layout["end"].table(total)[0], labels[offsets[1:] - 1], weights)
    return total


class _Stop(Exception):
    """The certificate is good enough, or there were passes enough."""


def minimise_log_loss(
    expectations: ChainExpectations,
    weights: Array,
    target: Array,
    *,
    start: Array | None = None,
    tol: float = 1e-4,
    max_iter: int = 1000,
    name: str = "ChainCRF",
    started: float | None = None,
) -> Result:
    """Minimise P by L-BFGS until its certified relative gap is at most ``tol``.

    ``weights`` are the c_i, C times the weights of the sequences; ``max_iter`` counts passes over
    the data, evaluations of P and its gradient. The curve counts from the time ``started``.
    """
    began = working_time() if started is None else started
    history: list[HistoryRow] = []
    best: Array | None = None
    least, dual, gap = np.inf, -np.inf, np.inf

    def evaluate(w: Array) -> tuple[float, Array]:
        """P and its gradient; the best certificate among the points visited is kept."""
        nonlocal best, least, dual, gap
        log_z, expected = expectations.features(w, weights)
        gradient = w + expected - target
        primal = 0.5 * dot(w, w) + dot(weights, log_z) - dot(w, target)
        dual = max(dual, primal - 0.5 * dot(gradient, gradient))
        if primal < least or best is None:
            least, best = primal, w.copy()
        gap = max(least - dual, 0.0)
        passes = len(history) + 1
        calls, seconds = passes * expectations.n, working_time() - began
        history.append(HistoryRow(seconds, passes, calls, least, dual, gap, estimate=gap, planes=0))
        if relative(gap, least) <= tol or passes >= max_iter:
            raise _Stop
        return primal, gradient

    reason = "L-BFGS found no further descent"
    try:
        descend(evaluate, np.zeros(expectations.n_weights) if start is None else start)
    except _Stop:
        reason = f"max_iter={max_iter}"
    except KeyboardInterrupt:
        if best is None:
            raise
        reason = "interrupted"
    assert best is not None
    gap = max(least - dual, 0.0)
    rel = relative(gap, least)
    if rel <= tol:
        reason = "converged"
    else:
        remedy = "raise max_iter, loosen tol, lower C, or scale the features"
        rest = f"its certified relative gap is {rel:.3g}, above tol={tol:g}: {remedy}"
        warn_unfinished(name, len(history), reason, rest)
    certificate = (best, least, dual, gap, rel, len(history), rel <= tol)
    return Result(*certificate, True, True, False, reason, history)
