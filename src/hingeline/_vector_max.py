"""Maxima over long label rows, in vector registers: what decoding with many labels needs.

As in :mod:`hingeline._vector`, the functions with a body in Python define what the compiled ones
compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from hingeline._vector import _Block

Array = np.ndarray[Any, Any]


def row_max(table: Array, start: int, n: int) -> float:
    """``max_k table[start + k]`` over ``k < n``; ``−inf`` for none."""
    best = -np.inf
    for k in range(n):
        best = max(best, table[start + k])
    return best


def add_max(a: Array, start: int, b: Array, n: int, out: Array) -> float:
    """``out[k] = a[start + k] + b[k]`` over ``k < n``, and the largest of these sums."""
    best = -np.inf
    for k in range(n):
        out[k] = a[start + k] + b[k]
        best = max(best, out[k])
    return best


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
    for k in range(stride):
        best = floor
        for p in range(count):
            j = chosen[p]
            best = max(best, before[start + j] + table[j * stride + k])
        out[at + k] = base[at + k] + best


def _across(block: _Block, vector: Any) -> Any:
    """The largest number of a vector."""
    builder = block.builder
    best = builder.extract_element(vector, ir.IntType(32)(0))
    for k in range(1, block.wide):
        best = block.greater(best, builder.extract_element(vector, ir.IntType(32)(k)))
    return best


@intrinsic
def _row_max8(typing_context: Any, table: Any, start: Any, blocks: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _Block(builder, 8)
        numbers, begin, count = block.pointers(context, builder, signature.args, arguments)

        def term(p: Any) -> Any:
            place = builder.add(begin, builder.mul(p, ir.IntType(64)(8)))
            return block.load(block.pointer(numbers, place))

        zero = ir.IntType(64)(0)
        return _across(
            block, block.reduce(zero, count, -np.inf, term, block.greater, block.greater)
        )

    return types.float64(table, types.int64, types.int64), generate


@intrinsic
def _add_max8(typing_context: Any, a: Any, start: Any, b: Any, blocks: Any, out: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _Block(builder, 8)
        left, begin, right, count, sums = block.pointers(
            context, builder, signature.args, arguments
        )

        def term(p: Any) -> Any:
            first = builder.mul(p, ir.IntType(64)(8))
            total = block.add(
                block.load(block.pointer(left, builder.add(begin, first))),
                block.load(block.pointer(right, first)),
            )
            builder.store(total, block.pointer(sums, first), align=8)
            return total

        zero = ir.IntType(64)(0)
        return _across(
            block, block.reduce(zero, count, -np.inf, term, block.greater, block.greater)
        )

    return types.float64(a, types.int64, b, types.int64, out), generate


def _chosen_block(wide: int) -> Any:
    @intrinsic
    def chosen_block(
        typing_context: Any,
        before: Any,
        start: Any,
        chosen: Any,
        count: Any,
        floor: Any,
        table: Any,
        stride: Any,
        first: Any,
        base: Any,
        out: Any,
        at: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = _Block(builder, wide)
            scores, begin, numbers, n, least, rows, step, column, own, total, place = (
                block.pointers(context, builder, signature.args, arguments)
            )

            def term(p: Any) -> Any:
                j = builder.load(builder.gep(numbers, [p]))
                score = block.spread(scores, builder.add(begin, j))
                return block.add(score, block.load(block.row(rows, j, step, column)))

            zero = ir.IntType(64)(0)
            best = block.reduce(zero, n, -np.inf, term, block.greater, block.greater)
            best = block.greater(best, block.everywhere(least))
            new = block.add(block.load(block.pointer(own, place)), best)
            builder.store(new, block.pointer(total, place), align=8)
            return context.get_dummy_value()

        whole = types.int64
        signature = types.void(
            before, whole, chosen, whole, types.float64, table, whole, whole, base, out, whole
        )
        return signature, generate

    return chosen_block


_chosen8, _chosen4 = _chosen_block(8), _chosen_block(4)


@overload(row_max, strict=False)
def _compiled_row_max(table: Any, start: Any, n: Any) -> Any:
    def largest(table: Any, start: Any, n: Any) -> float:
        best = _row_max8(table, start, n // 8)
        for k in range(n // 8 * 8, n):
            best = max(best, table[start + k])
        return best

    return largest


@overload(add_max, strict=False)
def _compiled_add_max(a: Any, start: Any, b: Any, n: Any, out: Any) -> Any:
    def largest(a: Any, start: Any, b: Any, n: Any, out: Any) -> float:
        best = _add_max8(a, start, b, n // 8, out)
        for k in range(n // 8 * 8, n):
            out[k] = a[start + k] + b[k]
            best = max(best, out[k])
        return best

    return largest


@overload(max_plus_chosen, strict=False)
def _compiled_max_plus_chosen(
    before: Any,
    start: Any,
    chosen: Any,
    count: Any,
    floor: Any,
    table: Any,
    stride: Any,
    base: Any,
    out: Any,
    at: Any,
) -> Any:
    def step(
        before: Any,
        start: Any,
        chosen: Any,
        count: Any,
        floor: Any,
        table: Any,
        stride: Any,
        base: Any,
        out: Any,
        at: Any,
    ) -> None:
        first = 0
        while first + 8 <= stride:
            _chosen8(
                before, start, chosen, count, floor, table, stride, first, base, out, at + first
            )
            first += 8
        if first + 4 <= stride:
            _chosen4(
                before, start, chosen, count, floor, table, stride, first, base, out, at + first
            )
            first += 4
        for k in range(first, stride):
            best = floor
            for p in range(count):
                best = max(best, before[start + chosen[p]] + table[chosen[p] * stride + k])
            out[at + k] = base[at + k] + best

    return step
