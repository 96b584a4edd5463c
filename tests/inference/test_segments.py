"""Decoding of segmentations against all of them, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hingeline._jit import kernel
from hingeline.inference.segments import SegmentScores, best_segments, n_best_segments

# isort: split
from marks import slow
from segmentations import Segment, all_segmentations, number

BITS = 3


@kernel
def run_best(scores, bits, y):
    return best_segments(scores, bits, y)


@kernel
def run_n_best(scores, bits, ys, values):
    return n_best_segments(scores, bits, ys, values)


def draw(length: int, max_length: list[int], seed: int, integers: bool = False) -> SegmentScores:
    """Random scores, with extras for some segments; integers make ties."""
    rng = np.random.default_rng(seed)
    m = len(max_length)
    stride, longest = (m + 3) // 4 * 4, min(length, max(max_length))

    def table(rows: int) -> Any:
        drawn = rng.normal(size=(rows, stride))
        return np.round(drawn) if integers else drawn

    lengths = table(longest)
    for k, most in enumerate(max_length):
        lengths[most:, k] = -np.inf
    lengths[:, m:] = -np.inf
    own = [[d for d in range(min(t + 1, longest)) if rng.random() < 0.3] for t in range(length)]
    ends = np.cumsum([0, *map(len, own)])
    flat = np.array([d for ds in own for d in ds], dtype=np.int64)
    tables = [table(length) for _ in range(3)]
    return SegmentScores(*tables, lengths, ends, flat, table(len(flat)), table(m), m)


def score(scores: SegmentScores, segments: list[Segment]) -> float:
    """The score of a segmentation, as the module defines it."""
    total, before = 0.0, None
    for start, length, k in segments:
        end = start + length - 1
        total += scores.first[start, k] + scores.last[end, k] + scores.lengths[length - 1, k]
        total += scores.inside[start : end + 1, k].sum()
        for p in range(scores.ends[end], scores.ends[end + 1]):
            if scores.extra_length[p] == length - 1:
                total += scores.extra[p, k]
        if before is not None:
            total += scores.moves[before, k]
        before = k
    return float(total)


CASES = [(1, [1]), (3, [1, 2]), (5, [1, 3, 2]), (6, [5]), (4, [2, 1, 4, 1, 3])]


@pytest.mark.parametrize(("length", "max_length"), CASES)
@pytest.mark.parametrize("integers", [False, True])
def test_decoders_find_the_best_of_all_segmentations(length, max_length, integers):
    for seed in range(10):
        scores = draw(length, max_length, seed, integers)
        known = {
            tuple(number(s, BITS)): score(scores, s) for s in all_segmentations(length, max_length)
        }
        values = np.sort([*known.values()])[::-1]
        y = np.zeros(length, dtype=np.int32)
        found = run_best(scores, BITS, y)
        assert found == pytest.approx(values[0], abs=1e-9)
        assert known[tuple(y.tolist())] == pytest.approx(values[0], abs=1e-9)
        for n in (1, 4, len(known) + 2):
            ys, best = np.zeros((n, length), dtype=np.int32), np.zeros(n)
            count = run_n_best(scores, BITS, ys, best)
            assert count == min(n, len(known))
            assert best[:count] == pytest.approx(values[:count], abs=1e-9)
            listed = [tuple(row) for row in ys[:count].tolist()]
            assert len(set(listed)) == count
            assert [known[row] for row in listed] == pytest.approx(best[:count], abs=1e-9)
            assert listed[0] == tuple(y.tolist())


@pytest.mark.parametrize("length", [40, slow(400)])
def test_long_segments_equal_a_plain_dynamic_program(length):
    """O(T·longest·labels²), with nothing shared between segments but the definition."""
    max_length = [9, 1, 30]
    scores = draw(length, max_length, 3)
    best = np.full((length + 1, 3), -np.inf)
    for t in range(length):
        for k, most in enumerate(max_length):
            for size in range(1, min(most, t + 1) + 1):
                own = score(scores, [(t - size + 1, size, k)])
                before = best[t - size + 1] + scores.moves[:, k] if t + 1 > size else [0.0]
                best[t + 1, k] = max(best[t + 1, k], own + max(before))
    y = np.zeros(length, dtype=np.int32)
    assert run_best(scores, 5, y) == pytest.approx(best[length].max(), abs=1e-9)
