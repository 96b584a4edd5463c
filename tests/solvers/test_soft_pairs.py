"""Pairs of binary variables in closed form: what factors in general would have done."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Workers
from hingeline.solvers.relaxed.blocks import PROJECTED, DualPoint, project
from hingeline.solvers.relaxed.pairs import simplex_level
from hingeline.solvers.relaxed.soft import (
    SoftBCFW,
    add_weights,
    evaluate,
    move_centre,
    pass_examples,
)
from hingeline.structures.graph import compile_problem
from hingeline.structures.graph_blocks import AnyFactors, BinaryPairs, Blocks

# isort: split
from relaxation import Example, Small, random_small

N = 3


def pairs_only(rng: np.random.Generator) -> Small:
    """Binary variables, most of them joined; the graphs of the examples differ."""
    examples = []
    for _ in range(N):
        n = int(rng.integers(2, 6))
        scopes = [(a, b) for a in range(n) for b in range(n) if a != b and rng.random() < 0.4]
        examples.append(
            Example(
                [2] * n,
                [*scopes, (1, 0)],
                rng.normal(size=(n, 2)),
                None,
                rng.integers(0, 2, n),
                rng.uniform(0.5, 1.5, n),
            )
        )
    return Small(examples, 1.0 - np.eye(2))


class Case(NamedTuple):
    """A dual point anywhere, and any weights."""

    problem: Any
    blocks: Blocks
    point: DualPoint
    w: Any
    cap: Any

    def copy(self, paired: bool) -> Case:
        """The same with or without the closed form."""
        blocks = self.blocks._replace(factors=BinaryPairs() if paired else AnyFactors())
        point = DualPoint(*(values.copy() for values in self.point))
        return Case(self.problem, blocks, point, self.w.copy(), self.cap)


def case(seed: int, centred: bool, sharp: bool) -> Case:
    rng = np.random.default_rng(seed)
    compiled = compile_problem(pairs_only(rng).problem())
    form = make_formulation(1.0, "max", "margin", rng.uniform(0.5, 2.0, N))
    options = {"constraints": "hard"} if centred else {}
    solver = SoftBCFW(compiled, form, Workers(1, compiled.scratch_size), 0, options)
    assert isinstance(solver.blocks.factors, BinaryPairs)
    power = 6.0 if sharp else 1.0  # sharp: much of it nearly 0 or 1
    mu = rng.random(len(solver.mu) // 2) ** power
    solver.mu[:] = np.column_stack((mu, 1.0 - mu)).ravel()
    mass = rng.dirichlet(np.full(4, 0.2 if sharp else 1.0), len(solver.mass) // 3)
    mass[rng.random(len(mass)) < 0.2] = (1.0, 0.0, 0.0, 0.0)
    solver.mass[:] = 0.999 * mass[:, 1:].ravel()
    solver.gaps[:] = rng.random(len(solver.gaps))
    solver.centre[:] = 0.1 * rng.normal(size=len(solver.centre))
    solver.centre_sums[:] = 0.1 * rng.normal(size=len(solver.centre_sums))
    return Case(
        solver.problem,
        solver.blocks,
        solver.point,
        0.3 * rng.normal(size=len(solver.w)),
        form.cap,
    )


def evaluate_all(own: Case, kappa: float, out: Any) -> None:
    order = np.arange(N)
    evaluate(own.problem, own.blocks, order, own.cap, kappa, 0, 0.0, own.w, own.point, out)


def assert_same(a: Case, b: Case, atol: float) -> None:
    np.testing.assert_allclose(a.w, b.w, rtol=0, atol=atol)
    for name, x, y in zip(DualPoint._fields, a.point, b.point, strict=True):
        small = max(atol, 1e-6) if x.dtype == np.float32 else atol
        np.testing.assert_allclose(x, y, rtol=0, atol=small, err_msg=name)


seeds = st.integers(0, 2**32 - 1)


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans(), st.booleans(), st.floats(0.0, 2.0))
def test_evaluations(seed: int, centred: bool, sharp: bool, kappa: float) -> None:
    start = case(seed, centred, sharp)
    found = []
    for paired in (True, False):
        own = start.copy(paired)
        out = np.zeros((N, 5))
        evaluate_all(own, kappa, out)
        found.append((own, out))
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-11)
    assert_same(found[0][0], found[1][0], 1e-12)


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans(), st.booleans(), st.floats(0.0, 0.004), st.sampled_from([0.0, 0.5]))
def test_steps(seed: int, centred: bool, sharp: bool, kappa: float, least: float) -> None:
    """Where messages bend little, factors in general are projected once, too."""
    start = case(seed, centred, sharp)
    start.point.gaps[:] = np.float32(1.0)
    ends = []
    for paired in (True, False):
        own = start.copy(paired)
        out = np.zeros((N, 5))
        # Sums must be right, and gaps decide who is visited.
        evaluate_all(own, kappa, out)
        total = np.zeros(len(own.w))
        gain = pass_examples(
            own.problem,
            own.blocks,
            np.arange(N)[::-1].copy(),
            own.cap,
            kappa,
            least,
            PROJECTED,
            1,
            own.w,
            own.point,
            total,
        )
        ends.append((own, gain, total))
    assert ends[0][1] == pytest.approx(ends[1][1], abs=1e-6)
    assert_same(ends[0][0], ends[1][0], 3e-6)
    np.testing.assert_allclose(ends[0][2], ends[1][2], rtol=0, atol=1e-5)


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans(), st.floats(0.0, 5.0), st.booleans())
def test_steps_gain_what_they_say(seed: int, sharp: bool, kappa: float, centred: bool) -> None:
    start = case(seed, centred, sharp).copy(paired=True)
    start.w[:] = 0.0
    add_weights(start.problem, start.blocks, start.cap, False, start.point, start.w)

    def value(own: Case) -> float:
        out = np.zeros((N, 5))
        evaluate_all(own, kappa, out)
        linear = out[:, 1] - 0.5 * kappa * out[:, 2] + out[:, 3]
        return float(own.cap @ linear) - 0.5 * float(own.w @ own.w)

    own = start.copy(paired=True)
    if centred:  # what is drawn to variables is the sum of their factors' centres
        move_centre(own.problem, own.blocks, np.arange(N), kappa, 0.0, own.point)
    before = value(own)
    rest = (np.arange(N), own.cap, kappa, 0.0, PROJECTED, N, own.w, own.point, own.w.copy())
    gain = pass_examples(own.problem, own.blocks, *rest)
    assert gain >= -1e-9
    assert value(own) - before == pytest.approx(gain, abs=1e-9)


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans())
def test_weights_and_couplings(seed: int, sharp: bool) -> None:
    start = case(seed, False, sharp)
    for coupled in (False, True):
        ends = []
        for paired in (True, False):
            own = start.copy(paired)
            add_weights(own.problem, own.blocks, own.cap, coupled, own.point, own.w)
            ends.append(own)
        assert_same(ends[0], ends[1], 1e-12)


@settings(deadline=None)  # the first case may compile
@given(st.lists(st.floats(-3.0, 3.0), min_size=4, max_size=4), st.sampled_from([1e-6, 1.0, 1e6]))
def test_level_of_the_simplex(values: list[float], scale: float) -> None:
    scaled = scale * np.array(values)
    out = np.empty(4)
    project(scaled, 4, out)
    found = np.maximum(scaled - simplex_level(*scaled), 0.0)
    np.testing.assert_allclose(found, out, rtol=0, atol=1e-14 + 1e-15 * scale)


def test_only_graphs_of_binary_pairs_are_done_so() -> None:
    for small, expected in (
        (random_small(0, states=2, tree=True), True),
        (random_small(0, states=2), False),  # has a triple
        (random_small(0, states=3, tree=True), False),
        (random_small(0, states=2, tree=True, featured=True), False),
    ):
        compiled = compile_problem(small.problem())
        form = make_formulation(1.0, "max", "margin", np.ones(compiled.n))
        solver = SoftBCFW(compiled, form, Workers(1, compiled.scratch_size), 0)
        assert isinstance(solver.blocks.factors, BinaryPairs) == expected
