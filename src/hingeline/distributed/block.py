"""What lives on a worker: a host with the common weights, and its blocks of examples.

A block has examples and the solver ``"sdm"`` for them. In a round it decodes some of its examples
and visits them in turn, from the common weights on, all other blocks fixed. It tells what each
of them would add to the weights, and goes as far as the driver says in the next round. Nothing is
drawn from the clock or from a stream of random numbers: a block that is made anew and told the same
comes to the same bits.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline._simd import aligned_zeros, copy
from hingeline.core.blocks import WorkingSet, empty_working_set, planes, spread, starts_of
from hingeline.core.formulations import Formulation, cut_back, make_formulation, total_slack_cost
from hingeline.core.loop import identity
from hingeline.core.primitives import Workers, planes_add, planes_list
from hingeline.core.solver import PlaneSolver
from hingeline.distributed.shards import make_shard, read_parts
from hingeline.estimators.base import refuse_overflow
from hingeline.solvers.newton import Planes, Response, respond

#: Options of the solver that have no effect in blocks.
UNUSED = {"block", "cached_passes", "passes", "cg_steps", "newton_weights"}
WORTH = 0.5  # Rounds without decoding leave out gaps below it, over the mean.


def peak_memory() -> float:
    """Most memory that this process has had, in bytes; nan where the system does not say."""
    with suppress(OSError), open("/proc/self/status") as status:
        # What getrusage says begins with the peak of the process that started this one.
        for line in status:
            if line.startswith("VmHWM:"):
                return 1024.0 * float(line.split()[1])
    try:
        import resource
    except ImportError:
        return float("nan")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most if sys.platform == "darwin" else 1024 * most)


@kernel
def write_values(place: Array, values: Array, out: Array) -> None:
    """``out[place] = values``."""
    for p in range(place.shape[0]):
        out[place[p]] = values[p]


LARGE = 2000  # Equations of a Newton step that are not solved by elimination any more.
#: Shares of a Newton step that are looked at with it.
LENGTHS = 0.5 ** np.arange(1, 15)


class Changes(NamedTuple):
    """Changes of the weights, one after the other: what some examples add, as products.

    A product adds ``x_r·c_k`` at ``row_r + column_k``. Its words are how many rows there are, with
    a minus where x is not 1 throughout, how many columns, the columns and the rows; its values are
    c, and x where it is not 1: a token with 30 features and two labels takes 34 words and 2 values.
    """

    ends: Array  # (examples + 1,) of their words
    code: Array
    values: Array


def room_for_changes(n: int, n_weights: int) -> Changes:
    """Buffers to begin with, for n examples."""
    kind = np.int32 if n_weights < 2**31 else np.int64
    return Changes(np.empty(n + 1, dtype=np.int64), np.empty(4096, dtype=kind), np.empty(1024))


@helper
def _grow(old: Array, used: int, room: int) -> Array:
    new = np.empty(room, dtype=old.dtype)
    copy(old, new[:used])
    return new


@kernel
def list_changes(
    problem: Any,
    ws: WorkingSet,
    order: Array,
    moved: Array,
    change: Array,
    common: Array,
    w: Array,
    spare: Array,
    out: Changes,
) -> Changes:
    """What the examples of ``order`` have added to w, one by one; w becomes ``common`` again.

    Of all their slots, ``moved`` says which had mass that changed meanwhile, and ``change`` by how
    much in the end. ``spare`` is zero. Buffers of ``out`` that are full give way to larger ones.
    """
    ends, code, values = out
    at = v = first = 0  # words and values there are, and slots
    ends[0] = 0
    for r in range(order.shape[0]):
        i = order[r]
        ys, steps = planes(ws, i).copy(), np.empty(ws.used[i])
        m = 0
        for j in range(ws.used[i]):
            if moved[first + j]:
                ys[m] = ys[j]
                steps[m] = change[first + j] * ws.scale[ws.slot[i] + j]
                m += 1
        first += ws.capacity[i]
        ends[r + 1] = at
        if m == 0:
            continue
        ys, steps = ys[:m], steps[:m]
        words, more = planes_list(problem, i, ys, steps, code[at:], values[v:])
        dense = words < 0
        if dense:
            words, more = 3 + w.shape[0], 1 + w.shape[0]
        if at + words > code.shape[0] or v + more > values.shape[0]:
            code, values = _grow(code, at, 2 * (at + words)), _grow(values, v, 2 * (v + more))
            planes_list(problem, i, ys, steps, code[at:], values[v:])
        if dense:
            planes_add(problem, i, ys, steps, spare)
            count = 0
            for k in range(w.shape[0]):
                w[k] = common[k]
                if spare[k] != 0.0:
                    code[at + 3 + count], values[v + 1 + count] = k, spare[k]
                    spare[k] = 0.0
                    count += 1
            code[at], code[at + 1], code[at + 2], values[v] = -count, 1, 0, 1.0
            words, more = 3 + count, 1 + count
        else:
            p = at
            while p < at + words:
                columns = p + 2
                rows = columns + code[p + 1]
                p = rows + abs(code[p])
                for q in range(rows, p):
                    for k in range(columns, rows):
                        place = code[q] + code[k]
                        w[place] = common[place]
        if steps.any():
            at, v = at + words, v + more
            ends[r + 1] = at
    return Changes(ends, code[:at], values[:v])


@kernel
def list_entries(changes: Changes) -> tuple[Array, Array, Array]:
    """Changes as rows: values and places of what they have, and where each begins."""
    ends, code, values = changes
    first = np.zeros(ends.shape[0], dtype=np.int64)
    at = 0
    for i in range(ends.shape[0] - 1):
        first[i + 1] = first[i]
        while at < ends[i + 1]:
            first[i + 1] += abs(code[at]) * code[at + 1]
            at += 2 + abs(code[at]) + code[at + 1]
    place = np.empty(first[-1], dtype=code.dtype)
    value = np.empty(first[-1])
    at = v = e = 0
    while at < code.shape[0]:
        rows, columns, ones = abs(code[at]), code[at + 1], code[at] > 0
        for k in range(columns):
            for r in range(rows):
                place[e] = code[at + 2 + columns + r] + code[at + 2 + k]
                value[e] = values[v + k] * (1.0 if ones else values[v + columns + r])
                e += 1
        v += columns if ones else columns + rows
        at += 2 + rows + columns
    return value, place, first


# What the two kinds of solvers do here: others move the weights as well, so no average is made.


def visit(solver: Any, order: Array, form: Formulation) -> None:
    """Move the mass of blocks in turn."""
    if isinstance(solver, PlaneSolver):
        solver.move(order, form, solver.gaps, averaged=False)
    else:
        solver.visit(order, form)


def visit_new(solver: Any, examples: Array, form: Formulation) -> Array:
    """Decode examples and move their mass, some at a time; the blocks that were visited."""
    if not isinstance(solver, PlaneSolver):  # all outputs are known
        solver.visit(examples, form)
        return examples
    size = max(1, min(64, len(examples) // 8))
    visited = [np.zeros(0, dtype=np.int64)]
    for lo in range(0, len(examples), size):
        part = examples[lo : lo + size]
        solver.find(part, solver.patience)
        solver.oracle_calls += len(part)
        found = solver.known_blocks_of(part)
        visited.append(found[solver.ws.used[found] > 0])
        visit(solver, visited[-1], form)
    return np.concatenate(visited)


def find_worth(solver: Any, least: float) -> Array:
    """The blocks with planes whose gap is above ``least``, in a random order."""
    some = solver.gaps > least
    if isinstance(solver, PlaneSolver):
        some &= solver.ws.used > 0
    return np.asarray(solver.rng.permutation(np.flatnonzero(some)))


def list_changes_of(
    solver: Any, order: Array, moved: Array, change: Array, common: Array, spare: Array
) -> Changes:
    """:func:`list_changes` of a solver's planes; where all outputs are planes, of these."""
    known = (order, moved, change, common, solver.w, spare)
    room = room_for_changes(len(order), len(solver.w))
    if isinstance(solver, PlaneSolver):
        changes: Changes = solver.run(list_changes, solver.ws, *known, room)
        return changes
    n, m = solver.alpha.shape
    # The outputs stand there once, and so do scales that are all 1.
    rescaled = solver.form.rescaled
    ws = empty_working_set(np.ones(n), 0)._replace(
        capacity=solver.counts,
        used=solver.counts,
        y=np.arange(m, dtype=np.int32),
        slot=m * rescaled * np.arange(n),
        scale=solver.offsets.ravel() if rescaled else np.ones(m),
    )
    return list_changes(solver.compiled.problem, ws, *known, room)


class Change(NamedTuple):
    """New values of some weights; of all where there is no index."""

    place: Any  # index of the weights; None: of all
    values: Array
    n: int  # weights that there are
    whole: bool = False  # whether all others are 0

    @property
    def where(self) -> Any:
        """As an index."""
        return slice(None) if self.place is None else self.place

    @property
    def nbytes(self) -> int:
        """Of the values."""
        return int(self.values.nbytes)

    def apply(self, weights: Array) -> None:
        """Write the values."""
        if self.whole:
            weights[:] = 0.0
        if self.place is None:
            weights[:] = self.values
        else:
            write_values(self.place, self.values, weights)


def find_change(before: Array | None, after: Array, dense: bool = True) -> Change:
    """What makes one vector of the other (None: 0), where ``dense`` in the form that is smaller."""
    differs = after if before is None else after != before
    index = np.flatnonzero(differs)
    kind = np.int32 if len(after) < 2**31 else np.int64
    if dense and len(index) * (8 + np.dtype(kind).itemsize) >= after.nbytes > 0:
        return Change(None, after.copy(), len(after))
    index = index.astype(kind)
    return Change(index, after[index], len(after), before is None)


class Told(NamedTuple):
    """What a block tells of a round: the steps that its examples would take, one after the other.

    The dual along a step of length t is ``gain·t − ½ curve·t² − w·u·t − ½‖u·t‖²``, u its change.
    """

    changes: Changes  # of the weights
    gain: Array  # of Σ α·b, less what the ridge takes
    curve: Array  # of the ridge
    most: Array  # the length at which a bound is met; 1 is the step itself
    gap: float  # over the planes known, summed as they were visited
    planes: int
    decodes: int


class Point(Planes):
    """Planes that tell at once all that may be asked of a Newton step: a round trip is dear."""

    def __init__(self, solver: Any, none: bool, host: "Host") -> None:
        super().__init__(solver, none)
        self.host, self.hinges = host, self.offset
        self.support = np.arange(len(solver.multipliers().mass))[self.support]

    def tell(self, w: Array, rate: float, keep: bool) -> tuple[Any, Array, Any]:
        """What ψ is made of at w, and its curvature; its values on the way from the last weights.

        ``keep`` is about the multipliers there.
        """
        if keep:
            self.keep()
        before, told = self.hinges, self.evaluate(w, rate)
        if hasattr(self.solver, "respond"):  # its hinges are those of all outputs
            self.hinges = self.offset - self.solver.products(self.support, w)
        out = Response(*self.parts[:2], *map(np.empty_like, self.parts[2:]))
        way = self.hinges - before
        found = [respond(self.form, self.first, before + t * way, out) for t in LENGTHS]
        return told, np.array(found), self.list_curvature()

    def list_curvature(self) -> Any:
        """R with the curvature ``RᵀR``, or that itself where it has fewer numbers."""
        parts, counts = self.parts, self.solver.multipliers().counts
        free = np.flatnonzero(parts.free)
        owners, room = self.owners[free], counts[self.owners[free]]
        chosen = np.zeros(room.sum())
        chosen[starts_of(room) + self.support[free] - starts_of(counts)[owners]] = 1.0
        vectors = (self.host.common, self.host.spare)
        listed = list_changes_of(self.solver, owners, chosen > 0.0, chosen, *vectors)
        n = len(self.host.common)
        rows = sp.csr_matrix(list_entries(listed), (len(free), n))
        if n <= LARGE and max(3 * rows.nnz, 20_000) >= 2 * n * n:
            dense = parts.weigh_rows(rows.toarray(), owners)
            return dense.T @ dense
        # As there: less their mean, where the sum of an example's multipliers is bound.
        some, member, members = np.unique(owners, return_inverse=True, return_counts=True)
        factor = 1.0 - np.sqrt(np.maximum(1.0 - parts.rho[some] * members, 0.0))
        given = (np.ones(len(free)), member, np.arange(len(free) + 1))
        of = sp.csr_matrix(given, (len(free), len(some)))
        rows -= of @ sp.diags_array(factor / members) @ (of.T @ rows)
        return sp.diags_array(np.sqrt(parts.sigma[owners])) @ rows


class Host:
    """The blocks of one worker process, and the weights that they have in common."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.common = np.zeros(0)
        self.weights = self.common  # the same, for a block to change and to bring back
        self.spare = self.common  # zero

    def call(self, method: str, common: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Let blocks do something, in turn: their answers, each with the seconds it took.

        ``common`` is a change of the weights, or None, and what all blocks are told.
        """
        began = time.process_time()
        change, *rest = common or (None,)
        if change is not None:
            if len(self.common) != change.n:
                self.common, self.weights, self.spare = (aligned_zeros(change.n) for _ in range(3))
            change.apply(self.common)
            change.apply(self.weights)
        answers = {}
        shared = time.process_time() - began  # what each of them would take on a worker of its own
        for k in sorted(own):
            began = time.process_time()
            block = self.blocks.setdefault(k, Block(k, self))
            found = getattr(block, method)(*rest, *own[k])
            answers[k] = (found, shared + time.process_time() - began)
        return answers


class Block:
    """Some of the examples, and their multipliers."""

    def __init__(self, number: int, host: Host) -> None:
        self.number, self.host = number, host

    def read(self, estimator: Any, parts: Any) -> Any:
        """Read the examples; what must be known of all blocks before any can be posed."""
        self.estimator = estimator
        self.shard = make_shard(estimator, *read_parts(parts))
        return None if self.shard is None else self.shard.told

    def pose(self, known: dict[str, Any], own: Any) -> tuple[float, ...]:
        """Make the problem, given what all blocks have; sums that ``C="scale"`` is made of."""
        vars(self.estimator).update(known)
        shard, self.shard = self.shard, None
        assert shard is not None  # blocks without examples are asked nothing more
        self.compiled, self.weights = shard.pose(self.estimator, own)
        return shard.sums

    def begin(self, C: float, seed: int) -> dict[str, Any]:
        """Make the solver; what the driver wants to know of this block."""
        self.seed, compiled = seed, self.compiled
        self.order = np.zeros(0, dtype=np.int64)
        self.pending: tuple[Array, ...] = ()
        estimator = self.estimator
        refuse_overflow(compiled.problem, C * float(self.weights.sum()))
        form = make_formulation(C, estimator.slack, estimator.rescale, self.weights)
        solver_class = estimator._solver_class(compiled)
        given = {**(estimator.solver_options or {}), **estimator._own_options(solver_class)}
        workers = Workers(1, compiled.scratch_size)
        self.solver = solver_class(compiled, form, workers, seed, given, None)
        self.solver.w = self.host.weights  # until the first call: its own would lie idle
        return {
            "n": len(self.solver.active),
            "n_weights": compiled.n_weights,
            "plane": self.solver.plane_size,
            # Of decoding all of it, about: every number of the data with the weights of all labels.
            "work": float(compiled.size * getattr(compiled.problem, "n_labels", 1)),
            "exact": compiled.exact,
            "bounded": compiled.bounded,
            "data": identity(compiled, form.cap, form.ridge),
            "stages": np.repeat(self.solver.stages, self.solver.options.stage_sweeps).tolist(),
        }

    def advance(self, clock: int, piece: int, pieces: int, stage: float, lengths: Array) -> Told:
        """Go as far as the driver says, then decode a piece of the examples and visit them.

        With the pieces at an end no example is decoded: those with gaps left are visited again.
        ``stage`` is a factor on the bounds of the multipliers.
        """
        self.take(lengths)
        solver, host = self.solver, self.host
        n = len(solver.active)
        if piece == 0:
            solver.clock = clock
            solver.rng = np.random.default_rng([self.seed, self.number, clock])
            self.order = solver.rng.permutation(solver.active)
        solver.w = host.weights
        decoded = solver.oracle_calls
        form = solver.form if stage == 1.0 else solver.form._replace(cap=stage * solver.form.cap)
        mean = float(solver.gaps.mean()) if len(solver.gaps) else 0.0  # no parts: all is right
        new = solver.admit() if piece < pieces else find_worth(solver, WORTH * mean)
        known = solver.multipliers()
        all_before = known.mass.copy()
        visit(solver, new, form)
        todo = self.order[n * piece // pieces : n * (piece + 1) // pieces]
        blocks = np.unique(np.concatenate([new, visit_new(solver, todo, form)]))
        counts = known.counts[blocks]
        slots = spread(starts_of(known.counts)[blocks], counts)
        before = all_before[slots]
        gap = float(solver.gaps[blocks].sum())
        halfway = known.mass[slots]
        visit(solver, blocks[solver.gaps[blocks] > solver.options.skip * mean], form)
        after = known.mass[slots]
        moved = (halfway != before) | (halfway != after)  # where w is another, too
        change = np.where(moved, after - before, 0.0)
        known.mass[:] = all_before
        changes = list_changes_of(solver, blocks, moved, change, host.common, host.spare)
        owners = np.repeat(np.arange(len(blocks)), counts)
        form = solver.by_block(solver.form)
        ridge, cap = form.ridge[blocks], stage * form.cap[blocks]
        some, told = self._describe(owners, before, change, known.offset[slots], ridge, cap)
        ends = changes.ends[np.concatenate([[True], some])]
        assert ends[-1] == changes.ends[-1]
        inside = some[owners]
        self.pending = (slots[inside], change[inside], np.cumsum(some)[owners[inside]] - 1)
        decoded = solver.oracle_calls - decoded
        return Told(changes._replace(ends=ends), *told, gap, solver.n_planes, decoded)

    def _describe(
        self, owners: Array, before: Array, change: Array, offset: Array, ridge: Array, cap: Array
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        """Who has moved; gain, curve and bound of their steps."""
        n = len(cap)

        def add(values: Array) -> Array:
            return np.bincount(owners, weights=values, minlength=n)

        some = add(change != 0.0) > 0.0
        total, rise = add(before), add(change)
        most = np.full(n, np.inf)
        falls = change < 0.0
        np.minimum.at(most, owners[falls], before[falls] / -change[falls])
        up = (rise > 0.0) & np.isfinite(cap)
        most[up] = np.minimum(most[up], (cap[up] - total[up]) / rise[up])
        gain, curve = add(change * offset) - ridge * total * rise, ridge * rise**2
        return some, (gain[some], curve[some], np.maximum(most[some], 1.0))

    def take(self, lengths: Array) -> None:
        """Go so far on the steps of the last round."""
        if self.pending:
            slots, change, owners = self.pending
            mass = self.solver.multipliers().mass
            mass[slots] = np.maximum(mass[slots] + lengths[owners] * change, 0.0)
            self.pending = ()

    def end_pass(self, lengths: Array) -> tuple[float, float]:
        """Take the last steps, make room for new planes; ``Σ α·b`` and ``½ Σ r_i A_i²``."""
        self.take(lengths)
        solver = self.solver
        known = solver.multipliers()
        known.mass[:] = cut_back(solver.by_block(solver.form), known.mass, known.owners)
        if isinstance(solver, PlaneSolver):
            solver.make_room()
        ridge = solver.form.ridge
        return solver.linear(), 0.5 * float(ridge @ solver._sums() ** 2) if ridge.any() else 0.0

    def open_point(self, none: bool) -> tuple[float, int]:
        """Begin Newton steps to a proximal point, see :class:`hingeline.solvers.newton.Planes`."""
        self.solver.w = self.host.weights
        self.point = Point(self.solver, none, self.host)
        return self.point.filled

    def tell_point(self, *given: Any) -> Any:
        """See :meth:`Point.tell`."""
        return self.point.tell(*given)

    def end_point(self, keep: bool) -> tuple[float, float]:
        """Take the multipliers that were kept; as :meth:`end_pass`."""
        if keep:
            self.point.keep()
        self.point.take(self.host.common)
        del self.point  # with the rows of its planes
        return self.end_pass(np.zeros(0))

    def scale(self, factor: float) -> None:
        """Multiply all multipliers: a stage of C is over."""
        self.solver.multipliers().mass[:] *= factor

    def measure(self, candidate: Change) -> tuple[float, float, float]:
        """What slack costs at other weights; how much of it is a bound; the largest slack."""
        solver, host = self.solver, self.host
        solver.w = host.weights
        candidate.apply(host.weights)
        solver._find_violations()
        excess = solver.integrality_gap(solver.w)
        host.weights[candidate.where] = host.common[candidate.where]
        cost, worst = total_slack_cost(solver.form, solver.violation), solver.violation.max()
        return cost, 0.0 if excess != excess else excess, float(worst)

    def sum_up(self) -> Change:
        """``Σ α·a·Δf``, from nothing."""
        vector = aligned_zeros(len(self.host.common))
        self.solver.add(self.solver.multipliers().mass, 1.0, vector)
        return find_change(None, vector)

    def save(self) -> dict[str, Array]:
        """All that decides what this block does next, as arrays; between two passes."""
        solver = self.solver
        names = [n for n in solver.saved_arrays if n not in ("w", "_best", "violation")]
        own = {"clock": np.array([solver.clock])}
        return {**own, **{n: getattr(solver, n) for n in names}, **solver.tables()}

    def restore(self, state: dict[str, Array] | None) -> None:
        """Go back to what :meth:`save` gave; None: to the beginning."""
        if not state:
            return
        solver = self.solver
        self.pending, solver.clock = (), int(state["clock"][0])
        solver.set_tables({n: state[n].copy() for n in solver.tables()})
        for name in solver.saved_arrays:
            if name in state:
                getattr(solver, name)[...] = state[name]

    def drop(self) -> None:
        """Leave the host: the block moves to another worker."""
        del self.host.blocks[self.number]

    def weigh(self) -> float:
        """Most memory that this process has had."""
        return peak_memory()
