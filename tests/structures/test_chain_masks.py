"""Forbidden labels and moves in every decoder of the chain, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hingeline._jit import kernel
from hingeline.core import primitives as base
from hingeline.inference.chain import against_rest, max_sum
from hingeline.structures import chain
from hingeline.structures import chain_batch as kernels

# isort: split
from naive import chain_joint_feature, chain_size, enumerate_outputs, hamming

FEW = settings(max_examples=25, deadline=None, derandomize=True)


@kernel
def decode(problem, i, w, loss_scale, y_out):
    return base.decode(problem, i, w, loss_scale, y_out)


@kernel
def decode_by_loss(problem, i, w):
    return base.decode_by_loss(problem, i, w)


DECODE = [decode, chain.decode]
DECODE_BY_LOSS = [decode_by_loss, chain.decode_by_loss]


class Case:
    """Three short chains with random masks, the weights, and every allowed output's score."""

    def __init__(self, seed: int, boundary: bool, moves: bool, tokens: bool) -> None:
        rng = np.random.default_rng(seed)
        self.L = L = int(rng.integers(1, 4))
        lengths = rng.integers(1, 5, size=3)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        x = rng.normal(size=(offsets[-1], 3)) * (rng.random((offsets[-1], 3)) < 0.7)
        y = rng.integers(L, size=offsets[-1]).astype(np.int32)
        rows = sparse.csr_array(x)
        free = chain.make_problem(
            rows.indptr, rows.indices, rows.data, offsets, y, 3, 1.0 - np.eye(L), boundary
        )
        valid = tuple(rng.random(shape) < 0.7 for shape in ((L,), (L, L), (L,))) if moves else None
        allowed = rng.random((offsets[-1], L)) < 0.7 if tokens else None
        self.problem = chain.constrain(free, valid, allowed)
        w = rng.normal(size=chain_size(3, L, boundary))
        self.w = np.pad(w.reshape(-1, L), ((0, 0), (0, free.stride - L))).ravel()
        self.Y = np.split(y, offsets[1:-1])
        self.outputs = []
        for i, part in enumerate(np.split(x, offsets[1:-1])):
            rows_of = None if allowed is None else allowed[offsets[i] : offsets[i + 1]]
            self.outputs.append(
                {
                    out: float(w @ chain_joint_feature(part, out, L, boundary))
                    for out in enumerate_outputs(len(part), L)
                    if (valid is None or follows(out, *valid))
                    and (rows_of is None or all(rows_of[t, k] for t, k in enumerate(out)))
                }
            )


def follows(out, start, move, end):
    inner = all(move[j, k] for j, k in itertools.pairwise(out))
    return start[out[0]] and inner and end[out[-1]]


cases = st.builds(
    Case, st.integers(0, 2**20), st.booleans(), st.booleans(), st.booleans() | st.just(True)
)


@FEW
@given(cases, st.sampled_from([0.0, 1.5]))
def test_decode_ranges_over_allowed_outputs(case, scale):
    for i, scores in enumerate(case.outputs):
        augmented = {y: v + scale * hamming(case.Y[i], y) for y, v in scores.items()}
        for way in DECODE:
            y = np.empty(len(case.Y[i]), dtype=np.int32)
            value = way(case.problem, i, case.w, scale, y)
            if not augmented:
                assert value == -np.inf
            else:
                assert value == pytest.approx(max(augmented.values()), abs=1e-10)
                assert augmented[tuple(y.tolist())] == pytest.approx(value, abs=1e-10)


@FEW
@given(cases)
def test_decode_by_loss_ranges_over_allowed_outputs(case):
    for i, scores in enumerate(case.outputs):
        expected = {}
        for y, value in scores.items():
            loss = hamming(case.Y[i], y)
            expected[loss] = max(value, expected.get(loss, -np.inf))
        for way in DECODE_BY_LOSS:
            losses, ys = way(case.problem, i, case.w)
            assert losses.tolist() == sorted(expected)
            for loss, y in zip(losses, ys, strict=True):
                assert scores[tuple(y.tolist())] == pytest.approx(expected[loss], abs=1e-10)
                assert hamming(case.Y[i], y) == loss


@FEW
@given(cases)
def test_prediction_kernels(case):
    problem, w = case.problem, case.w
    order, tokens = np.arange(3), problem.offsets[-1]
    y, values = np.empty(tokens, dtype=np.int32), np.empty(3)
    kernels.decode_all(problem, order, w, y, values)
    marginals = np.full((tokens, case.L), np.nan)
    kernels.max_marginals_all(problem, order, w, marginals)
    paths, scores, counts = np.zeros(4 * tokens, dtype=np.int32), np.empty((3, 4)), np.zeros(3, int)
    kernels.n_best_all(problem, order, w, paths, scores, counts)
    table = marginals.copy()
    against_rest(table)
    gaps = np.minimum.reduceat(table.max(axis=1), problem.offsets[:-1])
    for i, outputs in enumerate(case.outputs):
        ranked = sorted(outputs.values(), reverse=True)
        lo, hi = problem.offsets[i : i + 2]
        expected = np.full((hi - lo, case.L), -np.inf)
        for out, value in outputs.items():
            for t, k in enumerate(out):
                expected[t, k] = max(expected[t, k], value)
        np.testing.assert_allclose(marginals[lo:hi], expected, atol=1e-10)
        assert counts[i] == min(4, len(ranked))
        np.testing.assert_allclose(scores[i, : counts[i]], ranked[:4], atol=1e-10)
        best = paths[4 * lo : 4 * hi].reshape(4, -1)
        assert all(tuple(path.tolist()) in outputs for path in best[: counts[i]])
        if not ranked:
            assert values[i] == -np.inf
            assert gaps[i] == -np.inf
        else:
            assert values[i] == pytest.approx(ranked[0], abs=1e-10)
            second = ranked[1] if len(ranked) > 1 else -np.inf
            assert gaps[i] == pytest.approx(ranked[0] - second, abs=1e-10)


def test_without_masks_transitions_are_not_copied():
    case = Case(0, True, False, False)
    assert np.shares_memory(chain.moves(case.problem, case.w), case.w)
    masked = chain.constrain(
        case.problem, (np.ones(case.L, bool), np.ones((case.L,) * 2, bool), np.ones(case.L, bool))
    )
    before = case.w.copy()
    assert not np.shares_memory(chain.moves(masked, case.w), case.w)
    np.testing.assert_array_equal(case.w, before)


@pytest.mark.parametrize("seed", range(6))
def test_many_labels_with_masks(seed):
    """Decoding that looks at few predecessors, against the full table on the same masks."""
    rng = np.random.default_rng(seed)
    L, tokens = 70, 12
    rows = sparse.csr_array(rng.normal(size=(tokens, 3)))
    y = rng.integers(L, size=tokens).astype(np.int32)
    offsets = np.array([0, 7, tokens])
    free = chain.make_problem(
        rows.indptr, rows.indices, rows.data, offsets, y, 3, 1.0 - np.eye(L), True
    )
    share = (0.05, 0.3, 0.9)[seed % 3]
    valid = tuple(rng.random(shape) < share for shape in ((L,), (L, L), (L,)))
    problem = chain.constrain(free, valid, rng.random((tokens, L)) < 0.5)
    w = rng.normal(size=chain.compile_problem(problem).n_weights)
    found, values = np.full(tokens, -7, dtype=np.int32), np.empty(2)
    kernels.decode_all(problem, np.arange(2), w, found, values)
    for i in range(2):
        cut = slice(offsets[i], offsets[i + 1])
        for loss_scale in (0.0, 1.0):
            scores = chain.position_scores(problem, i, w, loss_scale)
            best = np.empty(len(scores), dtype=np.int32)
            expected = max_sum(scores, chain.moves(problem, w), L, best)
            for way in DECODE:
                out = np.full(len(best), -7, dtype=np.int32)
                assert way(problem, i, w, loss_scale, out) == pytest.approx(expected, abs=1e-12)
                np.testing.assert_array_equal(out, best)
            if loss_scale == 0.0:
                assert values[i] == pytest.approx(expected, abs=1e-12)
                np.testing.assert_array_equal(found[cut], best)
