"""Scores of spans and labels, against seqeval, conlleval's counting and scikit-learn."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import make_scorer
from sklearn.model_selection import cross_val_score

import conlleval
from hingeline import ChainSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import evaluate, iou_score, scorer, span_f1_score

PREFIXES = {
    "IOB1": "BI",
    "IOB2": "BI",
    "IOE1": "IE",
    "IOE2": "IE",
    "IOBES": "BIES",
    "BILOU": "BILU",
}


def span_scores(*both, **options):
    return evaluate(*both, **options).spans


def confusion_matrix(*both):
    found = evaluate(*both, scheme=None)
    return list(found.labels), found.confusion


def per_label(*both):
    return evaluate(*both, scheme=None).per_label


def token_accuracy(*both):
    return evaluate(*both, scheme=None).token_accuracy


@st.composite
def predictions(draw, prefixes):
    """Label sequences of both sides, valid or not; the predicted ones often agree."""
    tags = ["O"] + [f"{prefix}-{kind}" for prefix in prefixes for kind in ("X", "Y", "a-b")]
    tag = st.sampled_from(tags)
    y_true = draw(st.lists(st.lists(tag, min_size=1, max_size=8), min_size=1, max_size=6))
    y_pred = [
        [draw(tag) if draw(st.integers(0, 3)) == 0 else label for label in labels]
        for labels in y_true
    ]
    return y_true, y_pred


def assert_equal_to_seqeval(scores, reference, y_true, y_pred, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = reference(y_true, y_pred, average=None, **options)
        assert len(scores.per_type) == len(columns[0])
        for score, row in zip(scores.per_type, zip(*columns, strict=True), strict=True):
            ours = (score.precision, score.recall, score.f1, score.support)
            assert ours == pytest.approx(row, abs=1e-12)
        if not scores.per_type:  # seqeval's averages of nothing are undefined
            assert scores.micro.f1 == scores.macro.f1 == scores.weighted.f1 == 0.0
            return
        for average in ("micro", "macro", "weighted"):
            score = getattr(scores, average)
            ours = (score.precision, score.recall, score.f1, score.support)
            row = reference(y_true, y_pred, average=average, **options)
            assert ours == pytest.approx(row, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_default_mode_is_seqevals(data):
    metrics = pytest.importorskip("seqeval.metrics.sequence_labeling")
    scheme = data.draw(st.sampled_from([name for name in PREFIXES if name != "BILOU"]))
    y_true, y_pred = data.draw(predictions(PREFIXES[scheme]))
    scores = span_scores(y_true, y_pred, scheme=scheme)
    assert_equal_to_seqeval(scores, metrics.precision_recall_fscore_support, y_true, y_pred)


@settings(deadline=None, max_examples=50)
@given(predictions("BILU"))
def test_default_mode_reads_bilou_as_iobes(both):
    metrics = pytest.importorskip("seqeval.metrics.sequence_labeling")
    known = str.maketrans("LU", "ES")
    as_iobes = [[[t[0].translate(known) + t[1:] for t in labels] for labels in y] for y in both]
    scores = span_scores(*both, scheme="BILOU")
    assert_equal_to_seqeval(scores, metrics.precision_recall_fscore_support, *as_iobes)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_strict_mode_is_seqevals(data):
    metrics = pytest.importorskip("seqeval.metrics.v1")
    schemes = pytest.importorskip("seqeval.scheme")
    scheme = data.draw(st.sampled_from(list(PREFIXES)))
    y_true, y_pred = data.draw(predictions(PREFIXES[scheme]))
    scores = span_scores(y_true, y_pred, scheme=scheme, mode="strict")
    assert_equal_to_seqeval(
        scores,
        metrics.precision_recall_fscore_support,
        y_true,
        y_pred,
        scheme=getattr(schemes, scheme),
    )


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["BI", "IE", "I"]).flatmap(predictions))
def test_default_mode_is_conllevals(both):
    scores = span_scores(*both)
    ours = {s.name: [s.correct, s.predicted, s.support] for s in scores.per_type}
    assert ours == conlleval.counts(*both)


def test_scores_by_hand():
    y_true = [["B-NP", "I-NP", "O", "B-VP"], ["B-NP", "B-NP"]]
    y_pred = [["B-NP", "I-NP", "B-VP", "I-VP"], ["B-NP", "I-NP"]]
    scores = span_scores(y_true, y_pred)
    np_, vp = scores.per_type
    assert (np_.name, np_.correct, np_.predicted, np_.support) == ("NP", 1, 2, 3)
    assert (vp.name, vp.correct, vp.predicted, vp.support) == ("VP", 0, 1, 1)
    assert scores.micro.precision == pytest.approx(1 / 3)
    assert scores.micro.recall == pytest.approx(1 / 4)
    assert scores.micro.f1 == pytest.approx(2 / 7)
    assert scores.macro.f1 == pytest.approx(0.2)
    assert scores.weighted.recall == pytest.approx(0.25)
    assert token_accuracy(y_true, y_pred) == pytest.approx(3 / 6)
    assert span_f1_score(y_true, y_pred) == pytest.approx(2 / 7)
    assert span_f1_score(y_true, y_pred, average="macro") == pytest.approx(0.2)


def test_spans_do_not_cross_sequences():
    assert span_f1_score([["B-X"], ["I-X"]], [["B-X"], ["B-X"]], scheme="IOB2") == 1.0


def test_nothing_but_o_scores_zero_in_both_modes():
    for mode in ("default", "strict"):
        assert span_f1_score([["O", "O"]], [["O", "O"]], mode=mode) == 0.0


def test_the_scheme_is_found_by_the_true_labels():
    # Predictions of I after O are many, yet the truth is IOB2: strictly they are no spans.
    y_true = [["B-X", "I-X", "O"]] * 2
    y_pred = [["I-X", "I-X", "O"], ["O", "I-X", "O"]]
    assert span_scores(y_true, y_pred, mode="strict").micro.predicted == 0


@settings(deadline=None, max_examples=60)
@given(predictions("BIES"))
def test_labels_are_scored_as_scikit_learn_does(both):
    flat = [[label for labels in side for label in labels] for side in both]
    labels, matrix = confusion_matrix(*both)
    assert labels == sorted(set(flat[0]) | set(flat[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single label
        theirs = sklearn.metrics.confusion_matrix(*flat, labels=labels)
    np.testing.assert_array_equal(matrix, theirs)
    expected = sklearn.metrics.precision_recall_fscore_support(
        *flat, labels=labels, average=None, zero_division=0
    )
    rows = per_label(*both)
    assert [row.name for row in rows] == labels
    ours = np.array([(r.precision, r.recall, r.f1, r.support) for r in rows]).T
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    assert token_accuracy(*both) == pytest.approx(sklearn.metrics.accuracy_score(*flat))


def test_labels_may_be_anything_hashable():
    labels, matrix = confusion_matrix([np.array([2, 1]), [1]], [[1, 1], np.array([np.int32(3)])])
    assert labels == [1, 2, 3]
    assert type(labels[0]) is int
    assert matrix.tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert confusion_matrix([["a", 1]], [["a", "a"]])[0] == ["a", 1]


def test_usable_as_a_scorer():
    rng = np.random.default_rng(0)
    y = [rng.choice(["B-X", "I-X", "O"], size=rng.integers(2, 5)).tolist() for _ in range(30)]
    X = [np.array([[label == c for c in ("B-X", "I-X", "O")] for label in seq], float) for seq in y]
    scores = cross_val_score(ChainSSVM(C=10.0), X, y, cv=3, scoring=make_scorer(span_f1_score))
    assert scores.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("y_true", "y_pred", "error", "message"),
    [
        ([["O"]], [["O"], ["O"]], ValueError, "y_true has 1 sequences and y_pred has 2"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], ValueError, r"y_true\[1\] has 2 labels and y_pred"),
        ([], [], ValueError, "y_true is empty"),
        ([[]], [[]], ValueError, "y_true is empty"),
        (["O", "O"], ["O", "O"], TypeError, r"y_true\[0\] is 'O', not a sequence of labels"),
        ([["O"]], [3], TypeError, r"y_pred\[0\] is 3, not a sequence"),
        ("OO", [["O"]], TypeError, "y_true must be a list of label sequences, got str"),
        (None, [["O"]], TypeError, "y_true must be a list of label sequences, got NoneType"),
        ([[["O"]]], [["O"]], TypeError, "a label is not hashable"),
    ],
)
def test_bad_input_is_named(y_true, y_pred, error, message):
    with pytest.raises(error, match=message):
        token_accuracy(y_true, y_pred)


def test_labels_that_are_no_tags_are_named():
    with pytest.raises(ValueError, match=r"not span tags of one scheme \(NN, VB\): use evaluate"):
        span_f1_score([["NN"]], [["VB"]])
    with pytest.raises(ValueError, match="'NN' is not a span tag, so spans by IOB2"):
        span_f1_score([["NN"]], [["VB"]], scheme="IOB2")
    with pytest.raises(ValueError, match=r"average=.mean. is not known"):
        span_f1_score([["O"]], [["O"]], average="mean")


def test_linear_time():
    rng = np.random.default_rng(0)
    tags = np.array(["O"] + [f"{p}-{k}" for p in "BI" for k in "abcdefghijk"])
    y_true, y_pred = (
        [tags[rng.integers(len(tags), size=24)].tolist() for _ in range(4000)] for _ in range(2)
    )

    def best_time(n: int, mode: str) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            span_scores(y_true[:n], y_pred[:n], mode=mode)
            times.append(time.process_time() - start)
        return min(times)

    for mode in ("default", "strict"):
        assert best_time(4000, mode) < 24 * best_time(500, mode)  # 8 times as many; 64 if squared


def test_segments_of_plain_labels():
    """Runs of one label, counted by hand."""
    true = [["A", "A", "B", "O", "A"], ["B", "B"], [], ["O"]]
    predicted = [["A", "A", "B", "B", "A"], ["A", "B"], [], ["O"]]
    found = evaluate(true, predicted, scheme="segments")
    assert [(s.name, s.correct, s.predicted, s.support) for s in found.per_type] == [
        ("A", 2, 3, 2),
        ("B", 0, 2, 2),
    ]
    assert found.span_f1 == 2 * 2 / (5 + 4)
    numbers = [[1, 1, 2]], [[1, 2, 2]]
    assert evaluate(*numbers, scheme="segments").span_f1 == 0.0
    assert evaluate(*numbers).span_f1 is None


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_intersection_over_union(labels):
    true, predicted = ([pair[k] for pair in labels] for k in (0, 1))
    union = sorted({*true, *predicted})
    want = sklearn.metrics.jaccard_score(true, predicted, labels=union, average=None)
    assert np.isclose(iou_score([true], [predicted]), want.mean())
    found = evaluate([true], [predicted], scheme=None).per_label
    assert np.allclose([score.iou for score in found], want)


def test_pictures_whose_nodes_are_of_different_size():
    true, predicted = [["sky", "sea", "?"]], [["sky", "sky", "sea"]]
    assert iou_score(true, predicted, void_label="?") == 0.25
    weights = [np.array([9.0, 1.0, 5.0])]
    assert iou_score(true, predicted, weights=weights, void_label="?") == 0.45
    with pytest.raises(ValueError, match="weights has 3 entries, but there are 2 labels"):
        iou_score([["a", "b"]], [["a", "b"]], weights=weights)


def test_scores_by_name():
    rng = np.random.default_rng(0)
    y = [["O", "B-X", "I-X", "O"][: rng.integers(1, 5)] for _ in range(12)]
    X = [rng.normal(size=(len(labels), 3)) for labels in y]
    tagger = ChainSSVM(random_state=0).fit(X, y)
    found = evaluate(y, tagger.predict(X))
    names = ("token_accuracy", "sequence_accuracy", "span_precision", "span_recall", "span_f1")
    for name in names:
        assert scorer(name)(tagger, X, y) == getattr(found, name)
    assert scorer("span_f1_macro")(tagger, X, y) == found.spans.macro.f1
    segments = evaluate(y, tagger.predict(X), scheme="segments")
    assert scorer("segment_f1")(tagger, X, y) == segments.span_f1
    assert scorer("iou")(tagger, X, y) == iou_score(y, tagger.predict(X))
    assert len(cross_val_score(ChainSSVM(), X, y, cv=2, scoring=scorer("span_f1"))) == 2
    sets = np.eye(4, dtype=int)[:, :3]
    model = MultilabelSSVM(random_state=0).fit(np.eye(4), sets)
    wrong = np.roll(sets, 1, axis=0)
    assert scorer("hamming_loss")(model, np.eye(4), wrong) == -np.mean(
        model.predict(np.eye(4)) != wrong
    )
    with pytest.raises(ValueError, match="name='f1' is not known; choose one of 'token_accuracy'"):
        scorer("f1")
