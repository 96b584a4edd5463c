"""DictEncoder: what python-crfsuite makes of the same tokens."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hingeline.features import DictEncoder, dicts

# CRFsuite's strings end at a NUL character.
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3) | st.sampled_from(
    ["a", "b", "a:b", "x=y"]
)
number = st.floats(-1e6, 1e6, width=32) | st.integers(-1000, 1000) | st.booleans()
plain = text | number
nested = st.recursive(
    plain | st.lists(text, max_size=3) | st.sets(text, max_size=3),
    lambda inner: st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
token = st.dictionaries(text, nested, max_size=5) | st.lists(text, max_size=4)
corpus = st.lists(st.lists(token, min_size=1, max_size=4), min_size=1, max_size=4)


def rows(encoder: Any, sequences: Any) -> list[dict[str, float]]:
    names = encoder.get_feature_names_out()
    matrix = sequences.matrix
    assert matrix.has_canonical_format
    assert matrix.shape[1] == len(names) == encoder.n_features_out_
    return [
        dict(zip(names[row.indices], row.data.tolist(), strict=True))
        for row in (matrix[t] for t in range(matrix.shape[0]))
    ]


@settings(max_examples=60, deadline=None)
@given(corpus, corpus)
def test_same_attributes_as_crfsuite(train: Any, test: Any) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite")

    def theirs(X: Any) -> list[dict[str, float]]:
        return [item for s in X for item in pycrfsuite.ItemSequence(s).items()]

    def flat(value: Any, name: str = "") -> Counter[str]:
        """How often a token has an attribute; CRFsuite's dict shows only the last weight."""
        if isinstance(value, dict):
            return sum(
                (
                    Counter({f"{name}{k}:{v}": 1})
                    if isinstance(v, str)
                    else flat(v, f"{name}{k}:")
                    if isinstance(v, (dict, list, set))
                    else Counter({f"{name}{k}": 1})
                    for k, v in value.items()
                ),
                Counter(),
            )
        return Counter(f"{name}{v}" for v in value)

    encoder = DictEncoder(dtype=np.float64)
    ours = rows(encoder, encoder.fit_transform(train))
    attributes = dict.fromkeys(name for item in theirs(train) for name in item)
    assert set(encoder.vocabulary_) == set(attributes)
    for X, got in ((train, ours), (test, rows(encoder, encoder.transform(test)))):
        tokens = [t for s in X for t in s]
        for item, mine, original in zip(theirs(X), got, tokens, strict=True):
            repeated = flat(original)
            for name, weight in item.items():
                if name in attributes and repeated[name] == 1:
                    assert mine.get(name, 0.0) == weight
            assert set(mine) <= set(item)
    again = clone(encoder).restore(*encoder.to_state())
    assert rows(again, again.transform(test)) == rows(encoder, encoder.transform(test))


def test_forms_of_tokens() -> None:
    sentence = [
        {"w": "a", "x": 2.5, "t": True, "f": False, "n": np.float32(0.5), "b": b"raw"},
        {"p": {"q": 1, "r": ["s", "t"]}, "set": {"u"}, "tuple": ("v", "w")},
        ["k", "k", "l"],
        ("m", b"n"),
        "one string",
        {},
        [],
        {"x": np.int64(3), "y": np.bool_(True)},
    ]
    encoder = DictEncoder()
    got = rows(encoder, encoder.fit_transform([sentence]))
    assert got == [
        {"w:a": 1, "x": 2.5, "t": 1, "n": 0.5, "b:raw": 1},
        {"p:q": 1, "p:r:s": 1, "p:r:t": 1, "set:u": 1, "tuple:v": 1, "tuple:w": 1},
        {"k": 2, "l": 1},
        {"m": 1, "n": 1},
        {"one string": 1},
        {},
        {},
        {"x": 3, "y": 1},
    ]
    assert "f" in encoder.vocabulary_
    assert encoder.get_feature_names_out()[:3].tolist() == ["w:a", "x", "t"]


def test_new_attributes_and_rare_ones() -> None:
    X = [[{"w": "a", "x": 1}, {"w": "b", "x": 2}], [{"w": "a"}]]
    encoder = DictEncoder(min_count=2)
    got = rows(encoder, encoder.fit_transform(X))
    assert got == [{"w:a": 1, "x": 1}, {"x": 2}, {"w:a": 1}]
    assert rows(encoder, encoder.transform([[{"w": "c", "x": 7, "y": 1}]])) == [{"x": 7}]
    assert encoder.vocabulary_ == {"w:a": 0, "x": 1}  # transform adds nothing


def test_one_pass_over_what_can_be_read_once() -> None:
    X = ([{"w": str(k % 3)}] for k in range(6))
    assert DictEncoder().fit_transform(X).matrix.shape == (6, 3)


@settings(max_examples=40, deadline=None)
@given(corpus, corpus)
def test_both_readers_agree(train: Any, test: Any) -> None:
    """Tokens that the kernel reads, and the same without it."""
    found = []
    for readable in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dicts, "_READABLE", readable)
            encoder = DictEncoder()
            X = [encoder.fit_transform(train), encoder.transform(test), encoder.transform(test)]
            X += [encoder.partial_fit_transform(test), encoder.transform(test)]
            found.append((list(encoder.vocabulary_), [x.matrix.toarray().tolist() for x in X]))
    assert found[0] == found[1]


def test_tokens_that_only_python_reads() -> None:
    """Tokens of every kind in turn, alone and in runs; numbers at the edge of what C can hold."""

    class Own(dict[str, Any]):
        pass

    kinds: list[Any] = [
        {"w": "a", "n": -1, "f": -1.0, "big": 2**900, "t": True},
        {"w": "a", "n": np.float64(2.5), "f": np.int64(-1), "t": np.bool_(True)},
        {"n": np.float16(0.5), "f": np.float32(-1), "t": np.uint8(1)},
        Own(w="b"),
        ["u", "v"],
        ("u", b"v"),
        {"w": ["a", "c"], "d": {"b": 2}},
        {b"w": "b", "": ""},
        "u",
        {},
        [],
    ]
    X = [[kinds[(k * k // 7) % 11] for k in range(300)], kinds[2:3] * 40 + kinds[3:4] * 40, kinds]
    encoder = DictEncoder(dtype=np.float64)
    found = encoder.fit_transform(X).matrix
    for row, token in zip(found, [token for sentence in X for token in sentence], strict=True):
        wanted = np.zeros(found.shape[1])
        listed = (token,) if isinstance(token, str) else token
        for name, weight in dicts.attributes(listed):
            wanted[encoder.vocabulary_[name]] += weight
        np.testing.assert_array_equal(row.toarray()[0], wanted)
    with pytest.raises(TypeError, match=r"token 0 of X.0. has the number .*inf.* for 'n'"):
        encoder.transform([[{"n": np.float32("inf")}]])
    with pytest.raises(TypeError, match=r"token 2 of X\[1\] has the number .* for 'big'"):
        encoder.transform([[{}] * 4, [{"n": 1}, Own(), {"big": 10**400}]])


def test_many_attributes_in_threads() -> None:
    """The table of what was met grows, and threads do not disturb each other."""
    X = [[{"w": str(k), "x": -k, "t": k % 2 == 0}, [f"u{k}", "v"]] for k in range(20_000)]
    encoder = DictEncoder()
    want = encoder.fit_transform(X).matrix
    assert list(encoder.vocabulary_)[:7] == ["w:0", "x", "t", "u0", "v", "w:1", "u1"]
    assert encoder.n_features_out_ == 40_003
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: encoder.transform(X).matrix, range(8)):
            assert (got != want).nnz == 0


def test_many_tokens() -> None:
    """More than the buffer holds."""
    X = [[{"a": str(k % 7), "b": float(k)}] * 3 for k in range(30_000)]
    encoded = DictEncoder(dtype=np.float64).fit_transform(X)
    assert encoded.matrix.shape == (90_000, 8)
    np.testing.assert_array_equal(
        np.asarray(encoded.matrix[:, 1].todense()).ravel(), np.repeat(np.arange(30_000.0), 3)
    )
    assert encoded.lengths.tolist() == [3] * 30_000


def test_scikit_learn_manners() -> None:
    encoder = DictEncoder(min_count=3)
    assert clone(encoder).get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        encoder.transform([[{}]])
    encoder = pickle.loads(pickle.dumps(DictEncoder().fit([["a"]])))
    assert encoder.transform([["a", "b"]]).matrix.toarray().tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[{"a": 1}], [{"a": 1}, {"a": math.nan}]], r"token 1 of X\[1\].*nan for 'a'"),
        ([[{"a": math.inf}]], r"token 0 of X\[0\].*inf for 'a'"),
        ([[{"a": 10**400}]], r"token 0 of X\[0\].*for 'a'"),
        ([[{"a": None}]], r"token 0 of X\[0\].*NoneType for 'a'"),
        ([[{"a": 1j}]], "type complex for 'a'"),
        ([[{"a": {"b": [1]}}]], "has 1 where a string"),
        ([[{"a": [["b"]]}]], "where a string"),
        ([[{3: "a"}]], "has 3 where a string"),
        ([[["a", 3]]], "has 3 where a string"),
        ([[["a", ("b", "c")]]], "where a string"),
        ([[{"a": b"\xff"}]], "not UTF-8"),
        ([[3.0]], "is of type float: a token is a dict"),
        ([[None]], "NoneType"),
        ([np.ones((2, 2))], r"token 0 of X\[0\] is of type ndarray"),
        ([{"a": 1}], r"X\[0\] must be a list of tokens, got dict"),
        (["a"], r"X\[0\] must be a list of tokens, got str"),
        ("a", "X must be a list of sentences, got str"),
        (3, "X must be a list of sentences, got int"),
    ],
)
def test_bad_tokens(X: Any, message: str) -> None:
    for encode in (DictEncoder().fit, DictEncoder().fit([["a"]]).transform):
        with pytest.raises(TypeError, match=message) as error:
            encode(X)
        assert len(str(error.value)) < 300


def test_bad_parameters() -> None:
    for params in ({"min_count": 0}, {"min_count": 1.5}, {"dtype": np.int32}, {"dtype": None}):
        with pytest.raises(ValueError, match=next(iter(params))):
            DictEncoder(**params).fit([["a"]])


def test_a_given_vocabulary() -> None:
    encoder = DictEncoder.from_vocabulary(["b", "w:a"])
    assert encoder.transform([[{"w": "a"}, ["b", "c"]]]).matrix.toarray().tolist() == [
        [0, 1],
        [1, 0],
    ]
    with pytest.raises(ValueError, match="twice"):
        DictEncoder.from_vocabulary(["a", "a"])
    with pytest.raises(TypeError, match=r"names\[1\] must be a string, got 3"):
        DictEncoder.from_vocabulary(["a", 3])
