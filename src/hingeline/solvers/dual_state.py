"""The dual state over planes found by decoding, shared by the solvers that keep a working set."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.formulations import Formulation, joined, most_violated, most_violated_sum
from hingeline.solvers.certificate import DualSolver
from hingeline.solvers.parallel import Workers
from hingeline.structures.base import Compiled, output_length, planes_add, planes_score
from hingeline.working_set import (
    FREE_SLOTS_ONLY,
    WorkingSet,
    checked,
    copy_planes,
    empty_working_set,
    fill_gram,
    insert,
    planes,
)

Array = np.ndarray[Any, Any]


@helper
def slack_of_known(problem: Any, form: Formulation, ws: WorkingSet, i: int, w: Array) -> float:
    """The slack of example i over the planes it has."""
    m = ws.used[i]
    scores = np.empty(m)
    if m > 0:
        planes_score(problem, i, planes(ws, i), w, scores)
    slack = 0.0
    s = ws.slot[i]
    for j in range(m):
        slack = joined(form, slack, ws.offset[s + j] - ws.scale[s + j] * scores[j])
    return slack


@helper
def longest_output(problem: Any, order: Array) -> int:
    """Length of the longest output among the examples of ``order``, at least 1."""
    longest = 1
    for i in order:
        longest = max(longest, output_length(problem, i))
    return longest


@kernel
def find_planes(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    epsilon: float,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """Decode the examples of ``order`` against w and put what is violated into their sets.

    Writes ``violation[i] = max(0, max_y H_i(y))``. Examples are independent here, so parts of
    ``order`` may run in threads. For hinges that are sums of score and loss; ``epsilon`` is
    negative and counts for nothing: what most runs need, and quick to compile.
    """
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    for i in order:
        violation[i] = 0.0
        if form.cap[i] > 0.0:
            y = buffer[: output_length(problem, i)]
            h = most_violated_sum(problem, form, i, w, 1.0, y)
            violation[i] = max(h, 0.0)
            if h > 0.0:
                insert(problem, form, ws, i, y, clock, patience, scratch)


@kernel
def find_planes_above(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    epsilon: float,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """:func:`find_planes` for any hinge.

    A plane enters if its hinge exceeds that of all planes known by more than ``epsilon``; with a
    negative epsilon, which spares the comparison, if it is violated at all.
    """
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    for i in order:
        violation[i] = 0.0
        if form.cap[i] > 0.0:
            y = buffer[: output_length(problem, i)]
            h = most_violated(problem, form, i, w, 1.0, y)
            violation[i] = max(h, 0.0)
            if h > 0.0 and (epsilon < 0.0 or h > slack_of_known(problem, form, ws, i, w) + epsilon):
                insert(problem, form, ws, i, y, clock, patience, scratch)


@kernel
def add_planes(problem: Any, ws: WorkingSet, masses: Array, factor: float, w: Array) -> None:
    """``w += factor · Σ mass·a·Δf`` with one mass per slot (multipliers, or their drift)."""
    for i in range(ws.used.shape[0]):
        m = ws.used[i]
        s = ws.slot[i]
        steps = np.empty(m)
        some = False
        for j in range(m):
            steps[j] = factor * masses[s + j] * ws.scale[s + j]
            some = some or steps[j] != 0.0
        if some:
            planes_add(problem, i, planes(ws, i), steps, w)


@kernel
def scores_of(problem: Any, ws: WorkingSet, wanted: Array, w: Array, out: Array) -> None:
    """``a·w·Δf`` of every plane whose entry in ``wanted`` is not 0."""
    for i in range(ws.used.shape[0]):
        m = ws.used[i]
        s = ws.slot[i]
        some = False
        for j in range(m):
            some = some or wanted[s + j] != 0.0
        if some:
            planes_score(problem, i, planes(ws, i), w, out[s : s + m])
            for j in range(m):
                out[s + j] *= ws.scale[s + j]


class PlaneSolver(DualSolver):
    """A dual solver whose multipliers sit on the planes of a working set."""

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: WorkingSet | None = None,
    ) -> None:
        super().__init__(compiled, form, workers, seed, options)
        self.fresh = start is None
        self.ws = self.take_over(start)
        if start is not None:
            self._add(self.ws.alpha, 1.0, self.w)

    @property
    def n_planes(self) -> int:
        """Planes in the working set."""
        return self.ws.n_planes

    @property
    def inner_products(self) -> bool:
        """Whether the working set keeps those of an example's planes."""
        return True

    def take_over(self, start: WorkingSet | None) -> WorkingSet:
        """The planes to start from, with inner products where this solver wants them."""
        gram = self.inner_products
        if start is None:
            return empty_working_set(self.compiled.lengths, gram=gram)
        if gram == (len(start.gram) > 0):
            return start
        ws = empty_working_set(start.length, start.capacity, gram=gram)
        copy_planes(start, ws)
        if gram:
            fill = self.compiled.bind(fill_gram)
            fill(self.compiled.problem, ws, self.workers.scratch[0])
        return ws

    def find(self, order: Array, patience: int, epsilon: float = -1.0) -> None:
        """Decode the examples of ``order``, in threads; see :func:`find_planes`."""
        plain = self.form.root == 0 and self.form.rescaled == 0 and epsilon < 0.0
        kernel = self.compiled.bind(find_planes if plain else find_planes_above)
        self.workers.map(
            lambda part, scratch: kernel(
                self.compiled.problem,
                self.form,
                self.ws,
                part,
                self.w,
                epsilon,
                self.clock,
                patience,
                scratch,
                self.violation,
            ),
            order,
        )

    def _find_violations(self) -> None:
        # Planes may carry a share in the average that is being certified: overwrite none.
        self.find(np.arange(self.compiled.n), FREE_SLOTS_ONLY)

    def memory(self) -> WorkingSet:
        """Planes and multipliers."""
        return self.ws

    def tables(self) -> dict[str, Array]:
        """The working set."""
        return self.ws._asdict()

    def set_tables(self, tables: dict[str, Array]) -> None:
        """Take over a working set for the same examples."""
        fields = {name: tables[name] for name in WorkingSet._fields}
        self.ws = checked(WorkingSet(**fields), self.ws)

    def _linear(self) -> float:
        return float(self.ws.alpha @ self.ws.offset)

    def _sums(self) -> Array:
        return np.add.reduceat(self.ws.alpha, self.ws.slot)

    def _reach(self) -> float:
        used = self.ws.offset > 0.0
        norms = self.ws.scale[used] * np.sqrt(self.ws.sqnorm[used])
        return float((norms / self.ws.offset[used]).max(initial=0.0))

    def _add(self, masses: Array, factor: float, w: Array) -> None:
        self.compiled.bind(add_planes)(self.compiled.problem, self.ws, masses, factor, w)

    def _add_drift(self, factor: float, w: Array) -> None:
        self._add(self.ws.drift, factor, w)

    def _clear_drift(self) -> None:
        self.ws.drift[:] = 0.0

    # What :mod:`hingeline.solvers.subspace` asks for --------------------------------------

    def masses(self) -> Array:
        """All multipliers, flat."""
        return self.ws.alpha

    def owners(self) -> Array:
        """The example of each multiplier."""
        return np.repeat(np.arange(self.compiled.n), self.ws.capacity)

    def products(self, support: Array, vector: Array) -> Array:
        """``a·Δf·vector`` of the planes in ``support``."""
        wanted = np.zeros_like(self.ws.alpha)
        wanted[support] = 1.0
        out = np.zeros_like(self.ws.alpha)
        self.compiled.bind(scores_of)(self.compiled.problem, self.ws, wanted, vector, out)
        return np.asarray(out[support])

    def hinges_of(self, support: Array) -> Array:
        """``b − a·w·Δf`` of the planes in ``support``."""
        return np.asarray(self.ws.offset[support] - self.products(support, self.w))

    def combine(self, support: Array, steps: Array, out: Array) -> None:
        """``out += Σ steps·a·Δf``."""
        spread = np.zeros_like(self.ws.alpha)
        spread[support] = steps
        self._add(spread, 1.0, out)
