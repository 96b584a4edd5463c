"""The sequential dual method where outputs fall apart: its blocks are stretches of examples.

Where an output agrees with the truth, what lies before and after that place is independent in many
structures: with the stretches s of y that differ from the truth, ``Δf(y) = Σ_s Δf(s)``, the loss
likewise, and any choice of them is an output, too. The dual then depends on the multipliers of an
example only through what each *part* has, a range of positions with at least one place between it
and the next::

    α(y) = Π_k p_k(y on part k) · cap   is feasible for any p_k ≥ 0, Σ p_k ≤ 1,   and has
    w = Σ_k cap Σ_y p_k(y) Δf_k(y),     Σ α·b = Σ_k cap Σ_y p_k(y) l_k(y)

So every part has a bound ``cap`` and planes of its own, and an example with m places of trouble
needs a few planes for each instead of all 2^m combinations. Decoding and certificates look at whole
examples as ever. Planes of a part show one true position on either side, where there is one, so
that for the primitives a part is an example like any other: :attr:`.Compiled.stretch`.

Parts are what planes with mass cover, newly made between passes: :func:`regroup`. They split where
all planes agree with the truth, and join where one reaches over. The product above is not written
down; to join parts, their masses are laid side by side, level by level: at most as many planes as
both had, with the same marginals. Neither changes w or the dual.

What a pass finds inside a part is a plane of it at once, the rest waits until there is so much of
it that new parts are worth making, or for the end of the pass. It converges as on whole examples:
from some pass on, all of the most violated output enters the parts, where the largest hinges add up
to no less than its own.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_reference, helper, kernel
from hingeline._simd import copy
from hingeline.core import blocks
from hingeline.core.blocks import FREE_SLOTS_ONLY, WorkingSet, insert, plane, spread
from hingeline.core.formulations import Formulation, most_violated_sum
from hingeline.core.primitives import PART, SCRATCH, Compiled
from hingeline.core.results import DualMemory
from hingeline.core.solver import PlaneSolver, carry_over
from hingeline.solvers.sdm import SDM, take_pair_steps

#: In the first passes decoding finds little that is right. Parts are pieces of examples then, as
#: long as a sentence, and the place between two of them is taken for right.
FIRST_LENGTH = 30
FIRST_PASSES = 5
#: They stay pieces while the places between them are mostly wrong: joined, they would be few parts
#: with all the planes of many pieces. But pieces alone do not reach all of the dual: they join once
#: the gaps left in them are below this share of what their planes bring, over how many others more
#: than one would be in a part.
TANGLED, SOLVED = 1, 0.05


@by_reference
class Parts(NamedTuple):
    """The parts of all examples, in order; positions are numbered through all examples."""

    base: Array  # (n + 1,) int64: the positions of an example
    gold: Array  # (positions,) int32: the true outputs
    found: Array  # (positions,) int32: the truth, but for what was decoded and fits no part
    waiting: Array  # (n,) int64: how many positions that are
    start: Array  # (parts,) int64
    stop: Array  # (parts,) int64
    owner: Array  # (parts,) int64: its example
    first: Array  # (n + 1,) int64: the parts of an example
    shown: Array  # (parts,) int64: where its planes begin


class PartSet(NamedTuple):
    """The planes of parts, to go on from."""

    ws: WorkingSet
    start: Array
    stop: Array

    def join(self, compiled: Compiled, form: Formulation) -> WorkingSet:
        """The planes of whole examples with the same marginals, without inner products."""
        parts = place_parts(whole_examples(compiled), self.start, self.stop)[0]
        scratch = np.zeros(compiled.scratch_size)
        return regroup(compiled, form, self.ws, parts, 0, 0, scratch, join=True)[1]


def whole_examples(compiled: Compiled) -> Parts:
    """Every example as one part."""
    base = np.concatenate([[0], np.cumsum(compiled.lengths)]).astype(np.int64)
    n = compiled.n
    whole = (base[:-1], base[1:], np.arange(n), np.arange(n + 1), base[:-1])
    return Parts(base, compiled.truths, compiled.truths.copy(), np.zeros(n, dtype=np.int64), *whole)


def place_parts(parts: Parts, start: Array, stop: Array) -> tuple[Parts, Array]:
    """Other parts of the same examples, and the lengths of their planes."""
    base = parts.base
    owner = np.searchsorted(base, start, side="right") - 1
    shown = np.maximum(start - 1, base[owner])
    first = np.searchsorted(owner, np.arange(len(base)))
    parts = parts._replace(start=start, stop=stop, owner=owner, first=first, shown=shown)
    return parts, np.minimum(stop + 1, base[owner + 1]) - shown


def cut_into_pieces(parts: Parts) -> tuple[Array, Array]:
    """Pieces of all examples, of about equal length: where they begin and end."""
    lengths = np.diff(parts.base)
    count = -(-(lengths + 1) // (FIRST_LENGTH + 1))
    owner = np.repeat(np.arange(len(count)), count)
    at = spread(np.zeros_like(count), count)
    base, length, count = parts.base[owner], lengths[owner] + 1, count[owner]
    return base + at * length // count, base + (at + 1) * length // count - 1


def restrict(form: Formulation, parts: Parts) -> Formulation:
    """The formulation, every part being an example."""
    return form._replace(cap=form.cap[parts.owner], ridge=form.ridge[parts.owner])


def pose(compiled: Compiled, form: Formulation, parts: Parts) -> tuple[Any, Formulation]:
    """The problem and the formulation whose examples are the parts."""
    return compiled.stretch(compiled.problem, parts.shown), restrict(form, parts)


@kernel
def find_stretches(
    problem: Any,
    form: Formulation,
    stretches: Any,
    inner: Formulation,
    ws: WorkingSet,
    parts: Parts,
    order: Array,
    w: Array,
    apart: bool,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """Decode the examples of ``order``, put what lies inside a part into its set, note the rest.

    ``apart`` takes for right the place before a part that is not the first. For hinges that are
    sums of score and loss; see :func:`hingeline.core.blocks.find_planes`.
    """
    for i in order:
        lo = parts.base[i]
        length = parts.base[i + 1] - lo
        y = np.empty(length, dtype=np.int32)
        violation[i] = max(most_violated_sum(problem, form, i, w, 1.0, y), 0.0)
        if violation[i] == 0.0:
            continue
        gold = parts.gold[lo : lo + length]
        if apart:
            for k in range(parts.first[i] + 1, parts.first[i + 1]):
                t = parts.start[k] - lo - 1
                parts.found[lo + t] = y[t]  # it tells which pieces are one part in truth
                y[t] = gold[t]
        for k in range(parts.first[i], parts.first[i + 1]):
            a, b = parts.start[k] - lo, parts.stop[k] - lo
            if (a > 0 and y[a - 1] != gold[a - 1]) or (b < length and y[b] != gold[b]):
                continue
            differs = False
            for t in range(a, b):
                differs |= y[t] != gold[t]
            if differs:
                s = parts.shown[k] - lo
                insert(stretches, inner, ws, k, y[s : s + ws.length[k]], clock, patience, scratch)
                copy(gold[a:b], y[a:b])
        parts.waiting[i] = 0
        for t in range(0 if apart else length):
            parts.found[lo + t] = y[t]
            parts.waiting[i] += y[t] != gold[t]


@kernel
def _cover(ws: WorkingSet, parts: Parts, since: int, covered: Array) -> None:
    """Mark where a plane with mass, or one that had some since then, differs from the truth."""
    for k in range(ws.used.shape[0]):
        for j in range(ws.used[k]):
            if ws.alpha[ws.slot[k] + j] > 0.0 or ws.stamp[ws.slot[k] + j] >= since:
                y = plane(ws, k, j)
                for t in range(parts.start[k], parts.stop[k]):
                    if y[t - parts.shown[k]] != parts.gold[t]:
                        covered[t] = True


@helper
def _write_stretch(
    old: WorkingSet, before: Parts, c: int, j: int, parts: Parts, k: int, y: Array
) -> bool:
    """Plane j of the old part c inside part k; whether it differs nowhere else from the truth."""
    z = plane(old, c, j)
    inside = True
    for t in range(before.start[c], before.stop[c]):
        label = z[t - before.shown[c]]
        if parts.start[k] <= t < parts.stop[k]:
            y[t - parts.shown[k]] = label
        elif label != parts.gold[t]:
            inside = False
    return inside


@kernel
def _fill_parts(
    stretches: Any,
    form: Formulation,
    old: WorkingSet,
    before: Parts,
    sources: Array,
    same: Array,
    ws: WorkingSet,
    parts: Parts,
    clock: int,
    scratch: Array,
) -> None:
    """Take over planes: part k overlaps with the old parts ``sources[k]`` to ``sources[k + 1]``."""
    for k in range(ws.used.shape[0]):
        a, b = sources[k, 0], sources[k, 1]
        if same[k]:
            for j in range(ws.used[k]):
                row = ws.gram_start[k] + j * ws.capacity[k]
                at = old.gram_start[a] + j * old.capacity[a]
                copy(old.gram[at : at + ws.used[k]], ws.gram[row : row + ws.used[k]])
            continue
        s, lo = ws.slot[k], parts.shown[k]
        gold = parts.gold[lo : lo + ws.length[k]]
        y = np.empty(ws.length[k], dtype=np.int32)
        # The masses of all sources from level 0 on, side by side: as far as no plane ends.
        current, left = np.full(b - a, -1), np.zeros(b - a)
        while True:
            copy(gold, y)
            step, stamp = np.inf, 0
            for c in range(a, b):
                p = c - a
                while left[p] <= 0.0 and current[p] < old.used[c]:
                    current[p] += 1
                    if current[p] < old.used[c]:
                        left[p] = old.alpha[old.slot[c] + current[p]]
                if left[p] > 0.0:
                    step = min(step, left[p])
                    stamp = max(stamp, old.stamp[old.slot[c] + current[p]])
                    _write_stretch(old, before, c, current[p], parts, k, y)
            if step == np.inf:
                break
            j = insert(stretches, form, ws, k, y, stamp, FREE_SLOTS_ONLY, scratch)
            if j >= 0:
                ws.alpha[s + j] += step
                ws.stamp[s + j] = max(ws.stamp[s + j], stamp)
            for p in range(b - a):
                left[p] -= min(step, left[p])
        for c in range(a, b):
            for j in range(old.used[c]):
                p = old.slot[c] + j
                copy(gold, y)
                if old.alpha[p] == 0.0 and _write_stretch(old, before, c, j, parts, k, y):
                    stamp = 0 + old.stamp[p]  # an int64, as above: one kind to compile
                    insert(stretches, form, ws, k, y, stamp, FREE_SLOTS_ONLY, scratch)
        copy(parts.found[lo : lo + ws.length[k]], y)
        insert(stretches, form, ws, k, y, clock, FREE_SLOTS_ONLY, scratch)


def find_parts(
    old: WorkingSet, before: Parts, since: int, covered: Array
) -> tuple[Array, Array, Array, Array]:
    """New parts for what is ``covered`` and what planes in use cover, and their planes.

    Where they begin and end, and from which old part on and up to which they have their planes.
    """
    _cover(old, before, since, covered)
    # Maximal runs of covered positions, inside examples.
    edge = np.zeros(len(covered) + 1, dtype=bool)
    edge[before.base] = True
    begins, ends = covered.copy(), covered.copy()
    begins[1:] &= ~covered[:-1] | edge[1:-1]
    ends[:-1] &= ~covered[1:] | edge[1:-1]
    start, stop = np.flatnonzero(begins), np.flatnonzero(ends) + 1
    first = np.searchsorted(before.stop, start, side="right")
    return start, stop, first, np.searchsorted(before.start, stop, side="left")


def regroup(
    compiled: Compiled,
    form: Formulation,
    old: WorkingSet,
    before: Parts,
    clock: int,
    patience: int,
    scratch: Array,
    join: bool = False,
) -> tuple[Parts, WorkingSet, Array, Array]:
    """Parts for the planes in use and for what decoding found; or all parts of an example joined.

    Planes without mass that lie in no single new part are dropped. Also returns from which old part
    on and up to which the new ones have their planes, and which are the same as before.
    """
    differs = before.found != before.gold
    start, stop, a, b = find_parts(old, before, clock - patience, differs | join)
    parts, lengths = place_parts(before, start, stop)
    n_differs = np.concatenate([[0], np.cumsum(differs)])
    copies = not join and len(old.gram) > 0
    same = (b - a == 1) & (n_differs[stop] == n_differs[start]) & copies
    kept = np.flatnonzero(same)
    same[kept] = (before.start[a[kept]] == start[kept]) & (before.stop[a[kept]] == stop[kept])
    kept = np.flatnonzero(same)
    known = np.concatenate([[0], np.cumsum(old.used)])
    needed = np.maximum(known[b] - known[a] + 1, blocks.FIRST_CAPACITY)
    capacity = 2 ** np.ceil(np.log2(needed)).astype(np.int64)
    blocks.mark_full(old, clock, patience)
    capacity[kept] = (old.capacity * np.where(old.wanted > 0, 2, 1))[a[kept]]
    ws = blocks.empty_working_set(lengths, capacity, gram=not join)
    blocks.copy_without_grams(old, a[kept], ws, kept)
    sources = np.stack([a, b], axis=1)
    posed = pose(compiled, form, parts)
    _fill_parts(*posed, old, before, sources, same, ws, parts, clock, scratch)
    before.found[:] = before.gold
    before.waiting[:] = 0
    return parts, ws, sources, same


class SDMInParts(PlaneSolver):
    """Sequential dual method over planes of parts; margin rescaling, C finite."""

    name = "sdm"
    slacks: ClassVar[tuple[str, ...]] = ("max",)
    rescalings: ClassVar[tuple[str, ...]] = ("margin",)
    soft_only = "parts need a bound on their mass"
    in_parts = True
    admits = True  # whether a certificate may make new parts
    tangled = False  # whether pieces stay pieces after the first passes
    Options = SDM.Options
    saved_numbers = SDM.saved_numbers
    saved_arrays = tuple(name for name in SDM.saved_arrays if name != "gaps")

    def _begin(self, start: Any) -> None:
        super()._begin(start)
        take_pair_steps(self)
        self.plan_stages_by_sample()

    def take_over(self, start: Any) -> WorkingSet:
        # Of the averaging sum, that of planes no longer there; empty where there is none.
        self.lost = np.zeros(0)
        self.late: list[Array] = []  # examples with positions that wait for a part
        self.n_waiting = 0  # such positions
        self.parts = whole_examples(self.compiled)
        if isinstance(start, WorkingSet):
            self._set(self.parts, start, self.gaps)
            self.make_room()
        else:
            if start is None:
                whole = self.parts.start, self.parts.stop
                pieces = cut_into_pieces(self.parts) if self.compiled.breakable else whole
                _, lengths = place_parts(self.parts, *pieces)
                start = PartSet(blocks.empty_working_set(lengths), *pieces)
            self._place(start, np.zeros(len(start.start)))
        return self.ws

    def _set(self, new: Parts, ws: WorkingSet, gaps: Array) -> None:
        posed = pose(self.compiled, self.form, new)
        # No call in between, so that an interruption leaves all of it or nothing.
        self.parts, self.ws, self.gaps = new, ws, gaps
        self.block_problem, self._form = posed

    def _place(self, known: PartSet, gaps: Array) -> None:
        """Take over planes of parts, after a check that they fit."""
        start, stop = known.start, known.stop
        placed, lengths = place_parts(self.parts, start, stop)
        room = placed.base[placed.owner + 1] - stop
        apart = start[1:] > stop[:-1] - (placed.owner[1:] != placed.owner[:-1])
        if not ((start >= 0) & (start < stop) & (room >= 0)).all() or not apart.all():
            raise KeyError("parts that lie apart")
        fresh = blocks.empty_working_set(lengths)
        self._set(placed, blocks.planes_from(known.ws._asdict(), fresh, self.compiled.end), gaps)

    def make_room(self) -> None:
        """Fit the parts to the planes in use and to what decoding found."""
        if self.early:
            super().make_room()
            if self.clock >= FIRST_PASSES:
                left = (self._tangle() - TANGLED) * float(self.gaps.sum())
                self.tangled = left > SOLVED * self.linear()
            self.parts.found[:] = self.parts.gold
            return
        known = (self.ws, self.parts, self.clock, self.patience, self.workers.scratch[0])
        new, ws, sources, same = regroup(self.compiled, self.form, *known)
        gone = np.ones(len(self.gaps), dtype=bool)
        gone[sources[same, 0]] = False
        drift = np.where(np.repeat(gone, self.ws.capacity), self.ws.drift, 0.0)
        if drift.any():
            if not len(self.lost):
                self.lost = np.zeros(len(self.w))
            self.add(drift, 1.0, self.lost)
        sums = np.concatenate([[0.0], np.cumsum(self.gaps)])
        gaps = np.maximum(sums[sources[:, 1]] - sums[sources[:, 0]], 0.0)
        gaps[~same] += gaps.sum() / max(len(gaps), 1)  # worth a visit
        self._set(new, ws, gaps)
        self.late, self.n_waiting = [], 0

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        old = before.multipliers
        if not isinstance(old, PartSet) or not before.same_planes(compiled, form):
            return super().start_from(before, compiled, form)
        ws = WorkingSet(*(table.copy() for table in old.ws))
        placed, _ = place_parts(whole_examples(compiled), old.start, old.stop)
        known, now = restrict(before.form, placed), restrict(form, placed)
        ws.alpha[:] = carry_over(known, now, ws.alpha, ws.capacity)
        ws.drift[:], ws.stamp[:] = 0.0, 0
        return old._replace(ws=ws)

    @property
    def early(self) -> bool:
        """Whether parts are pieces still."""
        return self.fresh and (self.clock <= FIRST_PASSES or self.tangled)

    def _tangle(self) -> float:
        """With how many others a piece would share a part if wrong places between join them."""
        covered = self.parts.found != self.parts.gold
        _, _, first, last = find_parts(self.ws, self.parts, self.clock - self.patience, covered)
        joined = last - first  # pieces to a part; one falls apart into parts of its own, too
        return float((joined * (joined - 1)).sum()) / max(len(self.gaps), 1)

    @property
    def active_blocks(self) -> Array:
        return np.arange(len(self.gaps))

    @property
    def plane_size(self) -> float:
        shown = float(self.ws.length.sum()) / max(len(self.gaps), 1)
        return self.compiled.size * shown / len(self.parts.gold)

    def by_block(self, form: Formulation) -> Formulation:
        return self._form if form is self.form else restrict(form, self.parts)

    def find(self, order: Array, patience: int, epsilon: float = -1.0) -> None:
        known = (self.form, self.block_problem, self._form, self.ws, self.parts)
        asked = (self.w, self.early, self.clock, patience, SCRATCH, self.violation)
        self.over(order, find_stretches, *known, PART, *asked)

    def blocks_of(self, examples: Array) -> Array:
        known = self.known_blocks_of(examples)
        if not self._crowded:
            return known
        late = np.concatenate([examples, *self.late[:-1]])
        self.make_room()
        return self._parts_of(late)

    def known_blocks_of(self, examples: Array) -> Array:
        waiting = self.parts.waiting[examples]
        self.n_waiting += int(waiting.sum())
        self.late.append(examples[waiting > 0])
        return self._parts_of(examples)

    def admit(self) -> Array:
        if not self._crowded:
            return super().admit()
        late = np.concatenate([self.active[:0], *self.late])  # none where all is right
        self.make_room()
        return self._parts_of(late)

    @property
    def _crowded(self) -> bool:
        """Whether so much waits for a part that new ones are worth making."""
        return 2 * self.n_waiting >= len(self.gaps)

    def _parts_of(self, examples: Array) -> Array:
        first = self.parts.first
        return spread(first[examples], first[examples + 1] - first[examples])

    def mean_square(self) -> float:
        if not self.n_planes:
            self.find(self.active[:100], self.patience)
            self.make_room()
        return super().mean_square()

    def _find_violations(self) -> None:
        super()._find_violations()
        if self.early:  # a run that is taken up again does not know what was wrong here
            self.parts.found[:] = self.parts.gold
        elif self.admits:
            self.make_room()

    def primal_of(self, weights: Array) -> float:
        # Not weights of this run: at 0 all is wrong, and all parts of an example would be joined.
        self.admits = False
        try:
            return super().primal_of(weights)
        finally:
            self.admits = True
            self.parts.found[:] = self.parts.gold
            self.parts.waiting[:] = 0

    def _add_drift(self, out: Array, back: bool = False) -> None:
        super()._add_drift(out, back)
        if len(self.lost):
            factor = 1.0 / (self.visits * (self.visits + 1.0))
            out += (factor if back else -factor) * self.lost

    def restart_average(self) -> None:
        super().restart_average()
        self.lost = np.zeros(0)

    def memory(self) -> Any:
        return PartSet(self.ws, self.parts.start, self.parts.stop)

    def tables(self) -> dict[str, Array]:
        own = {"start": self.parts.start, "stop": self.parts.stop}
        own |= {"part_gaps": self.gaps, "lost": self.lost, "tangled": np.array([self.tangled])}
        return {**super().tables(), **own}

    def set_tables(self, tables: dict[str, Array]) -> None:
        ws = WorkingSet(*(tables[name] for name in WorkingSet._fields))
        start, stop, gaps, lost = (tables[n] for n in ("start", "stop", "part_gaps", "lost"))
        if not (start.dtype == stop.dtype == np.int64 and start.shape == stop.shape == gaps.shape):
            raise KeyError("start, stop and part_gaps of one shape")
        self._place(PartSet(ws, start, stop), gaps)
        self.lost = lost if lost.any() else np.zeros(0)
        self.tangled = bool(tables["tangled"].any())
