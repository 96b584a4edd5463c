"""Text of users shows as it is, and is never markup."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hingeline.report.markup import block_text, direction, isolated, table, text

ANY = st.text(st.characters(), max_size=40)  # surrogates and controls too


@given(ANY)
def test_text_is_text(parse, value):
    root = parse(f"<p>{text(value)}</p>")
    (paragraph,) = root.children
    assert all(isinstance(child, str) for child in paragraph.children)
    root = parse(f'<p title="{text(value)}">x</p>')
    assert root.one("p").attrs["title"] == paragraph.text


@given(ANY)
def test_nothing_invisible_is_left(value):
    shown = text(value)
    shown.encode("utf-8")  # no surrogates
    for character in shown:
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        )  # fmt: skip
    assert shown.strip()


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200))
def test_what_is_visible_stays(parse, value):
    assert parse(f"<p>{text(value)}</p>").text == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("<b>", "&lt;b&gt;"),
        ("\"'&", "&quot;&#x27;&amp;"),
        ("a\nb\tc\x00", "a␊b␉c␀"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("\x85", "⟨U+0085⟩"),
        ("", "(empty)"),
        ("  ", "␠␠"),
        ("x" * 300, "x" * 200 + "…"),
        (17, "17"),
        ("שלום", "שלום"),
    ],
)
def test_examples(value, shown):
    assert text(value) == shown


def test_lines_of_a_command():
    assert block_text("a <b>\r\n\nc\td") == "a &lt;b&gt;\n\nc␉d"
    assert isolated("<") == "<bdi>&lt;</bdi>"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["12", "שלום", "abc"], "rtl"),
        (["(", "مرحبا"], "rtl"),
        (["...", "abc", "שלום"], "ltr"),
        (["1", "?"], "ltr"),
        ([], "ltr"),
    ],
)
def test_direction_of_writing(tokens, expected):
    assert direction(tokens) == expected


def test_tables_have_captions_and_scopes(parse):
    html = table("A & B", ("name", "n"), [["x", "1"], ["all", "2"]], last=1)
    root = parse(html)
    assert root.one("caption").text == "A & B"
    assert root.one("div").attrs["aria-label"] == "A & B"
    assert [th.attrs["scope"] for th in root.all("th")] == ["col", "col", "row", "row"]
    assert [tr.attrs.get("class") for tr in root.all("tr")] == [None, None, "sum"]
    assert [td.attrs.get("class") for td in root.all("td")] == ["n", "n"]
