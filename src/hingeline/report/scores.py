"""How good the predictions are: summary, scores by type and label, confusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline.evaluation.metrics import Evaluation, Score
from hingeline.report.markup import isolated, paragraph, section, table, text
from hingeline.report.matrices import matrix, shade
from hingeline.report.outcome import Outcome
from hingeline.report.words import brief, count, counted, fixed, percent

Array = np.ndarray[Any, Any]

#: Most labels of the confusion matrix; the others are taken together.
MOST_LABELS = 30
#: Most rows of scores by label.
MOST_SCORES = 50
#: Most pairs of labels in the list of confusions.
MOST_PAIRS = 12


def evaluation_section(outcome: Outcome) -> str:
    """Everything that an evaluation says, except single errors."""
    found = outcome.evaluation
    if found is None:
        return section("evaluation", "Evaluation", _losses(outcome))
    parts = [paragraph(_about(found, outcome.single))]
    if outcome.losses is not None:
        parts.append(_losses(outcome))
    left = [_summary(found, outcome.single)]
    if found.spans is not None:
        spans = found.spans
        averages = [spans.micro, spans.macro, spans.weighted]
        left.append(_scores("Spans by type", "type", spans.per_type, averages))
    left.append(_pairs(found))
    name = "Examples by label" if outcome.single else "Tokens by label"
    right = _scores(name, "label", found.per_label, [])
    parts += ['<div class="columns"><div>', *left, "</div><div>", right, "</div></div>"]
    return section("evaluation", "Evaluation", *parts, _confusion(found))


def _about(found: Evaluation, single: bool) -> str:
    if single:
        return f"{counted(found.n_tokens, 'example')}."
    size = f"{counted(found.n_sequences, 'sequence')}, {counted(found.n_tokens, 'token')}."
    if found.spans is None:
        return size
    scheme = f" by the scheme {text(found.scheme)}" if found.scheme else ""
    how = {"default": "as conlleval does", "strict": "only where the scheme allows them"}
    return f"{size} Spans are read{scheme}, {how.get(found.mode, text(found.mode))}."


def _losses(outcome: Outcome) -> str:
    assert outcome.losses is not None
    losses = outcome.losses
    what = "example" if outcome.single or outcome.evaluation is None else "sequence"
    return paragraph(
        f"The mean loss is {brief(float(losses.mean()))} per {what}; "
        f"{percent(float((losses == 0).mean()), 1)} of all "
        f"{counted(len(losses), what)} have none."
    )


def _summary(found: Evaluation, single: bool) -> str:
    if single:
        names = {"token_accuracy": "accuracy"}
    else:
        names = {"token_accuracy": "token accuracy", "sequence_accuracy": "sequence accuracy"}
        if found.spans is not None:
            names |= {
                "span_precision": "span precision",
                "span_recall": "span recall",
                "span_f1": "span F1",
            }
    known = any(name in found.intervals for name in names)
    rows = []
    for name, shown in names.items():
        row = [shown, percent(getattr(found, name))]
        if known:
            bounds = found.intervals.get(name)
            row.append(f"{fixed(100 * bounds[0], 2)} to {percent(bounds[1])}" if bounds else "")
        rows.append(row)
    head = ("score", "value", "95 % interval") if known else ("score", "value")
    return table("Summary", head, rows)


def _scores(caption: str, by: str, scores: Sequence[Score], averages: Sequence[Score]) -> str:
    shown = list(scores)
    if len(shown) > MOST_SCORES:
        shown = sorted(shown, key=lambda s: -s.support)[:MOST_SCORES]
        caption += f": the {MOST_SCORES} most frequent of {count(len(scores))}"
    rows = [
        [
            isolated(s.name),
            *(fixed(100 * share, 2) for share in (s.precision, s.recall, s.f1)),
            count(s.support),
        ]
        for s in (*shown, *averages)
    ]
    head = (by, "precision %", "recall %", "F1 %", "support")
    return table(caption, head, rows, last=len(averages))


def _pairs(found: Evaluation) -> str:
    """The most frequent confusions."""
    wrong = found.confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    support = found.confusion.sum(axis=1)
    rows = []
    for a, b in zip(*np.unravel_index(order, wrong.shape), strict=True):
        if wrong[a, b] == 0:
            break
        rows.append(
            [
                isolated(found.labels[a]),
                isolated(found.labels[b]),
                count(int(wrong[a, b])),
                percent(wrong[a, b] / support[a], 1) if support[a] else "–",
            ]
        )
    if not rows:
        return paragraph("No label is confused with another.")
    head = ("true", "predicted", "count", "of the true label")
    return table("Most frequent confusions", head, rows, words=(0, 1))


def _confusion(found: Evaluation) -> str:
    labels: list[Any] = list(found.labels)
    table_of = found.confusion
    names = [isolated(label) for label in labels]
    caption = "Confusion matrix"
    if len(labels) > MOST_LABELS:
        total = table_of.sum(axis=0) + table_of.sum(axis=1)
        kept = np.sort(np.argsort(-total, kind="stable")[:MOST_LABELS])
        table_of = merged(table_of, kept)
        others = len(labels) - MOST_LABELS
        names = [names[k] for k in kept] + [f"{count(others)} others"]
        caption += f": the {MOST_LABELS} most frequent labels, the other {count(others)} together"
    share = table_of / np.maximum(table_of.sum(axis=1, keepdims=True), 1)
    lumped = len(labels) > MOST_LABELS
    rows = []
    for a, name in enumerate(names):
        cells = []
        for b in range(len(names)):
            n = int(table_of[a, b])
            # Errors among the labels taken together cannot be told from what is right.
            plain = lumped and a == b == len(names) - 1
            kind = "" if plain else shade(share[a, b], "b" if a == b else "o")
            cells.append((count(n) if n else "·", f"{kind} d".strip() if a == b else kind))
        rows.append((name, cells))
    note = (
        "Counts: right in blue on the diagonal, wrong in orange. The shade is the share of the "
        "row, on a scale of square roots."
    )
    return matrix(caption, "true ↓ predicted →", names, rows, note=note)


def merged(confusion: Array, kept: Array) -> Array:
    """A confusion matrix of the labels kept, with all others as one last label."""
    number = np.full(len(confusion), len(kept))
    number[kept] = np.arange(len(kept))
    out = np.zeros((len(kept) + 1, len(kept) + 1), dtype=np.int64)
    np.add.at(out, (number[:, None], number[None, :]), confusion)
    return out
