"""``hingeline explain``: why a model predicts what it does."""

import json
from typing import Annotated, Any

import typer
from typer import Option

from hingeline.cli import app, files
from hingeline.cli.app import blame


def explain(
    model: app.Model,
    data: app.Input = "-",
    sequence: Annotated[
        int, Option("--sequence", "-s", min=1, help="Number of the sequence or row, from 1.")
    ] = 1,
    n: Annotated[int, Option("-n", min=1, help="Show this many contributions.")] = 20,
    format: app.KnownFormat = "auto",
    as_json: app.Json = False,
) -> None:
    """Explain a prediction: its score against the runner-up's, feature by feature."""
    from hingeline.evaluation.inspection import explain as take_apart

    estimator = files.load_model(model)
    what = "hingeline explain does not support models of sets of labels (MultilabelSSVM)"
    files.require(not files.holds_sets(estimator), f"{what}: use hingeline report.")
    samples = files.read_for(estimator, model, data, format)
    what = f"--sequence: {data} has only {samples.n_sequences}, got {sequence}."
    files.require(sequence <= samples.n_sequences, what)
    with blame(data):
        found = take_apart(estimator, samples.X[sequence - 1])
    if as_json:
        labels = {"chosen": list(map(str, found.chosen)), "other": list(map(str, found.other))}
        rows = [row._asdict() for row in found.rows]
        typer.echo(json.dumps({**labels, "margin": found.margin, "rows": rows}))
        return
    if samples.layout.kind == "tokens":
        words = samples.X.sentences(0)[sequence - 1]
        table: list[list[Any]] = [["at", "token", "chosen", "other", "lead"]]
        for word, row in zip(words, found.by_position(), strict=True):
            lead = f"{row['contribution']:+.4f}"
            table.append([row["position"], word, row["chosen"], row["other"], lead])
        typer.echo(files.align(table) + "\n")
    typer.echo(found.text(n))
