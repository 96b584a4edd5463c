"""ChainSSVM: n best labellings, margins, allowed labels."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from hingeline import ChainSSVM

# isort: split
from reference import random_chains

D, L = 4, 3
NAMES = ["A", "B", "C"]


@pytest.fixture(scope="module")
def data() -> Any:
    X, y = random_chains(np.random.default_rng(3), 30, D, L, 4)
    return X, [[NAMES[k] for k in row] for row in y]


@pytest.fixture(scope="module")
def model(data: Any) -> Any:
    return ChainSSVM(tol=1e-3, random_state=0).fit(*data)


def ranked(model: Any, x: Any, keep: Any = None) -> list[tuple[float, tuple[str, ...]]]:
    """All labellings that ``keep`` allows, best first, scored from the named blocks."""
    names = model.classes_.tolist()
    found = []
    for y in itertools.product(range(len(names)), repeat=len(x)):
        labels = tuple(names[k] for k in y)
        if keep is not None and not keep(labels):
            continue
        total = model.start_coef_[y[0]] + model.end_coef_[y[-1]]
        for t, k in enumerate(y):
            total += x[t] @ model.emission_coef_[k] + model.intercept_[k]
            total += model.transition_coef_[y[t - 1], k] if t else 0.0
        found.append((float(total), labels))
    return sorted(found, reverse=True)


def test_nbest(data: Any, model: Any) -> None:
    X, _ = data
    best = model.predict(X)
    for x, found, labels in zip(X, model.predict_nbest(X, 5), best, strict=True):
        everything = ranked(model, x)
        values = {names: value for value, names in everything}
        assert len(found) == min(5, L ** len(x))
        assert len({tuple(path) for path, _ in found}) == len(found)
        np.testing.assert_array_equal(found[0][0], labels)
        for (path, score), (value, _) in zip(found, everything, strict=False):
            assert type(score) is float
            assert score == pytest.approx(value, abs=1e-10)
            assert score == pytest.approx(values[tuple(path)], abs=1e-10)  # some are tied
    with pytest.raises(ValueError, match="n must be greater than 0"):
        model.predict_nbest(X, 0)
    with pytest.raises(TypeError, match="n must be an integer"):
        model.predict_nbest(X, 2.0)


def test_sequence_margin(data: Any, model: Any) -> None:
    X, _ = data
    margins = model.predict_margin(X)
    assert margins.shape == (len(X),)
    for x, margin, table in zip(X, margins, model.decision_function(X), strict=True):
        first, second = (score for score, _ in ranked(model, x)[:2])
        assert margin == pytest.approx(first - second, abs=1e-10)
        assert margin == pytest.approx(table.max(axis=1).min(), abs=1e-12)


def test_threads_and_stacked_tokens(data: Any, model: Any) -> None:
    X, y = data
    other = clone(model).set_params(n_jobs=3).fit(X, y)
    stacked, lengths = np.concatenate(X), [len(x) for x in X]
    for a, b in zip(
        other.predict_nbest(stacked, 3, lengths=lengths), model.predict_nbest(X, 3), strict=True
    ):
        for (path, score), (same_path, same_score) in zip(a, b, strict=True):
            np.testing.assert_array_equal(path, same_path)
            assert score == same_score
    np.testing.assert_array_equal(
        other.predict_margin(stacked, lengths=lengths), model.predict_margin(X)
    )


# Allowed labels ---------------------------------------------------------------------------------


def forms_of(allowed: list[set[str]]) -> dict[str, Any]:
    """The same permission for one sequence, said in every way."""
    mask = np.array([[name in names for name in NAMES] for names in allowed])
    return {
        "mask": mask,
        "sets": [None if len(names) == L else names for names in allowed],
        "lists": [sorted(names) for names in allowed],
        "single labels": [next(iter(names)) if len(names) == 1 else names for names in allowed],
        "dict": {t: names for t, names in enumerate(allowed) if len(names) < L},
        "NumPy strings": [np.array(sorted(names)) for names in allowed],
    }


def test_allowed_labels_in_every_form(data: Any, model: Any) -> None:
    X, _ = data
    rng = np.random.default_rng(0)
    allowed = [
        [set(rng.choice(NAMES, rng.integers(1, L + 1), replace=False).tolist()) for _ in x]
        for x in X
    ]
    per_form = [forms_of(entry) for entry in allowed]
    for form in per_form[0]:
        entries = [forms[form] for forms in per_form]
        labels = model.predict(X, allowed=entries)
        found = model.predict_nbest(X, 4, allowed=entries)
        marginals = model.predict_max_marginals(X, allowed=entries)
        margins = model.decision_function(X, allowed=entries)
        gaps = model.predict_margin(X, allowed=entries)
        for i, x in enumerate(X):
            expected = ranked(
                model,
                x,
                lambda y, i=i: all(k in names for k, names in zip(y, allowed[i], strict=True)),
            )
            assert tuple(labels[i]) == expected[0][1]
            assert [tuple(path) for path, _ in found[i]] == [y for _, y in expected[:4]]
            forbidden = ~per_form[i]["mask"]
            np.testing.assert_array_equal(marginals[i] == -np.inf, forbidden)
            np.testing.assert_array_equal(margins[i] == -np.inf, forbidden)
            assert not np.isnan(margins[i]).any()
            forced = (~forbidden).sum(axis=1) == 1
            np.testing.assert_array_equal(margins[i].max(axis=1) == np.inf, forced)
            second = expected[1][0] if len(expected) > 1 else -np.inf
            assert gaps[i] == pytest.approx(expected[0][0] - second, abs=1e-10)


def test_none_and_one_table_for_all_tokens(data: Any, model: Any) -> None:
    X, _ = data
    free = model.predict(X)
    for allowed in ([None] * len(X), [{}] * len(X), [[None] * len(x) for x in X]):
        for a, b in zip(model.predict(X, allowed=allowed), free, strict=True):
            np.testing.assert_array_equal(a, b)
    table = np.ones((sum(map(len, X)), L), dtype=bool)
    table[:, 0] = False
    assert "A" not in np.concatenate(model.predict(X, allowed=table))


@pytest.mark.parametrize(
    "names", [[("B", "x"), ("I", "x"), ("O", "")], [0, 1, 2], [frozenset({1}), frozenset(), "x"]]
)
def test_labels_that_are_collections_or_numbers(data: Any, names: Any) -> None:
    X, y = data
    labels = [[names[NAMES.index(k)] for k in row] for row in y]
    model = ChainSSVM(tol=1e-2, random_state=0).fit(X, labels)
    for name in names:
        for choice in (name, [name]):
            predicted = model.predict(X, allowed=[{0: choice}] * len(X))
            assert all(row[0] == name for row in predicted)
    both = model.predict(X, allowed=[{0: [names[0], names[2]]}] * len(X))
    assert {row[0] for row in both} == {names[0], names[2]}


@pytest.mark.parametrize(
    ("allowed", "error", "message"),
    [
        ([{0: "Z"}], ValueError, r"allowed\[0\] has 'Z' at token 0.*those are 'A', 'B', 'C'"),
        ([[None, {"A", "Z"}]], ValueError, r"has 'Z' at token 1"),
        ([[None, True]], ValueError, r"has True at token 1"),
        ([[None, set()]], ValueError, r"allowed\[0\] leaves no label for token 1: use None"),
        ([np.zeros((2, 3), dtype=bool)], ValueError, "leaves no label for token 0"),
        ([np.ones((2, 2), dtype=bool)], ValueError, r"shape \(2, 2\), expected.*\(2, 3\)"),
        (np.ones((3, 3), dtype=bool), ValueError, r"shape \(3, 3\), expected.*\(2, 3\)"),
        ([["A"]], ValueError, r"allowed\[0\] has 1 entries, but sequence 0 has 2 tokens"),
        ([{2: "A"}], ValueError, r"names token 2, but sequence 0 has the tokens 0 to 1"),
        ([{"x": "A"}], ValueError, r"names token 'x'"),
        ([None, None], ValueError, "allowed has 2 entries, but there are 1 sequences"),
        ({0: "A"}, TypeError, "one entry per sequence, got dict"),
        (["A"], TypeError, r"allowed\[0\] must be None, a boolean array"),
        ([7], TypeError, r"allowed\[0\] must be None, a boolean array"),
    ],
)
def test_bad_permissions(model: Any, allowed: Any, error: Any, message: str) -> None:
    X = [np.zeros((2, D))]
    calls = (
        model.predict,
        model.decision_function,
        model.predict_max_marginals,
        model.predict_margin,
        lambda X, allowed: model.predict_nbest(X, 2, allowed=allowed),
    )
    for call in calls:
        with pytest.raises(error, match=message):
            call(X, allowed=allowed)


# Tag schemes ------------------------------------------------------------------------------------


def tagged(seed: int, n: int = 30) -> Any:
    """Noisy sequences with IOB2 labels."""
    rng = np.random.default_rng(seed)
    prototypes = dict(zip(["O", "B-X", "I-X", "B-Y"], np.eye(D), strict=True))
    X, y = [], []
    for _ in range(n):
        labels: list[str] = []
        for _ in range(int(rng.integers(1, 6))):
            inside = bool(labels) and labels[-1] in ("B-X", "I-X")
            labels.append(str(rng.choice(["O", "B-X", "B-Y"] + ["I-X"] * 3 * inside)))
        y.append(labels)
        X.append(np.array([prototypes[k] for k in labels]) + rng.normal(size=(len(labels), D)))
    return X, y


def is_valid(labels: Any) -> bool:
    pairs = itertools.pairwise(["O", *labels])
    return all(b != "I-X" or a in ("B-X", "I-X") for a, b in pairs)


@pytest.mark.parametrize("scheme", ["IOB2", "auto", "bio"])
def test_predictions_keep_to_the_scheme(scheme: str) -> None:
    X, y = tagged(0)
    new, _ = tagged(1, 100)
    free = ChainSSVM(tol=1e-2, random_state=0, boundary=False, scheme="none").fit(X, y)
    assert free.scheme_ is None
    assert not all(is_valid(labels) for labels in free.predict(new))
    model = clone(free).set_params(scheme=scheme).fit(X, y)
    assert model.scheme_ == "IOB2"
    for labels, found, table in zip(
        model.predict(new),
        model.predict_nbest(new, 20),
        model.predict_max_marginals(new),
        strict=True,
    ):
        assert is_valid(labels)
        assert all(is_valid(path) for path, _ in found)
        assert len({tuple(path) for path, _ in found}) == len(found)
        assert table[0, model.classes_.tolist().index("I-X")] == -np.inf
        assert not np.isnan(table).any()
    for stored in (pickle.loads(pickle.dumps(model)), model.with_weights(model.weights_)):
        assert stored.scheme_ == model.scheme_
        for a, b in zip(stored.predict(new), model.predict(new), strict=True):
            np.testing.assert_array_equal(a, b)


def test_scheme_and_allowed_together() -> None:
    X, y = tagged(0)
    model = ChainSSVM(tol=1e-2, scheme="IOB2", random_state=0).fit(X, y)
    x = [np.zeros((3, D))]
    assert model.predict(x, allowed=[{2: "I-X"}])[0].tolist()[1:] in (["B-X", "I-X"], ["I-X"] * 2)
    for allowed, message in (
        ({0: "I-X"}, "valid IOB2: no such label may start a sequence"),
        ({1: ["O", "B-Y"], 2: "I-X"}, r"allowed\[0\] leaves.*at token 2 no such label can follow"),
    ):
        for call in (
            model.predict,
            model.decision_function,
            model.predict_max_marginals,
            model.predict_margin,
            lambda x, allowed: model.predict_nbest(x, 3, allowed=allowed),
        ):
            with pytest.raises(ValueError, match=message):
                call(x, allowed=[allowed])


def test_a_length_that_no_valid_labelling_has() -> None:
    X = [np.eye(2), np.eye(2)]
    model = ChainSSVM(scheme="IOBES", random_state=0).fit(X, [["B-X", "E-X"]] * 2)
    with pytest.raises(ValueError, match=r"sequence 1 has no labelling that is valid IOBES.*end"):
        model.predict([np.eye(2), np.eye(2)[:1]])


def test_labels_that_break_the_scheme() -> None:
    X = [np.eye(2), np.eye(2), np.eye(2)]
    y = [["B-X", "I-X"], ["O", "I-X"], ["I-X", "O"]]
    with pytest.raises(
        ValueError, match=r"y\[1\] is not valid IOB2: I-X at token 1 follows O.*convert_scheme"
    ):
        ChainSSVM(scheme="IOB2").fit(X, y)
    y = [["B-X", "I-X"], ["O", "B-X"], ["B-X", "E-X"], ["I-X", "O"]]
    X = [np.eye(2)] * 4
    with pytest.warns(UserWarning, match=r"'auto' found IOBES, but y\[0\].*No scheme is enforced"):
        model = ChainSSVM(scheme="auto", random_state=0).fit(X, y)
    assert model.scheme_ is None
    assert len(model.predict(X)) == 4


def test_labels_that_are_no_tags() -> None:
    X = [np.eye(2), np.eye(2)]
    y = [["NN", "VB"], ["VB", "NN"]]
    assert ChainSSVM(scheme="auto", random_state=0).fit(X, y).scheme_ is None
    with pytest.raises(ValueError, match=r"scheme='IOB2' does not suit the labels: 'NN' is not a"):
        ChainSSVM(scheme="IOB2").fit(X, y)
    with pytest.raises(
        ValueError, match=r"scheme must be 'none', 'auto' or one of IO, .*got 'BOI'"
    ):
        ChainSSVM(scheme="BOI").fit(X, y)
    with pytest.raises(ValueError, match=r"scheme must be 'none', 'auto' or one of .*got 3"):
        ChainSSVM(scheme=3).fit(X, y)


def test_partial_fit_gives_up_a_scheme_that_was_only_found() -> None:
    X, y = tagged(0)
    wrong = ([np.zeros((2, D))], [["O", "I-X"]])
    found = ChainSSVM(scheme="auto", tol=1e-2, random_state=0).partial_fit(X, y)
    assert found.scheme_ == "IOB2"
    with pytest.warns(UserWarning, match=r"y\[0\] is not valid IOB2"):
        found.partial_fit(*wrong)
    assert found.scheme_ is None
    free = ChainSSVM(tol=1e-2, random_state=0).fit(X + wrong[0], y + wrong[1])
    assert found.dual_objective_ <= free.primal_objective_ * (1 + 1e-9)
    assert free.dual_objective_ <= found.primal_objective_ * (1 + 1e-9)
    asked = ChainSSVM(scheme="IOB2", tol=1e-2, random_state=0).partial_fit(X, y)
    with pytest.raises(ValueError, match=r"y\[0\] is not valid IOB2"):
        asked.partial_fit(*wrong)


def test_partial_fit_under_a_new_scheme_starts_afresh() -> None:
    """Multipliers of outputs that are forbidden now would make the certificate wrong."""
    X, y = tagged(0)
    model = ChainSSVM(tol=1e-6, random_state=0).partial_fit(X[:20], y[:20])
    model.set_params(scheme="IOB2").partial_fit(X[20:], y[20:])
    whole = ChainSSVM(scheme="IOB2", tol=1e-6, random_state=0).fit(X, y)
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=2e-6)
    assert model.dual_objective_ <= whole.primal_objective_ * (1 + 1e-9)
    wrong = ChainSSVM(tol=1e-2, random_state=0).partial_fit(X + [np.zeros((1, D))], [*y, ["I-X"]])
    with pytest.raises(ValueError, match=r"y\[30\] is not valid IOB2"):
        wrong.set_params(scheme="IOB2").partial_fit(X[:1], y[:1])


def test_warm_start_under_a_new_scheme_starts_afresh() -> None:
    X, y = tagged(0)
    model = ChainSSVM(tol=1e-6, warm_start=True, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="starting afresh"):
        model.set_params(scheme="IOB2").fit(X, y)
    whole = ChainSSVM(scheme="IOB2", tol=1e-6, random_state=0).fit(X, y)
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=2e-6)


def test_predictions_keep_to_the_scheme_of_the_labels_unasked(tmp_path: Path) -> None:
    (X, y), (new, _) = tagged(0), tagged(1, 100)
    tagger = ChainSSVM(tol=1e-2, random_state=0, boundary=False).fit(X, y)
    free = clone(tagger).set_params(scheme="none").fit(X, y)
    np.testing.assert_array_equal(tagger.weights_, free.weights_)  # training knows of none
    assert (tagger.scheme_, free.scheme_) == ("IOB2", None)
    found = [labels.tolist() for labels in tagger.predict(new)]
    assert all(map(is_valid, found))
    assert not all(is_valid(labels) for labels in free.predict(new))
    fixed = tagger.predict(new[:1], allowed=[{0: "I-X"}])  # who says so is heard
    assert fixed[0][0] == "I-X"
    tagger.save(tmp_path / "m.hinge")
    assert [
        labels.tolist() for labels in ChainSSVM.load(tmp_path / "m.hinge").predict(new)
    ] == found
    # Not where a label breaks it, nor where a sequence of one token would have no label.
    x = [[{"w": "a"}, {"w": "b"}]] * 2
    broken = ChainSSVM().fit(x, [["O", "I-X"], ["B-X", "O"]])
    assert (broken.scheme_, ChainSSVM().fit(x, [["B-X", "E-X"]] * 2).scheme_) == (None, None)
