"""How many paths beat a given path, and by how much in sum: bounds for chains of any length.

For a path y of value v the two numbers are ``#{y' : value(y') > v}`` and ``Σ_y' [value(y') − v]₊``,
over exponentially many paths. With β_t(k), the value of the best continuation behind label k at
position t, the *regret* of a path, best value minus its own, is a sum of reduced costs::

    c_0(k)    = best − (s_0(k) + β_0(k))                        ≥ 0
    c_t(j, k) = β_{t−1}(j) − (A(j, k) + s_t(k) + β_t(k))        ≥ 0

so that a prefix whose costs reach R, the regret of y, leads to no better path and is dropped. The
numbers are ``#{ρ < R}`` and ``F(R) = Σ [R − ρ]₊`` over the regrets ρ of all paths. Regrets are
kept in bins of one width h, per label of the newest position, by two dynamic programs:

* **Above.** A cost ``c = (s + φ)·h`` with whole s and 0 ≤ φ < 1 moves the share 1 − φ of the paths
  by s bins and the share φ by s + 1. That replaces c by a random cost of the same mean, and
  ``[R − ·]₊`` is convex: by Jensen's inequality the sum over the bins is at least F(R), for any R.
* **Below.** All paths move by s bins, and each bin keeps their number and the sum of their exact
  regrets. n paths of mean regret μ contribute at least ``n·[R − μ]₊``, by the same inequality.

Both errors come from the paths near R alone and vanish as T·h². Numbers of paths follow in two
ways: bins of the second program begin at most Σ_t max φ bins before the regrets of their paths; and
F is convex with slope ``#{ρ < R}``, so that differences of the two bounds on F bound it.

Rounding. The width is a power of two, so that costs are scaled to bins without error. A regret
computed from the reduced costs is off by at most ``η = 16 (T + 1)·ε·M`` with ``ε = 2⁻⁵²`` and M
the largest absolute value a partial path can have (at most ten roundings of numbers up to 2M per
step); the upper bounds are taken at R + η and the lower ones at R − η. Where all scores are
multiples of 2⁻²⁰ nothing is rounded and η = 0. Masses are sums of products of non-negative
numbers, hence right up to a factor 1 ± κ, κ being ε times the number of operations on the way; the
bounds contain it. So they hold for the scores as they are given, to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hingeline._jit import helper, strict_helper
from hingeline.inference.margins import continuations

Array = np.ndarray[Any, Any]

EPS = 2.0**-52
#: Scores that are multiples of 1/GRAIN are added without rounding.
GRAIN = 2.0**20
#: Masses are kept below this, and what is more reported as infinite.
CAP = 1e290


@helper
def extra_bins(length: int) -> int:
    """Bins kept beyond R, for the slope of F there."""
    return 2 + math.ceil(math.sqrt(length))


@helper
def workspace(length: int, n_labels: int, bins: int) -> Array:
    """Room for chains up to this length, all zero, as :func:`better_paths` leaves it.

    Two sides (positions t − 1 and t), labels, three masses, bins. Bin b has place b + 1.
    """
    return np.zeros((2, n_labels, 3, 2 * bins + extra_bins(length) + 4))


@strict_helper
def _reduced_cost(
    scores: Array, transitions: Array, behind: Array, best: float, t: int, j: int, k: int
) -> float:
    """Cost of going on to label k at position t from label j, which must have a continuation.

    Strict arithmetic: the given path must get the same bits wherever its costs are computed.
    """
    ahead = scores[t, k] + behind[t, k]
    cost = best - ahead if t == 0 else behind[t - 1, j] - (transitions[j, k] + ahead)
    return max(cost, 0.0)


@helper
def _size_of_values(scores: Array, transitions: Array, n_labels: int) -> tuple[float, bool]:
    """Bound on the absolute value of partial paths, and whether sums are exact."""
    length = scores.shape[0]
    whole = True
    largest = 0.0
    for j in range(n_labels):
        for k in range(n_labels):
            value = abs(transitions[j, k])
            if value < np.inf:
                largest = max(largest, value)
                whole = whole and value * GRAIN == math.floor(value * GRAIN)
    total = largest * (length - 1)
    for t in range(length):
        largest = 0.0
        for k in range(n_labels):
            value = abs(scores[t, k])
            if value < np.inf:
                largest = max(largest, value)
                whole = whole and value * GRAIN == math.floor(value * GRAIN)
        total += largest
    return total, whole and total * GRAIN < 2.0**51


@helper
def _pour(source: Array, target: Array, first: int, count: int, move: int, part: float) -> None:
    """Add the paths of one label's bins to another's, ``move + part`` bins further on."""
    rest = 1.0 - part
    old = source[0, first : first + count + 1]
    new = target[0, first + 1 + move : first + 1 + move + count]
    for b in range(count):
        new[b] += rest * old[b + 1] + part * old[b]
    cost = move + part
    number = source[1, first + 1 : first + 1 + count]
    regret = source[2, first + 1 : first + 1 + count]
    new_number = target[1, first + 1 + move : first + 1 + move + count]
    new_regret = target[2, first + 1 + move : first + 1 + move + count]
    for b in range(count):
        new_number[b] += number[b]
        new_regret[b] += regret[b] + cost * number[b]


@helper
def _cap(row: Array, first: int, last: int) -> bool:
    """Scale bins down that hold too many paths; whether there were any.

    Fewer paths of the same mean regret still make a lower bound.
    """
    over = False
    for place in range(first + 1, last + 2):
        if max(row[0, place], row[1, place]) > CAP:
            over = True
            row[0, place] = min(row[0, place], CAP)
            if row[1, place] > CAP:
                row[2, place] *= CAP / row[1, place]
                row[1, place] = CAP
    return over


@helper
def _above(side: Array, last: Array, shares: Array, base: int, x: float, kappa: float) -> float:
    """Upper bound of ``Σ [x − ρ]₊`` over all paths but the given one; x in bins."""
    total = 0.0
    for k in range(last.shape[0]):
        row = side[k, 0]
        for b in range(min(last[k] + 1, math.ceil(x))):
            total += (x - b) * row[b + 1]
    own = 0.0
    for b in range(shares.shape[0]):
        own += shares[b] * max(x - (base + b), 0.0)
    return max(total * (1.0 + kappa) - own * (1.0 - kappa), 0.0)


@helper
def _below(side: Array, last: Array, x: float, kappa: float) -> float:
    """Lower bound of ``Σ [x − ρ]₊``; x in bins."""
    total = 0.0
    for k in range(last.shape[0]):
        number = side[k, 1]
        regret = side[k, 2]
        for b in range(min(last[k] + 1, math.ceil(x))):
            total += max(number[b + 1] * (1.0 - kappa) * x - regret[b + 1] * (1.0 + kappa), 0.0)
    return total * (1.0 - kappa)


@helper
def _number_before(side: Array, last: Array, x: float) -> float:
    """Paths in bins b < x."""
    total = 0.0
    for k in range(last.shape[0]):
        number = side[k, 1]
        for b in range(min(last[k] + 1, math.ceil(x))):
            total += number[b + 1]
    return total


@helper
def _bounds(
    side: Array,
    last: Array,
    shares: Array,
    base: int,
    low: float,
    high: float,
    residue: float,
    reach: int,
    kappa: float,
    out: Array,
) -> None:
    """From bins to bounds; slacks in units of the width. R lies between ``low`` and ``high``."""
    upper = _above(side, last, shares, base, high, kappa)
    lower = max(_below(side, last, low, kappa), low)  # the best path alone has the slack R
    most = _number_before(side, last, high)
    least = _number_before(side, last, low - residue * (1.0 + kappa))
    if most > 2.0**52:  # whole numbers up to this are added without rounding
        most *= 1.0 + kappa
    if least > 2.0**52:
        least *= 1.0 - kappa
    if low > 0.0:
        least = max(least, 1.0)
    if least < most:
        from_high = _below(side, last, high, kappa)
        for step in range(1, reach + 1):
            further = _above(side, last, shares, base, high + step, kappa)
            most = min(most, (further - from_high) / step * (1.0 + kappa))
            if low > step:
                nearer = _above(side, last, shares, base, low - step, kappa)
                least = max(least, (lower - nearer) / step * (1.0 - kappa))
        if most < 2.0**52:
            most = math.floor(most)
        if least < 2.0**52:
            least = math.ceil(least)
    out[0] = lower
    out[1] = min(upper, most * high)
    out[2] = least
    out[3] = most


@helper
def _path_bins(costs: Array) -> tuple[int, float, Array]:
    """Where a path with these costs is: bin in the second program, regret, and shares in the first.

    Costs and regret are in units of the width; the shares are those of that bin and the next ones.
    """
    base = 0
    place = 0.0
    shares = np.zeros(costs.shape[0] + 1)
    shares[0] = 1.0
    for t in range(costs.shape[0]):
        move = int(costs[t])
        part = costs[t] - move
        base += move
        place += costs[t]
        for b in range(t + 1, 0, -1):
            shares[b] = (1.0 - part) * shares[b] + part * shares[b - 1]
        shares[0] *= 1.0 - part
    return base, place, shares


@helper
def _begin(row: Array, cost: float, top: int) -> tuple[int, int]:
    """One path of this cost in an empty row; its first and last bin."""
    move = int(cost)
    part = cost - move
    row[0, move + 1] = 1.0 - part
    row[1, move + 1] = 1.0
    row[2, move + 1] = cost
    if move < top:
        row[0, move + 2] = part
    return move, min(move + 1, top)


@helper
def better_paths(
    scores: Array,
    transitions: Array,
    n_labels: int,
    y: Array,
    bins: int,
    space: Array,
    out: Array,
) -> None:
    """Bounds on the slack and the number of the paths of larger value than the path ``y``.

    ``out`` receives the lower and the upper bound of ``Σ [value − value(y)]₊``, then those of
    the number of paths with ``value > value(y)``; upper bounds are ``inf`` where more than about
    1e290 paths fall into one bin, or where y itself is forbidden. The range of regrets is divided
    into ``bins`` to ``2·bins`` bins. ``space`` comes from :func:`workspace`, is all zero, and is
    left so.
    """
    length = scores.shape[0]
    behind = continuations(scores, transitions, n_labels)
    best = -np.inf
    for k in range(n_labels):
        best = max(best, scores[0, k] + behind[0, k])
    size, exact = _size_of_values(scores, transitions, n_labels)
    out[:] = 0.0
    own_costs = np.zeros(length)
    regret = 0.0
    for t in range(length):
        if regret < np.inf:  # else there may be no continuation to compare with
            own_costs[t] = _reduced_cost(
                scores, transitions, behind, best, t, y[max(t - 1, 0)], y[t]
            )
            regret += own_costs[t]
    if not regret < np.inf:
        out[1] = np.inf
        out[3] = np.inf
        return
    eta = 0.0 if exact else 16.0 * (length + 1) * EPS * size
    high = regret + eta
    low = max(regret - eta, 0.0)
    if high == 0.0:
        return
    width = math.ldexp(1.0, max(math.frexp(high / bins)[1] - 1, -1000))
    reach = extra_bins(length)
    top = int(high / width) + reach  # the last bin that is kept
    limit = (top + 1.0) * width

    # Rows hold the bins ``first`` to ``last`` of a label; empty where last < first.
    first = np.full((2, n_labels), top + 1)
    last = np.full((2, n_labels), -1)
    residue = 0.0  # how far a regret can be ahead of its bin in the second program
    for k in range(n_labels):
        cost = _reduced_cost(scores, transitions, behind, best, 0, 0, k)
        if cost < limit:
            first[0, k], last[0, k] = _begin(space[0, k], cost / width, top)
            residue = max(residue, cost / width - first[0, k])
    bound = float(n_labels)  # on the number of paths
    overflow = False
    side = 0
    for t in range(1, length):
        source = space[side]
        target = space[1 - side]
        starts = first[side]
        ends = last[side]
        new_starts = first[1 - side]
        new_ends = last[1 - side]
        bound *= n_labels
        widest = 0.0
        for k in range(n_labels):
            new_starts[k] = top + 1
            new_ends[k] = -1
            for j in range(n_labels):
                if ends[j] < starts[j]:
                    continue
                cost = _reduced_cost(scores, transitions, behind, best, t, j, k)
                if not cost < limit:
                    continue
                cost /= width
                move = int(cost)
                count = min(ends[j] + 1, top - move) - starts[j] + 1
                if count <= 0:
                    continue
                part = cost - move
                _pour(source[j], target[k], starts[j], count, move, part)
                widest = max(widest, part)
                new_starts[k] = min(new_starts[k], starts[j] + move)
                new_ends[k] = max(new_ends[k], starts[j] + move + count - 1)
            if bound > CAP and _cap(target[k], new_starts[k], new_ends[k]):
                overflow = True
        residue += widest
        for j in range(n_labels):
            source[j, :, starts[j] + 1 : ends[j] + 2] = 0.0
        side = 1 - side

    kappa = (length * (n_labels + 4) + n_labels + top + 16) * EPS
    base, place, shares = _path_bins(own_costs / width)
    own = space[side, y[length - 1], :, base + 1]  # y has no part in the sums: take it out
    own[1] -= 1.0
    own[2] = max(own[2] * (1.0 + 2.0 * kappa) - place, 0.0) if own[1] > 0.0 else 0.0
    _bounds(
        space[side], last[side], shares, base, low / width, high / width, residue, reach, kappa, out
    )
    out[0] *= width
    out[1] *= width
    if overflow:
        out[1] = np.inf
        out[3] = np.inf
    elif out[3] == 0.0:  # no better path, whatever the rounding
        out[0] = 0.0
        out[1] = 0.0
    for k in range(n_labels):
        space[side, k, :, first[side, k] + 1 : last[side, k] + 2] = 0.0
