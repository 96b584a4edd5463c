"""Constraint matching: labels of unlabelled sequences by switching one label at a time.

For fixed weights w, Algorithm 2 of P. Balamurugan, S. Shevade, S. Sellamanickam, *Large Margin
Semi-supervised Structured Output Learning*, climbs down::

    O(y*) = C_u/u · Σ_j slack_j(y*_j) + penalty(y*),
    slack_j(ŷ) = max_y [w·f(x_j, y) + l(ŷ, y)] − w·f(x_j, ŷ)

from labels of :mod:`.starting`. What is printed is put right in five places: the
slack is ``l − w·Δf`` (line 17 has the other sign); O* is that of the labels reached, carried on
after every accepted switch (line 10 would compare with the start); the label is restored after
each trial; the limit counts switches, not positions; and a switch must lower O* by more than
rounding. ``order="sequential"`` sweeps over all positions and takes the best label at each, as
printed; ``order="random"`` tries random positions and labels, as the text describes.

A trial as printed costs a loss-augmented Viterbi pass. Here it costs O(1), with the same result:
see :mod:`hingeline.inference.chain`. In a sweep from left to right the
best beginnings follow the labels as they are switched, and the best continuations behind them stay
valid, so that a sweep costs about two Viterbi passes. In random order both are made anew after
each accepted switch.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline.constraints.penalties import Penalties
from hingeline.constraints.switches import commit_switch, sum_penalties, switch_costs
from hingeline.core.blocks import WorkingSet, plane
from hingeline.core.formulations import Formulation, plane_offset, plane_scale
from hingeline.core.primitives import Workers, plane_loss, plane_sqdist, truth
from hingeline.inference.chain import (
    augmented_maxima,
    path_score,
    step_maxima,
    switch_gains,
    transposed,
    uniform_cost,
)
from hingeline.structures.chain import ChainProblem, find_path, moves, position_scores, promises

#: A switch must lower the objective by more than this share of its terms.
SWITCH_ROUNDING = 1e-10


class Switching(NamedTuple):
    """What label switching reached."""

    labels: Array  # int32, of all unlabelled tokens
    slack: Array  # of every unlabelled sequence
    penalty: float
    objective: float  # C_u/u · Σ slack + penalty
    start_objective: float  # the same of the labels it began with
    switches: int
    sweeps: int


@helper
def is_lower(change: float, scale: float, maximum: float, penalty: float) -> bool:
    """Whether a change of the objective is a decrease that rounding does not explain."""
    return change < -SWITCH_ROUNDING * (scale * (1.0 + abs(maximum)) + abs(penalty))


@helper
def _fill_row(ahead: Array, scores: Array, behind: Array, here: int, row: Array) -> None:
    for k in range(row.shape[0]):
        row[k] = ahead[here + k] + scores[here + k] + behind[here + k]


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
    slack: Array,
) -> int:
    """Visit the sequences of ``order`` and switch labels, at most ``limit``; returns how many.

    ``labels``, ``slack`` and ``order`` are of the unlabelled sequences, which the problem holds
    from number ``first`` on; ``scale`` is ``C_u/u``. Every position in turn takes the best label;
    or, where ``places`` is not empty, a sequence has as many trials as positions, at these places
    and to these candidates. Both have one entry per unlabelled token; a candidate is the number of
    a label among those that are not there already. A forbidden label or move has a gain of
    ``−inf`` and so a change of ``inf``.
    """
    n_labels, stride = problem.n_labels, problem.stride
    A = moves(problem, w)
    onwards = A.reshape(A.size)
    backwards = transposed(A, n_labels).reshape(n_labels * stride)
    cost = problem.cost.reshape(problem.cost.size)
    unit = uniform_cost(problem.cost)
    row = np.empty(n_labels)
    maxima = np.empty(n_labels)
    gains = np.empty(n_labels)
    penalties = np.zeros(n_labels)
    reach = np.empty(stride)
    start = problem.offsets[first]
    at_random = places.shape[0] > 0
    switches = 0
    for i in order:
        lo = problem.offsets[first + i] - start
        y = labels[lo : problem.offsets[first + i + 1] - start]
        length = y.shape[0]
        table = position_scores(problem, first + i, w, 0.0)
        score = path_score(table, A, y)
        scores = table.reshape(table.size)
        ahead = np.zeros(length * stride)
        behind = np.zeros(length * stride)
        for t in range(length - 1, 0, -1):
            step_maxima(scores, cost, y[t], backwards, n_labels, stride, t, -1, behind, reach)
        for t in range(length - 1 if at_random else 0):
            step_maxima(scores, cost, y[t], onwards, n_labels, stride, t, 1, ahead, reach)
        for visit in range(length):
            t = places[lo + visit] if at_random else visit
            now = y[t]
            best = now
            if switches < limit and n_labels > 1:
                _fill_row(ahead, scores, behind, t * stride, row)
                augmented_maxima(row, problem.cost, unit, n_labels, maxima)
                switch_costs(constraints, state, labels, i, t, penalties)
                switch_gains(scores, onwards, backwards, y, stride, n_labels, t, gains)
                lowest, highest = 0, n_labels - 1
                if at_random:
                    lowest = candidates[lo + visit] + (1 if candidates[lo + visit] >= now else 0)
                    highest = lowest
                held = maxima[now]
                least = 0.0
                for k in range(lowest, highest + 1):
                    change = scale * (maxima[k] - held - gains[k]) + penalties[k]
                    if change < least and k != now and is_lower(change, scale, held, penalties[k]):
                        least = change
                        best = k
            if best != now:
                score += gains[best]
                commit_switch(constraints, state, labels, i, t, best)  # writes the label, too
                switches += 1
            if at_random and best != now:
                for s in range(t, 0, -1):
                    step_maxima(
                        scores, cost, y[s], backwards, n_labels, stride, s, -1, behind, reach
                    )
            if not at_random or best != now:
                stop = length - 1 if at_random else min(t + 1, length - 1)
                for s in range(t, stop):
                    step_maxima(scores, cost, y[s], onwards, n_labels, stride, s, 1, ahead, reach)
        t = 0 if at_random else length - 1
        _fill_row(ahead, scores, behind, t * stride, row)
        augmented_maxima(row, problem.cost, unit, n_labels, maxima)
        slack[i] = max(maxima[y[t]] - score, 0.0)
    return switches


@kernel
def fill_slacks(problem: ChainProblem, first: int, order: Array, w: Array, slack: Array) -> None:
    """``slack[i]`` of the sequences ``first + i``, i in ``order``, for the problem's labels."""
    A = moves(problem, w)
    bounds = promises(problem, A)
    for i in order:
        y = problem.labels[problem.offsets[first + i] : problem.offsets[first + i + 1]]
        scores = position_scores(problem, first + i, w, 1.0)  # y itself has no loss
        score = path_score(scores, A, y)  # before decoding, which overwrites the scores
        slack[i] = max(find_path(problem, scores, A, bounds, np.empty_like(y)) - score, 0.0)


def measure_slacks(
    problem: ChainProblem, first: int, stop: int, w: Array, workers: Workers
) -> Array:
    """Slack of the sequences ``first ≤ i < stop`` for the problem's own labels."""
    slack = np.empty(stop - first)
    workers.map(
        lambda part, scratch: fill_slacks(problem, first, part, w, slack), np.arange(stop - first)
    )
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
) -> Switching:
    """Algorithm 2 from given labels of the unlabelled sequences.

    These are the problem's sequences from number ``first`` on; their labels in it count for
    nothing. ``scale`` is ``C_u/u``, what a unit of slack costs; ``labels`` of all unlabelled tokens
    are where to start, and are left as they are. ``order`` is "sequential", every position in turn
    with its best label, or "random", positions and labels drawn from ``rng``. Sweeps are repeated,
    at most ``max_sweeps`` in all, as long as something was switched. Python predicates are unknown.
    """
    lengths = np.diff(problem.offsets[first:])
    n = len(lengths)
    slack = np.empty(n)
    compiled = penalties.compiled
    labels = np.array(labels, dtype=np.int32)
    state = penalties.state(labels)

    def sweep(limit: int, at_random: bool) -> int:
        sequences, places, candidates = np.arange(n), np.zeros(0, np.int64), np.zeros(0, np.int64)
        if at_random:
            assert rng is not None
            sequences = rng.permutation(n)
            places = rng.integers(0, np.repeat(lengths, lengths))
            candidates = rng.integers(0, max(problem.n_labels - 1, 1), len(places))
        trials = (sequences, limit, places, candidates)
        return int(sweep_labels(problem, first, w, scale, compiled, state, *trials, labels, slack))

    def objective() -> tuple[float, float]:
        penalty = float(sum_penalties(compiled, state))
        return scale * float(slack.sum()) + penalty, penalty

    most = np.iinfo(np.int64).max if max_switches is None else int(max_switches)
    sweep(0, False)  # finds the slack and switches nothing
    start_objective = objective()[0]
    switches = sweeps = 0
    while sweeps < max_sweeps and switches < most:
        found = sweep(most - switches, order == "random")
        sweeps += 1
        switches += found
        if not found:
            break
    reached, penalty = objective()
    return Switching(labels, slack, penalty, reached, start_objective, switches, sweeps)


@kernel
def retarget(
    problem: Any, form: Formulation, ws: WorkingSet, changed: Array, scratch: Array
) -> None:
    """Take the true outputs of the examples in ``changed`` anew; their planes keep their mass.

    A plane is an output beside the true one, and the bound on an example's mass does not depend
    on either: the multipliers stay feasible, and are a better start than none. A plane that has
    become the true output asks for nothing and loses its mass.
    """
    for i in changed:
        m = ws.used[i]
        if m == 0:
            continue
        gold = np.empty(ws.length[i], dtype=np.int32)
        truth(problem, i, gold)
        s = ws.slot[i]
        for j in range(m):
            y = plane(ws, i, j)
            loss = plane_loss(problem, i, y)
            ws.offset[s + j] = plane_offset(form, loss)
            ws.scale[s + j] = plane_scale(form, loss)
            ws.sqnorm[s + j] = plane_sqdist(problem, i, gold, y, scratch)
            ws.drift[s + j] = 0.0
            if loss == 0.0:
                ws.alpha[s + j] = 0.0
