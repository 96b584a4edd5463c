"""Block-coordinate Frank-Wolfe: its line search, its published form, its options and its state."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from hingeline import SSVM, ChainSSVM, MulticlassSSVM
from hingeline.core.blocks import Mass, step
from hingeline.solvers.bcfw import AWAY, BCFW, PAIRWISE, PLAIN, FrankWolfe, own_squares
from hingeline.solvers.sdm import Accelerator

# isort: split
from marks import slow
from reference import EnumeratedProblem, random_chains, random_multiclass, solve

L, D = 3, 4
#: A choice of options from every corner.
MODES: list[dict[str, Any]] = [
    {},
    {"steps": "away"},
    {"cached_passes": 0, "inner_steps": 1},
    {"sampling": "gap", "refresh": 3},
    {"sampling": "uniform", "averaging": "none"},
    {"averaging": "all", "cached_passes": 2},
    {"steps": "plain"},
    {"steps": "plain", "sampling": "gap"},
    {"steps": "plain", "averaging": "all", "sampling": "uniform"},
    {"steps": "plain", "cached_passes": 3},
]
PUBLISHED = [mode for mode in MODES if mode.get("steps") == "plain" and "cached_passes" not in mode]


def name_of(mode: dict[str, Any]) -> str:
    return " ".join(map(str, mode.values())) or "defaults"


modes = pytest.mark.parametrize("mode", MODES, ids=name_of)


def chains(seed: int = 0, n: int = 20) -> Any:
    return random_chains(np.random.default_rng(seed), n, D, L, 4, False)


def flat(seed: int = 0, n: int = 30) -> Any:
    X, y = random_multiclass(np.random.default_rng(seed), n, D, L, False)
    y[:L] = np.arange(L)
    return X, y


def chain_model(mode: dict[str, Any], **params: Any) -> ChainSSVM:
    given = {"C": 1.0, "tol": 1e-2, "max_iter": 3000, "random_state": 0, "fit_intercept": False}
    return ChainSSVM(solver="bcfw", solver_options=mode, **{**given, **params})


# One step ----------------------------------------------------------------------------------------


@st.composite
def blocks(draw: Any) -> Any:
    """Gram matrix, multipliers, hinges and bound of one example's planes."""
    m = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    planes = rng.normal(size=(m, draw(st.integers(1, 4)))) * (rng.random((m, 1)) < 0.9)
    cap = float(rng.uniform(0.1, 5.0))
    alpha = rng.dirichlet(np.ones(m + 1))[:m] * cap * (rng.random(m) < 0.7)
    if draw(st.booleans()) and alpha.any():
        alpha *= cap / alpha.sum()  # nothing is left for the true output
    return planes @ planes.T, alpha, rng.normal(size=m), cap


def direction_of(rule: int, alpha: Any, hinges: Any, cap: float) -> Any:
    """The direction and the longest step, the true output being the last plane."""
    mass = np.append(alpha, max(cap - alpha.sum(), 0.0))
    if mass[-1] < 1e-12 * cap:
        mass[-1] = 0.0
    slopes = np.append(hinges, 0.0)
    corner = np.eye(len(mass))
    s = int(np.argmax(slopes))
    v = int(np.argmin(np.where(mass > 0.0, slopes, np.inf)))
    if rule == PAIRWISE:
        return (corner[s] - corner[v])[:-1], mass[v]
    towards, away = cap * corner[s] - mass, mass - cap * corner[v]
    if rule == AWAY and away @ slopes > towards @ slopes and mass[v] < (1 - 1e-9) * cap:
        return away[:-1], mass[v] / (cap - mass[v])
    return towards[:-1], 1.0


@pytest.mark.parametrize("rule", [PLAIN, AWAY, PAIRWISE])
@given(block=blocks())
@settings(max_examples=60, deadline=None)
def test_the_line_search_is_exact(rule: int, block: Any) -> None:
    gram, before, slopes, cap = block

    def dual(alpha: Any) -> float:
        change = alpha - before
        return float(slopes @ change - 0.5 * change @ gram @ change)

    direction, most = direction_of(rule, before, slopes, cap)
    alpha, hinges = before.copy(), slopes.copy()
    _, gain = step(FrankWolfe(rule, 1), gram, alpha, before, hinges, Mass(0.0, cap, 0.0))
    found = minimize_scalar(
        lambda t: -dual(before + t * direction),
        bounds=(0.0, most),
        method="bounded",
        options={"xatol": 1e-12 * most},
    )
    best = max(-found.fun, 0.0, dual(before + most * direction))
    assert gain == pytest.approx(best, rel=1e-6, abs=1e-9 * cap)
    assert dual(alpha) == pytest.approx(gain, rel=1e-9, abs=1e-12 * cap)
    assert (alpha >= 0.0).all()
    assert alpha.sum() <= cap * (1.0 + 1e-12)
    np.testing.assert_allclose(hinges, slopes - gram @ (alpha - before), atol=1e-10 * (1 + cap))


@pytest.mark.parametrize("rule", [AWAY, PAIRWISE])
@given(block=blocks())
@settings(max_examples=50, deadline=None)
def test_many_steps_solve_the_block(rule: int, block: Any) -> None:
    gram, alpha, hinges, cap = block
    many = FrankWolfe(rule, 100_000)
    step(many, gram, alpha, alpha.copy(), hinges, Mass(0.0, cap, 0.0))
    rest = cap - alpha.sum() > 1e-9 * cap
    least = min([*hinges[alpha > 0.0], *([0.0] if rest else [])])
    assert max(hinges.max(), 0.0) - least <= 1e-6


# As published ------------------------------------------------------------------------------------


def published(X: Any, y: Any, C: float, weights: Any, passes: int) -> Any:
    """Algorithm 4 with a vector w_i for every example; last iterate and average per pass."""
    n = len(X)
    seed = int(check_random_state(0).randint(2**31 - 1))
    rng = np.random.default_rng(seed)
    active = np.flatnonzero(weights > 0)
    own, losses = np.zeros((n, L, D)), np.zeros(n)
    w, average = np.zeros((L, D)), np.zeros((L, D))
    k = 0
    for _ in range(passes):
        for i in rng.permutation(active):
            scores = w @ X[i] + (np.arange(L) != y[i])
            best = int(np.argmax(scores))
            corner = np.zeros((L, D))
            corner[y[i]] += X[i]
            corner[best] -= X[i]
            corner *= C * weights[i]
            loss = C * weights[i] * (best != y[i])
            move = corner - own[i]
            slope = loss - losses[i] - np.sum(w * move)
            square = np.sum(move * move)
            step = min(max(slope / square, 0.0), 1.0) if square > 0 else 0.0
            own[i] += step * move
            losses[i] += step * (loss - losses[i])
            w = w + step * move
            k += 1
            average = (k - 1) / (k + 1) * average + 2 / (k + 1) * w
        yield w.copy(), average.copy()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("averaging", ["none", "all"])
def test_plain_steps_without_a_cache_are_the_published_method(
    averaging: str, weighted: bool
) -> None:
    X, y = flat()
    weights = np.ones(len(y))
    if weighted:
        weights = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
        weights[::5] = 0.0
    seen: list[Any] = []
    model = MulticlassSSVM(
        0.5,
        solver="bcfw",
        solver_options={"steps": "plain", "averaging": averaging},
        fit_intercept=False,
        tol=1e-12,
        max_iter=8,
        random_state=0,
        callbacks=lambda state: seen.append(state.weights),
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y, sample_weight=weights)
    twin = list(published(X, y, 0.5, weights, 8))
    for ours, (last, average) in zip(seen, twin, strict=True):
        coef = model.with_weights(ours).coef_
        np.testing.assert_allclose(coef, last if averaging == "none" else average, atol=1e-10)


@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize("mode", PUBLISHED, ids=name_of)
class TestPlain:
    def test_multiclass(self, mode: dict[str, Any], rescale: str) -> None:
        X, y = flat(1)
        weights = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
        weights[::5] = 0.0
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        model = MulticlassSSVM(
            1.0,
            rescale=rescale,
            solver="bcfw",
            solver_options=mode,
            fit_intercept=False,
            tol=1e-2,
            max_iter=5000,
            random_state=0,
        ).fit(X, y, sample_weight=weights)
        best = solve(problem, 1.0, "max", rescale, weights).objective
        assert model.converged_
        assert model.dual_objective_ <= best * (1 + 1e-9) <= model.primal_objective_ * (1 + 2e-9)
        assert model.primal_objective_ == pytest.approx(best, rel=1e-2)

    @pytest.mark.slow
    def test_chain(self, mode: dict[str, Any], rescale: str) -> None:
        X, y = chains(2, 10)
        problem = EnumeratedProblem.from_chains(X, y, L, boundary=True)
        model = chain_model(mode, rescale=rescale).fit(X, y)
        best = solve(problem, 1.0, "max", rescale).objective
        assert model.converged_
        assert model.primal_objective_ == pytest.approx(best, rel=1e-2)

    @pytest.mark.slow
    def test_structures(
        self, mode: dict[str, Any], rescale: str, python_chain: Any, compiled_chain: Any
    ) -> None:
        X, y = chains(3, 6)
        best = solve(EnumeratedProblem.from_chains(X, y, L, False), 0.1, "max", rescale).objective
        for structure in (python_chain, compiled_chain):
            model = SSVM(
                structure(),
                0.1,
                rescale=rescale,
                solver="bcfw",
                solver_options=mode,
                max_iter=3000,
                random_state=0,
            ).fit(X, y)
            assert model.primal_objective_ == pytest.approx(best, rel=1e-2)


# The run -----------------------------------------------------------------------------------------


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Duals before and after every pass, what kernels say they gained, and the solvers."""
    seen: list[Any] = []
    sweep, move = BCFW.sweep, BCFW._move

    def watched_sweep(self: Any) -> float:
        before = self.dual()
        self.gained = 0.0
        estimate = sweep(self)
        seen.append((before, self.dual(), self.gained, self))
        return estimate

    def watched_move(self: Any, *args: Any) -> float:
        gain = move(self, *args)
        self.gained += gain
        return gain

    accelerate = Accelerator.__call__

    def watched_step(self: Any, solver: Any, *args: Any, **named: Any) -> bool:
        before = solver.dual()
        rose = accelerate(self, solver, *args, **named)
        solver.gained += solver.dual() - before
        return rose

    monkeypatch.setattr(Accelerator, "__call__", watched_step)
    monkeypatch.setattr(BCFW, "sweep", watched_sweep)
    monkeypatch.setattr(BCFW, "_move", watched_move)
    return seen


@modes
def test_the_dual_never_falls_and_never_passes_the_primal(
    watched: list[Any], mode: dict[str, Any]
) -> None:
    X, y = chains()
    model = chain_model(mode, C=2.0).fit(X, y)
    best = solve(EnumeratedProblem.from_chains(X, y, L, boundary=True), 2.0).objective
    assert len(watched) == model.n_iter_
    for before, after, gained, solver in watched:
        assert after >= before - 1e-12 * best
        assert after <= best * (1 + 1e-9)
        if not solver.options.published:
            assert gained == pytest.approx(after - before, rel=1e-6, abs=1e-11 * best)
    solver = watched[-1][-1]
    sums = solver._sums()
    assert (sums <= solver.form.cap * (1 + 1e-12)).all()
    assert (solver.ws.alpha >= 0.0).all()
    again = np.zeros_like(solver.w)
    solver.add(solver.ws.alpha, 1.0, again)
    np.testing.assert_allclose(again, solver.w, atol=1e-10)
    if solver.options.published:
        kept = solver.squares.copy()
        solver.run(own_squares, solver.ws, solver.w.copy(), solver.squares)
        np.testing.assert_allclose(kept, solver.squares, atol=1e-9)
    for row in model.history_:
        assert np.isnan(row.primal) or row.primal >= best * (1 - 1e-9)


def test_steps_away_leave_no_mass_beyond_its_bound() -> None:
    """A step away from a plane with nearly all mass multiplies the others by up to 1e9."""
    rng = np.random.default_rng(33)
    X, y = rng.normal(size=(20, 1)), rng.integers(0, 4, 20)
    y[:4] = range(4)
    C = float(10 ** rng.uniform(-1, 1))
    params = {"fit_intercept": False, "random_state": 0}
    away = {"solver": "bcfw", "solver_options": {"steps": "away"}}
    model = MulticlassSSVM(C=C, tol=1e-3, **away, **params).fit(X, y)
    best = MulticlassSSVM(C=C, tol=1e-10, **params).fit(X, y).primal_objective_
    assert model.dual_objective_ <= best * (1.0 + 1e-9)  # it was 0.2 % above
    assert model.primal_objective_ >= best * (1.0 - 1e-9)


@modes
def test_any_number_of_threads_gives_the_same_weights(mode: dict[str, Any]) -> None:
    X, y = chains(4, 150)
    runs = [chain_model(mode, tol=0.1, n_jobs=k).fit(X, y) for k in (1, 2, 3)]
    for other in runs[1:]:
        np.testing.assert_array_equal(other.weights_, runs[0].weights_)
        assert [row[1:] for row in other.history_][-1] == [row[1:] for row in runs[0].history_][-1]


@modes
def test_warm_starts(mode: dict[str, Any]) -> None:
    X, y = chains(5)
    model = chain_model(mode, warm_start=True).fit(X, y)
    first, dual = model.n_iter_, model.dual_objective_
    model.fit(X, y)
    assert model.n_iter_ <= max(2, first // 2)
    assert model.history_[0].dual >= dual * (1 - 1e-9)
    model.set_params(C=1.3).fit(X, y)
    assert model.converged_
    cold = chain_model(mode, C=1.3).fit(X, y)
    assert model.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-2)


@pytest.mark.parametrize("kind", ["chain", "multiclass"])
def test_planes_go_from_solver_to_solver(kind: str) -> None:
    """Plain steps leave no inner products; whoever goes on with them needs some."""
    X, y = chains(6) if kind == "chain" else flat(6)
    model: Any = ChainSSVM if kind == "chain" else MulticlassSSVM
    model = model(1.0, random_state=0, warm_start=True, tol=1e-2, max_iter=3000)
    plans: list[Any] = [
        ("bcfw", {"steps": "plain"}),
        ("bcfw", {}),
        ("bcfw", {"steps": "plain"}),
        ("sdm" if kind == "chain" else "fsmo", None),
        ("bcfw", {"steps": "plain"}),
        ("bcfw", {"steps": "away"}),
    ]
    dual = 0.0
    for solver, options in plans:
        model.set_params(solver=solver, solver_options=options).fit(X, y)
        assert model.converged_
        assert model.history_[0].dual >= dual * (1 - 1e-9)
        dual = model.dual_objective_
    model.set_params(tol=1e-7).fit(X, y)
    assert model.converged_


@pytest.mark.parametrize("mode", [{}, {"steps": "plain"}], ids=name_of)
def test_partial_fit(mode: dict[str, Any]) -> None:
    X, y = chains(7, 30)
    whole = chain_model(mode).fit(X, y)
    model = chain_model(mode).partial_fit(X[:10], y[:10]).partial_fit(X[10:], y[10:])
    assert model.converged_
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=2e-2)
    more = chains(8, 5)
    model.set_params(solver="sdm", solver_options=None)
    model.partial_fit(*more, passes=1).partial_fit(*chains(9, 5))
    assert model.converged_


@pytest.mark.parametrize("mode", [{}, {"steps": "plain"}], ids=name_of)
def test_an_interruption_keeps_the_best_weights(mode: dict[str, Any]) -> None:
    X, y = chains(10)

    def interrupt(state: Any) -> None:
        if state.row.passes == 3:
            raise KeyboardInterrupt

    model = chain_model(mode, tol=1e-6, warm_start=True, callbacks=interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(X, y)
    assert np.isfinite(model.primal_objective_)
    assert model.duality_gap_ > 0.0
    dual = model.dual_objective_
    model.set_params(callbacks=None, tol=1e-2).fit(X, y)
    assert model.converged_
    assert model.history_[0].dual >= dual * (1 - 1e-9)


def test_planes_are_capped(watched: list[Any]) -> None:
    X, y = chains(11, 15)
    model = chain_model({"max_planes": 4, "patience": 1}, C=10.0, tol=0.05).fit(X, y)
    assert model.converged_
    assert all(solver.ws.capacity.max() <= 4 for *_, solver in watched)
    free = chain_model({}, C=10.0, tol=1e-4).fit(X, y)
    assert watched[-1][-1].ws.capacity.max() > 4
    assert model.primal_objective_ == pytest.approx(free.primal_objective_, rel=0.06)


# Draws -------------------------------------------------------------------------------------------


def test_draws_follow_the_gaps(watched: list[Any]) -> None:
    X, y = chains(12, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        chain_model({"sampling": "gap", "refresh": 4}, max_iter=1, tol=1e-9).fit(X, y)
    solver = watched[0][-1]
    counts = np.zeros(40)
    solver.gaps[:] = 1.0
    solver.gaps[:10] = 0.0
    solver.gaps[10:20] = 5.0
    for clock in range(2, 200):
        solver.clock = clock
        whole = (clock - 1) % 4 == 0
        for part in solver._draws():
            assert len(np.unique(part)) == len(part)
            counts[part] += not whole
            if whole:  # nobody is left out
                assert len(part) == 40
    assert not counts[:10].any()
    assert counts[10:20].mean() > 2 * counts[20:].mean()
    solver.gaps[:] = 0.0
    solver.clock = 2
    assert sum(map(len, solver._draws())) == 0


# Options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"step": "plain"}, "'step', which solver='bcfw' does not know"),
        ({"steps": "sideways"}, "'sideways' is not known; choose one of 'plain', 'away'"),
        ({"sampling": 1}, "choose one of 'permutation', 'gap', 'uniform'"),
        ({"averaging": None}, "choose one of 'recent', 'all', 'none'"),
        ({"refresh": 3}, "'refresh', which"),
        ({"refresh": 3, "sampling": "uniform"}, "'refresh', which"),
        ({"steps": "plain", "inner_steps": 3}, "'inner_steps', which"),
        ({"steps": "plain", "cached_passes": 0, "block": 3}, "'block', which"),
        ({"steps": "plain", "max_planes": 3}, "'max_planes', which"),
        ({"steps": "plain", "cached_passes": 2, "patience": 3}, "'patience', which"),
        ({"averaging": "all", "max_planes": 3}, "'max_planes', which"),
        ({"inner_steps": 0}, "must be positive"),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        chain_model(options).fit(*chains())


def test_every_other_combination_is_taken() -> None:
    X, y = chains(13, 6)
    for steps, sampling, averaging, passes in itertools.product(
        ("pairwise", "away", "plain"),
        ("permutation", "gap", "uniform"),
        ("recent", "all", "none"),
        (0, 1, None),
    ):
        mode = {
            "steps": steps,
            "sampling": sampling,
            "averaging": averaging,
            "cached_passes": passes,
        }
        assert chain_model(mode, C=0.1, tol=0.05).fit(X, y).converged_


def test_formulations_it_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'bcfw' needs a finite C, because it steps.*'sdm'"):
        chain_model({}, C=np.inf).fit(*chains())
    for slack in ("squared", "sum"):
        with pytest.raises(ValueError, match=f"'bcfw' does not solve slack='{slack}'"):
            chain_model({}, slack=slack).fit(*chains())


@pytest.mark.parametrize(
    ("steps", "count", "C"),
    [
        ("pairwise", 8, 1e4),
        ("pairwise", 40, 1e6),
        slow("pairwise", 150, 1e4),
        *(slow("away", *case) for case in ((8, 1e4), (40, 1e6), (150, 1e4))),
    ],
)
def test_large_costs_do_not_crawl(steps: str, count: int, C: float) -> None:
    """Steps of single examples alone keep a gap of 20 % and more."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(5, L))
    X = [rng.normal(size=(8, 5)) for _ in range(count)]
    y = [np.argmax(x @ truth + 1.5 * rng.normal(size=(8, L)), axis=1) for x in X]
    assert chain_model({"steps": steps}, C=C, max_iter=60).fit(X, y).converged_
    alone = {"steps": steps, "cg_steps": 0, "newton_weights": 0}
    with pytest.warns(ConvergenceWarning):
        left = chain_model(alone, C=C, max_iter=60).fit(X, y)
    assert left.duality_gap_ > 0.2 * left.primal_objective_
