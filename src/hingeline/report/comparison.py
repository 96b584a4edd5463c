"""Two models on the same data: which is better, where, by how much, and whether it is chance."""

from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline.evaluation.metrics import count_spans, draw_sums, pair_labels, ratio
from hingeline.report.errors import describe_part
from hingeline.report.outcome import MOST_SCORES, Outcome
from hingeline.report.sections import Content, Table
from hingeline.report.words import SPACE, count, count_of, decimal, show

N_RESAMPLES = 1000  # for intervals of 95 %, drawn with a fixed seed

#: A score: its name, and (models, examples) of what it is a share of; F1 is one as well.
Share = tuple[Any, Array, Array]


def describe_comparison(name: str, own: Outcome, other: Outcome, n_errors: int) -> Content:
    """Scores of two outcomes side by side, and examples that only one of them gets right."""
    name = show(name, 40)
    if own.sets is not None and other.sets is not None:
        shares = _count_sets(*own.sets[:2], np.stack([own.sets[2], other.sets[2]]))
        parts, part = [own.sets[1] == side for side in (own.sets[2], other.sets[2])], "indicator"
    elif own.evaluation is not None and own.pairs is not None and other.pairs is not None:
        shares = _count_labels(own, other)
        parts, part = [own.pairs.right, other.pairs.right], own.part
    else:
        raise ValueError("compare is for outputs with as many labels as the truth: leave it out.")
    whole = [side.losses == 0 for side in (own, other)]
    rows = [_agree(f"{own.noun}s without errors", *whole)]
    if not own.single:
        rows.append(_agree(f"{part}s", *parts))
    only, theirs = (int((a & ~b).sum()) for a, b in (whole, whole[::-1]))
    about = (
        f"Of {count_of(len(whole[0]), own.noun)}, {count(only)} are free of errors with this model "
        f"only, and {count(theirs)} with {name} only. If both models were equally good, a split "
        f"as uneven as this would have a probability of {_probability(mcnemar(only, theirs))} "
        "(McNemar's exact test)."
    )
    groups = []
    for title, side, mask in (
        (f"Only this model is right. What {name} predicts", other, whole[0] & ~whole[1]),
        (f"Only {name} is right. What this model predicts", own, whole[1] & ~whole[0]),
    ):
        worst = [i for i in side.most_costly(len(mask)) if mask[i]][: (n_errors + 1) // 2]
        if worst:
            groups.append(describe_part(side, None, worst, f"{title} ({count(int(mask.sum()))})"))
    head = ("right", "both", "only this model", f"only {name}", "neither")
    agreement = Table("Who is right", head, rows)
    scores = _score_table(name, shares, own.noun)
    return {"about": about, "scores": scores, "agreement": agreement, "groups": groups}


def mcnemar(only: int, theirs: int) -> float:
    """Probability of a split at least as uneven where each side has a chance of one half."""
    from scipy.stats import binomtest

    return float(binomtest(only, only + theirs).pvalue) if only + theirs else 1.0


def _agree(what: str, own: Array, other: Array) -> list[str]:
    cells = (own & other, own & ~other, ~own & other, ~own & ~other)
    return [what, *(count(int(cell.sum())) for cell in cells)]


def _count_labels(own: Outcome, other: Outcome) -> list[Share]:
    """Accuracies, F1 of spans, and that of each type of span or each label."""
    assert own.evaluation is not None
    both = pair_labels([*own.true, *own.true], [*own.predicted, *other.predicted])
    size = len(both.offsets) - 1
    lengths, right = np.diff(both.offsets).reshape(2, -1), both.count_right().reshape(2, -1)
    shares: list[Share] = [("accuracy" if own.single else f"{own.part} accuracy", right, lengths)]
    if not own.single:
        shares.append((f"{own.noun}s without errors", right == lengths, np.ones_like(lengths)))
    if own.evaluation.spans is None:
        owner = np.repeat(np.arange(size), np.diff(both.offsets))
        names: list[Any] = both.labels
        kinds = [both.true[both.right], both.predicted, both.true]
        owners = [owner[both.right], owner, owner]
    else:
        names, kinds, owners = count_spans(both, own.evaluation.scheme, own.evaluation.mode)
        counts = [np.bincount(owner, minlength=size).reshape(2, -1) for owner in owners]
        shares.append(("span F1", 2 * counts[0], counts[1] + counts[2]))
    sizes = np.bincount(np.concatenate(kinds[1:]), minlength=len(names))
    for k in np.sort(np.argsort(-sizes, kind="stable")[:MOST_SCORES]).tolist():
        counts = [
            np.bincount(owner[kind == k], minlength=size).reshape(2, -1)
            for owner, kind in zip(owners, kinds, strict=True)
        ]
        if sizes[k]:
            shares.append((f"F1 of {names[k]}", 2 * counts[0], counts[1] + counts[2]))
    return shares


def _count_sets(names: list[Any], true: Array, predicted: Array) -> list[Share]:
    """Accuracies and F1 of sets, and F1 of each label; ``predicted`` is of both models."""
    right = true == predicted
    every = np.ones(right.shape[:2])
    correct, either = 2 * (true & predicted), true.astype(int) + predicted
    shares: list[Share] = [
        ("indicators right", right.mean(axis=2), every),
        ("examples without errors", right.all(axis=2), every),
        ("F1 of all labels", correct.sum(axis=2), either.sum(axis=2)),
    ]
    kept = np.sort(np.argsort(-either.sum(axis=(0, 1)), kind="stable")[:MOST_SCORES])
    return shares + [(f"F1 of {names[k]}", correct[:, :, k], either[:, :, k]) for k in kept]


def _score_table(name: str, shares: list[Share], noun: str) -> Table:
    """Each score of both models, and a paired bootstrap of the difference over whole examples."""
    n = len(shares)
    columns = [table[m] for m in (0, 1) for k in (1, 2) for table in (share[k] for share in shares)]
    table = np.stack(columns, axis=1).astype(float)
    sums = np.vstack([table.sum(axis=0), draw_sums(table, N_RESAMPLES, 0)])
    own, other = (ratio(sums[:, at : at + n], sums[:, at + n : at + 2 * n]) for at in (0, 2 * n))
    differences = own - other
    low, high = np.quantile(differences[1:], [0.025, 0.975], axis=0)
    below, above = (1 + (side[1:] >= 0).sum(axis=0) for side in (-differences, differences))
    chance = np.minimum(2 * np.minimum(below, above) / (N_RESAMPLES + 1), 1.0)
    rows = [
        [
            shares[k][0],
            *(decimal(100 * value, 2) for value in (own[0, k], other[0, k], differences[0, k])),
            f"{decimal(100 * low[k], 2)} to {decimal(100 * high[k], 2)}",
            _probability(chance[k]),
        ]
        for k in range(n)
    ]
    head = ("score %", "this model", name, "difference", f"95{SPACE}% interval", "p")
    caption = f"Scores: {count(N_RESAMPLES)} resamples of {noun}s"
    return Table(caption, head, rows, names=(0,))


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else decimal(p, 3)
