"""``hingeline predict``: labels for a file, in the file's own format."""

from __future__ import annotations

from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import hingeline
from hingeline.cli.annealed import without_certificate
from hingeline.cli.app import CommandError, NJobs, app, blaming, check_n_jobs
from hingeline.cli.constraints import Constraints, constraints_for, predict_under
from hingeline.cli.label_sets import predict_sets, refuse, write_sets
from hingeline.cli.samples import Samples, layout_of, read_like
from hingeline.data.conll import write_conll
from hingeline.data.conllu import ConlluDocument, write_conllu
from hingeline.data.formats import detect_format
from hingeline.data.text import atomic_text
from hingeline.features.tables import TokenTable


def load_model(path: Path) -> Any:
    """The model of a file, or one sentence on what is wrong with it."""
    with blaming():
        return without_certificate(hingeline.load(path))


def read_for(model: Any, path: Path, file: str, format: str) -> Samples:
    """A file for a model that was loaded from ``path``."""
    layout = layout_of(model, path)
    if format == "auto" and "layout" not in getattr(model, "metadata_", {}) and isfile(file):
        with blaming():
            format = detect_format(file)  # the model was saved in Python: the file must tell
    width = None if getattr(model, "encoder_", None) is not None else int(model.n_features_in_)
    return read_like(file, layout, width, format)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.hinge).")],
    data: Annotated[
        str, typer.Argument(metavar="INPUT", help="File, with or without labels; - is a pipe.")
    ] = "-",
    output: Annotated[
        str, typer.Option("--output", "-o", help="Where to write; - is the standard output.")
    ] = "-",
    format: Annotated[
        str, typer.Option("--format", "-f", help="Format; auto: as trained.")
    ] = "auto",
    margin: Annotated[
        bool, typer.Option("--margin", help="Add each label's lead over the next best.")
    ] = False,
    nbest: Annotated[
        int, typer.Option(min=1, help="The n best labellings of each sequence, with scores.")
    ] = 1,
    constraints: Constraints = None,
    n_jobs: NJobs = None,
) -> None:
    """Predict labels and write the input with a column more.

    CoNLL columns get the predicted label as a last column; in CoNLL-U the label's own column is
    replaced. Other formats give one label a line, with an empty line after each sequence; models
    of sets of labels give the set of each row, its names separated by commas.

    With --constraints labels are looked for that keep them: the highest score minus penalty.
    """
    check_n_jobs(n_jobs)
    estimator = load_model(model)
    estimator.set_params(n_jobs=n_jobs)
    samples = read_for(estimator, model, data, format)
    sets = samples.layout.kind == "multilabel"
    if (sets or samples.layout.kind == "flat") and (margin or nbest > 1):
        raise CommandError("--margin and --nbest are for models of sequences.")
    if sets:
        if constraints is not None:
            refuse("they are for words in columns", ["--constraints"])
        with blaming(data):
            found = predict_sets(estimator, samples.X)
        with blaming("--output"):
            write_sets(output, samples.layout.labels, found)
        return
    if margin and nbest > 1:
        raise CommandError("--margin and --nbest exclude each other: use one of them.")
    if constraints is not None and (margin or nbest > 1):
        raise CommandError("--margin and --nbest do not know --constraints: leave one out.")
    if nbest > 1:
        with blaming(data):
            found = estimator.predict_nbest(samples.X, nbest)
        with blaming("--output"):
            _write_nbest(output, samples, found)
        return
    known = None
    if constraints is not None:
        # Shares of labels do not count in prediction: any labels will do for them.
        known = constraints_for(estimator, samples, constraints, [estimator.classes_.tolist()])
    with blaming(data):
        if known is not None:
            labels = predict_under(estimator, samples, known)
        else:
            labels = estimator.predict(samples.X)
        margins = None
        if margin:
            scores = np.concatenate(estimator.decision_function(samples.X))
            index = {name: k for k, name in enumerate(estimator.classes_.tolist())}
            chosen = [index[label] for label in np.concatenate(labels).tolist()]
            margins = scores[np.arange(len(chosen)), chosen]
    with blaming("--output"):
        _write(output, samples, labels, margins)


def _texts(labels: Any) -> list[str]:
    return [str(label) for label in labels.tolist()]


def _write(output: str, samples: Samples, labels: Any, margins: Any) -> None:
    source = samples.source
    if samples.layout.kind == "flat":
        with atomic_text(output) as file:
            file.writelines(f"{label}\n" for label in _texts(labels))
        return
    flat = _texts(np.concatenate(labels))
    if isinstance(source, ConlluDocument):
        if margins is not None:
            raise CommandError("--margin adds a column, and CoNLL-U has no room for one.")
        write_conllu(output, source.with_column(samples.layout.label, flat))
        return
    more = {"predicted": flat}
    if margins is not None:
        more["margin"] = [f"{value:.4f}" for value in margins.tolist()]
    if isinstance(source, TokenTable):
        columns = {name: source.column(name).tolist() for name in source.names}
        fresh = {_unused(name, columns): values for name, values in more.items()}
        write_conll(output, TokenTable.from_columns({**columns, **fresh}, source.offsets))
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


def _unused(name: str, columns: dict[str, Any]) -> str:
    while name in columns:
        name += "_"
    return name
