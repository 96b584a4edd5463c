"""What all constraints share: penalties, labels and groups of labels, matches of words, bounds.

A constraint has *parts* that are penalised one by one: a word, a change of label, a label, a
segment. ``violation(x, y)`` is the sum of the parts' violations and ``cost(x, y)`` the sum of their
penalties. A segment is a maximal run of one label. Where a constraint names several labels, each
counts for itself; a tuple of labels counts as one label: ``("B-stime", "I-stime")``.

A corpus constraint measures one number of all sequences and is violated by its distance from the
interval that ``equals``, ``at_least`` and ``at_most`` name, times ``scale``.
"""

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from numbers import Real
from typing import Any, ClassVar

from hingeline._checks import require, retell

#: A token of punctuation marks alone, as a pattern for :class:`ChangeOnlyAt` and others.
PUNCTUATION = r"[^\w\s]+"
WEIGHT = 1000.0  # The weight r = 1000 that the paper prints.
#: What a unit of violation of a hard constraint costs inside the compiled constraints. It outweighs
#: every sensible soft penalty and is finite, so that differences never meet ``inf − inf``;
#: weights must stay below it. Elsewhere a broken hard constraint costs ``inf``.
HARD = 1e10
AFTER_TOKENS = 10  # How many tokens before a word the pattern ``after`` may look at.
VIOLATION_ROUNDING = 1e-9  # Shares and averages are ratios: a violation below this is rounding.

Group = tuple[Hashable, ...]
Labels = tuple[Hashable | Group, ...]
Match = str | Collection[str] | Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """What all constraints have: a weight, a form of penalty, hard or soft, and a name.

    Attributes
    ----------
    weight : float; cost of one unit of violation (r of the paper, 1000 as printed)
    penalty : {"linear", "squared"}; whether the weight multiplies a violation or its square
    hard : bool; breaking a hard constraint costs infinity, so predictions never break it
    name : str or None; its name in reports, by default the constraint in words
    """

    weight: float = WEIGHT
    penalty: str = "linear"
    hard: bool = False
    name: str | None = None

    #: Fields that take a label or several; they become tuples.
    _label_fields: ClassVar[tuple[str, ...]] = ()
    _match_fields: ClassVar[tuple[str, ...]] = ()  # Fields that say which tokens match.
    #: Fields that take one of these words.
    _choices: ClassVar[tuple[tuple[str, str], ...]] = (("penalty", "'linear' or 'squared'"),)
    #: The constraint in words: fields in braces; in brackets what goes where a field is empty.
    _words: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kind = type(self).__name__
        check_number(kind, "weight", self.weight)
        text = f"{kind}: weight must be at least 0 and below {HARD:g}, got {self.weight!r}"
        text += "; for a constraint that may never be broken pass hard=True."
        require(0 <= self.weight < HARD, text)
        if not isinstance(self.hard, bool):
            raise TypeError(f"{kind}: hard must be True or False, got {self.hard!r}.")
        for name, words in self._choices:
            value = getattr(self, name)
            require(f"'{value}'" in words, f"{kind}: {name} must be {words}, got {value!r}.")
        for name in self._label_fields:
            self._assign(name, flatten_labels(kind, getattr(self, name)))
        for name in self._match_fields:
            self._assign(name, check_match(kind, getattr(self, name), name))

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
        cost = self.penalise(violation)
        return HARD * violation if math.isinf(cost) else cost

    @property
    def title(self) -> str:
        """The name, or the constraint in words."""
        shown = self._show_fields()
        words = re.sub(r"\[(.*?{(\w+)})\]", lambda m: m[1] if shown[m[2]] else "", self._words)
        return self.name or words.format_map(shown) or repr(self)

    def _show_fields(self) -> dict[str, Any]:
        """The fields as reports show them."""
        labels = {name: write_label(getattr(self, name)) for name in self._label_fields}
        return vars(self) | labels | {n: write_match(getattr(self, n)) for n in self._match_fields}


class InstanceConstraint(Constraint):
    """A constraint on one sequence of tokens and its labels."""

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        """The violations of the parts; parts that are satisfied may be absent."""
        raise NotImplementedError

    def violation(self, x: Sequence[Any], y: Sequence[Any]) -> float:
        """How far the labels ``y`` of the tokens ``x`` break the constraint; 0 if they keep it."""
        return float(sum(self.parts(x, y)))

    def cost(self, x: Sequence[Any], y: Sequence[Any]) -> float:
        """The penalty, weights included; ``inf`` if a hard constraint is broken."""
        return float(sum(map(self.penalise, self.parts(x, y))))


class Bounded(Constraint):
    """A constraint on numbers, with the fields ``equals``, ``at_least`` and ``at_most``."""

    _exactly: ClassVar[str] = ""  # A word before the number that must be met.

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of values that cost nothing; refuses bounds that make no sense."""
        kind, names = type(self).__name__, ("equals", "at_least", "at_most")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        for name, value in given.items():
            check_number(kind, name, value)
            require(value >= 0, f"{kind}: {name} must not be negative, got {value!r}.")
        require(given, f"{kind} needs equals=, at_least= or at_most=.")
        one = "equals" not in given or len(given) == 1
        require(one, f"{kind}: pass equals= or at_least= and at_most=, not both.")
        low, high = (given.get("equals", given.get(name)) for name in names[1:])
        low, high = 0.0 if low is None else float(low), math.inf if high is None else float(high)
        require(low <= high, f"{kind}: at_least={low:g} is above at_most={high:g}.")
        return low, high

    def _show_fields(self) -> dict[str, Any]:
        words = {"equals": self._exactly, "at_least": "at least ", "at_most": "at most "}
        given = {word: getattr(self, name) for name, word in words.items()}
        bounds = [f"{word}{bound:g}" for word, bound in given.items() if bound is not None]
        return super()._show_fields() | {"bounds": " and ".join(bounds)}


@dataclass(frozen=True, kw_only=True)
class CorpusConstraint(Bounded):
    """A constraint on all sequences together."""

    equals: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    scale: float = 1.0
    top: ClassVar[float] = math.inf  # The largest value there can be.

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        _ = self.bounds  # which refuses what makes no sense
        check_number(kind, "scale", self.scale)
        require(self.scale > 0, f"{kind}: scale must be positive, got {self.scale!r}.")
        for name in ("equals", "at_least", "at_most"):
            bound = getattr(self, name) or 0
            require(bound <= self.top, f"{kind}: {name} is a share between 0 and 1, got {bound!r}.")

    def value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        """The number that the constraint bounds."""
        raise NotImplementedError

    def violation(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        """Distance of the value from the interval, times ``scale``."""
        found = self.scale * measure_excess(self.value(X, Y), *self.bounds)
        return found if found > VIOLATION_ROUNDING else 0.0

    def cost(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        """The penalty, weight included; ``inf`` if a hard constraint is broken."""
        return self.penalise(self.violation(X, Y))


def as_group(item: Any) -> Group:
    """A label, or a tuple (list, set) of labels that counts as one label."""
    if isinstance(item, tuple | list | set | frozenset):
        group = tuple(sorted(item, key=str) if isinstance(item, set | frozenset) else item)
        require(group, "a group of labels must not be empty.")
        return group
    return (item,)


def flatten_labels(kind: str, labels: Any) -> Group:
    """The labels of a constraint that asks for one of them."""
    some = not isinstance(labels, tuple | list | set | frozenset) or labels
    require(some, f"{kind} needs at least one label.")
    return tuple(label for item in as_group(labels) for label in as_group(item))


def write_label(item: Any) -> str:
    """A label as reports show it."""
    return " or ".join(map(str, item)) if isinstance(item, tuple) else str(item)


def run_lengths(inside: Sequence[bool]) -> list[int]:
    """Lengths of the maximal runs of True."""
    return [len(list(run)) for is_inside, run in groupby(inside) if is_inside]


def check_match(kind: str, where: Any, argument: str) -> Match:
    """Check a pattern, a list of words or a predicate; lists become tuples."""
    if isinstance(where, str):
        what = f"{kind}: {argument} is not a regular expression: {where!r}"
        with retell(f"{what} (", ").", re.error):
            re.compile(where)
        return where
    if callable(where):
        return where
    if isinstance(where, Collection) and all(isinstance(word, str) for word in where):
        require(where, f"{kind}: {argument} is an empty list of words.")
        return tuple(sorted(where)) if isinstance(where, set | frozenset) else tuple(where)
    what = "must be a regular expression, a list of words or a function of a token"
    raise TypeError(f"{kind}: {argument} {what}, got {where!r}.")


@lru_cache(maxsize=256)
def _text_matcher(where: str | tuple[str, ...], ignore_case: bool) -> Callable[[str], bool]:
    if isinstance(where, str):
        pattern = re.compile(where, re.IGNORECASE if ignore_case else 0)
        return lru_cache(maxsize=65536)(lambda word: pattern.fullmatch(word) is not None)
    fold = str.casefold if ignore_case else str
    words = frozenset(map(fold, where))
    return lambda word: fold(word) in words


def find_matches(
    where: Match, ignore_case: bool, tokens: Sequence[Any], after: str | None = None
) -> list[bool]:
    """For every token whether it matches: whole words, not parts of them.

    ``after`` is a pattern for the last of the tokens before it, joined by spaces.
    """
    test = where if callable(where) else _text_matcher(where, ignore_case)  # type: ignore[arg-type]
    for token in [] if callable(where) else tokens:
        if not isinstance(token, str):
            what = f"patterns and lists of words need tokens of type str, got {token!r}"
            how = "say with token= which part of a token is its word (a key or a function)"
            raise TypeError(f"{what}; {how}.")
    found = [bool(test(token)) for token in tokens]
    if after is not None:
        pattern = re.compile(rf"(?:^|.* )(?:{after})", re.IGNORECASE if ignore_case else 0)
        for t in [t for t, hit in enumerate(found) if hit]:
            before = " ".join(map(str, tokens[max(0, t - AFTER_TOKENS) : t]))
            found[t] = pattern.fullmatch(before) is not None
    return found


def write_match(where: Any) -> str:
    """A pattern, a list of words or a predicate as reports show it."""
    if where == PUNCTUATION:
        return "punctuation"
    if isinstance(where, str):
        return f"/{where}/"
    if callable(where):
        return str(getattr(where, "__name__", repr(where)))
    words = list(where)
    return ", ".join(words[:4]) + (", ..." if len(words) > 4 else "")


def check_number(kind: str, name: str, value: Any) -> None:
    """Refuse what is not a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{kind}: {name} must be a number, got {value!r}.")


def measure_excess(value: float, low: float, high: float) -> float:
    """How far a value lies outside an interval: the hinges of "at least" and "at most"."""
    return max(low - value, value - high, 0.0)


def pick_words(X: Iterable[Any], token: Any = None) -> list[list[Any]]:
    """The words of all sequences; ``token`` says what of a token is its word, None the whole."""
    if token is None:
        return [list(x) for x in X]
    pick = token if callable(token) else (lambda row: row[token])
    return [[pick(row) for row in x] for x in X]
