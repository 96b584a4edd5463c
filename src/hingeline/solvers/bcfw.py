"""Block-coordinate Frank-Wolfe: decode an example, step towards the plane found, exactly far.

S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher, *Block-Coordinate Frank-Wolfe Optimization
for Structural SVMs* (2013), Algorithm 4, for the dual of :mod:`hingeline.formulations` with
``slack="max"``::

    max  Σ α·b − ½‖w‖²,   w = Σ_i w_i,   w_i = Σ_y α_i(y)·a·Δf_i(y),   α_i ≥ 0, Σ_y α_i(y) ≤ cap_i

A visit decodes example i, which is the linear oracle of its block, and moves α_i along one of the
directions of :mod:`hingeline.solvers.frank_wolfe` by exact line search: the dual never falls.
The slopes of the plain directions, one an example, sum to the duality gap at the same weights.

``steps="plain"`` without a cache
    The published method, in order and one example at a time. The published codes keep every w_i
    as a vector, which for n examples is n times the weights. Here w_i is kept as the planes and
    multipliers it is made of, with ``‖w_i‖²``: a visit costs one decode and a few passes over what
    these planes touch. Plain steps never empty a plane, so planes add up from pass to pass.
``steps="pairwise"`` and ``"away"``
    A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien, *Minding the Gaps for
    Block Frank-Wolfe Optimization of Structured SVMs* (2016). They take mass off planes that should
    have none, and converge linearly where plain steps crawl. Planes without mass make room again.
    The inner products of an example's planes are kept, so that a step costs O(planes).
Cache
    N. Shah, V. Kolmogorov, C. Lampert, *A Multi-Plane Block-Coordinate Frank-Wolfe Algorithm for
    Training Structural SVMs with a Costly Max-Oracle* (2015). Passes over the planes already there
    follow each pass that decodes. The paper goes on with them as long as the last one gained more
    per second than all since the last decode; here work is counted instead of seconds, so that
    runs can be repeated.
Sampling
    Permutations; uniform draws; or, as by Osokin et al., draws in proportion to the gap that an
    example had at its last visit, with a pass over all of them now and then, because gaps that
    are out of date would starve an example. Draws are made for a quarter of a pass at a time, in
    which none comes twice.
Averaging
    The candidates for the primal are the last iterate and the average with weights ∝ k of the
    iterates w_k, which is that of the paper: ``w̄ ← k/(k+2)·w̄ + 2/(k+2)·w_k``. Over all of them
    (``"all"``, as published), or over the later half of the run at most (``"recent"``).

But for the published method, a block of examples is decoded against the same weights, in threads,
and a step goes to the best plane that the example then knows: with ``block=1`` the one decoded.
Block and order are the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from hingeline.solvers.dual_state import PlaneSolver
from hingeline.solvers.frank_wolfe import AWAY, PAIRWISE, PLAIN, move_mass, own_squares, plain_pass
from hingeline.solvers.sdm import default_block
from hingeline.working_set import grown

Array = np.ndarray[Any, Any]

RULES = {"plain": PLAIN, "away": AWAY, "pairwise": PAIRWISE}

#: Sampled passes are drawn in so many parts, each with the gaps known by then.
PARTS = 4
#: What a visit without a decode costs, in visits with one.
CACHED_COST = 0.4
#: Cached passes leave out examples whose last gap was below this share of the mean.
SKIP = 0.1
#: Examples of one call of the kernel of plain steps: Ctrl-C waits for its end.
CALL = 256


class BCFW(PlaneSolver):
    """Block-coordinate Frank-Wolfe; see the head of this module.

    Options
    -------
    steps : {"pairwise", "away", "plain"}
    sampling : {"permutation", "gap", "uniform"}
    averaging : {"recent", "all", "none"}
    cached_passes : int or None
        Passes over known planes after each pass that decodes, at most. None: 0 for plain steps,
        10 otherwise.
    inner_steps : int
        Steps over an example's planes at each visit, at most. 1 is as published.
    max_planes : int
        Planes of an example at most. Where all of them have mass, a new one must wait.
    patience : int
        Passes after which a plane without mass may make room for a new one.
    refresh : int
        With ``sampling="gap"`` every so many passes visit all examples.
    block : int
        Examples decoded against the same weights before their mass is moved, in order.
    """

    name = "bcfw"
    defaults: ClassVar[dict[str, Any]] = {
        "steps": "pairwise",
        "sampling": "permutation",
        "averaging": "recent",
        "cached_passes": None,
        "inner_steps": 10,
        "max_planes": 64,
        "patience": 5,
        "refresh": 5,
        "block": None,
    }
    words: ClassVar[dict[str, tuple[str, ...]]] = {
        "steps": tuple(RULES),
        "sampling": ("permutation", "gap", "uniform"),
        "averaging": ("recent", "all", "none"),
    }
    saved_arrays = (*PlaneSolver.saved_arrays, "squares")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rule = RULES[self.options["steps"]]
        self.cached_passes = _cached_passes(self.options)
        self.averaged = int(self.options["averaging"] != "none")
        # Plain steps leave mass on every plane they met, and the average over all iterates a share.
        keeps_all = self.rule == PLAIN or self.options["averaging"] == "all"
        self.most_planes = None if keeps_all else int(self.options["max_planes"])
        self.squares = np.zeros(self.compiled.n)  # ‖w_i‖², for plain steps without inner products
        if self.published and not self.fresh:
            self._measure()

    @property
    def published(self) -> bool:
        """Plain steps and no cache."""
        return self.options["steps"] == "plain" and not _cached_passes(self.options)

    @property
    def inner_products(self) -> bool:
        """The published method takes none."""
        return not self.published

    @classmethod
    def idle_options(cls, given: Mapping[str, Any], slack: str) -> set[str]:
        """Options that have no meaning beside the others."""
        options = {**cls.defaults, **given}
        idle = super().idle_options(given, slack)
        if options["steps"] == "plain" or options["averaging"] == "all":
            idle |= {"max_planes", "patience"}
        if options["steps"] == "plain" and not _cached_passes(options):
            idle |= {"inner_steps", "block"}
        if options["sampling"] != "gap":
            idle.add("refresh")
        return idle

    # A pass --------------------------------------------------------------------------------

    def sweep(self) -> float:
        """One pass that decodes, and passes over known planes as long as they are worth it."""
        self.clock += 1
        if self.options["averaging"] == "recent" and (
            self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0
        ):
            self.restart_average()  # it covers the later half of the run, 16 passes at most
        gain = work = 0.0
        for part in self._draws():
            self.ws = grown(self.ws, self.clock - 1, self.options["patience"], self.most_planes)
            gain += self._plain(part) if self.published else self._decode_and_move(part)
            work += len(part)
        self.oracle_calls += int(work)
        estimate = float(self.gaps.sum())
        gaps = self.gaps.copy()  # over known planes; those of the decodes are for the draws
        for _ in range(self.cached_passes):
            worth = gaps > SKIP * gaps[self.active].mean()
            order = self.rng.permutation(np.flatnonzero(worth))
            if not len(order):
                break
            gained, cost = self._move(order, gaps), CACHED_COST * len(order)
            gain, work = gain + gained, work + cost
            if gained * work < gain * cost:
                break
        return estimate

    def _draws(self) -> Iterator[Array]:
        """The examples of a pass, in parts; those of a part may depend on the gaps so far."""
        sampling = self.options["sampling"]
        n = len(self.active)
        whole = sampling == "gap" and (self.clock - 1) % self.options["refresh"] == 0
        if sampling == "permutation" or whole:
            yield self.rng.permutation(self.active)
            return
        size = -(-n // PARTS)
        for lo in range(0, n, size):
            count = min(size, n - lo)
            if sampling == "uniform":
                yield self.rng.choice(self.active, count, replace=False)
                continue
            gaps = self.gaps[self.active]
            some = np.flatnonzero(gaps > 0.0)
            # The smallest of exponential clocks at these rates: draws without replacement
            # (P. Efraimidis, P. Spirakis, 2006).
            clocks = self.rng.exponential(size=len(some)) / gaps[some]
            yield self.active[some[np.argsort(clocks, kind="stable")[:count]]]

    def _decode_and_move(self, order: Array) -> float:
        """Visit examples, block by block, decoded in threads; what the dual gains."""
        block = self.options["block"] or default_block(len(self.active))
        gain = 0.0
        for lo in range(0, len(order), block):
            part = order[lo : lo + block]
            self.find(part, self.options["patience"])
            gain += self._move(part, self.gaps)
        return gain

    def _move(self, order: Array, gaps: Array) -> float:
        """Step over the planes known; what the dual gains."""
        gain = self.compiled.bind(move_mass)(
            self.compiled.problem,
            self.form,
            self.ws,
            order,
            self.w,
            self.rule,
            self.options["inner_steps"],
            self.visits,
            self.averaged,
            self.clock,
            gaps,
        )
        self.visits += self.averaged * len(order)
        return float(gain)

    def _plain(self, order: Array) -> float:
        """Visit examples as published; the gain serves no purpose there."""
        for lo in range(0, len(order), CALL):
            part = order[lo : lo + CALL]
            self.compiled.bind(plain_pass)(
                self.compiled.problem,
                self.form,
                self.ws,
                part,
                self.w,
                self.squares,
                self.visits,
                self.averaged,
                self.clock,
                self.options["patience"],
                self.workers.scratch[0],
                self.gaps,
            )
            self.visits += self.averaged * len(part)
        return 0.0

    # State ---------------------------------------------------------------------------------

    def _measure(self) -> None:
        """``‖w_i‖²`` from planes and multipliers."""
        measure = self.compiled.bind(own_squares)
        measure(self.compiled.problem, self.ws, self.w.copy(), self.squares)

    def repair(self) -> None:
        """Weights from the multipliers again, after an interruption anywhere."""
        super().repair()
        if self.published:
            self._measure()


def _cached_passes(options: Mapping[str, Any]) -> Any:
    given = options["cached_passes"]
    return (0 if options["steps"] == "plain" else 10) if given is None else given
