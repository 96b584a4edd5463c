"""The dual state in a model file: examples with their multipliers, for ``partial_fit`` to go on.

Stored are the rows, the labels, the weights of the examples, and for every plane with mass or
drift its output and these two numbers. All else (losses, norms, inner products, weights) is
computed from them when the state is needed, in the estimator that was saved just as in the one
that is loaded, so that both go on bit for bit alike, and a file cannot claim what is not so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.core.formulations import Formulation, make_formulation
from hingeline.core.results import DualMemory
from hingeline.estimators.allowed import moves_of
from hingeline.streaming.passes import choose_planes, list_planes, restore_planes
from hingeline.streaming.stream import offsets_of, rows_of

Array = np.ndarray[Any, Any]

PREFIX = "state/"
#: Array -> kinds of numbers allowed; ``offsets`` is there for sequences only.
_TYPES: dict[str, tuple[str, ...]] = {
    "indptr": ("int64",),
    "indices": ("int32",),
    "values": ("float32", "float64"),
    "labels": ("int32",),
    "offsets": ("int64",),
    "weights": ("float64",),
    "used": ("int64",),
    "y": ("int32",),
    "mass": ("float64",),
    "drift": ("float64",),
}
#: Inner products that a plane may ask for on average, beyond a few megabytes in all: planes of
#: an example are tens, and a small file must not ask for much memory.
_PRODUCTS = 256
_FREE_PRODUCTS = 2**20
#: Rounding that sums of multipliers may have beyond their bound.
_ROUNDING = 1e-9


# Saving ------------------------------------------------------------------------------------------


def state_to_arrays(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The state of an estimator, which from now on goes on from exactly what is stored."""
    if model.n_examples_ == 0:
        raise ValueError(
            "state=True, but the model remembers no examples: train with partial_fit, or with "
            "fit and warm_start=True."
        )
    if model.slack == "nu":
        raise ValueError(
            "state=True, but multipliers of slack='nu' belong to a C that was searched for: train "
            "with slack='max' and C=model.C_ to keep a state."
        )
    stream = model._open_stream()
    stream.refuse_changes("C", "slack", "rescale", "fit_intercept", "boundary")
    whole = stream.merge()
    problem, weights = whole.compiled.problem, whole.weights
    used, y, mass, drift = list_planes(choose_planes(whole.multipliers, np.arange(len(weights))))
    matrix = rows_of(problem)
    columns, values, indptr = matrix.indices, matrix.data, matrix.indptr.astype(np.int64)
    if model.fit_intercept:
        kept = np.ones(len(columns), dtype=bool)
        kept[indptr[1:] - 1] = False
        columns, values = columns[kept], values[kept]
        indptr = indptr - np.arange(len(indptr))
    arrays = {
        "indptr": indptr,
        "indices": columns.astype(np.int32),
        "values": values,
        "labels": problem.labels,
        "weights": weights,
        "used": used,
        "y": y,
        "mass": mass,
        "drift": drift,
    }
    offsets = offsets_of(problem)
    if offsets is not None:
        arrays["offsets"] = offsets
    meta = {"visits": float(stream.visits)}
    try:
        state = StoredState(model, meta, {PREFIX + name: value for name, value in arrays.items()})
    except ValueError as error:
        raise ValueError(
            f"the state cannot be stored ({error}): call partial_fit once without passes= first."
        ) from None
    _ = model.weights_
    stream.blocks, stream.live = [state.restore(model)], None  # made again, as after loading
    return meta, {PREFIX + name: value for name, value in arrays.items()}


# Loading -----------------------------------------------------------------------------------------


class StoredState:
    """A state as a file has it, checked; made into a dual state when it is needed."""

    def __init__(self, model: Any, meta: Any, arrays: Mapping[str, Array]) -> None:
        if not isinstance(meta, dict) or set(meta) != {"visits"}:
            raise ValueError("the state is described wrongly")
        visits = meta["visits"]
        if type(visits) not in (int, float) or not 0 <= visits < 2**52:
            raise ValueError("visits must be a count")
        self.visits = float(visits)
        chain = "transition" in model._layout
        names = [name for name in _TYPES if chain or name != "offsets"]
        found = {key[len(PREFIX) :] for key in arrays if key.startswith(PREFIX)}
        if found != set(names):
            raise ValueError("the arrays of the state are not those it needs")
        self.arrays = {name: arrays[PREFIX + name] for name in names}
        for name, array in self.arrays.items():
            if array.ndim != 1 or array.dtype.name not in _TYPES[name]:
                raise ValueError(f"array {name!r} of the state has a wrong shape or dtype")
        self._check_rows(int(model.n_features_in_), len(model.classes_))
        self._check_planes(len(model.classes_))
        self._check_feasible(model)
        if chain and model.scheme_ is not None:
            self._check_scheme(moves_of(model.classes_, model.scheme_))

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
        if len(indptr) != len(labels) + 1 or len(rows["values"]) != len(indices):
            raise ValueError("the rows of the state do not fit together")
        if len(indices) and (indices.min() < 0 or indices.max() >= n_features):
            raise ValueError("the state has features that the model does not have")
        follows = np.ones(len(indices), dtype=bool)
        follows[indptr[:-1][indptr[:-1] < len(indices)]] = False
        if (np.diff(indices)[follows[1:]] <= 0).any():
            raise ValueError("the features of a row of the state are not sorted")
        if not np.isfinite(rows["values"]).all():
            raise ValueError("the values of the state are not finite")
        if "offsets" in rows:
            _rising(rows["offsets"], len(labels), "offsets", strictly=True)
        if not len(labels) or labels.min() < 0 or labels.max() >= n_labels:
            raise ValueError("the state has labels that the model does not have")
        weights = rows["weights"]
        if weights.shape != self.lengths.shape or not np.isfinite(weights).all():
            raise ValueError("the weights of the state's examples are not numbers")
        if (weights < 0).any() or not weights.any():
            raise ValueError("the weights of the state's examples are out of range")

    def _check_planes(self, n_labels: int) -> None:
        used, y, mass, drift = (self.arrays[name] for name in ("used", "y", "mass", "drift"))
        lengths = self.lengths
        if used.shape != lengths.shape or (used < 0).any() or (used > len(mass)).any():
            raise ValueError("the planes of the state are counted wrongly")
        if used.sum() != len(mass) or len(drift) != len(mass):
            raise ValueError("the planes of the state are counted wrongly")
        if float(used.astype(np.float64) @ lengths) != len(y):
            raise ValueError("the outputs of the state have wrong lengths")
        if float((used.astype(np.float64) ** 2).sum()) > _PRODUCTS * len(mass) + _FREE_PRODUCTS:
            raise ValueError("an example of the state has too many planes")
        if len(y) and (y.min() < 0 or y.max() >= n_labels):
            raise ValueError("the outputs of the state have labels that the model does not have")
        if not (np.isfinite(mass).all() and (mass >= 0).all() and np.isfinite(drift).all()):
            raise ValueError("the multipliers of the state are out of range")
        if self.visits == 0 and drift.any():
            raise ValueError("the state has an average of no iterates")
        self._check_distinct(used, y, lengths)

    def _check_distinct(self, used: Array, y: Array, lengths: Array) -> None:
        labels, at, first = self.arrays["labels"], 0, 0
        for count, length in zip(used.tolist(), lengths.tolist(), strict=True):
            seen = {labels[first : first + length].tobytes()}
            for _ in range(count):
                seen.add(y[at : at + length].tobytes())
                at += length
            if len(seen) != count + 1:
                raise ValueError("a plane of the state is there twice, or is the true output")
            first += length

    def _check_feasible(self, model: Any) -> None:
        form = self.formulation(model)
        used, mass = self.arrays["used"], self.arrays["mass"]
        owners = np.repeat(np.arange(len(used)), used)
        if form.summed:
            over = mass > form.cap[owners] * (1 + _ROUNDING)
        else:
            sums = np.bincount(owners, weights=mass, minlength=len(used))
            over = sums > form.cap * (1 + _ROUNDING)
        if over.any():
            raise ValueError("the multipliers of the state exceed their bound")

    def _check_scheme(self, valid: Any) -> None:
        lengths, used = self.lengths, self.arrays["used"]
        for labels, sizes in (
            (self.arrays["labels"], lengths),
            (self.arrays["y"], np.repeat(lengths, used)),
        ):
            if not len(labels):
                continue
            start, move, end = valid
            ends = np.cumsum(sizes)
            fine = np.ones(len(labels), dtype=bool)
            fine[1:] = move[labels[:-1], labels[1:]]
            fine[ends - sizes] = start[labels[ends - sizes]]
            fine[ends - 1] &= end[labels[ends - 1]]
            if not fine.all():
                raise ValueError("the state has outputs that the scheme forbids")

    def formulation(self, model: Any) -> Formulation:
        """What bounds the multipliers."""
        weights = model._weigh(self.arrays["weights"], self.arrays["labels"])
        return make_formulation(float(model.C), model.slack, model.rescale, weights)

    @property
    def weights(self) -> Array:
        """Weights of the examples, as they were given."""
        return self.arrays["weights"]

    def restore(self, model: Any) -> DualMemory:
        """The dual state, for ``partial_fit`` and ``forget`` to go on with."""
        rows = self.arrays
        matrix = sp.csr_matrix(
            (rows["values"], rows["indices"], rows["indptr"]),
            shape=(len(rows["labels"]), model.n_features_in_),
        )
        problem = model._make(model._with_constant(matrix), rows.get("offsets"), rows["labels"])
        compiled = model._compile(problem)
        form = self.formulation(model)
        planes = restore_planes(
            compiled, form, rows["used"], rows["y"], rows["mass"], rows["drift"]
        )
        return DualMemory(compiled, form, planes, rows["weights"], model._settings())


def _rising(ends: Array, total: int, name: str, strictly: bool) -> None:
    """Refuse what does not rise from 0 to ``total``."""
    steps = np.diff(ends)
    falls = (steps <= 0) if strictly else (steps < 0)
    if len(ends) < 2 or ends[0] != 0 or ends[-1] != total or falls.any():
        raise ValueError(f"array {name!r} of the state must rise from 0 to {total}")
