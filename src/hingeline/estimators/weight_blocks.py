"""The flat weight vector as named blocks (rows, columns), and blocks as arrays of a file.

Blocks lack the padding of rows. A sparse block is one bit for every weight, then the values of
those that are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import check_finite
from hingeline.structures.chain import padded

Array = np.ndarray[Any, Any]


class Block(NamedTuple):
    """A table in the flat vector; rows may be padded."""

    start: int
    rows: int
    columns: int
    stride: int


def layout_of(model: Any) -> dict[str, Block]:
    """Name and place of each block of an estimator, in the order of ``weights_``."""
    own = getattr(model, "_weight_layout", None)
    if own is not None:
        layout: dict[str, Block] = own()
        return layout
    n_labels = len(model.classes_)
    chain = hasattr(model, "boundary")
    blocks = {"emission" if chain else "coef": int(model.n_features_in_)}
    if model.fit_intercept:
        blocks["intercept"] = 1
    if chain:
        blocks["transition"] = n_labels
        if model.boundary:
            blocks["start"] = blocks["end"] = 1
    stride = padded(n_labels)
    found, first = {}, 0
    for name, rows in blocks.items():
        found[name] = Block(first * stride, rows, n_labels, stride)
        first += rows
    return found


def size_of(layout: Mapping[str, Block]) -> int:
    """Length of the flat vector."""
    return max(block.start + block.rows * block.stride for block in layout.values())


def table_of(weights: Array, block: Block) -> Array:
    """The block as a view (rows, columns)."""
    rows = weights[block.start : block.start + block.rows * block.stride]
    return rows.reshape(block.rows, block.stride)[:, : block.columns]


def split_blocks(model: Any) -> dict[str, Array]:
    """Views of ``weights_`` by block, each (rows, labels)."""
    layout = layout_of(model)
    if model.weights_.size != size_of(layout):
        raise ValueError(
            f"weights_ has {model.weights_.size} entries, which is not what the parameters ask "
            "for: fit again after changing fit_intercept or boundary."
        )
    return {name: table_of(model.weights_, block) for name, block in layout.items()}


def join_blocks(model: Any, tables: Mapping[str, Array]) -> Array:
    """The flat vector of these blocks, float64 and padded with zeros."""
    layout = layout_of(model)
    flat = np.zeros(size_of(layout))
    for name, block in layout.items():
        table_of(flat, block)[:] = tables[name]
    return flat


def compact(
    model: Any, dtype: str, threshold: float | None
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
    """Weights as they are stored, as they will be restored, and what that changes."""
    check_finite(model.weights_, "weights_")
    arrays: dict[str, Array] = {}
    restored: dict[str, Array] = {}
    n_stored = n_weights = 0
    change = relative = 0.0
    for name, block in split_blocks(model).items():
        with np.errstate(over="ignore"):
            table = block.astype(dtype)
        if not np.isfinite(table).all():
            raise ValueError(
                f"a weight of {np.abs(block).max():.3g} is too large for dtype={dtype!r}: use "
                "'float32' or 'float64'."
            )
        if threshold:
            table[np.abs(block) < threshold] = 0.0
        if dtype != "float64" or threshold:
            back = table.astype(np.float64)
            known = block != 0
            moved = np.abs(back[known] - block[known])
            change = max(change, float(moved.max(initial=0.0)))
            relative = max(relative, float((moved / np.abs(block[known])).max(initial=0.0)))
        else:
            back = table
        restored[name] = back
        n_weights += block.size
        if threshold is None:
            arrays[f"weights/{name}"] = table
            n_stored += block.size
        else:
            kept = bits_of(table) != 0  # −0 is stored, so that an exact model is exact
            arrays[f"weights/{name}/mask"] = np.packbits(kept)
            arrays[f"weights/{name}/values"] = table[kept]
            n_stored += int(np.count_nonzero(kept))
    report = {
        "dtype": dtype,
        "sparse": threshold is not None,
        "threshold": threshold,
        "n_weights": n_weights,
        "n_stored": n_stored,
        "exact": change == 0.0,
        "largest_change": change,
        "largest_relative_change": relative,
    }
    return arrays, restored, report


def bits_of(values: Array) -> Array:
    """Floating-point numbers as the integers of the same bits."""
    return np.ascontiguousarray(values).view(f"u{values.itemsize}")


def restore_weights(model: Any, report: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Fill ``weights_``; a mask of bits bounds what a small file can ask for."""
    dtype = np.dtype({"float64": "f8", "float32": "f4", "float16": "f2"}[report["dtype"]])
    layout = layout_of(model)
    parts = {True: ("/mask", "/values"), False: ("",)}[report["sparse"]]
    expected = {f"weights/{name}{part}" for name in layout for part in parts}
    if expected != {name for name in arrays if name.startswith("weights/")}:
        raise ValueError("the blocks of weights are not those that the parameters ask for")
    tables: dict[str, Array] = {}
    for name, block in layout.items():
        rows, n_labels = block.rows, block.columns
        if report["sparse"]:
            mask, values = arrays[f"weights/{name}/mask"], arrays[f"weights/{name}/values"]
            count = rows * n_labels
            if mask.dtype != np.uint8 or mask.shape != ((count + 7) // 8,):
                raise ValueError(f"the mask of block {name!r} has a wrong size")
            kept = np.unpackbits(mask, count=count).view(np.bool_)
            if values.shape != (np.count_nonzero(kept),):
                raise ValueError(f"the values of block {name!r} do not fit its mask")
            table = np.zeros(count, dtype=dtype)
            table[kept] = values
            table = table.reshape(rows, n_labels)
        else:
            values = table = arrays[f"weights/{name}"]
        if table.shape != (rows, n_labels) or values.dtype != dtype:
            raise ValueError(f"block {name!r} has a wrong shape or dtype")
        check_finite(table, f"block {name!r}")
        tables[name] = table
    model.weights_ = join_blocks(model, tables)
