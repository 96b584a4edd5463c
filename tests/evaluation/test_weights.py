"""Weights by name, against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.evaluation.inspection import top_features, transition_table

# isort: split
from naive import random_chains, random_multiclass


@pytest.fixture(scope="module", params=[True, False])
def tagger(request):
    X, y = random_chains(np.random.default_rng(0), 12, 9, 3, 4)
    names = np.array(["A", "B", "C"])
    model = ChainSSVM(C=1.0, boundary=request.param, fit_intercept=request.param, random_state=0)
    return model.fit(X, [names[labels] for labels in y])


@pytest.mark.parametrize("n", [1, 2, 4, 50])
def test_both_ends_of_every_label(tagger, n):
    rows = top_features(tagger, n)
    expected = []
    for k, label in enumerate(["A", "B", "C"]):
        weights = [(f"x{j}", w) for j, w in enumerate(tagger.emission_coef_[k].tolist())]
        weights.append(("(constant)", float(tagger.intercept_[k])))
        weights.sort(key=lambda pair: -pair[1])
        positive = [pair for pair in weights if pair[1] > 0][:n]
        negative = [pair for pair in weights if pair[1] < 0][-n:]
        expected += [(label, *pair) for pair in positive + negative]
    assert rows == expected
    assert ("(constant)" in {row.feature for row in top_features(tagger, 50)}) == (
        tagger.fit_intercept
    )


def test_names_are_given_or_the_models_own(tagger):
    names = [f"word={j}" for j in range(9)]
    by_number = top_features(tagger, 50)
    given = top_features(tagger, 50, feature_names=names)
    for a, b in zip(by_number, given, strict=True):
        assert b.feature == a.feature.replace("x", "word=")
    tagger.feature_names_in_ = names
    try:
        assert top_features(tagger, 50) == given
    finally:
        del tagger.feature_names_in_
    with pytest.raises(ValueError, match="there are 2 feature names, but the model has 9"):
        top_features(tagger, feature_names=["a", "b"])
    with pytest.raises(ValueError, match="n must be greater than 0, got 0"):
        top_features(tagger, 0)


def test_every_move_is_in_the_table(tagger):
    found = {(row.source, row.target): row.weight for row in transition_table(tagger)}
    expected = {}
    for i, a in enumerate("ABC"):
        for j, b in enumerate("ABC"):
            expected[a, b] = tagger.transition_coef_[i, j]
        if tagger.boundary:
            expected["(start)", a] = tagger.start_coef_[i]
            expected[a, "(end)"] = tagger.end_coef_[i]
    assert found == expected
    assert np.ptp(list(found.values())) > 0


def test_rows_make_a_data_frame(tagger):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(top_features(tagger, 3))
    assert list(frame.columns) == ["label", "feature", "weight"]
    table = pandas.DataFrame(transition_table(tagger))
    wide = table.pivot(index="source", columns="target", values="weight")
    assert wide.loc["A", "B"] == tagger.transition_coef_[0, 1]


def test_multiclass_features():
    X, y = random_multiclass(np.random.default_rng(0), 20, 4, 3)
    model = MulticlassSSVM(random_state=0).fit(X, y)
    rows = top_features(model, 50)
    assert {(r.label, r.feature): r.weight for r in rows if r.feature == "x2"} == {
        (k, "x2"): model.coef_[k, 2] for k in range(3)
    }
    with pytest.raises(TypeError, match="MulticlassSSVM has no transitions"):
        transition_table(model)


def test_others_are_refused():
    with pytest.raises(TypeError, match="dict cannot be inspected: pass a ChainSSVM"):
        top_features({})
    with pytest.raises(NotFittedError):
        top_features(ChainSSVM())
