"""Examples that an estimator remembers: blocks of rows with their multipliers, and forgetting.

Blocks are what calls of ``partial_fit`` added. Their multipliers make one dual state, and its
weights are kept beside it while batches come one after the other (:class:`LiveWeights`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import positive
from hingeline.core.primitives import Compiled
from hingeline.core.results import DualMemory, HistoryRow
from hingeline.estimators.base import BaseSSVM
from hingeline.features.input import with_constant
from hingeline.streaming.live_weights import LiveWeights
from hingeline.streaming.memory import (
    chosen_form,
    chosen_rows,
    offsets_of,
    rows_of,
    stacked_forms,
    stacked_offsets,
    stacked_rows,
    without_tables,
)
from hingeline.streaming.passes import add_to, chosen_of, joined, mass_of, without_drift

Array = np.ndarray[Any, Any]


class RememberingSSVM(BaseSSVM):
    """The part of an estimator that keeps examples; subclasses know what they are."""

    _kind = ""
    classes_: Array
    n_features_in_: int
    fit_intercept: bool

    # What a subclass provides --------------------------------------------------------------

    def _make(
        self, matrix: sp.csr_matrix, offsets: Array | None, labels: Array, stride: int | None = None
    ) -> Any:
        """The problem of these rows, the constant feature among them."""
        raise NotImplementedError

    def _compile(self, problem: Any) -> Compiled:
        raise NotImplementedError

    def _weighted(self, weights: Array, labels: Array) -> Array:
        """Weights of the examples with those of their classes."""
        return weights

    # Memory --------------------------------------------------------------------------------

    @property
    def n_examples_(self) -> int:
        """Examples remembered, for ``partial_fit`` to go on with."""
        return sum(size_of(block) for block in self._all_blocks()) if self._remembers() else 0

    def _remembers(self) -> bool:
        """Whether there are examples to go on from; a file without them says so."""
        dual = self.__dict__.get("_dual")
        if dual is None:
            return False
        if not isinstance(dual, DualMemory):  # of a file: restored now, or refused
            self._dual = dual.restored(self)
        return True

    def _all_blocks(self) -> list[DualMemory]:
        return [self._dual, *self.__dict__.get("_blocks", ())]

    def _set_blocks(self, blocks: list[DualMemory]) -> None:
        self._dual, self._blocks = blocks[0], blocks[1:]

    def _forget_stream(self) -> None:
        for name in ("_blocks", "_live", "_visits"):
            self.__dict__.pop(name, None)

    def _settings(self) -> dict[str, Any]:
        """What multipliers and weights of different calls must have in common."""
        names = ("C", "slack", "rescale", "fit_intercept", "boundary")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def _refuse_changes(self, names: tuple[str, ...]) -> None:
        before = self.__dict__.get("_key") or self._settings()
        for name, value in self._settings().items():
            if name in names and value != before[name]:
                raise ValueError(
                    f"{name} was {before[name]!r} for the examples before and is {value!r} now: "
                    + (
                        "call fit on all examples."
                        if name in ("fit_intercept", "boundary")
                        else "call partial_fit once without passes=, which carries them over."
                    )
                )

    def _whole(self) -> DualMemory:
        """All blocks as one."""
        blocks = self._all_blocks()
        if len(blocks) > 1:
            problems = [block.compiled.problem for block in blocks]
            constant = bool(self.fit_intercept)
            matrix = stacked_rows(
                [rows_of(p) for p in problems], self.n_features_in_ + constant, constant
            )
            offsets = stacked_offsets([offsets_of(p) for p in problems])
            labels = np.concatenate([p.labels for p in problems])
            compiled = self._compile(self._make(matrix, offsets, labels))
            whole = DualMemory(
                compiled,
                stacked_forms([block.form for block in blocks]),
                joined([block.multipliers for block in blocks], compiled.n_outputs),
                np.concatenate([weights_of(block) for block in blocks]),
            )
            self._set_blocks([whole])
        return self._dual

    # Weights under way ---------------------------------------------------------------------

    def _go_live(self) -> LiveWeights:
        """The weights of the multipliers kept, as they change from call to call."""
        live: LiveWeights | None = self.__dict__.get("_live")
        if live is None:
            live = self._new_live()
            if self._remembers():
                for block in self._all_blocks():
                    self._add_block(block, live, 1.0)
            self._live = live
        return live

    def _new_live(self) -> LiveWeights:
        return LiveWeights(
            self.n_features_in_,
            len(self.classes_),
            chain=hasattr(self, "boundary"),
            boundary=bool(getattr(self, "boundary", False)),
            constant=bool(self.fit_intercept),
            visits=self.__dict__.get("_visits", 0.0),
        )

    def _add_block(self, block: DualMemory, live: LiveWeights, factor: float) -> None:
        problem = block.compiled.problem
        layout = (problem.n_features, problem.n_labels, problem.stride)
        if layout != (live.n_features, live.n_labels, live.stride):
            matrix = stacked_rows([rows_of(problem)], live.n_features, live.constant)
            problem = self._make(matrix, offsets_of(problem), problem.labels, live.stride)
            block.compiled = without_tables(self._compile(problem))
            problem = block.compiled.problem
        add_to(problem, block.form, block.multipliers, factor, live.w, drift=False)
        add_to(problem, block.form, block.multipliers, factor, live.u, drift=True)

    def _in_room(self, matrix: sp.csr_matrix, live: LiveWeights) -> sp.csr_matrix:
        """New rows as wide as the weights."""
        if self.fit_intercept:
            return with_constant(matrix, live.n_features - 1)
        return sp.csr_matrix(
            (matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], live.n_features)
        )

    def _with_constant(self, matrix: sp.csr_matrix) -> sp.csr_matrix:
        return with_constant(matrix) if self.fit_intercept else matrix

    def _uncertified(self, reason: str, passes: int, history: list[HistoryRow]) -> None:
        """Weights of the dual state, made when they are asked for, without a certificate."""
        self._unmade = lambda: self._go_live().averaged(self.n_features_in_)
        self.primal_objective_ = self.dual_objective_ = self.duality_gap_ = math.nan
        self.restricted_objective_ = self.restricted_gap_ = math.nan
        self.n_iter_ = passes
        self.converged_ = False
        self.oracle_exact_ = True
        self.stop_reason_ = reason
        self.history_ = history

    # Forgetting ----------------------------------------------------------------------------

    def forget(self, which: Any = None, *, keep_last: int | None = None) -> Any:
        """Leave examples behind: their multipliers go, and the weights without them remain.

        The weights are those of the multipliers kept, exactly; the next ``partial_fit`` without
        ``passes`` certifies them for the examples kept.

        Parameters
        ----------
        which : array-like of int or bool, optional
            Numbers of examples in the order in which they came (of those still remembered), or
            a mask of what to forget.
        keep_last : int, optional
            Instead: forget all but so many, the oldest first.

        Returns
        -------
        self
        """
        check_is_fitted(self, "classes_")
        if not self._remembers():
            raise ValueError(
                "there are no examples to forget: only partial_fit, and fit with warm_start=True, "
                "remember any."
            )
        n = self.n_examples_
        if (which is None) == (keep_last is None):
            raise TypeError("say what to forget: either which= or keep_last=.")
        gone = np.zeros(n, dtype=bool)
        if keep_last is not None:
            positive("keep_last", keep_last, integer=True)
            gone[: max(n - int(keep_last), 0)] = True
        else:
            gone[_chosenof(which, n)] = True
        if gone.all():
            raise ValueError(f"which= names all {n} examples: leave at least one, or fit anew.")
        if not gone.any():
            return self
        self._drop(gone)
        self._go_live()
        count = int(np.count_nonzero(gone))
        self._uncertified(f"{count} examples were forgotten", 0, [])
        return self

    def _leave(self, room: int) -> None:
        """Forget what does not fit into the memory: examples without mass first, oldest first.

        Forgetting an example without mass changes no weight.
        """
        blocks = self._all_blocks()
        mass = np.concatenate([mass_of(block.multipliers) for block in blocks])
        if len(mass) <= room:
            return
        gone = np.zeros(len(mass), dtype=bool)
        order = np.argsort(mass > 0.0, kind="stable")
        gone[order[: len(mass) - room]] = True
        if gone.all():
            del self._dual
            self._forget_stream()
            return
        self._drop(gone)

    def _drop(self, gone: Array) -> None:
        """Take examples out of the blocks and of the weights; the average begins anew.

        An average over iterates with and without them would be of neither problem.
        """
        live: LiveWeights | None = self.__dict__.get("_live")
        if live is not None:
            live.make_room(self.n_features_in_, len(self.classes_))
            live.restart_average()
        self._visits = 0.0
        for block in self._all_blocks():
            without_drift(block.multipliers)
        left: list[DualMemory] = []
        at = 0
        for block in self._all_blocks():
            part = gone[at : at + size_of(block)]
            at += len(part)
            if not part.any():
                left.append(block)
                continue
            if live is not None:
                self._add_block(self._part(block, np.flatnonzero(part)), live, -1.0)
            if not part.all():
                left.append(self._part(block, np.flatnonzero(~part)))
        self._set_blocks(left)

    def _part(self, block: DualMemory, chosen: Array) -> DualMemory:
        """Some examples of a block."""
        problem = block.compiled.problem
        matrix, offsets, labels = chosen_rows(problem, chosen)
        stride = problem.stride if problem.stride >= len(self.classes_) else None
        small = self._make(matrix, offsets, labels, stride)
        return dataclasses.replace(
            block,
            compiled=without_tables(self._compile(small)),
            form=chosen_form(block.form, chosen),
            multipliers=chosen_of(block.multipliers, chosen),
            weights=weights_of(block)[chosen],
        )


def size_of(block: DualMemory) -> int:
    """Examples of a block."""
    return len(weights_of(block))


def weights_of(block: DualMemory) -> Array:
    """Weights of a block's examples, as they were given."""
    assert block.weights is not None
    return block.weights


def _chosenof(which: Any, n: int) -> Array:
    """Numbers of examples from numbers or a mask."""
    array = np.asarray(which)
    if array.ndim != 1 or (array.dtype.kind not in "iub" and array.size):
        raise TypeError("which must be a vector of numbers of examples, or a mask.")
    if array.dtype == bool:
        if len(array) != n:
            raise ValueError(f"which has {len(array)} entries, but {n} examples are remembered.")
        return np.flatnonzero(array)
    chosen = array.astype(np.int64)
    wrong = (chosen < -n) | (chosen >= n)
    if wrong.any():
        raise ValueError(
            f"which names example {chosen[wrong][0]}, but {n} examples are remembered."
        )
    return chosen
