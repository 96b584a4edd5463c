"""Stored encoders: nothing inconsistent is taken for good."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from hingeline.features import DictEncoder, TokenTemplates

SENTENCES = [[("Été", "N"), ("a", "V"), ("b", "N")], [("a", "N")]]
TEMPLATES = TokenTemplates(["word[-1]|pos[0]", "lower(word[0])", "pos[1]"])


def fitted(kind: str) -> Any:
    if kind == "dicts":
        return DictEncoder().fit([[{"w": "é", "x": 1.5}, ["a", "b"]]])
    table = [[(w, p) for w, p in s] for s in SENTENCES]
    from hingeline.features.tables import TokenTable

    return TEMPLATES.fit(TokenTable.from_sentences(table, ["word", "pos"]))


def inputs(kind: str) -> Any:
    return [[{"w": "é", "x": 2}, ["b", "c"]]] if kind == "dicts" else SENTENCES


@pytest.mark.parametrize("kind", ["dicts", "templates"])
def test_round_trip_through_json(kind: str) -> None:
    encoder = fitted(kind)
    meta, arrays = encoder.to_state()
    again = clone(encoder).restore(json.loads(json.dumps(meta)), arrays)
    assert type(again) is type(encoder)
    assert repr(again) == repr(encoder)
    X = inputs(kind)
    np.testing.assert_array_equal(
        again.transform(X).matrix.toarray(), encoder.transform(X).matrix.toarray()
    )
    np.testing.assert_array_equal(again.get_feature_names_out(), encoder.get_feature_names_out())
    for array in arrays.values():
        assert array.ndim == 1
        assert array.dtype in (np.uint8, np.int64)


def test_values_are_stored_once() -> None:
    _, arrays = fitted("templates").to_state()
    text = arrays["values"].tobytes().decode()
    assert text.count("Été") == 1
    rare = TokenTemplates(["word[0]", "word[-1]|word[0]"], min_count=2)
    rare.fit([["once", "twice"], ["twice"]])
    assert rare.to_state()[1]["values"].tobytes() == b"twice"


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_changed_states(data: Any) -> None:
    """A change is refused in one sentence, or leaves an encoder that works."""
    kind = data.draw(st.sampled_from(["dicts", "templates"]))
    meta, arrays = fitted(kind).to_state()
    name = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[name].copy()
    change = data.draw(st.sampled_from(["entry", "cut", "grow", "dtype", "shape", "drop", "list"]))
    if change == "entry":
        low, high = (0, 255) if array.dtype == np.uint8 else (-(2**63), 2**63 - 1)
        value = data.draw(st.integers(low, high) | st.integers(max(low, -3), 20))
        array[data.draw(st.integers(0, len(array) - 1))] = value
    elif change == "cut":
        array = array[:-1]
    elif change == "grow":
        array = np.append(array, array[-1:])
    elif change == "dtype":
        array = array.astype(np.float64)
    elif change == "shape":
        array = array[None]
    arrays[name] = array.tolist() if change == "list" else array
    if change == "drop":
        del arrays[name]
    try:
        encoder = clone(fitted(kind)).restore(meta, arrays)
    except ValueError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert "\n" not in message
        assert len(message) < 300
        return
    assert change in ("entry", "cut", "grow")
    X = inputs(kind)
    matrix = encoder.transform(X).matrix
    assert len(encoder.get_feature_names_out()) == matrix.shape[1]
    assert matrix.nnz == 0 or 0 <= matrix.indices.min() <= matrix.indices.max() < matrix.shape[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", "word"),
        ("columns", ["word", 3]),
        ("columns", ["word", "word"]),
        ("columns", ["word"]),
        ("templates", None),
        ("templates", []),
        ("templates", [3]),
        ("templates", ["word["]),
        ("templates", ["word[0]"]),
        ("templates", ["lower(word[0])", "word[-1]|pos[0]"]),
        ("templates", "U:%x[0,9]"),
    ],
)
def test_changed_metadata(name: str, value: Any) -> None:
    meta, arrays = fitted("templates").to_state()
    with pytest.raises(ValueError) as error:
        clone(TEMPLATES).restore({**meta, name: value}, arrays)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("name", "value"),
    [("min_count", 0), ("hash_bits", 99), ("dtype", "int8"), ("dtype", 3), ("templates", 3)],
)
def test_changed_parameters(name: str, value: Any) -> None:
    state = fitted("templates").to_state()
    with pytest.raises((ValueError, TypeError)):
        clone(TEMPLATES).set_params(**{name: value}).restore(*state)


@pytest.mark.parametrize("meta", [None, [], "x", {}])
def test_no_metadata(meta: Any) -> None:
    with pytest.raises(ValueError):
        TokenTemplates().restore(meta, {})
    with pytest.raises(ValueError):
        DictEncoder().restore(meta, {})
    with pytest.raises(ValueError):
        TokenTemplates().restore(fitted("dicts").to_state()[0], {})


def test_text_that_is_no_unicode() -> None:
    encoder = TokenTemplates(["word[0]"]).fit([["\ud800"]])
    again = clone(encoder).restore(*encoder.to_state())
    assert again.transform([["\ud800"]]).matrix.nnz == 1
