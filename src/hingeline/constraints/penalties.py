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
    return switches.total_penalty(compiled, state)


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


class SwitchEvaluator:
    """The penalty of a labelling, and what single label switches would change.

    Constraints without a compiled form (Python predicates) are evaluated anew for every candidate,
    which is slow; all others in O(1).

    Parameters
    ----------
    constraints : iterable of Constraint
    X : iterable of sequences of tokens
    classes : sequence
        The labels, in the order of their numbers.
    labels : int ndarray of shape (tokens,)
        Labels of all sequences, one after the other, as numbers; copied.
    token : callable, str or int, optional
        What of a token is its word.
    unknown : {"warn", "ignore", "error"}
        What to do about labels that are not among ``classes``.

    Attributes
    ----------
    labels : int32 ndarray of shape (tokens,)
        The labels as switched so far.
    compiled : CompiledConstraints
        The constraints that have a compiled form.
    predicates : list of Predicate
        The ones that have not.
    """

    def __init__(
        self,
        constraints: Iterable[Constraint],
        X: Iterable[Sequence[Any]],
        classes: Sequence[Any],
        labels: Array,
        *,
        token: Any = None,
        unknown: str = "warn",
    ) -> None:
        found = as_constraints(constraints)
        self.classes = list(classes)
        self.predicates = [c for c in found if isinstance(c, Predicate)]
        fast = [c for c in found if not isinstance(c, Predicate)]
        self._words = pick_words(X, token)
        self.compiled = compile_constraints(fast, self._words, self.classes, unknown=unknown)
        self.labels = np.array(labels, dtype=np.int32)
        if self.labels.shape != (self.compiled.unary.shape[0],):
            raise ValueError(
                f"labels has shape {self.labels.shape} for {self.compiled.unary.shape[0]} tokens."
            )
        if self.labels.size and not 0 <= self.labels.min() <= self.labels.max() < len(classes):
            raise ValueError(f"labels must be numbers from 0 to {len(classes) - 1}.")
        self._state = make_state(self.compiled, self.labels)
        self._held = [self._predicate_cost(i) for i in range(len(self._words))]

    def switch_costs(self, i: int, t: int) -> Array:
        """What each label at position ``t`` of sequence ``i`` adds to the total penalty."""
        self._check_position(i, t)
        out = np.empty(len(self.classes))
        _switch_costs(self.compiled, self._state, self.labels, i, t, out)
        if self.predicates:
            here = self.compiled.offsets[i] + t
            held = self.labels[here]
            for k in range(len(self.classes)):
                self.labels[here] = k
                out[k] += self._predicate_cost(i) - self._held[i]
            self.labels[here] = held
        return out

    def commit_switch(self, i: int, t: int, k: int) -> None:
        """Give position ``t`` of sequence ``i`` the label number ``k``."""
        self._check_position(i, t)
        if not 0 <= k < len(self.classes):
            raise IndexError(f"k={k} is not a label number below {len(self.classes)}.")
        _commit_switch(self.compiled, self._state, self.labels, i, t, k)
        self._held[i] = self._predicate_cost(i)

    def total_penalty(self) -> float:
        """The penalty of all constraints; each unit of a hard one counts 1e10."""
        return float(measure_penalty(self.compiled, self._state)) + sum(self._held)

    def _predicate_cost(self, i: int) -> float:
        if not self.predicates:
            return 0.0
        lo, hi = self.compiled.offsets[i : i + 2]
        y = [self.classes[k] for k in self.labels[lo:hi]]
        x = self._words[i]
        return sum(c.finite_penalty(v) for c in self.predicates for v in c.parts(x, y))

    def _check_position(self, i: int, t: int) -> None:
        offsets = self.compiled.offsets
        if not (0 <= i < len(offsets) - 1 and 0 <= t < offsets[i + 1] - offsets[i]):
            raise IndexError(f"there is no position {t} in sequence {i}.")


class Penalties:
    """Constraints over given sequences.

    Parameters
    ----------
    constraints : iterable of Constraint
    words : sequence of sequences
        What the constraints see of each sequence.
    classes : sequence
        The labels, in the order of their numbers.
    unknown : {"warn", "ignore", "error"}
        What to do about labels that are not among ``classes``.

    Attributes
    ----------
    compiled : CompiledConstraints
        All constraints but Python predicates.
    predicates : bool
        Whether there are any of these: then everything is slower.
    """

    def __init__(
        self,
        constraints: Iterable[Any],
        words: Sequence[Sequence[Any]],
        classes: Sequence[Any],
        unknown: str = "warn",
    ) -> None:
        self.constraints = as_constraints(constraints)
        self.words = words
        self.classes = list(classes)
        fast = [c for c in self.constraints if not isinstance(c, Predicate)]
        self.predicates = len(fast) < len(self.constraints)
        self.compiled = compile_constraints(fast, words, self.classes, unknown=unknown)

    def evaluator(self, labels: Array) -> SwitchEvaluator:
        """Switches seen from Python, predicates among them."""
        return SwitchEvaluator(self.constraints, self.words, self.classes, labels, unknown="ignore")

    def state(self, labels: Array) -> Any:
        """Counts of these labels for the kernels."""
        return make_state(self.compiled, labels)

    def total(self, labels: Array) -> float:
        """The penalty of labels of all sequences."""
        if self.predicates:
            return self.evaluator(labels).total_penalty()
        return float(measure_penalty(self.compiled, self.state(np.array(labels, dtype=np.int32))))
