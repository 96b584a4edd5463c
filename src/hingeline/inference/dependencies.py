"""The best dependency tree under scores of single arcs: Eisner, and Chu-Liu and Edmonds.

Words have the numbers 1 … T, the root of every tree is 0. ``scores[m, h]`` is the score of the arc
from the head h to the modifier m; row 0 and the diagonal are never read. Exactly one word hangs
from the root, as Universal Dependencies ask. Both algorithms are exact.
"""

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel


@helper
def tree_score(scores: Array, heads: Array) -> float:
    """The sum of the scores of a tree's arcs; ``heads[m − 1]`` is the head of m."""
    total = 0.0
    for m in range(1, scores.shape[0]):
        total += scores[m, heads[m - 1]]
    return total


@helper
def _best_split(a: Array, i: int, b: Array, j: int, count: int) -> float:
    """``max_k a[i + k] + b[j + k]`` over ``0 ≤ k < count``, four at a time."""
    first = second = third = fourth = -np.inf
    k = 0
    while k + 4 <= count:
        first = max(first, a[i + k] + b[j + k])
        second = max(second, a[i + k + 1] + b[j + k + 1])
        third = max(third, a[i + k + 2] + b[j + k + 2])
        fourth = max(fourth, a[i + k + 3] + b[j + k + 3])
        k += 4
    while k < count:
        first = max(first, a[i + k] + b[j + k])
        k += 1
    return max(max(first, second), max(third, fourth))


@helper
def _find_split(a: Array, i: int, b: Array, j: int, count: int) -> int:
    """The first k of the largest ``a[i + k] + b[j + k]``."""
    best = 0
    for k in range(1, count):
        if a[i + k] + b[j + k] > a[i + best] + b[j + best]:
            best = k
    return best


@helper
def find_projective_tree(scores: Array, heads: Array) -> float:
    """The best tree without crossing arcs, in O(T³): its score.

    J. Eisner, *Three new probabilistic models for dependency parsing*, COLING 1996. Spans from s
    to t are complete (``right``: s is the head of all, ``left``: t is) or open (``far_right``: the
    arc from s to t is there, but t may yet get words beyond; ``far_left``: from t to s). The word
    below the root is chosen last, so that there is exactly one. Every table is read by rows: those
    named ``_to`` have the end of the span as their row.
    """
    n = scores.shape[0]
    right, right_to = np.zeros(n * n), np.zeros(n * n)
    left, left_to = np.zeros(n * n), np.zeros(n * n)
    far_right, far_left_to = np.zeros(n * n), np.zeros(n * n)
    for width in range(1, n - 1):
        for s in range(1, n - width):
            t = s + width
            between = _best_split(right, s * n + s, left_to, t * n + s + 1, width)
            far_right[s * n + t] = between + scores[t, s]
            far_left_to[t * n + s] = between + scores[s, t]
            value = _best_split(far_right, s * n + s + 1, right_to, t * n + s + 1, width)
            right[s * n + t] = right_to[t * n + s] = value
            value = _best_split(left, s * n + s, far_left_to, t * n + s, width)
            left[s * n + t] = left_to[t * n + s] = value
    top, best = 1, -np.inf
    for r in range(1, n):
        value = left[n + r] + right[r * n + n - 1] + scores[r, 0]
        if value > best:
            top, best = r, value
    # Spans still to be taken apart: (s, t, kind), kinds as the names of the tables.
    spans = np.empty((2 * n, 3), dtype=np.int64)
    heads[top - 1] = 0
    spans[0, 0], spans[0, 1], spans[0, 2] = 1, top, 1
    spans[1, 0], spans[1, 1], spans[1, 2] = top, n - 1, 0
    count = 2
    while count > 0:
        count -= 1
        s, t, kind = spans[count, 0], spans[count, 1], spans[count, 2]
        if s == t:
            continue
        if kind == 0:  # right: an open span to the right, and a complete one behind it
            k = s + 1 + _find_split(far_right, s * n + s + 1, right_to, t * n + s + 1, t - s)
            heads[k - 1] = s
            spans[count, 0], spans[count, 1], spans[count, 2] = s, k, 2
            spans[count + 1, 0], spans[count + 1, 1], spans[count + 1, 2] = k, t, 0
        elif kind == 1:
            k = s + _find_split(left, s * n + s, far_left_to, t * n + s, t - s)
            heads[k - 1] = t
            spans[count, 0], spans[count, 1], spans[count, 2] = k, t, 2
            spans[count + 1, 0], spans[count + 1, 1], spans[count + 1, 2] = s, k, 1
        else:  # open: two complete spans that meet between k and k + 1
            k = s + _find_split(right, s * n + s, left_to, t * n + s + 1, t - s)
            spans[count, 0], spans[count, 1], spans[count, 2] = s, k, 0
            spans[count + 1, 0], spans[count + 1, 1], spans[count + 1, 2] = k + 1, t, 1
        count += 2
    return tree_score(scores, heads)


@helper
def find_tree(scores: Array, heads: Array) -> float:
    """The best tree, arcs crossing or not, in O(T²): its score.

    Chu and Liu 1965, Edmonds 1967, on a dense matrix as R. Tarjan, *Finding optimum branchings*,
    1977, does it: walk from a word to its best head, from there to the best head of that, …; where
    the walk meets itself, the cycle becomes one node, whose incoming arcs cost what the arc they
    replace in the cycle was worth, and the walk goes on from there. A cycle of c nodes costs O(cT),
    and all cycles together have less than 2T nodes. Arcs from the root cost more than all others
    can bring, so that the best tree has one of them (H. Gabow and R. Tarjan 1984).
    """
    n = scores.shape[0]
    low, high = np.inf, -np.inf
    for m in range(1, n):
        for h in range(n):
            if h != m:
                low, high = min(low, scores[m, h]), max(high, scores[m, h])
    dear = n * (high - low) + 1.0
    value = np.empty((n, n))  # [modifier, head], of nodes
    arc = np.empty((n, n), dtype=np.int64)  # the arc between words that it stands for
    for m in range(1, n):
        for h in range(n):
            value[m, h] = scores[m, h] - dear if h == 0 else scores[m, h]
            arc[m, h] = m * n + h
    alive = np.ones(n, dtype=np.bool_)
    done = np.zeros(n, dtype=np.bool_)
    done[0] = True
    place = np.full(n, -1, dtype=np.int64)  # in the walk
    walk = np.empty(n, dtype=np.int64)
    gain = np.empty(n)  # of the best incoming arc
    name = np.arange(n)  # cycles have numbers from n on
    chosen = np.empty(2 * n, dtype=np.int64)
    inside = np.full(2 * n, -1, dtype=np.int64)  # the cycle that took a node in
    names = n
    for start in range(1, n):
        if done[start] or not alive[start]:
            continue
        walk[0], place[start], count = start, 0, 1
        while count > 0:
            m = walk[count - 1]
            best = -1
            for h in range(n):
                if alive[h] and h != m and (best < 0 or value[m, h] > value[m, best]):
                    best = h
            gain[m], chosen[name[m]] = value[m, best], arc[m, best]
            if done[best]:
                for k in range(count):
                    done[walk[k]] = True
                count = 0
            elif place[best] < 0:
                place[best], walk[count] = count, best
                count += 1
            else:  # nodes of the walk from ``best`` on are a cycle; ``best`` stands for it
                first = place[best]
                for k in range(first, count):
                    c = walk[k]
                    inside[name[c]] = names
                    alive[c] = False
                    for h in range(n):
                        value[c, h] -= gain[c]
                for k in range(first + 1, count):
                    c = walk[k]
                    for v in range(n):
                        if alive[v] and value[c, v] > value[best, v]:
                            value[best, v], arc[best, v] = value[c, v], arc[c, v]
                        if alive[v] and v > 0 and value[v, c] > value[v, best]:
                            value[v, best], arc[v, best] = value[v, c], arc[v, c]
                alive[best], name[best] = True, names
                names += 1
                count = first + 1
    for cycle in range(names - 1, n - 1, -1):  # the arc into a cycle replaces one inside it
        m = chosen[cycle] // n
        while inside[m] != cycle:
            m = inside[m]
        chosen[m] = chosen[cycle]
    for m in range(1, n):
        heads[m - 1] = chosen[m] % n
    return tree_score(scores, heads)


@kernel
def find_crossing(heads: Array, offsets: Array) -> int:
    """The first sentence whose tree has crossing arcs; −1 if none has.

    In a tree arcs cross where a word has a head on the other side of an arc above it.
    """
    for i in range(offsets.shape[0] - 1):
        lo = offsets[i] - 1
        for m in range(1, offsets[i + 1] - lo):
            first, last = min(heads[lo + m], m), max(heads[lo + m], m)
            for k in range(first + 1, last):
                if heads[lo + k] < first or heads[lo + k] > last:
                    return i
    return -1


@helper
def _choose_labels(table: Array, m: int, scores: Array, labels: Array, barred: Array) -> None:
    """The best label of every arc to m, but for those that stand in ``barred`` with their head."""
    n_labels = table.shape[2]
    for h in range(table.shape[1]):
        best = -np.inf
        for k in range(n_labels):
            known = table[m, h, k] <= best
            for p in range(barred.shape[0]):
                known = known or barred[p] == h * n_labels + k
            if not known:
                labels[m, h], best = k, table[m, h, k]
        scores[m, h] = best


@helper
def _fill_up(scores: Array) -> float:
    """A finite score instead of −inf for arcs that cannot be: below what any tree can reach."""
    n = scores.shape[0]
    low, high = np.inf, -np.inf
    for m in range(1, n):
        for h in range(n):
            if h != m and scores[m, h] > -np.inf:
                low, high = min(low, scores[m, h]), max(high, scores[m, h])
    floor = low - n * (high - low) - 1.0
    for m in range(1, n):
        for h in range(n):
            if h == m or scores[m, h] == -np.inf:
                scores[m, h] = floor
    return floor


@helper
def find_best_trees(table: Array, projective: bool, ys: Array, values: Array) -> int:
    """The best labelled trees in order, exactly; how many there are, as far as there is room.

    ``table[m, h, l]`` is the score of an arc with its label, −inf where it cannot be; ``ys`` are
    rows of ``head·labels + label``. E. Lawler 1972: what is left when a tree is taken away falls
    apart into sets of trees that share their first words with it, and differ in the next one.
    """
    n, n_labels = table.shape[0], table.shape[2]
    length, most = n - 1, 1 + ys.shape[0] * (n - 1)
    plain, plain_labels = np.empty((n, n)), np.empty((n, n), dtype=np.int64)
    scores, labels = np.empty((n, n)), np.empty((n, n), dtype=np.int64)
    heads, barred = np.empty(length, dtype=np.int64), np.empty(ys.shape[0] + 1, dtype=np.int64)
    found, value = np.empty((most, length), dtype=np.int64), np.empty(most)
    parent, branch = np.full(most, -1, dtype=np.int64), np.full(most, -1, dtype=np.int64)
    for m in range(1, n):
        _choose_labels(table, m, plain, plain_labels, barred[:0])
    count = written = 0
    last = -1  # the tree taken away, −1 in the beginning
    while written < ys.shape[0]:
        first = 0 if last < 0 else max(branch[last], 0)
        for t in range(first, length if last >= 0 else 1):
            for m in range(1, n):
                for h in range(n):
                    scores[m, h], labels[m, h] = plain[m, h], plain_labels[m, h]
            if last >= 0:
                for s in range(t):
                    for h in range(n):
                        scores[s + 1, h] = -np.inf
                    h, k = divmod(found[last, s], n_labels)
                    scores[s + 1, h], labels[s + 1, h] = table[s + 1, h, k], k
                p, n_barred = last, 0
                while True:
                    barred[n_barred] = found[p, t]
                    n_barred += 1
                    if branch[p] != t:
                        break
                    p = parent[p]
                _choose_labels(table, t + 1, scores, labels, barred[:n_barred])
            floor = _fill_up(scores)
            if projective:
                total = find_projective_tree(scores, heads)
            else:
                total = find_tree(scores, heads)
            possible = True
            for m in range(1, n):
                possible = possible and scores[m, heads[m - 1]] > floor
                found[count, m - 1] = heads[m - 1] * n_labels + labels[m, heads[m - 1]]
            if possible:
                value[count], parent[count] = total, last
                branch[count] = t if last >= 0 else -1
                count += 1
        last = -1
        for c in range(count):
            if value[c] > -np.inf and (last < 0 or value[c] > value[last]):
                last = c
        if last < 0:
            break
        for t in range(length):
            ys[written, t] = found[last, t]
        values[written] = value[last]
        value[last] = -np.inf
        written += 1
    return written
