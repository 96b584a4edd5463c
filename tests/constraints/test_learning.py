"""Weights and bounds of constraints from labelled sequences."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from hingeline.constraints import (
    AtMostOneSegment,
    AverageSegments,
    Predicate,
    Share,
    StartsWith,
    Words,
    learn_constraints,
)


def sequences(n: int, broken: int) -> tuple[list[list[str]], list[list[str]]]:
    """Sequences of which the last ``broken`` do not start with A."""
    return [["a", "b"]] * n, [["A", "B"]] * (n - broken) + [["B", "B"]] * broken


def test_weights_fall_with_the_rate_of_breaking():
    weights = [learn_constraints([StartsWith("A")], *sequences(20, k))[0].weight for k in range(21)]
    assert all(a > b for a, b in pairwise(weights))
    assert weights[0] == pytest.approx(2 * math.log(25 / 0.1) - 1)
    assert weights[-1] > 0.0


def test_weights_rise_with_what_is_known():
    few, many = (learn_constraints([StartsWith("A")], *sequences(n, 0))[0].weight for n in (5, 500))
    assert few < many


def test_the_weight_is_that_of_which_the_mean_violation_is_expected():
    """The mean of v = 0, 1, 2, ... under exp(-weight v)/v! is that of the data, smoothed."""
    X, Y = sequences(50, 25)
    weight = learn_constraints([StartsWith("A")], X, Y)[0].weight
    v = np.arange(50)
    chance = np.exp(-weight * v) / np.array([math.factorial(k) for k in v.tolist()], dtype=float)
    assert chance @ v / chance.sum() == pytest.approx(25.1 / 55)


def test_every_kind_has_a_weight_in_its_own_units():
    X, Y = [["x"] * 5] * 8, [list("ABABA"), *[list("AAAAA")] * 7]
    rules = [
        AtMostOneSegment("A"),
        AtMostOneSegment("A", penalty="linear"),
        Words(["x"], "A"),
        Predicate(lambda x, y: y[0] == "A"),
    ]
    once, linear, words, kept = learn_constraints(rules, X, Y)
    assert once.weight == pytest.approx(2 * math.log(13 / 4.1) - 1)  # two too many, squared
    assert linear.weight == words.weight == pytest.approx(2 * math.log(13 / 2.1) - 1)
    assert kept.weight == pytest.approx(2 * math.log(13 / 0.1) - 1)
    always = learn_constraints([StartsWith("B")], X, Y)[0]
    assert always.weight == pytest.approx(math.log(13 / 8.1))  # broken eight times
    assert learn_constraints([Words(["x"], "C")], X, Y)[0].weight == 0.0
    assert rules[0].weight == 1000  # those given stay as they are
    assert (once.penalty, linear.penalty) == ("squared", "linear")


def test_hard_rules_stay_hard():
    rule = StartsWith("A", hard=True)
    assert learn_constraints([rule], *sequences(4, 2)) == [rule]


def test_shares_are_intervals_that_shrink_with_the_number_of_sequences():
    rng = np.random.default_rng(0)
    widths = []
    for n in (5, 20, 80, 320):
        Y = [["A"] * k + ["B"] * (10 - k) for k in rng.integers(1, 6, n).tolist()]
        share = learn_constraints([Share("A", equals=0.9)], [["x"] * 10] * n, Y)[0]
        assert share.at_least < 0.3 < share.at_most
        assert share.equals is None
        widths.append(share.at_most - share.at_least)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.05


def test_the_interval_covers_the_truth_about_as_often_as_two_errors_do():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        Y = [["A"] * k + ["B"] * (8 - k) for k in rng.integers(0, 9, 20).tolist()]
        rule = learn_constraints([Share("A", equals=0.1)], [["x"] * 8] * 20, Y)[0]
        hits += rule.at_least <= 0.5 <= rule.at_most
    assert 0.88 <= hits / 200 <= 0.99


def test_beyond_its_interval_a_share_costs_half_the_square_in_errors():
    Y = [["A"] * k + ["B"] * (10 - k) for k in (1, 2, 3, 4, 5)]
    rule = learn_constraints([Share("A", equals=0.9)], [["x"] * 10] * 5, Y)[0]
    error = (rule.at_most - rule.at_least) / 4
    assert error == pytest.approx(np.std([0.1, 0.2, 0.3, 0.4, 0.5], ddof=1) / np.sqrt(5))
    assert rule.penalise(rule.scale * 3 * error) == pytest.approx(4.5)
    assert rule.weight < 1000


def test_bounds_stay_possible_and_too_few_sequences_say_nothing():
    rules = [Share("A", equals=0.5), AverageSegments(equals=9.0)]
    share, average = learn_constraints(rules, *sequences(3, 0))
    assert (share.at_least, share.at_most) == (0.5, 0.5)  # no two differ
    assert average.at_least == average.at_most == 2.0
    assert learn_constraints(rules, *sequences(2, 0)) == []
