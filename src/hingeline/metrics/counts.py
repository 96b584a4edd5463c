"""Labels as numbers, and spans counted: what every score is made of."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline.schemes import detect_from_arrays, is_tag, scheme_name, span_arrays

Array = np.ndarray[Any, Any]


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

    def per_sequence(self, mask: Array) -> Array:
        """How many tokens of each sequence a mask holds."""
        total = np.concatenate([[0], np.cumsum(mask)])
        return np.diff(total[self.offsets])


def pair_labels(y_true: Any, y_pred: Any) -> LabelPairs:
    """Check two lists of label sequences against each other and number their labels."""
    true, predicted = _lists(y_true, "y_true"), _lists(y_pred, "y_pred")
    if len(true) != len(predicted):
        raise ValueError(
            f"y_true has {len(true)} sequences and y_pred has {len(predicted)}: they must have "
            "one length."
        )
    if not any(true) and not any(predicted):
        raise ValueError("y_true is empty: there are no labels to compare.")
    lengths = [len(labels) for labels in true]
    if lengths != [len(labels) for labels in predicted]:
        for i, (a, b) in enumerate(zip(true, predicted, strict=True)):
            if len(a) != len(b):
                raise ValueError(
                    f"y_true[{i}] has {len(a)} labels and y_pred[{i}] has {len(b)}: they must "
                    "have one length."
                )
    flat = [label for side in (true, predicted) for labels in side for label in labels]
    try:
        distinct = list(dict.fromkeys(flat))
    except TypeError as error:
        raise TypeError(f"a label is not hashable: {error}.") from None
    distinct = [label.item() if isinstance(label, np.generic) else label for label in distinct]
    with contextlib.suppress(TypeError):  # mixed types stay in the order of first occurrence
        distinct.sort()
    index = {label: k for k, label in enumerate(distinct)}
    codes = np.fromiter(map(index.__getitem__, flat), dtype=np.int64, count=len(flat))
    half = len(flat) // 2
    return LabelPairs(distinct, codes[:half], codes[half:], np.cumsum([0, *lengths]))


def _lists(y: Any, name: str) -> list[list[Any]]:
    """Label sequences as lists of lists."""
    if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__iter__"):
        raise TypeError(f"{name} must be a list of label sequences, got {type(y).__name__}.")
    found = []
    for i, labels in enumerate(y):
        if isinstance(labels, (str, bytes, dict)) or not hasattr(labels, "__iter__"):
            raise TypeError(
                f"{name}[{i}] is {labels!r}, not a sequence of labels: pass a list of sequences, "
                f"or [{name}] for a single one."
            )
        found.append(labels.tolist() if hasattr(labels, "tolist") else list(labels))
    return found


@dataclass(frozen=True)
class SpanCounts:
    """Spans of both sides: their type and sequence, for those true, predicted, and both."""

    types: list[str]
    n_sequences: int
    true: tuple[Array, Array]  # (types, sequences) of the spans
    predicted: tuple[Array, Array]
    correct: tuple[Array, Array]

    def per_type(self) -> tuple[Array, Array, Array]:
        """How many spans of each type are correct, predicted, true."""
        n = len(self.types)
        correct, predicted, true = (
            np.bincount(kind, minlength=n) for kind, _ in (self.correct, self.predicted, self.true)
        )
        return correct, predicted, true

    def per_sequence(self) -> tuple[Array, Array, Array]:
        """How many spans of each sequence are correct, predicted, true."""
        n = self.n_sequences
        correct, predicted, true = (
            np.bincount(where, minlength=n)
            for _, where in (self.correct, self.predicted, self.true)
        )
        return correct, predicted, true


def resolve_scheme(pairs: LabelPairs, scheme: str | None) -> tuple[bool, str | None]:
    """Whether labels are span tags, and their scheme.

    ``"auto"`` finds the scheme by the true labels' order, among those that have all prefixes of
    either side. Labels that are all ``O`` are tags of no scheme in particular.
    """
    if scheme is None:
        return False, None
    if scheme == "auto":
        found = detect_from_arrays(pairs.labels, pairs.true, pairs.offsets)
        return found is not None or pairs.labels == ["O"], found
    name = scheme_name(scheme)
    for label in pairs.labels:
        if not is_tag(label):
            raise ValueError(
                f"{label!r} is not a span tag, so spans by {name} cannot be found: pass "
                "scheme=None to leave spans out."
            )
    return True, name


def count_spans(pairs: LabelPairs, scheme: str | None, mode: str) -> SpanCounts:
    """Find the spans of both sides and match them; a span is correct if bounds and type agree."""
    types, kind, first, stop = span_arrays(pairs.labels, pairs.true, pairs.offsets, scheme, mode)
    _, other_kind, other_first, other_stop = span_arrays(
        pairs.labels, pairs.predicted, pairs.offsets, scheme, mode
    )

    def of(kinds: Array, firsts: Array) -> tuple[Array, Array]:
        return kinds, np.searchsorted(pairs.offsets, firsts, side="right") - 1

    # Spans of one side never overlap, so a first token names at most one.
    _, a, b = np.intersect1d(first, other_first, assume_unique=True, return_indices=True)
    same = a[(stop[a] == other_stop[b]) & (kind[a] == other_kind[b])]
    return SpanCounts(
        types,
        len(pairs.offsets) - 1,
        true=of(kind, first),
        predicted=of(other_kind, other_first),
        correct=of(kind[same], first[same]),
    )
