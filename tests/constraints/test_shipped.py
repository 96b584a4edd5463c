"""The sets that come with the library, on the labelled data they are about."""

from __future__ import annotations

import os

import pytest

from hingeline.constraints import check, load_constraints

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif("HINGELINE_DATA" not in os.environ, reason="HINGELINE_DATA is not set"),
]


def test_gold_citations_mostly_keep_the_citation_constraints():
    from published import load_citations

    train = load_citations().train
    gold = [[row[-1] for row in sentence] for sentence in train]
    report = check(load_constraints("citations"), train, gold, token=0)
    broken = {row.constraint.name: len(row.sequences) for row in report.rows}
    assert broken["changes at punctuation"] == 45
    assert broken["each field once"] == 12
    assert broken["years: date"] == 7
    others = [name for name, count in broken.items() if count > 2]
    assert len(others) == 3


def test_labelled_seminars_keep_the_seminar_constraints():
    from published import load_seminars

    table = load_seminars().split(0)[0]
    gold = [[row[-1] for row in document] for document in table]
    report = check(load_constraints("seminars"), table, gold, token=0)
    hard = [row for row in report.rows if row.constraint.hard]
    assert len(hard) == 4
    assert all(not row.sequences for row in hard)
    assert len(report.sequences) <= 4
