"""The dual state: planes, Gram blocks, eviction and growth, and what solvers keep true of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hingeline._jit import kernel
from hingeline.core import blocks as working_set
from hingeline.core.blocks import (
    FIRST_CAPACITY,
    FREE_SLOTS_ONLY,
    KEEP,
    WorkingSet,
    empty_working_set,
    make_room,
)
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import PART, SCRATCH, Workers
from hingeline.solvers.enumerated import EnumeratedSDM, choose_worth
from hingeline.solvers.fsmo import FSMO
from hingeline.solvers.sdm import SDM
from hingeline.structures import chain, multiclass

# isort: split
from naive import (
    chain_joint_feature,
    enumerate_outputs,
    hamming,
    multiclass_joint_feature,
    random_chains,
    random_multiclass,
)

L, D, N = 3, 4, 12
FORMULATIONS = [(s, r) for s in ("max", "squared") for r in ("margin", "slack")]
SETTINGS = [(1.0, *f) for f in FORMULATIONS] + [(np.inf, "max", r) for r in ("margin", "slack")]
PATIENT = 10**6


@kernel
def insert(problem, form, ws, i, y, clock, patience, scratch):
    return working_set.insert(problem, form, ws, i, y, clock, patience, scratch)


@kernel
def find(ws, i, y):
    return working_set.find(ws, i, y)


INSERT = {"compiled": insert, "python": working_set.insert}
FIND = {"compiled": find, "python": working_set.find}


class Chains:
    """A small chain problem, and its planes by naive joint features."""

    def __init__(self, seed: int, separable: bool) -> None:
        rng = np.random.default_rng(seed)
        self.X, self.Y = random_chains(rng, N, D, L, 4, separable)
        rows = sparse.csr_array(np.concatenate(self.X))
        lengths = [len(y) for y in self.Y]
        self.problem = chain.make_problem(
            rows.indptr,
            rows.indices,
            rows.data,
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate(self.Y),
            D,
            1.0 - np.eye(L),
            True,
        )
        self.compiled = chain.compile_problem(self.problem)

    def outputs(self, i: int) -> Any:
        """All wrong outputs of example i."""
        every = np.array(enumerate_outputs(len(self.Y[i]), L), dtype=np.int32)
        return every[(every != self.Y[i]).any(axis=1)]

    def difference(self, i: int, y: Any) -> Any:
        """``Δf`` in the problem's padded layout."""
        flat = chain_joint_feature(self.X[i], self.Y[i], L, True)
        flat -= chain_joint_feature(self.X[i], y, L, True)
        return np.pad(flat.reshape(-1, L), ((0, 0), (0, self.problem.stride - L))).ravel()

    def loss(self, i: int, y: Any) -> float:
        return hamming(self.Y[i], y)


@pytest.fixture(scope="module")
def chains() -> Chains:
    return Chains(0, separable=False)


@pytest.fixture(scope="module")
def separable() -> Chains:
    return Chains(1, separable=True)


def formulation(C: float = 1.0, slack: str = "max", rescale: str = "margin", n: int = N) -> Any:
    return make_formulation(C, slack, rescale, np.ones(n))


def plane_numbers(loss: float, slack: str, rescale: str) -> tuple[float, float]:
    """(a, b) of a plane."""
    b = loss**0.5 if slack == "squared" else loss
    return (b if rescale == "slack" else 1.0), b


def outputs_of(ws: WorkingSet, i: int) -> Any:
    at, length = ws.y_start[i], ws.length[i]
    return ws.y[at : at + ws.used[i] * length].reshape(-1, length)


def gram_of(ws: WorkingSet, i: int) -> Any:
    at, room, m = ws.gram_start[i], ws.capacity[i], ws.used[i]
    return ws.gram[at : at + room * room].reshape(room, room)[:m, :m]


def check_planes(data: Any, ws: WorkingSet, slack: str = "max", rescale: str = "margin") -> None:
    """Every plane's numbers and the whole Gram block, from naive joint features."""
    for i in range(len(ws.used)):
        ys, s = outputs_of(ws, i), ws.slot[i]
        assert len({tuple(y) for y in ys}) == len(ys)
        scaled = []
        for j, y in enumerate(ys):
            a, b = plane_numbers(data.loss(i, y), slack, rescale)
            difference = data.difference(i, y)
            assert ws.scale[s + j] == pytest.approx(a, rel=1e-12)
            assert ws.offset[s + j] == pytest.approx(b, rel=1e-12)
            assert ws.sqnorm[s + j] == pytest.approx(difference @ difference, rel=1e-5)
            scaled.append(a * difference)
        if len(ys):
            expected = np.array(scaled) @ np.array(scaled).T
            np.testing.assert_allclose(gram_of(ws, i), expected, atol=1e-5 * expected.max())


def fill(data: Any, form: Any, ws: WorkingSet, i: int, ys: Any, clock: int = 1) -> list[int]:
    scratch = np.zeros(data.compiled.scratch_size)
    return [insert(data.problem, form, ws, i, y, clock, PATIENT, scratch) for y in ys]


def copied(ws: WorkingSet) -> WorkingSet:
    return WorkingSet(*(field.copy() for field in ws))


def longest(data: Any) -> int:
    return int(np.argmax(data.compiled.lengths))


# Layout -----------------------------------------------------------------------------------------


def test_an_empty_working_set_has_room_of_its_own_for_every_example():
    lengths, room = np.array([3, 1, 2]), np.array([4, 2, 8])
    ws = empty_working_set(lengths, room)
    assert ws.n_planes == 0
    for start, sizes, pool in [
        (ws.slot, room, ws.alpha),
        (ws.y_start, room * lengths, ws.y),
        (ws.gram_start, room**2, ws.gram),
    ]:
        np.testing.assert_array_equal(start, np.cumsum(sizes) - sizes)
        assert len(pool) == sizes.sum()
    default = empty_working_set(lengths)
    assert default.capacity.tolist() == [FIRST_CAPACITY] * 3
    assert default.gram.dtype == np.float64
    assert empty_working_set(np.zeros(0, dtype=int)).n_planes == 0


# Planes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(INSERT))
@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
def test_inserted_planes_and_their_gram_block(chains, slack, rescale, way):
    form = formulation(1.0, slack, rescale)
    ws = empty_working_set(chains.compiled.lengths, 16)
    scratch = np.zeros(chains.compiled.scratch_size)
    rng = np.random.default_rng(2)
    order = np.repeat(np.arange(N), 6)
    rng.shuffle(order)
    for i in order:  # examples in turn, so that their blocks would show it if they met
        y = rng.choice(chains.outputs(i))
        known = FIND[way](ws, i, y)
        j = INSERT[way](chains.problem, form, ws, i, y, 1, PATIENT, scratch)
        assert j == known if known >= 0 else j == ws.used[i] - 1
        assert FIND[way](ws, i, y) == j
        np.testing.assert_array_equal(working_set.plane(ws, i, j), y)
    assert not scratch.any()
    assert not ws.wanted.any()
    check_planes(chains, ws, slack, rescale)
    for i in range(N):
        np.testing.assert_array_equal(working_set.planes(ws, i), outputs_of(ws, i))


@pytest.mark.parametrize("way", list(INSERT))
def test_void_planes_do_not_enter(chains, way):
    ws = empty_working_set(chains.compiled.lengths)
    scratch = np.zeros(chains.compiled.scratch_size)
    gold = np.asarray(chains.Y[0], dtype=np.int32)
    for slack, rescale in FORMULATIONS:
        form = formulation(1.0, slack, rescale)
        assert INSERT[way](chains.problem, form, ws, 0, gold, 1, PATIENT, scratch) == -1
    assert ws.n_planes == 0
    assert FIND[way](ws, 0, gold) == -1
    # A wrong output that costs nothing says something under margin rescaling only.
    free = chains.problem._replace(cost=np.zeros_like(chains.problem.cost))
    y = chains.outputs(0)[0]
    slack_form = formulation(1.0, "max", "slack")
    assert INSERT[way](free, slack_form, ws, 0, y, 1, PATIENT, scratch) == -1
    assert INSERT[way](free, formulation(), ws, 0, y, 1, PATIENT, scratch) == 0


# Room -------------------------------------------------------------------------------------------


def test_growing_doubles_the_full_examples_and_keeps_every_plane(chains):
    form, ws = formulation(), empty_working_set(chains.compiled.lengths)
    i = longest(chains)
    other = (i + 1) % N
    assert fill(chains, form, ws, i, chains.outputs(i)[:6]) == [0, 1, 2, 3, -1, -1]
    fill(chains, form, ws, other, chains.outputs(other)[:1])
    assert np.flatnonzero(ws.wanted).tolist() == [i]
    for array in (ws.alpha, ws.drift):
        array[ws.slot[i] : ws.slot[i] + 4] = [0.5, 0.0, 0.25, 0.0]
    new = make_room(ws, 1, PATIENT)
    assert new.capacity[i] == 2 * FIRST_CAPACITY
    assert (np.delete(new.capacity, i) == FIRST_CAPACITY).all()
    assert not new.wanted.any()
    np.testing.assert_array_equal(new.used, ws.used)
    for k in (i, other):
        np.testing.assert_array_equal(outputs_of(new, k), outputs_of(ws, k))
        np.testing.assert_array_equal(gram_of(new, k), gram_of(ws, k))
        for name in ("alpha", "offset", "scale", "sqnorm", "drift", "stamp"):
            old_slots = getattr(ws, name)[ws.slot[k] :][: ws.used[k]]
            new_slots = getattr(new, name)[new.slot[k] :][: new.used[k]]
            np.testing.assert_array_equal(new_slots, old_slots)
    assert fill(chains, form, new, i, chains.outputs(i)[:6]) == [0, 1, 2, 3, 4, 5]
    check_planes(chains, new)
    assert make_room(new, 1, PATIENT) is new  # there is room everywhere


def test_growing_asks_before_a_plane_is_refused(chains):
    """An example whose slots are all in use gets room though nothing was turned away yet."""
    ws, i = empty_working_set(chains.compiled.lengths), longest(chains)
    fill(chains, formulation(), ws, i, chains.outputs(i)[:FIRST_CAPACITY])
    assert not ws.wanted.any()
    # Not where an idle plane may go at the next pass: stamped 1, patience 3, clock 4.
    assert make_room(ws, 3, 3) is ws
    assert make_room(ws, 2, 3).capacity[i] == 2 * FIRST_CAPACITY


@pytest.mark.parametrize("way", list(INSERT))
def test_only_the_plane_idle_for_longest_is_overwritten(chains, way):
    form, i = formulation(), longest(chains)
    ws = empty_working_set(chains.compiled.lengths)
    ys = chains.outputs(i)
    scratch = np.zeros(chains.compiled.scratch_size)
    fill(chains, form, ws, i, ys[:4])
    s = ws.slot[i]
    ws.stamp[s : s + 4] = [1, 4, 2, 1]
    ws.alpha[s] = 0.5  # oldest, but it has mass
    ws.drift[s + 3] = -0.5  # as old, but it has a share in the average

    def try_one(clock: int, patience: int, y: Any) -> int:
        return INSERT[way](chains.problem, form, ws, i, y, clock, patience, scratch)

    assert try_one(6, 5, ys[4]) == -1  # plane 2 is idle since 2: not yet
    assert ws.wanted[i] == 1
    ws.wanted[i] = 0
    assert try_one(9, FREE_SLOTS_ONLY, ys[4]) == -1
    assert ws.wanted[i] == 0  # and asks for nothing
    assert try_one(9, 5, ys[4]) == 2  # plane 1 might go now too, but it was active later
    assert ws.stamp[s + 2] == 9
    assert try_one(9, 5, ys[5]) == 1
    assert try_one(9, 5, ys[6]) == -1  # what is left has mass, a share, or just came
    np.testing.assert_array_equal(outputs_of(ws, i), ys[[0, 5, 4, 3]])
    assert ws.alpha[s : s + 4].tolist() == [0.5, 0.0, 0.0, 0.0]
    assert ws.drift[s : s + 4].tolist() == [0.0, 0.0, 0.0, -0.5]
    check_planes(chains, ws)


@pytest.mark.parametrize("way", list(INSERT))
def test_fsmo_overwrites_no_plane(chains, way):
    """Its patience is longer than any run."""
    form, i = formulation(), longest(chains)
    ws = empty_working_set(chains.compiled.lengths)
    fill(chains, form, ws, i, chains.outputs(i)[:4])
    scratch = np.zeros(chains.compiled.scratch_size)
    y = chains.outputs(i)[5]
    assert INSERT[way](chains.problem, form, ws, i, y, 10**6, KEEP, scratch) == -1
    assert ws.wanted[i] == 1


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.sampled_from(FORMULATIONS))
def test_planes_with_mass_or_a_share_are_never_lost(chains, seed, names):
    """Random inserts, mass and growth: the working set against a dictionary."""
    data, form = chains, formulation(1.0, *names)
    rng = np.random.default_rng(seed)
    ws = empty_working_set(data.compiled.lengths, 2)
    scratch = np.zeros(data.compiled.scratch_size)
    held: dict[tuple[int, ...], float] = {}
    for clock in range(1, 40):
        i = int(rng.integers(3))
        y = rng.choice(data.outputs(i))
        j = insert(data.problem, form, ws, i, y, clock, 3, scratch)
        if j >= 0:
            mass = float(rng.choice([0.0, 0.0, rng.random()]))
            share = rng.random() < 0.5
            slot = ws.slot[i] + j
            (ws.drift if share else ws.alpha)[slot] = mass
            (ws.alpha if share else ws.drift)[slot] = 0.0
            held[(i, *y)] = mass
        if rng.random() < 0.2:
            ws = make_room(ws, clock, 3)
    for (i, *y), mass in held.items():
        if mass > 0.0:
            j = find(ws, i, np.array(y, dtype=np.int32))
            assert j >= 0
            assert ws.alpha[ws.slot[i] + j] + ws.drift[ws.slot[i] + j] == mass
    check_planes(data, ws, *names)


# What sweeps keep true --------------------------------------------------------------------------


def test_planes_of_a_file_have_room_for_one_at_least() -> None:
    """Else room would never grow, and the slots of an example would be those of the next."""
    lengths = np.ones(2, dtype=np.int64)
    tables = empty_working_set(lengths, np.array([FIRST_CAPACITY, 0]))._asdict()
    with pytest.raises(KeyError, match="fit together"):
        working_set.planes_from(tables, empty_working_set(lengths), np.inf)


def dual_weights(data: Any, ws: WorkingSet) -> Any:
    """``Σ α·a·Δf`` from naive joint features."""
    w = np.zeros(data.compiled.n_weights)
    for i in range(len(ws.used)):
        for j, y in enumerate(outputs_of(ws, i)):
            s = ws.slot[i] + j
            w += ws.alpha[s] * ws.scale[s] * data.difference(i, y)
    return w


@pytest.mark.parametrize("solver", [SDM, FSMO])
@pytest.mark.parametrize(("C", "slack", "rescale"), SETTINGS)
def test_weights_are_the_sum_of_the_planes(separable, solver, C, slack, rescale):
    form = formulation(C, slack, rescale)
    with Workers(1, separable.compiled.scratch_size) as workers:
        state = solver(separable.compiled, form, workers, 0)
        for _ in range(12):
            state.sweep()
            np.testing.assert_allclose(
                state.w, dual_weights(separable, state.ws), rtol=0, atol=1e-9
            )
            assert (state.ws.alpha >= 0.0).all()
            sums = np.add.reduceat(state.ws.alpha, state.ws.slot)
            assert (sums <= form.cap * (1 + 1e-12)).all()
            state.certify()
            np.testing.assert_allclose(
                state.w, dual_weights(separable, state.ws), rtol=0, atol=1e-9
            )
    assert state.w.any()
    assert state.n_planes > N
    check_planes(separable, state.ws, slack, rescale)


@pytest.mark.parametrize("solver", [SDM, FSMO])
def test_a_warm_start_begins_with_the_weights_of_its_planes(chains, solver):
    with Workers(1, chains.compiled.scratch_size) as workers:
        first = solver(chains.compiled, formulation(), workers, 0)
        for _ in range(3):
            first.sweep()
        second = solver(chains.compiled, formulation(), workers, 0, None, copied(first.ws))
    np.testing.assert_allclose(second.w, first.w, rtol=0, atol=1e-12)
    assert second.dual() == pytest.approx(first.dual(), rel=1e-12)


# The average ------------------------------------------------------------------------------------


class Recorder:
    """Mixed into a solver: one example a call, and the iterate after each visit is kept."""

    w: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.iterates: list[Any] = []
        super().__init__(*args, **kwargs)

    def move(self, order: Any, *rest: Any) -> None:
        for i in order:
            super().move(np.array([i]), *rest)  # type: ignore[misc]
            self.iterates.append(self.w.copy())

    def restart_average(self) -> None:
        super().restart_average()  # type: ignore[misc]
        self.iterates.clear()

    def average(self) -> Any:
        """The mean of the iterates with weights 1, 2, 3, ..."""
        weights = np.arange(1, len(self.iterates) + 1)
        return np.average(self.iterates, axis=0, weights=weights)


class RecordedSDM(Recorder, SDM):
    pass


class RecordedEnumerated(Recorder, EnumeratedSDM):
    def pass_over(self, draws: Any, form: Any, skip: float) -> None:
        order = np.zeros(len(self.gaps) + 1, dtype=np.int64)
        for row in draws:
            count, _ = choose_worth(self.gaps, skip, row, order)
            for i in order[:count]:
                self.visit(np.array([i]), form)
                self.iterates.append(self.w.copy())


@pytest.mark.parametrize(("C", "slack", "rescale"), SETTINGS)
def test_the_average_of_the_iterates(separable, C, slack, rescale):
    with Workers(1, separable.compiled.scratch_size) as workers:
        # Without the steps over all planes at once, which are no visits.
        options = {"patience": 1, "cg_steps": 0, "newton_weights": 0}
        form = formulation(C, slack, rescale)
        state = RecordedSDM(separable.compiled, form, workers, 0, options)
        for _ in range(18):  # restarts at 1, 2, 4, 8 and 16 among them
            state.sweep()
            assert state.visits == len(state.iterates)
            np.testing.assert_allclose(state.candidate(), state.average(), rtol=0, atol=1e-10)
            last = state.w.copy()
            state.certify()
            np.testing.assert_allclose(state.w, last, rtol=0, atol=1e-10)
            np.testing.assert_allclose(state.candidate(), state.average(), rtol=0, atol=1e-10)
        state.restart_average()
        np.testing.assert_array_equal(state.candidate(), state.w)


@pytest.fixture(scope="module")
def classes() -> Any:
    rng = np.random.default_rng(3)
    X, y = random_multiclass(rng, 20, 5, 4, separable=True)
    rows = sparse.csr_array(X)
    cost = rng.uniform(0.5, 2.0, (4, 4)) * (1.0 - np.eye(4))
    problem = multiclass.make_problem(rows.indptr, rows.indices, rows.data, y, 5, cost)
    return X, y, cost, multiclass.compile_problem(problem)


@pytest.mark.parametrize("cg_steps", [0, 30])
@pytest.mark.parametrize(("C", "slack", "rescale"), [(30.0, "max", "margin"), *SETTINGS])
def test_weights_and_average_where_all_outputs_are_planes(classes, C, slack, rescale, cg_steps):
    X, y, cost, compiled = classes
    form = formulation(C, slack, rescale, n=20)
    planes = np.zeros((20, 4, 20))
    for i in range(20):
        for k in range(4):
            a, _ = plane_numbers(cost[y[i], k], slack, rescale)
            planes[i, k] = multiclass_joint_feature(X[i], y[i], 4)
            planes[i, k] -= multiclass_joint_feature(X[i], k, 4)
            planes[i, k] *= a
    with Workers(1, compiled.scratch_size) as workers:
        options = {"cg_steps": cg_steps, "newton_weights": 2000 if cg_steps else 0}
        state = RecordedEnumerated(compiled, form, workers, 0, options)
        for _ in range(18):
            state.sweep()
            expected = np.einsum("ik,ikd->d", state.alpha, planes)
            np.testing.assert_allclose(state.w, expected, rtol=0, atol=1e-9)
            assert (state.alpha >= 0.0).all()
            assert (state.alpha.sum(axis=1) <= form.cap * (1 + 1e-12)).all()
            assert state.visits == len(state.iterates)
            if not state.visits:
                np.testing.assert_array_equal(state.candidate(), state.w)
            elif cg_steps == 0:
                np.testing.assert_allclose(state.candidate(), state.average(), rtol=0, atol=1e-9)
    assert state.w.any()


@pytest.mark.parametrize("C", [1.0, np.inf])
@pytest.mark.parametrize("shape", [(3, 3, 3), (6, 4, 3), (20, 4, 3)])
def test_small_problems_keep_their_certificate(shape, C):
    """Many runs: weights, multipliers, kept weights and both bounds fit together in each.

    Hard margins are the difficult ones: certificates stretch the weights that are kept, sweeps
    do not, and multipliers have no bound.
    """
    n, d, K = shape
    for seed in range(20):
        X, y = random_multiclass(np.random.default_rng(30 + seed // 2), n, d, K, separable=True)
        rows = sparse.csr_array(X)
        problem = multiclass.make_problem(
            rows.indptr, rows.indices, rows.data, y, d, 1.0 - np.eye(K)
        )
        compiled = multiclass.compile_problem(problem)
        table = np.zeros((n, K))
        with Workers(1, compiled.scratch_size) as workers:
            state = EnumeratedSDM(compiled, formulation(C, n=n), workers, seed)
            for sweep in range(12):
                state.sweep()
                if sweep in (0, 8):
                    state.certify()
                table[:] = -state.alpha
                table[np.arange(n), y] = state.alpha.sum(axis=1) - state.alpha[np.arange(n), y]
                w = state.w.reshape(d, -1)[:, :K]
                size = max(1.0, np.abs(w).max())
                np.testing.assert_allclose(w, X.T @ table, rtol=0, atol=1e-9 * size)
                kept, primal = state.best()
                if not np.isfinite(primal):
                    continue
                assert state.dual() <= primal * (1 + 1e-9)
                scores = X @ kept.reshape(d, -1)[:, :K]
                margins = scores[np.arange(n), y][:, None] - scores
                slack = np.maximum((np.arange(K) != y[:, None]) - margins, 0.0).max(axis=1)
                if np.isinf(C):
                    assert slack.max() <= 1e-9
                    assert primal == pytest.approx(0.5 * kept @ kept, rel=1e-9)
                else:
                    assert primal == pytest.approx(0.5 * kept @ kept + C * slack.sum(), rel=1e-9)


def test_scratch_is_made_when_it_is_asked_for() -> None:
    """It is as long as the weights, and multi-class has no use for it."""
    for jobs in (1, 2):
        with Workers(jobs, 7) as workers:
            seen: list[Any] = []
            workers.over(np.arange(4), seen.extend, PART)
            assert sorted(seen) == [0, 1, 2, 3]
            assert "scratch" not in vars(workers)
            workers.over(np.arange(4), seen.append, SCRATCH)
            assert [len(room) for room in seen[4:]] == [7] * jobs
