"""Sequences laid out for the kernels, and the masks that forbid some of their outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import helper
from hingeline.structures.base import Compiled

Array = np.ndarray[Any, Any]

#: Sequences up to this length keep the inner products of their tokens (Gram table).
GRAM_LENGTH = 128


class ChainProblem(NamedTuple):
    """Sequences as one CSR matrix of tokens; see :mod:`hingeline.structures.chain` for weights.

    Masks hold 0 where a label or a move is allowed and ``−inf`` where it is not; they are empty
    where nothing is forbidden, so that decoding without them costs nothing.
    """

    indptr: Array  # (tokens + 1,) int64
    indices: Array  # int32
    values: Array  # float64 or float32
    offsets: Array  # (n + 1,) int64: the tokens of sequence i
    labels: Array  # (tokens,) int32
    cost: Array  # (labels, stride) float64
    token_gram: Array  # NaN where not yet computed
    gram_start: Array  # (n,) int64, −1 where a sequence has no table
    end_masks: Array  # (2, stride): first and last label; or (0, stride)
    move_mask: Array  # (labels, stride); or (0, stride)
    token_mask: Array  # (tokens, stride); or (0, stride)
    n_features: int
    n_labels: int
    stride: int
    boundary: int  # 1 if there are start and end weights


def padded(n_labels: int) -> int:
    """Length of a label row: the next multiple of four, one vector of doubles."""
    return (n_labels + 3) // 4 * 4


@helper
def emission(problem: ChainProblem, w: Array) -> Array:
    """``E[feature, label]``, a view."""
    d = problem.n_features
    s = problem.stride
    return w[: d * s].reshape((d, s))


@helper
def transition(problem: ChainProblem, w: Array) -> Array:
    """``A[from, to]``, a view."""
    d = problem.n_features
    s = problem.stride
    m = problem.n_labels
    return w[d * s : (d + m) * s].reshape((m, s))


def compile_problem(problem: ChainProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    rows = problem.n_features + problem.n_labels + 2 * problem.boundary
    return Compiled(
        problem,
        lengths=np.diff(problem.offsets),
        n_weights=int(rows * problem.stride),
        scratch_size=int(problem.n_features + problem.n_labels * problem.stride),
    )


def make_problem(
    indptr: Array,
    indices: Array,
    values: Array,
    offsets: Array,
    labels: Array,
    n_features: int,
    cost: Array,
    boundary: bool,
    cache_mb: float = 512.0,
    stride: int | None = None,
) -> ChainProblem:
    """Lay out sequences for the kernels; ``cost`` is (labels, labels).

    A longer ``stride`` than labels need, and more features than tokens have, leave room to grow.
    """
    n_labels = cost.shape[0]
    stride = padded(n_labels) if stride is None else stride
    padded_cost = np.zeros((n_labels, stride))
    padded_cost[:, :n_labels] = cost
    lengths = np.diff(offsets)
    sizes = np.where(lengths <= GRAM_LENGTH, lengths * (lengths + 1) // 2, 0)
    ends = np.cumsum(sizes)
    kept = (sizes > 0) & (ends * 8 <= cache_mb * 2**20)
    gram_start = np.where(kept, ends - sizes, -1)
    return ChainProblem(
        indptr=np.ascontiguousarray(indptr, dtype=np.int64),
        indices=np.ascontiguousarray(indices, dtype=np.int32),
        values=np.ascontiguousarray(values),
        offsets=np.ascontiguousarray(offsets, dtype=np.int64),
        labels=np.ascontiguousarray(labels, dtype=np.int32),
        cost=padded_cost,
        token_gram=np.full(int(ends[kept].max(initial=0)), np.nan),
        gram_start=gram_start.astype(np.int64),
        end_masks=np.zeros((0, stride)),
        move_mask=np.zeros((0, stride)),
        token_mask=np.zeros((0, stride)),
        n_features=int(n_features),
        n_labels=int(n_labels),
        stride=int(stride),
        boundary=int(boundary),
    )


def constrain(
    problem: ChainProblem,
    valid: tuple[Array, Array, Array] | None = None,
    allowed: Array | None = None,
) -> ChainProblem:
    """The problem with some outputs forbidden.

    Parameters
    ----------
    problem : ChainProblem
    valid : (start, move, end), optional
        Boolean: labels a sequence may begin with (labels,), moves ``[from, to]`` and labels it
        may end with.
    allowed : bool ndarray of shape (tokens, labels), optional
    """

    def mask(table: Array) -> Array:
        # The padding stays 0: no result ever looks at it, and −inf there would gain nothing.
        out = np.zeros((len(table), problem.stride))
        out[:, : problem.n_labels][~table] = -np.inf
        return out

    if valid is not None:
        start, move, end = valid
        problem = problem._replace(end_masks=mask(np.array([start, end])), move_mask=mask(move))
    if allowed is not None:
        problem = problem._replace(token_mask=mask(allowed))
    return problem
