"""Indicators of labels as people have them, and which pairs of labels are scored together."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import type_of_target

Array = np.ndarray[Any, Any]

EDGES = ("full", "tree", "none")


def read_indicator(y: Any, names: Any = None) -> tuple[Array, Array]:
    """Indicators (n, labels) as int32, and the names of the labels.

    One dimension, or one column, with two classes is a single label; the names are its classes.
    """
    if sp.issparse(y):
        y = y.toarray()
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        return _single(y)
    bad = y[(y != 0) & (y != 1)]
    if bad.size:
        raise ValueError(
            f"y holds {bad.flat[0].item()!r}: indicators must be 0 or 1, one column per label."
        )
    classes = np.arange(y.shape[1])
    if names is not None and len(names) == y.shape[1]:
        classes = np.asarray([str(name) for name in names], dtype=object)
    return y.astype(np.int32), classes


def _single(y: Array) -> tuple[Array, Array]:
    if y.dtype == object and len(y) and isinstance(y[0], (list, tuple, set, frozenset)):
        raise ValueError(
            "y is a list of label sets: turn it into indicators first, with "
            "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y)."
        )
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    classes, numbers = np.unique(y, return_inverse=True)
    if kind not in ("binary", "multiclass"):
        raise ValueError(
            f"Unknown label type: {kind}. y must be indicators of shape (n_samples, n_labels)."
        )
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{kind}. Give indicators of shape (n_samples, n_labels), or use MulticlassSSVM."
        )
    if len(classes) < 2:
        raise ValueError(f"y has one class only ({classes[0]!r}): at least 2 classes are needed.")
    return numbers.astype(np.int32)[:, None], classes


def check_pairs(edges: Any, indicator: Array, weights: Array) -> Array:
    """Pairs of labels (pairs, 2), from a word or a list."""
    n_labels = indicator.shape[1]
    if isinstance(edges, str):
        if edges == "full":
            return np.column_stack(np.triu_indices(n_labels, 1)).astype(np.int64)
        if edges == "tree":
            return chow_liu(indicator, weights)
        if edges == "none":
            return np.zeros((0, 2), dtype=np.int64)
        words = ", ".join(repr(word) for word in EDGES)
        raise ValueError(f"edges={edges!r} is not known; choose one of {words}, or give pairs.")
    try:
        pairs = np.asarray(edges)
    except ValueError as error:
        raise ValueError("edges must be pairs of labels, shape (pairs, 2).") from error
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"edges has shape {pairs.shape}, expected (pairs, 2).")
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges has dtype {pairs.dtype}, expected integers: columns of y.")
    wrong = np.flatnonzero(
        (pairs < 0).any(axis=1) | (pairs >= n_labels).any(axis=1) | (pairs[:, 0] == pairs[:, 1])
    )
    if len(wrong):
        k = int(wrong[0])
        raise ValueError(
            f"edges[{k}] is {tuple(pairs[k].tolist())}: give two different columns of y, which are "
            f"0 to {n_labels - 1}."
        )
    low, high = pairs.min(axis=1).astype(np.int64), pairs.max(axis=1).astype(np.int64)
    _, first = np.unique(low * n_labels + high, return_index=True)
    if len(first) < len(pairs):
        k = int(np.setdiff1d(np.arange(len(pairs)), first)[0])
        raise ValueError(f"edges[{k}] is {tuple(pairs[k].tolist())}, given twice: drop it.")
    return pairs.astype(np.int64)


def mutual_information(indicator: Array, weights: Array) -> Array:
    """Mutual information of every pair of labels, in nats; (labels, labels)."""
    Y = indicator.astype(np.float64)
    total = float(weights.sum())
    ones = (weights @ Y) / total
    both = (Y * weights[:, None]).T @ Y / total
    found = np.zeros_like(both)
    for a in (0, 1):
        for b in (0, 1):
            left, right = ones if a else 1.0 - ones, ones if b else 1.0 - ones
            joint = both if b else left_only(ones, both)
            if not a:
                joint = right[None, :] - joint
            joint = np.maximum(joint, 0.0)
            apart = np.outer(left, right)
            seen = (joint > 0.0) & (apart > 0.0)
            found[seen] += joint[seen] * np.log(joint[seen] / apart[seen])
    return found


def left_only(ones: Array, both: Array) -> Array:
    """Shares of examples with the row's label but not the column's."""
    return np.asarray(ones[:, None] - both)


def chow_liu(indicator: Array, weights: Array) -> Array:
    """The maximum spanning tree of mutual information (Prim), as pairs (labels − 1, 2).

    C. Chow, C. Liu, *Approximating discrete probability distributions with dependence trees*
    (1968).
    """
    n_labels = indicator.shape[1]
    information = mutual_information(indicator, weights)
    pairs = []
    best = information[0].copy()
    partner = np.zeros(n_labels, dtype=np.int64)
    outside = np.ones(n_labels, dtype=bool)
    outside[0] = False
    for _ in range(n_labels - 1):
        k = int(np.argmax(np.where(outside, best, -np.inf)))
        pairs.append(sorted((int(partner[k]), k)))
        outside[k] = False
        closer = information[k] > best
        best[closer], partner[closer] = information[k][closer], k
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
