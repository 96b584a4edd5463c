"""Encoders that go on learning: old columns stay, new ones come behind them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from hingeline.features import DictEncoder, TokenTemplates, vocabulary
from hingeline.features.vocabulary import Numbering

WORDS = ["the", "cat", "Cat", "sat", "on", "a", "mat", "dog", "ran", "7", "über", "x" * 9]
TAGS = ["D", "N", "V"]
TEMPLATES = [
    "default",
    ["0[0]", "0[-1]|0[0]|1[2]", "isdigit(0[0])", "suffix(0[0],2)|1[0]", "find(0[1],'a.')"],
    "U00:%x[-1,0]\nU01:%x[0,0]/%x[0,1]\nU:%x[0,0]\nU:%x[1,0]\nU02:one\nB\n",
]
sentences = st.lists(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(TAGS)), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


def by_name(encoder, encoded):
    """Per token: feature name -> value."""
    names = encoder.get_feature_names_out()
    assert encoded.matrix.shape[1] == len(names) == encoder.n_features_out_
    return [
        {names[j]: v for j, v in zip(row.indices, row.data, strict=True)} for row in encoded.matrix
    ]


@pytest.fixture(scope="module", params=[vocabulary.LIMIT, 200], ids=["", "several keys"])
def limit(request):
    """The largest key; where it is small, conjunctions take several, as huge vocabularies do."""
    before, vocabulary.LIMIT = vocabulary.LIMIT, request.param
    yield
    vocabulary.LIMIT = before


@pytest.mark.parametrize("templates", TEMPLATES, ids=["default", "list", "file"])
@given(batches=st.lists(sentences, min_size=2, max_size=4))
@settings(max_examples=10, deadline=None)
def test_templates_learned_in_batches_are_those_learned_at_once(limit, templates, batches):
    growing = TokenTemplates(templates)
    seen = []
    for batch in batches:
        before = growing.get_feature_names_out().tolist() if seen else []
        encoded = growing.partial_fit_transform(batch)
        seen += batch
        names = growing.get_feature_names_out().tolist()
        assert names[: len(before)] == before
        assert len(set(names)) == len(names)
        whole = TokenTemplates(templates)
        expected = by_name(whole, whole.fit_transform(seen))
        assert by_name(growing, encoded) == expected[len(expected) - encoded.matrix.shape[0] :]
        assert by_name(growing, growing.transform(seen)) == expected
        back = clone(growing).restore(*growing.to_state())
        assert by_name(back, back.transform(seen)) == expected
        assert sorted(names) == sorted(whole.get_feature_names_out().tolist())
    probe = [[("unseen", "N"), ("cat", "X")]]
    assert by_name(growing, growing.transform(probe)) == by_name(whole, whole.transform(probe))


@given(batches=st.lists(sentences, min_size=2, max_size=4))
@settings(max_examples=20, deadline=None)
def test_dicts_learned_in_batches_are_those_learned_at_once(batches):
    growing, seen = DictEncoder(), []
    for batch in batches:
        dicts = [[{"w": w, "t": t, "n": len(w)} for w, t in s] for s in batch]
        before = dict(getattr(growing, "vocabulary_", {}))
        growing.partial_fit_transform(dicts)
        seen += dicts
        assert {k: growing.vocabulary_[k] for k in before} == before
    whole = DictEncoder()
    expected = whole.fit_transform(seen).matrix
    assert growing.vocabulary_ == whole.vocabulary_  # both in the order of first occurrence
    assert (growing.transform(seen).matrix != expected).nnz == 0


@pytest.mark.parametrize("encoder", [TokenTemplates(["0[0]"], min_count=2), DictEncoder()])
def test_rare_features_of_a_batch_are_left_out(encoder):
    encoder.set_params(min_count=2)
    encoder.partial_fit_transform([["a", "a", "b"]])
    assert encoder.n_features_out_ == 1
    encoder.partial_fit_transform([["b", "c", "c", "a"]])
    names = encoder.get_feature_names_out().tolist()
    assert [name[-1] for name in names] == ["a", "c"]
    encoded = encoder.transform([["b", "c", "a"]]).matrix.toarray()
    np.testing.assert_array_equal(encoded, [[0, 0], [0, 1], [1, 0]])


def test_hashed_features_have_their_columns_already():
    encoder = TokenTemplates(["0[0]"], hash_bits=6)
    encoder.partial_fit_transform([["a", "b"]])
    wider = encoder.partial_fit_transform([["c"]])
    assert wider.matrix.shape[1] == 64
    assert (wider.matrix != encoder.transform([["c"]]).matrix).nnz == 0


def test_a_bad_token_leaves_a_dict_encoder_as_it_was():
    encoder = DictEncoder()
    encoder.partial_fit_transform([["a"]])
    with pytest.raises(TypeError, match=r"token 1 of X\[0\]"):
        encoder.partial_fit_transform([["b", 3]])
    assert encoder.vocabulary_ == {"a": 0}
    encoder.partial_fit_transform([["c"]])
    assert encoder.vocabulary_ == {"a": 0, "c": 1}


@pytest.fixture
def grown():
    encoder = TokenTemplates(["0[0]|0[-1]", "0[0]", "1[0]"])
    encoder.partial_fit_transform([[("a", "N"), ("b", "V")]])
    encoder.partial_fit_transform([[("b", "N"), ("c", "V"), ("a", "X")]])
    return encoder


def test_state_goes_and_comes_back(grown):
    meta, arrays = grown.to_state()
    back = clone(grown).restore(meta, arrays)
    assert back.get_feature_names_out().tolist() == grown.get_feature_names_out().tolist()
    probe = [[("c", "N"), ("a", "X"), ("b", "q")]]
    assert (back.transform(probe).matrix != grown.transform(probe).matrix).nnz == 0
    for encoder in (back, grown):
        encoder.partial_fit_transform([[("d", "N"), ("a", "Y")]])
    assert back.get_feature_names_out().tolist() == grown.get_feature_names_out().tolist()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("keys", lambda a: np.where(np.arange(len(a)) == 0, -1, a)),
        ("keys", lambda a: np.where(np.arange(len(a)) == len(a) - 1, 99, a)),
        ("keys", lambda a: np.zeros_like(a)),
        ("keys", lambda a: a[:-1]),
        ("keys", lambda a: np.append(a, a[-1:])),
        ("keys", lambda a: a.astype(np.int32)),
        ("columns", lambda a: np.zeros_like(a)),
        ("columns", lambda a: a + 1),
        ("columns", lambda a: a[:-1]),
        ("columns", lambda a: np.append(a, len(a))),
        ("key_ends", lambda a: a[:-1]),
        ("key_ends", lambda a: a - 1),
        ("source_ends", lambda a: a[:-1]),
        ("values_ends", lambda a: a[::-1].copy()),
    ],
)
def test_damaged_states_are_refused(grown, name, change):
    meta, arrays = grown.to_state()
    with pytest.raises(ValueError, match="encoder"):
        clone(grown).restore(meta, {**arrays, name: change(arrays[name])})
    with pytest.raises(ValueError, match="grown"):
        clone(grown).restore({**meta, "grown": "yes"}, arrays)


@pytest.mark.parametrize("size", [2**60, 2**30])
def test_runs_stay_few_and_nothing_is_lost(size):
    numbering, rng = Numbering(size), np.random.default_rng(0)
    pool = rng.permutation(np.unique(rng.integers(0, 2**30, 5000)))
    at = 0
    while at < len(pool):
        part = pool[at : at + int(rng.integers(1, 30))]
        numbering.add(part, np.arange(at, at + len(part), dtype=np.int32))
        at += len(part)
        assert len(numbering._runs) <= 15
    np.testing.assert_array_equal(numbering.look_up(pool), np.arange(len(pool)))
    assert (numbering.look_up(np.setdiff1d(pool + 1, pool)) < 0).all()
    assert numbering.look_up(np.array([-1])).tolist() == [-1]


def test_a_direct_table_learns_too():
    numbering = Numbering(100)
    assert numbering.learn(np.array([7, 3, 7]), 1, 5).tolist() == [6, 5, 6]
    assert numbering.look_up(np.array([3, 9, -1])).tolist() == [5, -1, -1]
    assert numbering.learn_more(np.array([9, 3, 1, 9]), 1, 7).tolist() == [7, 5, 8, 7]
    assert numbering.look_up(np.array([1, 9])).tolist() == [8, 7]
