"""``hingeline predict``: labels for a file, in the file's own format."""

from __future__ import annotations

import csv
from itertools import islice
from typing import Annotated, Any

import typer
from typer import Option

import hingeline
from hingeline.cli import app, files
from hingeline.cli.app import blame, given


def predict(
    context: typer.Context,
    model: app.Model,
    data: app.Input = "-",
    output: Annotated[str, Option("--output", "-o", help="File; - is the standard output.")] = "-",
    format: app.KnownFormat = "auto",
    margin: Annotated[bool, Option("--margin", help="Add the lead over the next label.")] = False,
    nbest: Annotated[int, Option(min=1, help="Write the n best labellings, with scores.")] = 1,
    constraints: app.Constraints = None,
    n_jobs: app.NJobs = None,
) -> None:
    """Predict labels and write the input with one more column.

    CoNLL columns get the predicted label as a last column; in CoNLL-U the label's own column is
    replaced. Other formats give one label per line, with an empty line after each sequence. Models
    of sets of labels give the set of each row, its names separated by commas.

    With --constraints, the labels have the highest score minus the penalty of broken rules.
    """
    import numpy as np

    from hingeline.data.text import atomic_text

    estimator = hingeline.load(model)
    estimator.set_params(n_jobs=n_jobs)
    samples = files.read_for(estimator, model, data, format)
    files.check_options(given(context), samples.layout.format)
    if margin + (nbest > 1) + (constraints is not None) > 1:
        raise ValueError("--margin, --nbest and --constraints exclude each other: use one.")
    if margin and hasattr(samples.source, "table"):
        raise ValueError("--margin adds a column, and CoNLL-U has no room for one.")
    found: Any
    leads = None
    if constraints is not None:
        from hingeline.cli.check import constraints_for, predict_under

        # Shares of labels do not count in prediction: any labels will do for them.
        known = constraints_for(estimator, samples, constraints, [estimator.classes_.tolist()])
    with blame(data):
        if samples.layout.format in files.SETS:
            found = files.predict_sets(estimator, samples.X)
        elif nbest > 1:
            found = estimator.predict_nbest(samples.X, nbest)
        elif constraints is not None:
            found = predict_under(estimator, samples, known)
        else:
            found = estimator.predict(samples.X)
            leads = _leads(estimator, samples.X, found) if margin else None
    with blame("--output"):
        if samples.layout.format in files.SETS:  # an empty line for the empty set
            names = samples.layout.labels
            with atomic_text(output) as file:
                rows = ([names[k] for k in np.flatnonzero(row)] for row in found)
                csv.writer(file, lineterminator="\n").writerows(rows)
        elif nbest > 1:
            _write_nbest(output, samples, found)
        else:
            _write(output, samples, found, leads)


def _leads(estimator: Any, X: Any, labels: Any) -> list[Any]:
    """How far each label is ahead of the next best one."""
    import numpy as np

    index = {name: k for k, name in enumerate(estimator.classes_.tolist())}
    return [
        scores[np.arange(len(part)), [index[label] for label in part.tolist()]]
        for part, scores in zip(labels, estimator.decision_function(X), strict=True)
    ]


def _write(output: str, samples: files.Samples, labels: Any, leads: Any) -> None:
    from hingeline.data.text import atomic_text
    from hingeline.features.tables import TokenTable

    source, flat = samples.source, samples.layout.kind == "flat"
    parts = [labels] if flat else labels
    columns = {"predicted": [str(label) for part in parts for label in part.tolist()]}
    if leads is not None:
        columns["margin"] = [f"{value:.4f}" for part in leads for value in part.tolist()]
    if isinstance(source, TokenTable):
        from hingeline.data.conll import write_conll

        for name, values in columns.items():
            source = source.with_column(files.free_name(name, source.names), values)
        write_conll(output, source)
    elif hasattr(source, "table"):
        from hingeline.data.conllu import write_conllu

        write_conllu(output, source.with_column(samples.layout.label, columns["predicted"]))
    else:
        rows = zip(*columns.values(), strict=True)
        with atomic_text(output) as file:
            for part in parts:
                file.writelines("\t".join(row) + "\n" for row in islice(rows, len(part)))
                file.write("" if flat else "\n")


def _write_nbest(output: str, samples: files.Samples, found: list[Any]) -> None:
    """Labellings one after the other, each under a line with its sequence, rank and score."""
    from hingeline.data.text import atomic_text

    words = samples.X.sentences(0) if samples.layout.kind == "tokens" else None
    with atomic_text(output) as file:
        for i, paths in enumerate(found):
            for rank, (labels, score) in enumerate(paths, start=1):
                file.write(f"# sequence {i + 1} rank {rank} score {score:.6f}\n")
                tokens = words[i] if words is not None else [""] * len(labels)
                for token, label in zip(tokens, labels.tolist(), strict=True):
                    file.write(f"{token}\t{label}\n" if token else f"{label}\n")
                file.write("\n")
