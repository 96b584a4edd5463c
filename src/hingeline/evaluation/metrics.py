"""How good predicted labels are: accuracy, spans, single labels, sets, and intervals by bootstrap.

:func:`evaluate` gives all scores of a prediction in one object. Labels are numbered once
(:func:`pair_labels`) and spans counted once (:func:`count_spans`): every score is made of these.
"""

import contextlib
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array, is_list, one_of, require, require_type, retell, warn
from hingeline._words import count_of
from hingeline.core.results import align as align
from hingeline.schemes import detect_from_arrays, is_tag, scheme_name, span_arrays
from hingeline.taxonomy import Taxonomy

AVERAGES = ("micro", "macro", "weighted")
ACCURACIES = ("token_accuracy", "sequence_accuracy")
SPAN_SCORES = ("span_precision", "span_recall", "span_f1")
_BLOCK = 2_000_000  # Weights drawn at a time for intervals, which bounds the memory.


@dataclass(frozen=True)
class LabelPairs:
    """True and predicted labels of all tokens, numbered."""

    labels: list[Any]  # those of either side, sorted where they can be
    true: Array  # (tokens,) numbers into labels
    predicted: Array
    offsets: Array  # (sequences + 1,)

    @property
    def right(self) -> Array:
        """Which tokens are labelled right."""
        return self.true == self.predicted

    def count_right(self) -> Array:
        """How many tokens of each sequence are labelled right."""
        return np.diff(np.concatenate([[0], np.cumsum(self.right)])[self.offsets])


def pair_labels(y_true: Any, y_pred: Any) -> LabelPairs:
    """Check two lists of label sequences against each other and number their labels."""
    true, predicted = _lists(y_true, "y_true"), _lists(y_pred, "y_pred")
    text = f"y_true has {len(true)} sequences and y_pred has {len(predicted)}"
    require(len(true) == len(predicted), f"{text}: they must have the same length.")
    require(any(true) or any(predicted), "y_true is empty: there are no labels to compare.")
    for i, (a, b) in enumerate(zip(true, predicted, strict=True)):
        text = f"y_true[{i}] has {len(a)} labels and y_pred[{i}] has {len(b)}"
        require(len(a) == len(b), f"{text}: they must have the same length.")
    kinds = [{isinstance(x, str) for labels in side for x in labels} for side in (true, predicted)]
    if not kinds[0] & kinds[1]:
        warn("y_true and y_pred share no label, as one holds texts and the other none: convert it.")
    flat = [label for side in (true, predicted) for labels in side for label in labels]
    with retell("a label is not hashable: ", ".", TypeError, error=TypeError):
        distinct = list(dict.fromkeys(flat))
    distinct = [label.item() if isinstance(label, np.generic) else label for label in distinct]
    with contextlib.suppress(TypeError):  # mixed types stay in the order of first occurrence
        distinct.sort()
    index = {label: k for k, label in enumerate(distinct)}
    codes = np.fromiter(map(index.__getitem__, flat), dtype=np.int64, count=len(flat))
    half = len(flat) // 2
    return LabelPairs(distinct, codes[:half], codes[half:], np.cumsum([0, *map(len, true)]))


def _lists(y: Any, name: str) -> list[list[Any]]:
    require_type(is_list(y), name, "a list of label sequences", y)
    found = []
    for i, labels in enumerate(y):
        if not is_list(labels):
            what = f"{name}[{i}] is {labels!r}, not a sequence of labels"
            raise TypeError(f"{what}: pass a list of sequences, or [{name}] for a single one.")
        found.append(labels.tolist() if hasattr(labels, "tolist") else list(labels))
    return found


class SpanCounts(NamedTuple):
    """Spans that are correct, those predicted and those true."""

    types: list[str]
    kinds: list[Array]  # for each of the three, the spans' numbers into types
    owners: list[Array]  # and the sequences they are in


def resolve_scheme(pairs: LabelPairs, scheme: str | None) -> tuple[bool, str | None]:
    """Whether labels are span tags, and their scheme: none in particular if all are ``O``."""
    if scheme is None or scheme == "segments":
        return scheme is not None, scheme
    if scheme == "auto":
        found = detect_from_arrays(pairs.labels, pairs.true, pairs.offsets)
        return found is not None or pairs.labels == ["O"], found
    name = scheme_name(scheme)
    for label in pairs.labels:
        what = f"{label!r} is not a span tag, so spans by {name} cannot be found"
        require(is_tag(label), f"{what}: pass scheme=None to leave spans out.")
    return True, name


def count_spans(pairs: LabelPairs, scheme: str | None, mode: str) -> SpanCounts:
    """Find the spans of both sides and match them; a span is correct if bounds and type agree."""
    labels = pairs.labels
    if scheme == "segments":
        labels, scheme, mode = [x if x == "O" else f"I-{x}" for x in labels], "IO", "default"
    how = pairs.offsets, scheme, mode
    types, kind, first, stop = span_arrays(labels, pairs.true, *how)
    _, other_kind, other_first, other_stop = span_arrays(labels, pairs.predicted, *how)
    # Spans of one side never overlap, so a first token names at most one.
    _, a, b = np.intersect1d(first, other_first, assume_unique=True, return_indices=True)
    same = a[(stop[a] == other_stop[b]) & (kind[a] == other_kind[b])]
    starts = (first[same], other_first, first)
    owners = [np.searchsorted(pairs.offsets, start, side="right") - 1 for start in starts]
    return SpanCounts(types, [kind[same], other_kind, kind], owners)


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1 of one label, one type of span, or their average.

    ``support`` is how often it is true, ``predicted`` how often it is predicted and ``correct``
    how often it is both. A ratio whose denominator is zero is 0.
    """

    name: Any
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int
    correct: int

    @property
    def iou(self) -> float:
        """Intersection over union: correct ones over those that are true, predicted or both."""
        union = self.support + self.predicted - self.correct
        return self.correct / union if union else 0.0

    def to_dict(self, key: str = "name") -> dict[str, Any]:
        """The fields as a dict, with the name under ``key``."""
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
    return ratio(correct, predicted), ratio(correct, true), ratio(2 * correct, predicted + true)


def make_scores(names: list[Any], correct: Array, predicted: Array, true: Array) -> list[Score]:
    """Scores by name, from how often each is correct, predicted and true."""
    columns = (*precision_recall_f1(correct, predicted, true), true, predicted, correct)
    return [Score(*row) for row in zip(names, *(c.tolist() for c in columns), strict=True)]


def score_spans(counts: SpanCounts) -> SpanScores:
    """Scores of spans already counted."""
    found = np.array([np.bincount(kind, minlength=len(counts.types)) for kind in counts.kinds])
    occurs = np.flatnonzero(found.any(axis=0))
    per_type = make_scores([counts.types[k] for k in occurs], *found[:, occurs])
    micro = make_scores(["micro"], *found.sum(axis=1, keepdims=True))[0]
    totals = [micro.support, micro.predicted, micro.correct]
    table = np.array([[s.precision, s.recall, s.f1] for s in per_type]).reshape(-1, 3)
    macro = table.mean(axis=0).tolist() if len(table) else [0.0] * 3
    weighted = ratio(found[2, occurs] @ table, np.full(3, micro.support)).tolist()
    averages = (Score("macro", *macro, *totals), Score("weighted", *weighted, *totals))
    return SpanScores(tuple(per_type), micro, *averages)


def span_f1_score(
    y_true: Any, y_pred: Any, *, scheme: str = "auto", mode: str = "default", average: str = "micro"
) -> float:
    """F1 of spans as one number, for :func:`sklearn.metrics.make_scorer`.

    Parameters
    ----------
    y_true, y_pred, scheme, mode : as for :func:`evaluate`
    average : {"micro", "macro", "weighted"}, default="micro"

    Examples
    --------
    >>> from sklearn.metrics import make_scorer
    >>> scorer = make_scorer(span_f1_score, average="macro")
    """
    one_of("average", average, AVERAGES)
    found = evaluate(y_true, y_pred, scheme=scheme, mode=mode)
    if found.spans is None:
        shown = ", ".join(map(str, found.labels[:5])) + (", ..." if len(found.labels) > 5 else "")
        what = f"the labels are not span tags of one scheme ({shown})"
        raise ValueError(f"{what}: use evaluate, which scores tokens.")
    return float(getattr(found.spans, average).f1)


def iou_score(y_true: Any, y_pred: Any, *, weights: Any = None, void_label: Any = None) -> float:
    """Intersection over union of each label, averaged over those that are true or predicted.

    Parameters
    ----------
    y_true, y_pred : lists of label sequences, e.g. of the nodes or pixels of each image
    weights : list of sequences, optional
        How much each node counts, e.g. ``[x.node_weights for x in X]``.
    void_label : label, optional; nodes with this true label do not count

    Examples
    --------
    >>> iou_score([["sky", "sky", "sea"]], [["sky", "sea", "sea"]])
    0.5
    """
    pairs = pair_labels(y_true, y_pred)
    sizes = np.ones(len(pairs.true)) if weights is None else np.concatenate([*weights])
    what = f"weights has {len(sizes)} entries, but there are {len(pairs.true)} labels"
    require(len(sizes) == len(pairs.true), f"{what}: give one for each.")
    known = np.array([label != void_label for label in pairs.labels])[pairs.true]
    true, predicted, sizes = pairs.true[known], pairs.predicted[known], sizes[known]
    require(sizes.any(), "there is nothing to judge by: all labels are void or weigh nothing.")
    n, right = len(pairs.labels), true == predicted
    both = np.bincount(true[right], sizes[right], n)
    union = np.bincount(true, sizes, n) + np.bincount(predicted, sizes, n) - both
    return float(ratio(both, union)[union > 0].mean())


def scorer(name: str, **options: Any) -> Any:
    """A score by its name, for ``scoring=`` of :class:`sklearn.model_selection.GridSearchCV`,
    :func:`sklearn.model_selection.cross_val_score` and the like.

    These accept only scikit-learn's own scores as bare names: ``scoring="span_f1"`` is refused
    there, ``scoring=scorer("span_f1")`` is not.

    Parameters
    ----------
    name : str
        For sequences ``"token_accuracy"``, ``"sequence_accuracy"``, ``"span_precision"``,
        ``"span_recall"``, ``"span_f1"``, ``"span_f1_macro"``, ``"span_f1_weighted"``,
        ``"segment_f1"`` (each run of one plain label is a span); for images ``"iou"``; for sets of
        labels ``"hamming_loss"`` (negated), ``"example_f1"``, ``"subset_accuracy"``,
        ``"micro_f1"`` and ``"macro_f1"``; for labels in a tree, with the option ``taxonomy``,
        ``"hierarchical_precision"``, ``"hierarchical_recall"`` and ``"hierarchical_f1"``.
    **options : passed to :func:`evaluate`, :func:`iou_score` or :func:`hierarchical_scores`

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> cross_val_score(ChainSSVM(), X, y, scoring=scorer("span_f1"))       # doctest: +SKIP
    """
    from sklearn.metrics import make_scorer

    others = (*MultilabelScores._fields, *HierarchicalScores._fields)
    one_of("name", name, (*SEQUENCE_SCORES, "iou", *others))
    better = name != "hamming_loss"
    return make_scorer(_score_by_name, greater_is_better=better, name=name, **options)


#: Names of :func:`scorer` for sequences.
SEQUENCE_SCORES = (*ACCURACIES, *SPAN_SCORES, "span_f1_macro", "span_f1_weighted", "segment_f1")


def _score_by_name(y_true: Any, y_pred: Any, name: str, **options: Any) -> float:
    if name == "iou":
        return iou_score(y_true, y_pred, **options)
    if name in MultilabelScores._fields:
        return float(getattr(multilabel_scores(y_true, y_pred), name))
    if name in HierarchicalScores._fields:
        return float(getattr(hierarchical_scores(y_true, y_pred, **options), name))
    if name.startswith("span_f1"):
        return span_f1_score(y_true, y_pred, average=name[8:] or "micro", **options)
    if name == "segment_f1":
        name, options = "span_f1", {"scheme": "segments", **options}
    value = getattr(evaluate(y_true, y_pred, **options), name)
    require(value is not None, f"the labels are not span tags: they have no {name}.")
    return float(value)


class MultilabelScores(NamedTuple):
    """Measures of sets of labels; for all but the first, larger is better."""

    hamming_loss: float
    example_f1: float
    subset_accuracy: float
    micro_f1: float
    macro_f1: float


def multilabel_scores(y_true: Any, y_pred: Any, sample_weight: Any = None) -> MultilabelScores:
    """The usual measures of predicted sets of labels: indicators (n_samples, n_labels).

    Share of wrong indicators; mean F1 of the examples' sets, where a correctly predicted empty set
    counts 1; share of sets that are entirely correct; F1 of all indicators together; mean F1 of the
    labels, where a label neither present nor predicted counts 0.
    """
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    if np.shape(y_true)[1:] == (1,):  # of a single label scikit-learn means others: show it twice
        y_true, y_pred = (np.repeat(np.reshape(y, (-1, 1)), 2, axis=1) for y in (y_true, y_pred))
    weights = {"sample_weight": sample_weight}

    def f1(average: str, nothing: float) -> float:
        return float(f1_score(y_true, y_pred, average=average, zero_division=nothing, **weights))

    return MultilabelScores(
        hamming_loss=float(hamming_loss(y_true, y_pred, **weights)),
        example_f1=f1("samples", 1.0),
        subset_accuracy=float(accuracy_score(y_true, y_pred, **weights)),
        micro_f1=f1("micro", 0.0),
        macro_f1=f1("macro", 0.0),
    )


class AttachmentScores(NamedTuple):
    """Shares of words whose head, or head and relation, is correct."""

    uas: float
    las: float
    las_with_subtypes: float  # relations as they are, ``nmod:poss``
    n_words: int


def attachment_scores(y_true: Any, y_pred: Any, words: Any = None) -> AttachmentScores:
    """Unlabelled and labelled attachment of dependency trees, as the CoNLL 2018 evaluation counts.

    It counts all words, including punctuation, and compares relations up to their first colon. If
    the words are those of the gold file, its F1 is this share.

    Parameters
    ----------
    y_true, y_pred : list of trees, lists of (head, relation)
    words : list of sequences of bool, optional
        Which words count, e.g. ``[[tag != "PUNCT" for tag in tags] for tags in …]``.
    """
    require(len(y_true) == len(y_pred), f"{len(y_true)} trees, but {len(y_pred)} predicted ones.")
    right = []
    for i, (truth, found) in enumerate(zip(y_true, y_pred, strict=True)):
        given = [True] * len(truth) if words is None else words[i]
        sizes = f"tree {i} has {len(truth)} words, but {len(found)} predicted ones."
        require(len(truth) == len(found) == len(given), sizes)
        for (h, a), (k, b), counted in zip(truth, found, given, strict=True):
            if counted:
                same = str(a).partition(":")[0] == str(b).partition(":")[0]
                right.append((h == k, h == k and same, h == k and a == b))
    require(right, "there are no words that count.")
    uas, las, whole = np.mean(right, axis=0).tolist()
    return AttachmentScores(uas, las, whole, len(right))


class HierarchicalScores(NamedTuple):
    """Measures of labels in a tree."""

    hierarchical_precision: float
    hierarchical_recall: float
    hierarchical_f1: float


def hierarchical_scores(y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> HierarchicalScores:
    """Precision, recall and F1 of labels together with all labels above them.

    With A(y) the label y and its ancestors except the root: ``Σ|A(ŷ) ∩ A(y)|`` over ``Σ|A(ŷ)|`` is
    the precision and over ``Σ|A(y)|`` the recall. S. Kiritchenko, S. Matwin, A. F. Famili,
    *Functional annotation of genes using hierarchical text categorization*, 2005.

    Parameters
    ----------
    y_true, y_pred : lists of labels, or of label sequences
    taxonomy : Taxonomy

    Examples
    --------
    >>> from hingeline import Taxonomy
    >>> tree = Taxonomy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> hierarchical_scores(["animal/cat"], ["animal/dog"], tree).hierarchical_f1
    0.5
    """
    nested = (y if is_list(next(iter(y), None)) else [y] for y in (y_true, y_pred))
    pairs = pair_labels(*nested)
    above = [{*taxonomy.ancestors(label)} - {taxonomy.root} for label in pairs.labels]
    n = len(above)
    codes, counts = np.unique(pairs.predicted * n + pairs.true, return_counts=True)
    both = ((above[code // n], above[code % n]) for code in codes.tolist())
    sums = counts @ np.array([(len(a & b), len(a), len(b)) for a, b in both])
    return HierarchicalScores(*map(float, precision_recall_f1(*sums)))


def draw_sums(table: Array, n_resamples: int, random_state: Any) -> Array:
    """Sums of the columns (n_resamples, columns) over rows that are drawn with replacement."""
    rng = np.random.default_rng(random_state)
    n = len(table)
    block, even = max(1, _BLOCK // n), np.full(n, 1 / n)
    sizes = [min(block, n_resamples - done) for done in range(0, n_resamples, block)]
    return np.concatenate([rng.multinomial(n, even, size=size) @ table for size in sizes])


def resample(
    pairs: LabelPairs, spans: SpanCounts | None, n_resamples: int, level: float, random_state: Any
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap: whole sequences are drawn, as their tokens depend on one another."""
    require(n_resamples > 0, f"bootstrap must be a number of resamples, got {n_resamples!r}.")
    require(0 < level < 1, f"level must lie between 0 and 1, got {level!r}.")
    lengths = np.diff(pairs.offsets)
    right, n = pairs.count_right(), len(lengths)
    columns = [right, lengths, right == lengths, np.ones_like(lengths)]
    if spans is not None:
        columns.extend(np.bincount(owner, minlength=n) for owner in spans.owners)
    sums = draw_sums(np.stack(columns, axis=1).astype(float), n_resamples, random_state)
    values = dict(zip(ACCURACIES, (ratio(*sums[:, :2].T), ratio(*sums[:, 2:4].T)), strict=True))
    if spans is not None:
        values |= zip(SPAN_SCORES, precision_recall_f1(*sums[:, 4:].T), strict=True)
    tails = [(1 - level) / 2, (1 + level) / 2]
    return {name: tuple(np.quantile(drawn, tails).tolist()) for name, drawn in values.items()}


@dataclass(frozen=True)
class Evaluation:
    """Scores of predicted labels; returned by :func:`evaluate`.

    Attributes
    ----------
    n_sequences, n_tokens : int
    token_accuracy, sequence_accuracy : float
        Share of tokens labelled correctly, and of sequences without a wrong token.
    scheme : str or None; tag scheme, None if labels are not span tags
    mode : str; how spans were read
    spans : SpanScores or None; None if labels are not span tags
    per_label : tuple of Score; of each label, token by token
    labels : tuple; all that are true or predicted, the rows and columns of ``confusion``
    confusion : int ndarray (labels, labels); ``[a, b]``: tokens of label a predicted as b
    intervals : dict of str to (low, high); bootstrap intervals by score; empty by default
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

    # Of all spans together; None if labels are not span tags.
    span_precision = property(lambda self: self.spans and self.spans.micro.precision)
    span_recall = property(lambda self: self.spans and self.spans.micro.recall)
    span_f1 = property(lambda self: self.spans and self.spans.micro.f1)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, which JSON can hold."""
        plain = ("n_sequences", "n_tokens", "token_accuracy", "sequence_accuracy", "scheme", "mode")
        averages = {} if self.spans is None else {n: getattr(self.spans, n).f1 for n in AVERAGES}
        return {
            **{name: getattr(self, name) for name in (*plain, *SPAN_SCORES)},
            "span_f1_macro": averages.get("macro"),
            "span_f1_weighted": averages.get("weighted"),
            "per_type": [score.to_dict("type") for score in self.per_type],
            "per_label": [score.to_dict("label") for score in self.per_label],
            "confusion": {"labels": list(self.labels), "matrix": self.confusion.tolist()},
            "intervals": {name: list(pair) for name, pair in self.intervals.items()},
        }

    def summary(self) -> list[tuple[str, str, str]]:
        """Rows (score, value, interval if there is one) for a terminal."""
        names = [*ACCURACIES, *(SPAN_SCORES if self.spans else ())]
        intervals = {k: f"{low:.4f} to {high:.4f}" for k, (low, high) in self.intervals.items()}
        values = ((name, f"{getattr(self, name):.4f}") for name in names)
        return [(name.replace("_", " "), value, intervals.get(name, "")) for name, value in values]

    def table(self, by: str | None = None) -> list[tuple[str, str, str, str, str]]:
        """Rows (name, precision, recall, F1, support) for a terminal, the heading first.

        ``"type"`` lists spans with their averages, ``"label"`` tokens; the default is ``"type"`` if
        labels are span tags.
        """
        spans = self.spans
        by = by or ("label" if spans is None else "type")
        one_of("by", by, ("type", "label"))
        scores = self.per_label
        require(spans or by == "label", "the labels are not span tags: use by='label'.")
        if spans is not None and by == "type":
            scores = (*spans.per_type, spans.micro, spans.macro, spans.weighted)
        rows = [(by, "precision", "recall", "F1", "support")]
        for s in scores:
            ratios = (f"{s.precision:.4f}", f"{s.recall:.4f}", f"{s.f1:.4f}")
            rows.append((str(s.name), *ratios, str(s.support)))
        return rows

    def confusions(self, most: int) -> list[tuple[Any, Any, int]]:
        """The most frequent pairs of a true and another predicted label, with their counts."""
        wrong = self.confusion - np.diag(np.diag(self.confusion))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        places = zip(*np.unravel_index(order, wrong.shape), strict=True)
        found = [(self.labels[a], self.labels[b], int(wrong[a, b])) for a, b in places]
        return [row for row in found if row[2]]

    def __repr__(self) -> str:
        head = f"{count_of(self.n_sequences, 'sequence')}, {count_of(self.n_tokens, 'token')}"
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
    level: float = 0.95,
    random_state: Any = 0,
) -> Evaluation:
    """Score predicted labels in every way that fits them.

    A span is correct if its bounds and its type are. Spans are scored as conlleval and seqeval do
    (``mode="default"``), or as seqeval's strict mode (``"strict"``).

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    scheme : str or None, default="auto"
        One of :data:`hingeline.schemes.SCHEMES`; ``"auto"`` finds it from the true labels and
        leaves spans out if labels are not span tags; None always leaves them out.
        ``"segments"`` is for plain labels: each run of one label except ``O`` is a span.
    mode : {"default", "strict"}, default="default"
        How labels that the scheme forbids are read; see :func:`hingeline.schemes.spans`.
    bootstrap : int, default=0; number of resamples for intervals, say 1000; 0 for none
    level : float, default=0.95; coverage of each interval
    random_state : int or numpy Generator, default=0; seed of the resamples

    Examples
    --------
    >>> evaluation = evaluate([["B-NP", "I-NP", "O"]], [["B-NP", "I-NP", "B-VP"]])
    >>> evaluation.scheme, evaluation.span_precision, evaluation.span_recall
    ('IOB2', 0.5, 1.0)
    >>> print(evaluation)
    1 sequence, 3 tokens, IOB2, default mode
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
    one_of("mode", mode, ("default", "strict"))
    pairs = pair_labels(y_true, y_pred)
    tags, name = resolve_scheme(pairs, scheme)
    counts = count_spans(pairs, name, mode) if tags else None
    n = len(pairs.labels)
    confusion = np.bincount(pairs.true * n + pairs.predicted, minlength=n * n).reshape(n, n)
    correct, found, true = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    lengths = np.diff(pairs.offsets)
    return Evaluation(
        n_sequences=len(lengths),
        n_tokens=len(pairs.true),
        token_accuracy=float(pairs.right.mean()),
        sequence_accuracy=float((pairs.count_right() == lengths).mean()),
        scheme=name,
        mode=mode,
        spans=None if counts is None else score_spans(counts),
        per_label=tuple(make_scores(pairs.labels, correct, found, true)),
        labels=tuple(pairs.labels),
        confusion=confusion,
        intervals=resample(pairs, counts, bootstrap, level, random_state) if bootstrap else {},
    )
