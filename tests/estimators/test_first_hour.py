"""What a new user tries first: natural calls work, results show themselves, mistakes are named."""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict

from hingeline import (
    C_path,
    ChainCRF,
    ChainSSVM,
    EarlyStopping,
    Graph,
    GraphSSVM,
    MulticlassSSVM,
    MultilabelSSVM,
    load,
)
from hingeline._words import bound_text
from hingeline.constraints import StartsWith, check
from hingeline.core.results import History, HistoryRow, Rows
from hingeline.data import load_notes
from hingeline.evaluation.inspection import (
    TransitionWeight,
    explain,
    top_features,
    transition_table,
)
from hingeline.evaluation.metrics import evaluate
from hingeline.features import DictEncoder, TokenTable
from hingeline.report import plot_curve

NOTES = load_notes(60, 20)


@pytest.fixture(scope="module")
def tagger() -> Any:
    return ChainSSVM(random_state=0).fit(NOTES.X_train, NOTES.y_train)


def test_results_show_themselves(tagger: Any) -> None:
    found = evaluate(NOTES.y_test, tagger.predict(NOTES.X_test))
    assert f"span f1            {found.span_f1:.4f}" in repr(found)
    weights = repr(top_features(tagger, 1)).splitlines()
    assert weights[0].split() == ["label", "feature", "weight"]
    assert len(weights) == 1 + len(top_features(tagger, 1))
    assert repr(transition_table(tagger)).splitlines()[1].split()[0] == "(start)"
    assert repr(explain(tagger, NOTES.X_test, index=0)).startswith("chosen  ")
    assert repr(check([StartsWith("O")], NOTES.X_test, NOTES.y_test)).startswith("constraint ")
    table = TokenTable.from_sentences(NOTES.X_test)
    assert repr(table).startswith("TokenTable(20 sentences, ")
    path = C_path(ChainSSVM(tol=0.1, random_state=0), NOTES.X_test, NOTES.y_test, Cs=[0.01, 0.1])
    assert [line.split()[0] for line in repr(path).splitlines()] == ["C", "0.01", "0.1"]
    assert repr(evaluate([["O"]], [["O"]])).startswith("1 sequence, 1 token")


def test_labels_among_the_columns_are_told() -> None:
    rows = zip(NOTES.X_test, NOTES.y_test, strict=True)
    table = TokenTable.from_sentences([[*zip(*row, strict=True)] for row in rows], ["word", "tag"])
    with pytest.warns(UserWarning, match=r"last column of X holds the labels.*select\(\['word'"):
        ChainSSVM(tol=0.1).fit(table, NOTES.y_test)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ChainSSVM(tol=0.1).fit(table.select(["word"]), NOTES.y_test)
        known = [("a", "A"), ("b", "B"), ("c", "A")]
        model = ChainSSVM(tol=0.1).fit([known] * 5, [["A", "B", "B"]] * 5)
    pairs, labels = list(table), NOTES.y_test
    for more in ((pairs, labels), ([*chain(*pairs)], [*chain(*labels)], table.lengths)):
        with pytest.warns(UserWarning, match="last column of X holds the labels that are to be le"):
            ChainSSVM(tol=0.1).fit(*more)
    with pytest.warns(UserWarning, match="no value of column 'col1' occurred in training"):
        model.predict([[(word, f"other {tag}") for word, tag in known]] * 10)


def test_probabilities_are_to_be_had_elsewhere(tagger: Any) -> None:
    for model, how in (
        (tagger, r"CalibratedChain\(model\).fit\(X_dev, y_dev\) gives .*evaluation.calibration"),
        (MulticlassSSVM(), "CalibratedClassifierCV"),
        (ChainCRF(), "predict_marginals"),
        (MultilabelSSVM(), "its scores are not probabilities"),
    ):
        assert not hasattr(model, "predict_proba")
        with pytest.raises(AttributeError, match=f"{type(model).__name__} has no .*{how}"):
            model.predict_proba(NOTES.X_test)


def test_a_curve_shows_itself(tagger: Any, tmp_path: Any) -> None:
    tagger.save(tmp_path / "m.hinge")
    for curve in (tagger.history_, load(tmp_path / "m.hinge").history_):
        head, *rows = repr(curve).splitlines()
        assert head.split()[:4] == ["time", "passes", "oracle_calls", "primal"]
        assert "restricted" not in head  # nothing is known of it
        assert rows[-1].split()[4] == f"{tagger.history_[-1].dual:.6g}"
        assert curve._repr_html_().startswith("<table><tr><th>time<th>passes")
    assert len(plot_curve(tagger)) == 2
    long = History(tagger.history_ * 100)
    assert len(repr(long).splitlines()) == 22
    assert repr(long).splitlines()[11].split()[0] == "…"
    html = Rows([TransitionWeight("<b>", "a", 0.5)])._repr_html_()
    assert html.endswith("<tr><td>&lt;b&gt;<td>a<td>+0.5000</table>")
    assert repr(Rows()) == "[]"
    assert repr(long[-3:]).split() == repr(tagger.history_[-3:]).split()
    assert type(long[0]) is type(long[-1]) is HistoryRow


def test_a_loaded_model_can_be_looked_at(tagger: Any, tmp_path: Any) -> None:
    tagger.save(tmp_path / "m.hinge")
    model = load(tmp_path / "m.hinge")
    assert "ChainSSVM" in model._repr_html_()
    share = bound_text(tagger.duality_gap_ / tagger.primal_objective_)
    assert f"gap {tagger.duality_gap_:.3g} ({share}) = primal" in model._repr_html_()
    assert model._repr_mimebundle_()["text/html"].endswith(f"{tagger.stop_reason_}</p>")
    assert "primal" not in ChainSSVM()._repr_html_()
    model.primal_objective_, model.nu_, model.rho_ = -1.0, 0.5, 4.0  # of slack="nu": P + νρ = 1
    assert f"({bound_text(model.duality_gap_)})" in model._repr_html_()
    missing = [name for name in dir(model) if not name.startswith("_") and not hasattr(model, name)]
    assert missing == []


@pytest.mark.parametrize("kind", [ChainCRF, GraphSSVM, MulticlassSSVM, MultilabelSSVM])
def test_every_estimator_can_be_looked_at(kind: Any, tmp_path: Any) -> None:
    """Unfitted, fitted and loaded; what is not there is an AttributeError and nothing else."""
    rng = np.random.default_rng(0)
    X: Any = [rng.normal(size=(4, 3)) for _ in range(6)]
    y: Any = [np.array(["a", "b", "a", "b"])] * 6
    if kind is GraphSSVM:
        X = [Graph(x, [(0, 1), (1, 2)]) for x in X]
    elif kind is not ChainCRF:
        X, y = np.vstack(X), np.concatenate(y)
    if kind is MultilabelSSVM:
        y = rng.integers(0, 2, size=(24, 2))
    model = kind().fit(X, y)
    model.save(tmp_path / "m.hinge")

    def is_property(name: str) -> bool:
        return isinstance(getattr(kind, name, None), property)

    for shown in (kind(), model, load(tmp_path / "m.hinge")):
        names = [name for name in dir(shown) if not name.startswith("_")]
        missing = [name for name in names if not hasattr(shown, name)]
        assert shown is not model or not missing
        untold = [n for n in names if n[-1] == "_" and n not in kind.__doc__ and not is_property(n)]
        assert untold == [], "the reference lists attributes from the docstring"
        assert kind.__name__ in shown._repr_html_()


def test_sequences_without_tokens_have_no_labels(tagger: Any) -> None:
    note, other = NOTES.X_test[:2]
    found = tagger.predict([[], note, [], other])
    assert [len(labels) for labels in found] == [0, len(note), 0, len(other)]
    np.testing.assert_array_equal(found[3], tagger.predict([other])[0])
    fixed = tagger.predict([[], note], allowed=[None, {0: "B-PER"}])
    assert fixed[1][0] == "B-PER"
    assert tagger.predict([[]])[0].dtype == tagger.classes_.dtype
    table = np.ones((len(note), len(tagger.classes_)), dtype=bool)  # of all tokens
    table[:, tagger.classes_.tolist().index("O")] = False
    assert "O" not in tagger.predict([[], note], allowed=table)[1]
    for some in ([None], [None] * 3):
        what = f"allowed has {len(some)} entries, but there are 2 sequences"
        with pytest.raises(ValueError, match=what):
            tagger.predict([[], note], allowed=some)
    assert tagger.predict([]) == []  # the last batch of a loop may be empty
    for X, y in (([], []), ([[]], [[]])):
        with pytest.raises(ValueError, match="X has no tokens: there is nothing to compare"):
            tagger.score(X, y)
    with pytest.raises(NotFittedError):
        ChainSSVM().predict([])
    with pytest.raises(ValueError, match="X is empty: there are no sequences"):
        ChainSSVM().fit([], [])
    with pytest.raises(ValueError, match=r"X\[1\] is an empty sequence"):
        ChainSSVM().fit([[{"a": 1}], []], [["x"], []])


def test_frames_and_columns_of_frames(tagger: Any) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"sentence": [1, 1, 2], "word": list("abc"), "tag": list("xyx")})
    with pytest.raises(TypeError, match="X is a frame: cut it into sequences"):
        ChainSSVM().fit(frame, frame.tag)
    with pytest.raises(TypeError, match="X is a frame"):
        tagger.predict(frame)
    for tokens in (frame.word, pd.Series([{"w": 1}] * 3)):
        with pytest.raises(TypeError, match=r"cut the column, such as frame.groupby\("):
            ChainSSVM().fit(tokens, frame.tag)
    with pytest.raises(TypeError, match=r"in groups: pass the lists of one column"):
        ChainSSVM().fit(frame.groupby("sentence"), frame.tag)
    X, y = pd.Series(NOTES.X_train, index=range(5, 65)), pd.Series(NOTES.y_train)
    np.testing.assert_array_equal(ChainSSVM(random_state=0).fit(X, y).weights_, tagger.weights_)


def test_a_misspelt_class_is_named() -> None:
    X, y = np.eye(4), ["a", "b", "a", "b"]
    with pytest.warns(UserWarning, match="class_weight has 'c', which is not a label of y"):
        MulticlassSSVM(class_weight={"a": 2.0, "c": 3.0}).fit(X, y)
    plain = MulticlassSSVM(class_weight={"a": 2.0}, random_state=0).fit(X, y)
    assert plain.coef_.shape[1] == 4


def test_labels_of_all_folds_together() -> None:
    found = cross_val_predict(ChainSSVM(random_state=0), NOTES.X_train, NOTES.y_train, cv=3)
    assert [*map(len, found)] == [*map(len, NOTES.y_train)]
    fold = KFold(3).split(NOTES.X_train)
    train, test = next(iter(fold))
    X, y = ([part[i] for i in train] for part in (NOTES.X_train, NOTES.y_train))
    own = ChainSSVM(random_state=0).fit(X, y).predict([NOTES.X_train[i] for i in test])
    np.testing.assert_array_equal(np.concatenate(own), np.concatenate(found[test]))
    assert evaluate(NOTES.y_train, found).span_f1 > 0.5


def test_callbacks_predict_as_the_model_will() -> None:
    """Early stopping counts labels that keep to the scheme, as those of ``predict`` do."""
    model = ChainSSVM(tol=1e-4, random_state=0)
    watch = EarlyStopping(model, NOTES.X_test, NOTES.y_test, patience=1, scoring="span_f1")
    seen: list[Any] = []
    model.set_params(callbacks=[watch, lambda state: seen.append(model.scheme_)])
    model.fit(NOTES.X_train[:20], NOTES.y_train[:20])
    assert {*seen, model.scheme_} == {"IOB2"}
    found = evaluate(NOTES.y_test, model.predict(NOTES.X_test)).span_f1
    assert found == max(watch.scores_)
    assert model.stop_reason_.endswith(f"has not improved on {found:.4f} for 1 pass")


WORDS, TAGS = [["the", "cat"], ["a", "dog"]], [["D", "N"], ["D", "N"]]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("the cat", TAGS, r"X is one string: .*\[X.split\(\)\]"),
        (["the cat", "a dog"], TAGS, r"X\[0\] is one string: .*X\[0\].split\(\)"),
        ([WORDS[0], "a dog"], TAGS, r"X\[1\] is one string"),
        (WORDS[0], TAGS[0], r"X\[0\] is 'the', one token .*\[X\] if it is a single one"),
        ([{"w": "a"}], ["D"], r"X\[0\] is {'w': 'a'}, one token or number"),
        ([1.0, 2.0], TAGS, r"X\[0\] is 1.0, one token or number"),
        (WORDS, ["DN", "DN"], r"y\[0\] is 'DN', expected a list of 2 labels, one for each token"),
        (WORDS, [2, 2], r"y\[0\] is 2, expected a list of 2 labels"),
        (WORDS, ["D", "N", "D", "N"], "2 sequences and y has 4 labels, one for each token: cut y"),
        ([WORDS], [TAGS], r"y\[i\]\[t\] that of token t"),
        (
            [["the", ("cat", "N")]],
            TAGS[:1],
            r"X\[0\]\[0\] is 'the', but X\[0\]\[1\] is \('cat', 'N'\)",
        ),
        (
            [[["the"], ["cat", "x"]], WORDS[1]],
            TAGS,
            r"X\[1\]\[0\] is 'a', but X\[0\]\[0\] is \['the'",
        ),
        ([[{"w": "the"}, "cat"], WORDS[1]], TAGS, r"X\[0\]\[1\] is 'cat', but .* each as its feat"),
        ([[1, 2], [3, 4]], TAGS, r"X\[0\] holds the number 1 as a token: pass strings if numbers"),
        ([np.arange(2)] * 2, TAGS, r"X\[0\] holds the number .* or a list of features for each"),
        (iter(WORDS), TAGS, r"got list_iterator: pass list\(X\)"),
    ],
)
def test_the_most_likely_mistakes(X: Any, y: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ChainSSVM().fit(X, y)


@pytest.mark.parametrize("X", ["in May", ["in May"], ["in", "May"], [{"w": "in"}]])
def test_mistakes_at_prediction(tagger: Any, X: Any) -> None:
    with pytest.raises(TypeError, match=r"one string|one token"):
        tagger.predict(X)


def test_words_for_a_model_of_features(tmp_path: Any) -> None:
    dicts = [[{"w": word} for word in words] for words in WORDS]
    ChainSSVM(tol=0.1).fit(dicts, TAGS).save(tmp_path / "m.hinge")
    with pytest.raises(TypeError, match=r"X\[0\]\[0\] is 'the', a word, but the model was"):
        load(tmp_path / "m.hinge").predict(WORDS)
    named = ChainSSVM(tol=0.1, features=DictEncoder()).fit(WORDS, TAGS)
    assert [*map(list, named.predict(WORDS))] == TAGS  # one feature each, as was asked for


@pytest.mark.parametrize("kind", [MulticlassSSVM, MultilabelSSVM])
def test_texts_are_no_numbers(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"X\[0\] is 'a text', .*TfidfVectorizer"):
        kind().fit(["a text", "another"], [[0, 1], [1, 0]])


def test_a_picture_is_no_graph() -> None:
    with pytest.raises(TypeError, match=r"X\[0\] is a ndarray, .*Graph.from_image\(pixels\)"):
        GraphSSVM().fit([np.zeros((2, 2, 3))], [[0, 1, 0, 1]])


def test_label_sets_are_no_indicators() -> None:
    for y in ([["a"], ["b"], ["a", "b"]], [{"a"}, set(), {"b"}], [["a"], ["b"], []]):
        with pytest.raises(ValueError, match="MultiLabelBinarizer"):
            MultilabelSSVM().fit(np.eye(3), y)


def test_a_model_without_weights_says_so() -> None:
    """Labels that no feature tells of: w = 0 is the optimum for every C, certified as any other."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 5, 2)), rng.integers(0, 5, (40, 5))
    with pytest.warns(UserWarning, match="no weights are better than 0 by more than 1 %"):
        assert ChainSSVM(random_state=0).fit(X, y).converged_
    with warnings.catch_warnings(action="error"):  # weights may be tiny and yet tell labels apart
        ChainSSVM(C=1e-9, random_state=0).fit(X + 2.0 * (y == 0)[..., None], y == 0)
