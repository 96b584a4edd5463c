"""What lives on a worker: a host with the common weights, and its blocks of examples.

A block has examples, the solver ``"sdm"`` for them, and several sets of multipliers over the same
planes: the *current* one, of which the common weights are made, and solutions it came to in earlier
rounds. In a round it mixes these as the driver says, visits some of its examples from the common
weights on, all other blocks fixed, and tells how ``Σ α·a·Δf`` has changed. Nothing is drawn from
the clock or from a stream of random numbers: a block that is made anew and told the same comes to
the same bits.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._simd import aligned_zeros
from hingeline.core.blocks import spread
from hingeline.core.formulations import cut_back, make_formulation, total_slack_cost
from hingeline.core.loop import identity
from hingeline.core.primitives import Workers
from hingeline.distributed.shards import make_shard, read_parts

#: Local steps have no acceleration over all multipliers, which would take the weights for its own.
LOCAL_OPTIONS = {"cg_steps": 0, "newton_weights": 0, "stage_factor": 1.0}


def peak_memory() -> float:
    """Most memory that this process has had, in bytes; nan where the system does not say."""
    try:
        import resource
    except ImportError:
        return float("nan")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most if sys.platform == "darwin" else 1024 * most)


class Change(NamedTuple):
    """New values of some weights; of all where there is no index."""

    place: Any  # index of the weights; None: of all
    values: Array

    @property
    def size(self) -> int:
        """Bytes."""
        return self.values.nbytes + (0 if self.place is None else self.place.nbytes)

    def apply(self, weights: Array) -> None:
        """Write the values."""
        weights[slice(None) if self.place is None else self.place] = self.values

    def add_to(self, weights: Array) -> None:
        """Add the values; no place comes twice."""
        weights[slice(None) if self.place is None else self.place] += self.values


def find_change(before: Array, after: Array) -> Change:
    """What makes one vector of the other, in the form that takes less room."""
    index = np.flatnonzero(before != after)
    kind = np.int32 if len(after) < 2**31 else np.int64
    if len(index) * (8 + np.dtype(kind).itemsize) >= after.nbytes:
        return Change(None, after.copy())
    return Change(index.astype(kind), after[index])


def _find_difference(index: Array | None, before: Array, weights: Array, sigma: float) -> Change:
    """What was added to the weights of ``index`` (None: to any), over σ′."""
    moved = (weights if index is None else weights[index]) - before
    if sigma != 1.0:
        moved /= sigma
    some = np.flatnonzero(moved)
    kind = np.int32 if len(weights) < 2**31 else np.int64
    return Change((some if index is None else index[some]).astype(kind), moved[some])


class Told(NamedTuple):
    """What a block tells of a round."""

    change: Change  # of Σ α·a·Δf, not of the weights
    linear: float  # Σ α·b of the new multipliers
    ridge: tuple[Array, Array, float]  # of ``½ Σ r_i A_i²``, see :meth:`Block._ridges`
    gap: float  # over the planes known, summed as they were visited
    planes: int
    decodes: int


class Host:
    """The blocks of one worker process, and the weights that they have in common."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.weights = np.zeros(0)

    def call(self, method: str, common: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Let blocks do something, in turn: their answers, each with the seconds it took.

        ``common`` is a change of the weights, or None, and what all blocks are told.
        """
        change, *rest = common or (None,)
        if change is not None:
            if change.place is None and len(self.weights) != len(change.values):
                self.weights = aligned_zeros(len(change.values))
            change.apply(self.weights)
        answers = {}
        for k in sorted(own):
            began = time.process_time()
            block = self.blocks.setdefault(k, Block(k, self))
            found = getattr(block, method)(*rest, *own[k])
            answers[k] = (found, time.process_time() - began)
        return answers

    @contextmanager
    def lend(self, index: Array | None) -> Iterator[Array]:
        """The weights, for a block to change those of ``index`` (None: any); then as before.

        Gives back how they were.
        """
        place = slice(None) if index is None else index
        before = self.weights[place].copy()
        yield before
        self.weights[place] = before


class Block:
    """Some of the examples, and their multipliers."""

    def __init__(self, number: int, host: Host) -> None:
        self.number, self.host = number, host

    def read(self, estimator: Any, parts: Any) -> Any:
        """Read the examples; what must be known of all blocks before any can be posed."""
        self.estimator = estimator
        self.shard = make_shard(estimator, *read_parts(parts))
        return None if self.shard is None else self.shard.tell()

    def pose(self, known: dict[str, Any], own: Any) -> tuple[float, float]:
        """Make the problem, given what all blocks have; sums that ``C="scale"`` is made of."""
        estimator = self.estimator
        vars(estimator).update(known)
        self.compiled = None
        if self.shard is None:
            return 0.0, 0.0
        problem, self.weights = self.shard.pose(estimator, own)
        sums = self.shard.measure(problem)
        self.compiled = replace(estimator._compile(problem), stretch=None)
        del self.shard
        return sums

    def begin(self, C: float, seed: int, keep: int) -> dict[str, Any]:
        """Make the solver; what the driver wants to know of this block."""
        self.seed, self.keep, compiled = seed, keep, self.compiled
        self.at = self.rounds = 0
        if compiled is None:
            return {"n": 0, "size": 0, "exact": True, "bounded": True, "data": ""}
        estimator = self.estimator
        form = make_formulation(C, estimator.slack, estimator.rescale, self.weights)
        solver_class = estimator._solver_class(compiled)
        given = {**(estimator.solver_options or {}), **estimator._own_options(solver_class)}
        workers = Workers(1, compiled.scratch_size)
        options = {**given, **LOCAL_OPTIONS}
        self.solver = solver_class(compiled, form, workers, seed, options, None)
        self.solver.w = self.host.weights  # until the first call: its own would lie idle
        self.kept = np.zeros((1, len(self.solver.multipliers().mass)))
        self.order = self.solver.active
        facts = {"n": len(self.solver.active), "size": compiled.size}
        facts |= {"exact": compiled.exact, "bounded": compiled.bounded}
        facts["data"] = identity(compiled, form.cap, form.ridge)
        return facts | {"n_weights": compiled.n_weights}

    def advance(self, share: float, sigma: float, theta: Array) -> Told | None:
        """Mix the multipliers kept, then visit a share of the examples from the common weights.

        ``sigma`` is the σ′ of CoCoA: with multipliers and bounds so many times as large, the dual
        of the block alone has so many times the curvature.
        """
        if self.compiled is None or not len(self.order):
            return None
        solver, host = self.solver, self.host
        mass = solver.multipliers().mass
        mass[:] = self._mix(theta)
        form, room = solver.form, solver.multipliers().counts
        decoded = solver.oracle_calls
        solver.hold(self.kept.any(axis=0))
        solver.w = host.weights
        if sigma != 1.0:
            solver.form = form._replace(cap=form.cap * sigma, ridge=form.ridge / sigma)
            mass *= sigma
        gap, parts = 0.0, list(self._choose(share))
        touched = self.compiled.touched
        index = None if touched is None else touched(np.concatenate([part for _, part in parts]))
        with host.lend(index) as before:
            for tick, examples in parts:
                solver.clock += tick
                gap += solver.advance(examples)
            moved = _find_difference(index, before, host.weights, sigma)
        self._follow(room)
        known = solver.multipliers()
        if sigma != 1.0:
            solver.form = form
            known.mass[:] /= sigma
        self.kept = np.concatenate([self.kept, known.mass[None]])
        decoded = solver.oracle_calls - decoded
        return Told(moved, solver.linear(), self._ridges(), gap, solver.n_planes, decoded)

    def _mix(self, theta: Array) -> Array:
        """The current multipliers moved towards those kept, ``c + Σ θ_j (s_j − c)``; kept, too."""
        current = self.kept[0]
        for part, others in zip(theta, self.kept[1:], strict=True):
            if part != 0.0:
                current = current + part * (others - self.kept[0])
        owners = self.solver.multipliers().owners
        self.kept[0] = cut_back(self.solver.form, np.maximum(current, 0.0), owners)
        if len(self.kept) > self.keep:
            self.kept = np.delete(self.kept, 1, axis=0)
        return self.kept[0]

    def _choose(self, share: float) -> Iterator[tuple[int, Array]]:
        """The examples of this round, part by part: through all of them, in an order of the pass.

        A part is over where a pass is. 1 with the first part of a pass: the solver's clock ticks.
        """
        solver = self.solver
        solver.rng = np.random.default_rng([self.seed, self.number, self.rounds])
        self.rounds += 1
        n = len(solver.active)
        left = max(1, round(share * n)) if n else 0
        while left:
            tick = int(self.at == 0)
            if tick:
                self.order = solver.rng.permutation(solver.active)
            stop = min(self.at + left, n)
            yield tick, self.order[self.at : stop]
            left -= stop - self.at
            self.at = stop % n

    def _follow(self, room: Array) -> None:
        """Move the multipliers kept where the solver has given its examples more room."""
        now = self.solver.multipliers().counts
        if len(self.kept[0]) != now.sum():
            kept = np.zeros((len(self.kept), int(now.sum())))
            kept[:, spread(np.cumsum(now) - now, room)] = self.kept
            self.kept = kept

    def _ridges(self) -> tuple[Array, Array, float]:
        """For ``½ Σ r_i A_i²``: products of the directions to those kept, and with the current."""
        ridge = self.solver.form.ridge
        if not ridge.any():
            return np.zeros((0, 0)), np.zeros(0), 0.0
        counts = self.solver.multipliers().counts
        sums = np.add.reduceat(self.kept, np.cumsum(counts) - counts, axis=1)
        toward = sums[1:] - sums[0]
        return (toward * ridge) @ toward.T, toward @ (ridge * sums[0]), float(ridge @ sums[0] ** 2)

    def measure(self, candidate: Change) -> tuple[float, float]:
        """What slack costs at weights other than the common ones; how much of it is a bound."""
        if self.compiled is None:
            return 0.0, 0.0
        solver, host = self.solver, self.host
        solver.w = host.weights
        with host.lend(candidate.place):
            candidate.apply(host.weights)
            solver._find_violations()
            excess = solver.integrality_gap(solver.w)
        return total_slack_cost(solver.form, solver.violation), 0.0 if excess != excess else excess

    def sum_up(self, theta: Array) -> tuple[Change, float]:
        """``Σ α·a·Δf`` and ``Σ α·b`` of the current multipliers, from nothing."""
        if self.compiled is None or not len(self.order):
            return Change(np.zeros(0, dtype=np.int32), np.zeros(0)), 0.0
        solver, zero = self.solver, np.zeros_like(self.host.weights)
        solver.multipliers().mass[:] = self._mix(theta)
        self.kept = self.kept[:1]
        vector = aligned_zeros(len(zero))
        solver.add(solver.multipliers().mass, 1.0, vector)
        return find_change(zero, vector), solver.linear()

    def save(self) -> dict[str, Array]:
        """All that decides what this block does next, as arrays."""
        if self.compiled is None:
            return {}
        solver = self.solver
        names = [n for n in solver.saved_arrays if n not in ("w", "_best", "violation")]
        numbers = np.array([self.at, self.rounds, solver.clock], dtype=np.int64)
        own = {"kept": self.kept, "order": self.order, "numbers": numbers}
        return {**own, **{n: getattr(solver, n) for n in names}, **solver.tables()}

    def restore(self, state: dict[str, Array] | None) -> None:
        """Go back to what :meth:`save` gave; None: to the beginning."""
        if self.compiled is None or not state:
            return
        solver = self.solver
        self.kept, self.order = state["kept"].copy(), state["order"].copy()
        self.at, self.rounds, solver.clock = state["numbers"].tolist()
        solver.set_tables({n: state[n].copy() for n in solver.tables()})
        for name in solver.saved_arrays:
            if name in state:
                getattr(solver, name)[...] = state[name]

    def weigh(self) -> float:
        """Most memory that this process has had."""
        return peak_memory()
