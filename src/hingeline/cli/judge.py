"""``hingeline evaluate``, ``report`` and ``explain``: how good a model is, and why it says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hingeline import MultilabelSSVM
from hingeline.cli.app import CommandError, Json, NJobs, Seed, app, blaming, check_n_jobs
from hingeline.cli.constraints import (
    Constraints,
    compare_violations,
    constraints_for,
    predict_under,
    shares_of,
    violation_table,
)
from hingeline.cli.label_sets import judge_sets, refuse
from hingeline.cli.predict import load_model, read_for
from hingeline.cli.samples import Samples, file_hash
from hingeline.evaluation.inspection import explain as take_apart
from hingeline.evaluation.metrics import Evaluation, align
from hingeline.evaluation.metrics import evaluate as score
from hingeline.features.tables import TokenTable

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.hinge).")]
Format = Annotated[str, typer.Option("--format", "-f", help="Format; auto: as trained.")]


def judged(
    estimator: Any,
    path: Path,
    file: str,
    format: str,
    decode: Callable[[Samples], Any] | None = None,
    **options: Any,
) -> tuple[Samples, Any, Evaluation]:
    """A labelled file, its predicted labels (by ``decode``, if given) and their scores."""
    samples = read_for(estimator, path, file, format)
    if samples.y is None:
        raise CommandError(f"{file} has no labels to compare with.")
    with blaming(file):
        predicted = estimator.predict(samples.X) if decode is None else decode(samples)
        if samples.layout.kind == "flat":
            options["scheme"] = None
            rows = [[label] for label in np.asarray(samples.y).tolist()]
            return samples, predicted, score(rows, [[p] for p in predicted.tolist()], **options)
        return samples, predicted, score(samples.y, predicted, **options)


@app.command()
def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(metavar="TEST", help="A labelled file; - is a pipe.")],
    format: Format = "auto",
    scheme: Annotated[
        str, typer.Option(help="Tag scheme: auto, none, IOB1, IOB2, IOE1, IOE2, IOBES, BILOU.")
    ] = "auto",
    strict: Annotated[
        bool, typer.Option("--strict", help="Count only spans that are valid in the scheme.")
    ] = False,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Resamples for 95 % intervals; 0 for none.")
    ] = 0,
    labels: Annotated[bool, typer.Option("--labels", help="A row for every label.")] = False,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="The most frequent confusions.")
    ] = False,
    constraints: Constraints = None,
    n_jobs: NJobs = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare predicted with true labels: accuracy, spans as conlleval and seqeval count them.

    With --constraints labels are predicted under them, and their violations are counted, too. Sets
    of labels are judged by Hamming loss, F1 (of rows, of all labels, by label) and subset accuracy.
    """
    check_n_jobs(n_jobs)
    estimator = load_model(model)
    estimator.set_params(n_jobs=n_jobs)
    if isinstance(estimator, MultilabelSSVM):
        given = {"--scheme": scheme != "auto", "--strict": strict, "--bootstrap": bootstrap}
        given |= {"--confusion": confusion, "--constraints": constraints is not None}
        refuse("leave it out", [name for name, value in given.items() if value])
        samples = read_for(estimator, model, data, format)
        if samples.y is None:
            raise CommandError(f"{data} has no labels to compare with.")
        with blaming(data):
            judge_sets(estimator, samples.X, samples.y, samples.layout.labels, labels, as_json)
        return
    known: list[Any] = []

    def under_constraints(samples: Samples) -> Any:
        y = shares_of(estimator, samples.y)
        known.extend(constraints_for(estimator, samples, str(constraints), y))
        return predict_under(estimator, samples, known)

    samples, predicted, result = judged(
        estimator,
        model,
        data,
        format,
        None if constraints is None else under_constraints,
        scheme=None if scheme.lower() == "none" else scheme,
        mode="strict" if strict else "default",
        bootstrap=bootstrap,
        random_state=seed,
    )
    broken = compare_violations(known, samples, predicted) if known else []
    if as_json:
        more = {"constraints": broken} if known else {}
        typer.echo(json.dumps({**result.to_dict(), **more}))
        return
    typer.echo(align(result.summary()))
    if known:
        typer.echo("\n" + violation_table(broken))
    if result.spans is not None:
        typer.echo("\n" + align(result.table(by="type")))
    if labels or result.spans is None:
        typer.echo("\n" + align(result.table(by="label")))
    if confusion:
        typer.echo("\n" + _confusions(result))


def _confusions(result: Evaluation, most: int = 20) -> str:
    """The most frequent pairs of a true and another predicted label."""
    counts = np.array(result.confusion)
    np.fill_diagonal(counts, 0)
    order = np.argsort(counts, axis=None, kind="stable")[::-1][:most]
    rows: list[list[Any]] = [["true", "predicted", "tokens"]]
    for flat in order:
        a, b = divmod(int(flat), len(result.labels))
        if counts[a, b]:
            rows.append([str(result.labels[a]), str(result.labels[b]), int(counts[a, b])])
    return align(rows)


def _refuse_sets(command: str, estimator: Any) -> None:
    """Refuse models of sets of labels, which only some commands know."""
    if isinstance(estimator, MultilabelSSVM):
        raise CommandError(
            f"{command} does not know models of sets of labels (MultilabelSSVM): use hingeline "
            "evaluate or hingeline info."
        )


@app.command()
def report(
    model: Model,
    test: Annotated[str | None, typer.Option(help="A labelled file to evaluate on.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page.", show_default="MODEL.html")
    ] = None,
    format: Format = "auto",
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples for 95 % intervals.")] = 0,
    n_jobs: NJobs = None,
) -> None:
    """One self-contained HTML page: curve, certificate, scores, errors, weights."""
    from hingeline.report.page import write_report

    check_n_jobs(n_jobs)
    estimator = load_model(model)
    _refuse_sets("report", estimator)
    estimator.set_params(n_jobs=n_jobs)
    known: dict[str, Any] = {}
    metadata = getattr(estimator, "metadata_", {})
    files = [file for file in metadata.get("data", []) if file.get("sha256")]  # no pipes
    if test is not None:
        samples, predicted, result = judged(estimator, model, test, format, bootstrap=bootstrap)
        known = {"evaluation": result, "y_true": samples.y, "y_pred": predicted}
        if isinstance(samples.X, TokenTable):
            known["tokens"] = samples.X.sentences(0)
        files.append({"name": Path(test).name, "sha256": file_hash(test)})
    path = output or model.with_suffix(".html")
    known |= {"command": metadata.get("command"), "data": files, "title": model.name}
    try:
        with blaming("--output"):
            write_report(path, estimator, **known)
    except ImportError as error:
        raise CommandError(str(error)) from None
    typer.echo(f"The report is in {path}")


@app.command()
def explain(
    model: Model,
    data: Annotated[str, typer.Argument(metavar="INPUT", help="A file; - is a pipe.")] = "-",
    sequence: Annotated[int, typer.Option("--sequence", "-s", min=1, help="Which one.")] = 1,
    n: Annotated[int, typer.Option("-n", min=1, help="Contributions to show.")] = 20,
    format: Format = "auto",
    as_json: Json = False,
) -> None:
    """Why these labels: their score against the runner-up's, feature by feature."""
    estimator = load_model(model)
    _refuse_sets("explain", estimator)
    samples = read_for(estimator, model, data, format)
    if sequence > samples.n_sequences:
        raise CommandError(f"--sequence: {data} has {samples.n_sequences} of them, not {sequence}.")
    with blaming(data):
        found = take_apart(estimator, samples.X[sequence - 1])
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "chosen": [str(label) for label in found.chosen],
                    "other": [str(label) for label in found.other],
                    "margin": found.margin,
                    "rows": [asdict(row) for row in found.rows],
                }
            )
        )
        return
    if isinstance(samples.X, TokenTable):
        words = samples.X.sentences(0)[sequence - 1]
        rows: list[list[Any]] = [["at", "token", "chosen", "other", "lead"]]
        for word, row in zip(words, found.by_position(), strict=True):
            lead = f"{row['contribution']:+.4f}"
            rows.append([row["position"], word, str(row["chosen"]), str(row["other"]), lead])
        typer.echo(align(rows) + "\n")
    typer.echo(found.text(n))
