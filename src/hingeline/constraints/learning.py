"""What labelled sequences say of constraints: how soft each is, and what shares are uncertain.

*On one sequence.* A rule that costs ρ per unit of violation makes v violations less likely by the
factor ``exp(−ρ·v)``. If they come at many places, each seldom, v has Poisson's distribution with
the mean ``m = exp(−ρ)``. So labelled sequences that break the rule m times on average ask for
``ρ = log(1/m)``: a rule that gold labels break often costs little, and one that they break once in
a sequence or more costs nothing. Half a violation is added to those counted, so that a rule that
none of n sequences breaks costs about ``log(2n)`` and not infinity. The unit is that of the score
of a structured SVM, in which a wrong token costs one.

*On all sequences.* A share or average in n labelled sequences is known up to a standard error, by
the jackknife: the interval of two of them on either side costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np

from hingeline.constraints.base import Constraint, CorpusConstraint, InstanceConstraint

#: Standard errors on either side of what the labelled sequences have.
ERRORS = 2.0
#: Fewer sequences tell nothing of a standard error.
FEWEST = 3
#: Values of the jackknife, at most.
MOST_BLOCKS = 40


def learn_constraints(
    constraints: Iterable[Constraint],
    X: Sequence[Sequence[Any]],
    Y: Sequence[Sequence[Any]],
) -> list[Constraint]:
    """The same constraints with weights and bounds that labelled sequences suggest.

    Parameters
    ----------
    constraints : iterable of Constraint
        Hard ones stay as they are.
    X, Y : sequences of words, and their labels

    Returns
    -------
    list of Constraint
        Constraints on one sequence have another ``weight``, those on all sequences other bounds,
        and are absent where fewer than three sequences are labelled.

    Examples
    --------
    >>> from hingeline.constraints import StartsWith
    >>> X, Y = [["a", "b"]] * 8, [["A", "B"]] * 6 + [["B", "B"]] * 2
    >>> learned = learn_constraints([StartsWith("A"), StartsWith("B")], X, Y)
    >>> [round(rule.weight, 2) for rule in learned]
    [1.28, 0.33]
    """
    found: list[Constraint] = []
    for rule in constraints:
        if rule.hard:
            found.append(rule)
        elif isinstance(rule, InstanceConstraint):
            one = change_rule(rule, weight=1.0)
            broken = sum(one.cost(x, y) for x, y in zip(X, Y, strict=True))
            mean = (broken + 0.5) / (len(X) + 1.0)
            found.append(change_rule(rule, weight=max(-math.log(mean), 0.0)))
        elif isinstance(rule, CorpusConstraint) and len(X) >= FEWEST:
            low, high = estimate_interval(rule, X, Y)
            found.append(change_rule(rule, equals=None, at_least=low, at_most=high))
    return found


def estimate_interval(
    rule: CorpusConstraint, X: Sequence[Sequence[Any]], Y: Sequence[Sequence[Any]]
) -> tuple[float, float]:
    """Two standard errors on either side of what a constraint measures, by the jackknife."""
    n = min(len(X), MOST_BLOCKS)  # where there are many, blocks are left out
    kept = [[i for i in range(len(X)) if i % n != k] for k in range(n)]
    without = [rule.value([X[i] for i in part], [Y[i] for i in part]) for part in kept]
    error = math.sqrt((n - 1) * float(np.var(without)))
    value = rule.value(X, Y)
    return max(value - ERRORS * error, 0.0), min(value + ERRORS * error, rule.top)


def change_rule(rule: Any, **values: Any) -> Any:
    """A copy of a constraint with other values of some fields."""
    changed = copy(rule)
    for name, value in values.items():
        changed._assign(name, value)
    return changed
