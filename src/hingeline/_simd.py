"""Sums of weight rows, in vector registers: the innermost loops of every sparse structure.

Weights are a table with one short row per feature (one column per label, padded to a
multiple of four). A compiler left alone with ``for label in range(stride)`` prepares for long
rows: it checks for overlap and unrolls to 32 columns, so that rows of 12 or 28 are done one by
one. Here blocks of eight (then four) columns are kept in registers while the features go by.

What is done in blocks is built below, for kernels. The rest of a row (three columns or fewer, which
padded rows do not have) goes one by one, and so does the whole row in interpreted code.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from hingeline._checks import Array
from hingeline._jit import build_as, finite_helper, helper

_LANES = 4  # Features whose products are summed apart, to keep the multipliers busy.
_FLAGS = ("nsz", "arcp", "contract", "afn", "reassoc")


def aligned_zeros(size: int) -> Array:
    """Zeros that start where a cache line does, so that rows meet as few lines as they can."""
    room = np.zeros(size + 7)
    first = -room.__array_interface__["data"][0] // 8 % 8
    return room[first : first + size]


@helper
def copy(source: Array, target: Array) -> None:
    """``target[:] = source``, for which numba would compile how to put an error into words."""
    for k in range(target.shape[0]):
        target[k] = source[k]


@helper
def largest(values: Array, at: int, n: int) -> int:
    """The k < n of the largest ``values[at + k]``, the first of several."""
    best = 0
    for k in range(1, n):
        if values[at + k] > values[at + best]:
            best = k
    return best


@helper
def list_some(values: Array, out: Array) -> int:
    """List the places of what is not 0; how many there are."""
    count = 0
    for k in range(values.shape[0]):
        if values[k] != 0.0:
            out[count] = k
            count += 1
    return count


@finite_helper
def row_dot(indptr: Array, indices: Array, values: Array, i: int, u: Array) -> float:
    """``u·x_i``, x_i being a row of a CSR matrix; one that has all columns has them in order."""
    lo, hi = indptr[i], indptr[i + 1]
    total = 0.0
    if hi - lo == u.shape[0]:
        for p in range(hi - lo):
            total += values[lo + p] * u[p]
    else:
        for p in range(lo, hi):
            total += values[p] * u[indices[p]]
    return total


@finite_helper
def row_add(indptr: Array, indices: Array, values: Array, i: int, step: float, u: Array) -> None:
    """``u += step·x_i``."""
    lo, hi = indptr[i], indptr[i + 1]
    if hi - lo == u.shape[0]:
        for p in range(hi - lo):
            u[p] += step * values[lo + p]
    else:
        for p in range(lo, hi):
            u[indices[p]] += step * values[p]


class Block:
    """Builds code that walks over rows of a table, with one block of columns in registers."""

    def __init__(self, builder: Any, wide: int) -> None:
        self.builder = builder
        self.vector = ir.VectorType(ir.DoubleType(), wide)
        self.wide = wide

    def pointer(self, base: Any, index: Any) -> Any:
        place = self.builder.gep(base, [index])
        return self.builder.bitcast(place, self.vector.as_pointer())

    def load(self, pointer: Any) -> Any:
        """A vector; rows need not be aligned."""
        return self.builder.load(pointer, align=8)

    def row(self, table: Any, number: Any, stride: Any, first: Any) -> Any:
        """Where the block's columns of a row start."""
        builder = self.builder
        if number.type.width < 64:
            number = builder.sext(number, ir.IntType(64))
        return self.pointer(table, builder.add(builder.mul(number, stride), first))

    def spread(self, array: Any, index: Any) -> Any:
        """One number of an array, in every column."""
        builder = self.builder
        value = builder.load(builder.gep(array, [index]))
        if isinstance(value.type, ir.FloatType):
            value = builder.fpext(value, ir.DoubleType())
        return self.everywhere(value)

    def everywhere(self, value: Any) -> Any:
        """A number in every column."""
        builder = self.builder
        empty = ir.Constant(self.vector, ir.Undefined)
        one = builder.insert_element(empty, value, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.wide), [0] * self.wide)
        return builder.shuffle_vector(one, empty, mask)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        builder = self.builder
        return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def greater(self, a: Any, b: Any) -> Any:
        builder = self.builder
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    def largest(self, vector: Any) -> Any:
        builder = self.builder
        best = builder.extract_element(vector, ir.IntType(32)(0))
        for k in range(1, self.wide):
            best = self.greater(best, builder.extract_element(vector, ir.IntType(32)(k)))
        return best

    def loop(
        self, start: Any, stop: Any, step: int, carried: list[Any], body: Any
    ) -> tuple[Any, list[Any]]:
        """``for p in range(start, stop, step)`` with vectors carried along; their last values."""
        builder = self.builder
        before = builder.block
        head, inside, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        p = builder.phi(ir.IntType(64))
        p.add_incoming(start, before)
        state = []
        for vector in carried:
            phi = builder.phi(self.vector)
            phi.add_incoming(vector, before)
            state.append(phi)
        builder.cbranch(builder.icmp_signed("<", p, stop), inside, after)
        builder.position_at_end(inside)
        new = body(p, state)
        p.add_incoming(builder.add(p, ir.IntType(64)(step)), builder.block)
        for phi, vector in zip(state, new, strict=True):
            phi.add_incoming(vector, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return p, state

    def reduce(
        self, start: Any, stop: Any, initial: float, term: Any, combine: Any, merge: Any
    ) -> Any:
        """``combine(term(p), …)`` over ``start ≤ p < stop``, in several chains that are merged."""
        builder = self.builder
        first = ir.Constant(self.vector, [initial] * self.wide)
        whole = builder.sub(stop, ir.IntType(64)(_LANES - 1))

        def several(p: Any, state: list[Any]) -> list[Any]:
            places = [builder.add(p, ir.IntType(64)(j)) for j in range(_LANES)]
            return [combine(term(q), so_far) for q, so_far in zip(places, state, strict=True)]

        p, chains = self.loop(start, whole, _LANES, [first] * _LANES, several)
        while len(chains) > 1:
            chains = [merge(a, b) for a, b in zip(chains[::2], chains[1::2], strict=True)]
        _, (result,) = self.loop(p, stop, 1, chains, lambda q, state: [combine(term(q), state[0])])
        return result

    def maximise(self, count: Any, term: Any) -> Any:
        """``max_p term(p)`` over ``p < count``."""
        zero = ir.IntType(64)(0)
        return self.reduce(zero, count, -np.inf, term, self.greater, self.greater)


def by_columns(build: Callable[..., Any]) -> Any:
    """A function of ``stride`` and more: what ``build(block, first, stride, …)`` does with blocks.

    It goes over a row by eights, then a four, and gives the first column that is left.
    """

    def build_all(builder: Any, stride: Any, *arguments: Any) -> Any:
        eight, four = Block(builder, 8), Block(builder, 4)
        number = ir.IntType(64)

        def body(first: Any, state: list[Any]) -> list[Any]:
            build(eight, first, stride, *arguments)
            return []

        first, _ = eight.loop(number(0), builder.sub(stride, number(7)), 8, [], body)
        after = builder.add(first, number(4))
        has_four = builder.icmp_signed("<=", after, stride)
        with builder.if_then(has_four):
            build(four, first, stride, *arguments)
        return builder.select(has_four, after, first)

    return build_as(lambda stride, *arguments: 0, build_all, types.int64)


@by_columns
def _dot(block: Block, first: Any, stride: Any, *arguments: Any) -> None:
    indices, values, lo, hi, w, out, at = arguments
    builder = block.builder

    def term(p: Any) -> tuple[Any, Any]:
        number = builder.load(builder.gep(indices, [p]))
        return block.spread(values, p), block.load(block.row(w, number, stride, first))

    def combine(pair: tuple[Any, Any], so_far: Any) -> Any:
        return block.multiply_add(*pair, so_far)

    total = block.reduce(lo, hi, 0.0, term, combine, block.add)
    builder.store(total, block.pointer(out, builder.add(at, first)), align=8)


@helper
def rows_dot(
    indices: Array, values: Array, lo: int, hi: int, w: Array, stride: int, out: Array, at: int
) -> None:
    """``out[at:] = Σ_p values[p]·W[indices[p]]`` over ``lo ≤ p < hi``; W is w, cut into rows."""
    for k in range(_dot(stride, indices, values, lo, hi, w, out, at), stride):
        total = 0.0
        for p in range(lo, hi):
            total += values[p] * w[indices[p] * stride + k]
        out[at + k] = total


@helper
def rows_dot_few(
    indices: Array, values: Array, lo: int, hi: int, w: Array, stride: int, some: Array, out: Array
) -> None:
    """``out = Σ_p values[p]·W[indices[p]]`` over ``lo ≤ p < hi`` for ``some`` columns alone."""
    for k in some:
        out[k] = 0.0
    for p in range(lo, hi):
        row = indices[p] * stride
        value = values[p]
        for k in some:
            out[k] += value * w[row + k]


@by_columns
def _add(block: Block, first: Any, stride: Any, *arguments: Any) -> None:
    indices, values, lo, hi, steps, w = arguments
    builder = block.builder
    by = block.load(block.pointer(steps, first))

    def body(p: Any, state: list[Any]) -> list[Any]:
        number = builder.load(builder.gep(indices, [p]))
        row = block.row(w, number, stride, first)
        new = block.multiply_add(block.spread(values, p), by, block.load(row))
        builder.store(new, row, align=8)
        return []

    block.loop(lo, hi, 1, [], body)


@helper
def rows_add(
    indices: Array, values: Array, lo: int, hi: int, steps: Array, w: Array, stride: int
) -> None:
    """``W[indices[p]] += values[p]·steps`` over ``lo ≤ p < hi``; W is w, cut into rows."""
    for k in range(_add(stride, indices, values, lo, hi, steps, w), stride):
        for p in range(lo, hi):
            w[indices[p] * stride + k] += values[p] * steps[k]


@helper
def rows_add_few(
    indices: Array, values: Array, lo: int, hi: int, steps: Array, w: Array, stride: int
) -> None:
    """:func:`rows_add` where most of ``steps`` are 0: column by column."""
    for k in range(stride):
        step = steps[k]
        if step != 0.0:
            for p in range(lo, hi):
                w[indices[p] * stride + k] += values[p] * step


@by_columns
def _max(block: Block, first: Any, stride: Any, *arguments: Any) -> None:
    before, start, table, n, out, at = arguments
    builder = block.builder

    def term(p: Any) -> Any:
        score = block.spread(before, builder.add(start, p))
        return block.add(score, block.load(block.row(table, p, stride, first)))

    best = block.maximise(n, term)
    here = block.pointer(out, builder.add(at, first))
    builder.store(block.add(block.load(here), best), here, align=8)


@helper
def max_plus(
    before: Array, start: int, table: Array, n: int, stride: int, out: Array, at: int
) -> None:
    """``out[at + k] += max_j (before[start + j] + table[j·stride + k])`` over ``j < n``."""
    for k in range(_max(stride, before, start, table, n, out, at), stride):
        best = -np.inf
        for j in range(n):
            best = max(best, before[start + j] + table[j * stride + k])
        out[at + k] += best


@by_columns
def _max_chosen(block: Block, first: Any, stride: Any, *arguments: Any) -> None:
    before, start, chosen, count, floor, table, base, out, at = arguments
    builder = block.builder

    def term(p: Any) -> Any:
        j = builder.load(builder.gep(chosen, [p]))
        score = block.spread(before, builder.add(start, j))
        return block.add(score, block.load(block.row(table, j, stride, first)))

    best = block.greater(block.maximise(count, term), block.everywhere(floor))
    here = builder.add(at, first)
    new = block.add(block.load(block.pointer(base, here)), best)
    builder.store(new, block.pointer(out, here), align=8)


@helper
def max_plus_chosen(
    before: Array,
    start: int,
    chosen: Array,
    count: int,
    floor: float,
    table: Array,
    stride: int,
    base: Array,
    out: Array,
    at: int,
) -> None:
    """``out[at + k] = base[at + k] + max(floor, max_j (before[start + j] + table[j·stride + k]))``.

    j goes over ``chosen[:count]``, which are int64.
    """
    done = _max_chosen(stride, before, start, chosen, count, floor, table, base, out, at)
    for k in range(done, stride):
        best = floor
        for p in range(count):
            best = max(best, before[start + chosen[p]] + table[chosen[p] * stride + k])
        out[at + k] = base[at + k] + best


def _build_row_max(builder: Any, table: Any, start: Any, blocks: Any) -> Any:
    block = Block(builder, 8)

    def term(p: Any) -> Any:
        place = builder.add(start, builder.mul(p, ir.IntType(64)(8)))
        return block.load(block.pointer(table, place))

    return block.largest(block.maximise(blocks, term))


def _max_of_blocks(table: Array, start: int, blocks: int) -> float:
    return float(table[start : start + 8 * blocks].max(initial=-np.inf))


build_as(_max_of_blocks, _build_row_max, types.float64)


@helper
def row_max(table: Array, start: int, n: int) -> float:
    """``max_k table[start + k]`` over ``k < n``; ``−inf`` for none."""
    best = _max_of_blocks(table, start, n // 8)
    for k in range(n // 8 * 8, n):
        best = max(best, table[start + k])
    return best


@helper
def add_max(a: Array, start: int, b: Array, n: int, out: Array) -> float:
    """``out[k] = a[start + k] + b[k]`` over ``k < n``, and the largest of these sums."""
    for k in range(n):
        out[k] = a[start + k] + b[k]
    return row_max(out, 0, n)
