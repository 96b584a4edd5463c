"""What an estimator has once ``partial_fit`` was called: examples that come and go.

A stream keeps blocks of examples with their multipliers. A call of ``partial_fit`` without
``passes`` makes one block of them and solves the problem of all to a certificate. With ``passes``
the new examples are visited, from the weights of all, and become a block of their own; then those
of the call before have their second visit, and some older ones in a row one of the planes that they
have: their mass follows the weights, nothing is decoded. So do the latest when weights are asked
for, on copies. With ``memory`` the examples kept are few and all are visited: when others are
forgotten, the multipliers of these must follow.

Of its estimator a stream asks: parameters and ``classes_``, ``n_features_in_``; ``_make`` and
``_compile``, which pose the problem of some rows; ``_with_constant``, ``_weigh`` and
``_own_options``; ``_make_layout`` and ``_roomy_stride``, which lay out weights; ``_train``, which
solves a problem; and ``_store``.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from hingeline._checks import Array, draw_seed, effective_n_jobs, positive, require, retell, warn
from hingeline._jit import announce_compiling, working_time
from hingeline.core.blocks import WorkingSet, empty_working_set, spread
from hingeline.core.formulations import Formulation, make_formulation
from hingeline.core.primitives import Compiled, Workers
from hingeline.core.registry import option_names
from hingeline.core.results import DualMemory, HistoryRow, Result, same_costs
from hingeline.core.solver import PlaneSolver
from hingeline.features.input import find_classes
from hingeline.solvers.sdcd import SDCD
from hingeline.solvers.sdm import SDM
from hingeline.streaming import memory as store
from hingeline.streaming.memory import Examples, LiveWeights

#: Examples that are decoded at the same weights: few, since each is decoded a few times only.
TOGETHER = 16
#: How often a visit decodes an example, while it is violated: more where it is one of two. Mass
#: that is to follow the weights wants a choice of outputs, of which sequences have more.
REPEATS, REPEATS_ONCE, REPEATS_SEQUENCE_ONCE = 2, 4, 8
FOLLOW = 8  # Older examples whose known planes are visited, for each new one
FEW = 8  # of a batch that has at least so many: with fewer, it costs more than the batch.
#: Passes over the planes known before weights are handed out, and at most so many examples in
#: them for each of the last batch.
FINISH, LATEST = 6, 16
CARRY_OVER = "call partial_fit once without passes=, which carries them over."


class Stream:
    """Examples, multipliers and weights that an estimator keeps between calls."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.blocks: list[DualMemory] = []
        self.live: LiveWeights | None = None
        self.visits = 0.0  # iterates that the average counts so far
        self.fresh = 0  # examples at the end that only the last call has visited
        kept = vars(owner).get("_dual")
        if kept is not None:
            store.clear_drift(kept.planes())
            self.blocks = [owner.__dict__.pop("_dual")]
        elif "_stored" in vars(owner):
            what = "this model was loaded from a file, which holds neither training data nor"
            what += " multipliers for partial_fit to continue from: save it with state=True"
            how = "call fit with all data, or partial_fit on sklearn.base.clone(model)"
            require(owner._stored is not None, f"{what}, {how} to start afresh.")
            self.blocks = [owner._stored.restore(owner)]
            stored = owner.__dict__.pop("_stored")
            self.visits, self.fresh = stored.visits, stored.fresh

    def __len__(self) -> int:
        return sum(len(block.weights) for block in self.blocks)

    def check(self, passes: Any, memory: Any) -> None:
        """Refuse what a stream cannot do."""
        owner, solver = self.owner, self.owner.solver
        text = "partial_fit needs a C that stays, not C='auto'"
        require(owner.C != "auto", f"{text}: give the C_ of a fit on the first data as C.")
        if passes is not None:
            positive("passes", passes, integer=True)
            text = "passes= needs a fixed C, which slack='nu' does not have: leave it out"
            require(owner.slack != "nu", f"{text}, or use slack='max' with C.")
            able = self._solver_class().name
            text = f"passes= works with solver {able!r}, not with {solver!r}: leave it out."
            require(solver in ("auto", able), text)
            text = "passes= needs a finite C: leave it out for a hard margin."
            require(math.inf != owner.C, text)
            text = "class_weight='balanced' changes with every batch, which passes= cannot follow"
            fixed = not isinstance(owner.class_weight, str)
            require(fixed, f"{text}: give class_weight as a mapping.")
        if memory is not None:
            positive("memory", memory, integer=True)
        text = f"partial_fit needs multipliers of single examples, which {solver=} does not have"
        require(owner._solver_class(None).by_example, f"{text}: use solver='auto'.")
        if not self.blocks and "weights_" in vars(owner):
            what = "the examples of an earlier fit were not kept, so partial_fit starts afresh"
            warn(f"{what}: begin with partial_fit or warm_start=True; a pickle holds none.")

    def refuse_changes(self, *names: str) -> None:
        """Refuse parameters that are no longer what they were for the examples before."""
        before = self.blocks[-1].settings
        for name in names:
            if name in before and getattr(self.owner, name) != before[name]:
                lasting = name in ("fit_intercept", "boundary")
                remedy = "call fit on all examples." if lasting else CARRY_OVER
                what = f"{name} was {before[name]!r} for the examples before and is"
                raise ValueError(f"{what} {getattr(self.owner, name)!r} now: {remedy}")

    @contextlib.contextmanager
    def adding(self, passes: Any, memory: Any) -> Iterator[Self]:
        """While examples are added: labels and features that a failed call found are not kept."""
        self.check(passes, memory)
        before = dict(vars(self.owner))
        try:
            yield self
        except BaseException:
            self.live = None  # the weights may have been given room
            self.owner.__dict__ = before
            raise

    def add_classes(self, labels: Sequence[Any]) -> None:
        """Put labels that are new behind ``classes_``, sorted where they can be."""
        classes = self.owner.classes_
        known = set(classes.tolist())
        with retell("y holds a label that is not hashable: ", ".", TypeError, error=TypeError):
            new = [label for label in dict.fromkeys(labels) if label not in known]
        if not new:
            return
        added, _ = find_classes(new)
        every = [*classes.tolist(), *added.tolist()]
        both = np.concatenate([classes, added]) if classes.dtype.kind == added.dtype.kind else None
        if both is None or both.tolist() != every:  # exactly these labels, whatever their types
            both = np.empty(len(every), dtype=object)
            both[:] = every
        self.owner.classes_ = both

    def learn(
        self, examples: Examples, weights: Array, passes: Any, memory: Any, afresh: bool = False
    ) -> None:
        """Take in new examples; ``afresh`` gives up the multipliers of the old ones."""
        text = f"{memory=} is less than the {len(weights)} examples given"
        fits = memory is None or len(weights) <= memory
        require(fits, f"{text}: give smaller batches or more memory.")
        if self.blocks:
            self.refuse_changes("fit_intercept", "boundary")
            if passes is not None:
                self.refuse_changes("C", "slack", "rescale")
            if memory is not None:
                self.live = None
                self._shrink(memory - len(weights))
        text = "the scheme has changed, which passes= cannot follow"
        require(passes is None or not afresh, f"{text}: call partial_fit once without passes=.")
        examples, whole = (self.owner._with_constant(examples[0]), *examples[1:]), None
        if passes is not None and (memory is None or not self.blocks):
            self._visit_new(examples, weights, passes)
            return
        if self.blocks:
            whole = self.merge()
            parts = [store.examples_of(whole.compiled.problem), examples]
            examples = self._stack(parts, self.owner.n_features_in_)
            weights = np.concatenate([whole.weights, weights])
        problem = self.owner._make(*examples)
        if passes is not None and whole is not None:
            self._visit_all(problem, weights, whole, passes)
            return
        dual = self.owner._train(problem, weights, None if afresh else whole)
        store.clear_drift(dual.planes())
        if not self.owner.warm_start:  # planes that lost their mass would add up from call to call
            dual.multipliers = store.choose_planes(dual.multipliers, np.arange(len(weights)))
        self.blocks, self.live, self.visits, self.fresh = [dual], None, 0.0, 0

    def merge(self) -> DualMemory:
        """All blocks as one."""
        if len(self.blocks) > 1:
            owner = self.owner
            examples = [store.examples_of(block.compiled.problem) for block in self.blocks]
            compiled = owner._compile(owner._make(*self._stack(examples, owner.n_features_in_)))
            parts = [block.multipliers for block in self.blocks]
            multipliers = store.join_multipliers(parts, compiled.n_outputs)
            weights = np.concatenate([block.weights for block in self.blocks])
            fields: Any = (  # blocks differ in what is per example only
                np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]
                for values in zip(*(block.form for block in self.blocks), strict=True)
            )
            form, settings = Formulation(*fields), self.blocks[-1].settings
            self.blocks = [DualMemory(compiled, form, multipliers, weights, settings)]
        return self.blocks[0]

    def _stack(self, parts: Sequence[Examples], n_columns: int) -> Examples:
        """Examples below each other, so many columns wide, the constant feature behind them."""
        constant = bool(self.owner.fit_intercept)
        matrices = []
        for rows, _, _ in parts:
            columns, shape = rows.indices, (rows.shape[0], n_columns + constant)
            if constant and rows.shape != shape and rows.shape[0]:
                columns = columns.copy()
                columns[rows.indptr[1:] - 1] = n_columns
            matrices.append(sp.csr_matrix((rows.data, columns, rows.indptr), shape=shape))
        lengths = [np.diff(offsets) for _, offsets, _ in parts if offsets is not None]
        offsets = np.concatenate([[0], *lengths]).cumsum() if lengths else None
        labels = np.concatenate([labels for _, _, labels in parts])
        rows = matrices[0] if len(matrices) == 1 else sp.vstack(matrices, format="csr")
        return rows, offsets, labels

    def _solver_class(self) -> type[PlaneSolver]:
        return SDCD if self.owner.slack == "sum" else SDM

    def _visit_new(self, examples: Examples, weights: Array, passes: int) -> None:
        """Visit new examples, then those of the call before once more, and keep them as blocks."""
        owner, live = self.owner, self.go_live()
        live.make_room(owner.n_features_in_, len(owner.classes_))
        problem = owner._make(*self._stack([examples], live.n_columns), live.stride)
        if self.blocks:
            self._refuse_other_costs(self.blocks[-1].compiled.problem.cost, problem.cost)
        else:
            owner.C_ = owner._choose_C(problem, weights)
        compiled, form = owner._compile(problem), self._make_form(weights, problem.labels)
        none = empty_working_set(compiled.lengths, gram=False)
        new = DualMemory(compiled, form, none, weights, owner._settings())
        others, again = self._split()
        for block in again:
            self._pose(block, live)
        todo = [(new, passes), *((block, 1) for block in again)]
        self._visit(todo, live, "new examples", often=passes == 1)
        self.blocks, self.fresh = [*others, *reversed(self.blocks)], len(weights)
        # Sequences gain by it on all data tried; single labels lose as often, and pay for it.
        sequences = new.compiled.n_outputs is None
        if sequences and len(weights) >= FEW and owner.stop_reason_ != "interrupted":
            self._follow(others, FOLLOW * len(weights))

    def _split(self) -> tuple[list[DualMemory], list[DualMemory]]:
        """Blocks to leave alone, and that of the examples which only the last call has visited."""
        if not self.fresh:
            return self.blocks, []
        *others, last = self.blocks
        n = len(last.weights)
        if self.fresh < n:  # blocks were merged since
            parts = np.split(np.arange(n), [n - self.fresh])
            old, last = (self._choose(last, part) for part in parts)
            others.append(old)
        return others, [last]

    def _follow(self, others: list[DualMemory], count: int) -> None:
        """Let the mass of some older examples in a row follow the weights; nothing is decoded."""
        live, n, at = self.go_live(), sum(len(block.weights) for block in others), 0
        first = int(np.random.default_rng(int(self.visits)).integers(max(n, 1)))
        for block in others:
            places = (np.arange(at, at + len(block.weights)) - first) % n
            chosen, at, ws = np.flatnonzero(places < count), at + len(places), block.multipliers
            if len(chosen) and isinstance(ws, WorkingSet):
                part = self._choose(block, chosen)
                self._pose(part, live)
                slots = spread(ws.slot[chosen], ws.used[chosen])
                slots = slots[(ws.alpha[slots] != 0.0) | (ws.drift[slots] != 0.0)]
                part, _, self.visits = self._pass_over(part, 0, live, self.visits)
                ws.alpha[slots], ws.drift[slots] = store.list_planes(part.multipliers)[2:]

    def _visit_all(self, problem: Any, weights: Array, whole: DualMemory, passes: int) -> None:
        """Visit all examples, which are few; the average begins anew."""
        self._refuse_other_costs(whole.compiled.problem.cost, problem.cost)
        compiled, form = self.owner._compile(problem), self._make_form(weights, problem.labels)
        n = len(whole.weights)
        kept = store.choose_planes(whole.multipliers, np.arange(n))
        used, y, mass, drift = store.list_planes(kept)
        used = np.concatenate([used, np.zeros(compiled.n - n, dtype=np.int64)])
        start = store.restore_planes(compiled, form, used, y, mass, np.zeros_like(drift))
        self.visits = 0.0
        live = self._allocate()
        block = DualMemory(compiled, form, start, weights, self.owner._settings())
        store.add_block(block, 1.0, live.w, drift=False)
        self._visit([(block, passes)], live, "examples kept")
        self.fresh = 0

    def _make_form(self, weights: Array, labels: Array) -> Formulation:
        owner = self.owner
        return make_formulation(owner.C_, owner.slack, owner.rescale, owner._weigh(weights, labels))

    @staticmethod
    def _refuse_other_costs(before: Array, now: Array) -> None:
        text = "loss or class_weight has changed since the examples before"
        require(same_costs(before, now), f"{text}: {CARRY_OVER}")

    def _visit(
        self, todo: list[tuple[DualMemory, int]], live: LiveWeights, which: str, often: bool = False
    ) -> None:
        """Pass over blocks, so many times each; they are what is kept. The first is reported."""
        began, visits = working_time(), self.visits
        self.live = None  # should anything fail, made again from the blocks
        rows, kept, interrupted = [], [block for block, _ in todo], False
        for k, (block, passes) in enumerate(todo):
            if not interrupted:
                kept[k], row, visits = self._pass_over(block, passes, live, visits, often)
                interrupted = row.passes < passes
                rows.append(row)
        self.blocks, self.live, self.visits = kept, live, visits
        sums = {n: sum(getattr(row, n) for row in rows) for n in ("oracle_calls", "planes")}
        row = rows[0]._replace(time=working_time() - began, **sums)
        done = row.passes
        reason = f"{done} {'pass' if done == 1 else 'passes'} over the {which}, as asked for"
        self._store_uncertified("interrupted" if interrupted else reason, done, [row])
        if interrupted:
            text = f"partial_fit was interrupted after {done} of {todo[0][1]} passes"
            warn(f"{text}: the new examples are kept as far as they came.", ConvergenceWarning)

    def _pass_over(
        self, block: DualMemory, passes: int, live: LiveWeights, visits: float, often: bool = False
    ) -> tuple[DualMemory, HistoryRow, float]:
        """The block after so many passes (0: one over its planes), and the visits made by then."""
        compiled, form = block.compiled, block.form
        seed, n_jobs = draw_seed(self.owner.random_state), effective_n_jobs(self.owner.n_jobs)
        done, gain, nan = 0, math.nan, math.nan
        with announce_compiling(), Workers(n_jobs, compiled.scratch_size) as workers:
            once = REPEATS_ONCE if compiled.n_outputs else REPEATS_SEQUENCE_ONCE
            repeats = once if often else REPEATS
            solver = self._open(block, live, workers, seed, max(4, repeats) if passes else 0)
            solver.visits, solver.repeats = visits, repeats
            try:
                if not passes:
                    some = np.flatnonzero(solver.ws.used > 0)
                    solver.move(solver.rng.permutation(some), form, solver.gaps)
                while done < passes:
                    gain = solver.sweep()
                    done += 1
            except KeyboardInterrupt:  # kernels run to their end: mass and weights agree
                pass
        planes: Any = solver.ws  # with inner products, for visits to come
        if passes:
            planes = store.choose_planes(planes, np.arange(compiled.n), gram=True)
        kept = dataclasses.replace(block, compiled=without_tables(compiled), multipliers=planes)
        store.add_block(kept, 1.0, live.u, drift=True)
        row = HistoryRow(nan, done, solver.oracle_calls, nan, nan, nan, gain, solver.n_planes)
        return kept, row, solver.visits

    def _open(
        self, block: DualMemory, live: LiveWeights, workers: Workers, seed: int, room: int = 0
    ) -> PlaneSolver:
        """A solver of a block at the weights of all, from which its share in the average is out."""
        owner, compiled, form = self.owner, block.compiled, block.form
        kind = self._solver_class()
        # Steps over all planes at once would need all examples, and no average knows of them.
        asked = {"block": TOGETHER, **(owner.solver_options or {}), **owner._own_options(kind)}
        asked |= {"cg_steps": 0, "newton_weights": 0}
        options = {name: v for name, v in asked.items() if name in option_names(kind)}
        store.add_block(block, -1.0, live.u, drift=True)
        solver = kind(compiled, form, workers, seed, options, empty_working_set(compiled.lengths))
        solver.streaming, solver.w = True, live.w  # which have these planes already
        known: Any = store.choose_planes(block.multipliers, np.arange(compiled.n), room, gram=True)
        solver.ws = solver.take_over(known)
        return solver

    def go_live(self) -> LiveWeights:
        """The weights of the multipliers kept, as they change from call to call."""
        if self.live is None:
            live = self._allocate()
            for block in self.blocks:
                self._add(block, live, 1.0)
            self.live = live
        return self.live

    def _allocate(self) -> LiveWeights:
        return LiveWeights(self.owner, self.owner.n_features_in_, len(self.owner.classes_))

    def _add(self, block: DualMemory, live: LiveWeights, factor: float) -> None:
        self._pose(block, live)
        store.add_block(block, factor, live.w, drift=False)
        store.add_block(block, factor, live.u, drift=True)

    def _pose(self, block: DualMemory, live: LiveWeights) -> None:
        """Pose the problem of a block anew where the weights have grown."""
        owner, problem = self.owner, block.compiled.problem
        sizes = (problem.n_features, problem.n_labels, problem.stride)
        if sizes != (live.n_columns + bool(owner.fit_intercept), live.n_labels, live.stride):
            examples = self._stack([store.examples_of(problem)], live.n_columns)
            block.compiled = without_tables(owner._compile(owner._make(*examples, live.stride)))

    def average(self) -> Array:
        """The average of the iterates, as flat weights of the estimator.

        The iterates of some more passes over the planes of the latest examples are among them.
        They are made on copies: whether and when weights are asked for changes no stream.
        """
        live, visits = self.go_live(), self.visits
        if self.fresh >= FEW and visits > 0:
            live, seed = live.copy(), int(visits)
            with announce_compiling(), contextlib.ExitStack() as stack:
                opened = []
                for block in self._latest(LATEST * self.fresh):
                    self._pose(block, live)
                    workers = stack.enter_context(Workers(1, block.compiled.scratch_size))
                    opened.append((block, self._open(block, live, workers, seed)))
                for _ in range(FINISH):
                    for block, solver in opened:
                        some = solver.rng.permutation(np.flatnonzero(solver.ws.used > 0))
                        solver.visits = visits
                        solver.move(some, block.form, solver.gaps)
                        visits = solver.visits
                for block, solver in opened:
                    moved = dataclasses.replace(block, multipliers=solver.ws)
                    store.add_block(moved, 1.0, live.u, drift=True)
        return live.average(self.owner.n_features_in_, visits)

    def _latest(self, count: int) -> list[DualMemory]:
        """Blocks of so many examples that came last, where these have planes."""
        chosen: list[DualMemory] = []
        for block in reversed(self.blocks):
            n = len(block.weights)
            if count > 0 and isinstance(block.multipliers, WorkingSet):
                chosen.append(block if n <= count else self._choose(block, np.arange(n - count, n)))
            count -= n
        return chosen[::-1]

    def _store_uncertified(self, reason: str, passes: int, history: list[HistoryRow]) -> None:
        """Weights of the dual state, made when they are asked for, without a certificate."""
        nothing, nan = np.empty(0), math.nan
        self.owner._store(
            Result(nothing, nan, nan, nan, nan, passes, False, True, True, False, reason, history)
        )
        del self.owner.__dict__["weights_"]

    def forget(self, which: Any, keep_last: int | None) -> None:
        """Forget examples; see :meth:`hingeline.ChainSSVM.forget`."""
        remedy = "only partial_fit, and fit with warm_start=True, remember any"
        require(self.blocks, f"there are no examples to forget: {remedy}.")
        n = len(self)
        one = (which is None) != (keep_last is None)
        require(one, "say what to forget: pass either which= or keep_last=.", TypeError)
        gone = np.zeros(n, dtype=bool)
        if keep_last is not None:
            positive("keep_last", keep_last, integer=True)
            gone[: max(n - int(keep_last), 0)] = True
        else:
            chosen = np.asarray(which)
            fine = chosen.ndim == 1 and (chosen.dtype.kind in "iub" or not chosen.size)
            require(fine, "which must be a vector of numbers of examples, or a mask.", TypeError)
            text = f"which does not fit the {n} examples that are remembered"
            with retell(f"{text}: ", ".", IndexError):
                gone[chosen if chosen.size else []] = True
        require(not gone.all(), f"which= names all {n} examples: leave at least one, or fit again.")
        if gone.any():
            self._drop(gone)
            self.go_live()
            self._store_uncertified(f"{np.count_nonzero(gone)} examples were forgotten", 0, [])

    def _shrink(self, room: int) -> None:
        """Forget what does not fit into the memory: first what has no mass, the oldest first."""
        mass = np.concatenate([store.sum_masses(block.multipliers) for block in self.blocks])
        if len(mass) <= room:
            return
        gone = np.zeros(len(mass), dtype=bool)
        gone[np.argsort(mass > 0.0, kind="stable")[: len(mass) - room]] = True
        if gone.all():
            self.blocks, self.live, self.visits, self.fresh = [], None, 0.0, 0
            return
        self._drop(gone)

    def _drop(self, gone: Array) -> None:
        """Take examples out of the blocks and of the weights; the average begins anew."""
        live = self.live
        if live is not None:
            live.make_room(self.owner.n_features_in_, len(self.owner.classes_))
            live.u[:] = 0.0
        self.visits = 0.0
        self.fresh -= int(np.count_nonzero(gone[len(gone) - self.fresh :]))
        left: list[DualMemory] = []
        ends = np.cumsum([len(block.weights) for block in self.blocks])
        for block, part in zip(self.blocks, np.split(gone, ends[:-1]), strict=True):
            store.clear_drift(block.multipliers)
            if live is not None and part.any():
                self._add(self._choose(block, np.flatnonzero(part)), live, -1.0)
            if not part.all():
                left.append(self._choose(block, np.flatnonzero(~part)) if part.any() else block)
        self.blocks = left

    def _choose(self, block: DualMemory, chosen: Array) -> DualMemory:
        owner, problem, rows = self.owner, block.compiled.problem, chosen
        stride = problem.stride if problem.stride >= len(owner.classes_) else None
        matrix, offsets, labels = store.examples_of(problem)
        if offsets is not None:
            lengths = np.diff(offsets)[chosen]
            rows, offsets = spread(offsets[:-1][chosen], lengths), np.append(0, lengths).cumsum()
        small = owner._make(matrix[rows], offsets, labels[rows], stride)
        fields: Any = (v[chosen] if isinstance(v, np.ndarray) else v for v in block.form)
        compiled, form = without_tables(owner._compile(small)), Formulation(*fields)
        planes = store.choose_planes(block.multipliers, chosen, gram=True)
        return DualMemory(compiled, form, planes, block.weights[chosen], block.settings)


def without_tables(compiled: Compiled) -> Compiled:
    """The problem without inner products of tokens, which can be computed again."""
    problem = compiled.problem
    if not hasattr(problem, "token_gram"):
        return compiled
    none = np.full(len(problem.gram_row), -1, dtype=np.int64)
    smaller = problem._replace(token_gram=np.empty(0), gram_row=none)
    return dataclasses.replace(compiled, problem=smaller)
