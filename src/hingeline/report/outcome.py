"""True and predicted outputs: checked, with the loss of each, and what the page says of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from hingeline._checks import Array, check_loss, is_list, require
from hingeline.evaluation.inspection import read_blocks
from hingeline.evaluation.metrics import Evaluation, LabelPairs, Score, evaluate, pair_labels
from hingeline.report.sections import MOST_IN_MATRIX, Content, Matrix, Table, pick_shade
from hingeline.report.words import brief, count, count_of, decimal, find_direction, percent

MOST_SCORES, MOST_PAIRS = 50, 12  # Most rows of scores, and most pairs of confused labels.
LONG = 80  # A sequence of more tokens than this is shown near its errors only,
NEAR = 6  # with so many tokens before and after each,
MOST_TOKENS = 240  # and no more tokens than this in all.


@dataclass(frozen=True)
class Outcome:
    """What was predicted, and how good it is.

    ``evaluation`` is None where outputs are not labels that can be compared one by one; ``true``,
    ``predicted`` and ``losses`` are empty where only an evaluation was given.
    """

    single: bool  # one label per example, not a sequence of them
    evaluation: Evaluation | None
    true: Sequence[list[Any]] = ()
    predicted: Sequence[list[Any]] = ()
    losses: Array = field(default_factory=lambda: np.zeros(0))
    tokens: list[Any] | None = None  # one text per example, or one list per sequence

    @property
    def noun(self) -> str:
        """What one output is called."""
        return "example" if self.single or self.evaluation is None else "sequence"

    def most_costly(self, n: int) -> list[int]:
        """Examples of the largest loss; of equal ones the shorter first, then the earlier."""
        lengths = np.array([len(labels) for labels in self.true])
        order = np.lexsort((lengths, -self.losses))[:n]
        return [int(i) for i in order if self.losses[i] > 0]


def compare(
    model: Any, evaluation: Evaluation | None, y_true: Any, y_pred: Any, tokens: Any
) -> Outcome | None:
    """The outcome that the arguments of a report describe; None if they describe none."""
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        what = "evaluation must be what hingeline.evaluation.metrics.evaluate returns"
        raise TypeError(f"{what}, got {type(evaluation).__name__}.")
    if (y_true is None) != (y_pred is None):
        given, missing = ("y_true", "y_pred") if y_pred is None else ("y_pred", "y_true")
        raise ValueError(f"{given} is given without {missing}: pass both or neither.")
    own = hasattr(model, "structure")
    single = not own and not read_blocks(model).is_chain
    if y_true is None:
        if tokens is not None:
            raise ValueError("tokens are shown with labels: pass y_true and y_pred with them.")
        return None if evaluation is None else Outcome(single, evaluation)
    if own:
        return _compare_structure(model, evaluation, y_true, y_pred, tokens)
    if single:
        y_true, y_pred = _wrap(y_true, "y_true"), _wrap(y_pred, "y_pred")
    pairs = pair_labels(y_true, y_pred)
    word, whole = ("zero_one", None) if single else ("hamming", "zero_one")
    cost = check_loss(model.loss, word, len(model.classes_), vector=not single, whole=whole)
    losses = find_losses(pairs, model.classes_, cost)
    if cost[0, 0] > 0.0:  # a labelling is wrong once, however many of its labels are
        losses = np.minimum(losses, cost[0, 0])
    return _finish(pairs, losses, evaluation, single, tokens)


def find_losses(pairs: LabelPairs, classes: Array, cost: Array) -> Array:
    """Loss of each sequence under a cost matrix in the order of the classes.

    A label that the model does not know costs as much as the dearest error.
    """
    index = {label: k for k, label in enumerate(classes.tolist())}
    n = len(index)
    most = cost.max() if cost.any() else 1.0
    table = np.pad(cost, (0, 1), constant_values=most)
    number = np.array([index.get(label, n) for label in pairs.labels], dtype=np.int64)
    losses = table[number[pairs.true], number[pairs.predicted]] * ~pairs.right
    return np.diff(np.concatenate([[0.0], np.cumsum(losses)])[pairs.offsets])


def _finish(
    pairs: LabelPairs, losses: Array, evaluation: Evaluation | None, single: bool, tokens: Any
) -> Outcome:
    true, predicted = (
        [[pairs.labels[k] for k in numbers[lo:hi].tolist()] for lo, hi in pairwise(pairs.offsets)]
        for numbers in (pairs.true, pairs.predicted)
    )
    if evaluation is None:
        evaluation = evaluate(true, predicted, scheme=None if single else "auto")
    elif evaluation.n_tokens != len(pairs.true):
        what = f"evaluation is of {evaluation.n_tokens} labels, but y_true has {len(pairs.true)}"
        raise ValueError(f"{what}: pass the labels that were evaluated, or leave one out.")
    return Outcome(single, evaluation, true, predicted, losses, _check_tokens(tokens, true, single))


def _compare_structure(
    model: Any, evaluation: Evaluation | None, y_true: Any, y_pred: Any, tokens: Any
) -> Outcome:
    """Outputs of a user's own structure: by their loss, and by label where they have labels."""
    what = f"y_true has {len(y_true)} examples and y_pred has {len(y_pred)}"
    require(len(y_true) == len(y_pred), f"{what}: they must have one length.")
    require(len(y_true) != 0, "y_true is empty: there are no outputs to compare.")
    structure = model.structure
    packed = [[structure.pack(y) for y in side] for side in (y_true, y_pred)]
    losses = np.array([float(structure.loss(a, b)) for a, b in zip(*packed, strict=True)])
    true, predicted = ([y.tolist() for y in side] for side in packed)
    single = all(len(y) == 1 for y in (*true, *predicted))
    if all(len(a) == len(b) for a, b in zip(true, predicted, strict=True)):
        return _finish(pair_labels(true, predicted), losses, evaluation, single, tokens)
    if tokens is not None:
        what = "tokens need one label each, but true and predicted outputs differ in length"
        raise ValueError(f"{what}: leave tokens out.")
    return Outcome(False, evaluation, true, predicted, losses)


def _wrap(y: Any, name: str) -> list[list[Any]]:
    """Single labels as sequences of one."""
    if not is_list(y):
        raise TypeError(f"{name} must be a list of labels, got {type(y).__name__}.")
    labels = y.tolist() if hasattr(y, "tolist") else list(y)
    for i, label in enumerate(labels):
        if isinstance(label, (list, dict, set, np.ndarray)):
            what = f"{name}[{i}] is a {type(label).__name__}"
            raise TypeError(f"{what}, but the model gives one label: pass a flat list of labels.")
    return [[label] for label in labels]


def _check_tokens(tokens: Any, true: list[list[Any]], single: bool) -> list[Any] | None:
    """Tokens that fit the labels."""
    if tokens is None:
        return None
    if not is_list(tokens):
        raise TypeError(f"tokens must be a list, one entry per sequence, got {tokens!r:.60}.")
    found = list(tokens)
    what = f"tokens has {len(found)} entries and y_true has {len(true)}"
    require(len(found) == len(true), f"{what}: they must have one length.")
    if single:
        return [" ".join(map(str, t)) if isinstance(t, (list, tuple)) else t for t in found]
    for i, (entry, labels) in enumerate(zip(found, true, strict=True)):
        if not is_list(entry):
            raise TypeError(f"tokens[{i}] is {entry!r:.60}, not a list of tokens.")
        found[i] = list(entry)
        if len(found[i]) != len(labels):
            what = f"tokens[{i}] has {len(found[i])} tokens and y_true[{i}] has {len(labels)}"
            raise ValueError(f"{what} labels: they must have one length.")
    return found


def describe_evaluation(outcome: Outcome | None) -> Content | None:
    """Everything that an evaluation says, except single errors."""
    if outcome is None:
        return None
    found, single = outcome.evaluation, outcome.single
    about = [] if found is None else [_describe_data(found, single)]
    if len(outcome.losses):
        losses, what = outcome.losses, outcome.noun
        about.append(
            f"The mean loss is {brief(float(losses.mean()))} per {what}; "
            f"{percent(float((losses == 0).mean()), 1)} of the {count_of(len(losses), what)} "
            "have no loss."
        )
    if found is None:
        return {"about": about, "summary": None}
    content = {"about": about, "summary": _summary(found, single), "spans": None}
    if found.spans is not None:
        averages = [found.spans.micro, found.spans.macro, found.spans.weighted]
        content["spans"] = _scores("Spans by type", "type", found.spans.per_type, averages)
    caption = "Examples by label" if single else "Tokens by label"
    content["labels"] = _scores(caption, "label", found.per_label, [])
    return content | {"pairs": _pairs(found), "confusion": _confusion(found)}


def _describe_data(found: Evaluation, single: bool) -> str:
    if single:
        return f"{count_of(found.n_tokens, 'example')}."
    size = f"{count_of(found.n_sequences, 'sequence')}, {count_of(found.n_tokens, 'token')}."
    if found.spans is None:
        return size
    scheme = f" by the scheme {found.scheme}" if found.scheme else ""
    how = {"default": "as conlleval does", "strict": "only where the scheme allows them"}
    return f"{size} Spans are read{scheme}, {how.get(found.mode, found.mode)}."


def _summary(found: Evaluation, single: bool) -> Table:
    names = ["token_accuracy"] if single else ["token_accuracy", "sequence_accuracy"]
    if found.spans is not None:
        names += ["span_precision", "span_recall", "span_f1"]
    rows = []
    for name in names:
        shown = "accuracy" if single else name.replace("_", " ").replace("f1", "F1")
        row = [shown, percent(getattr(found, name))]
        if bounds := found.intervals.get(name):
            row.append(f"{decimal(100 * bounds[0], 2)} to {percent(bounds[1])}")
        rows.append(row)
    width = max(map(len, rows))  # three where there are intervals
    rows = [[*row, ""][:width] for row in rows]
    return Table("Summary", ("score", "value", "95 % interval")[:width], rows)


def _scores(caption: str, by: str, scores: Sequence[Score], averages: Sequence[Score]) -> Table:
    shown = list(scores)
    if len(shown) > MOST_SCORES:
        shown = sorted(shown, key=lambda s: -s.support)[:MOST_SCORES]
        caption += f": the {MOST_SCORES} most frequent of {count(len(scores))}"
    rows = []
    for s in (*shown, *averages):
        shares = (decimal(100 * share, 2) for share in (s.precision, s.recall, s.f1))
        rows.append([s.name, *shares, count(s.support)])
    head = (by, "precision %", "recall %", "F1 %", "support")
    return Table(caption, head, rows, names=(0,), last=len(averages))


def _pairs(found: Evaluation) -> Table | None:
    support = dict(zip(found.labels, found.confusion.sum(axis=1), strict=True))
    rows = [
        [true, predicted, count(n), percent(n / support[true], 1)]
        for true, predicted, n in found.confusions(MOST_PAIRS)
    ]
    head = ("true", "predicted", "count", "of the true label")
    caption = "Most frequent confusions"
    return Table(caption, head, rows, words=(0, 1), names=(0, 1)) if rows else None


def _confusion(found: Evaluation) -> Matrix:
    names: list[Any] = list(found.labels)
    counts = found.confusion
    caption = "Confusion matrix"
    lumped = len(names) > MOST_IN_MATRIX
    if lumped:
        total = counts.sum(axis=0) + counts.sum(axis=1)
        kept = np.sort(np.argsort(-total, kind="stable")[:MOST_IN_MATRIX])
        others = count(len(names) - MOST_IN_MATRIX)
        counts = merge_labels(counts, kept)
        names = [names[k] for k in kept] + [f"{others} others"]
        caption += f": the {MOST_IN_MATRIX} most frequent labels, the other {others} together"
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def cell(a: int, b: int) -> tuple[str, str]:
        n = int(counts[a, b])
        # Errors among the labels taken together cannot be told from what is right.
        plain = lumped and a == b == len(names) - 1
        kind = "" if plain else pick_shade(share[a, b], "b" if a == b else "o")
        return count(n) if n else "·", f"{kind} d".strip() if a == b else kind

    rows = [(name, [cell(a, b) for b in range(len(names))]) for a, name in enumerate(names)]
    note = (
        "A cell is a count: what is right is blue, on the diagonal, and what is wrong is orange. "
        "The shade is the share of the row, on a scale of square roots."
    )
    return Matrix(caption, "true ↓ predicted →", names, rows, note)


def merge_labels(confusion: Array, kept: Array) -> Array:
    """A confusion matrix of the labels kept, with all others as one last label."""
    number = np.full(len(confusion), len(kept))
    number[kept] = np.arange(len(kept))
    out = np.zeros((len(kept) + 1, len(kept) + 1), dtype=np.int64)
    np.add.at(out, (number[:, None], number[None, :]), confusion)
    return out


def describe_errors(outcome: Outcome | None, n_errors: int) -> Content | None:
    """Examples with the largest loss; None if single outputs are not known."""
    if outcome is None or len(outcome.losses) == 0 or n_errors == 0:
        return None
    chosen = outcome.most_costly(n_errors)
    if not chosen:
        return {"about": "There are no errors.", "table": None, "sentences": []}
    wrong = int((outcome.losses > 0).sum())
    about = (
        f"{count(wrong)} of {count_of(len(outcome.losses), outcome.noun)} "
        f"{'has' if wrong == 1 else 'have'} errors. "
        f"{'These are' if wrong > 1 else 'This is'} the {count_of(len(chosen), outcome.noun)} "
        "with the largest loss; numbers count from 1, as those of hingeline explain -s."
    )
    if outcome.noun == "example":
        return {"about": about, "table": _error_table(outcome, chosen), "sentences": []}
    return {"about": about, "table": None, "sentences": [_sentence(outcome, i) for i in chosen]}


def _error_table(outcome: Outcome, chosen: list[int]) -> Table:
    """Errors of single labels, or of outputs that have no labels to compare."""
    rows = []
    for i in chosen:
        row: list[Any] = [str(i + 1), brief(outcome.losses[i])]
        for labels in (outcome.true[i], outcome.predicted[i]):
            row.append(labels[0] if outcome.single else " ".join(map(str, labels)))
        rows.append(row if outcome.tokens is None else [*row, outcome.tokens[i]])
    head = ["number", "loss", "true", "predicted"] + ["text"] * (outcome.tokens is not None)
    words = range(2, len(head))
    return Table("Errors with the largest loss", head, rows, words, words, kind="texts")


def _sentence(outcome: Outcome, i: int) -> Content:
    """One sequence: its tokens with their labels, and how many are left out in between."""
    true, predicted = outcome.true[i], outcome.predicted[i]
    tokens: list[Any] = outcome.tokens[i] if outcome.tokens is not None else list(range(len(true)))
    wrong = np.array([a != b for a, b in zip(true, predicted, strict=True)], dtype=bool)
    items: list[Content] = []
    at = 0
    for start, stop in [*find_excerpts(wrong), (len(true), len(true))]:
        if start > at:
            items.append({"gap": count_of(start - at, "token")})
        items += [
            {"token": tokens[t], "true": true[t], "predicted": predicted[t], "wrong": wrong[t]}
            for t in range(start, stop)
        ]
        at = stop
    share = f"{count(int(wrong.sum()))} of {count_of(len(true), 'token')} wrong"
    head = f"Number {i + 1}: loss {brief(outcome.losses[i])}, {share}"
    return {"head": head, "direction": find_direction(tokens), "items": items}


def find_excerpts(wrong: Array) -> list[tuple[int, int]]:
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
