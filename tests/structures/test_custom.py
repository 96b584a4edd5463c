"""Kernels do with a user's structure what they do with the library's own."""

from __future__ import annotations

import gc
import weakref
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import njit, typeof
from scipy import sparse

from hingeline._jit import uncached
from hingeline.core import primitives
from hingeline.core.blocks import add_planes, empty_working_set, find_planes, move_mass
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Workers
from hingeline.solvers.fsmo import FSMO
from hingeline.solvers.sdm import SDM, Pair
from hingeline.structures import chain, custom, multiclass
from hingeline.structures.custom import Structure

# isort: split
from marks import slow
from naive import (
    brute_force_decode,
    chain_joint_feature,
    enumerate_outputs,
    hamming,
    random_chains,
    random_multiclass,
)

N, D, K = 25, 6, 4  # four classes fill a padded row, so weights compare entry by entry
#: No two outputs cost the same: a tie would be broken by rounding, which differs. For the same
#: reason rounds() makes few steps: the gradients of an example that has been solved are tied.
COST = np.random.default_rng(9).uniform(0.5, 2.0, (K, K)) * (1.0 - np.eye(K))
FORMULATIONS = [(s, r) for s in ("max", "squared") for r in ("margin", "slack")]


# A user's multiclass structure, three times -----------------------------------------------------


class Plain(Structure):
    """Plain Python methods, the three required ones and what slack rescaling needs."""

    def joint_feature(self, x, y):
        f = np.zeros((len(x), K))
        f[:, y[0]] = x
        return f.ravel()

    def loss(self, y_true, y):
        return COST[y_true[0], y[0]]

    def decode(self, x, w, y_true, loss_scale):
        scores = x @ w.reshape(-1, K)
        if loss_scale:
            scores = scores + loss_scale * COST[y_true[0]]
        return np.array([np.argmax(scores)])

    def decode_by_loss(self, x, w, y_true):
        return COST[y_true[0]], np.arange(K).reshape(K, 1)


class Quick(Plain):
    """The optional methods too."""

    def __init__(self):
        self.calls = set()

    def plane_score(self, x, y_true, y, w):
        self.calls.add("plane_score")
        W = w.reshape(-1, K)
        return float(x @ (W[:, y_true[0]] - W[:, y[0]]))

    def plane_add(self, x, y_true, y, step, w):
        self.calls.add("plane_add")
        W = w.reshape(-1, K)
        W[:, y_true[0]] += step * x
        W[:, y[0]] -= step * x

    def plane_sqdist(self, x, y, z):
        self.calls.add("plane_sqdist")
        return 0.0 if y[0] == z[0] else 2.0 * float(x @ x)


class Jitted(Structure):
    """The same, compiled."""

    @staticmethod
    @njit
    def joint_feature(x, y):
        f = np.zeros((len(x), K))
        f[:, y[0]] = x
        return f.ravel()

    @staticmethod
    @njit
    def loss(y_true, y):
        return COST[y_true[0], y[0]]

    @staticmethod
    @njit
    def decode(x, w, y_true, loss_scale):
        W = w.reshape((len(x), K))
        best = np.zeros(1, dtype=np.int64)
        top = -np.inf
        for k in range(K):
            score = 0.0
            for j in range(len(x)):
                score += x[j] * W[j, k]
            if loss_scale != 0.0:
                score += loss_scale * COST[y_true[0], k]
            if score > top:
                top = score
                best[0] = k
        return best

    @staticmethod
    @njit
    def decode_by_loss(x, w, y_true):
        return COST[y_true[0]].copy(), np.arange(K).reshape((K, 1))


@pytest.fixture(scope="module")
def data() -> Any:
    X, y = random_multiclass(np.random.default_rng(0), N, D, K)
    return X, y


@pytest.fixture(scope="module")
def library(data) -> Any:
    X, y = data
    rows = sparse.csr_array(X)
    problem = multiclass.make_problem(rows.indptr, rows.indices, rows.data, y, D, COST)
    return multiclass.compile_problem(problem)


def compile_user(structure: Structure, data: Any) -> Any:
    X, y = data
    return custom.compile_problem(structure, list(X), [structure.pack(label) for label in y])


@pytest.fixture(scope="module")
def users(data) -> Any:
    """The user's problems, compiled once."""
    kinds = {"plain": Plain, "quick": Quick, "jitted": Jitted}
    return cache(lambda kind: compile_user(kinds[kind](), data))


def rounds(compiled: Any, form: Any, count: int = 2) -> tuple[Any, ...]:
    """Two rounds of the two kernels behind ``"sdm"``, from random weights."""
    find, move = compiled.bind(find_planes), compiled.bind(move_mass)
    start = np.random.default_rng(2).normal(size=compiled.n_weights)
    w = start.copy()
    ws = empty_working_set(compiled.lengths)
    violation, gaps = np.zeros(N), np.zeros(N)
    scratch = np.zeros(compiled.scratch_size)
    order = np.random.default_rng(1).permutation(N)
    for clock in range(1, count + 1):
        find(compiled.problem, form, ws, order, w, None, clock, 2, scratch, violation)
        visits = (clock - 1.0) * N
        move(compiled.problem, form, ws, Pair(0.9), order, w, visits, 1.0, clock, gaps)
    again = start
    compiled.bind(add_planes)(compiled.problem, ws, ws.alpha, 1.0, again)
    return ws, w, violation, gaps, again


# The same planes, multipliers and weights -------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "quick", "jitted"])
@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
def test_users_structures_do_what_the_library_does(library, users, kind, slack, rescale):
    form = make_formulation(0.1, slack, rescale, np.ones(N))
    ours, theirs = rounds(library, form), rounds(users(kind), form)
    assert ours[0].n_planes > N
    for name in ("used", "y", "stamp"):
        np.testing.assert_array_equal(getattr(theirs[0], name), getattr(ours[0], name), name)
    for name in ("alpha", "offset", "scale", "sqnorm", "drift"):
        np.testing.assert_allclose(
            getattr(theirs[0], name), getattr(ours[0], name), rtol=1e-8, atol=1e-9, err_msg=name
        )
    np.testing.assert_allclose(theirs[0].gram, ours[0].gram, rtol=1e-6, atol=1e-6)
    for mine, his in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(his, mine, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(theirs[4], theirs[1], rtol=0, atol=1e-10)  # start + Σ α·a·Δf


def bounds(solver: Any, compiled: Any, form: Any, sweeps: int) -> tuple[float, float]:
    """Certified primal and dual after some sweeps."""
    with Workers(1, compiled.scratch_size) as workers:
        state = solver(compiled, form, workers, 0)
        for _ in range(sweeps):
            state.sweep()
            state.certify()
        return state.best()[1], state.dual()


def check_bounds(found: list[tuple[float, float]]) -> None:
    """Runs part where ties are broken by rounding, but they bound the same optimum, closely."""
    primals, duals = zip(*found, strict=True)
    assert max(duals) <= min(primals) * (1 + 1e-12)
    assert max(primals) - min(duals) <= 1e-2 * min(primals)


# The tests of SSVM have a compiled structure by default.
@pytest.mark.parametrize("solver", [SDM, FSMO])
def test_whole_solvers_agree(library, users, solver):
    form = make_formulation(1.0, "max", "margin", np.ones(N))
    check_bounds([bounds(solver, c, form, 25) for c in (library, users("plain"))])


def test_optional_methods_are_used(data):
    structure = Quick()
    rounds(compile_user(structure, data), make_formulation(1.0, "max", "margin", np.ones(N)))
    assert structure.calls == {"plane_score", "plane_add", "plane_sqdist"}


L, T = 3, 4


class Chain(Structure):
    """Outputs of different lengths, by enumeration."""

    def joint_feature(self, x, y):
        return chain_joint_feature(x, y, L, False)

    def loss(self, y_true, y):
        return hamming(y_true, y)

    def decode(self, x, w, y_true, loss_scale):
        gold = y_true if loss_scale else None
        return np.array(brute_force_decode(x, w, gold, loss_scale, L, False)[1])

    def decode_by_loss(self, x, w, y_true):
        best: dict[float, Any] = {}
        for y in enumerate_outputs(len(x), L):
            loss, score = hamming(y_true, y), w @ self.joint_feature(x, y)
            if loss not in best or score > best[loss][0]:
                best[loss] = (score, y)
        losses = sorted(best)
        return np.array(losses), np.array([best[loss][1] for loss in losses])


@pytest.mark.parametrize("solver", [SDM, FSMO])
@pytest.mark.parametrize(("slack", "rescale"), [("max", "margin"), ("squared", "slack")])
@pytest.mark.slow
def test_a_chain_of_ones_own(solver, slack, rescale):
    """Outputs of different lengths, and enough planes for working sets to fill up and grow."""
    X, Y = random_chains(np.random.default_rng(4), 8, 3, L, T)
    lengths = [len(y) for y in Y]
    rows = sparse.csr_array(np.concatenate(X))
    ours = chain.compile_problem(
        chain.make_problem(
            rows.indptr,
            rows.indices,
            rows.data,
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate(Y),
            3,
            1.0 - np.eye(L),
            False,
        )
    )
    structure = Chain()
    theirs = custom.compile_problem(structure, X, [structure.pack(y) for y in Y])
    form = make_formulation(10.0, slack, rescale, np.ones(8))
    check_bounds([bounds(solver, c, form, 25) for c in (ours, theirs)])


# Binding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["library", slow("jitted")])
def test_compiled_structures_use_the_kernels_themselves(library, users, kind):
    compiled = library if kind == "library" else users(kind)
    assert compiled.bind(find_planes) is find_planes
    assert compiled.bind(move_mass) is move_mass


def test_plain_python_calls_what_kernels_are_made_of(users):
    assert users("plain").bind(move_mass) is move_mass.py_func
    before = list(move_mass.signatures)
    rounds(users("plain"), make_formulation(1.0, "max", "margin", np.ones(N)), 1)
    assert move_mass.signatures == before


def test_machine_code_with_a_users_methods_stays_out_of_the_disk_cache(library, users):
    for compiled, kept in ((library, True), (users("jitted"), False)):
        file = add_planes._cache.file((typeof(compiled.problem),))
        assert (file is not None) == (kept and add_planes._cache.folder is not None)


def test_structures_of_the_same_class_do_not_share_methods(data):
    one, other = compile_user(Quick(), data), compile_user(Quick(), data)
    assert type(one.problem) is not type(other.problem)
    one, other = compile_user(Jitted(), data), compile_user(Jitted(), data)
    assert type(one.problem) is type(other.problem)  # the same functions: nothing to compile again


def test_plain_structures_are_forgotten(data):
    structure = Quick()
    known = weakref.ref(structure)
    compile_user(structure, data)
    del structure
    gc.collect()
    assert known() is None


def test_a_primitive_that_a_structure_lacks_is_the_default(users):
    assert primitives.provides(users("plain").problem, "decode_by_loss")
    assert not primitives.provides(users("plain").problem, "decode_best")


# Checks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["joint_feature", "loss", "decode"])
def test_a_structure_that_lacks_a_method_is_refused_by_name(data, name):
    methods = {key: vars(Plain)[key] for key in ("joint_feature", "loss", "decode") if key != name}
    Lacking = type("Lacking", (Structure,), methods)
    with pytest.raises(TypeError, match=rf"Lacking lacks {name}:"):
        compile_user(Lacking(), data)


def test_an_empty_structure_is_told_of_all_three():
    with pytest.raises(TypeError, match="joint_feature, loss, decode"):
        custom.methods_of(Structure())


@pytest.mark.parametrize("wrong", [Plain, object(), None])
def test_what_is_no_structure_is_refused(wrong):
    with pytest.raises(TypeError, match="instance of a subclass"):
        custom.methods_of(wrong)


def test_one_plain_method_makes_the_structure_interpreted(data, library):
    class Mixed(Jitted):
        def loss(self, y_true, y):
            return COST[y_true[0], y[0]]

    assert custom.is_compiled(Jitted())
    assert not custom.is_compiled(Mixed())
    compiled = compile_user(Mixed(), data)
    assert compiled.interpreted
    form = make_formulation(1.0, "max", "margin", np.ones(N))
    np.testing.assert_allclose(rounds(compiled, form, 1)[1], rounds(library, form, 1)[1], atol=1e-9)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_compiled_structures_get_x_back_in_its_own_shape(dimensions):
    rng = np.random.default_rng(dimensions)
    X = [rng.normal(size=rng.integers(1, 4, size=dimensions)) for _ in range(4)]
    arrays = custom.uniform_arrays(Jitted(), X)
    x, start = custom._layout(arrays)
    shapes = np.array([a.shape for a in arrays])
    y = np.zeros(4, dtype=np.int32)
    problem = custom.make_kind(custom.LAID_OUT, {})(x, start, shapes, y, np.arange(5))
    get = uncached(custom.find_parts(dimensions)[0])
    for i in range(4):
        np.testing.assert_array_equal(get(problem, i), X[i])


@pytest.mark.parametrize("bad", [["a", "b"], [np.zeros(2), np.zeros((2, 2))], [{"a": 1}]])
def test_compiled_structures_want_arrays_of_one_kind(bad):
    at = len(bad) - 1 if not isinstance(bad[0], str) else 0
    with pytest.raises(TypeError, match=rf"X\[{at}\]: the methods of Jitted are compiled"):
        custom.uniform_arrays(Jitted(), bad)
