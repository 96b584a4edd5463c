"""ChainSSVM on text: encoders of its own choice, and of the user's."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

import hingeline
from cli.commands import conll, done
from hingeline import ChainSSVM, SegmentSSVM
from hingeline.features import DictEncoder, SparseSequences, TokenTemplates
from hingeline.features.input import stack_sequences, with_constant
from hingeline.features.tables import TokenTable
from hingeline.features.templates import default_templates


def corpus() -> tuple[list[list[tuple[str, str]]], list[list[str]]]:
    """Phrases are what verbs leave between them."""
    rng = np.random.default_rng(0)
    words = {"D": ["the", "a"], "A": ["big", "old"], "N": ["cat", "dog", "sun"], "V": ["ran"]}
    X, y = [], []
    for _ in range(60):
        tags = rng.choice(list("DANV"), size=rng.integers(1, 7))
        X.append([(str(rng.choice(words[t])), str(t)) for t in tags])
        inside = False
        labels = []
        for tag in tags:
            labels.append("O" if tag == "V" else "I" if inside else "B")
            inside = tag != "V"
        y.append(labels)
    return X, y


TUPLES, LABELS = corpus()
TABLE = TokenTable.from_sentences(TUPLES, ["word", "pos"])
DICTS = [[{"w": w, "p": p} for w, p in s] for s in TUPLES]
FORMS = {
    "table": (TABLE, TokenTemplates),
    "tuples": (TUPLES, TokenTemplates),
    "dicts": (DICTS, DictEncoder),
    "lists": ([[[f"w={w}", f"p={p}"] for w, p in s] for s in TUPLES], DictEncoder),
    "sets": ([[{f"w={w}", f"p={p}"} for w, p in s] for s in TUPLES], DictEncoder),
    "lists of all lengths": ([[[w, p][: len(w) - 1] for w, p in s] for s in TUPLES], DictEncoder),
    "lists of columns": ([[[w, p] for w, p in s] for s in TUPLES], TokenTemplates),
    "strings": ([[w for w, _ in s] for s in TUPLES], TokenTemplates),
    "arrays of strings": ([np.array([w for w, _ in s]) for s in TUPLES], TokenTemplates),
}


def fit(X: Any, y: Any = LABELS, **params: Any) -> Any:
    return ChainSSVM(**{"C": 0.1, "random_state": 0, "tol": 0.3, **params}).fit(X, y)


@pytest.mark.parametrize("form", FORMS)
def test_text_is_encoded(form: str) -> None:
    X, kind = FORMS[form]
    model = fit(X)
    assert type(model.encoder_) is kind
    assert model.score(X, LABELS) > 0.99
    assert len(model.feature_names_) == model.n_features_in_ == model.emission_coef_.shape[1]
    ready = kind().fit_transform(X)
    same = fit(ready)
    np.testing.assert_array_equal(same.weights_, model.weights_)
    assert same.encoder_ is None
    assert same.feature_names_[:2].tolist() == ["x0", "x1"]


def test_words_are_words_however_they_are_written() -> None:
    words = [[w for w, _ in s] for s in TUPLES]
    weights = fit(words).weights_
    for token in (lambda w: (w,), lambda w: [w], np.str_):
        np.testing.assert_array_equal(fit([[token(w) for w in s] for s in words]).weights_, weights)
    columns = fit(TUPLES).weights_
    np.testing.assert_array_equal(fit([[list(t) for t in s] for s in TUPLES]).weights_, columns)
    # An address in the text is not the name of a feature; one plain feature per token is asked for.
    odd = [*words, ["see", "http://a.b/?c=d", "="]]
    assert (
        type(fit([[[w] for w in s] for s in odd], [*LABELS, ["O"] * 3]).encoder_) is TokenTemplates
    )
    assert fit(words, features=DictEncoder()).n_features_in_ == len({w for s in words for w in s})


def test_names_carry_the_weights() -> None:
    model = fit(DICTS)
    column = model.feature_names_.tolist().index("p:V")
    assert model.classes_[model.emission_coef_[:, column].argmax()] == "O"


def test_ready_features_in_prediction() -> None:
    model = fit(DICTS)
    expected = model.decision_function(DICTS)
    ready = model.encoder_.transform(DICTS)
    stacked, lengths = ready.matrix, ready.lengths
    for X, sizes in (
        (ready, None),
        (list(ready), None),
        (stacked, lengths),
        (stacked.toarray(), lengths),
        ([x.toarray() for x in ready], None),
        ([token for s in DICTS for token in s], lengths),
    ):
        for a, b in zip(model.decision_function(X, sizes), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="features, but ChainSSVM was fitted with"):
        model.predict(SparseSequences(stacked[:, :-1], ready.offsets))
    with pytest.raises(ValueError, match="leave lengths out"):
        model.predict(ready, lengths)
    with pytest.raises(ValueError, match="leave lengths out"):
        fit(TABLE).predict(TABLE, lengths)


def test_stacked_tokens() -> None:
    tokens = [token for s in DICTS for token in s]
    labels = [label for s in LABELS for label in s]
    model = ChainSSVM(C=0.1, random_state=0, tol=0.3)
    model.fit(tokens, labels, lengths=[len(s) for s in DICTS])
    np.testing.assert_array_equal(model.weights_, fit(DICTS).weights_)
    with pytest.raises(ValueError, match="lengths sum to 3"):
        model.fit(tokens, labels, lengths=[3])


def test_the_users_encoder() -> None:
    encoder = TokenTemplates(["pos[-1]|pos[0]", "pos[0]"])
    model = fit(TABLE, features=encoder)
    assert not hasattr(encoder, "templates_")
    assert model.encoder_.templates_ == ["pos[-1]|pos[0]", "pos[0]"]
    assert model.score(TABLE, LABELS) == 1.0
    assert clone(model).features.templates == encoder.templates
    piped = make_pipeline(encoder, ChainSSVM(C=0.1, random_state=0, tol=0.3)).fit(TABLE, LABELS)
    np.testing.assert_array_equal(piped[-1].weights_, model.weights_)


def test_new_words_are_ignored() -> None:
    model = fit(DICTS)
    assert model.predict([[{"w": "unheard", "p": "V"}]])[0].tolist() == ["O"]
    assert len(model.predict([[{}, {"z": 1}]])[0]) == 2


@pytest.mark.parametrize(
    "X",
    [TABLE, pytest.param(TUPLES, marks=pytest.mark.slow), DICTS],
    ids=["table", "tuples", "dicts"],
)
def test_model_selection(X: Any) -> None:
    scores = cross_val_score(
        ChainSSVM(C=0.1, tol=0.3, random_state=0), X, LABELS, cv=KFold(3), error_score="raise"
    )
    assert scores.min() > 0.9
    search = GridSearchCV(
        ChainSSVM(tol=0.3, random_state=0), {"C": [1e-4, 0.1]}, cv=3, error_score="raise"
    )
    search.fit(X, LABELS)
    assert search.best_params_ == {"C": 0.1}
    assert len(search.predict(X)) == len(X)
    X_train, X_test, y_train, y_test = train_test_split(X, LABELS, random_state=0)
    assert type(X_train) is type(X)
    assert fit(X_train, y_train).score(X_test, y_test) > 0.9


def test_folds_of_a_table_keep_its_names() -> None:
    model = ChainSSVM(C=0.1, tol=0.3, features=TokenTemplates(["pos[0]"]), random_state=0)
    search = GridSearchCV(
        model,
        {"features__templates": [["pos[0]"], ["pos[3]"]], "features__min_count": [1, 2]},
        cv=3,
        error_score="raise",
    ).fit(TABLE, LABELS)
    assert search.best_params_["features__templates"] == ["pos[0]"]


@pytest.mark.parametrize("X", [TABLE, DICTS], ids=["table", "dicts"])
def test_pickle(X: Any) -> None:
    model = fit(X)
    again = pickle.loads(pickle.dumps(model))
    for a, b in zip(again.predict(X), model.predict(X), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(again.feature_names_, model.feature_names_)
    other = model.with_weights(2.0 * model.weights_)
    assert other.score(X, LABELS) == model.score(X, LABELS)


def test_partial_fit_and_warm_start() -> None:
    model = ChainSSVM(C=10.0, random_state=0, tol=1e-5)
    model.partial_fit(DICTS[:30], LABELS[:30]).partial_fit(DICTS[30:], LABELS[30:])
    whole = fit(DICTS, tol=1e-5)
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=2e-5)
    known = model.n_features_in_
    model.partial_fit([[{"never": "seen"}]], [["O"]])
    assert model.n_features_in_ == known + 1
    assert model.feature_names_[-1] == "never:seen"
    warm = ChainSSVM(C=10.0, random_state=0, warm_start=True).fit(TABLE, LABELS)
    passes = warm.n_iter_
    assert warm.fit(TABLE, LABELS).n_iter_ <= passes


def test_stacking_checks_once_but_names_the_place() -> None:
    X = [sp.csr_matrix(np.eye(3)[[0, 1]]), sp.csr_matrix(np.eye(3)[[2]])]
    y = [["a", "b"], ["a"]]
    model = ChainSSVM().fit(X, y)
    bad = [X[0], X[1].copy()]
    bad[1].data[0] = np.nan
    with pytest.raises(ValueError, match=r"X\[1\] contains NaN"):
        model.predict(bad)
    with pytest.raises(ValueError, match=r"X\[1\] has 2 features, but X\[0\] has 3"):
        model.predict([X[0], X[1][:, :2]])
    with pytest.raises(ValueError, match=r"X\[1\] is an empty sequence"):
        model.predict([X[0], X[1][:0]])
    unsorted = sp.csr_matrix((np.ones(3), [2, 0, 2], [0, 3]), shape=(1, 3))
    np.testing.assert_array_equal(
        model.decision_function([X[0], unsorted])[1],
        model.decision_function([unsorted.toarray()])[0],
    )
    empty = SparseSequences(sp.csr_matrix(np.eye(3)), [0, 1, 1, 3])
    with pytest.raises(ValueError, match=r"X\[1\] is an empty sequence"):
        model.predict(empty)


def test_small_matrices_are_stacked_as_they_are() -> None:
    """By hand where they are plain, else by scipy; the same rows either way."""
    rng = np.random.default_rng(0)
    dense = [rng.integers(0, 3, size=(n, 4)) * 0.5 for n in (3, 1, 2, 5)]
    roomy = sp.csr_matrix(dense[1])
    roomy.data = np.append(roomy.data, 7.0)
    roomy.indices = np.append(roomy.indices, 0)
    twice = sp.csr_matrix((np.full(4, 0.5), [3, 0, 3, 1], [0, 4, 4]), shape=(2, 4))
    dense[2] = twice.toarray()
    short = [sp.csr_array(dense[0].astype(np.float32)), sp.csr_matrix(dense[1])]
    for own in ([*short, twice], [short[0], roomy, twice], [short[0].tocsc(), short[1], twice]):
        matrix, offsets = stack_sequences([*own, sp.csr_matrix(dense[3])])
        np.testing.assert_array_equal(matrix.toarray(), np.vstack(dense))
        assert matrix.has_canonical_format
        assert offsets.tolist() == [0, 3, 4, 6, 11]


def test_constant_column() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        matrix = sp.random(7, 5, 0.3, format="csr", dtype=dtype, random_state=rng)
        out = with_constant(matrix)
        np.testing.assert_array_equal(out.toarray(), np.c_[matrix.toarray(), np.ones(7)])
        assert out.dtype == dtype
        assert out.has_canonical_format
    assert with_constant(sp.csr_matrix((2, 0))).toarray().tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("form", ["table", "dicts"])
def test_model_file(form: str, tmp_path: Any) -> None:
    X, kind = FORMS[form]
    model = fit(X, features=kind(min_count=2))
    model.save(tmp_path / "m.hinge")
    again = ChainSSVM.load(tmp_path / "m.hinge")
    np.testing.assert_array_equal(again.feature_names_, model.feature_names_)
    for a, b in zip(again.decision_function(X), model.decision_function(X), strict=True):
        np.testing.assert_array_equal(a, b)


def run_together() -> tuple[list[list[str]], list[list[str]]]:
    """Words of a small language, written without spaces: where does each begin?"""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), rng.integers(2, 6))) for _ in range(60)]
    texts = [[words[k] for k in rng.integers(0, 60, 6)] for _ in range(160)]
    labels = [[x for word in text for x in "B" + "I" * (len(word) - 1)] for text in texts]
    return [list("".join(text)) for text in texts], labels


def test_characters_are_read_by_their_neighbours(tmp_path: Any) -> None:
    X, y = run_together()
    model = ChainSSVM(tol=0.1, random_state=0).fit(X[:60], y[:60])
    words = TokenTemplates(default_templates(1))
    assert model.score(X[60:], y[60:]) > 0.95  # 0.961
    other = ChainSSVM(tol=0.1, random_state=0, features=words).fit(X[:60], y[:60])
    assert other.score(X[60:], y[60:]) < 0.88
    model.save(tmp_path / "m.hinge")
    assert hingeline.load(tmp_path / "m.hinge").encoder_.templates_ == model.encoder_.templates_


def test_all_ways_to_give_characters_are_one(tmp_path: Any) -> None:
    X, y = (part[:20] for part in run_together())
    wanted = TokenTemplates().fit(X).templates_
    tuples = [[(c,) for c in x] for x in X]
    table = TokenTable.from_sentences(X)
    for model in [*(fit(form, y) for form in (tuples, table)), SegmentSSVM(tol=0.5).fit(X, y)]:
        assert model.encoder_.templates_ == wanted
    online = ChainSSVM(C=0.1).partial_fit(X[:5], y[:5], classes=["B", "I"])
    online.partial_fit([["whole", "words"]], [["B", "I"]])
    assert online.encoder_.templates_ == wanted
    pairs = [list(zip(*pair, strict=True)) for pair in zip(X, y, strict=True)]
    (tmp_path / "c.conll").write_text(conll(pairs, 0, 1))
    done("train", tmp_path / "c.conll", "--model", tmp_path / "m", "--tol", 0.5, "-q")
    assert hingeline.load(tmp_path / "m").encoder_.templates_ == wanted
