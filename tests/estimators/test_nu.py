"""slack="nu" as users meet it: parameters, attributes, files, threads, and the choice of ν."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import hingeline
from hingeline import SSVM, ChainSSVM, Checkpoint, EarlyStopping, MulticlassSSVM
from hingeline.features import PerToken

FITTED = (
    "nu_",
    "rho_",
    "C_",
    "margin_error_risk_",
    "support_vector_risk_",
    "n_margin_errors_",
    "n_on_margin_",
    "n_beyond_margin_",
)


@pytest.fixture(scope="module")
def iris() -> Any:
    return load_iris(return_X_y=True)


def words(n: int = 60, seed: int = 0) -> tuple[list[Any], list[list[str]]]:
    """Sequences of noisy prototypes in 12 dimensions, five letters with habits."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(5, 12))
    X, y = [], []
    for _ in range(n):
        labels = [int(rng.integers(5))]
        for _ in range(int(rng.integers(2, 7))):
            labels.append(int(rng.choice([(labels[-1] + 1) % 5, rng.integers(5)])))
        X.append(prototypes[labels] + 0.9 * rng.normal(size=(len(labels), 12)))
        y.append(["abcde"[label] for label in labels])
    return X, y


# Parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"slack": "nu"}, ValueError, "slack='nu' needs nu"),
        ({"nu": 0.5}, ValueError, "nu=0.5 needs slack='nu'"),
        ({"slack": "nu", "nu": 0}, ValueError, "nu must be greater than 0"),
        ({"slack": "nu", "nu": -1.0}, ValueError, "nu must be greater than 0"),
        ({"slack": "nu", "nu": float("nan")}, ValueError, "nu must be greater than 0"),
        ({"slack": "nu", "nu": float("inf")}, ValueError, "nu must be greater than 0"),
        ({"slack": "nu", "nu": True}, TypeError, "nu must be a number"),
        ({"slack": "nu", "nu": [0.5]}, TypeError, "nu must be a number"),
        ({"slack": "nu", "nu": "best"}, ValueError, "nu='best' is not known.*'auto'"),
        (
            {"slack": "nu", "nu": 0.5, "C": 7.0},
            ValueError,
            "C=7.0 has no meaning.*default of .scale.",
        ),
        ({"slack": "nu", "nu": 0.5, "rescale": "slack"}, ValueError, "margin rescaling only"),
        ({"slack": "nu", "nu": 0.5, "solver": "fsmo"}, ValueError, "'sdm', 'subgradient'"),
        ({"slack": "nu", "nu": 0.5, "violators": "all"}, ValueError, "needs slack='sum'"),
        ({"slack": "nu", "nu": 3.0}, ValueError, "nu=3 is above 1,"),
    ],
)
def test_bad_parameters(iris: Any, params: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        MulticlassSSVM(**params).fit(*iris)


def test_losses_that_are_all_zero(iris: Any) -> None:
    with pytest.raises(ValueError, match="every loss is 0"):
        MulticlassSSVM(slack="nu", nu=0.5, loss=np.zeros((3, 3))).fit(*iris)


def test_the_default_c_of_every_estimator_is_accepted(python_multiclass: Any, iris: Any) -> None:
    X, y = iris
    ChainSSVM(slack="nu", nu=0.5, random_state=0).fit([x[None] for x in X], [[k] for k in y])
    SSVM(python_multiclass(), slack="nu", nu=0.5, random_state=0).fit(list(X[::5]), list(y[::5]))
    with pytest.raises(ValueError, match="default of 'scale'"):
        ChainSSVM(1.0, slack="nu", nu=0.5).fit([x[None] for x in X], [[k] for k in y])


def test_attributes_belong_to_the_fit(iris: Any) -> None:
    model = MulticlassSSVM(slack="nu", nu=0.3, random_state=0).fit(*iris)
    assert all(hasattr(model, name) for name in FITTED)
    assert not hasattr(model, "nu_path_")
    copied = model.with_weights(2 * model.weights_)
    assert not hasattr(copied, "rho_")
    model.set_params(slack="max", nu=None).fit(*iris)
    assert [name for name in FITTED if hasattr(model, name)] == ["C_"]
    assert pytest.approx(3.0) == model.C_  # 15 over the constant and 4 features of one size


def test_weighted_examples_are_repeated_ones(iris: Any) -> None:
    X, y = iris
    weights = np.ones(len(y))
    weights[:20] = 2.0
    model = MulticlassSSVM(slack="nu", nu=0.3, tol=1e-7, random_state=0)
    once = clone(model).fit(X, y, sample_weight=weights)
    twice = clone(model).fit(np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]]))
    assert np.allclose(once.weights_, twice.weights_, atol=1e-3 * np.abs(once.weights_).max())
    assert pytest.approx(twice.C_, rel=1e-2) == once.C_


def test_the_c_problem_at_c_(iris: Any) -> None:
    X, y = iris
    model = MulticlassSSVM(slack="nu", nu=0.3, scale=False, tol=1e-7, random_state=0).fit(X, y)
    other = MulticlassSSVM(model.C_, tol=1e-7, random_state=0).fit(X, y)
    # The same minimum to 1e-6; weights follow with the root of the gap.
    scaled = model.with_weights(model.weights_ / model.rho_)
    scores = scaled.decision_function(X)
    rows = np.arange(len(y))
    wrong = 1.0 - np.eye(3)[y]
    hinges = (scores + wrong).max(axis=1) - scores[rows, y]
    reached = 0.5 * scaled.weights_ @ scaled.weights_ + model.C_ * hinges.sum()
    assert reached == pytest.approx(other.primal_objective_, rel=1e-6)
    assert np.allclose(scaled.weights_, other.weights_, atol=1e-2)
    assert np.array_equal(model.predict(X), other.predict(X))


# The run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chain", "multiclass"])
def test_threads_change_nothing(kind: str, iris: Any) -> None:
    X, y = iris if kind == "multiclass" else words()
    cls = MulticlassSSVM if kind == "multiclass" else ChainSSVM
    nu = 0.3 if kind == "multiclass" else 1.0
    models = [cls(slack="nu", nu=nu, n_jobs=k, random_state=3).fit(X, y) for k in (None, 3)]
    for other in models[1:]:
        assert np.array_equal(models[0].weights_, other.weights_)
        assert models[0].rho_ == other.rho_
        assert models[0].support_vector_risk_ == other.support_vector_risk_


def test_one_history_and_warm_starts() -> None:
    X, y = words()
    model = ChainSSVM(slack="nu", nu=1.0, tol=1e-4, random_state=0, warm_start=True).fit(X, y)
    cold = model.n_iter_
    passes = [row.passes for row in model.history_]
    assert passes == list(range(1, cold + 1))
    rho = model.rho_
    assert model.fit(X, y).n_iter_ <= max(cold // 2, 2)
    assert model.rho_ == pytest.approx(rho, rel=1e-2)
    # From C to ν and back, too.
    other = ChainSSVM(model.C_, tol=1e-4, random_state=0, warm_start=True).fit(X, y)
    other.set_params(C="scale", slack="nu", nu=1.0).fit(X, y)
    assert other.n_iter_ < cold
    assert other.rho_ == pytest.approx(rho, rel=1e-2)


def test_partial_fit() -> None:
    X, y = words()
    model = ChainSSVM(slack="nu", nu=1.0, tol=1e-5, random_state=0)
    whole = clone(model).fit(X, y)
    model.partial_fit(X[:30], y[:30], classes=list("abcde")).partial_fit(X[30:], y[30:])
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=1e-3)
    assert model.rho_ == pytest.approx(whole.rho_, rel=1e-2)


def test_limits_and_callbacks() -> None:
    X, y = words()
    with pytest.warns(match="stopped at max_iter=2 and"):
        short = ChainSSVM(slack="nu", nu=1.0, tol=1e-9, max_iter=2, random_state=0).fit(X, y)
    assert not short.converged_
    assert short.margin_error_risk_ <= 1.0 <= short.support_vector_risk_
    seen = []
    model = ChainSSVM(slack="nu", nu=1.0, tol=1e-9, random_state=0)
    model.set_params(callbacks=lambda state: seen.append(state.row) or len(seen) == 5).fit(X, y)
    assert len(seen) == 5
    assert model.stop_reason_ == "a callback returned True"
    model.set_params(tol=1e-6, callbacks=[EarlyStopping(model, X[:20], y[:20], patience=2)])
    model.fit(X, y)
    assert model.rho_ > 0.0
    assert model.margin_error_risk_ <= 1.0 <= model.support_vector_risk_
    assert model.dual_objective_ <= model.primal_objective_


def test_interruption_keeps_a_certified_model() -> None:
    X, y = words()

    def interrupt(state: Any) -> None:
        if state.row.passes == 4:
            raise KeyboardInterrupt

    model = ChainSSVM(slack="nu", nu=1.0, tol=1e-9, callbacks=interrupt, random_state=0)
    with pytest.warns(match="interrupted"):
        model.fit(X, y)
    assert model.stop_reason_ == "interrupted"
    assert np.isfinite(model.duality_gap_)
    assert model.margin_error_risk_ <= 1.0 <= model.support_vector_risk_


@pytest.mark.parametrize("solver", ["sdm", "subgradient"])
@pytest.mark.parametrize("kind", ["chain", "multiclass"])
def test_checkpoint(tmp_path: Any, kind: str, solver: str, iris: Any) -> None:
    X, y = iris if kind == "multiclass" else words()
    cls = MulticlassSSVM if kind == "multiclass" else ChainSSVM
    nu = 0.3 if kind == "multiclass" else 1.0
    params = {"slack": "nu", "nu": nu, "solver": solver, "tol": 0.1, "random_state": 0}
    params["scale"] = False  # scaled, iris takes one pass
    through = cls(**params).fit(X, y)
    path = tmp_path / "fit.ckpt"

    def stop(state: Any) -> bool:
        return state.row.passes == max(through.n_iter_ // 2, 1)

    cls(**params, callbacks=[Checkpoint(path, every=0.0), stop]).fit(X, y)
    assert path.exists()
    resumed = cls(**params, callbacks=Checkpoint(path, resume=True)).fit(X, y)
    assert resumed.callbacks.resumed_ > 0
    assert np.array_equal(resumed.weights_, through.weights_)
    assert resumed.rho_ == through.rho_


# Files, pickles, searches ------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.3, "auto"])
def test_save_and_load(tmp_path: Any, iris: Any, nu: Any) -> None:
    model = MulticlassSSVM(slack="nu", nu=nu, random_state=0).fit(*iris)
    model.save(tmp_path / "m.hinge")
    loaded = hingeline.load(tmp_path / "m.hinge")
    for name in FITTED:
        assert getattr(loaded, name) == getattr(model, name)
        assert type(getattr(loaded, name)) is type(getattr(model, name))
    assert getattr(loaded, "nu_path_", None) == getattr(model, "nu_path_", None)
    assert np.array_equal(loaded.history_, model.history_, equal_nan=True)
    assert loaded.history_[-1].relative_gap == model.history_[-1].relative_gap
    model.save(tmp_path / "small.hinge", dtype="float16")
    rounded = hingeline.load(tmp_path / "small.hinge")
    assert not hasattr(rounded, "rho_")
    assert np.isnan(rounded.duality_gap_)


def test_pickle_clone_and_grid(iris: Any) -> None:
    model = MulticlassSSVM(slack="nu", nu=0.3, random_state=0).fit(*iris)
    again = pickle.loads(pickle.dumps(model))
    assert again.rho_ == model.rho_
    assert not hasattr(clone(model), "rho_")
    search = GridSearchCV(model, {"nu": [0.3, 0.6]}, cv=KFold(2, shuffle=True, random_state=0))
    search.fit(*iris)
    assert search.best_score_ > 0.9
    assert search.best_estimator_.nu_ == search.best_params_["nu"]


def test_pipeline_for_handwriting() -> None:
    """PCA, quadratic features and a chain; its ν can be searched."""
    X, y = words(60)
    tagger = make_pipeline(
        PerToken(make_pipeline(PCA(4, random_state=0), PolynomialFeatures(2))),
        ChainSSVM(slack="nu", nu=1.0, fit_intercept=False, boundary=False, random_state=0),
    )
    tagger.fit(X[:40], y[:40])
    assert tagger[-1].n_features_in_ == 1 + 4 + 10
    assert tagger.score(X[40:], y[40:]) > 0.6
    tagger.set_params(chainssvm__tol=0.1)
    search = GridSearchCV(tagger, {"chainssvm__nu": [0.5, 2.0]}, cv=2).fit(X, y)
    assert {trial["chainssvm__nu"] for trial in search.cv_results_["params"]} == {0.5, 2.0}


# The choice of ν ---------------------------------------------------------------------------------


def test_auto() -> None:
    X, y = words(120)
    model = ChainSSVM(slack="nu", nu="auto", random_state=0).fit(X, y)
    trials = model.nu_path_
    assert len(trials) >= 3
    best = min(trials, key=lambda trial: (round(trial.held_out_loss, 12), -trial.nu))
    assert model.nu_ == best.nu
    assert model.nu == "auto"
    assert all(trial.relative_gap <= 1e-2 for trial in trials if trial.rho > 0)
    # A search around the smallest risk of support vectors on what was held out.
    centre = min(trial.held_out_risk for trial in trials)
    assert any(abs(np.log(trial.nu / centre)) < 0.5 for trial in trials)
    again = ChainSSVM(slack="nu", nu="auto", random_state=0, n_jobs=2).fit(X, y)
    assert again.nu_path_ == trials
    assert np.array_equal(again.weights_, model.weights_)


@pytest.mark.parametrize("seed", [0, 43])
def test_auto_looks_near_the_least_nu(seed: int) -> None:
    """Where classes overlap, half the largest ν is too small, or what the rest allow is (0)."""
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 4
    X = 0.9 * rng.normal(size=(4, 5))[y] + rng.normal(size=(60, 5))
    model = MulticlassSSVM(slack="nu", nu="auto", random_state=0).fit(X, y)
    refused = max(trial.nu for trial in model.nu_path_ if trial.rho == 0.0)
    assert min(trial.nu for trial in model.nu_path_ if trial.rho > 0.0) < 1.2 * refused
    assert model.rho_ > 0.0
    assert model.score(X, y) > 0.6


def test_a_margin_that_is_next_to_none() -> None:
    """Any nu is above the least value, 0, of separable data: the warning must not deny it."""
    X, y = np.array([[1e-5], [-1e-5]] * 5), [0, 1] * 5
    model = MulticlassSSVM(slack="nu", nu=0.1, scale=False, random_state=0)
    with pytest.warns(UserWarning, match=r"or leaves a margin below 0.0001 of .* scale the feat"):
        model.fit(X, y)
    assert model.rho_ == 0.0
    assert model.set_params(scale=True).fit(X, y).rho_ > 0.0


def test_auto_needs_examples() -> None:
    X, y = words(8)
    with pytest.raises(ValueError, match=r"nu='auto' needs 10 examples .*only 8"):
        ChainSSVM(slack="nu", nu="auto").fit(X, y)


def test_verbose_tells_the_search(capsys: Any) -> None:
    X, y = words(30)
    ChainSSVM(slack="nu", nu="auto", random_state=0, verbose=1).fit(X, y)
    text = capsys.readouterr().err
    assert "nu=" in text
    assert "held-out" in text


@pytest.mark.parametrize("seed", [2, 5])
def test_auto_keeps_to_what_all_examples_allow(seed):
    """Without the held-out ones the mean of the largest losses may be higher than with them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, size=20)
    X = [rng.normal(size=(n, 2)) for n in lengths]
    y = [rng.integers(0, 3, size=n).tolist() for n in lengths]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ChainSSVM(slack="nu", nu="auto", random_state=seed).fit(X, y)
    assert model.nu_ == pytest.approx(lengths.mean())  # labels are noise: as high as it goes
