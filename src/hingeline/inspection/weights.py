"""Weights by name: features of each label, and transitions between labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

Array = np.ndarray[Any, Any]

#: Names of what is no feature of the data.
CONSTANT, START, END = "(constant)", "(start)", "(end)"


@dataclass(frozen=True)
class Blocks:
    """The weights of a linear model of labels, or of a chain of them."""

    labels: list[Any]
    features: Array  # (labels, features)
    constant: Array  # (labels,), zero without an intercept
    start: Array  # (labels,), zero without boundary weights
    move: Array  # (labels, labels), [from, to]
    end: Array
    is_chain: bool
    has_boundary: bool


def blocks_of(model: Any) -> Blocks:
    """The weights of a fitted estimator whose prediction is a sum of weights."""
    known = any(hasattr(type(model), name) for name in ("emission_coef_", "coef_"))
    if not known or hasattr(model, "_weight_layout"):  # graphs score pairs of labels besides
        raise TypeError(
            f"{type(model).__name__} cannot be inspected: pass a ChainSSVM or a MulticlassSSVM."
        )
    check_is_fitted(model, "weights_")
    labels = model.classes_.tolist()
    n = len(labels)
    is_chain = hasattr(model, "emission_coef_")
    has_boundary = is_chain and bool(model.boundary)
    return Blocks(
        labels=labels,
        features=model.emission_coef_ if is_chain else model.coef_,
        constant=model.intercept_,
        start=model.start_coef_ if has_boundary else np.zeros(n),
        move=model.transition_coef_ if is_chain else np.zeros((n, n)),
        end=model.end_coef_ if has_boundary else np.zeros(n),
        is_chain=is_chain,
        has_boundary=has_boundary,
    )


def names_of(model: Any, n_features: int, given: Sequence[str] | None) -> Sequence[str]:
    """Names of the features: those given, those the model knows, or x0, x1, ..."""
    for names in (
        given,
        getattr(model, "feature_names_", None),
        getattr(model, "feature_names_in_", None),
    ):
        if names is None:
            continue
        if len(names) != n_features:
            raise ValueError(
                f"there are {len(names)} feature names, but the model has {n_features} features: "
                "pass one name per feature."
            )
        return names
    return _Numbered(n_features)


class _Numbered(Sequence[str]):
    """x0, x1, ...: made when asked for, as there may be millions."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        return f"x{range(self.n)[index]}"


@dataclass(frozen=True)
class FeatureWeight:
    """What one feature adds to the score of one label, per unit of its value."""

    label: Any
    feature: str
    weight: float


@dataclass(frozen=True)
class TransitionWeight:
    """What label ``target`` right after label ``source`` adds to the score of a sequence."""

    source: Any
    target: Any
    weight: float


def top_features(
    model: Any, n: int = 10, feature_names: Sequence[str] | None = None
) -> list[FeatureWeight]:
    """The features that speak most for and most against each label.

    Parameters
    ----------
    model : fitted ChainSSVM or MulticlassSSVM
    n : int, default=10
        For each label, the n largest positive weights and the n smallest negative ones.
    feature_names : sequence of str, optional
        One per feature; the default is the model's own names, or x0, x1, ... where it has none.

    Returns
    -------
    list of FeatureWeight
        Label by label in the order of ``classes_``, the largest weight first. The constant
        feature is called ``(constant)``.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n!r}.")
    blocks = blocks_of(model)
    n_features = blocks.features.shape[1]
    names = names_of(model, n_features, feature_names)
    rows = []
    for k, label in enumerate(blocks.labels):
        weights = np.append(blocks.features[k], blocks.constant[k])
        for j in _both_ends(weights, n).tolist():
            name = CONSTANT if j == n_features else str(names[j])
            rows.append(FeatureWeight(label, name, float(weights[j])))
    return rows


def _both_ends(weights: Array, n: int) -> Array:
    """Numbers of the n largest positive and the n smallest negative weights, largest first."""
    chosen = np.arange(len(weights))
    if len(weights) > 2 * n:
        chosen = np.argpartition(weights, [n - 1, len(weights) - n])
        chosen = np.concatenate([chosen[:n], chosen[-n:]])
    chosen = chosen[np.lexsort((chosen, -weights[chosen]))]
    positive, negative = chosen[weights[chosen] > 0], chosen[weights[chosen] < 0]
    return np.concatenate([positive[:n], negative[-n:]])


def transition_table(model: Any) -> list[TransitionWeight]:
    """Weights of all moves from label to label, of first labels and of last ones.

    Parameters
    ----------
    model : fitted ChainSSVM

    Returns
    -------
    list of TransitionWeight
        In the order of ``classes_``; the first labels come from ``(start)``, the last ones go to
        ``(end)``, if the model has boundary weights.
    """
    blocks = blocks_of(model)
    if not blocks.is_chain:
        raise TypeError(f"{type(model).__name__} has no transitions: pass a ChainSSVM.")
    sources, targets, weights = list(blocks.labels), list(blocks.labels), blocks.move
    if blocks.has_boundary:
        sources.insert(0, START)
        targets.append(END)
        weights = np.block([[blocks.start, np.nan], [blocks.move, blocks.end[:, None]]])
    return [
        TransitionWeight(a, b, weight)
        for a, row in zip(sources, weights.tolist(), strict=True)
        for b, weight in zip(targets, row, strict=True)
        if (a, b) != (START, END)
    ]
