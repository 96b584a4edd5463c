"""CSV with a header, JSON lines and running text."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data import ParseError, read_csv, read_jsonl, read_raw, write_csv, write_jsonl
from hingeline.data.records import add_fields, add_lists
from hingeline.features import TokenTable

MANY = settings(max_examples=50, deadline=None, derandomize=True)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=5)
TABLES = st.lists(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4), min_size=1, max_size=4)


def rows(table):
    return [list(sentence) for sentence in table]


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("sentence,word,tag\n1,He,O\n1,ran,B\n2,a,O\n", ("word", "tag"), ["He ran", "a"]),
        ("Sentence #;Word\nSentence: 1;He\n;ran\nSentence: 2;a\n", ("Word",), ["He ran", "a"]),
        ("word,tag\nHe,O\n\n\na,O\n", ("word", "tag"), ["He", "a"]),
        ('word,tag\n"1,000",O\n"""",O\n', ("word", "tag"), ['1,000 "']),
        ('sent_id\tword\ttag\n1\t"\tO\n2\ta\tO\n', ("word", "tag"), ['"', "a"]),
        ("\ufeffword,tag\r\nHe,O\r\n", ("word", "tag"), ["He"]),
        (",sentence,word,tag\n0,1,He,O\n1,1,ran,B\n2,2,a,O\n", ("word", "tag"), ["He ran", "a"]),
        ("Unnamed: 0,word,tag\n0,He,O\n", ("word", "tag"), ["He"]),
    ],
)
def test_tables_with_a_header(text, names, expected):
    table = read_csv(io.BytesIO(text.encode()))
    assert table.names == names
    assert [" ".join(words) for words in table.sentences(0)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,tag\nHe,O\n1,000,O\n", ":3: expected 2 fields, as in the header, found 3; quote"),
        ('word,tag\n"He,O\n', ":2: expected 2 fields, as in the header, found 1; quote"),
        ("word,tag\n" + "a" * 200_000 + ",O\n", ":2: expected 2 fields"),
        ("word,word\na,b\n", ":1: two columns have the same name"),
        ("word,tag\n" + "a,O\n" * 2000, "nothing says where sentences end; add a column"),
    ],
)
def test_bad_tables(text, message):
    before = csv.field_size_limit(131_072)  # Python's own, which other libraries change
    try:
        with pytest.raises(ParseError, match=message):
            read_csv(io.StringIO(text))
    finally:
        csv.field_size_limit(before)


@MANY
@given(TABLES)
def test_what_is_written_is_read_back(sentences):
    table = TokenTable.from_sentences(sentences, ["word", "tag"])
    for write, read in ((write_csv, read_csv), (write_jsonl, read_jsonl)):
        target = io.StringIO()
        write(target, table)
        assert rows(read(io.StringIO(target.getvalue()))) == rows(table)


def test_json_lines():
    text = (
        '{"id": "x", "scores": [0.5], "tags": ["O", "B"], "tokens": ["He", "ran"]}\n\n'
        '{"tokens": ["a"], "tags": [3]}\n'
    )
    table = read_jsonl(io.StringIO(text))
    assert table.names == ("tokens", "tags")
    assert rows(table) == [[("He", "O"), ("ran", "B")], [("a", "3")]]


def test_documents_of_spacy():
    document = {
        "text": "Ann Lee ran.",
        "ents": [{"start": 0, "end": 7, "label": "PER"}],
        "tokens": [
            {"id": 0, "start": 0, "end": 3, "pos": "PROPN"},
            {"id": 1, "start": 4, "end": 7, "pos": "PROPN"},
            {"id": 2, "start": 8, "end": 11, "pos": "VERB"},
            {"id": 3, "start": 11, "end": 12, "pos": "PUNCT"},
        ],
    }
    table = read_jsonl(io.StringIO(json.dumps(document)))
    assert table.names == ("tokens", "pos", "ner")
    assert table.sentences("tokens") == [["Ann", "Lee", "ran", "."]]
    assert table.sentences("ner") == [["B-PER", "I-PER", "O", "O"]]
    raw = json.dumps(document).encode()
    found = json.loads(add_lists(raw, {"predicted": table.sentences("ner"), "margin": [["1"] * 4]}))
    assert found.pop("predicted_ents") == document["ents"]
    assert found == document | {"predicted": table.sentences("ner")[0], "margin": ["1"] * 4}
    assert json.loads(add_lists(raw, {"p": [["O"] * 4]}))["p_ents"] == []
    assert "p_ents" not in json.loads(add_lists(raw, {"p": [["NOUN"] * 4]}))


PAIR = '{"tokens": ["a"], "tags": ["O"]}\n'


def test_lists_of_something_else_are_left_out():
    text = '{"tokens": ["a"], "ids": [1, 2]}\n{"tokens": ["a", "b"], "ids": [1, 2]}\n'
    assert read_jsonl(io.StringIO(text)).names == ("tokens",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tokens": ["a"]}\nnot\n', ":2: this is not JSON"),
        ("[1]\n", ":1: this is not a JSON object; write"),
        ('{"tokens": "a b"}\n', ":1: there is no list of words; write"),
        (f'{PAIR}{{"tokens": ["a", "b"], "tags": ["O"]}}', ":2: .*1 item in 'tags' and 2 items"),
        (f'{{"tokens": ["a"], "tags": []}}\n{PAIR * 2}', ":1: .*0 items in 'tags' and 1 item in"),
        (f'{PAIR}{{"tokens": ["a"]}}', ":2: the object has no list 'tags' and 1 item in"),
        (f'{PAIR}{{"tags": ["O"]}}', ":2: the object has no list 'tokens'; give every token"),
        (
            '{"text": ["a"], "tokens": [{"start": 0, "end": 1}]}',
            ":1: this is not what spaCy writes",
        ),
        ('{"tokens": [{"word": "a"}]}\n', ":1: this is not what spaCy writes"),
    ],
)
def test_bad_objects(text, message):
    with pytest.raises(ParseError, match=message):
        read_jsonl(io.StringIO(text))


@pytest.mark.parametrize("row", ['a,"O', '"a,O', '"a"b,O'])
def test_quotes_that_do_not_close(row):
    """What predict adds would stand inside the quotes."""
    with pytest.raises(ParseError, match=r":2: .*write \"\" for a quote in quotes"):
        read_csv(io.StringIO(f"word,tag\n{row}\n"))


def test_running_text_keeps_marks_and_joiners_in_their_words():
    text = "cafe\u0301! हिन्दी भाषा। العَرَبِيَّة می\u200cخواهم ❤\ufe0f. a\u00adb\n"
    words = read_raw(io.StringIO(text)).sentences("word")
    assert words == [
        *[
            [
                "cafe\u0301",
                "!",
                "हिन्दी",
                "भाषा",
                "।",
                "العَرَبِيَّة",
                "می\u200cخواهم",
                "❤\ufe0f",
                ".",
                "a\u00adb",
            ]
        ]
    ]


def test_running_text():
    table = read_raw(
        io.StringIO(
            "Mr. O'Neil isn't at 3.50/kg, (state-of-the-art)...\n\nÜber 5 €!\n"
            "St. P. Berg, Ph.D., of the U.S. and I. Then u.a.m\n"
        )
    )
    assert [" ".join(words) for words in table.sentences("word")] == [
        "Mr. O'Neil isn't at 3.50/kg , ( state-of-the-art ) ...",
        "Über 5 € !",
        "St. P. Berg , Ph.D . , of the U.S. and I . Then u.a.m",
    ]


def test_more_columns_and_all_else_byte_for_byte():
    raw = b'word,tag\r\n"1,000" ,O\r\n\r\n  \r\na,O'
    found = add_fields(raw, [["B,1", 'x"']], ["predicted"], b"word,tag")
    assert found == b'word,tag,predicted\r\n"1,000" ,O,"B,1"\r\n\r\n  \r\na,O,"x"""'
    raw = b'{"b":1,  "tokens":["a"] }\r\n\n{"tokens": ["\\u00e9"]}  '
    found = add_lists(raw, {"predicted": [["Ä"], ["O"]]})
    assert found.decode() == (
        '{"b":1,  "tokens":["a"], "predicted": ["Ä"]}\r\n\n'
        '{"tokens": ["\\u00e9"], "predicted": ["O"]}  '
    )
