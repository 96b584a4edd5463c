"""The evaluation object and its bootstrap intervals."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from hingeline.evaluation.metrics import evaluate, span_f1_score


def tagged(n=60, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    tags = np.array(["B-X", "I-X", "B-Y", "I-Y", "O"])
    y_true, y_pred = [], []
    for _ in range(n):
        labels = rng.choice(tags, size=rng.integers(1, 12))
        y_true.append(labels.tolist())
        wrong = rng.random(len(labels)) < noise
        y_pred.append(np.where(wrong, rng.choice(tags, size=len(labels)), labels).tolist())
    return y_true, y_pred


def test_agrees_with_itself():
    y_true, y_pred = tagged()
    for mode in ("default", "strict"):
        evaluation = evaluate(y_true, y_pred, scheme="BIO", mode=mode)
        scores = evaluate(y_true, y_pred, scheme="IOB2", mode=mode).spans
        assert evaluation.scheme == "IOB2"
        assert evaluation.mode == mode
        assert evaluation.spans == scores
        assert evaluation.span_f1 == scores.micro.f1
        assert scores.micro.f1 == span_f1_score(y_true, y_pred, scheme="BIO", mode=mode)
        assert evaluation.span_precision == scores.micro.precision
        assert evaluation.span_recall == scores.micro.recall
        assert evaluation.per_type == scores.per_type
        assert evaluation.token_accuracy == evaluate(y_true, y_pred, scheme=None).token_accuracy
    right = [a == b for a, b in zip(y_true, y_pred, strict=True)]
    assert evaluation.sequence_accuracy == pytest.approx(np.mean(right))
    assert 0 < np.mean(right) < 1
    assert evaluation.n_sequences == 60
    assert evaluation.n_tokens == sum(map(len, y_true)) == evaluation.confusion.sum()


def test_dictionary_can_be_written_as_json():
    evaluation = evaluate(*tagged(), bootstrap=20)
    found = json.loads(json.dumps(evaluation.to_dict()))
    assert found["span_f1"] == evaluation.span_f1
    assert set(found) >= {
        "token_accuracy",
        "span_f1",
        "span_precision",
        "span_recall",
        "per_label",
        "per_type",
        "confusion",
        "sequence_accuracy",
        "scheme",
        "mode",
        "n_tokens",
        "n_sequences",
        "intervals",
    }
    assert [row["label"] for row in found["per_label"]] == found["confusion"]["labels"]
    assert [row["type"] for row in found["per_type"]] == ["X", "Y"]
    assert np.sum(found["confusion"]["matrix"]) == found["n_tokens"]
    low, high = found["intervals"]["span_f1"]
    assert low < found["span_f1"] < high


@pytest.mark.parametrize("labels", [["NN", "VB"], [0, 1], ["B-X", "NN"]])
def test_labels_that_are_no_tags_have_no_spans(labels):
    evaluation = evaluate([labels], [labels[::-1]], bootstrap=5)
    found = evaluation.to_dict()
    assert found["scheme"] is None
    assert found["span_f1"] is found["span_precision"] is found["span_recall"] is None
    assert found["per_type"] == []
    assert "span_f1" not in found["intervals"]
    assert evaluation.table()[0][0] == "label"
    with pytest.raises(ValueError, match="not span tags: use by='label'"):
        evaluation.table("type")
    json.dumps(found)


def test_numbers_and_texts_are_never_equal_which_is_told():
    with pytest.warns(UserWarning, match="one holds texts and the other none: convert it"):
        assert evaluate([[1, 0]], [["1", "0"]]).token_accuracy == 0.0


def test_spans_can_be_left_out():
    assert evaluate([["B-X"]], [["B-X"]], scheme=None).span_f1 is None


def test_tables_are_text():
    evaluation = evaluate([["B-NP", "I-NP", "O"]], [["B-NP", "I-NP", "B-VP"]], bootstrap=10)
    rows = evaluation.table()
    assert rows[0] == ("type", "precision", "recall", "F1", "support")
    assert rows[1] == ("NP", "1.0000", "1.0000", "1.0000", "1")
    assert [row[0] for row in rows[1:]] == ["NP", "VP", "micro", "macro", "weighted"]
    assert [row[0] for row in evaluation.table("label")[1:]] == ["B-NP", "B-VP", "I-NP", "O"]
    assert ("token accuracy", "0.6667", "0.6667 to 0.6667") in evaluation.summary()
    text = str(evaluation)
    assert "micro        0.5000  1.0000  0.6667        1" in text.splitlines()
    with pytest.raises(ValueError, match="by='x' is not known"):
        evaluation.table("x")


def test_evaluation_is_frozen_and_checks_its_arguments():
    evaluation = evaluate([["O"]], [["O"]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        evaluation.mode = "strict"
    with pytest.raises(ValueError, match=r"mode=.lax. is not known"):
        evaluate([["NN"]], [["NN"]], mode="lax")
    with pytest.raises(ValueError, match="scheme must be one of"):
        evaluate([["O"]], [["O"]], scheme="IOB")


# Intervals ---------------------------------------------------------------------------------------


def test_intervals_are_those_of_sequences_drawn_again():
    """Against a plain bootstrap that copies the drawn sequences and scores them anew."""
    y_true, y_pred = tagged(n=40)
    ours = evaluate(y_true, y_pred, bootstrap=4000, scheme="IOB2", random_state=1).intervals
    rng = np.random.default_rng(2)
    drawn = []
    for _ in range(400):
        which = rng.integers(40, size=40)
        true, predicted = [y_true[i] for i in which], [y_pred[i] for i in which]
        evaluation = evaluate(true, predicted, scheme="IOB2")
        drawn.append(
            (
                evaluation.token_accuracy,
                evaluation.sequence_accuracy,
                evaluation.span_precision,
                evaluation.span_recall,
                evaluation.span_f1,
            )
        )
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    width = high - low
    names = ["token_accuracy", "sequence_accuracy", "span_precision", "span_recall", "span_f1"]
    assert list(ours) == names
    np.testing.assert_array_less(np.abs(low - [ours[name][0] for name in names]), 0.2 * width)
    np.testing.assert_array_less(np.abs(high - [ours[name][1] for name in names]), 0.2 * width)


def test_intervals_are_seeded_and_grow_with_the_level():
    both = tagged()
    first = evaluate(*both, bootstrap=200, random_state=5).intervals
    assert evaluate(*both, bootstrap=200, random_state=5).intervals == first
    assert evaluate(*both, bootstrap=200, random_state=6).intervals != first
    wider = evaluate(*both, bootstrap=200, level=0.99, random_state=5).intervals
    assert wider["span_f1"][0] < first["span_f1"][0] < first["span_f1"][1] < wider["span_f1"][1]


def test_intervals_do_not_depend_on_the_blocks(monkeypatch):
    both = tagged()
    whole = evaluate(*both, bootstrap=50).intervals
    monkeypatch.setattr("hingeline.evaluation.metrics._BLOCK", 500)
    blocks = evaluate(*both, bootstrap=50).intervals
    for name, interval in whole.items():
        assert blocks[name] == pytest.approx(interval)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="bootstrap must be a number of resamples, got -1"):
        evaluate([["O"]], [["O"]], bootstrap=-1)
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 95"):
        evaluate([["O"]], [["O"]], bootstrap=1, level=95)
