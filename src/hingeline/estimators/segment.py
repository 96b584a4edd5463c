"""Segments: sequences cut into labelled pieces, such as names, chunks or fields of a citation."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from hingeline import _checks as checks
from hingeline import schemes
from hingeline._checks import Array
from hingeline.core.primitives import Layout
from hingeline.estimators.allowed import first_invalid
from hingeline.estimators.base import BaseModel, BaseSSVM, share_docs
from hingeline.estimators.chain import TokenModel
from hingeline.features import input as reading
from hingeline.features.segments import SegmentTemplates
from hingeline.features.tables import Labels, skip_empty
from hingeline.structures import segment
from hingeline.structures.segment import SegmentProblem

OUTSIDE = "O"  # The label of tokens that are in no span.

Span = tuple[int, int, Any]  # first token, token after the last, label


def has_spans(y: Any) -> bool:
    """Whether outputs are lists of spans, not one tag per token."""
    kinds = list, tuple
    rows = [row for row in y if isinstance(row, kinds)] if isinstance(y, kinds) else []
    found = any(isinstance(item, kinds) for row in rows for item in row)
    return found or (bool(rows) and len(rows) == len(y) and not any(rows))


def stack_spans(y: Any, offsets: Array) -> tuple[Array, Array, list[Any]]:
    """First tokens, tokens after the last and labels of all spans, counted over all sequences."""
    what = f"X has {len(offsets) - 1} sequences and y has {len(y)}: there must be as many."
    checks.require(len(y) == len(offsets) - 1, what)
    found: list[Span] = []
    for i, (spans, (lo, hi)) in enumerate(zip(y, pairwise(offsets.tolist()), strict=True)):
        before: Any = None
        for span in spans:
            if not isinstance(span, (list, tuple)) or len(span) != 3:
                raise ValueError(f"y[{i}] holds {span!r:.40}: a span is (start, end, label).")
            whole = all(isinstance(p, (int, np.integer)) for p in span[:2])
            if not whole or not 0 <= span[0] < span[1] <= hi - lo:
                how = f"it must begin and end within the {hi - lo} tokens of X[{i}], end excluded"
                raise ValueError(f"y[{i}] has the span {span!r:.40}: {how}.")
            if span[2] == OUTSIDE:
                what = f"y[{i}] has a span of label {OUTSIDE!r}, which marks tokens outside spans"
                raise ValueError(f"{what}: leave it out.")
        for span in sorted(spans, key=lambda span: span[:2]):
            if before is not None and span[0] < before[1]:
                what = f"the spans {before!r} and {span!r} of y[{i}] overlap"
                raise ValueError(f"{what}: keep one of them, segments do not share tokens.")
            before = tuple(span)
            found.append((lo + int(span[0]), lo + int(span[1]), span[2]))
    first, stop = (np.array([span[k] for span in found], dtype=np.int64) for k in (0, 1))
    return first, stop, reading.plain_labels([label for *_, label in found])


def count_bits(lengths: Array) -> int:
    """Bits that number the tokens of a segment of at most these lengths."""
    return max(1, int(lengths.max() - 1).bit_length())


def cut_spans(first: Array, stop: Array, labels: list[Any], offsets: Array) -> list[list[Span]]:
    """Spans of every sequence, from those counted over all sequences."""
    owner = np.searchsorted(offsets, first, side="right") - 1
    found: list[list[Span]] = [[] for _ in offsets[1:]]
    parts = owner, first - offsets[owner], stop - offsets[owner]
    for i, a, b, label in zip(*(part.tolist() for part in parts), labels, strict=True):
        found[i].append((a, b, label))
    return found


def read_tags(flat: list[Any], offsets: Array, scheme: Any) -> tuple[str, Array, Array, list[Any]]:
    """The scheme of tags, and first tokens, tokens after the last and labels of their spans."""
    classes, codes = reading.find_classes(flat, offsets)
    with checks.retell("", " Give labels that are not tags as spans: (start, end, label)."):
        tags = [schemes.split_tag(label) for label in classes.tolist()]
    name = schemes.detect_from_arrays(classes.tolist(), codes, offsets) if scheme == "auto" else ""
    if name is None:
        checks.require(tags == [("O", "")], "the prefixes of y fit no tag scheme: pass scheme=.")
        name = "IOB2"
    name = name or schemes.scheme_name(scheme)
    schemes.refuse_foreign(tags, name)
    wrong = first_invalid(name, classes, codes, offsets)
    repair = f"hingeline.schemes.convert_scheme(y, {name!r}, {name!r})"
    if wrong is not None and scheme == "auto":
        checks.warn(f"{wrong} Spans are read as conlleval reads them, as {repair} does.")
    checks.require(wrong is None or scheme == "auto", f"{wrong} Repair the labels with {repair}.")
    _, _, first, stop = schemes.span_arrays(classes.tolist(), codes, offsets, None)
    kinds = [tags[code][1] for code in codes[first].tolist()]
    checks.require(OUTSIDE not in kinds, f"y has spans of type {OUTSIDE!r}: rename it.")
    return name, first, stop, kinds


@share_docs
@dataclass(eq=False, repr=False)
class SegmentSSVM(TokenModel, BaseSSVM, BaseModel):
    """Structured SVM for segments (semi-Markov), solved to a certificate.

    A sequence is cut into labelled segments: spans, and single tokens outside them (``"O"``). The
    score of a segmentation sums, over its segments, the label's weights for the features of each
    token, of the first and of the last one; for the length; for features of the whole segment; and
    for the move from the previous one. Decoding is exact, in time linear in the longest segment.

    Parameters
    ----------
    C : float, "scale" or "auto", default="scale"; as for :class:`hingeline.ChainSSVM`
    max_length : int or dict of label to int, optional
        The most tokens a segment may have; by default, for each label, the training maximum.
    loss : "hamming" or "spans", default="hamming"
        The number of tokens with a wrong IOB2 tag, or of spans missed plus spans invented.
    class_weight : dict or "balanced", optional
        Factors on the loss of tokens, by true label; or on that of spans, by their label.
    segment_features : SegmentTemplates, optional
        Features of whole segments, such as ``SegmentTemplates(lexicon={"city": cities})``; lengths
        are always features. A clone of it is fitted with the model.
    scheme : "auto", "IO", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES" or "BILOU", default="auto"
        Tag scheme of y, if y holds tags. ``"auto"`` finds it, and reads tags that it forbids as
        conlleval does, with a warning; if you name a scheme, they are refused.
    rescale : {"margin"}; slack rescaling has no exact oracle for segments
    violators : "argmax", int or "all", optional; for ``slack="sum"``, as for ChainSSVM

    Attributes
    ----------
    classes_ : ndarray; the labels of segments, with ``"O"`` if some tokens are outside spans
    max_length_ : ndarray of int, (labels,)
    scheme_ : str or None; the tag scheme of y and of predictions; None if y held spans
    segment_encoder_ : SegmentTemplates or None
    token_coef_, first_coef_, last_coef_ : ndarray of shape (labels, features)
        Weights of all tokens of a segment, and additional ones of its first and last token.
    length_coef_ : ndarray of shape (labels, buckets); lengths 1, 2, 3, 4, 5–6, 7–8, 9–12, …
    segment_coef_ : ndarray of shape (labels, segment features)

    Examples
    --------
    >>> from hingeline import SegmentSSVM
    >>> X = [["from", "New", "York", "to", "Lima"], ["Lima", "is", "far"]]
    >>> y = [["O", "B-LOC", "I-LOC", "O", "B-LOC"], ["B-LOC", "O", "O"]]
    >>> model = SegmentSSVM(C=10.0, random_state=0).fit(X, y)
    >>> model.predict_spans(X)
    [[(1, 3, 'LOC'), (4, 5, 'LOC')], [(0, 1, 'LOC')]]
    """

    C: float | str = "scale"
    _: KW_ONLY
    max_length: Any = None
    loss: str = "hamming"
    class_weight: Any = None
    segment_features: Any = None
    scheme: str = "auto"
    rescale: str = "margin"
    violators: str | int | None = None

    _compile = staticmethod(segment.compile_problem)

    def _role(self, k: int) -> Array:
        m = len(self.classes_)
        return self._view("token")[:, k * m : (k + 1) * m].T

    token_coef_ = property(lambda self: self._role(0))
    first_coef_ = property(lambda self: self._role(1))
    last_coef_ = property(lambda self: self._role(2))
    length_coef_ = property(lambda self: self._view("length").T)
    segment_coef_ = property(lambda self: self._view("segment")[: self._n_segment_features].T)

    @property
    def _n_segment_features(self) -> int:
        encoder = getattr(self, "segment_encoder_", None)
        return 0 if encoder is None else int(encoder.n_features_out_)

    def _make_layout(self, n_features: int, n_labels: int) -> Layout:
        sizes: dict[str, Any] = {"longest": int(self.max_length_.max())}
        sizes["n_segment_features"] = self._n_segment_features
        blocks = {"constant": bool(self.fit_intercept), "boundary": bool(self.boundary)}
        return segment.layout(n_features, n_labels, **sizes, **blocks)

    def _check_values(self) -> None:
        super()._check_values()
        text = f"loss must be 'hamming' or 'spans', got {self.loss!r:.60}."
        checks.require(isinstance(self.loss, str), text, TypeError)
        checks.one_of("loss", self.loss, ("hamming", "spans"))
        checks.one_of("rescale", self.rescale, ("margin",))
        checks.require(self.scheme is not None, "scheme=None cannot read tags: use 'auto'.")
        if not isinstance(self.segment_features, (type(None), SegmentTemplates)):
            what = f"None or SegmentTemplates(), got {self.segment_features!r:.60}"
            raise TypeError(f"segment_features must be {what}.")
        lengths = self.max_length
        for label, n in lengths.items() if isinstance(lengths, Mapping) else [(None, lengths)]:
            if n is not None:
                where = "max_length" if label is None else f"max_length[{label!r}]"
                checks.positive(where, n, integer=True)

    def fit(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> Self:
        """Train on sequences.

        Parameters
        ----------
        X : list of sequences, TokenTable, SparseSequences, or all tokens stacked
            As for :meth:`hingeline.ChainSSVM.fit`; features of segments need words.
        y : list of outputs
            Each a list of tags, one per token (B-PER, I-PER, O, …), or of spans (first token, token
            after the last, label). Predictions have the same form.
        lengths : array-like of int, optional; tokens of each sequence, for stacked X and tags
        sample_weight : array-like, one per sequence, optional
            Multiplies a sequence's slack; 0 drops it.
        """
        self.check_parameters()
        matrix, offsets, weights = self._learn_tokens(X, lengths, sample_weight)
        self.scheme_, first, stop, kinds = self._read_outputs(y, offsets, lengths)
        every = kinds if int((stop - first).sum()) == offsets[-1] else [*kinds, OUTSIDE]
        self.classes_, numbers = reading.find_classes(every)
        self.n_features_in_ = matrix.shape[1]
        kind = numbers[: len(kinds)].astype(np.int64)
        self.max_length_ = self._find_lengths(first, stop, kind, offsets)
        bits = self._bits
        labels = segment.number_segments(first, stop, kind, offsets[-1], self._outside, bits)
        self.segment_encoder_, segments = None, None
        if self.segment_features is not None and self.segment_features.reads_words:
            self.segment_encoder_ = clone(self.segment_features)
            spans = cut_spans(first, stop, kinds, offsets)
            segments = self.segment_encoder_.fit_transform(reading.cut(X, lengths), spans)
        counted = kind if self.loss == "spans" else labels >> (2 * bits)
        weight = checks.check_class_weight(self.class_weight, self.classes_.tolist(), counted)
        examples = self._with_constant(matrix), offsets, labels
        self._fit_problem(self._pose(examples, segments, weight, 512.0), weights)
        return self

    def _read_outputs(self, y: Any, offsets: Array, lengths: Any) -> tuple[Any, ...]:
        """Scheme (None for spans), first tokens, tokens after the last and labels of spans."""
        if has_spans(y):
            return None, *stack_spans(y, offsets)
        return read_tags(reading.stack_labels(y, offsets, lengths), offsets, self.scheme)

    def _find_lengths(self, first: Array, stop: Array, kind: Array, offsets: Array) -> Array:
        """The longest segment of each label, allowed or seen."""
        labels = self.classes_.tolist()
        seen = np.ones(len(labels), dtype=np.int64)
        np.maximum.at(seen, kind, stop - first)
        given = self.max_length
        if not isinstance(given, Mapping):
            given = dict.fromkeys(labels, given)
        for label in given:
            if label not in labels:
                checks.warn(f"max_length has {label!r}, which is not a label of y: is it misspelt?")
        most = [1 if label == OUTSIDE else given.get(label) for label in labels]
        allowed = np.array([n or own for n, own in zip(most, seen, strict=True)], dtype=np.int64)
        for p in np.flatnonzero(stop - first > allowed[kind]):
            i = int(np.searchsorted(offsets, first[p], side="right")) - 1
            a, b, k = first[p] - offsets[i], stop[p] - offsets[i], kind[p]
            what = f"y[{i}] has a segment {labels[k]!r} of {b - a} tokens, ({a}, {b}), longer than"
            how = f"max_length={seen[k]} fits all of this label"
            raise ValueError(f"{what} max_length={allowed[k]}: {how}.")
        what = f"segments of {allowed.max()} tokens with {len(labels)} labels are too long"
        room = len(labels) << (2 * count_bits(allowed))
        checks.require(room < 2**31, f"{what} to be numbered: set max_length.")
        return allowed

    _bits = property(lambda self: count_bits(self.max_length_))

    @property
    def _outside(self) -> int:
        labels = self.classes_.tolist()
        return labels.index(OUTSIDE) if OUTSIDE in labels else -1

    def _pose(self, examples: Any, segments: Any, weight: Array, cache_mb: float) -> SegmentProblem:
        """The problem of rows, offsets and labels, and of features of segments."""
        rows, offsets, labels = examples
        if segments is None:
            nothing = np.zeros(0, dtype=np.int32)
            segments = np.zeros(offsets[-1] + 1, dtype=np.int64), nothing, nothing
        ends, lengths, features = segments
        short = lengths <= self.max_length_.max()  # no segment has the others
        if not short.all():
            kept = np.concatenate([[0], np.cumsum(short)])
            ends, lengths, features = kept[ends], lengths[short], features[short]
        tokens = rows.indptr, rows.indices, rows.data, offsets, labels, rows.shape[1]
        known: Any = {"segments": (ends, lengths, features), "weight": weight, "cache_mb": cache_mb}
        known |= {"n_segment_features": self._n_segment_features, "boundary": bool(self.boundary)}
        known |= {"outside": self._outside, "by_span": self.loss == "spans"}
        return segment.make_problem(*tokens, self.max_length_, self._bits, **known)

    def _prepare(self, X: Any, lengths: Any) -> SegmentProblem:
        """New sequences as the kernels of prediction want them."""
        matrix, offsets = self._read_tokens(X, lengths)
        segments = None
        if self.segment_encoder_ is not None:
            segments = self.segment_encoder_.transform(reading.cut(X, lengths))
        examples = self._with_constant(matrix), offsets, np.zeros(matrix.shape[0], dtype=np.int32)
        return self._pose(examples, segments, np.ones(len(self.classes_)), 0.0)

    def _cut(self, numbers: Array, offsets: Array) -> list[list[Span]]:
        """Spans of the sequences of stacked tokens."""
        first, stop, kind = segment.list_spans(numbers, self._outside, self._bits)
        return cut_spans(first, stop, self.classes_[kind].tolist(), offsets)

    def _write(self, spans: list[list[Span]], offsets: Array) -> Any:
        """Spans in the form of the training data."""
        if self.scheme_ is None:
            return Labels(spans)
        pairs = zip(spans, offsets[:-1].tolist(), strict=True)
        flat = [(label, lo + a, lo + b) for own, lo in pairs for a, b, label in own]
        tags = np.array(schemes.write_spans(flat, offsets.tolist(), self.scheme_))
        return Labels(tags[lo:hi] for lo, hi in pairwise(offsets.tolist()))

    def _find(self, X: Any, lengths: Any) -> tuple[list[list[Span]], Array]:
        """Spans of every sequence, and where sequences begin; those without tokens have none."""
        check_is_fitted(self, "weights_")
        found = skip_empty(X, lengths, lambda X: self._find(X, None)[0], [])
        if found is not None:
            return found, np.cumsum([0, *(x.shape[0] if sp.issparse(x) else len(x) for x in X)])
        problem = self._prepare(X, lengths)
        numbers = np.empty(problem.offsets[-1], dtype=np.int32)
        self._over(segment.decode_all, problem, numbers)
        return self._cut(numbers, problem.offsets), problem.offsets

    def predict(self, X: Any, lengths: Any = None) -> Any:
        """Tags of every sequence, or spans if y held spans; X and lengths as for :meth:`fit`."""
        return self._write(*self._find(X, lengths))

    def predict_spans(self, X: Any, lengths: Any = None) -> list[list[Span]]:
        """Spans of every sequence: (first token, token after the last, label), in order."""
        return self._find(X, lengths)[0]

    def predict_nbest(self, X: Any, n: int, lengths: Any = None) -> list[list[tuple[Any, float]]]:
        """The exact n best segmentations of every sequence, for input as in :meth:`predict`.

        A list of (tags or spans, score) per sequence, best first; the first is what :meth:`predict`
        gives. A sequence with fewer gives all of them. Scores are not probabilities.
        """
        found = []
        for rows, scores in self._n_best(segment.n_best_all, self._prepare(X, lengths), n):
            ends = np.arange(len(rows) + 1) * rows.shape[1]
            outputs = self._write(self._cut(rows.ravel(), ends), ends)
            found.append(list(zip(outputs, scores, strict=True)))
        return found

    def predict_margin(self, X: Any, lengths: Any = None) -> Array:
        """Score of the best segmentation minus that of the second best, for each sequence.

        Input is as in :meth:`predict`; ``inf`` where there is only one.
        """
        best = [[score for _, score in own] for own in self.predict_nbest(X, 2, lengths)]
        return np.array([own[0] - own[1] if len(own) == 2 else np.inf for own in best])

    def to_tags(self, X: Any, output: Any) -> list[str]:
        """One output, spans or tags, as tags, for X of one sequence; spans as IOB2."""
        _, offsets = self._read_tokens(X, None)
        _, first, stop, kinds = self._read_outputs([output], offsets, None)
        found = [*zip(map(str, kinds), first.tolist(), stop.tolist(), strict=True)]
        return schemes.write_spans(found, offsets.tolist(), self.scheme_ or "IOB2")

    def list_weights(self, X: Any, output: Any) -> dict[tuple[int, str, str, str], Any]:
        """All features of one output (spans or tags) for X of one sequence.

        From token, kind, name and label to value and weight; their products sum to the score.
        """
        matrix, offsets = self._read_tokens(X, None)
        _, first, stop, kinds = self._read_outputs([output], offsets, None)
        labels, names = self.classes_.tolist(), self.feature_names_
        ends = dict(zip(first.tolist(), zip(stop.tolist(), kinds, strict=True), strict=True))
        roles = self._view("intercept")[0] if self.fit_intercept else None
        own: dict[tuple[Any, Any], list[Any]] = defaultdict(list)
        whole = self.segment_encoder_
        if whole is not None:
            known, coef = whole.get_feature_names_out(), self.segment_coef_.T
            cuts, sizes, features = whole.transform(X)
            at = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
            for t, size, feature in zip(at, sizes, features, strict=True):
                own[t - size + 1, t + 1].append((str(known[feature]), coef[feature]))
        found: dict[tuple[int, str, str, str], Any] = {}
        s, before = 0, -1
        while s < offsets[-1]:
            e, label = ends.get(s, (s + 1, OUTSIDE))
            k, text, m = labels.index(label), str(label), len(labels)
            checks.require(e - s <= self.max_length_[k], f"{text!r} is never as long as {e - s}.")
            edges = (("first", s), ("last", e - 1)) if self.max_length_[k] > 1 else ()
            for role, t in (*(("", t) for t in range(s, e)), *edges):
                c = ("", "first", "last").index(role) * m + k
                shown = f"{text} ({role})" if role else text
                row = matrix[t]
                for f, value in zip(row.indices.tolist(), row.data.tolist(), strict=True):
                    weight = float(self._view("token")[f, c])
                    found[t, "feature", str(names[f]), shown] = value, weight
                if roles is not None:
                    found[t, "constant", "(constant)", shown] = 1.0, float(roles[c])
            bucket = segment.buckets(e - s)[-1]
            found[s, "length", f"length {e - s}", text] = 1.0, float(self.length_coef_[k, bucket])
            for name, weight in own[s, e]:
                found[s, "segment", name, text] = 1.0, float(weight[k])
            if before >= 0:
                move = float(self.transition_coef_[before, k])
                found[s, "transition", "(transition)", f"{labels[before]} → {text}"] = 1.0, move
            else:
                found[s, "start", "(start)", text] = 1.0, float(self.start_coef_[k])
            s, before = e, k
        found[s - 1, "end", "(end)", text] = 1.0, float(self.end_coef_[before])
        return found

    def _compare_best(self, X: Any, against: Any = None) -> tuple[Any, ...]:
        """The best output of one sequence and another, by default the second; for ``explain``.

        Both as tags, their scores, and what their segments do not share: position, kind, name, the
        label of the one or of the other, value and weight.
        """
        best = self.predict_nbest(X, 2)[0]
        fine = against is not None or len(best) == 2
        checks.require(fine, "there is only one segmentation.")
        sides = [best[0][0], best[1][0] if against is None else against]
        parts = [self.list_weights(X, side) for side in sides]
        found: list[Any] = []
        for k, sign in enumerate((1.0, -1.0)):
            for key in parts[k].keys() - parts[1 - k].keys():
                value, weight = parts[k][key]
                labels = (key[3], "") if sign > 0 else ("", key[3])
                found.append((*key[:3], *labels, sign * value, weight))
        scores = (sum(value * weight for value, weight in part.values()) for part in parts)
        return *(self.to_tags(X, side) for side in sides), *scores, sorted(found)

    def score(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> float:
        """F1 of the spans of all sequences together; ``sample_weight`` has one per sequence.

        It is 1 if there are no spans and none was predicted.
        """
        found, offsets = self._find(X, lengths)
        _, first, stop, kinds = self._read_outputs(y, offsets, lengths)
        true = set(zip(first.tolist(), stop.tolist(), kinds, strict=True))
        weights = checks.check_sample_weight(sample_weight, len(found))
        owner = np.searchsorted(offsets, first, side="right") - 1
        right = total = 0.0
        for own, lo, weight in zip(found, offsets[:-1].tolist(), weights.tolist(), strict=True):
            right += weight * sum((lo + a, lo + b, label) in true for a, b, label in own)
            total += weight * len(own)
        total += float(weights[owner].sum())
        return 2.0 * right / total if total else 1.0

    def _fitted_to_json(self, arrays: dict[str, Array]) -> dict[str, Any]:
        from hingeline.modelfile.estimators import to_json

        encoder = to_json(self.segment_encoder_, arrays, "segment_encoder")
        return {"max_length": self.max_length_.tolist(), "segments": encoder}

    def _fitted_from_json(self, stored: dict[str, Any], arrays: dict[str, Array]) -> None:
        from hingeline.modelfile.estimators import from_json

        lengths = stored["max_length"]
        fine = len(lengths) == len(self.classes_) and all(type(n) is int and n > 0 for n in lengths)
        checks.require(fine and max(lengths) < 2**15, "max_length must be counts, one per label")
        self.max_length_ = np.array(lengths, dtype=np.int64)
        checks.require(len(lengths) << (2 * self._bits) < 2**31, "segments are too long")
        self.segment_encoder_ = from_json(stored["segments"], arrays)
        fine = isinstance(self.segment_encoder_, (type(None), SegmentTemplates))
        checks.require(fine, "the encoder of segments is none")
