"""Ways to stop, callbacks, determinism, warm starts and adding data."""

from __future__ import annotations

import io
import itertools
import math
import re
import sys
import threading
import time
import warnings
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

from hingeline import SSVM, ChainSSVM, EarlyStopping, HistoryRow, MulticlassSSVM, PassState
from hingeline._jit import COMPILING, uncached
from hingeline.core.loop import Reporter

# isort: split
from marks import slow
from reference import EnumeratedProblem, primal, random_chains, random_multiclass, solve

L, D = 3, 4
KINDS = ["multiclass", "chain"]


def make(kind: str, n: int, seed: int = 0, separable: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    if kind == "multiclass":
        X, y = random_multiclass(rng, n, D, L, separable)
        return X, y
    return random_chains(rng, n, D, L, 3, separable)


@pytest.fixture(scope="module")
def small() -> Any:
    return {kind: make(kind, 40) for kind in KINDS}


@pytest.fixture(scope="module")
def large() -> Any:
    """Enough examples that blocks are spread over three threads."""
    return {"multiclass": make("multiclass", 800), "chain": make("chain", 400)}


def estimator(kind: str, **params: Any) -> Any:
    made = (MulticlassSSVM if kind == "multiclass" else ChainSSVM)(random_state=0)
    return made.set_params(**params)


def reference(kind: str, X: Any, y: Any) -> Any:
    if kind == "multiclass":
        return EnumeratedProblem.from_multiclass(X, y, L)
    return EnumeratedProblem.from_chains(X, y, L, True)


def flat(model: Any) -> Any:
    if isinstance(model, MulticlassSSVM):
        return model.coef_.T.ravel()
    blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
    return np.concatenate([*blocks, model.start_coef_, model.end_coef_])


# Ceilings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", KINDS)
def test_max_iter_warns(small: Any, kind: str, solver: str) -> None:
    model = estimator(kind, solver=solver, C=10.0, tol=1e-11, max_iter=3)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(*small[kind])
    (message,) = [str(w.message) for w in caught]
    assert type(model).__name__ in message
    assert " stopped at max_iter=3 and " in message
    assert "tol=1e-11" in message
    found = re.search(r"relative gap is ([0-9.e+-]+),", message)
    assert found
    relative = model.duality_gap_ / model.primal_objective_
    assert float(found[1]) == pytest.approx(relative, rel=1e-2)
    assert "raise max_iter" in message
    assert model.n_iter_ == len(model.history_) == 3
    assert model.converged_ is False
    assert model.stop_reason_ == "max_iter=3"


def test_the_warning_points_at_the_caller(small: Any) -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        MulticlassSSVM(10.0, tol=1e-11, max_iter=2).fit(*small["multiclass"])
    assert caught[0].filename == __file__


def test_no_warning_when_converged(small: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            model = estimator(kind).fit(*small[kind])
            assert model.converged_ is True
            assert model.duality_gap_ <= 1e-2 * model.primal_objective_


@pytest.mark.parametrize("kind", KINDS)
def test_max_time(small: Any, kind: str) -> None:
    model = estimator(kind, C=10.0, tol=1e-15, max_iter=10**6, max_time=0.05)
    model.set_params(callbacks=lambda state: time.sleep(0.01))
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="max_time"):
        model.fit(*small[kind])
    assert time.perf_counter() - began < 10
    assert model.stop_reason_ == "max_time=0.05 seconds"
    assert model.history_[-1].time >= 0.05
    assert model.history_[0].time < model.history_[-1].time


def test_max_time_does_not_count_compilation(small: Any) -> None:
    def compile_for_long(state: Any) -> None:
        time.sleep(0.05)
        COMPILING[0] += 0.05

    model = estimator("chain", C=10.0, tol=1e-15, max_iter=20, max_time=0.9)
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model.set_params(callbacks=compile_for_long).fit(*small["chain"])
    spent = time.perf_counter() - began
    assert model.stop_reason_ == "max_iter=20"
    assert 0.0 < model.history_[-1].time <= spent - 19 * 0.05  # nor does the curve count it


def test_compilation_is_timed() -> None:
    @uncached
    def double(x: float) -> float:
        return 2.0 * x

    before, began = COMPILING[0], time.perf_counter()
    assert double(1.0) == 2.0
    assert 0.0 < COMPILING[0] - before <= time.perf_counter() - began
    after = COMPILING[0]
    assert double(3.0) == 6.0
    assert COMPILING[0] == after


# Callbacks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_see_every_pass(small: Any, kind: str) -> None:
    rows: list[HistoryRow] = []
    others = []

    def callback(state: PassState) -> None:
        rows.append(state.row)
        assert state.weights.shape == state.weights.ravel().shape
        assert np.isnan(state.relative_gap) == np.isnan(state.row.gap)
        state.weights[:] = np.nan  # a copy

    model = estimator(kind, tol=1e-5, callbacks=[callback, lambda state: others.append(1)])
    model.fit(*small[kind])
    assert len(rows) == len(others) == model.n_iter_
    assert [row.passes for row in rows] == list(range(1, model.n_iter_ + 1))
    plain = estimator(kind, tol=1e-5).fit(*small[kind])
    np.testing.assert_array_equal(model.weights_, plain.weights_)


@pytest.mark.parametrize("kind", KINDS)
def test_returning_true_stops(small: Any, kind: str) -> None:
    X, y = small[kind]
    model = estimator(kind, C=10.0, tol=1e-11, fit_intercept=False)
    model.set_params(callbacks=lambda state: state.row.passes == 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    assert model.n_iter_ == 4
    assert model.stop_reason_ == "a callback returned True"
    assert not model.converged_
    true = primal(reference(kind, X, y), flat(model), 10.0)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_stop_keeps_given_weights_and_their_certificate(small: Any, kind: str) -> None:
    X, y = small[kind]
    kept = []

    def callback(state: PassState) -> None:
        kept.append(state.weights)
        if state.row.passes == 5:
            state.stop("enough", kept[1])

    model = estimator(kind, C=10.0, tol=1e-11, fit_intercept=False, callbacks=[callback])
    model.fit(X, y)
    assert model.stop_reason_ == "enough"
    assert model.n_iter_ == 5
    np.testing.assert_array_equal(model.weights_, kept[1])
    problem = reference(kind, X, y)
    true = primal(problem, flat(model), 10.0)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert model.duality_gap_ == pytest.approx(true - model.dual_objective_, rel=1e-9)
    assert model.dual_objective_ <= solve(problem, 10.0).objective * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_history_stays_consistent_with_given_weights(small: Any, kind: str) -> None:
    zero = lambda state: state.stop("zeros", np.zeros_like(state.weights))  # noqa: E731
    model = estimator(kind, C=10.0, tol=1e-11, callbacks=zero).fit(*small[kind])
    for row in model.history_:
        if not np.isnan(row.gap):
            assert row.gap == pytest.approx(row.primal - row.dual, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_given_weights_at_the_pass_that_converges(small: Any, kind: str) -> None:
    """The weights are not those that converged, so the model must not say so."""

    def callback(state: PassState) -> None:
        if state.relative_gap <= 1e-3:
            state.stop("zeros", np.zeros_like(state.weights))

    model = estimator(kind, tol=1e-3, callbacks=callback)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(*small[kind])
    assert not model.weights_.any()
    assert not model.converged_
    assert model.stop_reason_ == "zeros"


def test_given_weights_under_a_hard_margin() -> None:
    """P is infinite where a constraint is violated: zeros are not feasible."""
    X, y = make("multiclass", 30, separable=True)
    zero = lambda state: state.stop("zeros", np.zeros_like(state.weights))  # noqa: E731
    model = MulticlassSSVM(np.inf, callbacks=zero, random_state=0).fit(X, y)
    assert np.isinf(model.primal_objective_)

    def half(state: PassState) -> None:
        if state.relative_gap < 1e-2:
            state.stop("half", 0.5 * state.weights)

    model = MulticlassSSVM(np.inf, tol=1e-9, fit_intercept=False, solver="fsmo", callbacks=half)
    model.fit(X, y)
    assert model.stop_reason_ == "half"
    true = primal(reference("multiclass", X, y), flat(model), np.inf)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_early_stopping(small: Any, kind: str) -> None:
    X, y = small[kind]
    X_dev, y_dev = make(kind, 30, seed=1)
    model = estimator(kind, C=100.0, tol=1e-12)
    stopping = EarlyStopping(model, X_dev, y_dev, patience=2)
    model.set_params(callbacks=[stopping])
    model.fit(X, y)
    assert "held-out" in model.stop_reason_
    assert len(stopping.scores_) == model.n_iter_
    assert model.score(X_dev, y_dev) == max(stopping.scores_)
    assert int(np.argmax(stopping.scores_)) == model.n_iter_ - 3
    first = list(stopping.scores_)
    model.fit(X, y)  # a second fit begins anew
    assert stopping.scores_ == first


def test_early_stopping_watches_the_clone_that_is_fitted(small):
    X, y = small["chain"]
    for first in (0, 1):  # a model that is not fitted, and one that is, by other data
        model = ChainSSVM(C=1.0, tol=1e-6, max_iter=20, random_state=0)
        model.callbacks = [EarlyStopping(model, X, y, patience=100)]
        if first:
            model.fit(X[:1], y[:1])
        copy = clone(model).fit(X, y)
        copy.weights_ = copy.callbacks[0]._best
        assert copy.score(X, y) == max(copy.callbacks[0].scores_)
        assert copy.callbacks[0].estimator is copy


def test_early_stopping_takes_the_name_of_a_score(small: Any) -> None:
    model = estimator("chain", C=1.0, tol=0.1)
    stopping = EarlyStopping(model, *small["chain"], scoring="sequence_accuracy")
    model.set_params(callbacks=[stopping]).fit(*small["chain"])
    X, y = small["chain"]
    right = [np.array_equal(a, b) for a, b in zip(model.predict(X), y, strict=True)]
    assert np.mean(right) in stopping.scores_
    with pytest.raises(ValueError, match="'f1' is not known; choose one of 'token_accuracy'"):
        EarlyStopping(model, X, y, scoring="f1")


def test_early_stopping_wants_patience() -> None:
    with pytest.raises(ValueError, match="patience must be greater than 0"):
        EarlyStopping(MulticlassSSVM(), [], [], patience=0)


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_keeps_the_best_weights(small: Any, kind: str) -> None:
    X, y = small[kind]

    def interrupt(state: PassState) -> None:
        if state.row.passes == 3:
            raise KeyboardInterrupt

    model = estimator(kind, C=10.0, tol=1e-11, fit_intercept=False, callbacks=interrupt)
    with pytest.warns(ConvergenceWarning, match=r"interrupted.*best weights so far.*warm_start"):
        model.fit(X, y)
    assert model.stop_reason_ == "interrupted"
    assert model.n_iter_ == 3
    problem = reference(kind, X, y)
    assert model.primal_objective_ == pytest.approx(primal(problem, flat(model), 10.0), rel=1e-9)
    assert model.dual_objective_ <= solve(problem, 10.0).objective * (1 + 1e-9)
    certified = [row.primal for row in model.history_ if not np.isnan(row.primal)]
    assert model.primal_objective_ == min(certified)


def test_other_errors_of_a_callback_are_raised(small: Any) -> None:
    def callback(state: PassState) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        MulticlassSSVM(callbacks=callback).fit(*small["multiclass"])


def test_verbose_goes_to_stderr(small: Any, capsys: Any) -> None:
    model = MulticlassSSVM(verbose=2, tol=1e-4, random_state=0).fit(*small["multiclass"])
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("pass")]
    assert captured.out == ""
    assert len(lines) == model.n_iter_
    assert "gap" in lines[-1]


def test_a_long_fit_writes_over_one_line_where_somebody_watches(monkeypatch: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    nan = math.nan
    row = HistoryRow(1.0, 3, 30, 2.0, 1.0, 1.0, 1.0, 9)
    for stream, verbose in ((io.StringIO(), None), (Terminal(), 0)):
        monkeypatch.setattr(sys, "stderr", stream)
        reporter = Reporter("ChainSSVM", verbose)
        reporter.tell(row._replace(time=9.0), 0.5)
        reporter.end()
        assert stream.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    reporter = Reporter("ChainSSVM", None)
    reporter.tell(row, 0.5)
    assert stream.getvalue() == ""  # two seconds are not over
    reporter.tell(row._replace(time=2.5, passes=4, primal=nan), nan)
    reporter.tell(row._replace(time=2.6, passes=5), 0.25)  # too soon after the last
    reporter.tell(row._replace(time=12.0, passes=6, primal=nan), nan)
    reporter.end()
    first, second = "ChainSSVM: pass 4, gap 50 %, 2 s", "ChainSSVM: pass 6, gap 25 %, 12 s"
    assert stream.getvalue() == f"\r{first}\r{second}\r{' ' * len(second)}\r"


def test_long_work_that_is_no_fit_writes_over_one_line_too(monkeypatch: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def write(stream: io.StringIO, after: float, verbose: int | None = None) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        reporter = Reporter("train.conll", verbose)
        assert reporter.told == 2.0
        reporter.told = after
        threads = threading.active_count()
        with suppress(ZeroDivisionError), reporter.during("reading"):
            reporter.state = "12 done"
            time.sleep(0.1)
            raise ZeroDivisionError
        assert threading.active_count() == threads
        return stream.getvalue()

    assert write(io.StringIO(), 0.0) == ""  # a pipe
    assert write(Terminal(), 0.0, verbose=0) == ""
    assert write(Terminal(), 60.0) == ""  # over before it is long
    line, blanks = "train.conll: reading, 12 done, 0 s", " " * 34
    assert re.fullmatch(f"(\r{line})+\r{blanks}\r", write(Terminal(), 0.01))  # it is taken away


def test_compiling_is_counted_in_the_line(monkeypatch: Any, small: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def compile_something(state: Any) -> None:
        for k in range(2):
            uncached(lambda x: x + k)(1.0)  # noqa: B023

    for verbose, times in ((None, 1), (0, 0)):
        monkeypatch.setattr(sys, "stderr", stream := Terminal())
        model = estimator("multiclass", tol=0.5, max_iter=1, verbose=verbose)
        model.set_params(callbacks=compile_something).fit(*small["multiclass"])
        said = stream.getvalue()
        found = re.findall(r"\rMulticlassSSVM: compiling kernel (\d+)( of about 6)?", said)
        numbers = [int(number) for number, _ in found]
        assert [number - numbers[0] for number in numbers] == [0, 1][: 2 * times]
        assert all(
            (number <= 6) == bool(end) for number, (_, end) in zip(numbers, found, strict=True)
        )
        assert said.endswith(" \r") == (times > 0)  # it is taken away


def test_encoding_in_a_fit_is_told(monkeypatch: Any) -> None:
    told: list[str] = []
    monkeypatch.setattr(Reporter, "during", lambda self, work: told.append(work) or nullcontext())
    words = [["a", "b"], ["b", "a"]]
    ChainSSVM(tol=0.5).fit(words, words)
    assert told == ["encoding"]
    ChainSSVM(tol=0.5).partial_fit(words, words).partial_fit(words, words)
    assert told == ["encoding"] * 3


# Determinism -----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_do_not_depend_on_threads(large: Any, kind: str, solver: str) -> None:
    X, y = large[kind]
    models = [
        estimator(kind, solver=solver, tol=1e-2, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 2, 3, -1)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.weights_, models[0].weights_)
        assert model.primal_objective_ == models[0].primal_objective_
        assert model.dual_objective_ == models[0].dual_objective_
        assert model.n_iter_ == models[0].n_iter_


@pytest.mark.slow
def test_compiled_structure_does_not_depend_on_threads(large: Any, compiled_chain: Any) -> None:
    X, y = large["chain"]
    models = [
        SSVM(compiled_chain(), 0.1, tol=1e-2, n_jobs=n_jobs, random_state=0).fit(X[:200], y[:200])
        for n_jobs in (1, 2, 3)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.weights_, models[0].weights_)


@pytest.mark.parametrize("kind", KINDS)
def test_seeds(small: Any, kind: str) -> None:
    X, y = small[kind]
    model = estimator(kind, tol=1e-8)
    first = model.fit(X, y).weights_.copy()
    np.testing.assert_array_equal(model.fit(X, y).weights_, first)
    objectives = [
        estimator(kind, tol=1e-8, random_state=seed).fit(X, y).primal_objective_
        for seed in (1, 2, None, np.random.RandomState(3))
    ]
    np.testing.assert_allclose(objectives, model.primal_objective_, rtol=2e-8)
    loose = [estimator(kind, tol=0.1, random_state=seed).fit(X, y).weights_ for seed in (1, 2)]
    assert not np.array_equal(*loose)


# Warm start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slack", "rescale"), [("max", "margin"), slow("squared", "slack")])
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", KINDS)
def test_warm_start_along_C(small: Any, kind: str, solver: str, slack: str, rescale: str) -> None:
    X, y = small[kind]
    tol = 1e-5
    params = {"solver": solver, "slack": slack, "rescale": rescale, "tol": tol, "max_iter": 5000}
    warm = estimator(kind, warm_start=True, **params)
    cold_passes = warm_passes = 0
    for C in (0.5, 0.6, 0.7, 0.6, 0.6):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warm.set_params(C=C).fit(X, y)
        cold = estimator(kind, C=C, **params).fit(X, y)
        assert warm.converged_
        np.testing.assert_allclose(warm.primal_objective_, cold.primal_objective_, rtol=tol)
        assert warm.dual_objective_ <= cold.primal_objective_ * (1 + 1e-12)
        warm_passes += warm.n_iter_
        cold_passes += cold.n_iter_
    assert warm_passes < cold_passes
    assert warm.n_iter_ <= 4  # the very same problem again


@pytest.mark.slow
def test_warm_start_of_a_structure_along_C(small: Any, compiled_chain: Any) -> None:
    X, y = small["chain"]
    warm = SSVM(compiled_chain(), tol=1e-5, warm_start=True, random_state=0)
    passes = []
    for C in (0.5, 0.6, 0.6):
        warm.set_params(C=C).fit(X, y)
        cold = SSVM(compiled_chain(), C, tol=1e-5, random_state=0).fit(X, y)
        np.testing.assert_allclose(warm.primal_objective_, cold.primal_objective_, rtol=1e-5)
        passes.append((warm.n_iter_, cold.n_iter_))
    assert passes[-1][0] < passes[-1][1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_warm_start_across_formulations_and_weights(small: Any, kind: str) -> None:
    X, y = small[kind]
    warm = estimator(kind, warm_start=True, tol=1e-6, max_iter=5000)
    weights = np.random.default_rng(0).uniform(0, 2, len(y))
    weights[:5] = 0.0
    for solver, slack, rescale, weight in itertools.product(
        ("sdm", "fsmo"), ("max", "squared"), ("margin", "slack"), (None, weights)
    ):
        params = {"solver": solver, "slack": slack, "rescale": rescale}
        warm.set_params(**params).fit(X, y, sample_weight=weight)
        cold = estimator(kind, tol=1e-6, max_iter=5000, **params).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(warm.primal_objective_, cold.primal_objective_, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_warm_start_with_other_data_warns(small: Any, kind: str) -> None:
    X, y = make(kind, 40, seed=9)
    model = estimator(kind, warm_start=True, tol=1e-6).fit(*small[kind])
    with pytest.warns(UserWarning, match="not those of the previous fit"):
        model.fit(X, y)
    cold = estimator(kind, tol=1e-6).fit(X, y)
    np.testing.assert_array_equal(model.weights_, cold.weights_)


def test_warm_start_of_a_structure_with_other_data_warns(python_multiclass: Any) -> None:
    X, y = make("multiclass", 15)
    model = SSVM(python_multiclass(), warm_start=True, tol=1e-4, random_state=0)
    model.fit(list(X), list(y))
    other = [2.0 * x for x in X]
    with pytest.warns(UserWarning, match="not those of the previous fit"):
        model.fit(other, list(y))
    cold = SSVM(python_multiclass(), tol=1e-4, random_state=0).fit(other, list(y))
    np.testing.assert_array_equal(model.weights_, cold.weights_)


def test_warm_start_notices_data_changed_in_place(python_multiclass: Any) -> None:
    X, y = make("multiclass", 15)
    inputs, outputs = list(X), list(y)
    model = SSVM(python_multiclass(), warm_start=True, tol=1e-5, max_iter=150)
    model.set_params(random_state=0).fit(inputs, outputs)
    for change in ("scaled", "shorter"):
        if change == "scaled":
            inputs[:] = [3.0 * x for x in inputs]
        else:
            del inputs[-4:], outputs[-4:]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(inputs, outputs)
        cold = SSVM(python_multiclass(), tol=1e-5, random_state=0).fit(inputs, outputs)
        np.testing.assert_allclose(model.primal_objective_, cold.primal_objective_, rtol=1e-5)
        problem = EnumeratedProblem.from_multiclass(np.array(inputs), outputs, L)
        assert model.dual_objective_ <= solve(problem, 1.0).objective * (1 + 1e-9)


def test_warm_start_notices_another_structure(python_multiclass: Any) -> None:
    class Doubled(python_multiclass):  # type: ignore[misc]
        def loss(self, y_true: Any, y: Any) -> float:
            return 2.0 * super().loss(y_true, y)

        def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
            return super().decode(x, w, y_true, 2.0 * loss_scale)

    X, y = make("multiclass", 15)
    inputs, outputs = list(X), list(y)
    model = SSVM(python_multiclass(), warm_start=True, tol=1e-5, max_iter=150)
    model.fit(inputs, outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.set_params(structure=Doubled()).fit(inputs, outputs)
    cold = SSVM(Doubled(), tol=1e-5, random_state=0).fit(inputs, outputs)
    np.testing.assert_allclose(model.primal_objective_, cold.primal_objective_, rtol=1e-5)
    assert model.dual_objective_ <= cold.primal_objective_ * (1 + 1e-12)


def test_warm_start_goes_on_after_ctrl_c(small: Any) -> None:
    def interrupt(state: PassState) -> None:
        raise KeyboardInterrupt

    X, y = small["chain"]
    model = ChainSSVM(tol=1e-6, warm_start=True, callbacks=interrupt, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    model.set_params(callbacks=None).fit(X, y)
    cold = ChainSSVM(tol=1e-6, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.primal_objective_, cold.primal_objective_, rtol=1e-6)


# Adding data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", KINDS)
def test_partial_fit_reaches_the_objective_of_fit(
    small: Any, kind: str, solver: str, class_weight: Any
) -> None:
    X, y = small[kind]
    model = estimator(kind, solver=solver, tol=1e-6, class_weight=class_weight, max_iter=400)
    whole = estimator(kind, solver=solver, tol=1e-6, class_weight=class_weight).fit(X, y)
    order = np.argsort(y, kind="stable") if kind == "multiclass" else np.arange(len(y))
    pick = lambda part: ([X[i] for i in part], [y[i] for i in part])  # noqa: E731
    model.partial_fit(*pick(order[:25]), classes=[0, 1, 2])
    model.partial_fit(*pick(order[25:]))
    np.testing.assert_allclose(model.primal_objective_, whole.primal_objective_, rtol=1e-6)
    assert model.dual_objective_ <= whole.primal_objective_ * (1 + 1e-12)
    np.testing.assert_allclose(model.weights_, whole.weights_, atol=5e-2)
    assert list(model.classes_) == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_partial_fit_with_sample_weight(small: Any, kind: str) -> None:
    X, y = small[kind]
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    whole = estimator(kind, tol=1e-6).fit(X, y, sample_weight=weights)
    model = estimator(kind, tol=1e-6)
    for part in (slice(0, 20), slice(20, 30), slice(30, None)):
        model.partial_fit(X[part], y[part], classes=[0, 1, 2], sample_weight=weights[part])
    np.testing.assert_allclose(model.primal_objective_, whole.primal_objective_, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_forgets_what_partial_fit_added(small: Any, kind: str) -> None:
    """After fit, partial_fit adds to the data of that fit or begins anew; nothing older is left."""
    X, y = small[kind]
    X2, y2 = make(kind, 20, seed=21)
    X3, y3 = make(kind, 20, seed=22)
    model = estimator(kind, tol=1e-6)
    model.partial_fit(X, y).fit(X2, y2).partial_fit(X3, y3)
    both = [*X2, *X3], [*y2, *y3]
    allowed = [
        estimator(kind, tol=1e-6).fit(*both).primal_objective_,
        estimator(kind, tol=1e-6).fit(X3, y3).primal_objective_,
    ]
    assert np.isclose(model.primal_objective_, allowed, rtol=1e-5).any()


@pytest.mark.parametrize("kind", KINDS)
def test_partial_fit_refuses(small: Any, kind: str) -> None:
    X, y = small[kind]
    model = estimator(kind).partial_fit(X, y)
    narrow = np.ones((2, D - 1)) if kind == "multiclass" else [np.ones((2, D - 1))]
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(narrow, [0, 1] if kind == "multiclass" else [[0, 1]])


# The paper's stopping rule -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_of_fsmo(small: Any, kind: str) -> None:
    X, y = small[kind]
    epsilon = 0.05
    model = estimator(kind, C=1.0, solver="fsmo", tol=1e-12, fit_intercept=False)
    model.set_params(solver_options={"epsilon": epsilon})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    assert "epsilon=0.05" in model.stop_reason_
    assert model.converged_
    best = solve(reference(kind, X, y), 1.0).objective
    assert model.dual_objective_ <= best * (1 + 1e-9)
    assert model.primal_objective_ <= best + 2 * epsilon * len(y)
    finer = estimator(kind, C=1.0, solver="fsmo", tol=1e-12, fit_intercept=False)
    finer.set_params(solver_options={"epsilon": epsilon / 50}).fit(X, y)
    assert finer.duality_gap_ < model.duality_gap_


def test_solver_options_change_the_way_not_the_end(small: Any) -> None:
    X, y = small["chain"]
    best = ChainSSVM(tol=1e-7, random_state=0).fit(X, y).primal_objective_
    for solver, options in [
        ("sdm", {"block": 7, "cached_passes": 0, "patience": 1}),
        ("sdm", {"precision": 0.5, "skip": 0, "cg_steps": 3, "cached_passes": 4}),
        ("fsmo", {"block": 3, "inner_rounds": 2}),
    ]:
        model = ChainSSVM(solver=solver, tol=1e-7, random_state=0, solver_options=options)
        assert model.fit(X, y).primal_objective_ == pytest.approx(best, rel=2e-7)
    X, y = small["multiclass"]
    best = MulticlassSSVM(tol=1e-7, random_state=0).fit(X, y).primal_objective_
    options = {"passes": 2, "skip": 0, "stage_factor": 2.0, "stage_sweeps": 1, "precision": 0.3}
    model = MulticlassSSVM(tol=1e-7, random_state=0, solver_options=options).fit(X, y)
    assert model.primal_objective_ == pytest.approx(best, rel=2e-7)


def test_linear_algebra_has_one_thread_during_a_fit(small: Any) -> None:
    def threads() -> list[int]:
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before, during = threads(), []
    MulticlassSSVM(callbacks=lambda state: during.append(threads())).fit(*small["multiclass"])
    assert before
    assert all(set(found) == {1} for found in during)
    assert threads() == before
