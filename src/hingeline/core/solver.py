"""What all solvers share: weights, the dual objective, the certificate, and the average.

With ``w = Σ α·a·Δf`` the dual objective is ``D = Σ α·b − ½‖w‖² − ½ Σ r_i A_i²`` and the primal of
*any* weights v is ``P(v) = ½‖v‖² + Σ_i cost_i(max_y H_i(y; v))``, one decode per example. Points
tried are the average of the iterates (:mod:`.blocks`) and, now and then, the last iterate: any
primal point over any feasible dual point bounds the distance to the optimum.

Hard margin: P is finite only where no constraint is violated. Each example's oracle is asked for
the smallest stretch c at which ``c·v`` satisfies it (Dinkelbach's iteration: c ← b/(a·v·Δf) of the
most violated plane, which only grows), and ``P = ½c²‖v‖²``. On the dual side any multiple of α is
feasible, the best one gives ``D = (Σ α·b)²/(2‖w‖²)``; ``Σ α·b/‖w‖`` bounds ‖w*‖ from below and is
what declares data inseparable.
"""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._simd import aligned_zeros
from hingeline.core import blocks, formulations
from hingeline.core.blocks import WorkingSet
from hingeline.core.formulations import RESCALINGS, Formulation, cut_back, total_slack_cost
from hingeline.core.primitives import PART, SCRATCH, Compiled, Workers
from hingeline.core.registry import SolverOptions
from hingeline.core.results import DualMemory

PIECE = 4_000_000  # Planes are written as rows of so many numbers at a time.
LEAST_MARGIN = 1e-4  # A hard margin below this fraction of the largest ``‖a·Δf‖/b`` counts as none.


class Multipliers(NamedTuple):
    """The multipliers of all examples, flat, and what belongs to each; they may be written to."""

    mass: Array
    offset: Array  # b
    drift: Array  # the sum that the average is made of (:mod:`.blocks`)
    counts: Array  # (n,) how many an example has

    @property
    def owners(self) -> Array:
        """The example of each multiplier."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


class CertifiedSolver(ABC):
    """Weights, the certificate of the best ones seen, and what solvers declare of themselves.

    Solvers with multipliers of single examples have the average of their iterates certified too:
    they count ``visits`` and provide what stands under "Multipliers" below.
    """

    # Declarations; a class that has slacks is registered.
    name: ClassVar[str]
    slacks: ClassVar[tuple[str, ...]]
    rescalings: ClassVar[tuple[str, ...]] = RESCALINGS
    soft_only: ClassVar[str] = ""  # why it needs a finite C, where it does
    in_parts: ClassVar[bool] = False  # works on parts of outputs that fall apart
    all_outputs: ClassVar[bool] = False  # works on all outputs of an example, which must be few
    by_example: ClassVar[bool] = False  # keeps multipliers of single examples, as streams need
    Options: ClassVar[type[SolverOptions]] = SolverOptions

    decodes: ClassVar[bool] = True  # its primal has the largest hinge of every example, decoded
    certifies = False  # whether every sweep keeps a true primal by itself
    looks = False  # whether, but for those of stages, it is that of a certificate as well
    goes_on: ClassVar[str] = "fit again with warm_start=True to go on"  # after an interruption
    polishes = False  # whether the loop may try to better the weights of a run by rounding
    streaming = False  # the average goes on from one call to the next

    # Where every run begins.
    settled = ""  # why no further pass is asked for, by a rule of the solver's own
    satisfied = False  # the run ends by that rule
    restricted = False  # primal values are those over the planes found, not over all
    hard = False
    good_primal = -math.inf  # ends the run: no need to look for a better one
    clock = oracle_calls = 0
    visits = 0.0  # since the average was started
    _certificates, _average_leads, _stretch = 0, True, 1.0
    _best: Array | None = None
    _best_primal = math.inf

    #: What :mod:`hingeline.core.loop` keeps of the state.
    saved_numbers: ClassVar[tuple[str, ...]] = (
        *("clock", "oracle_calls", "satisfied", "_stretch", "_best_primal"),
        *("visits", "_certificates", "_average_leads"),
    )
    saved_arrays: ClassVar[tuple[str, ...]] = ("w", "violation", "_best", "gaps")

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: Any = None,
    ) -> None:
        self.compiled, self.form, self.workers = compiled, form, workers
        self.block_problem = compiled.problem  # parts of its examples, where outputs fall apart
        self.options: Any = self.Options(**(options or {}))
        self.rng = np.random.default_rng(seed)
        self.exact, self.bounded = compiled.exact, compiled.bounded
        self.ridged = bool(form.ridge.any())
        self.hard = not self.ridged and bool(np.isinf(form.cap).any())
        self.active = np.flatnonzero(form.cap > 0.0)
        self.w = aligned_zeros(compiled.n_weights)
        self.violation, self.gaps = np.zeros(compiled.n), np.zeros(compiled.n)
        self.stages: list[float] = []  # factors on the caps in the first sweeps; then 1
        self._begin(start)

    def _begin(self, start: Any) -> None:
        """Lay out the state; ``start`` is what :meth:`start_from` gave."""
        return

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        """What to start from after another fit, feasible for this problem; None: from nothing."""
        return None

    @abstractmethod
    def sweep(self) -> float:
        """One pass over the data; the gap estimated along the way."""

    @property
    def n_planes(self) -> int:
        """Planes in the working set."""
        return 0

    def memory(self) -> Any:
        """What another run can start from."""
        return None

    def lower_bound(self) -> float:
        """What the dual side says of the optimum: ``D(α)``, unless the problem has another dual."""
        return self.dual()

    def positive_part(self, primal: float) -> float:
        """The non-negative part of a primal value, which gaps are relative to."""
        return primal

    def remark(self) -> str:
        """What a line of progress says beside the pass and the gap."""
        return ""

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

    multipliers: Callable[[], Multipliers]  # those of all examples
    add: Callable[[Array, float, Array], None]  # (masses, factor, out): out += factor·Σ mass·a·Δf
    #: (wanted, vector, out): a·Δf·vector of planes whose entry in ``wanted`` is not 0, at least
    score: Callable[[Array, Array, Array], None]
    planes_in_use: Callable[[], tuple[Array, Array]]  # which are planes; how many an example has
    #: The Hessian of :mod:`hingeline.solvers.newton` less the identity, and its weights.
    curvature: Callable[[Array, Any], tuple[Array, Array | None]]
    _sums: Callable[[], Array]  # A_i = Σ_y α_i(y)
    _reach: Callable[[], float]  # largest ‖a·Δf‖/b of the planes known
    mean_square: Callable[[], float]  # of ‖a·Δf‖ of planes that may count; 0: there are none
    #: Fill ``violation``, which is 0 where no slack costs anything, for the weights ``self.w``;
    #: planes found may enter the working set.
    _find_violations: Callable[[], None]

    def combine(self, support: Array, steps: Array, out: Array) -> None:
        """``out += Σ steps·a·Δf`` over the planes in ``support``."""
        masses = np.zeros(len(self.multipliers().mass))
        masses[support] = steps
        self.add(masses, 1.0, out)

    def products(self, support: Array, vector: Array) -> Array:
        """``a·Δf·vector`` of the planes in ``support``."""
        wanted, out = np.zeros((2, len(self.multipliers().mass)))
        wanted[support] = 1.0
        self.score(wanted, vector, out)
        return np.asarray(out[support])

    def linear(self) -> float:
        """``Σ α·b``."""
        known = self.multipliers()
        return float(known.mass @ known.offset)

    def dual(self) -> float:
        """``D(α)``; for a hard margin, of the best multiple of α."""
        square = float(self.w @ self.w)
        if self.hard:
            linear = self.linear()
            if linear > 1e150:  # its square overflows
                return linear * (linear / (2.0 * square)) if square > 0.0 else 0.0
            return linear**2 / (2.0 * square) if square > 0.0 else 0.0
        ridge = float(self.form.ridge @ self._sums() ** 2) if self.ridged else 0.0
        return self.linear() - 0.5 * square - 0.5 * ridge

    def repair(self) -> None:
        """Weights from the multipliers again, after an interruption anywhere, in a visit, too."""
        known = self.multipliers()
        known.mass[:] = cut_back(self.by_block(self.form), known.mass, known.owners)
        self.w = aligned_zeros(self.compiled.n_weights)
        self.add(known.mass, 1.0, self.w)
        self.restart_average()

    def by_block(self, form: Formulation) -> Formulation:
        """A formulation by blocks of multipliers: by example, unless outputs fall apart."""
        return form

    def admit(self) -> Array:
        """Make the blocks of multipliers that wait for it, which are to be visited then."""
        return np.zeros(0, dtype=np.int64)

    def run(self, kernel: Any, *given: Any) -> Any:
        """Run a kernel with the problem whose examples have the multipliers."""
        return self.compiled.bind(kernel)(self.block_problem, *given)

    def over(self, order: Array, kernel: Any, *given: Any) -> None:
        """Run a kernel with the problem and what it is given over examples, in threads."""
        self.workers.over(order, self.compiled.bind(kernel), self.compiled.problem, *given)

    @property
    def plane_size(self) -> float:
        """What a look at one plane costs, in numbers read."""
        return self.compiled.size / self.compiled.n

    def finished(self) -> str | None:
        """A reason why no further pass can help, if there is one."""
        if self.settled:
            self.satisfied = True
            return self.settled
        if self.hard and self.linear() * self._reach() * LEAST_MARGIN > math.sqrt(self.w @ self.w):
            what = "C=inf asks for a hard margin, but the training data are not separable"
            why = f"any margin is below {LEAST_MARGIN:g} of the data's radius"
            raise ValueError(f"{what} ({why}): choose a finite C.")
        return None

    def plan_stages(self, reach: float, most: int = 20) -> None:
        """Choose factors on C for the first sweeps; ``reach`` steps fill an average example.

        Large C is approached in stages: at a small C an example is full after a step or two, and
        the multipliers scaled up to the next C are a far better start than zero. They are
        feasible for the final C all along, so nothing else needs to know.
        """
        factor = self.options.stage_factor
        if 1.0 < factor < np.inf and np.isfinite(reach):
            count = min(most, int(math.log(max(0.5 * reach, 1.0)) / math.log(factor)))
            self.stages = [factor**-k for k in range(count, 0, -1)]

    def stage(self) -> Formulation:
        """The formulation of this sweep, after scaling the multipliers where a stage begins."""
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

    def _scale(self, factor: float) -> None:
        """Multiply all multipliers, and the weights with them."""
        self.multipliers().mass[:] *= factor
        self.w *= factor
        self.restart_average()

    def _primal(self) -> float:
        """True primal of what ``self.w`` holds now."""
        half = 0.5 * float(self.w @ self.w)
        self.oracle_calls += len(self.active)
        if self.hard:
            self._stretch = self.run(formulations.feasible_stretch, self.form, self.w, 1e-12)
            return half * self._stretch**2 if half > 0.0 else math.inf
        self._find_violations()
        return half + total_slack_cost(self.form, self.violation)

    def _consider(self) -> float:
        primal = self._primal()
        self.keep(self.w, primal, self._stretch if math.isfinite(primal) else 1.0)
        return primal

    def keep(self, weights: Array, primal: float, factor: float = 1.0) -> bool:
        """Remember ``factor·weights`` if their primal is the least so far; whether it is.

        A restricted primal is no bound: the newest, over the most planes, is the one to keep. So it
        is as long as none is finite.
        """
        best = self._best_primal
        if not (self.restricted or primal < best or math.isinf(best) or self._best is None):
            return False
        if self._best is None:
            self._best = aligned_zeros(len(self.w))
        self._best_primal = math.inf  # should an interruption come between the two
        np.multiply(weights, factor, out=self._best)
        self._best_primal = primal
        return True

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

    def integrality_gap(self, weights: Array) -> float:
        """How much of the primal of these weights is bounds of decoding above the outputs found.

        No step lowers it: the dual is made of outputs. ``nan`` where decoding is exact, or the
        primal is not made of its bounds.
        """
        if self.exact or not (self.decodes and self.bounded) or self.restricted or self.hard:
            return math.nan
        hinges, excess, losses = np.zeros((3, self.compiled.n))
        given = (PART, weights, 1.0, hinges, excess, losses)
        self.over(self.active, formulations.find_hinges, *given)
        above = np.maximum(hinges + excess, 0.0)
        return float((self.form.cap * above - self.form.cap * np.maximum(hinges, 0.0)).sum())

    def best(self) -> tuple[Array, float]:
        """Weights of the least certified primal so far, and that primal."""
        return (self.w, math.inf) if self._best is None else (self._best, self._best_primal)

    def certify(self) -> float:
        """Certify the average or the last iterate, whichever led before; sometimes both."""
        self._certificates += 1
        both = self._certificates % 3 == 0 or self.hard
        return self._try_average_or_last(self._consider, both, self.good_primal)

    def _try_average_or_last(
        self, look: Callable[[], float], both: bool, good: float = -math.inf, standing: Any = None
    ) -> float:
        """The lesser primal of the two, or that of the one that led before; ``good`` will do.

        ``standing`` makes a context in which the average stands where the weights do.
        """
        average = last = math.inf
        if self.visits > 0 and (self._average_leads or both):
            with (standing or self._average_in_place)():
                average = look()
            if average <= good:
                return average
        if not self._average_leads or both or self.visits == 0:
            last = look()
        if both:
            self._average_leads = average <= last
        return min(average, last)

    @contextlib.contextmanager
    def _average_in_place(self) -> Iterator[None]:
        """Make the average where the weights stand and take it back: no third copy is needed."""
        self._add_drift(self.w)
        yield
        self._add_drift(self.w, back=True)

    def _add_drift(self, out: Array, back: bool = False) -> None:
        """Make the average where the last iterate stands, or take it back."""
        factor = -1.0 / (self.visits * (self.visits + 1.0))
        self.add(self.multipliers().drift, -factor if back else factor, out)

    def restart_average(self) -> None:
        """Forget the iterates before this moment."""
        if not self.streaming:
            self.multipliers().drift[:] = self.visits = 0.0

    def restart_average_in_time(self) -> None:
        """Let the average cover the later half of the run, 16 passes at most."""
        if self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0:
            self.restart_average()

    def candidate(self) -> Array:
        """A copy of the averaged weights, or of the last where there is no average."""
        copy = self.w.copy()
        if self.visits > 0:
            self._add_drift(copy)
        return copy


def carry_over(before: Formulation, form: Formulation, masses: Array, counts: Array) -> Array:
    """Multipliers of another fit made feasible; ``counts`` says how many an example has.

    Under linear slack those of an example are scaled with its bound, so that those at the bound
    stay there. There may be more examples now.
    """
    cap = form.cap[: len(before.cap)]
    finite = np.isfinite(cap) & np.isfinite(before.cap) & (before.cap > 0)
    scale = np.ones(len(form.cap))
    np.divide(cap, before.cap, out=scale[: len(cap)], where=finite)
    owners = np.repeat(np.arange(len(scale)), counts)
    return cut_back(form, masses * scale[owners], owners)


class PlaneSolver(CertifiedSolver):
    """Multipliers on planes found by decoding: a schedule of passes, and a rule for visits.

    The schedule here is that of :mod:`hingeline.solvers.sdm`; others replace :meth:`sweep`.
    ``patience`` and ``cut_into_blocks`` read the options ``patience`` and ``block``, which the
    ``Options`` of a subclass that uses them must have; the schedule reads all of ``SDM``'s.
    """

    by_example = True
    polishes = True
    inner_products = True  # whether the working set keeps those of an example's planes
    repeats = 1  # how often a decoding pass decodes an example in a row, while it is violated
    rule: Any  # how mass moves at a visit: see :mod:`hingeline.core.blocks`
    accelerate: Any  # a step over all planes with mass

    def _begin(self, start: WorkingSet | None) -> None:
        self.fresh = start is None
        self.ws = self.take_over(start)
        if start is not None:
            self.add(self.ws.alpha, 1.0, self.w)

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        """The planes, with multipliers made feasible; there may be more examples."""
        old = before.planes()
        if not isinstance(old, WorkingSet) or not before.same_planes(compiled, form):
            return None
        capacity = np.full(compiled.n, blocks.FIRST_CAPACITY)
        capacity[: len(old.capacity)] = old.capacity
        ws = blocks.copy_planes(old, compiled.lengths, capacity, len(old.gram) > 0)
        ws.alpha[:] = carry_over(before.form, form, ws.alpha, capacity)
        ws.drift[:], ws.stamp[:] = 0.0, 0
        return ws

    def take_over(self, start: WorkingSet | None) -> WorkingSet:
        """The planes to start from, with inner products where this solver wants them."""
        gram = self.inner_products
        if start is None:
            return blocks.empty_working_set(self.compiled.lengths, gram=gram)
        if gram == (len(start.gram) > 0):
            return start
        ws = blocks.copy_planes(start, start.length, start.capacity, gram)
        if gram:
            self.run(blocks.fill_gram, ws, np.arange(len(ws.used)), self.workers.scratch[0])
        return ws

    @property
    def n_planes(self) -> int:
        return self.ws.n_planes

    @property
    def active_blocks(self) -> Array:
        """The blocks of multipliers that may have mass."""
        return self.active

    def blocks_of(self, examples: Array) -> Array:
        """The blocks to visit after these examples were decoded."""
        return examples

    known_blocks_of = blocks_of  # the same, but no multiplier gets another place

    def make_room(self) -> None:
        """More slots for the blocks that have found no room for a plane."""
        self.ws = blocks.make_room(self.ws, self.clock, self.patience)

    @property
    def patience(self) -> int:
        """Passes after which a plane without mass may go."""
        asked = self.options.patience
        return blocks.KEEP if asked is None else int(asked)

    def find(self, order: Array, patience: int, epsilon: float = -1.0) -> None:
        """Decode the examples of ``order``, in threads; see :func:`.blocks.find_planes`."""
        plain = self.form.root == 0 and self.form.rescaled == 0 and epsilon < 0.0
        asked = (None if plain else epsilon, self.clock, patience, SCRATCH, self.violation)
        self.over(order, blocks.find_planes, self.form, self.ws, PART, self.w, *asked)

    def move(self, order: Array, form: Formulation, gaps: Array, averaged: bool = True) -> float:
        """Visit the examples of ``order`` in turn; see :func:`hingeline.core.blocks.move_mass`."""
        known = (self.by_block(form), self.ws, self.rule, order, self.w)
        state = (self.visits, float(averaged), self.clock, gaps)
        result: float = self.run(blocks.move_mass, *known, *state)
        self.visits += len(order) * averaged
        return result

    def cut_into_blocks(self, order: Array) -> Iterator[Array]:
        """Examples decoded against the same weights before their mass is moved, in order."""
        # Small against n and large enough to feed threads.
        size = self.options.block or max(1, min(64, len(self.active) // 32))
        for lo in range(0, len(order), size):
            yield order[lo : lo + size]

    def mean_square(self) -> float:
        """Mean of ``‖a·Δf‖²`` over the planes known, after a look at some examples."""
        if not self.n_planes:
            self.find(self.active[:100], self.patience)
        squares = (self.ws.scale**2 * self.ws.sqnorm)[self.ws.sqnorm > 0.0]
        return float(squares.mean()) if len(squares) else 0.0

    def plan_stages_by_sample(self) -> None:
        """From nothing: decode some examples to see how much a step fills one."""
        square = self.mean_square() if self.fresh and np.isfinite(self.form.cap).all() else 0.0
        if square > 0.0:
            self.plan_stages(float(self.form.cap[self.active[:100]].mean()) * square, most=2)

    def sweep(self) -> float:
        """One decoding pass and the cached passes after it."""
        options = self.options
        self.clock += 1
        self.restart_average_in_time()
        stage = self.stage()
        known = self.n_planes
        for part in self.cut_into_blocks(self.rng.permutation(self.active)):
            for _ in range(self.repeats):
                self.find(part, self.patience)
                self.move(self.blocks_of(part), stage, self.gaps)
                self.oracle_calls += len(part)
                part = part[self.violation[part] > 0.0]
                if not len(part):
                    break
        estimate = float(self.gaps.sum())
        self.make_room()
        passes = options.cached_passes
        active, found = self.active_blocks, self.n_planes - known
        if 20 * found <= len(active):  # decoding hardly finds anything any more
            passes *= 5
        for _ in range(passes):
            worth = self.gaps > options.skip * self.gaps[active].sum() / max(len(active), 1)
            if not worth.any():
                break
            part = self.rng.permutation(np.flatnonzero(worth & (self.ws.used > 0)))
            self.move(part, stage, self.gaps)
        if stage is self.form and self.clock > 1:
            work = 2.0 * self.plane_size * max(self.n_planes, 1) * (1 + passes)
            growth = found / max(len(active), 1)
            if self.accelerate(self, estimate, work, growth) and self.accelerate.newton:
                self.restart_average()  # it is left behind
        return estimate if stage is self.form else np.inf

    def _find_violations(self) -> None:
        # Planes may carry a share in the average that is being certified: overwrite none.
        self.find(self.active, blocks.FREE_SLOTS_ONLY)

    def memory(self) -> WorkingSet:
        return self.ws

    def tables(self) -> dict[str, Array]:
        return self.ws._asdict()

    def set_tables(self, tables: dict[str, Array]) -> None:
        self.ws = blocks.planes_from(tables, self.ws, self.compiled.end)

    def multipliers(self) -> Multipliers:
        return Multipliers(self.ws.alpha, self.ws.offset, self.ws.drift, self.ws.capacity)

    def add(self, masses: Array, factor: float, out: Array) -> None:
        self.run(blocks.add_planes, self.ws, masses, factor, out)

    def score(self, wanted: Array, vector: Array, out: Array) -> None:
        self.run(blocks.score_planes, self.ws, wanted, vector, out)

    def planes_in_use(self) -> tuple[Array, Array]:
        return blocks.spread(self.ws.slot, self.ws.used), self.ws.used

    def curvature(self, support: Array, parts: Any) -> tuple[Array, Array | None]:
        """From the planes that are free to move, as rows; those of some blocks at a time."""
        slots, matrix = support[parts.free], np.zeros(2 * self.w.shape)
        owners, pieces = self.multipliers().owners[slots], 1 + len(slots) * len(self.w) // PIECE
        if pieces == 1:
            return parts.square(self.write_rows(slots), owners), None
        ends = np.searchsorted(owners, np.linspace(0, len(self.ws.used), pieces + 1))
        for part in map(slice, ends[:-1], ends[1:]):
            rows = parts.weigh_rows(self.write_rows(slots[part]), owners[part])
            matrix += rows.T @ rows
        return matrix, None

    def write_rows(self, slots: Array) -> Array:
        """Planes as rows of numbers, one for each weight."""
        owners, rows = self.multipliers().owners[slots], np.zeros((len(slots), len(self.w)))
        self.run(blocks.write_planes, self.ws, owners, slots, rows)
        return rows

    def _sums(self) -> Array:
        return np.add.reduceat(self.ws.alpha, self.ws.slot)

    def _reach(self) -> float:
        used = self.ws.offset > 0.0
        norms = self.ws.scale[used] * np.sqrt(self.ws.sqnorm[used])
        return float((norms / self.ws.offset[used]).max(initial=0.0))
