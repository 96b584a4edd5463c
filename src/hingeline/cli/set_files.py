"""Files of rows with sets of labels: which attributes are labels, and indicators of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.cli.app import CommandError

Array = np.ndarray[Any, Any]

#: Labels beyond which a number in a file is taken for a mistake: indicators are dense.
_MAX_LABELS = 100_000


def labels_argument(label: str | None) -> str | int | None:
    """``--label`` of an ARFF file: Mulan's XML file, or a number of attributes."""
    return int(label) if label is not None and re.fullmatch("-?[0-9]{1,9}", label) else label


def check_beside(path: str) -> None:
    """Refuse an ARFF file that has no list of labels beside it."""
    file = Path(path)
    stem = file.name.removesuffix(".gz").removesuffix(".arff")
    stems = (stem, stem.removesuffix("-train"), stem.removesuffix("-test"))
    if path == "-" or not any(file.with_name(f"{name}.xml").is_file() for name in stems):
        raise CommandError(
            f"{path} does not say which of its attributes are labels: put Mulan's XML file beside "
            f"it ({stem if path != '-' else 'NAME'}.xml), or train with --label FILE.xml."
        )


def indicators(path: str, Y: sp.csr_matrix) -> Array:
    """Dense indicators to learn from."""
    if Y.shape[1] == 0:
        raise CommandError(f"{path} has no labels to learn from.")
    if Y.shape[1] > _MAX_LABELS:
        raise CommandError(
            f"{path} has a label {Y.shape[1] - 1}, and at most {_MAX_LABELS:,} labels are learnt: "
            "number them from 0."
        )
    return np.asarray(Y.toarray(), dtype=np.int64)


def by_name(
    path: str, data: Any, columns: list[str], labels: list[str], width: int | None
) -> tuple[Any, Array | None]:
    """Inputs and indicators from the attributes of an ARFF file, whatever their order.

    Parameters
    ----------
    path : str
    data : MultilabelData
        All attributes as features.
    columns, labels : list of str
        Names of the inputs, empty where nobody knows them, and of the labels.
    width : int or None
        Features of the model.
    """
    at = {name: k for k, name in enumerate(data.feature_names)}
    found = [name for name in labels if name in at]
    if found and len(found) < len(labels):
        missing = next(name for name in labels if name not in at)
        raise CommandError(
            f"{path} has the label {found[0]} but not {missing}: give all labels of the model, or "
            "none."
        )
    chosen = columns or [name for name in at if name not in set(labels)]
    for name in chosen:
        if name not in at:
            raise CommandError(f"{path} has no attribute {name}, which the model was trained on.")
    if width is not None and len(chosen) != width:
        raise CommandError(
            f"{path} has {len(chosen)} attributes that are no labels, but the model was trained on "
            f"{width}."
        )
    X = data.X[:, [at[name] for name in chosen]]
    if not found:
        return X, None
    Y = data.X[:, [at[name] for name in labels]]
    Y = np.asarray(Y.toarray() if sp.issparse(Y) else Y)
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        row, k = wrong[0].tolist()
        raise CommandError(
            f"{path}: the label {labels[k]} is {Y[row, k]:g} in row {row + 1} of the data; labels "
            "must be 0 or 1."
        )
    return X, Y.astype(np.int64)


def by_number(path: str, Y: sp.csr_matrix, n_labels: int) -> Array:
    """Indicators of as many labels as a model has."""
    if Y.shape[1] > n_labels:
        raise CommandError(
            f"{path} has a label {Y.shape[1] - 1}, but the model was trained on labels 0 to "
            f"{n_labels - 1}: leave others out."
        )
    wide = np.zeros((Y.shape[0], n_labels), dtype=np.int64)
    wide[:, : Y.shape[1]] = Y.toarray()
    return wide
