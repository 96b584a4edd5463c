"""Templates as text: what is read, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from hingeline.features import TokenTemplates
from hingeline.features.templates import parse_templates

NAMES = ("word", "pos")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("word[0]", "word[0]"),
        (" word[ +1 ] | 1[-2]", "word[1]|pos[-2]"),
        ("lower( word[0] )", "lower(word[0])"),
        ("prefix(word[0], 3)", "prefix(word[0],3)"),
        ("suffix(lower(word[0]),2)|pos[0]", "suffix(lower(word[0]),2)|pos[0]"),
        ("match(word[0],'a|b')", "match(word[0],'a|b')"),
        ('match(word[0],"[(,]")|pos[1]', "match(word[0],'[(,]')|pos[1]"),
        (r"match(word[0],'it\'s\d')", r"match(word[0],'it\'s\d')"),
    ],
)
def test_strings(text: str, canonical: str) -> None:
    template = parse_templates([text], NAMES)[0]
    assert template.text == canonical
    assert parse_templates([canonical], NAMES) == [template]


def test_repeated_templates_count_once() -> None:
    assert len(parse_templates(["word[0]", "0[0]", "word[0]"], NAMES)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a column such as word"),
        ("word", r"'word' needs a position, e.g. word\[0\]"),
        ("lower", r"needs a position, e.g. lower\(word\[0\]\)"),
        ("word[x]", "needs a position"),
        ("tag[0]", "there is no column 'tag': there are 'word', 'pos'"),
        ("7[0]", "there is no column 7: there are 2"),
        ("word[0]|", "a column such as"),
        ("word[0] pos[0]", "was not expected"),
        ("lower(word[0]", r"a closing \) is missing"),
        ("lower(word[0],2)", "lower takes no second argument"),
        ("prefix(word[0])", "prefix needs a number of characters"),
        ("suffix(word[0],0)", "suffix needs a number"),
        ("suffix(word[0],)", "an argument is missing"),
        ("shape(word[0],long)", "shape takes no argument or collapse"),
        ("reverse(word[0])", "there is no function 'reverse'"),
        ("match(word[0])", "match needs a regular expression"),
        ("match(word[0],'(')", "is not a regular expression"),
        ("word[5000]", "farther than 1000"),
    ],
)
def test_bad_strings(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_templates(["word[0]", text], NAMES)
    assert str(error.value).startswith(f"templates[1]={text!r}: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("B01:%x[0,0]", "label pairs have one weight each"),
        ("*01:%x[0,0]", "write it as U"),
        ("*", "write it as U"),
        ("word[0]", "pass a list"),
        ("U00:%x[0,2]", "no column 2; there are 2"),
        ("U00:%x[0]", "is not part of a"),
        ("U00:%y[0,0]", "is not %x"),
        ("U00:%t[0,0]", "is not %x"),
        ("U00:%x[@1,0]", "absolute position @1 is not supported"),
        ("U00:%x[*1,0]", "indirect position"),
        ('U00:%t[0,0,"*a"]', "repeats nothing"),
        ("U00:%x[-9999,0]", "farther than 1000"),
    ],
)
def test_bad_lines(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_templates(f"# first\nU:%x[0,0]\n{line}", NAMES)
    assert str(error.value).startswith(f"template line 3, {line!r}: ")


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "B\n", []])
def test_nothing(text: Any) -> None:
    with pytest.raises(ValueError, match=r"no template|is empty"):
        parse_templates(text, NAMES)


def test_an_identifier_stands_for_one_thing() -> None:
    with pytest.raises(ValueError, match=r"'U:%x\[0,0\]' and 'U:%x\[0,1\]' have the same ident"):
        parse_templates("U:%x[0,0]\nU:%x[0,1]", NAMES)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("U:%X[0,0]", ["the", "x-1", "usa", "a.b"]),
        (r'U:%t[0,0,"^\u\l*$"]', ["true", "false", "false", "false"]),
        (r'U:%t[0,0,"\d"]', ["false", "true", "false", "false"]),
        (r'U:%t[0,0,"^\u\u*$"]', ["false", "false", "true", "false"]),
        (r'U:%t[0,0,"."]', ["true", "true", "true", "true"]),
        (r'U:%t[0,0,"\."]', ["false", "false", "false", "true"]),
        (r'U:%t[0,0,"\p"]', ["false", "true", "false", "true"]),
        (r'U:%m[0,0,"^.?.?"]', ["Th", "x-", "US", "a."]),
        (r'U:%M[0,0,"^.?.?"]', ["th", "x-", "us", "a."]),
        (r'U:%m[0,0,"\D.$"]', ["he", "-1", "SA", ".b"]),
        (r'U:%m[0,0,"\d"]', ["", "1", "", ""]),
    ],
)
def test_wapiti(line: str, values: list[str]) -> None:
    encoder = TokenTemplates(line)
    matrix = encoder.fit_transform([["The", "x-1", "USA", "a.b"]]).matrix
    names = encoder.get_feature_names_out()
    assert [names[k] for k in matrix.indices] == [f"U:{value}" for value in values]


def test_wapiti_and_crfpp_write_u_and_b_in_either_case() -> None:
    assert len(parse_templates("u00:%x[0,0]\nb\nB\nU01\n", NAMES)) == 2
