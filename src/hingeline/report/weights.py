"""What the model has learned: features of each label, and transitions between labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from hingeline.estimators.allowed import moves_of
from hingeline.evaluation.inspection import (
    END,
    START,
    FeatureWeight,
    top_features,
    transition_table,
)
from hingeline.report.markup import isolated, paragraph, section, table
from hingeline.report.matrices import LEVELS, matrix, shade
from hingeline.report.words import count, counted, decimals_for, fixed, listed, power_of_ten

Array = np.ndarray[Any, Any]

#: Most labels whose features are listed.
MOST_LABELS = 60
#: Most labels of the table of transitions.
MOST_TRANSITIONS = 30


def weights_section(model: Any, n_features: int, feature_names: Sequence[str] | None) -> str:
    """Top features and transitions, or the largest weights where they have no names."""
    if hasattr(model, "structure"):
        return section("weights", "Weights", _nameless(model, n_features))
    parts = []
    if hasattr(model, "transition_coef_"):
        parts.append(_transitions(model))
    if n_features:
        parts.append(_features(model, n_features, feature_names))
    return section("weights", "Weights", *parts) if parts else ""


def _decimals(weights: Any) -> int:
    """Decimals that give the largest weight three significant digits."""
    return decimals_for(float(np.max(np.abs(weights), initial=0.0)), 3)


# Features ----------------------------------------------------------------------------------------


def _features(model: Any, n: int, names: Sequence[str] | None) -> str:
    rows = top_features(model, n, names)
    groups = [(label, list(found)) for label, found in groupby(rows, key=lambda row: row.label)]
    about = (
        f"For each label, up to {counted(n, 'feature')} that speak most for it and as many that "
        "speak most against it."
    )
    if len(groups) > MOST_LABELS:
        largest = sorted(groups, key=lambda group: -max(abs(row.weight) for row in group[1]))
        kept = {id(group[1]) for group in largest[:MOST_LABELS]}
        about += (
            f" Shown are the {MOST_LABELS} of {count(len(groups))} labels that have the largest "
            "weights."
        )
        groups = [group for group in groups if id(group[1]) in kept]
    if not groups:
        return paragraph("All weights of features are zero.")
    weights = [row.weight for row in rows]
    largest_of_all = max(map(abs, weights))
    decimals = _decimals(weights)
    cards = [_card(label, found, largest_of_all, decimals) for label, found in groups]
    return "\n".join(
        ["<h3>Features by label</h3>", paragraph(about), '<div class="cards">', *cards, "</div>"]
    )


def _card(label: Any, rows: list[FeatureWeight], largest: float, decimals: int) -> str:
    sides = []
    for word, side in (
        ("for", [row for row in rows if row.weight > 0]),
        ("against", [row for row in reversed(rows) if row.weight < 0]),
    ):
        lines = []
        for row in side:
            step = math.ceil(LEVELS * abs(row.weight) / largest)
            kind = "p" if row.weight > 0 else "m"
            lines.append(
                f'<tr><th scope="row">{isolated(row.feature)}</th>'
                f'<td class="n {kind}{step}">{fixed(row.weight, decimals)}</td></tr>'
            )
        body = "\n".join(lines) or '<tr><td colspan="2">none</td></tr>'
        sides.append(
            f'<table class="bars"><caption><span class="aside">features </span>{word}'
            f'<span class="aside"> {isolated(label)}</span></caption>\n<tbody>\n{body}\n'
            "</tbody></table>"
        )
    return (
        f'<article class="card"><h4>{isolated(label)}</h4><div class="sides">'
        + "\n".join(sides)
        + "</div></article>"
    )


def _nameless(model: Any, n: int) -> str:
    """The largest weights of a user's own structure, by number."""
    weights = np.asarray(model.weights_, dtype=np.float64)
    order = np.argsort(-np.abs(weights), kind="stable")[:n]
    shown = [int(k) for k in order if weights[k] != 0]
    about = (
        f"The structure's joint feature vector has {counted(len(weights), 'entry', 'entries')}; "
        f"{count(int(np.count_nonzero(weights)))} have a weight that is not zero."
    )
    if not shown:
        return paragraph(about)
    decimals = _decimals(weights)
    rows = [[count(k), fixed(weights[k], decimals)] for k in shown]
    caption = f"The {len(shown)} largest weights"
    return paragraph(about) + table(caption, ("entry", "weight"), rows, words=())


# Transitions -------------------------------------------------------------------------------------


def _transitions(model: Any) -> str:
    rows = transition_table(model)
    labels: list[Any] = model.classes_.tolist()
    valid = moves_of(model.classes_, getattr(model, "scheme_", None))
    # Labels by number, because a label may well be called "(start)".
    sources: list[int | None] = list(range(len(labels)))
    targets: list[int | None] = list(range(len(labels)))
    if model.boundary:
        sources.insert(0, None)
        targets.append(None)
    places = [(a, b) for a in sources for b in targets if (a, b) != (None, None)]
    weights = {place: row.weight for place, row in zip(places, rows, strict=True)}
    caption = "From label (rows) to label (columns)"
    if len(labels) > MOST_TRANSITIONS:
        table_of = np.abs(model.transition_coef_)
        size = np.maximum(table_of.max(axis=0), table_of.max(axis=1))
        kept = set(np.argsort(-size, kind="stable")[:MOST_TRANSITIONS].tolist()) | {None}
        sources = [a for a in sources if a in kept]
        targets = [b for b in targets if b in kept]
        caption += (
            f": the {MOST_TRANSITIONS} of {count(len(labels))} labels with the largest weights"
        )
    shown = [weights[a, b] for a in sources for b in targets if (a, b) in weights]
    largest = max(map(abs, shown), default=0.0) or 1.0
    # Cells have room for few characters: weights of another size are shown in units of their own.
    power = 0 if 0.1 <= largest < 1000 else math.floor(math.log10(largest))
    unit = 10.0**power
    decimals = decimals_for(largest / unit, 2)
    lines = []
    forbidden = False
    for a in sources:
        cells = []
        for b in targets:
            if (a, b) not in weights:
                cells.append(("", ""))
            elif valid is not None and not _allowed(valid, a, b):
                cells.append(("×", "no"))
                forbidden = True
            else:
                weight = weights[a, b]
                kind = shade(abs(weight) / largest, "b" if weight > 0 else "o")
                cells.append((fixed(weight / unit, decimals) if weight else "·", kind))
        lines.append((START if a is None else isolated(labels[a]), cells))
    heads = [END if b is None else isolated(labels[b]) for b in targets]
    notes = ["positive weights are blue", "negative ones orange"]
    if forbidden:
        notes.append(f"× is forbidden by {model.scheme_}")
    units = f", in units of {power_of_ten(power)}" if power else ""
    note = (
        f"What a label right after another adds to the score{units}: {listed(notes)}. "
        "The shade is the share of the largest, on a scale of square roots."
    )
    return matrix(caption, "from ↓ to →", heads, lines, note=note, title="Transitions")


def _allowed(valid: Any, a: int | None, b: int | None) -> bool:
    start, move, end = valid
    if a is None:
        return bool(start[b])
    return bool(end[a]) if b is None else bool(move[a, b])
