"""What labelled sequences say of constraints: how soft each is, and what shares are uncertain.

*On one sequence.* A rule that costs ρ per unit of violation makes v violations less likely by the
factor ``exp(−ρ·v)``. If they come at many places, each seldom, v has Poisson's distribution with
the mean ``m = exp(−ρ)``. So labelled sequences that break the rule m times on average ask for
``ρ = log(1/m)``: a rule that gold labels break often costs little, and one that they break once in
a sequence or more costs nothing. Who writes a rule believes in it: five sequences that break it a
tenth of a time in all are added to those counted. The weight is ρ up to the one that a wrong token
costs in the score of a structured SVM, so that a rule broken by many outweighs no token, and what
lies beyond counts twice: scores are no log-probabilities, and on partitions of citations that no
table has, 2ρ was better than ρ, and as good as 4ρ.

*On all sequences.* A share or average in n labelled sequences is known up to a standard error, by
the jackknife. The interval of two of them on either side costs nothing, and what lies beyond it by
d errors costs d²/2, as under Gauss's distribution: a share says no more than a few sequences do.
"""

import math
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np

from hingeline.constraints.base import Constraint, CorpusConstraint, InstanceConstraint

PRIOR = 0.1, 5.0  # Violations, and the sequences they are in, that are added to those counted.
FEWEST = 3  # Fewer sequences tell nothing of a standard error.
MOST_BLOCKS = 40  # Values of the jackknife, at most.


def learn_constraints(
    constraints: Iterable[Constraint], X: Sequence[Sequence[Any]], Y: Sequence[Sequence[Any]]
) -> list[Constraint]:
    """The same constraints with weights and bounds that sequences of words and labels suggest.

    Constraints on one sequence get another ``weight``, those on all sequences other bounds, too,
    and are absent where fewer than three sequences are labelled; hard ones stay as they are.
    """
    found: list[Constraint] = []
    for rule in constraints:
        if rule.hard:
            found.append(rule)
        elif isinstance(rule, InstanceConstraint):
            one = change_rule(rule, weight=1.0)
            broken = sum(one.cost(x, y) for x, y in zip(X, Y, strict=True))
            mean = (broken + PRIOR[0]) / (len(X) + PRIOR[1])
            cost = -math.log(mean)
            found.append(change_rule(rule, weight=max(cost, 2.0 * cost - 1.0, 0.0)))
        elif isinstance(rule, CorpusConstraint) and len(X) >= FEWEST:
            value, error = estimate_value(rule, X, Y)
            low, high = max(value - 2.0 * error, 0.0), min(value + 2.0 * error, rule.top)
            weight = min(rule.weight, 0.5 / max((rule.scale * error) ** 2, 1e-12))
            bounds = {"equals": None, "at_least": low, "at_most": high}
            found.append(change_rule(rule, weight=weight, penalty="squared", **bounds))
    return found


def estimate_value(
    rule: CorpusConstraint, X: Sequence[Sequence[Any]], Y: Sequence[Sequence[Any]]
) -> tuple[float, float]:
    """What a constraint measures in labelled sequences, and its standard error."""
    n = min(len(X), MOST_BLOCKS)  # where there are many, blocks are left out
    kept = [[i for i in range(len(X)) if i % n != k] for k in range(n)]
    without = [rule.value([X[i] for i in part], [Y[i] for i in part]) for part in kept]
    return rule.value(X, Y), math.sqrt((n - 1) * float(np.var(without)))


def change_rule(rule: Any, **values: Any) -> Any:
    """A copy of a constraint with other values of some fields."""
    changed = copy(rule)
    for name, value in values.items():
        changed._assign(name, value)
    return changed
