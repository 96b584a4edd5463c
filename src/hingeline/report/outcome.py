"""True and predicted outputs side by side, checked, with the loss of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline._checks import check_loss
from hingeline.evaluation.metrics import Evaluation, LabelPairs, evaluate, pair_labels

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Outcome:
    """What was predicted, and how good it is.

    ``evaluation`` is None where outputs are not labels that can be compared one by one; ``true``
    and ``predicted`` are None where only an evaluation was given.
    """

    single: bool  # one label per example, not a sequence of them
    evaluation: Evaluation | None
    true: list[list[Any]] | None = None
    predicted: list[list[Any]] | None = None
    losses: Array | None = None
    tokens: list[Any] | None = None  # one text per example, or one list per sequence


def compare(
    model: Any, evaluation: Evaluation | None, y_true: Any, y_pred: Any, tokens: Any
) -> Outcome | None:
    """The outcome that the arguments of a report describe; None if they describe none."""
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        raise TypeError(
            "evaluation must be what hingeline.evaluation.metrics.evaluate returns, got "
            f"{type(evaluation).__name__}."
        )
    if (y_true is None) != (y_pred is None):
        given, missing = ("y_true", "y_pred") if y_pred is None else ("y_pred", "y_true")
        raise ValueError(f"{given} is given without {missing}: pass both or neither.")
    single = not hasattr(model, "emission_coef_") and hasattr(model, "coef_")
    if y_true is None:
        if tokens is not None:
            raise ValueError(
                "tokens are shown with their labels: pass y_true and y_pred with them."
            )
        return None if evaluation is None else Outcome(single, evaluation)
    if hasattr(model, "structure"):
        return _of_structure(model, evaluation, y_true, y_pred, tokens)
    if single:
        y_true, y_pred = _wrapped(y_true, "y_true"), _wrapped(y_pred, "y_pred")
    pairs = pair_labels(y_true, y_pred)
    cost = check_loss(
        model.loss, "zero_one" if single else "hamming", len(model.classes_), vector=not single
    )
    return _finish(pairs, label_losses(pairs, model.classes_, cost), evaluation, single, tokens)


def label_losses(pairs: LabelPairs, classes: Array, cost: Array) -> Array:
    """Loss of each sequence under a cost matrix in the order of the classes.

    A label that the model does not know costs as much as the dearest error.
    """
    index = {label: k for k, label in enumerate(classes.tolist())}
    n = len(index)
    most = cost.max() if cost.any() else 1.0
    table = np.pad(cost, (0, 1), constant_values=most)
    number = np.array([index.get(label, n) for label in pairs.labels], dtype=np.int64)
    losses = table[number[pairs.true], number[pairs.predicted]] * ~pairs.right
    total = np.concatenate([[0.0], np.cumsum(losses)])
    return np.diff(total[pairs.offsets])


def _finish(
    pairs: LabelPairs, losses: Array, evaluation: Evaluation | None, single: bool, tokens: Any
) -> Outcome:
    cuts = pairs.offsets[1:-1]
    names = np.empty(len(pairs.labels), dtype=object)
    names[:] = pairs.labels
    true = [part.tolist() for part in np.split(names[pairs.true], cuts)]
    predicted = [part.tolist() for part in np.split(names[pairs.predicted], cuts)]
    if evaluation is None:
        evaluation = evaluate(true, predicted, scheme=None if single else "auto")
    elif evaluation.n_tokens != len(pairs.true):
        raise ValueError(
            f"evaluation is of {evaluation.n_tokens} labels, but y_true has {len(pairs.true)}: "
            "pass the labels that were evaluated, or leave one of the two out."
        )
    return Outcome(single, evaluation, true, predicted, losses, _tokens(tokens, true, single))


def _of_structure(
    model: Any, evaluation: Evaluation | None, y_true: Any, y_pred: Any, tokens: Any
) -> Outcome:
    """Outputs of a user's own structure: by their loss, and by label where they have labels."""
    if len(y_true) != len(y_pred):
        raise ValueError(
            f"y_true has {len(y_true)} examples and y_pred has {len(y_pred)}: they must have one "
            "length."
        )
    if len(y_true) == 0:
        raise ValueError("y_true is empty: there are no outputs to compare.")
    structure = model.structure
    packed = [[structure.pack(y) for y in side] for side in (y_true, y_pred)]
    losses = np.array([float(structure.loss(a, b)) for a, b in zip(*packed, strict=True)])
    true, predicted = ([y.tolist() for y in side] for side in packed)
    single = all(len(y) == 1 for y in (*true, *predicted))
    if all(len(a) == len(b) for a, b in zip(true, predicted, strict=True)):
        return _finish(pair_labels(true, predicted), losses, evaluation, single, tokens)
    if tokens is not None:
        raise ValueError(
            "tokens want one label each, but true and predicted outputs of one example differ in "
            "length: leave tokens out."
        )
    return Outcome(False, evaluation, true, predicted, losses)


def _wrapped(y: Any, name: str) -> list[list[Any]]:
    """Single labels as sequences of one."""
    if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__iter__"):
        raise TypeError(f"{name} must be a list of labels, got {type(y).__name__}.")
    labels = y.tolist() if hasattr(y, "tolist") else list(y)
    for i, label in enumerate(labels):
        if isinstance(label, (list, dict, set, np.ndarray)):
            raise TypeError(
                f"{name}[{i}] is a {type(label).__name__}, but the model gives one label per "
                "example: pass a flat list of labels."
            )
    return [[label] for label in labels]


def _tokens(tokens: Any, true: list[list[Any]], single: bool) -> list[Any] | None:
    """Tokens that fit the labels."""
    if tokens is None:
        return None
    if isinstance(tokens, (str, bytes, dict)) or not hasattr(tokens, "__iter__"):
        raise TypeError(f"tokens must be a list, one entry per sequence, got {tokens!r:.60}.")
    found = list(tokens)
    if len(found) != len(true):
        raise ValueError(
            f"tokens has {len(found)} entries and y_true has {len(true)}: they must have one "
            "length."
        )
    if single:
        return [
            " ".join(map(str, entry)) if isinstance(entry, (list, tuple)) else entry
            for entry in found
        ]
    for i, (entry, labels) in enumerate(zip(found, true, strict=True)):
        if isinstance(entry, (str, bytes, dict)) or not hasattr(entry, "__iter__"):
            raise TypeError(f"tokens[{i}] is {entry!r:.60}, not a list of tokens.")
        found[i] = list(entry)
        if len(found[i]) != len(labels):
            raise ValueError(
                f"tokens[{i}] has {len(found[i])} tokens and y_true[{i}] has {len(labels)} "
                "labels: they must have one length."
            )
    return found
