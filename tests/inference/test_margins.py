"""Max-marginals and margins of labels and spans against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import chain as margins
from hingeline.inference import chain as viterbi
from hingeline.schemes import number_types, read_pairs, spans, split_tag

# isort: split
from naive import enumerate_outputs

TABLE = settings(max_examples=40, deadline=None, derandomize=True)
SCHEMES = [
    ["O", "B-x", "I-x"],
    ["I-x", "O", "I-y"],
    ["B-x", "I-x", "B-y", "I-y"],
    ["B", "I", "E", "S"],
    ["U-x", "L-x", "I-x", "O"],
    ["B-x"],
]


@kernel
def max_marginals(scores, transitions, n_labels, out):
    viterbi.max_marginals(scores, transitions, n_labels, out)


@kernel
def span_margin(scores, transitions, n_labels, inside, kind_of, span):
    forward = scores.copy()
    y = np.empty(len(scores), dtype=np.int32)
    best = viterbi.max_sum(forward, transitions, n_labels, y)
    behind = margins.continuations(scores, transitions, n_labels)
    scheme = (inside, kind_of)
    return best - margins.best_without_span(scores, forward, behind, transitions, scheme, span)


MAX_MARGINALS = [max_marginals, viterbi.max_marginals]
SPAN_MARGIN = [span_margin, span_margin.py_func]


@st.composite
def tables(draw, L, hole=0.0):
    T = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))

    def numbers(rows):
        table = np.full((rows, 4), 1e6)
        block = rng.normal(size=(rows, L))
        table[:, :L] = np.where(rng.random((rows, L)) < hole, -np.inf, block)
        return table

    return numbers(T), numbers(L)


def all_paths(scores, transitions, L):
    for y in enumerate_outputs(len(scores), L):
        value = sum(scores[t, k] for t, k in enumerate(y))
        yield y, value + sum(transitions[j, k] for j, k in itertools.pairwise(y))


@TABLE
@given(tables(3, hole=0.25))
def test_max_marginals_and_margins_with_forbidden_labels(table):
    scores, transitions = table
    T = len(scores)
    through, past = np.full((T, 3), -np.inf), np.full((T, 3), -np.inf)
    for y, value in all_paths(scores, transitions, 3):
        for t, k in itertools.product(range(T), range(3)):
            side = through if y[t] == k else past
            side[t, k] = max(side[t, k], value)
    with np.errstate(invalid="ignore"):
        expected = np.where(through == -np.inf, -np.inf, through - past)
    for way in MAX_MARGINALS:
        out = np.full((T, 3), np.nan)
        way(scores, transitions, 3, out)
        np.testing.assert_allclose(out, through, atol=1e-12)
        margins.against_rest(out)
        np.testing.assert_allclose(out, expected, atol=1e-12)


@TABLE
@given(st.sampled_from(SCHEMES), st.data())
def test_span_margins_are_exact(classes, data):
    """Against all labellings in which the reader of spans does not find the span."""
    L = len(classes)
    scores, transitions = data.draw(tables(L, hole=data.draw(st.sampled_from([0.0, 0.15]))))
    paths = [(y, v) for y, v in all_paths(scores, transitions, L) if v > -np.inf]
    if not paths:
        return
    found = [(set(spans([classes[k] for k in y])), value) for y, value in paths]
    read, best = max(found, key=lambda pair: pair[1])
    tags = [split_tag(label) for label in classes]
    inside, kind_of = read_pairs(tags)[1], number_types(tags)[1]
    types = sorted({label.partition("-")[2] or "_" for label in classes if label != "O"})
    for span in read:
        other = max((value for others, value in found if span not in others), default=-np.inf)
        numbers = np.array([types.index(span[0]), span[1], span[2]])
        for way in SPAN_MARGIN:
            margin = way(scores, transitions, L, inside, kind_of, numbers)
            np.testing.assert_allclose(margin, best - other, atol=1e-12)
