"""Constraints on one sequence: its words, its ends, its changes of label, its order.

Each constraint has *parts* that are penalised one by one: a word, a change of label, a label, a
segment. ``violation(x, y)`` is the sum of the parts' violations and ``cost(x, y)`` the sum of
their penalties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hingeline.constraints.base import (
    PUNCTUATION,
    WEIGHT,
    Constraint,
    Group,
    Match,
    as_after,
    as_match,
    assign,
    matches,
    one_of,
    write_label,
)


class InstanceConstraint(Constraint):
    """A constraint that speaks of one sequence of tokens and its labels."""

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        raise NotImplementedError

    def parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        """The violations of the parts; parts that are satisfied may be absent."""
        return self._parts(x, y)

    def violation(self, x: Sequence[Any], y: Sequence[Any]) -> float:
        """How far the labels ``y`` of the tokens ``x`` break the constraint; 0 is kept."""
        return float(sum(self.parts(x, y)))

    def cost(self, x: Sequence[Any], y: Sequence[Any]) -> float:
        """The penalty: weights included, ``inf`` where a hard constraint is broken."""
        return float(sum(map(self.penalise, self.parts(x, y))))


@dataclass(frozen=True, init=False)
class _End(InstanceConstraint):
    """A token at one end carries one of the labels."""

    labels: Group

    def __init__(
        self,
        *labels: Any,
        weight: float = WEIGHT,
        penalty: str = "linear",
        hard: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(weight=weight, penalty=penalty, hard=hard, name=name)
        assign(self, labels=one_of(type(self).__name__, labels))


class StartsWith(_End):
    """The first token carries one of the labels."""

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [1.0] if len(y) and y[0] not in self.labels else []

    def _written(self) -> str:
        return f"starts with {write_label(self.labels)}"


class EndsWith(_End):
    """The last token carries one of the labels."""

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [1.0] if len(y) and y[-1] not in self.labels else []

    def _written(self) -> str:
        return f"ends with {write_label(self.labels)}"


@dataclass(frozen=True)
class _WordRule(InstanceConstraint):
    """Words and labels that go together."""

    words: Match
    label: Any
    ignore_case: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        assign(self, words=as_match(kind, self.words, "words"), label=one_of(kind, self.label))


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
        assign(self, after=as_after("Words", self.after))

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        found = matches(self.words, self.ignore_case, x, self.after)
        return [1.0 for hit, a in zip(found, y, strict=True) if hit and a not in self.label]

    def _written(self) -> str:
        place = "" if self.after is None else f" after {self.after}"
        return f"{_write_match(self.words)}{place} is {write_label(self.label)}"


class OnlyWords(_WordRule):
    r"""Only words that match carry the label (or one of these); every other such token counts.

    The converse of :class:`Words`, with the same parameters but ``after``.

    Examples
    --------
    >>> OnlyWords(r"\d\d?", label="hour").violation(["at", "3"], ["hour", "hour"])
    1.0
    """

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        found = matches(self.words, self.ignore_case, x)
        return [1.0 for hit, a in zip(found, y, strict=True) if not hit and a in self.label]

    def _written(self) -> str:
        return f"{write_label(self.label)} only on {_write_match(self.words)}"


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

    def __post_init__(self) -> None:
        super().__post_init__()
        assign(self, where=as_match("ChangeOnlyAt", self.where, "where"))
        check_side("ChangeOnlyAt", self.side)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        bad = bad_changes(self.where, self.side, self.ignore_case, x)
        return [1.0 for t in range(1, len(y)) if bad[t] and y[t] != y[t - 1]]

    def _written(self) -> str:
        return f"label changes only at {_write_match(self.where)}"


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

    def __post_init__(self) -> None:
        super().__post_init__()
        assign(self, label=one_of("Follows", self.label), after=one_of("Follows", self.after))

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        first = [1.0] if len(y) and not self.start and y[0] in self.label else []
        later = (1.0 for t in range(1, len(y)) if y[t] in self.label and y[t - 1] not in self.after)
        return [*first, *later]

    def _written(self) -> str:
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

    def __post_init__(self) -> None:
        super().__post_init__()
        assign(self, first=one_of("Before", self.first), second=one_of("Before", self.second))
        if set(self.first) & set(self.second):
            raise ValueError("Before: a label cannot stand before itself; name different labels.")

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        seen = False
        for a in y:
            if a in self.first and seen:
                return [1.0]
            seen = seen or a in self.second
        return []

    def _written(self) -> str:
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
        if str(type(value).__name__) in ("bool", "bool_"):
            return [0.0 if value else 1.0]
        violation = float(value)
        if not violation >= 0:
            raise ValueError(
                f"{self.title}: a predicate returns True, False or a violation that is not "
                f"negative, got {value!r}."
            )
        return [violation]

    def _written(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def check_side(kind: str, side: str) -> None:
    """Refuse an unknown side of a change."""
    if side not in ("before", "after", "either"):
        raise ValueError(f"{kind}: side must be 'before', 'after' or 'either', got {side!r}.")


def bad_changes(where: Match, side: str, ignore_case: bool, x: Sequence[Any]) -> list[bool]:
    """For each position whether a change of label between it and its predecessor counts."""
    hit = matches(where, ignore_case, x)
    bad = [False] * len(hit)
    for t in range(1, len(hit)):
        good = (hit[t - 1] and side != "after") or (hit[t] and side != "before")
        bad[t] = not good
    return bad


def _write_match(where: Match) -> str:
    if where == PUNCTUATION:
        return "punctuation"
    if isinstance(where, str):
        return f"/{where}/"
    if callable(where):
        return getattr(where, "__name__", repr(where))
    words = list(where)
    return ", ".join(words[:4]) + (", ..." if len(words) > 4 else "")
