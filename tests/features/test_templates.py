"""TokenTemplates against templates applied token by token."""

from __future__ import annotations

import pickle
import re
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hingeline.data import load_notes
from hingeline.features import SparseSequences, TokenTemplates
from hingeline.features import vocabulary as columns
from hingeline.features.tables import TokenTable

words = st.sampled_from(["a", "The", "cat", "CAT", "x-1", "2024", "Éa", "_B-1", "", "a=b|c"])
tags = st.sampled_from(["N", "V", "D"])
sentence = st.lists(st.tuples(words, tags), min_size=1, max_size=5)
corpus = st.lists(sentence, min_size=1, max_size=6)

#: before and behind the column, what it does, whether it is a test
FUNCTIONS = [
    ("", "", lambda v: v, False),
    ("lower(", ")", str.lower, False),
    ("upper(", ")", str.upper, False),
    ("prefix(", ",2)", lambda v: v[:2] if len(v) > 1 else None, False),
    ("suffix(", ",3)", lambda v: v[-3:] if len(v) > 2 else None, False),
    ("shape(", ")", lambda v: "".join(map(look, v)), False),
    ("shape(", ",collapse)", lambda v: re.sub(r"(.)\1+", r"\1", "".join(map(look, v))), False),
    ("isdigit(", ")", str.isdigit, True),
    ("isupper(", ")", str.isupper, True),
    ("match(", ",'^[A-Z]')", lambda v: "A" <= v[:1] <= "Z", True),
    ("find(", ",'[0-9]+')", lambda v: (re.findall("[0-9]+", v) or [None])[0], False),
    ("prefix(lower(", "),1)", lambda v: v.lower()[:1] or None, False),
]


def look(character: str) -> str:
    if character.isdigit():
        return "d"
    if character.isupper():
        return "X"
    return "x" if character.isalpha() else character


terms = st.tuples(st.sampled_from(FUNCTIONS), st.sampled_from([0, 1]), st.integers(-3, 3))
templates = st.lists(st.lists(terms, min_size=1, max_size=4), min_size=1, max_size=5)


def written(template: Any) -> str:
    names = ("word", "pos")
    return "|".join(f"{a}{names[c]}[{o}]{b}" for (a, b, _, _), c, o in template)


def feature(template: Any, tokens: Any, t: int) -> str | None:
    """The name of the feature that a template gives a token, or None."""
    parts = []
    for (a, b, function, test), column, offset in template:
        text = f"{a}{('word', 'pos')[column]}[{offset}]{b}"
        at = t + offset
        if 0 <= at < len(tokens):
            value = function(tokens[at][column])
            if test:
                value = "" if value else None
        elif test:
            value = None
        else:
            value = f"_B{at}" if at < 0 else f"_B+{at - len(tokens) + 1}"
        if value is None:
            return None
        parts.append(text if test else f"{text}={value}")
    return "|".join(parts)


def rows(encoder: Any, sequences: SparseSequences) -> list[Counter[str]]:
    names = encoder.get_feature_names_out()
    matrix = sequences.matrix
    assert matrix.shape[1] == len(names) == encoder.n_features_out_
    return [
        Counter(dict(zip(names[row.indices], row.data.astype(int).tolist(), strict=True)))
        for row in (matrix[t] for t in range(matrix.shape[0]))
    ]


def expected(chosen: Any, sentences: Any, known: set[str] | None = None) -> list[Counter[str]]:
    out = []
    for tokens in sentences:
        for t in range(len(tokens)):
            found = [feature(template, tokens, t) for template in chosen]
            out.append(Counter(f for f in found if f is not None and (known is None or f in known)))
    return out


@settings(max_examples=60, deadline=None)
@given(corpus, corpus, templates, st.integers(1, 3), st.sampled_from([2**62, 60]))
def test_against_token_by_token(train: Any, test: Any, chosen: Any, least: int, limit: int) -> None:
    unique = {written(template): template for template in chosen}
    texts, chosen = list(unique), list(unique.values())
    before = columns.LIMIT
    columns.LIMIT = limit  # conjunctions of several keys, as with huge vocabularies
    try:
        encoder = TokenTemplates(texts, min_count=least)
        table = TokenTable.from_sentences(train, ["word", "pos"])
        encoded = encoder.fit_transform(table)
        counts = sum(expected(chosen, train), Counter())
        # "_B-1" may also be a word: then two features have one name, and each its own count.
        if any("_B-1" in token for tokens in train + test for token in tokens):
            assert all(counts[name] >= least for name in encoder.get_feature_names_out())
        else:
            known = {name for name, count in counts.items() if count >= least}
            assert set(encoder.get_feature_names_out()) == known
            assert rows(encoder, encoded) == expected(chosen, train, known)
            new = encoder.transform(test)
            assert rows(encoder, new) == expected(chosen, test, known)
        again = clone(encoder).restore(*encoder.to_state())
        for inputs in (train, test):
            assert (again.transform(inputs).matrix != encoder.transform(inputs).matrix).nnz == 0
        assert (encoder.transform(table).matrix != encoded.matrix).nnz == 0
        np.testing.assert_array_equal(
            again.get_feature_names_out(), encoder.get_feature_names_out()
        )
    finally:
        columns.LIMIT = before


LINES = ["U00:%x[-1,0]", "U01:%x[0,0]/%x[1,1]", "U02:%x[2,1]", "U", "U03:x%x[0,1]y{}"]
BAG = ["U:%x[-1,0]", "U:%x[0,0]", "U:%x[1,0]", "U9:%x[0,1]/%x[1,1]", "U9:%x[-1,1]/%x[0,1]"]


def expanded(line: str, tokens: Any, t: int) -> str:
    """A line as CRF++ reads it: macros replaced by what they point to."""

    def value(macro: re.Match[str]) -> str:
        at, column = t + int(macro[1]), int(macro[2])
        if at < 0:
            return f"_B{at}"
        if at >= len(tokens):
            return f"_B+{at - len(tokens) + 1}"
        return str(tokens[at][column])

    return re.sub(r"%x\[(-?\d+),(\d+)\]", value, line)


@settings(max_examples=60, deadline=None)
@given(
    corpus.filter(lambda c: all(token[0] != "_B-1" for s in c for token in s)),
    st.lists(st.sampled_from(LINES + BAG), min_size=1, unique=True),
)
def test_crfpp_text(train: Any, lines: list[str]) -> None:
    text = "# comment\n\n" + "\n".join(lines) + "\nB\n"
    encoder = TokenTemplates(text)
    encoded = encoder.fit_transform(train)
    want = [
        Counter(expanded(line, tokens, t) for line in lines)
        for tokens in train
        for t in range(len(tokens))
    ]
    assert rows(encoder, encoded) == want
    assert rows(encoder, encoder.transform(train)) == want
    assert encoded.matrix.has_canonical_format
    again = clone(encoder).restore(*encoder.to_state())
    assert rows(again, again.transform(train)) == want


def test_matrix_is_what_kernels_want() -> None:
    sentences = [[("a", "N"), ("b", "V")], [("c", "N")]]
    encoded = TokenTemplates().fit_transform(sentences)
    assert isinstance(encoded, SparseSequences)
    assert encoded.matrix.dtype == np.float32
    assert encoded.matrix.indices.dtype == np.int32
    assert encoded.lengths.tolist() == [2, 1]
    m = encoded.matrix
    assert type(m)((m.data, m.indices, m.indptr), shape=m.shape).has_canonical_format
    assert (encoded.matrix.data == 1).all()
    assert TokenTemplates(dtype=np.float64).fit_transform(sentences).matrix.dtype == np.float64


def test_default_depends_on_the_columns() -> None:
    words_only = TokenTemplates().fit([["The", "cat"]])
    assert "prefix(word[0],3)" in words_only.templates_
    both = TokenTemplates().fit([[("The", "D"), ("cat", "N")]])
    assert "col1[-1]|col1[0]|col1[1]" in both.templates_
    third = TokenTemplates().fit([[("The", "D", "B-NP")]])
    assert third.templates_ == both.templates_  # the third is the labels', more often than not


def test_words_have_the_templates_they_always_had() -> None:
    words = ["0[-2]", "0[-1]", "0[0]", "0[1]", "0[2]", "0[-1]|0[0]", "0[0]|0[1]"]
    words += ["shape(0[0],collapse)", "suffix(0[0],2)", "suffix(0[0],3)", "suffix(0[0],4)"]
    alone = ["lower(0[0])", "prefix(0[0],1)", "prefix(0[0],2)", "prefix(0[0],3)"]
    tags = ["1[-2]", "1[-1]", "1[0]", "1[1]", "1[2]", "1[-2]|1[-1]", "1[-1]|1[0]", "1[0]|1[1]"]
    tags += ["1[1]|1[2]", "1[-2]|1[-1]|1[0]", "1[-1]|1[0]|1[1]", "1[0]|1[1]|1[2]"]
    notes = load_notes().X_train
    pairs = [[(word, "N") for word in note] for note in notes]
    for X, wanted in ((notes, words + alone), (pairs, words + tags)):
        assert TokenTemplates().fit(X)._resolved == wanted


def of_characters(X: Any) -> bool:
    found = TokenTemplates().fit(X).templates_
    assert ("word[0]|word[1]|word[2]|word[3]" in found) != ("suffix(word[0],3)" in found)
    return "word[0]|word[1]|word[2]|word[3]" in found


@pytest.mark.parametrize(
    ("X", "characters"),
    [
        ([list("Tokens of one character.")], True),
        ([["."], ["!", "?"], list("...")], True),
        ([list("NVDNN"), list("DNV")], True),
        ([list("2024")], False),  # four tokens tell nothing
        ([list("12345")], True),
        ([["<s>", *"to be or not to be".replace(" ", ""), "</s>"]], True),
        ([[c if c != " " else "SPACE" for c in "to be or not to be"]], True),
        ([["k", "a\u0301", "k", "\u0915\u093f", "o\u0302\u0323", "e\u0301"]], True),  # marks
        ([list("今日は良い天気です") + ["iPhone", "2024"]], True),  # left whole
        ([["I", "am", "a", "cat", ".", "I", "am", "it", "."]], False),
        ([["x", "=", "f", "(", "value", ",", "other", ")", ";", "return", "x"]], False),
        ([["0"] * 50 + ["17", "23", "11", "50", "64"]], False),  # most tokens, not most values
        ([["今日", "は", "良い", "天気", "です"]], False),
        ([[(c, "N") for c in "abcdef"]], True),
        ([[(word, "N") for word in ("The", "cat", "is", "fat", ".")]], False),
    ],
)
def test_characters_are_told_from_words(X: Any, characters: bool) -> None:
    assert of_characters(X) == characters


def test_templates_of_characters() -> None:
    encoder = TokenTemplates().fit([list("ab cd")])
    assert len(encoder.templates_) == 19
    assert "shape(word[-1])=x|shape(word[0])= " in encoder.get_feature_names_out()
    pairs = TokenTemplates().fit([[(c, "N") for c in "ab cd"]])
    assert pairs.templates_[:19] == encoder.templates_
    assert pairs.templates_[19:] == TokenTemplates().fit([[("The", "D")]]).templates_[11:]
    table = TokenTable.from_sentences([["words", "here"], list("letters")])
    assert of_characters(table[1:])  # a slice knows nothing of the words


def test_the_first_batch_tells_words_from_characters() -> None:
    encoder = TokenTemplates()
    encoder.partial_fit_transform([list("letters")])
    first = encoder.templates_
    encoder.partial_fit_transform([["whole", "words"]])
    assert encoder.templates_ == first
    again = clone(encoder).restore(*encoder.to_state())
    assert again.templates_ == first
    assert of_characters([list("letters")])
    assert TokenTemplates(hash_bits=8).fit([list("letters")]).templates_ == first


def test_a_slice_knows_nothing_of_the_rest() -> None:
    table = TokenTable.from_sentences([["a", "b"], ["c"], ["d"]])
    encoder = TokenTemplates(["word[0]"])
    encoder.fit(table[1:])
    assert encoder.get_feature_names_out().tolist() == ["word[0]=c", "word[0]=d"]
    assert encoder.transform(table[:1]).matrix.nnz == 0
    assert encoder.transform(table[[2, 0]]).matrix.toarray().tolist() == [[0, 1], [0, 0], [0, 0]]


def test_columns_by_name_or_position() -> None:
    table = TokenTable.from_sentences([[("a", "N"), ("b", "V")]], ["form", "tag"])
    encoder = TokenTemplates(["tag[0]", "0[0]"]).fit(table)
    assert encoder.templates_ == ["tag[0]", "form[0]"]
    want = encoder.transform(table).matrix.toarray().tolist()
    assert encoder.transform([[("a", "N"), ("b", "V")]]).matrix.toarray().tolist() == want
    wide = TokenTable.from_sentences([[("V", "?", "a"), ("N", "?", "b")]], ["tag", "x", "form"])
    got = encoder.transform(wide).matrix.toarray().tolist()
    assert got == [[0, 1, 1, 0], [1, 0, 0, 1]]
    only = TokenTemplates(["tag[0]"]).fit(table)
    assert only.transform(table.select(["tag"])).matrix.toarray().tolist() == [[1, 0], [0, 1]]
    other = TokenTable.from_sentences([[("a", "N", "x")]], ["form", "pos", "x"])
    with pytest.raises(ValueError, match=r"X has the columns 'form', 'pos', 'x'.*read 'tag'"):
        encoder.transform(other)
    words = TokenTemplates().fit([["a", "b"]])
    with pytest.raises(ValueError, match=r"columns 'word', 'col1'.* on 'word': leave the others"):
        words.transform([[("a", "N"), ("b", "V")]])


def test_hashing() -> None:
    train = [[("a", "N"), ("b", "V")], [("c", "N"), ("a", "V")]]
    texts = ["word[0]|pos[0]", "word[-1]"]
    table = TokenTable.from_sentences(train, ["word", "pos"])
    exact = TokenTemplates(texts)
    wanted = exact.fit_transform(table).matrix
    wide = TokenTemplates(texts, hash_bits=26)
    hashed = wide.fit_transform(table).matrix
    assert hashed.shape == (4, 2**26)
    assert wide.hash_collisions_ == 0
    # Without collisions the products of tokens are the same.
    np.testing.assert_array_equal((hashed @ hashed.T).toarray(), (wanted @ wanted.T).toarray())
    assert (wide.transform(table).matrix != hashed).nnz == 0
    new = wide.transform(TokenTable.from_sentences([[("new", "N")]], ["word", "pos"])).matrix
    assert new.nnz == 2
    narrow = TokenTemplates(texts, hash_bits=1)
    matrix = narrow.fit_transform(table).matrix
    assert narrow.hash_collisions_ == exact.n_features_out_ - 2
    assert matrix.sum() == wanted.sum()
    assert narrow.get_feature_names_out().tolist() == ["hash0", "hash1"]
    meta, arrays = wide.to_state()
    assert arrays == {}
    again = clone(wide).restore(meta, arrays)
    assert (again.transform(table).matrix != hashed).nnz == 0
    assert again.hash_collisions_ == 0


def test_the_hash_is_the_one_that_is_stated() -> None:
    from hashlib import blake2b

    def b(text: str) -> int:
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    def m(h: int) -> int:
        h ^= h >> 30
        h = h * 0xBF58476D1CE4E5B9 % 2**64
        h ^= h >> 27
        h = h * 0x94D049BB133111EB % 2**64
        return h ^ (h >> 31)

    encoder = TokenTemplates(["word[-1]|word[0]"], hash_bits=20)
    indices = encoder.fit_transform([["He", "ran"]]).matrix.indices.tolist()
    start = b("word[-1]=\0|word[0]=\0")
    first = m(m(start ^ b("\0_B-1")) ^ b("He"))
    second = m(m(start ^ b("He")) ^ b("ran"))
    assert indices == [first % 2**20, second % 2**20]


def test_a_column_of_something_else_is_told() -> None:
    known = TokenTemplates(["word[0]", "col1[0]"]).fit([[("the", "D"), ("cat", "N")]])
    other = [[("the", "O")] * 20]
    with pytest.warns(UserWarning, match="no value of column 'col1' .* such as 'O'") as told:
        known.transform(other)
    assert told[0].filename == __file__  # the line that called, not one of the library
    with warnings.catch_warnings(action="error"):
        known.transform([[("the", "O")] * 19])  # too few to tell
        known.transform([[*other[0], ("dog", "N")]])


def test_scikit_learn_manners() -> None:
    encoder = TokenTemplates(["word[0]"], min_count=2)
    assert clone(encoder).get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        encoder.transform([["a"]])
    with pytest.raises(NotFittedError):
        encoder.to_state()
    table = TokenTable.from_sentences([["a", "b", "a"]])
    encoder.fit(table)
    encoder.transform(table)
    again = pickle.loads(pickle.dumps(encoder))
    assert again.get_feature_names_out().tolist() == ["word[0]=a"]
    assert (again.transform(table).matrix != encoder.transform(table).matrix).nnz == 0


@pytest.mark.parametrize(
    ("params", "X", "message"),
    [
        ({"min_count": 0}, [["a"]], "min_count must be an integer ≥ 1, got 0"),
        ({"min_count": True}, [["a"]], "min_count must be an integer"),
        ({"hash_bits": 31}, [["a"]], "hash_bits must be an integer from 1 to 30"),
        ({"hash_bits": 4, "min_count": 2}, [["a"]], "set one of them"),
        ({"dtype": int}, [["a"]], "dtype must be np.float32 or np.float64"),
        ({"dtype": "nonsense"}, [["a"]], "dtype must be np.float32"),
        ({"templates": None}, [["a"]], "templates must be 'default'"),
        ({"templates": [3]}, [["a"]], r"templates\[0\] must be a string"),
        ({}, "text", "X must be a list of sentences, got str"),
        ({}, ["text"], r"X\[0\] must be a list of tokens, got str"),
        ({}, [[{"w": 1}]], "token 0 of .*of type dict.*DictEncoder"),
        ({}, [[1.0]], "token 0 of .*of type float"),
        ({}, [[("a", "b"), ("a",)]], "token 1 of sentence 0"),
    ],
)
def test_bad_input(params: Any, X: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as error:
        TokenTemplates(**params).fit(X)
    assert "\n" not in str(error.value)
