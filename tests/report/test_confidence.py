"""Reliability curves, and words that training has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from hingeline import ChainSSVM
from hingeline.evaluation.calibration import calibration_error
from hingeline.features import TokenTemplates
from hingeline.report import render_report
from hingeline.report.figures import draw_reliability, new_figure


def curve(confidence, right, measure="probability", n_bins=4):
    """The points drawn, and what is said of them."""
    axes = new_figure().subplots()
    said = draw_reliability(axes, np.array(confidence), np.array(right), measure, n_bins)
    (line,) = [line for line in axes.lines if line.get_marker() == "o"]
    return line.get_xydata(), said


def test_points_are_means_of_groups():
    rng = np.random.default_rng(0)
    confidence = rng.random(400)
    right = rng.random(400) < confidence
    points, said = curve(confidence, right)
    order = np.argsort(confidence)
    expected = [(confidence[own].mean(), right[own].mean()) for own in np.split(order, 4)]
    np.testing.assert_allclose(points, expected)
    assert points[0, 1] < points[-1, 1]
    assert said.startswith("Line chart: the share of right labels goes from 0.1")


def test_equal_values_stay_together():
    points, _ = curve([0.5] * 7 + [1.0], [True] * 3 + [False] * 4 + [True])
    np.testing.assert_allclose(points, [(0.5, 3 / 7), (1.0, 1.0)])


def test_infinite_margins_are_left_out():
    points, _ = curve([1.0, 2.0, np.inf, np.inf], [False, True, True, True], "margin", 4)
    assert np.isfinite(points).all()


def test_the_page_draws_both_measures(chain, page_of):
    model, X, y = chain
    predicted = model.predict(X)
    margin = [own.max(axis=1) for own in model.decision_function(X)]
    probability = [1 / (1 + np.exp(-own)) for own in margin]
    root, _ = page_of(model, y_true=y, y_pred=predicted, margin=margin, probability=probability)
    section = root.one(id="evaluation")
    assert [svg.one("title").text for svg in section.all("svg")] == [
        "Share of right labels by probability",
        "Share of right labels by margin",
    ]
    right = np.concatenate(predicted) == np.concatenate(y)
    error = 100 * calibration_error(np.concatenate(probability), right)
    assert f"mean error is {error:.2f}\u00a0%" in section.text
    with pytest.raises(ValueError, match="margin has 1 values, but y_pred has a different number"):
        render_report(model, y_true=y, y_pred=predicted, margin=[[1.0]])
    with pytest.raises(ValueError, match="pass margins as margin"):
        render_report(model, y_true=y, y_pred=predicted, probability=[m + 2 for m in margin])


WORDS = [["the", "cat", "sat"], ["a", "dog", "sat"]]
LABELS = [["D", "N", "V"], ["D", "N", "V"]]


def test_new_words(page_of, rows_of):
    model = ChainSSVM(random_state=0).fit(WORDS * 3, LABELS * 3)
    tokens, true = [["the", "bird", "sat"], ["a", "dog", "sang"]], LABELS
    predicted = [["D", "V", "V"], ["D", "N", "N"]]
    predicted[1][2] = "V"
    root, _ = page_of(model, y_true=true, y_pred=predicted, tokens=tokens)
    assert rows_of(root, "Words seen") == [
        ["seen in training", "4", "100.00\u00a0%"],
        ["new", "2", "50.00\u00a0%"],
    ]
    assert rows_of(root, "Kinds of errors") == [["at a word not seen in training", "1"]]
    assert "new" in root.one(id="error-1").attrs["data-keys"].split()
    # What is given counts more than what the model knows.
    root, _ = page_of(model, y_true=true, y_pred=predicted, tokens=tokens, seen={"bird"})
    assert rows_of(root, "Words seen")[0] == ["seen in training", "1", "0.00\u00a0%"]


def test_values_that_templates_have_seen(tmp_path):
    encoder = TokenTemplates(["word[0]", "suffix(word[0],2)"]).fit(WORDS)
    assert encoder.seen_values() == {"the", "cat", "sat", "a", "dog"}
    assert TokenTemplates(["suffix(word[0],2)"]).fit(WORDS).seen_values() is None
    assert TokenTemplates(["word[0]"], hash_bits=8).fit(WORDS).seen_values() is None
    model = ChainSSVM(random_state=0).fit(WORDS, LABELS)
    model.save(tmp_path / "m.hinge")
    loaded = ChainSSVM.load(tmp_path / "m.hinge")
    assert loaded.encoder_.seen_values() == model.encoder_.seen_values()


def test_numbers_in_place_of_words_are_not_taken_for_new_ones(chain, page_of):
    model, X, y = chain
    root, _ = page_of(
        model, y_true=y, y_pred=model.predict(X), tokens=[list(map(str, s)) for s in y]
    )
    assert "Words seen" not in root.text
