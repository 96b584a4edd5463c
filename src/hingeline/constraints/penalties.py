"""The penalty of a labelling: constraints as flat arrays, label switches, reports, and learning."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array, one_of, require, warn
from hingeline._jit import kernel
from hingeline.constraints import base, rules, switches
from hingeline.constraints.switches import CompiledConstraints, State
from hingeline.core.results import align


def as_constraints(constraints: Any) -> list[base.Constraint]:
    """A list of constraints, checked; one alone is a list of one."""
    found = [constraints] if isinstance(constraints, base.Constraint) else list(constraints or ())
    for number, constraint in enumerate(found):
        what = f"constraints[{number}] is not a constraint of hingeline.constraints"
        require(isinstance(constraint, base.Constraint), f"{what}: {constraint!r}.", TypeError)
    return found


class _Builder:
    """Collects costs; those of groups by their numbers, as constraints name new groups."""

    def __init__(self, given: list[Any], words: Any, classes: list[Any]) -> None:
        self.words, self.classes = words, classes
        self.index = {label: k for k, label in enumerate(classes)}
        require(len(self.index) == len(classes), "classes must be distinct.")
        lengths = [len(x) for x in words]
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        some = self.offsets[1:] > self.offsets[:-1]
        self.first, self.last = self.offsets[:-1][some], self.offsets[1:][some] - 1
        self.longest = max(lengths, default=0)
        self.unary = np.zeros((int(self.offsets[-1]), len(classes)))
        self.change = np.zeros(int(self.offsets[-1]))
        self.pair = np.zeros((len(classes), len(classes)))
        self.unknown: set[Any] = set()
        self.groups: dict[tuple[int, ...], int] = {}
        shortest = [rule.length for rule in given if isinstance(rule, rules.MinLength)]
        sizes = self.longest + 2, self.longest + 2, max(shortest, default=0) + 1
        self.token_cost, self.segment_cost, self.length_cost = (
            defaultdict[int, Array](partial(np.zeros, size)) for size in sizes
        )
        self.repeats: list[tuple[list[int], base.Constraint]] = []
        self.order: list[tuple[int, int, float]] = []
        self.bad: list[Array] = []
        self.corpus: list[tuple[int, int | None, base.CorpusConstraint]] = []
        for rule in given:
            self.add(rule)

    def number(self, labels: Sequence[Any]) -> Array:
        """The numbers of the labels that are among the classes."""
        self.unknown.update(label for label in labels if label not in self.index)
        known = {self.index[label] for label in labels if label in self.index}
        return np.array(sorted(known), dtype=np.int64)

    def find_group(self, labels: Sequence[Any]) -> int | None:
        """The number of a group, or None where no label of it is known."""
        key = tuple(self.number(labels).tolist())
        return self.groups.setdefault(key, len(self.groups)) if key else None

    def find_groups(self, labels: Sequence[Any]) -> list[int]:
        """The groups of a constraint on each of its labels, or on all labels."""
        items = [base.as_group(item) for item in labels] or [(label,) for label in self.classes]
        return [g for g in map(self.find_group, items) if g is not None]

    def add(self, rule: base.Constraint) -> None:
        one = rule.finite_penalty(1.0)
        match rule:
            case rules.AtMostOneSegment() | rules.Occurs():
                table = self.token_cost if rule.unit == "tokens" else self.segment_cost
                numbers, bounds = range(self.longest + 2), rule.bounds
                found = [rule.finite_penalty(base.measure_excess(n, *bounds)) for n in numbers]
                for g in self.find_groups(rule.labels):
                    table[g] += found
            case rules.NoRepeats():
                self.repeats.append((self.find_groups(rule.labels), rule))
            case rules.MinLength():
                found = [rule.finite_penalty(rule.length - n) for n in range(1, rule.length)]
                for g in self.find_groups(rule.labels):
                    self.length_cost[g][1 : rule.length] += found
            case rules.StartsWith():
                self.charge_others(self.first, rule.labels, one)
            case rules.EndsWith():
                self.charge_others(self.last, rule.labels, one)
            case rules.Words():
                hits = self.map_tokens(rule.find_words)
                self.charge_others(np.flatnonzero(hits), rule.label, one)
            case rules.OnlyWords():
                hits = self.map_tokens(rule.find_words)
                self.unary[np.ix_(np.flatnonzero(~hits), self.number(rule.label))] += one
            case rules.ChangeOnlyAt():
                self.change += one * self.map_tokens(rule.find_bad_changes)
            case rules.Follows():
                columns = self.number(rule.label)
                others = np.setdiff1d(np.arange(len(self.classes)), self.number(rule.after))
                self.pair[np.ix_(others, columns)] += one
                if not rule.start:
                    self.unary[np.ix_(self.first, columns)] += one
            case rules.Before():
                A, B = self.find_group(rule.first), self.find_group(rule.second)
                if A is not None and B is not None:
                    self.order.append((A, B, one))
            case rules.Share():
                self.corpus.append((switches.SHARE, self.find_group(rule.label), rule))
            case rules.ChangeShare():
                self.corpus.append((switches.CHANGES, len(self.bad), rule))
                self.bad.append(self.map_tokens(rule.find_bad_changes))
            case rules.AverageSegments(label=None):
                self.corpus.append((switches.ALL_SEGMENTS, len(self.first), rule))
            case rules.AverageSegments():
                self.corpus.append((switches.SEGMENTS, self.find_group(rule.label), rule))
            case rules.Predicate():
                pass  # which has no compiled form
            case _:
                raise TypeError(f"{type(rule).__name__} cannot be compiled.")

    def charge_others(self, rows: Array, labels: Sequence[Any], cost: float) -> None:
        """A cost of every other label at these tokens."""
        if len(wanted := self.number(labels)):
            others = np.setdiff1d(np.arange(len(self.classes)), wanted)
            self.unary[np.ix_(rows, others)] += cost

    def map_tokens(self, function: Any) -> Array:
        """What a function says of each token."""
        return np.array([hit for x in self.words for hit in function(x)], dtype=bool)

    def finish(self) -> CompiledConstraints:
        G, K, N = len(self.groups), len(self.classes), self.unary.shape[0]
        member = np.zeros((G, K), dtype=bool)
        for key, g in self.groups.items():
            member[g, list(key)] = True
        token_cost, segment_cost, length_cost = (
            np.array([table[g] for g in range(G)]).reshape(G, len(table[0]))
            for table in (self.token_cost, self.segment_cost, self.length_cost)
        )
        repeat_member = np.zeros((len(self.repeats), G), dtype=bool)
        repeat_cost = np.zeros((len(self.repeats), G + 1))
        for r, (groups, constraint) in enumerate(self.repeats):
            repeat_member[r, groups] = True
            repeat_cost[r] = [constraint.finite_penalty(n) for n in range(G + 1)]
        corpus = [own for own in self.corpus if own[1] is not None]  # whose labels are known
        prices = [
            (c.scale, base.HARD if c.hard else c.weight, c.penalty == "squared" and not c.hard)
            for _, _, c in corpus
        ]
        return CompiledConstraints(
            offsets=self.offsets,
            unary=self.unary,
            change=self.change,
            pair=self.pair,
            member=member,
            member_ptr=np.concatenate([[0], np.cumsum(member.sum(1))]).astype(np.int64),
            member_labels=np.nonzero(member)[1].astype(np.int32),
            counted=(token_cost != 0).any(1) | (segment_cost != 0).any(1) | length_cost.any(1),
            token_cost=token_cost,
            segment_cost=segment_cost,
            length_cost=length_cost,
            repeat_member=repeat_member,
            repeat_cost=repeat_cost,
            order=np.array([p[:2] for p in self.order], dtype=np.int32).reshape(-1, 2),
            order_cost=np.array([p[2] for p in self.order], dtype=np.float64),
            bad_change=np.array(self.bad, dtype=bool).reshape(len(self.bad), N),
            corpus_kind=np.array([kind for kind, _, _ in corpus], dtype=np.int32),
            corpus_target=np.array([target for _, target, _ in corpus], dtype=np.int32),
            corpus_bounds=np.array([c.bounds for _, _, c in corpus]).reshape(-1, 2),
            corpus_price=np.array(prices, dtype=np.float64).reshape(-1, 3),
        )


_switch_costs, _commit_switch = kernel(switches.switch_costs), kernel(switches.commit_switch)


class Penalties:
    """The constraints on given sequences.

    Parameters
    ----------
    constraints : iterable of Constraint, of all kinds
    X : iterable of sequences of tokens
    classes : sequence of labels; label k of the compiled form is ``classes[k]``
    token : callable, str or int; which part of a token is its word; None if tokens are words
    unknown : {"warn", "ignore", "error"}
        What to do about labels that are not among ``classes``, since a small labelled set may lack
        some. They are left out, and so are constraints on such labels only.

    Attributes
    ----------
    compiled : CompiledConstraints; those that have a compiled form: all but Python predicates
    predicates : list of Predicate; with them everything is slower
    unknown : list of labels that are named but not among ``classes``
    """

    def __init__(
        self,
        constraints: Iterable[base.Constraint],
        X: Iterable[Sequence[Any]],
        classes: Sequence[Any],
        *,
        token: Any = None,
        unknown: str = "warn",
    ) -> None:
        one_of("unknown", unknown, ("warn", "ignore", "error"))
        self.constraints = as_constraints(constraints)
        self.words = base.pick_words(X, token)
        self.classes = list(classes)
        self.predicates = [c for c in self.constraints if isinstance(c, rules.Predicate)]
        builder = _Builder(self.constraints, self.words, self.classes)
        self.unknown = sorted(builder.unknown, key=str)
        if self.unknown and unknown != "ignore":
            names = ", ".join(map(repr, self.unknown))
            text = f"constraints name labels that are not among the classes: {names}; they are left"
            text += " out. Check the spelling, or pass unknown='ignore'."
            require(unknown != "error", text)
            warn(text)
        self.compiled = builder.finish()

    def state(self, labels: Array) -> State:
        """Counts of these labels for the kernels."""
        return switches.start_state(self.compiled, labels)[0]

    def soften(self) -> "Penalties":
        """The same, but hard rules count like the heaviest soft one."""
        if not any(rule.hard for rule in self.constraints):
            return self
        most = max((rule.weight for rule in self.constraints if not rule.hard), default=1.0) or 1.0
        soft = [change_rule(r, hard=False, weight=most) if r.hard else r for r in self.constraints]
        return Penalties(soft, self.words, self.classes, unknown="ignore")

    def total(self, labels: Array) -> float:
        """The penalty of labels of all sequences."""
        return SwitchEvaluator(self, labels).sum_penalties()


class SwitchEvaluator:
    """The penalty of a labelling, and what single label switches would change.

    Python predicates are evaluated again for every candidate, which is slow; all other constraints
    take O(1).

    Parameters
    ----------
    penalties : Penalties
    labels : int ndarray of shape (tokens,); numbers of the labels of all sequences, copied

    Attributes
    ----------
    labels : int32 ndarray of shape (tokens,); the labels as switched so far
    """

    def __init__(self, penalties: Penalties, labels: Array) -> None:
        self.penalties = penalties
        self.labels = np.array(labels, dtype=np.int32)
        self._compiled, self._n_labels = penalties.compiled, len(penalties.classes)
        n = self._compiled.unary.shape[0]
        require(self.labels.shape == (n,), f"labels has shape {self.labels.shape} for {n} tokens.")
        fine = not n or 0 <= self.labels.min() <= self.labels.max() < self._n_labels
        require(fine, f"labels must be numbers from 0 to {self._n_labels - 1}.")
        self._state = penalties.state(self.labels)

    def switch_costs(self, i: int, t: int) -> Array:
        """What each label at position ``t`` of sequence ``i`` adds to the total penalty."""
        self._check_position(i, t)
        out = np.empty(self._n_labels)
        _switch_costs(self._compiled, self._state, self.labels, i, t, out)
        if self.penalties.predicates:
            here = self._compiled.offsets[i] + t
            held, costs = self.labels[here], np.empty(self._n_labels)
            for k in range(self._n_labels):
                self.labels[here] = k
                costs[k] = self._predicate_cost(i)
            self.labels[here] = held
            out += costs - costs[held]
        return out

    def commit_switch(self, i: int, t: int, k: int) -> None:
        """Give position ``t`` of sequence ``i`` the label number ``k``."""
        self._check_position(i, t)
        if not 0 <= k < self._n_labels:
            raise IndexError(f"k={k} is not a label number below {self._n_labels}.")
        _commit_switch(self._compiled, self._state, self.labels, i, t, k)

    def sum_penalties(self) -> float:
        """The penalty of all constraints; each unit of a hard one counts 1e10."""
        own = sum(map(self._predicate_cost, range(len(self.penalties.words))))
        return float(switches.sum_penalties(self._compiled, self.labels)) + own

    def _predicate_cost(self, i: int) -> float:
        rules = self.penalties.predicates
        if not rules:
            return 0.0
        lo, hi = self._compiled.offsets[i : i + 2]
        y = [self.penalties.classes[k] for k in self.labels[lo:hi]]
        return sum(c.finite_penalty(v) for c in rules for v in c.parts(self.penalties.words[i], y))

    def _check_position(self, i: int, t: int) -> None:
        offsets = self._compiled.offsets
        if not (0 <= i < len(offsets) - 1 and 0 <= t < offsets[i + 1] - offsets[i]):
            raise IndexError(f"there is no position {t} in sequence {i}.")


class CheckRow(NamedTuple):
    """What one constraint found."""

    constraint: base.Constraint
    sequences: tuple[int, ...]  # those that break it; none for a corpus constraint
    violation: float  # sum over all sequences
    cost: float  # sum of the penalties
    value: float | None  # the number that a corpus constraint bounds


class CheckReport(NamedTuple):
    """Counts per constraint, in order; printed as a table."""

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

    def __repr__(self) -> str:
        return self.table()

    def table(self, name_place: Callable[[int], str] = str, n: int = 6) -> str:
        """The report as text, with the first ``n`` sequences that break each constraint."""
        lines = [("constraint", "violation", "sequences", "cost", "where")]
        for row in self.rows:
            count = f"{len(row.sequences)} of {self.n_sequences}"
            where = ", ".join(map(name_place, row.sequences[:n]))
            where += ", ..." if len(row.sequences) > n > 0 else ""
            if row.value is not None:
                count, where = "all together", f"is {row.value:.4g}"
            title = row.constraint.title + (" (hard)" if row.constraint.hard else "")
            lines.append((title, f"{row.violation:.6g}", count, f"{row.cost:.6g}", where))
        count = f"{len(self.sequences)} of {self.n_sequences}"
        lines.append(("total", f"{self.violation:.6g}", count, f"{self.cost:.6g}", ""))
        return align(lines, left=(0, 4))


def check(constraints: Any, X: Any, Y: Any, *, token: Any = None) -> CheckReport:
    """Check labels against constraints.

    Parameters
    ----------
    constraints : iterable of Constraint
    X, Y : iterable of sequences of tokens, and of labels
    token : callable, str or int, optional
        Which part of a token is its word (a function, a key or a column); None if tokens are words.

    Examples
    --------
    >>> from hingeline.constraints import StartsWith
    >>> report = check([StartsWith("author")], [["On", "trees"]], [["title", "title"]])
    >>> report.ok, report.rows[0].sequences
    (False, (0,))
    """
    found = as_constraints(constraints)
    words, labels = base.pick_words(X, token), [list(y) for y in Y]
    require(len(words) == len(labels), f"X has {len(words)} sequences but Y has {len(labels)}.")
    for i, (x, y) in enumerate(zip(words, labels, strict=True)):
        require(len(x) == len(y), f"sequence {i} has {len(x)} tokens but {len(y)} labels.")
    rows = []
    for constraint in found:
        if isinstance(constraint, base.CorpusConstraint):
            facts = constraint.violation, constraint.cost, constraint.value
            rows.append(CheckRow(constraint, (), *(fact(words, labels) for fact in facts)))
            continue
        assert isinstance(constraint, base.InstanceConstraint)
        each = [constraint.violation(x, y) for x, y in zip(words, labels, strict=True)]
        broken = tuple(i for i, violation in enumerate(each) if violation > 0)
        cost = math.fsum(constraint.cost(words[i], labels[i]) for i in broken)
        rows.append(CheckRow(constraint, broken, math.fsum(each), cost, None))
    return CheckReport(tuple(rows), len(words))


# What labelled sequences say of constraints. docs/semisupervised.md tells the rules; the reasons:
#
# *On one sequence.* A rule that costs ρ per unit of violation makes v violations less likely by the
# factor ``exp(−ρ·v)``. If they come at many places, each seldom, v has Poisson's distribution with
# the mean ``m = exp(−ρ)``, hence ``ρ = log(1/m)``. Who writes a rule believes in it, hence the
# prior. Up to the one that a wrong token costs, a rule broken by many outweighs no token; what lies
# beyond counts twice: scores are no log-probabilities, and on partitions of citations that no table
# has, 2ρ was better than ρ, and as good as 4ρ.
#
# *On all sequences.* Beyond its interval a share costs as under Gauss's distribution: it says no
# more than a few sequences do.

PRIOR = 0.1, 5.0  # Violations, and the sequences they are in, that are added to those counted.
FEWEST = 3  # Fewer sequences tell nothing of a standard error.
MOST_BLOCKS = 40  # Values of the jackknife, at most.


def learn_constraints(
    constraints: Iterable[base.Constraint], X: Sequence[Sequence[Any]], Y: Sequence[Sequence[Any]]
) -> list[base.Constraint]:
    """The same constraints with weights and bounds learned from labelled sequences.

    Constraints on one sequence get another ``weight``; those on all sequences get other bounds,
    too, and are left out if fewer than three sequences are labelled. Hard ones do not change.
    """
    found: list[base.Constraint] = []
    for rule in constraints:
        if rule.hard:
            found.append(rule)
        elif isinstance(rule, base.InstanceConstraint):
            one = change_rule(rule, weight=1.0)
            broken = sum(one.cost(x, y) for x, y in zip(X, Y, strict=True))
            cost = -math.log((broken + PRIOR[0]) / (len(X) + PRIOR[1]))
            found.append(change_rule(rule, weight=max(cost, 2.0 * cost - 1.0, 0.0)))
        elif isinstance(rule, base.CorpusConstraint) and len(X) >= FEWEST:
            # Its value and standard error; where sequences are many, blocks are left out.
            n, value = min(len(X), MOST_BLOCKS), rule.value(X, Y)
            kept = [[i for i in range(len(X)) if i % n != k] for k in range(n)]
            without = [rule.value([X[i] for i in part], [Y[i] for i in part]) for part in kept]
            error = math.sqrt((n - 1) * float(np.var(without)))
            low, high = max(value - 2.0 * error, 0.0), min(value + 2.0 * error, rule.top)
            weight = min(rule.weight, 0.5 / max((rule.scale * error) ** 2, 1e-12))
            bounds = {"equals": None, "at_least": low, "at_most": high}
            found.append(change_rule(rule, weight=weight, penalty="squared", **bounds))
    return found


def change_rule(rule: Any, **values: Any) -> Any:
    """A copy of a constraint with other values of some fields."""
    changed = copy(rule)
    for name, value in values.items():
        changed._assign(name, value)
    return changed
