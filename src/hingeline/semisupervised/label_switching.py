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

A trial as printed costs a loss-augmented Viterbi pass (:mod:`.naive`). Here it costs O(1), with
the same result: see :mod:`hingeline.inference.max_marginals`. In a sweep from left to right the
best beginnings follow the labels as they are switched, and the best continuations behind them stay
valid, so that a sweep costs about two Viterbi passes. In random order both are made anew after
each accepted switch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.constraints.compiled import commit_switch, switch_costs
from hingeline.inference.max_marginals import (
    augmented_maxima,
    path_score,
    step_backward,
    step_forward,
    switch_gains,
    transposed,
    uniform_cost,
)
from hingeline.semisupervised.penalties import Penalties, penalty_of
from hingeline.semisupervised.rounding import is_lower
from hingeline.semisupervised.slow_switching import sweep_slowly
from hingeline.solvers.parallel import Workers
from hingeline.structures.chain import moves, position_scores
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]

ORDERS = ("sequential", "random")


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
def _fill_row(ahead: Array, scores: Array, behind: Array, here: int, row: Array) -> None:
    for k in range(row.shape[0]):
        row[k] = ahead[here + k] + scores[here + k] + behind[here + k]


@kernel
def sweep_in_order(
    problem: ChainProblem,
    first: int,
    w: Array,
    scale: float,
    constraints: Any,
    state: Any,
    order: Array,
    limit: int,
    labels: Array,
    slack: Array,
) -> int:
    """Visit every position of the sequences of ``order`` and take the best label there.

    ``labels``, ``slack`` and ``order`` are of the unlabelled sequences, which the problem holds
    from number ``first`` on; ``scale`` is ``C_u/u``. Returns the number of switches, at most
    ``limit``. A forbidden label or move has a gain of ``−inf`` and so a change of ``inf``.
    """
    n_labels = problem.n_labels
    stride = problem.stride
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
    switches = 0
    for i in order:
        y = labels[problem.offsets[first + i] - start : problem.offsets[first + i + 1] - start]
        length = y.shape[0]
        table = position_scores(problem, first + i, w, 0.0)
        score = path_score(table, A, y)
        scores = table.reshape(table.size)
        ahead = np.zeros(length * stride)
        behind = np.zeros(length * stride)
        for t in range(length - 1, 0, -1):
            step_backward(scores, cost, y[t], backwards, n_labels, stride, t, behind, reach)
        for t in range(length):
            now = y[t]
            if switches < limit or t == length - 1:
                _fill_row(ahead, scores, behind, t * stride, row)
                augmented_maxima(row, problem.cost, unit, n_labels, maxima)
            if switches < limit:
                switch_costs(constraints, state, labels, i, t, penalties)
                switch_gains(scores, onwards, backwards, y, stride, n_labels, t, gains)
                held = maxima[now]
                for k in range(n_labels):
                    row[k] = scale * (maxima[k] - held - gains[k]) + penalties[k]
                best = now
                least = 0.0
                for k in range(n_labels):
                    if row[k] < least and k != now and is_lower(row[k], scale, held, penalties[k]):
                        least = row[k]
                        best = k
                if best != now:
                    score += gains[best]
                    commit_switch(constraints, state, labels, i, t, best)  # writes the label, too
                    switches += 1
            if t + 1 < length:
                step_forward(scores, cost, y[t], onwards, n_labels, stride, t, ahead, reach)
        slack[i] = max(maxima[y[length - 1]] - score, 0.0)
    return switches


@kernel
def sweep_at_random(
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
    """Try as many switches as a sequence has positions, at these places and to these labels.

    ``places`` and ``candidates`` have one entry per unlabelled token; a candidate is the number of
    a label among those that are not there already. As :func:`sweep_in_order` otherwise.
    """
    n_labels = problem.n_labels
    stride = problem.stride
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
            step_backward(scores, cost, y[t], backwards, n_labels, stride, t, behind, reach)
        for t in range(length - 1):
            step_forward(scores, cost, y[t], onwards, n_labels, stride, t, ahead, reach)
        for trial in range(length):
            if switches >= limit or n_labels < 2:
                break
            t = places[lo + trial]
            now = y[t]
            k = candidates[lo + trial]
            if k >= now:
                k += 1
            switch_gains(scores, onwards, backwards, y, stride, n_labels, t, gains)
            if gains[k] == -np.inf:
                continue
            _fill_row(ahead, scores, behind, t * stride, row)
            augmented_maxima(row, problem.cost, unit, n_labels, maxima)
            switch_costs(constraints, state, labels, i, t, penalties)
            change = scale * (maxima[k] - maxima[now] - gains[k]) + penalties[k]
            if is_lower(change, scale, maxima[now], penalties[k]):
                score += gains[k]
                commit_switch(constraints, state, labels, i, t, k)
                switches += 1
                for s in range(t, 0, -1):
                    step_backward(scores, cost, y[s], backwards, n_labels, stride, s, behind, reach)
                for s in range(t, length - 1):
                    step_forward(scores, cost, y[s], onwards, n_labels, stride, s, ahead, reach)
        _fill_row(ahead, scores, behind, 0, row)
        augmented_maxima(row, problem.cost, unit, n_labels, maxima)
        slack[i] = max(maxima[y[0]] - score, 0.0)
    return switches


@kernel
def slacks_of(problem: ChainProblem, first: int, order: Array, w: Array, slack: Array) -> None:
    """``slack[i]`` of the sequences ``first + i``, i in ``order``, for the problem's labels."""
    A = moves(problem, w)
    onwards = A.reshape(A.size)
    cost = problem.cost.reshape(problem.cost.size)
    stride = problem.stride
    n_labels = problem.n_labels
    reach = np.empty(stride)
    for i in order:
        lo = problem.offsets[first + i]
        y = problem.labels[lo : problem.offsets[first + i + 1]]
        length = y.shape[0]
        table = position_scores(problem, first + i, w, 0.0)
        scores = table.reshape(table.size)
        ahead = np.zeros(length * stride)
        for t in range(length - 1):
            step_forward(scores, cost, y[t], onwards, n_labels, stride, t, ahead, reach)
        best = -np.inf
        here = (length - 1) * stride
        loss = y[length - 1] * stride
        for k in range(n_labels):
            best = max(best, ahead[here + k] + scores[here + k] + cost[loss + k])
        slack[i] = max(best - path_score(table, A, y), 0.0)


def all_slacks(problem: ChainProblem, first: int, stop: int, w: Array, workers: Workers) -> Array:
    """Slack of the sequences ``first ≤ i < stop`` for the problem's own labels."""
    slack = np.empty(stop - first)
    workers.map(
        lambda part, scratch: slacks_of(problem, first, part, w, slack), np.arange(stop - first)
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

    Parameters
    ----------
    problem : ChainProblem
        Its sequences from number ``first`` on are the unlabelled ones; their labels in it count
        for nothing.
    first : int
    w : ndarray
        Flat weights.
    scale : float
        ``C_u/u``, what a unit of slack costs.
    penalties : Penalties
        Of the unlabelled sequences.
    labels : int32 ndarray
        Where to start, of all unlabelled tokens; left as they are.
    order : {"sequential", "random"}
        Every position in turn with its best label, or random positions and labels, of sequences
        in random order.
    max_switches : int, optional
        Stop after so many switches.
    max_sweeps : int
        Sweep again, at most so often in all, as long as something was switched.
    rng : Generator
        For random order.

    Returns
    -------
    Switching
    """
    lengths = np.diff(problem.offsets[first:])
    n = len(lengths)
    slack = np.empty(n)
    everyone = np.arange(n)
    compiled = penalties.compiled
    if penalties.predicates:
        evaluator = penalties.evaluator(labels)
        labels = evaluator.labels
    else:
        labels = np.array(labels, dtype=np.int32)
        state = penalties.state(labels)

    def sweep(limit: int, at_random: bool) -> int:
        sequences, trials = everyone, None
        if at_random:
            assert rng is not None
            sequences = rng.permutation(n)
            places = rng.integers(0, np.repeat(lengths, lengths))
            trials = places, rng.integers(0, max(problem.n_labels - 1, 1), len(places))
        if penalties.predicates:
            return sweep_slowly(
                problem, first, w, scale, evaluator, sequences, limit, slack, trials
            )
        common = (problem, first, w, scale, compiled, state, sequences, limit)
        if trials is not None:
            return int(sweep_at_random(*common, *trials, labels, slack))
        return int(sweep_in_order(*common, labels, slack))

    def objective() -> tuple[float, float]:
        if penalties.predicates:
            penalty = evaluator.total_penalty()
        else:
            penalty = float(penalty_of(compiled, state))
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
