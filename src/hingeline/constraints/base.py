"""What all constraints share: labels and groups of labels, words that match, penalties, bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

#: A token of punctuation marks alone, as a pattern for :class:`ChangeOnlyAt` and others.
PUNCTUATION = r"[^\w\s]+"

#: The weight r = 1000 that the paper prints.
WEIGHT = 1000.0

#: What a unit of violation of a hard constraint costs inside the compiled tables. It outweighs
#: every sensible soft penalty and is finite, so that differences never meet ``inf − inf``;
#: weights must stay below it. Outside the tables a broken hard constraint costs ``inf``.
HARD = 1e10

#: How many tokens before a word a pattern of what it comes after may look at.
AFTER_TOKENS = 10

#: Shares and averages are ratios: a violation below this is rounding.
ROUNDING = 1e-9

Group = tuple[Hashable, ...]
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

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real):
            raise TypeError(f"{kind}: weight must be a number, got {self.weight!r}.")
        if not 0 <= self.weight < HARD:
            raise ValueError(
                f"{kind}: weight must be at least 0 and below {HARD:g}, got {self.weight!r}; "
                "for a constraint that may never be broken pass hard=True."
            )
        if self.penalty not in ("linear", "squared"):
            raise ValueError(
                f"{kind}: penalty must be 'linear' or 'squared', got {self.penalty!r}."
            )
        if not isinstance(self.hard, bool):
            raise TypeError(f"{kind}: hard must be True or False, got {self.hard!r}.")

    def penalise(self, violation: float) -> float:
        """The cost of one violation."""
        if violation <= ROUNDING:
            return 0.0
        if self.hard:
            return math.inf
        return self.weight * (violation * violation if self.penalty == "squared" else violation)

    def finite_penalty(self, violation: float) -> float:
        """The same with ``HARD`` per unit of violation where the constraint is hard."""
        return HARD * violation if self.hard and violation > ROUNDING else self.penalise(violation)

    @property
    def title(self) -> str:
        """The name, or the constraint as it was written."""
        return self.name or self._written()

    def _written(self) -> str:
        return repr(self)


def assign(target: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is made."""
    for name, value in values.items():
        object.__setattr__(target, name, value)


def as_group(item: Any) -> Group:
    """A label, or a tuple (list, set) of labels that counts as one label."""
    if isinstance(item, tuple | list | set | frozenset):
        group = tuple(sorted(item, key=str) if isinstance(item, set | frozenset) else item)
        if not group:
            raise ValueError("a group of labels must not be empty.")
        return group
    return (item,)


def as_groups(kind: str, labels: Iterable[Any], needed: bool) -> tuple[Hashable | Group, ...]:
    """The labels of a constraint that speaks of each of them, lists turned into tuples."""
    found = tuple(
        tuple(as_group(a)) if isinstance(a, list | set | frozenset) else a for a in labels
    )
    if needed and not found:
        raise ValueError(f"{kind} needs at least one label, as in {kind}('author').")
    for item in found:
        as_group(item)
    return found


def one_of(kind: str, labels: Any) -> Group:
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


def runs(inside: Sequence[bool]) -> list[int]:
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


def as_match(kind: str, where: Any, argument: str) -> Match:
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


def as_after(kind: str, after: Any) -> str | None:
    """Check the pattern of what a word comes after."""
    if after is not None and not isinstance(after, str):
        raise TypeError(f"{kind}: after must be a regular expression, got {after!r}.")
    if after is not None:
        as_match(kind, after, "after")
    return after


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


def matches(
    where: Match, ignore_case: bool, tokens: Sequence[Any], after: str | None = None
) -> list[bool]:
    """For every token whether it matches: whole words, not parts of them.

    ``after`` is a pattern for the last of the tokens before it, joined by spaces.
    """
    found = _matches(where, ignore_case, tokens)
    if after is None:
        return found
    pattern = re.compile(rf"(?:^|.* )(?:{after})", re.IGNORECASE if ignore_case else 0)
    for t in range(len(found)):
        if found[t]:
            before = " ".join(map(str, tokens[max(0, t - AFTER_TOKENS) : t]))
            found[t] = pattern.fullmatch(before) is not None
    return found


def _matches(where: Match, ignore_case: bool, tokens: Sequence[Any]) -> list[bool]:
    if callable(where):
        return [bool(where(token)) for token in tokens]
    test = _text_matcher(where, ignore_case)  # type: ignore[arg-type]
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(
                f"patterns and lists of words want tokens of type str, got {token!r}; say with "
                "token= which part of a token is its word (a key or a function)."
            )
    return [test(token) for token in tokens]


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


def outside(value: float, low: float, high: float) -> float:
    """How far a value lies outside an interval: the hinges of "at least" and "at most"."""
    return max(low - value, value - high, 0.0)


def words_of(X: Iterable[Any], token: Any = None) -> list[list[Any]]:
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
