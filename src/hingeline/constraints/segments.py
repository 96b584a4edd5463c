"""Constraints on how often labels occur in a sequence, and in how long segments.

A segment is a maximal run of one label. Each label is meant for itself; a tuple of labels counts
as one label: ``("B-stime", "I-stime")``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hingeline.constraints.base import (
    WEIGHT,
    Group,
    as_group,
    as_groups,
    assign,
    check_bounds,
    outside,
    runs,
    write_label,
)
from hingeline.constraints.instance import InstanceConstraint

Labels = tuple[Hashable | Group, ...]


@dataclass(frozen=True, init=False)
class AtMostOneSegment(InstanceConstraint):
    """Each of the labels forms at most one segment; without labels: each label there is.

    The violation of a label is its number of segments above one (a hinge: absence is fine).

    Examples
    --------
    >>> AtMostOneSegment("author").violation("a b c".split(), ["author", "title", "author"])
    1.0
    """

    labels: Labels

    def __init__(
        self,
        *labels: Any,
        weight: float = WEIGHT,
        penalty: str = "squared",
        hard: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(weight=weight, penalty=penalty, hard=hard, name=name)
        assign(self, labels=as_groups("AtMostOneSegment", labels, needed=False))

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [max(n - 1.0, 0.0) for n in _segments(self.labels, y)]

    def _written(self) -> str:
        return f"{_each(self.labels)} forms at most one segment"


@dataclass(frozen=True, init=False)
class NoRepeats(InstanceConstraint):
    """No label in more than one segment, counted as the paper's φ_I3.

    The violation is the number of labels (of those given, or of all) that occur in more than one
    segment; its square is penalised once per sequence.
    """

    labels: Labels

    def __init__(
        self,
        *labels: Any,
        weight: float = WEIGHT,
        penalty: str = "squared",
        hard: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(weight=weight, penalty=penalty, hard=hard, name=name)
        assign(self, labels=as_groups("NoRepeats", labels, needed=False))

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [float(sum(n > 1 for n in _segments(self.labels, y)))]

    def _written(self) -> str:
        among = f" among {', '.join(map(write_label, self.labels))}" if self.labels else ""
        return f"no label in two segments{among}"


@dataclass(frozen=True, init=False)
class Occurs(InstanceConstraint):
    """Each of the labels occurs at least, at most or exactly so many times.

    Parameters
    ----------
    *labels
        Each is counted for itself; a tuple of labels counts as one.
    at_least, at_most, equals : int, optional
    unit : {"tokens", "segments"}
    """

    labels: Labels
    at_least: int | None
    at_most: int | None
    equals: int | None
    unit: str

    def __init__(
        self,
        *labels: Any,
        at_least: int | None = None,
        at_most: int | None = None,
        equals: int | None = None,
        unit: str = "tokens",
        weight: float = WEIGHT,
        penalty: str = "linear",
        hard: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(weight=weight, penalty=penalty, hard=hard, name=name)
        if unit not in ("tokens", "segments"):
            raise ValueError(f"Occurs: unit must be 'tokens' or 'segments', got {unit!r}.")
        check_bounds("Occurs", equals, at_least, at_most)
        groups = as_groups("Occurs", labels, needed=True)
        assign(self, labels=groups, at_least=at_least, at_most=at_most, equals=equals, unit=unit)

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of counts that cost nothing."""
        return check_bounds("Occurs", self.equals, self.at_least, self.at_most)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        low, high = self.bounds
        if self.unit == "segments":
            counts = _segments(self.labels, y)
        else:
            counts = [sum(a in as_group(label) for a in y) for label in self.labels]
        return [outside(n, low, high) for n in counts]

    def _written(self) -> str:
        return f"{_each(self.labels)} occurs {_range(self)} times ({self.unit})"


@dataclass(frozen=True, init=False)
class MinLength(InstanceConstraint):
    """Each segment of the labels (of any label without them) has at least ``length`` tokens.

    Parameters
    ----------
    *labels
    length : int
        A shorter segment is violated by the number of tokens it lacks.
    """

    labels: Labels
    length: int

    def __init__(
        self,
        *labels: Any,
        length: int,
        weight: float = WEIGHT,
        penalty: str = "linear",
        hard: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(weight=weight, penalty=penalty, hard=hard, name=name)
        if isinstance(length, bool) or not isinstance(length, int) or length < 2:
            raise ValueError(f"MinLength: length must be an integer above 1, got {length!r}.")
        assign(self, labels=as_groups("MinLength", labels, needed=False), length=length)

    def _parts(self, x: Sequence[Any], y: Sequence[Any]) -> Iterable[float]:
        return [
            max(self.length - n, 0.0)
            for label in self.labels or _distinct(y)
            for n in runs([a in as_group(label) for a in y])
        ]

    def _written(self) -> str:
        return f"segments of {_each(self.labels)} have at least {self.length} tokens"


def _distinct(y: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(y))


def _segments(labels: Labels, y: Sequence[Any]) -> list[int]:
    """Numbers of segments of the labels given, or of all that occur."""
    return [len(runs([a in as_group(label) for a in y])) for label in labels or _distinct(y)]


def _each(labels: Labels) -> str:
    return ", ".join(map(write_label, labels)) or "each label"


def _range(constraint: Any) -> str:
    if constraint.equals is not None:
        return f"exactly {constraint.equals}"
    bounds = (("at least", constraint.at_least), ("at most", constraint.at_most))
    return " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
