"""The dual state over planes found by decoding, shared by the solvers that keep a working set."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from hingeline._jit import helper, kernel
from hingeline._simd import aligned_zeros
from hingeline.core.formulations import (
    RESCALINGS,
    Formulation,
    feasible,
    joined,
    most_violated,
    most_violated_sum,
    plane_offset,
    plane_scale,
    slack_cost,
)
from hingeline.core.planes import (
    FIRST_CAPACITY,
    FREE_SLOTS_ONLY,
    WorkingSet,
    checked,
    copy_planes,
    empty_working_set,
    fill_gram,
    insert,
    planes,
)
from hingeline.core.primitives import (
    Compiled,
    output_length,
    plane_loss,
    plane_score,
    planes_add,
    planes_score,
)
from hingeline.core.registry import SolverOptions
from hingeline.core.results import DualMemory
from hingeline.core.workers import Workers

# What every dual solver shares: weights, dual objective, and the certificate.
#
# With ``w = Σ α·a·Δf`` the dual objective is ``D = Σ α·b − ½‖w‖² − ½ Σ r_i A_i²`` and the primal
# of *any* weights v is ``P(v) = ½‖v‖² + Σ_i cost_i(max_y H_i(y; v))``, one decode per example.
# Points tried are the average of the iterates and, now and then, the last iterate: any primal
# point over any feasible dual point bounds the distance to the optimum.
#
# Hard margin: P is finite only where no constraint is violated. Each example's oracle is asked
# for the smallest stretch c at which ``c·v`` satisfies it (Dinkelbach's iteration: c ← b/(a·v·Δf)
# of the most violated plane, which only grows), and ``P = ½c²‖v‖²``. On the dual side any
# multiple of α is feasible, the best one gives ``D = (Σ α·b)²/(2‖w‖²)``; ``Σ α·b/‖w‖`` bounds
# ‖w*‖ from below and is what declares data inseparable.

Array = np.ndarray[Any, Any]

#: A hard margin below this fraction of the largest ``‖a·Δf‖/b`` counts as none.
LEAST_MARGIN = 1e-4


@kernel
def feasible_stretch(problem: Any, form: Formulation, w: Array, least: float) -> float:
    """Smallest c ≥ ``least`` at which ``c·w`` violates no constraint; inf if there is none."""
    c = least
    longest = 1
    n = form.cap.shape[0]
    for i in range(n):
        longest = max(longest, output_length(problem, i))
    buffer = np.empty(longest, dtype=np.int32)
    for i in range(n):
        if form.cap[i] == 0.0:
            continue
        y = buffer[: output_length(problem, i)]
        while True:
            worst = most_violated(problem, form, i, w, c, y)
            if worst <= 0.0:
                break
            loss = plane_loss(problem, i, y)
            score = plane_scale(form, loss) * plane_score(problem, i, y, w)
            if score <= 0.0:
                # An output without loss asks for w·Δf ≥ 0, which rounding may miss at equality.
                if loss == 0.0 and worst <= 1e-10:
                    break
                return np.inf
            better = plane_offset(form, loss) / score
            if better <= c * (1.0 + 1e-15):  # violated by rounding only
                break
            c = better
    return c


@kernel
def total_slack_cost(form: Formulation, violation: Array) -> float:
    """``Σ_i cost_i(violation_i)``, summed in the order of the examples."""
    total = 0.0
    for i in range(violation.shape[0]):
        total += slack_cost(form, i, violation[i])
    return total


def stages_for(reach: float, factor: float, most: int = 20) -> list[float]:
    """Factors on C for the first sweeps; ``reach`` is how many steps fill an average example."""
    if not 1.0 < factor < np.inf or not np.isfinite(reach):
        return []
    count = min(most, int(math.log(max(0.5 * reach, 1.0)) / math.log(factor)))
    return [factor**-k for k in range(count, 0, -1)]


class CertifiedSolver(ABC):
    """Weights, and the certificate of the best ones seen; subclasses hold a dual point."""

    # What a solver declares of itself; a class that states its slacks is registered.
    name: ClassVar[str]
    slacks: ClassVar[tuple[str, ...]]
    rescalings: ClassVar[tuple[str, ...]] = RESCALINGS
    soft_only: ClassVar[str] = ""  # why it needs a finite C, where it does
    all_outputs: ClassVar[bool] = False  # works on all outputs of an example, which must be few
    Options: ClassVar[type[SolverOptions]] = SolverOptions

    certifies = False  # whether every sweep keeps a true primal by itself
    streaming = False  # the average goes on from one call to the next
    #: What :mod:`hingeline.core.snapshot` keeps of the state.
    saved_numbers: ClassVar[tuple[str, ...]] = (
        "clock",
        "oracle_calls",
        "satisfied",
        "_stretch",
        "_best_primal",
    )
    saved_arrays: ClassVar[tuple[str, ...]] = ("w", "violation", "_best")

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: Any = None,
    ) -> None:
        self.compiled = compiled
        self.form = form
        self.workers = workers
        self.options: Any = self.Options(**(options or {}))
        self.rng = np.random.default_rng(seed)
        self.exact = compiled.exact
        self.satisfied = False  # a stopping rule of the solver's own is met
        self.restricted = False  # primal values are those over the planes found, not over all
        self.hard = bool(np.isinf(form.cap).any() and not form.ridge.any())
        self.active = np.flatnonzero(form.cap > 0.0)
        self.w = aligned_zeros(compiled.n_weights)
        self.violation = np.zeros(compiled.n)
        self.clock = 0
        self.oracle_calls = 0
        self.stages: list[float] = []  # factors on the caps in the first sweeps; then 1
        self.enough = -math.inf  # a primal that ends the run: no need to look for a better one
        self._stretch = 1.0
        self._best: Array | None = None
        self._best_primal = math.inf

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        """What to start from after another fit, feasible for this problem; None: from nothing."""
        return None

    # What a subclass provides --------------------------------------------------------------

    @property
    @abstractmethod
    def n_planes(self) -> int:
        """Planes in the working set."""

    @abstractmethod
    def sweep(self) -> float:
        """One pass over the data; the gap estimated along the way."""

    @abstractmethod
    def dual(self) -> float:
        """Dual objective of the multipliers."""

    @abstractmethod
    def repair(self) -> None:
        """Weights from the multipliers again, after an interruption anywhere."""

    @abstractmethod
    def memory(self) -> Any:
        """What another run can start from."""

    @abstractmethod
    def _find_violations(self) -> None:
        """Fill ``violation`` for the weights ``self.w``; planes found may enter the working set."""

    def resume(self, before: Formulation) -> None:
        """Hear of the formulation that the multipliers to start from were found under."""
        return

    def lower_bound(self) -> float:
        """What the dual side says of the optimum: ``D(α)``, unless the problem has another dual."""
        return self.dual()

    def positive_part(self, primal: float) -> float:
        """The non-negative part of a primal value, which gaps are relative to."""
        return primal

    def measures(self) -> dict[str, Any]:
        """Columns of a history row beside the certificate, by name."""
        return {}

    def findings(self, weights: Array) -> dict[str, float]:
        """What else is known of the weights that a run ends with, by name."""
        return {}

    def tables(self) -> dict[str, Array]:
        """Arrays that change their shape in a run, for a snapshot."""
        return {}

    def set_tables(self, tables: dict[str, Array]) -> None:
        """Take over what :meth:`tables` gave; KeyError where something is missing."""
        return

    def finished(self) -> str | None:
        """A reason why no further pass can help, if there is one."""
        return None

    # The primal side -----------------------------------------------------------------------

    def _primal(self) -> float:
        """True primal of what ``self.w`` holds now."""
        half = 0.5 * float(self.w @ self.w)
        self.oracle_calls += len(self.active)
        if self.hard:
            stretch = self.compiled.bind(feasible_stretch)
            self._stretch = stretch(self.compiled.problem, self.form, self.w, 1e-12)
            return half * self._stretch**2 if half > 0.0 else math.inf
        self._find_violations()
        return half + total_slack_cost(self.form, self.violation)

    def _consider(self) -> float:
        primal = self._primal()
        self._keep(primal)
        return primal

    def _keep(self, primal: float) -> None:
        """Remember ``self.w`` if its true primal is the least so far.

        A restricted primal is no bound: the newest, over the most planes, is the one to keep. So it
        is as long as none is finite.
        """
        best = self._best_primal
        if self.restricted or primal < best or math.isinf(best) or self._best is None:
            if self._best is None:
                self._best = aligned_zeros(len(self.w))
            self._best_primal = math.inf  # should an interruption come between the two
            self._best[:] = self.w
            if self.hard and math.isfinite(primal):
                self._best *= self._stretch
            self._best_primal = primal

    def certify(self) -> float:
        """True primal of the weights."""
        return self._consider()

    def candidate(self) -> Array:
        """A copy of the weights that :meth:`certify` would try."""
        return self.w.copy()

    def primal_of(self, weights: Array) -> float:
        """True primal of given weights, as they are."""
        kept, self.w = self.w, weights
        try:
            primal = self._primal()
            if self.hard:
                return primal / self._stretch**2 if self._stretch <= 1.0 + 1e-9 else math.inf
            return primal
        finally:
            self.w = kept

    def best(self) -> tuple[Array, float]:
        """Weights of the least certified primal so far, and that primal."""
        if self._best is None:
            return self.w, math.inf
        return self._best, self._best_primal


class DualSolver(CertifiedSolver):
    """Multipliers of examples, averages of the iterates; subclasses say how a pass moves mass."""

    saved_numbers = (
        *CertifiedSolver.saved_numbers,
        "visits",
        "_certificates",
        "_average_leads",
    )
    saved_arrays = (*CertifiedSolver.saved_arrays, "gaps")

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: Any = None,
    ) -> None:
        super().__init__(compiled, form, workers, seed, options)
        self.gaps = np.zeros(compiled.n)
        self.visits = 0.0  # since the average was started
        self._certificates = 0
        self._average_leads = True

    # What a subclass provides --------------------------------------------------------------

    @abstractmethod
    def _linear(self) -> float:
        """``Σ α·b``."""

    @abstractmethod
    def _sums(self) -> Array:
        """``A_i = Σ_y α_i(y)``."""

    @abstractmethod
    def _reach(self) -> float:
        """Largest ``‖a·Δf‖/b`` of the planes known."""

    @abstractmethod
    def _add_drift(self, factor: float, w: Array) -> None:
        """``w += factor·Σ drift·a·Δf``."""

    @abstractmethod
    def _clear_drift(self) -> None:
        """Forget the drift."""

    def _scale(self, factor: float) -> None:
        """Multiply all multipliers, and the weights with them."""
        raise NotImplementedError

    def stage(self) -> Formulation:
        """The formulation of this sweep, after scaling the multipliers where a stage begins.

        Large C is approached in stages: at a small C an example is full after a step or two, and
        the multipliers scaled up to the next C are a far better start than zero. They are
        feasible for the final C all along, so nothing else needs to know.
        """
        at = (self.clock - 1) // self.options.stage_sweeps
        if not self.stages or at > len(self.stages):
            return self.form
        now = self.stages[at] if at < len(self.stages) else 1.0
        if self.stage_begins(self.clock):
            self._scale(now / self.stages[at - 1])
        return self.form if at == len(self.stages) else self.form._replace(cap=self.form.cap * now)

    def stage_begins(self, clock: int) -> bool:
        """Whether the multipliers are scaled up before the sweep of this number."""
        at, within = divmod(clock - 1, self.options.stage_sweeps)
        return within == 0 and 0 < at <= len(self.stages)

    def repair(self) -> None:
        """Weights from the multipliers again, after an interruption anywhere.

        Interpreted code may stop between a multiplier and its weights, or while the average
        stands in for the last iterate.
        """
        masses = self.masses()
        masses[:] = feasible(self.form, masses, self.owners())
        support = np.flatnonzero(masses)
        self.w = aligned_zeros(self.compiled.n_weights)
        self.combine(support, masses[support], self.w)
        self.restart_average()

    @abstractmethod
    def masses(self) -> Array:
        """All multipliers, as a flat array that may be written to."""

    @abstractmethod
    def owners(self) -> Array:
        """The example of each multiplier."""

    @abstractmethod
    def combine(self, support: Array, steps: Array, out: Array) -> None:
        """``out += Σ steps·a·Δf``."""

    # The dual side -------------------------------------------------------------------------

    def dual(self) -> float:
        """``D(α)``; for a hard margin, of the best multiple of α."""
        square = float(self.w @ self.w)
        if self.hard:
            return self._linear() ** 2 / (2.0 * square) if square > 0.0 else 0.0
        ridge = float(self.form.ridge @ self._sums() ** 2) if self.form.ridge.any() else 0.0
        return self._linear() - 0.5 * square - 0.5 * ridge

    def finished(self) -> str | None:
        """A reason why no further pass can help, if there is one."""
        if self.hard and self._linear() > 0.0:
            norm = math.sqrt(float(self.w @ self.w))
            if self._linear() * self._reach() * LEAST_MARGIN > norm:
                raise ValueError(
                    "C=inf asks for a hard margin, but the training data are not separable (any "
                    f"margin is below {LEAST_MARGIN:g} of the data's radius): choose a finite C."
                )
        return None

    # The average ---------------------------------------------------------------------------

    def certify(self) -> float:
        """Certify the average or the last iterate, whichever led before; sometimes both.

        The average is made where the weights stand and taken back, so that no third copy of
        the weights is needed.
        """
        self._certificates += 1
        both = self._certificates % 3 == 0 or self.hard
        average = last = math.inf
        if self.visits > 0 and (self._average_leads or both):
            factor = self._average_factor()
            self._add_drift(factor, self.w)
            average = self._consider()
            self._add_drift(-factor, self.w)
            if average <= self.enough:
                return average
        if not self._average_leads or both or self.visits == 0:
            last = self._consider()
        if both:
            self._average_leads = average <= last
        return min(average, last)

    def _average_factor(self) -> float:
        return -1.0 / (self.visits * (self.visits + 1.0))

    def restart_average(self) -> None:
        """Forget the iterates before this moment."""
        if self.streaming:
            return
        self._clear_drift()
        self.visits = 0.0

    def candidate(self) -> Array:
        """A copy of the averaged weights."""
        copy = self.w.copy()
        if self.visits > 0:
            self._add_drift(self._average_factor(), copy)
        return copy


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


def scale_to(before: Formulation, form: Formulation) -> Array:
    """What the multipliers of the examples known before are multiplied with.

    Under linear slack those of an example are scaled with its bound, so that those at the bound
    stay there.
    """
    cap = form.cap[: len(before.cap)]
    finite = np.isfinite(cap) & np.isfinite(before.cap) & (before.cap > 0)
    return np.asarray(np.where(finite, cap / np.where(finite, before.cap, 1.0), 1.0))


class PlaneSolver(DualSolver):
    """A dual solver whose multipliers sit on the planes of a working set."""

    @classmethod
    def start_from(
        cls, before: DualMemory, compiled: Compiled, form: Formulation
    ) -> WorkingSet | None:
        """The planes, with multipliers made feasible for another C or other weights.

        There may be more examples. Planes of another rescaling or loss are other planes.
        """
        old = before.multipliers
        if not isinstance(old, WorkingSet) or not before.same_planes(compiled, form):
            return None
        capacity = np.full(compiled.n, FIRST_CAPACITY)
        capacity[: len(old.capacity)] = old.capacity
        ws = empty_working_set(compiled.lengths, capacity, len(old.gram) > 0)
        copy_planes(old, ws)
        ws.alpha[: len(old.alpha)] *= np.repeat(scale_to(before.form, form), old.capacity)
        ws.alpha[:] = feasible(form, ws.alpha, np.repeat(np.arange(compiled.n), capacity))
        ws.drift[:] = 0.0
        ws.stamp[:] = 0
        return ws

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

    # What :mod:`hingeline.solvers.conjugate_gradients` asks for ----------------------------------

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
