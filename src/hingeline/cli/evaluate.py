"""``hingeline evaluate``: how good a model's predictions are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from typer import Option

import hingeline
from hingeline.cli import app, files
from hingeline.cli.app import blame, given


def evaluate(
    context: typer.Context,
    model: app.Model,
    data: app.Data,
    format: app.KnownFormat = "auto",
    scheme: Annotated[
        str, Option(help="Tag scheme: auto, none, IOB1, IOB2, IOE1, IOE2, IOBES, BILOU.")
    ] = "auto",
    strict: Annotated[bool, Option("--strict", help="Count only valid spans.")] = False,
    bootstrap: app.Bootstrap = 0,
    labels: Annotated[bool, Option("--labels", help="Add a row for each label.")] = False,
    confusion: Annotated[bool, Option("--confusion", help="Add the commonest confusions.")] = False,
    constraints: app.Constraints = None,
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    as_json: app.Json = False,
) -> None:
    """Compare predicted with true labels: accuracy, and spans as conlleval and seqeval count them.

    With --constraints, labels are predicted under them and their violations are counted. Sets of
    labels are judged by Hamming loss, F1 (of rows, of all labels, by label) and subset accuracy.
    """
    from hingeline.evaluation.metrics import align

    estimator = hingeline.load(model)
    estimator.set_params(n_jobs=n_jobs)
    samples = files.require_labels(files.read_for(estimator, model, data, format), data)
    files.check_options(given(context), samples.layout.format)
    if samples.layout.format in files.SETS:
        with blame(data):
            _print_sets(samples, files.predict_sets(estimator, samples.X), labels, as_json)
        return
    known: list[Any] = []
    if constraints is not None:
        from hingeline.cli.check import constraints_for, predict_under

        y = _shares(estimator, samples.y)
        known = constraints_for(estimator, samples, constraints, y)
    options: dict[str, Any] = {"mode": "strict" if strict else "default", "bootstrap": bootstrap}
    options |= {"scheme": None if scheme.lower() == "none" else scheme, "random_state": seed}
    with blame(data):
        predicted = predict_under(estimator, samples, known) if known else None
        result, predicted = judge(estimator, samples, predicted, **options)
    broken: list[dict[str, Any]] = []
    if known:
        from hingeline.constraints import check

        words = samples.X.sentences(0)
        rows = (check(known, words, y).rows for y in (samples.y, predicted))
        for a, b in zip(*rows, strict=True):
            name = a.constraint.title
            broken.append({"name": name, "true": a.violation, "predicted": b.violation})
    if as_json:
        typer.echo(json.dumps({**result.to_dict(), **({"constraints": broken} if known else {})}))
        return
    typer.echo(align(result.summary()))
    if known:
        total = [sum(row[key] for row in broken) for key in ("true", "predicted")]
        table = [[*row.values()] for row in broken] + [["total", *total]]
        table = [[name, *(f"{count:.6g}" for count in counts)] for name, *counts in table]
        typer.echo("\n" + align([["violations of", "true", "predicted"], *table]))
    if result.spans is not None:
        typer.echo("\n" + align(result.table(by="type")))
    if labels or result.spans is None:
        typer.echo("\n" + align(result.table(by="label")))
    if confusion:
        typer.echo("\n" + align([("true", "predicted", "tokens"), *result.confusions(20)]))


def judge(
    estimator: Any, samples: files.Samples, predicted: Any = None, **options: Any
) -> tuple[Any, Any]:
    """The scores of a model, and the labels that they are of: by default those it predicts."""
    from hingeline.evaluation.metrics import evaluate as score

    if predicted is None:
        predicted = estimator.predict(samples.X)
    if samples.layout.kind != "flat":
        return score(samples.y, predicted, **options), predicted
    true, found = ([[label] for label in list(y)] for y in (samples.y, predicted))
    return score(true, found, **{**options, "scheme": None}), predicted


def _shares(estimator: Any, otherwise: Any) -> Any:
    """Labels as often as a model saw them in training, or others where it does not say."""
    counts: Any = getattr(estimator, "metadata_", {}).get("label_counts")
    try:
        return [[label] * int(count) for label, count in counts.items()]
    except (AttributeError, TypeError, ValueError, OverflowError):
        return otherwise


def _print_sets(samples: files.Samples, predicted: Any, every: bool, as_json: bool) -> None:
    from hingeline.evaluation.metrics import align, multilabel_scores, precision_recall_f1

    y = samples.y
    scores = multilabel_scores(y, predicted)._asdict()
    right, true, found = (part.sum(axis=0) for part in (y & predicted, y, predicted))
    columns = (*precision_recall_f1(right, found, true), true, found)
    header = ("precision", "recall", "f1", "support", "predicted")
    rows = list(zip(samples.layout.labels, *(c.tolist() for c in columns), strict=True))
    if as_json:
        by_label = {name: dict(zip(header, row, strict=True)) for name, *row in rows}
        typer.echo(json.dumps({"rows": len(y), **scores, "by_label": by_label}))
        return
    summary = [[name.replace("_", " "), value] for name, value in scores.items()]
    typer.echo(align([["rows", len(y)], *summary]))
    if every:
        typer.echo("\n" + align([("label", *header), *rows]))
