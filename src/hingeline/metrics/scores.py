"""Scores of labels: precision, recall and F1 of spans and of single labels, and accuracy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hingeline.metrics.counts import (
    LabelPairs,
    SpanCounts,
    count_spans,
    pair_labels,
    resolve_scheme,
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1 of one label, one type of span, or their average.

    ``support`` is how often it is true, ``predicted`` how often it is predicted and ``correct``
    how often both. A ratio whose denominator is zero is 0.
    """

    name: Any
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int
    correct: int

    def to_dict(self, key: str = "name") -> dict[str, Any]:
        """The fields, the name under ``key``."""
        fields = asdict(self)
        return {key: fields.pop("name"), **fields}


@dataclass(frozen=True)
class SpanScores:
    """Scores of spans by type, and their averages.

    ``micro`` counts all spans together, as conlleval's overall line does; ``macro`` is the mean
    over types, ``weighted`` the mean weighted by support.
    """

    per_type: tuple[Score, ...]
    micro: Score
    macro: Score
    weighted: Score


def ratio(part: Array, whole: Array) -> Array:
    """``part / whole``, 0 where the whole is 0."""
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def precision_recall_f1(correct: Array, predicted: Array, true: Array) -> tuple[Array, ...]:
    """The three ratios, elementwise."""
    correct, predicted, true = np.asarray(correct), np.asarray(predicted), np.asarray(true)
    return (
        ratio(correct, predicted),
        ratio(correct, true),
        ratio(2 * correct, predicted + true),
    )


def _scores(names: list[Any], correct: Array, predicted: Array, true: Array) -> list[Score]:
    columns = (*precision_recall_f1(correct, predicted, true), true, predicted, correct)
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    return [Score(*row) for row in rows]


def score_spans(counts: SpanCounts) -> SpanScores:
    """Scores of spans already counted."""
    correct, predicted, true = counts.per_type()
    occurs = np.flatnonzero(predicted + true)
    correct, predicted, true = correct[occurs], predicted[occurs], true[occurs]
    per_type = _scores([counts.types[k] for k in occurs], correct, predicted, true)
    totals = [int(true.sum()), int(predicted.sum()), int(correct.sum())]
    micro = _scores(["micro"], *(np.array([total]) for total in totals[::-1]))[0]
    table = np.array([[s.precision, s.recall, s.f1] for s in per_type]).reshape(-1, 3)
    macro = table.mean(axis=0).tolist() if len(table) else [0.0] * 3
    weighted = ratio(true @ table, np.full(3, totals[0])).tolist()
    return SpanScores(
        tuple(per_type),
        micro,
        Score("macro", *macro, *totals),
        Score("weighted", *weighted, *totals),
    )


def _counted(y_true: Any, y_pred: Any, scheme: str, mode: str) -> SpanCounts:
    pairs = pair_labels(y_true, y_pred)
    tags, name = resolve_scheme(pairs, scheme)
    if not tags:
        raise ValueError(
            f"the labels are not span tags of one scheme ({', '.join(map(str, pairs.labels[:5]))}"
            f"{', ...' if len(pairs.labels) > 5 else ''}): use token_accuracy or per_label."
        )
    return count_spans(pairs, name, mode)


def span_scores(
    y_true: Any, y_pred: Any, *, scheme: str = "auto", mode: str = "default"
) -> SpanScores:
    """Precision, recall, F1 and support of spans.

    A span is correct if its bounds and its type are. Equal to conlleval and seqeval
    (``"default"``) and to seqeval's strict mode (``"strict"``).

    Parameters
    ----------
    y_true, y_pred : list of sequences of str
    scheme : str, default="auto"
        One of :data:`hingeline.schemes.SCHEMES`; ``"auto"`` finds it by the true labels.
    mode : {"default", "strict"}, default="default"
        How labels that the scheme forbids are read; see :func:`hingeline.schemes.spans`.

    Returns
    -------
    SpanScores

    Examples
    --------
    >>> scores = span_scores([["B-NP", "I-NP", "O"]], [["B-NP", "O", "B-NP"]])
    >>> scores.micro.precision, scores.micro.recall, scores.micro.support
    (0.0, 0.0, 1)
    """
    return score_spans(_counted(y_true, y_pred, scheme, mode))


def span_f1_score(
    y_true: Any,
    y_pred: Any,
    *,
    scheme: str = "auto",
    mode: str = "default",
    average: str = "micro",
) -> float:
    """F1 of spans, one number; for scikit-learn's ``make_scorer``.

    Parameters
    ----------
    y_true, y_pred, scheme, mode : as for :func:`span_scores`
    average : {"micro", "macro", "weighted"}, default="micro"

    Examples
    --------
    >>> from sklearn.metrics import make_scorer
    >>> scorer = make_scorer(span_f1_score, average="macro")
    """
    if average not in ("micro", "macro", "weighted"):
        raise ValueError(f"average must be 'micro', 'macro' or 'weighted', got {average!r}.")
    scores = span_scores(y_true, y_pred, scheme=scheme, mode=mode)
    return float(getattr(scores, average).f1)


def token_accuracy(y_true: Any, y_pred: Any) -> float:
    """Share of tokens labelled right.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    """
    return float(pair_labels(y_true, y_pred).right.mean())


def confusion_of(pairs: LabelPairs) -> Array:
    """How often label a is predicted as label b, ``[a, b]``."""
    n = len(pairs.labels)
    return np.bincount(pairs.true * n + pairs.predicted, minlength=n * n).reshape(n, n)


def confusion_matrix(y_true: Any, y_pred: Any) -> tuple[list[Any], Array]:
    """How often each label is predicted as each.

    Parameters
    ----------
    y_true, y_pred : list of label sequences

    Returns
    -------
    labels : list
        All labels that are true or predicted, sorted where they can be.
    matrix : int ndarray of shape (labels, labels)
        ``matrix[a, b]``: tokens whose label is a and predicted as b.
    """
    pairs = pair_labels(y_true, y_pred)
    return pairs.labels, confusion_of(pairs)


def score_labels(labels: list[Any], confusion: Array) -> list[Score]:
    """Scores of single labels from their confusion matrix."""
    return _scores(labels, np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1))


def per_label(y_true: Any, y_pred: Any) -> list[Score]:
    """Precision, recall, F1 and support of each label, token by token.

    Parameters
    ----------
    y_true, y_pred : list of label sequences

    Returns
    -------
    list of Score
        One for each label that is true or predicted.
    """
    return score_labels(*confusion_matrix(y_true, y_pred))
