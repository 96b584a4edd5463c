"""The solver ``"blocks"``: dual steps in blocks of examples, made into one by the driver.

For the problem of :mod:`hingeline.core.formulations`, cut into blocks k, with
``v_k = Σ_{i in k} Σ_y α_i(y)·a·Δf_i(y)`` and ``w = Σ_k v_k``. In a round every block visits some of
its examples from the common weights on, all other blocks fixed, and comes to multipliers ``s_k``
from its current ones ``c_k``. Blocks overshoot together; the driver finds the best mixture of the
last m of these solutions of every block, a *master problem* in K·m variables::

    max_θ  Σ_kj θ_kj g_kj − ½‖Σ_kj θ_kj u_kj‖²   over θ ≥ 0, Σ_j θ_kj ≤ 1

where ``u_kj = v(s_kj) − v(c_k)`` and ``g_kj = Σ (s_kj − c_k)·b − w·u_kj``. That is a dual like
that of :mod:`hingeline.solvers.sdm`, with blocks for examples, solutions for planes, and ``c_k`` in
place of the true output; its steps solve it. Any θ is feasible by convexity: the dual never falls,
and any weights with any such multipliers give a true gap, at the price of one decode of each
block's examples, ``P(v) = ½‖v‖² + Σ_k cost_k(v)``.

With a single θ for all newest solutions it is an exact line search: block-diagonal approximation,
C. Lee, K.-W. Chang (2015). ``"average"`` takes θ = 1/K (M. Jaggi et al., *Communication-efficient
distributed dual coordinate ascent*, CoCoA, 2014), ``"add"`` θ = 1 with local duals of K times the
curvature (C. Ma et al., CoCoA+, 2015).

The size of rounds. Of the gains that blocks see alone, the share e is left together; with b
examples of a block e is about ``1/(1 + b/b₀)``, so that a round seen gives b₀. If a round costs
what r examples do beside the visits, progress for its price is best at ``b = √(b₀·r)``. The price
is counted in bytes and in numbers that visits read, never by the clock: any number of workers, on
any machine, comes to the same weights.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hingeline._checks import Array
from hingeline._jit import kernel
from hingeline._simd import aligned_zeros
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import CertifiedSolver
from hingeline.distributed.block import Change, Told, find_change, peak_memory
from hingeline.distributed.executors import LOST, Executor, WorkersLost
from hingeline.solvers.sdm import pair_steps

SECONDS_A_ROUND = 0.02  # Taken for the price of a round trip,
BYTES_A_SECOND = 2e8  # of what travels,
READS_A_SECOND = 2e7  # and of an example's visit, by the numbers it has.
FIRST_SHARE = 1.0 / 16.0  # of a block's examples in the first round
#: At most in any later one: with more, OCR letters in 8 blocks took more rounds, not fewer.
MOST_SHARE = 1.0 / 4.0
SUM_EVERY = 16  # Passes after which the weights are summed up from the multipliers.
SAVE_EVERY = 4  # Passes after which blocks send their state, for when a worker is lost.


@kernel
def solve_master(gram: Array, gain: Array, theta: Array, size: int, rounds: int) -> None:
    """Mix the directions: blocks of ``size`` rows, whose θ are at least 0 and at most 1 in sum.

    Stops where no block can gain more than a millionth of what all have gained.
    """
    n = gain.shape[0]
    gradient = gain.copy()
    for j in range(n):
        if theta[j] != 0.0:
            for i in range(n):
                gradient[i] -= theta[j] * gram[i, j]
    for _ in range(rounds):
        most = 0.0
        value = 0.0
        for j in range(n):
            value += 0.5 * theta[j] * (gain[j] + gradient[j])
        for a in range(0, n, size):
            own = theta[a : a + size]
            slope = gradient[a : a + size].copy()
            before = own.copy()
            top = 0.0
            least = 0.0 if own.sum() < 1.0 else np.inf
            for j in range(size):
                top = max(top, slope[j])
                if own[j] > 0.0:
                    least = min(least, slope[j])
            most = max(most, top - least)
            if top - least > 0.0:
                square = gram[a : a + size, a : a + size].copy()
                pair_steps(square, own, slope, 1.0, 0.0, 0.01 * (top - least), 10 * size)
                for j in range(size):
                    change = own[j] - before[j]
                    if change != 0.0:
                        for i in range(n):
                            gradient[i] -= change * gram[i, a + j]
        if most <= 1e-6 * max(value, 1e-300):
            break


class Blocks(CertifiedSolver):
    """The driver's side of training in blocks; see the head of this module."""

    name = "blocks"
    slacks: ClassVar[tuple[str, ...]] = ("max", "squared")
    soft_only = "blocks are mixed, and their multipliers must have bounds"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        combine: str = option(
            "master", "how blocks are joined", words=("master", "line", "average", "add")
        )
        keep: int = option(4, "solutions kept of every block, for combine='master'")
        share: float | None = option(
            None, "share of a block's examples in a round; None: by what it costs", most=1.0
        )

        def unused(self, slack: str) -> Iterable[str]:
            return () if self.combine == "master" else ("keep",)

    saved_numbers = (*CertifiedSolver.saved_numbers, "share", "reach", "rounds")
    saved_arrays = ("w", "_best", "drift")

    def __init__(
        self,
        executor: Executor,
        rebuild: Callable[[list[int]], None],
        facts: list[dict[str, Any]],
        options: dict[str, Any],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.executor, self._rebuild, self.tell = executor, rebuild, tell
        self.options = self.Options(**options)
        self.exact = all(fact["exact"] for fact in facts)
        self.bounded = all(fact["bounded"] for fact in facts)
        self.settled, self.satisfied, self.restricted, self.hard = "", False, False, False
        self.rng, self.stages = np.random.default_rng(0), []
        self.sizes = [fact["n"] for fact in facts]
        self.work = sum(fact["size"] for fact in facts) / max(sum(self.sizes), 1)  # of an example
        self.w = aligned_zeros(max(fact.get("n_weights", 0) for fact in facts))
        self.drift = np.zeros_like(self.w)
        n_blocks, m = len(facts), self.options.keep if self.options.combine == "master" else 1
        self.keep_most = m
        self.theta = np.zeros((n_blocks, 0))  # what blocks are to mix next
        self._forget_directions()
        self.share = FIRST_SHARE if self.options.share is None else self.options.share
        self.reach = math.nan  # log b₀
        self.clock = self.oracle_calls = self.rounds = self._planes = 0
        self.visits = 0.0
        self.good_primal = -math.inf
        self._certificates, self._average_leads, self._stretch = 0, True, 1.0
        self._best: Array | None = None
        self._best_primal, self._excess, self._best_excess = math.inf, 0.0, math.nan
        self.seconds, self.waited = [0.0] * n_blocks, 0.0
        self._sent = self.w.copy()  # the weights that workers have
        self._moved: Array | None = None  # where these are others; None: anywhere
        self._log: list[tuple[str, tuple[Any, ...], dict[int, Any]]] = []
        self._states: dict[int, dict[str, Array]] = {}
        self._base = self.w.copy()
        self._ended = False
        self._linear_of, self._ridge_of = np.zeros(n_blocks), np.zeros(n_blocks)
        everyone = dict.fromkeys(range(n_blocks), (None,))
        self._call("restore", everyone, Change(None, self.w), log=False)

    # Calls, and what happens when a worker is lost.

    def _call(
        self,
        method: str,
        own: dict[int, Any],
        change: Change | None = None,
        rest: tuple[Any, ...] = (),
        log: bool = True,
    ) -> list[Any]:
        """Let all blocks do something; their answers, in order."""
        n_blocks = len(self.sizes)
        own = own or dict.fromkeys(range(n_blocks), ())
        common = (change, *rest)
        began, busy = time.perf_counter(), 0.0
        answers: dict[int, Any] = {}
        left = dict(own)
        while left:
            found = self.executor.call(method, common, left)
            lost = [k for k, answer in found.items() if answer is LOST]
            answers |= {k: answer for k, answer in found.items() if answer is not LOST}
            left = {k: own[k] for k in lost}
            if lost:
                self.tell(f"a worker was lost; {len(lost)} blocks are made anew")
                self._bring_back(lost)
        for k, (_, seconds) in answers.items():
            self.seconds[k] += seconds
            busy = max(busy, seconds)
        self.waited += max(time.perf_counter() - began - busy, 0.0)
        if log:
            self._log.append((method, common, own))
        return [answers[k][0] for k in range(n_blocks)]

    def _bring_back(self, lost: list[int]) -> None:
        """Make blocks anew and let them do again what they did since they sent their state."""
        while True:
            self._rebuild(lost)
            base = Change(None, self._base)
            calls = [("restore", (base,), {k: (self._states.get(k),) for k in lost})]
            calls += [(m, c, {k: own[k] for k in lost}) for m, c, own in self._log]
            for method, common, own in calls:
                found = self.executor.call(method, common, own)
                if any(answer is LOST for answer in found.values()):
                    break
            else:
                return

    def save_states(self) -> None:
        """Have all blocks send their state, from which they are made anew when they are lost."""
        states = self._call("save", dict.fromkeys(range(len(self.sizes)), ()), log=False)
        self._states, self._base, self._log = dict(enumerate(states)), self._sent.copy(), []

    def _send(self) -> Change:
        """What makes the workers' weights those of now."""
        if self._moved is None:
            change = find_change(self._sent, self.w)
        else:
            change = Change(self._moved, self.w[self._moved])
        change.apply(self._sent)
        self._moved = np.zeros(0, dtype=np.int32)
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
        if self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0:
            self.restart_average()
        if self.clock % SAVE_EVERY == 0:
            self.save_states()
        done = estimate = 0.0
        while done < 0.99:
            done += self.share
            estimate += self._round()
        return estimate / done

    def _round(self) -> float:
        n_blocks, adds = len(self.sizes), self.options.combine == "add"
        change = self._send()
        mixed = {k: (self.theta[k],) for k in range(n_blocks)}
        sigma = float(n_blocks) if adds else 1.0
        told: list[Told | None] = self._call("advance", mixed, change, (self.share, sigma))
        self.rounds += 1
        known = [one for one in told if one is not None]
        self._planes = sum(one.planes for one in known)
        self.oracle_calls += sum(one.decodes for one in known)
        self._take(told)
        gain, gram, ridge = self._pose_master(told)
        self.theta = self._mix(gain, gram).reshape(n_blocks, -1)
        self._follow(gain, gram, ridge, sum(one.change.size for one in known))
        return math.fsum(one.gap for one in known)

    def _forget_directions(self) -> None:
        n_blocks = len(self.sizes)
        self.rows = [np.zeros(0, dtype=np.int32)] * n_blocks  # weights that directions touch
        self.toward = [np.zeros((0, 0))] * n_blocks  # (kept, row): u
        self.linears = np.zeros((n_blocks, 0))  # Σ s·b, less that of the current multipliers
        self.theta = np.zeros((n_blocks, 0))

    def _take(self, told: list[Told | None]) -> None:
        """Add the blocks' new solutions to the directions, the oldest go."""
        old = int(self.linears.shape[1] == self.keep_most)
        linears = np.zeros((len(told), self.linears.shape[1] - old + 1))
        linears[:, :-1] = self.linears[:, old:]
        mark = np.zeros(len(self.w), dtype=bool)
        for k, one in enumerate(told):
            index = self.rows[k][:0] if one is None else one.change.place
            kept = self.toward[k][old:]
            used = kept.any(axis=0)
            before = self.rows[k][used]
            mark[before] = mark[index] = True
            rows = np.flatnonzero(mark).astype(np.int32)
            mark[rows] = False
            toward = np.zeros((linears.shape[1], len(rows)))
            toward[:-1, np.searchsorted(rows, before)] = kept[:, used]
            if one is not None:
                toward[-1, np.searchsorted(rows, index)] = one.change.values
                linears[k, -1] = one.linear - self._linear_of[k]
            self.rows[k], self.toward[k] = rows, toward
        self.linears = linears

    def _pose_master(self, told: list[Told | None]) -> tuple[Array, Array, list[Any]]:
        """Slopes and curvature of the master problem, and the blocks' ridges."""
        n_blocks, m = self.linears.shape
        slopes = [self.toward[k] @ self.w[self.rows[k]] for k in range(n_blocks)]
        gain = (self.linears - np.array(slopes)).ravel()
        # Rows of one block alone count for that block alone.
        count, place = np.zeros(len(self.w), dtype=np.int16), np.zeros(len(self.w), dtype=np.int32)
        for rows in self.rows:
            count[rows] += 1
        shared = np.flatnonzero(count > 1)
        place[shared] = np.arange(len(shared))
        tables = np.zeros((n_blocks, m, len(shared)))
        gram = np.zeros((n_blocks, m, n_blocks, m))
        for k, (rows, toward) in enumerate(zip(self.rows, self.toward, strict=True)):
            common = count[rows] > 1
            tables[k][:, place[rows[common]]] = toward[:, common]
            gram[k, :, k, :] = toward[:, ~common] @ toward[:, ~common].T
        flat = tables.reshape(n_blocks * m, -1)
        gram = gram.reshape(n_blocks * m, -1) + flat @ flat.T
        ridge = [None if one is None or not len(one.ridge[1]) else one.ridge for one in told]
        for k, found in enumerate(ridge):
            if found is not None:
                part = slice(k * m, (k + 1) * m)
                gram[part, part] += found[0][-m:, -m:]
                gain[part] -= found[1][-m:]
        return gain, gram, ridge

    def _mix(self, gain: Array, gram: Array) -> Array:
        """θ, by the rule asked for."""
        n_blocks, m = self.linears.shape
        newest = np.arange(m - 1, n_blocks * m, m)
        theta = np.zeros(len(gain))
        if self.options.combine in ("average", "add"):
            theta[newest] = 1.0 if self.options.combine == "add" else 1.0 / n_blocks
            return theta
        slope, curve = gain[newest].sum(), gram[np.ix_(newest, newest)].sum()
        step = min(max(slope, 0.0) / curve, 1.0) if curve > 0.0 else float(slope > 0.0)
        theta[newest] = step
        if self.options.combine == "master":
            solve_master(gram, gain, theta, m, 200)
        return theta

    def _follow(self, gain: Array, gram: Array, ridge: list[Any], size: int) -> None:
        """Take the step, and choose the share of the next round."""
        n_blocks, m = self.linears.shape
        theta = self.theta.ravel()
        rise = float(theta @ gain - 0.5 * theta @ gram @ theta)
        newest = np.arange(m - 1, n_blocks * m, m)
        alone = float((gain[newest] - 0.5 * gram[newest, newest]).sum())
        self.visits += 1.0
        moved = np.zeros(len(self.w), dtype=bool)
        for k, rows in enumerate(self.rows):
            step = self.theta[k] @ self.toward[k]
            self.w[rows] += step
            self.drift[rows] += self.visits * (self.visits - 1.0) * step
            self.toward[k] -= step
            moved[rows[step != 0.0]] = True
        self._moved = np.flatnonzero(moved).astype(np.int32)
        gained = (self.theta * self.linears).sum(axis=1)
        self._linear_of += gained
        self.linears -= gained[:, None]
        for k, found in enumerate(ridge):
            if found is not None:
                t, (square, product, whole) = self.theta[k], found
                self._ridge_of[k] = 0.5 * (
                    whole + 2.0 * t @ product[-m:] + t @ square[-m:, -m:] @ t
                )
        if self.options.share is not None or not alone > 0.0:
            return
        size += n_blocks * 12 * len(self._moved)  # both ways
        n = max(self.sizes)
        left = min(max(rise / alone, 0.02), 0.98)
        reach = math.log(self.share * n * left / (1.0 - left))
        self.reach = reach if math.isnan(self.reach) else 0.8 * self.reach + 0.2 * reach
        price = (SECONDS_A_ROUND + size / BYTES_A_SECOND) * READS_A_SECOND / self.work
        best = math.sqrt(math.exp(self.reach) * price) / n
        self.share = min(max(best, self.share / 2.0), 2.0 * self.share, MOST_SHARE)

    # The certificate.

    @property
    def n_planes(self) -> int:
        return self._planes

    def dual(self) -> float:
        square = 0.5 * float(self.w @ self.w)
        return math.fsum(self._linear_of) - square - math.fsum(self._ridge_of)

    def primal_of(self, weights: Array) -> float:
        told = self._call("measure", {}, rest=(find_change(self._sent, weights),))
        self.oracle_calls += sum(self.sizes)
        self._excess = math.fsum(excess for _, excess in told)
        return 0.5 * float(weights @ weights) + math.fsum(cost for cost, _ in told)

    def _primal(self) -> float:
        return self.primal_of(self.w)

    def _consider(self) -> float:
        primal = self._primal()
        if self.keep(self.w, primal):
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
        told = self._call("sum_up", {k: (self.theta[k],) for k in range(len(self.sizes))})
        self.w[:], self._moved = 0.0, None
        for k, (vector, linear) in enumerate(told):
            vector.add_to(self.w)
            self._linear_of[k] = linear
        self._forget_directions()

    @contextlib.contextmanager
    def _average_in_place(self) -> Iterator[None]:
        kept, self.w = self.w, self.candidate()
        try:
            yield
        finally:
            self.w = kept

    def candidate(self) -> Array:
        if self.visits == 0.0:
            return self.w.copy()
        return self.w - self.drift / (self.visits * (self.visits + 1.0))

    def restart_average(self) -> None:
        self.drift[:] = 0.0
        self.visits = 0.0

    def integrality_gap(self, weights: Array) -> float:
        if self.exact or not self.bounded:
            return math.nan
        return self._best_excess if weights is self._best else self._excess

    def repair(self) -> None:
        """After an interruption blocks may be anywhere: what is certified stands."""
        self._ended = True

    def finished(self) -> str | None:
        return self.settled or None

    def measures(self) -> dict[str, Any]:
        traffic = self.executor.sent() + self.executor.received()
        seconds = {"work": max(self.seconds), "waiting": self.waited}
        return {"rounds": float(self.rounds), "bytes": float(traffic), **seconds}

    def findings(self, weights: Array) -> dict[str, float]:
        if self._ended:
            return {}
        told = self._call("weigh", dict.fromkeys(range(len(self.sizes)), ()), log=False)
        return {"worker_memory_": max(told), "driver_memory_": peak_memory()}

    # Snapshots.

    _saved_tables = ("linears", "theta", "_linear_of", "_ridge_of")

    def tables(self) -> dict[str, Array]:
        self.save_states()
        found = {f"driver.{name}": getattr(self, name) for name in self._saved_tables}
        for k, state in self._states.items():
            own = {"rows": self.rows[k], "toward": self.toward[k], **state}
            found |= {f"{k}.{name}": array for name, array in own.items()}
        return found

    def set_tables(self, tables: dict[str, Array]) -> None:
        for name in self._saved_tables:
            setattr(self, name, tables[f"driver.{name}"].copy())
        states: dict[int, dict[str, Array]] = {}
        for k in range(len(self.sizes)):
            own = {n.partition(".")[2]: v for n, v in tables.items() if n.startswith(f"{k}.")}
            self.rows[k], self.toward[k] = own.pop("rows").copy(), own.pop("toward").copy()
            states[k] = own
        self._sent, self._moved = self.w.copy(), None
        each = {k: (state,) for k, state in states.items()}
        self._call("restore", each, Change(None, self.w))
        self.save_states()
