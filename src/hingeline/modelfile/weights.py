"""Weights as arrays of a model file, block by block as the structure lays them out.

Blocks lack the padding of rows. A sparse block is one bit for every weight, then the values of
those that are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hingeline._checks import check_finite

Array = np.ndarray[Any, Any]


def compact(
    model: Any, dtype: str, threshold: float | None
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
    """Weights as they are stored, as they will be restored, and what that changes."""
    check_finite(model.weights_, "weights_")
    arrays: dict[str, Array] = {}
    restored: dict[str, Array] = {}
    n_stored = n_weights = 0
    change = relative = 0.0
    for name, block in model._layout.split(model.weights_).items():
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
    layout = model._layout
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
    model.weights_ = layout.join(tables)
