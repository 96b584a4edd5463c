"""Dependency trees: every word has a head and a label, scored arc by arc.

Words have the numbers 1 … T, 0 is the root. With labels l a tree has the score::

    w·f(x, y) = Σ_m A(h_m, m) + L(h_m, m)[l_m]

A is a sum over the features of an arc, L[l] a sum over fewer ones with a weight for each label, so
that the best label of an arc is found by itself, and the best tree by the scores of arcs.

No arc is stored, there are T² of them in a sentence. A word has one code per feature as a head and
another as a modifier; the code of an arc is the hash of both and of the direction, and says which
row of a table holds the weights. Features that two arcs, or two of one arc, have in common by
accident are common: the problem that is solved exactly is that of hashed features. Rows of A have
:data:`COLUMNS` weights: one for any distance, the others for ranges of it, told by
:func:`distance_column`. The last feature of an arc is joined with the words between: there is a
row for each tag that they have.

An output is the int vector ``head·labels + label``. The loss counts wrong heads, or words of which
head or label is wrong.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_reference, helper
from hingeline._simd import rows_dot
from hingeline.core.primitives import Block, Compiled, Layout, pad_row, register, shift_amount
from hingeline.inference.dependencies import find_projective_tree, find_tree

COLUMNS = 8  # of the table of arcs: one line of a cache
_LEFT, _RIGHT = 0x3C6EF372, 0x1B873593  # what the direction adds to a code: the head is there


@by_reference
class DependencyProblem(NamedTuple):
    """Sentences as codes of words; see :mod:`hingeline.structures.dependency` for the weights.

    Codes are (1 + words, features), row 0 for the root: first those of arcs, the last of these for
    the tags between; then those of labelled arcs; then those that labels have of one word alone.
    """

    as_head: Array  # uint32
    as_modifier: Array  # uint32
    tags: Array  # (1 + words,) int64, −1 for none
    tag_codes: Array  # (tags,) uint32
    offsets: Array  # (n + 1,) int64: the words of a sentence
    labels: Array  # (words,) int32: head·labels + label
    barred: Array  # (2, stride): −inf for labels that words below the root, and others, cannot have
    n_arc: int
    n_pair: int
    arc_shift: int  # a table of arcs has 2^(32 − shift) rows
    label_shift: int
    n_labels: int
    stride: int
    projective: int
    labelled: int  # 1 if a wrong label is as wrong as a wrong head


def layout(arc_bits: int, label_bits: int, n_labels: int) -> Layout:
    """Where the weights lie: ``2^bits`` rows of arcs by distance, then of labels."""
    arcs = Block(0, 2**arc_bits, COLUMNS, COLUMNS)
    labels = Block(arcs.stop, 2**label_bits, n_labels, pad_row(n_labels))
    return Layout(arc=arcs, label=labels)


def compile_problem(problem: DependencyProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    lengths = np.diff(problem.offsets)
    size = layout(32 - problem.arc_shift, 32 - problem.label_shift, problem.n_labels).size
    shift = _table_shift(2 * int(lengths.max(initial=1)) * most_places(problem))
    end = problem.n_labels * (int(lengths.max(initial=0)) + 1)
    return Compiled(problem, lengths, size, scratch_size=2 << (32 - shift), end=end)


@helper
def _table_shift(entries: int) -> int:
    """The shift of a table with room for twice so many entries."""
    shift = 28
    while 1 << (32 - shift) < 2 * entries:
        shift -= 1
    return shift


@helper
def distance_column(distance: int) -> int:
    """The column of a distance: 1, 2, 3, 4, 5 to 6, 7 to 10, more."""
    if distance <= 4:
        return distance
    if distance <= 6:
        return 5
    return 6 if distance <= 10 else 7


@helper
def _join(head: Any, modifier: Any, turn: int) -> int:
    """The code of an arc in one direction."""
    return np.int64(head) ^ np.int64(modifier) ^ turn  # type: ignore[return-value]


@helper
def _find_row(code: int, shift: int) -> int:
    """The row of a code: the highest bits of a multiple of it."""
    return (code * 0x5BD1E995 & 0xFFFFFFFF) >> shift


@helper
def count_label_rows(problem: DependencyProblem) -> int:
    """Rows of the table of labels that a labelled arc meets."""
    both = problem.as_head.shape[1] + problem.as_modifier.shape[1]
    return both - 2 * problem.n_arc - problem.n_pair


@helper
def most_places(problem: DependencyProblem) -> int:
    """What :func:`list_arc` writes at most."""
    return 2 * (problem.n_arc + problem.tag_codes.shape[0]) + count_label_rows(problem)


@helper
def list_arc(problem: DependencyProblem, i: int, m: int, h: int, places: Array) -> int:
    """List the places of an arc's weights: how many are the arc's own.

    Behind them stand the beginnings of the rows of labels, to which a label is added.
    """
    lo = problem.offsets[i]
    row = 0 if h == 0 else lo + h
    head, modifier = problem.as_head[row], problem.as_modifier[lo + m]
    turn = _LEFT if h < m else _RIGHT
    first, last = (h, m) if h < m else (m, h)
    column = distance_column(last - first)
    n = 0
    for f in range(problem.n_arc - 1):
        place = _find_row(_join(head[f], modifier[f], turn), problem.arc_shift)
        places[n], places[n + 1] = place * COLUMNS, place * COLUMNS + column
        n += 2
    f = problem.n_arc - 1
    code = _join(head[f], modifier[f], turn)
    met = np.zeros(problem.tag_codes.shape[0], dtype=np.bool_)
    for k in range(first + 1, last):
        tag = problem.tags[lo + k]
        if tag >= 0 and not met[tag]:
            met[tag] = True
            place = _find_row(_join(problem.tag_codes[tag], 0, code), problem.arc_shift)
            places[n], places[n + 1] = place * COLUMNS, place * COLUMNS + column
            n += 2
    at, stride, shift = COLUMNS << (32 - problem.arc_shift), problem.stride, problem.label_shift
    own = n
    for f in range(problem.n_arc, problem.n_arc + problem.n_pair):
        code = _join(head[f], modifier[f], turn)
        places[n] = at + _find_row(code, shift) * stride
        n += 1
    for f in range(problem.n_arc + problem.n_pair, head.shape[0]):
        places[n] = at + _find_row(_join(head[f], 0, turn), shift) * stride
        n += 1
    for f in range(problem.n_arc + problem.n_pair, modifier.shape[0]):
        places[n] = at + _find_row(_join(modifier[f], 0, turn), shift) * stride
        n += 1
    return own


@helper
def _score_words(
    problem: DependencyProblem, i: int, codes: Array, turn: int, w: Array, out: Array
) -> None:
    """``out[k]`` is what labels get from word k alone, the root among them."""
    lo, length = problem.offsets[i], out.shape[0]
    skip = problem.n_arc + problem.n_pair
    count = codes.shape[1] - skip
    rows, ones = np.empty(count, dtype=np.int64), np.ones(count)
    for k in range(length):
        row = 0 if k == 0 else lo + k
        for f in range(count):
            rows[f] = _find_row(_join(codes[row, skip + f], 0, turn), problem.label_shift)
        rows_dot(rows, ones, 0, count, w, problem.stride, out[k], 0)


@helper
def score_arcs(
    problem: DependencyProblem, i: int, w: Array, loss_scale: float, scores: Array, best: Array
) -> None:
    """``scores[m, h]`` of all arcs, each with its ``best`` label, the scaled loss added."""
    lo = problem.offsets[i]
    n, stride = scores.shape[0], problem.stride
    n_arc, n_pair = problem.n_arc, problem.n_pair
    labels = w[COLUMNS << (32 - problem.arc_shift) :]
    of_heads, of_modifiers = np.empty((2, n, stride)), np.empty((2, n, stride))
    for side in range(2):
        turn = _LEFT if side == 0 else _RIGHT
        _score_words(problem, i, problem.as_head, turn, labels, of_heads[side])
        _score_words(problem, i, problem.as_modifier, turn, labels, of_modifiers[side])
        for h in range(n):
            for k in range(problem.n_labels):
                of_heads[side, h, k] += problem.barred[min(h, 1), k]
    rows, ones, pair = np.empty(n_pair, dtype=np.int64), np.ones(n_pair), np.empty(stride)
    between = np.empty(problem.tag_codes.shape[0], dtype=np.int64)
    met = np.zeros(problem.tag_codes.shape[0], dtype=np.int64)  # the last side of a word with it
    for m in range(1, n):
        modifier = problem.as_modifier[lo + m]
        true_head, true_label = divmod(problem.labels[lo + m - 1], problem.n_labels)
        for side in range(2):
            turn = _LEFT if side == 0 else _RIGHT
            count = 0
            for distance in range(1, m + 1 if side == 0 else n - m):
                h = m - distance if side == 0 else m + distance
                head = problem.as_head[0 if h == 0 else lo + h]
                column = distance_column(distance)
                total = 0.0
                for f in range(n_arc - 1):
                    code = _join(head[f], modifier[f], turn)
                    at = _find_row(code, problem.arc_shift) * COLUMNS
                    total += w[at] + w[at + column]
                code = _join(head[n_arc - 1], modifier[n_arc - 1], turn)
                for k in range(count):
                    at = _find_row(code ^ between[k], problem.arc_shift) * COLUMNS
                    total += w[at] + w[at + column]
                for f in range(n_pair):
                    code = _join(head[n_arc + f], modifier[n_arc + f], turn)
                    rows[f] = _find_row(code, problem.label_shift)
                rows_dot(rows, ones, 0, n_pair, labels, stride, pair, 0)
                if h == true_head:
                    if problem.labelled == 1:
                        for k in range(problem.n_labels):
                            pair[k] += 0.0 if k == true_label else loss_scale
                else:
                    total += loss_scale
                found, value = 0, -np.inf
                own, other = of_heads[side, h], of_modifiers[side, m]
                for k in range(problem.n_labels):
                    score = pair[k] + own[k] + other[k]
                    if score > value:
                        found, value = k, score
                scores[m, h], best[m, h] = total + value, found
                tag = problem.tags[lo + h]
                if h > 0 and tag >= 0 and met[tag] != 2 * m + side:
                    met[tag] = 2 * m + side
                    between[count] = problem.tag_codes[tag]
                    count += 1


@helper
def score_labels(problem: DependencyProblem, i: int, w: Array, table: Array) -> None:
    """``table[m, h, l]`` of all arcs with all labels, −inf where they cannot be."""
    places = np.empty(most_places(problem), dtype=np.int64)
    for m in range(1, table.shape[0]):
        for h in range(table.shape[0]):
            own = list_arc(problem, i, m, h, places)
            total = 0.0
            for p in range(own):
                total += w[places[p]]
            for k in range(problem.n_labels):
                table[m, h, k] = -np.inf if h == m else total + problem.barred[min(h, 1), k]
            for p in range(own, own + count_label_rows(problem)):
                for k in range(problem.n_labels):
                    table[m, h, k] += w[places[p] + k]


@helper
def decode(problem: DependencyProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    n = y_out.shape[0] + 1
    scores, best = np.empty((n, n)), np.empty((n, n), dtype=np.int32)
    score_arcs(problem, i, w, loss_scale, scores, best)
    heads = np.empty(n - 1, dtype=np.int64)
    if problem.projective == 1:
        value = find_projective_tree(scores, heads)
    else:
        value = find_tree(scores, heads)
    for t in range(n - 1):
        y_out[t] = heads[t] * problem.n_labels + best[t + 1, heads[t]]
    return value


@helper
def plane_loss(problem: DependencyProblem, i: int, y: Array) -> float:
    lo = problem.offsets[i]
    wrong = 0.0
    for t in range(y.shape[0]):
        a, b = problem.labels[lo + t], y[t]
        if problem.labelled == 0:
            a, b = a // problem.n_labels, b // problem.n_labels
        wrong += 1.0 if a != b else 0.0
    return wrong


@helper
def _score_arc(
    problem: DependencyProblem, i: int, t: int, y: int, w: Array, places: Array, arc: bool
) -> float:
    """The score of word t's arc, or of its label alone."""
    own = list_arc(problem, i, t + 1, y // problem.n_labels, places)
    total = 0.0
    if arc:
        for p in range(own):
            total += w[places[p]]
    label = y % problem.n_labels
    for p in range(own, own + count_label_rows(problem)):
        total += w[places[p] + label]
    return total


@helper
def planes_score(problem: DependencyProblem, i: int, ys: Array, w: Array, out: Array) -> None:
    """``w·Δf`` of all planes: arcs that several have are scored once."""
    lo = problem.offsets[i]
    places = np.empty(most_places(problem), dtype=np.int64)
    margin = np.empty(ys.shape[0])
    for j in range(ys.shape[0]):
        out[j] = 0.0
    for t in range(ys.shape[1]):
        a = problem.labels[lo + t]
        whole = label = np.nan
        for j in range(ys.shape[0]):
            b = ys[j, t]
            if a == b:
                continue
            k = 0
            while ys[k, t] != b:
                k += 1
            if k == j:
                arc = a // problem.n_labels != b // problem.n_labels
                if arc and np.isnan(whole):
                    whole = _score_arc(problem, i, t, a, w, places, True)
                if not arc and np.isnan(label):
                    label = _score_arc(problem, i, t, a, w, places, False)
                margin[j] = whole if arc else label
                margin[j] -= _score_arc(problem, i, t, b, w, places, arc)
            out[j] += margin[k]


@helper
def planes_add(problem: DependencyProblem, i: int, ys: Array, steps: Array, w: Array) -> None:
    """``w += Σ_j steps_j·Δf(y_j)``: the steps of one arc are summed, then spread."""
    lo = problem.offsets[i]
    places = np.empty(most_places(problem), dtype=np.int64)
    arcs, amounts = np.empty(ys.shape[0] + 1, dtype=np.int64), np.empty(ys.shape[0] + 1)
    for t in range(ys.shape[1]):
        count, gold = 0, problem.labels[lo + t]
        for j in range(ys.shape[0]):
            if ys[j, t] != gold and steps[j] != 0.0:
                count = shift_amount(arcs, amounts, 0, count, gold, ys[j, t], steps[j])
        for k in range(count):
            own = list_arc(problem, i, t + 1, arcs[k] // problem.n_labels, places)
            for p in range(own):
                w[places[p]] += amounts[k]
            label = arcs[k] % problem.n_labels
            for p in range(own, own + count_label_rows(problem)):
                w[places[p] + label] += amounts[k]


@helper
def plane_sqdist(problem: DependencyProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    """Features are counted in a table of places, which ``scratch`` holds: few are met."""
    differ = 0
    for t in range(y.shape[0]):
        differ += int(y[t] != z[t])
    if differ == 0:
        return 0.0
    rows = count_label_rows(problem)
    entries = np.empty(2 * differ * most_places(problem), dtype=np.int64)
    places = np.empty(most_places(problem), dtype=np.int64)
    count = 0
    for t in range(y.shape[0]):
        if y[t] == z[t]:
            continue
        arc = y[t] // problem.n_labels != z[t] // problem.n_labels
        for k in range(2):
            found = y[t] if k == 0 else z[t]
            own = list_arc(problem, i, t + 1, found // problem.n_labels, places)
            label = found % problem.n_labels
            for p in range(0 if arc else own, own + rows):
                place = places[p] + (label if p >= own else 0)
                entries[count] = 2 * place + k
                count += 1
    shift = _table_shift(count)
    size = 1 << (32 - shift)
    total = 0.0
    for p in range(count):
        place, sign = entries[p] >> 1, 1.0 if entries[p] & 1 == 0 else -1.0
        at = _find_row(place, shift)
        while scratch[at] != 0.0 and scratch[at] != place + 1.0:
            at = (at + 1) & (size - 1)
        scratch[at] = place + 1.0
        value = scratch[size + at] + sign
        total += value * value - scratch[size + at] * scratch[size + at]
        scratch[size + at] = value
    for p in range(2 * size):
        scratch[p] = 0.0
    return total


register(DependencyProblem, vars())
