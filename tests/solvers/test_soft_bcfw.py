"""Soft constraints: the independent optimum, bounds, line searches, and what a run keeps."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hingeline import GraphSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.core.formulations import make_formulation
from hingeline.core.loop import Limits, run
from hingeline.core.primitives import Workers
from hingeline.solvers.relaxed.blocks import project
from hingeline.solvers.relaxed.passes import add_weights, pass_units
from hingeline.solvers.relaxed.soft import SoftBCFW
from hingeline.structures.graph import compile_problem

# isort: split
from marks import slow
from relaxation import Small, optimum, random_small

C = 0.7


def solver_for(
    small: Small,
    weights: Any = None,
    n_jobs: int = 1,
    seed: int = 0,
    start: Any = None,
    **options: Any,
) -> SoftBCFW:
    compiled = compile_problem(small.problem())
    if weights is None:
        weights = np.ones(compiled.n)
    form = make_formulation(C, "max", "margin", weights)
    options = {"total_weight": float(weights.sum()), **options}
    return SoftBCFW(compiled, form, Workers(n_jobs, compiled.scratch_size), seed, options, start)


def solve(solver: SoftBCFW, tol: float = 1e-7, max_iter: int = 3000, callbacks: Any = ()) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return run(solver, Limits(tol=tol, max_iter=max_iter, callbacks=callbacks))


KINDS: dict[str, Any] = {
    "pairs and triples": {"states": 3},
    "binary": {"states": 2},
    "many states": {"states": 5, "n": 4},
    "featured": {"states": 3, "featured": True},
}
#: Features of factors are a type of their own, for which all kernels are compiled again.
ALL_KINDS = [slow("pairs and triples"), "binary", slow("many states"), slow("featured")]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("constraints", ["soft", "hard"])
def test_the_start_needs_no_evaluation(kind: str, constraints: str) -> None:
    small = random_small(3, **KINDS[kind])
    weights = np.ones(compile_problem(small.problem()).n)
    weights[0] = 0.0
    solver = solver_for(small, weights, constraints=constraints)
    names = ("w", "mu", "sums", "mass", "centre_sums")
    before = {name: getattr(solver, name).copy() for name in names}
    assert before["sums"].any()
    active = slice(solver.blocks.unary_at[1], None)  # nobody evaluates an example of weight 0
    solver.sums[active] = -1.0
    solver.repair()
    for name in names:
        assert np.allclose(before[name], getattr(solver, name), rtol=1e-6), name
    assert solver.value == 0.0


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize(("rho", "scale"), [(0.5, "example"), (5.0, "example"), (1.0, "printed")])
def test_meets_the_independent_optimum(kind: str, rho: float, scale: str) -> None:
    small = random_small(3, **KINDS[kind])
    weights = np.array([1.0, 0.5, 2.0, 1.0])
    solver = solver_for(small, weights, rho=rho, rho_scale=scale)
    result = solve(solver)
    M = weights.sum() if scale == "printed" else 1.0
    truth = optimum(small, solver.compiled.problem, C * weights, rho, M)
    assert result.primal == pytest.approx(truth.value, rel=2e-6)
    assert result.dual == pytest.approx(truth.value, rel=2e-6)
    assert result.dual <= truth.value * (1 + 1e-8) <= result.primal * (1 + 2e-8)
    hard = optimum(small, solver.compiled.problem, C * weights, 0.0, M)
    slack = 0.5 * rho * M * hard.square
    assert truth.value - slack <= hard.value * (1 + 1e-7)
    assert hard.value <= truth.value * (1 + 1e-7)
    found = result.findings
    assert found["relaxed_objective_"] >= hard.value * (1 - 1e-7)
    assert found["relaxed_objective_"] - found["relaxed_gap_"] <= hard.value * (1 + 1e-7)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_hard_constraints(kind: str) -> None:
    small = random_small(5, **KINDS[kind])
    solver = solver_for(small, constraints="hard", rho=1.0)
    result = solve(solver, tol=1e-5, max_iter=300)
    truth = optimum(small, solver.compiled.problem, np.full(4, C), 0.0, 4.0)
    assert result.converged
    assert result.dual <= truth.value * (1 + 1e-7)
    assert truth.value <= result.primal * (1 + 1e-7)
    assert result.primal == pytest.approx(truth.value, rel=2e-5)
    assert solver.rho == solver.balance
    # The published continuation goes the same way, more slowly.
    solver = solver_for(small, constraints="hard", hardening="rho")
    result = solve(solver, tol=2e-2, max_iter=300)
    assert result.converged
    assert result.dual <= truth.value * (1 + 1e-7)
    assert truth.value <= result.primal * (1 + 1e-7)
    assert solver.rho < 1.0
    assert len(solver.centre) == 0


@cache
def least_primal(seed: int, rho: float) -> float:
    small = random_small(seed)
    problem = compile_problem(small.problem()).problem
    return optimum(small, problem, np.full(len(small.examples), C), rho, 1.0).value


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "published"},
        {"schedule": "published", "sampling": "gap"},
        {"sampling": "gap"},
        {"sampling": "random"},
        {"steps": "plain"},
    ],
)
def test_all_schedules_go_to_the_same_optimum(options: dict[str, Any]) -> None:
    small = random_small(8)
    best = least_primal(8, 0.5)
    result = solve(solver_for(small, rho=0.5, **options), tol=2e-3)
    assert result.converged
    assert result.dual <= best * (1 + 1e-6)
    assert result.primal == pytest.approx(best, rel=2.1e-3)


@pytest.mark.parametrize(
    "options", [{}, {"schedule": "published"}, {"schedule": "published", "sampling": "gap"}]
)
def test_weak_duality_and_ascent(options: dict[str, Any]) -> None:
    small = random_small(9)
    solver = solver_for(small, rho=0.3, **options)
    best = least_primal(9, 0.3)
    before = solver.value
    for _ in range(12):
        solver.sweep()
        assert solver.value >= before - 1e-6 * abs(before)
        counted = solver.value
        primal = solver.certify()
        # What the steps gained and what the marginals are worth are the same.
        assert solver.value == pytest.approx(counted, rel=1e-6, abs=1e-9)
        assert solver.value <= best * (1 + 1e-6)
        assert primal >= best * (1 - 1e-6)
        # The gap is the sum of the gaps of blocks.
        assert primal - solver.value == pytest.approx(float(solver.gaps.sum()), rel=1e-4, abs=1e-6)
        before = solver.value


@pytest.mark.parametrize("schedule", ["improved", "published"])
@pytest.mark.parametrize("sampling", ["permutation", "gap", "random"])
def test_factors_are_visited_from_the_start(schedule: str, sampling: str) -> None:
    """Their gaps are 0 at the truth, and were for as long as no certificate looked at them."""
    solver = solver_for(random_small(6, n=12), rho=0.5, schedule=schedule, sampling=sampling)
    solver._evaluate_and_keep = lambda *given: 0.0  # type: ignore[method-assign]
    solver.sweep()
    moved = [solver.mass[a:b].any() for a, b in _factor_ranges(solver)]
    assert np.mean(moved) > 0.2
    before = solver.mass.copy()
    solver.sweep()
    changed = solver.mass != before
    assert np.mean([changed[a:b].any() for a, b in _factor_ranges(solver)]) > 0.1


def test_blocks_are_visited_across_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """An example's blocks one after the other would pull weights that they share the same way."""
    solver = solver_for(random_small(6, n=12), rho=0.5)
    orders: list[Any] = []

    def note(problem: Any, dual: Any, units: Any, order: Any, *others: Any) -> Any:
        orders.append(units.owners[order])
        return pass_units(problem, dual, units, order, *others)

    monkeypatch.setattr("hingeline.solvers.relaxed.passes.pass_units", note)
    solver.sweep()
    assert len(orders) == 4
    assert len(orders[0]) == solver.blocks.n  # all are visited in the first pass
    for owners in orders:
        assert np.mean(owners[1:] != owners[:-1]) > 0.8


@pytest.mark.parametrize(
    ("options", "name"),
    [
        *(({"schedule": "published", name: 1}, name) for name in ("passes", "rounds", "proximal")),
        ({"schedule": "published", "skip": 0.5}, "skip"),
        ({"hardening": "rho"}, "hardening"),
        ({"constraints": "soft", "rho_factor": 2.0}, "rho_factor"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"has '{name}', which has no effect"):
        GraphSSVM(solver="soft-bcfw", solver_options=options).check_parameters()


def test_options_with_effect_are_taken() -> None:
    hard = {"constraints": "hard", "hardening": "rho", "rho_factor": 2.0, "skip": 0.2}
    ordered = {"schedule": "published", "sampling": "permutation", "skip": 0.2}
    drawn = {"passes": 2, "rounds": 0, "proximal": 1.0, "sampling": "random"}
    for options in (hard, ordered, drawn):
        GraphSSVM(solver="soft-bcfw", solver_options=options).check_parameters()


@pytest.mark.parametrize("steps", ["plain", "exact"])
def test_line_search_is_exact(steps: str) -> None:
    """From a random point, f_ρ after one visit cannot be raised along the step taken."""
    small = random_small(11)
    solver = solver_for(small, rho=0.2, steps=steps, sampling="random")
    assert len(solver.units.owners) == solver.blocks.n  # nobody shares a row of features
    for _ in range(2):
        solver._pass(solver.form.cap)

    def value(mu: Any, mass: Any) -> float:
        other = solver_for(small, rho=0.2)
        other.mu[:], other.mass[:] = mu, mass
        other.repair()
        return other.value

    checked = 0
    for block in range(0, solver.blocks.n, 3):
        mu, mass = solver.mu.copy(), solver.mass.copy()
        before = solver.value
        _, gain = pass_units(
            *(solver.problem, solver.at(solver.w, solver.form.cap, exact=steps == "exact")),
            *(solver.units, np.array([block]), 1, solver.total),
        )
        solver.value += gain
        after = value(solver.mu, solver.mass)
        assert after == pytest.approx(before + gain, rel=1e-6, abs=1e-8)
        dmu, dmass = solver.mu - mu, solver.mass.astype(float) - mass
        if gain < 1e-7:
            continue
        checked += 1
        for gamma in (0.9, 0.97, 1.03, 1.1):
            m = mass + gamma * dmass
            u = mu + gamma * dmu
            if gamma > 1.0 and (u.min() < 0.0 or m.min() < 0.0):
                continue
            if gamma > 1.0 and steps == "plain" and max(u.max(), m.max()) > 1.0:
                continue
            sums = np.array([m[a:b].sum() for a, b in _factor_ranges(solver)])
            if sums.max() > 1.0:
                continue
            # Exchanges leave up to a tenth of what the first one promised.
            left = 0.1 * gain if steps == "exact" else 0.0
            assert value(u, m.astype(np.float32)) <= after + left + 2e-7
    assert checked > 3


def _factor_ranges(solver: SoftBCFW) -> list[tuple[int, int]]:
    starts = solver.blocks.mass_start
    graphs = solver.compiled.problem.graphs
    found = []
    for i, at in enumerate(solver.blocks.mass_at[:-1]):
        lo, hi = graphs.factor_ptr[i] + i, graphs.factor_ptr[i + 1] + i
        found += [(at + starts[k], at + starts[k + 1]) for k in range(lo, hi)]
    return found


def test_weights_are_those_of_the_marginals() -> None:
    small = random_small(2)
    solver = solver_for(small, rho=0.5)
    solve(solver, tol=1e-5)
    w = np.zeros(len(solver.w))
    add_weights(solver.problem, solver.at(w, solver.form.cap), False)
    np.testing.assert_allclose(solver.w, w, atol=1e-12)
    # The same once more, in the open.
    expected = np.zeros(len(w))
    problem = solver.compiled.problem
    at = 0
    mass = solver.mass.astype(float)
    ranges = iter(_factor_ranges(solver))
    kinds = small.kinds()
    for e in small.examples:
        U = expected[: problem.n_features * problem.n_columns].reshape(problem.n_features, -1)
        for v in range(4):
            for s in range(3):
                share = float(e.labels[v] == s) - solver.mu[at + s]
                U[:, s] += C * share * e.X[v]
            at += 3
        for scope in e.scopes:
            kind = tuple(e.n_states[v] for v in scope)
            true = int(np.ravel_multi_index([e.labels[v] for v in scope], kind))
            a, b = next(ranges)
            full = np.insert(mass[a:b], true, 1.0 - mass[a:b].sum())
            table = problem.table_offset[kinds.index(kind)]
            expected[table : table + len(full)] -= C * full
            expected[table + true] += C
    np.testing.assert_allclose(solver.w, expected, atol=1e-6)


@pytest.mark.parametrize("states", [2, 5])
def test_marginals_stay_on_their_simplices(states: int) -> None:
    solver = solver_for(random_small(4, states=states), rho=0.05)
    for _ in range(20):
        solver.sweep()
        np.testing.assert_array_equal(solver.candidate(), solver.w)
        assert solver.mu.min() >= 0.0
        np.testing.assert_allclose(solver.mu.reshape(-1, states).sum(axis=1), 1.0, atol=1e-12)
        assert solver.mass.min() >= 0.0
        for a, b in _factor_ranges(solver):
            assert solver.mass[a:b].sum(dtype=np.float64) <= 1.0


@pytest.mark.parametrize("options", [{}, {"schedule": "published"}, {"sampling": "gap"}])
def test_threads_do_not_change_the_weights(options: dict[str, Any]) -> None:
    small = random_small(6, n=12)
    results = [
        solve(solver_for(small, n_jobs=n_jobs, **options), tol=1e-2).weights for n_jobs in (1, 2, 3)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_a_start_from_the_solution_of_another_rho() -> None:
    small = random_small(7)
    first = solver_for(small, rho=1.0)
    solve(first, tol=1e-5)
    cold = solve(solver_for(small, rho=0.7), tol=1e-4)
    warm = solve(solver_for(small, rho=0.7, start=first.memory()), tol=1e-4)
    assert warm.n_iter <= cold.n_iter
    assert warm.primal == pytest.approx(cold.primal, rel=2e-4)


@pytest.mark.slow
def test_examples_without_weight_are_absent() -> None:
    small = random_small(1)
    weights = np.array([1.0, 1.0, 1.0, 0.0])
    less = Small(small.examples[:3], small.cost)
    # Kinds of scopes, and so the layout of the weights, are the same.
    whole = solve(solver_for(small, weights, rho=0.5))
    part = solve(solver_for(less, np.ones(3), rho=0.5))
    assert whole.primal == pytest.approx(part.primal, rel=1e-6)
    twice = Small([*small.examples, small.examples[0]], small.cost)
    repeated = solve(solver_for(twice, np.ones(5), rho=0.5))
    weighted = solve(solver_for(small, np.array([2.0, 1.0, 1.0, 1.0]), rho=0.5))
    assert repeated.primal == pytest.approx(weighted.primal, rel=1e-6)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_data_twice_with_half_of_c_have_the_same_weights(kind: str) -> None:
    """ρ is that of an example; as printed, messages would be half as large."""
    small = random_small(3, **KINDS[kind])
    twice = Small([*small.examples, *small.examples], small.cost)

    def weights(data: Small, share: float, scale: str) -> Any:
        shares = np.full(len(data.examples), share)
        given = {"rho": 0.5, "rho_scale": scale, "total_weight": float(len(shares))}
        return solve(solver_for(data, shares, **given), tol=1e-7, max_iter=400).weights

    once = weights(small, 1.0, "example")
    assert np.linalg.norm(once - weights(twice, 0.5, "example")) <= 2e-3 * np.linalg.norm(once)
    printed = weights(small, 1.0, "printed")
    assert np.linalg.norm(printed - weights(twice, 0.5, "printed")) > 1e-2 * np.linalg.norm(printed)


def test_the_default_goes_with_the_loss() -> None:
    """Losses ten times as large, with C ten times as large: weights ten times as large."""
    small = random_small(3)
    larger = Small(small.examples, 10.0 * small.cost)
    plain, scaled = solver_for(small), solver_for(larger, np.full(4, 10.0))
    assert scaled.rho == pytest.approx(0.1 * plain.rho)
    found, more = (solve(s, tol=1e-7, max_iter=400).weights for s in (plain, scaled))
    np.testing.assert_allclose(more, 10.0 * found, atol=1e-3 * np.abs(more).max())


def test_memory_is_as_stated() -> None:
    """A binary pair costs twelve bytes of marginals and four of its gap, nothing of float64."""
    small = random_small(1, n=50, states=2, tree=True)
    solver = solver_for(small)
    pairs = 50 * 3
    assert solver.mass.dtype == np.float32
    assert solver.mass.nbytes == 12 * pairs
    assert solver.gaps.nbytes == 4 * (pairs + 50 * 4)
    for name, value in vars(solver).items():
        if isinstance(value, np.ndarray) and value.dtype == np.float64:
            assert value.size <= max(50 * 4 * 2, 50 * 5, solver.compiled.n_weights), name


def test_projection() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 4, 9):
        for scale in (0.1, 1.0, 1e9):
            z = scale * rng.normal(size=n)
            out = np.empty(n)
            project(z, n, out)
            assert out.min() >= 0.0
            assert out.sum() == pytest.approx(1.0, abs=1e-6)
            # Optimality: kept entries have the same difference, the others a smaller one.
            kept = out > 0.0
            level = (z - out)[kept]
            assert np.ptp(level) <= 1e-9 * scale
            assert np.all(z[~kept] <= level.max() + 1e-9 * scale)
    out = np.empty(3)
    project(np.full(3, 1 / 3), 3, out)
    np.testing.assert_allclose(out, 1 / 3)


def test_other_structures_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"soft-bcfw.*GraphSSVM, MultilabelSSVM"):
        MulticlassSSVM(solver="soft-bcfw").fit(np.eye(3), [0, 1, 2])


def test_rows_of_history_tell_of_the_relaxation() -> None:
    result = solve(solver_for(random_small(0)), tol=1e-2)
    row = result.history[-1]
    assert row.relaxed <= row.primal
    assert 0.0 <= row.fractional <= 1.0


def test_examples_that_share_no_weights_in_themselves_are_units() -> None:
    """Blocks of a set of labels have messages in common and nothing else."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9, 3)), np.arange(36).reshape(9, 4) % 5 % 2
    model = MultilabelSSVM(0.1, solver="sdm", random_state=0).fit(X, Y)
    compiled = compile_problem(model._prepare(X))
    form = make_formulation(C, "max", "margin", np.ones(9))
    solver = SoftBCFW(compiled, form, Workers(1, compiled.scratch_size), 0, {})
    assert solver.units.owners.tolist() == list(range(9))
    assert (np.diff(solver.units.starts) == 4 + 6).all()
    mixed = solver_for(random_small(6, n=12), rho=0.5)
    assert len(mixed.units.owners) == mixed.blocks.n


def test_the_first_pass_visits_variables_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors have nothing to gain before, and weights that predict are there at once."""
    solver = solver_for(random_small(6, n=12), rho=0.5)
    orders: list[Any] = []

    def note(problem: Any, dual: Any, units: Any, order: Any, *others: Any) -> Any:
        orders.append(units.starts[order] - dual.blocks.block_at[units.owners[order]] >= 4)
        return pass_units(problem, dual, units, order, *others)

    monkeypatch.setattr("hingeline.solvers.relaxed.passes.pass_units", note)
    solver.sweep()
    assert (np.diff(orders[0].astype(int)) >= 0).all()
    assert (np.diff(orders[1].astype(int)) < 0).any()
