"""Examples kept for later calls: their rows, multipliers and weights, in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled
from hingeline.features.input import find_classes

# Labels and features that were not there at first.

Array = np.ndarray[Any, Any]


def check_columns(now: int, before: int, name: str) -> None:
    """Refuse fewer features than before; more of them come behind those known."""
    if now < before:
        raise ValueError(
            f"X has {now} features, but {name} is expecting {before} features as input, or more "
            "where new ones have come behind them."
        )


def with_new_classes(classes: Array, labels: Sequence[Any]) -> Array:
    """``classes`` with the labels that are not among them behind, sorted where they can be."""
    known = set(classes.tolist())
    try:
        new = [label for label in dict.fromkeys(labels) if label not in known]
    except TypeError as error:
        raise TypeError(f"y holds a label that is not hashable: {error}.") from None
    if not new:
        return classes
    added, _ = find_classes(new)
    return joined_classes(classes, added)


def joined_classes(classes: Array, added: Array) -> Array:
    """Both in one array that holds exactly these labels, whatever their types."""
    labels = [*classes.tolist(), *added.tolist()]
    both = np.concatenate([classes, added]) if classes.dtype.kind == added.dtype.kind else None
    if both is None or both.tolist() != labels:
        both = np.empty(len(labels), dtype=object)
        both[:] = labels
    return both


def rows_of(problem: Any) -> sp.csr_matrix:
    """Tokens or examples of a problem; a constant feature is the last column."""
    n_rows = len(problem.indptr) - 1
    return sp.csr_matrix(
        (problem.values, problem.indices, problem.indptr), shape=(n_rows, problem.n_features)
    )


def stacked_rows(parts: Sequence[sp.csr_matrix], width: int, constant: bool) -> sp.csr_matrix:
    """Rows below each other, ``width`` columns wide, the constant feature in the last of them.

    Parts may be narrower, or wider in columns that nothing is in.
    """
    indices = []
    for part in parts:
        columns = part.indices
        if constant and part.shape[1] != width and part.shape[0]:
            columns = columns.copy()
            columns[part.indptr[1:] - 1] = width - 1
        indices.append(columns)
    starts = np.cumsum([0, *(int(part.indptr[-1]) for part in parts)])
    indptr = np.concatenate(
        [[0], *(part.indptr[1:] + start for part, start in zip(parts, starts[:-1], strict=True))]
    )
    return sp.csr_matrix(
        (np.concatenate([part.data for part in parts]), np.concatenate(indices), indptr),
        shape=(len(indptr) - 1, width),
    )


def offsets_of(problem: Any) -> Array | None:
    """Where sequences begin and end; None where every row is an example."""
    return getattr(problem, "offsets", None)


def stacked_offsets(parts: Sequence[Array | None]) -> Array | None:
    """Offsets of sequences one after the other."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    starts = np.cumsum([0, *(int(part[-1]) for part in known)])
    return np.concatenate(
        [[0], *(part[1:] + start for part, start in zip(known, starts[:-1], strict=True))]
    )


def stacked_forms(forms: Sequence[Formulation]) -> Formulation:
    """The formulation of all blocks; they differ in what is per example only."""
    fields: dict[str, Any] = {}
    for name in Formulation._fields:
        values = [getattr(form, name) for form in forms]
        fields[name] = np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]
    return Formulation(**fields)


def chosen_form(form: Formulation, chosen: Array) -> Formulation:
    """The formulation of some examples."""
    fields: dict[str, Any] = {
        name: value[chosen]
        for name, value in form._asdict().items()
        if isinstance(value, np.ndarray)
    }
    return form._replace(**fields)


def chosen_rows(problem: Any, chosen: Array) -> tuple[sp.csr_matrix, Array | None, Array]:
    """Rows, offsets and labels of some examples."""
    offsets = offsets_of(problem)
    matrix = rows_of(problem)
    if offsets is None:
        return matrix[chosen], None, problem.labels[chosen]
    lengths = np.diff(offsets)[chosen]
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1]) + np.repeat(offsets[:-1][chosen] - (ends - lengths), lengths)
    return matrix[rows], np.concatenate([[0], ends]), problem.labels[rows]


def without_tables(compiled: Compiled) -> Compiled:
    """The problem without inner products of tokens, which can be computed again."""
    problem = compiled.problem
    if not hasattr(problem, "token_gram"):
        return compiled
    none = np.full(len(problem.gram_start), -1, dtype=np.int64)
    return dataclasses.replace(
        compiled, problem=problem._replace(token_gram=np.empty(0), gram_start=none)
    )
