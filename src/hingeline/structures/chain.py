"""Chains: sequences with emission, transition and boundary weights.

An output is one label per position. With tokens ``x_1 … x_T`` and labels ``y_1 … y_T``::

    w·f(x, y) = Σ_t x_t·E[y_t] + Σ_{t>1} A[y_{t−1}, y_t] + a[y_1] + b[y_T]

The flat weight vector holds E feature-major (``E[feature, label]``, rows padded to ``stride``),
then A, then the start weights a and the end weights b. The loss is a sum over positions of
``cost[true label, predicted label]`` (Hamming: 0 on the diagonal, 1 elsewhere).
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_class, by_reference, helper, prefetch
from hingeline._simd import copy, list_some, rows_add, rows_add_few, rows_dot, rows_dot_few
from hingeline.core.primitives import (
    Compiled,
    Layout,
    lay_out_tokens,
    list_differences,
    pad_row,
    put_product,
    register,
    rows_sqdist,
    shift,
    shift_amount,
    stack_blocks,
)
from hingeline.inference import chain as paths

#: Rows at least this long are not read as a whole.
LONG_ROW = paths.MANY_LABELS


@by_reference
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
    gram_row: Array  # (tokens,) int64: ``x_s·x_t`` is at ``gram_row[s] + t``; −1: s has no row
    end_masks: Array  # (2, stride): first and last label; or (0, stride)
    move_mask: Array  # (labels, stride); or (0, stride)
    token_mask: Array  # (tokens, stride); or (0, stride)
    n_features: int
    n_labels: int
    stride: int
    boundary: int  # 1 if there are start and end weights


class PlainChain(ChainProblem):
    """Sequences of few labels with nothing forbidden: kernels are compiled without the rest."""


class ZeroOneChain(ChainProblem):
    """Sequences whose labellings are right or wrong as a whole: ``cost`` is the same everywhere."""


def _for_plain(general: Any, plain: Any) -> None:
    """Let kernels run ``plain`` in place of ``general`` for a :class:`PlainChain`."""
    by_class(general, lambda problem: plain if problem is PlainChain else general)


def layout(
    n_features: int,
    n_labels: int,
    *,
    constant: bool = False,
    boundary: bool = True,
    stride: int | None = None,
) -> Layout:
    """Where the weights lie: rows of labels by feature, then by the label before, start, end.

    ``constant`` puts a constant feature behind the others. Rows are ``stride`` long.
    """
    rows = {
        "emission": n_features,
        **({"intercept": 1} if constant else {}),
        "transition": n_labels,
        **({"start": 1, "end": 1} if boundary else {}),
    }
    return stack_blocks(rows, n_labels, pad_row(n_labels) if stride is None else stride)


def layout_of(problem: ChainProblem) -> Layout:
    """Where the weights of a problem lie, a constant feature among the others."""
    m, boundary = problem.n_labels, bool(problem.boundary)
    return layout(problem.n_features, m, boundary=boundary, stride=problem.stride)


@helper
def transition(problem: ChainProblem, w: Array) -> Array:
    """``A[from, to]``, a view."""
    d, m, s = problem.n_features, problem.n_labels, problem.stride
    return w[d * s : (d + m) * s].reshape((m, s))


def compile_problem(problem: ChainProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    masked = len(problem.end_masks) + len(problem.move_mask) + len(problem.token_mask) > 0
    return Compiled(
        problem,
        lengths=np.diff(problem.offsets),
        n_weights=layout_of(problem).size,
        end=problem.n_labels,
        stretch=None if masked or isinstance(problem, ZeroOneChain) else stretch,
        truths=problem.labels,
    )


def stretch(problem: ChainProblem, starts: Array) -> ChainProblem:
    """Stretches of tokens as sequences, for planes: they end where their planes do.

    A label that is right on either side keeps start and end weights out, and splits the moves.
    """
    return problem._replace(offsets=starts)


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

    A cost on the diagonal, where labels are right, says that every labelling but the true one
    costs as much as any other. A longer ``stride`` than labels need, and more features than tokens
    have, leave room to grow.
    """
    n_labels = cost.shape[0]
    stride = pad_row(n_labels) if stride is None else stride
    padded_cost = np.zeros((n_labels, stride))
    padded_cost[:, :n_labels] = cost
    kind = PlainChain if stride < LONG_ROW else ChainProblem
    return (ZeroOneChain if cost[0, 0] > 0.0 else kind)(
        **lay_out_tokens(indptr, indices, values, offsets, labels, cache_mb),
        cost=padded_cost,
        **dict.fromkeys(("end_masks", "move_mask", "token_mask"), np.zeros((0, stride))),
        n_features=int(n_features),
        n_labels=int(n_labels),
        stride=int(stride),
        boundary=int(boundary),
    )


def constrain(problem: ChainProblem, valid: Any = None, allowed: Any = None) -> ChainProblem:
    """The problem with some outputs forbidden, by boolean masks.

    ``valid`` are the labels a sequence may begin with, moves ``[from, to]`` and labels it may end
    with; ``allowed`` is (tokens, labels).
    """

    def mask(table: Array) -> Array:
        # The padding stays 0: no result ever looks at it, and −inf there would gain nothing.
        out = np.zeros((len(table), problem.stride))
        out[:, : problem.n_labels][~table] = -np.inf
        return out

    if isinstance(problem, PlainChain):
        problem = ChainProblem(*problem)
    if valid is not None:
        start, move, end = valid
        problem = problem._replace(end_masks=mask(np.array([start, end])), move_mask=mask(move))
    if allowed is not None:
        problem = problem._replace(token_mask=mask(allowed))
    return problem


@helper
def plane_sqdist(problem: ChainProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    length, stride = y.shape[0], problem.stride
    where = list_differences(y, z)
    count = where.shape[0]
    total = rows_sqdist(problem, i, y, z, where, problem.n_labels, scratch)
    # Transitions into each differing position, and out of the last of a run.
    counts = scratch[problem.n_features :]
    for clear in range(2):
        for p in range(count):
            for t in range(where[p], where[p] + 2):
                if t == 0 or t == length or (t > where[p] and y[t] != z[t]):
                    continue
                here = y[t - 1] * stride + y[t]
                there = z[t - 1] * stride + z[t]
                if clear == 0:
                    counts[here] += 1.0
                    counts[there] -= 1.0
                else:
                    total += counts[here] * counts[here]
                    counts[here] = 0.0
                    total += counts[there] * counts[there]
                    counts[there] = 0.0
    if problem.boundary == 1 and count > 0:
        if where[0] == 0:
            total += 2.0
        if where[count - 1] == length - 1:
            total += 2.0
    return total


# All planes of a sequence at once: each position at which any of them differs is visited once.
#
# With few labels the weights of a position's features are summed in whole rows. With many, a row
# is long and planes name only a handful of its labels: those weights are picked out one by one.


@helper
def _fetch_changes(problem: ChainProblem, lo: int, ys: Array, w: Array, differs: Array) -> None:
    """Mark the positions at which any plane differs from the truth, and send for their weights.

    These rows come from far away, and all of them are known before the first is needed.
    """
    m, stride = ys.shape[0], problem.stride
    for t in range(ys.shape[1]):
        some = False
        for j in range(m):
            some = some or ys[j, t] != problem.labels[lo + t]
        differs[t] = some
        if some and stride < LONG_ROW:
            for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                first = problem.indices[p] * stride
                for k in range(0, stride, 8):
                    prefetch(w, first + k)


@helper
def _score_whole_row(problem: Any, lo: int, t: int, ys: Array, w: Array, row: Array) -> None:
    first, last = problem.indptr[lo + t], problem.indptr[lo + t + 1]
    rows_dot(problem.indices, problem.values, first, last, w, problem.stride, row, 0)


def _score_labels(problem: Any, lo: int, t: int, ys: Array, w: Array, row: Array) -> None:
    """``row[k] = Σ_f x_tf W[f, k]`` of the labels k that the truth and the planes have at t."""
    if problem.stride < LONG_ROW:
        _score_whole_row(problem, lo, t, ys, w, row)
        return
    named = np.empty(ys.shape[0] + 1, dtype=np.int64)
    named[0] = problem.labels[lo + t]
    count = 1
    for j in range(ys.shape[0]):
        p = 0
        while p < count and named[p] != ys[j, t]:
            p += 1
        if p == count:
            named[count] = ys[j, t]
            count += 1
    first, last, some = problem.indptr[lo + t], problem.indptr[lo + t + 1], named[:count]
    rows_dot_few(problem.indices, problem.values, first, last, w, problem.stride, some, row)


_for_plain(_score_labels, _score_whole_row)


@helper
def planes_score(problem: ChainProblem, i: int, ys: Array, w: Array, out: Array) -> None:
    lo, stride = problem.offsets[i], problem.stride
    m, length = ys.shape
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    row, differs = np.empty(stride), np.empty(length, dtype=np.bool_)
    out[:] = 0.0
    _fetch_changes(problem, lo, ys, w, differs)
    for t in range(length):
        if differs[t]:
            _score_labels(problem, lo, t, ys, w, row)
        if differs[t] or (t > 0 and differs[t - 1]):
            a = labels[t]
            for j in range(m):
                b = ys[j, t]
                if b != a:
                    out[j] += row[a] - row[b]
                    if t > 0:
                        out[j] += A[labels[t - 1], a] - A[ys[j, t - 1], b]
                elif t > 0 and ys[j, t - 1] != labels[t - 1]:
                    out[j] += A[labels[t - 1], a] - A[ys[j, t - 1], b]
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * stride
        for j in range(m):
            out[j] += w[at + labels[0]] - w[at + ys[j, 0]]
            out[j] += w[at + stride + labels[length - 1]] - w[at + stride + ys[j, length - 1]]


@helper
def _add_whole_rows(problem: Any, t: int, change: Array, w: Array) -> None:
    first, last = problem.indptr[t], problem.indptr[t + 1]
    rows_add(problem.indices, problem.values, first, last, change, w, problem.stride)


def _add_change(problem: Any, t: int, change: Array, w: Array) -> None:
    """``W[f, k] += x_tf·change[k]``, where most labels k have none."""
    if problem.stride < LONG_ROW:
        _add_whole_rows(problem, t, change, w)
    else:
        first, last = problem.indptr[t], problem.indptr[t + 1]
        rows_add_few(problem.indices, problem.values, first, last, change, w, problem.stride)


_for_plain(_add_change, _add_whole_rows)


@helper
def planes_add(problem: ChainProblem, i: int, ys: Array, steps: Array, w: Array) -> None:
    """``w += Σ_j steps_j·Δf(y_j)``: changes of one position are summed, then spread."""
    lo, stride = problem.offsets[i], problem.stride
    m, length = ys.shape
    A = transition(problem, w)
    labels = problem.labels[lo : lo + length]
    change = np.zeros(stride)
    moved = np.empty(m, dtype=np.int64)  # the planes that move
    count = list_some(steps, moved)
    for t in range(length):
        a = labels[t]
        some = False
        for p in range(count):
            j = moved[p]
            b = ys[j, t]
            if b != a:
                some = True
                change[a] += steps[j]
                change[b] -= steps[j]
            if t > 0 and (b != a or ys[j, t - 1] != labels[t - 1]):
                A[labels[t - 1], a] += steps[j]
                A[ys[j, t - 1], b] -= steps[j]
        if some:
            _add_change(problem, lo + t, change, w)
            for p in range(count):
                change[ys[moved[p], t]] = 0.0
            change[a] = 0.0
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * stride
        for j in range(m):
            w[at + labels[0]] += steps[j]
            w[at + ys[j, 0]] -= steps[j]
            w[at + stride + labels[length - 1]] += steps[j]
            w[at + stride + ys[j, length - 1]] -= steps[j]


@helper
def planes_list(
    problem: ChainProblem, i: int, ys: Array, steps: Array, code: Array, values: Array
) -> tuple[int, int]:
    lo, stride = problem.offsets[i], problem.stride
    m, length = ys.shape
    labels = problem.labels[lo : lo + length]
    room = (m + 1) * (length + 1)
    columns, amounts = np.empty(room, dtype=np.int64), np.empty(room)
    # Moves and ends are columns of one row, where the table of transitions begins.
    count = 0
    for t in range(1, length):
        first = count
        for j in range(m):
            if ys[j, t] != labels[t] or ys[j, t - 1] != labels[t - 1]:
                to = labels[t - 1] * stride + labels[t]
                source = ys[j, t - 1] * stride + ys[j, t]
                count = shift_amount(columns, amounts, first, count, to, source, steps[j])
    if problem.boundary == 1:
        for end, t in ((problem.n_labels, 0), (problem.n_labels + 1, length - 1)):
            first = count
            for j in range(m):
                to, source = end * stride + labels[t], end * stride + ys[j, t]
                count = shift_amount(columns, amounts, first, count, to, source, steps[j])
    size = (0, 0)
    if count > 0:
        table = (np.full(1, problem.n_features), np.ones(1), (0, 1, stride))
        size = put_product(code, values, size, *table, columns, amounts, count)
    for t in range(length):
        count = 0
        for j in range(m):
            if ys[j, t] != labels[t]:
                count = shift_amount(columns, amounts, 0, count, labels[t], ys[j, t], steps[j])
        if count > 0:
            span = (problem.indptr[lo + t], problem.indptr[lo + t + 1], stride)
            row = (problem.indices, problem.values, span, columns, amounts, count)
            size = put_product(code, values, size, *row)
    return size


def moves(problem: ChainProblem, w: Array) -> Array:
    """Transition weights, ``−inf`` where a move is forbidden: a view, or a copy with the mask."""
    A = transition(problem, w)
    if problem.move_mask.shape[0] == 0:
        return A
    masked = np.empty((problem.n_labels, problem.stride))
    for j in range(problem.n_labels):
        for k in range(problem.stride):
            masked[j, k] = A[j, k] + problem.move_mask[j, k]
    return masked


_for_plain(moves, transition)


def _forbid_labels(problem: ChainProblem, i: int, scores: Array) -> None:
    """``−inf`` for labels that may not be first, last, or where they are."""
    lo = problem.offsets[i]
    length, stride = scores.shape
    if problem.end_masks.shape[0] > 0:
        for k in range(stride):
            scores[0, k] += problem.end_masks[0, k]
            scores[length - 1, k] += problem.end_masks[1, k]
    if problem.token_mask.shape[0] > 0:
        for t in range(length):
            row = problem.token_mask[lo + t]
            for k in range(stride):
                scores[t, k] += row[k]


_for_plain(_forbid_labels, lambda problem, i, scores: None)


@helper
def position_scores(problem: ChainProblem, i: int, w: Array, loss_scale: float) -> Array:
    """(T, stride) emission scores with boundary weights, masks and the scaled loss added."""
    lo, hi, stride = problem.offsets[i], problem.offsets[i + 1], problem.stride
    scores = np.empty((hi - lo, stride))
    paths.gather_rows(problem.indptr, problem.indices, problem.values, lo, hi, w, scores)
    if problem.boundary == 1:
        at = (problem.n_features + problem.n_labels) * stride
        for k in range(stride):
            scores[0, k] += w[at + k]
            scores[hi - lo - 1, k] += w[at + stride + k]
    if loss_scale != 0.0:
        for t in range(hi - lo):
            row = problem.cost[problem.labels[lo + t]]
            for k in range(stride):
                scores[t, k] += loss_scale * row[k]
    _forbid_labels(problem, i, scores)
    return scores


def find_path(problem: ChainProblem, scores: Array, transitions: Array, y_out: Array) -> float:
    """The best path through ``scores``, and its value."""
    if problem.n_labels < paths.MANY_LABELS:
        return paths.max_sum(scores, transitions, problem.n_labels, y_out)
    return paths.best_path(scores, transitions, problem.n_labels, y_out)


@helper
def _find_path_of_few(problem: Any, scores: Array, transitions: Array, y_out: Array) -> float:
    return paths.max_sum(scores, transitions, problem.n_labels, y_out)


_for_plain(find_path, _find_path_of_few)


@helper
def decode(problem: ChainProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    return find_path(problem, position_scores(problem, i, w, loss_scale), moves(problem, w), y_out)


@helper
def plane_loss(problem: ChainProblem, i: int, y: Array) -> float:
    total = 0.0
    for t in range(y.shape[0]):
        total += problem.cost[problem.labels[problem.offsets[i] + t], y[t]]
    return total


@helper
def _follow_plane(problem: ChainProblem, i: int, y: Array, step: Any, w: Array) -> float:
    """``w += step·Δf``; without a step ``w·Δf``."""
    lo, length, stride = problem.offsets[i], y.shape[0], problem.stride
    labels = problem.labels[lo : lo + length]
    moved = problem.n_features * stride  # where transitions begin
    total = 0.0
    changed = False  # whether the label before differs
    for t in range(length):
        a, b = labels[t], y[t]
        differs = a != b
        if differs:
            for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
                at = problem.indices[p] * stride
                total += shift(w, at + a, at + b, problem.values[p], step)
        if t > 0 and (differs or changed):
            to, source = moved + labels[t - 1] * stride + a, moved + y[t - 1] * stride + b
            total += shift(w, to, source, 1.0, step)
        changed = differs
    if problem.boundary == 1:
        at = moved + problem.n_labels * stride
        total += shift(w, at + labels[0], at + y[0], 1.0, step)
        at += stride
        total += shift(w, at + labels[length - 1], at + y[length - 1], 1.0, step)
    return total


@helper
def plane_score(problem: ChainProblem, i: int, y: Array, w: Array) -> float:
    return _follow_plane(problem, i, y, None, w)


@helper
def plane_add(problem: ChainProblem, i: int, y: Array, step: float, w: Array) -> None:
    _follow_plane(problem, i, y, step, w)


@helper
def decode_by_loss(problem: ChainProblem, i: int, w: Array) -> tuple[Array, Array]:
    """Plain Hamming loss only: other costs are refused before it comes to this."""
    lo, hi = problem.offsets[i], problem.offsets[i + 1]
    best = np.empty(hi - lo + 1)
    ys = np.empty((hi - lo + 1, hi - lo), dtype=np.int32)
    scores = position_scores(problem, i, w, 0.0)
    gold = problem.labels[lo:hi]
    paths.max_sum_by_errors(scores, moves(problem, w), problem.n_labels, gold, best, ys)
    unit = problem.cost[0, 1] if problem.n_labels > 1 else 1.0
    losses = np.empty(hi - lo + 1)
    count = 0
    for errors in range(hi - lo + 1):
        if best[errors] > -np.inf:
            losses[count] = unit * errors
            copy(ys[errors], ys[count])
            count += 1
    return losses[:count], ys[:count]


@helper
def decode_best(problem: ChainProblem, i: int, w: Array, loss_scale: float, ys: Array) -> int:
    values = np.empty(ys.shape[0])
    scores = position_scores(problem, i, w, loss_scale)
    return paths.n_best(scores, moves(problem, w), problem.n_labels, ys, values)


# With zero-one loss the most violated labelling is the best one, or the second best if that is the
# true one.


@helper
def _loss_zero_one(problem: ChainProblem, i: int, y: Array) -> float:
    for t in range(y.shape[0]):
        if y[t] != problem.labels[problem.offsets[i] + t]:
            return problem.cost[0, 0]
    return 0.0


@helper
def _find_wrong(problem: ChainProblem, i: int, w: Array, ys: Array, values: Array) -> int:
    """The two best labellings; which of them is the best of the wrong ones, −1 if none is."""
    scores = position_scores(problem, i, w, 0.0)
    count = paths.n_best(scores, moves(problem, w), problem.n_labels, ys, values)
    if count > 0 and _loss_zero_one(problem, i, ys[0]) > 0.0:
        return 0
    return 1 if count == 2 else -1


@helper
def _decode_zero_one(
    problem: ChainProblem, i: int, w: Array, loss_scale: float, y_out: Array
) -> float:
    ys = np.empty((2, y_out.shape[0]), dtype=np.int32)
    values = np.empty(2)
    wrong = _find_wrong(problem, i, w, ys, values)
    loss = loss_scale * problem.cost[0, 0]
    best = wrong if wrong >= 0 and values[wrong] + loss > values[0] else 0
    copy(ys[best], y_out)
    return values[best] + (loss if best == wrong else 0.0)


@helper
def _decode_by_zero_one(problem: ChainProblem, i: int, w: Array) -> tuple[Array, Array]:
    lo, hi = problem.offsets[i], problem.offsets[i + 1]
    ys = np.empty((2, hi - lo), dtype=np.int32)
    wrong = _find_wrong(problem, i, w, ys, np.empty(2))
    if wrong == 0:
        ys[1] = ys[0]
    copy(problem.labels[lo:], ys[0])
    losses = np.zeros(2)
    losses[1] = problem.cost[0, 0]
    count = 2 if wrong >= 0 else 1
    return losses[:count], ys[:count]


register(ChainProblem, vars())
register(PlainChain, vars())
register(
    ZeroOneChain,
    {name: own for name, own in vars().items() if name != "decode_best"},
    decode=_decode_zero_one,
    plane_loss=_loss_zero_one,
    decode_by_loss=_decode_by_zero_one,
)
