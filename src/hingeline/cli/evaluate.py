"""``hingeline evaluate``: how good a model's predictions are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import hingeline.constraints
from hingeline.cli import app, files
from hingeline.cli.app import blame, given


def evaluate(
    context: typer.Context,
    model: app.Model,
    data: app.Files,
    format: app.KnownFormat = "auto",
    scheme: Annotated[
        str,
        Option(
            help="Tag scheme: auto, none, IOB1, IOB2, IOE1, IOE2, IOBES, BILOU; segments counts "
            "each run of one plain label as a span."
        ),
    ] = "auto",
    strict: Annotated[bool, Option("--strict", help="Count only valid spans.")] = False,
    bootstrap: app.Bootstrap = 0,
    labels: Annotated[bool, Option("--labels", help="Add a row for each label.")] = False,
    confusion: Annotated[bool, Option("--confusion", help="Add the top 20 confusions.")] = False,
    constraints: app.Constraints = None,
    workers: app.Workers = None,
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    as_json: app.Json = False,
) -> None:
    """Compare predicted with true labels: accuracy, and spans as conlleval and seqeval count them.

    With --constraints, labels are predicted under them and violations are counted. A model made by
    hingeline semi keeps to its own rules, unless --constraints none is given. Sets of labels are
    judged by Hamming loss, F1 (of rows, of all labels, by label) and subset accuracy; dependencies
    by UAS and LAS, both as in the CoNLL 2018 evaluation and without punctuation.

    Several files ('part-*.conll') are judged as one. With --workers, they are shared among that
    many processes, or the workers of a Dask cluster.
    """
    from hingeline.schemes import scheme_name

    estimator = files.load_model(model).set_params(n_jobs=n_jobs)
    layout = files.layout_of(estimator, model)
    files.check_options(given(context), layout.format, layout.task)
    if scheme.lower() not in ("auto", "none", "segments"):
        scheme_name(scheme)  # refuses others before the file is read
    names, title = files.expand_all(data)
    reporter = files.Reporter(title, None)
    known: list[Any] = []
    with reporter.during("predicting and scoring"):
        if constraints in (None, "none"):
            work = partial(_label, estimator, model, format, [] if constraints else None)
            found = [*files.map_files(work, names, workers, reporter)]
        else:
            from hingeline.cli.check import constraints_for

            alone = workers is None and len(names) == 1
            files.require(alone, "--constraints works for one file only, without --workers.")
            samples = files.read_for(estimator, model, names[0], format, "compare with")
            known = constraints_for(estimator, samples, constraints, _shares(estimator, samples.y))
            with blame(title):
                found = [(samples.y, files.predict(estimator, samples.X, known))]
        true, predicted, *words = (_join(parts) for parts in zip(*found, strict=True))
        if layout.format not in files.SETS:
            with blame(title):
                _refuse_foreign(layout, estimator.classes_.tolist(), true)
        if layout.task == "dependencies":
            _print_trees(true, predicted, words[0], labels, as_json)
            return
        if layout.format in files.SETS:
            _print_sets(layout, true, predicted, labels, as_json)
            return
        options: dict[str, Any] = {"mode": "strict" if strict else "default"}
        options |= {"scheme": None if scheme.lower() == "none" else scheme}
        options |= {"bootstrap": bootstrap, "random_state": seed}
        with blame(title):
            result = judge(layout, true, predicted, **options)
    broken: list[dict[str, Any]] = []
    if known:
        words = samples.X.sentences(0)
        rows = (hingeline.constraints.check(known, words, y).rows for y in (true, predicted))
        facts = [(a.constraint.title, a.violation, b.violation) for a, b in zip(*rows, strict=True)]
        broken = [dict(zip(("name", "true", "predicted"), row, strict=True)) for row in facts]
    if as_json:
        typer.echo(json.dumps({**result.to_dict(), **({"constraints": broken} if known else {})}))
        return
    summary, unit = result.summary(), "tokens"
    if layout.kind == "flat":  # a row is a sequence of one token
        summary, unit = [("accuracy", *summary[0][1:])], "rows"
    typer.echo(files.align(summary))
    if known:
        total = ("total", *(sum(row[k] for row in facts) for k in (1, 2)))
        table = [[name, f"{a:.6g}", f"{b:.6g}"] for name, a, b in (*facts, total)]
        typer.echo("\n" + files.align([["violations of", "true", "predicted"], *table]))
    if result.spans is not None:
        typer.echo("\n" + files.align(result.table(by="type")))
    if labels or result.spans is None:
        typer.echo("\n" + files.align(result.table(by="label")))
    if confusion:
        typer.echo("\n" + files.align([("true", "predicted", unit), *result.confusions(20)]))


def _label(
    estimator: Any, model: Path, format: str, rules: list[Any] | None, name: str
) -> tuple[Any, ...]:
    """True and predicted labels of a file; of dependencies also which words are no punctuation."""
    samples = files.read_for(estimator, model, name, format, "compare with")
    with blame(name):
        predicted = files.predict(estimator, samples.X, rules)
    if samples.layout.task != "dependencies":
        return samples.y, predicted
    tags = samples.source.table.sentences("upos")
    return samples.y, predicted, [[tag != "PUNCT" for tag in part] for part in tags]


def _refuse_foreign(layout: files.Layout, known: list[Any], true: Any) -> None:
    """Refuse labels of which a model knows none: the file is meant for another."""
    labels = {*true} if layout.kind == "flat" else {label for row in true for label in row}
    if layout.task == "dependencies":
        labels = {label for _, label in labels}
    elif layout.task == "segments":
        labels |= {label.partition("-")[2] for label in labels}
    own, others = (", ".join(sorted(map(str, part))[:5]) for part in (known, labels))
    what = f"the model knows none of the labels ({others}): it has {own}"
    files.require(not labels.isdisjoint(known), f"{what}; is the file meant for another model?")


def _join(parts: Sequence[Any]) -> Any:
    """Labels of several files, one after the other."""
    import numpy as np

    rows = all(isinstance(part, np.ndarray) for part in parts)
    return np.concatenate(parts) if rows else [labels for part in parts for labels in part]


def judge(layout: files.Layout, true: Any, predicted: Any, **options: Any) -> Any:
    """The scores of labels that were predicted."""
    from hingeline.evaluation.metrics import evaluate as score

    if layout.kind != "flat":
        return score(true, predicted, **options)
    rows = ([[label] for label in list(y)] for y in (true, predicted))
    return score(*rows, **{**options, "scheme": None})


def _shares(estimator: Any, otherwise: Any) -> Any:
    """Labels as often as a model saw them in training, or others where it does not say."""
    counts: Any = getattr(estimator, "metadata_", {}).get("label_counts")
    try:
        return [[label] * int(count) for label, count in counts.items()]
    except (AttributeError, TypeError, ValueError, OverflowError):
        return otherwise


def _print_trees(true: Any, predicted: Any, words: Any, every: bool, as_json: bool) -> None:
    """Attachment as the CoNLL 2018 evaluation counts it, and without punctuation."""
    from hingeline.evaluation.metrics import attachment_scores

    scores = {"all words": attachment_scores(true, predicted)}
    if any(map(any, words)):
        scores["without punctuation"] = attachment_scores(true, predicted, words)
    names = {label for tree in true for _, label in tree} if every else ()
    masks = ((name, [[a[1] == name for a in tree] for tree in true]) for name in sorted(names))
    by_label = {name: attachment_scores(true, predicted, mask) for name, mask in masks}
    if as_json:
        parts = {name: row._asdict() for name, row in scores.items()}
        if every:
            parts["by_label"] = {name: row._asdict() for name, row in by_label.items()}
        typer.echo(json.dumps(parts))
        return
    header = ["", "UAS", "LAS", "LAS with subtypes", "words"]
    for rows in (scores, by_label) if every else (scores,):
        table = [[n, *(f"{100 * share:.2f}" for share in r[:3]), r[3]] for n, r in rows.items()]
        typer.echo(("\n" if rows is by_label else "") + files.align([header, *table]))


def _print_sets(layout: files.Layout, y: Any, predicted: Any, every: bool, as_json: bool) -> None:
    from hingeline.evaluation.metrics import multilabel_scores, precision_recall_f1

    scores = multilabel_scores(y, predicted)._asdict()
    right, true, found = (part.sum(axis=0) for part in (y & predicted, y, predicted))
    columns = (*precision_recall_f1(right, found, true), true, found)
    header = ("precision", "recall", "f1", "support", "predicted")
    rows = list(zip(layout.labels, *(c.tolist() for c in columns), strict=True))
    if as_json:
        by_label = {name: dict(zip(header, row, strict=True)) for name, *row in rows}
        typer.echo(json.dumps({"rows": len(y), **scores, "by_label": by_label}))
        return
    summary = [[name.replace("_", " "), value] for name, value in scores.items()]
    typer.echo(files.align([["rows", len(y)], *summary]))
    if every:
        typer.echo("\n" + files.align([("label", *header), *rows]))
