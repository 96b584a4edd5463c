"""The kinds of constraints: on one sequence, and on all sequences together.

The scale and the form of the penalty of a corpus constraint are those the paper prints: percentage
points squared for the share of a label, the plain fraction for the share of changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, ClassVar, Self

from hingeline._checks import whole_number
from hingeline.constraints import base


@dataclass(frozen=True)
class _WordRule(base.InstanceConstraint):
    words: base.Match
    label: Any
    ignore_case: bool = field(default=False, kw_only=True)
    after: ClassVar[str | None] = None
    _label_fields = ("label",)
    _match_fields = ("words",)

    def find_words(self, x: Sequence[Any]) -> list[bool]:
        """For each token whether it is one of the words."""
        return base.find_matches(self.words, self.ignore_case, x, self.after)


@dataclass(frozen=True)
class Words(_WordRule):
    r"""Words that match carry one of the labels; each matching word that does not is a violation.

    Parameters
    ----------
    words : str, list of str or callable
        A regular expression for the whole word, the words themselves, or a predicate of a token.
    label : label, or tuple of labels, any of which satisfies the rule
    ignore_case : bool
    after : str, optional
        Only where the tokens before, joined by spaces, end in a match of this regular expression
        (up to ten tokens are looked at).

    Examples
    --------
    >>> rule = Words(r"pp|pages?", label="pages")
    >>> rule.violation(["Title", ",", "pp", "."], ["title"] * 4)
    1.0
    >>> rule = Words(r"\w+", label="place", after="(Place|Where) :")
    >>> rule.violation(["Place", ":", "Room", "5"], ["O"] * 4)
    1.0
    """

    after: str | None = field(default=None, kw_only=True)  # type: ignore[misc]
    _words = "{words}[ after {after}] is {label}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after is not None:
            if not isinstance(self.after, str):
                raise TypeError(f"Words: after must be a regular expression, got {self.after!r}.")
            base.check_match("Words", self.after, "after")

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        hits = zip(self.find_words(x), y, strict=True)
        return [1.0 for hit, a in hits if hit and a not in self.label]


class OnlyWords(_WordRule):
    r"""Only words that match carry the label (or labels); any other token with one is a violation.

    The converse of :class:`Words`, with the same parameters except ``after``.

    Examples
    --------
    >>> OnlyWords(r"\d\d?", label="hour").violation(["at", "3"], ["hour", "hour"])
    1.0
    """

    _words = "{label} only on {words}"

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        hits = zip(self.find_words(x), y, strict=True)
        return [1.0 for hit, a in hits if not hit and a in self.label]


@dataclass(frozen=True)
class _ChangeRule(base.Constraint):
    where: base.Match = base.PUNCTUATION
    side: str = field(default="before", kw_only=True)
    ignore_case: bool = field(default=False, kw_only=True)
    _match_fields = ("where",)
    _choices = (*base.Constraint._choices, ("side", "'before', 'after' or 'either'"))

    def find_bad_changes(self, x: Sequence[Any]) -> list[bool]:
        """For each position whether a change of label between it and its predecessor counts."""
        hit = base.find_matches(self.where, self.ignore_case, x)
        before, after = self.side != "after", self.side != "before"
        pairs = [not ((a and before) or (b and after)) for a, b in pairwise(hit)]
        return [False, *pairs][: len(hit)]


class ChangeOnlyAt(_ChangeRule, base.InstanceConstraint):
    """The label changes only where a token matches; every other change is a violation.

    Parameters
    ----------
    where : str, list of str or callable, default PUNCTUATION
        A regular expression for the whole token, a list of tokens, or a predicate of a token.
    side : {"before", "after", "either"}
        Which token must match: the one before the change (a full stop that ends a field), the
        one after it (the first of the new segment), or either.
    ignore_case : bool
    """

    _words = "label changes only at {where}"

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        bad = self.find_bad_changes(x)
        return [1.0 for t in range(1, len(y)) if bad[t] and y[t] != y[t - 1]]


@dataclass(frozen=True)
class Follows(base.InstanceConstraint):
    """A label stands only directly after one of these labels; at the start only if allowed.

    Parameters
    ----------
    label, after : label or tuple of labels
    start : bool; whether the label may stand at the start of a sequence

    Examples
    --------
    >>> Follows("I-stime", after=("B-stime", "I-stime")).violation(["at", "noon"], ["O", "I-stime"])
    1.0
    """

    label: Any
    after: Any
    start: bool = field(default=False, kw_only=True)
    _label_fields = ("label", "after")
    _words = "{label} follows {after}"

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        first = [1.0] if len(y) and not self.start and y[0] in self.label else []
        later = (1.0 for t in range(1, len(y)) if y[t] in self.label and y[t - 1] not in self.after)
        return [*first, *later]


@dataclass(frozen=True)
class Before(base.InstanceConstraint):
    """No token of ``second`` comes before a token of ``first``; the violation is 1 or 0.

    Parameters
    ----------
    first, second : label or tuple of labels
    """

    first: Any
    second: Any
    _label_fields = ("first", "second")
    _words = "{first} before {second}"

    def __post_init__(self) -> None:
        super().__post_init__()
        text = "Before: a label cannot stand before itself; name different labels."
        base.require(not set(self.first) & set(self.second), text)

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        seen = False
        for a in y:
            if a in self.first and seen:
                return [1.0]
            seen = seen or a in self.second
        return []


@dataclass(frozen=True)
class Predicate(base.InstanceConstraint):
    """Any Python function of a sequence: slow, for what the other constraints cannot express.

    Parameters
    ----------
    function : callable
        ``function(tokens, labels)`` returns True where the labels are fine, False where not
        (violation 1), or the violation itself as a number, 0 being fine.
    """

    function: Callable[[Sequence[Any], Sequence[Any]], Any]
    _words = "{function}"

    def __post_init__(self) -> None:
        super().__post_init__()
        text = f"Predicate needs a function of (tokens, labels), got {self.function!r}."
        base.require(callable(self.function), text, TypeError)

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        value = self.function(x, y)
        if type(value).__name__ in ("bool", "bool_"):
            return [0.0 if value else 1.0]
        violation = float(value)
        text = "a predicate returns True, False or a violation that is not negative"
        base.require(violation >= 0, f"{self.title}: {text}, got {value!r}.")
        return [violation]

    def _show_fields(self) -> dict[str, Any]:
        return {"function": base.write_match(self.function)}


@dataclass(frozen=True, init=False)
class _OfLabels(base.InstanceConstraint):
    """The labels come one by one; ``penalty=None`` is the form that the kind has by default."""

    labels: base.Labels
    _penalty: ClassVar[str] = "linear"
    _needs_labels: ClassVar[bool] = False

    def __init__(self, *labels: Any, penalty: str | None = None, **common: Any) -> None:
        form, kind = self._penalty if penalty is None else penalty, type(self).__name__
        text = f"{kind} needs at least one label, as in {kind}('author')."
        base.require(labels or not self._needs_labels, text)
        many = tuple | list | set | frozenset
        groups = (base.as_group(item) if isinstance(item, many) else item for item in labels)
        self._assign("labels", tuple(groups))
        super().__init__(penalty=form, **common)

    def _find_runs(self, y: Sequence[Any]) -> list[list[int]]:
        """Lengths of the segments of each label given, or of each that occurs."""
        labels = self.labels or dict.fromkeys(y)
        return [base.run_lengths([a in base.as_group(label) for a in y]) for label in labels]

    def _show_fields(self) -> dict[str, Any]:
        some = ", ".join(map(base.write_label, self.labels))
        return {"some": some, "each": some or "each label"} | super()._show_fields()


class _EndRule(_OfLabels):
    _needs_labels = True
    _label_fields = ("labels",)
    _place: ClassVar[int]

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [1.0] if len(y) and y[self._place] not in self.labels else []


class StartsWith(_EndRule):
    """The first token carries one of the labels."""

    _place = 0
    _words = "starts with {labels}"


class EndsWith(_EndRule):
    """The last token carries one of the labels."""

    _place = -1
    _words = "ends with {labels}"


class _CountRule(base.Bounded, _OfLabels):
    at_least: int | None = None
    at_most: int | None = 1
    equals: int | None = None
    unit: str = "segments"

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        count = len if self.unit == "segments" else sum
        return [base.measure_excess(count(runs), *self.bounds) for runs in self._find_runs(y)]


class AtMostOneSegment(_CountRule):
    """Each of the labels forms at most one segment; if none is given, this holds for all labels.

    The violation of a label is its number of segments above one (a hinge: absence is fine). By
    default its square is penalised.

    Examples
    --------
    >>> AtMostOneSegment("author").violation("a b c".split(), ["author", "title", "author"])
    1.0
    """

    _penalty = "squared"
    _words = "at most one segment of {each}"


class NoRepeats(_OfLabels):
    """No label in more than one segment, counted as the paper's φ_I3.

    The violation is the number of labels (of those given, or of all) that occur in more than one
    segment; by default its square is penalised once per sequence.
    """

    _penalty = "squared"
    _words = "no label in two segments[ among {some}]"

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [float(sum(len(runs) > 1 for runs in self._find_runs(y)))]


@dataclass(frozen=True, init=False)
class Occurs(_CountRule):
    """Each of the labels occurs at least, at most or exactly the given number of times.

    Parameters
    ----------
    *labels
        Each is counted separately; a tuple of labels counts as one.
    at_least, at_most, equals : int, optional
    unit : {"tokens", "segments"}
    **common
        ``weight``, ``penalty``, ``hard`` and ``name``, as for all constraints.
    """

    at_least: int | None
    at_most: int | None
    equals: int | None
    unit: str
    _needs_labels = True
    _exactly = "exactly "
    _choices = (*base.Constraint._choices, ("unit", "'tokens' or 'segments'"))
    _words = "{each} occurs {bounds} times ({unit})"

    def __init__(
        self,
        *labels: Any,
        at_least: int | None = None,
        at_most: int | None = None,
        equals: int | None = None,
        unit: str = "tokens",
        **common: Any,
    ) -> None:
        own = {"at_least": at_least, "at_most": at_most, "equals": equals, "unit": unit}
        for name, value in own.items():
            self._assign(name, value)
        _ = self.bounds  # which refuses what makes no sense
        super().__init__(*labels, **common)


@dataclass(frozen=True, init=False)
class MinLength(_OfLabels):
    """Each segment of the labels (by default of any label) has at least ``length`` tokens.

    Parameters
    ----------
    *labels
    length : int; the violation of a shorter segment is the number of tokens it lacks
    **common
        ``weight``, ``penalty``, ``hard`` and ``name``, as for all constraints.
    """

    length: int
    _words = "segments of {each} have at least {length} tokens"

    def __init__(self, *labels: Any, length: int, **common: Any) -> None:
        self._assign("length", whole_number("MinLength: length", length, 2))
        super().__init__(*labels, **common)

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [max(self.length - n, 0.0) for runs in self._find_runs(y) for n in runs]


@dataclass(frozen=True)
class Share(base.CorpusConstraint):
    """The share of tokens that carry a label, between 0 and 1.

    Parameters
    ----------
    label : label, or tuple of labels that counts as one
    equals, at_least, at_most : float, optional
    scale : float, default 100: violations are in percentage points, as printed in the paper

    Examples
    --------
    >>> Share("author", equals=0.30).violation([["a", "b"]], [["author", "title"]])
    20.0
    """

    label: Any
    scale: float = field(default=100.0, kw_only=True)
    penalty: str = field(default="squared", kw_only=True)
    top: ClassVar[float] = 1.0
    _label_fields = ("label",)
    _words = "share of {label} is {bounds}"

    @classmethod
    def from_labels(cls, y: Iterable[Any], *, slack: float = 0.0, **common: Any) -> list[Self]:
        """One constraint per label: its share in labelled sequences.

        Sequences that are None (unlabelled) are left out. ``slack`` is how far a share may be off
        on either side; ``common`` are ``weight``, ``penalty``, ``hard`` or ``scale`` of all.
        """
        known = (a for labels in y if labels is not None for a in labels)
        counts = Counter(a.item() if hasattr(a, "item") else a for a in known)
        base.require(counts, "Share.from_labels needs at least one labelled token.")
        shares = {a: n / counts.total() for a, n in counts.items()}
        if not slack:
            return [cls(a, equals=share, **common) for a, share in shares.items()]
        return [
            cls(a, at_least=max(share - slack, 0.0), at_most=min(share + slack, 1.0), **common)
            for a, share in shares.items()
        ]

    def value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        total = sum(len(y) for y in Y)
        return sum(a in self.label for y in Y for a in y) / total if total else 0.0


@dataclass(frozen=True)
class ChangeShare(_ChangeRule, base.CorpusConstraint):
    """The share of label changes at tokens that do not match, 0 where there are no changes.

    Parameters
    ----------
    where, side, ignore_case
        Changes at these tokens do not count, as in :class:`ChangeOnlyAt`.
    equals, at_least, at_most : float, optional
    scale : float, default 1
    """

    top: ClassVar[float] = 1.0
    _words = "share of changes not at {where} is {bounds}"

    def value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        wrong: list[bool] = []  # of every change
        for x, y in zip(X, Y, strict=True):
            bad = self.find_bad_changes(x)
            wrong += [bad[t] for t in range(1, len(y)) if y[t] != y[t - 1]]
        return sum(wrong) / len(wrong) if wrong else 0.0

    def _show_fields(self) -> dict[str, Any]:
        where = "punctuation" if self.where == base.PUNCTUATION else "tokens that match"
        return super()._show_fields() | {"where": where}


@dataclass(frozen=True)
class AverageSegments(base.CorpusConstraint):
    """The average number of segments of a label per sequence, or of all labels together.

    Parameters
    ----------
    label : label, tuple of labels, or None for the segments of all labels
    equals, at_least, at_most : float, optional
    scale : float, default 1
    """

    label: Any = None
    penalty: str = field(default="squared", kw_only=True)
    _words = "average number of segments{of_label} is {bounds}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label is not None:
            self._assign("label", base.flatten_labels("AverageSegments", self.label))

    def value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        if not len(Y):
            return 0.0
        if self.label is None:
            return sum(1 for y in Y for _ in groupby(y)) / len(Y)
        return sum(len(base.run_lengths([a in self.label for a in y])) for y in Y) / len(Y)

    def _show_fields(self) -> dict[str, Any]:
        of_label = "" if self.label is None else f" of {base.write_label(self.label)}"
        return super()._show_fields() | {"of_label": of_label}
