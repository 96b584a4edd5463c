"""GraphSSVM: optimality, what graphs may look like, and what is refused."""

from __future__ import annotations

import itertools
import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

from hingeline import ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, load

# isort: split
from marks import slow
from reference import EnumeratedProblem, primal, solve

K, D, TOL = 3, 2, 1e-8
TRIANGLE = [(0, 1), (1, 2), (2, 0)]
PATH = [(1, 0), (1, 2)]


def joint_feature(x: Graph, y: Any, edge_features: int = 0, triple: bool = False) -> Any:
    """Unary weights (features, states), pairs (edge features, K, K), a triple (K, K, K)."""
    unary = np.zeros((D, K))
    pairs = np.zeros((max(1, edge_features), K, K))
    cube = np.zeros((K, K, K) if triple else (0,))
    for v, label in enumerate(y):
        unary[:, label] += np.asarray(x.node_features)[v]
    for e, (a, b) in enumerate(x.edges):
        pairs[:, y[a], y[b]] += 1.0 if edge_features == 0 else x.edge_features[e]
    for a, b, c in x.factors.get("triple", []):
        cube[y[a], y[b], y[c]] += 1.0
    return np.concatenate([unary.ravel(), pairs.ravel(), cube.ravel()])


@cache
def data(edges: Any, edge_features: int = 0, triple: bool = False, weighted: bool = False) -> Any:
    rng = np.random.default_rng(7)
    X, Y = [], []
    for k in range(8):
        labels = rng.integers(0, K, size=3)
        features = rng.normal(size=(3, D)) + 0.7 * np.eye(K)[labels][:, :D]
        X.append(
            Graph(
                features,
                np.array(edges)[: len(edges) - k % 2],
                rng.normal(size=(len(edges) - k % 2, edge_features)) if edge_features else None,
                rng.uniform(0.5, 3.0, size=3) if weighted else None,
                factors={"triple": [(0, 1, 2)]} if triple else None,
            )
        )
        Y.append(tuple(labels.tolist()))
    Y[0] = tuple(range(K))
    return X, Y


def reference(X: Any, Y: Any, cost: Any = None, **options: Any) -> EnumeratedProblem:
    cost = 1.0 - np.eye(K) if cost is None else cost

    def one(x: Graph, y: Any) -> EnumeratedProblem:
        weights = np.ones(3) if x.node_weights is None else x.node_weights
        return EnumeratedProblem.from_callables(
            [x],
            [y],
            [list(itertools.product(range(K), repeat=3))],
            lambda x, y: joint_feature(x, y, **options),
            lambda true, y: float(sum(weights[v] * cost[true[v], y[v]] for v in range(3))),
        )

    parts = [one(x, y) for x, y in zip(X, Y, strict=True)]
    return EnumeratedProblem(
        [p.dF[0] for p in parts],
        [p.losses[0] for p in parts],
        [p.outputs[0] for p in parts],
        parts[0].n_features,
    )


def flat(model: Any) -> Any:
    tables = [table.ravel() for table in model.factor_coef_.values()]
    return np.concatenate([model.unary_coef_.T.ravel(), model.pairwise_coef_.ravel(), *tables])


def check(model: Any, problem: Any, C: float, weights: Any = None) -> None:
    best = solve(problem, C, sample_weight=weights).objective
    assert model.converged_
    assert model.oracle_exact_ is True
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    true = primal(problem, flat(model), C, "max", "margin", weights)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert 0.0 <= model.duality_gap_ <= TOL * model.primal_objective_


def fit(X: Any, Y: Any, C: Any = 1.0, sample_weight: Any = None, **params: Any) -> Any:
    # One method for forests and loops: it is part of the type that kernels are compiled for.
    given = {"inference": "enumeration", "tol": TOL, "max_iter": 5000, "fit_intercept": False}
    model = GraphSSVM(C, random_state=0).set_params(**{**given, **params})
    return model.fit(X, Y, sample_weight=sample_weight)


@pytest.mark.parametrize("edges", [tuple(PATH), tuple(TRIANGLE)], ids=["forest", "loop"])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize(
    ("solver", "inference"),
    [("sdm", "enumeration"), slow("fsmo", "enumeration"), slow("sdm", "auto")],
)
def test_optimum(solver: str, edges: Any, C: float, inference: str) -> None:
    X, Y = data(edges)
    weights = np.array([0.5, 2.0, 0.0, 1.0, 1.0, 1.5, 1.0, 1.0])
    problem = reference(X, Y)
    check(fit(X, Y, C, weights, solver=solver, inference=inference), problem, C, weights)


def test_edge_features() -> None:
    X, Y = data(tuple(TRIANGLE), edge_features=2)
    model = fit(X, Y)
    assert model.pairwise_coef_.shape == (2, K, K)
    check(model, reference(X, Y, edge_features=2), 1.0)


@pytest.mark.parametrize("edge_features", [0, 2])
def test_larger_factors(edge_features: int) -> None:
    X, Y = data(tuple(PATH), edge_features, triple=True)
    model = fit(X, Y)
    assert model.factor_coef_["triple"].shape == (K, K, K)
    assert model.factor_coef_["triple"].any()
    check(model, reference(X, Y, edge_features=edge_features, triple=True), 1.0)


def test_costs_class_weights_and_node_weights() -> None:
    X, Y = data(tuple(TRIANGLE), weighted=True)
    costs = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 0.25, 0.0]])
    model = fit(X, Y, loss=(2.0, costs), class_weight={1: 3.0})
    check(model, reference(X, Y, 2.0 * costs * np.array([[1.0], [3.0], [1.0]])), 1.0)
    counts = np.bincount(np.concatenate(Y), minlength=K)
    balanced = (counts.sum() / (K * counts))[:, None] * (1 - np.eye(K))
    check(fit(X, Y, class_weight="balanced"), reference(X, Y, balanced), 1.0)


@pytest.mark.parametrize("solver", ["one-slack", slow("subgradient")])
def test_other_solvers_agree(solver: str) -> None:
    X, Y = data(tuple(TRIANGLE))
    best = fit(X, Y).primal_objective_
    model = fit(X, Y, solver=solver, tol=2e-2, max_iter=3000)
    assert best * (1 - 1e-9) <= model.primal_objective_ <= 1.021 * best


def test_nu() -> None:
    X, Y = data(tuple(TRIANGLE))
    model = fit(X, Y, "scale", slack="nu", nu=2.8, tol=1e-3, fit_intercept=True)
    assert model.margin_error_risk_ <= 2.8 + 1e-6 <= model.support_vector_risk_ + 3e-3
    assert model.rho_ > 0


def test_a_hinge_that_learns_nothing_says_so() -> None:
    """No label is more likely than the two others together, so that w = 0 is the best."""
    rng = np.random.default_rng(0)
    X = [Graph(rng.normal(size=(3, 1)), TRIANGLE) for _ in range(30)]
    Y = [rng.permutation(3) for _ in X]
    for x, y in zip(X, Y, strict=True):
        x.node_features[:, 0] = y + 2.0 * rng.normal(size=3)
    bare = [Graph(x.node_features) for x in X]
    with pytest.warns(UserWarning, match="no weights are better than 0"):
        fit(bare, Y, "scale", tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit([Graph(np.eye(3)[y], TRIANGLE) for y in Y], Y, "scale", tol=1e-2)
        fit(bare, Y, "scale", tol=1e-2, slack="sum")


@pytest.mark.slow
def test_bounds_of_a_relaxation_are_true() -> None:
    """Where decoding is not exact, primal and gap stay true bounds."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.combinations(range(6), 2))
    X = [Graph(0.1 * rng.normal(size=(6, D)), pairs) for _ in range(6)]
    Y = [rng.permutation([0, 0, 1, 1, 2, 2]) for _ in X]
    exact = GraphSSVM(1.0, tol=1e-4, random_state=0).fit(X, Y)
    with pytest.warns(UserWarning, match="certified relative gap"):
        relaxed = GraphSSVM(
            1.0, inference="lp", solver="sdm", tol=1e-4, max_iter=30, random_state=0
        ).fit(X, Y)
    assert exact.oracle_exact_
    assert exact.oracle_bounds_
    assert not hasattr(exact, "integrality_gap_")
    assert not relaxed.oracle_exact_
    assert relaxed.oracle_bounds_
    assert relaxed.primal_objective_ >= exact.dual_objective_ - 1e-9
    assert relaxed.dual_objective_ <= exact.primal_objective_ + 1e-9
    assert relaxed.duality_gap_ == pytest.approx(
        relaxed.primal_objective_ - relaxed.dual_objective_
    )
    sure = exact.certify(X)
    assert sure.exact.all()
    unsure = exact.with_weights(exact.weights_).set_params(inference="lp").certify(X)
    assert (unsure.bounds >= sure.scores - 1e-9).all()
    assert (unsure.scores <= sure.scores + 1e-9).all()
    np.testing.assert_array_equal(sure.labels[0], exact.predict(X)[0])
    with pytest.raises(ValueError, match=r"C=inf.*exact inference"):
        GraphSSVM(np.inf, inference="lp").fit(X, Y)


@pytest.mark.parametrize(
    ("inference", "solver"),
    [("lp", "sdm"), ("lp", "bcfw"), ("lp", "one-slack"), ("ad3", "sdm"), ("icm", "one-slack")],
)
@pytest.mark.slow
def test_stops_when_only_an_integrality_gap_is_left(
    inference: str, solver: str, tmp_path: Path
) -> None:
    """Passes lower what is left over the labellings found, never bounds above them."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.combinations(range(6), 2))
    X = [Graph(0.1 * rng.normal(size=(6, D)), pairs) for _ in range(6)]
    Y = [rng.permutation([0, 0, 1, 1, 2, 2]) for _ in X]
    model = GraphSSVM(1.0, inference=inference, solver=solver, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"integrality gap.*more passes do not help"):
        model.fit(X, Y)
    assert model.n_iter_ < 100
    assert model.stop_reason_ == "only the integrality gap of decoding is left"
    assert not model.converged_
    assert not model.oracle_exact_
    assert model.oracle_bounds_
    # By hand: what the bounds add to the slack of the labellings found, or of the truth.
    problem = model._prepare(X)
    _, bounds, values, _ = model._decode(problem)
    assert (bounds >= values).all()
    left = model.duality_gap_ - model.integrality_gap_
    assert model.integrality_gap_ > 0.0
    if inference != "icm":  # which may miss labellings that the dual has found before
        assert left <= 0.011 * model.primal_objective_
        assert left >= 0.0
    # Exactly decoded, the optimum lies between the two.
    best = GraphSSVM(1.0, solver=solver, random_state=0, tol=1e-4).fit(X, Y)
    assert model.dual_objective_ <= best.primal_objective_ * (1 + 1e-9)
    assert model.primal_objective_ >= best.dual_objective_ * (1 - 1e-9)
    model.save(tmp_path / "m.hinge")
    again = load(tmp_path / "m.hinge")
    for name in ("oracle_exact_", "oracle_bounds_", "integrality_gap_"):
        assert getattr(again, name) == getattr(model, name)


def test_only_exact_decoding_is_called_so() -> None:
    """What ``oracle_exact_`` is made of, told by the problem alone."""
    X, Y = data(tuple(TRIANGLE))
    model = fit(X, Y, tol=0.5)
    found = {}
    for inference in ("auto", "enumeration", "lp", "ad3", "icm"):
        problem = model.set_params(inference=inference)._prepare(X)
        found[inference] = model._compile(problem).exact
    exact = {"auto": True, "enumeration": True}
    assert found == exact | dict.fromkeys(("lp", "ad3", "icm"), False)


@pytest.mark.slow
def test_tight_bounds_leave_no_integrality_gap() -> None:
    """On a forest the relaxation is tight: LP decoding converges, and says that it might not."""
    rng = np.random.default_rng(0)
    X = [Graph(rng.normal(size=(5, D)), [(0, 1), (1, 2), (3, 4)]) for _ in range(8)]
    Y = [rng.integers(0, 2, 5) for _ in X]
    model = GraphSSVM(1.0, inference="lp", solver="sdm", random_state=0).fit(X, Y)
    assert model.converged_
    assert not model.oracle_exact_
    assert model.integrality_gap_ <= 1e-3 * model.primal_objective_


@pytest.mark.slow
def test_a_loose_relaxation_is_not_called_exact() -> None:
    """Three neighbours that all want to differ: two labels cannot, half of each can."""
    X = [Graph(np.ones((3, 1)), [(0, 1), (1, 2), (0, 2)])] * 2
    model = GraphSSVM(inference="lp", solver="sdm").fit(X, [[0, 1, 0], [1, 0, 1]])
    repelling = model.with_weights(np.zeros_like(model.weights_))
    repelling.pairwise_coef_[...] = -np.eye(2)
    found = repelling.certify(X[:1])
    assert not found.exact[0]
    assert found.scores[0] == pytest.approx(-1.0)
    assert found.bounds[0] == pytest.approx(0.0, abs=1e-6)
    settled = repelling.certify(X[:1], settle=True)
    assert settled.exact[0]
    assert settled.bounds[0] == settled.scores[0] == pytest.approx(-1.0)
    assert len(set(settled.labels[0].tolist())) == 2


def test_paths_are_chains() -> None:
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(k, D)) for k in (1, 4, 6)]
    Y = [rng.integers(0, K, size=len(x)) for x in X]
    graphs = [Graph(x, [(t, t + 1) for t in range(len(x) - 1)]) for x in X]
    chain = ChainSSVM(1.0, boundary=False, tol=TOL, random_state=0).fit(X, Y)
    model = fit(graphs, Y, fit_intercept=True)
    assert model.primal_objective_ == pytest.approx(chain.primal_objective_, rel=1e-6)
    np.testing.assert_allclose(model.pairwise_coef_, chain.transition_coef_, atol=1e-3)
    np.testing.assert_allclose(model.intercept_, chain.intercept_, atol=1e-3)


def test_single_nodes_are_multiclass() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(20, D)), rng.integers(0, K, size=20)
    flat_model = MulticlassSSVM(1.0, tol=TOL, random_state=0).fit(X, y)
    model = fit([Graph(x[None]) for x in X], y[:, None], fit_intercept=True)
    assert model.primal_objective_ == pytest.approx(flat_model.primal_objective_, rel=1e-6)


def test_node_types_have_their_own_weights() -> None:
    rng = np.random.default_rng(5)
    X = [
        Graph(rng.normal(size=(3, D)), PATH, node_types=[0, 1, 0], edge_types=[0, 1])
        for _ in range(6)
    ]
    Y = [rng.integers(0, K, size=3) for _ in X]
    model = fit(X, Y)
    assert model.unary_coef_.shape == (2, K, D)
    assert model.pairwise_coef_.shape == (2, K, K)
    # Types written out as features and edge features are the same problem.
    spread = [
        Graph(
            np.hstack([x.node_features * (x.node_types[:, None] == t) for t in (0, 1)]),
            PATH,
            np.eye(2),
        )
        for x in X
    ]
    other = fit(spread, Y)
    assert model.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-6)
    np.testing.assert_allclose(
        model.unary_coef_, other.unary_coef_.reshape(K, 2, D).transpose(1, 0, 2), atol=1e-3
    )
    with pytest.raises(ValueError, match=r"X\[0\]\.node_types holds 2"):
        model.predict([Graph(np.ones((1, D)), node_types=[2])])


def test_pictures_are_graphs_of_pixels_or_regions() -> None:
    image = np.arange(12.0).reshape(2, 3, 2)
    pixels = Graph.from_image(image)
    np.testing.assert_array_equal(pixels.node_features, image.reshape(6, 2))
    across, down = [(0, 1), (1, 2), (3, 4), (4, 5)], [(0, 3), (1, 4), (2, 5)]
    assert [*map(tuple, pixels.edges.tolist())] == across + down
    assert pixels.edge_types.tolist() == [0] * 4 + [1] * 3
    regions = np.array([[0, 0, 2], [1, 1, 2]])
    joined = Graph.from_image(image[:, :, 0], regions)
    values = image[:, :, 0]
    expected = [[values[regions == r].mean()] for r in range(3)]
    np.testing.assert_allclose(joined.node_features, expected)
    assert joined.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert joined.node_weights.tolist() == [2, 2, 2]
    assert Graph.from_image([[1.0]]).n_edges == 0
    for wrong in (regions + 1, regions * 2, regions[:1], regions * 1.0, regions * 2**40):
        with pytest.raises(ValueError, match="regions must hold an integer for each of 2 × 3"):
            Graph.from_image(image, wrong)
    with pytest.raises(TypeError, match="regions must hold an integer for each of 2 × 3"):
        Graph.from_image(image, [[0, 0, 0], [0]])
    for values in ([1.0, 2.0, 3.0], np.zeros((0, 3))):
        with pytest.raises(ValueError, match=r"image has shape \([03],[ 3]*\), expected"):
            Graph.from_image(values)


def test_parts_that_are_not_connected_are_examples_of_their_own() -> None:
    """The same problem: rows, types, factors and their features stay with their nodes."""
    rng = np.random.default_rng(5)
    whole, apart, labels, parts = [], [], [], []
    for _ in range(3):
        mixed = rng.permutation(10)  # triangle, edge, triple without edges, two single nodes
        edges = mixed[[(0, 1), (5, 6), (1, 2), (2, 0)]]
        graph = Graph(
            rng.normal(size=(10, D)),
            edges,
            rng.normal(size=(4, 2)),
            rng.uniform(0.5, 2.0, size=10),
            rng.integers(2, size=10),
            rng.integers(2, size=4),
            {"triple": mixed[[(3, 4, 7), (0, 2, 1)]]},
        )
        y = rng.integers(K, size=10)
        kept = [np.isin(np.arange(10), mixed[own]) for own in ([0, 1, 2], [5, 6], [3, 4, 7])]
        kept += [np.arange(10) == v for v in mixed[8:]]
        whole.append(graph)
        labels.append(y)
        apart += [graph.subgraph(own) for own in kept]
        parts += [y[own] for own in kept]
    weights = np.array([1.0, 0.5, 2.0])
    together, each = (
        GraphSSVM(1.0, tol=1e-6, random_state=0).fit(X, Y, w)
        for X, Y, w in ((whole, labels, weights), (apart, parts, np.repeat(weights, 5)))
    )
    np.testing.assert_allclose(together.weights_, each.weights_, rtol=0.0, atol=3e-3)
    assert together.primal_objective_ == pytest.approx(each.primal_objective_, rel=2e-6)
    assert together.oracle_exact_  # 59,049 labellings of a graph, 27 of its largest part
    named = GraphSSVM(1.0, solver="sdm", tol=1e-6, random_state=0).fit(whole, labels, weights)
    assert named.primal_objective_ == pytest.approx(each.primal_objective_, rel=2e-6)


def test_void_nodes_count_for_nothing() -> None:
    X, Y = data(tuple(TRIANGLE), edge_features=2, triple=True)
    labels = [["a", "b", "c"][k] for k in range(K)]
    named = [[labels[k] for k in y] for y in Y]
    kept = np.array([True, False, True])
    void = [[y[0], "void", y[2]] for y in named]
    sub = [x.subgraph(kept) for x in X]
    assert sub[0].edges.tolist() == [[1, 0]]
    np.testing.assert_array_equal(sub[0].edge_features, X[0].edge_features[[2]])
    assert len(sub[0].factors["triple"]) == 0
    void[1] = ["void"] * 3
    one = fit(X, void, void_label="void")
    others = [k for k in range(len(X)) if k != 1]
    two = fit([sub[k] for k in others], [[void[k][0], void[k][2]] for k in others])
    np.testing.assert_allclose(one.weights_, two.weights_, atol=1e-6)
    assert one.classes_.tolist() == labels
    found = one.predict(X)
    assert [len(own) for own in found] == [3] * len(X)
    hits = [found[k][v] == void[k][v] for k in others for v in (0, 2)]
    assert one.score(X, void) == pytest.approx(np.mean(hits))
    with pytest.raises(ValueError, match="nothing but the void label"):
        fit(X, [["void"] * 3] * len(X), void_label="void")


def test_score_counts_node_weights() -> None:
    X, Y = data(tuple(TRIANGLE), weighted=True)
    model = fit(X, Y, 0.01)
    hits = np.array([p == y for p, y in zip(model.predict(X), Y, strict=True)])
    weights = np.array([x.node_weights for x in X])
    assert model.score(X, Y) == pytest.approx((hits * weights).sum() / weights.sum())
    own = np.arange(len(X))
    expected = (hits * weights * own[:, None]).sum() / (weights * own[:, None]).sum()
    assert model.score(X, Y, sample_weight=own) == pytest.approx(expected)


def test_no_graphs_have_no_labels() -> None:
    X = [Graph([[1.0], [-1.0]], [(0, 1)])]
    assert fit(X, [["a", "b"]], inference="enumeration").predict([]) == []
    with pytest.raises(NotFittedError):
        GraphSSVM().predict([])
    with pytest.raises(ValueError, match="X is empty: there are no graphs"):
        GraphSSVM().fit([], [])


def test_decision_function_is_conditional() -> None:
    X, Y = data(tuple(TRIANGLE), edge_features=2, triple=True)
    model = fit(X, Y)
    for x, scores, labels in zip(X, model.decision_function(X), model.predict(X), strict=True):
        for v in range(3):
            whole = []
            for k in range(K):
                y = labels.copy()
                y[v] = k
                whole.append(flat(model) @ joint_feature(x, y, 2, True))
            np.testing.assert_allclose(scores[v] - scores[v, 0], np.array(whole) - whole[0])
            assert scores[v].argmax() == labels[v]


def test_sparse_features_and_threads() -> None:
    X, Y = data(tuple(TRIANGLE))
    sparse = [Graph(sp.csr_array(x.node_features), x.edges) for x in X]
    np.testing.assert_array_equal(fit(sparse, Y, n_jobs=2).weights_, fit(X, Y).weights_)


@pytest.mark.parametrize("kind", ["plain", "rich"])
def test_storage(kind: str, tmp_path: Path) -> None:
    X, Y = data(tuple(PATH), 2 if kind == "rich" else 0, triple=kind == "rich")
    model = fit(X, Y, fit_intercept=True)
    report = model.save(tmp_path / "m.hinge", check=(X, Y))
    assert report["exact"]
    assert report["changed_predictions"] == 0
    for again in (
        load(tmp_path / "m.hinge"),
        GraphSSVM.load(tmp_path / "m.hinge"),
        pickle.loads(pickle.dumps(model)),
    ):
        np.testing.assert_array_equal(again.weights_, model.weights_)
        found, wanted = (np.concatenate(m.predict(X)) for m in (again, model))
        np.testing.assert_array_equal(found, wanted)
        assert again.factor_coef_.keys() == model.factor_coef_.keys()
        assert again.duality_gap_ == model.duality_gap_
    model.save(tmp_path / "s.hinge", sparse=True, dtype="float32")
    small = load(tmp_path / "s.hinge")
    np.testing.assert_allclose(small.weights_, model.weights_, rtol=1e-6)
    with pytest.raises(ValueError, match="partial_fit"):
        model.save(tmp_path / "m.hinge", state=True)


def test_warm_start_clone_and_grid() -> None:
    X, Y = data(tuple(TRIANGLE))
    model = fit(X, Y, warm_start=True, tol=1e-6)
    passes = model.n_iter_
    model.set_params(C=1.05).fit(X, Y)
    assert model.n_iter_ <= passes
    assert model.primal_objective_ == pytest.approx(fit(X, Y, 1.05).primal_objective_, rel=1e-5)
    assert not hasattr(clone(model), "weights_")
    search = GridSearchCV(
        GraphSSVM(inference="enumeration", random_state=0), {"C": [0.01, 1.0]}, cv=2
    ).fit(X, Y)
    assert search.best_score_ > 0.3


class TestBadGraphs:
    @pytest.mark.parametrize(
        ("make", "match"),
        [
            (lambda: Graph(np.zeros((0, 2))), "no rows"),
            (lambda: Graph([1.0, 2.0]), "two dimensions"),
            (lambda: Graph([[np.nan]]), "NaN"),
            (lambda: Graph([[1.0], [2.0]], [(0, 2)]), r"edges\[0\] is \(0, 2\).*0 to 1"),
            (lambda: Graph([[1.0], [2.0]], [(0, 1), (1, 1)]), r"edges\[1\].*different"),
            (lambda: Graph([[1.0], [2.0]], [(0, 1), (1, 0)]), r"edges\[1\].*once"),
            (lambda: Graph([[1.0], [2.0]], [(0, 1, 1)]), r"shape \(1, 3\)"),
            (lambda: Graph([[1.0], [2.0]], [(0, 1)], [[1.0], [2.0]]), "one row per edge"),
            (lambda: Graph([[1.0], [2.0]], node_weights=[1.0]), "2 nodes"),
            (lambda: Graph([[1.0], [2.0]], node_weights=[1.0, -1.0]), "≥ 0"),
            (lambda: Graph([[1.0], [2.0]], node_types=[0]), "node_types has shape"),
            (lambda: Graph([[1.0], [2.0]], factors={"a": [(0, 0)]}), "nodes that are different"),
        ],
    )
    def test_values(self, make: Any, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            make()

    @pytest.mark.parametrize(
        ("make", "match"),
        [
            (lambda: Graph([["a"]]), r"node_features\[0\] .* numbers are expected"),
            (lambda: Graph([[1.0], [2.0]], [(0.0, 1.0)]), "integers"),
            (lambda: Graph([[1.0], [2.0]], factors=[(0, 1)]), "dict"),
            (lambda: GraphSSVM().fit([[1.0]], [[0]]), r"X\[0\] is a list"),
            (lambda: GraphSSVM().fit(Graph([[1.0]]), [[0]]), "list of graphs"),
        ],
    )
    def test_types(self, make: Any, match: str) -> None:
        with pytest.raises(TypeError, match=match):
            make()

    @pytest.mark.parametrize(
        ("X", "y", "params", "match"),
        [
            ([], [], {}, "X is empty"),
            ([Graph([[1.0]])], [[0], [1]], {}, "1 graphs and y has 2"),
            ([Graph([[1.0]])], [[0, 1]], {}, r"X\[0\] has 1 nodes and y\[0\] has 2"),
            ([Graph([[1.0]]), Graph([[1.0, 2.0]])], [[0], [1]], {}, r"X\[1\] has 2 node features"),
            ([Graph([[1.0]])], [[0]], {"slack": "squared"}, "no exact oracle for graphs"),
            ([Graph([[1.0]])], [[0]], {"inference": "magic"}, "inference='magic'"),
            ([Graph(np.ones((2, 1)), node_types=[0, 10**11])], [[0, 1]], {}, "GiB of memory"),
            ([Graph(np.ones((40, 1)), factors={"a": [range(40)]})], [[0, 1] * 20], {}, "GiB"),
            (
                [Graph(np.ones((3, 1)), TRIANGLE)],
                [[0, 1, 0]],
                {"inference": "max-product"},
                "without cycles",
            ),
            (  # the number of a graph, not of a part that is an example of its own
                [Graph(np.ones((9, 1)), [(0, 1)]), Graph(np.ones((3, 1)), TRIANGLE)],
                [[0, 1, 0] * 3, [0, 1, 0]],
                {"inference": "max-product"},
                "graph 1: .*without cycles",
            ),
            (  # each part is small, but prediction enumerates the whole graph
                [Graph(np.ones((30, 1)), [(0, 1)])],
                [[0, 1, 0] * 10],
                {"inference": "enumeration"},
                "graph 0: .*up to 16777216 assignments",
            ),
        ],
    )
    def test_fit(self, X: Any, y: Any, params: Any, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            GraphSSVM(**params).fit(X, y)

    def test_predict(self) -> None:
        X, Y = data(tuple(PATH))
        model = fit(X, Y)
        with pytest.raises(ValueError, match="5 node features"):
            model.predict([Graph(np.ones((1, 5)))])
        with pytest.raises(ValueError, match="1 edge features, but the model was fitted with 0"):
            model.predict([Graph(np.ones((2, D)), [(0, 1)], [[1.0]])])
        with pytest.raises(ValueError, match="not fitted with"):
            model.predict([Graph(np.ones((3, D)), factors={"triple": [(0, 1, 2)]})])
