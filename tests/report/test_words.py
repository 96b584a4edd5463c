"""Numbers as they are shown, and texts of users, of which every character shows."""

from __future__ import annotations

import math
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hingeline._words import (
    brief,
    count,
    count_of,
    decimal,
    decimals_for,
    percent,
    percent_at_most,
    seconds,
    show,
    significant,
)
from hingeline.report.errors import find_direction

LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


def number(shown):
    """What a shown number says."""
    shown = shown.replace("\u00a0%", "").replace(",", "").translate(LOWERED)
    return float(re.sub(r" × 10", "e", shown))


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (1948.3512, 6, "1,948.35"),
        (0.24812, 3, "0.248"),
        (-0.5, 2, "−0.50"),
        (0.0, 3, "0"),
        (123456.7, 3, "123,457"),
        (1.5e9, 2, "1.5 × 10⁹"),
        (2.5e-7, 2, "2.5 × 10⁻⁷"),
        (math.nan, 3, "not known"),
        (math.inf, 3, "∞"),
    ],
)
def test_significant_digits(value, digits, shown):
    assert significant(value, digits) == shown


@given(st.floats(min_value=-1e12, max_value=1e12), st.integers(1, 8))
def test_significant_says_the_number(value, digits):
    assert number(significant(value, digits)) == pytest.approx(value, rel=0.6 * 10 ** (1 - digits))


@given(st.floats(min_value=1e-14, max_value=50.0))
def test_a_bound_is_rounded_up_and_not_far(share):
    shown = number(percent_at_most(share))
    assert shown >= 100 * share * (1 - 1e-11)
    assert shown <= 100 * share * 1.11


def test_a_bound_that_is_round_stays():
    assert percent_at_most(0.008) == "0.80\u00a0%"
    assert percent_at_most(0.0080001) == "0.81\u00a0%"
    assert percent_at_most(0.0) == "0\u00a0%"
    assert percent_at_most(0.0999) == "10\u00a0%"


def test_other_numbers():
    assert decimal(-0.001, 2) == "0.00"
    assert decimal(-1234.5, 1) == "−1,234.5"
    assert percent(0.93214) == "93.21\u00a0%"
    assert count(1234567) == "1,234,567"
    assert (count_of(1, "pass", "passes"), count_of(2, "pass", "passes")) == ("1 pass", "2 passes")
    assert (brief(13.0), brief(0.19), brief(1e-7)) == ("13", "0.19", "1 × 10⁻⁷")
    assert (brief(110.6, 2), brief(3.0, 2)) == ("111", "3")
    assert [decimals_for(v, 3) for v in (0.0, 12.0, 0.012, 12345.0, math.inf)] == [0, 1, 4, 0, 0]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0123, "12 ms"), (4.256, "4.26 s"), (59.61, "59.6 s"), (125.4, "2 min 5 s")]
    + [(119.7, "2 min 0 s"), (7260.0, "2 h 1 min"), (0.0, "0 ms")],
)
def test_times(value, shown):
    assert seconds(value) == shown.replace(" ", "\u00a0")


# Texts -------------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=40))  # surrogates and controls too
def test_nothing_invisible_is_left(value):
    shown = show(value)
    shown.encode("utf-8")  # no surrogates
    for character in shown:
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        )  # fmt: skip
    assert shown.strip()


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200))
def test_what_is_visible_stays(value):
    assert show(value) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
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
def test_texts(value, shown):
    assert show(value) == shown


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
    assert find_direction(tokens) == expected


def test_a_bound_that_overflows_is_infinite():
    assert percent_at_most(math.inf) == percent_at_most(1e307) == "∞\u00a0%"
