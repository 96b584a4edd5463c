"""The constraints of one set of unlabelled sequences, compiled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.constraints.compiled import start_state, total_penalty
from hingeline.constraints.compiling import as_constraints, compile_constraints
from hingeline.constraints.evaluator import SwitchEvaluator
from hingeline.constraints.instance import Predicate

Array = np.ndarray[Any, Any]


@kernel
def make_state(compiled: Any, offsets: Array, labels: Array) -> Any:
    """The state of the penalties for these labels."""
    return start_state(compiled, offsets, labels)


@kernel
def penalty_of(compiled: Any, state: Any) -> float:
    """The penalty of a state."""
    return total_penalty(compiled, state)


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
        return make_state(self.compiled, self.compiled.offsets, labels)

    def total(self, labels: Array) -> float:
        """The penalty of labels of all sequences."""
        if self.predicates:
            return self.evaluator(labels).total_penalty()
        return float(penalty_of(self.compiled, self.state(np.array(labels, dtype=np.int32))))
