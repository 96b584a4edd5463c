"""Primal, dual and gap are true bounds at every pass, whatever ends the run."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from hingeline import SSVM, ChainSSVM, MulticlassSSVM
from hingeline.core.formulations import make_formulation
from hingeline.core.loop import Limits
from hingeline.core.loop import run as run_solver
from hingeline.core.primitives import Workers
from hingeline.solvers.enumerated import EnumeratedSDM
from hingeline.solvers.fsmo import FSMO
from hingeline.solvers.sdm import SDM
from hingeline.structures import chain, multiclass

# isort: split
from marks import slow
from naive import chain_joint_feature, multiclass_joint_feature
from reference import EnumeratedProblem, primal, random_chains, random_multiclass, solve

FORMULATIONS = list(itertools.product(("max", "squared"), ("margin", "slack")))
L, D = 3, 4


def flat(model: Any) -> Any:
    """The weights in the reference's layout."""
    if isinstance(model, MulticlassSSVM):
        return model.coef_.T.ravel()
    if isinstance(model, ChainSSVM):
        blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
        return np.concatenate([*blocks, model.start_coef_, model.end_coef_])
    return model.weights_


@pytest.fixture(scope="module")
def data() -> Any:
    """Per kind and separability: X, y and the enumerated problem."""
    made = {}
    for separable in (False, True):
        rng = np.random.default_rng(11)
        X, y = random_multiclass(rng, 30, D, L, separable)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        made["multiclass", separable] = X, y, problem
        X, y = random_chains(rng, 14, D, L, 3, separable)
        made["chain", separable] = X, y, EnumeratedProblem.from_chains(X, y, L, True)
    return made


def estimator(kind: str, **params: Any) -> Any:
    made = (MulticlassSSVM if kind == "multiclass" else ChainSSVM)(
        fit_intercept=False, random_state=0
    )
    return made.set_params(**params)


def quiet_fit(model: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*args)


def check_history(model: Any, best: float) -> None:
    slop = 1e-9 * max(best, 1.0)
    rows = model.history_
    assert [row.passes for row in rows] == list(range(1, model.n_iter_ + 1))
    assert all(a.time <= b.time for a, b in itertools.pairwise(rows))
    assert all(a.oracle_calls <= b.oracle_calls for a, b in itertools.pairwise(rows))
    assert all(a.dual <= b.dual for a, b in itertools.pairwise(rows))
    for row in rows:
        assert row.dual <= best + slop
        assert np.isnan(row.primal) == np.isnan(row.gap)
        if not np.isnan(row.primal):
            assert row.primal >= best - slop
            if np.isfinite(row.primal):
                assert row.gap == pytest.approx(row.primal - row.dual, rel=1e-12, abs=1e-300)
    certified = [row.primal for row in rows if not np.isnan(row.primal)]
    assert all(a >= b for a, b in itertools.pairwise(certified))
    assert rows[-1].primal == model.primal_objective_
    assert rows[-1].dual == model.dual_objective_


@pytest.mark.parametrize("C", [slow(0.1), 10.0])
@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", ["multiclass", "chain"])
def test_weak_duality_at_every_pass(
    data: Any, kind: str, solver: str, slack: str, rescale: str, C: float
) -> None:
    X, y, problem = data[kind, False]
    best = solve(problem, C, slack, rescale).objective
    for tol in (1e-2, 1e-7):
        model = estimator(kind, solver=solver, C=C, slack=slack, rescale=rescale, tol=tol)
        model.set_params(max_iter=5000)  # fsmo takes its time with squared slack
        check_history(model.fit(X, y), best)
        assert model.converged_
        assert model.primal_objective_ <= best * (1 + tol)


@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", ["multiclass", "chain"])
def test_weak_duality_with_a_hard_margin(data: Any, kind: str, solver: str, rescale: str) -> None:
    X, y, problem = data[kind, True]
    best = solve(problem, np.inf, "max", rescale).objective
    model = estimator(kind, solver=solver, C=np.inf, rescale=rescale, tol=1e-6).fit(X, y)
    check_history(model, best)


@pytest.mark.parametrize(("C", "separable"), [slow(0.1, False), (10.0, False), (np.inf, True)])
@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
@pytest.mark.parametrize("kind", ["multiclass", "chain"])
def test_bounds_hold_when_stopped_early(
    data: Any, kind: str, solver: str, slack: str, rescale: str, C: float, separable: bool
) -> None:
    X, y, problem = data[kind, separable]
    best = solve(problem, C, slack, rescale).objective
    for max_iter in (1, 2, 4, 12):
        model = estimator(kind, solver=solver, C=C, slack=slack, rescale=rescale)
        model.set_params(tol=1e-12, max_iter=max_iter)
        quiet_fit(model, X, y)
        check_history(model, best)
        true = primal(problem, flat(model), C, slack, rescale)
        if np.isfinite(model.primal_objective_):
            assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
            assert model.duality_gap_ == pytest.approx(
                max(model.primal_objective_ - model.dual_objective_, 0.0), abs=1e-12
            )
        else:  # a hard margin not reached yet
            assert np.isinf(C)
            assert np.isinf(model.duality_gap_)


def in_numpy(model: Any, X: Any, y: Any, C: float) -> float:
    """P of a multi-class model with an intercept, in three lines."""
    scores = X @ model.coef_.T + model.intercept_
    margins = scores + 1.0 - scores[np.arange(len(y)), y][:, None]
    margins[np.arange(len(y)), y] -= 1.0
    square = np.sum(model.coef_**2) + np.sum(model.intercept_**2)
    return float(0.5 * square + C * np.maximum(margins.max(axis=1), 0).sum())


def test_primal_in_numpy(data: Any) -> None:
    X, y, _ = data["multiclass", False]
    for tol in (1e-1, 1e-2, 1e-6):
        model = MulticlassSSVM(2.0, tol=tol, random_state=0).fit(X, y)
        assert model.primal_objective_ == pytest.approx(in_numpy(model, X, y, 2.0), rel=1e-12)


# The solvers driven directly -----------------------------------------------------------------


class Case:
    """A compiled problem, its differences in the padded layout and losses by outputs."""

    def __init__(self, kind: str, X: Any, y: Any) -> None:
        self.kind, self.X, self.y = kind, X, y
        if kind == "multiclass":
            rows = sparse.csr_array(X)
            labels, cost = y, 1.0 - np.eye(L)
            self.problem = multiclass.make_problem(
                rows.indptr, rows.indices, rows.data, labels, D, cost
            )
            self.compiled = multiclass.compile_problem(self.problem)
        else:
            rows = sparse.csr_array(np.concatenate(X))
            self.problem = chain.make_problem(
                rows.indptr,
                rows.indices,
                rows.data,
                np.concatenate([[0], np.cumsum([len(labels) for labels in y])]),
                np.concatenate(y),
                D,
                1.0 - np.eye(L),
                True,
            )
            self.compiled = chain.compile_problem(self.problem)

    def difference(self, i: int, output: Any) -> Any:
        if self.kind == "multiclass":
            f = [multiclass_joint_feature(self.X[i], int(k), L) for k in (self.y[i], output[0])]
        else:
            f = [chain_joint_feature(self.X[i], k, L, True) for k in (self.y[i], output)]
        rows = (f[0] - f[1]).reshape(-1, L)
        return np.pad(rows, ((0, 0), (0, self.problem.stride - L))).ravel()

    def loss(self, i: int, output: Any) -> float:
        return float(np.sum(np.atleast_1d(self.y[i]) != output))


def multipliers(solver: Any) -> Any:
    """(example, output, alpha) of all planes with mass."""
    if isinstance(solver, EnumeratedSDM):
        for i, k in zip(*np.nonzero(solver.alpha), strict=True):
            yield i, np.array([k]), solver.alpha[i, k]
        return
    ws = solver.ws
    for i in range(len(ws.used)):
        at, length = ws.y_start[i], ws.length[i]
        for j in range(ws.used[i]):
            output = ws.y[at + j * length : at + (j + 1) * length]
            if ws.alpha[ws.slot[i] + j] != 0.0:
                yield i, output, ws.alpha[ws.slot[i] + j]


def check_dual_state(case: Case, solver: Any, slack: str, rescale: str) -> float:
    """The identity, feasibility, and the dual objective from the multipliers alone."""
    w = np.zeros_like(solver.w)
    linear = 0.0
    sums = np.zeros(case.compiled.n)
    for i, output, alpha in multipliers(solver):
        assert alpha > 0.0
        loss = case.loss(i, output)
        b = np.sqrt(loss) if slack == "squared" else loss
        w += alpha * (b if rescale == "slack" else 1.0) * case.difference(i, output)
        linear += alpha * b
        sums[i] += alpha
    np.testing.assert_allclose(solver.w, w, rtol=0, atol=1e-9 * max(1.0, np.abs(w).max()))
    assert (sums <= solver.form.cap * (1 + 1e-9)).all()
    value = linear - 0.5 * w @ w - 0.5 * solver.form.ridge @ sums**2
    if not solver.hard:
        assert solver.dual() == pytest.approx(value, rel=1e-9)
    elif w.any():
        assert solver.dual() == pytest.approx(linear**2 / (2 * w @ w), rel=1e-9)
    return float(value)


SOLVER_CLASSES = [
    ("multiclass", EnumeratedSDM, None),
    ("multiclass", EnumeratedSDM, {"stage_factor": 1.0}),
    ("multiclass", SDM, None),
    ("multiclass", FSMO, None),
    ("chain", SDM, None),
    ("chain", FSMO, None),
    ("chain", SDM, {"patience": 1, "cached_passes": 3}),
]


@pytest.mark.parametrize(("C", "separable"), [slow(0.1, False), (10.0, False), (np.inf, True)])
@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
@pytest.mark.parametrize(("kind", "solver_class", "options"), SOLVER_CLASSES)
def test_identity_and_monotone_dual(
    data: Any,
    kind: str,
    solver_class: Any,
    options: Any,
    slack: str,
    rescale: str,
    C: float,
    separable: bool,
) -> None:
    X, y, _ = data[kind, separable]
    case = Case(kind, X, y)
    weights = np.ones(len(y))
    weights[::4] = 0.0
    weights[1::4] = 2.5
    form = make_formulation(C, slack, rescale, weights)
    staged = solver_class is EnumeratedSDM and options is None
    with Workers(1, case.compiled.scratch_size) as workers:
        solver = solver_class(case.compiled, form, workers, 0, options)
        last = 0.0
        for _ in range(12):
            solver.sweep()
            value = check_dual_state(case, solver, slack, rescale)
            if not staged:  # multipliers scaled up for the next stage may lower the dual
                assert value >= last - 1e-12 * abs(last)
            last = value
            kept = solver.w.copy()
            certified = solver.certify()
            np.testing.assert_allclose(solver.w, kept, rtol=1e-9, atol=1e-12)
            best, least = solver.best()
            assert least <= certified
            again = solver.primal_of(best.copy())
            assert again == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize(("kind", "solver_class", "options"), SOLVER_CLASSES)
def test_identity_after_a_run(data: Any, kind: str, solver_class: Any, options: Any) -> None:
    X, y, problem = data[kind, False]
    case = Case(kind, X, y)
    form = make_formulation(1.0, "max", "margin", np.ones(len(y)))
    with Workers(2, case.compiled.scratch_size) as workers:
        solver = solver_class(case.compiled, form, workers, 0, options)
        result = run_solver(solver, Limits(tol=1e-8, max_iter=3000))
    assert result.converged
    value = check_dual_state(case, solver, "max", "margin")
    best = solve(problem, 1.0).objective
    assert value <= best * (1 + 1e-9)
    assert result.dual <= best * (1 + 1e-9)
    assert result.primal == pytest.approx(best, rel=1e-7)


# Oracles that are not exact, and Ctrl-C -------------------------------------------------------


def test_an_inexact_oracle_certifies_nothing(data: Any, python_multiclass: Any) -> None:
    class Sloppy(python_multiclass):  # type: ignore[misc]
        exact = False

    X, y, _ = data["multiclass", False]
    for solver in ("sdm", "fsmo"):
        model = SSVM(Sloppy(), solver=solver, max_iter=12, random_state=0)
        with pytest.warns(ConvergenceWarning, match=r"oracle is not exact.*more passes give none"):
            model.fit(list(X), list(y))
        assert np.isnan(model.duality_gap_)
        assert model.oracle_exact_ is False
        assert not model.converged_
        assert model.stop_reason_ == "max_iter=12"
        assert all(np.isnan(row.gap) for row in model.history_)
        assert len(model.predict(list(X))) == len(X)


@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
def test_a_hard_margin_not_reached_is_no_inexact_oracle(data: Any, solver: str) -> None:
    X, y, _ = data["chain", True]
    model = ChainSSVM(np.inf, solver=solver, tol=1e-12, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y)
    assert model.oracle_exact_
    assert not any("not exact" in str(w.message) for w in caught)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["decode", "joint_feature"])
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
def test_ctrl_c_anywhere_leaves_a_true_certificate(
    python_multiclass: Any, solver: str, method: str
) -> None:
    """An interpreted structure is interrupted within passes, certificates and steps alike."""

    class Interrupted(python_multiclass):  # type: ignore[misc]
        calls = 0
        at = -1

        def _count(self) -> None:
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt

        def decode(self, *args: Any) -> Any:
            if method == "decode":
                self._count()
            return super().decode(*args)

        def joint_feature(self, *args: Any) -> Any:
            if method == "joint_feature":
                self._count()
            return super().joint_feature(*args)

    X, y = random_multiclass(np.random.default_rng(5), 8, 3, L)
    problem = EnumeratedProblem.from_multiclass(X, y, L)
    best = solve(problem, 5.0).objective
    structure = Interrupted()
    model = SSVM(structure, 5.0, solver=solver, tol=1e-9, max_iter=8, random_state=0)
    quiet_fit(model, list(X), list(y))
    total = structure.calls
    wrong = []
    seen = 0
    for at in range(1, total, max(1, total // 150)):
        structure.calls, structure.at = 0, at
        try:
            quiet_fit(model, list(X), list(y))
        except KeyboardInterrupt:  # nothing to keep before the first pass is over
            continue
        seen += 1
        true = primal(problem, model.weights_, 5.0)
        fine = (
            model.stop_reason_ == "interrupted"
            and model.dual_objective_ <= best * (1 + 1e-9)
            and model.primal_objective_ == pytest.approx(true, rel=1e-9)
            and model.duality_gap_ >= true - best - 1e-9
        )
        if not fine:
            wrong.append((at, model.dual_objective_ / best, model.primal_objective_ / true))
    assert seen > 20
    assert not wrong, f"{len(wrong)} of {seen}: (call, dual/optimum, primal/true) {wrong[:5]}"
