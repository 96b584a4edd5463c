"""What a structure must be able to do, how a kernel finds the code for it, where weights lie.

A *compiled problem* is a ``NamedTuple`` of arrays. Kernels call the primitives below with it;
inside compiled code :func:`hingeline._jit.by_class` picks the implementation by the tuple's class,
in plain Python the same table is looked up at run time. Solvers therefore never mention a
structure, and machine code is found again on disk in the next process.

With ``Δf_i(y) = f(x_i, y_i) − f(x_i, y)``:

``output_length(problem, i)``
    length of the int vector that is an output of example i; by default from ``problem.offsets``
``decode(problem, i, w, loss_scale, y_out)``
    ``max_y w·f(x_i, y) + loss_scale·l_i(y)``; the maximiser is written to ``y_out``
``decode_excess(problem, i, w, loss_scale, y_out)``
    decodes likewise, and says how far the true maximum may lie above the value of ``y_out``: 0
    where decoding is exact, which is taken for granted where a structure does not say otherwise
``plane_score(problem, i, y, w)``
    ``w·Δf_i(y)``
``plane_add(problem, i, y, step, w)``
    ``w += step·Δf_i(y)``; nothing at all for the true output: what would cancel is not added
``planes_score(problem, i, ys, w, out)`` and ``planes_add(problem, i, ys, steps, w)``
    the same for all planes of an example at once, where they can share work; a structure needs
    either these two or those for one plane
``planes_list(problem, i, ys, steps, code, values)``
    optional: what ``planes_add`` adds, as products (:class:`.Changes`) by
    :func:`put_product`; words and values that they take, written as far as there is room; −1 words:
    they cannot be listed
``plane_sqdist(problem, i, y, z, scratch)``
    ``‖f(x_i, y) − f(x_i, z)‖²``; ``scratch`` is zero before and after
``has_column(problem, a, column)`` and ``count_shared(problem, a, b)``
    for :func:`rows_sqdist`: whether label a has a column of the table of tokens, and how many the
    labels a and b both have; by default labels are columns
``plane_loss(problem, i, y)``
    ``l_i(y)``
``truth(problem, i, y_out)``
    writes ``y_i``; by default from ``problem.labels``
``decode_by_loss(problem, i, w)``
    optional: for every loss value that occurs, that value and the best-scoring output with it, as
    two arrays; what slack rescaling and the square-root loss need
``decode_best(problem, i, w, loss_scale, ys)``
    optional: the best outputs under score plus scaled loss, best first, written to the rows of
    ``ys``; how many there are. What summed slack needs beyond the argmax
``all_losses(problem, i, out)``, ``all_scores(problem, i, w, out)``,
``all_add(problem, i, steps, w)``, ``all_inner(problem, i, j, k)``
    optional, for structures with so few outputs that all of them are the working set: losses,
    ``w·Δf_i(k)``, ``w += Σ_k steps_k·Δf_i(k)`` and ``Δf_i(j)·Δf_i(k)``. Scores and steps have
    :data:`PADDING` entries to spare; steps are left in disorder
``all_hinges(problem, i, w, losses, out)``
    with these, both at once: the losses, and losses less scores, without another rounding
``all_isotropy(problem, i)``
    the s in ``Δf_i(j)·Δf_i(k) = s·(1 + [j = k])`` for wrong outputs; 0 where that is not so
``all_prefetch(problem, i, j, w)``
    a hint that example i is scored next and example j after it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, effective_n_jobs, require
from hingeline._jit import by_class, helper
from hingeline._simd import copy

#: Spare entries behind vectors over all outputs, so that kernels may work in whole vectors.
PADDING = 8

PRIMITIVES: list[str] = []
#: By the type of problem; those of users' structures come and go.
_IMPLEMENTATIONS: Any = WeakKeyDictionary()


def register(
    problem_type: type, scope: Mapping[str, Any] | None = None, **primitives: Callable[..., Any]
) -> None:
    """Tell the kernels how the problems of one type are decoded, scored and added.

    Of a ``scope``, what has the name of a primitive is one.
    """
    primitives = {k: own for k, own in (scope or {}).items() if k in PRIMITIVES} | primitives
    unknown = sorted(set(primitives) - set(PRIMITIVES))
    require(not unknown, f"unknown primitives {unknown}; known are {PRIMITIVES}", TypeError)
    _IMPLEMENTATIONS[problem_type] = {**DEFAULTS, **primitives}


def provides(problem: Any, name: str) -> bool:
    """Whether a structure has a primitive of its own."""
    return _IMPLEMENTATIONS[type(problem)].get(name) is not DEFAULTS.get(name)


def _primitive(name: str) -> Callable[..., Any]:
    """What stands for a primitive: kernels and plain Python find it by the class of the problem."""

    def stub(problem: Any, *arguments: Any) -> Any:
        return _IMPLEMENTATIONS[type(problem)][name](problem, *arguments)

    stub.__name__ = stub.__qualname__ = name
    PRIMITIVES.append(name)
    return by_class(stub, lambda problem: _IMPLEMENTATIONS.get(problem, {}).get(name))


output_length, truth = _primitive("output_length"), _primitive("truth")
decode, decode_excess = _primitive("decode"), _primitive("decode_excess")
decode_by_loss, decode_best = _primitive("decode_by_loss"), _primitive("decode_best")
plane_score, plane_add = _primitive("plane_score"), _primitive("plane_add")
plane_sqdist, plane_loss = _primitive("plane_sqdist"), _primitive("plane_loss")
planes_score, planes_add = _primitive("planes_score"), _primitive("planes_add")
planes_list = _primitive("planes_list")
has_column, count_shared = _primitive("has_column"), _primitive("count_shared")
all_losses, all_scores = _primitive("all_losses"), _primitive("all_scores")
all_hinges, all_add, all_inner = map(_primitive, ("all_hinges", "all_add", "all_inner"))
all_isotropy, all_prefetch = _primitive("all_isotropy"), _primitive("all_prefetch")


def _no_excess(problem: Any, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    decode(problem, i, w, loss_scale, y_out)
    return 0.0


def _score_alone(problem: Any, i: int, y: Array, w: Array) -> float:
    out = np.empty(1)
    planes_score(problem, i, y.reshape((1, y.shape[0])), w, out)
    return out[0]


def _score_each(problem: Any, i: int, ys: Array, w: Array, out: Array) -> None:
    for j in range(ys.shape[0]):
        out[j] = plane_score(problem, i, ys[j], w)


def _add_each(problem: Any, i: int, ys: Array, steps: Array, w: Array) -> None:
    for j in range(ys.shape[0]):
        if steps[j] != 0.0:
            plane_add(problem, i, ys[j], steps[j], w)


DEFAULTS: dict[str, Callable[..., Any]] = {
    "output_length": lambda problem, i: problem.offsets[i + 1] - problem.offsets[i],
    "truth": lambda problem, i, y_out: copy(problem.labels[problem.offsets[i] :], y_out),
    "has_column": lambda problem, a, column: a == column,
    "count_shared": lambda problem, a, b: int(a == b),
    "plane_score": _score_alone,
    "plane_add": lambda problem, i, y, step, w: planes_add(
        problem, i, y.reshape((1, y.shape[0])), np.full(1, step), w
    ),
    "decode_excess": _no_excess,
    "planes_score": _score_each,
    "planes_add": _add_each,
    "planes_list": lambda problem, i, ys, steps, code, values: (-1, 0),
    # Never called: estimators refuse what needs them. Kernels contain the calls all the same.
    "decode_by_loss": lambda problem, i, w: (
        np.empty(0),
        np.empty((0, output_length(problem, i)), dtype=np.int32),
    ),
    "decode_best": lambda problem, i, w, loss_scale, ys: 0,
}


@helper
def shift(w: Array, to: int, source: int, amount: float, step: Any) -> float:
    """``w[to] += step·amount``, and as much less at ``source``; 0.

    Without a step (0, or None: then kernels compile nothing else) what that plane scores:
    ``amount·(w[to] − w[source])``.
    """
    if step is None or step == 0.0:
        return amount * (w[to] - w[source])
    w[to] += step * amount
    w[source] -= step * amount
    return 0.0


@helper
def shift_amount(
    columns: Array, amounts: Array, first: int, count: int, to: int, source: int, amount: float
) -> int:
    """Add an amount to a column and take it from another; how many there are.

    They are among the columns from ``first`` on, or new.
    """
    for column, change in ((to, amount), (source, -amount)):
        k = first
        while k < count and columns[k] != column:
            k += 1
        if k == count:
            columns[k], amounts[k] = column, 0.0
            count += 1
        amounts[k] += change
    return count


@helper
def put_product(
    code: Array,
    values: Array,
    size: tuple[int, int],
    rows: Array,
    x: Array,
    span: tuple[int, int, int],
    columns: Array,
    amounts: Array,
    count: int,
) -> tuple[int, int]:
    """One more product for ``planes_list``; the words and values there are now.

    It adds ``x[p]·amounts[k]`` at ``rows[p]·stride + columns[k]`` for ``lo ≤ p < hi`` and
    ``k < count``, where ``span`` is lo, hi and stride.
    """
    at, v = size
    lo, hi, stride = span
    ones = True
    for p in range(lo, hi):
        ones = ones and x[p] == 1.0
    next_at, next_v = at + 2 + count + hi - lo, v + count + (0 if ones else hi - lo)
    if next_at <= code.shape[0] and next_v <= values.shape[0]:
        code[at] = hi - lo if ones else lo - hi
        code[at + 1] = count
        for k in range(count):
            code[at + 2 + k] = columns[k]
            values[v + k] = amounts[k]
        for p in range(lo, hi):
            code[at + 2 + count + p - lo] = np.int64(rows[p]) * stride
            if not ones:
                values[v + count + p - lo] = x[p]
    return next_at, next_v


# Distances of outputs that put rows of one CSR matrix, the tokens, into columns of a table.
# Products of tokens are computed when they are first wanted, and kept.

#: Tokens keep their inner products with so many before them (Gram table); with fewer where
#: sequences are longer than this, because their planes seldom differ so far apart.
GRAM_LENGTH = 128
GRAM_OF_LONG = 32


def lay_out_tokens(
    indptr: Array, indices: Array, values: Array, offsets: Array, labels: Array, cache_mb: float
) -> dict[str, Array]:
    """Fields of a problem over sequences of tokens: a CSR matrix, its sequences, and products.

    ``x_s·x_t`` has its place at ``gram_row[s] + t`` of ``token_gram``, NaN where not yet computed,
    for tokens t before s, as far as memory goes; −1: s has no row.
    """
    lengths = np.diff(offsets)
    tokens = np.arange(offsets[-1])
    most = np.where(lengths <= GRAM_LENGTH, GRAM_LENGTH, GRAM_OF_LONG)
    before = tokens - np.repeat(offsets[:-1], lengths)
    ends = np.cumsum(np.minimum(before + 1, np.repeat(most, lengths)))
    kept = ends * 8 <= cache_mb * 2**20
    return {
        "indptr": np.ascontiguousarray(indptr, dtype=np.int64),
        "indices": np.ascontiguousarray(indices, dtype=np.int32),
        "values": np.ascontiguousarray(values),
        "offsets": np.ascontiguousarray(offsets, dtype=np.int64),
        "labels": np.ascontiguousarray(labels, dtype=np.int32),
        "token_gram": np.full(int(ends[kept].max(initial=0)), np.nan),
        "gram_row": np.where(kept, ends - 1 - tokens, -1),
    }


def rows_of(problem: Any) -> sp.csr_matrix:
    """The rows of features of a problem, as a matrix that shares its arrays."""
    shape = (len(problem.indptr) - 1, problem.n_features)
    return sp.csr_matrix((problem.values, problem.indices, problem.indptr), shape)


@helper
def list_differences(y: Array, z: Array) -> Array:
    """The positions at which two outputs differ."""
    where = np.empty(y.shape[0], dtype=np.int64)
    count = 0
    for t in range(y.shape[0]):
        if y[t] != z[t]:
            where[count] = t
            count += 1
    return where[:count]


@helper
def _row_dot(problem: Any, s: int, t: int) -> float:
    """``x_s·x_t`` of two CSR rows with sorted indices."""
    p, p_end = problem.indptr[s], problem.indptr[s + 1]
    q, q_end = problem.indptr[t], problem.indptr[t + 1]
    total = 0.0
    while p < p_end and q < q_end:
        f, g = problem.indices[p], problem.indices[q]
        if f == g:
            total += problem.values[p] * problem.values[q]
            p += 1
            q += 1
        elif f < g:
            p += 1
        else:
            q += 1
    return total


@helper
def rows_sqnorm(
    problem: Any, rows: Array, signs: Array, count: int, scratch: Array, total: float
) -> float:
    """``total`` plus ``‖Σ_k signs_k·x‖²`` of so many CSR rows; ``scratch`` is zero as always."""
    for k in range(count):
        for p in range(problem.indptr[rows[k]], problem.indptr[rows[k] + 1]):
            scratch[problem.indices[p]] += signs[k] * problem.values[p]
    for k in range(count):
        for p in range(problem.indptr[rows[k]], problem.indptr[rows[k] + 1]):
            f = problem.indices[p]
            total += scratch[f] * scratch[f]
            scratch[f] = 0.0
    return total


@helper
def _sqdist_by_column(
    problem: Any, lo: int, y: Array, z: Array, where: Array, n_columns: int, scratch: Array
) -> float:
    """:func:`rows_sqdist` one column at a time: linear in the length."""
    rows, signs = np.empty(where.shape[0], dtype=np.int64), np.empty(where.shape[0])
    total = 0.0
    for column in range(n_columns):
        count = 0
        for t in where:
            new, old = has_column(problem, y[t], column), has_column(problem, z[t], column)
            if new != old:
                rows[count], signs[count] = lo + t, 1.0 if new else -1.0
                count += 1
        total = rows_sqnorm(problem, rows, signs, count, scratch, total)
    return total


@helper
def rows_sqdist(
    problem: Any, i: int, y: Array, z: Array, where: Array, n_columns: int, scratch: Array
) -> float:
    """``‖Σ_t x_t ⊗ (c(y_t) − c(z_t))‖²``, c being the columns of a label.

    ``where`` lists the positions at which y and z differ; ``scratch`` is zero before and after.
    """
    if where.shape[0] == 0:
        return 0.0
    lo, gram, rows = problem.offsets[i], problem.token_gram, problem.gram_row
    first, last = lo + where[0], lo + where[-1]
    # Whether the row of the last token reaches back to the first.
    reaches = first == last or rows[last] + first > rows[last - 1] + last - 1
    if rows[last] < 0 or not reaches:
        return _sqdist_by_column(problem, lo, y, z, where, n_columns, scratch)
    total = 0.0
    for p in range(where.shape[0]):
        s = where[p]
        row = rows[lo + s] + lo
        for q in range(p + 1):
            t = where[q]
            sign = count_shared(problem, y[s], y[t]) + count_shared(problem, z[s], z[t])
            sign -= count_shared(problem, y[s], z[t]) + count_shared(problem, z[s], y[t])
            if sign == 0:
                continue
            value = gram[row + t]
            if np.isnan(value):
                value = _row_dot(problem, lo + s, lo + t)
                gram[row + t] = value
            total += sign * value if p == q else 2 * sign * value
    return total


@dataclass(frozen=True)
class Compiled:
    """A problem ready for a solver, with the sizes the kernels need."""

    problem: Any
    lengths: Array  # (n,) length of an output
    n_weights: int
    scratch_size: int = 0  # of a vector that kernels find zero and leave zero; n_weights at least
    end: float = np.inf  # numbers of an output are at least 0 and less than this, unless infinite
    n_outputs: Any = None  # an int where all outputs can be the working set; then also:
    output_losses: Any = None  # a function: (n, outputs)
    output_squares: Any = None  # (n,) ``‖Δf_i(k)‖²``, the same for all wrong outputs
    isotropic: bool = False  # ``all_isotropy`` is above 0 for every example
    #: (scales, rho, sigma, matrix): ``matrix += Σ_i σ_i F_iᵀ(I − ρ_i 11ᵀ)F_i``, where F_i has the
    #: rows ``scales_ij·Δf_i(j)`` that are not 0: on and above the diagonal.
    curvature: Any = None
    #: (scales, rho, sigma): what multiplies vectors by that matrix, and its diagonal.
    multiply_curvature: Any = None
    matrix_size: int = 0  # rows of that matrix, and a function: the weights they stand for
    matrix_order: Any = None
    exact: bool = True  # decoding finds the best output, whatever the weights are
    bounded: bool = True  # what decoding says of the best value is at least that value
    interpreted: bool = False  # methods of its structure are plain Python
    #: ``(order, w, out)``: a bound from above on the sum of all positive hinges of these examples
    summed_slack: Callable[[Array, Array, Array], None] | None = None
    #: ``(problem, starts)``: stretches of outputs from these positions on as examples, where
    #: outputs fall apart at every position that is right (:mod:`.parts`)
    stretch: Any = None
    truths: Any = None  # then also: the true outputs one after the other, int32
    breakable: bool = True  # and: an output that is made right at any one position is an output

    def __post_init__(self) -> None:
        # Memory that is never written to costs nothing.
        object.__setattr__(self, "scratch_size", max(self.scratch_size, self.n_weights))

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.lengths)

    def bind(self, kernel: Any) -> Any:
        """The kernel, or the Python function it was made of where that must call a user's."""
        return getattr(kernel, "py_func", kernel) if self.interpreted else kernel

    def workers(self, n_jobs: int | None) -> Workers:
        """Threads for this problem, so many where it can use them."""
        return Workers(1 if self.interpreted else effective_n_jobs(n_jobs), self.scratch_size)

    @cached_property
    def size(self) -> int:
        """Numbers in the problem's arrays, 1 per example at least: what a look at all costs."""
        return max(sum(part.size for part in self.problem if isinstance(part, np.ndarray)), self.n)


# Kernels release the GIL and write only what belongs to their own examples, so an order of examples
# may be cut anywhere: results do not depend on how many threads there are. Nothing is ever summed
# across threads.


PART, SCRATCH = object(), object()  # What :meth:`Workers.over` puts into a kernel's arguments.


class Workers:
    """A few threads, each with its own scratch vector."""

    def __init__(self, n_jobs: int, scratch_size: int) -> None:
        self.n_jobs, self.scratch_size = n_jobs, scratch_size
        self._pool = ThreadPoolExecutor(n_jobs - 1) if n_jobs > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def over(self, order: Array, kernel: Callable[..., Any], *given: Any) -> None:
        """Call a kernel for parts of ``order``, which stand in its arguments where PART does."""

        def call(part: Array, k: int) -> None:
            kernel(*[part if a is PART else self.scratch[k] if a is SCRATCH else a for a in given])

        self.map(call, order)

    @cached_property
    def scratch(self) -> list[Array]:
        """Made when first asked for: it is as long as the weights, and some never do."""
        return [np.zeros(self.scratch_size) for _ in range(self.n_jobs)]

    def map(self, function: Callable[[Array, int], None], order: Array) -> None:
        """``function(part, k)`` in thread k for parts of ``order``, this one taking one itself."""
        if self._pool is None or len(order) < 2 * self.n_jobs:
            function(order, 0)
            return
        # Plain slices: blocks are small and this runs for each of them.
        cuts = [len(order) * k // self.n_jobs for k in range(self.n_jobs + 1)]
        futures = [
            self._pool.submit(function, order[cuts[k] : cuts[k + 1]], k)
            for k in range(1, self.n_jobs)
        ]
        try:
            function(order[: cuts[1]], 0)
        finally:
            # Also after Ctrl-C: nobody may still be writing when the caller goes on.
            wait(futures)
        for future in futures:
            future.result()


def sum_losses(problem: Any, weights: Array) -> tuple[float, float]:
    """Losses of wrong labels, on average over these, summed by weight where they cost something.

    The sum, and that of the weights; structures whose loss is no sum over labels have none.
    """
    if not hasattr(problem, "cost"):
        return 0.0, 0.0
    k = len(problem.cost)
    # Also where what is right costs something.
    by_label = (problem.cost[:, :k].sum(axis=1) - problem.cost.diagonal()) / max(k - 1, 1)
    losses = by_label[problem.labels] * getattr(problem, "node_weight", 1.0)
    starts = getattr(problem, "offsets", None)
    each = weights if starts is None else np.repeat(weights, np.diff(starts))
    active = each > 0.0
    losses, each = losses[active], each[active]
    return float((each * losses).sum()), float(each[losses != 0.0].sum())


def mean_loss(problem: Any, weights: Array) -> float:
    """Loss of a wrong label, on average over those that cost something, by weight."""
    total, count = sum_losses(problem, weights / weights.max())
    return total / count if count else 1.0


@helper
def pad_row(n: int) -> int:
    """Length of a row of n weights: the next multiple of four, one vector of doubles."""
    return (n + 3) // 4 * 4


class Block(NamedTuple):
    """A table in the flat vector of weights; its rows may be padded."""

    start: int
    rows: int
    columns: int
    stride: int

    @property
    def stop(self) -> int:
        """Where the next block may start."""
        return self.start + self.rows * self.stride

    def padded(self, weights: Array) -> Array:
        """The table with its padding, a view (rows, stride)."""
        return weights[self.start : self.stop].reshape(self.rows, self.stride)

    def table(self, weights: Array) -> Array:
        """The table, a view (rows, columns)."""
        return self.padded(weights)[:, : self.columns]


class Layout(dict[str, Block]):
    """The blocks of a flat vector of weights by name, in the order in which they lie."""

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return max((block.stop for block in self.values()), default=0)

    def split(self, weights: Array) -> dict[str, Array]:
        """Views of the weights by block, each (rows, columns)."""
        what = f"weights_ has {weights.size} entries, which is not what the parameters ask for"
        how = "fit again after changing fit_intercept or boundary"
        require(weights.size == self.size, f"{what}: {how}.")
        return {name: block.table(weights) for name, block in self.items()}

    def join(self, tables: Mapping[str, Array]) -> Array:
        """The flat vector of these tables, float64 and padded with zeros."""
        weights = np.zeros(self.size)
        for name, block in self.items():
            block.table(weights)[:] = tables[name]
        return weights


def stack_blocks(
    rows: Mapping[str, int], columns: int, stride: int, before: Layout | None = None
) -> Layout:
    """Blocks of so many rows below each other, all of the same columns, and below those before."""
    layout = Layout(before or {})
    for name, count in rows.items():
        layout[name] = Block(layout.size, count, columns, stride)
    return layout
