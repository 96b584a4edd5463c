"""Training of a user's own structure."""

import hashlib
import pickle
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numba.core.errors import NumbaError
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, check_finite, check_sample_weight, require, require_type, warn
from hingeline.core.primitives import Compiled, Layout, stack_blocks
from hingeline.estimators.base import OTHER_DATA, BaseModel, BaseSSVM, share_docs
from hingeline.structures import custom

NO_OUTPUT = np.empty(0, dtype=np.int32)  # what ``decode`` is given for the true one to predict


@share_docs
@dataclass(eq=False, repr=False)
class SSVM(BaseSSVM, BaseModel):
    """Structured SVM for a structure of your own.

    Parameters
    ----------
    structure : Structure
        What an output is; :class:`hingeline.Structure` says how to write one, with an example of a
        fit. Plain Python methods run interpreted, ``@njit`` methods are compiled into the solver.
    slack, rescale : str
        ``slack="squared"`` and ``rescale="slack"`` need the structure's ``decode_by_loss``.
    violators : "argmax", int or "all", optional
        As in :class:`hingeline.ChainSSVM`; all but ``"argmax"`` need ``decode_best``.
    n_jobs : int, optional; threads, for compiled structures only; the weights do not depend on it

    Attributes
    ----------
    weights_ : ndarray; in the order of the structure's joint features
    n_features_in_ : int; joint features
    """

    structure: Any = None
    C: float | str = 1.0
    _: KW_ONLY
    rescale: str = "margin"
    violators: str | int | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on inputs X and outputs y, lists of the same length.

        Parameters
        ----------
        X : list; inputs, in whatever form the structure's methods take them
        y : list; outputs that the structure's ``pack`` accepts
        sample_weight : array-like, one per example, optional
        """
        self.check_parameters()
        outputs, width = self._pack(X, y)
        weights = check_sample_weight(sample_weight, len(outputs))
        try:
            compiled = self._compile_own(X, outputs, width)
            known = fingerprint(self.structure, X, outputs) if self.warm_start else None
            previous = self.__dict__.pop("_dual", None) if self.warm_start else None
            if previous is not None and (known is None or known != vars(self)["_data"]):
                warn(OTHER_DATA)
                previous = None
            result, dual = self._solve(compiled, weights, previous)
        except NumbaError as error:
            why = str(error).strip().splitlines()[-1]
            what = f"the compiled methods of {type(self.structure).__name__} do not fit the solver"
            how = "run hingeline.testing.check_structure, or start with plain Python methods"
            raise TypeError(f"{what}: {why} ({how}).") from error
        self._store(result)
        self.n_features_in_ = len(self.weights_)
        if self.warm_start:
            self._dual, self._data = dual, known
        return self

    def _pack(self, X: Any, y: Any) -> tuple[list[Array], int]:
        """Outputs as arrays, and how long a joint feature vector is."""
        text = "structure is missing: pass an instance of your subclass of Structure."
        require(self.structure is not None, text, TypeError)
        methods = custom.methods_of(self.structure)
        listed = all(hasattr(v, "__len__") and getattr(v, "ndim", 1) for v in (X, y))
        require(listed, "X and y must be lists of the same length.", TypeError)
        require(len(X) == len(y), f"X has {len(X)} examples and y has {len(y)}: they must agree.")
        require(len(X) > 0, "X is empty: there are no examples.")
        name = type(self.structure).__name__
        why = f"{name}, which lacks decode_by_loss()"
        self._refuse_without_oracle("decode_by_loss" in methods, why)
        self._refuse_violators("decode_best" in methods, name)
        outputs = [self.structure.pack(output) for output in y]
        if custom.is_compiled(self.structure):
            custom.uniform_arrays(self.structure, X)
        found = methods["joint_feature"](X[0], outputs[0])
        require_type(isinstance(found, np.ndarray), "joint_feature(X[0], y[0])", "an array", found)
        first = found.copy()
        require(first.ndim == 1, f"joint_feature must return a vector, got shape {first.shape}.")
        again = np.array_equal(first, methods["joint_feature"](X[0], outputs[0]), equal_nan=True)
        what = "joint_feature(X[0], y[0]) is not the same when it is called again"
        require(again, f"{what}: it must neither change x and y nor draw random numbers.")
        for i, (x, output) in enumerate(zip(X, outputs, strict=True)):
            own = np.asarray(methods["joint_feature"](x, output), dtype=np.float64)
            what = f"joint_feature returns vectors of different length, {first.shape} for X[0] and"
            both = f"{what} {own.shape} for X[{i}]"
            require(own.shape == first.shape, f"{both}: all must have the same length.")
            check_finite(own, what := f"joint_feature(X[{i}], y[{i}])")
            large = np.abs(own).max(initial=0.0) > 1e100
            require(not large, f"{what} has entries above 1e100: scale the features.")
        return outputs, len(first)

    def _compile_own(self, X: Any, outputs: list[Array], width: int) -> Compiled:
        """The problem, after a look at some examples whether decoding is what it says.

        ``decode`` must find the best output, loss included, with zero weights and with weights
        that like the true output better than another, a little or much.
        """
        structure, rng = self.structure, np.random.default_rng(0)
        methods = custom.methods_of(structure)
        decode, feature = methods["decode"], methods["joint_feature"]
        for i, truth in enumerate(outputs[:3]):
            loss = partial(custom.find_loss(structure), X[i], truth)
            what, cost = f"loss(y[{i}], y[{i}])", np.asarray(loss(truth))
            fine = cost.ndim == 0 and cost.dtype.kind in "fiub"
            require_type(fine, what, "a number", loss(truth))
            require(cost == 0.0, f"{what} is {cost:g}: the loss of the true output must be 0.")
            guesses = [rng.normal(size=width) for _ in range(3)]
            try:
                drawn = [np.asarray(decode(X[i], w, NO_OUTPUT, 0.0)) for w in guesses]
            except Exception as error:
                error.add_note("decode(x, w, y_true, 0) must predict: y_true is then empty.")
                raise
            for found in drawn:
                what = f"decode returns {found!r:.60} for X[{i}]"
                fine = found.shape == truth.shape and found.dtype.kind in "iub"
                require(fine, f"{what}: it must be a vector of {len(truth)} ints.", TypeError)
                cost = loss(found)
                what = f"loss(y[{i}], y) is {cost} for y={found!r:.60}"
                require(0.0 <= cost < np.inf, f"{what}: losses must be finite and at least 0.")
            if not structure.exact:
                continue
            known = [(loss(y), np.asarray(feature(X[i], y))) for y in (truth, *drawn)]
            away = [known[0][1] - f for _, f in known[1:]]
            small = 0.1 * max(cost for cost, _ in known) / max(1e-12, *(a @ a for a in away))
            for w in (np.zeros(width), *(small * a for a in away), 20.0 * small * away[0]):
                found = decode(X[i], w, truth, 1.0)
                own = loss(found) + w @ feature(X[i], found)
                best = max(cost + w @ f for cost, f in known)
                if own < best - 1e-9 * (abs(own) + abs(best)):
                    what = f"decode does not find the best output for X[{i}]: with some weights and"
                    what += f" loss_scale=1 it returns one whose score plus loss is {own:g}, but"
                    what += f" another has {best:g}; it must maximise w·f(x, y) +"
                    how = "loss_scale·loss(y_true, y), or the structure must say exact = False"
                    raise ValueError(f"{what} {how} (see hingeline.testing.check_structure).")
        return custom.compile_problem(structure, X, outputs)

    @property
    def _layout(self) -> Layout:
        """The weights are one block to files; what is in it only the structure knows."""
        return stack_blocks({"joint_feature": 1}, self.n_features_in_, self.n_features_in_)

    def predict(self, X: Any) -> list[Any]:
        """Best output of every input."""
        check_is_fitted(self, "weights_")
        return [self.structure.unpack(self._decode(x)) for x in X]

    def _decode(self, x: Any) -> Array:
        return np.asarray(self.structure.decode(x, self.weights_, NO_OUTPUT, 0.0), dtype=np.int32)

    def decision_function(self, X: Any) -> Array:
        """Score ``w·f(x, ŷ)`` of the best output of every input."""
        check_is_fitted(self, "weights_")
        feature = custom.methods_of(self.structure)["joint_feature"]
        return np.array([self.weights_ @ feature(x, self._decode(x)) for x in X])

    def score(self, X: Any, y: Any) -> float:
        """Minus the mean loss of the predictions."""
        check_is_fitted(self, "weights_")
        loss, pack = custom.find_loss(self.structure), self.structure.pack
        require(len(X) == len(y), f"X has {len(X)} examples and y has {len(y)}: they must agree.")
        require(len(X) > 0, "X is empty: there is nothing to score.")
        losses = [loss(x, pack(own), self._decode(x)) for x, own in zip(X, y, strict=True)]
        return 0.0 - float(np.mean(losses))


def fingerprint(structure: Any, X: Any, outputs: list[Array]) -> bytes | None:
    """A hash of structure and examples, to notice changes; None where they cannot be pickled."""
    try:  # without the class: those of a notebook or a function have no importable name
        stored = pickle.dumps((vars(structure), list(X), outputs))
    except Exception:
        return None
    return hashlib.sha256(stored + repr((type(structure), id(type(structure)))).encode()).digest()
