"""Constraints on the labels of one sequence, and what all constraints share.

A constraint has *parts* that are penalised one by one: a word, a change of label, a label, a
segment. ``violation(x, y)`` is the sum of the parts' violations and ``cost(x, y)`` the sum of their
penalties. A segment is a maximal run of one label. Where a constraint names several labels, each
counts for itself; a tuple of labels counts as one label: ``("B-stime", "I-stime")``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

#: A token of punctuation marks alone, as a pattern for :class:`ChangeOnlyAt` and others.
PUNCTUATION = r"[^\w\s]+"

#: The weight r = 1000 that the paper prints.
WEIGHT = 1000.0

#: What a unit of violation of a hard constraint costs inside the compiled constraints. It outweighs
#: every sensible soft penalty and is finite, so that differences never meet ``inf − inf``;
#: weights must stay below it. Elsewhere a broken hard constraint costs ``inf``.
HARD = 1e10

#: How many tokens before a word the pattern ``after`` may look at.
AFTER_TOKENS = 10

#: Shares and averages are ratios: a violation below this is rounding.
VIOLATION_ROUNDING = 1e-9

Group = tuple[Hashable, ...]
Labels = tuple[Hashable | Group, ...]
Match = str | Collection[str] | Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """The common part: a weight, a form of penalty, hard or soft, and a name.

    Attributes
    ----------
    weight : float
        Cost of one unit of violation (r of the paper, 1000 as printed).
    penalty : {"linear", "squared"}
        Whether a violation or its square is multiplied with the weight.
    hard : bool
        A broken hard constraint costs infinity, and prediction refuses to break it.
    name : str or None
        What reports call it; None writes the constraint itself.
    """

    weight: float = WEIGHT
    penalty: str = "linear"
    hard: bool = False
    name: str | None = None

    #: Fields that take a label or several; they become tuples.
    _label_fields: ClassVar[tuple[str, ...]] = ()
    #: Fields that say which tokens match.
    _match_fields: ClassVar[tuple[str, ...]] = ()
    #: Fields that take one of these words.
    _choices: ClassVar[tuple[tuple[str, str], ...]] = (("penalty", "'linear' or 'squared'"),)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real):
            raise TypeError(f"{kind}: weight must be a number, got {self.weight!r}.")
        if not 0 <= self.weight < HARD:
            raise ValueError(
                f"{kind}: weight must be at least 0 and below {HARD:g}, got {self.weight!r}; "
                "for a constraint that may never be broken pass hard=True."
            )
        if not isinstance(self.hard, bool):
            raise TypeError(f"{kind}: hard must be True or False, got {self.hard!r}.")
        for name, words in self._choices:
            value = getattr(self, name)
            if f"'{value}'" not in words:
                raise ValueError(f"{kind}: {name} must be {words}, got {value!r}.")
        for name in self._label_fields:
            self._assign(name, flatten_labels(kind, getattr(self, name)))
        for name in self._match_fields:
            self._assign(name, _check_match(kind, getattr(self, name), name))

    def _assign(self, name: str, value: Any) -> None:
        """Set a field while the constraint is made: later it is frozen."""
        object.__setattr__(self, name, value)

    def penalise(self, violation: float) -> float:
        """The cost of one violation."""
        if violation <= VIOLATION_ROUNDING:
            return 0.0
        if self.hard:
            return math.inf
        return self.weight * (violation * violation if self.penalty == "squared" else violation)

    def finite_penalty(self, violation: float) -> float:
        """The same with ``HARD`` per unit of violation where the constraint is hard."""
        broken = self.hard and violation > VIOLATION_ROUNDING
        return HARD * violation if broken else self.penalise(violation)

    @property
    def title(self) -> str:
        """The name, or the constraint in words."""
        return self.name or self._describe()

    def _describe(self) -> str:
        return repr(self)


# Labels, words and bounds ----------------------------------------------------------------------


def as_group(item: Any) -> Group:
    """A label, or a tuple (list, set) of labels that counts as one label."""
    if isinstance(item, tuple | list | set | frozenset):
        group = tuple(sorted(item, key=str) if isinstance(item, set | frozenset) else item)
        if not group:
            raise ValueError("a group of labels must not be empty.")
        return group
    return (item,)


def flatten_labels(kind: str, labels: Any) -> Group:
    """The labels of a constraint that asks for one of them."""
    if not isinstance(labels, tuple | list | set | frozenset):
        return (labels,)
    group = tuple(label for item in labels for label in as_group(item))
    if not group:
        raise ValueError(f"{kind} needs at least one label.")
    return group


def write_label(item: Any) -> str:
    """A label as reports show it."""
    return " or ".join(map(str, item)) if isinstance(item, tuple) else str(item)


def run_lengths(inside: Sequence[bool]) -> list[int]:
    """Lengths of the maximal runs of True."""
    found: list[int] = []
    before = False
    for here in inside:
        if here:
            if before:
                found[-1] += 1
            else:
                found.append(1)
        before = here
    return found


def _check_match(kind: str, where: Any, argument: str) -> Match:
    """Check a pattern, a list of words or a predicate; lists become tuples."""
    if isinstance(where, str):
        try:
            re.compile(where)
        except re.error as error:
            raise ValueError(
                f"{kind}: {argument} is not a regular expression: {where!r} ({error})."
            ) from None
        return where
    if callable(where):
        return where
    if isinstance(where, Collection) and all(isinstance(word, str) for word in where):
        if not where:
            raise ValueError(f"{kind}: {argument} is an empty list of words.")
        return tuple(sorted(where)) if isinstance(where, set | frozenset) else tuple(where)
    raise TypeError(
        f"{kind}: {argument} must be a regular expression, a list of words or a function of a "
        f"token, got {where!r}."
    )


@lru_cache(maxsize=256)
def _text_matcher(where: str | tuple[str, ...], ignore_case: bool) -> Callable[[str], bool]:
    if isinstance(where, str):
        pattern = re.compile(where, re.IGNORECASE if ignore_case else 0)
        return lru_cache(maxsize=65536)(lambda word: pattern.fullmatch(word) is not None)
    if ignore_case:
        folded = {word.casefold() for word in where}
        return lambda word: word.casefold() in folded
    words = frozenset(where)
    return lambda word: word in words


def find_matches(
    where: Match, ignore_case: bool, tokens: Sequence[Any], after: str | None = None
) -> list[bool]:
    """For every token whether it matches: whole words, not parts of them.

    ``after`` is a pattern for the last of the tokens before it, joined by spaces.
    """
    if callable(where):
        found = [bool(where(token)) for token in tokens]
    else:
        test = _text_matcher(where, ignore_case)  # type: ignore[arg-type]
        for token in tokens:
            if not isinstance(token, str):
                raise TypeError(
                    f"patterns and lists of words want tokens of type str, got {token!r}; say with "
                    "token= which part of a token is its word (a key or a function)."
                )
        found = [test(token) for token in tokens]
    if after is not None:
        pattern = re.compile(rf"(?:^|.* )(?:{after})", re.IGNORECASE if ignore_case else 0)
        for t in range(len(found)):
            if found[t]:
                before = " ".join(map(str, tokens[max(0, t - AFTER_TOKENS) : t]))
                found[t] = pattern.fullmatch(before) is not None
    return found


def write_match(where: Match) -> str:
    """A pattern, a list of words or a predicate as reports show it."""
    if where == PUNCTUATION:
        return "punctuation"
    if isinstance(where, str):
        return f"/{where}/"
    if callable(where):
        return getattr(where, "__name__", repr(where))
    words = list(where)
    return ", ".join(words[:4]) + (", ..." if len(words) > 4 else "")


def find_bad_changes(rule: Any, x: Sequence[Any]) -> list[bool]:
    """For each position whether a change of label between it and its predecessor counts."""
    hit = find_matches(rule.where, rule.ignore_case, x)
    before, after = rule.side != "after", rule.side != "before"
    pairs = [not ((a and before) or (b and after)) for a, b in pairwise(hit)]
    return [False, *pairs][: len(hit)]


def check_bounds(kind: str, equals: Any, at_least: Any, at_most: Any) -> tuple[float, float]:
    """The interval in which a value costs nothing."""
    given = {"equals": equals, "at_least": at_least, "at_most": at_most}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise TypeError(f"{kind}: {name} must be a number, got {value!r}.")
        if value < 0:
            raise ValueError(f"{kind}: {name} must not be negative, got {value!r}.")
    if equals is not None and (at_least is not None or at_most is not None):
        raise ValueError(f"{kind}: pass equals= or at_least= and at_most=, not both.")
    if equals is None and at_least is None and at_most is None:
        raise ValueError(f"{kind} needs equals=, at_least= or at_most=.")
    if equals is not None:
        return float(equals), float(equals)
    low = 0.0 if at_least is None else float(at_least)
    high = math.inf if at_most is None else float(at_most)
    if low > high:
        raise ValueError(f"{kind}: at_least={at_least!r} is above at_most={at_most!r}.")
    return low, high


def write_bounds(rule: Any, exactly: str = "") -> str:
    """The interval of a constraint with bounds, in words."""
    if rule.equals is not None:
        return f"{exactly}{rule.equals:g}"
    bounds = (("at least", rule.at_least), ("at most", rule.at_most))
    return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


def measure_excess(value: float, low: float, high: float) -> float:
    """How far a value lies outside an interval: the hinges of "at least" and "at most"."""
    return max(low - value, value - high, 0.0)


def pick_words(X: Iterable[Any], token: Any = None) -> list[list[Any]]:
    """The words of all sequences.

    Parameters
    ----------
    X : iterable of sequences
    token : None, callable, str or int
        What of a token is its word: the token itself, a function of it, or its key or column.
    """
    if token is None:
        return [list(x) for x in X]
    pick = token if callable(token) else (lambda row: row[token])
    return [[pick(row) for row in x] for x in X]


# Constraints on one sequence -------------------------------------------------------------------


class InstanceConstraint(Constraint):
    """A constraint on one sequence of tokens and its labels."""

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        """The violations of the parts; parts that are satisfied may be absent."""
        return self._parts(x, y)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        raise NotImplementedError

    def violation(self, x: Sequence[Any], y: Sequence[Any]) -> float:
        """How far the labels ``y`` of the tokens ``x`` break the constraint; 0 is kept."""
        return float(sum(self.parts(x, y)))

    def cost(self, x: Sequence[Any], y: Sequence[Any]) -> float:
        """The penalty: weights included, ``inf`` where a hard constraint is broken."""
        return float(sum(map(self.penalise, self.parts(x, y))))


@dataclass(frozen=True)
class _WordRule(InstanceConstraint):
    words: Match
    label: Any
    ignore_case: bool = field(default=False, kw_only=True)
    _label_fields = ("label",)
    _match_fields = ("words",)


@dataclass(frozen=True)
class Words(_WordRule):
    r"""Words that match carry one of the labels; every such word counts for itself.

    Parameters
    ----------
    words : str, list of str or callable
        A regular expression for the whole word, the words themselves, or a predicate of a token.
    label : label or tuple of labels
        What the words must carry: this label, or one of these.
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

    after: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after is not None and not isinstance(self.after, str):
            raise TypeError(f"Words: after must be a regular expression, got {self.after!r}.")
        if self.after is not None:
            _check_match("Words", self.after, "after")

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        found = find_matches(self.words, self.ignore_case, x, self.after)
        return [1.0 for hit, a in zip(found, y, strict=True) if hit and a not in self.label]

    def _describe(self) -> str:
        place = "" if self.after is None else f" after {self.after}"
        return f"{write_match(self.words)}{place} is {write_label(self.label)}"


class OnlyWords(_WordRule):
    r"""Only words that match carry the label (or one of these); every other such token counts.

    The converse of :class:`Words`, with the same parameters but ``after``.

    Examples
    --------
    >>> OnlyWords(r"\d\d?", label="hour").violation(["at", "3"], ["hour", "hour"])
    1.0
    """

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        found = find_matches(self.words, self.ignore_case, x)
        return [1.0 for hit, a in zip(found, y, strict=True) if not hit and a in self.label]

    def _describe(self) -> str:
        return f"{write_label(self.label)} only on {write_match(self.words)}"


#: The sides of a change of label that a token may stand on.
SIDES = "'before', 'after' or 'either'"


@dataclass(frozen=True)
class ChangeOnlyAt(InstanceConstraint):
    """The label changes only where a token matches; every other change counts.

    Parameters
    ----------
    where : str, list of str or callable, default PUNCTUATION
        A regular expression for the whole token, a list of tokens, or a predicate of a token.
    side : {"before", "after", "either"}
        Which token must match: the one before the change (a full stop that ends a field), the
        one after it (the first of the new segment), or either.
    ignore_case : bool
    """

    where: Match = PUNCTUATION
    side: str = field(default="before", kw_only=True)
    ignore_case: bool = field(default=False, kw_only=True)
    _match_fields = ("where",)
    _choices = (*Constraint._choices, ("side", SIDES))

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        bad = find_bad_changes(self, x)
        return [1.0 for t in range(1, len(y)) if bad[t] and y[t] != y[t - 1]]

    def _describe(self) -> str:
        return f"label changes only at {write_match(self.where)}"


@dataclass(frozen=True)
class Follows(InstanceConstraint):
    """A label stands only directly after one of these labels; at the start only if allowed.

    Parameters
    ----------
    label : label or tuple of labels
    after : label or tuple of labels
    start : bool
        Whether the label may stand at the start of a sequence.

    Examples
    --------
    >>> Follows("I-stime", after=("B-stime", "I-stime")).violation(["at", "noon"], ["O", "I-stime"])
    1.0
    """

    label: Any
    after: Any
    start: bool = field(default=False, kw_only=True)
    _label_fields = ("label", "after")

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        first = [1.0] if len(y) and not self.start and y[0] in self.label else []
        later = (1.0 for t in range(1, len(y)) if y[t] in self.label and y[t - 1] not in self.after)
        return [*first, *later]

    def _describe(self) -> str:
        return f"{write_label(self.label)} follows {write_label(self.after)}"


@dataclass(frozen=True)
class Before(InstanceConstraint):
    """No token of ``second`` comes before a token of ``first``; violated or not, 1 or 0.

    Parameters
    ----------
    first, second : label or tuple of labels
    """

    first: Any
    second: Any
    _label_fields = ("first", "second")

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.first) & set(self.second):
            raise ValueError("Before: a label cannot stand before itself; name different labels.")

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        seen = False
        for a in y:
            if a in self.first and seen:
                return [1.0]
            seen = seen or a in self.second
        return []

    def _describe(self) -> str:
        return f"{write_label(self.first)} before {write_label(self.second)}"


@dataclass(frozen=True)
class Predicate(InstanceConstraint):
    """Any Python function of a sequence: the slow way, for what nothing else says.

    Parameters
    ----------
    function : callable
        ``function(tokens, labels)`` returns True where the labels are fine, False where not
        (violation 1), or the violation itself as a number, 0 being fine.
    """

    function: Callable[[Sequence[Any], Sequence[Any]], Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise TypeError(
                f"Predicate wants a function of (tokens, labels), got {self.function!r}."
            )

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        value = self.function(x, y)
        if type(value).__name__ in ("bool", "bool_"):
            return [0.0 if value else 1.0]
        violation = float(value)
        if not violation >= 0:
            raise ValueError(
                f"{self.title}: a predicate returns True, False or a violation that is not "
                f"negative, got {value!r}."
            )
        return [violation]

    def _describe(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


# Constraints that list labels ------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class _OfLabels(InstanceConstraint):
    """The labels come one by one; ``penalty=None`` is the form that the kind has by default."""

    labels: Labels
    _penalty: ClassVar[str] = "linear"
    _needs_labels: ClassVar[bool] = False

    def __init__(
        self,
        *labels: Any,
        weight: float = WEIGHT,
        penalty: str | None = None,
        hard: bool = False,
        name: str | None = None,
    ) -> None:
        form = self._penalty if penalty is None else penalty
        kind = type(self).__name__
        if self._needs_labels and not labels:
            raise ValueError(f"{kind} needs at least one label, as in {kind}('author').")
        groups = [as_group(a) if isinstance(a, list | set | frozenset) else a for a in labels]
        for item in groups:
            as_group(item)
        self._assign("labels", tuple(groups))
        super().__init__(weight=weight, penalty=form, hard=hard, name=name)

    def _count_segments(self, y: Sequence[Any]) -> list[int]:
        """Numbers of segments of the labels given, or of all that occur."""
        labels = self.labels or list(dict.fromkeys(y))
        return [len(run_lengths([a in as_group(label) for a in y])) for label in labels]

    def _write_each(self) -> str:
        return ", ".join(map(write_label, self.labels)) or "each label"


class StartsWith(_OfLabels):
    """The first token carries one of the labels."""

    _needs_labels = True
    _label_fields = ("labels",)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [1.0] if len(y) and y[0] not in self.labels else []

    def _describe(self) -> str:
        return f"starts with {write_label(self.labels)}"


class EndsWith(_OfLabels):
    """The last token carries one of the labels."""

    _needs_labels = True
    _label_fields = ("labels",)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [1.0] if len(y) and y[-1] not in self.labels else []

    def _describe(self) -> str:
        return f"ends with {write_label(self.labels)}"


class AtMostOneSegment(_OfLabels):
    """Each of the labels forms at most one segment; without labels: each label there is.

    The violation of a label is its number of segments above one (a hinge: absence is fine). By
    default its square is penalised.

    Examples
    --------
    >>> AtMostOneSegment("author").violation("a b c".split(), ["author", "title", "author"])
    1.0
    """

    _penalty = "squared"

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [max(n - 1.0, 0.0) for n in self._count_segments(y)]

    def _describe(self) -> str:
        return f"{self._write_each()} forms at most one segment"


class NoRepeats(_OfLabels):
    """No label in more than one segment, counted as the paper's φ_I3.

    The violation is the number of labels (of those given, or of all) that occur in more than one
    segment; by default its square is penalised once per sequence.
    """

    _penalty = "squared"

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [float(sum(n > 1 for n in self._count_segments(y)))]

    def _describe(self) -> str:
        among = f" among {self._write_each()}" if self.labels else ""
        return f"no label in two segments{among}"


@dataclass(frozen=True, init=False)
class Occurs(_OfLabels):
    """Each of the labels occurs at least, at most or exactly so many times.

    Parameters
    ----------
    *labels
        Each is counted for itself; a tuple of labels counts as one.
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
    _choices = (*Constraint._choices, ("unit", "'tokens' or 'segments'"))

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
        check_bounds("Occurs", equals, at_least, at_most)
        super().__init__(*labels, **common)

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of counts that cost nothing."""
        return check_bounds("Occurs", self.equals, self.at_least, self.at_most)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        if self.unit == "segments":
            counts = self._count_segments(y)
        else:
            counts = [sum(a in as_group(label) for a in y) for label in self.labels]
        return [measure_excess(n, *self.bounds) for n in counts]

    def _describe(self) -> str:
        return f"{self._write_each()} occurs {write_bounds(self, 'exactly ')} times ({self.unit})"


@dataclass(frozen=True, init=False)
class MinLength(_OfLabels):
    """Each segment of the labels (of any label without them) has at least ``length`` tokens.

    Parameters
    ----------
    *labels
    length : int
        A shorter segment is violated by the number of tokens it lacks.
    **common
        ``weight``, ``penalty``, ``hard`` and ``name``, as for all constraints.
    """

    length: int

    def __init__(self, *labels: Any, length: int, **common: Any) -> None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 2:
            raise ValueError(f"MinLength: length must be an integer above 1, got {length!r}.")
        self._assign("length", length)
        super().__init__(*labels, **common)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [
            max(self.length - n, 0.0)
            for label in self.labels or dict.fromkeys(y)
            for n in run_lengths([a in as_group(label) for a in y])
        ]

    def _describe(self) -> str:
        return f"segments of {self._write_each()} have at least {self.length} tokens"
