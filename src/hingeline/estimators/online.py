"""Learning from a stream: examples, features and labels that come, and examples that go.

What an estimator remembers are blocks of examples with their multipliers. A call of
``partial_fit`` without ``passes`` makes one block of them and solves the problem of all to a
certificate. With ``passes`` only the new examples are visited, from the weights of all, and become
a block of their own: nothing that was seen before is copied or read. With ``memory`` the examples
kept are few and all are visited: when others are forgotten, the multipliers of these must follow.
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

from hingeline._checks import positive
from hingeline._jit import announce_compiling
from hingeline.core.formulations import Formulation, make_formulation
from hingeline.core.planes import WorkingSet
from hingeline.core.primitives import Compiled
from hingeline.core.registry import option_names
from hingeline.core.results import DualMemory, HistoryRow, same_costs
from hingeline.core.workers import Workers, effective_n_jobs
from hingeline.estimators.remembering import RememberingSSVM, weights_of
from hingeline.streaming.live_weights import LiveWeights
from hingeline.streaming.memory import (
    offsets_of,
    rows_of,
    stacked_offsets,
    stacked_rows,
    without_tables,
)
from hingeline.streaming.passes import (
    StreamSDCD,
    StreamSDM,
    add_to,
    chosen_of,
    listed,
    relisted,
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
            if not self.warm_start:  # planes that lost their mass would add up from call to call
                dual.multipliers = chosen_of(dual.multipliers, np.arange(len(weights)))
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
            if passes is not None:
                self._refuse_changes(("C", "slack", "rescale"))
            if memory is not None:
                self.__dict__.pop("_live", None)
                self._leave(memory - len(weights))
        if passes is not None and fresh_planes:
            raise ValueError(
                "the scheme has changed, which passes= cannot follow: call partial_fit once "
                "without passes=."
            )
        if not self._remembers():
            if passes is None:
                self._fit_whole(matrix, offsets, labels, weights, True)
            else:
                self._visit_new(matrix, offsets, labels, weights, passes)
        elif passes is not None and memory is None:
            self._visit_new(matrix, offsets, labels, weights, passes)
        else:
            whole = self._whole()
            old = whole.compiled.problem
            constant = bool(self.fit_intercept)
            rows = stacked_rows(
                [rows_of(old), self._with_constant(matrix)], matrix.shape[1] + constant, constant
            )
            offsets = stacked_offsets([offsets_of(old), offsets])
            problem = self._make(rows, offsets, np.concatenate([old.labels, labels]))
            weights = np.concatenate([weights_of(whole), weights])
            if passes is None:
                self._fit_problem(problem, weights, None if fresh_planes else whole, True)
            else:
                self._visit_all(problem, weights, whole, passes)

    # A few passes --------------------------------------------------------------------------

    def _visit_new(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        weights: Array,
        passes: int,
    ) -> None:
        """Visit new examples only, and keep them as a block."""
        blocks = self._all_blocks() if self._remembers() else []
        live = self._go_live()
        live.make_room(matrix.shape[1], len(self.classes_))
        problem = self._make(self._in_room(matrix, live), offsets, labels, live.stride)
        if blocks:
            self._refuse_other_costs(blocks[-1].compiled.problem.cost, problem.cost)
        form = self._form(weights, labels)
        self._visit(self._compile(problem), form, weights, passes, live, None, blocks)

    def _visit_all(self, problem: Any, weights: Array, whole: DualMemory, passes: int) -> None:
        """Visit all examples, which are few; the average begins anew."""
        self._refuse_other_costs(whole.compiled.problem.cost, problem.cost)
        compiled, form = self._compile(problem), self._form(weights, problem.labels)
        n = len(weights_of(whole))
        used, y, mass, drift = listed(chosen_of(whole.multipliers, np.arange(n)))
        used = np.concatenate([used, np.zeros(compiled.n - n, dtype=np.int64)])
        start = relisted(compiled, form, used, y, mass, np.zeros_like(drift))
        self._visits = 0.0
        live = self._new_live()
        add_to(problem, form, start, 1.0, live.w, drift=False)
        self._visit(compiled, form, weights, passes, live, start, [])

    def _form(self, weights: Array, labels: Array) -> Formulation:
        weighted = self._weighted(weights, labels)
        return make_formulation(float(self.C), self.slack, self.rescale, weighted)

    @staticmethod
    def _refuse_other_costs(before: Array, now: Array) -> None:
        if not same_costs(before, now):
            raise ValueError(
                "loss or class_weight has changed since the examples before: call partial_fit "
                "once without passes=, which carries them over."
            )

    def _visit(
        self,
        compiled: Compiled,
        form: Formulation,
        weights: Array,
        passes: int,
        live: LiveWeights,
        start: WorkingSet | None,
        others: list[DualMemory],
    ) -> None:
        """Pass over examples, beside other blocks that stay as they are, and keep them."""
        began = time.perf_counter()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        stream = StreamSDCD if self.slack == "sum" else StreamSDM
        options = {k: v for k, v in self._options(stream).items() if k in option_names(stream)}
        interrupted = False
        done, estimate = 0, math.nan
        self.__dict__.pop("_live", None)  # should anything fail, made again from the blocks
        with (
            announce_compiling(),
            Workers(effective_n_jobs(self.n_jobs), compiled.scratch_size) as workers,
        ):
            solver = stream(compiled, form, workers, seed, options, live.w, live.visits, start)
            try:
                while done < passes:
                    estimate = solver.sweep()
                    done += 1
            except KeyboardInterrupt:  # kernels run to their end: mass and weights agree
                interrupted = True
        block = DualMemory(
            without_tables(compiled), form, chosen_of(solver.ws, np.arange(compiled.n)), weights
        )
        add_to(compiled.problem, form, block.multipliers, 1.0, live.u, drift=True)
        live.visits = self._visits = solver.visits
        self._live = live
        self._set_blocks([*others, block])
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
        which = "new examples" if start is None else "examples kept"
        reason = f"{done} {'pass' if done == 1 else 'passes'} over the {which}, as asked for"
        self._uncertified("interrupted" if interrupted else reason, done, [row])
        if interrupted:
            warnings.warn(
                f"partial_fit was interrupted after {done} of {passes} passes: the new examples "
                "are kept with the multipliers reached.",
                ConvergenceWarning,
                stacklevel=6,
            )

    # Input ---------------------------------------------------------------------------------

    def _check_online(self, passes: Any, memory: Any) -> None:
        if passes is not None:
            positive("passes", passes, integer=True)
            if self.slack == "nu":
                raise ValueError(
                    "passes= needs a fixed C, which slack='nu' does not have: leave it out, or use "
                    "slack='max' with C."
                )
            if self.solver not in ("auto", "sdm", "sdcd"):
                raise ValueError(
                    f"passes= works with solver 'sdm' or 'sdcd', not with {self.solver!r}: leave "
                    "it out."
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
        if self.solver in ("one-slack", "subgradient"):
            raise ValueError(
                f"partial_fit needs multipliers of single examples, which solver={self.solver!r} "
                "does not have: use solver='auto'."
            )

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
