"""CRFsuite's attributes: escapes, values, errors by line, round trips."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data import ParseError, read_crfsuite, write_crfsuite

MANY = settings(max_examples=50, deadline=None, derandomize=True)


def read(text):
    return read_crfsuite(io.StringIO(text))


def test_sequences_values_and_escapes():
    X, y = read("B-NP\tw[0]=He\tlen:2\nO\tw[0]=\\:\tw[0]=\\\\\tx:0.5\tx:0.25\ty:\n\n\nO\\:P\n")
    assert y == [["B-NP", "O"], ["O:P"]]
    assert X == [
        [{"w[0]=He": 1.0, "len": 2.0}, {"w[0]=:": 1.0, "w[0]=\\": 1.0, "x": 0.75, "y": 1.0}],
        [{}],
    ]


def test_blank_fields_and_line_ends_do_not_matter():
    assert read("A\tx\t\ty\t\r\n \t\r\nB\tx") == read("A\tx\ty\n\nB\tx\n\n")
    assert read("") == ([], [])


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("A\tx\nA\tu=http://a:b\n", 2, "'u=http://a:b' has more than one colon, or ends in a back"),
        ("A\tx\n\nA\tx:y\n", 3, "'y' in 'x:y' is not a finite number; write \\: for a colon"),
        ("A\tx:nan\n", 1, "'nan' in 'x:nan' is not a finite number"),
        ("A\tx:1_0\n", 1, "'1_0' in 'x:1_0' is not a finite number"),
        ("A\tx:1e999\n", 1, "'1e999' in 'x:1e999' is not a finite number"),
        ("A\tx\\\n", 1, "'x\\\\' has more than one colon, or ends in a backslash"),
        ("A\t:2\n", 1, "':2' has no name before the colon; add it"),
        ("A:1\tx\n", 1, "the label 'A:1' has a bare colon or ends in a backslash; write \\: for"),
        ("A\tx\n\tx\n", 2, "there is no label before the first tab; write any label where"),
    ],
)
def test_errors_name_the_line(text, line, problem):
    with pytest.raises(ParseError) as caught:
        read(text)
    assert caught.value.problem.startswith(problem)
    assert caught.value.line == line


names = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\ufeff"), min_size=1).filter(
    lambda name: name.strip(" ")
) | st.sampled_from([":", "\\", "a\\:b", "\\\\:", "::"])
numbers = st.floats(allow_nan=False, allow_infinity=False)
tokens = st.tuples(names, st.dictionaries(names, numbers, max_size=3))


@MANY
@given(st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=3))
def test_round_trip(sequences):
    X = [[attributes for _, attributes in sequence] for sequence in sequences]
    y = [[label for label, _ in sequence] for sequence in sequences]
    out = io.StringIO()
    write_crfsuite(out, X, y)
    assert read(out.getvalue()) == (X, y)


def test_lists_of_attributes_and_no_labels():
    out = io.StringIO()
    write_crfsuite(out, [[["a", "b:"], {"c": True, "d": 2}]])
    assert out.getvalue() == "O\ta\tb\\:\nO\tc\td:2\n\n"


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[{"a": 1}]], [["A", "B"]], r"X\[0\] has 1 tokens and y\[0\] has 2 labels"),
        ([[{"a": 1}]], [], "X has 1 sequences and y has 0"),
        ([[]], [[]], r"X\[0\] has 0 tokens"),
        ([[{"a": ["b"]}]], [["A"]], r"X\[0\]\[0\] has the value \['b'\] for 'a'.*or texts"),
        ([[{"a": float("nan")}]], [["A"]], "has the value nan"),
        ([[{"a\tb": 1}]], [["A"]], r"X\[0\]\[0\] has 'a\\tb': names and labels must be text"),
        ([[{"": 1}]], [["A"]], r"X\[0\]\[0\] has ''"),
        ([[{"a": 1}]], [[" "]], r"y\[0\]\[0\] has ' '"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, X, y, message):
    with pytest.raises(ValueError, match=message):
        write_crfsuite(tmp_path / "out", X, y)
    assert os.listdir(tmp_path) == []


def test_what_is_read_is_what_the_peer_trains_on(tmp_path):
    crfsuite = pytest.importorskip("pycrfsuite")
    X, y = read("A\tw=a\tn:2\nB\tw=\\:\n\n" * 3)
    trainer = crfsuite.Trainer(verbose=False)
    for tokens_, labels in zip(X, y, strict=True):
        trainer.append(tokens_, labels)
    trainer.train(str(tmp_path / "model"))
    tagger = crfsuite.Tagger()
    with tagger.open(str(tmp_path / "model")):
        assert tagger.tag(X[0]) == y[0]
        assert set(dict(tagger.info().attributes)) == {"w=a", "n", "w=:"}


def test_texts_as_values_are_written_as_python_crfsuite_means_them(tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    token = {"word": "La", "a:b": "c\\d", "n": 2.5, "yes": True, "no": False}
    write_crfsuite(tmp_path / "out", [[token]], [["O"]])
    X, _ = read_crfsuite(tmp_path / "out")
    assert X[0] == pycrfsuite.ItemSequence([token]).items()
