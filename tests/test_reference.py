"""The reference itself: closed forms, a second solver, duality, KKT."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

# isort: split
import naive
from naive import Floats
from reference import (
    GAP,
    EnumeratedProblem,
    Rescale,
    Slack,
    dual,
    dual_weights,
    primal,
    random_chains,
    random_multiclass,
    relative_gap,
    solve,
)

quadprog = pytest.importorskip("quadprog")

SLACKS: list[Slack] = ["max", "squared"]
RESCALES: list[Rescale] = ["margin", "slack"]
FORMULATIONS = list(itertools.product(SLACKS, RESCALES))


def make(kind: str, seed: int, separable: bool = False) -> EnumeratedProblem:
    rng = np.random.default_rng(seed)
    if kind == "multiclass":
        X, y = random_multiclass(rng, 12, 4, 4, separable)
        return EnumeratedProblem.from_multiclass(
            X, y, 4, rng.uniform(0.5, 2, (4, 4)) * ~np.eye(4, dtype=bool)
        )
    xs, ys = random_chains(rng, 6, 3, 3, 4, separable)
    return EnumeratedProblem.from_chains(xs, ys, 3, boundary=kind == "boundary")


KINDS = ["multiclass", "chain", "boundary"]


def weights_of(problem: EnumeratedProblem, weighted: bool) -> Floats | None:
    if not weighted:
        return None
    s = np.random.default_rng(7).uniform(0.2, 3, problem.n_examples)
    s[1] = 0.0
    return s


def quadprog_solve(
    problem: EnumeratedProblem, C: float, slack: str, rescale: str, s: Floats | None
) -> tuple[float, Floats]:
    """(P*, w*) by the active-set solver on the primal, written from dF and the losses directly.

    The max slack has no curvature in xi: proximal steps, which leave the optimum as it is.
    """
    n, d = problem.n_examples, problem.n_features
    s = np.ones(n) if s is None else s
    rows, rights = [], []
    for i in range(n):
        if s[i] == 0:
            continue
        for dF, loss in zip(problem.dF[i], problem.losses[i], strict=True):
            right = loss**0.5 if slack == "squared" else loss
            row = np.zeros(d + n)
            row[:d] = right * dF if rescale == "slack" else dF
            row[d + i] = 0.0 if np.isinf(C) else 1.0
            rows.append(row)
            rights.append(right)
    if slack == "max":  # xi >= 0
        rows += list(np.eye(d + n)[d:])
        rights += [0.0] * n
    cost = np.where(s > 0, s, 1.0) * (1.0 if np.isinf(C) else C)
    proximity = 1e-3 * C if slack == "max" and np.isfinite(C) else 0.0
    hessian = np.diag(np.r_[np.ones(d), cost if proximity == 0 else np.full(n, proximity)])
    xi = np.zeros(n)
    for _ in range(200):
        linear = np.r_[np.zeros(d), proximity * xi - cost if proximity else np.zeros(n)]
        x = quadprog.solve_qp(hessian, linear, np.array(rows).T, np.array(rights))[0]
        moved = float(np.abs(x[d:] - xi).max())
        xi = x[d:]
        if proximity == 0 or moved < 1e-12:
            break
    w = x[:d]
    value = 0.5 * float(w @ w)
    if np.isfinite(C):
        value += C * float(s @ (xi if slack == "max" else 0.5 * xi**2))
    return value, w


# --- closed forms ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slack", "rescale", "C", "cost", "objective", "alpha"),
    [
        # one example x = 1, true class 0 of 2: dF = (1, -1), |dF|^2 = 2
        ("max", "margin", 0.25, 1, 0.25 - 0.25**2, 0.25),  # D = a - a^2, a <= C
        ("max", "margin", 3.0, 1, 0.25, 0.5),
        ("squared", "margin", 1.0, 1, 1 / 6, 1 / 3),  # D = a - a^2 - a^2/(2C)
        ("max", "margin", 1.0, 4, 3.0, 1.0),  # D = 4a - a^2
        ("max", "margin", 5.0, 4, 4.0, 2.0),
        ("max", "slack", 1 / 16, 4, 0.1875, 1 / 16),  # g = 4 dF: D = 4a - 16a^2
        ("max", "slack", 5.0, 4, 0.25, 1 / 8),
        ("squared", "margin", 1.0, 4, 2 / 3, 2 / 3),  # b = 2: D = 2a - a^2 - a^2/(2C)
        ("squared", "slack", 1.0, 4, 2 / 9, 2 / 9),  # g = 2 dF: D = 2a - 4a^2 - a^2/(2C)
        ("max", "margin", np.inf, 4, 4.0, 2.0),  # w.dF >= 4
        ("max", "slack", np.inf, 4, 0.25, 1 / 8),  # w.dF >= 1
        ("squared", "margin", np.inf, 4, 1.0, 1.0),  # w.dF >= 2
        ("squared", "slack", np.inf, 4, 0.25, 1 / 4),
    ],
)
def test_one_plane(
    slack: Slack, rescale: Rescale, C: float, cost: float, objective: float, alpha: float
) -> None:
    problem = EnumeratedProblem.from_multiclass([[1.0]], [0], 2, np.array([[0, cost], [1, 0]]))
    solution = solve(problem, C, slack, rescale)
    assert solution.objective == pytest.approx(objective, rel=1e-9)
    assert solution.alpha[0] == pytest.approx([alpha], rel=1e-5)
    scale = {"max": cost, "squared": cost**0.5}[slack] if rescale == "slack" else 1.0
    assert solution.w == pytest.approx([alpha * scale, -alpha * scale], rel=1e-5)
    if np.isfinite(C):  # a sample weight is a factor of C
        weighted = solve(problem, C / 2, slack, rescale, [2.0])
        assert weighted.objective == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize(("C", "objective"), [(0.5, 5 / 16), (1.0, 1 / 3), (np.inf, 1 / 3)])
def test_two_planes_share_one_bound(C: float, objective: float) -> None:
    # x = 1, class 0 of 3: both planes carry a, D = 2a - 3a^2 under 2a <= C
    solution = solve(EnumeratedProblem.from_multiclass([[1.0]], [0], 3), C)
    a = min(1 / 3, C / 2)
    assert solution.objective == pytest.approx(objective, rel=1e-9)
    assert solution.w == pytest.approx([2 * a, -a, -a], rel=1e-5)


@pytest.mark.parametrize(("C", "objective", "a"), [(0.5, 0.75, 0.5), (2.0, 1.0, 1.0)])
def test_chain_of_transitions(C: float, objective: float, a: float) -> None:
    # no emissions, y = (0, 1): only (1, 0), of loss 2, carries mass; D = 2a - a^2
    problem = EnumeratedProblem.from_chains([np.zeros((2, 1))], [[0, 1]], 2, boundary=False)
    solution = solve(problem, C)
    assert solution.objective == pytest.approx(objective, rel=1e-9)
    assert solution.w == pytest.approx([0, 0, 0, a, -a, 0], abs=1e-5)
    assert problem.outputs[0] == [(0, 0), (1, 0), (1, 1)]
    assert solution.alpha[0] == pytest.approx([0, a, 0], abs=1e-5)


# --- duality, KKT, a second solver -------------------------------------------------------------


@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0, np.inf])
def test_optimality(kind: str, slack: Slack, rescale: Rescale, weighted: bool, C: float) -> None:
    problem = make(kind, seed=3, separable=np.isinf(C))
    s = weights_of(problem, weighted)
    objective, w, alpha = solve(problem, C, slack, rescale, s)
    assert -1e-12 <= relative_gap(problem, alpha, C, slack, rescale, s) <= GAP
    assert objective == primal(problem, w, C, slack, rescale, s)
    assert np.array_equal(w, dual_weights(problem, alpha, slack, rescale))

    value, w_other = quadprog_solve(problem, C, slack, rescale, s)
    assert objective == pytest.approx(value, rel=1e-8)
    assert np.allclose(w, w_other, rtol=1e-4, atol=1e-4 * np.abs(w).max())

    tolerance = 1e-4 * max(1.0, float(np.abs(w).max()))
    for i in range(problem.n_examples):
        b = problem.losses[i] ** (0.5 if slack == "squared" else 1.0)
        g = problem.dF[i] * (b[:, None] if rescale == "slack" else 1.0)
        upper = C * s[i] if s is not None and s[i] > 0 else (C if s is None else 0.0)
        h, total = b - g @ w, float(alpha[i].sum())
        xi = max(0.0, float(h.max()))
        assert (alpha[i] >= 0).all()
        if upper == 0:
            assert total == 0
            continue
        if np.isinf(C):
            assert xi <= tolerance
        elif slack == "squared":
            assert total == pytest.approx(upper * xi, rel=1e-4, abs=1e-6 * upper)
        else:
            assert total <= upper * (1 + 1e-9)
            assert xi <= tolerance or total == pytest.approx(upper, rel=1e-4)
        carries = alpha[i] > 1e-4 * max(1e-300, *np.concatenate(alpha))
        assert np.allclose(h[carries], 0.0 if np.isinf(C) else xi, atol=tolerance)


@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
def test_weak_duality_anywhere(slack: Slack, rescale: Rescale) -> None:
    rng = np.random.default_rng(0)
    problem = make("chain", seed=1)
    best = solve(problem, 1.0, slack, rescale).objective
    for _ in range(20):
        w = rng.normal(size=problem.n_features)
        alpha = [rng.dirichlet(np.ones(len(b))) * rng.random() for b in problem.losses]
        low = dual(problem, alpha, 1.0, slack, rescale)
        assert low < best < primal(problem, w, 1.0, slack, rescale)
    alpha[0] = alpha[0] + 1.0  # the sum passes C, which only max forbids
    assert (dual(problem, alpha, 1.0, slack, rescale) == -np.inf) == (slack == "max")
    alpha[0][0] = -0.1
    assert dual(problem, alpha, 1.0, slack, rescale) == -np.inf


@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
def test_weights_are_repetitions(slack: Slack, rescale: Rescale) -> None:
    X, y = random_multiclass(np.random.default_rng(5), 10, 3, 3)
    counts = np.array([1, 2, 0, 3, 1, 1, 0, 2, 1, 1])
    cost = np.array([[0, 1, 2], [3, 0, 1], [1, 0.5, 0]])
    repeated = EnumeratedProblem.from_multiclass(X.repeat(counts, 0), y.repeat(counts), 3, cost)
    weighted = EnumeratedProblem.from_multiclass(X, y, 3, cost)
    expected = solve(repeated, 0.7, slack, rescale).objective
    assert solve(weighted, 0.7, slack, rescale, counts).objective == pytest.approx(
        expected, rel=1e-9
    )


def test_liblinear_agrees() -> None:
    svm = pytest.importorskip("sklearn.svm")
    X, y = random_multiclass(np.random.default_rng(2), 30, 4, 3)
    problem = EnumeratedProblem.from_multiclass(X, y, 3)
    model = svm.LinearSVC(
        C=0.5, multi_class="crammer_singer", fit_intercept=False, tol=1e-9, max_iter=100_000
    ).fit(X, y)
    objective = solve(problem, 0.5).objective
    assert 0 <= primal(problem, model.coef_.T.ravel(), 0.5) - objective <= 1e-6 * objective


# --- hard margin, edges ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_hard_margin_is_the_limit(kind: str) -> None:
    problem = make(kind, seed=4, separable=True)
    hard = solve(problem, np.inf)
    enough = 2 * max(float(a.sum()) for a in hard.alpha)
    assert solve(problem, enough).objective == pytest.approx(hard.objective, rel=1e-9)
    assert primal(problem, hard.w, np.inf) == hard.objective
    assert primal(problem, 0.99 * hard.w, np.inf) == np.inf
    assert primal(problem, 0.99 * hard.w, np.inf, tol=1.0) < hard.objective


@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
def test_inseparable_is_refused(slack: Slack, rescale: Rescale) -> None:
    problem = EnumeratedProblem.from_multiclass([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], [0, 1, 1], 2)
    with pytest.raises(ValueError, match="not separable"):
        solve(problem, np.inf, slack, rescale)
    without = solve(problem, np.inf, slack, rescale, [1.0, 0, 1])  # the culprit is absent
    assert np.isfinite(without.objective)
    with pytest.raises(ValueError, match="not separable"):  # equal features, positive loss
        solve(EnumeratedProblem.from_multiclass([[0.0]], [0], 2), np.inf, slack, rescale)


def test_nothing_to_learn() -> None:
    for C in (1.0, np.inf):
        free = EnumeratedProblem.from_multiclass([[1.0]], [0], 2, np.zeros((2, 2)))
        assert solve(free, C).objective == 0
        single = EnumeratedProblem.from_chains([np.ones((2, 1)), np.ones((0, 1))], [[0, 0], []], 1)
        assert solve(single, C).objective == 0
    for bad in ({"C": 0.0}, {"C": 1.0, "sample_weight": [-1.0]}, {"C": 1.0, "slack": "sum"}):
        with pytest.raises(ValueError, match=r"need C|unknown slack"):
            solve(free, **bad)
    with pytest.raises(ValueError, match="zero at the truth"):
        EnumeratedProblem.from_multiclass([[1.0]], [0], 2, np.ones((2, 2)))


# --- the naive twins ---------------------------------------------------------------------------


def test_layouts_and_losses_by_hand() -> None:
    assert naive.multiclass_joint_feature([5, 7], 1, 3).tolist() == [0, 5, 0, 0, 7, 0]
    x = [[1, 10], [2, 20], [4, 40]]
    flat = naive.chain_joint_feature(x, [0, 1, 1], 2, boundary=True)
    assert flat.tolist() == [1, 6, 10, 60, 0, 1, 0, 1, 1, 0, 0, 1]
    assert naive.chain_joint_feature(x, [0, 1, 1], 2, boundary=False).tolist() == flat[:8].tolist()
    assert naive.hamming([0, 1, 2], [0, 2, 1]) == 2
    assert naive.hamming([0, 1, 2], [1, 1, 0], [3, 5, 7]) == 10
    assert naive.hamming([0, 1], [1, 0], [[0, 2], [9, 0]]) == 11
    assert naive.enumerate_outputs(2, 2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert naive.brute_force_multiclass([1.0], [1, 3, 2], 1, 4.0, 3) == (6.0, 2)


@pytest.mark.parametrize("boundary", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_viterbi_is_brute_force(seed: int, boundary: bool) -> None:
    rng = np.random.default_rng(seed)
    length, L, d = int(rng.integers(1, 5)), int(rng.integers(1, 4)), 2
    x, w = rng.normal(size=(length, d)), rng.normal(size=naive.chain_size(d, L, boundary))
    y = rng.integers(L, size=length)
    for costs in (None, rng.random(L), rng.random((L, L))):
        value, best = naive.brute_force_decode(x, w, y, 0.7, L, boundary, costs)
        found, path = naive.naive_viterbi(x, w, L, boundary, y, 0.7, costs)
        assert found == pytest.approx(value)
        assert path == best
    by_loss = naive.brute_force_by_loss(x, w, y, L, boundary)
    value, _ = naive.brute_force_decode(x, w, y, 0.7, L, boundary)
    assert max(0.7 * loss + score for loss, score in by_loss.items()) == pytest.approx(value)
    assert set(by_loss) == set(range(length + 1 if L > 1 else 1))


def test_generic_constructor_is_the_chain_one() -> None:
    X, Y = random_chains(np.random.default_rng(1), 3, 2, 2, 3)
    chains = EnumeratedProblem.from_chains(X, Y, 2)
    generic = EnumeratedProblem.from_callables(
        X,
        Y,
        [naive.enumerate_outputs(len(y), 2) for y in Y],
        lambda x, y: naive.chain_joint_feature(x, y, 2, True),
        lambda y_true, y: sum(int(a != b) for a, b in zip(y_true, y, strict=True)),
    )
    for i in range(3):
        assert np.array_equal(chains.dF[i], generic.dF[i])
        assert np.array_equal(chains.losses[i], generic.losses[i])
        assert len(chains.outputs[i]) == 2 ** len(Y[i]) - 1
