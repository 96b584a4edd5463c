"""Estimators trained by soft-bcfw: agreement with exact solvers, and what a fit keeps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hingeline import Checkpoint, Graph, GraphSSVM, MultilabelSSVM, load

# isort: split
from graphs import grid
from marks import slow

FOUND = ("relaxed_objective_", "relaxed_gap_", "fractional_", "soft_rho_", "structured_objective_")
HARD = {"constraints": "hard"}


def labelled(seed: int = 0, n: int = 15, labels: int = 5) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    Y = (X @ rng.normal(size=(3, labels)) + rng.normal(size=(n, labels)) > 0).astype(int)
    return X, Y


def trees(seed: int = 0, n: int = 8) -> Any:
    rng = np.random.default_rng(seed)
    y = [rng.integers(0, 3, size=4).tolist() for _ in range(n)]
    X = [
        Graph(rng.normal(size=(4, 2)) + np.eye(3)[own][:, :2], [(0, 1), (1, 2), (1, 3)])
        for own in y
    ]
    return X, y


def multilabel(**params: Any) -> Any:
    params = {"C": 0.5, "solver": "soft-bcfw", "tol": 1e-3, "random_state": 0, **params}
    return MultilabelSSVM(**params)


@pytest.mark.parametrize("kind", [pytest.param("graph", marks=pytest.mark.slow), "multilabel"])
def test_solvers_agree_on_trees(kind: str) -> None:
    """The relaxation is exact there: one optimum for hard constraints, bcfw and sdm."""
    model: Any = GraphSSVM(0.5) if kind == "graph" else MultilabelSSVM(0.5, edges="tree")
    model.set_params(inference="auto" if kind == "graph" else "enumeration")  # as the others here
    data = trees() if kind == "graph" else labelled()
    found = {}
    for solver in ("soft-bcfw", "bcfw", "sdm"):
        model.set_params(solver=solver, tol=2e-5, max_iter=3000, random_state=0)
        model.set_params(solver_options=HARD if solver == "soft-bcfw" else None)
        model.fit(*data)
        assert model.converged_
        found[solver] = model.primal_objective_
    assert found["soft-bcfw"] == pytest.approx(found["sdm"], rel=1e-4)
    assert found["bcfw"] == pytest.approx(found["sdm"], rel=1e-4)


@pytest.mark.parametrize(
    ("n", "labels", "params", "chosen"),
    [
        (1000, 14, {}, "sdm"),  # 16,384 labellings each: 0.16 s
        (20000, 14, {}, "soft-bcfw"),
        (100, 20, {}, "sdm"),  # 190 pairs: 0.6 s of cuts or AD3
        (2000, 20, {}, "soft-bcfw"),
        (2000, 20, {"edges": "tree"}, "label-tree"),
        (2000, 10, {"inference": "enumeration"}, "sdm"),
        (100, 20, {"inference": "icm"}, "soft-bcfw"),  # its bound says little
    ],
)
def test_auto_goes_by_what_decoding_costs(n: int, labels: int, params: Any, chosen: str) -> None:
    rng = np.random.default_rng(0)
    posed: list[Any] = []
    model: Any = MultilabelSSVM(0.1, **{"edges": "full", **params})
    model._fit_graphs = lambda problem, weights: posed.append(problem)
    model.fit(rng.normal(size=(n, 2)), rng.integers(0, 2, (n, labels)))
    assert model._solver_class(model._compile(posed[0])).name == chosen


def test_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where decoding is dear, loops are relaxed, and nothing else is."""
    monkeypatch.setattr("hingeline.estimators.graph.CHEAP_SECONDS", 1e-3)
    X, Y = labelled(labels=15)
    relaxed = MultilabelSSVM(0.1, random_state=0).fit(X, Y)
    assert hasattr(relaxed, "relaxed_objective_")
    assert not relaxed.oracle_exact_  # its certificate is not one of exact training
    for params in ({"edges": "tree"}, {"inference": "enumeration"}):
        assert not hasattr(
            MultilabelSSVM(0.1, tol=0.1, random_state=0, **params).fit(X, Y), "relaxed_objective_"
        )
    assert not hasattr(MultilabelSSVM(0.1).fit(X, Y[:, :8]), "relaxed_objective_")


def test_auto_takes_the_options_of_what_it_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hingeline.estimators.graph.CHEAP_SECONDS", 1e-3)
    X, Y = labelled(labels=15)
    model = MultilabelSSVM(0.1, solver_options={"rho": 2.0}, random_state=0).fit(X, Y)
    assert model.soft_rho_ == 2.0
    with pytest.raises(ValueError, match=r"'rho'.*solver='sdm' does not know"):
        model.fit(X, Y[:, :8])
    model.set_params(solver_options={"precision": 0.2}).fit(X, Y[:, :8])
    with pytest.raises(ValueError, match=r"'precision'.*solver='soft-bcfw' does not know"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match="'rhoo'"):
        model.set_params(solver_options={"rhoo": 2.0}).check_parameters()


def grids(seed: int, n: int, size: int = 6, labels: int = 3) -> Any:
    """Labels that like to be those of their neighbours (Gibbs samples), and noisy features."""
    rng = np.random.default_rng(seed)
    edges = grid(size, size)
    near: list[list[int]] = [[] for _ in range(size * size)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    truth = rng.integers(0, labels, (n, size * size))
    for _ in range(15):
        for v, others in enumerate(near):
            liking = 1.1 * (truth[:, others, None] == np.arange(labels)).sum(axis=1)
            truth[:, v] = (liking + rng.gumbel(size=liking.shape)).argmax(axis=1)
    seen = np.eye(labels)[truth] + rng.normal(size=(n, size * size, labels))
    return [Graph(x, edges) for x in seen], list(truth)


@pytest.mark.parametrize("solver", ["soft-bcfw", slow("auto")])
@pytest.mark.parametrize("n", [20, slow(100)])
def test_edges_count_by_default(n: int, solver: str) -> None:
    """However many grids there are, the default is far above a model without edges."""
    train, test = grids(n, n), grids(999, 30)

    def bare(X: list[Graph]) -> list[Graph]:
        return [Graph(x.node_features) for x in X]

    none = GraphSSVM(random_state=0).fit(bare(train[0]), train[1]).score(bare(test[0]), test[1])
    model = GraphSSVM(solver=solver, random_state=0).fit(*train)
    assert hasattr(model, "relaxed_objective_") == (solver == "soft-bcfw")
    assert model.converged_
    assert model.score(*test) > none + 0.08
    if solver == "soft-bcfw":  # what this test is about
        printed = {"rho": 1.0, "rho_scale": "printed"}
        as_printed = GraphSSVM(solver=solver, solver_options=printed, random_state=0).fit(*train)
        assert as_printed.score(*test) < none + 0.04


def test_files_keep_what_was_found(tmp_path: Path) -> None:
    X, Y = labelled()
    model = multilabel().fit(X, Y)
    model.save(tmp_path / "m.hinge")
    again = load(tmp_path / "m.hinge")
    for name in FOUND:
        assert getattr(again, name) == getattr(model, name)
    assert model.structured_objective_ <= model.relaxed_objective_ * (1 + 1e-9)
    assert model.relaxed_objective_ <= model.primal_objective_ * (1 + 1e-9)
    model.save(tmp_path / "r.hinge", dtype="float16")
    rounded = load(tmp_path / "r.hinge")
    assert not any(hasattr(rounded, name) for name in FOUND)
    model.set_params(solver="sdm").fit(X, Y)
    assert not any(hasattr(model, name) for name in FOUND)


def test_weights_of_examples_and_threads() -> None:
    X, Y = labelled()
    weights = np.ones(len(X))
    weights[0], weights[1] = 2.0, 0.0
    twice = multilabel(tol=1e-5).fit(np.vstack([X[:1], X[:1], X[2:]]), Y[[0, 0, *range(2, len(Y))]])
    weighted = multilabel(tol=1e-5).fit(X, Y, sample_weight=weights)
    assert weighted.primal_objective_ == pytest.approx(twice.primal_objective_, rel=1e-4)
    other = multilabel(tol=1e-5, n_jobs=2).fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(other.weights_, weighted.weights_)


@pytest.mark.parametrize("options", [{}, HARD])
def test_warm_start_and_checkpoint(options: Any, tmp_path: Path) -> None:
    X, Y = labelled()
    model = multilabel(warm_start=True, solver_options=options).fit(X, Y)
    passes = model.n_iter_
    assert model.fit(X, Y).n_iter_ <= passes

    def stop_at(limit: int) -> Any:
        return lambda state: state.row.passes >= limit

    whole = multilabel(tol=1e-6, solver_options=options).fit(X, Y)
    path = tmp_path / "run.ckpt"
    multilabel(
        tol=1e-6, solver_options=options, callbacks=[stop_at(6), Checkpoint(path, every=0)]
    ).fit(X, Y)
    resumed = multilabel(
        tol=1e-6,
        solver_options=options,
        callbacks=[stop_at(10**6), Checkpoint(path, every=0, resume=True)],
    ).fit(X, Y)
    np.testing.assert_array_equal(resumed.weights_, whole.weights_)


def test_interruptions() -> None:
    X, Y = labelled()

    def interrupt(state: Any) -> None:
        if state.row.passes == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = multilabel(tol=1e-9, callbacks=interrupt).fit(X, Y)
    assert model.stop_reason_ == "interrupted"
    assert 0.0 < model.duality_gap_ < model.primal_objective_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        timed = multilabel(tol=1e-12, max_time=0.2).fit(X, Y)
    assert timed.stop_reason_.startswith(("max_time", "max_iter"))


@pytest.mark.slow
def test_dlpw_says_why_it_has_no_gap() -> None:
    X, Y = labelled()
    with pytest.warns(ConvergenceWarning, match=r"no dual point.*more passes give none"):
        multilabel(solver="dlpw", max_iter=2).fit(X, Y)
