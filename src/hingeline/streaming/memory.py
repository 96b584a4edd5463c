"""Multipliers of examples as blocks that come and go, and the weights that they make.

The dual is maximised over one example at a time with all others fixed, and the others enter only
through the weights. So a batch of new examples is a problem of its own that starts from the
weights of all: nothing seen before is touched, and the sum of the blocks is the dual state of all
examples. It is feasible whatever the order, and not yet optimal.

The average of the iterates (see :mod:`hingeline.solvers.sdm`) goes on from batch to batch:
``w̄ = w − u/(K(K+1))``, where ``u = Σ drift·a·Δf`` over the planes of all blocks. Multipliers and
drift per plane are therefore all there is to keep.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline._jit import kernel
from hingeline._simd import aligned_zeros
from hingeline.core import blocks
from hingeline.core.blocks import WorkingSet, add_planes
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled, Layout
from hingeline.solvers.enumerated import add_all, make_table

#: Multipliers of a block: planes, or a dense (examples, outputs) table.
Multipliers = WorkingSet | Array


def choose_planes(multipliers: Multipliers, chosen: Array, room: int = 0) -> Multipliers:
    """The multipliers of some examples, without planes that count for nothing.

    Each has room for so many planes more. Inner products are left out: who needs them computes
    them.
    """
    if isinstance(multipliers, np.ndarray):
        return multipliers[chosen]
    ws, used = multipliers, multipliers.used[chosen]
    slots = blocks.spread(ws.slot[chosen], used)
    kept = (ws.alpha[slots] != 0.0) | (ws.drift[slots] != 0.0)
    owners, slots = np.repeat(np.arange(len(chosen)), used)[kept], slots[kept]
    used, lengths = np.bincount(owners, minlength=len(chosen)), ws.length[chosen]
    new = blocks.empty_working_set(lengths, np.maximum(used + room, 1), gram=False)
    new.used[:] = used
    there = blocks.spread(new.slot, used)
    for name in ("alpha", "offset", "scale", "sqnorm", "drift"):
        getattr(new, name)[there] = getattr(ws, name)[slots]
    places = slots - ws.slot[chosen][owners]
    starts = ws.y_start[chosen][owners] + places * lengths[owners]
    new.y[blocks.spread(new.y_start, used * lengths)] = ws.y[blocks.spread(starts, lengths[owners])]
    return new


def join_multipliers(parts: Sequence[Multipliers], n_outputs: int | None) -> Multipliers:
    """Multipliers of blocks one after the other; dense where one of them is."""
    if n_outputs is not None and any(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([make_table(part, n_outputs) for part in parts])
    sets = [part for part in parts if isinstance(part, WorkingSet)]

    def join(name: str) -> Array:
        return np.concatenate([getattr(ws, name) for ws in sets])

    layout = blocks.empty_working_set(join("length"), join("capacity"), gram=False)
    contents = ("used", "wanted", "alpha", "offset", "scale", "sqnorm", "drift", "stamp", "y")
    return layout._replace(**{name: join(name) for name in contents})


def list_planes(multipliers: Multipliers) -> tuple[Array, Array, Array, Array]:
    """Planes per example, all outputs in one row, and the mass and drift of every plane."""
    if isinstance(multipliers, np.ndarray):
        rows, y = np.nonzero(multipliers)
        used = np.bincount(rows, minlength=len(multipliers))
        mass = multipliers[rows, y]
        return used.astype(np.int64), y.astype(np.int32), mass, np.zeros(len(mass))
    ws = multipliers
    slots = blocks.spread(ws.slot, ws.used)
    y = ws.y[blocks.spread(ws.y_start, ws.used * ws.length)]
    return ws.used.copy(), y, ws.alpha[slots], ws.drift[slots]


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
            if blocks.insert(problem, form, ws, i, plane, 0, blocks.FREE_SLOTS_ONLY, scratch) != j:
                return False
            at += ws.length[i]
    return True


def restore_planes(
    compiled: Compiled, form: Formulation, used: Array, y: Array, mass: Array, drift: Array
) -> WorkingSet:
    """A working set from what :func:`list_planes` returned: everything else is computed anew."""
    ws = blocks.empty_working_set(compiled.lengths, np.maximum(used, 1))
    scratch = np.zeros(compiled.scratch_size)
    if not insert_all(compiled.problem, form, ws, used, y, scratch):
        raise ValueError("a plane of the stored state is there twice, or is not a plane")
    slots = blocks.spread(ws.slot, ws.used)
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
        """``shape`` is the estimator; the constant feature is not one of its columns."""
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

    def make_room(self, n_columns: int, n_labels: int) -> None:
        """Make room for so many features and labels, at least as many as before."""
        columns, stride = self.n_columns, self.stride
        if n_columns > columns:
            columns = n_columns + (n_columns + ("intercept" in self.layout)) // 2
        if n_labels > stride:
            stride = self.shape._roomy_stride(n_labels)
        before, grows = self.layout, (columns, stride) != (self.n_columns, self.stride)
        self.n_columns, self.n_labels, self.stride = columns, n_labels, stride
        self.layout = self.shape._make_layout(columns, n_labels, stride)
        self.copies += grows
        self._w, self._u = (self._move(flat, before, grows) for flat in (self._w, self._u))

    def _move(self, flat: Array, before: Layout, grows: bool) -> Array:
        """The same weights in a larger vector; or in the same, where later blocks move along."""
        moved = [n for n, block in before.items() if grows or self.layout[n].start != block.start]
        tables = {name: before[name].padded(flat) for name in moved}
        new = self._allocate() if grows else flat
        if moved and not grows:
            tables = {name: table.copy() for name, table in tables.items()}
            flat[before[moved[0]].start : self.layout.size] = 0.0
        for name, table in tables.items():
            self.layout[name].padded(new)[: table.shape[0], : table.shape[1]] = table
        return new

    def average(self, n_columns: int, visits: float) -> Array:
        """A copy of the average of so many iterates, without room to spare."""
        factor = -1.0 / (visits * (visits + 1.0)) if visits > 0 else 0.0
        tight = self.shape._make_layout(n_columns, self.n_labels)
        flat = aligned_zeros(tight.size)
        for name, block in tight.items():
            out = block.table(flat)
            w, u = (self.layout[name].table(f)[: block.rows] for f in (self._w, self._u))
            np.multiply(u, factor, out=out)  # no third copy of the weights
            out += w
        return flat
