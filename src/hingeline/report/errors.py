"""Single errors: which are shown, what they are filtered by, how each is told, and which another
model does not make: which of the two is better, where, by how much, and whether it is chance.
"""

from __future__ import annotations

import base64
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hingeline._checks import Array, require, retell
from hingeline._words import LONGEST, SPACE, brief, count, count_of, decimal, show
from hingeline.evaluation.metrics import LabelPairs, count_spans, draw_sums, pair_labels, ratio
from hingeline.report.figures import draw_png, plot_segmentation
from hingeline.report.outcome import MOST_SCORES, Outcome
from hingeline.report.sections import Content, Table, keep_largest
from hingeline.schemes import span_arrays

LONG = 80  # A sequence of more tokens than this is shown near its errors only,
NEAR = 6  # with so many tokens before and after each,
MOST_TOKENS = 240  # and no more tokens than this in all.
EACH = 2  # Each confusion has so many examples,
MORE = 5  # as long as there are no more than this for each of the most costly errors.
N_RESAMPLES = 1000  # for intervals of 95 %, drawn with a fixed seed

Pictures = Callable[[int], str]  # The address of the picture of an example.
#: Kinds of errors by key. The first five are of spans, which are compared where they overlap.
KINDS = {
    "missed": "a span is missed",
    "extra": "a span where there is none",
    "type": "wrong type, right ends",
    "ends": "wrong ends, right type",
    "both": "wrong type and ends",
    "absent": "a label is missing",
    "surplus": "a label too many",
    "new": "at a word not seen in training",
}


@dataclass
class Filter:
    """What the page's errors can be filtered by: keys of every wrong example."""

    labels: list[Any]
    keys: dict[int, set[str]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)  # errors of each kind
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)  # (true, predicted)

    def add(self, example: int, *keys: str) -> None:
        """Note what is wrong with an example."""
        self.keys.setdefault(example, set()).update(keys)
        self.kinds.update(KINDS.keys() & keys)

    def mark(self, example: int) -> tuple[str, str]:
        """Name and keys of an example on the page, if it can be filtered."""
        keys = " ".join(sorted(self.keys.get(example, ())))
        return f"error-{example + 1}" if keys else "", keys

    def kinds_table(self) -> Table | None:
        """How many errors of each kind there are; None where no kinds are known."""
        rows = [[KINDS[key], count(n)] for key, n in self.kinds.most_common()]
        return Table("Kinds of errors", ("kind", "count"), rows) if rows else None

    def describe(self) -> Content:
        """Options for the page: labels, kinds, pairs."""
        used = set().union(*self.keys.values())
        labels = [(f"l{k}", name) for k, name in enumerate(self.labels) if f"l{k}" in used]
        kinds = [(key, f"{text} ({count(self.kinds[key])})") for key, text in KINDS.items()]
        pairs = [
            (f"p{a}-{b}", self.labels[a], self.labels[b], count(n))
            for (a, b), n in self.pairs.most_common()
        ]
        return {"labels": labels, "kinds": [k for k in kinds if self.kinds[k[0]]], "pairs": pairs}


def find_filter(outcome: Outcome, new: Array | None = None) -> Filter:
    """What is wrong with which example; ``new`` are tokens whose word training has not seen."""
    if outcome.sets is not None:
        names, true, predicted = outcome.sets
        found = Filter(names)
        for kind, these in (("absent", true & ~predicted), ("surplus", predicted & ~true)):
            for i, k in np.argwhere(these).tolist():
                found.add(i, kind, f"l{k}")
        return found
    if (pairs := outcome.pairs) is None or outcome.evaluation is None:
        return Filter([])
    found = Filter(pairs.labels)
    wrong = np.flatnonzero(~pairs.right)
    owner = np.searchsorted(pairs.offsets, wrong, side="right") - 1
    columns = (owner, pairs.true[wrong], pairs.predicted[wrong])
    for i, a, b in zip(*(c.tolist() for c in columns), strict=True):
        found.add(i, f"l{a}", f"l{b}", f"p{a}-{b}")
        found.pairs[a, b] += 1
    if new is not None:
        for i in owner[new[wrong]].tolist():
            found.add(i, "new")
    if outcome.evaluation.spans is not None and outcome.evaluation.scheme != "segments":
        for i, kind in find_span_errors(pairs, outcome.evaluation.scheme, outcome.evaluation.mode):
            found.add(i, kind)
    return found


def find_span_errors(
    pairs: LabelPairs, scheme: str | None, mode: str = "default"
) -> list[tuple[int, str]]:
    """(sequence, kind) of every true and predicted span that is not right."""
    sides, at = [], []  # spans as (type, first, stop), and the one that a token is in
    for side in (pairs.true, pairs.predicted):
        columns = span_arrays(pairs.labels, side, pairs.offsets, scheme, mode)[1:]
        sides.append([*zip(*(column.tolist() for column in columns), strict=True)])
        at.append({t: k for k, (_, lo, hi) in enumerate(sides[-1]) for t in range(lo, hi)})
    meet = sorted({(at[0][t], at[1][t]) for t in at[0].keys() & at[1].keys()})
    found = []  # first token and kind
    for own, name in enumerate(("missed", "extra")):
        met = {pair[own] for pair in meet}
        found += [(first, name) for k, (_, first, _) in enumerate(sides[own]) if k not in met]
    for a, b in meet:
        (kind, *ends), (other, *others) = sides[0][a], sides[1][b]
        if kind != other or ends != others:
            name = "type" if ends == others else "ends" if kind == other else "both"
            found.append((ends[0], name))
    owner = np.searchsorted(pairs.offsets, [first for first, _ in found], side="right") - 1
    return [(i, name) for i, (_, name) in zip(owner.tolist(), found, strict=True)]


def choose_errors(outcome: Outcome, found: Filter, n: int) -> tuple[list[int], list[int]]:
    """The most costly examples, and more of them so that each confusion has its examples."""
    first = outcome.most_costly(n)
    chosen = dict.fromkeys(first)
    owners: dict[str, list[int]] = {}
    for i in outcome.most_costly(len(outcome.losses)):
        for key in found.keys.get(i, ()):
            owners.setdefault(key, []).append(i)
    for a, b in (pair for pair, _ in found.pairs.most_common()):
        own = owners.get(f"p{a}-{b}", [])
        wanted = EACH - sum(i in chosen for i in own)
        # Of the others the least wrong: there the confusion stands out.
        fresh = [i for i in reversed(own) if i not in chosen][: max(wanted, 0)]
        chosen.update(dict.fromkeys(fresh))
    return first, [*chosen][len(first) : len(first) + MORE * n]


def describe_errors(
    outcome: Outcome, found: Filter, n_errors: int, pictures: Pictures | None
) -> Content | None:
    """Examples with the largest loss; None if single outputs are not known."""
    if len(outcome.losses) == 0 or n_errors == 0:
        return None
    first, more = choose_errors(outcome, found, n_errors)
    if not first:
        return {"about": "There are no errors.", "filter": None, "parts": []}
    wrong = int((outcome.losses > 0).sum())
    explained = outcome.sets is None and outcome.noun != "graph"
    about = (
        f"{count(wrong)} of {count_of(len(outcome.losses), outcome.noun)} "
        f"{'has' if wrong == 1 else 'have'} errors. "
        f"{'These are' if wrong > 1 else 'This is'} the {count_of(len(first), outcome.noun)} "
        "with the largest loss, numbered from 1"
        f"{', as for hingeline explain -s' if explained else ''}."
    )
    parts = [describe_part(outcome, found, first, "", LONG, pictures)]
    if more:
        title = f"{count_of(len(more), outcome.noun)} more: each confusion has examples here"
        parts.append(describe_part(outcome, found, more, title, 0, pictures))
    return {"about": about, "filter": found.describe() if found.keys else None, "parts": parts}


def describe_part(
    outcome: Outcome,
    found: Filter,
    chosen: list[int],
    title: str,
    long: int = 0,
    pictures: Pictures | None = None,
) -> Content:
    """Some errors as a table or a list; sequences beyond ``long`` are shown near theirs only."""
    if outcome.noun == "example":
        return {"title": title, "table": _error_table(outcome, found, chosen), "items": []}
    items = [_describe(outcome, found, i, long, pictures) for i in chosen]
    return {"title": title, "table": None, "items": items}


def links_of(content: Content | None) -> dict[str, str]:
    """The first error on the page that has a key."""
    found: dict[str, str] = {}
    for part in [] if content is None else content["parts"]:
        rows = part["table"].ids if part["table"] else [(e["id"], e["keys"]) for e in part["items"]]
        for name, keys in rows:
            for key in keys.split():
                found.setdefault(key, name)
    return found


def _error_table(outcome: Outcome, found: Filter, chosen: list[int]) -> Table:
    """Errors of single labels, of sets, or of outputs that have no labels to compare."""
    rows = []
    for i in chosen:
        row: list[Any] = [str(i + 1), brief(outcome.losses[i])]
        true, predicted = outcome.true[i], outcome.predicted[i]
        if outcome.sets is not None:
            row += [_list(true, predicted), _list(predicted, true), _list(true, predicted, True)]
        else:
            row += [y[0] if outcome.single else " ".join(map(str, y)) for y in (true, predicted)]
        rows.append(row if outcome.tokens is None else [*row, outcome.tokens[i]])
    head = ["number", "loss", "true", "predicted"]
    if outcome.sets is not None:
        head[2:] = ["missing", "too many", "right"]
    head += ["text"] * (outcome.tokens is not None)
    words = range(2, len(head))
    ids = [found.mark(i) for i in chosen]
    return Table("Errors with the largest loss", head, rows, words, words, kind="texts", ids=ids)


def _list(labels: list[Any], others: Collection[Any], both: bool = False) -> str:
    return ", ".join(str(label) for label in labels if (label in others) == both) or "–"


def _describe(
    outcome: Outcome, found: Filter, i: int, long: int, pictures: Pictures | None
) -> Content:
    """One sequence or graph: its tokens with their labels, or its picture and its confusions."""
    true, predicted = outcome.true[i], outcome.predicted[i]
    wrong = np.array([a != b for a, b in zip(true, predicted, strict=True)], dtype=bool)
    share = f"{count(int(wrong.sum()))} of {count_of(len(true), outcome.part)} wrong"
    name, keys = found.mark(i)
    content: Content = {
        "id": name, "keys": keys, "items": [], "confusions": [], "picture": "",
        "head": f"Number {i + 1}: loss {brief(outcome.losses[i])}, {share}",
    }  # fmt: skip
    if outcome.part == "node" and outcome.tokens is None:
        pairs = Counter((true[t], predicted[t]) for t in np.flatnonzero(wrong).tolist())
        content["confusions"] = [(a, b, count(n)) for (a, b), n in pairs.most_common(6)]
        content["picture"] = "" if pictures is None else pictures(i)
        return content
    tokens: list[Any] = outcome.tokens[i] if outcome.tokens is not None else list(range(len(true)))
    at = 0
    for start, stop in [*find_excerpts(wrong, long), (len(true), len(true))]:
        if start > at:
            content["items"].append({"gap": count_of(start - at, "token")})
        content["items"] += [
            {"token": tokens[t], "true": true[t], "predicted": predicted[t], "wrong": wrong[t]}
            for t in range(start, stop)
        ]
        at = stop
    return content | {"direction": find_direction(tokens)}


def find_excerpts(wrong: Array, long: int = LONG) -> list[tuple[int, int]]:
    """Runs of tokens to show: all of them, or those near errors where there are many."""
    n = len(wrong)
    if n <= long:
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


def check_pictures(
    model: Any, y_true: Any, y_pred: Any, regions: Any, images: Any
) -> Pictures | None:
    """What draws the labels of a graph's nodes as those of a picture, truth beside prediction.

    ``regions`` are (rows, columns) nodes of pixels, or shapes (rows, columns).
    """
    if regions is None:
        require(images is None, "images need regions: pass regions with them.")
        return None
    if not hasattr(model, "void_label") or y_true is None:
        raise ValueError("regions are for the labels of a GraphSSVM: pass y_true and y_pred.")
    for name, given in (("regions", regions), ("images", images)):
        size = len(y_true) if given is None else len(given)
        what = f"{name} has {size} entries and y_true has {len(y_true)}"
        require(size == len(y_true), f"{what}: they must have the same length.")
    classes, void = model.classes_.tolist(), model.void_label
    seen = {label for y in (*y_true, *y_pred) for label in np.asarray(y).tolist()}
    classes += sorted(seen - {*classes, void}, key=str)

    def draw(i: int) -> str:
        own = np.asarray(regions[i])
        where: Any = {"shape": tuple(own.tolist())} if own.ndim == 1 else {"regions": own}
        where["image"] = None if images is None else images[i]
        given = {"classes": classes, "void_label": void, "title": ""}
        with retell(f"regions[{i}]: "):
            figure = plot_segmentation(y_pred[i], y_true[i], **where, **given).figure
        return "data:image/png;base64," + base64.b64encode(draw_png(figure, 80)).decode()

    return draw


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
            groups.append(
                describe_part(side, Filter([]), worst, f"{title} ({count(int(mask.sum()))})")
            )
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
    for k in keep_largest(sizes, MOST_SCORES).tolist():
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
    kept = keep_largest(either.sum(axis=(0, 1)), MOST_SCORES)
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


def find_direction(tokens: Iterable[Any]) -> str:
    """``"rtl"`` or ``"ltr"``, by the first letter that has a direction of writing."""
    for token in tokens:
        for character in str(token)[:LONGEST]:
            kind = unicodedata.bidirectional(character)
            if kind in ("R", "AL"):
                return "rtl"
            if kind == "L":
                return "ltr"
    return "ltr"
