"""Data frames of tokens, one row each, as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hingeline.features.tables import TokenTable

Array = np.ndarray[Any, Any]


def from_frame(
    frame: Any,
    group: str = "sentence",
    label: str | None = "tag",
    columns: Sequence[str] | None = None,
) -> tuple[TokenTable | list[Array], list[list[Any]] | None]:
    """Cut a pandas or polars frame of tokens into sentences.

    Rows of a group need not be neighbours: they are gathered, groups in the order of their first
    row, rows of a group in the order of the frame.

    Parameters
    ----------
    frame : data frame with one row per token
        Anything with ``columns`` whose ``frame[name].to_numpy()`` gives a column.
    group : str, default="sentence"
        The column that says which sentence a token belongs to.
    label : str or None, default="tag"
        The column of labels; None if there is none.
    columns : list of str, optional
        The columns to read; by default all others.

    Returns
    -------
    X : TokenTable, or list of arrays (tokens, columns)
        A table where the columns hold strings, arrays where they hold numbers.
    y : list of lists, or None
        The labels of each sentence.
    """
    names = [str(name) for name in getattr(frame, "columns", ())]
    if not names or not hasattr(frame, "__getitem__"):
        raise TypeError(f"frame must be a pandas or polars frame, got {type(frame).__name__}.")
    read = [n for n in names if n not in (group, label)] if columns is None else list(columns)
    for argument, wanted in (("group", [group]), ("label", [label]), ("columns", read)):
        for name in wanted:
            if name is not None and name not in names:
                raise ValueError(
                    f"{argument} asks for {name!r}, which the frame does not have; it has "
                    f"{', '.join(map(repr, names))}."
                )
    if not read:
        raise ValueError("no columns are left to read besides group and label: name them.")
    order, offsets = _sentences(_values(frame, group))
    y = None
    if label is not None:
        labels = _values(frame, label)[order].tolist()
        y = [labels[lo:hi] for lo, hi in pairwise(offsets.tolist())]
    values = {name: _values(frame, name) for name in read}
    numeric = [name for name, column in values.items() if column.dtype.kind in "fiub"]
    if len(numeric) == len(read):
        stacked = np.column_stack([values[name] for name in read])[order]
        return np.split(stacked, offsets[1:-1]), y
    if numeric:
        text = next(name for name in read if name not in numeric)
        raise ValueError(
            f"column {numeric[0]!r} holds numbers and {text!r} does not: choose columns of one "
            "kind, or turn numbers into strings."
        )
    for name, column in values.items():
        for row, value in enumerate(column.tolist()):
            if not isinstance(value, str):
                raise ValueError(f"row {row} of column {name!r} is {value!r}, expected a string.")
    columns_ = {name: column[order].tolist() for name, column in values.items()}
    return TokenTable.from_columns(columns_, offsets), y


def _values(frame: Any, name: str) -> Array:
    return np.asarray(frame[name].to_numpy())


def _sentences(groups: Array) -> tuple[Array, Array]:
    """The order that gathers the groups, and where each starts."""
    index: dict[Any, int] = {}
    keys = groups.tolist()
    for row, key in enumerate(keys):
        if key is None or key != key:
            raise ValueError(f"row {row} has no group: every token belongs to a sentence.")
        index.setdefault(key, len(index))
    numbers = np.fromiter(map(index.__getitem__, keys), dtype=np.int64, count=len(keys))
    counts = np.bincount(numbers, minlength=len(index))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.argsort(numbers, kind="stable"), offsets
