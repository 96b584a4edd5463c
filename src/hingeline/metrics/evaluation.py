"""All scores of one prediction in one object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hingeline.metrics.bootstrap import resample
from hingeline.metrics.counts import count_spans, pair_labels, resolve_scheme
from hingeline.metrics.scores import Score, SpanScores, confusion_of, score_labels, score_spans
from hingeline.metrics.text import align

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Evaluation:
    """Scores of predicted labels; :func:`evaluate` makes it.

    Attributes
    ----------
    n_sequences, n_tokens : int
    token_accuracy, sequence_accuracy : float
        Share of tokens labelled right, and of sequences without a wrong token.
    scheme : str or None
        Tag scheme; None if labels are not span tags.
    mode : str
        How spans were read.
    spans : SpanScores or None
        Scores of spans; None if labels are not span tags.
    per_label : tuple of Score
        Scores of each label, token by token.
    labels : tuple
        All labels that are true or predicted: the rows and columns of ``confusion``.
    confusion : int ndarray of shape (labels, labels)
        ``[a, b]``: tokens whose label is a and predicted as b.
    intervals : dict of str to (low, high)
        95 % bootstrap intervals by score; empty if not asked for.
    """

    n_sequences: int
    n_tokens: int
    token_accuracy: float
    sequence_accuracy: float
    scheme: str | None
    mode: str
    spans: SpanScores | None = field(repr=False)
    per_label: tuple[Score, ...] = field(repr=False)
    labels: tuple[Any, ...] = field(repr=False)
    confusion: Array = field(repr=False, compare=False)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)

    @property
    def per_type(self) -> tuple[Score, ...]:
        """Scores of spans by type; empty if labels are not span tags."""
        return () if self.spans is None else self.spans.per_type

    @property
    def span_precision(self) -> float | None:
        """Share of predicted spans that are correct; None if labels are not span tags."""
        return None if self.spans is None else self.spans.micro.precision

    @property
    def span_recall(self) -> float | None:
        """Share of true spans that are found; None if labels are not span tags."""
        return None if self.spans is None else self.spans.micro.recall

    @property
    def span_f1(self) -> float | None:
        """F1 of all spans; None if labels are not span tags."""
        return None if self.spans is None else self.spans.micro.f1

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, as JSON can hold them."""
        spans = self.spans
        return {
            "n_sequences": self.n_sequences,
            "n_tokens": self.n_tokens,
            "token_accuracy": self.token_accuracy,
            "sequence_accuracy": self.sequence_accuracy,
            "scheme": self.scheme,
            "mode": self.mode,
            "span_precision": self.span_precision,
            "span_recall": self.span_recall,
            "span_f1": self.span_f1,
            "span_f1_macro": None if spans is None else spans.macro.f1,
            "span_f1_weighted": None if spans is None else spans.weighted.f1,
            "per_type": [score.to_dict("type") for score in self.per_type],
            "per_label": [score.to_dict("label") for score in self.per_label],
            "confusion": {"labels": list(self.labels), "matrix": self.confusion.tolist()},
            "intervals": {name: list(pair) for name, pair in self.intervals.items()},
        }

    def summary(self) -> list[tuple[str, str, str]]:
        """Rows (score, value, 95 % interval or nothing) for a terminal."""
        names = ["token_accuracy", "sequence_accuracy"]
        if self.spans is not None:
            names += ["span_precision", "span_recall", "span_f1"]
        rows = []
        for name in names:
            low_high = self.intervals.get(name)
            interval = "" if low_high is None else f"{low_high[0]:.4f} to {low_high[1]:.4f}"
            rows.append((name.replace("_", " "), f"{getattr(self, name):.4f}", interval))
        return rows

    def table(self, by: str | None = None) -> list[tuple[str, str, str, str, str]]:
        """Rows (name, precision, recall, F1, support) for a terminal, the heading first.

        Parameters
        ----------
        by : {"type", "label"}, optional
            Spans by type, with their averages, or tokens by label; the default is the type where
            labels are span tags.
        """
        if by is None:
            by = "label" if self.spans is None else "type"
        if by == "label":
            scores = list(self.per_label)
        elif by == "type" and self.spans is not None:
            spans = self.spans
            scores = [*spans.per_type, spans.micro, spans.macro, spans.weighted]
        elif by == "type":
            raise ValueError("the labels are not span tags: use by='label'.")
        else:
            raise ValueError(f"by must be 'type' or 'label', got {by!r}.")
        rows = [(by, "precision", "recall", "F1", "support")]
        for s in scores:
            ratios = (f"{s.precision:.4f}", f"{s.recall:.4f}", f"{s.f1:.4f}")
            rows.append((str(s.name), *ratios, str(s.support)))
        return rows

    def __str__(self) -> str:
        head = f"{self.n_sequences} sequences, {self.n_tokens} tokens"
        if self.scheme is not None:
            head += f", {self.scheme}, {self.mode} mode"
        return "\n".join([head, "", align(self.summary()), "", align(self.table())])


def evaluate(
    y_true: Any,
    y_pred: Any,
    *,
    scheme: str | None = "auto",
    mode: str = "default",
    bootstrap: int = 0,
    random_state: Any = 0,
) -> Evaluation:
    """Score predicted labels in every way that fits them.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    scheme : str or None, default="auto"
        One of :data:`hingeline.schemes.SCHEMES`; ``"auto"`` finds it by the true labels and
        leaves spans out if labels are not span tags, None leaves them out in any case.
    mode : {"default", "strict"}, default="default"
        How labels that the scheme forbids are read; see :func:`hingeline.schemes.spans`.
    bootstrap : int, default=0
        Resamples for 95 % intervals, say 1000; 0 for none.
    random_state : int or numpy Generator, default=0
        Seed of the resamples.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> evaluation = evaluate([["B-NP", "I-NP", "O"]], [["B-NP", "I-NP", "B-VP"]])
    >>> evaluation.scheme, evaluation.span_precision, evaluation.span_recall
    ('IOB2', 0.5, 1.0)
    >>> print(evaluation)
    1 sequences, 3 tokens, IOB2, default mode
    <BLANKLINE>
    token accuracy     0.6667
    sequence accuracy  0.0000
    span precision     0.5000
    span recall        1.0000
    span f1            0.6667
    <BLANKLINE>
    type      precision  recall      F1  support
    NP           1.0000  1.0000  1.0000        1
    VP           0.0000  0.0000  0.0000        0
    micro        0.5000  1.0000  0.6667        1
    macro        0.5000  0.5000  0.5000        1
    weighted     1.0000  1.0000  1.0000        1
    """
    if mode not in ("default", "strict"):
        raise ValueError(f"mode must be 'default' or 'strict', got {mode!r}.")
    pairs = pair_labels(y_true, y_pred)
    tags, name = resolve_scheme(pairs, scheme)
    counts = count_spans(pairs, name, mode) if tags else None
    confusion = confusion_of(pairs)
    lengths = np.diff(pairs.offsets)
    return Evaluation(
        n_sequences=len(lengths),
        n_tokens=len(pairs.true),
        token_accuracy=float(pairs.right.mean()),
        sequence_accuracy=float((pairs.per_sequence(pairs.right) == lengths).mean()),
        scheme=name,
        mode=mode,
        spans=None if counts is None else score_spans(counts),
        per_label=tuple(score_labels(pairs.labels, confusion)),
        labels=tuple(pairs.labels),
        confusion=confusion,
        intervals=resample(pairs, counts, bootstrap, 0.95, random_state) if bootstrap else {},
    )
