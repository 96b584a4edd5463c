"""``hingeline check``, and constraints as other commands use them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from os.path import isfile
from typing import Annotated, Any

import typer
from typer import Option

from hingeline.cli import app
from hingeline.cli.app import blame, split_names
from hingeline.cli.samples import Samples, check_options, open_training, read_training
from hingeline.data.text import open_text
from hingeline.evaluation.metrics import align

BROKEN = 1

#: Attributes of constraints that hold labels, or groups of them.
_LABELS = ("labels", "label", "after", "first", "second")


def read_constraints(source: str, y: Any) -> list[Any]:
    """The constraints of a file, or of a set by name; shares of labels are those in y."""
    from hingeline.constraints import load_constraints

    with blame("--constraints"):
        return load_constraints(source, y)


def unknown_labels(constraints: Iterable[Any], classes: Iterable[Any]) -> list[str]:
    """Labels that constraints name and a model does not know."""
    named: set[str] = set()
    for constraint in constraints:
        for name in _LABELS:
            found = getattr(constraint, name, None)
            if isinstance(found, tuple):  # labels are; what words come after is a pattern
                named.update(_flatten(found))
    return sorted(named - set(classes))


def _flatten(labels: Any) -> list[str]:
    return [a for part in labels for a in _flatten(part)] if isinstance(labels, tuple) else [labels]


def unknown_text(source: str, labels: list[str], where: str) -> str:
    """A warning about labels that constraints name."""
    names = ", ".join(labels)
    return f"{source} names labels that are not in {where}: {names}; they are left out"


def constraints_for(estimator: Any, samples: Samples, source: str, y: Any) -> list[Any]:
    """Constraints on what a model predicts; labels that it does not know are told."""
    check_options(["constraints"], samples.layout.format)
    found = read_constraints(source, y)
    unknown = unknown_labels(found, estimator.classes_.tolist())
    if unknown:
        typer.echo(unknown_text(source, unknown, "the model"), err=True)
    return found


def predict_under(estimator: Any, samples: Samples, constraints: list[Any]) -> list[Any]:
    """Labels of the highest score minus penalty; corpus-level constraints count for nothing."""
    from hingeline import SemiSupervisedSSVM

    decoder = SemiSupervisedSSVM(constraints=constraints)
    decoder.base_, decoder.classes_ = estimator, estimator.classes_
    return decoder.predict(samples.X, constrained=True)


def check(
    data: app.Data,
    constraints: Annotated[str, Option(help="A TOML file of constraints, citations or seminars.")],
    format: app.Format = "auto",
    columns: app.Columns = None,
    use: Annotated[
        str | None, Option(help="Column of the words.", show_default="the first")
    ] = None,
    label: Annotated[
        str | None,
        Option(help="Column of the labels.", show_default="the last; upos in CoNLL-U"),
    ] = None,
    n: Annotated[int, Option("-n", min=0, help="Places to name for each constraint.")] = 3,
    as_json: app.Json = False,
) -> None:
    """Check the labels of a file against constraints; the exit code is 1 if any is broken."""
    from hingeline.constraints import check as check_labels

    file = open_training(data, format, ["constraints"])
    samples = read_training(file, split_names(columns), split_names(use), label)
    found = read_constraints(constraints, samples.y)
    with blame(data):
        report = check_labels(found, samples.X.sentences(0), samples.y)
    lines = _first_lines(data, samples)
    rows: list[dict[str, Any]] = []
    table = [["constraint", "violations", "sequences", "first in"]]
    for row in report.rows:
        at = None if lines is None else [lines[i] for i in row.sequences]
        facts: dict[str, Any] = {
            "name": row.constraint.title,
            "violation": row.violation,
            "cost": row.cost,
        }
        facts |= {"value": row.value, "sequences": [i + 1 for i in row.sequences], "lines": at}
        rows.append(facts)
        count = f"{len(row.sequences)} of {report.n_sequences}"
        places = [f"sequence {i + 1}" for i in row.sequences] if at is None else []
        places += [f"{data}:{line}" for line in at or ()]
        where = ", ".join(places[:n])
        if row.value is not None:
            count, where = "all together", f"is {row.value:.4g}"
        table.append([facts["name"], f"{row.violation:.6g}", count, where])
    broken = f"{len(report.sequences)} of {report.n_sequences}"
    table.append(["total", f"{report.violation:.6g}", broken, ""])
    unknown = unknown_labels(found, {label for sequence in samples.y for label in sequence})
    if as_json:
        total = {"sequences": report.n_sequences, "ok": report.ok, "cost": report.cost}
        typer.echo(json.dumps({**total, "unknown_labels": unknown, "constraints": rows}))
    else:
        if unknown:
            typer.echo(unknown_text(constraints, unknown, data), err=True)
        typer.echo(align(table, left=(0, 3)))
    if not report.ok:
        raise typer.Exit(BROKEN)


def _first_lines(data: str, samples: Samples) -> list[int] | None:
    """The line that each sequence begins at; None for what cannot be read again."""
    if data == "-" or not isfile(data):
        return None
    comments = samples.layout.format == "conllu"

    def starts() -> Iterable[int]:
        inside = False
        with open_text(data) as text:
            for number, line in text.lines():
                if comments and line.startswith("#"):
                    continue
                token = bool(line.strip()) and not line.startswith("-DOCSTART-")
                if token and not inside:
                    yield number
                inside = token

    found = list(islice(starts(), samples.n_sequences + 1))
    return found if len(found) == samples.n_sequences else None
