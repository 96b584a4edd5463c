"""Writers of SVMlight's format and its relatives; the readers are in ``svmlight``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.data.output import Target, atomic_text, number_text
from hingeline.data.text import shown
from hingeline.features.sequences import SparseSequences


def write_svmlight(
    target: Target,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    comments: Sequence[str] | None = None,
    zero_based: bool = False,
) -> None:
    """Write labelled rows as ``label index:value …``.

    Parameters
    ----------
    target : path, "-" or file object
        Compressed if the name ends in ``.gz``.
    X : sparse matrix or array of shape (rows, features)
    y : array of shape (rows,)
        Numbers.
    qid : array of int of shape (rows,), optional
    comments : sequence of str, optional
        Written after ``#`` where not empty.
    zero_based : bool, default=False
        Number features from 0.
    """
    labels = np.asarray(y)
    if labels.dtype.kind not in "biuf" or not np.all(np.isfinite(labels)):
        raise ValueError("y must be finite numbers to be written as labels: number the classes.")
    heads = [number_text(label) for label in labels.tolist()]
    if qid is not None:
        numbers = np.asarray(qid).tolist()
        heads = [f"{head} qid:{number}" for head, number in zip(heads, numbers, strict=True)]
    _write_rows(target, X, heads, comments, zero_based)


def write_multilabel(
    target: Target,
    X: Any,
    Y: Any,
    *,
    comments: Sequence[str] | None = None,
    zero_based: bool = False,
) -> None:
    """Write rows with sets of labels as ``1,3,5 index:value …``; parameters as above.

    Y is an indicator matrix, sparse or not; column k is label k.
    """
    indicator = sp.csr_matrix(Y)
    indicator.eliminate_zeros()
    indicator.sort_indices()
    columns = indicator.indices.tolist()
    starts = indicator.indptr.tolist()
    heads = [",".join(map(str, columns[lo:hi])) for lo, hi in pairwise(starts)]
    _write_rows(target, X, heads, comments, zero_based, may_be_empty=True)


def write_svmhmm(
    target: Target,
    X: SparseSequences,
    y: Sequence[Sequence[Any]],
    *,
    notes: Sequence[str] | None = None,
) -> None:
    """Write labelled sequences as ``TAG qid:N index:value …``, sequences numbered from 1.

    SVM^hmm itself wants tags that are numbers from 1.

    Parameters
    ----------
    target : path, "-" or file object
        Compressed if the name ends in ``.gz``.
    X : SparseSequences
    y : sequence of sequences of labels
    notes : sequence of str, optional
        One per token, written after ``#`` where not empty.
    """
    lengths = X.lengths.tolist()
    if len(y) != len(lengths):
        raise ValueError(f"X has {len(lengths)} sequences and y has {len(y)}.")
    heads = []
    for i, (labels, length) in enumerate(zip(y, lengths, strict=True)):
        if len(labels) != length or not length:
            raise ValueError(
                f"X[{i}] has {length} tokens and y[{i}] has {len(labels)} labels: they must have "
                "one length, and not none."
            )
        for label in map(str, labels):
            if not label or any(c in "#: \t\n\r\v\f" for c in label):
                raise ValueError(
                    f"y[{i}] has the label {shown(label)}, which this format cannot hold: number "
                    "the labels."
                )
            heads.append(f"{label} qid:{i + 1}")
    _write_rows(target, X.matrix, heads, notes, False)


def _write_rows(
    target: Target,
    X: Any,
    heads: list[str],
    comments: Sequence[str] | None,
    zero_based: bool,
    may_be_empty: bool = False,
) -> None:
    matrix = sp.csr_matrix(X, copy=True)
    matrix.sum_duplicates()
    if matrix.shape[0] != len(heads):
        raise ValueError(f"X has {matrix.shape[0]} rows, but there are {len(heads)} labels.")
    if comments is not None and len(comments) != len(heads):
        raise ValueError(f"X has {len(heads)} rows, but there are {len(comments)} comments.")
    if not np.all(np.isfinite(matrix.data)):
        raise ValueError("X has values that are not finite: they cannot be written.")
    starts = matrix.indptr.tolist()
    shift = 0 if zero_based else 1
    with atomic_text(target) as out:
        for i, head in enumerate(heads):
            part = slice(starts[i], starts[i + 1])
            indices = (matrix.indices[part] + shift).tolist()
            values = matrix.data[part].tolist()
            items = [f"{k}:{number_text(v)}" for k, v in zip(indices, values, strict=True)]
            comment = comments[i] if comments is not None else ""
            if any(c in "\n\r" for c in comment):
                raise ValueError(f"comment {i} has a line end: it must fit into the line.")
            if comment:
                items.append(f"# {comment}")
            if may_be_empty and not head and not any(":" in item for item in items[:1]):
                raise ValueError(
                    f"row {i} has neither labels nor features: a blank line would be skipped."
                )
            out.write(" ".join([head, *items] if head else items) + "\n")
