"""Violations and costs against plain definitions written another way, and bad arguments."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline import constraints as public
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
    Predicate,
    Share,
    StartsWith,
    Words,
    check,
)

tokens = st.sampled_from(["x", "Y", "1999", ".", "--"])
pairs = st.lists(st.tuples(tokens, st.sampled_from("abc")), max_size=9)


def segments(y):
    """Labels and lengths of the maximal runs."""
    return [(label, len(list(run))) for label, run in itertools.groupby(y)]


def squares(amounts):
    return sum(v * v for v in amounts)


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_instance_violations_are_what_they_say(example):
    x, y = [w for w, _ in example], [a for _, a in example]
    n = {a: sum(label == a for label, _ in segments(y)) for a in "abc"}
    excess = [max(0, n[a] - 1) for a in "abc"]
    assert AtMostOneSegment().violation(x, y) == sum(excess)
    assert AtMostOneSegment().cost(x, y) == 1000 * squares(excess)
    assert AtMostOneSegment("a", penalty="linear", weight=2).cost(x, y) == 2 * excess[0]
    merged = segments(["ab" if a in "ab" else a for a in y])
    assert AtMostOneSegment(("a", "b")).violation(x, y) == max(
        0, sum(label == "ab" for label, _ in merged) - 1
    )
    repeated = sum(v > 0 for v in excess)
    assert NoRepeats().violation(x, y) == repeated
    assert NoRepeats().cost(x, y) == 1000 * repeated**2
    assert NoRepeats("b", "c").violation(x, y) == sum(v > 0 for v in excess[1:])
    assert StartsWith("a", "b").violation(x, y) == (y[:1] == ["c"])
    assert EndsWith("c").violation(x, y) == (y[-1:] in (["a"], ["b"]))
    text = "".join(y)
    assert Occurs("a", at_least=3).violation(x, y) == max(0, 3 - text.count("a"))
    assert Occurs("a", "b", at_most=1, penalty="squared").cost(x, y) == 1000 * squares(
        [max(0, text.count(a) - 1) for a in "ab"]
    )
    assert Occurs("b", equals=2).violation(x, y) == abs(text.count("b") - 2)
    assert Occurs("b", equals=1, unit="segments").violation(x, y) == abs(n["b"] - 1)
    short = [3 - length for label, length in segments(y) if label == "a" and length < 3]
    assert MinLength("a", length=3).violation(x, y) == sum(short)
    assert MinLength("a", length=3, penalty="squared").cost(x, y) == 1000 * squares(short)
    years = [a for w, a in example if w == "1999"]
    assert Words(r"\d+", label="b").violation(x, y) == len(years) - years.count("b")
    assert Words(["X", "y"], label=("a", "b"), ignore_case=True).violation(x, y) == sum(
        w in "xY" and a == "c" for w, a in example
    )
    assert OnlyWords(r"\d+", label="b").violation(x, y) == text.count("b") - years.count("b")
    late = sum(x[t] == "1999" and x[t - 1] in ("x", "Y") and y[t] != "b" for t in range(1, len(x)))
    assert Words(r"\d+", label="b", after="x|Y").violation(x, y) == late
    places = [t for t in range(1, len(y)) if y[t] != y[t - 1]]
    marks = [w in (".", "--") for w in x]
    assert ChangeOnlyAt().violation(x, y) == sum(not marks[t - 1] for t in places)
    assert ChangeOnlyAt(side="after").violation(x, y) == sum(not marks[t] for t in places)
    assert ChangeOnlyAt(side="either").violation(x, y) == sum(
        not (marks[t] or marks[t - 1]) for t in places
    )
    follows = Follows("b", after=("a", "b"))
    assert follows.violation(x, y) == len(re.findall("(?:^|(?<=c))b", text))
    assert Follows("b", after=("a", "b"), start=True).violation(x, y) == text.count("cb")
    assert Before("a", "b").violation(x, y) == (re.search("b.*a", text) is not None)


@settings(max_examples=100, deadline=None)
@given(st.lists(pairs, max_size=4))
def test_corpus_violations_are_what_they_say(examples):
    X = [[w for w, _ in e] for e in examples]
    Y = [[a for _, a in e] for e in examples]
    text = "".join(a for y in Y for a in y)
    share = text.count("a") / len(text) if text else 0.0
    assert Share("a", equals=0.3).violation(X, Y) == pytest.approx(abs(share - 0.3) * 100)
    assert Share("a", equals=0.3).cost(X, Y) == pytest.approx(1000 * (share * 100 - 30) ** 2)
    assert Share("a", at_most=0.3, scale=1).violation(X, Y) == pytest.approx(max(0, share - 0.3))
    assert Share("a", at_least=0.3, scale=1).violation(X, Y) == pytest.approx(max(0, 0.3 - share))
    places = [(x[t - 1], y) for x, y in zip(X, Y, strict=True) for t in range(1, len(y))]
    changes = [
        x[t - 1] for x, y in zip(X, Y, strict=True) for t in range(1, len(y)) if y[t] != y[t - 1]
    ]
    assert len(changes) <= len(places)
    bad = sum(w not in (".", "--") for w in changes) / len(changes) if changes else 0.0
    assert ChangeShare(equals=0.01).cost(X, Y) == pytest.approx(1000 * abs(bad - 0.01))
    assert ChangeShare(at_most=0.25).violation(X, Y) == pytest.approx(max(0, bad - 0.25))
    n = max(len(Y), 1)
    assert AverageSegments(equals=0).violation(X, Y) == pytest.approx(
        sum(len(segments(y)) for y in Y) / n
    )
    mean = sum(label == "b" for y in Y for label, _ in segments(y)) / n
    assert AverageSegments("b", at_least=1).violation(X, Y) == pytest.approx(max(0, 1 - mean))


def test_absence_is_not_punished_by_at_most():
    """The paper prints r|φ − 1|², which is 1000 for a sequence without authors."""
    assert AtMostOneSegment("author").cost(["x"], ["title"]) == 0


def test_hard_constraints_cost_infinity_and_nothing_when_kept():
    rule = StartsWith("a", hard=True)
    assert rule.cost(["x"], ["a"]) == 0
    assert rule.cost(["x"], ["b"]) == math.inf
    assert Share("a", equals=1 / 3, hard=True).cost([["x"] * 3], [["a", "b", "b"]]) == 0
    assert Share("a", equals=0.3, hard=True).cost([["x"] * 3], [["a", "b", "b"]]) == math.inf


def test_predicates_return_truth_or_amounts():
    x, y = ["x", "y"], ["a", "b"]
    assert Predicate(lambda x, y: True).violation(x, y) == 0
    assert Predicate(lambda x, y: False).violation(x, y) == 1
    assert Predicate(lambda x, y: np.bool_(False)).violation(x, y) == 1
    assert Predicate(lambda x, y: 2.5, penalty="squared", weight=2).cost(x, y) == 12.5
    assert Predicate(lambda x, y: 0).violation(x, y) == 0
    with pytest.raises(ValueError, match="rule: a predicate returns"):
        Predicate(lambda x, y: -1.0, name="rule").violation(x, y)


def test_shares_of_the_labelled_set():
    y = [["a", "b"], None, np.array(["b", "b"])]
    found = Share.from_labels(y, weight=5)
    assert found == [Share("a", equals=0.25, weight=5), Share("b", equals=0.75, weight=5)]
    assert all(type(c.label[0]) is str for c in found)
    X = [["x", "x"], ["x", "x"]]
    assert sum(c.cost(X, [["a", "b"], ["b", "b"]]) for c in found) == 0
    near = Share.from_labels(y, slack=0.5)
    assert near[1] == Share("b", at_least=0.25, at_most=1.0)
    with pytest.raises(ValueError, match="labelled token"):
        Share.from_labels([None])


def test_constraints_are_plain_frozen_data():
    rule = Words(["pp"], label="pages")
    assert rule == Words(("pp",), label=("pages",))
    assert hash(rule) == hash(Words(["pp"], label="pages"))
    assert pickle.loads(pickle.dumps(rule)) == rule
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.weight = 3


def test_a_report_says_what_is_broken_and_where():
    X = [["A", "."], ["pp", "."], ["B"]]
    Y = [["author", "title"], ["title", "title"], ["author"]]
    rules = [
        StartsWith("author"),
        Words(["pp"], label="pages", hard=True),
        ChangeOnlyAt(),
        Share("author", equals=0.4),
    ]
    report = check(rules, X, Y)
    assert [row.sequences for row in report.rows] == [(1,), (1,), (0,), ()]
    assert [row.violation for row in report.rows] == [1, 1, 1, 0]
    assert [row.cost for row in report.rows] == [1000, math.inf, 1000, 0]
    assert report.rows[3].value == 0.4
    assert report.sequences == (0, 1)
    assert not report.ok
    assert report.violation == 3
    assert check(rules[3:], X, Y).ok
    lines = str(report).splitlines()
    assert lines[1].split("  ")[0] == "starts with author"
    assert "pp is pages (hard)" in lines[2]
    assert "1 of 3" in lines[1]
    assert "inf" in lines[2]
    assert "is 0.4" in lines[4]
    with pytest.raises(ValueError, match="3 sequences but Y has 1"):
        check(rules, X, Y[:1])
    with pytest.raises(ValueError, match="sequence 2 has 1 tokens but 2 labels"):
        check(rules, X, [*Y[:2], Y[0]])


def test_a_report_of_rows_with_a_key():
    report = check([Words(["pp"], label="a")], [[("pp", "NN")]], [["b"]], token=0)
    assert report.violation == 1


WRONG = [
    (lambda: StartsWith(), "at least one label"),
    (lambda: Occurs("a"), "needs equals="),
    (lambda: Occurs(at_least=1), "at least one label"),
    (lambda: Occurs("a", at_least=2, at_most=1), "above at_most"),
    (lambda: Occurs("a", at_least=1, unit="words"), "'tokens' or 'segments'"),
    (lambda: MinLength("a", length=1), "an integer ≥ 2"),
    (lambda: Words("(", label="a"), "regular expression"),
    (lambda: Words([], label="a"), "empty list"),
    (lambda: Words(["a"], label=()), "at least one label"),
    (lambda: ChangeOnlyAt(side="left"), "'before', 'after' or 'either'"),
    (lambda: Before("a", ("a", "b")), "before itself"),
    (lambda: Share("a", equals=30), "between 0 and 1"),
    (lambda: Share("a", equals=0.3, at_most=0.4), "not both"),
    (lambda: Share("a", equals=0.3, scale=0), "scale"),
    (lambda: NoRepeats(weight=-1), "at least 0"),
    (lambda: NoRepeats(weight=math.inf), "hard=True"),
    (lambda: NoRepeats(weight=math.nan), "at least 0"),
    (lambda: NoRepeats(penalty="cubic"), "'linear' or 'squared'"),
]


@pytest.mark.parametrize(("make", "reason"), WRONG)
def test_wrong_arguments_are_explained(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Words(3, label="a"), "a list of words or a function"),
        (lambda: NoRepeats(weight="1"), "number"),
        (lambda: NoRepeats(hard=1), "True or False"),
        (lambda: Share("a", equals="0.3"), "number"),
        (lambda: Predicate(3), "function of"),
        (lambda: Words("x", label="a").violation([("x", 1)], ["b"]), "token="),
    ],
)
def test_wrong_types_are_explained(make, reason):
    with pytest.raises(TypeError, match=reason):
        make()


def test_public_names_exist():
    for name in public.__all__:
        assert hasattr(public, name)
    assert re.fullmatch(PUNCTUATION, "--")
    assert not re.fullmatch(PUNCTUATION, "a.")


def test_words_after_others():
    rule = Words(r"\w+", label="place", after="(place|where) :", ignore_case=True)
    words = ["Where", ":", "Room", "5", ";", "elsewhere", ":", "here", "place", "Place", ":"]
    assert rule.violation(words, ["O"] * 11) == 1  # whole tokens: "elsewhere :" is no match
    assert rule.violation(words, ["O", "O", "place"] + ["O"] * 8) == 0
    assert "after (place" in rule.title
    tables = public.Penalties([rule], [words], ["O", "place"]).compiled
    assert np.flatnonzero(tables.unary[:, 0]).tolist() == [2]
    with pytest.raises(ValueError, match="after is not a regular expression"):
        Words("a", label="b", after="(")
    with pytest.raises(TypeError, match="after must be a regular expression"):
        Words("a", label="b", after=["x"])
