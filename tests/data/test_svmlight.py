"""SVMlight, LIBSVM multi-label and SVM^hmm: against scikit-learn, errors by line, round trips."""

from __future__ import annotations

import io
import os
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from hingeline.data import (
    ParseError,
    read_multilabel,
    read_svmhmm,
    read_svmlight,
    write_multilabel,
    write_svmhmm,
    write_svmlight,
)
from hingeline.features.tables import SparseSequences

MANY = settings(max_examples=50, deadline=None, derandomize=True)

READERS = {"svmlight": read_svmlight, "multilabel": read_multilabel, "svmhmm": read_svmhmm}
numbers = st.floats(allow_nan=False, allow_infinity=False)
matrices = hnp.arrays(
    float, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.just(0.0) | numbers
)


def read(reader, text, **kwargs):
    return READERS[reader](io.StringIO(text), **kwargs)


def written(writer, *args, **kwargs):
    out = io.StringIO()
    writer(out, *args, **kwargs)
    return out.getvalue()


def test_rows_labels_queries_and_comments():
    data = read("svmlight", "# head\n+1 qid:4 1:0.5 3:-2e1 # a # b\n\n-1.5 qid:5\n")
    assert data.X.toarray().tolist() == [[0.5, 0, -20], [0, 0, 0]]
    assert data.y.tolist() == [1.0, -1.5]
    assert data.qid.tolist() == [4, 5]
    assert data.comments == ["a # b", ""]
    plain = read("svmlight", "1\t1:1\r\n2 2:1")
    assert plain.y.dtype == np.int64
    assert (plain.qid, plain.comments) == (None, None)


def test_features_are_numbered_from_one_unless_zero_occurs():
    assert read("svmlight", "1 1:5\n").X.toarray().tolist() == [[5]]
    assert read("svmlight", "1 1:5\n2 0:3\n").X.toarray().tolist() == [[0, 5], [3, 0]]
    assert read("svmlight", "1 1:5\n", zero_based=True).X.toarray().tolist() == [[0, 5]]
    assert read("svmlight", "1 1:5\n", n_features=3).X.shape == (1, 3)
    with pytest.raises(ValueError, match="zero_based must be True, False or 'auto', got 'no'"):
        read("svmlight", "1 1:5\n", zero_based="no")


@MANY
@given(matrices, st.booleans(), st.data())
def test_against_scikit_learn(X, zero_based, draw):
    X = np.clip(X, -1e300, 1e300)  # theirs writes 16 digits, which rounds the largest to infinity
    y = draw.draw(hnp.arrays(np.int64, len(X), elements=st.integers(-99, 99)))
    theirs = io.BytesIO()
    dump_svmlight_file(X, y, theirs, zero_based=zero_based)
    data = theirs.getvalue()
    ours = read_svmlight(io.BytesIO(data), n_features=X.shape[1], zero_based=zero_based)
    expected, labels = load_svmlight_file(
        io.BytesIO(data), n_features=X.shape[1], zero_based=zero_based
    )
    assert np.array_equal(ours.X.toarray(), expected.toarray())
    assert np.array_equal(ours.y, labels)
    text = written(write_svmlight, X, y, zero_based=zero_based)
    back, labels = load_svmlight_file(
        io.BytesIO(text.encode()), n_features=X.shape[1], zero_based=zero_based
    )
    # Theirs reads some numbers in the last digit otherwise than Python does.
    assert np.allclose(back.toarray(), X, rtol=1e-15, atol=0)
    assert np.array_equal(labels, y)


@MANY
@given(matrices, st.data())
def test_round_trip(X, draw):
    y = draw.draw(hnp.arrays(float, len(X), elements=numbers))
    qid = draw.draw(st.none() | hnp.arrays(np.int64, len(X), elements=st.integers(0, 9)))
    comments = draw.draw(
        st.none() | st.lists(st.sampled_from(["x", "a # b"]), min_size=len(X), max_size=len(X))
    )
    text = written(write_svmlight, sp.csr_matrix(X), y, qid=qid, comments=comments)
    data = read("svmlight", text, n_features=X.shape[1], zero_based=False)
    assert np.array_equal(data.X.toarray(), X)
    assert np.array_equal(data.y, y)
    assert (data.qid is None) == (qid is None)
    assert qid is None or np.array_equal(data.qid, qid)
    assert data.comments == comments


def test_label_sets():
    data = read("multilabel", "1,3 1:1\n 2:5\n0 1:1 # note\n3,3\n")
    assert data.Y.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert data.X.toarray().tolist() == [[1, 0], [0, 5], [1, 0], [0, 0]]
    assert data.Y.dtype == np.uint8


@MANY
@given(matrices, st.data())
def test_round_trip_of_label_sets(X, draw):
    X[:, 0] = 1.0  # a row with neither labels nor features has no line
    Y = draw.draw(hnp.arrays(np.uint8, (len(X), 4), elements=st.integers(0, 1)))
    data = read("multilabel", written(write_multilabel, X, Y), n_features=X.shape[1], n_labels=4)
    assert np.array_equal(data.X.toarray(), X)
    assert np.array_equal(data.Y.toarray(), Y)


def test_sequences():
    X, y = read("svmhmm", "B qid:1 3:1 # He\nI-x qid:1 4:2\n1 qid:7 3:1\n")
    assert y == [["B", "I-x"], ["1"]]
    assert X.matrix.toarray().tolist() == [[0, 0, 1, 0], [0, 0, 0, 2], [0, 0, 1, 0]]
    assert X.offsets.tolist() == [0, 2, 3]
    X, y = read("svmhmm", "")
    assert (len(X), y) == (0, [])


@MANY
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_round_trip_of_sequences(lengths, draw):
    n = sum(lengths)
    X = draw.draw(hnp.arrays(float, (n, 3), elements=numbers))
    tags = draw.draw(st.lists(st.sampled_from(["1", "22", "B-NP", "é"]), min_size=n, max_size=n))
    offsets = np.cumsum([0, *lengths])
    y = [tags[lo:hi] for lo, hi in pairwise(offsets.tolist())]
    text = written(write_svmhmm, SparseSequences(sp.csr_matrix(X), offsets), y)
    back, labels = read("svmhmm", text, n_features=3, zero_based=False)
    assert np.array_equal(back.matrix.toarray(), X)
    assert back.offsets.tolist() == offsets.tolist()
    assert labels == y


@pytest.mark.parametrize(
    ("reader", "text", "line", "problem"),
    [
        ("svmlight", "1 1:1\nx 1:1\n", 2, "the label 'x' is not a number; correct the line"),
        ("svmlight", "1_0 1:1\n", 1, "the label '1_0' is not a number"),
        ("svmlight", "nan 1:1\n", 1, "the label 'nan' is not a number"),
        ("svmlight", "\n1:1\n", 2, "there is no label; correct the line"),
        ("svmlight", "1 1:1 2\n", 1, "'2' is not an index:value pair of numbers; correct"),
        ("svmlight", "1 1:1:1\n", 1, "'1:1:1' is not an index:value pair"),
        ("svmlight", "1 1:2:3 4\n", 1, "'1:2:3' is not an index:value pair"),
        ("svmlight", "1 a:1\n", 1, "'a:1' is not an index:value pair"),
        ("svmlight", "1 1.5:1\n", 1, "'1.5:1' is not an index:value pair"),
        ("svmlight", "1 1:x\n", 1, "'1:x' is not an index:value pair"),
        ("svmlight", "1 1:\n", 1, "'1:' is not an index:value pair"),
        ("svmlight", "1 1_0:1\n", 1, "'1_0:1' is not an index:value pair"),
        ("svmlight", "1 99999999999999999999:1\n", 1, "'99999999999999999999:1' is not an"),
        ("svmlight", "1 1 : 1\n", 1, "'1' is not an index:value pair"),
        ("svmlight", "1 qid:x 1:1\n", 1, "'qid:x' is not an index:value pair"),
        ("svmlight", "1 qid:\n", 1, "'qid:' is not an index:value pair"),
        ("svmlight", "1 1:1 qid:2\n", 1, "'qid:2' is not an index:value pair"),
        ("svmlight", "1 qid:1 1:1\n\n2 1:1\n", 3, "some lines have a qid and some have none"),
        ("svmlight", "1 1:1\n2 qid:1 1:1\n", 2, "some lines have a qid and some have none"),
        ("svmlight", "1 1:1\n1 2:1 2:1\n", 2, "index 2 follows 2; sort the features of a line"),
        ("svmlight", "1\n1 3:1 2:1\n", 2, "index 2 follows 3"),
        ("svmlight", "1 -1:1\n", 1, "index -1 is less than 1; number from 1"),
        ("svmlight", "1 2147483648:1\n", 1, "index 2147483648 is more than 2147483646; renumber"),
        ("svmlight", "1 1:1\n1\n1 3:inf\n", 3, "the value of index 3 is inf; leave out"),
        ("svmlight", "1 1:1e999\n", 1, "the value of index 1 is inf"),
        ("multilabel", "1 1:1\n1,x 1:1\n", 2, "the label 'x' is not a whole number from 0 to"),
        ("multilabel", "1,,2 1:1\n", 1, "the label '' is not a whole number"),
        ("multilabel", "-1 1:1\n", 1, "the label '-1' is not a whole number"),
        ("multilabel", "1 1:1\n2147483647 1:1\n", 2, "the label '2147483647' is not a whole"),
        ("svmhmm", "# x\n1 1:1\n", 2, "there is no qid:N after the tag; number the sequences"),
        ("svmhmm", "1 qid:1\n1 qid:2\n1 qid:1\n", 3, "qid:1 occurred before; put the lines of"),
        ("svmhmm", "1 qid:1\nqid:1 1:1\n", 2, "there is no tag; add it"),
    ],
)
def test_errors_name_the_line(reader, text, line, problem):
    with pytest.raises(ParseError) as caught:
        read(reader, text)
    assert caught.value.problem.startswith(problem)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("reader", "text", "options", "message"),
    [
        ("svmlight", "1 1:1\n1 0:1\n", {"zero_based": False}, "2: index 0 is less than 1; .*True"),
        ("svmlight", "1 1:1\n1 4:1\n", {"n_features": 3}, "2: index 4 is more than 3; raise n_fea"),
        ("multilabel", "3 1:1\n", {"n_labels": 3}, "1: the label '3' .* 0 to 2; raise n_labels"),
    ],
)
def test_errors_by_the_options(reader, text, options, message):
    with pytest.raises(ParseError, match=message):
        read(reader, text, **options)


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("svmlight", "1 2147483646:1\n"),
        ("multilabel", "2147483646 2147483646:1\n"),
        ("svmhmm", "1 qid:9223372036854775807 2147483646:1\n"),
    ],
)
def test_a_huge_number_allocates_nothing(reader, text):
    tracemalloc.start()
    data = read(reader, text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
    assert getattr(data.X, "matrix", data.X).shape == (1, 2147483646)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda t: write_svmlight(t, [[1.0]], ["a"]), "y must be finite numbers"),
        (lambda t: write_svmlight(t, [[1.0]], [np.nan]), "y must be finite numbers"),
        (lambda t: write_svmlight(t, [[np.inf]], [1]), "X contains infinity"),
        (lambda t: write_svmlight(t, [[1.0]], [1, 2]), "X has 1 rows, but there are 2 labels"),
        (lambda t: write_svmlight(t, [[1.0]], [1], comments=["a\nb"]), "comment 0 has a line end"),
        (lambda t: write_svmlight(t, [[1.0]], [1], comments=[]), "X has 1 rows, but there are 0"),
        (lambda t: write_multilabel(t, [[0.0]], [[0]]), "row 0 has neither labels nor features"),
        (
            lambda t: write_svmhmm(t, SparseSequences(sp.csr_matrix([[1.0]]), [0, 1]), [["a b"]]),
            r"y\[0\] has the label 'a b', which this format cannot hold",
        ),
        (
            lambda t: write_svmhmm(t, SparseSequences(sp.csr_matrix([[1.0]]), [0, 1]), [["a"] * 2]),
            r"X\[0\] has 1 tokens and y\[0\] has 2 labels",
        ),
        (
            lambda t: write_svmhmm(t, SparseSequences(sp.csr_matrix([[1.0]]), [0, 1]), []),
            "X has 1 sequences and y has 0",
        ),
    ],
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, write, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "out")
    assert os.listdir(tmp_path) == []
