"""Pairs of binary variables in closed form: what factors in general would have done."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Workers
from hingeline.solvers.relaxed.blocks import Dual, project
from hingeline.solvers.relaxed.passes import (
    Units,
    add_weights,
    evaluate,
    move_centre,
    pass_units,
    simplex_level,
)
from hingeline.solvers.relaxed.soft import SoftBCFW
from hingeline.structures.graph import compile_problem
from hingeline.structures.graph_blocks import AnyFactors, BinaryPairs

# isort: split
from relaxation import Example, Small, random_small

N = 3
ARRAYS = ("w", "mu", "sums", "mass", "gaps", "centre", "centre_sums")


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
    units: Units
    dual: Dual

    def copy(self, paired: bool) -> Case:
        """The same with or without the closed form."""
        kind = BinaryPairs() if paired else AnyFactors()
        blocks = self.dual.blocks._replace(factors=kind)
        arrays = {name: getattr(self.dual, name).copy() for name in ARRAYS}
        dual = self.dual._replace(blocks=blocks, **arrays)
        return Case(self.problem, self.units, dual)

    def evaluate(self) -> Any:
        out = np.zeros((N, 5))
        evaluate(self.problem, self.dual, self.dual, np.arange(N), 0, out)
        return out

    def visit(self, least: float) -> tuple[float, Any]:
        """Visit all units, the last example first; the gain and the sum of the weights met."""
        total = np.zeros(len(self.dual.w))
        order = np.arange(len(self.units.owners))[::-1].copy()
        dual = self.dual._replace(least=least)
        return pass_units(self.problem, dual, self.units, order, 1, total)[1], total


def case(seed: int, centred: bool, sharp: bool, kappa: float = 1.0) -> Case:
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
        solver.units,
        solver.at(0.3 * rng.normal(size=len(solver.w)), form.cap)._replace(kappa=kappa),
    )


def assert_same(a: Case, b: Case, atol: float) -> None:
    for name in ARRAYS:
        x, y = getattr(a.dual, name), getattr(b.dual, name)
        small = max(atol, 1e-6) if x.dtype == np.float32 else atol
        np.testing.assert_allclose(x, y, rtol=0, atol=small, err_msg=name)


seeds = st.integers(0, 2**32 - 1)


@pytest.mark.slow
@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans(), st.booleans(), st.floats(0.01, 2.0))
def test_evaluations(seed: int, centred: bool, sharp: bool, kappa: float) -> None:
    start = case(seed, centred, sharp, kappa)
    found = []
    for paired in (True, False):
        own = start.copy(paired)
        found.append((own, own.evaluate()))
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-11)
    assert_same(found[0][0], found[1][0], 1e-12)


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans(), st.booleans(), st.floats(0.01, 2.0), st.sampled_from([0.0, 0.5]))
def test_steps(seed: int, centred: bool, sharp: bool, kappa: float, least: float) -> None:
    """One projection gains at least half of what exchanges do, and the other way round."""
    start = case(seed, centred, sharp, kappa)
    start.dual.gaps[:] = np.float32(1.0)
    gains = []
    for paired in (True, False):
        own = start.copy(paired)
        own.evaluate()  # sums must be right, and gaps decide who is visited
        before = own.dual.gaps.copy()
        gain, total = own.visit(least)
        assert np.isfinite(total).all()
        moved = (own.dual.gaps != before)[before < least]
        assert not moved.any()
        gains.append(gain)
    assert gains[0] >= 0.5 * gains[1] - 1e-6
    assert gains[1] >= 0.5 * gains[0] - 1e-6


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans(), st.floats(0.01, 5.0), st.booleans(), st.booleans())
def test_steps_gain_what_they_say(
    seed: int, sharp: bool, kappa: float, centred: bool, paired: bool
) -> None:
    own = case(seed, centred, sharp, kappa).copy(paired)
    own.dual.w[:] = 0.0
    add_weights(own.problem, own.dual, False)

    def value() -> float:
        out = own.evaluate()
        linear = out[:, 1] - 0.5 * kappa * out[:, 2] + out[:, 3]
        return float(own.dual.cap @ linear) - 0.5 * float(own.dual.w @ own.dual.w)

    if centred:  # what is drawn to variables is the sum of their factors' centres
        move_centre(own.problem, own.dual, np.arange(N), 0.0)
    before = value()
    gain, _ = own.visit(0.0)
    assert gain >= -1e-9
    # Exchanges count what they meant to move; what is stored is float32.
    assert value() - before == pytest.approx(gain, abs=1e-9 if paired else 1e-5)


@settings(deadline=None)  # the first case may compile
@given(seeds, st.booleans())
def test_weights_and_couplings(seed: int, sharp: bool) -> None:
    start = case(seed, False, sharp)
    for coupled in (False, True):
        ends = []
        for paired in (True, False):
            own = start.copy(paired)
            add_weights(own.problem, own.dual, coupled)
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
