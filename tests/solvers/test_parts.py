"""Parts of outputs as blocks of their own: the same problem, the same optimum, fewer passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from hingeline import ChainSSVM
from hingeline.core.blocks import add_planes
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Workers, plane_add, plane_loss, plane_score
from hingeline.solvers import parts
from hingeline.solvers.parts import SDMInParts
from hingeline.structures import chain

# isort: split
from marks import slow
from reference import EnumeratedProblem, primal, solve

L, D = 3, 4


def make_chains(seed: int, lengths: Any, noise: float = 1.0) -> Any:
    """Sequences whose labels are hard to tell, so that several stretches of each have mass."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for T in lengths:
        y = rng.integers(L, size=T)
        x = noise * rng.normal(size=(T, D))
        x[np.arange(T), y] += 1.0
        X.append(x)
        Y.append(y)
    return X, Y


def compile_chains(seed: int, lengths: Any) -> Any:
    X, Y = make_chains(seed, lengths)
    rows = np.concatenate(X)
    problem = chain.make_problem(
        *(np.arange(0, rows.size + 1, D), np.tile(np.arange(D), len(rows)), rows.ravel()),
        *(np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(Y), D, 1.0 - np.eye(L), True),
    )
    return chain.compile_problem(problem)


def test_an_output_is_the_sum_of_its_stretches() -> None:
    compiled = compile_chains(0, [1, 9, 40])
    problem, rng = compiled.problem, np.random.default_rng(1)
    w = rng.normal(size=compiled.n_weights)
    for i, (lo, hi) in enumerate(zip(problem.offsets[:-1], problem.offsets[1:], strict=True)):
        gold = problem.labels[lo:hi]
        for share in (0.2, 0.7, 1.0):
            y = np.where(rng.random(hi - lo) < share, rng.integers(L, size=hi - lo), gold)
            y = y.astype(np.int32)
            wrong = np.concatenate([[False], y != gold, [False]])
            edges = np.flatnonzero(wrong[1:] != wrong[:-1])
            whole = parts.whole_examples(compiled)
            placed, lengths = parts.place_parts(whole, lo + edges[::2], lo + edges[1::2])
            posed = chain.stretch(problem, placed.shown)
            score = loss = 0.0
            added, expected = np.zeros_like(w), np.zeros_like(w)
            for k, shown in enumerate(placed.shown - lo):
                piece = gold.copy()
                piece[edges[2 * k] : edges[2 * k + 1]] = y[edges[2 * k] : edges[2 * k + 1]]
                piece = piece[shown : shown + lengths[k]]
                score += plane_score(posed, k, piece, w)
                loss += plane_loss(posed, k, piece)
                plane_add(posed, k, piece, 1.0, added)
            plane_add(problem, i, y, 1.0, expected)
            assert score == pytest.approx(plane_score(problem, i, y, w), abs=1e-12)
            assert loss == plane_loss(problem, i, y)
            np.testing.assert_allclose(added, expected, atol=1e-12)


def test_pieces_are_short_and_one_place_apart() -> None:
    lengths = [1, 30, 31, 61, 62, 500]
    whole = parts.whole_examples(compile_chains(0, lengths))
    start, stop = parts.cut_into_pieces(whole)
    assert (stop > start).all()
    assert (stop - start).max() == parts.FIRST_LENGTH
    placed, _ = parts.place_parts(whole, start, stop)
    np.testing.assert_array_equal(start[placed.first[:-1]], whole.start)
    np.testing.assert_array_equal(stop[placed.first[1:] - 1], whole.stop)
    inside = placed.owner[1:] == placed.owner[:-1]
    np.testing.assert_array_equal(start[1:] - stop[:-1], inside)


def rebuilt(solver: Any) -> tuple[Any, float]:
    """Weights and linear part of the dual from the planes as they are."""
    w = np.zeros_like(solver.w)
    solver.add(solver.ws.alpha, 1.0, w)
    return w, solver.linear()


def overlaps(parts: Any, others: Any) -> Any:
    """With how many others each part overlaps."""
    first = np.searchsorted(others.stop, parts.start, "right")
    return np.searchsorted(others.start, parts.stop) - first


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_regrouping_changes_neither_weights_nor_dual(C: float, monkeypatch: Any) -> None:
    form = make_formulation(C, "max", "margin", np.array([1.0, 2.0, 0.5, 1.0, 0.0]))
    counts = {"joined": 0, "split": 0, "kept": 0}
    regroup = SDMInParts.make_room

    def watch(solver: Any) -> None:
        w, linear = rebuilt(solver)
        average = solver.candidate()
        old = solver.parts
        regroup(solver)
        after, linear_after = rebuilt(solver)
        np.testing.assert_allclose(after, w, rtol=1e-9, atol=1e-9 * C)
        np.testing.assert_allclose(solver.candidate(), average, rtol=1e-9, atol=1e-9 * C)
        assert linear_after == pytest.approx(linear, rel=1e-12)
        new = solver.parts
        if len(new.start) > 1:
            same_owner = new.owner[1:] == new.owner[:-1]
            assert (new.start[1:] - new.stop[:-1] >= same_owner).all()
        sums = np.add.reduceat(solver.ws.alpha, solver.ws.slot) if len(new.start) else np.zeros(0)
        assert (sums <= form.cap[new.owner] * (1 + 1e-12)).all()
        counts["joined"] += int((overlaps(new, old) > 1).sum())
        counts["split"] += int((overlaps(old, new) > 1).sum())
        ranges = ({(a, b) for a, b in zip(p.start, p.stop, strict=True)} for p in (old, new))
        counts["kept"] += len(set.intersection(*ranges))

    monkeypatch.setattr(SDMInParts, "make_room", watch)
    monkeypatch.setattr(parts, "FIRST_LENGTH", 4)
    monkeypatch.setattr(parts, "FIRST_PASSES", 2)
    monkeypatch.setattr(parts, "TANGLED", np.inf)  # join them after these passes
    for seed in (2, 4, 5, 6):  # where parts split depends on rounding, and so on the machine
        compiled = compile_chains(seed, [60, 1, 35, 2, 80])
        with Workers(1, compiled.scratch_size) as workers:
            solver = SDMInParts(compiled, form, workers, 0, {})
            for _ in range(12):
                solver.sweep()
                solver.certify()
                # The same mass on whole outputs: feasible, and with the same weights and dual.
                whole = solver.memory().join(compiled, form)
                sums = np.add.reduceat(whole.alpha, whole.slot)
                assert (sums <= form.cap * (1 + 1e-12)).all()
                w = np.zeros_like(solver.w)
                add_planes(compiled.problem, whole, whole.alpha, 1.0, w)
                np.testing.assert_allclose(w, solver.w, rtol=1e-9, atol=1e-9 * C)
                assert whole.alpha @ whole.offset == pytest.approx(solver.linear(), rel=1e-12)
                assert solver.dual() <= solver.best()[1] * (1 + 1e-12)
    assert counts["joined"] > 0
    assert counts["kept"] > 0
    assert counts["split"] > 0 or C != 1.0


COSTS = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 0.0], [3.0, 0.25, 0.0]])


@pytest.mark.parametrize(
    ("boundary", "costs"), [(True, None), (False, COSTS), slow(True, COSTS), slow(False, None)]
)
@pytest.mark.parametrize("C", [1e-3, 0.3, slow(5.0), 1e3])
@pytest.mark.parametrize("cut", [2, 10])
def test_the_optimum_is_that_of_a_quadratic_program(
    C: float, costs: Any, boundary: bool, cut: int, monkeypatch: Any
) -> None:
    """Cutting what is found in the first passes holds nothing up for good."""
    monkeypatch.setattr(parts, "FIRST_LENGTH", cut)
    X, Y = make_chains(3, [6, 1, 5, 6, 2, 6])
    weights = np.array([1.0, 0.5, 2.0, 0.0, 1.0, 0.3])
    problem = EnumeratedProblem.from_chains(X, Y, L, boundary=boundary, costs=costs)
    best = solve(problem, C, "max", "margin", weights).objective
    model = ChainSSVM(C, loss="hamming" if costs is None else costs, tol=1e-7, max_iter=3000)
    model.set_params(random_state=0, fit_intercept=False, boundary=boundary)
    model.fit(X, Y, sample_weight=weights)
    assert model.converged_
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    assert model.dual_objective_ <= best * (1 + 1e-9)
    blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
    if boundary:
        blocks += [model.start_coef_, model.end_coef_]
    true = primal(problem, np.concatenate(blocks), C, "max", "margin", weights)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    X, Y = make_chains(4, [50, 3, 120, 1, 40, 70, 20, 90, 10, 30] * 8)
    one, two = (
        ChainSSVM(1.0, tol=1e-3, random_state=0, n_jobs=n, solver_options={"block": 16}).fit(X, Y)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.weights_, two.weights_)
    assert one.history_[-1].planes == two.history_[-1].planes


def test_long_sequences_take_few_more_passes_than_short_ones() -> None:
    X, Y = make_chains(5, [12] * 120, noise=0.8)
    joined = [np.concatenate(X[i : i + 40]) for i in range(0, 120, 40)]
    labels = [np.concatenate(Y[i : i + 40]) for i in range(0, 120, 40)]
    short = ChainSSVM(1.0, tol=1e-2, random_state=0).fit(X, Y)
    long = ChainSSVM(1.0, tol=1e-2, random_state=0).fit(joined, labels)
    assert short.converged_
    assert long.converged_
    assert long.n_iter_ <= 2 * short.n_iter_


def test_a_very_long_sequence_stays_in_pieces_while_most_is_wrong(monkeypatch: Any) -> None:
    """Joined at once, its pieces were one part with all their planes, each thousands long."""
    rng = np.random.default_rng(0)
    words, kinds = rng.integers(500, size=3000), rng.integers(L, size=500)
    X, y = [[f"w{word}" for word in words]], [kinds[words].tolist()]
    longest: dict[int, int] = {}

    def note(self: Any) -> None:
        make_room(self)
        longest[self.clock] = int(self.ws.length.max())

    make_room = SDMInParts.make_room
    monkeypatch.setattr(SDMInParts, "make_room", note)
    model = ChainSSVM(random_state=0, max_iter=200).fit(X, y)
    assert model.converged_
    assert max(longest[k] for k in range(1, 9)) <= parts.FIRST_LENGTH + 2
    assert max(longest.values()) > parts.FIRST_LENGTH + 2  # they are joined in the end
    monkeypatch.setattr(parts, "TANGLED", np.inf)  # joined after the first passes
    other = ChainSSVM(random_state=0, max_iter=200).fit(X, y)
    assert longest[8] > 300
    assert model.dual_objective_ <= other.primal_objective_
    assert other.dual_objective_ <= model.primal_objective_


def test_pieces_that_fall_apart_are_not_held_together() -> None:
    """A piece with several parts of its own shares them with no other piece."""
    rng = np.random.default_rng(0)
    often = 1.0 / np.arange(1, 1001)
    kind = rng.integers(8, size=1000)
    words = rng.choice(1000, size=(200, 15), p=often / often.sum())
    wrong = rng.random(words.shape) < 0.05
    labels = np.where(wrong, rng.integers(8, size=words.shape), kind[words])

    def fit(together: int) -> ChainSSVM:
        rows = [part.reshape(-1, 15 * together) for part in (words, labels)]
        X = [[f"w{word}" for word in row] for row in rows[0]]
        return ChainSSVM(0.1, random_state=0).fit(X, rows[1].tolist())

    short, long = fit(1), fit(100)
    assert long.converged_
    assert long.n_iter_ <= 2 * short.n_iter_


def test_pieces_are_joined_once_they_bring_little() -> None:
    """Solved to the end, they left the dual some per cent too low until pass 50."""
    model = ChainSSVM(1.0, random_state=0).fit(*make_chains(8, [130] * 20, noise=1.5))
    assert model.converged_
    assert model.n_iter_ <= 32


def test_pieces_forget_what_a_certificate_found(monkeypatch: Any) -> None:
    """A run that is taken up again does not know it: both must choose the same parts."""
    rng = np.random.default_rng(0)
    X, y = [rng.integers(99, size=(300, 1)).astype(str).tolist()], [rng.integers(L, size=300)]
    kept: list[bool] = []

    def note(self: Any) -> None:
        find_violations(self)
        if self.early:
            kept.append(bool((self.parts.found != self.parts.gold).any()))

    find_violations = SDMInParts._find_violations
    monkeypatch.setattr(SDMInParts, "_find_violations", note)
    ChainSSVM(random_state=0, max_iter=5).fit(X, y)
    assert kept
    assert not any(kept)


def test_a_path_goes_on_from_parts_and_from_whole_outputs() -> None:
    X, Y = make_chains(6, [12] * 6)
    cold = ChainSSVM(1.0, tol=1e-6, random_state=0).fit(X, Y)
    warm, other = (
        ChainSSVM(0.9, tol=1e-6, random_state=0, warm_start=True).fit(X, Y) for _ in range(2)
    )
    warm.set_params(C=1.0).fit(X, Y)
    assert warm.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-6)
    assert warm.n_iter_ < cold.n_iter_
    other._dual.planes()  # joined, as streams and model files keep them
    other.set_params(C=1.0).fit(X, Y)
    assert other.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-6)
    assert other.n_iter_ < cold.n_iter_
    bcfw = ChainSSVM(0.9, tol=1e-6, random_state=0, warm_start=True).fit(X, Y)
    bcfw.set_params(C=1.0, solver="bcfw", tol=1e-3).fit(X, Y)
    assert bcfw.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-3)


@pytest.mark.parametrize(
    ("change", "offered"),
    [
        ({}, True),
        ({"loss": "zero_one"}, False),
        ({"rescale": "slack"}, False),
        ({"slack": "squared"}, False),
        ({"C": np.inf}, False),
        ({"solver": "bcfw"}, False),
    ],
)
def test_parts_are_for_what_falls_apart(change: dict[str, Any], offered: bool) -> None:
    X, Y = make_chains(7, [4] * 5)
    model = ChainSSVM(**change)
    model.classes_, model.scheme_ = np.arange(L), None
    rows = sparse.csr_matrix(np.concatenate(X))
    problem = model._make(rows, np.arange(0, rows.shape[0] + 1, 4), np.concatenate(Y))
    found = model._solver_class(model._compile(problem))
    assert found.in_parts == offered
