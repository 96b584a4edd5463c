"""Sets of labels: what learns them, and how they are written and judged."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import typer

from hingeline import MultilabelSSVM
from hingeline.cli.app import CommandError, blaming
from hingeline.data.text import atomic_text
from hingeline.evaluation.metrics import MultilabelScores, align, multilabel_scores

Array = np.ndarray[Any, Any]

_WORDS = "it is for words in columns"
_GRAPHS = "MultilabelSSVM does not have it"
#: Options of ``train`` that sets of labels have no use for: why, and values that are fine.
_REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "template": (_WORDS, ()),
    "columns": (_WORDS, ()),
    "use": (_WORDS, ()),
    "hash_bits": (_WORDS, ()),
    "min_count": ("it is for features of tokens", ()),
    "scheme": ("it is for sequences of tags", ()),
    "keep_state": ("such models cannot be updated", ()),
    "rescale": (_GRAPHS, ("margin",)),
    "violators": (_GRAPHS, ()),
}


def refuse(what: str, names: Iterable[str]) -> None:
    """Refuse an option of a command, the first of these names."""
    for name in names:
        raise CommandError(f"{name} is not for sets of labels: {what}.")


def make_estimator(
    there: set[str], values: dict[str, Any], params: dict[str, Any], edges: str | None
) -> MultilabelSSVM:
    """The estimator of a training, from the options that stand on the command line.

    Parameters
    ----------
    there : set of str
        Names of the options that were given.
    values : dict
        All options of the command.
    params : dict
        Parameters as other estimators take them.
    edges : str or None
        Which pairs of labels are scored together.
    """
    for name, (reason, fine) in _REFUSED.items():
        if name in there and values[name] not in fine:
            refuse(reason, [f"--{name.replace('_', '-')}"])
    known = {name: v for name, v in params.items() if name not in ("rescale", "violators")}
    estimator = MultilabelSSVM(**known, edges=edges or "full")
    with blaming():
        estimator._check_parameters()
    return estimator


# Predictions ------------------------------------------------------------------------------------


def predict_sets(estimator: Any, X: Any) -> Array:
    """Indicators (rows, labels), also where there is a single label."""
    return np.asarray(estimator.predict(X)).reshape(X.shape[0], -1)


def held_out_score(estimator: Any, X: Any, y: Any) -> float:
    """F1 of each row's set, averaged: what ``--dev`` and ``--grid`` choose by."""
    return _scores(y, predict_sets(estimator, X)).example_f1


def write_sets(output: str, labels: list[str], sets: Array) -> None:
    """The names of each row's labels, separated by commas; an empty line for the empty set."""
    with atomic_text(output) as file:
        rows = csv.writer(file, lineterminator="\n")
        for row in sets:
            rows.writerow([labels[k] for k in np.flatnonzero(row)])


def judge_sets(
    estimator: Any, X: Any, y: Array, labels: list[str], every: bool, as_json: bool
) -> None:
    """Compare predicted with true sets, and print the measures.

    Parameters
    ----------
    estimator, X, y
        The model, and what it is tried on.
    labels : list of str
        Names of the columns of y.
    every : bool
        A row for every label, too.
    as_json : bool
        Machine-readable.
    """
    predicted = predict_sets(estimator, X)
    scores = _scores(y, predicted)
    table = _by_label(y, predicted, labels)
    if as_json:
        header, *rows = table
        more = {str(row[0]): dict(zip(header[1:], row[1:], strict=True)) for row in rows}
        typer.echo(json.dumps({"rows": len(y), **scores._asdict(), "by_label": more}))
        return
    typer.echo(align([["rows", str(len(y))], *_summary(scores)]))
    if every:
        typer.echo("\n" + align(table))


def _scores(y: Array, predicted: Array) -> MultilabelScores:
    """The usual measures, also of a single label, for which scikit-learn means others."""
    if y.shape[1] > 1:
        return multilabel_scores(y, predicted)
    right = float((y == predicted).mean())
    f1 = float(2 * (y & predicted).sum() / max(1, int(y.sum() + predicted.sum())))
    return MultilabelScores(1.0 - right, right, right, f1, f1)


def _summary(scores: MultilabelScores) -> list[list[Any]]:
    return [[name.replace("_", " "), value] for name, value in scores._asdict().items()]


def _by_label(y: Array, predicted: Array, labels: list[str]) -> list[list[Any]]:
    """Precision, recall and F1 of every label, 0 where they are not defined."""
    right = (y & predicted).sum(axis=0)
    true, found = y.sum(axis=0), predicted.sum(axis=0)
    precision = right / np.maximum(found, 1)
    recall = right / np.maximum(true, 1)
    f1 = 2 * right / np.maximum(true + found, 1)
    rows: list[list[Any]] = [["label", "precision", "recall", "f1", "support", "predicted"]]
    for k, name in enumerate(labels):
        shares = [float(share[k]) for share in (precision, recall, f1)]
        rows.append([name, *shares, int(true[k]), int(found[k])])
    return rows
