"""Weights by name: as rows, and as a table that people and other programs read."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hingeline.estimators.weight_blocks import split_blocks
from hingeline.persistence import replacing

Array = np.ndarray[Any, Any]

_ROWS_AT_ONCE = 4096


class WeightRow(NamedTuple):
    """One weight and what it belongs to."""

    block: str  # emission or coef, intercept, transition, start, end
    label: Any  # of a transition the one it comes from
    feature: Any  # its name or number; of a transition the label it goes to; else empty
    weight: float


def weights_table(model: Any) -> Iterator[WeightRow]:
    """The weights of a fitted estimator that are not 0, by block, feature and label.

    Features are named by the model's encoder, by ``feature_names_in_``, or by their number.

    Parameters
    ----------
    model : ChainSSVM or MulticlassSSVM

    Yields
    ------
    WeightRow
    """
    if not hasattr(model, "fit_intercept"):
        raise TypeError(
            f"{type(model).__name__} has no named weights: its structure alone knows what "
            "weights_ means."
        )
    if hasattr(model, "_weight_layout"):
        raise TypeError(
            f"the weights of {type(model).__name__} are tables of different shapes: read "
            "unary_coef_ and pairwise_coef_ instead."
        )
    check_is_fitted(model, "weights_")
    labels = model.classes_.tolist()
    for block, table in split_blocks(model).items():
        names: Any = [""]
        if block in ("emission", "coef"):
            names = feature_names(model)
        elif block == "transition":
            names = labels
        for first in range(0, len(table), _ROWS_AT_ONCE):
            part = table[first : first + _ROWS_AT_ONCE]
            rows, columns = np.nonzero(part)
            found = zip(rows.tolist(), columns.tolist(), part[rows, columns].tolist(), strict=True)
            for row, column, weight in found:
                if block == "transition":  # rows are the labels that transitions come from
                    yield WeightRow(block, names[first + row], labels[column], weight)
                else:
                    yield WeightRow(block, labels[column], names[first + row], weight)


def feature_names(model: Any) -> Any:
    """Names of the features, or their numbers."""
    encoder: Any = getattr(model, "encoder_", None)
    if hasattr(encoder, "get_feature_names_out"):
        names = encoder.get_feature_names_out()
        if len(names) == model.n_features_in_:
            return names
    return getattr(model, "feature_names_in_", range(model.n_features_in_))


def write_weights(path: str | os.PathLike[str], model: Any) -> int:
    r"""Write :func:`weights_table` as tab-separated text, atomically.

    The first line names the columns. Backslashes, tabs and line ends in names are written
    ``\\``, ``\t``, ``\n`` and ``\r``. Weights have all their digits.

    Parameters
    ----------
    path : str or path
        Compressed if it ends in ``.gz``.
    model : ChainSSVM or MulticlassSSVM

    Returns
    -------
    int
        Rows written.
    """
    table = weights_table(model)
    count = 0
    with replacing(path) as file:
        packed = os.fspath(path).endswith(".gz")
        # No time stamp or name, so that the same weights are the same file.
        out: Any = gzip.GzipFile("", "wb", 6, file, mtime=0) if packed else file
        out.write(b"block\tlabel\tfeature\tweight\n")
        for row in table:
            line = f"{row.block}\t{escaped(row.label)}\t{escaped(row.feature)}\t{row.weight!r}\n"
            out.write(line.encode("utf-8", "backslashreplace"))
            count += 1
        if packed:
            out.close()
    return count


def escaped(name: Any) -> str:
    """A name without tabs and line ends."""
    text = str(name)
    for character, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, written)
    return text
