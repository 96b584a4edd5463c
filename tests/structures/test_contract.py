"""One contract for every structure, ours and a user's own: what solvers rely on.

Everything is seen through the primitives, compiled as a solver compiles them. All outputs of a
few small examples are listed, and their planes then have to fit together, decoding has to find
the best of them, and training on them has to reach the optimum of an independent QP.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

from hingeline._jit import kernel
from hingeline.core import primitives
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import (
    Compiled,
    Workers,
    decode,
    decode_excess,
    output_length,
    plane_add,
    plane_loss,
    plane_score,
    plane_sqdist,
    planes_add,
    planes_list,
    planes_score,
    truth,
)
from hingeline.inference.factor_graph import join, make_topology
from hingeline.solvers.sdm import SDM
from hingeline.structures import chain, custom, dependency, graph, graph_blocks, multiclass, segment
from hingeline.testing import check_structure

# isort: split
from marks import slow
from naive import all_trees
from reference import EnumeratedProblem, primal, solve
from segmentations import list_segmentations

N_LABELS = 3
C = 0.7


def make_rows(n: int, d: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8))


def make_multiclass() -> Compiled:
    rows = make_rows(6, 3, 0)
    labels = np.array([0, 1, 2, 0, 1, 2])
    costs = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [1.0, 3.0, 0.0]])
    return multiclass.compile_problem(
        multiclass.make_problem(rows.indptr, rows.indices, rows.data, labels, 3, costs)
    )


def make_chain(boundary: bool, kind: type = chain.PlainChain, right: float = 0.0) -> Compiled:
    """``right`` stands on the diagonal of the costs."""
    rows = make_rows(9, 3, 1)
    labels = np.random.default_rng(2).integers(N_LABELS, size=9).astype(np.int32)
    problem = chain.make_problem(
        rows.indptr,
        rows.indices,
        rows.data,
        np.array([0, 3, 4, 6, 9]),
        labels,
        3,
        1.0 - (1.0 - right) * np.eye(N_LABELS),
        boundary,
    )
    return chain.compile_problem(kind(*problem))


def make_graph(edges: list[tuple[int, int]]) -> Compiled:
    """Three examples on the same graph of four variables."""
    n, size = 3, 4
    rows = make_rows(n * size, 3, 3)
    return graph.compile_problem(
        graph_blocks.make_problem(
            join([make_topology([N_LABELS] * size, edges)]),
            np.zeros(size, dtype=int),
            np.zeros(len(edges), dtype=int),
            np.array([N_LABELS]),
            np.array([1]),
            np.array([N_LABELS**2]),
            rows,
            np.random.default_rng(4).integers(N_LABELS, size=n * size),
            1.0 - np.eye(N_LABELS),
            graph=np.zeros(n, dtype=int),
        )
    )


def make_segments(by_span: bool, boundary: bool = True, cache_mb: float = 512.0) -> Compiled:
    """Label 1 is outside, the others have two and three tokens at most; some have features."""
    rng = np.random.default_rng(7)
    lengths, bits, max_length = np.array([4, 1, 2, 5]), 2, np.array([2, 1, 3])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = make_rows(offsets[-1], 3, 1)
    known = [list_segmentations(n, max_length, bits) for n in lengths]
    own = [
        (lo + end, length, feature)
        for n, lo in zip(lengths, offsets, strict=False)
        for end in range(n)
        for length in range(1, min(end + 1, 3) + 1)
        for feature in np.flatnonzero(rng.random(4) < 0.3)
    ]
    ends, sizes, features = np.array(own).T
    problem = segment.make_problem(
        rows.indptr,
        rows.indices,
        rows.data,
        offsets,
        np.concatenate([ys[rng.integers(len(ys))] for ys in known]),
        3,
        max_length,
        bits,
        segments=(np.searchsorted(ends, np.arange(offsets[-1] + 1)), sizes, features),
        n_segment_features=4,
        weight=np.array([1.0, 0.5, 2.0]),
        outside=1,
        by_span=by_span,
        boundary=boundary,
        cache_mb=cache_mb,
    )
    return segment.compile_problem(problem)


def make_dependencies(projective: bool) -> Compiled:
    """Sentences of 3, 1, 2 and 3 words, two labels; tables so small that features collide."""
    rng = np.random.default_rng(7)
    offsets = np.array([0, 3, 4, 6, 9])
    problem = dependency.DependencyProblem(
        *(rng.integers(2**32, size=(10, 6), dtype=np.uint32) for _ in range(2)),
        tags=rng.integers(-1, 3, size=10),
        tag_codes=rng.integers(2**32, size=3, dtype=np.uint32),
        offsets=offsets,
        labels=np.zeros(9, dtype=np.int32),
        barred=np.zeros((2, 4)),
        n_arc=3,
        n_pair=1,
        arc_shift=27,
        label_shift=28,
        n_labels=2,
        stride=4,
        projective=int(projective),
        labelled=1,
    )
    compiled = dependency.compile_problem(problem)
    outputs = [list_outputs(compiled, i) for i in range(4)]
    for i, known in enumerate(outputs):
        problem.labels[offsets[i] : offsets[i + 1]] = known[rng.integers(len(known))]
    return compiled


def list_outputs(compiled: Compiled, i: int) -> Any:
    """All outputs of an example: sequences over three labels, segmentations, or trees with two."""
    length, problem = int(compiled.lengths[i]), compiled.problem
    if isinstance(problem, segment.SegmentProblem):
        return list_segmentations(length, problem.max_length, problem.bits)
    if not isinstance(problem, dependency.DependencyProblem):
        return np.array([*itertools.product(range(N_LABELS), repeat=length)], dtype=np.int32)
    heads = np.array(all_trees(length, bool(problem.projective)))
    labels = np.array([*itertools.product(range(2), repeat=length)])
    return (2 * heads[:, None] + labels).reshape(-1, length).astype(np.int32)


def make_own(structure: Any) -> Compiled:
    rng = np.random.default_rng(5)
    X = [rng.normal(size=(length, 2)) for length in (3, 1, 2, 3)]
    Y = [rng.integers(N_LABELS, size=len(x)).astype(np.int32) for x in X]
    check_structure(structure, X, Y)
    return custom.compile_problem(structure, X, Y)


CASES = {
    "multiclass": lambda request: make_multiclass(),
    "chain": lambda request: make_chain(True),
    "chain without boundary": lambda request: make_chain(False),
    "chain of many labels": lambda request: make_chain(True, chain.ChainProblem),
    "chain, zero-one loss": lambda request: make_chain(True, chain.ZeroOneChain, 1.0),
    "dependencies": lambda request: make_dependencies(False),
    "dependencies, projective": lambda request: make_dependencies(True),
    "tree": lambda request: make_graph([(0, 1), (1, 2), (1, 3)]),
    "loop": lambda request: make_graph([(0, 1), (1, 2), (2, 3), (0, 3)]),
    "segments, tokens wrong": lambda request: make_segments(False),
    "segments, spans wrong": lambda request: make_segments(True, boundary=False, cache_mb=0.0),
    "own, compiled": lambda request: make_own(request.getfixturevalue("compiled_chain")()),
    "own, in Python": lambda request: make_own(request.getfixturevalue("python_chain")()),
}


#: They compile most; by default the tests of SSVM and of MultilabelSSVM have them.
SLOW = {"own, compiled", "tree"}
PARAMS = [slow(name) if name in SLOW else name for name in CASES]


@pytest.fixture(scope="module", params=PARAMS)
def compiled(request):
    return CASES[request.param](request)


@kernel
def examine(problem, i, outputs, w, features, numbers, together, sums, y_true, scratch):
    """Planes of all outputs one by one (features, scores, losses, distances) and together."""
    truth(problem, i, y_true)
    for k in range(outputs.shape[0]):
        plane_add(problem, i, outputs[k], 1.0, features[k])
        numbers[0, k] = plane_score(problem, i, outputs[k], w)
        numbers[1, k] = plane_loss(problem, i, outputs[k])
        numbers[2, k] = plane_sqdist(problem, i, outputs[k], outputs[0], scratch)
    planes_score(problem, i, outputs, w, together)
    planes_add(problem, i, outputs, together, sums)
    listed = np.zeros_like(sums)
    code, values = np.empty(0, dtype=np.int64), np.empty(0)
    words, more = planes_list(problem, i, outputs, together, code, values)
    if words < 0:
        return output_length(problem, i), sums.copy()
    code, values = np.full(words, -1, dtype=np.int64), np.empty(more)
    planes_list(problem, i, outputs, together, code, values)
    p = v = 0
    while p < words:
        columns, rows = p + 2, p + 2 + code[p + 1]
        ones, p = code[p] > 0, rows + abs(code[p])
        x = v + rows - columns
        for r in range(rows, p):
            for k in range(columns, rows):
                factor = 1.0 if ones else values[x + r - rows]
                listed[code[r] + code[k]] += factor * values[v + k - columns]
        v = x if ones else x + p - rows
    return output_length(problem, i), listed


@kernel
def find_best(problem, i, w, loss_scale, y):
    value = decode(problem, i, w, loss_scale, y)
    return value, decode_excess(problem, i, w, loss_scale, y)


class Example(NamedTuple):
    """What the primitives say of one example."""

    outputs: Any
    y_true: Any
    features: Any  # Δf of every output
    scores: Any
    losses: Any
    distances: Any  # squared, from the first output
    together: Any  # scores of all planes at once
    sums: Any  # Σ together·Δf, added at once


def see(compiled: Compiled, i: int, w: Any) -> Example:
    length = int(compiled.lengths[i])
    outputs = list_outputs(compiled, i)
    features = np.zeros((len(outputs), compiled.n_weights))
    numbers, together = np.zeros((3, len(outputs))), np.zeros(len(outputs))
    y_true, sums = np.zeros(length, dtype=np.int32), np.zeros(compiled.n_weights)
    scratch = np.zeros(compiled.scratch_size)
    run = compiled.bind(examine)
    given = (outputs, w, features, numbers, together, sums, y_true, scratch)
    found, listed = run(compiled.problem, i, *given)
    assert found == length
    assert listed == pytest.approx(sums, abs=1e-9), "planes_list is not what planes_add adds"
    assert not scratch.any(), "the scratch vector is zero before and after"
    return Example(outputs, y_true, features, *numbers, together, sums)


def used_weights(compiled: Compiled) -> Any:
    """Random weights where any plane has features: the rest is padding."""
    everything = [
        see(compiled, i, np.zeros(compiled.n_weights)).features for i in range(compiled.n)
    ]
    used = np.concatenate(everything).any(axis=0)
    return np.where(used, np.random.default_rng(6).normal(size=compiled.n_weights), 0.0)


def test_planes_fit_together(compiled):
    w = used_weights(compiled)
    for i in range(compiled.n):
        found = see(compiled, i, w)
        is_true = (found.outputs == found.y_true).all(axis=1)
        assert is_true.sum() == 1
        assert not found.features[is_true].any()
        assert found.losses[is_true] == 0.0
        assert (found.losses[~is_true] > 0.0).all()
        np.testing.assert_allclose(found.scores, found.features @ w, rtol=1e-9, atol=1e-9)
        distances = ((found.features - found.features[0]) ** 2).sum(axis=1)
        np.testing.assert_allclose(found.distances, distances, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.together, found.scores, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.sums, found.scores @ found.features, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("loss_scale", [0.0, 1.0, 2.5])
def test_decoding_finds_the_best_output(compiled, loss_scale):
    w = used_weights(compiled)
    run = compiled.bind(find_best)
    for i in range(compiled.n):
        found = see(compiled, i, w)
        # w·f(y) differs from −w·Δf(y) by the score of the truth, the same for all outputs.
        values = loss_scale * found.losses - found.scores
        y = np.zeros(int(compiled.lengths[i]), dtype=np.int32)
        value, excess = run(compiled.problem, i, w, loss_scale, y)
        chosen = int(np.flatnonzero((found.outputs == y).all(axis=1))[0])
        assert values[chosen] == pytest.approx(values.max(), abs=1e-9)
        assert 0.0 <= excess <= 1e-6
        plain, _ = run(compiled.problem, i, w, 0.0, y)
        assert value - plain == pytest.approx(values.max() - (-found.scores).max(), abs=1e-9)


def test_training_reaches_the_optimum_of_an_independent_solver(compiled):
    seen = [see(compiled, i, np.zeros(compiled.n_weights)) for i in range(compiled.n)]
    keep = [(found.outputs != found.y_true).any(axis=1) for found in seen]
    reference = EnumeratedProblem(
        [found.features[k] for found, k in zip(seen, keep, strict=True)],
        [found.losses[k] for found, k in zip(seen, keep, strict=True)],
        [list(found.outputs[k]) for found, k in zip(seen, keep, strict=True)],
        compiled.n_weights,
    )
    best = solve(reference, C, "max", "margin").objective
    form = make_formulation(C, "max", "margin", np.ones(compiled.n))
    with Workers(1, compiled.scratch_size) as workers:
        solver = SDM(compiled, form, workers, 0)
        reached = np.inf
        for k in range(300):
            solver.sweep()
            if k % 10 == 9:
                reached = primal(reference, np.array(solver.w), C, "max", "margin")
                if reached <= best * (1.0 + 1e-7):
                    break
    assert reached == pytest.approx(best, rel=1e-6)


def test_every_structure_of_the_library_keeps_the_contract():
    ours = {type(CASES[name](None).problem) for name in CASES if not name.startswith("own")}
    known = {kind for kind in primitives._IMPLEMENTATIONS if kind.__module__ != custom.__name__}
    assert {kind for kind in known if kind.__module__.startswith("hingeline.")} == ours


def test_what_a_structure_does_not_say_is_known():
    plain, loop = make_chain(True).problem, make_graph([(0, 1), (1, 2), (0, 2)]).problem
    for name in ("decode_by_loss", "decode_best", "planes_score"):
        assert primitives.provides(plain, name)
    assert primitives.provides(loop, "decode_excess")
    for name in ("decode_by_loss", "decode_best", "all_losses"):
        assert not primitives.provides(loop, name)
