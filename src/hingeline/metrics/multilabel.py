"""How good sets of labels are."""

from __future__ import annotations

from typing import Any, NamedTuple


class MultilabelScores(NamedTuple):
    """Measures of sets of labels; all but the first are better when larger."""

    hamming_loss: float
    example_f1: float
    subset_accuracy: float
    micro_f1: float
    macro_f1: float


def multilabel_scores(y_true: Any, y_pred: Any, sample_weight: Any = None) -> MultilabelScores:
    """The usual measures of predicted sets of labels.

    Parameters
    ----------
    y_true, y_pred : array-like or sparse matrix of shape (n_samples, n_labels)
        Indicators.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    MultilabelScores
        Share of wrong indicators; F1 of each example's set, averaged, an empty set that is
        rightly predicted counting 1; share of sets that are wholly right; F1 of all indicators
        together; F1 of each label, averaged, 0 for a label neither present nor predicted.
    """
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    def f1(average: str, nothing: float) -> float:
        return float(
            f1_score(
                y_true,
                y_pred,
                average=average,
                zero_division=nothing,
                sample_weight=sample_weight,
            )
        )

    return MultilabelScores(
        hamming_loss=float(hamming_loss(y_true, y_pred, sample_weight=sample_weight)),
        example_f1=f1("samples", 1.0),
        subset_accuracy=float(accuracy_score(y_true, y_pred, sample_weight=sample_weight)),
        micro_f1=f1("micro", 0.0),
        macro_f1=f1("macro", 0.0),
    )
