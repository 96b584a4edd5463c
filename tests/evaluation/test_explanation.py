"""Explanations of predictions, against the enumeration of all labelings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.evaluation.inspection import explain
from hingeline.features.tables import SparseSequences

# isort: split
from naive import chain_joint_feature, random_chains, random_multiclass

D, L = 5, 3
NAMES = ["A", "B", "C"]


@pytest.fixture(scope="module", params=[True, False])
def fitted(request):
    X, y = random_chains(np.random.default_rng(1), 15, D, L, 4)
    model = ChainSSVM(C=0.3, boundary=request.param, fit_intercept=request.param, random_state=0)
    return model.fit(X, [np.array(NAMES)[labels] for labels in y]), X


def score(model, x, y):
    """The score of one labeling, from the joint feature map of the tests."""
    if model.fit_intercept:
        x = np.hstack([x, np.ones((len(x), 1))])
    blocks = [model.emission_coef_.T]
    if model.fit_intercept:
        blocks.append(model.intercept_[None])
    blocks.append(model.transition_coef_)
    if model.boundary:
        blocks += [model.start_coef_[None], model.end_coef_[None]]
    return np.vstack(blocks).ravel() @ chain_joint_feature(x, y, L, model.boundary)


def ranked(model, x):
    paths = itertools.product(range(L), repeat=len(x))
    return sorted(((score(model, x, y), y) for y in paths), reverse=True)


def test_the_runner_up_and_the_sum(fitted):
    model, X = fitted
    for x in X:
        (best, y), (second, other) = ranked(model, x)[:2]
        found = explain(model, x)
        assert found.chosen == [NAMES[k] for k in y] == model.predict([x])[0].tolist()
        assert found.other == [NAMES[k] for k in other]
        assert found.score == pytest.approx(best, abs=1e-9)
        assert found.other_score == pytest.approx(second, abs=1e-9)
        assert found.margin == pytest.approx(best - second, abs=1e-9)
        assert sum(row.contribution for row in found.rows) == pytest.approx(found.margin, abs=1e-9)
        assert sum(row["contribution"] for row in found.by_position()) == pytest.approx(
            found.margin, abs=1e-9
        )
        sizes = [abs(row.contribution) for row in found.rows]
        assert sizes == sorted(sizes, reverse=True)


def test_every_row_is_its_weight_times_its_value(fitted):
    model, X = fitted
    index = {name: k for k, name in enumerate(NAMES)}
    kinds = set()
    for x in X:
        found = explain(model, x, against=["B"] * len(x))
        for row in found.rows:
            kinds.add(row.kind)
            a, b = row.chosen, row.other
            if row.kind == "transition":
                (i, j), (k, l) = ([index[name] for name in side.split(" → ")] for side in (a, b))
                weight = model.transition_coef_[i, j] - model.transition_coef_[k, l]
                assert a == f"{found.chosen[row.position - 1]} → {found.chosen[row.position]}"
                assert row.value == 1.0
            else:
                assert a == found.chosen[row.position]
                assert b == found.other[row.position]
                block = {
                    "feature": model.emission_coef_[:, int(row.name[1:])]
                    if row.kind == "feature"
                    else None,
                    "constant": model.intercept_,
                    "start": model.start_coef_,
                    "end": model.end_coef_,
                }[row.kind]
                weight = block[index[a]] - block[index[b]]
                if row.kind == "feature":
                    assert row.value == x[row.position, int(row.name[1:])]
            assert row.weight == pytest.approx(weight)
            assert row.contribution == pytest.approx(row.value * row.weight)
        assert sum(row.contribution for row in found.rows) == pytest.approx(
            score(model, x, [index[k] for k in found.chosen]) - score(model, x, [1] * len(x)),
            abs=1e-9,
        )
    extra = {"constant", "start", "end"} if model.boundary else set()
    assert kinds == {"feature", "transition"} | extra


def test_forms_of_a_sequence(fitted):
    model, X = fitted
    stacked = SparseSequences(sp.csr_matrix(np.vstack(X)), np.cumsum([0] + [len(x) for x in X]))
    expected = explain(model, X[2])
    for found in (
        explain(model, sp.csr_matrix(X[2])),
        explain(model, X, index=2),
        explain(model, stacked, index=2),
        explain(model, X[2].tolist()),
    ):
        assert found == expected
    assert explain(model, X, index=3) != expected
    with pytest.raises(IndexError, match=f"index=99 is beyond x, which has {len(X)} examples"):
        explain(model, X, index=99)


def test_the_models_labels_against_themselves(fitted):
    model, X = fitted
    found = explain(model, X[0], against=model.predict(X[:1])[0])
    assert found.margin == 0.0
    assert found.rows == []
    assert "margin 0" in found.text()


def test_text_and_names(fitted):
    model, X = fitted
    names = [f"word={j}" for j in range(D)]
    x = max(X, key=len)
    wrong = [NAMES[NAMES.index(label) - 1] for label in model.predict([x])[0]]
    found = explain(model, x, feature_names=names, against=wrong)
    text = found.text(2)
    lines = text.splitlines()
    assert lines[0].split() == ["chosen", *found.chosen]
    assert lines[1].split() == ["other", *found.other]
    assert f"margin {found.margin:.6g}" in lines[2]
    assert found.rows[0].name in lines[5]
    assert f"and {len(found.rows) - 2} more" in lines[-1]
    assert any("word=" in row.name for row in found.rows)
    assert str(found) == found.text()


def test_rows_make_a_data_frame(fitted):
    pandas = pytest.importorskip("pandas")
    model, X = fitted
    found = explain(model, X, index=0)
    frame = pandas.DataFrame(found.rows)
    assert frame["contribution"].sum() == pytest.approx(found.margin, abs=1e-9)
    assert len(pandas.DataFrame(found.by_position())) == len(X[0])


def test_multiclass_example():
    X, y = random_multiclass(np.random.default_rng(0), 30, 4, 3)
    model = MulticlassSSVM(random_state=0).fit(X, y)
    scores = model.decision_function(X)
    for i in range(5):
        found = explain(model, X, index=i)
        best, second = np.argsort(-scores[i])[:2]
        assert found.chosen == [best] == model.predict(X[i : i + 1]).tolist()
        assert found.other == [second]
        assert found.margin == pytest.approx(scores[i, best] - scores[i, second], abs=1e-9)
        total = sum(row.contribution for row in found.rows)
        assert total == pytest.approx(found.margin, abs=1e-9)
        assert explain(model, sp.csr_matrix(X), index=i) == found
    assert explain(model, X[0], against=2).other == [2]
    with pytest.raises(ValueError, match="x has 30 rows: pass one example, or index="):
        explain(model, X)


def test_bad_input_is_named(fitted):
    model, X = fitted
    with pytest.raises(ValueError, match=f"X has 2 features, but ChainSSVM was fitted with {D}"):
        explain(model, np.ones((3, 2)))
    with pytest.raises(ValueError, match="against has 1 labels, but x has"):
        explain(model, X[0], against=["A"])
    with pytest.raises(ValueError, match=r"against\[0\] is 'Z', which is not among classes_"):
        explain(model, X[0], against=["Z"] * len(X[0]))
    with pytest.raises(TypeError, match="against must be a sequence of labels, got 'AB'"):
        explain(model, X[0], against="AB")


def test_ties_leave_a_different_runner_up():
    X = [np.ones((3, 1))] * 2
    model = ChainSSVM(random_state=0).fit(X, [["A", "A", "A"], ["B", "B", "B"]])
    model.weights_ = np.zeros_like(model.weights_)
    found = explain(model, X[0])
    assert found.chosen != found.other
    assert found.margin == 0.0


def test_the_runner_up_is_valid_in_the_scheme():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 3)) for _ in range(12)]
    y = [["O", "B-X", "I-X", "O"], ["B-X", "I-X", "B-X", "O"]] * 6
    model = ChainSSVM(scheme="IOB2", random_state=0).fit(X, y)
    margins = model.predict_margin(X)
    for x, margin in zip(X, margins, strict=True):
        np.testing.assert_allclose(explain(model, x).margin, margin, atol=1e-9)


def test_rows_of_a_frame():
    pd = pytest.importorskip("pandas")
    X, y = random_multiclass(np.random.default_rng(0), 20, D, L)
    frame = pd.DataFrame(np.asarray(X), columns=[f"c{k}" for k in range(np.shape(X)[1])])
    model = MulticlassSSVM(random_state=0).fit(frame, y)
    for index in (0, 3, -1):
        told = explain(model, frame, index=index)
        assert told.score == pytest.approx(explain(model, np.asarray(X)[index]).score)
