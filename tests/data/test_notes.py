"""The built-in notes: what they hold, and what a tagger with no settings makes of them."""

from __future__ import annotations

import pytest

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import span_f1_score
from hingeline.features import DictEncoder


def test_words_and_tags() -> None:
    notes = load_notes(200, 300)
    for X, y in ((notes.X_train, notes.y_train), (notes.X_test, notes.y_test)):
        assert [len(x) for x in X] == [len(tags) for tags in y]
        for x, tags in zip(X, y, strict=True):
            for t, tag in enumerate(tags):
                assert not tag.startswith("I") or tags[t - 1][1:] == tag[1:]
            assert {"on", "in", "for"}.isdisjoint(
                word for word, tag in zip(x, tags, strict=True) if tag != "O"
            )
    tags = {tag for y in notes.y_train for tag in y}
    assert tags == {"O"} | {f"{p}-{kind}" for p in "BI" for kind in ("PER", "LOC", "DATE")}
    assert load_notes(200, 300) == notes
    assert load_notes(200, 300, random_state=1) != notes
    seen = {word for x in notes.X_train for word in x}
    assert sum(w not in seen for x in notes.X_test for w in x) / sum(map(len, notes.X_test)) > 0.05
    with pytest.raises(ValueError, match="n_test must be an integer ≥ 1, got 0"):
        load_notes(n_test=0)


def test_the_most_natural_call_gets_a_strong_model() -> None:
    notes = load_notes(200, 200)
    scores = []
    for features in (None, DictEncoder()):
        tagger = ChainSSVM(features=features, scheme="none", random_state=0)  # features alone
        tagger.fit(notes.X_train, notes.y_train)
        scores.append(span_f1_score(notes.y_test, tagger.predict(notes.X_test)))
    assert scores[0] > scores[1] + 0.2
