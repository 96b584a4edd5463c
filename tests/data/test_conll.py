"""CoNLL columns: reading, errors by line, writing back."""

from __future__ import annotations

import gzip
import io
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data import read_conll, write_conll
from hingeline.data.conll import _fields, add_columns
from hingeline.data.text import ParseError
from hingeline.features import TokenTable
from hingeline.features.tables import sentence_offsets

MANY = settings(max_examples=40, deadline=None, derandomize=True)

NAIVE = """\
-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O

Peter NNP B-PER
"""


def read(text, *args, **kwargs):
    return read_conll(io.StringIO(text), *args, **kwargs)


def rows(table):
    return [list(sentence) for sentence in table]


def test_sentences_and_columns():
    table = read(NAIVE, ["word", "pos", "ner"])
    assert table.names == ("word", "pos", "ner")
    assert rows(table) == [
        [("EU", "NNP", "B-ORG"), ("rejects", "VBZ", "O")],
        [("Peter", "NNP", "B-PER")],
    ]
    assert read(NAIVE).names == ("word", "col1", "col2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n\n\n", []),
        ("a\nb\n\nc", [[("a",), ("b",)], [("c",)]]),
        ("\n\na\n\n\n\nb\n\n\n", [[("a",)], [("b",)]]),
        ("a  X\t Y \n", [[("a", "X", "Y")]]),  # a tab at the end of the line is no column
        ("New York\tLOC\n\t \nin\tO\n", [[("New York", "LOC")], [("in", "O")]]),
        ("a\tX\r\n\r\nb\tY\r\n", [[("a", "X")], [("b", "Y")]]),
        ("a\u00a0b X\n", [[("a\u00a0b", "X")]]),  # no blank that separates
        ("# # B-NP\n", [[("#", "#", "B-NP")]]),
        ("a\t\n", [[("a", "")]]),
        ("a X\n-DOCSTART- -X- O O\nb Y\n", [[("a", "X")], [("b", "Y")]]),
    ],
)
def test_odd_but_right(text, expected):
    if "  X" in text:
        assert rows(read(text, separator=" ")) == expected
    else:
        assert rows(read(text)) == expected


def test_separators():
    assert rows(read("a b\tX\n", separator=" ")) == [[("a", "b", "X")]]
    assert rows(read("a b\n", separator="\t")) == [[("a b",)]]
    assert rows(read("a,b c\n", separator=",")) == [[("a", "b c")]]
    with pytest.raises(ValueError, match="separator is empty"):
        read("a", separator="")


def test_an_empty_file_has_the_names_given():
    assert read("", ["word", "tag"]).names == ("word", "tag")
    assert len(read("", ["word", "tag"])) == 0


@pytest.mark.parametrize(
    ("text", "kwargs", "message"),
    [
        ("a X\nb\n", {}, "2: expected 2 columns separated by spaces as in the lines before, found"),
        ("a X\n\n\nb Y Z\n", {}, "4: expected 2 columns separated by spaces .* found 3; correct"),
        ("a\tX\nb Y\n", {}, r"2: expected 2 columns separated by '\\t' .* found 1; correct"),
        ("-DOCSTART- O\n\na\nb c\n", {}, "4: expected 1 column separated"),
        ("\na X\n", {"names": ["w"]}, "2: there are 2 columns, but 1 name; name"),
        ("x " * 2000, {}, "1: there are 2,000 columns, and at most 1,000 are read; is this"),
    ],
)
def test_errors_name_the_line(tmp_path, text, kwargs, message):
    path = tmp_path / "some.conll"
    path.write_text(text)
    with pytest.raises(ParseError, match=f"some.conll:{message}"):
        read_conll(path, **kwargs)


def test_an_error_far_into_a_large_file():
    text = "word NN O\n\n" * 100_000 + "word NN\n"
    with pytest.raises(ParseError, match="<stream>:200001: expected 3 columns"):
        read(text)


def test_gzip(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(NAIVE.encode()))
    assert rows(read_conll(path)) == rows(read(NAIVE))


words = st.text(
    st.characters(codec="utf-8", exclude_characters=" \t\n\r\v\f\ufeff"), min_size=1, max_size=6
).filter(lambda word: not word.startswith("-DOCSTART-"))


@MANY
@given(
    st.integers(1, 4).flatmap(
        lambda k: st.lists(st.lists(st.tuples(*[words] * k), min_size=1, max_size=4), max_size=5)
    )
)
def test_round_trip(sentences):
    table = TokenTable.from_sentences(sentences, None if sentences else ["word"])
    out = io.BytesIO()
    write_conll(out, table)
    back = read_conll(io.BytesIO(out.getvalue()))
    assert rows(back) == sentences
    again = io.BytesIO()
    write_conll(again, back)
    assert again.getvalue() == out.getvalue()


@MANY
@given(st.lists(st.lists(st.tuples(words, st.sampled_from(["", "a b", " "])), min_size=1)))
def test_round_trip_with_spaces(sentences):
    table = TokenTable.from_sentences(sentences, ["word", "tag"])
    out = io.StringIO()
    write_conll(out, table, separator="\t")
    assert rows(read(out.getvalue())) == sentences


@pytest.mark.parametrize(
    ("sentences", "separator", "message"),
    [
        ([[("a\tb",)]], None, r"column 'word' has the value 'a\\tb', which cannot stand between"),
        ([[("a b", "X")]], " ", "column 'word' has the value 'a b'"),
        ([[("", "X")]], " ", "column 'word' has the value ''"),
        ([[("a", "X\nY")]], "\t", "column 'col1' has the value"),
        ([[("a", "b")], []], None, "sentence 1 is empty"),
        ([[("-DOCSTART-", "b")]], None, "which readers skip"),
        ([[("a", "b"), ("", " ")]], None, "token 1 is blank in every column"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, sentences, separator, message):
    table = TokenTable.from_sentences(sentences)
    with pytest.raises(ValueError, match=message):
        write_conll(tmp_path / "out", table, separator)
    assert os.listdir(tmp_path) == []


@MANY
@given(
    st.lists(st.sampled_from([b"a", b"bb", b" ", b"  ", b"\t", b"\r", b"\v", b"", b";", b"::"])),
    st.sampled_from([None, b"\t", b";", b"::"]),
)
def test_fields_against_the_obvious_way(pieces, exact):
    lines = b"".join(pieces).replace(b"bb", b"b\n").split(b"\n")
    flat, counts = _fields(lines, exact)
    rows = [line.split(exact) if line.strip() else [] for line in lines]
    assert flat == [field for row in rows for field in row]
    assert counts.tolist() == list(map(len, rows))


@MANY
@given(st.lists(st.booleans()))
def test_offsets_against_the_obvious_way(blank):
    expected, count, inside = [0], 0, False
    for is_blank in [*blank, True]:
        if is_blank and inside:
            expected.append(count)
        inside = not is_blank
        count += inside
    assert sentence_offsets(np.array(blank, dtype=bool)).tolist() == expected


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("HINGELINE_DATA"), reason="HINGELINE_DATA is not set")
def test_chunking_data_is_read_fast_and_written_back(tmp_path):
    path = os.path.join(os.environ["HINGELINE_DATA"], "conll2000", "train.txt.gz")
    times = []
    for _ in range(3):
        start = time.process_time()  # other processes must not count
        table = read_conll(path)
        times.append(time.process_time() - start)
    assert min(times) < 0.35
    write_conll(tmp_path / "copy", table)
    assert (tmp_path / "copy").read_bytes() == gzip.decompress(Path(path).read_bytes())


# The table --------------------------------------------------------------------------------------


def test_a_column_is_replaced_or_appended():
    table = read(NAIVE, ["word", "pos", "ner"])
    new = table.with_column("pos", [["A", "B"], ["C"]])
    assert new.names == table.names
    assert new.sentences("pos") == [["A", "B"], ["C"]]
    assert new.sentences("ner") == table.sentences("ner")
    assert table.sentences("pos") == [["NNP", "VBZ"], ["NNP"]]
    more = table.with_column("predicted", table.column("ner"))
    assert more.names == ("word", "pos", "ner", "predicted")
    assert more[0][1] == ("rejects", "VBZ", "O", "O")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([["A", "B"]], "values has 1 sequences, but there are 2 sentences"),
        ([["A"], ["B"]], r"values\[0\] must have 2 values"),
        (["A", "B"], "values has 2 entries, but there are 3 tokens"),
        ([["A", "B"], "C"], r"values\[1\] must have 1 values"),
    ],
)
def test_a_column_of_another_length_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        read(NAIVE).with_column("new", values)


# Comments, headers and more columns ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# domain=en\nHe O\n\n# a b c\na O\n", [[("He", "O")], [("a", "O")]]),
        ("# # O\na b O\n", [[("#", "#", "O"), ("a", "b", "O")]]),  # a token
        ("a O\n# O\n", [[("a", "O"), ("#", "O")]]),
        ("# text = a b\n# x\na\tO\n# \tO\n", [[("a", "O"), ("# ", "O")]]),
        ("#x\n", [[("#x",)]]),
        ("word tag\nHe O\n", [[("He", "O")]]),
        ("Word\tPOS-tag\n\nHe\tO\n", [[("He", "O")]]),
        ("word text\nHe O\n", [[("word", "text"), ("He", "O")]]),  # no name of labels
    ],
)
def test_comments_and_headers_are_no_tokens(text, expected):
    assert rows(read(text)) == expected
    assert rows(read(text.replace("\n", "\r\n"))) == expected


def test_a_header_names_the_columns():
    assert read("Token POS NER\na b c\n").names == ("Token", "POS", "NER")
    assert read("mot étiquette\na b\n", ["mot", "étiquette"]).n_tokens == 1
    assert read("word tag\na b\n", ["x", "y"]).n_tokens == 2  # said to be others


def test_a_comment_inside_a_sentence_is_refused():
    with pytest.raises(ParseError, match=r":2: expected 2 columns .* put comments before"):
        read("a O\n# a comment here\nb O\n")


def test_comments_across_blocks():
    text = "".join(f"# id = {k}\nw{k} O\n# O\n\n" for k in range(40_000))
    table = read(text)
    assert len(table) == 40_000
    assert table.n_tokens == 80_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tO\nb\tO\n", "a\tO\tX\nb\tO\tY\n"),
        ("\ufeffa  O \r\n\r\n\n  \nb O", "\ufeffa  O  X\r\n\r\n\n  \nb O Y"),
        ("-DOCSTART- O\n\n#c\na O\n\n\nb O\n", "-DOCSTART- O\n\n#c\na O X\n\n\nb O Y\n"),
        ("word tag\na O\nb O\n", "word tag new\na O X\nb O Y\n"),
        ("a\n\nb", "a X\n\nb Y"),
    ],
)
def test_columns_are_added_and_all_else_stays(text, expected):
    assert len(rows(read(text))) in (1, 2)
    assert add_columns(text.encode(), [["X", "Y"]], ["new"]).decode() == expected


def test_what_would_be_read_as_a_comment_is_written_with_tabs():
    table = TokenTable.from_sentences([[("#", "A=b"), ("x", "O")]], ["word", "tag"])
    target = io.StringIO()
    write_conll(target, table)
    assert rows(read(target.getvalue())) == rows(table)
