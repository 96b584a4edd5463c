"""The dual state: for each example the planes found so far, their multipliers and Gram matrix.

Everything lies in flat pools. Example i owns ``capacity[i]`` slots from ``slot[i]`` on, of which
``used[i]`` are in use; plane j of it is the output ``y[y_start[i] + j·length …]`` and row j of the
``capacity × capacity`` block of inner products ``a_j Δf_j · a_k Δf_k`` from ``gram_start[i]`` on.
Kernels never allocate: an example that finds no free slot raises ``wanted`` and gets more room
from :func:`make_room` between two passes. A plane is only overwritten while its multiplier is 0.

Solvers that want no inner products leave the pool of Gram blocks empty.

Gram matrices are float64: with float32 the curvature between two outputs of nearly equal features
drowns in rounding, and steps overshoot until the solver stalls (seen at a gap of 1 %).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.core.formulations import Formulation, plane_offset, plane_scale
from hingeline.core.primitives import plane_loss, plane_sqdist, truth

Array = np.ndarray[Any, Any]

FIRST_CAPACITY = 4

#: As ``patience``: planes are never dropped, sets only grow.
KEEP = 2**30
#: As ``patience``: take free slots only, overwrite no plane and ask for no room.
FREE_SLOTS_ONLY = -1


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
    n = len(lengths)
    room = np.broadcast_to(np.asarray(capacity, dtype=np.int64), (n,)).copy()

    def starts(sizes: Array) -> tuple[Array, int]:
        ends = np.cumsum(sizes)
        return (ends - sizes).astype(np.int64), int(ends[-1]) if n else 0

    slot, n_slots = starts(room)
    y_start, n_y = starts(room * lengths)
    gram_start, n_gram = starts(room * room * int(gram))
    return WorkingSet(
        length=lengths,
        capacity=room,
        used=np.zeros(n, dtype=np.int64),
        slot=slot,
        y_start=y_start,
        gram_start=gram_start,
        wanted=np.zeros(n, dtype=np.int8),
        alpha=np.zeros(n_slots),
        offset=np.zeros(n_slots),
        scale=np.zeros(n_slots),
        sqnorm=np.zeros(n_slots),
        drift=np.zeros(n_slots),
        stamp=np.zeros(n_slots, dtype=np.int32),
        y=np.zeros(n_y, dtype=np.int32),
        gram=np.zeros(n_gram),
    )


@kernel
def copy_planes(old: WorkingSet, new: WorkingSet) -> None:
    """Take over all planes; ``new`` has room for them, and may have more examples.

    Inner products that ``old`` does not have are left zero, for :func:`fill_gram`.
    """
    for i in range(old.used.shape[0]):
        m = old.used[i]
        new.used[i] = m
        s = old.slot[i]
        t = new.slot[i]
        for j in range(m):
            new.alpha[t + j] = old.alpha[s + j]
            new.offset[t + j] = old.offset[s + j]
            new.scale[t + j] = old.scale[s + j]
            new.sqnorm[t + j] = old.sqnorm[s + j]
            new.drift[t + j] = old.drift[s + j]
            new.stamp[t + j] = old.stamp[s + j]
            if new.gram.shape[0] > 0 and old.gram.shape[0] > 0:
                p = old.gram_start[i] + j * old.capacity[i]
                q = new.gram_start[i] + j * new.capacity[i]
                for k in range(m):
                    new.gram[q + k] = old.gram[p + k]
        p = old.y_start[i]
        q = new.y_start[i]
        for k in range(m * old.length[i]):
            new.y[q + k] = old.y[p + k]


@helper
def _idle(ws: WorkingSet, slot: int, clock: int, patience: int) -> bool:
    """Whether a plane may go: no mass for long, and no share in the averaged weights."""
    return ws.alpha[slot] == 0.0 and ws.drift[slot] == 0.0 and ws.stamp[slot] + patience <= clock


@kernel
def _mark_full(ws: WorkingSet, clock: int, patience: int) -> None:
    """Ask for room where the next new plane would find neither a free slot nor an idle one."""
    for i in range(ws.used.shape[0]):
        if ws.used[i] < ws.capacity[i]:
            continue
        s = ws.slot[i]
        full = True
        for j in range(ws.used[i]):
            if _idle(ws, s + j, clock, patience):
                full = False
        if full:
            ws.wanted[i] = 1


def make_room(ws: WorkingSet, clock: int, patience: int, most: int | None = None) -> WorkingSet:
    """The same planes, with twice the room for every example whose slots are all in use.

    ``most`` is the largest number of slots that an example is given.
    """
    _mark_full(ws, clock + 1, patience)
    if most is not None:
        ws.wanted[ws.capacity >= most] = 0
    if not ws.wanted.any():
        return ws
    twice = 2 * ws.capacity if most is None else np.minimum(2 * ws.capacity, most)
    capacity = np.where(ws.wanted > 0, twice, ws.capacity)
    new = empty_working_set(ws.length, capacity, gram=len(ws.gram) > 0)
    copy_planes(ws, new)
    return new


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
        if _idle(ws, s + j, clock, patience) and (
            oldest < 0 or ws.stamp[s + j] < ws.stamp[s + oldest]
        ):
            oldest = j
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
    length = ws.length[i]
    gold = np.empty(length, dtype=np.int32)
    truth(problem, i, gold)
    sqnorm = plane_sqdist(problem, i, gold, y, scratch)
    if sqnorm <= 0.0 and loss == 0.0:
        return -1  # the true output itself, or one that cannot be told from it
    j = _free_slot(ws, i, clock, patience)
    if j < 0:
        return -1
    at = ws.y_start[i] + j * length
    for k in range(length):
        ws.y[at + k] = y[k]
    s = ws.slot[i]
    ws.alpha[s + j] = 0.0
    ws.drift[s + j] = 0.0
    ws.offset[s + j] = plane_offset(form, loss)
    ws.scale[s + j] = scale
    ws.sqnorm[s + j] = sqnorm
    ws.stamp[s + j] = clock
    if ws.gram.shape[0] == 0:
        return j
    room = ws.capacity[i]
    g = ws.gram_start[i]
    for k in range(ws.used[i]):
        if k == j:
            inner = sqnorm
        else:
            apart = plane_sqdist(problem, i, y, plane(ws, i, k), scratch)
            inner = 0.5 * (sqnorm + ws.sqnorm[s + k] - apart)
        value = scale * ws.scale[s + k] * inner
        ws.gram[g + j * room + k] = value
        ws.gram[g + k * room + j] = value
    return j


@kernel
def fill_gram(problem: Any, ws: WorkingSet, examples: Array, scratch: Array) -> None:
    """Inner products of the planes of some examples, where they are missing or out of date."""
    for i in examples:
        s = ws.slot[i]
        g = ws.gram_start[i]
        room = ws.capacity[i]
        for j in range(ws.used[i]):
            for k in range(j + 1):
                inner = ws.sqnorm[s + j]
                if k < j:
                    apart = plane_sqdist(problem, i, plane(ws, i, j), plane(ws, i, k), scratch)
                    inner = 0.5 * (inner + ws.sqnorm[s + k] - apart)
                value = ws.scale[s + j] * ws.scale[s + k] * inner
                ws.gram[g + j * room + k] = value
                ws.gram[g + k * room + j] = value


def check_planes(ws: WorkingSet, fresh: WorkingSet) -> WorkingSet:
    """Refuse planes whose tables do not fit together: kernels do not look before they read."""
    for name in WorkingSet._fields:
        if getattr(ws, name).dtype != getattr(fresh, name).dtype:
            raise KeyError(f"{name} of type {getattr(fresh, name).dtype}")
    ends = np.cumsum(ws.capacity)
    squares = ws.capacity**2 * int(len(fresh.gram) > 0)
    fits = (
        np.array_equal(ws.length, fresh.length)
        and all(getattr(ws, n).shape == fresh.used.shape for n in WorkingSet._fields[:7])
        and ((ws.capacity >= 0) & (ws.used >= 0) & (ws.used <= ws.capacity)).all()
        and np.array_equal(ws.slot, ends - ws.capacity)
        and np.array_equal(ws.y_start, np.cumsum(ws.capacity * ws.length) - ws.capacity * ws.length)
        and np.array_equal(ws.gram_start, np.cumsum(squares) - squares)
        and all(getattr(ws, n).shape == (ends[-1],) for n in WorkingSet._fields[7:13])
        and ws.y.shape == (int((ws.capacity * ws.length).sum()),)
        and ws.gram.shape == (int(squares.sum()),)
        and (len(ws.y) == 0 or ws.y.min() >= 0)
    )
    if not fits:
        raise KeyError("planes that fit together")
    return ws
