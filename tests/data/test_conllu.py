"""CoNLL-U: words, what is kept aside, and writing back byte for byte."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data import ParseError, read_conllu, write_conllu
from hingeline.features import TokenTable

MANY = settings(max_examples=50, deadline=None, derandomize=True)

SAMPLE = """\
# newdoc id = d
# text = I can't
1\tI\tI\tPRON\tPRP\tCase=Nom\t2\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tca\tcan\tAUX\tMD\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t2:conj\t_

# text = in New York
1\tin\tin\tADP\tIN\t_\t2\tcase\t_\t_
2\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t_\t_

# end
"""


def read(text):
    return read_conllu(io.StringIO(text, newline=""))


def written(document):
    out = io.BytesIO()
    write_conllu(out, document)
    return out.getvalue().decode()


def test_words_are_read_and_the_rest_is_kept():
    document = read(SAMPLE)
    assert len(document.table) == 2
    assert document.table.sentences("form") == [["I", "ca", "n't"], ["in", "New York"]]
    assert document.table.sentences("head") == [["2", "0", "2"], ["2", "0"]]
    assert document.table.names[0] == "form"


@pytest.mark.parametrize(
    "text",
    [
        SAMPLE,
        SAMPLE.replace("\n", "\r\n"),
        "\ufeff" + SAMPLE,
        SAMPLE.rstrip("\n"),
        SAMPLE + "\n\n",
        "\n\n" + SAMPLE,
        "",
        "\n",
        "# only a comment",
        "1\ta\t\t\t\t\t\t\t\t\n",
    ],
)
def test_a_file_is_written_back_byte_for_byte(text):
    assert written(read(text)) == text


def test_only_the_replaced_column_changes():
    document = read(SAMPLE).with_column("upos", [["X", "Y", "Z"], ["V", "W"]])
    old, new = SAMPLE.split("\n"), written(document).split("\n")
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert len(changed) == 5
    for (before, after), tag in zip(changed, "XYZVW", strict=True):
        cells = before.split("\t")
        cells[3] = tag
        assert after == "\t".join(cells)
    with pytest.raises(ValueError, match="no column 'pos': there are form, lemma"):
        document.with_column("pos", [])


def test_a_bare_table():
    table = TokenTable.from_sentences([[("a", "X")], [("b", "Y")]], ["form", "upos"])
    assert written(table) == ("1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n\n1\tb\t_\tY\t_\t_\t_\t_\t_\t_\n\n")
    assert read(written(table)).table.select(["form", "upos"])[1] == [("b", "Y")]


cells = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\ufeff"), min_size=1)


@MANY
@given(st.lists(st.lists(st.tuples(cells, cells, cells), min_size=1)))
def test_round_trip_of_tables(sentences):
    names = ["form", "xpos", "misc"]
    table = TokenTable.from_sentences(sentences, names)
    assert list(read(written(table)).table.select(names)) == sentences


WORD = "1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (WORD + "2\tb\n", 2, "expected 10 columns separated by tabs, found 2; write _ in columns"),
        ("# c\n" + WORD + WORD, 3, "the word's number is '1' where 2 is next; number words"),
        (WORD + "\n" + WORD.replace("1", "2"), 3, "the word's number is '2' where 1 is next"),
        (WORD.replace("1", "x"), 1, "'x' is not the number of a word, of a range (1-2)"),
        (WORD.replace("1", "1-"), 1, "'1-' is not the number"),
        (WORD.replace("\t", " "), 1, "expected 10 columns separated by tabs, found 1"),
    ],
)
def test_errors_name_the_line(text, line, problem):
    with pytest.raises(ParseError) as caught:
        read(text)
    assert caught.value.line == line
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("sentences", "names", "message"),
    [
        ([["a"]], ["word"], "table needs a column 'form', it has 'word'"),
        ([["a\tb"]], ["form"], "column 'form' has the value"),
        ([["a\r"]], ["form"], "column 'form' has the value"),
        ([[""]], ["form"], "column 'form' has an empty value: write _"),
        ([["a"], []], ["form"], "sentence 1 is empty"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, sentences, names, message):
    with pytest.raises(ValueError, match=message):
        write_conllu(tmp_path / "out", TokenTable.from_sentences(sentences, names))
    assert os.listdir(tmp_path) == []
