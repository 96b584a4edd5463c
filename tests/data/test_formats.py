"""The register of formats, and conversion between them."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline import data
from hingeline.data import (
    FORMATS,
    LabelledSequences,
    MultilabelData,
    ParseError,
    Tree,
    Vocabulary,
    convert,
    read_any,
    read_arff,
    read_conll,
    read_conllu,
    read_crfsuite,
    read_multilabel,
    read_svmhmm,
    read_svmlight,
    read_vocabulary,
    write_vocabulary,
)
from hingeline.data.formats import targets_of
from hingeline.features import TokenTable

MANY = settings(max_examples=50, deadline=None, derandomize=True)

CONLL = "He PRP B-NP\nran VBD B-VP\n\nYes UH O\n\n"
ARFF = """\
@relation r
@attribute 'a b' real
@attribute c real
@attribute l {0,1}
@attribute m {0,1}
@data
{0 2,3 1}
{1 -1.5,2 1,3 1}
"""


def converted(text, to, **kwargs):
    out = io.BytesIO()
    vocabulary = convert(io.BytesIO(text.encode()), out, to, **kwargs)
    return out.getvalue().decode(), vocabulary


def test_kinds():
    assert {f.kind for f in FORMATS.values()} == {
        "tokens",
        "sequences",
        "flat",
        "multilabel",
        "trees",
    }
    assert targets_of("conll") == ["conll", "conllu", "csv", "jsonl", "crfsuite", "svmhmm"]
    assert targets_of("letters") == ["crfsuite", "svmhmm"]
    assert targets_of("idx") == ["svmlight"]
    assert targets_of("arff") == ["multilabel", "arff"]


def test_reading_by_name_and_by_guess():
    for name in ("auto", "conll"):
        found, table = read_any(io.StringIO(CONLL), name)
        assert found.name == "conll"
        assert isinstance(table, TokenTable)
        assert len(table) == 2
    _, table = read_any(io.StringIO(CONLL), names=["w", "p", "c"], separator=None)
    assert table.names == ("w", "p", "c")
    with pytest.raises(ValueError, match="there is no format 'connl': there are conll, conllu"):
        read_any(io.StringIO(CONLL), "connl")
    with pytest.raises(ValueError, match="'conll' has no option 'labels': it has names, separator"):
        read_any(io.StringIO(CONLL), labels=3)


def test_standard_input_is_guessed_and_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CONLL.encode())))
    found, table = read_any("-")
    assert (found.name, len(table)) == ("conll", 2)


def test_tokens_to_tokens():
    text, _ = converted(CONLL, "conllu")
    table = read_conllu(io.StringIO(text)).table
    assert table.select(["form", "upos", "misc"])[0] == [
        ("He", "PRP", "col2=B-NP"),
        ("ran", "VBD", "col2=B-VP"),
    ]
    back, _ = converted(text, "conll", columns=["form", "upos"])
    assert back == "He PRP\nran VBD\n\nYes UH\n\n"
    only, _ = converted("a\nb\n", "conllu")
    assert read_conllu(io.StringIO(only)).table.sentences("form") == [["a", "b"]]
    assert converted(CONLL, "conll") == (CONLL, None)
    again, _ = converted(text, "conllu", columns=["form", "upos"])
    assert "col2" not in again


def test_tokens_to_sequences():
    text, _ = converted(CONLL, "crfsuite", names=["word", "pos", "chunk"])
    assert text.startswith("B-NP\tword=He\tpos=PRP\nB-VP\tword=ran\tpos=VBD\n\nO\t")
    with pytest.raises(ValueError, match="there is only one column"):
        converted("a\n", "crfsuite")


def test_names_to_numbers_and_back():
    text, vocabulary = converted(CONLL, "svmhmm")
    X, y = read_svmhmm(io.StringIO(text))
    assert vocabulary.labels == ("B-NP", "B-VP", "O")
    assert y == [["1", "2"], ["3"]]
    assert X.matrix.sum() == 6
    back, _ = converted(text, "crfsuite", vocabulary=vocabulary)
    assert back == converted(CONLL, "crfsuite")[0]
    numbers, none = converted(text, "crfsuite")
    assert none is None
    assert numbers.startswith("1\t1\t2\n2\t3\t4\n")


def test_a_test_file_is_numbered_as_the_training_file():
    _, vocabulary = converted("A\tw=a\nB\tw=b\n", "svmhmm")
    text, same = converted("B\tw=b\tw=new\n", "svmhmm", vocabulary=vocabulary)
    assert text == "2 qid:1 2:1\n"
    assert same is vocabulary
    with pytest.raises(ValueError, match="the label 'C' is not in the vocabulary"):
        converted("C\tw=b\n", "svmhmm", vocabulary=vocabulary)
    with pytest.raises(ValueError, match="there is a feature 3, but the vocabulary has 2"):
        converted("1 qid:1 3:1\n", "crfsuite", vocabulary=vocabulary)


def test_a_huge_feature_number_needs_no_names():
    text, _ = converted("1 qid:1 2147483646:1\n", "crfsuite")
    assert text == "1\t2147483646\n\n"
    text, vocabulary = converted("B qid:1 2147483646:1\n", "svmhmm")
    assert text == "1 qid:1 2147483646:1\n"
    assert vocabulary == Vocabulary((), ("B",))


def test_letters_to_sequences():
    line = "\t".join(["1", "o", "-1", "1", "1", "0", *"01" * 64]) + "\t\n"
    text, vocabulary = converted(line, "svmhmm")
    assert text.startswith("1 qid:1 2:1 4:1 6:1")
    assert vocabulary.labels == ("o",)
    assert converted(line, "crfsuite")[0].startswith("o\t2\t4\t6")


def test_trees_to_tokens():
    trees = "(S (NP (-NONE- *)) (VP (VB go)))\n(X (-NONE- *))\n"
    assert converted(trees, "conll")[0] == "go VB\n\n"
    assert converted(trees, "crfsuite")[0] == "VB\tword=go\n\n"
    assert converted(trees, "trees")[0] == trees
    _, data = read_any(io.StringIO(trees))
    assert isinstance(data[0], Tree)


def test_arff_and_label_sets(tmp_path):
    (tmp_path / "in.arff").write_text(ARFF)
    convert(tmp_path / "in.arff", tmp_path / "out.svm", "multilabel", labels=["l", "m"])
    assert (tmp_path / "out.svm").read_text() == "1 1:2\n0,1 2:-1.5\n"
    convert(tmp_path / "out.svm", tmp_path / "back.arff.gz", "arff")
    found, back = read_any(tmp_path / "back.arff.gz")  # the labels are found in back.xml
    assert found.name == "arff"
    given_ = read_arff(tmp_path / "in.arff", -2)
    assert (back.X != given_.X).nnz == (back.Y != given_.Y).nnz == 0
    assert back.label_names == ["label0", "label1"]
    assert (tmp_path / "back.xml").exists()
    with pytest.raises(ValueError, match=r"which of its attributes are labels: .* -6 if"):
        read_any(tmp_path / "in.arff")


def test_labels_of_mulan_are_found_for_both_parts(tmp_path):
    for part in ("-train.arff", "-test.arff"):
        (tmp_path / f"x{part}").write_text(ARFF)
    (tmp_path / "x.xml").write_text('<labels><label name="m"/></labels>')
    for part in ("-train.arff", "-test.arff"):
        _, data = read_any(str(tmp_path / f"x{part}"))
        assert isinstance(data, MultilabelData)
        assert data.label_names == ["m"]


def test_images_to_svmlight(tmp_path):
    images = tmp_path / "t-images-idx3-ubyte"
    images.write_bytes(b"\0\0\x08\x03" + b"\0\0\0\x02" * 3 + bytes(range(8)))
    with pytest.raises(ValueError, match="the labels of the images are in another file"):
        convert(images, tmp_path / "out", "svmlight")
    assert read_any(images)[1].y is None
    labels = tmp_path / "t-labels-idx1-ubyte"
    labels.write_bytes(b"\0\0\x08\x01\0\0\0\x02\x07\x09")
    convert(images, tmp_path / "out", "svmlight")
    assert (tmp_path / "out").read_text() == "7 2:1 3:2 4:3\n9 1:4 2:5 3:6 4:7\n"
    rows = read_svmlight(tmp_path / "out")
    assert rows.X.shape == (2, 4)
    with pytest.raises(ValueError, match="one label per image"):
        read_any(images, labels=images)


def test_svmlight_keeps_queries_and_comments():
    text = "1 qid:3 1:1 # a\n2 qid:4 2:1\n"
    assert converted(text, "svmlight", format="svmlight")[0] == text


@pytest.mark.parametrize(
    ("text", "to", "kwargs", "message"),
    [
        (CONLL, "svmlight", {}, "conll cannot be converted to svmlight, only to conll, conl"),
        ("1 1:1\n", "arff", {}, "svmlight cannot be converted to arff, only to svmlight"),
        ("1 qid:1 1:1\n", "letters", {}, "svmhmm cannot be converted to letters"),
        (CONLL, "nothing", {}, "there is no format 'nothing'"),
        ("1 1:1\n", "svmlight", {"columns": ["a"]}, "columns cannot be chosen from svmlight"),
        (CONLL, "conll", {"columns": ["a"]}, "there is no column 'a': there are 'word', 'col1'"),
    ],
)
def test_what_cannot_be_converted(text, to, kwargs, message):
    with pytest.raises(ValueError, match=message):
        converted(text, to, **kwargs)


# Vocabulary -------------------------------------------------------------------------------------

names = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=5)
values = st.floats(allow_nan=False, allow_infinity=False)
tokens = st.tuples(names, st.dictionaries(names, values, max_size=3))


@MANY
@given(st.lists(st.lists(tokens, min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_vocabulary_loses_nothing(sequences):
    data = LabelledSequences(
        [[attributes for _, attributes in sequence] for sequence in sequences],
        [[label for label, _ in sequence] for sequence in sequences],
    )
    vocabulary = Vocabulary.of(data)
    numbered = vocabulary.encode(data)
    assert all(label.isdigit() for labels in numbered.y for label in labels)
    if vocabulary.attributes:
        assert vocabulary.decode(numbered) == data
    out = io.BytesIO()
    write_vocabulary(out, vocabulary)
    assert read_vocabulary(io.BytesIO(out.getvalue())) == vocabulary


def test_a_file_that_is_no_vocabulary():
    with pytest.raises(ParseError, match=":2: expected 'label' or 'attribute', a tab and a name"):
        read_vocabulary(io.StringIO("label\tA\nlabel B\n"))
    with pytest.raises(ValueError, match="has a line end"):
        write_vocabulary(io.StringIO(), Vocabulary(("a\n",), ()))


def test_readers_of_the_register_are_those_of_the_package():
    assert np.array_equal(
        read_any(io.StringIO(CONLL))[1].codes, read_conll(io.StringIO(CONLL)).codes
    )
    text = "A\tw=a\n"
    assert read_any(io.StringIO(text))[1] == read_crfsuite(io.StringIO(text))
    both = [read_any(io.StringIO("1,2 1:1\n"))[1], read_multilabel(io.StringIO("1,2 1:1\n"))]
    assert sp.vstack([data.Y for data in both]).toarray().tolist() == [[0, 1, 1]] * 2


def test_public_names_are_imported_when_first_used():
    assert "read_conll" in data.__all__
    for name in data.__all__:
        assert getattr(data, name) is not None
    assert "read_conll" in dir(data)
    with pytest.raises(AttributeError, match="nothing"):
        data.nothing  # noqa: B018
