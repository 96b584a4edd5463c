"""Multi-class: one label per example, one weight vector per class (Crammer and Singer).

``w·f(x, y) = x·W[y]``; the flat weight vector is ``W[feature, class]`` with rows padded to
``stride``. The loss is ``cost[true class, predicted class]``. The outputs are few enough that all
of them are the working set: ``all_scores`` reads every class in one sweep over x.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline._jit import by_reference, helper, kernel, prefetch, strict_helper
from hingeline._simd import largest, row_add, row_dot, rows_add, rows_add_few, rows_dot
from hingeline.core.primitives import Compiled, Layout, pad_row, put_product, register, stack_blocks

FAR = 524288  # Weight vectors up to this length are near enough that sending for them costs more.
PRODUCT_FLOPS = 4e4  # What a call of a matrix product costs, in steps of a loop.
FEW_PAIRS = 0.15  # Loops over this share of all pairs of examples and classes beat matrix products.


@by_reference
class MulticlassProblem(NamedTuple):
    """Examples as CSR rows; see the module's head for the weights."""

    indptr: Array  # (n + 1,) int64
    indices: Array  # int32
    values: Array  # float64 or float32
    labels: Array  # (n,) int32
    cost: Array  # (classes, stride) float64
    sqnorm: Array  # (n,) ‖x_i‖²
    n_features: int
    n_labels: int
    stride: int
    costly: int  # 1 if every wrong class has a loss above 0


def layout(
    n_features: int, n_labels: int, *, constant: bool = False, stride: int | None = None
) -> Layout:
    """Where the weights lie: rows of classes by feature, a constant one behind the others."""
    rows = {"coef": n_features, **({"intercept": 1} if constant else {})}
    return stack_blocks(rows, n_labels, pad_row(n_labels) if stride is None else stride)


def make_problem(
    indptr: Array,
    indices: Array,
    values: Array,
    labels: Array,
    n_features: int,
    cost: Array,
    stride: int | None = None,
) -> MulticlassProblem:
    """Lay out CSR rows for the kernels; ``cost`` is (classes, classes).

    A longer ``stride`` leaves room for classes; at most ``PADDING`` more than there are.
    """
    n_labels = cost.shape[0]
    stride = pad_row(n_labels) if stride is None else stride
    padded_cost = np.zeros((n_labels, stride))
    padded_cost[:, :n_labels] = cost
    with np.errstate(over="ignore"):  # estimators refuse it
        squares = np.asarray(values, dtype=np.float64) ** 2
    table = sp.csr_matrix((squares, indices, indptr), (len(indptr) - 1, n_features))
    sqnorm = table @ np.ones(n_features)
    sqnorm[sqnorm < 1e-300] = 0.0  # its inverse may overflow
    return MulticlassProblem(
        indptr=np.ascontiguousarray(indptr, dtype=np.int64),
        indices=np.ascontiguousarray(indices, dtype=np.int32),
        values=np.ascontiguousarray(values),
        labels=np.ascontiguousarray(labels, dtype=np.int32),
        cost=padded_cost,
        sqnorm=sqnorm,
        n_features=int(n_features),
        n_labels=int(n_labels),
        stride=int(stride),
        costly=int((cost[~np.eye(n_labels, dtype=bool)] > 0.0).all()),
    )


def compile_problem(problem: MulticlassProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    stride = problem.stride
    size = layout(problem.n_features, problem.n_labels, stride=stride).size
    with np.errstate(over="ignore"):
        squares = 2.0 * problem.sqnorm
    return Compiled(
        problem,
        lengths=np.ones(len(problem.labels), dtype=np.int64),
        n_weights=size,
        end=problem.n_labels,
        n_outputs=problem.n_labels,
        output_losses=lambda: problem.cost[problem.labels, : problem.n_labels],
        output_squares=squares,
        matrix_size=problem.n_features * problem.n_labels,
        matrix_order=lambda: np.arange(size).reshape(-1, stride)[:, : problem.n_labels].T.ravel(),
        isotropic=problem.costly == 1 and bool(problem.sqnorm.all()),
        curvature=partial(add_curvature, problem, is_dense(problem)),
        multiply_curvature=partial(multiply_curvature, problem),
    )


def is_dense(problem: MulticlassProblem) -> bool:
    """Whether every row has every feature, in order."""
    return bool((np.diff(problem.indptr) == problem.n_features).all())


def multiply_curvature(
    problem: MulticlassProblem, scales: Array, rho: Array, sigma: Array
) -> tuple[Callable[[Array], Array], Array]:
    """What multiplies vectors by the matrix of :func:`add_curvature`, and its diagonal."""
    d, m = problem.n_features, problem.n_labels
    some = np.flatnonzero(scales.any(axis=1))
    if np.count_nonzero(scales) < FEW_PAIRS * len(some) * m:
        return multiply_few_pairs(problem, some, scales, rho, sigma)
    if is_dense(problem):
        x, squares = (x := problem.values.reshape(-1, d)[some]), x**2
    else:
        shape = (len(problem.labels), d)
        x = sp.csr_matrix((problem.values, problem.indices, problem.indptr), shape)[some]
        squares = x.multiply(x)
    everyone, own, scales = np.arange(len(some)), problem.labels[some], scales[some]
    sigma, rho = sigma[some, None], rho[some, None]

    def spread(steps: Array, total: Array) -> Array:
        steps[everyone, own] = total
        return steps

    def multiply(vector: Array) -> Array:
        scores = x @ vector.reshape(d, -1)[:, :m]
        lead = scales * (scores[everyone, own][:, None] - scores)
        steps = (sigma * scales) * (rho * lead.sum(axis=1, keepdims=True) - lead)
        out = np.zeros((d, problem.stride))
        out[:, :m] = x.T @ spread(steps, -steps.sum(axis=1))
        return out.ravel()

    own_part = sigma[:, 0] * ((scales**2).sum(axis=1) - rho[:, 0] * scales.sum(axis=1) ** 2)
    diagonal = np.zeros((d, problem.stride))
    diagonal[:, :m] = squares.T @ spread(sigma * (1.0 - rho) * scales**2, own_part)
    return multiply, diagonal.ravel()


def multiply_few_pairs(
    problem: MulticlassProblem, some: Array, scales: Array, rho: Array, sigma: Array
) -> tuple[Callable[[Array], Array], Array]:
    """:func:`multiply_curvature` for few free classes of ``some`` examples, pair by pair."""
    d, m, stride = problem.n_features, problem.n_labels, problem.stride
    rows, classes = np.nonzero(scales)
    scale, sigma, rho = scales[rows, classes], sigma[rows], rho[rows]
    first = np.flatnonzero(np.diff(rows, prepend=-1))  # pairs of an example stand together
    place = np.repeat(np.arange(len(some)), np.diff(first, append=len(rows)))
    # An example's own class moves as much as its free ones, the other way.
    pairs = np.concatenate([some, rows]), np.concatenate([problem.labels[some], classes])

    def add(problem: MulticlassProblem, own: Array, steps: Array) -> Array:
        table, out = np.zeros((m, d)), np.zeros((d, stride))
        add_pairs(problem, *pairs, np.concatenate([own, steps]), table)
        out[:, :m] = table.T
        return out.ravel()

    def multiply(vector: Array) -> Array:
        table = np.ascontiguousarray(vector.reshape(d, stride)[:, :m].T)
        scores = np.empty(len(pairs[0]))
        score_pairs(problem, *pairs, table, scores)
        lead = scale * (scores[place] - scores[len(some) :])
        steps = sigma * scale * (rho * np.add.reduceat(lead, first)[place] - lead)
        return add(problem, -np.add.reduceat(steps, first), steps)

    own = np.add.reduceat(sigma * scale**2, first)
    own -= (sigma * rho)[first] * np.add.reduceat(scale, first) ** 2
    squares = problem._replace(values=problem.values**2)
    return multiply, add(squares, own, sigma * (1.0 - rho) * scale**2)


@kernel
def score_pairs(
    problem: MulticlassProblem, examples: Array, classes: Array, table: Array, out: Array
) -> None:
    """``x_i·table[k]`` of pairs of an example and a class; the table is (classes, features)."""
    indptr, indices, values = problem.indptr, problem.indices, problem.values
    for p in range(examples.shape[0]):
        out[p] = row_dot(indptr, indices, values, examples[p], table[classes[p]])


@kernel
def add_pairs(
    problem: MulticlassProblem, examples: Array, classes: Array, steps: Array, table: Array
) -> None:
    """``table[k] += step·x_i`` for pairs of an example and a class, each with a step."""
    indptr, indices, values = problem.indptr, problem.indices, problem.values
    for p in range(examples.shape[0]):
        row_add(indptr, indices, values, examples[p], steps[p], table[classes[p]])


@kernel
def add_rows(
    problem: MulticlassProblem, scales: Array, rho: Array, sigma: Array, matrix: Array
) -> None:
    """:func:`add_curvature`, example by example."""
    d = problem.n_features
    chosen, steps = np.empty(scales.shape[1], dtype=np.int64), np.empty(scales.shape[1])
    for i in range(scales.shape[0]):
        count = 0
        total = square = 0.0
        for k in range(scales.shape[1]):
            if scales[i, k] != 0.0:
                chosen[count], steps[count] = k, scales[i, k]
                total += scales[i, k]
                square += scales[i, k] * scales[i, k]
                count += 1
        lo, hi = problem.indptr[i], problem.indptr[i + 1]
        own = problem.labels[i]
        for a in range(-1 if count > 0 else 0, count):
            for b in range(a, count):
                # F is Σ_j s_j (e_own − e_j) ⊗ x: the entry of its square at the classes p, q.
                if a == -1 and b == -1:
                    entry = square - rho[i] * total * total
                elif a == -1:
                    entry = -steps[b] * steps[b] + rho[i] * total * steps[b]
                else:
                    entry = -rho[i] * steps[a] * steps[b]
                    if a == b:
                        entry += steps[a] * steps[a]
                entry *= sigma[i]
                p = own if a == -1 else chosen[a]
                q = own if b == -1 else chosen[b]
                if p > q:
                    p, q = q, p
                if hi - lo == d:
                    x = problem.values[lo:hi]
                    for f in range(d):
                        value = entry * x[f]
                        row = matrix[p * d + f, q * d : (q + 1) * d]
                        for g in range(d):
                            row[g] += value * x[g]
                else:
                    for f in range(lo, hi):
                        value = entry * problem.values[f]
                        row = p * d + problem.indices[f]
                        for g in range(lo, hi):
                            matrix[row, q * d + problem.indices[g]] += value * problem.values[g]


def add_curvature(
    problem: MulticlassProblem, dense: bool, scales: Array, rho: Array, sigma: Array, matrix: Array
) -> None:
    """Add to Newton's matrix, see :class:`.Compiled`; rows and columns are features within classes.

    ``scales`` (examples, classes) are 0 where multipliers are not free. Many dense rows are added
    by matrix products.
    """
    d, m = problem.n_features, problem.n_labels
    some = np.flatnonzero(scales.any(axis=1))
    entries = (np.count_nonzero(scales[some], axis=1) + 1) ** 2
    if not dense or float(entries.sum()) * d * d < PRODUCT_FLOPS * m * m:
        return add_rows(problem, scales, rho, sigma, matrix)
    x = problem.values.reshape(-1, d)[some]
    own, scales, sigma = problem.labels[some], scales[some], sigma[some]
    squares = sigma[:, None] * scales**2
    shared = scales.copy()  # Σ_j s_j (e_own − e_j), up to its sign
    shared[np.arange(len(some)), own] = -scales.sum(axis=1)
    coupled = (-rho[some] * sigma)[:, None] * shared
    blocks = matrix.reshape(m, d, m, d)
    for p in range(m):
        for q in range(p, m):
            weight = coupled[:, p] * shared[:, q]
            if p == q:
                weight += squares[:, p] + np.where(own == p, squares.sum(axis=1), 0.0)
            else:
                weight -= np.where(own == p, squares[:, q], 0.0)
                weight -= np.where(own == q, squares[:, p], 0.0)
            rows = np.flatnonzero(weight)
            part = x[rows]
            blocks[p, :, q] += part.T @ (part * weight[rows, None])


@helper
def class_scores(problem: MulticlassProblem, i: int, w: Array, loss_scale: float) -> Array:
    """``x_i·W[k]`` for every class, with the scaled loss added."""
    scores = np.empty(problem.stride)
    lo, hi = problem.indptr[i], problem.indptr[i + 1]
    rows_dot(problem.indices, problem.values, lo, hi, w, problem.stride, scores, 0)
    for k in range(problem.n_labels):
        scores[k] += loss_scale * problem.cost[problem.labels[i], k]
    return scores[: problem.n_labels]


@helper
def output_length(problem: MulticlassProblem, i: int) -> int:
    return 1


@helper
def decode(problem: MulticlassProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    scores = class_scores(problem, i, w, loss_scale)
    best = largest(scores, 0, problem.n_labels)
    y_out[0] = best
    return scores[best]


@helper
def plane_score(problem: MulticlassProblem, i: int, y: Array, w: Array) -> float:
    a = problem.labels[i]
    b = y[0]
    total = 0.0
    if a != b:
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            at = problem.indices[p] * problem.stride
            total += problem.values[p] * (w[at + a] - w[at + b])
    return total


@helper
def plane_add(problem: MulticlassProblem, i: int, y: Array, step: float, w: Array) -> None:
    a = problem.labels[i]
    b = y[0]
    if a != b:
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            at = problem.indices[p] * problem.stride
            v = step * problem.values[p]
            w[at + a] += v
            w[at + b] -= v


@helper
def planes_list(
    problem: MulticlassProblem, i: int, ys: Array, steps: Array, code: Array, values: Array
) -> tuple[int, int]:
    m = ys.shape[0]
    columns, amounts = np.empty(m + 1, dtype=np.int64), np.empty(m + 1)
    columns[0], amounts[0] = problem.labels[i], 0.0
    count = 1
    for j in range(m):
        if ys[j, 0] != columns[0]:
            amounts[0] += steps[j]
            columns[count], amounts[count] = ys[j, 0], -steps[j]
            count += 1
    span = (problem.indptr[i], problem.indptr[i + 1], problem.stride)
    row = (problem.indices, problem.values, span, columns, amounts, count)
    return put_product(code, values, (0, 0), *row)


@helper
def plane_sqdist(problem: MulticlassProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    return 0.0 if y[0] == z[0] else 2.0 * problem.sqnorm[i]


@helper
def plane_loss(problem: MulticlassProblem, i: int, y: Array) -> float:
    return problem.cost[problem.labels[i], y[0]]


@helper
def truth(problem: MulticlassProblem, i: int, y_out: Array) -> None:
    y_out[0] = problem.labels[i]


@helper
def decode_by_loss(problem: MulticlassProblem, i: int, w: Array) -> tuple[Array, Array]:
    """Every class, whatever its loss: exact for any cost matrix."""
    losses = problem.cost[problem.labels[i], : problem.n_labels].copy()
    return losses, np.arange(problem.n_labels).astype(np.int32).reshape((problem.n_labels, 1))


@helper
def decode_best(problem: MulticlassProblem, i: int, w: Array, loss_scale: float, ys: Array) -> int:
    scores = class_scores(problem, i, w, loss_scale)
    for k in range(len(scores)):
        scores[k] = -scores[k]
    order = np.argsort(scores, kind="mergesort")
    count = min(problem.n_labels, ys.shape[0])
    for k in range(count):
        ys[k, 0] = order[k]
    return count


@helper
def all_losses(problem: MulticlassProblem, i: int, out: Array) -> None:
    for k in range(problem.n_labels):
        out[k] = problem.cost[problem.labels[i], k]


@helper
def all_scores(problem: MulticlassProblem, i: int, w: Array, out: Array) -> None:
    lo, hi = problem.indptr[i], problem.indptr[i + 1]
    rows_dot(problem.indices, problem.values, lo, hi, w, problem.stride, out, 0)
    own = out[problem.labels[i]]
    for k in range(problem.n_labels):
        out[k] = own - out[k]


@helper
def all_hinges(problem: MulticlassProblem, i: int, w: Array, losses: Array, out: Array) -> None:
    lo, hi = problem.indptr[i], problem.indptr[i + 1]
    rows_dot(problem.indices, problem.values, lo, hi, w, problem.stride, out, 0)
    own = problem.labels[i]
    subtract_leads(problem.cost[own], out[own], problem.n_labels, losses, out)


@strict_helper
def subtract_leads(row: Array, own: float, m: int, losses: Array, out: Array) -> None:
    """Losses less what the own class leads by, in one loop: several take as long as the scores."""
    for k in range(m):
        losses[k] = row[k]
        out[k] = row[k] - (own - out[k])


@helper
def all_add(problem: MulticlassProblem, i: int, steps: Array, w: Array) -> None:
    own = problem.labels[i]
    stride = problem.stride
    total = 0.0
    count = 0
    steps[own] = 0.0
    for k in range(problem.n_labels):
        total += steps[k]
        count += int(steps[k] != 0.0)
        steps[k] = -steps[k]
    if count == 0:
        return
    steps[own] = total
    for k in range(problem.n_labels, stride):
        steps[k] = 0.0
    lo, hi = problem.indptr[i], problem.indptr[i + 1]
    if 8 * (count + 1) >= stride:  # whole vectors beat single entries
        rows_add(problem.indices, problem.values, lo, hi, steps, w, stride)
    else:
        rows_add_few(problem.indices, problem.values, lo, hi, steps, w, stride)


@helper
def all_inner(problem: MulticlassProblem, i: int, j: int, k: int) -> float:
    own = problem.labels[i]
    if j == own or k == own:
        return 0.0
    return problem.sqnorm[i] * (2.0 if j == k else 1.0)


@helper
def all_isotropy(problem: MulticlassProblem, i: int) -> float:
    return problem.sqnorm[i] if problem.costly == 1 else 0.0


@helper
def all_prefetch(problem: MulticlassProblem, i: int, j: int, w: Array) -> None:
    for p in range(problem.indptr[j], problem.indptr[j + 1], 8):
        prefetch(problem.values, p)
    for p in range(problem.indptr[j], problem.indptr[j + 1], 16):
        prefetch(problem.indices, p)
    if w.shape[0] > FAR:
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            first = problem.indices[p] * problem.stride
            for k in range(0, problem.stride, 8):
                prefetch(w, first + k)


register(MulticlassProblem, vars())
