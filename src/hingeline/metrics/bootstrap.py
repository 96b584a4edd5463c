"""Confidence intervals by drawing sequences again, with replacement."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline.metrics.counts import (
    LabelPairs,
    SpanCounts,
    count_spans,
    pair_labels,
    resolve_scheme,
)
from hingeline.metrics.scores import precision_recall_f1, ratio

Array = np.ndarray[Any, Any]

#: Weights drawn at a time, which bounds the memory.
_BLOCK = 2_000_000


def bootstrap_intervals(
    y_true: Any,
    y_pred: Any,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    scheme: str | None = "auto",
    mode: str = "default",
    random_state: Any = 0,
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap over sequences.

    Tokens of one sequence depend on one another, so whole sequences are drawn.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    n_resamples : int, default=1000
    level : float, default=0.95
        Coverage of each interval.
    scheme, mode : as for :func:`hingeline.metrics.span_scores`
        ``scheme=None`` leaves spans out.
    random_state : int or numpy Generator, default=0

    Returns
    -------
    dict of str to (low, high)
        ``token_accuracy`` and ``sequence_accuracy``; ``span_precision``, ``span_recall`` and
        ``span_f1`` if labels are span tags.
    """
    pairs = pair_labels(y_true, y_pred)
    tags, name = resolve_scheme(pairs, scheme)
    spans = count_spans(pairs, name, mode) if tags else None
    return resample(pairs, spans, n_resamples, level, random_state)


def resample(
    pairs: LabelPairs, spans: SpanCounts | None, n_resamples: int, level: float, random_state: Any
) -> dict[str, tuple[float, float]]:
    """Intervals from counts: a resample weights the sequences' counts by how often each came."""
    if n_resamples < 1:
        raise ValueError(f"the number of resamples must be at least 1, got {n_resamples!r}.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    lengths = np.diff(pairs.offsets)
    right = pairs.per_sequence(pairs.right)
    columns = [right, lengths, right == lengths, np.ones_like(lengths)]
    if spans is not None:
        columns.extend(spans.per_sequence())
    table = np.stack(columns, axis=1).astype(float)
    n = len(lengths)
    rng = np.random.default_rng(random_state)
    block = max(1, _BLOCK // n)
    sums = np.concatenate(
        [
            rng.multinomial(n, np.full(n, 1 / n), size=min(block, n_resamples - done)) @ table
            for done in range(0, n_resamples, block)
        ]
    )
    values = {
        "token_accuracy": ratio(sums[:, 0], sums[:, 1]),
        "sequence_accuracy": ratio(sums[:, 2], sums[:, 3]),
    }
    if spans is not None:
        names = ("span_precision", "span_recall", "span_f1")
        values.update(zip(names, precision_recall_f1(*sums[:, 4:].T), strict=True))
    tail = (1 - level) / 2
    return {
        name: tuple(np.quantile(drawn, [tail, 1 - tail]).tolist()) for name, drawn in values.items()
    }
