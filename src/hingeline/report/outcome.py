"""True and predicted outputs: checked, with the loss of each, and what the page says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from typing import Any

import numpy as np

from hingeline._checks import Array, check_loss, is_list, require, require_type
from hingeline._words import brief, count, count_of, decimal, percent
from hingeline.estimators.segment import has_spans
from hingeline.evaluation import metrics
from hingeline.evaluation.calibration import calibration_error
from hingeline.evaluation.inspection import read_blocks
from hingeline.evaluation.metrics import Evaluation, LabelPairs, Score, pair_labels
from hingeline.report import sections
from hingeline.report.figures import draw_chart, draw_reliability
from hingeline.report.sections import MOST_IN_MATRIX, Content, Table
from hingeline.structures.custom import takes_input

N_BINS = 12  # Points of a reliability curve.
MOST_SCORES, MOST_PAIRS = 50, 12  # Most rows of scores, and most pairs of labels.


@dataclass(frozen=True)
class Outcome:
    """What was predicted, and how good it is.

    ``evaluation`` is None where outputs are not labels that can be compared one by one; ``true``,
    ``predicted`` and ``losses`` are empty where only an evaluation was given. Of sets of labels
    ``true`` and ``predicted`` hold names, and ``sets`` the names of all with their indicators.
    """

    single: bool  # one label per example, not a sequence of them
    evaluation: Evaluation | None
    true: Sequence[list[Any]] = ()
    predicted: Sequence[list[Any]] = ()
    losses: Array = field(default_factory=lambda: np.zeros(0))
    tokens: list[Any] | None = None  # one text per example, or one list per sequence
    pairs: LabelPairs | None = None
    part: str = "token"  # what has a label: a token of a sequence, a node of a graph, a word
    sets: tuple[list[Any], Array, Array] | None = None
    attachment: metrics.AttachmentScores | None = None  # of dependency trees

    @property
    def noun(self) -> str:
        """What one output is called."""
        if self.single or self.evaluation is None:
            return "example"
        return {"token": "sequence", "word": "sentence"}.get(self.part, "graph")

    def most_costly(self, n: int) -> list[int]:
        """Examples of the largest loss; of equal ones the shorter first, then the earlier."""
        lengths = np.array([*map(len, self.true)])
        order = np.lexsort((lengths, -self.losses))[:n].tolist()
        return [i for i in order if self.losses[i] > 0]


def compare(
    model: Any, evaluation: Evaluation | None, y_true: Any, y_pred: Any, tokens: Any
) -> Outcome | None:
    """The outcome that the arguments of a report describe; None if they describe none."""
    fine = evaluation is None or isinstance(evaluation, Evaluation)
    wanted = "what hingeline.evaluation.metrics.evaluate returns"
    require_type(fine, "evaluation", wanted, evaluation)
    if (y_true is None) != (y_pred is None):
        given, missing = ("y_true", "y_pred") if y_pred is None else ("y_pred", "y_true")
        raise ValueError(f"{given} is given without {missing}: pass both or neither.")
    own, graph = hasattr(model, "structure"), hasattr(model, "void_label")
    sets = hasattr(model, "n_labels_")
    if sets and evaluation is not None:
        raise TypeError("the model predicts sets of labels: pass y_true and y_pred, no evaluation.")
    trees, segments = hasattr(model, "projective"), hasattr(model, "segment_features")
    single = not (own or graph or sets or trees or read_blocks(model).is_chain)
    part = "node" if graph else "word" if trees else "token"
    if y_true is None:
        require(tokens is None, "tokens are shown with labels: pass y_true and y_pred with them.")
        return None if evaluation is None else Outcome(single, evaluation, part=part)
    what = "y_true holds spans, but a report compares tags"
    fine = not segments or not has_spans(y_true)
    require(fine, f"{what}: pass model.to_tags([x], spans) of every sequence x.")
    if own:
        return _compare_structure(model, evaluation, y_true, y_pred, tokens)
    if sets:
        return _compare_sets(model, y_true, y_pred, tokens)
    if single:
        y_true, y_pred = _wrap(y_true, "y_true"), _wrap(y_pred, "y_pred")
    if graph and model.void_label is not None:
        y_true, y_pred, tokens = _drop_void(model.void_label, y_true, y_pred, tokens)
    attachment = None
    if trees:
        attachment = metrics.attachment_scores(y_true, y_pred)
        # Where the head is wrong, the predicted relation says so.
        both = [zip(*own, strict=True) for own in zip(y_true, y_pred, strict=True)]
        y_true = [[str(relation) for _, relation in tree] for tree in y_true]
        y_pred = [[f"{b}{', wrong head' * (h != k)}" for (h, _), (k, b) in own] for own in both]
    pairs = pair_labels(y_true, y_pred)
    if trees or segments:  # how many labels are wrong
        losses = np.subtract(np.diff(pairs.offsets), pairs.count_right(), dtype=float)
    else:
        word, whole = ("zero_one", "") if single else ("hamming", "zero_one")
        cost = check_loss(model.loss, word, model.classes_.tolist(), vector=not single, whole=whole)
        losses = find_losses(pairs, model.classes_, cost)
        if cost[0, 0] > 0.0:  # a labelling is wrong once, however many of its labels are
            losses = np.minimum(losses, cost[0, 0])
    return replace(_finish(pairs, losses, evaluation, single, tokens, part), attachment=attachment)


def _drop_void(void: Any, y_true: Any, y_pred: Any, tokens: Any) -> tuple[Any, ...]:
    """Labels, and tokens if there are any, of the nodes whose label is known."""
    pair_labels(y_true, y_pred)  # which refuses what does not fit
    known = [[label != void for label in y] for y in y_true]
    sides = list(y_true), list(y_pred), tokens
    return tuple(y and [[*compress(*own)] for own in zip(y, known, strict=True)] for y in sides)


def _compare_sets(model: Any, y_true: Any, y_pred: Any, tokens: Any) -> Outcome:
    """Sets of labels, as indicators."""
    names = model.classes_.tolist()[-model.n_labels_ :]
    sides = [np.asarray(y.toarray() if hasattr(y, "toarray") else y) for y in (y_true, y_pred)]
    if len(names) == 1:
        sides = [(y == names[0] if y.ndim == 1 else y).reshape(-1, 1) for y in sides]
    for name, y in zip(("y_true", "y_pred"), sides, strict=True):
        what = f"{name} has shape {y.shape}, expected (examples, {len(names)})"
        require(y.ndim == 2 and y.shape[1] == len(names), f"{what}: indicators of the labels.")
    what = f"y_true has {len(sides[0])} examples and y_pred has {len(sides[1])}"
    require(len(sides[0]) == len(sides[1]), f"{what}: they must have the same length.")
    require(len(sides[0]) != 0, "y_true is empty: there are no outputs to compare.")
    true, predicted = (y.astype(bool) for y in sides)
    cost = check_loss(model.loss, "hamming", 2, vector=True)
    losses = cost[true.astype(int), predicted.astype(int)].sum(axis=1)
    a, b = ([[names[k] for k in np.flatnonzero(row)] for row in y] for y in (true, predicted))
    texts = _check_tokens(tokens, a, single=True)
    return Outcome(False, None, a, b, losses, texts, sets=(names, true, predicted))


def find_losses(pairs: LabelPairs, classes: Array, cost: Array) -> Array:
    """Loss of each sequence under a cost matrix in the order of the classes."""
    index = {label: k for k, label in enumerate(classes.tolist())}
    # A label that the model does not know costs as much as the dearest error.
    table = np.pad(cost, (0, 1), constant_values=cost.max() if cost.any() else 1.0)
    number = np.array([index.get(label, len(index)) for label in pairs.labels], dtype=np.int64)
    losses = table[number[pairs.true], number[pairs.predicted]] * ~pairs.right
    return np.diff(np.concatenate([[0.0], np.cumsum(losses)])[pairs.offsets])


def _finish(
    pairs: LabelPairs, losses: Array, given: Evaluation | None, single: bool, tokens: Any, part: str
) -> Outcome:
    flat = ([pairs.labels[k] for k in side.tolist()] for side in (pairs.true, pairs.predicted))
    true, predicted = ([side[lo:hi] for lo, hi in pairwise(pairs.offsets)] for side in flat)
    if given is None:
        plain = single or part != "token"
        given = metrics.evaluate(true, predicted, scheme=None if plain else "auto")
    elif given.n_tokens != len(pairs.true):
        what = f"evaluation is of {given.n_tokens} labels, but y_true has {len(pairs.true)}"
        raise ValueError(f"{what}: pass the labels that were evaluated, or leave one out.")
    tokens = _check_tokens(tokens, true, single)
    return Outcome(single, given, true, predicted, losses, tokens, pairs, part)


def _compare_structure(
    model: Any, evaluation: Evaluation | None, y_true: Any, y_pred: Any, tokens: Any
) -> Outcome:
    """Outputs of a user's own structure: by their loss, and by label where they have labels."""
    what = f"y_true has {len(y_true)} examples and y_pred has {len(y_pred)}"
    require(len(y_true) == len(y_pred), f"{what}: they must have the same length.")
    require(len(y_true) != 0, "y_true is empty: there are no outputs to compare.")
    structure = model.structure
    what = f"the loss of {type(structure).__name__} depends on x, which a report does not have"
    require(not takes_input(structure.loss), f"{what}: leave y_true and y_pred out.")
    packed = [[structure.pack(y) for y in side] for side in (y_true, y_pred)]
    losses = np.array([float(structure.loss(a, b)) for a, b in zip(*packed, strict=True)])
    true, predicted = ([y.tolist() for y in side] for side in packed)
    single = all(len(y) == 1 for y in (*true, *predicted))
    if all(len(a) == len(b) for a, b in zip(true, predicted, strict=True)):
        return _finish(pair_labels(true, predicted), losses, evaluation, single, tokens, "token")
    what = "tokens need one label each, but true and predicted outputs differ in length"
    require(tokens is None, f"{what}: leave tokens out.")
    return Outcome(False, evaluation, true, predicted, losses)


def _wrap(y: Any, name: str) -> list[list[Any]]:
    """Single labels as sequences of one."""
    require_type(is_list(y), name, "a list of labels", y)
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
    require(len(found) == len(true), f"{what}: they must have the same length.")
    if single:
        return [" ".join(map(str, t)) if isinstance(t, (list, tuple)) else t for t in found]
    for i, (entry, labels) in enumerate(zip(found, true, strict=True)):
        require(is_list(entry), f"tokens[{i}] is {entry!r:.60}, not a list of tokens.", TypeError)
        found[i] = list(entry)
        what = f"tokens[{i}] has {len(found[i])} tokens and y_true[{i}] has {len(labels)}"
        require(len(found[i]) == len(labels), f"{what} labels: they must have the same length.")
    return found


def describe_evaluation(outcome: Outcome, links: Mapping[str, str]) -> Content:
    """Everything that an evaluation says, except single errors, to which there are links by key."""
    found, single = outcome.evaluation, outcome.single
    about = [] if found is None else [_describe_data(outcome, found)]
    if len(outcome.losses):
        losses, what = outcome.losses, outcome.noun
        mean, none = brief(float(losses.mean())), percent(float((losses == 0).mean()), 1)
        of = count_of(len(losses), what)
        about.append(f"The mean loss is {mean} per {what}; {none} of the {of} have no loss.")
    content: Content = {"about": about, "summary": None, "spans": None, "confusion": None}
    if outcome.sets is not None:
        return content | _describe_sets(*outcome.sets)
    if found is None:
        return content
    if found.spans is not None:
        averages = [found.spans.micro, found.spans.macro, found.spans.weighted]
        content["spans"] = _scores("Spans by type", "type", found.spans.per_type, averages)
    part = "example" if single else outcome.part
    scores: Sequence[Score] = found.per_label
    if outcome.attachment is not None:  # "wrong head" is no label of the data
        scores = [score for score in scores if score.support]
    title = f"{part.capitalize()}s by label"
    content["labels"] = _scores(title, "label", scores, iou=part == "node")
    content["summary"] = _summary(outcome, found)
    return content | {"pairs": _pairs(found), "confusion": _confusion(found, links)}


def describe_reliability(outcome: Outcome, sure: dict[str, Any], y: Any, void: Any) -> list[Any]:
    """How often predictions are right that are so sure, by measure: a sentence and a chart."""
    found = []
    right = outcome.pairs.right if outcome.pairs is not None else None
    if outcome.sets is not None:
        right = (outcome.sets[1] == outcome.sets[2]).ravel()
    for measure, values in sure.items():
        if values is None:
            continue
        flat = np.concatenate([np.ravel(part) for part in values]).astype(float)
        if void is not None:
            flat = flat[[label != void for labels in y for label in labels]]
        what = f"{measure} has {len(flat)} values"
        fits = right is not None and len(flat) == len(right)
        require(fits, f"{what}, but y_pred has a different number of labels: give one for each.")
        measured = "margin over the next best label" if measure == "margin" else measure
        text = f"Labels by their {measured}, in {N_BINS} groups of equal size, with 95 % intervals."
        if measure == "probability":
            outside = (flat < 0) | (flat > 1)
            require(not outside.any(), "probability must be from 0 to 1: pass margins as margin.")
            error = percent(calibration_error(flat, right))
            text += f" The dotted line marks exact probabilities; the mean error is {error}."
        title = f"Share of right labels by {measure}"
        chart = draw_chart(f"by-{measure}", title, draw_reliability, flat, right, measure, N_BINS)
        found.append((text, chart))
    return found


def find_new_words(outcome: Outcome, model: Any, seen: Any) -> Array | None:
    """Which tokens training has not seen; None where that is not known."""
    if outcome.tokens is None or outcome.single or outcome.pairs is None:
        return None
    encoder: Any = getattr(model, "encoder_", None)
    if seen is None and hasattr(encoder, "seen_values"):
        seen = encoder.seen_values()
    if seen is None:
        return None
    known = {str(word) for word in seen}
    new = np.array([str(word) not in known for tokens in outcome.tokens for word in tokens])
    return None if new.all() else new  # the tokens are no words then


def describe_words(outcome: Outcome, new: Array | None) -> Table | None:
    """Accuracy on words that were seen in training, and on others, where they are known."""
    pairs, rows = outcome.pairs, []
    if pairs is None or new is None:
        return None
    inside = np.array([label != "O" for label in pairs.labels])[pairs.true]
    spans = outcome.evaluation is not None and outcome.evaluation.spans is not None
    for name, mask in (("seen in training", ~new), ("new", new)):
        row = [name]
        for chosen in (mask, mask & inside)[: 1 + spans]:
            right = percent(float(pairs.right[chosen].mean())) if chosen.any() else "–"
            row += [count(int(chosen.sum())), right]
        rows.append(row)
    head = ("word", "tokens", "right", "tokens in spans", "right")[: 3 + 2 * spans]
    return Table("Words seen in training, and new ones", head, rows)


def _describe_sets(names: list[Any], true: Array, predicted: Array) -> Content:
    """Scores of sets of labels, of each label, and of pairs of them."""
    scores = metrics.multilabel_scores(true.astype(int), predicted.astype(int))
    titles = (name.replace("_", " ").replace("f1", "F1") for name in scores._fields)
    shown = [[title, percent(value)] for title, value in zip(titles, scores, strict=True)]
    both = true & predicted
    counts = [part.sum(axis=0) for part in (both, predicted, true)]
    labels = metrics.make_scores(names, *counts)
    together = [part.astype(int).T @ part for part in (true, predicted, both)]
    first, second = np.triu_indices(len(names), 1)
    a, b, c = (counts[first, second] for counts in together)
    order = [k for k in np.lexsort((-a, -np.abs(a - b)))[:MOST_PAIRS] if a[k] or b[k]]
    counted = ((first[k], second[k], [count(int(n[k])) for n in (a, b, c)]) for k in order)
    rows = [[names[one], names[other], *told] for one, other, told in counted]
    head = ("label", "and label", "both true", "both predicted", "both right")
    caption = "Pairs of labels, those most over- or underrated first"
    pairs = Table(caption, head, rows, words=(0, 1), names=(0, 1)) if rows else None
    summary = Table("Summary", ("score", "value"), shown)
    return {"summary": summary, "labels": _scores("Labels", "label", labels), "pairs": pairs}


def _describe_data(outcome: Outcome, found: Evaluation) -> str:
    if outcome.single:
        return f"{count_of(found.n_tokens, 'example')}."
    size = f"{count_of(found.n_sequences, outcome.noun)}, {count_of(found.n_tokens, outcome.part)}."
    if found.spans is None:
        return size
    scheme = f" by the scheme {found.scheme}" if found.scheme else ""
    how = {"default": "as conlleval does", "strict": "only where the scheme allows them"}
    return f"{size} Spans are read{scheme}, {how.get(found.mode, found.mode)}."


def _summary(outcome: Outcome, found: Evaluation) -> Table:
    # Of trees the first is the LAS below.
    names = [*metrics.ACCURACIES[outcome.attachment is not None : 2 - outcome.single]]
    names += () if found.spans is None else metrics.SPAN_SCORES
    rows = []
    for name in names:
        shown = name.replace("_", " ").replace("f1", "F1")
        shown = shown.replace("token", outcome.part).replace("sequence", outcome.noun)
        row = ["accuracy" if outcome.single else shown, percent(getattr(found, name))]
        if bounds := found.intervals.get(name):
            row.append(f"{decimal(100 * bounds[0], 2)} to {percent(bounds[1])}")
        rows.append(row)
    if outcome.attachment is not None:
        shares = zip(("UAS", "LAS", "LAS with subtypes"), outcome.attachment, strict=False)
        rows += [[name, percent(share)] for name, share in shares]
    if outcome.part == "node":
        mean = float(np.mean([score.iou for score in found.per_label]))
        rows.append(["mean intersection over union", percent(mean)])
    width = max(map(len, rows))  # three where there are intervals
    rows = [[*row, ""][:width] for row in rows]
    return Table("Summary", ("score", "value", "95 % interval")[:width], rows)


def _scores(
    caption: str, by: str, scores: Sequence[Score], means: Sequence[Score] = (), iou: bool = False
) -> Table:
    shown = list(scores)
    if len(shown) > MOST_SCORES:
        shown = sorted(shown, key=lambda s: -s.support)[:MOST_SCORES]
        caption += f": the {MOST_SCORES} most frequent of {count(len(scores))}"
    rows = []
    for s in (*shown, *means):
        shares = (s.precision, s.recall, s.f1, *([s.iou] if iou else []))
        rows.append([s.name, *(decimal(100 * share, 2) for share in shares), count(s.support)])
    head = (by, "precision %", "recall %", "F1 %", *(["IoU %"] if iou else []), "support")
    return Table(caption, head, rows, names=(0,), last=len(means))


def _pairs(found: Evaluation) -> Table | None:
    support = dict(zip(found.labels, found.confusion.sum(axis=1), strict=True))
    most = found.confusions(MOST_PAIRS)
    rows = [[true, other, count(n), percent(n / support[true], 1)] for true, other, n in most]
    head = ("true", "predicted", "count", "of the true label")
    caption = "Most frequent confusions"
    return Table(caption, head, rows, words=(0, 1), names=(0, 1)) if rows else None


def _confusion(found: Evaluation, links: Mapping[str, str]) -> sections.Matrix:
    names: list[Any] = list(found.labels)
    counts = found.confusion
    caption = "Confusion matrix"
    lumped = len(names) > MOST_IN_MATRIX
    number = list(range(len(names)))
    if lumped:
        kept = sections.keep_largest(counts.sum(axis=0) + counts.sum(axis=1), MOST_IN_MATRIX)
        others = count(len(names) - MOST_IN_MATRIX)
        counts = merge_labels(counts, kept)
        names = [names[k] for k in kept] + [f"{others} others"]
        number = [*kept.tolist(), -1]
        caption += f": the {MOST_IN_MATRIX} most frequent labels, the other {others} together"
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def cell(a: int, b: int) -> sections.Cell:
        n = int(counts[a, b])
        key = f"p{number[a]}-{number[b]}"
        # Errors among the labels taken together cannot be told from what is right.
        plain = lumped and a == b == len(names) - 1
        kind = "" if plain else sections.pick_shade(share[a, b], "b" if a == b else "o")
        kind = f"{kind} d".strip() if a == b else kind
        return sections.Cell(count(n) if n else "·", kind, key, links.get(key, ""))

    rows = [(name, [cell(a, b) for b in range(len(names))]) for a, name in enumerate(names)]
    note = "Each cell is a count: correct labels are blue, on the diagonal, and errors are orange"
    note += ". The shade shows the share of the row, on a square-root scale."
    if links:
        note += " An underlined count links to examples."
    return sections.Matrix(caption, "true ↓ predicted →", names, rows, note)


def merge_labels(confusion: Array, kept: Array) -> Array:
    """A confusion matrix of the labels kept, with all others as one last label."""
    rows = np.vstack([confusion[kept], np.delete(confusion, kept, axis=0).sum(axis=0)])
    return np.column_stack([rows[:, kept], np.delete(rows, kept, axis=1).sum(axis=1)])
