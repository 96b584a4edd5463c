"""Multipliers of examples as blocks that come and go, and the weights that they make.

The dual is maximised over one example at a time with all others fixed, and the others enter only
through the weights. So a batch of new examples is a problem of its own that starts from the
weights of all: nothing seen before is touched, and the sum of the blocks is the dual state of all
examples. It is feasible whatever the order, and not yet optimal.

The average of the iterates (see :mod:`hingeline.solvers.sdm`) goes on from batch to batch:
``w̄ = w − u/(K(K+1))``, where ``u = Σ drift·a·Δf`` over the planes of all blocks. Multipliers and
drift per plane are therefore all there is to keep.

In a model file are the rows, the labels, the weights of the examples, and for every plane with mass
or drift its output and these two numbers. All else (losses, norms, inner products, weights) is
computed from them when the state is needed, in the estimator that was saved just as in the one
that is loaded, so that both go on bit for bit alike, and a file cannot claim what is not so.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, require, retell
from hingeline._jit import kernel
from hingeline._simd import aligned_zeros
from hingeline.core import blocks
from hingeline.core.blocks import WorkingSet, add_planes
from hingeline.core.formulations import Formulation, cut_back, make_formulation
from hingeline.core.primitives import Compiled, Layout, rows_of
from hingeline.core.results import DualMemory
from hingeline.solvers.enumerated import add_all, make_table

#: Multipliers of a block: planes, or a dense (examples, outputs) table.
Multipliers = WorkingSet | Array
#: Rows, offsets of sequences (None where every row is an example) and labels.
Examples = tuple[sp.csr_matrix, Array | None, Array]

#: Array -> kinds of numbers allowed; ``offsets`` is there for sequences only.
_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("indptr", "offsets", "used"), ("int64",)),
    **dict.fromkeys(("indices", "labels", "y"), ("int32",)),
    **dict.fromkeys(("weights", "mass", "drift"), ("float64",)),
    "values": ("float32", "float64"),
}
#: Inner products that a plane may ask for on average, beyond a few megabytes in all: planes of
#: an example are tens, and a small file must not ask for much memory.
_PRODUCTS = 256
_FREE_PRODUCTS = 2**20
_EXCESS = 1e-9  # Sums of multipliers may exceed their bound by this share, which is rounding.


def examples_of(problem: Any) -> Examples:
    """Rows of a problem, a constant feature last; where sequences begin, or None; labels."""
    return rows_of(problem), getattr(problem, "offsets", None), problem.labels


def choose_planes(
    multipliers: Multipliers, chosen: Array, room: int = 0, gram: bool = False
) -> Multipliers:
    """The multipliers of some examples, each with room for so many planes beside those that count.

    Inner products are left out, unless ``gram`` asks for those that are there.
    """
    if isinstance(multipliers, np.ndarray):
        return multipliers[chosen]
    ws, used = multipliers, multipliers.used[chosen]
    slots = blocks.spread(ws.slot[chosen], used)
    kept = (ws.alpha[slots] != 0.0) | (ws.drift[slots] != 0.0)
    owners, slots = np.repeat(np.arange(len(chosen)), used)[kept], slots[kept]
    used, lengths = np.bincount(owners, minlength=len(chosen)), ws.length[chosen]
    gram = gram and len(ws.gram) > 0
    new = blocks.empty_working_set(lengths, np.maximum(used + room, 1), gram=gram)
    new.used[:] = used
    there = blocks.spread(new.slot, used)
    for name in ("alpha", "offset", "scale", "sqnorm", "drift"):
        getattr(new, name)[there] = getattr(ws, name)[slots]
    places = slots - ws.slot[chosen][owners]
    starts = ws.y_start[chosen][owners] + places * lengths[owners]
    new.y[blocks.spread(new.y_start, used * lengths)] = ws.y[blocks.spread(starts, lengths[owners])]
    if gram:  # of every plane with all of its example
        many = used[owners]
        others = blocks.spread(blocks.starts_of(used)[owners], many)
        here = ws.gram_start[chosen][owners] + places * ws.capacity[chosen][owners]
        moved = there - new.slot[owners]
        rows = new.gram_start[owners] + moved * new.capacity[owners]
        source = np.repeat(here, many) + places[others]
        new.gram[np.repeat(rows, many) + moved[others]] = ws.gram[source]
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


def add_block(block: DualMemory, factor: float, w: Array, drift: bool) -> None:
    """``w += factor·Σ α·a·Δf``, or the same of the drift."""
    problem, known = block.compiled.problem, block.multipliers
    if isinstance(known, WorkingSet):
        add_planes(problem, known, known.drift if drift else known.alpha, factor, w)
    elif not drift:
        add_all(problem, block.form, known, factor, w)


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
    if not insert_all(compiled.problem, form, ws, used, y, np.zeros(compiled.scratch_size)):
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

    w = property(lambda self: self._w[: self.layout.size])  # the weights, as solvers take them
    u = property(lambda self: self._u[: self.layout.size])  # Σ drift·a·Δf

    def _allocate(self) -> Array:
        """Zeros with room for as many labels as a row holds."""
        return aligned_zeros(self.shape._make_layout(self.n_columns, self.stride, self.stride).size)

    def copy(self) -> "LiveWeights":
        """The same weights, which change on their own."""
        other = copy(self)
        for name in ("_w", "_u"):
            setattr(other, name, aligned_zeros(len(getattr(self, name))))
            getattr(other, name)[:] = getattr(self, name)
        return other

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


def state_to_arrays(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The state of an estimator, which from now on goes on from exactly what is stored."""
    remedy = "train with partial_fit, or with fit and warm_start=True"
    require(model.n_examples_ > 0, f"state=True, but the model remembers no examples: {remedy}.")
    text = "state=True, but multipliers of slack='nu' belong to a C that was searched for"
    require(model.slack != "nu", f"{text}: train with slack='max' and C=model.C_ to keep a state.")
    stream = model._open_stream()
    stream.refuse_changes("C", "slack", "rescale", "fit_intercept", "boundary")
    _ = model.weights_  # before the blocks are one, which visits would go through in another order
    whole = stream.merge()
    weights = whole.weights
    used, y, mass, drift = list_planes(choose_planes(whole.multipliers, np.arange(len(weights))))
    matrix, offsets, labels = examples_of(whole.compiled.problem)
    matrix = matrix[:, : model.n_features_in_]  # without the constant
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    arrays = {"indptr": indptr, "indices": indices, "values": matrix.data}
    arrays |= {"labels": labels, "weights": weights}
    arrays |= {"used": used, "y": y, "mass": mass, "drift": drift}
    if offsets is not None:
        arrays["offsets"] = offsets
    meta = {"visits": float(stream.visits), "fresh": int(stream.fresh)}
    remedy = "call partial_fit once without passes= first"
    with retell("the state cannot be stored (", f"): {remedy}."):
        state = StoredState(model, meta, arrays)
    stream.blocks, stream.live = [state.restore(model)], None  # made again, as after loading
    return meta, arrays


class StoredState:
    """A state as a file has it, checked; made into a dual state when it is needed."""

    def __init__(self, model: Any, meta: Any, arrays: Mapping[str, Array]) -> None:
        fine = isinstance(meta, dict) and set(meta) == {"visits", "fresh"}
        for value in meta.values() if fine else ():
            counted = type(value) in (int, float) and 0 <= value < 2**52 and value == int(value)
            fine = fine and counted
        require(fine, "the state must have two counts, visits and fresh")
        self.visits, self.fresh = float(meta["visits"]), int(meta["fresh"])
        chain = "transition" in model._layout
        names = {name for name in _TYPES if chain or name != "offsets"}
        require(set(arrays) == names, "the arrays of the state are not those it needs")
        self.arrays, self.weights = dict(arrays), arrays["weights"]
        for name, array in arrays.items():
            fine = array.ndim == 1 and array.dtype.name in _TYPES[name]
            require(fine, f"array {name!r} of the state has a wrong shape or dtype")
        self.offsets = arrays.get("offsets", np.arange(len(arrays["labels"]) + 1))
        self.lengths = np.diff(self.offsets)
        self._check_rows(int(model.n_features_in_), len(model.classes_))
        self._check_planes()
        self._check_feasible(model)
        sizes = {"labels": self.lengths, "y": np.repeat(self.lengths, self.arrays["used"])}
        for name, counts in sizes.items() if chain else ():
            allowed = model._allows(self.arrays[name], np.concatenate([[0], np.cumsum(counts)]))
            require(allowed, "the state has outputs that the scheme forbids")

    def _check_rows(self, n_features: int, n_labels: int) -> None:
        values, indices, indptr = (self.arrays[name] for name in ("values", "indices", "indptr"))
        labels, weights = self.arrays["labels"], self.weights
        self.rows = sp.csr_matrix((values, indices, indptr), shape=(len(labels), n_features))
        self.rows.check_format()  # refuses what is out of bounds
        fine = self.rows.has_canonical_format and indptr[-1] == len(indices)
        fine = fine and np.isfinite(values).all()
        require(fine, "the rows of the state are not sorted, or not finite")
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) > 1 else None
        fine = ends == [0, len(labels)] and (self.lengths > 0).all()
        require(fine, "array 'offsets' of the state does not cut its rows")
        fine = _within(labels, n_labels) and _within(self.arrays["y"], n_labels)
        require(fine, "the state has labels that the model does not have")
        fine = weights.shape == self.lengths.shape and np.isfinite(weights).all()
        fine = fine and (weights >= 0).all() and weights.any() and self.fresh <= len(weights)
        require(fine, "the weights of the state's examples are out of range")

    def _check_planes(self) -> None:
        used, y, mass, drift = (self.arrays[name] for name in ("used", "y", "mass", "drift"))
        lengths, many = self.lengths, used.astype(np.float64)
        counted = used.shape == lengths.shape and _within(used, len(mass) + 1)
        counted = counted and used.sum() == len(mass) == len(drift)
        counted = counted and float(many @ lengths) == len(y)
        require(counted, "the planes of the state are counted wrongly")
        few = float((many**2).sum()) <= _PRODUCTS * len(mass) + _FREE_PRODUCTS
        require(few, "an example of the state has too many planes")
        fine = bool(np.isfinite(mass).all() and (mass >= 0).all() and np.isfinite(drift).all())
        fine = fine and (self.visits > 0 or not drift.any())
        require(fine, "the multipliers of the state are out of range")
        labels, at, first = self.arrays["labels"], 0, 0
        for count, length in zip(used.tolist(), lengths.tolist(), strict=True):
            seen = {labels[first : first + length].tobytes()}
            for _ in range(count):
                seen.add(y[at : at + length].tobytes())
                at += length
            distinct = len(seen) == count + 1
            require(distinct, "a plane of the state is there twice, or is the true output")
            first += length

    def _check_feasible(self, model: Any) -> None:
        require(getattr(model, "C_", 0.0) > 0.0, "the state needs a C above 0")
        form = self.formulation(model)
        used, mass = self.arrays["used"], self.arrays["mass"]
        owners = np.repeat(np.arange(len(used)), used)
        within = cut_back(form._replace(cap=form.cap * (1 + _EXCESS)), mass, owners)
        require(np.array_equal(within, mass), "the multipliers of the state exceed their bound")

    def formulation(self, model: Any) -> Formulation:
        """What bounds the multipliers."""
        weights = model._weigh(self.arrays["weights"], self.arrays["labels"])
        C = model.C_ if isinstance(model.C, str) else float(model.C)
        return make_formulation(C, model.slack, model.rescale, weights)

    def restore(self, model: Any) -> DualMemory:
        """The dual state, for ``partial_fit`` and ``forget`` to go on with."""
        rows = self.arrays
        problem = model._make(model._with_constant(self.rows), rows.get("offsets"), rows["labels"])
        compiled, form = model._compile(problem), self.formulation(model)
        parts = (rows[name] for name in ("used", "y", "mass", "drift"))
        planes = restore_planes(compiled, form, *parts)
        return DualMemory(compiled, form, planes, rows["weights"], model._settings())


def _within(numbers: Array, end: int) -> bool:
    return bool(((numbers >= 0) & (numbers < end)).all())
