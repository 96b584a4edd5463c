"""Newton steps over all planes: each part against its definition, the whole against the QP."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.core.formulations import make_formulation
from hingeline.core.solver import PIECE, PlaneSolver
from hingeline.solvers import newton
from hingeline.solvers.newton import Response, respond
from hingeline.solvers.sdm import Accelerator
from hingeline.structures import multiclass
from hingeline.structures.multiclass import compile_problem, make_problem

# isort: split
from marks import slow
from reference import EnumeratedProblem, by_output, primal, random_chains, random_multiclass, solve


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton steps from the second sweep on."""

    def crawls(self: Accelerator, gap: float, work: float) -> bool:
        self.newton = np.isfinite(self.n_weights)
        return self.newton

    monkeypatch.setattr(Accelerator, "crawls", crawls)


def test_fewer_planes_than_weights() -> None:
    """Rows say as much as the matrix that they make, which is larger."""
    rng = np.random.default_rng(0)
    rows, gradient = rng.normal(size=(4, 9)), rng.normal(size=9)
    expected = -np.linalg.solve(np.eye(9) + rows.T @ rows, gradient)
    np.testing.assert_allclose(newton.solve(rows, None, gradient), expected, atol=1e-12)
    np.testing.assert_allclose(newton.solve(rows.T @ rows, None, gradient), expected, atol=1e-12)
    np.testing.assert_array_equal(newton.solve(rows[:0], None, gradient), -gradient)


def test_no_step_where_the_gradient_is_zero() -> None:
    """Conjugate gradients would divide by zero; multipliers all at their bounds come to that."""
    zero = np.zeros(5)
    np.testing.assert_array_equal(newton.solve((lambda v: v, np.ones(5)), None, zero), zero)
    np.testing.assert_array_equal(newton.solve(np.eye(5), None, zero), zero)


def test_the_search_for_a_level_ends_where_there_are_no_numbers() -> None:
    """No comparison with NaN holds: a loop until one does would never end."""
    z = np.array([np.nan, 1.0])
    assert np.isnan(newton.find_level(z, 0, 2, 1.0, 0.0, np.nan))


@pytest.mark.usefixtures("at_once")
def test_multipliers_at_their_bounds() -> None:
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 3
    params: dict[str, Any] = {"slack": "sum", "violators": "all", "fit_intercept": False}
    model = MulticlassSSVM(1e-8, tol=1e-9, scale=False, random_state=0, **params).fit(X, y)
    assert model.converged_


def flat(model: Any) -> Any:
    if isinstance(model, MulticlassSSVM):
        return model.coef_.T.ravel()
    return np.concatenate([model.emission_coef_.T.ravel(), model.transition_coef_.ravel()])


@pytest.mark.parametrize(("slack", "C"), list(product(("max", "squared", "sum"), (0.1, 10.0))))
def test_response_is_the_maximiser(slack: str, C: float) -> None:
    rng = np.random.default_rng(3)
    n, m = 6, 4
    form = make_formulation(C, slack, "margin", rng.uniform(0.5, 2.0, n))
    sigma = rng.uniform(0.1, 3.0, n)
    centre = rng.uniform(0.0, 0.3 * C, n * m)
    hinges = rng.normal(size=n * m)
    alpha, free = np.empty(n * m), np.empty(n * m, dtype=bool)
    rho, slacks = np.empty(n), np.empty(n)
    out = Response(sigma, centre, alpha, free, rho, slacks)
    total = respond(form, np.arange(n + 1) * m, hinges, out)
    best = 0.0
    for i in range(n):
        at = slice(i * m, (i + 1) * m)

        def loss(a: Any, at: slice = at, i: int = i) -> float:
            away = a - centre[at]
            value = hinges[at] @ a - 0.5 * form.ridge[i] * a.sum() ** 2
            return float(-value + 0.5 * away @ away / sigma[i])

        cap = form.cap[i] if np.isfinite(form.cap[i]) else 1e6
        bounds = [(0.0, cap if slack == "sum" else None)] * m
        sums = [] if slack == "sum" else [{"type": "ineq", "fun": lambda a, c=cap: c - a.sum()}]
        found = minimize(
            loss,
            np.full(m, cap / (2 * m) if cap < 1e6 else 0.1),
            bounds=bounds,
            constraints=sums,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(alpha[at], found.x, atol=2e-5 * max(1.0, C))
        best -= found.fun
        hinge = np.maximum(hinges[at], 0.0)
        assert slacks[i] == pytest.approx(hinge.sum() if slack == "sum" else hinge.max())
    assert total == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_curvature_of_classes_is_that_of_their_rows(
    dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    n, d, k = 5, 3, 4
    X = rng.normal(size=(n, d))
    X[2, 1] = X[2, 1] if dense else 0.0
    labels = rng.integers(k, size=n).astype(np.int32)
    import scipy.sparse as sp

    csr = sp.csr_matrix(X)
    problem = make_problem(csr.indptr, csr.indices, csr.data, labels, d, 1.0 - np.eye(k))
    compiled = compile_problem(problem)
    order = compiled.matrix_order()
    free = rng.random((n, k)) < 0.6
    free[np.arange(n), labels] = False
    rho, sigma = rng.uniform(0.0, 0.2, n), rng.uniform(0.5, 2.0, n)
    matrix = np.zeros((d * k, d * k))
    compiled.curvature(1.0 * free, rho, sigma, matrix)
    rows, owners = [], []
    for i, c in zip(*np.nonzero(free), strict=True):
        row = np.zeros((k, d))
        row[labels[i]] += X[i]
        row[c] -= X[i]
        rows.append(row.ravel())
        owners.append(i)
    nothing = np.empty(0)
    response = Response(sigma, nothing, nothing, free, rho, nothing)
    weighed = response.weigh_rows(np.array(rows), np.array(owners))
    expected = weighed.T @ weighed
    upper = np.triu_indices(d * k)
    np.testing.assert_allclose(matrix[upper], expected[upper], atol=1e-12)
    assert multiclass.is_dense(problem) == dense
    if dense:
        blocks, loops = np.zeros((d * k, d * k)), []
        monkeypatch.setattr(multiclass, "add_rows", lambda *given: loops.append(given))
        compiled.curvature(1.0 * free, rho, sigma, blocks)
        assert len(loops) == 1  # too few: loops are faster
        assert not blocks.any()
        monkeypatch.setattr(multiclass, "PRODUCT_FLOPS", 0.0)
        compiled.curvature(1.0 * free, rho, sigma, blocks)
        assert len(loops) == 1
        np.testing.assert_allclose(blocks[upper], expected[upper], atol=1e-12)
    assert compiled.multiply_curvature is not None
    vector = np.zeros(compiled.n_weights)
    vector[order] = rng.normal(size=d * k)
    for few in (0.0, 1.0):  # by products over all pairs, and over the free ones
        monkeypatch.setattr(multiclass, "FEW_PAIRS", few)
        multiply, diagonal = compiled.multiply_curvature(1.0 * free, rho, sigma)
        np.testing.assert_allclose(multiply(vector)[order], expected @ vector[order], atol=1e-12)
        np.testing.assert_allclose(diagonal[order], np.diag(expected), atol=1e-12)
    naive = sum(
        sigma[i]
        * (R := np.array([r for r, o in zip(rows, owners, strict=True) if o == i])).T
        @ (np.eye(len(R)) - rho[i])
        @ R
        for i in set(owners)
    )
    np.testing.assert_allclose(expected, naive, atol=1e-12)
    assert sorted(order) == [f * problem.stride + c for f in range(d) for c in range(k)]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize(
    ("slack", "rescale"),
    [("max", "margin"), ("max", "slack"), ("squared", "margin"), slow("sum", "margin")],
)
def test_optimum_of_classes(slack: str, rescale: str, C: float) -> None:
    X, y = random_multiclass(np.random.default_rng(1), 30, 4, 3, False)
    y[:3] = np.arange(3)
    problem = EnumeratedProblem.from_multiclass(X, y, 3)
    if slack == "sum":
        problem = by_output(problem)
    kind = "max" if slack == "sum" else slack
    best = solve(problem, C, kind, rescale).objective
    model = MulticlassSSVM(C=C, slack=slack, rescale=rescale, fit_intercept=False, tol=1e-8)
    model.fit(X, y)
    assert model.converged_
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    assert model.primal_objective_ == pytest.approx(
        primal(problem, flat(model), C, kind, rescale), rel=1e-9
    )
    assert model.dual_objective_ <= best * (1 + 1e-9)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("slack", "rescale"), [("max", "margin"), ("squared", "slack")])
def test_conjugate_gradients_reach_the_same_optimum(slack: str, rescale: str) -> None:
    X, y = random_multiclass(np.random.default_rng(1), 30, 4, 3, False)
    y[:3] = np.arange(3)
    best = solve(EnumeratedProblem.from_multiclass(X, y, 3), 1.0, slack, rescale).objective
    model = MulticlassSSVM(C=1.0, slack=slack, rescale=rescale, fit_intercept=False, tol=1e-8)
    model.set_params(solver_options={"newton_weights": 1}).fit(X, y)
    assert model.converged_
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)


@pytest.mark.usefixtures("at_once")
def test_conjugate_gradients_give_the_same_bits_for_any_number_of_threads() -> None:
    X, y = uneven_table()
    found = []
    for n_jobs in (1, 2, 3):
        model = MulticlassSSVM(C=0.01, n_jobs=n_jobs, random_state=0, tol=1e-3)
        model.set_params(solver_options={"newton_weights": 1}).fit(X, y)
        assert model.converged_
        found.append(model.weights_.tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("slack", "C"), [("max", 0.1), ("max", 10.0), ("squared", 1.0)])
def test_optimum_of_chains(slack: str, C: float) -> None:
    X, y = random_chains(np.random.default_rng(2), 10, 4, 3, 3, False)
    problem = EnumeratedProblem.from_chains(X, y, 3, boundary=False)
    best = solve(problem, C, slack, "margin").objective
    model = ChainSSVM(C=C, slack=slack, boundary=False, fit_intercept=False, tol=1e-7).fit(X, y)
    assert model.converged_
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    assert model.dual_objective_ <= best * (1 + 1e-9)


def uneven_table() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    y = rng.integers(4, size=600)
    X = rng.normal(size=(4, 8))[y] + 2.0 * rng.normal(size=(600, 8))
    return (X + 3.0) * 10.0 ** np.linspace(-2.0, 3.0, 8), y


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("slack", ["max", "squared"])
def test_planes_as_rows_or_as_they_are(slack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where weights are fewer than what a plane reads, rows stand for planes."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(40, 3)) for _ in range(6)]
    y = [np.argmax(x + rng.normal(size=x.shape), axis=1) for x in X]
    made: list[int] = []
    write = PlaneSolver.write_rows
    monkeypatch.setattr(
        PlaneSolver, "write_rows", lambda self, slots: made.append(len(slots)) or write(self, slots)
    )
    params: dict[str, Any] = {"slack": slack, "tol": 1e-7, "random_state": 0, "solver": "sdm"}
    params["rescale"] = "margin" if slack == "max" else "slack"
    fits, counts, largest = [], [], []
    for most, piece in ((newton.ROWS, PIECE), (0.0, PIECE), (0.0, 150)):
        monkeypatch.setattr(newton, "ROWS", most)
        monkeypatch.setattr("hingeline.core.solver.PIECE", piece)
        made.clear()
        fits.append(ChainSSVM(0.3, **params).fit(X, y))
        counts.append(len(made))
        largest.append(max(made))
    rows, *others = fits
    assert 0 < counts[0] < counts[1] < counts[2]  # once a point, once a step, and in pieces
    assert largest[2] < largest[1]  # of which memory need hold one at a time
    for planes in (rows, *others):
        assert planes.converged_
        assert rows.primal_objective_ == pytest.approx(planes.primal_objective_, rel=2e-7)
        np.testing.assert_allclose(rows.weights_, planes.weights_, atol=1e-3)
    monkeypatch.undo()
    one, two = (ChainSSVM(0.3, n_jobs=n, **params).fit(X, y).weights_ for n in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_features_as_they_come() -> None:
    X, y = uneven_table()
    model = MulticlassSSVM(C=1.0, tol=1e-3).fit(X, y)
    assert model.converged_
    assert model.n_iter_ <= 40
    with pytest.warns(UserWarning, match="stopped at max_iter=40"):
        slow = MulticlassSSVM(
            C=1.0, tol=1e-3, max_iter=40, solver_options={"newton_weights": 0}
        ).fit(X, y)
    assert slow.duality_gap_ > 10 * model.duality_gap_
    assert model.primal_objective_ <= slow.primal_objective_


def test_steps_go_on_until_the_dual_rises() -> None:
    """A large gap made the first, loose solution of a proximal point look good enough."""
    X = np.where(np.isin(np.arange(8), (3, 5, 7)), -1.2, 0.8)[:, None]
    y = [0, 1, 2, 3, 4, 3, 0, 1]
    params = {"slack": "squared", "fit_intercept": False, "random_state": 0}
    model = MulticlassSSVM(C=3e7, tol=1e-4, max_iter=60, **params).fit(X, y)
    assert model.converged_  # after 3,000 passes the gap was 99.96 %


def test_same_bits_for_any_number_of_threads() -> None:
    X, y = uneven_table()
    one = MulticlassSSVM(C=1.0, random_state=0).fit(X, y)
    two = MulticlassSSVM(C=1.0, random_state=0, n_jobs=2).fit(X, y)
    assert np.array_equal(one.weights_, two.weights_)
