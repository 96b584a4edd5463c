"""``hingeline check``, and constraints as other commands use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

import typer
from typer import Option

import hingeline.constraints
from hingeline.cli import app, files
from hingeline.cli.app import blame

BROKEN = 1


def read_constraints(
    source: str, y: Any, classes: Iterable[Any], where: str, say: Callable[[str], Any]
) -> tuple[list[Any], list[str]]:
    """The constraints of a file, or of a set by name, and the labels that only they name.

    Shares of labels are those in y. ``say`` is told of labels that ``where`` does not have.
    """
    with blame("--constraints"):
        found = hingeline.constraints.load_constraints(source, y)
    unknown = hingeline.constraints.Penalties(found, [], list(classes), unknown="ignore").unknown
    if unknown:
        names = ", ".join(unknown)
        say(f"{source} names labels that are not in {where}: {names}; they are left out")
    return found, unknown


def constraints_for(estimator: Any, samples: files.Samples, source: str, y: Any) -> list[Any]:
    """Constraints on what a model predicts, or none; labels that it does not know are told."""
    if source == "none":
        return []
    files.check_options(["constraints"], samples.layout.format)
    classes = estimator.classes_.tolist()
    return read_constraints(source, y, classes, "the model", partial(typer.echo, err=True))[0]


def check(
    data: app.Data,
    constraints: Annotated[str, Option(help="Constraints: a TOML file, citations or seminars.")],
    format: app.Format = "auto",
    columns: app.Columns = None,
    use: Annotated[str | None, Option(help="Column of words.", show_default="the first")] = None,
    label: Annotated[
        str | None, Option(help="Column of labels.", show_default="the last; upos in CoNLL-U")
    ] = None,
    n: Annotated[int, Option("-n", min=0, help="List this many places for each constraint.")] = 3,
    as_json: app.Json = False,
) -> None:
    """Check the labels of a file against constraints; the exit code is 1 if any is broken."""
    file = files.open_training(data, format, ["constraints"])
    samples = files.read_training(file, columns, use, label)
    labels = {label for sequence in samples.y for label in sequence}
    say = (lambda text: None) if as_json else partial(typer.echo, err=True)
    found, unknown = read_constraints(constraints, samples.y, labels, data, say)
    with blame(data):
        report = hingeline.constraints.check(found, samples.X.sentences(0), samples.y)
    known = files.find_lines(file, samples)
    lines = known and [known[at] for at in samples.X.offsets[:-1].tolist()]
    if as_json:
        rows: list[dict[str, Any]] = []
        for row in report.rows:
            told = {"name": row.constraint.title, "violation": row.violation, "cost": row.cost}
            told |= {"value": row.value, "sequences": [i + 1 for i in row.sequences]}
            at = None if lines is None else [lines[i] for i in row.sequences]
            rows.append({**told, "lines": at})
        total = {"sequences": report.n_sequences, "ok": report.ok, "cost": report.cost}
        typer.echo(json.dumps({**total, "unknown_labels": unknown, "constraints": rows}))
    else:
        places = [f"{data}:{line}" for line in lines or ()]
        places = places or [f"sequence {i + 1}" for i in range(report.n_sequences)]
        typer.echo(report.table(places.__getitem__, n))
    if not report.ok:
        raise typer.Exit(BROKEN)
