"""Losses, errors and excerpts against plain loops; arguments that do not fit are named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hingeline import SSVM
from hingeline.evaluation.metrics import evaluate, pair_labels
from hingeline.report import render_report
from hingeline.report.errors import LONG, MOST_TOKENS, NEAR, find_excerpts
from hingeline.report.outcome import Outcome, compare, find_losses, merge_labels
from hingeline.report.sections import LEVELS, pick_shade

LABELS = st.sampled_from(["a", "b", "c", "?"])  # the model does not know the last
SEQUENCES = st.lists(st.lists(st.tuples(LABELS, LABELS), max_size=5), min_size=1, max_size=6)


@given(SEQUENCES.filter(any))
def test_losses_against_a_loop(sequences):
    classes = np.array(["c", "a", "b"])
    cost = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
    index = {"c": 0, "a": 1, "b": 2}
    expected = []
    for sequence in sequences:
        total = 0.0
        for a, b in sequence:
            if a != b:
                total += 6.0 if "?" in (a, b) else cost[index[a], index[b]]
        expected.append(total)
    pairs = pair_labels(
        [[a for a, _ in s] for s in sequences], [[b for _, b in s] for s in sequences]
    )
    np.testing.assert_allclose(find_losses(pairs, classes, cost), expected)


def test_loss_of_the_model_ranks_errors(make_chain):
    cost = [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [50.0, 50.0, 0.0]]
    model, _, _ = make_chain(["a", "b", "c"], n=10, loss=np.array(cost), max_iter=2, tol=10.0)
    y_true = [["a", "a", "b"], ["c", "a"], ["b", "b"]]
    y_pred = [["b", "b", "a"], ["a", "a"], ["b", "b"]]
    outcome = compare(model, None, y_true, y_pred, None)
    assert outcome.losses.tolist() == [3.0, 50.0, 0.0]
    assert outcome.most_costly(5) == [1, 0]
    assert outcome.most_costly(1) == [1]
    model.loss = (2.0, "zero_one")
    assert compare(model, None, y_true, y_pred, None).losses.tolist() == [2.0, 2.0, 0.0]


def test_of_equal_losses_the_shorter_comes_first():
    true = [["a"] * 4, ["a"] * 2, ["a"] * 3, ["a"] * 2]
    outcome = Outcome(False, None, true, true, np.array([1.0, 1.0, 2.0, 1.0]))
    assert outcome.most_costly(10) == [2, 1, 3, 0]


@given(st.lists(st.booleans(), max_size=700))
def test_excerpts(wrong):
    wrong = np.array(wrong, dtype=bool)
    found = find_excerpts(wrong)
    shown = [t for start, stop in found for t in range(start, stop)]
    assert shown == sorted(set(shown))
    assert all(0 <= start < stop <= len(wrong) for start, stop in found) or len(wrong) == 0
    if len(wrong) <= LONG:
        assert shown == list(range(len(wrong)))
        return
    near = {
        s for t in np.flatnonzero(wrong) for s in range(max(0, t - NEAR), t + NEAR + 1)
        if s < len(wrong)
    }  # fmt: skip
    assert set(shown) <= near
    assert shown == sorted(near)[: len(shown)]
    assert len(shown) == min(len(near), MOST_TOKENS)


@given(st.integers(1, 7), st.data())
def test_labels_taken_together_keep_their_counts(n, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    confusion = rng.integers(0, 9, (n, n))
    kept = np.flatnonzero(rng.random(n) < 0.5)
    out = merge_labels(confusion, kept)
    assert out.sum() == confusion.sum()
    np.testing.assert_array_equal(out[:-1, :-1], confusion[np.ix_(kept, kept)])
    np.testing.assert_array_equal(out[:-1].sum(axis=1), confusion[kept].sum(axis=1))


@given(st.floats(0, 1), st.floats(0, 1))
def test_shades_grow_with_the_share(a, b):
    low, high = sorted((a, b))
    first, second = (int(pick_shade(share, "b")[1:] or 0) for share in (low, high))
    assert first <= second <= LEVELS
    assert (first == 0) == (low == 0.0)
    assert pick_shade(1.0, "o") == f"o{LEVELS}"


# Structures of a user's own ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def custom(python_chain):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 2)) for _ in range(6)]
    y = [rng.integers(0, 3, 3) for _ in X]
    return SSVM(python_chain(), max_iter=3, tol=0.5).fit(X, y), X, y


def test_own_structure(custom):
    model, X, y = custom
    predicted = model.predict(X)
    outcome = compare(model, None, y, predicted, None)
    expected = [
        sum(a != b for a, b in zip(s, t, strict=True)) for s, t in zip(y, predicted, strict=True)
    ]
    assert outcome.losses.tolist() == expected
    assert outcome.evaluation.token_accuracy == pytest.approx(1 - sum(expected) / 18)
    assert not outcome.single


def test_own_structure_with_outputs_of_other_lengths(custom, parse):
    model, _, _ = custom

    class Lengths(type(model.structure)):
        def loss(self, y_true, y):
            return float(abs(len(y_true) - len(y)))

    other = model.with_weights(model.weights_)
    other.structure = Lengths()
    page = parse(render_report(other, y_true=[[0, 1], [2]], y_pred=[[0], [2]]))
    assert (
        "The mean loss is 0.5 per example; 50.0\u00a0% of the 2 examples have no loss." in page.text
    )
    rows = page.one(id="errors").one("tbody").all("tr")
    assert [[c.text for c in row.children] for row in rows] == [["1", "1", "0 1", "0"]]
    with pytest.raises(ValueError, match="leave tokens out"):
        render_report(other, y_true=[[0, 1]], y_pred=[[0]], tokens=[["x"]])


def test_own_structure_of_single_labels(python_multiclass):
    X = [np.eye(3)[k] for k in (0, 1, 2)]
    model = SSVM(python_multiclass(), C=10.0).fit(X, [0, 1, 2])
    outcome = compare(model, None, [0, 1, 2], [np.array([0]), np.array([2]), np.array([2])], None)
    assert outcome.single
    assert outcome.losses.tolist() == [0.0, 1.0, 0.0]
    assert outcome.evaluation.token_accuracy == pytest.approx(2 / 3)


# Bad arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y_true": [["O"]]}, ValueError, "y_true is given without y_pred"),
        ({"y_pred": [["O"]]}, ValueError, "y_pred is given without y_true"),
        ({"tokens": [["x"]]}, ValueError, "pass y_true and y_pred"),
        ({"evaluation": {"f1": 1}}, TypeError, "hingeline.evaluation.metrics.evaluate.*got dict"),
        ({"y_true": [["O"]], "y_pred": [["O", "O"]]}, ValueError, r"y_true\[0\] has 1 labels"),
        ({"y_true": ["O"], "y_pred": ["O"]}, TypeError, r"y_true\[0\] is 'O'"),
        (
            {"y_true": [["O"]], "y_pred": [["O"]], "tokens": [["a", "b"]]},
            ValueError,
            r"tokens\[0\] has 2 tokens and y_true\[0\] has 1 labels",
        ),
        (
            {"y_true": [["O"]], "y_pred": [["O"]], "tokens": []},
            ValueError,
            "tokens has 0 entries and y_true has 1",
        ),
        ({"y_true": [["O"]], "y_pred": [["O"]], "tokens": ["a"]}, TypeError, r"tokens\[0\] is 'a'"),
        ({"y_true": [["O"]], "y_pred": [["O"]], "tokens": "a"}, TypeError, "tokens must be a list"),
        ({"n_errors": -1}, ValueError, "n_errors must be an integer ≥ 0"),
        ({"n_features": 1.5}, ValueError, "n_features must be an integer ≥ 0"),
        ({"feature_names": ["a"]}, ValueError, "1 feature names"),
    ],
)
def test_bad_arguments(chain, arguments, error, message):
    with pytest.raises(error, match=message):
        render_report(chain[0], **arguments)


def test_evaluation_of_other_labels(chain):
    found = evaluate([["O", "O"]], [["O", "O"]])
    with pytest.raises(ValueError, match="evaluation is of 2 labels, but y_true has 1"):
        render_report(chain[0], evaluation=found, y_true=[["O"]], y_pred=[["O"]])


def test_labels_of_a_flat_model(flat):
    with pytest.raises(TypeError, match=r"y_pred\[0\] is a list"):
        render_report(flat[0], y_true=["left"], y_pred=[["left"]])
    with pytest.raises(TypeError, match="y_true must be a list of labels"):
        render_report(flat[0], y_true="left", y_pred="left")


def test_other_objects_are_refused(flat):
    from sklearn.exceptions import NotFittedError
    from sklearn.pipeline import make_pipeline

    with pytest.raises(TypeError, match="got Pipeline: for a pipeline, pass its last step"):
        render_report(make_pipeline(flat[0]))
    with pytest.raises(NotFittedError):
        render_report(type(flat[0])())
