"""Constraints from TOML files: what they mean, and every mistake with its line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hingeline.constraints import (
    PUNCTUATION,
    AtMostOneSegment,
    AverageSegments,
    Before,
    ChangeOnlyAt,
    ChangeShare,
    EndsWith,
    Follows,
    MinLength,
    NoRepeats,
    Occurs,
    OnlyWords,
    Share,
    StartsWith,
    Words,
    load_constraints,
)
from hingeline.constraints.files import read_rule, write_rule

ALL_KINDS = r"""
[defaults]
weight = 10

[[starts_with]]
labels = ["author", "editor"]
[[ends_with]]
labels = "date"
[[at_most_one_segment]]
labels = ["author", ["B-x", "I-x"]]
[[no_repeats]]
[[occurs]]
labels = ["title"]
at_least = 1
unit = "segments"
weight = 3
[[min_length]]
labels = ["title"]
length = 2
penalty = "squared"
[[words]]
pattern = '(19|20)\d\d'
label = "date"
hard = true
[[words]]
words = ["pp", "pages"]
ignore_case = true
label = ["pages", "note"]
name = "pages"
[[words]]
pattern = '\w+'
label = "place"
after = "Place :"

[[only_words]]
pattern = '\d+'
label = "volume"
[[change_only_at]]
where = "punctuation"
[[change_only_at]]
where = [",", "."]
side = "either"
[[follows]]
label = "I-x"
after = ["B-x", "I-x"]
[[before]]
first = "author"
second = ["title", "date"]
[[share]]
label = "author"
equals = 0.3
[[change_share]]
pattern = '[.]'
at_most = 0.01
[[average_segments]]
at_most = 6
[label_shares]
slack = 0.1
"""


def write(tmp_path, text):
    file = tmp_path / "rules.toml"
    if isinstance(text, bytes):
        file.write_bytes(text)
    else:
        file.write_text(text, encoding="utf-8")
    return file


def test_every_kind_can_be_written(tmp_path):
    found = load_constraints(write(tmp_path, ALL_KINDS), y=[["a", "b", "b", "b"], None])
    w = {"weight": 10}
    assert found == [
        StartsWith("author", "editor", **w),
        EndsWith("date", **w),
        AtMostOneSegment("author", ("B-x", "I-x"), **w),
        NoRepeats(**w),
        Occurs("title", at_least=1, unit="segments", weight=3),
        MinLength("title", length=2, penalty="squared", **w),
        Words(r"(19|20)\d\d", label="date", hard=True, **w),
        Words(["pp", "pages"], label=("pages", "note"), ignore_case=True, name="pages", **w),
        Words(r"\w+", label="place", after="Place :", **w),
        OnlyWords(r"\d+", label="volume", **w),
        ChangeOnlyAt(PUNCTUATION, **w),
        ChangeOnlyAt([",", "."], side="either", **w),
        Follows("I-x", after=("B-x", "I-x"), **w),
        Before("author", ("title", "date"), **w),
        Share("author", equals=0.3, **w),
        ChangeShare("[.]", at_most=0.01, **w),
        AverageSegments(at_most=6, **w),
        Share("a", at_least=0.15, at_most=0.35, **w),
        Share("b", at_least=0.65, at_most=0.85, **w),
    ]


def test_the_order_is_that_of_the_file(tmp_path):
    text = "[[words]]\nwords=['a']\nlabel='x'\n[[no_repeats]]\n[[words]]\nwords=['b']\nlabel='x'\n"
    kinds = [type(c).__name__ for c in load_constraints(write(tmp_path, text))]
    assert kinds == ["Words", "NoRepeats", "Words"]


def test_sets_that_come_with_the_library():
    citations = load_constraints("citations")
    assert StartsWith("author", "editor", name=citations[0].name) == citations[0]
    assert {c.weight for c in citations} == {1000}
    seminars = load_constraints("seminars")
    assert sum(c.hard for c in seminars) == 4


def test_a_file_wins_over_a_set_of_the_same_name(tmp_path, monkeypatch):
    (tmp_path / "citations").write_text("[[no_repeats]]", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_constraints("citations") == [NoRepeats()]


MISTAKES = {
    "not TOML": ("[[words]]\nlabel = pages\n", 2, "not TOML"),
    "not closed": ("[[words\nlabel = 'x'\n", 1, "not TOML"),
    "not UTF-8": (b"# x\n[[words]]\nlabel = '\xff'\n", 3, "UTF-8"),
    "no constraint": ("# nothing\n", 1, "names no constraint"),
    "unknown kind": ("# x\n[[no_repeats]]\n[[start_with]]\n", 3, "did you mean starts_with"),
    "strange kind": ("[[zzz]]\n", 1, r"there is no constraint \[\[zzz\]\]; there are at_most"),
    "not a table": ("\nwords = 3\n", 2, r"write \[\[words\]\]"),
    "list of numbers": ("words = [3]\n", 1, r"write \[\[words\]\]"),
    "unknown key": (
        "[[words]]\nwords=['a']\nlabel='x'\n\n[[words]]\nlable = 'x'\nwords=['a']\n",
        6,
        "no key 'lable' .did you mean label",
    ),
    "missing key": ("[[words]]\nwords=['a']\n", 1, "needs the key label"),
    "missing words": ("\n[[words]]\nlabel='a'\n", 2, "words .a list. or pattern"),
    "missing length": ("[[min_length]]\nlabels=['a']\n", 1, "needs the key length"),
    "missing labels": ("[[starts_with]]\nweight = 1\n", 1, "at least one label"),
    "empty labels": ("[[starts_with]]\nweight = 1\nlabels = []\n", 3, "at least one label"),
    "empty words": ("[[words]]\nlabel='a'\nwords=[]\n", 3, "empty list"),
    "words is a string": ("[[words]]\nlabel='a'\nwords='a|b'\n", 3, "pattern ="),
    "where is a string": ("[[change_only_at]]\nwhere = 'comma'\n", 2, "punctuation"),
    "words of numbers": ("[[words]]\nlabel='a'\nwords=[1]\n", 3, "list of words"),
    "both": ("[[words]]\nlabel='a'\nwords=['a']\npattern='b'\n", 4, "not both"),
    "bad pattern": ("[[words]]\nlabel='a'\npattern='(b'\n", 3, "regular expression"),
    "pattern is a number": ("[[words]]\nlabel='a'\npattern=3\n", 3, "must be a string"),
    "weight": ("[[no_repeats]]\n# r\nweight = -1\n", 3, "weight must be at least 0"),
    "weight is a string": ("[[no_repeats]]\nweight = '10'\n", 2, "weight must be a number"),
    "weight of all": ("[defaults]\nweight = '1'\n[[no_repeats]]\n", 2, "weight must be a number"),
    "weight infinite": ("[[no_repeats]]\nweight = inf\n", 2, "hard=True"),
    "penalty": ("[[no_repeats]]\npenalty = 'cubic'\n", 2, "'linear' or 'squared'"),
    "hard": ("[[no_repeats]]\nhard = 1\n", 2, "true or false"),
    "ignore_case": ("[[words]]\nlabel='a'\nwords=['a']\nignore_case='no'\n", 4, "true or false"),
    "bounds": ("[[share]]\nlabel='a'\n", 1, "equals=, at_least= or at_most="),
    "share above one": ("[[share]]\nlabel='a'\nequals = 30\n", 3, "between 0 and 1"),
    "negative": ("[[occurs]]\nlabels=['a']\nat_most = -1\n", 3, "negative"),
    "crossed": ("[[occurs]]\nlabels=['a']\nat_least=3\nat_most=2\n", 3, "above at_most"),
    "equals and more": ("[[occurs]]\nlabels=['a']\nequals=3\nat_most=2\n", 3, "not both"),
    "unit": ("[[occurs]]\nlabels=['a']\nat_most=2\nunit='words'\n", 4, "'tokens' or"),
    "side": ("[[change_only_at]]\nside='left'\n", 2, "'before', 'after' or"),
    "length": ("[[min_length]]\nlength=1\n", 2, "an integer ≥ 2"),
    "itself": ("[[before]]\nfirst='a'\nsecond='a'\n", 1, "before itself"),
    "defaults key": ("[defaults]\nwieght = 1\n[[no_repeats]]\n", 2, "did you mean weight"),
    "defaults list": ("[[defaults]]\nweight = 1\n[[no_repeats]]\n", 1, "one table"),
    "shares without y": ("[[no_repeats]]\n[label_shares]\n", 2, "pass y="),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_with_its_line(tmp_path, mistake):
    text, line, reason = MISTAKES[mistake]
    file = write(tmp_path, text)
    with pytest.raises(ValueError, match=reason) as caught:
        load_constraints(file)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: "), message
    assert "\n" not in message
    assert message.endswith(".")


def test_no_such_file_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="citations, seminars"):
        load_constraints("citation")
    with pytest.raises(IsADirectoryError, match="folder"):
        load_constraints(tmp_path)


# Plain data, as model files hold it --------------------------------------------------------------


def test_constraints_come_back_from_plain_data(tmp_path):
    rules = load_constraints(write(tmp_path, ALL_KINDS), y=[["a", "b"]])
    rules = [*rules, Occurs(np.int64(3), equals=1, hard=True), AtMostOneSegment()]
    assert [read_rule(json.loads(json.dumps(write_rule(rule)))) for rule in rules] == rules


def test_functions_have_no_plain_form():
    class Own(StartsWith):
        pass

    assert write_rule(Words(str.isdigit, "date")) == write_rule(Own("A")) == {}


@pytest.mark.parametrize(
    "stored",
    [3, {}, {"kind": "label_shares"}, {"kind": ["words"]},
     {"kind": "words", "words": "(", "label": 1}, {"kind": "ends_with", "labels": [[]]},
     {"kind": "words", "words": "a", "label": "b", "weight": "9"}, {"kind": "min_length", "x": 1},
     {"kind": "starts_with", "labels": 3}, {"kind": "predicate", "function": "exit"}],
)  # fmt: skip
def test_plain_data_that_makes_no_sense_is_refused(stored):
    with pytest.raises(ValueError, match="is not a constraint: get a fresh copy"):
        read_rule(stored)
