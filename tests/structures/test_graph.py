"""Every primitive of the graph structure against naive joint features, both ways."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hingeline._jit import kernel
from hingeline.core import primitives as base
from hingeline.inference.factor_graph import join, make_topology
from hingeline.inference.map import AUTO, ENUMERATION
from hingeline.structures import graph, graph_blocks

FEW = settings(max_examples=30, deadline=None, derandomize=True)


@kernel
def decode(problem, i, w, loss_scale, y_out):
    return base.decode(problem, i, w, loss_scale, y_out)


@kernel
def decode_excess(problem, i, w, loss_scale, y_out):
    return base.decode_excess(problem, i, w, loss_scale, y_out)


@kernel
def plane_score(problem, i, y, w):
    return base.plane_score(problem, i, y, w)


@kernel
def plane_add(problem, i, y, step, w):
    base.plane_add(problem, i, y, step, w)


@kernel
def planes_score(problem, i, ys, w, out):
    base.planes_score(problem, i, ys, w, out)


@kernel
def planes_add(problem, i, ys, steps, w):
    base.planes_add(problem, i, ys, steps, w)


@kernel
def small_ones(problem, i, y, z, y_out, scratch):
    base.truth(problem, i, y_out)
    return (
        base.output_length(problem, i),
        base.plane_loss(problem, i, y),
        base.plane_sqdist(problem, i, y, z, scratch),
    )


class Case(NamedTuple):
    """A problem, and what it was made of."""

    problem: Any
    rows: Any  # features by row
    scopes: list[list[tuple[int, ...]]]  # by graph
    features: list[list[Any]]  # of factors, by example
    states: list[Any]  # of variables, by graph


def make_case(
    seed: int,
    shared_graph: bool,
    shared_rows: bool,
    factor_features: bool,
    single: bool,
    inference: int = AUTO,
) -> Case:
    """Random graphs with pairs and triples, two unary templates of different sizes."""
    rng = np.random.default_rng(seed)
    n, d = 3, 4
    template_states = np.array([3, 2])
    n_graphs = 1 if shared_graph else n
    graphs, scopes, states, node_templates, factor_templates = [], [], [], [], []
    # Table templates: by the sizes of the scope's variables, in their order.
    tables: dict[tuple[int, ...], int] = {}
    for _ in range(n_graphs):
        size = int(rng.integers(1, 5))
        kinds = rng.integers(0, 2, size=size)
        own = template_states[kinds]
        possible = [c for k in (1, 2, 3) for c in itertools.permutations(range(size), k)]
        count = min(int(rng.integers(0, 6)), len(possible))
        chosen = [possible[c] for c in rng.choice(len(possible), size=count, replace=False)]
        graphs.append(make_topology(own, chosen))
        scopes.append(chosen)
        states.append(own)
        node_templates.append(kinds)
        factor_templates.append(
            [tables.setdefault(tuple(own[list(c)]), len(tables)) for c in chosen]
        )
    which = np.zeros(n, dtype=int) if shared_graph else np.arange(n)
    sizes = np.array([len(states[g]) for g in which])
    n_rows = n if shared_rows else int(sizes.sum())
    rows = sparse.random_array((n_rows, d), density=0.6, rng=rng).tocsr()
    rows = rows.astype(np.float32 if single else np.float64)
    rows.sort_indices()
    table_features = [int(rng.integers(1, 4)) if factor_features else 1 for _ in tables]
    features: list[list[Any]] = []
    for g in which:
        features.append(
            [
                rng.normal(size=table_features[t]) if factor_features else np.ones(1)
                for t in factor_templates[g]
            ]
        )
    flat = [v for example in features for v in example]
    problem = graph_blocks.make_problem(
        join(graphs),
        np.concatenate(node_templates),
        np.array([t for own in factor_templates for t in own], dtype=int),
        template_states,
        np.array(table_features, dtype=int),
        np.array([int(np.prod(kind)) for kind in tables], dtype=int),
        rows,
        np.concatenate([rng.integers(0, states[g]) for g in which]),
        np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [1.0, 3.0, 0.0]]),
        graph=which,
        row=np.repeat(np.arange(n), sizes) if shared_rows else None,
        node_weight=rng.uniform(0.5, 2.0, size=sizes.sum()),
        factor_start=np.cumsum([0] + [len(v) for v in flat]) if factor_features else (),
        factor_values=np.concatenate([*flat, np.empty(0)]) if factor_features else (),
        inference=inference,
    )
    return Case(problem, rows.toarray().astype(float), scopes, features, states)


def joint_feature(case: Case, i: int, y: Any) -> Any:
    """f(x_i, y), plainly."""
    problem = case.problem
    g = problem.graph[i]
    f = np.zeros(problem.n_weights)
    U = f[: problem.n_features * problem.n_columns].reshape(problem.n_features, -1)
    nodes = problem.node_template[problem.graphs.node_ptr[g] : problem.graphs.node_ptr[g + 1]]
    for v, label in enumerate(y):
        row = problem.row[problem.offsets[i] + v]
        U[:, problem.column_start[nodes[v]] + label] += case.rows[row]
    for c, scope in enumerate(case.scopes[g]):
        t = problem.factor_template[problem.graphs.factor_ptr[g] + c]
        shape = tuple(case.states[g][list(scope)])
        table = f[problem.table_offset[t] :][: problem.table_features[t] * np.prod(shape)]
        index = np.ravel_multi_index(tuple(y[v] for v in scope), shape)
        table.reshape(-1, np.prod(shape))[:, index] += case.features[i][c]
    return f


def loss(case: Case, i: int, y: Any) -> float:
    lo = case.problem.offsets[i]
    gold = case.problem.labels[lo : lo + len(y)]
    weight = case.problem.node_weight[lo : lo + len(y)]
    return float(sum(weight[v] * case.problem.cost[gold[v], y[v]] for v in range(len(y))))


def outputs(case: Case, i: int) -> list[Any]:
    sizes = case.states[case.problem.graph[i]]
    return [np.array(y, dtype=np.int32) for y in itertools.product(*map(range, sizes))]


SEEDS, EITHER = st.integers(0, 10_000), st.booleans()
#: One kind of problem, so that kernels are compiled once; the contract has one without features.
featured_cases = st.builds(
    make_case, SEEDS, EITHER, EITHER, st.just(True), st.just(False), st.just(ENUMERATION)
)
all_cases = st.builds(make_case, SEEDS, EITHER, EITHER, EITHER, EITHER)


@FEW
@given(featured_cases, st.integers(0, 100))
def test_decode(case: Case, seed: int) -> None:
    check_decode(case, seed)


@pytest.mark.slow
@FEW
@given(all_cases, st.integers(0, 100))
def test_decode_of_all_kinds(case: Case, seed: int) -> None:
    check_decode(case, seed)


@FEW
@given(featured_cases, st.integers(0, 100))
def test_planes(case: Case, seed: int) -> None:
    check_planes(case, seed)


@pytest.mark.slow
@FEW
@given(all_cases, st.integers(0, 100))
def test_planes_of_all_kinds(case: Case, seed: int) -> None:
    check_planes(case, seed)


def check_decode(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.normal(size=case.problem.n_weights)
    for i in range(3):
        for scale in (0.0, 1.0, 2.5):
            values = [
                w @ joint_feature(case, i, y) + scale * loss(case, i, y) for y in outputs(case, i)
            ]
            for found in (decode, graph.decode):
                y = np.full(len(outputs(case, i)[0]), -1, dtype=np.int32)
                assert found(case.problem, i, w, scale, y) == pytest.approx(max(values))
                own = w @ joint_feature(case, i, y) + scale * loss(case, i, y)
                assert own == pytest.approx(max(values))
                assert decode_excess(case.problem, i, w, scale, y) == 0.0


def check_planes(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = case.problem
    w = rng.normal(size=problem.n_weights)
    scratch = np.zeros(graph.compile_problem(problem).scratch_size)
    # Interpreted code multiplies in the type of the features.
    close = 1e-12 if problem.values.dtype == np.float64 else 1e-6
    for i in range(3):
        every = outputs(case, i)
        gold = problem.labels[problem.offsets[i] : problem.offsets[i + 1]]
        f = joint_feature(case, i, gold)
        ys = np.array([every[k] for k in rng.integers(0, len(every), size=4)], dtype=np.int32)
        deltas = np.array([f - joint_feature(case, i, y) for y in ys])
        steps = rng.normal(size=4)
        steps[0] = 0.0
        for score, add, many_score, many_add in (
            (plane_score, plane_add, planes_score, planes_add),
            (graph.plane_score, graph.plane_add, graph.planes_score, graph.planes_add),
        ):
            scores = np.full(4, np.nan)
            many_score(problem, i, ys, w, scores)
            np.testing.assert_allclose(scores, deltas @ w, atol=close)
            added = w.copy()
            many_add(problem, i, ys, steps, added)
            np.testing.assert_allclose(added, w + steps @ deltas, atol=close)
            for y, delta in zip(ys, deltas, strict=True):
                assert score(problem, i, y, w) == pytest.approx(delta @ w, abs=close)
                added = w.copy()
                add(problem, i, y, 0.7, added)
                np.testing.assert_allclose(added, w + 0.7 * delta, atol=close)
        for y, z in itertools.product(ys, ys):
            apart = joint_feature(case, i, y) - joint_feature(case, i, z)
            read = np.empty(len(gold), dtype=np.int32)
            length, own, distance = small_ones(problem, i, y, z, read, scratch)
            assert length == len(gold)
            assert own == pytest.approx(loss(case, i, y))
            assert distance == pytest.approx(apart @ apart, abs=1e-10)
            assert not scratch.any()
            np.testing.assert_array_equal(read, gold)
            again = graph.plane_sqdist(problem, i, y, z, scratch)
            assert again == pytest.approx(distance, abs=close)


def test_tables_without_features_are_the_weights() -> None:
    case = make_case(3, True, True, False, False)
    w = np.arange(float(case.problem.n_weights))
    tables, start = graph.table_scores(case.problem, 0, w)
    assert tables is w
    assert np.shares_memory(start, case.problem.factor_table)
