"""The most costly errors, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline.report.markup import direction, isolated, paragraph, section, table, text
from hingeline.report.outcome import Outcome
from hingeline.report.words import brief, count, counted

Array = np.ndarray[Any, Any]

#: A sequence of more tokens than this is shown near its errors only,
LONG = 80
#: with so many tokens before and after each,
NEAR = 6
#: and no more tokens than this in all.
MOST_TOKENS = 240

_LEGEND = """\
<p class="legend"><span class="sentence"><span class="t"><bdi>token</bdi><span class="l">label\
</span></span></span> right <span class="sentence"><span class="t x"><bdi>token</bdi>\
<span class="l y">true label</span><span class="l z">predicted label</span></span></span> wrong\
</p>"""


def errors_section(outcome: Outcome, n_errors: int) -> str:
    """Examples with the largest loss; nothing if single outputs are not known."""
    if outcome.true is None or outcome.predicted is None or n_errors == 0:
        return ""
    assert outcome.losses is not None
    chosen = most_costly(outcome, n_errors)
    if not chosen:
        return section("errors", "Errors", paragraph("There are no errors."))
    wrong = int((outcome.losses > 0).sum())
    what = "example" if outcome.single or outcome.evaluation is None else "sequence"
    about = (
        f"{count(wrong)} of {counted(len(outcome.losses), what)} "
        f"{'has' if wrong == 1 else 'have'} errors. "
        f"{'These are' if wrong > 1 else 'This is'} the {counted(len(chosen), what)} with the "
        "largest loss; numbers count from 0, as in y_true."
    )
    if outcome.single or outcome.evaluation is None:
        return section("errors", "Most costly errors", paragraph(about), _rows(outcome, chosen))
    sentences = "\n".join(_sentence(outcome, i) for i in chosen)
    return section(
        "errors",
        "Most costly errors",
        paragraph(about),
        _LEGEND,
        f'<ol class="errors">\n{sentences}\n</ol>',
    )


def most_costly(outcome: Outcome, n: int) -> list[int]:
    """Examples of the largest loss; of equal ones the shorter first, then the earlier."""
    assert outcome.losses is not None
    assert outcome.true is not None
    lengths = np.array([len(labels) for labels in outcome.true])
    order = np.lexsort((lengths, -outcome.losses))[:n]
    return [int(i) for i in order if outcome.losses[i] > 0]


def _rows(outcome: Outcome, chosen: list[int]) -> str:
    """Errors of single labels, or of outputs that have no labels to compare, as a table."""
    assert outcome.losses is not None
    assert outcome.true is not None
    assert outcome.predicted is not None
    rows = []
    for i in chosen:
        row = [str(i), brief(float(outcome.losses[i]))]
        for labels in (outcome.true[i], outcome.predicted[i]):
            row.append(isolated(labels[0] if outcome.single else " ".join(map(str, labels))))
        if outcome.tokens is not None:
            row.append(isolated(outcome.tokens[i]))
        rows.append(row)
    head = ["number", "loss", "true", "predicted"]
    words = [2, 3]
    if outcome.tokens is not None:
        head.append("text")
        words.append(4)
    return table("Errors with the largest loss", head, rows, words=words, kind="texts")


def _sentence(outcome: Outcome, i: int) -> str:
    """One sequence, its labels under its tokens."""
    assert outcome.losses is not None
    assert outcome.true is not None
    assert outcome.predicted is not None
    true, predicted = outcome.true[i], outcome.predicted[i]
    tokens: list[Any] = outcome.tokens[i] if outcome.tokens is not None else list(range(len(true)))
    wrong = np.array([a != b for a, b in zip(true, predicted, strict=True)], dtype=bool)
    items = []
    at = 0
    for start, stop in excerpts(wrong):
        if start > at:
            items.append(_gap(start - at))
        items += [_token(tokens[t], true[t], predicted[t]) for t in range(start, stop)]
        at = stop
    if at < len(true):
        items.append(_gap(len(true) - at))
    head = (
        f"Number {i}: loss {brief(float(outcome.losses[i]))}, "
        f"{count(int(wrong.sum()))} of {counted(len(true), 'token')} wrong"
    )
    return (
        f'<li><p class="which">{head}</p>\n<div class="sentence" dir="{direction(tokens)}">'
        + "\n".join(items)
        + "</div></li>"
    )


def _token(token: Any, true: Any, predicted: Any) -> str:
    if true == predicted:
        return f'<span class="t">{isolated(token)}<span class="l">{text(true)}</span></span>'
    return (
        f'<span class="t x">{isolated(token)}<span class="l y"><span class="aside">true </span>'
        f'{text(true)}</span><span class="l z"><span class="aside">predicted </span>'
        f"{text(predicted)}</span></span>"
    )


def _gap(n: int) -> str:
    return f'<span class="gap">… {counted(n, "token")} …</span>'


def excerpts(wrong: Array) -> list[tuple[int, int]]:
    """Runs of tokens to show: all of them, or those near errors where there are many."""
    n = len(wrong)
    if n <= LONG:
        return [(0, n)]
    found: list[tuple[int, int]] = []
    room = MOST_TOKENS
    for t in np.flatnonzero(wrong).tolist():
        start, stop = max(0, t - NEAR), min(n, t + NEAR + 1)
        if found and start <= found[-1][1]:
            start = found[-1][0]
            room += found.pop()[1] - start
        stop = min(stop, start + room)
        found.append((start, stop))
        room -= stop - start
        if room <= 0:
            break
    return found
