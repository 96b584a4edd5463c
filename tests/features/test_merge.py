"""Encoders learned from blocks of data and merged are those learned from all of it."""

from __future__ import annotations

import pickle
from time import process_time
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from hingeline.distributed.shards import merge_encoders
from hingeline.features import DictEncoder, PerToken, TokenTable, TokenTemplates, vocabulary
from hingeline.features.tables import renumber

WORDS = ["the", "cat", "Cat", "sat", "on", "a", "mat", "dog", "7", "über", "x" * 9]
TAGS = ["D", "N", "V"]
TEMPLATES = [
    "default",
    ["0[0]", "0[-1]|0[0]|1[2]", "0[0]|isdigit(0[1])", "suffix(0[0],2)|1[0]", "find(0[1],'a.')"],
    "U00:%x[-1,0]\nU01:%x[0,0]/%x[0,1]\nU:%x[0,0]\nU:%x[1,0]\nU02:one\nB\n",
]
columns = st.lists(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(TAGS)), max_size=6), max_size=4
)
dicts = st.lists(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            st.one_of(st.sampled_from(WORDS), st.booleans(), st.floats(-2, 2), st.just(["a", "a"])),
        ),
        max_size=4,
    ),
    max_size=4,
)


def check(encoder, blocks, whole):
    """Blocks that are counted, sent to another process, merged and renumbered are the whole."""
    before = encoder.get_params()
    counted = [pickle.loads(pickle.dumps(encoder.count(block))) for block in blocks]
    assert encoder.get_params() == before
    assert not hasattr(encoder, "n_features_out_")
    least = encoder.min_count
    encoders, encoded, counts = zip(*counted, strict=True)
    assert {e.min_count for e in encoders} == {least}
    merged, numbers = merge_encoders(encoders, counts, least)
    reference = clone(encoder)
    expected = reference.fit_transform(whole)
    assert merged.get_params() == reference.get_params()
    n = reference.n_features_out_
    assert merged.n_features_out_ == n
    assert merged.get_feature_names_out().tolist() == reference.get_feature_names_out().tolist()
    moved = [renumber(x.matrix, new, n) for x, new in zip(encoded, numbers, strict=True)]
    stacked = sp.vstack(moved, format="csr")
    assert all(x.has_canonical_format for x in moved)
    assert {x.indices.dtype for x in moved} == {np.dtype(np.int32)}
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(stacked, name), getattr(expected.matrix, name))
    assert np.concatenate([x.lengths for x in encoded]).tolist() == expected.lengths.tolist()
    assert {new.dtype for new in numbers} == {np.dtype(np.int64)}
    # The merged encoder encodes as the other does, also after a round trip through arrays.
    again = clone(merged).restore(*merged.to_state())
    for one in (merged, again, pickle.loads(pickle.dumps(merged))):
        assert abs(one.transform(whole).matrix - expected.matrix).nnz == 0
    return merged, reference


# Where the largest key is small, conjunctions take several, as huge vocabularies do.
@pytest.mark.parametrize("limit", [vocabulary.LIMIT, 200], ids=["", "several keys"])
@pytest.mark.parametrize("templates", TEMPLATES, ids=["default", "list", "file"])
@given(blocks=st.lists(columns, min_size=1, max_size=5), least=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_templates(templates, limit, blocks, least):
    whole = [sentence for block in blocks for sentence in block]
    encoder = TokenTemplates(templates, min_count=least)
    if not any(whole):
        counted = [encoder.count(block) for block in blocks]
        encoders, _, counts = zip(*counted, strict=True)
        with pytest.raises(ValueError, match=r"^X is empty: no block has a token\.$"):
            merge_encoders(encoders, counts, least)
        return
    with patch.object(vocabulary, "LIMIT", limit):
        merged, reference = check(encoder, blocks, whole)
    for one, other in zip(merged._encoding.sources, reference._encoding.sources, strict=True):
        assert [*one.codes] == [*other.codes]


@given(data=st.data(), least=st.integers(1, 2))
@settings(max_examples=25, deadline=None)
def test_slices_of_one_table_in_any_order(data, least):
    sentences = [s for s in data.draw(columns) if s] or [[("the", "D")]]
    table = TokenTable.from_sentences(sentences)
    order = data.draw(st.permutations(range(len(table))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=3)))
    blocks = [table[part] for part in np.split(np.array(order), cuts)]
    check(TokenTemplates(TEMPLATES[1], min_count=least), blocks, table[np.array(order)])
    check(TokenTemplates(TEMPLATES[1]), blocks, [table[i] for i in order])


@given(blocks=st.lists(dicts, min_size=1, max_size=5), least=st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_dicts(blocks, least):
    whole = [sentence for block in blocks for sentence in block]
    check(DictEncoder(min_count=least, dtype=np.float64), blocks, whole)


def test_hashes_keep_their_columns_and_nothing_else():
    encoder = TokenTemplates(["0[0]", "0[-1]|0[0]"], hash_bits=6)
    blocks = [[["a", "b"], ["a"]], [], [[f"w{k}" for k in range(500)]]]
    merged, reference = check(encoder, blocks, [*blocks[0], *blocks[2]])
    assert 0 < merged.hash_collisions_ <= reference.hash_collisions_
    fitted, _, counts = encoder.count(blocks[0])
    assert counts.sum() == 6
    assert len(pickle.dumps(encoder.count(blocks[2])[0])) < len(pickle.dumps(fitted)) + 100


def test_what_is_counted():
    bag = TokenTemplates("U:%x[0,0]\nU:%x[1,0]", min_count=3)  # one feature at two places
    fitted, X, counts = bag.count([["a", "a", "b"]])
    assert dict(zip(fitted.get_feature_names_out(), counts, strict=True)) == {
        "U:a": 3, "U:b": 2, "U:_B+1": 1,
    }  # fmt: skip
    assert X.matrix.shape == (3, 3)
    fitted, X, counts = DictEncoder(min_count=2).count([[{"x": 2.5, "w": "a"}, {"x": False}]])
    assert fitted.vocabulary_ == {"x": 0, "w:a": 1}
    assert counts.tolist() == [2, 1]  # a token has a feature also where its value is 0
    assert X.matrix.toarray().tolist() == [[2.5, 1], [0, 0]]
    merged, (columns,) = merge_encoders([fitted], [counts], 2)
    assert (merged.vocabulary_, columns.tolist()) == ({"x": 0}, [0, -1])


def test_matrices_are_renumbered_too():
    matrix = sp.csr_matrix([[1.0, 2, 3], [0, 4, 0]])
    moved = renumber(matrix, np.array([3, -1, 0]), 4)
    assert moved.toarray().tolist() == [[3, 0, 0, 1], [0, 0, 0, 0]]
    assert moved.indices.tolist() == [0, 3]


def test_a_million_features_take_seconds():
    rng = np.random.default_rng(0)
    encoder = TokenTemplates(["0[0]", "0[-1]|0[0]", "0[0]|0[1]", "0[-1]|0[0]|0[1]"])
    words = np.array([f"w{k}" for k in range(20_000)], dtype=object)
    counted = []
    for _ in range(8):
        tokens = words[rng.integers(len(words), size=45_000)]
        table = TokenTable.from_columns({"word": tokens.tolist()}, np.arange(0, 45_001, 15))
        counted.append(encoder.count(table))
    encoders, _, counts = zip(*counted, strict=True)
    features = sum(map(len, counts))
    assert sum(len(pickle.dumps(e)) for e in encoders) < 14 * features
    start = process_time()
    merged, numbers = merge_encoders(encoders, counts, 1)
    seconds = process_time() - start
    assert merged.n_features_out_ > 1_000_000
    assert len(np.unique(np.concatenate(numbers))) == merged.n_features_out_
    assert seconds < 5


def test_what_cannot_be_merged():
    class Lengths(TokenTemplates.__mro__[1]):
        min_count, dtype = 1, np.float32

    remedy = "or fit it beforehand and pass the numbers that it gives"
    for encoder in (PerToken(StandardScaler()), StandardScaler()):
        what = f"^{type(encoder).__name__} cannot learn its features from blocks of data: .*"
        with pytest.raises(ValueError, match=what + remedy):
            merge_encoders([encoder], [np.zeros(0, np.int64)], 1)
    with pytest.raises(ValueError, match=r"^Lengths cannot learn .* TokenTemplates \(hash_bits="):
        Lengths().count([["a"]])
    one, other = TokenTemplates(), DictEncoder()
    parts = [one.count([["a"]]), other.count([["a"]]), one.count([[("a", "b")]])]
    with pytest.raises(ValueError, match=r"^block 1 was counted by DictEncoder\(\), block 0 by"):
        merge_encoders([p[0] for p in parts[:2]], [p[2] for p in parts[:2]], 1)
    message = r"^block 1 has the columns word, col1, but block 0 has word: all blocks must have"
    with pytest.raises(ValueError, match=message):
        merge_encoders([p[0] for p in parts[::2]], [p[2] for p in parts[::2]], 1)
    blocks = [[], ["The", "cat"], [*"letters"], [*"a cat"]]
    parts = [one.count([X] if X else []) for X in blocks]
    merged, _ = merge_encoders(
        [parts[k][0] for k in (0, 2, 3)], [parts[k][2] for k in (0, 2, 3)], 1
    )
    assert merged.templates_ == parts[2][0].templates_
    what = r"^of blocks 1 and 2, only one has characters as tokens: name the templates, Token"
    with pytest.raises(ValueError, match=what):
        merge_encoders([p[0] for p in parts], [p[2] for p in parts], 1)
    with pytest.raises(ValueError, match=r"^encoders is empty: there are no blocks\.$"):
        merge_encoders([], [], 1)
    with pytest.raises(ValueError, match="min_count must be an integer"):
        merge_encoders([parts[0][0]], [parts[0][2]], 0)
