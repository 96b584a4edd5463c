"""Whole paths of ν and C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hingeline import C_path, ChainSSVM, MulticlassSSVM, Path, nu_path
from hingeline.report import plot_path

# isort: split
from reference import random_chains


@pytest.fixture(scope="module")
def iris() -> Any:
    return load_iris(return_X_y=True)


def check_points(path: Path, tol: float) -> None:
    assert isinstance(path, Path)
    assert (path.relative_gaps <= tol).all()
    assert (path.margin_error_risks <= path.support_vector_risks).all()
    columns = (path.values, path.relative_gaps, path.margin_error_risks, path.seconds)
    assert {len(column) for column in columns} == {len(path), len(path.models)}
    assert all(not hasattr(model, "_dual") for model in path.models)


def test_nu_path(iris: Any) -> None:
    estimator = MulticlassSSVM(random_state=0, tol=1e-3)
    path = nu_path(estimator, *iris)
    check_points(path, 1e-3)
    assert len(path) == 10
    assert path.parameter == "nu"
    assert path.values == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05])
    assert (path.margin_error_risks <= path.values).all()
    assert (path.values <= path.support_vector_risks).all()
    rhos = [model.rho_ for model in path.models]
    assert rhos == sorted(rhos, reverse=True)
    assert not hasattr(estimator, "weights_")
    alone = MulticlassSSVM(slack="nu", nu=path.values[6], random_state=0, tol=1e-3).fit(*iris)
    scale = alone.primal_objective_ + alone.nu_ * alone.rho_
    assert path.models[6].primal_objective_ == pytest.approx(
        alone.primal_objective_, abs=2e-3 * scale
    )
    assert path.models[6].predict(iris[0]).shape == iris[1].shape


def test_nu_path_ends_where_nu_is_too_low(iris: Any) -> None:
    X, y = iris
    y = np.where(np.arange(len(y)) % 5 == 0, (y + 1) % 3, y)  # a fifth of the labels is wrong
    with pytest.warns(UserWarning, match="not above its least value"):
        path = nu_path(MulticlassSSVM(random_state=0), X, y, nus=[0.01, 0.02, 0.8])
    assert path.values.tolist() == [0.8, 0.02]
    assert [model.rho_ > 0 for model in path.models] == [True, False]


def test_c_path_agrees_with_single_fits(iris: Any) -> None:
    Cs = [1.0, 0.01, 0.1]
    weights = np.linspace(0.5, 1.5, len(iris[1]))
    path = C_path(MulticlassSSVM(random_state=0, tol=1e-4), *iris, Cs, sample_weight=weights)
    check_points(path, 1e-4)
    assert path.values.tolist() == [0.01, 0.1, 1.0]
    assert (np.diff(path.support_vector_risks) <= 0).all()  # ν(C) does not rise
    for C, model in zip(path.values, path.models, strict=True):
        alone = MulticlassSSVM(C, random_state=0, tol=1e-4).fit(*iris, sample_weight=weights)
        assert model.C == C
        assert model.primal_objective_ == pytest.approx(alone.primal_objective_, rel=2e-4)


def test_defaults_and_other_slacks(iris: Any) -> None:
    path = C_path(MulticlassSSVM(slack="squared", random_state=0, tol=0.1), *iris)
    assert len(path) == 10
    assert path.values[[0, -1]] == pytest.approx([0.001, 10.0])
    assert np.isnan(path.support_vector_risks).all()
    chain = C_path(ChainSSVM(slack="nu", nu=0.5, random_state=0), *chains(), Cs=[0.1])
    assert chain.models[0].slack == "max"


def chains() -> Any:
    return random_chains(np.random.default_rng(1), 12, 3, 3, 3)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ([], ValueError, "must be a sequence of numbers"),
        ([0.5, -1.0], ValueError, "must be greater than 0"),
        (["a"], TypeError, "must be numbers"),
    ],
)
def test_bad_values(iris: Any, values: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=f"nus {text}"):
        nu_path(MulticlassSSVM(), *iris, nus=values)
    with pytest.raises(error, match=f"Cs {text}"):
        C_path(MulticlassSSVM(), *iris, Cs=values)


@pytest.mark.parametrize("path", [nu_path, C_path])
def test_pipelines_are_refused(path: Any, iris: Any) -> None:
    with pytest.raises(TypeError, match="got Pipeline: for a pipeline, transform X first"):
        path(make_pipeline(StandardScaler(), MulticlassSSVM()), *iris)


def test_plot(tmp_path: Any, iris: Any) -> None:
    pytest.importorskip("matplotlib")
    path = nu_path(MulticlassSSVM(random_state=0), *iris, nus=[0.2, 0.5])
    risks, _ = plot_path(path, tmp_path / "path.svg")
    assert len(risks.lines) == 3
    assert (tmp_path / "path.svg").read_text().startswith("<?xml")
    plot_path(C_path(MulticlassSSVM(random_state=0), *iris, Cs=[0.1, 1.0]), tmp_path / "c.png")
    with pytest.raises(ValueError, match="pass what nu_path or C_path returned"):
        plot_path(Path("nu"))
