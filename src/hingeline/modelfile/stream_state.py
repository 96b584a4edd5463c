"""The dual state in a model file: examples with their multipliers, for ``partial_fit`` to go on.

Stored are the rows, the labels, the weights of the examples, and for every plane with mass or
drift its output and these two numbers. All else (losses, norms, inner products, weights) is
computed from them when the state is needed, in the estimator that was saved just as in the one
that is loaded, so that both go on bit for bit alike, and a file cannot claim what is not so.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, require
from hingeline.core.formulations import Formulation, make_formulation
from hingeline.core.results import DualMemory
from hingeline.estimators.allowed import keeps_to, moves_of
from hingeline.streaming.memory import choose_planes, list_planes, restore_planes
from hingeline.streaming.stream import examples_of

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


def state_to_arrays(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The state of an estimator, which from now on goes on from exactly what is stored."""
    remedy = "train with partial_fit, or with fit and warm_start=True"
    require(model.n_examples_ > 0, f"state=True, but the model remembers no examples: {remedy}.")
    text = "state=True, but multipliers of slack='nu' belong to a C that was searched for"
    remedy = "train with slack='max' and C=model.C_ to keep a state"
    require(model.slack != "nu", f"{text}: {remedy}.")
    stream = model._open_stream()
    stream.refuse_changes("C", "slack", "rescale", "fit_intercept", "boundary")
    whole = stream.merge()
    weights = whole.weights
    used, y, mass, drift = list_planes(choose_planes(whole.multipliers, np.arange(len(weights))))
    matrix, offsets, labels = examples_of(whole.compiled.problem)
    columns, values, indptr = matrix.indices, matrix.data, matrix.indptr.astype(np.int64)
    if model.fit_intercept:
        kept = np.ones(len(columns), dtype=bool)
        kept[indptr[1:] - 1] = False
        columns, values = columns[kept], values[kept]
        indptr = indptr - np.arange(len(indptr))
    arrays = {"indptr": indptr, "indices": columns.astype(np.int32), "values": values}
    arrays |= {"labels": labels, "weights": weights}
    arrays |= {"used": used, "y": y, "mass": mass, "drift": drift}
    if offsets is not None:
        arrays["offsets"] = offsets
    meta = {"visits": float(stream.visits), "fresh": int(stream.fresh)}
    try:
        state = StoredState(model, meta, arrays)
    except ValueError as error:
        what = f"the state cannot be stored ({error})"
        raise ValueError(f"{what}: call partial_fit once without passes= first.") from None
    _ = model.weights_
    stream.blocks, stream.live = [state.restore(model)], None  # made again, as after loading
    return meta, arrays


class StoredState:
    """A state as a file has it, checked; made into a dual state when it is needed."""

    def __init__(self, model: Any, meta: Any, arrays: Mapping[str, Array]) -> None:
        described = isinstance(meta, dict) and set(meta) == {"visits", "fresh"}
        require(described, "the state is described wrongly")
        for name, value in meta.items():
            counted = type(value) in (int, float) and 0 <= value < 2**52 and value == int(value)
            require(counted, f"{name} must be a count")
        self.visits, self.fresh = float(meta["visits"]), int(meta["fresh"])
        chain = "transition" in model._layout
        names = {name for name in _TYPES if chain or name != "offsets"}
        require(set(arrays) == names, "the arrays of the state are not those it needs")
        self.arrays = dict(arrays)
        self.weights = arrays["weights"]
        for name, array in arrays.items():
            fine = array.ndim == 1 and array.dtype.name in _TYPES[name]
            require(fine, f"array {name!r} of the state has a wrong shape or dtype")
        self._check_rows(int(model.n_features_in_), len(model.classes_))
        self._check_planes(len(model.classes_))
        self._check_feasible(model)
        if chain and model.scheme_ is not None:
            valid: Any = moves_of(model.classes_, model.scheme_)
            sizes = {"labels": self.lengths, "y": np.repeat(self.lengths, self.arrays["used"])}
            for name, counts in sizes.items():
                ends = np.concatenate([[0], np.cumsum(counts)])
                allowed = keeps_to(valid, self.arrays[name], ends)
                require(allowed.all(), "the state has outputs that the scheme forbids")

    @property
    def lengths(self) -> Array:
        """Length of every example's output."""
        if "offsets" in self.arrays:
            return np.diff(self.arrays["offsets"])
        return np.ones(len(self.arrays["labels"]), dtype=np.int64)

    def _check_rows(self, n_features: int, n_labels: int) -> None:
        rows = self.arrays
        indptr, indices, labels = rows["indptr"], rows["indices"], rows["labels"]
        _rising(indptr, len(indices), "indptr", strictly=False)
        fits = len(indptr) == len(labels) + 1 and len(rows["values"]) == len(indices)
        require(fits, "the rows of the state do not fit together")
        require(_within(indices, n_features), "the state has features that the model does not have")
        follows = np.ones(len(indices), dtype=bool)
        follows[indptr[:-1][indptr[:-1] < len(indices)]] = False
        rises = (np.diff(indices)[follows[1:]] > 0).all()
        require(rises, "the features of a row of the state are not sorted")
        require(np.isfinite(rows["values"]).all(), "the values of the state are not finite")
        if "offsets" in rows:
            _rising(rows["offsets"], len(labels), "offsets", strictly=True)
        known = len(labels) and _within(labels, n_labels)
        require(known, "the state has labels that the model does not have")
        weights = rows["weights"]
        require(self.fresh <= len(weights), "fresh must be at most the number of examples")
        fine = weights.shape == self.lengths.shape and np.isfinite(weights).all()
        require(fine, "the weights of the state's examples are not numbers")
        fine = (weights >= 0).all() and weights.any()
        require(fine, "the weights of the state's examples are out of range")

    def _check_planes(self, n_labels: int) -> None:
        used, y, mass, drift = (self.arrays[name] for name in ("used", "y", "mass", "drift"))
        lengths = self.lengths
        counted = used.shape == lengths.shape and _within(used, len(mass) + 1)
        counted = counted and used.sum() == len(mass) == len(drift)
        require(counted, "the planes of the state are counted wrongly")
        many = used.astype(np.float64)
        require(float(many @ lengths) == len(y), "the outputs of the state have wrong lengths")
        few = float((many**2).sum()) <= _PRODUCTS * len(mass) + _FREE_PRODUCTS
        require(few, "an example of the state has too many planes")
        known = _within(y, n_labels)
        require(known, "the outputs of the state have labels that the model does not have")
        fine = np.isfinite(mass).all() and (mass >= 0).all() and np.isfinite(drift).all()
        require(fine, "the multipliers of the state are out of range")
        require(self.visits > 0 or not drift.any(), "the state has an average of no iterates")
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
        cap = form.cap[owners] if form.summed else form.cap
        sums = mass if form.summed else np.bincount(owners, weights=mass, minlength=len(used))
        within = (sums <= cap * (1 + _EXCESS)).all()
        require(within, "the multipliers of the state exceed their bound")

    def formulation(self, model: Any) -> Formulation:
        """What bounds the multipliers."""
        weights = model._weigh(self.arrays["weights"], self.arrays["labels"])
        C = model.C_ if model.C == "scale" else float(model.C)
        return make_formulation(C, model.slack, model.rescale, weights)

    def restore(self, model: Any) -> DualMemory:
        """The dual state, for ``partial_fit`` and ``forget`` to go on with."""
        rows, shape = self.arrays, (len(self.arrays["labels"]), model.n_features_in_)
        matrix = sp.csr_matrix((rows["values"], rows["indices"], rows["indptr"]), shape=shape)
        problem = model._make(model._with_constant(matrix), rows.get("offsets"), rows["labels"])
        compiled, form = model._compile(problem), self.formulation(model)
        parts = (rows[name] for name in ("used", "y", "mass", "drift"))
        planes = restore_planes(compiled, form, *parts)
        return DualMemory(compiled, form, planes, rows["weights"], model._settings())


def _rising(ends: Array, total: int, name: str, strictly: bool) -> None:
    """Refuse what does not rise from 0 to ``total``."""
    steps = np.diff(ends)
    falls = (steps <= 0) if strictly else (steps < 0)
    fine = len(ends) > 1 and ends[0] == 0 and ends[-1] == total and not falls.any()
    require(fine, f"array {name!r} of the state must rise from 0 to {total}")


def _within(numbers: Array, end: int) -> bool:
    return bool(((numbers >= 0) & (numbers < end)).all())
