"""Labels and features that were not there at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline.estimators.sequences import find_classes

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
