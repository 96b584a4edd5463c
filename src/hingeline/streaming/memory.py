"""Multipliers of examples as blocks that come and go, and the weights that they make.

The dual is maximised over one example at a time with all others fixed, and the others enter only
through the weights. So a batch of new examples is a problem of its own that starts from the
weights of all: nothing seen before is touched, and the sum of the blocks is the dual state of all
examples. It is feasible whatever the order, and not yet optimal.

The average of the iterates (see :mod:`hingeline.solvers.sdm`) goes on from batch to batch:
``w̄ = w − u/(K(K+1))``, where ``u = Σ drift·a·Δf`` over the planes of all blocks. Multipliers and
drift per plane are therefore all there is to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline._simd import aligned_zeros
from hingeline.core.blocks import FREE_SLOTS_ONLY, WorkingSet, add_planes, empty_working_set, insert
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled, Layout
from hingeline.solvers.enumerated import add_all

Array = np.ndarray[Any, Any]

#: Multipliers of a block: planes, or a dense (examples, outputs) table.
Multipliers = WorkingSet | Array


@kernel
def copy_some(old: WorkingSet, chosen: Array, new: WorkingSet) -> None:
    """Planes with mass or drift of the chosen examples; ``new`` has room for exactly these."""
    for e in range(chosen.shape[0]):
        i = chosen[e]
        s = old.slot[i]
        t = new.slot[e]
        length = old.length[i]
        room = new.capacity[e]
        count = 0
        which = np.empty(old.used[i], dtype=np.int64)
        for j in range(old.used[i]):
            if old.alpha[s + j] != 0.0 or old.drift[s + j] != 0.0:
                which[count] = j
                count += 1
        for p in range(count):
            j = which[p]
            new.alpha[t + p] = old.alpha[s + j]
            new.offset[t + p] = old.offset[s + j]
            new.scale[t + p] = old.scale[s + j]
            new.sqnorm[t + p] = old.sqnorm[s + j]
            new.drift[t + p] = old.drift[s + j]
            if new.gram.shape[0] > 0:
                for q in range(count):
                    new.gram[new.gram_start[e] + p * room + q] = old.gram[
                        old.gram_start[i] + j * old.capacity[i] + which[q]
                    ]
            for k in range(length):
                new.y[new.y_start[e] + p * length + k] = old.y[old.y_start[i] + j * length + k]
        new.used[e] = count


def choose_planes(multipliers: Multipliers, chosen: Array) -> Multipliers:
    """The multipliers of some examples, without planes that count for nothing."""
    if isinstance(multipliers, np.ndarray):
        return multipliers[chosen]
    ws = multipliers
    counts = np.add.reduceat((ws.alpha != 0.0) | (ws.drift != 0.0), ws.slot, dtype=np.int64)
    new = empty_working_set(ws.length[chosen], np.maximum(counts[chosen], 1), len(ws.gram) > 0)
    copy_some(ws, np.ascontiguousarray(chosen, dtype=np.int64), new)
    return new


def join_multipliers(parts: Sequence[Multipliers], n_outputs: int | None) -> Multipliers:
    """Multipliers of blocks one after the other; dense where one of them is."""
    if n_outputs is not None and any(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([make_table(part, n_outputs) for part in parts])
    sets = [part for part in parts if isinstance(part, WorkingSet)]
    if len(sets) == 1:
        return sets[0]
    lengths = np.concatenate([ws.length for ws in sets])
    capacity = np.concatenate([ws.capacity for ws in sets])
    gram = all(len(ws.gram) > 0 for ws in sets)  # a solver may have done without
    layout = empty_working_set(lengths, capacity, gram)  # where everything begins
    kept = {"slot", "y_start", "gram_start", "length", "capacity"}
    return layout._replace(
        **{
            name: np.concatenate([getattr(ws, name) for ws in sets])
            for name in WorkingSet._fields
            if name not in kept and (gram or name != "gram")
        }
    )


def make_table(multipliers: Multipliers, n_outputs: int) -> Array:
    """A dense (examples, outputs) table; planes are single labels."""
    if isinstance(multipliers, np.ndarray):
        table = np.zeros((len(multipliers), n_outputs))
        table[:, : multipliers.shape[1]] = multipliers
        return table
    used, y, alpha, _ = list_planes(multipliers)
    table = np.zeros((len(used), n_outputs))
    np.add.at(table, (np.repeat(np.arange(len(used)), used), y), alpha)
    return table


def list_planes(multipliers: Multipliers) -> tuple[Array, Array, Array, Array]:
    """Planes per example, all outputs in one row, and the mass and drift of every plane."""
    if isinstance(multipliers, np.ndarray):
        rows, y = np.nonzero(multipliers)
        used = np.bincount(rows, minlength=len(multipliers))
        mass = multipliers[rows, y]
        return used.astype(np.int64), y.astype(np.int32), mass, np.zeros(len(mass))
    ws = multipliers
    slots = spread(ws.slot, ws.used)
    y = ws.y[spread(ws.y_start, ws.used * ws.length)]
    return ws.used.copy(), y, ws.alpha[slots], ws.drift[slots]


def spread(starts: Array, counts: Array) -> Array:
    """``starts[i], starts[i] + 1, …`` with ``counts[i]`` terms, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


def sum_masses(multipliers: Multipliers) -> Array:
    """``Σ_y α`` of every example."""
    if isinstance(multipliers, np.ndarray):
        return np.asarray(multipliers.sum(axis=1))
    return np.asarray(np.add.reduceat(multipliers.alpha, multipliers.slot))


def add_multipliers(
    problem: Any, form: Formulation, multipliers: Multipliers, factor: float, w: Array, drift: bool
) -> None:
    """``w += factor·Σ α·a·Δf``, or the same of the drift."""
    if isinstance(multipliers, np.ndarray):
        if not drift:
            add_all(problem, form, multipliers, factor, w)
        return
    add_planes(problem, multipliers, multipliers.drift if drift else multipliers.alpha, factor, w)


def clear_drift(multipliers: Any) -> None:
    """Let the average begin anew."""
    if isinstance(multipliers, WorkingSet):
        multipliers.drift[:] = 0.0
        multipliers.stamp[:] = 0


@kernel
def insert_all(
    problem: Any, form: Formulation, ws: WorkingSet, used: Array, y: Array, scratch: Array
) -> bool:
    """Add listed outputs as planes; False where one is void or there twice."""
    at = 0
    for i in range(used.shape[0]):
        for j in range(used[i]):
            plane = y[at : at + ws.length[i]]
            if insert(problem, form, ws, i, plane, 0, FREE_SLOTS_ONLY, scratch) != j:
                return False
            at += ws.length[i]
    return True


def restore_planes(
    compiled: Compiled, form: Formulation, used: Array, y: Array, mass: Array, drift: Array
) -> WorkingSet:
    """A working set from what :func:`list_planes` returned: everything else is computed anew."""
    ws = empty_working_set(compiled.lengths, np.maximum(used, 1))
    scratch = np.zeros(compiled.scratch_size)
    if not insert_all(compiled.problem, form, ws, used, y, scratch):
        raise ValueError("a plane of the stored state is there twice, or is no plane")
    slots = spread(ws.slot, ws.used)
    ws.alpha[slots] = mass
    ws.drift[slots] = drift
    return ws


class LiveWeights:
    """``w = Σ α·a·Δf`` and the sum ``u`` behind the average of its iterates.

    The layout is the structure's own. But the first block (features) has more rows than there are
    features, and rows may be longer than labels need, so that a feature or label that finds room
    moves nothing, or the few rows behind it. Without room the blocks are copied to a vector with
    half as many feature rows more, or with longer rows: adding costs O(1) copied rows per feature.
    """

    def __init__(self, shape: Any, n_columns: int, n_labels: int) -> None:
        """``shape`` is the estimator; the constant feature is none of its columns."""
        self.shape = shape
        self.n_columns, self.n_labels = n_columns, n_labels
        self.copies = 0  # how often everything had to move
        self.layout = shape._make_layout(n_columns, n_labels)
        self.stride = next(iter(self.layout.values())).stride
        self._w, self._u = self._allocate(), self._allocate()

    @property
    def w(self) -> Array:
        """The weights, as solvers take them."""
        return self._w[: self.layout.size]

    @property
    def u(self) -> Array:
        """``Σ drift·a·Δf``."""
        return self._u[: self.layout.size]

    def _allocate(self) -> Array:
        """Zeros with room for as many labels as a row holds."""
        return aligned_zeros(self.shape._make_layout(self.n_columns, self.stride, self.stride).size)

    def restart_average(self) -> None:
        """Forget the iterates before this moment."""
        self._u = aligned_zeros(len(self._u))

    def make_room(self, n_columns: int, n_labels: int) -> None:
        """Let there be so many features and labels, at least as many as before."""
        columns, stride = self.n_columns, self.stride
        if n_columns > columns:
            columns = n_columns + (n_columns + ("intercept" in self.layout)) // 2
        if n_labels > stride:
            stride = self.shape._roomy_stride(n_labels)
        before, grows = self.layout, (columns, stride) != (self.n_columns, self.stride)
        self.n_columns, self.n_labels, self.stride = columns, n_labels, stride
        self.layout = self.shape._make_layout(columns, n_labels, stride)
        if grows:
            self._w, self._u = (self._copy(flat, before) for flat in (self._w, self._u))
            self.copies += 1
        else:
            self._shift(before)

    def _copy(self, flat: Array, before: Layout) -> Array:
        """The same weights in a larger vector."""
        new = self._allocate()
        for name, block in before.items():
            target = self.layout[name].padded(new)
            target[: block.rows, : block.stride] = block.padded(flat)
        return new

    def _shift(self, before: Layout) -> None:
        """Move the blocks that lie behind one that has got more rows."""
        moved = [name for name, block in before.items() if self.layout[name].start != block.start]
        if moved:
            first = before[moved[0]].start
            for flat in (self._w, self._u):
                kept = {name: before[name].padded(flat).copy() for name in moved}
                flat[first : self.layout.size] = 0.0
                for name, table in kept.items():
                    self.layout[name].padded(flat)[:] = table

    def average(self, n_columns: int, visits: float) -> Array:
        """A copy of the average of so many iterates, without room to spare."""
        factor = -1.0 / (visits * (visits + 1.0)) if visits > 0 else 0.0
        tight = self.shape._make_layout(n_columns, self.n_labels)
        flat = aligned_zeros(tight.size)
        for name, block in tight.items():
            out = block.table(flat)
            w, u = (self.layout[name].table(f)[: block.rows] for f in (self._w, self._u))
            if factor:  # no third copy of the weights
                out[:] = u
                out *= factor
                out += w
            else:
                out[:] = w
        return flat
