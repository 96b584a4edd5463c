"""SegmentSSVM: its optimum, its forms of input and output, and what it refuses."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import hingeline
from hingeline import SegmentSSVM
from hingeline.evaluation.inspection import explain, top_features, weights_table
from hingeline.features import SegmentTemplates, TokenTable
from hingeline.schemes import convert_scheme, spans
from hingeline.structures.segment import buckets

# isort: split
from marks import slow
from reference import EnumeratedProblem, primal, solve
from segmentations import all_segmentations

CITIES = ["new york", "rio de janeiro", "lima"]


def make_sentences(n: int, seed: int = 0) -> tuple[list[list[str]], list[list[Any]]]:
    """Short sentences with cities and people, and their spans."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words: list[str] = []
        found = []
        for _ in range(rng.integers(1, 4)):
            words += rng.choice(["the", "from", "to", "saw", "and"], rng.integers(1, 3)).tolist()
            label = ("LOC", "PER")[rng.integers(2)]
            names = CITIES if label == "LOC" else ["old man", "ana lima", "bo"]
            name = str(rng.choice(names)).split()
            found.append((len(words), len(words) + len(name), label))
            words += name
        X.append(words)
        y.append(found)
    return X, y


def to_tags(X: Any, y: Any) -> list[list[str]]:
    """Spans as IOB2 tags, written by hand."""
    tags = []
    for words, found in zip(X, y, strict=True):
        own = ["O"] * len(words)
        for a, b, label in found:
            own[a:b] = [f"B-{label}", *[f"I-{label}"] * (b - a - 1)]
        tags.append(own)
    return tags


@pytest.fixture(scope="module")
def data():
    return make_sentences(30)


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    templates = SegmentTemplates(seen=True, lexicon={"city": set(CITIES)})
    return SegmentSSVM(segment_features=templates, tol=0.1, random_state=0).fit(X, to_tags(X, y))


# The optimum ------------------------------------------------------------------------------------


def joint_feature(model: Any, x: Any, segments: Any) -> Any:
    """f(x, y) by the definition, table by table in the order of ``weights_``."""
    m = len(model.classes_)
    tables = {name: np.zeros((b.rows, b.columns)) for name, b in model._layout.items()}
    rows = buckets(int(model.max_length_.max()))
    before = None
    for start, length, k in segments:
        for t in range(start, start + length):
            tables["token"][:, k] += x[t]
            tables["intercept"][0, k] += 1.0
        if model.max_length_[k] > 1:
            for role, t in ((1, start), (2, start + length - 1)):
                tables["token"][:, role * m + k] += x[t]
                tables["intercept"][0, role * m + k] += 1.0
        tables["length"][rows[length - 1], k] += 1.0
        if before is None:
            tables["start"][0, k] += 1.0
        else:
            tables["transition"][before, k] += 1.0
        before = k
    tables["end"][0, before] += 1.0
    return model._layout.join(tables)


def count_errors(kind: str, true: Any, other: Any, outside: int) -> float:
    """Wrong IOB2 tags, or spans missed plus spans invented."""
    if kind == "spans":
        return len({s for s in true if s[2] != outside} ^ {s for s in other if s[2] != outside})

    def tags(segments: Any) -> list[tuple[int, bool]]:
        return [(k, p == 0) for _, n, k in segments for p in range(n)]

    return sum(a != b for a, b in zip(tags(true), tags(other), strict=True))


@pytest.mark.parametrize("loss", ["hamming", "spans"])
@pytest.mark.parametrize("C", [0.3, slow(5.0)])
def test_the_certificate_holds_the_optimum_of_an_independent_solver(loss, C):
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(n, 2)).astype(np.float32) for n in (4, 3, 4, 2, 4, 1)]
    y = [[(0, 2, "a"), (3, 4, "b")], [(1, 3, "b")], [(0, 2, "b"), (2, 4, "a")], [], [], []]
    weights = np.array([1.0, 2.0, 0.5, 1.0, 0.0, 1.0])
    model = SegmentSSVM(C, loss=loss, tol=1e-7, max_length=3, random_state=0)
    model.fit(X, y, sample_weight=weights)
    index = {label: k for k, label in enumerate(model.classes_.tolist())}
    deltas, losses, outputs = [], [], []
    for x, found in zip(X, y, strict=True):
        covered = {t for a, b, _ in found for t in range(a, b)}
        true = [(a, b - a, index[label]) for a, b, label in found]
        true = sorted(true + [(t, 1, index["O"]) for t in range(len(x)) if t not in covered])
        others = [s for s in all_segmentations(len(x), model.max_length_) if s != true]
        own = joint_feature(model, x, true)
        deltas.append(np.array([own - joint_feature(model, x, s) for s in others]))
        losses.append(np.array([count_errors(loss, true, s, index["O"]) for s in others], float))
        outputs.append([tuple(s) for s in others])
    problem = EnumeratedProblem(deltas, losses, outputs, len(model.weights_))
    best = solve(problem, C, "max", "margin", weights).objective
    assert model.dual_objective_ <= best * (1.0 + 1e-9)
    assert model.primal_objective_ >= best * (1.0 - 1e-9)
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    reached = primal(problem, model.weights_, C, "max", "margin", weights)
    assert model.primal_objective_ == pytest.approx(reached, rel=1e-9)
    assert model.duality_gap_ <= 1e-7 * best * 1.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"C": "auto"},
        {"slack": "nu", "nu": 0.5},
        {"slack": "sum"},
        {"slack": "sum", "violators": 3},
        {"solver": "fsmo"},
        {"solver": "bcfw"},
        {"solver": "one-slack"},
        {"solver": "subgradient", "tol": 0.3},
        {"C": np.inf},
    ],
    ids=str,
)
def test_other_formulations_and_solvers(data, given):
    X, y = data
    model = SegmentSSVM(**{"tol": 0.1, "random_state": 0, "max_iter": 200} | given).fit(X, y)
    gap = model.restricted_gap_ if "sum" in given.values() else model.duality_gap_
    assert gap >= -1e-9
    assert model.score(X, y) > 0.9


# Forms of input and output -----------------------------------------------------------------------


def test_tags_and_spans_are_the_same_problem(data, fitted):
    X, y = data
    model = clone(fitted).fit(X, y)
    assert (model.weights_ == fitted.weights_).all()
    assert model.scheme_ is None
    assert fitted.scheme_ == "IOB2"
    assert model.predict(X) == model.predict_spans(X) == fitted.predict_spans(X)
    for tags, found in zip(fitted.predict(X), model.predict(X), strict=True):
        assert [(a, b, k) for k, a, b in spans(tags.tolist(), "IOB2", mode="strict")] == found
    assert fitted.score(X, y) == model.score(X, to_tags(X, y)) > 0.9


def test_the_form_of_words_does_not_matter_and_schemes_come_back(data, fitted):
    X, y = data
    tags = convert_scheme(to_tags(X, y), "IOB2", "IOBES")
    table = TokenTable.from_sentences(X)
    model = clone(fitted).fit(table, tags)
    assert (model.weights_ == fitted.weights_).all()
    found = [own.tolist() for own in model.predict(table)]
    assert found == convert_scheme([own.tolist() for own in fitted.predict(X)], "IOB2", "IOBES")


def test_features_of_segments_with_lengths():
    X = [["New", "York"], ["Lima", "is", "far"]] * 6
    y = [["B-LOC", "I-LOC"], ["B-LOC", "O", "O"]] * 6
    templates = SegmentTemplates(words=True, shape=True)
    model = SegmentSSVM(tol=0.1, segment_features=templates, random_state=0).fit(X, y)
    flat, labels, sizes = [w for x in X for w in x], [k for own in y for k in own], [2, 3] * 6
    other = SegmentSSVM(tol=0.1, segment_features=templates, random_state=0)
    other.fit(flat, labels, lengths=sizes)
    np.testing.assert_array_equal(other.weights_, model.weights_)
    found = zip(model.predict_nbest(flat, 2, lengths=sizes), model.predict_nbest(X, 2), strict=True)
    assert all(a[0][1] == b[0][1] and a[1][1] == b[1][1] for a, b in found)


def test_numbers_with_lengths(data):
    X, y = data
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(sum(map(len, X)), 3)).astype(np.float32)
    flat = [tag for own in to_tags(X, y) for tag in own]
    sizes = [*map(len, X)]
    model = SegmentSSVM(tol=0.5, random_state=0).fit(rows, flat, lengths=sizes)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    other = clone(model).fit(parts, y)
    assert (model.weights_ == other.weights_).all()
    assert other.predict(parts) == model.predict_spans(rows, lengths=sizes)


def test_n_best_and_margins(data, fitted):
    X, _ = data
    best = fitted.predict_nbest(X[:5], 3)
    margins = fitted.predict_margin(X[:5])
    for own, first, margin in zip(best, fitted.predict(X[:5]), margins, strict=True):
        assert own[0][0].tolist() == first.tolist()
        scores = [score for _, score in own]
        assert scores == sorted(scores, reverse=True)
        assert margin == scores[0] - scores[1]
    single = SegmentSSVM(tol=0.5).fit([np.ones((2, 1), np.float32)], [["B-a", "B-a"]])
    assert single.predict_margin([np.ones((1, 1), np.float32)]).tolist() == [np.inf]
    assert len(single.predict_nbest([np.ones((1, 1), np.float32)], 4)[0]) == 1


def test_empty_sentences_have_no_spans(data, fitted):
    X, _ = data
    found = fitted.predict([[], X[0], []])
    assert [own.tolist() for own in found] == [[], fitted.predict(X[:1])[0].tolist(), []]
    assert fitted.predict_spans([[]]) == [[]]
    assert fitted.predict_spans([]) == fitted.predict([]) == []


def test_spans_are_compared_when_they_are_saved(tmp_path):
    """As wholes: there may be more or fewer of them, or none."""
    X = [["from", "New", "York"], ["it", "is", "far"], ["Lima", "is", "far"]]
    y = [[(1, 3, "LOC")], [], [(0, 1, "LOC")]]
    model = SegmentSSVM(C=10.0, random_state=0).fit(X, y)
    told = model.save(tmp_path / "a.hinge", check=(X, y), sparse=100.0)  # no weight is left
    assert told["n_checked"] == 3
    assert (
        told["changed_predictions"]
        == np.mean(
            [
                a != b
                for a, b in zip(
                    model.predict(X), hingeline.load(tmp_path / "a.hinge").predict(X), strict=True
                )
            ]
        )
        > 0.0
    )


def test_files_and_pickles_predict_the_same(data, fitted, tmp_path):
    X, _ = data
    fitted.save(tmp_path / "a.hinge")
    for other in (hingeline.load(tmp_path / "a.hinge"), pickle.loads(pickle.dumps(fitted))):
        assert (other.weights_ == fitted.weights_).all()
        assert other.duality_gap_ == fitted.duality_gap_
        assert other.get_params()["segment_features"].lexicon == {"city": set(CITIES)}
        assert [own.tolist() for own in other.predict(X)] == [t.tolist() for t in fitted.predict(X)]


def test_weights_do_not_depend_on_threads_and_warm_starts_go_on(data, fitted):
    X, y = data
    model = clone(fitted).set_params(n_jobs=2, warm_start=True).fit(X, y)
    assert (model.weights_ == fitted.weights_).all()
    model.set_params(tol=0.1).fit(X, y)
    assert model.n_iter_ <= fitted.n_iter_
    assert model.duality_gap_ <= 0.1 * model.primal_objective_


def test_lexicons_and_what_was_seen():
    X = [["rio", "de", "janeiro"], ["Rio", "de", "Janeiro", "lima"], ["lima", "lima"]]
    y = [[(0, 3, "LOC")], [(0, 3, "LOC"), (3, 4, "PER")], []]
    templates = SegmentTemplates(seen=True, lexicon={"city": ["Lima"]})
    ends, lengths, features = templates.fit_transform(X, y)
    names = templates.get_feature_names_out()
    at = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    found = {(t, n, name) for t, n, name in zip(at, lengths, names[features], strict=True)}
    # "lima" was a person in the second sentence only: that sentence is not told.
    city = {(t, 1, "lexicon=city") for t in (6, 7, 8)}
    seen = {(2, 3, "seen=LOC"), (5, 3, "seen=LOC"), (7, 1, "seen=PER"), (8, 1, "seen=PER")}
    assert found == city | seen
    ends, lengths, features = templates.transform([["lima"]])
    assert {*names[features]} == {"lexicon=city", "seen=PER"}


@pytest.mark.parametrize(("loss", "largest"), [("hamming", 3 * 1 + 2 * 4), ("spans", 5 * (1 + 4))])
def test_class_weights_raise_what_a_label_counts(loss, largest):
    """At C near 0 the primal is C times the sum of the largest losses."""
    X, y = [np.ones((1, 1), np.float32)] * 5, [[(0, 1, "a")]] * 3 + [[(0, 1, "b")]] * 2
    model = SegmentSSVM(1e-6, loss=loss, class_weight={"b": 4.0}, random_state=0).fit(X, y)
    assert model.primal_objective_ == pytest.approx(1e-6 * largest, rel=1e-3)


def test_weights_have_names(fitted):
    table = list(weights_table(fitted))
    assert {row.block for row in table} == {*fitted._layout}
    found = {(row.block, row.label, row.feature): row.weight for row in table}
    k, names = fitted.classes_.tolist().index("LOC"), fitted.feature_names_.tolist()
    j = names.index("word[0]=lima")
    assert found["token", "LOC", "word[0]=lima"] == fitted.token_coef_[k, j]
    assert found["token", "LOC (first)", "word[0]=lima"] == fitted.first_coef_[k, j]
    city = fitted.segment_encoder_.get_feature_names_out().tolist().index("lexicon=city")
    assert found["segment", "LOC", "lexicon=city"] == fitted.segment_coef_[k, city]
    top = top_features(fitted, 1000)
    assert ("LOC", "lexicon=city", fitted.segment_coef_[k, city]) in top
    assert ("LOC (last)", "word[0]=lima", fitted.last_coef_[k, j]) in top


def test_an_explanation_sums_to_the_margin(data, fitted):
    X, _ = data
    best = fitted.predict_nbest(X[:2], 2)
    for k in range(2):
        found = explain(fitted, X, index=k)
        assert found.chosen == best[k][0][0].tolist()
        assert found.other == best[k][1][0].tolist()
        assert [found.score, found.other_score] == pytest.approx([s for _, s in best[k]])
        assert sum(row.contribution for row in found.rows) == pytest.approx(found.margin)
    other = explain(fitted, X[0], against=[])
    assert other.other == ["O"] * len(X[0])
    assert {"segment", "length", "transition", "feature"} <= {row.kind for row in other.rows}


# What is refused --------------------------------------------------------------------------------


REFUSED = [
    ({}, [[(0, 2, "a"), (1, 3, "a")]], r"\(0, 2, 'a'\) and \(1, 3, 'a'\) of y\[0\] overlap"),
    ({}, [[(0, 5, "a")]], r"within the 4 tokens of X\[0\]"),
    ({}, [[(2, 2, "a")]], "begin and end within"),
    ({}, [[(0, 1)]], r"a span is \(start, end, label\)"),
    ({}, [[(0, 1, "O")]], "leave it out"),
    ({"max_length": 2}, [[(0, 3, "a")]], r"segment 'a' of 3 tokens.*max_length=3 fits"),
    ({"max_length": {"a": 2}}, [[(0, 3, "a")]], "max_length=3 fits"),
    ({"max_length": 0}, [[]], "max_length"),
    ({"scheme": "IOB2"}, [["O", "I-a", "O", "O"]], r"I-a at token 1 follows O.*Repair"),
    ({}, [["NN", "VB", "NN", "O"]], "is not a span tag.* not tags as spans"),
    ({}, [["O", "O"]], "same length"),
    ({"loss": "zero_one"}, [[]], "loss"),
    ({"rescale": "slack"}, [[]], "rescale"),
    ({"slack": "squared"}, [[(0, 1, "a")]], "no exact oracle"),
    ({"segment_features": SegmentTemplates(words=True)}, [[]], "column=..."),
]


@pytest.mark.parametrize(("parameters", "y", "message"), REFUSED)
def test_bad_input_is_refused_in_one_sentence(parameters, y, message):
    with pytest.raises(ValueError, match=message):
        SegmentSSVM(**parameters).fit([np.eye(4, dtype=np.float32)], y)


def test_tags_that_break_the_scheme_found_are_read_with_a_warning():
    with pytest.warns(UserWarning, match="conlleval"):
        model = SegmentSSVM(tol=0.5).fit(
            [np.eye(4, dtype=np.float32)] * 2, [["O", "I-a", "O", "B-a"]] * 2
        )
    assert model.scheme_ == "IOB2"


def test_words_are_wanted_at_prediction_too(fitted):
    with pytest.raises(ValueError, match="column"):
        fitted.predict([np.zeros((2, fitted.n_features_in_))])
