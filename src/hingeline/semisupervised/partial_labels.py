"""Sequences some of which have labels: who is labelled, and what the words of the others are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.features.input import plain_labels, stack_labels
from hingeline.features.tables import TokenTable

Array = np.ndarray[Any, Any]


def split_labels(y: Any, offsets: Array, lengths: Any) -> tuple[Array, list[Any]]:
    """Which sequences have labels, and the labels of these, one after the other.

    A sequence without labels is None in y, or None for each of its tokens where y is flat.
    """
    n = len(offsets) - 1
    if isinstance(y, (str, bytes)) or not hasattr(y, "__len__"):
        raise TypeError(
            f"y must be a list of label sequences with None for unlabelled ones, got "
            f"{type(y).__name__}."
        )
    parts = list(y)
    nested = len(parts) == n and all(
        part is None or (isinstance(part, (Sequence, np.ndarray)) and not isinstance(part, str))
        for part in parts
    )
    if lengths is not None and not nested:
        flat = plain_labels(y)
        if len(flat) != offsets[-1]:
            raise ValueError(
                f"y has {len(flat)} labels, but X has {offsets[-1]} rows: one label per row, "
                "None for those of unlabelled sequences."
            )
        parts = [flat[lo:hi] for lo, hi in pairwise(offsets.tolist())]
    if len(parts) != n:
        raise ValueError(f"X has {n} sequences and y has {len(parts)}: they must have one length.")
    known = np.ones(n, dtype=bool)
    for i, part in enumerate(parts):
        missing = part is None
        if not missing and hasattr(part, "__len__") and not isinstance(part, (str, bytes)):
            holes = [label is None for label in part]
            missing = bool(holes) and all(holes)
            if any(holes) and not missing:
                raise ValueError(
                    f"y[{i}] has labels for some of its tokens only (none at position "
                    f"{holes.index(True)}): give all of them, or None for the sequence."
                )
        known[i] = not missing
    lengths_known = np.diff(offsets)[known]
    inner = np.concatenate([[0], np.cumsum(lengths_known)]).astype(np.int64)
    chosen = [part for part, has in zip(parts, known.tolist(), strict=True) if has]
    try:
        return known, stack_labels(chosen, inner) if chosen else []
    except (TypeError, ValueError):
        # Say it again with the numbers of the sequences as the caller counts them.
        for i in np.flatnonzero(known).tolist():
            size = int(offsets[i + 1] - offsets[i])
            if isinstance(parts[i], (str, bytes)) or not isinstance(
                parts[i], (Sequence, np.ndarray)
            ):
                raise TypeError(
                    f"y[{i}] must be a sequence of labels or None, got {parts[i]!r}."
                ) from None
            if len(parts[i]) != size:
                raise ValueError(
                    f"X[{i}] has {size} tokens and y[{i}] has {len(parts[i])} labels: they must "
                    "have one length."
                ) from None
        raise


def rows_in(order: Array, offsets: Array) -> tuple[Array, Array]:
    """Numbers of the tokens of sequences in another order, and their new offsets."""
    lengths = np.diff(offsets)[order]
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1]) + np.repeat(offsets[:-1][order] - (ends - lengths), lengths)
    return rows, np.concatenate([[0], ends]).astype(np.int64)


def words_in(X: Any, words: Any, chosen: Array, offsets: Array) -> list[list[Any]]:
    """What constraints see of the chosen sequences: the words given, or those in X.

    A token that is a tuple or list of strings is a row of columns, the first of which is the
    word. Numbers have no words: None stands for each.
    """
    lengths = np.diff(offsets)
    if words is not None:
        if isinstance(words, TokenTable):
            words = _first_column(words)
        if not hasattr(words, "__len__") or len(words) != len(lengths):
            raise ValueError(
                f"words must have one list of words for each of the {len(lengths)} sequences of X."
            )
        for i in chosen.tolist():
            if len(words[i]) != lengths[i]:
                raise ValueError(
                    f"words[{i}] has {len(words[i])} words, but X[{i}] has {lengths[i]} tokens."
                )
        return [[_word(token) for token in words[i]] for i in chosen.tolist()]
    if isinstance(X, TokenTable):
        table = _first_column(X)
        return [table[i] for i in chosen.tolist()]
    if isinstance(X, (list, tuple)) and len(X) == len(lengths):
        first = X[0]
        if not sp.issparse(first) and not (
            isinstance(first, np.ndarray) and first.dtype.kind not in "OU"
        ):
            return [[_word(token) for token in X[i]] for i in chosen.tolist()]
    return [[None] * int(lengths[i]) for i in chosen.tolist()]


def _word(token: Any) -> Any:
    if isinstance(token, (tuple, list)) and token and isinstance(token[0], str):
        return token[0]
    return token


def _first_column(table: TokenTable) -> list[list[Any]]:
    column = table.column(0).tolist()
    return [column[lo:hi] for lo, hi in pairwise(table.offsets.tolist())]
