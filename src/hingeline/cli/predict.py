"""``hingeline predict``: labels for a file, in the file's own format."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from typer import Argument, Option

import hingeline.data
from hingeline.cli import app, files
from hingeline.cli.app import blame, given


def predict(
    context: typer.Context,
    model: app.Model,
    data: Annotated[
        list[str] | None,
        Argument(metavar="INPUT…", help="Files, with or without labels; - is standard input."),
    ] = None,
    output: Annotated[str, Option("--output", "-o", help="File; - is standard output.")] = "-",
    output_dir: Annotated[Path | None, Option(help="Folder for one output file per input.")] = None,
    format: app.KnownFormat = "auto",
    raw: Annotated[bool, Option("--raw", help="The input is text, one sentence per line.")] = False,
    margin: Annotated[bool, Option("--margin", help="Add how far each label leads.")] = False,
    probability: Annotated[
        bool, Option("--probability", help="Add the probability of each label (after calibrate).")
    ] = False,
    nbest: Annotated[int, Option(min=1, help="Write the n best labellings, with scores.")] = 1,
    constraints: app.Constraints = None,
    workers: app.Workers = None,
    n_jobs: app.NJobs = None,
) -> None:
    """Predict labels and write the input with one more column.

    In CoNLL columns and CSV the predicted label becomes a new last column, in JSON lines a new
    list; in CoNLL-U it replaces the label column. Everything else is copied byte for byte, in
    pieces, so the file may be larger than memory. For other formats, the output has one label per
    line and an empty line after each sequence; for sets of labels, one set per line, its names
    separated by commas. With --raw, each line of the output is a word and its label.

    With --constraints, penalties for broken rules lower the score of a labelling, and the best one
    is predicted. A model made by hingeline semi keeps to its own rules, unless --constraints none,
    --margin, --probability or --nbest is given.

    The outputs of several files ('part-*.txt') are joined, or go to --output-dir. With --workers,
    the files are shared among that many processes, or the workers of a Dask cluster.
    """
    data = data or ["-"]
    estimator = files.load_model(model).set_params(n_jobs=n_jobs)
    layout = files.layout_of(estimator, model)
    files.check_options(given(context), layout.format, layout.task)
    one = margin + probability + (nbest > 1) + (constraints is not None) <= 1
    which = "--margin, --probability, --nbest and --constraints"
    files.require(one, f"{which} cannot be combined: use one.")
    measure = "margin" if margin else "probability" if probability else ""
    sure = None
    if probability:
        from hingeline.evaluation.calibration import CalibratedChain

        sure = CalibratedChain.load(model, estimator)
    if raw:
        trained = ", ".join(layout.columns) or f"{layout.format} files"
        what = f"--raw gives words only, but the model was trained on {trained}"
        one = layout.kind == "tokens" and len(layout.columns) == 1
        files.require(one, f"{what}: train one with --use word.")
        files.require(format in ("auto", "text"), "--raw is a format, too: leave --format out.")
        format = "text"
    names, title = files.expand_all(data)
    alone = "-" not in names or len(names) == 1
    files.require(alone, "standard input cannot be combined with files: leave - or the files out.")
    app.check_target("--output", output, model, *names)
    joined = len(names) > 1 and output_dir is None
    job = _Job(estimator, model, sure, format, measure, nbest, constraints, joined)
    scrolls = output == "-" and sys.stdout.isatty()  # the labels themselves show how far it is
    reporter = files.Reporter(title, 0 if scrolls and output_dir is None else None)
    targets = None if output_dir is None else _name_outputs(output_dir, output, names)
    texts: Any = [None] * len(names)  # a file is written as it is read, but by workers
    if workers is not None:
        texts = files.map_files(job.make_text, names, workers, reporter)
    hint = layout.kind == "tokens" and len(layout.columns) == 1 and format == "auto"
    with reporter.during("predicting"), _suggest_raw(hint), ExitStack() as stack:
        if output_dir is not None:
            if not output_dir.exists():
                output_dir.mkdir()
                stack.callback(_remove_empty, output_dir)
        else:
            with blame("--output"):
                out = stack.enter_context(hingeline.data.atomic_text(output))
        for k, (name, text) in enumerate(zip(names, texts, strict=True)):
            with ExitStack() as own:
                if targets is not None:
                    with blame("--output-dir"):
                        out = own.enter_context(hingeline.data.atomic_text(targets[k]))
                if text is None:
                    job.write(name, out, reporter)
                else:
                    with blame("--output"):
                        out.write(text)


@contextmanager
def _suggest_raw(hint: bool) -> Iterator[None]:
    """Lines of different lengths may be running text, for a model of words."""
    try:
        yield
    except ValueError as error:
        if hint and "columns" in str(error):
            error.add_note("for running text, pass --raw")
        raise


def _name_outputs(folder: Path, output: str, names: list[str]) -> list[Path]:
    """A file in the folder for each input, under the same name."""
    files.require(output == "-", "--output is one file and --output-dir a folder: use one of them.")
    what = f"--output-dir: {folder} is a file: name a folder."
    files.require(folder.is_dir() or not folder.exists(), what)
    targets = [folder / Path(name).name for name in names]
    for k, target in enumerate(targets):
        what = f"--output-dir: {names[k]} and {names[targets.index(target)]} have the same name"
        files.require(targets.index(target) == k, f"{what}: predict them one by one.")
        app.check_target("--output-dir", target if folder.exists() else folder, *names)
    return targets


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not empty
        folder.rmdir()


@dataclass
class _Job:
    """What is to be predicted of each file, here or on a worker."""

    estimator: Any
    model: Path
    sure: Any  # what knows how likely its labels are right, for --probability
    format: str
    measure: str
    nbest: int
    constraints: str | None
    joined: bool  # whether several files become one

    def make_text(self, data: str) -> str:
        """A file with its labels, in memory."""
        out = io.StringIO()
        self.write(data, out)
        return out.getvalue()

    def write(self, data: str, out: IO[str], reporter: Any = None) -> None:
        """Predict a file piece by piece."""
        known: list[Any] | None = None  # those in the model's file
        written, measure = 0, self.measure
        for samples in files.read_pieces(self.estimator, self.model, data, self.format):
            room = not measure or samples.format != "conllu"
            files.require(room, f"--{measure} adds a column, and CoNLL-U has no room for one.")
            what = f"{data} has a header, and files with headers cannot be joined"
            fine = not self.joined or samples.format not in ("csv", "table")
            files.require(fine, f"{what}: pass --output-dir.")
            if self.constraints is not None and known is None:
                from hingeline.cli.check import constraints_for

                # Shares of labels do not count in prediction: any labels will do for them.
                y = [self.estimator.classes_.tolist()]
                known = constraints_for(self.estimator, samples, self.constraints, y)
            with blame(data):
                found, leads = self._label(samples, known)
            with blame("--output"):
                if self.nbest > 1:
                    _write_nbest(out, samples, found, written)
                else:
                    _write(out, samples, found, leads, measure)
            written += samples.n_sequences
            if reporter is not None:
                reporter.state = f"{written:,} done"
        if self.joined and self.nbest == 1 and samples.format in ("conll", "jsonl"):
            # The last sentence must not run into the first one of the next file.
            ends = samples.content.replace(b"\r", b"")[-2:]
            blank = samples.format == "conll" and ends != b"\n\n"
            out.write("\n" * (blank + (not ends.endswith(b"\n"))))

    def _label(self, samples: files.Samples, known: list[Any] | None) -> tuple[Any, Any]:
        """Labels, and how far each is ahead of the next best one, or how likely it is right."""
        X = samples.X
        if samples.n_sequences == 0:  # a piece may hold comments only
            return [], None
        if self.nbest > 1:
            return self.estimator.predict_nbest(X, self.nbest), None
        leads = None
        if self.measure == "probability":
            leads = self.sure.predict_proba_tokens(X)
        elif self.measure:  # the label that is predicted leads
            leads = [scores.max(axis=1) for scores in self.estimator.decision_function(X)]
        return files.predict(self.estimator, X, [] if self.measure else known), leads


def _write(out: IO[str], samples: files.Samples, labels: Any, leads: Any, measure: str) -> None:
    source, content = samples.source, samples.content
    measured = [] if leads is None else [[[f"{value:.4f}" for value in part] for part in leads]]
    if samples.format == "table":
        from hingeline.data.records import add_fields, delimiter_of, split_row

        header = samples.header.decode()
        name = files.free_name("predicted", split_row(header, delimiter_of(header)))
        columns = [[str(label) for label in labels]]
        out.write(add_fields(content, columns, [name], samples.header).decode())
        return
    if samples.format not in files.WORDS:
        words = [samples.X.sentences(0)] if samples.format == "text" else []
        write_labels(out, samples.layout, *words, labels, *measured)
        return
    keys = samples.layout.label_columns if samples.layout.task == "dependencies" else ["predicted"]
    parts = dict(zip(keys, split_columns(samples.layout, labels), strict=True))
    parts |= zip([measure], measured, strict=False)
    columns = [[value for part in column for value in part] for column in parts.values()]
    names = [files.free_name(name, getattr(source, "names", ())) for name in parts]
    from hingeline.data import conll, records

    if samples.format == "conllu":
        for name, column in zip(samples.layout.label_columns, columns, strict=True):
            source = source.with_column(name, column)
        conll.write_conllu(out, source)
        return
    if samples.format == "conll":
        text = conll.add_columns(content, columns, names)
    elif samples.format == "csv":
        text = records.add_fields(content, columns, names, samples.header)
    else:
        text = records.add_lists(content, dict(zip(names, parts.values(), strict=True)))
    out.write(text.decode())


def split_columns(layout: files.Layout, labels: Any) -> list[list[list[str]]]:
    """Labels as the columns of a file, sentence by sentence: heads and relations are two."""
    if layout.task == "dependencies":
        return [[[str(arc[k]) for arc in part] for part in labels] for k in (0, 1)]
    return [[[str(label) for label in part] for part in labels]]


def write_labels(out: IO[str], layout: files.Layout, *columns: Any) -> None:
    """Labels in columns, an empty line after each sequence; sets as names between commas."""
    if layout.kind == "multilabel":  # an empty line for the empty set
        rows = ([layout.labels[k] for k in row.nonzero()[0]] for row in columns[0])
        csv.writer(out, lineterminator="\n").writerows(rows)
        return
    flat = layout.kind == "flat"
    for parts in zip(*([column] if flat else column for column in columns), strict=True):
        out.writelines("\t".join(map(str, row)) + "\n" for row in zip(*parts, strict=True))
        out.write("" if flat else "\n")


def _write_nbest(out: IO[str], samples: files.Samples, found: list[Any], before: int) -> None:
    """Labellings one after the other, each under a line with its sequence, rank and score."""
    words = [samples.X.sentences(0)] if samples.layout.kind == "tokens" else []
    for i, paths in enumerate(found):
        for rank, (labels, score) in enumerate(paths, start=1):
            out.write(f"# sequence {before + i + 1} rank {rank} score {score:.6f}\n")
            columns = split_columns(samples.layout, [labels])
            write_labels(out, samples.layout, *(own[i : i + 1] for own in words), *columns)
