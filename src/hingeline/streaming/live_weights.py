"""Weights of a stream, laid out so that features and labels can come without moving the rest.

As everywhere the flat vector is a table of rows of ``stride`` labels: features, of these the
constant one last, then (chains) moves from each label, then start and end. Here there are more
feature rows than features, the constant one at the end of the room, and rows may be longer than
labels need. A feature or label that finds room moves nothing, or three rows. Without room the
table is copied to one with half as many feature rows more, or with longer rows, so that adding
costs O(1) copied rows per feature added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._simd import aligned_zeros
from hingeline.structures.chain import padded

Array = np.ndarray[Any, Any]


def longer_stride(n_labels: int, chain: bool) -> int:
    """A row for so many labels with some to spare.

    Rows of chains grow by an eighth. Kernels over all classes allow for less than 8 more.
    """
    return padded(n_labels + max(4, n_labels // 8)) if chain else padded(n_labels) + 4


class LiveWeights:
    """``w = Σ α·a·Δf`` and the sum ``u`` behind the average of its iterates.

    Parameters
    ----------
    n_columns, n_labels : int
        Features (without the constant one) and labels to begin with.
    chain, boundary, constant : bool
        Which rows there are beside features.
    visits : float
        Iterates that the average counts so far.
    """

    def __init__(
        self,
        n_columns: int,
        n_labels: int,
        *,
        chain: bool,
        boundary: bool,
        constant: bool,
        visits: float = 0.0,
    ) -> None:
        self.chain, self.boundary, self.constant = chain, boundary, constant
        self.n_labels = n_labels
        self.n_features = n_columns + constant
        self.stride = padded(n_labels)
        self.visits = visits
        self.copies = 0  # how often everything had to move
        self._w = aligned_zeros(self._room(self.n_features, self.stride))
        self._u = aligned_zeros(len(self._w))

    def _room(self, n_features: int, stride: int) -> int:
        return (n_features + (stride + 2 * self.boundary if self.chain else 0)) * stride

    @property
    def _size(self) -> int:
        behind = self.n_labels + 2 * self.boundary if self.chain else 0
        return (self.n_features + behind) * self.stride

    @property
    def w(self) -> Array:
        """The weights, as solvers take them."""
        return self._w[: self._size]

    @property
    def u(self) -> Array:
        """``Σ drift·a·Δf``."""
        return self._u[: self._size]

    def restart_average(self) -> None:
        """Forget the iterates before this moment."""
        self.visits = 0.0
        self._u = aligned_zeros(len(self._w))

    def make_room(self, n_columns: int, n_labels: int) -> None:
        """Let there be so many features and labels, at least as many as before."""
        needed = n_columns + self.constant
        n_features, stride = self.n_features, self.stride
        if needed > n_features:
            n_features = needed + needed // 2
        if n_labels > stride:
            stride = longer_stride(n_labels, self.chain)
        if (n_features, stride) != (self.n_features, self.stride):
            self._w = self._moved(self._w, n_features, stride)
            self._u = self._moved(self._u, n_features, stride)
            self.n_features, self.stride = n_features, stride
            self.copies += 1
        if n_labels > self.n_labels and self.chain and self.boundary:
            before, now = self.n_features + self.n_labels, self.n_features + n_labels
            for flat in (self._w, self._u):
                table = flat.reshape(-1, self.stride)
                ends = table[before : before + 2].copy()
                table[before : now + 2] = 0.0
                table[now : now + 2] = ends
        self.n_labels = n_labels

    def _moved(self, flat: Array, n_features: int, stride: int) -> Array:
        """The same weights in a larger table."""
        old = flat.reshape(-1, self.stride)
        moved = aligned_zeros(self._room(n_features, stride))
        new = moved.reshape(-1, stride)
        last = self.n_features - self.constant
        new[:last, : self.stride] = old[:last]
        if self.constant:
            new[n_features - 1, : self.stride] = old[self.n_features - 1]
        behind = len(old) - self.n_features
        new[n_features : n_features + behind, : self.stride] = old[self.n_features :]
        return moved

    def averaged(self, n_columns: int) -> Array:
        """A copy of the average of the iterates, without room to spare."""
        factor = -1.0 / (self.visits * (self.visits + 1.0)) if self.visits > 0 else 0.0
        stride, m = padded(self.n_labels), self.n_labels
        rows = self._size // self.stride - self.n_features + n_columns + self.constant
        flat = aligned_zeros(rows * stride)
        out = flat.reshape(-1, stride)[:, :m]
        w = self.w.reshape(-1, self.stride)[:, :m]
        u = self.u.reshape(-1, self.stride)[:, :m]
        behind = self.n_features - self.constant
        features = slice(0, n_columns), slice(0, n_columns)
        rest = slice(n_columns, None), slice(behind, None)
        for target, source in (features, rest):
            if factor:  # no third copy of the weights
                out[target] = u[source]
                out[target] *= factor
                out[target] += w[source]
            else:
                out[target] = w[source]
        return flat
