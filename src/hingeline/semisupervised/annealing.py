"""Deterministic annealing: labels and weights in turn, unlabelled sequences ever dearer.

The problem of :class:`hingeline.SemiSupervisedSSVM`, (5) of the paper named there, is not convex.
Algorithm 1 begins with the labelled sequences alone and raises C_u step by step; at each it
alternates between labels for fixed w and the convex problem in w for fixed labels, until the labels
settle. Only that convex problem has a dual and a certificate; the whole has none.

Labels y* are those of the highest score minus penalty (:class:`ConstrainedLabels`) or, as printed,
such as :func:`switch_labels` reaches. Where constraints have learned weights, these are in units
of the score, and the penalty enters P times ``C_u/u``, as the slack does.
"""

import math
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel, working_time
from hingeline.constraints.base import InstanceConstraint
from hingeline.constraints.decode import climb_with_predicates, search_by_beam
from hingeline.constraints.penalties import Penalties, change_rule
from hingeline.constraints.switches import SHARE, commit_switch, switch_costs
from hingeline.core.primitives import PART, Workers
from hingeline.core.results import DualMemory, Result
from hingeline.inference import chain
from hingeline.structures.chain import ChainProblem, find_path, layout_of, moves, position_scores
from hingeline.structures.chain_batch import decode_all

NO_LABELS = np.zeros(0, dtype=np.int32)

#: What is tried by default: C_u/u, the cost of an unlabelled sequence. C_u up to 1 hardly moves the
#: weights, and what it takes to move them depends on the features, not on C.
PRICES = (0.01, 0.05, 0.2)
#: Convex problems on the way are solved to this relative gap, if the base's ``tol`` is not larger:
#: labels of the unlabelled sequences hardly depend on it. The step kept has ``tol``.
WAY_TOL = 0.03
#: Learned weights of rules are raised so often, by this times the logarithm of a ratio of rates.
#: Stopping once they would change by less than 0.05 was worse.
WEIGHT_CHANGES = 4
WEIGHT_STEP = 0.5


class AnnealingStep(NamedTuple):
    """One value of C_u. The four parts of the objective are given with their weights.

    Plain predictions are those of the weights alone, on the unlabelled sequences.
    """

    C_u: float  # 0: labelled sequences only
    objective: float  # P: the sum of the next four
    norm: float  # ½‖w‖²
    labelled: float  # slack of the labelled sequences
    unlabelled: float  # slack of the others, for y*
    penalty: float = math.nan  # of y*; nan where there are none yet
    gap: float = math.nan  # of the convex problem with y* fixed
    switches: int = 0  # labels switched in all alternations
    alternations: int = 0
    settled: bool = True  # whether y* came out the same twice, or nearly so (``label_tol``)
    changed: float = math.nan  # share of tokens whose y* differs from that of the step before
    violations: float = math.nan  # penalty of plain predictions
    dev_score: float = math.nan  # nan without development data
    time: float = 0.0  # seconds


#: A step before anything is measured.
SUPERVISED = AnnealingStep(0.0, math.nan, math.nan, math.nan, math.nan)
#: The table that ``verbose=1`` prints, a row for every step.
_HEADINGS = ("C_u", "objective", "violations", "dev", "seconds", "penalty", "switches", "rounds")
_ROW = "{:>8}  {:>11}  {:>11}  {:>8}  {:>7}  {:>11}  {:>8}  {:>6}  {}"


@dataclass
class Rounds:
    """All steps so far with their weights and labels, each scored on the development data."""

    kind: Any  # of steps
    model: Any
    dev: tuple[Any, Any] | None
    steps: list[Any] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)
    interrupted: bool = False
    _last: float = field(default_factory=working_time)

    def add(self, result: Result, labels: Array, at: int | None = None, **found: Any) -> Any:
        """Note a step and what was found in it, in place of step number ``at`` if that is there."""
        at = len(self.steps) if at is None else at
        found["changed"] = float(np.mean(labels != self.labels[at - 1])) if at else math.nan
        spent = sum(step.time for step in self.steps[at : at + 1])  # on the one that was there
        found["time"] = spent + working_time() - self._last
        if self.dev is not None:
            self.model.weights_ = result.weights
            found["dev_score"] = float(self.model.score(*self.dev))
        self.steps[at : at + 1] = [self.kind(**found)]
        self.results[at : at + 1] = [result]
        self.labels[at : at + 1] = [labels]
        self._last = working_time()
        return self.steps[at]


# Labels to start from. As printed, (8), label switching starts from the best labellings without
# constraints. Single switches seldom lead from there to labels that keep the constraints: to move
# the end of a segment, or to give up a second one, several labels must change at once, and the
# first of these switches costs more than it gains. A beam search over ``C_u/u · w·f(x, y) −
# penalty(y)``, which sees whole segments, starts much lower, with prices on labels where their
# shares in the corpus are constrained; switching then adds what the beam leaves out, the slack and
# the other corpus-level constraints.

BEAM_WIDTH = 8  # Hypotheses of the beam.
#: Prices of labels are changed so often in one call, by this times the logarithm of how far a share
#: is off; shares need not be met more closely than the tolerance.
PRICE_CHANGES = 4
PRICE_STEP = 0.3
SHARE_TOLERANCE = 0.002
BEAM_FORBIDDEN = 1e13  # What a forbidden label or move costs in the beam, where it must be finite.


@kernel
def score_all(problem: ChainProblem, first: int, order: Array, w: Array, out: Array) -> None:
    """Scores (tokens, labels) of the sequences ``first + i``, without transitions."""
    start = problem.offsets[first]
    for i in order:
        lo, hi = problem.offsets[first + i] - start, problem.offsets[first + i + 1] - start
        out[lo:hi] = position_scores(problem, first + i, w, 0.0)[:, : problem.n_labels]


def find_best_labels(problem: ChainProblem, first: int, w: Array, workers: Workers) -> Array:
    """Labels without loss and constraints, (8), of the sequences from number ``first`` on."""
    n = len(problem.offsets) - 1
    y = np.empty(problem.offsets[-1], dtype=np.int32)
    workers.over(np.arange(first, n), decode_all, problem, PART, w, y, np.empty(n))
    return y[problem.offsets[first] :].copy()


@dataclass
class ConstrainedLabels:
    """Labels by beam search under the instance constraints, and climbing under Python predicates.

    The problem's sequences from number ``first`` on are labelled; ``scale`` is what a unit of score
    is worth beside the penalties, and ``width`` the number of hypotheses of the beam.
    """

    problem: ChainProblem
    first: int
    w: Array
    scale: float
    penalties: Penalties
    workers: Workers
    width: int = BEAM_WIDTH

    def __post_init__(self) -> None:
        problem, first, w = self.problem, self.first, self.w
        self.scores: Array = np.empty(self.penalties.compiled.unary.shape)
        table = layout_of(problem)["transition"].table(w)
        if len(problem.move_mask):
            table = table + problem.move_mask[:, : problem.n_labels]
        self.transitions = np.ascontiguousarray(np.maximum(self.scale * table, -BEAM_FORBIDDEN))
        self.sequences = np.arange(len(problem.offsets) - 1 - first)
        self.workers.over(self.sequences, score_all, problem, first, PART, w, self.scores)

    def find(self, prices: Array | None = None) -> Array:
        """The best labels found, where labels may have prices: numbers added to their scores."""
        compiled = self.penalties.compiled
        labels = np.zeros(len(self.scores), dtype=np.int32)
        added = np.zeros(self.scores.shape[1]) if prices is None else prices
        scores = np.maximum(self.scale * (self.scores + added), -BEAM_FORBIDDEN)

        def search(part: Array, _: int) -> None:
            own = compiled.offsets[part[0] : part[-1] + 2]  # parts are ranges of sequences
            tables = compiled._replace(offsets=own)
            search_by_beam(tables, scores, self.transitions, labels, self.width)

        self.workers.map(search, self.sequences)
        if self.penalties.predicates:
            return climb_with_predicates(self.penalties, scores, self.transitions, labels)
        return labels

    def find_with_shares(self, prices: Array) -> Array:
        """Labels with prices such that the shares of labels in the corpus are as asked for.

        To mend a share whole segments must be relabelled, in the sequences where that costs least;
        single switches cannot. A price on a label does: the multipliers of the corpus-level
        :class:`~hingeline.constraints.Share` constraints. The search starts from ``prices``
        (labels,), where it writes what it ends with, and returns, of all labels met, those of the
        highest score minus penalty, corpus constraints included.
        """
        compiled = self.penalties.compiled
        asked = (compiled.corpus_kind == SHARE) & (compiled.corpus_price[:, 1] > 0.0)
        places, bounds = compiled.corpus_target[asked], compiled.corpus_bounds[asked]
        shares = [(compiled.member[g] != 0, *own) for g, own in zip(places, bounds, strict=True)]
        best = labels = self.find(prices)
        if not shares:
            return best
        value = self.value(best)
        for _ in range(PRICE_CHANGES):
            found = np.bincount(labels, minlength=len(prices)) / len(labels)
            step = np.zeros(len(prices))
            for member, low, high in shares:
                share = found[member].sum()
                wanted = min(max(share, low), high)
                if abs(wanted - share) > SHARE_TOLERANCE:
                    step[member] += np.log((wanted + SHARE_TOLERANCE) / (share + SHARE_TOLERANCE))
            if not step.any():
                break
            prices += PRICE_STEP * step
            labels = self.find(prices)
            reached = self.value(labels)
            if reached > value:
                best, value = labels, reached
        return best

    def value(self, labels: Array) -> float:
        """Score minus penalty, without prices."""
        moves = self.transitions[labels[:-1], labels[1:]]
        moves[self.penalties.compiled.offsets[1:-1] - 1] = 0.0  # from one sequence to the next
        own = self.scale * float(self.scores[np.arange(len(labels)), labels].sum())
        return own + float(moves.sum()) - self.penalties.total(labels)


# Algorithm 2, constraint matching: labels by switching one at a time. For fixed weights it climbs
# down::
#
#     O(y*) = C_u/u · Σ_j slack_j(y*_j) + penalty(y*),
#     slack_j(ŷ) = max_y [w·f(x_j, y) + l(ŷ, y)] − w·f(x_j, ŷ)
#
# from given labels. What is printed is put right in five places: the slack is
# ``l − w·Δf`` (line 17 has the other sign); O* is that of the labels reached, carried on after
# every accepted switch (line 10 would compare with the start); the label is restored after each
# trial; the limit counts switches, not positions; and a switch must lower O* by more than rounding.
# ``order="sequential"`` sweeps over all positions and takes the best label at each, as printed;
# ``order="random"`` tries random positions and labels, as the text describes.
#
# A trial as printed costs a loss-augmented Viterbi pass. Here it costs a row, with the same result:
# see :mod:`hingeline.inference.chain`. In a sweep from left to right the best beginnings follow the
# labels as they are switched, and the best continuations behind them stay valid, so that a sweep
# costs about two Viterbi passes. In random order both are made anew after each accepted switch.

SWITCH_ROUNDING = 1e-10  # A switch must lower the objective by more than this share of its terms.


@helper
def is_lower(change: float, scale: float, maximum: float, penalty: float) -> bool:
    """Whether a change of the objective is a decrease that rounding does not explain."""
    return change < -SWITCH_ROUNDING * (scale * (1.0 + abs(maximum)) + abs(penalty))


@kernel
def sweep_labels(
    problem: ChainProblem,
    first: int,
    w: Array,
    scale: float,
    constraints: Any,
    state: Any,
    order: Array,
    limit: int,
    places: Array,
    candidates: Array,
    labels: Array,
) -> int:
    """Visit the sequences of ``order`` and switch labels, at most ``limit``; returns how many.

    ``labels`` and ``order`` are of the unlabelled sequences, which the problem holds from number
    ``first`` on; ``scale`` is ``C_u/u``. Every position in turn takes the best label; or, where
    ``places`` is not empty, a sequence has as many trials as positions, at these places and to
    these candidates. Both have one entry per unlabelled token; a candidate is the number of a
    label among those that are not there already. A forbidden label or move has a gain of ``−inf``
    and so a change of ``inf``.
    """
    n_labels, stride, A = problem.n_labels, problem.stride, moves(problem, w)
    onwards = A.reshape(A.size)
    backwards = chain.transposed(A, n_labels).reshape(n_labels * stride)
    cost = problem.cost.reshape(problem.cost.size)
    row, maxima, gains = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    penalties, reach = np.zeros(n_labels), np.empty(stride)
    start = problem.offsets[first]
    at_random, switches = places.shape[0] > 0, 0
    for i in order:
        lo = problem.offsets[first + i] - start
        y = labels[lo : problem.offsets[first + i + 1] - start]
        length = y.shape[0]
        scores = position_scores(problem, first + i, w, 0.0).reshape(length * stride)
        ahead, behind = np.zeros(length * stride), np.zeros(length * stride)
        for t in range(length - 1, 0, -1):
            chain.step_maxima(scores, cost, y, backwards, t, -1, behind, reach)
        for t in range(length - 1 if at_random else 0):
            chain.step_maxima(scores, cost, y, onwards, t, 1, ahead, reach)
        for visit in range(length):
            t = places[lo + visit] if at_random else visit
            now = best = y[t]
            if switches < limit and n_labels > 1:
                here = t * stride
                for k in range(n_labels):
                    row[k] = ahead[here + k] + scores[here + k] + behind[here + k]
                chain.augmented_maxima(row, problem.cost, n_labels, maxima)
                switch_costs(constraints, state, labels, i, t, penalties)
                chain.switch_gains(scores, onwards, backwards, y, stride, t, gains)
                lowest, stop = 0, n_labels
                if at_random:
                    lowest = candidates[lo + visit] + (1 if candidates[lo + visit] >= now else 0)
                    stop = lowest + 1
                held, least = maxima[now], 0.0
                for k in range(lowest, stop):
                    change = scale * (maxima[k] - held - gains[k]) + penalties[k]
                    if change < least and k != now and is_lower(change, scale, held, penalties[k]):
                        best, least = k, change
            if best != now:
                commit_switch(constraints, state, labels, i, t, best)  # writes the label, too
                switches += 1
            if at_random and best != now:
                for s in range(t, 0, -1):
                    chain.step_maxima(scores, cost, y, backwards, s, -1, behind, reach)
            if not at_random or best != now:
                stop = length - 1 if at_random else min(t + 1, length - 1)
                for s in range(t, stop):
                    chain.step_maxima(scores, cost, y, onwards, s, 1, ahead, reach)
    return switches


@kernel
def fill_slacks(problem: ChainProblem, order: Array, w: Array, slack: Array) -> None:
    """``slack[i]`` of the sequences i in ``order``, for the problem's labels."""
    A = moves(problem, w)
    for i in order:
        y = problem.labels[problem.offsets[i] : problem.offsets[i + 1]]
        scores = position_scores(problem, i, w, 1.0)  # y itself has no loss
        score = chain.path_score(scores, A, y)  # before decoding, which overwrites the scores
        slack[i] = max(find_path(problem, scores, A, np.empty_like(y)) - score, 0.0)


def measure_slacks(problem: ChainProblem, stop: int, w: Array, workers: Workers) -> Array:
    """Slack of the sequences before ``stop`` for the problem's own labels."""
    slack = np.empty(stop)
    workers.over(np.arange(stop), fill_slacks, problem, PART, w, slack)
    return slack


def switch_labels(
    problem: ChainProblem,
    first: int,
    w: Array,
    scale: float,
    penalties: Penalties,
    labels: Array,
    *,
    order: str = "sequential",
    max_switches: int | None = None,
    max_sweeps: int = 1,
    rng: np.random.Generator | None = None,
) -> tuple[Array, int]:
    """Algorithm 2 from given labels of the unlabelled sequences, those from number ``first`` on.

    ``scale`` is ``C_u/u``, the price of slack; ``labels`` of all unlabelled tokens are where
    to start, and are left as they are. Sweeps are repeated, at most ``max_sweeps`` in all, as long
    as something was switched. Python predicates are unknown. The labels reached, and the number of
    switches.
    """
    lengths = np.diff(problem.offsets[first:])
    n = len(lengths)
    labels = np.array(labels, dtype=np.int32)
    known = (problem, first, w, scale, penalties.compiled, penalties.state(labels))
    most = np.iinfo(np.int64).max if max_switches is None else int(max_switches)
    switches = 0
    for _ in range(max_sweeps if most else 0):
        sequences, places, candidates = np.arange(n), np.zeros(0, np.int64), np.zeros(0, np.int64)
        if order == "random":
            assert rng is not None
            sequences = rng.permutation(n)
            places = rng.integers(0, np.repeat(lengths, lengths))
            candidates = rng.integers(0, max(problem.n_labels - 1, 1), len(places))
        found = int(sweep_labels(*known, sequences, most - switches, places, candidates, labels))
        switches += found
        if not found or switches >= most:
            break
    return labels, switches


def _drop_planes(known: Any, touched: Array, offsets: Array) -> None:
    """Take the planes from sequences, or parts of them, that show a token whose label is new."""
    ws, first = getattr(known, "ws", known), offsets[:-1]
    if hasattr(known, "start"):  # planes of parts show a token on either side
        owner = np.searchsorted(offsets, known.start, side="right") - 1
        first = np.maximum(known.start - 1, offsets[owner])
    count = np.concatenate([[0], np.cumsum(touched)])
    hit = count[first + ws.length] > count[first]
    ws.used[hit] = 0
    ws.alpha[np.repeat(hit, ws.capacity)] = 0.0


class WarmSolver:
    """The convex problem in the weights for fixed labels, solved again and again.

    Each call begins with the multipliers of the one before, as far as they show no new label;
    ``changed`` are the sequences that have one. ``options`` hold where the model has none.
    """

    def __init__(self, model: Any, problem: Any, **options: Any) -> None:
        self.model, self.problem, self._tol = copy(model), problem, float(model.tol)
        self.model.solver_options = {**options, **(model.solver_options or {})}
        self.compiled = model._compile(problem)
        self._memory: DualMemory | None = None

    def solve(self, weights: Array, labels: Array = NO_LABELS, tol: float = 0.0) -> Result:
        """Solve with these labels of the last tokens, to the larger of ``tol`` and the model's."""
        problem, self.model.tol = self.problem, max(self._tol, tol)
        before = problem.labels.copy()
        problem.labels[len(before) - len(labels) :] = labels
        differs = problem.labels != before
        self.changed = np.flatnonzero(np.logical_or.reduceat(differs, problem.offsets[:-1]))
        start, self._memory = self._memory, None
        if start is not None and len(self.changed):
            _drop_planes(start.multipliers, differs, problem.offsets)
        result, self._memory, _ = self.model._solve_with(self.compiled, weights, start)
        return result


@dataclass
class Annealing:
    """Algorithm 1 over sequences some of which are labelled.

    ``settings`` is the estimator whose parameters say how to anneal. Labels of the unlabelled
    sequences are written into the problem.
    """

    settings: Any
    data: Any  # PartlyLabelled
    penalties: Penalties
    workers: Workers
    rng: np.random.Generator
    dev: tuple[Any, Any] | None

    def __post_init__(self) -> None:
        data = self.data
        self.learned = self.settings.weights == "learned"
        self._counted = self.penalties.soften()  # plain predictions may break hard rules
        self.problem: ChainProblem = data.make_problem(0, data.n)
        # Conjugate gradients took most of the time of fits on five sequences; passes do as well.
        # Where all sequences are labelled, this is the fit of the base, bit for bit.
        fast = {"cg_steps": 0} if data.first < data.n else {}
        self._solver = WarmSolver(data.model, self.problem, **fast)
        self._prices = np.zeros(self.problem.n_labels)  # of labels, kept from step to step
        self._matched: tuple[Array, Array] | None = None  # weights and what _match found for them

    def run(self, schedule: Sequence[float] | None, choose: Any) -> tuple[Rounds, int]:
        """The labelled sequences alone, then every C_u of the schedule, until interrupted.

        The step that ``choose`` names is then solved to the base's own tolerance; where that makes
        it name another, this one, too.
        """
        if schedule is None:
            schedule = [price * (self.data.n - self.data.first) for price in PRICES]
        path = Rounds(AnnealingStep, self.data.model, self.dev)
        result = self._solve(0.0, NO_LABELS, WAY_TOL if len(schedule) else 0.0)
        path.interrupted = result.stop_reason == "interrupted"
        if self.learned and len(schedule) and not path.interrupted:
            self._raise_weights(result.weights)
        self._record(path, 0, result, self._predict(result.weights), SUPERVISED)
        finished: set[int] = set()
        try:
            for C_u in schedule:
                if not path.interrupted:
                    self._step(path, float(C_u))
            while not path.interrupted:
                chosen = choose(path.steps)
                done = path.results[chosen].relative_gap <= float(self.data.model.tol)
                if done or chosen in finished:
                    break
                finished.add(chosen)
                step, labels = path.steps[chosen], path.labels[chosen]
                result = self._solve(step.C_u, labels)
                path.interrupted = result.stop_reason == "interrupted"
                if not path.interrupted:
                    self._record(path, chosen, result, labels, step)
        except KeyboardInterrupt:  # between two solves
            path.interrupted = True
        return path, choose(path.steps)

    def _solve(self, C_u: float, labels: Array, tol: float = 0.0) -> Result:
        u = self.data.n - self.data.first
        price = C_u / (max(u, 1) * self.data.model.C)
        caps = np.concatenate([self.data.weights, np.full(u, price)])
        return self._solver.solve(caps, labels, tol)

    def _raise_weights(self, w: Array) -> None:
        """Raise weights of rules until labels under them break none oftener than given labels do.

        A rule that given labels break often has next to no weight for that alone; but where the
        labels that are found break it oftener still, it shows what is wrong with them. Rules that
        no given label breaks have large weights anyway.
        """
        data, learned, classes = self.data, self.penalties.constraints, self.penalties.classes
        found: dict[int, tuple[float, Penalties]] = {}  # of rules that given labels break
        for c, rule in enumerate(learned):
            if isinstance(rule, InstanceConstraint) and not rule.hard:
                unit = [change_rule(rule, weight=1.0)]
                known = Penalties(unit, data.seen[: data.first], classes, unknown="ignore")
                if rate := known.total(data.labels) / data.first:
                    found[c] = rate, Penalties(unit, data.words, classes, unknown="ignore")
        for _ in range(WEIGHT_CHANGES if found else 0):
            labels, rules = self._match(w, 0.0)[0], list(self.penalties.constraints)
            for c, (rate, unlabelled) in found.items():
                ratio = unlabelled.total(labels) / (data.n - data.first) / rate
                weight = rules[c].weight + WEIGHT_STEP * math.log(max(ratio, 1e-3))
                rules[c] = change_rule(rules[c], weight=max(weight, learned[c].weight))
            if rules == self.penalties.constraints:
                break
            self.penalties = Penalties(rules, data.words, classes, unknown="ignore")
            self._counted, self._matched = self.penalties.soften(), None

    def _step(self, path: Rounds, C_u: float) -> None:
        settings, problem, result = self.settings, self.problem, path.results[-1]
        at = problem.offsets[self.data.first]
        rounds, switches, settled = 0, 0, False
        while rounds < settings.max_alternations:
            labels, switched = self._match(result.weights, C_u)
            changed = float(np.mean(labels != problem.labels[at:]))
            if settled := rounds > 0 and changed <= float(settings.label_tol):
                break
            rounds += 1
            switches += switched
            result = self._solve(C_u, labels, WAY_TOL)
            if (settings.verbose or 0) >= 2:
                told = f"  alternation {rounds}: {100 * changed:.2f} % of tokens relabelled in"
                n = len(self._solver.changed)
                print(f"{told} {n} sequences, {switched} switches", file=sys.stderr)
            if result.stop_reason == "interrupted":
                path.interrupted = True
                return
        step = SUPERVISED._replace(C_u=C_u, switches=switches, alternations=rounds, settled=settled)
        self._record(path, len(path.steps), result, problem.labels[at:].copy(), step)

    def _match(self, weights: Array, C_u: float) -> tuple[Array, int]:
        """Labels of the unlabelled tokens for these weights, and how many were switched."""
        settings, first = self.settings, self.data.first
        scale = 1.0 if self.learned else C_u / (self.data.n - first)
        if self._matched is not None and self._matched[0] is weights:
            return self._matched[1], 0  # when labels settled at the step before
        known = (self.problem, first, weights, scale, self.penalties)
        if settings.start == "viterbi" or not self.penalties.constraints:
            labels = self._predict(weights)
        else:
            search = ConstrainedLabels(*known, self.workers)
            # Learned shares weigh too little to be worth prices.
            labels = search.find() if self.learned else search.find_with_shares(self._prices)
        if not settings.max_sweeps:
            self._matched = (weights, labels) if self.learned else None
            return labels, 0
        asked = {name: getattr(settings, name) for name in ("order", "max_switches", "max_sweeps")}
        return switch_labels(*known, labels, **asked, rng=self.rng)

    def _record(self, path: Rounds, at: int, result: Result, labels: Array, step: Any) -> None:
        """Note a step as number ``at``: with its objective and what plain predictions say of it."""
        again, C_u, rounds = at < len(path.steps), step.C_u, step.alternations
        problem, model, first, n = self.problem, self.data.model, self.data.first, self.data.n
        w = result.weights
        slack = measure_slacks(problem, n if C_u > 0.0 else first, w, self.workers)
        norm = 0.5 * float(w @ w)
        labelled = float((float(model.C) * self.data.weights) @ slack[:first])
        unlabelled = C_u / max(n - first, 1) * float(slack[first:].sum())
        penalty = self.penalties.total(labels) if rounds else math.nan
        if self.learned and rounds:
            penalty *= C_u / (n - first)
        objective = norm + labelled + unlabelled + (penalty if rounds else 0.0)
        found = (C_u, objective, norm, labelled, unlabelled, penalty, result.gap)
        row = step._asdict() | dict(zip(AnnealingStep._fields, found, strict=False))
        row["violations"] = self._counted.total(self._predict(w))
        step = path.add(result, labels, at, **row)
        if self.settings.verbose and not again:
            if len(path.steps) == 1:
                print(_ROW.format(*_HEADINGS, "").rstrip(), file=sys.stderr)
            numbers = [f"{v:.6g}" for v in (C_u, step.objective, step.violations)]
            dev = "" if math.isnan(step.dev_score) else f"{100 * step.dev_score:.2f} %"
            paid, remark = f"{penalty:.6g}" if rounds else "", "" if step.settled else "not settled"
            counts = (paid, step.switches, rounds, remark)
            print(_ROW.format(*numbers, dev, f"{step.time:.1f}", *counts).rstrip(), file=sys.stderr)

    def _predict(self, weights: Array) -> Array:
        return find_best_labels(self.problem, self.data.first, weights, self.workers)


def choose_by_violations(steps: Sequence[AnnealingStep]) -> int:
    """The first step that removes 98 % of the violations that any does, of plain predictions."""
    costs = np.array([step.violations for step in steps])
    return int(np.argmax(costs <= costs.min() + 0.02 * (costs[0] - costs.min())))
