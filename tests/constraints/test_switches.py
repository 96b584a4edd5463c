"""What one label switch changes, against a full evaluation of the constraint objects."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.constraints import (
    PUNCTUATION,
    AtMostOneSegment,
    AverageSegments,
    Before,
    ChangeOnlyAt,
    ChangeShare,
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
    SwitchEvaluator,
    Words,
)
from hingeline.constraints import switches as forms
from hingeline.constraints.base import HARD, CorpusConstraint

CLASSES = ["a", "b", "c", "d"]
VOCABULARY = ["x", "y", "1999", ".", ","]


def few_changes(tokens, labels):
    return float(sum(labels[t] != labels[t - 1] for t in range(1, len(labels)))) / 2


def ends_as_it_starts(tokens, labels):
    return not labels or labels[0] == labels[-1]


KINDS = {
    "one segment": lambda **c: AtMostOneSegment("a", **c),
    "one segment each": lambda **c: AtMostOneSegment(**c),
    "one segment of a group": lambda **c: AtMostOneSegment(("a", "b"), "c", **c),
    "no repeats": lambda **c: NoRepeats(**c),
    "no repeats of groups": lambda **c: NoRepeats("a", ("b", "c"), "c", **c),
    "starts": lambda **c: StartsWith("a", "b", **c),
    "ends": lambda **c: EndsWith("c", **c),
    "at least": lambda **c: Occurs("a", ("b", "d"), at_least=2, **c),
    "at most": lambda **c: Occurs("a", at_most=1, **c),
    "exactly": lambda **c: Occurs("b", equals=3, **c),
    "segments between": lambda **c: Occurs("a", at_least=1, at_most=2, unit="segments", **c),
    "length": lambda **c: MinLength("a", "b", length=3, **c),
    "length of all": lambda **c: MinLength(length=2, **c),
    "length of a group": lambda **c: MinLength(("a", "b"), length=4, **c),
    "words": lambda **c: Words(r"19\d\d", label="d", **c),
    "list": lambda **c: Words(["X", "y"], label=("a", "c"), ignore_case=True, **c),
    "word predicate": lambda **c: Words(str.isdigit, label="b", **c),
    "only words": lambda **c: OnlyWords(r"[xy]", label=("a", "d"), **c),
    "change": lambda **c: ChangeOnlyAt(**c),
    "change after": lambda **c: ChangeOnlyAt([","], side="after", **c),
    "change beside": lambda **c: ChangeOnlyAt(PUNCTUATION, side="either", **c),
    "follows": lambda **c: Follows(("b", "c"), after=("a", "b"), **c),
    "follows or starts": lambda **c: Follows("b", after="a", start=True, **c),
    "before": lambda **c: Before("a", "b", **c),
    "before groups": lambda **c: Before(("a", "d"), ("b", "c"), **c),
    "predicate": lambda **c: Predicate(few_changes, **c),
    "boolean predicate": lambda **c: Predicate(ends_as_it_starts, **c),
    "share": lambda **c: Share("a", equals=0.3, **c),
    "share of a group": lambda **c: Share(("a", "b"), at_least=0.5, **c),
    "share at most": lambda **c: Share("c", at_most=0.1, scale=10.0, **c),
    "changes": lambda **c: ChangeShare(equals=0.2, **c),
    "changes at most": lambda **c: ChangeShare(["."], at_most=0.1, side="either", **c),
    "segments": lambda **c: AverageSegments("b", equals=1.2, **c),
    "segments of a group": lambda **c: AverageSegments(("a", "c"), at_most=1, **c),
    "all segments": lambda **c: AverageSegments(at_least=2, at_most=2.5, **c),
}


def full_penalty(constraints, X, Y):
    """Every constraint anew, with the finite price of hard ones."""
    total = 0.0
    for c in constraints:
        pairs = [(X, Y)] if isinstance(c, CorpusConstraint) else zip(X, Y, strict=True)
        for x, y in pairs:
            total += HARD * c.violation(x, y) if c.hard else c.cost(x, y)
    return total


def corpus(rng, n):
    X = [[str(rng.choice(VOCABULARY)) for _ in range(rng.integers(0, 8))] for _ in range(n)]
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])])
    return X, offsets.astype(np.int64)


def spell(labels, offsets):
    return [[CLASSES[k] for k in labels[a:b]] for a, b in pairwise(offsets)]


def close(found, expected, size=0.0):
    """Equal up to the rounding of the oracle's own sums, which are as large as ``size``."""
    scale = 1.0 + max(np.max(np.abs(expected)), size)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * scale)


def follow_switches(constraints, seed, switches=12):
    """Random switches; totals and all candidates are compared with full evaluation."""
    rng = np.random.default_rng(seed)
    X, offsets = corpus(rng, 4)
    labels = rng.integers(0, len(CLASSES), offsets[-1]).astype(np.int32)
    evaluator = SwitchEvaluator(Penalties(constraints, X, CLASSES), labels)
    now = full_penalty(constraints, X, spell(labels, offsets))
    close(evaluator.sum_penalties(), now)
    for _ in range(switches if offsets[-1] else 0):
        here = int(rng.integers(0, offsets[-1]))
        i = int(np.searchsorted(offsets, here, side="right")) - 1
        t = here - int(offsets[i])
        expected = []
        for k in range(len(CLASSES)):
            other = labels.copy()
            other[here] = k
            expected.append(full_penalty(constraints, X, spell(other, offsets)))
        costs = evaluator.switch_costs(i, t)
        assert costs[labels[here]] == 0.0
        close(costs, np.array(expected) - expected[labels[here]], max(expected))
        k = int(rng.integers(0, len(CLASSES)))
        evaluator.commit_switch(i, t, k)
        labels[here] = k
        np.testing.assert_array_equal(evaluator.labels, labels)
        close(evaluator.sum_penalties(), expected[k])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["linear", "squared", "hard"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_agrees_with_full_evaluation(kind, form):
    common = {"hard": True} if form == "hard" else {"penalty": form, "weight": 3.0}
    for seed in range(6):
        follow_switches([KINDS[kind](**common)], seed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(KINDS)),
            st.sampled_from(["linear", "squared"]),
            st.booleans(),
            st.sampled_from([0.0, 1.0, 7.25, 1000.0]),
        ),
        max_size=8,
    ),
    st.integers(0, 2**20),
)
def test_any_set_agrees_with_full_evaluation(chosen, seed):
    constraints = [
        KINDS[kind](penalty=penalty, hard=hard, weight=weight)
        for kind, penalty, hard, weight in chosen
    ]
    follow_switches(constraints, seed, switches=6)


def test_plain_python_and_compiled_agree():
    rng = np.random.default_rng(3)
    X, offsets = corpus(rng, 4)
    constraints = [make() for name, make in KINDS.items() if "predicate" not in name]
    constraints.append(Words(str.isdigit, label="b"))
    labels = rng.integers(0, len(CLASSES), offsets[-1]).astype(np.int32)
    evaluator = SwitchEvaluator(Penalties(constraints, X, CLASSES), labels)
    c = evaluator.penalties.compiled
    state, _ = forms.start_state(c, labels)
    out = np.empty(len(CLASSES))
    for _ in range(30):
        i = int(rng.integers(0, 4))
        if offsets[i + 1] == offsets[i]:
            continue
        t = int(rng.integers(0, offsets[i + 1] - offsets[i]))
        forms.switch_costs(c, state, labels, i, t, out)
        np.testing.assert_allclose(out, evaluator.switch_costs(i, t), rtol=1e-12, atol=1e-6)
        k = int(np.argmin(out))
        forms.commit_switch(c, state, labels, i, t, k)
        evaluator.commit_switch(i, t, k)
        assert forms.sum_penalties(c, labels) == pytest.approx(evaluator.sum_penalties())


def test_what_decomposes_over_a_chain_is_the_penalty_of_the_chain_constraints():
    X = [["x", "1999", "."], ["y", "."]]
    constraints = [
        StartsWith("a"),
        EndsWith("d"),
        Words(r"\d+", label="d"),
        ChangeOnlyAt(),
        Follows("b", after="a"),
    ]
    compiled = Penalties(constraints, X, CLASSES).compiled
    rng = np.random.default_rng(0)
    for _ in range(50):
        labels = rng.integers(0, 4, 5).astype(np.int32)
        total = compiled.unary[np.arange(5), labels].sum()
        for t in (1, 2, 4):
            total += compiled.pair[labels[t - 1], labels[t]]
            total += compiled.change[t] * (labels[t] != labels[t - 1])
        assert total == full_penalty(constraints, X, spell(labels, compiled.offsets))


def test_labels_that_do_not_exist_are_left_out_with_a_warning():
    X = [["x", "pp"]]
    rules = [Words(["pp"], label="pages"), StartsWith("a", "q"), Share("r", equals=0.5)]
    with pytest.warns(UserWarning, match="'pages', 'q', 'r'"):
        compiled = Penalties(rules, X, CLASSES).compiled
    assert compiled.unary[1].tolist() == [0, 0, 0, 0]
    assert compiled.unary[0].tolist() == [0, 1000, 1000, 1000]
    assert len(compiled.corpus_kind) == 0
    with pytest.raises(ValueError, match="spelling"):
        Penalties(rules, X, CLASSES, unknown="error")


def test_tokens_may_be_rows_with_a_key():
    rows = [[{"w": "pp"}, {"w": "x"}]]
    rule = Words(["pp"], label="a")
    for token in ("w", lambda row: row["w"]):
        assert Penalties([rule], rows, CLASSES, token=token).compiled.unary[0, 1] == 1000
    with pytest.raises(TypeError, match="token="):
        Penalties([rule], rows, CLASSES)


def test_bad_calls_are_explained():
    with pytest.raises(TypeError, match=r"constraints\[1\] is not a constraint"):
        Penalties([StartsWith("a"), "b"], [["x"]], CLASSES)
    with pytest.raises(ValueError, match="shape"):
        SwitchEvaluator(Penalties([], [["x"]], CLASSES), np.zeros(2))
    with pytest.raises(ValueError, match="numbers from 0 to 3"):
        SwitchEvaluator(Penalties([], [["x"]], CLASSES), [4])
    evaluator = SwitchEvaluator(Penalties([], [["x"]], CLASSES), [0])
    with pytest.raises(IndexError, match="no position 1 in sequence 0"):
        evaluator.switch_costs(0, 1)
    with pytest.raises(IndexError, match="k=4"):
        evaluator.commit_switch(0, 0, 4)


def test_hard_rules_made_soft_count_beside_those_without_weight():
    rules = [Words("x", "a", weight=0.0), StartsWith("a", hard=True)]
    soft = Penalties(rules, [["x", "y"]], CLASSES).soften()
    assert soft.total(np.array([2, 2])) == 1.0


def test_hard_rules_made_soft_count_like_the_heaviest_soft_one():
    rules = [Words("x", "a", weight=3.0), Words("y", "b", hard=True), StartsWith("a", hard=True)]
    hard = Penalties(rules, [["x", "y"], ["y"]], CLASSES)
    labels = np.array([2, 2, 1])  # breaks every rule once, and the last one twice
    assert hard.total(labels) == 3.0 + 3.0 * HARD
    assert hard.soften().total(labels) == 3.0 * 4
    assert Penalties(rules[:1], [["x"]], CLASSES).soften().total(np.array([1])) == 3.0
