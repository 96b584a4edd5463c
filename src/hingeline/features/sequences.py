"""Encoded sequences: one CSR matrix of all tokens, cut into sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

Array = np.ndarray[Any, Any]


class SparseSequences:
    """Sequences of sparse tokens, stacked; what encoders return and ``ChainSSVM`` takes.

    Stacked once by the encoder, it spares the estimator checking and stacking one matrix per
    sequence. ``sequences[i]`` is a CSR matrix (tokens, features); a slice, a mask or an array of
    numbers gives sequences again.

    Parameters
    ----------
    matrix : csr_matrix of shape (tokens, features)
    offsets : int64 ndarray of shape (sequences + 1,)
        Sequence i has the rows ``offsets[i]`` to ``offsets[i + 1] − 1``.
    """

    def __init__(self, matrix: sp.csr_matrix, offsets: Any) -> None:
        self.matrix = matrix if isinstance(matrix, sp.csr_matrix) else sp.csr_matrix(matrix)
        self.offsets = np.asarray(offsets, dtype=np.int64)
        if self.offsets[0] != 0 or self.offsets[-1] != self.matrix.shape[0]:
            raise ValueError(
                f"offsets run from {self.offsets[0]} to {self.offsets[-1]}, but the matrix has "
                f"{self.matrix.shape[0]} rows: they must run from 0 to that."
            )

    @property
    def shape(self) -> tuple[int]:
        """The number of sequences; scikit-learn then cuts folds by indexing, not one by one."""
        return (len(self),)

    @property
    def lengths(self) -> Array:
        """Tokens of each sequence."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, (int, np.integer)):
            i = range(len(self))[int(which)]
            return self.matrix[self.offsets[i] : self.offsets[i + 1]]
        if isinstance(which, tuple) and len(which) == 2 and which[1] is Ellipsis:
            which = which[0]
        chosen = np.arange(len(self))[which]
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(self.offsets[:-1][chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return SparseSequences(self.matrix[rows], offsets)

    def __iter__(self) -> Iterator[sp.csr_matrix]:
        return (self[i] for i in range(len(self)))


def sequences_from_columns(
    columns: Array, offsets: Array, n_features: int, dtype: Any, tidy: bool
) -> SparseSequences:
    """Sequences whose tokens have a one in each of their columns.

    Parameters
    ----------
    columns : int32 ndarray of shape (entries per token, tokens)
        −1 for no entry.
    offsets, n_features, dtype
        Cuts of the sequences, width and type of the matrix.
    tidy : bool
        Whether the columns of each token rise; otherwise they are sorted, and repeated ones
        added up.
    """
    per_token, n_tokens = columns.shape
    index_dtype = np.int32 if columns.size < 2**31 else np.int64
    missing = columns < 0
    if missing.any():
        counts = per_token - missing.sum(axis=0, dtype=index_dtype)
        indptr = np.zeros(n_tokens + 1, dtype=index_dtype)
        np.cumsum(counts, out=indptr[1:])
        indices = columns.T.ravel()
        indices = indices[indices >= 0]
    else:
        indptr = np.arange(n_tokens + 1, dtype=index_dtype) * per_token
        indices = columns.T.ravel()
    matrix = sp.csr_matrix(
        (np.ones(len(indices), dtype=dtype), indices, indptr), shape=(n_tokens, n_features)
    )
    if tidy:
        matrix.has_canonical_format = True
    else:
        matrix.sum_duplicates()
    return SparseSequences(matrix, offsets)
