"""``hingeline convert``: from one file format to another."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from hingeline import data
from hingeline.cli import app, files
from hingeline.cli.app import check_target, split_names

#: Formats by the ending of a file's name, for --to auto.
_NAMES = ("conll", "conllu", "csv", "jsonl", "crfsuite", "svmhmm", "svmlight", "arff")
_ENDINGS = {".mrg": "trees", ".tsv": "csv", **{f".{name}": name for name in _NAMES}}


def convert(
    source: Annotated[str, Argument(metavar="INPUT", help="A file; - is standard input.")] = "-",
    target: Annotated[str, Argument(metavar="OUTPUT", help="A file; - is standard output.")] = "-",
    to: Annotated[str, Option("--to", "-t", help="Format to write; auto: by file name.")] = "auto",
    format: app.Format = "auto",
    columns: Annotated[str | None, Option(help="Columns to keep, separated by commas.")] = None,
    vocabulary: Annotated[
        Path | None, Option(help="File of feature numbers; read if it exists, otherwise written.")
    ] = None,
    formats: Annotated[bool, Option("--formats", help="List the formats.")] = False,
) -> None:
    """Convert between CoNLL, CoNLL-U, CRFsuite, SVM^hmm, SVMlight, ARFF and others."""
    from hingeline.data.labelled import column_of

    if formats:
        for entry in data.FORMATS.values():
            typer.echo(f"{entry.name:<12}{entry.kind:<12}{entry.title}")
        return
    if to == "auto":
        ending = Path(target.removesuffix(".gz")).suffix
        names = ", ".join(name for name, f in data.FORMATS.items() if f.write is not None)
        what = f"--to: the name {target!r} does not show the format"
        files.require(ending in _ENDINGS, f"{what}: pass one of {names}.")
        to = _ENDINGS[ending]
    check_target("OUTPUT", target, source)
    known = data.read_vocabulary(vocabulary) if vocabulary and vocabulary.exists() else None
    if vocabulary is not None and known is None:
        check_target("--vocabulary", vocabulary)
    chosen = None if columns is None else [column_of(c) for c in split_names(columns) or ()]
    with files.Reporter(source, 0 if target == "-" else None).during("converting"):
        used = data.convert(
            files.open_once(source), target, to, format=format, columns=chosen, vocabulary=known
        )
    if vocabulary is not None and known is None:
        if used is None:
            typer.echo(f"{vocabulary} is not written: no features were numbered", err=True)
        else:
            data.write_vocabulary(vocabulary, used)
