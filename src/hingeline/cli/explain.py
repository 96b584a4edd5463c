"""``hingeline explain``: why a model predicts what it does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hingeline.cli import app
from hingeline.cli.app import CommandError, blame
from hingeline.cli.samples import load_model, read_for, refuse_sets
from hingeline.evaluation.inspection import explain as take_apart
from hingeline.evaluation.metrics import align
from hingeline.features.tables import TokenTable


def explain(
    model: app.Model,
    data: Annotated[
        str, typer.Argument(metavar="INPUT", help="A file; - is the standard input.")
    ] = "-",
    sequence: Annotated[
        int, typer.Option("--sequence", "-s", min=1, help="Number of the sequence or row.")
    ] = 1,
    n: Annotated[int, typer.Option("-n", min=1, help="Contributions to show.")] = 20,
    format: app.KnownFormat = "auto",
    as_json: app.Json = False,
) -> None:
    """Explain a prediction: its score against the runner-up's, feature by feature."""
    estimator = load_model(model)
    refuse_sets("explain", estimator)
    samples = read_for(estimator, model, data, format)
    if sequence > samples.n_sequences:
        raise CommandError(f"--sequence: {data} has {samples.n_sequences} of them, not {sequence}.")
    with blame(data):
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
            rows.append([row["position"], word, row["chosen"], row["other"], lead])
        typer.echo(align(rows) + "\n")
    typer.echo(found.text(n))
