"""All segmentations of short sequences, as plain lists and as the numbers that kernels know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Segment = tuple[int, int, int]  # first token, length, label


def all_segmentations(length: int, max_length: Sequence[int]) -> Iterator[list[Segment]]:
    """Every way to cut tokens into labelled pieces that are not too long, from the end."""
    if length == 0:
        yield []
    for label, most in enumerate(max_length):
        for size in range(1, min(length, most) + 1):
            for before in all_segmentations(length - size, max_length):
                yield [*before, (length - size, size, label)]


def number(segments: Sequence[Segment], bits: int) -> list[int]:
    """One number per token: label, length less one, place."""
    return [(k << 2 * bits) | (n - 1) << bits | p for _, n, k in segments for p in range(n)]


def list_segmentations(length: int, max_length: Sequence[int], bits: int) -> Any:
    """All of them, one row of numbers each."""
    found = all_segmentations(length, max_length)
    return np.array([number(segments, bits) for segments in found], dtype=np.int32)
