"""MultilabelSSVM as a scikit-learn classifier, and its optimum."""

from __future__ import annotations

import itertools
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from hingeline import MulticlassSSVM, MultilabelSSVM, _checks, load
from hingeline.estimators.multilabel import chow_liu, mutual_information

# isort: split
from marks import slow
from reference import EnumeratedProblem, primal, solve

D, L, TOL = 3, 4, 1e-8
EDGES = {"none": [], "list": [(2, 0), (1, 3)], "full": list(itertools.combinations(range(L), 2))}


@pytest.mark.slow
@parametrize_with_checks([MultilabelSSVM(tol=1e-8)])
def test_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def data() -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, D))
    Y = (X @ rng.normal(size=(D, L)) + rng.normal(size=(12, L)) > 0).astype(int)
    Y[:, 3] = np.where(rng.uniform(size=12) < 0.8, Y[:, 0], Y[:, 3])
    return X, Y


def joint_feature(x: Any, y: Any, pairs: Any) -> Any:
    unary = np.zeros((D, L, 2))
    tables = np.zeros((len(pairs), 2, 2))
    for k in range(L):
        unary[:, k, y[k]] += x
    for p, (a, b) in enumerate(pairs):
        tables[p, y[a], y[b]] += 1.0
    return np.concatenate([unary.ravel(), tables.ravel()])


def reference(X: Any, Y: Any, pairs: Any, cost: Any = None) -> EnumeratedProblem:
    """``cost[label, true, predicted]``."""
    cost = np.broadcast_to(1.0 - np.eye(2), (L, 2, 2)) if cost is None else cost
    return EnumeratedProblem.from_callables(
        list(X),
        [tuple(y) for y in Y],
        [list(itertools.product((0, 1), repeat=L))] * len(Y),
        lambda x, y: joint_feature(x, y, pairs),
        lambda true, y: float(sum(cost[k, true[k], y[k]] for k in range(L))),
    )


def fit(X: Any, Y: Any, sample_weight: Any = None, **params: Any) -> Any:
    given = {"C": 1.0, "tol": TOL, "max_iter": 5000, "fit_intercept": False, "random_state": 0}
    params = {**given, **params}
    return MultilabelSSVM(**params).fit(X, Y, sample_weight=sample_weight)


def flat(model: Any) -> Any:
    unary = model.unary_coef_.transpose(2, 0, 1)
    return np.concatenate([unary.ravel(), model.pairwise_coef_.ravel()])


@pytest.mark.parametrize("edges", ["none", "list", "full"])
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_optimum(data: Any, edges: str, C: float) -> None:
    X, Y = data
    weights = np.linspace(0.0, 2.0, len(X))
    problem = reference(X, Y, EDGES[edges])
    given = EDGES["list"] if edges == "list" else edges
    model = fit(X, Y, weights, C=C, edges=given)
    best = solve(problem, C, sample_weight=weights).objective
    assert model.converged_
    assert model.oracle_exact_ is True
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    true = primal(problem, flat(model), C, "max", "margin", weights)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert model.edges_.tolist() == [list(pair) for pair in EDGES[edges]]


def test_costs_and_class_weights(data: Any) -> None:
    X, Y = data
    costs = np.array([[0.0, 1.0], [3.0, 0.0]])
    by_label = np.broadcast_to(costs, (L, 2, 2))
    model = fit(X, Y, loss=costs)
    best = solve(reference(X, Y, EDGES["full"], by_label), 1.0).objective
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    weighted = fit(X, Y, class_weight={1: 3.0})
    assert weighted.primal_objective_ == pytest.approx(model.primal_objective_, rel=1e-6)
    counts = np.array([np.bincount(y, minlength=2) for y in Y.T])
    balanced = (len(Y) / (2.0 * counts))[:, :, None] * (1.0 - np.eye(2))
    model = fit(X, Y, class_weight="balanced")
    best = solve(reference(X, Y, EDGES["full"], balanced), 1.0).objective
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)


def test_without_edges_labels_are_independent(data: Any) -> None:
    X, Y = data
    model = fit(X, Y, edges="none")
    total = 0.0
    for k in range(L):
        single = MulticlassSSVM(1.0, tol=TOL, fit_intercept=False, random_state=0).fit(X, Y[:, k])
        total += single.primal_objective_
        np.testing.assert_allclose(model.unary_coef_[k], single.coef_, atol=1e-3)
        np.testing.assert_allclose(model.coef_[k], single.coef_[1] - single.coef_[0], atol=1e-3)
        np.testing.assert_array_equal(model.predict(X)[:, k], single.predict(X))
    assert model.primal_objective_ == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_.T)


def test_one_dimension_is_one_label(data: Any) -> None:
    X, Y = data
    y = np.where(Y[:, 0] == 1, "yes", "no")
    model = fit(X, y, fit_intercept=True)
    single = MulticlassSSVM(1.0, tol=TOL, random_state=0).fit(X, y)
    assert model.primal_objective_ == pytest.approx(single.primal_objective_, rel=1e-6)
    np.testing.assert_array_equal(model.predict(X), single.predict(X))
    np.testing.assert_allclose(model.decision_function(X), single.decision_function(X), atol=1e-3)
    assert model.coef_.shape == (1, D)
    assert model.intercept_.shape == (1,)


def test_decision_function(data: Any) -> None:
    X, Y = data
    model = fit(X, Y, fit_intercept=True, C=10.0)
    found, leads = model.predict(X), model.decision_function(X)
    np.testing.assert_array_equal(found, leads > 0)
    for i in range(len(X)):
        for k in range(L):
            lead = X[i] @ model.coef_[k] + model.intercept_[k]
            for (a, b), table in zip(model.edges_, model.pairwise_coef_, strict=True):
                if a == k:
                    lead += table[1, found[i, b]] - table[0, found[i, b]]
                elif b == k:
                    lead += table[found[i, a], 1] - table[found[i, a], 0]
            assert leads[i, k] == pytest.approx(lead)
    assert model.score(X, Y) == np.mean((found == Y).all(axis=1))
    sure = model.certify(X)
    assert sure.exact.all()
    np.testing.assert_array_equal(sure.labels, found)


@pytest.mark.slow
def test_shapes_of_input(data: Any) -> None:
    X, Y = data
    model = fit(X, Y)
    for other in (fit(sp.csr_matrix(X), sp.csr_matrix(Y)), fit(X.tolist(), Y.astype(bool))):
        np.testing.assert_allclose(other.weights_, model.weights_, atol=1e-12)
    np.testing.assert_array_equal(model.predict(sp.csr_array(X)), model.predict(X))
    assert model.predict(X).dtype == np.int64
    single = fit(X.astype(np.float32), Y, tol=1e-4)
    np.testing.assert_allclose(single.primal_objective_, model.primal_objective_, rtol=1e-3)


def test_names_of_labels(data: Any) -> None:
    pd = pytest.importorskip("pandas")
    X, Y = data
    model = fit(X, pd.DataFrame(Y, columns=list("abcd")))
    assert model.classes_.tolist() == list("abcd")
    assert fit(X, Y).classes_.tolist() == list(range(L))


def test_chow_liu() -> None:
    """The tree with the most information, of all trees on five labels."""
    rng = np.random.default_rng(2)
    Y = rng.integers(0, 2, size=(60, 5))
    Y[:, 3] = np.where(rng.uniform(size=60) < 0.9, Y[:, 1], Y[:, 3])
    Y[:, 4] = np.where(rng.uniform(size=60) < 0.8, 1 - Y[:, 3], Y[:, 4])
    weights = rng.uniform(0.5, 2.0, size=60)
    information = mutual_information(Y, weights)
    share = weights / weights.sum()
    for a, b in itertools.combinations(range(5), 2):
        table = np.zeros((2, 2))
        np.add.at(table, (Y[:, a], Y[:, b]), share)
        expected = (table * np.log(table / np.outer(table.sum(1), table.sum(0)))).sum()
        assert information[a, b] == pytest.approx(expected)
        assert information[b, a] == pytest.approx(expected)

    def spans(pairs: Any) -> bool:
        reached = {0}
        for _ in range(5):
            reached |= {v for pair in pairs if reached & set(pair) for v in pair}
        return len(reached) == 5

    pairs = list(itertools.combinations(range(5), 2))
    trees = [tree for tree in itertools.combinations(pairs, 4) if spans(tree)]
    best = max(trees, key=lambda tree: sum(information[a, b] for a, b in tree))
    found = chow_liu(Y, weights)
    assert sorted(map(tuple, found.tolist())) == sorted(best)
    assert {(1, 3), (3, 4)} <= set(best)


def test_pairs_of_many_labels_are_a_tree_unasked() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.integers(0, 2, size=(40, 16))
    many, few = (MultilabelSSVM(tol=0.5, random_state=0).fit(X, y) for y in (Y, Y[:, :15]))
    tree = MultilabelSSVM(edges="tree", tol=0.5, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(many.weights_, tree.weights_)
    assert len(few.edges_) == 15 * 14 // 2


def test_nothing_of_the_size_of_examples_times_pairs() -> None:
    """159 labels with all 12,561 pairs, as in bibtex."""
    rng = np.random.default_rng(0)
    n, n_labels = 300, 159
    X = sp.random_array((n, 50), density=0.1, rng=rng)
    model = MultilabelSSVM()
    model.n_labels_ = n_labels
    model.edges_ = np.column_stack(np.triu_indices(n_labels, 1))
    problem = model._make(X, np.zeros(n * n_labels, dtype=np.int32), 1.0 - np.eye(2))
    arrays = [*problem.graphs, *(value for value in problem if isinstance(value, np.ndarray))]
    assert len(model.edges_) == 12_561
    assert max(array.size for array in arrays) <= n * n_labels
    assert sum(array.nbytes for array in arrays) < 3e6


def test_too_many_pairs_are_refused_before_they_are_made(monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.integers(0, 2, size=(40, 120))
    monkeypatch.setattr(_checks, "available_memory", lambda: 1e6)
    with pytest.raises(ValueError, match=r"7,140 pairs of 120 labels need 0.0 GiB.*edges=\"tree\""):
        MultilabelSSVM(edges="full").fit(X, Y)
    assert MultilabelSSVM(edges="tree", tol=0.3).fit(X, Y).converged_
    monkeypatch.undo()
    assert _checks.available_memory() > 1e6
    model = MultilabelSSVM()
    model.n_labels_, model.edges_ = 983, np.column_stack(np.triu_indices(983, 1))
    with pytest.raises(ValueError, match=r"482,653 pairs of 983 labels need 14,\d+.\d GiB"):
        model._refuse_too_many_pairs(2_000_000)


def test_pairs_whose_passes_take_minutes_are_told_before_they_begin(monkeypatch: Any) -> None:
    monkeypatch.setattr(_checks, "available_memory", lambda: 1e12)
    model = MultilabelSSVM()
    model.n_labels_, model.edges_ = 374, np.column_stack(np.triu_indices(374, 1))
    with pytest.warns(UserWarning, match=r"69,751 pairs.*4\.7 GiB.*52 s of CPU.*edges=\"tree\""):
        model._refuse_too_many_pairs(4500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._refuse_too_many_pairs(450)
        model.set_params(solver="sdm")._refuse_too_many_pairs(4500)  # keeps nothing by pair


@pytest.mark.slow
def test_a_tree_of_many_labels_trains() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5))
    Y = (X @ rng.normal(size=(5, 983)) > 1.0).astype(int)
    model = MultilabelSSVM(edges="tree", C=0.1, tol=0.05, random_state=0).fit(X, Y)
    assert model.converged_
    assert len(model.edges_) == 982


def test_storage_clone_pickle_and_grid(data: Any, tmp_path: Path) -> None:
    X, Y = data
    model = fit(X, Y, fit_intercept=True, edges=[(0, 1), (2, 3)])
    model.save(tmp_path / "m.hinge", check=(X, Y))
    for again in (load(tmp_path / "m.hinge"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.weights_, model.weights_)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.edges_, model.edges_)
    single = fit(X, np.where(Y[:, 0], "yes", "no"))
    single.save(tmp_path / "s.hinge")
    np.testing.assert_array_equal(load(tmp_path / "s.hinge").predict(X), single.predict(X))
    assert clone(model).get_params() == model.get_params()
    search = GridSearchCV(MultilabelSSVM(random_state=0), {"edges": ["none", "tree"]}, cv=2)
    assert 0.0 <= search.fit(X, Y).best_score_ <= 1.0


@pytest.mark.parametrize(
    ("y", "params", "match"),
    [
        (np.array([[0, 2], [1, 0]]), {}, "y holds 2"),
        (np.array([0, 1]), {"edges": "ring"}, "edges='ring' is not known"),
        (np.array([[0, 1], [1, 0]]), {"edges": [(0, 2)]}, r"edges\[0\] is \(0, 2\)"),
        (np.array([[0, 1], [1, 0]]), {"edges": [(0, 0)]}, "columns of y that are different"),
        (np.array([[0, 1], [1, 0]]), {"edges": [(0, 1), (1, 0)]}, r"edges\[1\].*once"),
        (np.array([[0, 1], [1, 0]]), {"edges": [0, 1]}, r"shape \(2,\)"),
        (np.array(["a", "a"]), {}, "one class only"),
        ([{1, 2}, {3}], {}, "MultiLabelBinarizer"),
        ([[1, 2], [3]], {}, "MultiLabelBinarizer"),
        (np.array([[0, 1], [1, 0]]), {"edges": None}, "edges=None.*'none'"),
        (np.array([[0, 1], [1, 0]]), {"slack": "squared"}, "no exact oracle"),
    ],
)
def test_bad_input(y: Any, params: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MultilabelSSVM(**params).fit(np.eye(2), y)


def test_three_classes_are_not_indicators() -> None:
    with pytest.raises(ValueError, match=r"Only binary.*MulticlassSSVM"):
        MultilabelSSVM().fit(np.eye(3), ["a", "b", "c"])


@pytest.mark.data
@pytest.mark.parametrize("name", [slow("scene"), "yeast"])
def test_pairs_help(name: str) -> None:
    from datasets import BenchmarkError
    from published import load_multilabel

    try:
        split = load_multilabel(name)
    except BenchmarkError as error:
        pytest.skip(f"real data: {error}")
    none, full = (
        MultilabelSSVM(1.0 if name == "scene" else 0.1, edges=edges, tol=3e-2, random_state=0).fit(
            split.X_train, split.Y_train
        )
        for edges in ("none", "full")
    )
    scores = [m.score(split.X_test, split.Y_test) for m in (none, full)]
    assert scores[1] > scores[0] + (0.05 if name == "scene" else 0.005)


def test_rare_labels_are_predicted_by_default():
    """A third of the default C leaves most of them out."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1600, 40))
    scores = X @ rng.normal(size=(40, 20)) / 40**0.5 + 0.4 * rng.normal(size=(1600, 20))
    Y = (scores > np.quantile(scores, 0.97, axis=0)).astype(int)
    model = MultilabelSSVM(random_state=0).fit(X[:800], Y[:800])
    less = MultilabelSSVM(model.C_ / 4, random_state=0).fit(X[:800], Y[:800])
    found = [f1_score(Y[800:], m.predict(X[800:]), average="macro") for m in (model, less)]
    assert found[0] > 0.35
    assert found[0] > found[1] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 22])  # the best weights' bounds are loose, and tight
def test_stops_when_decoding_finds_nothing_more(seed: int) -> None:
    """Where bounds loosen on the way, the least primal is of early weights, and stays."""
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(12, 2)), (rng.random((12, 4)) < 0.5).astype(int)
    model = MultilabelSSVM(100.0, edges="full", inference="lp", random_state=0)
    with pytest.warns(ConvergenceWarning, match="nothing is left to gain.*passes do not help"):
        model.fit(X, Y)
    assert model.n_iter_ < 50
    best = MultilabelSSVM(100.0, edges="full", random_state=0, tol=1e-6).fit(X, Y)
    assert model.dual_objective_ == pytest.approx(best.dual_objective_, rel=1e-3)
    assert model.primal_objective_ > 1.05 * best.primal_objective_
