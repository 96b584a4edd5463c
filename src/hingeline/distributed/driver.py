"""The solver ``"blocks"``: dual steps in blocks of examples, made into one by the driver.

For the problem of :mod:`hingeline.core.formulations`, cut into blocks. In a round every block
decodes some of its examples and visits them in turn, from the common weights on, all others fixed,
which gives a step of multipliers for each: ``u_i = Σ_y δ_i(y)·a·Δf_i(y)``, ``c_i = Σ_y δ_i(y)·b``.
Blocks overshoot together, since all of them mend the same mistakes. The driver finds how far each
example goes, in a dual of its own::

    max_t  Σ_i t_i c_i − ½‖w + Σ_i t_i u_i‖² − ½ Σ_i r_i (A_i + t_i Σ_y δ_i(y))²
    over 0 ≤ t_i ≤ the length at which step i meets a bound

by some sweeps of coordinate ascent, which cost it a few numbers per example where blocks decode.
So decoding, the dear part, is done in all blocks at once, and the step of an example still knows of
those before it, as in :mod:`hingeline.solvers.sdm`. Any t is feasible by convexity: the dual never
falls, and any weights with any such multipliers give a true gap, at the price of one decode of each
block's examples, ``P(v) = ½‖v‖² + Σ_k cost_k(v)``.

At a large C passes crawl, in blocks as on one machine. Where they do, all blocks together take the
Newton steps of :mod:`hingeline.solvers.newton`, over planes that stay where they are: a block tells
what the weights of a trial make of its examples, and the rows of its free multipliers.

How much of a pass a round does follows from the cost of round trips, as the options say, beside
work and bytes that are counted. No clock is asked: with the same options any run has the same bits.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline._simd import aligned_zeros
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import CertifiedSolver
from hingeline.distributed.block import (
    LARGE,
    LENGTHS,
    Change,
    Changes,
    Told,
    find_change,
    peak_memory,
)
from hingeline.distributed.executors import Calls, WorkersLost
from hingeline.solvers import newton
from hingeline.solvers.sdm import SMALL_FIT, Accelerator

#: A block's examples are cut into so many pieces, at least and at most: one for each round.
PIECES = (4, 16)
#: Rounds after them over the planes known, at most, in passes that find little new; 1 in others.
AGAIN = 5
#: Multiplications of decoding a second, by which a block's work in a pass is put into seconds, with
#: visits and all. Measured: a quarter to five times as many (OCR letters, Brown).
PACE = 1e8
#: The ascent over steps ends where a sweep gains less than so much of it all, and after some. With
#: 0.01 the weights were as good in the dual, and twice as far from the optimum in the primal.
ACCURACY = 3e-4
SWEEPS = 80
SUM_EVERY = 16  # Passes after which the weights are summed up from the multipliers.
#: Passes after which blocks send their state, for when a worker is lost; sooner where what they
#: would have to be told again takes the memory of the weights, and so many bytes.
SAVE_EVERY, MOST_TOLD = 4, 2**28


class Steps(NamedTuple):
    """The steps of all examples of a round, over the weights that any of them changes."""

    changes: Changes
    first: Array  # (examples, 2): of an example's values, and of its places
    places: Array  # of all products, column by column, numbers among the weights that change


@kernel
def read_steps(changes: Changes, w: Array, seen: Array) -> tuple[Steps, Array]:
    """Number the weights that steps change; which they are. ``seen`` is −1 everywhere."""
    ends, code, _ = changes
    n = ends.shape[0] - 1
    first = np.empty((n, 2), dtype=np.int64)
    v = entries = at = 0
    for i in range(n):
        first[i, 0] = v
        first[i, 1] = entries
        while at < ends[i + 1]:
            rows, columns = abs(code[at]), code[at + 1]
            v += columns + (0 if code[at] > 0 else rows)
            entries += rows * columns
            at += 2 + rows + columns
    index = np.empty(entries, dtype=np.uint32)
    moved = np.empty(min(entries, w.shape[0]), dtype=code.dtype)
    # In the order in which they come up: neighbours in an example, neighbours in memory.
    count = at = e = 0
    while at < code.shape[0]:
        columns = at + 2
        rows = columns + code[at + 1]
        at = rows + abs(code[at])
        for k in range(columns, rows):
            for r in range(rows, at):
                place = code[r] + code[k]
                if seen[place] < 0:
                    seen[place] = count
                    moved[count] = place
                    count += 1
                index[e] = seen[place]
                e += 1
    for j in range(count):
        seen[moved[j]] = -1
    return Steps(changes, first, index), moved[:count]


@helper
def follow_step(steps: Steps, i: int, length: float, now: Array) -> float:
    """Go so far on a step; where that is 0, the inner product of the step with ``now``."""
    (ends, code, values), places = steps.changes, steps.places
    v, e = steps.first[i]
    at = ends[i]
    total = 0.0
    while at < ends[i + 1]:
        rows, columns = abs(code[at]), code[at + 1]
        ones = code[at] > 0
        x = v + columns
        for k in range(v, x):
            far, one, other = length * values[k], 0.0, 0.0
            if length != 0.0:
                for r in range(rows):
                    now[places[e + r]] += far if ones else far * values[x + r]
            elif ones:
                for r in range(0, rows - 1, 2):  # two sums: neither waits for the other
                    one += now[places[e + r]]
                    other += now[places[e + r + 1]]
                one += now[places[e + rows - 1]] if rows % 2 == 1 else 0.0
            else:
                for r in range(rows):
                    one += values[x + r] * now[places[e + r]]
            total += values[k] * (one + other)
            e += rows
        v = x if ones else x + rows
        at += 2 + rows + columns
    return total


@kernel
def take_steps(now: Array, steps: Steps, dual: Array, lengths: Array) -> None:
    """Choose the lengths of steps by coordinate ascent, from 0; ``now`` goes along.

    These are the weights that change; ``dual`` has the gain, the curve and the most of every step.
    """
    gain, curve, most = dual[0], dual[1], dual[2]
    n = gain.shape[0]
    square = np.empty(n)
    alone = np.zeros(now.shape[0])
    for i in range(n):
        follow_step(steps, i, 1.0, alone)
        square[i] = curve[i] + follow_step(steps, i, 0.0, alone)
        end = steps.first[i + 1, 1] if i + 1 < n else steps.places.shape[0]
        for e in range(steps.first[i, 1], end):
            alone[steps.places[e]] = 0.0
    whole = least = 0.0
    gained = np.full(n, np.inf)
    for s in range(SWEEPS):
        # Every fourth sweep looks at all of them, the others at those that had something to gain.
        rise = 0.0
        for i in range(n):
            if s % 4 > 0 and gained[i] <= least:
                continue
            slope = gain[i] - lengths[i] * curve[i] - follow_step(steps, i, 0.0, now)
            goal = most[i] if slope > 0.0 else 0.0
            if square[i] > 0.0:
                goal = min(max(lengths[i] + slope / square[i], 0.0), most[i])
            step = goal - lengths[i]
            gained[i] = step * (slope - 0.5 * step * square[i])
            if step != 0.0:
                lengths[i] = goal
                rise += gained[i]
                follow_step(steps, i, step, now)
        whole += rise
        least = 0.3 * rise / max(n, 1)
        if rise <= ACCURACY * whole:
            break


@kernel
def move_weights(w: Array, moved: Array, now: Array, drift: Array, visits: float) -> None:
    """Give the weights that change their values, and the average its share."""
    factor = visits * (visits - 1.0)
    for j in range(moved.shape[0]):
        k = moved[j]
        drift[k] += factor * (now[j] - w[k])
        w[k] = now[j]


class Apart:
    """The planes of all blocks, as :class:`hingeline.solvers.newton.Planes` those of one solver."""

    def __init__(self, driver: "Blocks", none: bool) -> None:
        self.driver, self.kept = driver, False
        told = driver.calls.ask("open_point", (driver._send(), none))
        self.filled = tuple(map(sum, zip(*told, strict=True)))
        self.first = len(driver.calls.log)
        self.way: list[Array] = []  # the last two weights that were looked at

    def list_starts(self) -> list[Array]:
        return [self.driver.best()[0].copy(), self.driver.w.copy()]

    def evaluate(self, w: Array, rate: float) -> newton.Told:
        answers = self.driver.calls.ask("tell_point", (None, w, rate, self.kept))
        self.driver.rounds += 1
        log = self.driver.calls.log  # blocks are told again: the last, and all up to what is kept
        if self.kept:
            del log[self.first : -2]
        elif len(log) > self.first + 1 and not log[-2][1][-1]:
            del log[-2]
        self.way, self.kept = [*self.way[-1:], w], False
        told, values, self.curvature = zip(*answers, strict=True)
        self.values = np.sum(values, axis=0)
        value, cost, gain, ridge, image = (np.sum(part, axis=0) for part in zip(*told, strict=True))
        return newton.Told(float(value), float(cost), float(gain), float(ridge), image)

    def shorten(self, w: Array, trial: Array) -> float:
        if self.way[0] is not w:  # the second time: the values are those from the first trial on
            return 0.5
        norms = [float(v @ v) for v in w + LENGTHS[:, None] * (trial - w)]
        return float(LENGTHS[np.argmin(0.5 * np.array(norms) + self.values)])

    def find_direction(self, gradient: Array) -> Array:
        n = len(gradient)
        whole = [part for part in self.curvature if not sp.issparse(part)]
        rows = sp.vstack([sp.csr_matrix((0, n)), *filter(sp.issparse, self.curvature)])
        if whole or len(gradient) <= min(rows.shape[0], LARGE):
            return newton.solve(sum(whole, (rows.T @ rows).toarray()), None, gradient)
        if rows.shape[0] > LARGE:
            squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel()
            return newton.conjugate_gradients(lambda v: rows.T @ (rows @ v), squares, -gradient)
        inner = (rows @ rows.T).toarray() + np.eye(rows.shape[0])
        return np.asarray(rows.T @ np.linalg.solve(inner, rows @ gradient) - gradient)

    def keep(self) -> None:
        self.kept = True

    def take(self, image: Array) -> None:
        driver = self.driver
        driver._moved = find_change(driver.w, image, dense=False).place
        driver.w[:] = image
        driver._note(driver.calls.ask("end_point", (driver._send(), self.kept)))


class Blocks(CertifiedSolver):
    """The driver's side of training in blocks; see the head of this module."""

    name = "blocks"
    slacks: ClassVar[tuple[str, ...]] = ("max", "squared")
    soft_only = "steps in blocks need multipliers with a bound"
    goes_on = "with a Checkpoint the fit could continue from there"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        latency: float = option(0.005, "seconds of a round trip; they determine the rounds")
        bandwidth: float = option(1e9, "bytes per second to and from the driver, likewise")
        pieces: int | None = option(None, "rounds of a pass that decode; None: by latency", least=1)

    saved_numbers = (
        *(*CertifiedSolver.saved_numbers, *Accelerator.saved_numbers),
        *("rounds", "_planes", "_traffic"),
    )
    saved_arrays = ("w", "_best", "drift", "_linear_of", "_ridge_of")

    def __init__(self, calls: Calls, facts: list[dict[str, Any]], options: dict[str, Any]) -> None:
        self.calls, self.executor = calls, calls.executor
        self.options = self.Options(**options)
        self.exact = all(fact["exact"] for fact in facts)
        self.bounded = all(fact["bounded"] for fact in facts)
        self.rng = np.random.default_rng(0)
        self.sizes = [fact["n"] for fact in facts]
        self.stages = next((fact["stages"] for fact in facts if fact["n"]), [])
        self.w = aligned_zeros(facts[0]["n_weights"])
        self.accelerate = Accelerator(0, len(self.w))
        self.plane = sum(fact["n"] * fact["plane"] for fact in facts) / max(sum(self.sizes), 1)
        self.drift = np.zeros_like(self.w)
        self._seen = np.full(len(self.w), -1, dtype=np.int32)
        n_blocks = len(facts)
        self._nowhere = [np.zeros(0)] * n_blocks
        self.lengths = self._nowhere  # how far the steps of the last round go, by block
        self.rounds = self._planes = self._traffic = 0
        self.work = max(fact["work"] for fact in facts) / PACE
        self._excess, self._best_excess = 0.0, math.nan
        self._sent = self.w  # the weights that workers have, but where they moved since
        self._moved = np.zeros(0, dtype=np.int32)
        self._ended = False
        self._linear_of, self._ridge_of = np.zeros(n_blocks), np.zeros(n_blocks)
        self._prepared = len(calls.log)
        calls.ask("restore", (find_change(None, self.w),), [None] * n_blocks)

    def save_states(self) -> list[dict[str, Array]]:
        """Have all blocks send their state, from which they are made anew when they are lost."""
        states = self.calls.ask("save", (self._send(),), log=False)
        base = find_change(None, self._sent)
        own = {k: (state,) for k, state in zip(self.calls.blocks, states, strict=True)}
        self.calls.log[self._prepared :] = [("restore", (base,), own, {})]
        return states

    def _send(self) -> Change:
        """What makes the workers' weights those of now."""
        change = Change(self._moved, self._sent[self._moved], len(self._sent))
        self._moved = self._moved[:0]
        return change

    # Rounds.

    def sweep(self) -> float:
        """Rounds until every example was visited about once; the gap over the planes known."""
        self.clock += 1
        try:
            return self._sweep()
        except WorkersLost as error:
            return self._give_up(error)

    def _give_up(self, error: WorkersLost) -> float:
        """End with the best weights that were certified, if any were."""
        if self._best is None:
            raise error
        self.settled, self._ended = str(error).rstrip("."), True
        return math.inf

    def _sweep(self) -> float:
        stage = self._begin_stage()
        self.restart_average_in_time()
        logged = self.calls.log[self._prepared + 1 :]
        told = [getattr(part, "nbytes", 0) for _, common, *_ in logged for part in common]
        if self.clock % SAVE_EVERY == 0 or sum(told) > max(self.w.nbytes, MOST_TOLD):
            self.save_states()
            if moved := self.executor.rebalance():  # while there is nothing to do again
                self.calls.repeat(moved)
        pieces = self.options.pieces or self._cut()
        if self.accelerate.newton:
            pieces = 1
        known = self._planes
        estimate = math.fsum(self._round(piece, pieces, stage) for piece in range(pieces))
        late = 20 * (self._planes - known) <= sum(self.sizes)  # decoding finds little new
        for _ in range(0 if self.accelerate.newton else self._repeat() if late else 1):
            self._round(pieces, pieces, stage)
        self._note(self.calls.ask("end_pass", (self._send(),), self.lengths))
        self.lengths = self._nowhere
        if stage < 1.0:
            return math.inf
        steps = self.accelerate
        if self.clock > 1 and (steps.newton or steps.crawls(estimate, self._price(pieces))):
            steps.take_newton_steps(self, Apart)
            self.restart_average()  # it is left behind
            self._consider()
            return self._best_primal - self.dual()
        return estimate

    def _note(self, told: list[Any]) -> None:
        self._linear_of[:], self._ridge_of[:] = zip(*told, strict=True)

    def _price(self, pieces: int) -> float:
        """What Newton steps, 40 as a rule, and the compiling of them cost, in passes."""
        latency, n, rows = self.options.latency, len(self.w), self._planes * self.plane
        traffic = 8.0 * (len(self.sizes) * n + min(2.0 * rows, 0.5 * len(self.sizes) * n**2))
        algebra = min(min(n, self._planes) ** 3 / 100.0, 100.0 * rows)
        step = 2.0 * latency + traffic / self.options.bandwidth + algebra / PACE + 0.2 * self.work
        return (40.0 * step + SMALL_FIT / PACE) / ((pieces + 1) * latency + self.work)

    def _cut(self) -> int:
        """Rounds of a pass: as many powers of 2 as keep its latency below its decoding."""
        pieces, most = PIECES
        while 2 * pieces <= most and 2 * pieces * self.options.latency <= self.work:
            pieces *= 2
        return pieces

    def _repeat(self) -> int:
        """Rounds over known planes: as many as keep what they send below the decoding of a pass."""
        cost = self.options.latency + self._traffic / self.options.bandwidth
        return int(min(max(self.work / cost, 1.0), AGAIN))

    def _begin_stage(self) -> float:
        """The factor on the bounds in this pass; where it rises, the multipliers rise with it."""
        factors = [*self.stages, 1.0]
        at = min(self.clock - 1, len(factors) - 1)
        rise = factors[at] / factors[max(at - 1, 0)] if self.clock <= len(factors) else 1.0
        if rise != 1.0:
            # No further than the dual rises: where C does not bind, that is not far.
            square = float(self.w @ self.w) + 2.0 * math.fsum(self._ridge_of)
            rise = min(rise, max(math.fsum(self._linear_of) / max(square, 1e-300), 1.0))
        if rise != 1.0:
            self.w *= rise
            self._moved = find_change(None, self.w, dense=False).place
            self.calls.ask("scale", (self._send(), rise))
            self.restart_average()
        return factors[at]

    def _round(self, piece: int, pieces: int, stage: float) -> float:
        common = (self._send(), self.clock, piece, pieces, stage)
        told: list[Told] = self.calls.ask("advance", common, self.lengths)
        self.rounds += 1
        if piece == pieces:
            self._traffic = sum(part.nbytes for one in told for part in one.changes)
        self._planes = sum(one.planes for one in told)
        self.oracle_calls += sum(one.decodes for one in told)
        cuts = np.cumsum([len(one.gain) for one in told])
        self.lengths = np.split(self._step(told), cuts[:-1])
        return math.fsum(one.gap for one in told)

    def _step(self, told: list[Told]) -> Array:
        """Choose how far the steps go, and take them."""
        ends = [one.changes.ends for one in told]
        starts = np.cumsum([0, *(own[-1] for own in ends)])
        changes = Changes(
            np.concatenate([[0], *(own[1:] + at for own, at in zip(ends, starts, strict=False))]),
            *(np.concatenate([one.changes[part] for one in told]) for part in (1, 2)),
        )
        dual = np.array([np.concatenate([one[part] for one in told]) for part in (1, 2, 3)])
        steps, moved = read_steps(changes, self.w, self._seen)
        now, lengths = self.w[moved], np.zeros(dual.shape[1])
        take_steps(now, steps, dual, lengths)
        self.visits += 1.0
        move_weights(self.w, moved, now, self.drift, self.visits)
        self._moved = moved
        return lengths

    # The certificate.

    @property
    def n_planes(self) -> int:
        return self._planes

    def dual(self) -> float:
        square = 0.5 * float(self.w @ self.w)
        return math.fsum(self._linear_of) - square - math.fsum(self._ridge_of)

    def primal_of(self, weights: Array) -> float:
        told = self.calls.ask("measure", (self._send(), find_change(self._sent, weights)))
        self.oracle_calls += sum(self.sizes)
        costs, excesses, slacks = zip(*told, strict=True)
        self._excess, self._worst = math.fsum(excesses), max(slacks)
        return 0.5 * float(weights @ weights) + math.fsum(costs)

    def _primal(self) -> float:
        return self.primal_of(self.w)

    def _consider(self) -> float:
        primal, half = self._look(self.w), 0.5 * float(self.w @ self.w)
        # At a large C a little slack costs much, and weights that are longer have none.
        longer = 1.0 + self._worst
        if longer < 1.5 and longer**2 * half < 0.99 * self._best_primal:
            primal = min(primal, self._look(longer * self.w))
        return primal

    def _look(self, weights: Array) -> float:
        primal = self.primal_of(weights)
        if self.keep(weights, primal):
            self._best_excess = self._excess
        return primal

    def certify(self) -> float:
        if self._ended:  # no block can be asked
            return self._best_primal
        try:
            if self.clock % SUM_EVERY == 0:
                self.sum_up()
            return super().certify()
        except WorkersLost as error:
            return self._give_up(error)

    def sum_up(self) -> None:
        """The weights from the multipliers again: what many small steps left of rounding goes."""
        before = self.w.copy()
        self.w[:] = 0.0
        for vector in self.calls.ask("sum_up"):
            self.w[vector.where] += vector.values
        self._moved = find_change(before, self.w, dense=False).place

    @contextlib.contextmanager
    def _average_in_place(self) -> Iterator[None]:
        kept, self.w = self.w, self.candidate()
        try:
            yield
        finally:
            self.w = kept

    def candidate(self) -> Array:
        candidate = self.w.copy()
        some = np.flatnonzero(self.drift)  # none without visits
        candidate[some] -= self.drift[some] / (self.visits * (self.visits + 1.0))
        return candidate

    def restart_average(self) -> None:
        self.drift[:] = 0.0
        self.visits = 0.0

    def integrality_gap(self, weights: Array) -> float:
        if self.exact or not self.bounded:
            return math.nan
        return self._best_excess if weights is self._best else self._excess

    def repair(self) -> None:
        """After an interruption blocks may be anywhere: what is certified stands."""
        if self._best is None:
            raise KeyboardInterrupt
        self._ended = True

    def finished(self) -> str | None:
        return self.settled or None

    def remark(self) -> str:
        traffic = (self.executor.sent + self.executor.received) / 1e6
        alive = self.executor.n_alive()
        workers = "1 worker" if alive == 1 else f"{alive} workers"
        return f"round {self.rounds}, {traffic:.1f} MB, {workers}"

    def measures(self) -> dict[str, Any]:
        traffic = self.executor.sent + self.executor.received
        seconds = {"work": max(self.calls.seconds), "waiting": self.calls.waited}
        return {"rounds": float(self.rounds), "bytes": float(traffic), **seconds}

    def findings(self, weights: Array) -> dict[str, float]:
        if self._ended:
            return {}
        with contextlib.suppress(WorkersLost):  # now that all is done
            told = self.calls.ask("weigh", log=False)
            return {"worker_memory_": max(told), "driver_memory_": peak_memory()}
        return {}

    # Snapshots.

    def tables(self) -> dict[str, Array]:
        states = enumerate(self.save_states())
        return {f"{k}.{name}": array for k, state in states for name, array in state.items()}

    def set_tables(self, tables: dict[str, Array]) -> None:
        each: list[dict[str, Array]] = [{} for _ in self.sizes]
        for name, array in tables.items():
            k, _, own = name.partition(".")
            each[int(k)][own] = array
        self._sent, self._moved = self.w, self._moved[:0]
        self.calls.ask("restore", (find_change(None, self.w),), each)
        self.save_states()
