"""``hingeline evaluate``: how good a model's predictions are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer

from hingeline.cli import app
from hingeline.cli.app import blame, given
from hingeline.cli.samples import (
    SETS,
    Samples,
    check_options,
    load_model,
    predict_sets,
    read_labelled,
    score_sets,
)
from hingeline.evaluation.metrics import Evaluation, align
from hingeline.evaluation.metrics import evaluate as score


def evaluate(
    context: typer.Context,
    model: app.Model,
    data: Annotated[
        str, typer.Argument(metavar="TEST", help="A labelled file; - is the standard input.")
    ],
    format: app.KnownFormat = "auto",
    scheme: Annotated[
        str, typer.Option(help="Tag scheme: auto, none, IOB1, IOB2, IOE1, IOE2, IOBES, BILOU.")
    ] = "auto",
    strict: Annotated[
        bool, typer.Option("--strict", help="Count only spans that are valid in the scheme.")
    ] = False,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Resamples for 95 % intervals; 0 for none.")
    ] = 0,
    labels: Annotated[bool, typer.Option("--labels", help="Add a row for each label.")] = False,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="Add the most frequent confusions.")
    ] = False,
    constraints: app.Constraints = None,
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    as_json: app.Json = False,
) -> None:
    """Compare predicted with true labels: accuracy, and spans as conlleval and seqeval count them.

    With --constraints, labels are predicted under them and their violations are counted. Sets of
    labels are judged by Hamming loss, F1 (of rows, of all labels, by label) and subset accuracy.
    """
    estimator = load_model(model)
    estimator.set_params(n_jobs=n_jobs)
    samples = read_labelled(estimator, model, data, format)
    check_options(given(context), samples.layout.format)
    if samples.layout.format in SETS:
        with blame(data):
            _print_sets(samples, predict_sets(estimator, samples.X), labels, as_json)
        return
    known: list[Any] = []
    if constraints is not None:
        from hingeline.cli.check import constraints_for, predict_under

        y = _shares(estimator, samples.y)
        known = constraints_for(estimator, samples, constraints, y)
    with blame(data):
        predicted = predict_under(estimator, samples, known) if known else None
        result, predicted = judge(
            estimator,
            samples,
            predicted,
            scheme=None if scheme.lower() == "none" else scheme,
            mode="strict" if strict else "default",
            bootstrap=bootstrap,
            random_state=seed,
        )
    broken = _violations(known, samples, predicted) if known else []
    if as_json:
        typer.echo(json.dumps({**result.to_dict(), **({"constraints": broken} if known else {})}))
        return
    typer.echo(align(result.summary()))
    if known:
        typer.echo("\n" + _violation_table(broken))
    if result.spans is not None:
        typer.echo("\n" + align(result.table(by="type")))
    if labels or result.spans is None:
        typer.echo("\n" + align(result.table(by="label")))
    if confusion:
        typer.echo("\n" + _confusion_table(result))


def judge(
    estimator: Any, samples: Samples, predicted: Any = None, **options: Any
) -> tuple[Evaluation, Any]:
    """The scores of a model, and the labels that they are of: by default those it predicts."""
    if predicted is None:
        predicted = estimator.predict(samples.X)
    if samples.layout.kind != "flat":
        return score(samples.y, predicted, **options), predicted
    true, found = ([[label] for label in np.asarray(y).tolist()] for y in (samples.y, predicted))
    return score(true, found, **{**options, "scheme": None}), predicted


def _confusion_table(result: Evaluation, most: int = 20) -> str:
    """The most frequent pairs of a true and another predicted label."""
    counts = np.array(result.confusion)
    np.fill_diagonal(counts, 0)
    order = np.argsort(counts, axis=None, kind="stable")[::-1][:most]
    rows: list[list[Any]] = [["true", "predicted", "tokens"]]
    for flat in order:
        a, b = divmod(int(flat), len(result.labels))
        if counts[a, b]:
            rows.append([result.labels[a], result.labels[b], int(counts[a, b])])
    return align(rows)


# Constraints --------------------------------------------------------------------------------------


def _shares(estimator: Any, otherwise: Any) -> Any:
    """Labels as often as a model saw them in training, or others where it does not say."""
    counts: Any = getattr(estimator, "metadata_", {}).get("label_counts")
    try:
        return [[label] * int(count) for label, count in counts.items()]
    except (AttributeError, TypeError, ValueError, OverflowError):
        return otherwise


def _violations(
    constraints: list[Any], samples: Samples, predicted: list[Any]
) -> list[dict[str, Any]]:
    """How much true and predicted labels break each constraint."""
    from hingeline.constraints import check

    words = samples.X.sentences(0)
    reports = [
        check(constraints, words, y).rows
        for y in (samples.y, [labels.tolist() for labels in predicted])
    ]
    return [
        {"name": a.constraint.title, "true": a.violation, "predicted": b.violation}
        for a, b in zip(*reports, strict=True)
    ]


def _violation_table(rows: list[dict[str, Any]]) -> str:
    cells = [["violations of", "true", "predicted"]]
    cells += [[row["name"], f"{row['true']:.6g}", f"{row['predicted']:.6g}"] for row in rows]
    total = [f"{sum(row[side] for row in rows):.6g}" for side in ("true", "predicted")]
    return align([*cells, ["total", *total]])


# Sets of labels -----------------------------------------------------------------------------------


def _print_sets(samples: Samples, predicted: Any, every: bool, as_json: bool) -> None:
    """Print the measures, and with ``every`` a row for every label."""
    y = samples.y
    scores = score_sets(y, predicted)._asdict()
    table = _set_table(y, predicted, samples.layout.labels)
    if as_json:
        header, *rows = table
        more = {str(row[0]): dict(zip(header[1:], row[1:], strict=True)) for row in rows}
        typer.echo(json.dumps({"rows": len(y), **scores, "by_label": more}))
        return
    summary = [[name.replace("_", " "), value] for name, value in scores.items()]
    typer.echo(align([["rows", len(y)], *summary]))
    if every:
        typer.echo("\n" + align(table))


def _set_table(y: Any, predicted: Any, labels: list[str]) -> list[list[Any]]:
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
