"""Prediction under constraints against enumeration on tiny chains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.constraints import (
    AtMostOneSegment,
    Before,
    ChangeOnlyAt,
    EndsWith,
    Follows,
    MinLength,
    NoRepeats,
    Occurs,
    OnlyWords,
    Penalties,
    Predicate,
    Share,
    StartsWith,
    Words,
    constrained_decode,
)
from hingeline.constraints.base import HARD
from hingeline.constraints.decode import search_by_beam

CLASSES = ["a", "b", "c"]

RULES = {
    "one": lambda **c: AtMostOneSegment(**c),
    "one of a group": lambda **c: AtMostOneSegment(("a", "b"), **c),
    "repeats": lambda **c: NoRepeats(**c),
    "starts": lambda **c: StartsWith("b", **c),
    "ends": lambda **c: EndsWith("a", "c", **c),
    "at least": lambda **c: Occurs("a", at_least=2, **c),
    "at most": lambda **c: Occurs("b", ("a", "c"), at_most=2, **c),
    "segments": lambda **c: Occurs("c", equals=2, unit="segments", **c),
    "length": lambda **c: MinLength("a", "c", length=3, **c),
    "length of a group": lambda **c: MinLength(("b", "c"), length=2, **c),
    "words": lambda **c: Words("x", label="c", **c),
    "only": lambda **c: OnlyWords("x|y", label="a", **c),
    "change": lambda **c: ChangeOnlyAt(**c),
    "follows": lambda **c: Follows("b", after=("a", "b"), **c),
    "before": lambda **c: Before("a", "b", **c),
    "before group": lambda **c: Before("c", ("a", "b"), **c),
}


def value(constraints, x, y, scores, transitions):
    total = sum(scores[t, k] for t, k in enumerate(y))
    total += sum(transitions[j, k] for j, k in itertools.pairwise(y))
    names = [CLASSES[k] for k in y]
    for c in constraints:
        total -= HARD * c.violation(x, names) if c.hard else c.cost(x, names)
    return total


def brute_force(constraints, x, scores, transitions):
    outputs = itertools.product(range(len(CLASSES)), repeat=len(x))
    return max(value(constraints, x, y, scores, transitions) for y in outputs)


def problem(seed, length):
    rng = np.random.default_rng(seed)
    x = [str(w) for w in rng.choice(["x", "y", "."], length)]
    return x, rng.normal(size=(length, 3)) * 2, rng.normal(size=(3, 3))


chosen_rules = st.lists(
    st.tuples(
        st.sampled_from(sorted(RULES)),
        st.sampled_from(["linear", "squared"]),
        st.sampled_from([0.5, 3.0, 1000.0]),
    ),
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(chosen_rules, st.integers(0, 2**20), st.integers(1, 6))
def test_a_beam_as_wide_as_it_takes_finds_the_best_labels(chosen, seed, length):
    constraints = [RULES[kind](penalty=form, weight=weight) for kind, form, weight in chosen]
    x, scores, transitions = problem(seed, length)
    best = brute_force(constraints, x, scores, transitions)
    y = constrained_decode(constraints, [x], CLASSES, scores, transitions, beam=None)
    assert value(constraints, x, y.tolist(), scores, transitions) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("form", ["linear", "squared", "hard"])
def test_each_kind_alone(kind, form):
    common = {"hard": True} if form == "hard" else {"penalty": form, "weight": 1.5}
    constraints = [RULES[kind](**common)]
    for seed in range(3):
        x, scores, transitions = problem(seed, 5)
        best = brute_force(constraints, x, scores, transitions)
        y = constrained_decode(constraints, [x], CLASSES, scores, transitions, beam=None)
        found = value(constraints, x, y.tolist(), scores, transitions)
        assert found == pytest.approx(best, rel=1e-12, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(chosen_rules, st.integers(0, 2**20), st.sampled_from([1, 2, 8, 20]))
def test_the_gap_of_a_narrow_beam_is_a_bound(chosen, seed, width):
    constraints = [RULES[kind](penalty=form, weight=weight) for kind, form, weight in chosen]
    x, scores, transitions = problem(seed, 6)
    labels = np.zeros(6, dtype=np.int32)
    compiled = Penalties(constraints, [x], CLASSES).compiled
    gaps = search_by_beam(compiled, scores, transitions, labels, width)
    found = value(constraints, x, labels.tolist(), scores, transitions)
    best = brute_force(constraints, x, scores, transitions)
    assert found <= best + 1e-6
    assert best - found <= gaps[0] + 1e-6


@pytest.mark.parametrize("beam", [2, None])
def test_sequences_are_decoded_for_themselves(beam):
    constraints = [AtMostOneSegment(), Occurs("a", at_least=1), Share("b", equals=1.0)]
    parts = [problem(seed, length) for seed, length in ((0, 5), (1, 0), (2, 4), (3, 1))]
    transitions = parts[0][2]
    X = [x for x, _, _ in parts]
    scores = np.concatenate([s for _, s, _ in parts])
    together = constrained_decode(constraints, X, CLASSES, scores, transitions, beam=beam)
    alone = [
        constrained_decode(constraints, [x], CLASSES, s, transitions, beam=beam)
        for x, s, _ in parts
    ]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_a_predicate_is_kept_by_climbing_from_the_beam():
    x, scores, transitions = problem(1, 6)
    scores[:, 2] += 5
    amount = Predicate(lambda tokens, labels: float(labels.count("c")), name="few c")
    y = constrained_decode([amount], [x], CLASSES, scores, transitions)
    assert 2 not in y
    found = value([amount], x, y.tolist(), scores, transitions)
    for t, k in itertools.product(range(6), range(3)):
        other = [*y[:t], k, *y[t + 1 :]]
        assert value([amount], x, other, scores, transitions) <= found + 1e-6


def test_bad_calls_are_explained():
    x, scores, transitions = problem(1, 3)
    with pytest.raises(ValueError, match="beam must be"):
        constrained_decode([], [x], CLASSES, scores, transitions, beam=0)
    with pytest.raises(ValueError, match="scores has shape"):
        constrained_decode([], [x], CLASSES, scores[:2], transitions)
    with pytest.raises(ValueError, match="transitions must be finite"):
        constrained_decode([], [x], CLASSES, scores, transitions * np.inf)
