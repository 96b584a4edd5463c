"""``C="auto"``: a search on held-out examples, then a fit of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from hingeline import SSVM, ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, MultilabelSSVM, load
from hingeline.core import loop
from hingeline.estimators import base, paths


def rows(n: int = 300, noise: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return np.eye(3)[y] + noise * rng.normal(size=(n, 3)), y


def chains(n: int = 120, seed: int = 0) -> tuple[Any, Any]:
    X, y = rows(6 * n, seed=seed)
    return list(X.reshape(n, 6, 3)), list(y.reshape(n, 6))


def test_least_loss_on_held_out_examples(monkeypatch: Any) -> None:
    """By hand: the trials are fits without a fifth of the examples, judged on that fifth."""
    monkeypatch.setitem(paths.TRIAL_TOL, "C", 1e-4)
    monkeypatch.setattr(paths, "LEAST_PASSES", 1000)  # every trial arrives there
    X, y = rows()
    model = MulticlassSSVM("auto", tol=1e-4, random_state=3).fit(X, y)
    assert model.C == "auto"
    values = [trial.C for trial in model.C_path_]
    assert values[0] == pytest.approx(15.0 / (1.0 + np.mean(np.sum(X**2, axis=1))))
    losses = {trial.C: trial.held_out_loss for trial in model.C_path_}
    assert losses[model.C_] <= losses[values[0]]
    assert model.converged_
    fixed = MulticlassSSVM(model.C_, random_state=3).fit(X, y)
    assert model.primal_objective_ <= fixed.primal_objective_ * 1.02
    assert fixed.dual_objective_ <= model.primal_objective_
    seed = np.random.RandomState(3).randint(2**31 - 1)
    held = np.random.default_rng(seed).permutation(len(y))[: len(y) // 5]
    rest = np.setdiff1d(np.arange(len(y)), held)
    for trial in model.C_path_:
        other = MulticlassSSVM(trial.C, tol=1e-5).fit(X[rest], y[rest])
        wrong = np.mean(other.predict(X[held]) != y[held])
        assert trial.held_out_loss == pytest.approx(wrong, abs=0.02)  # one example


def test_it_goes_where_the_loss_falls() -> None:
    """Small features of a rare class want a larger C, many weak ones a smaller C."""
    y = np.arange(300) % 5 == 0
    X = 0.05 * (y + 0.1 * np.random.default_rng(0).normal(size=300))[:, None]
    small = MulticlassSSVM("auto", random_state=0).fit(X, y)
    assert small.C_ > 1.0
    assert small.score(X, y) > 0.99
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 800)
    X = 0.06 * (0.08 * (2 * y - 1)[:, None] + rng.normal(size=(800, 600)))
    chosen = [MulticlassSSVM("auto", random_state=seed).fit(X, y).C_ for seed in (1, 2, 3)]
    assert sum(C < 1.0 for C in chosen) >= 2  # which fifth is held out is a matter of luck


def test_a_larger_C_is_not_tried_where_no_slack_is_left() -> None:
    X, y = rows(noise=0.05)
    model = MulticlassSSVM("auto", random_state=0).fit(10.0 * X, y)
    assert len(model.C_path_) == 1  # without a loss nothing can be better
    assert pytest.approx(3.75) == model.C_  # three columns and the constant, of the size of 1
    assert repr(model.C_path_).split()[:4] == ["C", "relative_gap", "held_out_loss", "3.75"]


def test_values_of_C_with_the_same_solution_are_passed_over(monkeypatch: Any) -> None:
    """Separable rows with many errors outside: no multiplier is near its bound."""
    rng = np.random.default_rng(0)
    X = 5.0 * rng.normal(size=(60, 200))
    y = np.arange(60) % 3
    monkeypatch.setattr(base, "SCALE", 1.0 + np.mean(np.sum(X**2, axis=1)))  # begin at 1
    model = MulticlassSSVM("auto", scale=False, random_state=0).fit(X, y)
    first, second = model.C_path_[:2]
    assert first.held_out_loss > 0.4
    assert second.C < 0.1 * first.C
    grid = np.log10([trial.C for trial in model.C_path_]) * 2
    np.testing.assert_allclose(grid, grid.round(), atol=1e-9)
    # By hand: the same certificate holds for the last value that was passed over.
    compiled, weights = model._compile(model._make(*posed(model, X, y))), np.ones(len(y))
    with compiled.workers(1) as workers:
        search = paths.HeldOut("C", model, compiled, weights, workers)
        result, dual, _ = search.solve(None, 1.0)
        C, start = search.follow(1.0, dual, 10.0**-0.5)
        assert C * 10.0**-0.5 < dual.multipliers.sum(axis=1).max() <= C < 1.0
        again, _, _ = search.solve(start, C)
    assert again.n_iter == 1
    assert again.dual >= result.dual * (1 - 1e-9)
    assert again.primal <= result.primal * (1 + 1e-9)


def posed(model: Any, X: Any, y: Any) -> tuple[Any, ...]:
    from hingeline._checks import as_csr

    return model._with_constant(as_csr(X)), None, y.astype(np.int32)


def test_weights_of_zero_are_no_predictions() -> None:
    """As where classes overlap so much that zero is the solution: its ties are errors."""
    model = MulticlassSSVM("auto", fit_intercept=False, random_state=0)
    model.fit(np.zeros((40, 2)), np.arange(40) % 4)
    assert not model.weights_.any()
    assert [trial.held_out_loss for trial in model.C_path_] == [1.0] * len(model.C_path_)


def test_one_label_leaves_nothing_to_choose() -> None:
    model = ChainSSVM("auto", random_state=0).fit([np.eye(2)] * 10, [["a", "a"]] * 10)
    assert len(model.C_path_) == 1
    assert model.predict([np.eye(2)])[0].tolist() == ["a", "a"]


def test_nothing_is_tried_where_no_gain_could_be_told_from_chance() -> None:
    X, y = rows(noise=0.1)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    held = np.random.default_rng(seed).permutation(len(y))[: len(y) // 5]
    for wrong, tried in ((2, False), (3, True)):
        labels = y.copy()
        labels[held[:wrong]] = (y[held[:wrong]] + 1) % 3
        model = MulticlassSSVM("auto", random_state=0).fit(X, labels)
        assert model.C_path_[0].held_out_loss == pytest.approx(wrong / 60)
        assert (len(model.C_path_) > 1) == tried


def test_same_bits_for_any_number_of_threads() -> None:
    X, Y = chains()
    one, two = (ChainSSVM("auto", random_state=0, n_jobs=n).fit(X, Y) for n in (1, 2))
    np.testing.assert_array_equal(one.weights_, two.weights_)
    assert one.C_path_ == two.C_path_
    assert one.C_path_[0].C == ChainSSVM("scale").fit(X, Y).C_


def test_other_estimators(tmp_path: Any) -> None:
    X, y = rows(60)
    labels = MultilabelSSVM("auto", random_state=0).fit(X, np.eye(3, dtype=int)[y])
    assert labels.C_ in [trial.C for trial in labels.C_path_]
    graphs = [Graph(x, [(0, 1), (1, 2), (0, 2)]) for x in X.reshape(20, 3, 3)]
    model = GraphSSVM("auto", random_state=0).fit(graphs, list(y.reshape(20, 3)))
    assert model.C_path_[0].C == GraphSSVM(random_state=0).fit(graphs, list(y.reshape(20, 3))).C_
    model.save(tmp_path / "m.hinge")
    again = load(tmp_path / "m.hinge")
    assert (again.C, again.C_) == ("auto", model.C_)
    model.set_params(C=0.5).fit(graphs, list(y.reshape(20, 3)))
    assert not hasattr(model, "C_path_")


def test_bad_input() -> None:
    X, y = rows(9)
    with pytest.raises(ValueError, match=r"C='auto' needs 10 examples.*only 9.*number"):
        MulticlassSSVM("auto").fit(X, y)
    with pytest.raises(TypeError, match=r"C must be a number or 'auto', got 'scale'"):
        SSVM(None, "scale").fit(X, y)
    with pytest.raises(TypeError, match=r"C must be a number, 'auto' or 'scale', got 'best'"):
        ChainSSVM("best").fit(*chains(9))
    with pytest.raises(ValueError, match=r"partial_fit needs a C that stays.*C_"):
        clone(MulticlassSSVM("auto")).partial_fit(X, y)


def test_an_interruption_ends_the_search(monkeypatch: Any) -> None:
    """It ended one trial, and the search went on as if nobody had asked it to stop."""
    sweeps, step = [], loop.Progress.step

    def interrupt(self: Any, *arguments: Any) -> Any:
        sweeps.append(1)
        if len(sweeps) == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(loop.Progress, "step", interrupt)
    X, y = rows(noise=3.0)
    with pytest.raises(KeyboardInterrupt):
        MulticlassSSVM("auto", tol=1e-6, random_state=0).fit(X, y)
    assert len(sweeps) == 3
