"""Learning from a stream: examples, features and labels that come, and examples that go.

What an estimator remembers are blocks of examples with their multipliers. A call of
``partial_fit`` without ``passes`` makes one block of them and solves the problem of all to a
certificate. With ``passes`` only the new examples are visited, from the weights of all, and become
a block of their own: nothing that was seen before is copied or read.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from hingeline.estimators.base import DualMemory, announced
from hingeline.estimators.memory import (
    offsets_of,
    rows_of,
    same_costs,
    stacked_offsets,
    stacked_rows,
    without_tables,
)
from hingeline.estimators.remembering import RememberingSSVM, weights_of
from hingeline.estimators.validation import positive
from hingeline.formulations import make_formulation
from hingeline.solvers.history import HistoryRow
from hingeline.solvers.parallel import Workers, effective_n_jobs
from hingeline.solvers.stream import (
    StreamSDM,
    add_to,
    chosen_of,
    without_drift,
)

Array = np.ndarray[Any, Any]

#: What a call that fails leaves as it was.
_GROWING = ("classes_", "n_features_in_", "feature_names_in_", "scheme_", "encoder_")


class OnlineSSVM(RememberingSSVM):
    """The part of an estimator that learns from examples as they come."""

    def _fit_whole(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        weights: Array,
        keep: bool,
    ) -> None:
        """Solve the problem of these rows (the constant feature not among them) and no others."""
        dual = self.__dict__.get("_dual")
        if self.warm_start and (isinstance(dual, DualMemory) or hasattr(type(dual), "restored")):
            self._remembers()
            self._whole()
        problem = self._make(self._with_constant(matrix), offsets, labels)
        self._fit_problem(problem, weights, self._previous(problem), keep)

    def _fit_problem(
        self, problem: Any, weights: Array, start: DualMemory | None, keep: bool
    ) -> None:
        weighted = self._weighted(weights, problem.labels)
        result, dual = self._solve(self._compile(problem), weighted, start, self._kind)
        self._store(result)
        self._forget_stream()
        if keep or self.warm_start:
            without_drift(dual.multipliers)
            dual.weights = weights
            self._dual = dual
            self._key = self._settings()

    def _learn(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        weights: Array,
        passes: int | None,
        memory: int | None,
        fresh_planes: bool = False,
    ) -> None:
        """Take in new examples; ``fresh_planes`` gives up the multipliers of the old ones."""
        if memory is not None and len(weights) > memory:
            raise ValueError(
                f"memory={memory} is less than the {len(weights)} examples given: give smaller "
                "batches or more memory."
            )
        if self._remembers():
            self._refuse_changes(("fit_intercept", "boundary"))
            if memory is not None:
                self._leave(memory - len(weights))
        if passes is not None:
            if fresh_planes:
                raise ValueError(
                    "the scheme has changed, which passes= cannot follow: call partial_fit once "
                    "without passes=."
                )
            self._stream(matrix, offsets, labels, weights, passes)
            return
        if not self._remembers():
            self._fit_whole(matrix, offsets, labels, weights, True)
            return
        whole = self._whole()
        old = whole.compiled.problem
        constant = bool(self.fit_intercept)
        rows = stacked_rows(
            [rows_of(old), self._with_constant(matrix)], matrix.shape[1] + constant, constant
        )
        problem = self._make(
            rows,
            stacked_offsets([offsets_of(old), offsets]),
            np.concatenate([old.labels, labels]),
        )
        weights = np.concatenate([weights_of(whole), weights])
        self._fit_problem(problem, weights, None if fresh_planes else whole, True)

    def _stream(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        weights: Array,
        passes: int,
    ) -> None:
        """Visit new examples only, and keep them as a block."""
        began = time.perf_counter()
        first = not self._remembers()
        if not first:
            self._refuse_changes(("C", "slack", "rescale"))
        live = self._go_live()
        live.make_room(matrix.shape[1], len(self.classes_))
        problem = self._make(self._in_room(matrix, live), offsets, labels, live.stride)
        if not first and not same_costs(self._all_blocks()[-1].compiled.problem.cost, problem.cost):
            raise ValueError(
                "loss or class_weight has changed since the examples before: call partial_fit "
                "once without passes=, which carries them over."
            )
        compiled = self._compile(problem)
        form = make_formulation(
            float(self.C), self.slack, self.rescale, self._weighted(weights, labels)
        )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options = {k: v for k, v in (self.solver_options or {}).items() if k in StreamSDM.defaults}
        kernels = f"{self._kind}-SDM-{problem.values.dtype}"
        interrupted = False
        done, estimate = 0, math.nan
        try:
            with (
                announced(kernels, compiled),
                Workers(effective_n_jobs(self.n_jobs), compiled.scratch_size) as workers,
            ):
                solver = StreamSDM(compiled, form, workers, seed, options, live.w, live.visits)
                try:
                    while done < passes:
                        estimate = solver.sweep()
                        done += 1
                except KeyboardInterrupt:  # kernels run to their end: mass and weights agree
                    interrupted = True
        except BaseException:
            self.__dict__.pop("_live", None)  # made again from the blocks
            raise
        everything = np.arange(compiled.n)
        block = DualMemory(
            without_tables(compiled), form, chosen_of(solver.ws, everything), weights
        )
        add_to(problem, form, block.multipliers, 1.0, live.u, drift=True)
        live.visits = self._visits = solver.visits
        self._set_blocks([block] if first else [*self._all_blocks(), block])
        self._key = self._settings()
        row = HistoryRow(
            time=time.perf_counter() - began,
            passes=done,
            oracle_calls=solver.oracle_calls,
            primal=math.nan,
            dual=math.nan,
            gap=math.nan,
            estimate=estimate,
            planes=solver.n_planes,
        )
        reason = f"{done} {'pass' if done == 1 else 'passes'} over the new examples, as asked for"
        self._uncertified("interrupted" if interrupted else reason, done, [row])
        if interrupted:
            warnings.warn(
                f"partial_fit was interrupted after {done} of {passes} passes: the new examples "
                "are kept with the multipliers reached.",
                ConvergenceWarning,
                stacklevel=4,
            )

    # Input ---------------------------------------------------------------------------------

    def _check_online(self, passes: Any, memory: Any) -> None:
        if passes is not None:
            positive("passes", passes, integer=True)
            if self.solver not in ("auto", "sdm") or self.slack not in ("max", "squared"):
                raise ValueError(
                    f"passes= works with solver='sdm' and slack 'max' or 'squared', not with "
                    f"solver={self.solver!r} and slack={self.slack!r}: leave it out."
                )
            if math.isinf(self.C):
                raise ValueError("passes= needs a finite C: leave it out for a hard margin.")
            if isinstance(self.class_weight, str):
                raise ValueError(
                    "class_weight='balanced' changes with every batch, which passes= cannot "
                    "follow: give class_weight as a mapping."
                )
        if memory is not None:
            positive("memory", memory, integer=True)

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Labels and features that a failed call found are not kept."""
        before = {name: self.__dict__[name] for name in _GROWING if name in self.__dict__}
        try:
            yield
        except BaseException:
            for name in (*_GROWING, "_live"):  # the weights may have been given room
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise
