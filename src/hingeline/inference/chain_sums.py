"""Sums over all paths of a chain: log Z and the probabilities of labels and moves.

The value of a path is ``Σ_t scores[t, y_t] + Σ_{t>0} transitions[y_{t−1}, y_t]``, plus
``enter[t, y_t]`` wherever ``y_{t−1} ≠ y_t``. ``−inf`` forbids a label or a move.

Forward and backward sums are kept as probabilities, each row scaled to the sum 1, which takes one
exponential per label and position. What underflows there is smaller than 1e-308 of its row; it
could matter only where a row's sum or the overlap of a forward with its backward row is tiny
itself. Both are looked at, and a sequence in which one falls below :data:`SMALL` is done again
in the log domain, which is slower and safe for any finite numbers.

The arithmetic is done as written, so that equal numbers in other places of memory give equal
results. Sums over labels therefore run in the outer loop, and the inner ones still vectorise.
"""

import math
from typing import NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, strict_helper
from hingeline._simd import copy, row_max
from hingeline.inference.chain import continuations

# How many paths beat a given path, and by how much in sum: bounds for chains of any length.
#
# For a path y of value v the two numbers are ``#{y' : value(y') > v}`` and ``Σ_y' [value(y') −
# v]₊``, over exponentially many paths. With β_t(k), the value of the best continuation behind
# label k at position t, the *regret* of a path, best value minus its own, is a sum of reduced
# costs::
#
#     c_0(k)    = best − (s_0(k) + β_0(k))                        ≥ 0
#     c_t(j, k) = β_{t−1}(j) − (A(j, k) + s_t(k) + β_t(k))        ≥ 0
#
# so that a prefix whose costs reach R, the regret of y, leads to no better path and is dropped.
# The numbers are ``#{ρ < R}`` and ``F(R) = Σ [R − ρ]₊`` over the regrets ρ of all paths. Regrets
# are kept in bins of one width h, per label of the newest position, by two dynamic programs:
#
# * **Above.** A cost ``c = (s + φ)·h`` with whole s and 0 ≤ φ < 1 moves the share 1 − φ of the
#   paths by s bins and the share φ by s + 1. That replaces c by a random cost of the same mean,
#   and ``[R − ·]₊`` is convex: by Jensen's inequality the sum over the bins is at least F(R), for
#   any R.
# * **Below.** All paths move by s bins, and each bin keeps their number and the sum of their
#   exact regrets. n paths of mean regret μ contribute at least ``n·[R − μ]₊``, by the same
#   inequality.
#
# Both errors come from the paths near R alone and vanish as T·h². Numbers of paths follow in two
# ways: bins of the second program begin at most Σ_t max φ bins before the regrets of their paths;
# and F is convex with slope ``#{ρ < R}``, so that differences of the two bounds on F bound it.
#
# Rounding. The width is a power of two, so that costs are scaled to bins without error. A regret
# computed from the reduced costs is off by at most ``η = 16 (T + 1)·ε·M`` with ``ε = 2⁻⁵²`` and M
# the largest absolute value a partial path can have (at most ten roundings of numbers up to 2M
# per step); the upper bounds are taken at R + η and the lower ones at R − η. Where all scores are
# multiples of 2⁻²⁰ nothing is rounded and η = 0. Masses are sums of products of non-negative
# numbers, hence right up to a factor 1 ± κ, κ being ε times the number of operations on the way;
# the bounds contain it. So they hold for the scores as they are given, to the last bit.

EPS = 2.0**-52
GRAIN = 2.0**20  # Scores that are multiples of 1/GRAIN are added without rounding.
CAP = 1e290  # Masses are kept below this, and what is more reported as infinite.


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
    length, whole, largest = scores.shape[0], True, 0.0
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
        number, regret = side[k, 1], side[k, 2]
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
    out[0], out[1] = lower, min(upper, most * high)
    out[2], out[3] = least, most


@helper
def _path_bins(costs: Array) -> tuple[int, float, Array]:
    """Where a path with these costs is: bin in the second program, regret, and shares in the first.

    Costs and regret are in units of the width; the shares are those of that bin and the next ones.
    """
    base, place = 0, 0.0
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
def better_paths(
    scores: Array, transitions: Array, n_labels: int, y: Array, bins: int, out: Array
) -> None:
    """Bounds on the slack and the number of the paths of larger value than the path ``y``.

    ``out`` receives the lower and the upper bound of ``Σ [value − value(y)]₊``, then those of
    the number of paths with ``value > value(y)``; upper bounds are ``inf`` where more than about
    1e290 paths fall into one bin, or where y itself is forbidden. The range of regrets is divided
    into ``bins`` to ``2·bins`` bins.
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
        out[1] = out[3] = np.inf
        return
    eta = 0.0 if exact else 16.0 * (length + 1) * EPS * size
    low, high = max(regret - eta, 0.0), regret + eta
    if high == 0.0:
        return
    width = math.ldexp(1.0, max(math.frexp(high / bins)[1] - 1, -1000))
    reach = 2 + math.ceil(math.sqrt(length))  # bins kept beyond R, for the slope of F there
    top = int(high / width) + reach  # the last bin that is kept
    limit = (top + 1.0) * width
    # Two sides (positions t − 1 and t), labels, three masses, bins. Bin b has place b + 1.
    space = np.zeros((2, n_labels, 3, top + 4))

    # Rows hold the bins ``first`` to ``last`` of a label; empty where last < first. There is one
    # path in the beginning, of no labels and no regret, in the row of label 0.
    first, last = np.full((2, n_labels), top + 1), np.full((2, n_labels), -1)
    first[0, 0] = last[0, 0] = 0
    space[0, 0, :2, 1] = 1.0
    residue = 0.0  # how far a regret can be ahead of its bin in the second program
    bound = 1.0  # on the number of paths
    overflow, side = False, 0
    for t in range(length):
        source, target = space[side], space[1 - side]
        starts, ends = first[side], last[side]
        new_starts, new_ends = first[1 - side], last[1 - side]
        bound *= n_labels
        widest = 0.0
        for k in range(n_labels):
            new_starts[k], new_ends[k] = top + 1, -1
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
    for t in range(length):
        own_costs[t] /= width
    base, place, shares = _path_bins(own_costs)
    own = space[side, y[length - 1], :, base + 1]  # y has no part in the sums: take it out
    own[1] -= 1.0
    own[2] = max(own[2] * (1.0 + 2.0 * kappa) - place, 0.0) if own[1] > 0.0 else 0.0
    _bounds(
        space[side], last[side], shares, base, low / width, high / width, residue, reach, kappa, out
    )
    out[0] *= width
    out[1] *= width
    if overflow:
        out[1] = out[3] = np.inf
    elif out[3] == 0.0:  # no better path, whatever the rounding
        out[0] = out[1] = 0.0


SMALL = 1e-100  # Scaled sums below this are not trusted.
Tables = tuple[Array, Array, Array]  # Of expectations: nodes, stays and moves of :func:`log_sums`.


class Moves(NamedTuple):
    """``exp(transitions − top)``, apart for moves to other labels and to the same; zeros pad it."""

    off: Array  # (labels, stride)
    back: Array  # the same, transposed
    diagonal: Array  # (stride,)
    top: float


@strict_helper
def scale_moves(transitions: Array, n_labels: int) -> Moves:
    """Transitions as scaled sums take them."""
    stride = transitions.shape[1]
    off, back = np.zeros((n_labels, stride)), np.zeros((n_labels, stride))
    diagonal = np.zeros(stride)
    top = -np.inf
    for j in range(n_labels):
        top = max(top, row_max(transitions[j], 0, n_labels))
    if top == -np.inf:
        top = 0.0
    for j in range(n_labels):
        for k in range(n_labels):
            off[j, k] = math.exp(transitions[j, k] - top)
            back[k, j] = off[j, k]
        diagonal[j] = off[j, j]
        off[j, j] = back[j, j] = 0.0
    return Moves(off, back, diagonal, top)


@strict_helper
def _entries(enter: Array, t: int, n_labels: int, out: Array) -> float:
    """Factors for moves to other labels at t, at most 1; their logarithm's shift is returned."""
    if enter.shape[0] == 0:
        out[:] = 1.0
        return 0.0
    top = max(row_max(enter[t], 0, n_labels), 0.0)
    for k in range(n_labels):
        out[k] = math.exp(enter[t, k] - top)
    return top


@strict_helper
def scaled_sums(
    scores: Array, scaled: Moves, enter: Array, n_labels: int, weight: float, out: Tables
) -> float:
    """Log Z and expectations by scaled sums; NaN, and moves as before, where that is not safe.

    Parameters as for :func:`log_sums`, with the output of :func:`scale_moves`.
    """
    off, back, diagonal, top = scaled
    nodes, stays, moves = out
    length, stride = scores.shape
    table = np.zeros((n_labels, stride))  # moves, still to be multiplied by ``off``
    forward = np.zeros((length, stride))
    emitted = np.zeros((length, stride))  # exp(score − the row's largest)
    entry = np.ones((length, stride))
    same = np.ones(length)  # factor of moves to the same label
    total = 0.0
    row = np.empty(stride)
    for t in range(length):
        best = row_max(scores[t], 0, n_labels)
        if best == -np.inf:
            return -np.inf
        for k in range(n_labels):
            emitted[t, k] = math.exp(scores[t, k] - best)
        shift = best
        if t == 0:
            row[:] = 1.0
        else:
            row[:] = 0.0
            for j in range(n_labels):
                a = forward[t - 1, j]
                for k in range(stride):
                    row[k] += a * off[j, k]
            extra = _entries(enter, t, n_labels, entry[t])
            same[t] = math.exp(-extra)
            shift += top + extra
            for k in range(stride):
                row[k] = row[k] * entry[t, k] + same[t] * forward[t - 1, k] * diagonal[k]
        mass = 0.0
        for k in range(stride):
            forward[t, k] = row[k] * emitted[t, k]
            mass += forward[t, k]
        if not mass > SMALL:
            return np.nan
        for k in range(stride):
            forward[t, k] /= mass
        total += shift + math.log(mass)

    behind = np.zeros(stride)
    behind[:n_labels] = 1.0
    staying, going, stayed = np.empty(stride), np.empty(stride), np.zeros(n_labels)
    for t in range(length - 1, -1, -1):
        overlap = 0.0
        for k in range(stride):
            overlap += forward[t, k] * behind[k]
        if not overlap > SMALL:
            return np.nan
        for k in range(stride):
            nodes[t, k] = weight * (forward[t, k] * behind[k] / overlap)
        if t == 0:
            break
        # What is behind label j at t − 1 is Σ_k move[j, k]·emitted[t, k]·behind[k].
        for k in range(stride):
            staying[k] = same[t] * diagonal[k] * emitted[t, k] * behind[k]
            going[k] = entry[t, k] * emitted[t, k] * behind[k]
        copy(staying, behind)
        for k in range(n_labels):
            a = going[k]
            for j in range(stride):
                behind[j] += a * back[k, j]
        joint = mass = 0.0
        for j in range(n_labels):
            joint += forward[t - 1, j] * behind[j]
            mass += behind[j]
        if not (mass > SMALL and joint > SMALL):
            return np.nan
        factor = weight / joint
        for j in range(n_labels):
            a = factor * forward[t - 1, j]
            if stays.shape[0] > 0:
                stays[t, j] = a * staying[j]
            stayed[j] += a * staying[j]
            for k in range(stride):
                table[j, k] += a * going[k]
        for j in range(n_labels):
            behind[j] /= mass
    for j in range(n_labels):
        for k in range(stride):
            moves[j, k] += table[j, k] * off[j, k]
        moves[j, j] += stayed[j]
    return total


@strict_helper
def _log_sum(values: Array, n: int) -> float:
    best = row_max(values, 0, n)
    if best == -np.inf:
        return best
    s = 0.0
    for k in range(n):
        s += math.exp(values[k] - best)
    return best + math.log(s)


@strict_helper
def _move(transitions: Array, enter: Array, t: int, j: int, k: int) -> float:
    if j != k and enter.shape[0] > 0:
        return transitions[j, k] + enter[t, k]
    return transitions[j, k]


@strict_helper
def log_sums(
    scores: Array, transitions: Array, enter: Array, n_labels: int, weight: float, out: Tables
) -> float:
    """Log Z and expectations in the log domain; ``−inf``, and no expectations, without a path.

    ``scores`` are (T, stride), ``transitions`` (labels, stride). ``enter`` (T, stride), or without
    rows, is added where position t > 0 has label k and the one before has another. ``weight``
    multiplies what is written out: ``nodes`` (T, stride) becomes ``weight·P(y_t = k)``; ``stays``
    (T, stride), or without rows, ``weight·P(y_{t−1} = y_t = k)`` for t > 0; ``moves``
    (labels, stride) gains ``weight·Σ_t P(y_{t−1} = j, y_t = k)``.
    """
    nodes, stays, moves = out
    length, stride = scores.shape
    forward, terms = np.full((length, stride), -np.inf), np.empty(n_labels)
    copy(scores[0], forward[0, :n_labels])
    for t in range(1, length):
        for k in range(n_labels):
            for j in range(n_labels):
                terms[j] = forward[t - 1, j] + _move(transitions, enter, t, j, k)
            forward[t, k] = _log_sum(terms, n_labels) + scores[t, k]
    total = _log_sum(forward[length - 1], n_labels)
    if total == -np.inf:
        return total
    behind, ahead = np.zeros(n_labels), np.empty(n_labels)
    for t in range(length - 1, -1, -1):
        nodes[t, :] = 0.0
        for k in range(n_labels):
            nodes[t, k] = weight * math.exp(forward[t, k] + behind[k] - total)
        if t == 0:
            break
        for k in range(n_labels):
            ahead[k] = scores[t, k] + behind[k]
        for j in range(n_labels):
            for k in range(n_labels):
                terms[k] = _move(transitions, enter, t, j, k) + ahead[k]
                share = weight * math.exp(forward[t - 1, j] + terms[k] - total)
                moves[j, k] += share
                if j == k and stays.shape[0] > 0:
                    stays[t, j] = share
            behind[j] = _log_sum(terms, n_labels)
    return total
