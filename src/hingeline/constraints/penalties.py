"""The penalty of a labelling, and what label switches change in it, seen from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.constraints import switches
from hingeline.constraints.build import as_constraints, compile_constraints
from hingeline.constraints.rules import Constraint, Predicate, pick_words
from hingeline.constraints.switches import Array, CompiledConstraints, State


@kernel
def make_state(compiled: CompiledConstraints, labels: Array) -> State:
    """The counts of these labels."""
    return switches.start_state(compiled, labels)


@kernel
def measure_penalty(compiled: CompiledConstraints, state: State) -> float:
    """The penalty of a state."""
    return switches.sum_penalties(compiled, state)


@kernel
def _switch_costs(
    compiled: CompiledConstraints, state: State, labels: Array, i: int, t: int, out: Array
) -> None:
    switches.switch_costs(compiled, state, labels, i, t, out)


@kernel
def _commit_switch(
    compiled: CompiledConstraints, state: State, labels: Array, i: int, t: int, k: int
) -> None:
    switches.commit_switch(compiled, state, labels, i, t, k)


class Penalties:
    """The constraints on given sequences.

    Parameters
    ----------
    constraints : iterable of Constraint
    X : iterable of sequences of tokens
    classes : sequence
        The labels, in the order of their numbers.
    token : callable, str or int, optional
        What of a token is its word.
    unknown : {"warn", "ignore", "error"}
        What to do about labels that are not among ``classes``.

    Attributes
    ----------
    compiled : CompiledConstraints
        The constraints that have a compiled form: all but Python predicates.
    predicates : list of Predicate
        The ones that have not: with them everything is slower.
    """

    def __init__(
        self,
        constraints: Iterable[Constraint],
        X: Iterable[Sequence[Any]],
        classes: Sequence[Any],
        *,
        token: Any = None,
        unknown: str = "warn",
    ) -> None:
        self.constraints = as_constraints(constraints)
        self.words = pick_words(X, token)
        self.classes = list(classes)
        self.predicates = [c for c in self.constraints if isinstance(c, Predicate)]
        fast = [c for c in self.constraints if not isinstance(c, Predicate)]
        self.compiled = compile_constraints(fast, self.words, self.classes, unknown=unknown)

    def state(self, labels: Array) -> State:
        """Counts of these labels for the kernels."""
        return make_state(self.compiled, labels)

    def total(self, labels: Array) -> float:
        """The penalty of labels of all sequences."""
        return SwitchEvaluator(self, labels).sum_penalties()


class SwitchEvaluator:
    """The penalty of a labelling, and what single label switches would change.

    Python predicates are evaluated anew for every candidate, which is slow; all other constraints
    in O(1).

    Parameters
    ----------
    penalties : Penalties
    labels : int ndarray of shape (tokens,)
        Labels of all sequences, one after the other, as numbers; copied.

    Attributes
    ----------
    labels : int32 ndarray of shape (tokens,)
        The labels as switched so far.
    """

    def __init__(self, penalties: Penalties, labels: Array) -> None:
        self.penalties = penalties
        self.labels = np.array(labels, dtype=np.int32)
        self._compiled, self._n_labels = penalties.compiled, len(penalties.classes)
        n = self._compiled.unary.shape[0]
        if self.labels.shape != (n,):
            raise ValueError(f"labels has shape {self.labels.shape} for {n} tokens.")
        if n and not 0 <= self.labels.min() <= self.labels.max() < self._n_labels:
            raise ValueError(f"labels must be numbers from 0 to {self._n_labels - 1}.")
        self._state = penalties.state(self.labels)
        self._held = [self._predicate_cost(i) for i in range(len(penalties.words))]

    def switch_costs(self, i: int, t: int) -> Array:
        """What each label at position ``t`` of sequence ``i`` adds to the total penalty."""
        self._check_position(i, t)
        out = np.empty(self._n_labels)
        _switch_costs(self._compiled, self._state, self.labels, i, t, out)
        if self.penalties.predicates:
            here = self._compiled.offsets[i] + t
            held = self.labels[here]
            for k in range(self._n_labels):
                self.labels[here] = k
                out[k] += self._predicate_cost(i) - self._held[i]
            self.labels[here] = held
        return out

    def commit_switch(self, i: int, t: int, k: int) -> None:
        """Give position ``t`` of sequence ``i`` the label number ``k``."""
        self._check_position(i, t)
        if not 0 <= k < self._n_labels:
            raise IndexError(f"k={k} is not a label number below {self._n_labels}.")
        _commit_switch(self._compiled, self._state, self.labels, i, t, k)
        self._held[i] = self._predicate_cost(i)

    def sum_penalties(self) -> float:
        """The penalty of all constraints; each unit of a hard one counts 1e10."""
        return float(measure_penalty(self._compiled, self._state)) + sum(self._held)

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
