"""``hingeline predict``: labels for a file, in the file's own format."""

from __future__ import annotations

import csv
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from hingeline.cli import app
from hingeline.cli.app import blame, given
from hingeline.cli.samples import (
    SETS,
    Samples,
    check_options,
    free_name,
    load_model,
    predict_sets,
    read_for,
)
from hingeline.data.text import atomic_text
from hingeline.features.tables import TokenTable


def predict(
    context: typer.Context,
    model: app.Model,
    data: app.Input = "-",
    output: Annotated[
        str, Option("--output", "-o", help="Where to write; - is the standard output.")
    ] = "-",
    format: app.KnownFormat = "auto",
    margin: Annotated[
        bool, Option("--margin", help="Add each label's lead over the next best one.")
    ] = False,
    nbest: Annotated[
        int, Option(min=1, help="Write the n best labellings of each sequence, with scores.")
    ] = 1,
    constraints: app.Constraints = None,
    n_jobs: app.NJobs = None,
) -> None:
    """Predict labels and write the input with one more column.

    CoNLL columns get the predicted label as a last column; in CoNLL-U the label's own column is
    replaced. Other formats give one label per line, with an empty line after each sequence. Models
    of sets of labels give the set of each row, its names separated by commas.

    With --constraints, predict looks for the highest score minus the penalty of broken rules.
    """
    estimator = load_model(model)
    estimator.set_params(n_jobs=n_jobs)
    samples = read_for(estimator, model, data, format)
    check_options(given(context), samples.layout.format)
    if margin + (nbest > 1) + (constraints is not None) > 1:
        raise ValueError("--margin, --nbest and --constraints exclude each other: use one.")
    if margin and hasattr(samples.source, "comments"):
        raise ValueError("--margin adds a column, and CoNLL-U has no room for one.")
    if samples.layout.format in SETS:
        with blame(data):
            found = predict_sets(estimator, samples.X)
        with blame("--output"):
            _write_sets(output, samples.layout.labels, found)
    elif nbest > 1:
        with blame(data):
            found = estimator.predict_nbest(samples.X, nbest)
        with blame("--output"):
            _write_nbest(output, samples, found)
    else:
        labels, margins = _labels(estimator, samples, data, constraints, margin)
        with blame("--output"):
            _write(output, samples, labels, margins)


def _labels(
    estimator: Any, samples: Samples, data: str, constraints: str | None, margin: bool
) -> tuple[Any, Any]:
    """Labels, and their leads over the next best ones where these are wanted."""
    if constraints is not None:
        from hingeline.cli.check import constraints_for, predict_under

        # Shares of labels do not count in prediction: any labels will do for them.
        known = constraints_for(estimator, samples, constraints, [estimator.classes_.tolist()])
        with blame(data):
            return predict_under(estimator, samples, known), None
    with blame(data):
        labels = estimator.predict(samples.X)
        if not margin:
            return labels, None
        scores = np.concatenate(estimator.decision_function(samples.X))
        index = {name: k for k, name in enumerate(estimator.classes_.tolist())}
        numbers = [index[label] for label in np.concatenate(labels).tolist()]
        return labels, scores[np.arange(len(numbers)), numbers]


def _texts(labels: Any) -> list[str]:
    return [str(label) for label in labels.tolist()]


def _write(output: str, samples: Samples, labels: Any, margins: Any) -> None:
    source = samples.source
    if samples.layout.kind == "flat":
        with atomic_text(output) as file:
            file.writelines(f"{label}\n" for label in _texts(labels))
        return
    flat = _texts(np.concatenate(labels))
    if hasattr(source, "with_column") and not isinstance(source, TokenTable):
        from hingeline.data.conllu import write_conllu

        write_conllu(output, source.with_column(samples.layout.label, flat))
        return
    more = {"predicted": flat}
    if margins is not None:
        more["margin"] = [f"{value:.4f}" for value in margins.tolist()]
    if isinstance(source, TokenTable):
        from hingeline.data.conll import write_conll

        for name, values in more.items():
            source = source.with_column(free_name(name, source.names), values)
        write_conll(output, source)
        return
    ends = set(np.cumsum([len(part) for part in labels]).tolist())
    with atomic_text(output) as file:
        for t, row in enumerate(zip(*more.values(), strict=True), start=1):
            file.write("\t".join(row) + ("\n\n" if t in ends else "\n"))


def _write_nbest(output: str, samples: Samples, found: list[Any]) -> None:
    """Labellings one after the other, each under a line with its sequence, rank and score."""
    words = samples.X.sentences(0) if isinstance(samples.X, TokenTable) else None
    with atomic_text(output) as file:
        for i, paths in enumerate(found):
            for rank, (labels, score) in enumerate(paths, start=1):
                file.write(f"# sequence {i + 1} rank {rank} score {score:.6f}\n")
                tokens = words[i] if words is not None else [""] * len(labels)
                for token, label in zip(tokens, _texts(labels), strict=True):
                    file.write(f"{token}\t{label}\n" if token else f"{label}\n")
                file.write("\n")


def _write_sets(output: str, labels: list[str], sets: Any) -> None:
    """The names of each row's labels, separated by commas; an empty line for the empty set."""
    with atomic_text(output) as file:
        rows = csv.writer(file, lineterminator="\n")
        for row in sets:
            rows.writerow([labels[k] for k in np.flatnonzero(row)])
