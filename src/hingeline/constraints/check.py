"""Which constraints given labels break, and where."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hingeline.constraints.base import Constraint, CorpusConstraint, InstanceConstraint, pick_words
from hingeline.constraints.penalties import as_constraints


class CheckRow(NamedTuple):
    """What one constraint found."""

    constraint: Constraint
    sequences: tuple[int, ...]  # those that break it; none for a corpus constraint
    violation: float  # sum over all sequences
    cost: float  # sum of the penalties
    value: float | None  # the number that a corpus constraint bounds


class CheckReport(NamedTuple):
    """Counts per constraint, in their order; ``str(report)`` is a table."""

    rows: tuple[CheckRow, ...]
    n_sequences: int

    @property
    def cost(self) -> float:
        """The total penalty."""
        return sum(row.cost for row in self.rows)

    @property
    def violation(self) -> float:
        """The sum of all violations, whatever they cost."""
        return sum(row.violation for row in self.rows)

    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequences that break a constraint."""
        return tuple(sorted({i for row in self.rows for i in row.sequences}))

    @property
    def ok(self) -> bool:
        """Whether all constraints are kept."""
        return all(row.violation == 0 for row in self.rows)

    def __str__(self) -> str:
        lines = [("constraint", "violation", "sequences", "cost", "where")]
        for row in self.rows:
            count = f"{len(row.sequences)} of {self.n_sequences}"
            where = ", ".join(map(str, row.sequences[:6]))
            where += ", ..." if len(row.sequences) > 6 else ""
            if row.value is not None:
                count, where = "corpus", f"is {row.value:.4g}"
            title = row.constraint.title + (" (hard)" if row.constraint.hard else "")
            lines.append((title, f"{row.violation:.6g}", count, f"{row.cost:.6g}", where))
        count = f"{len(self.sequences)} of {self.n_sequences}"
        lines.append(("total", f"{self.violation:.6g}", count, f"{self.cost:.6g}", ""))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            f"{a:<{p}}  {b:>{q}}  {c:>{r}}  {d:>{s}}  {where}".rstrip()
            for (a, b, c, d, where), (p, q, r, s, _) in ((line, widths) for line in lines)
        )


def check(
    constraints: Iterable[Constraint],
    X: Iterable[Sequence[Any]],
    Y: Iterable[Sequence[Any]],
    *,
    token: Any = None,
) -> CheckReport:
    """Check labels against constraints.

    Parameters
    ----------
    constraints : iterable of Constraint
    X : iterable of sequences of tokens
    Y : iterable of sequences of labels
    token : callable, str or int, optional
        What of a token is its word (a function, a key or a column); None where tokens are words.

    Returns
    -------
    CheckReport

    Examples
    --------
    >>> from hingeline.constraints import StartsWith
    >>> report = check([StartsWith("author")], [["On", "trees"]], [["title", "title"]])
    >>> report.ok, report.rows[0].sequences
    (False, (0,))
    """
    found = as_constraints(constraints)
    words, labels = pick_words(X, token), [list(y) for y in Y]
    if len(words) != len(labels):
        raise ValueError(f"X has {len(words)} sequences but Y has {len(labels)}.")
    for i, (x, y) in enumerate(zip(words, labels, strict=True)):
        if len(x) != len(y):
            raise ValueError(f"sequence {i} has {len(x)} tokens but {len(y)} labels.")
    rows = []
    for constraint in found:
        if isinstance(constraint, CorpusConstraint):
            value = constraint.value(words, labels)
            violation = constraint.violation(words, labels)
            cost = constraint.cost(words, labels)
            rows.append(CheckRow(constraint, (), violation, cost, value))
            continue
        assert isinstance(constraint, InstanceConstraint)
        each = [constraint.violation(x, y) for x, y in zip(words, labels, strict=True)]
        broken = tuple(i for i, violation in enumerate(each) if violation > 0)
        cost = math.fsum(constraint.cost(words[i], labels[i]) for i in broken)
        rows.append(CheckRow(constraint, broken, math.fsum(each), cost, None))
    return CheckReport(tuple(rows), len(words))
