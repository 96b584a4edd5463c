"""The block of one example: its planes and multipliers, and what happens when it is visited.

Everything lies in flat pools. Example i owns ``capacity[i]`` slots from ``slot[i]`` on, of which
``used[i]`` are in use; plane j of it is the output ``y[y_start[i] + j·length …]`` and row j of the
``capacity × capacity`` block of inner products ``a_j Δf_j · a_k Δf_k`` from ``gram_start[i]`` on.
Kernels never allocate: an example that finds no free slot raises ``wanted`` and gets more room
from :func:`make_room` between two passes. A plane is only overwritten while its multiplier is 0.
Solvers that want no inner products leave the pool of Gram blocks empty.

Gram matrices are float64: with float32 the curvature between two outputs of nearly equal features
drowns in rounding, and steps overshoot until the solver stalls (seen at a gap of 1 %).

A visit opens the block (hinges, slack and gap of its planes at the weights of the moment), lets a
*rule* move mass between the planes on their Gram matrix, and closes it: multipliers, stamps, the
averaging sums, and the weights, which are touched once. Rules are ``NamedTuple`` classes that
solvers register; kernels find the code of a rule by its class, as they do for structures. Nothing
but its ``step`` tells one solver of planes from another.

Averaging. With iterates ``w_1 … w_K`` (one a visit) the average with weights ∝ k is
``w̄ = w_K − u/(K(K+1))`` for ``u = Σ_k k(k−1)·(w_k − w_{k−1})``. The sum is kept per plane
(``drift``), not per weight: it costs nothing at a visit and no second copy of the weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_class, by_reference, helper, kernel
from hingeline._simd import copy
from hingeline.core.formulations import (
    Formulation,
    add_hinge,
    example_gap,
    most_violated,
    most_violated_sum,
    plane_offset,
    plane_scale,
)
from hingeline.core.primitives import (
    output_length,
    plane_add,
    plane_loss,
    plane_sqdist,
    planes_add,
    planes_score,
    truth,
)

FIRST_CAPACITY = 4
#: Inner products of outputs longer than this are computed for all planes at once.
LONG = 64

#: As ``patience``: planes are never dropped, sets only grow.
KEEP = 2**30
#: As ``patience``: take free slots only, overwrite no plane and ask for no room.
FREE_SLOTS_ONLY = -1


@by_reference
class WorkingSet(NamedTuple):
    """Planes, multipliers and Gram blocks of all examples."""

    length: Array  # (n,) int64 length of an output
    capacity: Array  # (n,) int64
    used: Array  # (n,) int64
    slot: Array  # (n,) int64 first slot
    y_start: Array  # (n,) int64
    gram_start: Array  # (n,) int64
    wanted: Array  # (n,) int8: found no room for a new plane
    alpha: Array  # (slots,) multipliers
    offset: Array  # (slots,) b
    scale: Array  # (slots,) a
    sqnorm: Array  # (slots,) ‖Δf‖², not scaled
    drift: Array  # (slots,) Σ k(k−1)·(change of α at visit k), for the averaged weights
    stamp: Array  # (slots,) int32 last clock at which the plane was active
    y: Array  # int32 pool of outputs
    gram: Array  # pool

    @property
    def n_planes(self) -> int:
        """Planes in use."""
        return int(self.used.sum())


def empty_working_set(
    lengths: Array, capacity: Array | int = FIRST_CAPACITY, gram: bool = True
) -> WorkingSet:
    """A working set without planes, and on request without Gram blocks."""
    lengths = np.asarray(lengths, dtype=np.int64)
    room = np.broadcast_to(np.asarray(capacity, dtype=np.int64), lengths.shape).copy()
    sizes = room, room * lengths, room * room * int(gram)
    n_slots, n_y, n_gram = (int(part.sum()) for part in sizes)
    return WorkingSet(
        length=lengths,
        capacity=room,
        used=np.zeros_like(room),
        slot=starts_of(room),
        y_start=starts_of(sizes[1]),
        gram_start=starts_of(sizes[2]),
        wanted=np.zeros(len(room), dtype=np.int8),
        **{name: np.zeros(n_slots) for name in ("alpha", "offset", "scale", "sqnorm", "drift")},
        stamp=np.zeros(n_slots, dtype=np.int32),
        y=np.zeros(n_y, dtype=np.int32),
        gram=np.zeros(n_gram),
    )


def starts_of(sizes: Array) -> Array:
    """Where things of these sizes begin, one after the other."""
    return np.cumsum(sizes) - sizes


def spread(starts: Array, counts: Array) -> Array:
    """``starts[i], starts[i] + 1, …`` with ``counts[i]`` terms, one after the other."""
    return np.arange(counts.sum()) + np.repeat(starts - starts_of(counts), counts)


def copy_planes(old: WorkingSet, lengths: Array, capacity: Array, gram: bool) -> WorkingSet:
    """All planes with room for these; there may be more examples.

    Inner products that ``old`` does not have are left zero, for :func:`fill_gram`.
    """
    new = empty_working_set(lengths, capacity, gram)
    every = np.arange(len(old.used))
    copy_without_grams(old, every, new, every)
    if len(new.gram) and len(old.gram):
        for lo in range(0, len(every), 4096):  # some at a time: places take memory, too
            some = every[lo : lo + 4096]
            used = old.used[some]
            rows, owners = spread(np.zeros_like(used), used), np.repeat(some, used)
            there, here = (ws.gram_start[owners] + rows * ws.capacity[owners] for ws in (new, old))
            new.gram[spread(there, old.used[owners])] = old.gram[spread(here, old.used[owners])]
    return new


def copy_without_grams(old: WorkingSet, source: Array, new: WorkingSet, target: Array) -> None:
    """Take over the planes of some examples, which may have other numbers now."""
    used = old.used[source]
    new.used[target] = used
    here, there = spread(old.slot[source], used), spread(new.slot[target], used)
    for name in ("alpha", "offset", "scale", "sqnorm", "drift", "stamp"):
        getattr(new, name)[there] = getattr(old, name)[here]
    sizes = used * old.length[source]
    new.y[spread(new.y_start[target], sizes)] = old.y[spread(old.y_start[source], sizes)]


def mark_full(ws: WorkingSet, clock: int, patience: int) -> None:
    """Raise ``wanted`` also where a new plane would find neither a free slot nor an idle one."""
    idle = (ws.alpha == 0.0) & (ws.drift == 0.0) & (ws.stamp <= clock + 1 - patience)
    ws.wanted[(ws.used == ws.capacity) & ~np.logical_or.reduceat(idle, ws.slot)] = 1


def make_room(ws: WorkingSet, clock: int, patience: int, most: int = KEEP) -> WorkingSet:
    """The same planes, twice the room, ``most`` slots, for examples whose slots are all in use."""
    mark_full(ws, clock, patience)
    ws.wanted[ws.capacity >= most] = 0
    if not ws.wanted.any():
        return ws
    capacity = np.where(ws.wanted > 0, np.minimum(2 * ws.capacity, most), ws.capacity)
    return copy_planes(ws, ws.length, capacity, len(ws.gram) > 0)


@helper
def plane(ws: WorkingSet, i: int, j: int) -> Array:
    """The output of plane j of example i."""
    at = ws.y_start[i] + j * ws.length[i]
    return ws.y[at : at + ws.length[i]]


@helper
def planes(ws: WorkingSet, i: int) -> Array:
    """The outputs of all planes of example i, (count, length)."""
    at = ws.y_start[i]
    return ws.y[at : at + ws.used[i] * ws.length[i]].reshape((ws.used[i], ws.length[i]))


@helper
def find(ws: WorkingSet, i: int, y: Array) -> int:
    """Which plane of example i is y; −1 if none."""
    length = ws.length[i]
    for j in range(ws.used[i]):
        at = ws.y_start[i] + j * length
        k = 0
        while k < length and ws.y[at + k] == y[k]:
            k += 1
        if k == length:
            return j
    return -1


@helper
def _free_slot(ws: WorkingSet, i: int, clock: int, patience: int) -> int:
    """A slot for a new plane: an unused one, or that of a plane long idle; −1 if none."""
    if ws.used[i] < ws.capacity[i]:
        ws.used[i] += 1
        return ws.used[i] - 1
    oldest = -1
    if patience == FREE_SLOTS_ONLY:
        return oldest
    s = ws.slot[i]
    for j in range(ws.used[i]):
        # No mass for long, and no share in the averaged weights.
        mass = ws.alpha[s + j] != 0.0 or ws.drift[s + j] != 0.0
        if not mass and ws.stamp[s + j] + patience <= clock:
            older = oldest < 0 or ws.stamp[s + j] < ws.stamp[s + oldest]
            oldest = j if older else oldest
    if oldest < 0:
        ws.wanted[i] = 1
    return oldest


@helper
def insert(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    i: int,
    y: Array,
    clock: int,
    patience: int,
    scratch: Array,
) -> int:
    """Add the plane of output y; its index, or −1 where it is void or finds no room."""
    known = find(ws, i, y)
    if known >= 0:
        return known
    loss = plane_loss(problem, i, y)
    scale = plane_scale(form, loss)
    if scale == 0.0:
        return -1
    gold = np.empty(ws.length[i], dtype=np.int32)
    truth(problem, i, gold)
    sqnorm = plane_sqdist(problem, i, gold, y, scratch)
    if sqnorm <= 0.0 and loss == 0.0:
        return -1  # the true output itself, or one that cannot be told from it
    j = _free_slot(ws, i, clock, patience)
    if j < 0:
        return -1
    copy(y, plane(ws, i, j))
    s = ws.slot[i] + j
    ws.alpha[s] = ws.drift[s] = 0.0
    ws.offset[s], ws.scale[s] = plane_offset(form, loss), scale
    ws.sqnorm[s], ws.stamp[s] = sqnorm, clock
    if ws.gram.shape[0] > 0:
        fill_row(problem, ws, i, j, scratch)
    return j


@helper
def fill_row(problem: Any, ws: WorkingSet, i: int, j: int, scratch: Array) -> None:
    """The inner products of plane j of example i with all its planes.

    One by one they cost the sum of what the planes differ in; where outputs are long and planes
    many, as a vector of weights that all planes score at once.
    """
    m, s = ws.used[i], ws.slot[i]
    if ws.length[i] <= LONG or m < 4 or scratch.shape[0] > m * ws.length[i]:
        for k in range(m):
            fill_inner(problem, ws, i, j, k, scratch)
        return
    inner = np.empty(m)
    plane_add(problem, i, plane(ws, i, j), ws.scale[s + j], scratch)
    planes_score(problem, i, planes(ws, i), scratch, inner)
    scratch[:] = 0.0
    g, room = ws.gram_start[i], ws.capacity[i]
    inner[j] = ws.scale[s + j] * ws.sqnorm[s + j]
    for k in range(m):
        value = inner[k] * ws.scale[s + k]
        ws.gram[g + j * room + k] = value
        ws.gram[g + k * room + j] = value


@helper
def fill_inner(problem: Any, ws: WorkingSet, i: int, j: int, k: int, scratch: Array) -> None:
    """The inner product of planes j and k of example i."""
    s = ws.slot[i]
    inner = ws.sqnorm[s + j]
    if k != j:
        apart = plane_sqdist(problem, i, plane(ws, i, j), plane(ws, i, k), scratch)
        inner = 0.5 * (inner + ws.sqnorm[s + k] - apart)
    value = ws.scale[s + j] * ws.scale[s + k] * inner
    g, room = ws.gram_start[i], ws.capacity[i]
    ws.gram[g + j * room + k] = value
    ws.gram[g + k * room + j] = value


@kernel
def fill_gram(problem: Any, ws: WorkingSet, examples: Array, scratch: Array) -> None:
    """Inner products of the planes of some examples, where they are missing or out of date."""
    for i in examples:
        for j in range(ws.used[i]):
            for k in range(j + 1):
                fill_inner(problem, ws, i, j, k, scratch)


def planes_from(tables: dict[str, Array], fresh: WorkingSet, end: float) -> WorkingSet:
    """The planes of these tables, which must fit together: kernels do not look before they read.

    ``end`` is that of :class:`hingeline.core.primitives.Compiled`.
    """
    ws = WorkingSet(**{name: tables[name] for name in WorkingSet._fields})
    for name in WorkingSet._fields:
        if getattr(ws, name).dtype != getattr(fresh, name).dtype:
            raise KeyError(f"{name} of type {getattr(fresh, name).dtype}")
    fits = (
        np.array_equal(ws.length, fresh.length)
        and all(getattr(ws, n).shape == fresh.used.shape for n in WorkingSet._fields[:7])
        and ((ws.capacity > 0) & (ws.used >= 0) & (ws.used <= ws.capacity)).all()
        and all(getattr(ws, n).shape == ws.alpha.shape for n in WorkingSet._fields[7:13])
        and (end == np.inf or (ws.y.min(initial=0) >= 0 and ws.y.max(initial=0) < end))
    )
    if fits:
        room, pools = ws.capacity, (ws.alpha, ws.y, ws.gram)
        sizes = room, room * ws.length, room**2 * int(len(fresh.gram) > 0)
        for starts, pool, size in zip(ws[3:6], pools, sizes, strict=True):
            fits = fits and np.array_equal(starts, starts_of(size)) and pool.shape == (size.sum(),)
    if not fits:
        raise KeyError("planes that fit together")
    return ws


_STEPS: dict[type, Callable[..., tuple[bool, float]]] = {}
#: The same as entry points: structures in plain Python should not wait for these loops, too.
_ENTRY_POINTS: dict[type, Callable[..., tuple[bool, float]]] = {}


def register_rule(rule: type, step: Callable[..., tuple[bool, float]]) -> None:
    """Tell the kernels how a rule moves mass; ``step`` has the arguments of :func:`step`."""
    _STEPS[rule] = step
    _ENTRY_POINTS[rule] = kernel(step)


class Mass(NamedTuple):
    """The mass of one example, and what bounds it."""

    total: float  # the sum of its multipliers
    cap: float
    ridge: float


def step(
    rule: Any, gram: Array, alpha: Array, before: Array, gradient: Array, mass: Mass
) -> tuple[bool, float]:
    """Move mass between the planes of one example; whether there was a reason to, and a result.

    ``gram`` holds their inner products without the ridge, ``before`` is a copy of ``alpha``, and
    ``gradient`` is ``h − ridge·total``; both change in place. What the result means is the rule's
    own affair.
    """
    return _ENTRY_POINTS[type(rule)](rule, gram, alpha, before, gradient, mass)


by_class(step, _STEPS.get)


@helper
def visit(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    rule: Any,
    i: int,
    w: Array,
    coefficient: float,
    clock: int,
    gaps: Array,
) -> float:
    """Let a rule move the mass of example i, and carry the change into w; the rule's result.

    ``gaps[i]`` becomes the gap that the example had before, over the planes it knows.
    """
    gaps[i] = 0.0
    m = ws.used[i]
    if m == 0:
        return 0.0
    s, g, room = ws.slot[i], ws.gram_start[i], ws.capacity[i]
    gram = ws.gram[g : g + room * room].reshape((room, room))
    alpha = ws.alpha[s : s + m]
    before = alpha.copy()
    ys = planes(ws, i)
    values = np.empty(m)
    planes_score(problem, i, ys, w, values)
    total = 0.0
    for j in range(m):
        total += alpha[j]
    slack = linear = 0.0
    for j in range(m):
        values[j] = ws.offset[s + j] - ws.scale[s + j] * values[j]
        slack = add_hinge(form, slack, values[j])
        linear += alpha[j] * values[j]
    gaps[i] = example_gap(form, i, slack, total, linear)
    ridge = form.ridge[i]
    if ridge > 0.0:
        for j in range(m):
            values[j] -= ridge * total
    moved, result = step(rule, gram, alpha, before, values, Mass(total, form.cap[i], ridge))
    if not moved:
        return result
    changed = False
    for j in range(m):
        if alpha[j] > 0.0:
            ws.stamp[s + j] = clock
        change = alpha[j] - before[j]
        changed = changed or change != 0.0
        ws.drift[s + j] += coefficient * change
        values[j] = ws.scale[s + j] * change
    if changed:
        planes_add(problem, i, ys, values, w)
    return result


@kernel
def move_mass(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    rule: Any,
    order: Array,
    w: Array,
    visits: float,
    averaged: float,
    clock: int,
    gaps: Array,
) -> float:
    """Visit the examples of ``order`` in turn; the sum of the rule's results.

    ``visits`` were made before, for the average (``averaged`` is 1, or 0 where there is none).
    """
    total = 0.0
    for i in order:
        visits += 1.0
        coefficient = averaged * visits * (visits - 1.0)
        total += visit(problem, form, ws, rule, i, w, coefficient, clock, gaps)
    return total


@helper
def slack_of_known(problem: Any, form: Formulation, ws: WorkingSet, i: int, w: Array) -> float:
    """The slack of example i over the planes it has."""
    m, s = ws.used[i], ws.slot[i]
    scores = np.empty(m)
    if m > 0:
        planes_score(problem, i, planes(ws, i), w, scores)
    slack = 0.0
    for j in range(m):
        slack = add_hinge(form, slack, ws.offset[s + j] - ws.scale[s + j] * scores[j])
    return slack


@kernel
def find_planes(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    epsilon: Any,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """Decode the examples of ``order`` against w and put what is violated into their sets.

    Writes ``violation[i] = max(0, max_y H_i(y))``. Examples are independent here, so parts of
    ``order`` may run in threads. ``epsilon`` None is for hinges that are sums of score and loss,
    which most runs have: kernels compiled for it leave the rest out. Otherwise a plane enters if
    its hinge exceeds that of all planes known by more than ``epsilon``; with a negative one, which
    spares the comparison, if it is violated at all.
    """
    for i in order:
        y, known = np.empty(output_length(problem, i), dtype=np.int32), 0.0
        if epsilon is None:
            h = most_violated_sum(problem, form, i, w, 1.0, y)
        else:
            h = most_violated(problem, form, i, w, 1.0, y)
            if h > 0.0 and epsilon >= 0.0:
                known = slack_of_known(problem, form, ws, i, w) + epsilon
        violation[i] = max(h, 0.0)
        if h > known:
            insert(problem, form, ws, i, y, clock, patience, scratch)


@kernel
def add_planes(problem: Any, ws: WorkingSet, masses: Array, factor: float, w: Array) -> None:
    """``w += factor · Σ mass·a·Δf`` with one mass per slot (multipliers, or their drift)."""
    for i in range(ws.used.shape[0]):
        m, s = ws.used[i], ws.slot[i]
        steps, some = np.empty(m), False
        for j in range(m):
            steps[j] = factor * masses[s + j] * ws.scale[s + j]
            some = some or steps[j] != 0.0
        if some:
            planes_add(problem, i, planes(ws, i), steps, w)


@kernel
def write_planes(problem: Any, ws: WorkingSet, owners: Array, slots: Array, rows: Array) -> None:
    """Add ``a·Δf`` of the planes in these slots to the rows."""
    for r in range(slots.shape[0]):
        i = owners[r]
        y = planes(ws, i)[slots[r] - ws.slot[i]]
        plane_add(problem, i, y, ws.scale[slots[r]], rows[r])


@kernel
def score_planes(problem: Any, ws: WorkingSet, wanted: Array, w: Array, out: Array) -> None:
    """``a·w·Δf`` of every plane whose entry in ``wanted`` is not 0."""
    for i in range(ws.used.shape[0]):
        m, s = ws.used[i], ws.slot[i]
        if wanted[s : s + m].any():
            planes_score(problem, i, planes(ws, i), w, out[s : s + m])
            for j in range(m):
                out[s + j] *= ws.scale[s + j]
