"""Constraints on all sequences together: shares and averages.

A constraint measures one number of the whole corpus and is violated by its distance from the
interval that ``equals``, ``at_least`` and ``at_most`` name, times ``scale``. The scale and the form
of the penalty are those the paper prints: percentage points squared for the share of a label,
the plain fraction for the share of changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar

from hingeline.constraints.rules import (
    PUNCTUATION,
    SIDES,
    VIOLATION_ROUNDING,
    Constraint,
    Match,
    check_bounds,
    find_bad_changes,
    flatten_labels,
    measure_excess,
    run_lengths,
    write_bounds,
    write_label,
)


@dataclass(frozen=True, kw_only=True)
class CorpusConstraint(Constraint):
    """A constraint on all sequences together."""

    equals: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    scale: float = 1.0
    #: The largest value there can be.
    top: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        check_bounds(kind, self.equals, self.at_least, self.at_most)
        if isinstance(self.scale, bool) or not isinstance(self.scale, Real):
            raise TypeError(f"{kind}: scale must be a number, got {self.scale!r}.")
        if not self.scale > 0:
            raise ValueError(f"{kind}: scale must be positive, got {self.scale!r}.")
        for name in ("equals", "at_least", "at_most"):
            bound = getattr(self, name)
            if bound is not None and bound > self.top:
                raise ValueError(f"{kind}: {name} is a share between 0 and 1, got {bound!r}.")

    def value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        """The number that the constraint bounds."""
        return self._value(X, Y)

    def _value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        raise NotImplementedError

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of values that cost nothing."""
        return check_bounds(type(self).__name__, self.equals, self.at_least, self.at_most)

    def violation(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        """Distance of the value from the interval, times ``scale``."""
        found = self.scale * measure_excess(self.value(X, Y), *self.bounds)
        return found if found > VIOLATION_ROUNDING else 0.0

    def cost(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        """The penalty: weight included, ``inf`` where a hard constraint is broken."""
        return self.penalise(self.violation(X, Y))


@dataclass(frozen=True)
class Share(CorpusConstraint):
    """The share of tokens that carry a label, between 0 and 1.

    Parameters
    ----------
    label : label or tuple of labels
        A tuple of labels counts as one label.
    equals, at_least, at_most : float, optional
    scale : float, default 100
        The violation is measured in percentage points, as the paper prints it.

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

    @classmethod
    def from_labels(cls, y: Iterable[Any], *, slack: float = 0.0, **common: Any) -> list[Share]:
        """One constraint per label: its share in labelled sequences.

        Parameters
        ----------
        y : iterable of label sequences
            A sequence that is None (unlabelled) is left out.
        slack : float
            Shares may lie this far on either side; 0 asks for equality.
        **common
            ``weight``, ``penalty``, ``hard`` or ``scale`` of all of them.
        """
        counts: dict[Any, int] = {}
        for labels in y:
            for a in () if labels is None else labels:
                a = a.item() if hasattr(a, "item") else a
                counts[a] = counts.get(a, 0) + 1
        total = sum(counts.values())
        if not total:
            raise ValueError("Share.from_labels needs at least one labelled token.")
        shares = {a: n / total for a, n in counts.items()}
        if not slack:
            return [cls(a, equals=share, **common) for a, share in shares.items()]
        return [
            cls(a, at_least=max(share - slack, 0.0), at_most=min(share + slack, 1.0), **common)
            for a, share in shares.items()
        ]

    def _value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        total = sum(len(y) for y in Y)
        return sum(a in self.label for y in Y for a in y) / total if total else 0.0

    def _describe(self) -> str:
        return f"share of {write_label(self.label)} is {write_bounds(self)}"


@dataclass(frozen=True)
class ChangeShare(CorpusConstraint):
    """The share of label changes at tokens that do not match, 0 where there are no changes.

    Parameters
    ----------
    where : str, list of str or callable, default PUNCTUATION
        Changes here are fine and do not count, as in :class:`ChangeOnlyAt`.
    equals, at_least, at_most : float, optional
    side : {"before", "after", "either"}
    ignore_case : bool
    scale : float, default 1
    """

    where: Match = PUNCTUATION
    side: str = field(default="before", kw_only=True)
    ignore_case: bool = field(default=False, kw_only=True)
    top: ClassVar[float] = 1.0
    _match_fields = ("where",)
    _choices = (*Constraint._choices, ("side", SIDES))

    def _value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        changes = bad = 0
        for x, y in zip(X, Y, strict=True):
            wrong = find_bad_changes(self, x)
            for t in range(1, len(y)):
                if y[t] != y[t - 1]:
                    changes += 1
                    bad += wrong[t]
        return bad / changes if changes else 0.0

    def _describe(self) -> str:
        where = "punctuation" if self.where == PUNCTUATION else "tokens that match"
        return f"share of changes not at {where} is {write_bounds(self)}"


@dataclass(frozen=True)
class AverageSegments(CorpusConstraint):
    """The average number of segments of a label per sequence, or of all labels together.

    Parameters
    ----------
    label : label, tuple of labels or None
        None counts the segments of all labels.
    equals, at_least, at_most : float, optional
    scale : float, default 1
    """

    label: Any = None
    penalty: str = field(default="squared", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label is not None:
            self._assign("label", flatten_labels("AverageSegments", self.label))

    def _value(self, X: Sequence[Any], Y: Sequence[Any]) -> float:
        if not len(Y):
            return 0.0
        found = 0
        for y in Y:
            if self.label is None:
                found += sum(t == 0 or y[t] != y[t - 1] for t in range(len(y)))
            else:
                found += len(run_lengths([a in self.label for a in y]))
        return found / len(Y)

    def _describe(self) -> str:
        what = "segments" if self.label is None else f"segments of {write_label(self.label)}"
        return f"average number of {what} is {write_bounds(self)}"
