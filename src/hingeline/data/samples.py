"""What readers of feature vectors return: labelled rows, label sets and labelled sequences."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

Array = np.ndarray[Any, Any]


class FlatData(NamedTuple):
    """Labelled rows.

    Attributes
    ----------
    X : csr_matrix of shape (rows, features)
    y : ndarray of shape (rows,)
        Integers if all labels are whole numbers, else floats.
    qid : int64 ndarray of shape (rows,), or None
        Query numbers, where the file has them.
    comments : list of str, or None
        What followed ``#`` in each row, where any row has it.
    """

    X: sp.csr_matrix
    y: Array
    qid: Array | None = None
    comments: list[str] | None = None


class MultilabelData(NamedTuple):
    """Rows with any number of labels.

    Attributes
    ----------
    X : csr_matrix or float64 ndarray of shape (rows, features)
        Sparse or dense as the file is.
    Y : csr_matrix of shape (rows, labels), dtype uint8
        1 where a row has a label. Sparse, because a file of a few bytes can name a huge label;
        ``Y.toarray()`` is the usual indicator matrix.
    feature_names, label_names : list of str, or None
        Names, where the format has them.
    """

    X: Any
    Y: sp.csr_matrix
    feature_names: list[str] | None = None
    label_names: list[str] | None = None


class LabelledSequences(NamedTuple):
    """Labelled sequences.

    Attributes
    ----------
    X : list of list of dict of str to float, or SparseSequences
        Attributes of each token of each sequence, named or numbered.
    y : list of list of str
        Labels of each token of each sequence.
    """

    X: Any
    y: list[list[str]]
