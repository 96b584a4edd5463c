"""ARFF and Mulan's list of labels: dense, sparse, quotes, errors by line, round trips."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io import arff as scipy_arff

from hingeline.data import (
    MultilabelData,
    ParseError,
    read_arff,
    read_mulan_labels,
    write_arff,
    write_mulan_labels,
)

MANY = settings(max_examples=50, deadline=None, derandomize=True)

DENSE = """\
% a comment
@RELATION 'some name'

@attribute a REAL
@Attribute 'b \\'c\\'' {0,1}
@attribute "d e" {'x y', z}
@attribute f{1,0}
@data
% another
1.5, 1,'x y',0
-2e1,0,"z",1
"""

SPARSE = """\
@relation r
@attribute a numeric
@attribute b {0, 1}
@attribute c {no, 'y s'}
@data
{0 2.5, 2 'y s'}
{}
{ 1 1 , 0 -1 }
"""

XML = """\
<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="b"><label name="inner &amp; one"/></label>
<!-- comment -->
<label name="last"></label>
</labels>
"""


def read(text, labels=None):
    return read_arff(io.StringIO(text), labels)


def test_dense_rows():
    data = read(DENSE, ["f", "b 'c'"])
    assert isinstance(data.X, np.ndarray)
    assert data.X.tolist() == [[1.5, 0], [-20, 1]]
    assert data.Y.toarray().tolist() == [[0, 1], [1, 0]]
    assert data.feature_names == ["a", "d e"]
    assert data.label_names == ["f", "b 'c'"]


def test_sparse_rows():
    data = read(SPARSE, ["b"])
    assert sp.issparse(data.X)
    assert data.X.toarray().tolist() == [[2.5, 1], [0, 0], [-1, 0]]
    assert data.Y.toarray().tolist() == [[0], [0], [1]]


def test_which_attributes_are_labels():
    text = (
        "@relation r\n@attribute a {0,1}\n@attribute b numeric\n@attribute c {0,1}\n@data\n1,5,0\n"
    )
    assert read(text, 1).label_names == ["a"]
    assert read(text, -1).label_names == ["c"]
    assert read(text).label_names == []
    assert read(text).X.tolist() == [[1, 5, 0]]
    xml = '<labels><label name="c"/><label name="a"/></labels>'
    assert read(text, io.StringIO(xml)).label_names == ["c", "a"]


def test_one_label_by_its_name():
    data = read(HEAD + "@data\n1,0,x\n5,1,y\n", "b")
    assert data.label_names == ["b"]
    assert data.Y.toarray().tolist() == [[0], [1]]


def test_no_rows():
    data = read(DENSE[: DENSE.index("% another")], ["f"])
    assert (data.X.shape, data.Y.shape) == ((0, 3), (0, 1))


def test_against_scipy():
    text = "@relation r\n@attribute a real\n@attribute b {0,1}\n@data\n1.25,0\n-3e-2,1\n"
    theirs, _ = scipy_arff.loadarff(io.StringIO(text))
    ours = read(text, ["b"])
    assert ours.X[:, 0].tolist() == theirs["a"].tolist()
    assert [str(v) for v in ours.Y.toarray()[:, 0]] == [v.decode() for v in theirs["b"]]


HEAD = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@attribute c {x,y}\n"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("@attribute a numeric\nfoo\n", 2, "expected @relation, @attribute or @data, found 'foo'"),
        ("% x\n@relation r\n", 2, "there is no @data line; is the file complete?"),
        ("@relation r\n@data\n", 2, "@data comes before any @attribute; declare the columns"),
        ("@attribute a\n", 1, "'a' is not a name and a type; write @attribute NAME numeric"),
        ("@attribute\n", 1, "'' is not a name and a type"),
        ("@attribute 'a numeric\n", 1, '"\'a numeric" is not a name and a type'),
        ("@attribute a string\n", 1, "attribute 'a' has the type 'string'; only numeric and nom"),
        ("@attribute a {0,1\n", 1, "attribute 'a' has the type '{0,1'"),
        ("@attribute a {0,,1}\n", 1, "the values of attribute 'a' are not a list such as {a, b}"),
        ("@attribute a {0,0}\n", 1, "the values of attribute 'a' are not a list"),
        ("@attribute a {'0}\n", 1, "the values of attribute 'a' are not a list"),
        ("@attribute a real\n@attribute a real\n", 2, "the attribute 'a' is declared twice"),
        (HEAD + "@data\n1,0,x\n1,0\n", 7, "expected 3 values separated by commas, found 2 values"),
        (HEAD + "@data\n1,0,'x\n", 6, "expected 3 values separated by commas, found a malformed"),
        (HEAD + "@data\n\n?,0,x\n", 7, "the value of 'a' is missing (?); fill it in or drop"),
        (HEAD + "@data\n1,?,x\n", 6, "the value of 'b' is missing (?)"),
        (HEAD + "@data\n1,0,z\n", 6, "the value 'z' of 'c' is not among the 2 values declared"),
        (HEAD + "@data\n1,2,x\n", 6, "the value '2' of 'b' is not among the 2 values declared"),
        (HEAD + "@data\nq,0,x\n", 6, "the value 'q' of 'a' is not a number; correct the line"),
        (HEAD + "@data\nnan,0,x\n", 6, "the value 'nan' of 'a' is not a finite number"),
        (HEAD + "@data\n1,0,x\n{0 1}\n", 7, "sparse rows {…} and dense rows are mixed"),
        (HEAD + "@data\n{0 1,}\n", 6, "'{0 1,}' is not a row such as {0 1, 3 2.5}"),
        (HEAD + "@data\n{0 1\n", 6, "'{0 1' is not a row such as"),
        (HEAD + "@data\n{0}\n", 6, "'{0}' is not a row such as"),
        (HEAD + "@data\n{0 ?}\n", 6, "the value of 'a' is missing (?)"),
        (HEAD + "@data\n{}\n{3 1}\n", 7, "there is no attribute '3', they are numbered 0 to 2"),
        (HEAD + "@data\n{99999999999 1}\n", 6, "there is no attribute '99999999999'"),
        (HEAD + "@data\n{}\n{1 1, 1 0}\n", 7, "attribute 1 occurs twice; give it once"),
        ("@attribute a {1,0}\n@data\n{}\n", 3, "sparse rows leave out the first value of 'a'"),
        ("@attribute a real\n@data\n1\nnan\n", 4, "the value 'nan' of 'a' is not a finite number"),
        ("@attribute a {0,1}\n@data\n1\n2\n", 4, "the value '2' of 'a' is not among the 2 values"),
        ("@attribute a {0,1}\n@data\n{0 1}\n{0 2}\n", 4, "the value '2' of 'a' is not among"),
        ("@attribute a real\n@data\n{}\n{-1 1}\n", 4, "there is no attribute '-1', they are"),
        ("@attribute a real\n@data\n{0 1}\n{1 1}\n", 4, "there is no attribute '1', they are"),
        ("@attribute a real\n@data\n1_0\n", 3, "the value '1_0' of 'a' is not a number"),
        ("@attribute a real\n@data\n1,2\n", 3, "expected 1 values separated by commas, found 2"),
    ],
)
def test_errors_name_the_line(text, line, problem):
    with pytest.raises(ParseError) as caught:
        read(text)
    assert caught.value.problem.startswith(problem)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["q"], "<stream>: the label 'q' is not among the attributes; name the labels file"),
        (4, "<stream>: labels is 4, but there are 3 attributes"),
        (["a"], "<stream>:7: the label 'a' is 5; labels must be 0 or 1"),
    ],
)
def test_labels_that_are_none(labels, message):
    with pytest.raises(ParseError, match=message):
        read(HEAD + "@data\n1,0,x\n5,1,y\n", labels)


names = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=4)
    | st.sampled_from(["'", '"', "\\", "a b", "@x", "{", "%", "?", ","]),
    min_size=5,
    max_size=5,
    unique=True,
)


@MANY
@given(
    hnp.arrays(
        float,
        st.tuples(st.integers(0, 4), st.just(3)),
        elements=st.just(0.0) | st.floats(allow_nan=False, allow_infinity=False),
    ),
    names,
    st.booleans(),
    st.data(),
)
def test_round_trip(X, labels, sparse, draw):
    Y = draw.draw(hnp.arrays(np.uint8, (len(X), 2), elements=st.integers(0, 1)))
    data = MultilabelData(
        sp.csr_matrix(X) if sparse else X, sp.csr_matrix(Y), labels[:3], labels[3:]
    )
    out = io.StringIO()
    write_arff(out, data)
    back = read(out.getvalue(), -2)
    assert (back.feature_names, back.label_names) == (labels[:3], labels[3:])
    assert np.array_equal(back.Y.toarray(), Y)
    if len(X):
        assert sp.issparse(back.X) == sparse
        assert np.array_equal(back.X.toarray() if sparse else back.X, X)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (MultilabelData(np.ones((1, 1)), sp.csr_matrix([[1]]), ["a"], ["a"]), "the same name"),
        (MultilabelData(np.ones((1, 1)), sp.csr_matrix([[1]]), ["a", "b"], ["c"]), "as many names"),
        (MultilabelData(np.ones((1, 1)), sp.csr_matrix((1, 2**31 - 1))), "there are 2,147,483,647"),
        (MultilabelData(np.full((1, 1), np.nan), sp.csr_matrix([[1]])), "X contains NaN"),
        (MultilabelData(np.ones((1, 1)), sp.csr_matrix([[1]]), ["a\n"], ["b"]), "has a line end"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        write_arff(tmp_path / "out", data)
    assert os.listdir(tmp_path) == []


# The list of labels -----------------------------------------------------------------------------


def test_labels_in_the_order_of_the_file():
    assert read_mulan_labels(io.StringIO(XML)) == ["b", "inner & one", "last"]
    assert read_mulan_labels(io.BytesIO(b"\xef\xbb\xbf" + XML.encode())) == [
        "b",
        "inner & one",
        "last",
    ]


def test_round_trip_of_labels(tmp_path):
    given_names = ["a", "<b>", "c & \"d\" 'e'", "é"]
    write_mulan_labels(tmp_path / "x.xml", given_names)
    assert read_mulan_labels(tmp_path / "x.xml") == given_names


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<labels><label name="&b;"/></labels>"""


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (LAUGHS, 2, "a document type is declared; remove the declaration"),
        ('<!DOCTYPE l SYSTEM "file:///etc/passwd"><labels/>', 1, "a document type is declared"),
        ("<labels>\n<label/>\n</labels>", 2, "a label has no name; add name="),
        ("<labels>\n<label name='a'>\n</labels>", 3, "the XML is malformed (mismatched tag)"),
        ("<labels>\n<label name='&x;'/></labels>", 2, "the XML is malformed (undefined entity)"),
        ("", 1, "the XML is malformed (no element found)"),
        ("<labels></labels>", None, "there is no <label name=…>; is this Mulan's list of labels?"),
    ],
)
def test_errors_of_the_list_name_the_line(text, line, problem):
    with pytest.raises(ParseError) as caught:
        read_mulan_labels(io.StringIO(text))
    assert caught.value.problem.startswith(problem)
    assert caught.value.line == line
