"""Weights of a stream, laid out so that features and labels can come without moving the rest.

The layout is the structure's own. But the first block (features) has more rows than there are
features, and rows may be longer than labels need, so that a feature or label that finds room
moves nothing, or the few rows behind it. Without room the blocks are copied to a vector with half
as many feature rows more, or with longer rows: adding costs O(1) copied rows per feature added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._simd import aligned_zeros
from hingeline.core.primitives import Layout

Array = np.ndarray[Any, Any]


class LiveWeights:
    """``w = Σ α·a·Δf`` and the sum ``u`` behind the average of its iterates."""

    def __init__(self, shape: Any, n_columns: int, n_labels: int) -> None:
        """``shape`` is the estimator; the constant feature is none of its columns."""
        self.shape = shape
        self.n_columns, self.n_labels = n_columns, n_labels
        self.copies = 0  # how often everything had to move
        self.layout = shape._make_layout(n_columns, n_labels)
        self.stride = next(iter(self.layout.values())).stride
        self._w, self._u = self._allocate(), self._allocate()

    @property
    def w(self) -> Array:
        """The weights, as solvers take them."""
        return self._w[: self.layout.size]

    @property
    def u(self) -> Array:
        """``Σ drift·a·Δf``."""
        return self._u[: self.layout.size]

    def _allocate(self) -> Array:
        """Zeros with room for as many labels as a row holds."""
        return aligned_zeros(self.shape._make_layout(self.n_columns, self.stride, self.stride).size)

    def restart_average(self) -> None:
        """Forget the iterates before this moment."""
        self._u = aligned_zeros(len(self._u))

    def make_room(self, n_columns: int, n_labels: int) -> None:
        """Let there be so many features and labels, at least as many as before."""
        columns, stride = self.n_columns, self.stride
        if n_columns > columns:
            columns = n_columns + (n_columns + ("intercept" in self.layout)) // 2
        if n_labels > stride:
            stride = self.shape._roomy_stride(n_labels)
        before, grows = self.layout, (columns, stride) != (self.n_columns, self.stride)
        self.n_columns, self.n_labels, self.stride = columns, n_labels, stride
        self.layout = self.shape._make_layout(columns, n_labels, stride)
        if grows:
            self._w, self._u = (self._copy(flat, before) for flat in (self._w, self._u))
            self.copies += 1
        else:
            self._shift(before)

    def _copy(self, flat: Array, before: Layout) -> Array:
        """The same weights in a larger vector."""
        new = self._allocate()
        for name, block in before.items():
            target = self.layout[name].padded(new)
            target[: block.rows, : block.stride] = block.padded(flat)
        return new

    def _shift(self, before: Layout) -> None:
        """Move the blocks that lie behind one that has got more rows."""
        moved = [name for name, block in before.items() if self.layout[name].start != block.start]
        if moved:
            first = before[moved[0]].start
            for flat in (self._w, self._u):
                kept = {name: before[name].padded(flat).copy() for name in moved}
                flat[first : self.layout.size] = 0.0
                for name, table in kept.items():
                    self.layout[name].padded(flat)[:] = table

    def average(self, n_columns: int, visits: float) -> Array:
        """A copy of the average of so many iterates, without room to spare."""
        factor = -1.0 / (visits * (visits + 1.0)) if visits > 0 else 0.0
        tight = self.shape._make_layout(n_columns, self.n_labels)
        flat = aligned_zeros(tight.size)
        for name, block in tight.items():
            out = block.table(flat)
            w, u = (self.layout[name].table(f)[: block.rows] for f in (self._w, self._u))
            if factor:  # no third copy of the weights
                out[:] = u
                out *= factor
                out += w
            else:
                out[:] = w
        return flat
