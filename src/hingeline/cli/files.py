"""Models, and files as models see them; many files, in processes or on a Dask cluster.

Commands import it when they run: what else is slow to import, they take from here.
"""

import hashlib
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from os.path import isfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import require, retell
from hingeline._words import count_of
from hingeline.cli.app import blame, flag, split_names
from hingeline.core.loop import Reporter
from hingeline.core.results import align as align
from hingeline.data import labelled
from hingeline.data.conll import WORD_NAMES, header_of, plain_name, token_lines
from hingeline.data.formats import Format, detect_format, find_format
from hingeline.data.labelled import NAMED, NUMBERED, ROWS, SEQUENCES, SETS, TASKS, WORDS, File
from hingeline.data.labelled import Layout as Layout
from hingeline.data.labelled import open_once as open_once
from hingeline.data.records import unfold
from hingeline.data.text import ParseError, TextSource, open_text
from hingeline.features.tables import TokenTable, default_names
from hingeline.modelfile.estimators import load
from hingeline.modelfile.files import read_header

#: Kinds of data, where their names do not say what they are.
_KINDS = {"flat": "rows", "multilabel": "rows with sets of labels", "tokens": "columns of words"}
#: Options that some formats have no use for, and the formats that have one.
_USES = {
    "columns": ("conll",),
    "use template hash_bits unlabelled constraints": WORDS,
    "label": (*WORDS, "arff", "table"),
    "min_count": NAMED,
    "scheme strict margin probability nbest": SEQUENCES,
    "rescale violators keep_state bootstrap confusion": (*SEQUENCES, *ROWS),
    "edges": SETS,
    "scale": (*ROWS, *SETS),
}
_OPTIONS = {name: formats for names, formats in _USES.items() for name in names.split()}
#: Options that other tasks have no use for.
_LABELS_ONLY = {"segments": ["margin", "probability", "constraints", "keep_state"]}
_LABELS_ONLY["dependencies"] = [
    *("template", "min_count", "hash_bits", "scheme", "strict", "bootstrap", "confusion"),
    *_LABELS_ONLY["segments"],
]
#: Options of ``train`` that blocks have no use for, and what to do instead.
_NOT_IN_BLOCKS = {
    "grid": "train once for every C",
    **dict.fromkeys(("cv", "cv_output"), "leave it out, or train on one machine"),
    "keep_state": "train again to add data",
}
#: Models of words that learn something else than labels.
_TASK_OF = {"SegmentSSVM": "segments", "DependencySSVM": "dependencies"}
_QUERY = re.compile(rb"\bqid:[0-9]+")
#: Formats that can be read in pieces, and whether one may end between two lines.
_ENDS: dict[str, Callable[[bytes, bytes], bool]] = {
    **dict.fromkeys((*NAMED, "csv"), lambda a, b: not a.strip()),
    **dict.fromkeys(("jsonl", "text", "svmlight", "multilabel", "table"), lambda a, b: True),
    "svmhmm": lambda a, b: len({*_QUERY.findall(a)[:1], *_QUERY.findall(b)[:1]}) == 2,
}


def check_options(names: Iterable[str], format: str, task: str = "labels") -> None:
    """Refuse options that files of a format, or a task, have no use for."""
    for name in names:
        formats = _OPTIONS.get(name, (format,))
        what = f"{flag(name)} is for labels, not for {task}"
        require(name not in _LABELS_ONLY.get(task, ()), f"{what}: leave it out.")
        what = f"{flag(name)} is for {', '.join(formats)} files"
        require(format in formats, f"{what}, not for {format}: leave it out.")


@dataclass
class Samples:
    """Inputs and labels of a file."""

    X: Any
    y: Any  # None where the file has no labels
    layout: Layout
    source: Any  # the table or document as it was read
    format: str = ""  # of the file, of which these may be a piece
    content: bytes = b""  # of a piece
    header: bytes = b""  # the line of the file that names the columns

    @property
    def n_sequences(self) -> int:
        """Sequences, or rows."""
        return labelled.length_of(self.X)

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(map(len, self.X)) if isinstance(self.X, list) else int(self.X.offsets[-1])

    @property
    def width(self) -> int:
        """Features, where they are numbers."""
        return int(getattr(self.X, "matrix", self.X).shape[1])

    def size_text(self) -> str:
        """Its size in words."""
        kind, labels = self.layout.kind, self.layout.labels
        if kind in ("flat", "multilabel"):
            rows = count_of(self.n_sequences, "row")
            return rows if kind == "flat" else f"{rows}, {count_of(len(labels), 'label')}"
        return f"{count_of(self.n_sequences, 'sequence')}, {count_of(self.n_tokens, 'token')}"


def load_model(path: Path) -> Any:
    """The estimator in a model file; of a semi-supervised one its base, without rules."""
    own = read_header(path)[0].get("structure") is not None
    what = f"{path} holds the weights of a structure of your own, not its code"
    require(not own, f"{what}: use it in Python.")
    return load(path, expected=object)


def holds_sets(model: Any) -> bool:
    """Whether a model predicts sets of labels."""
    return type(model).__name__ == "MultilabelSSVM"


def predict(model: Any, X: Any, rules: list[Any] | None = None) -> Any:
    """Labels, under rules that are given or in the model's file; of sets (rows, labels) always."""
    if rules or (rules is None and "semisupervised" in getattr(model, "metadata_", {})):
        from hingeline.semisupervised.estimator import SemiSupervisedSSVM, label_under

        if rules:
            return label_under(model, rules, X)
        model = SemiSupervisedSSVM.around(model) or model
    found = model.predict(X)
    return np.asarray(found).reshape(X.shape[0], -1) if holds_sets(model) else found


def layout_of(model: Any, path: Path) -> Layout:
    """The layout of the files that a model was trained on."""
    kind = type(model).__name__
    task = _TASK_OF.get(kind, "labels")
    what = f"{path} is a model of graphs (GraphSSVM), for which there is no file format"
    require(kind != "GraphSSVM", f"{what}: use it in Python, hingeline.load(path).predict(graphs).")
    found = getattr(model, "metadata_", {}).get("layout")
    if found is None:
        return _usual_layout(model, task)
    own = {"MulticlassSSVM": ("flat",), "MultilabelSSVM": ("multilabel",)}
    with suppress(TypeError):
        layout = Layout(**found)
        whole = layout.kind != "multilabel" or len(layout.labels) == model.n_labels_
        fits = layout.kind in own.get(kind, ("tokens", "sequences"))
        if layout.makes_sense() and fits and whole and layout.task == task:
            return layout
    what = f"{path} holds a description of its training files that makes no sense"
    raise ValueError(f"{what}: get a fresh copy of the model.")


def _usual_layout(model: Any, task: str) -> Layout:
    """The layout of files for a model that was saved in Python, where nothing says what it is."""
    encoder = getattr(model, "encoder_", None)
    columns = list(getattr(encoder, "column_names_", []))
    if task == "dependencies":
        return Layout("conllu", "tokens", columns, "deprel", task=task)
    if columns:
        return Layout("conll", "tokens", columns, free_name("label", columns), task=task)
    if type(model).__name__ == "MulticlassSSVM":
        return Layout("svmlight", "flat")
    if holds_sets(model):
        names = [str(name) for name in model.classes_.tolist()]
        if model.n_labels_ > 1 and model.classes_.dtype == object:
            return Layout("arff", "multilabel", labels=names)
        return Layout("multilabel", "multilabel", labels=[str(k) for k in range(model.n_labels_)])
    return Layout("svmhmm" if encoder is None else "crfsuite", "sequences")


def free_name(name: str, taken: Collection[str]) -> str:
    """A name that no column has."""
    while name in taken:
        name += "_"
    return name


def read_for(model: Any, path: Path, file: str, format: str, to: str = "", **how: Any) -> Samples:
    """A file for a model that was loaded from ``path``; ``to`` says what labels are wanted for."""
    layout, width, opened = _open_for(model, path, file, format)
    found = read_like(opened, layout, width, **how)
    require(found.y is not None or not to, f"{labelled.title_of(file)} has no labels to {to}.")
    return found


def _open_for(model: Any, path: Path, file: str, format: str) -> tuple[Layout, int | None, File]:
    """The layout of a model's files, the number of its features, and a file for it."""
    layout = layout_of(model, path)
    if format == "auto" and "layout" not in getattr(model, "metadata_", {}) and isfile(file):
        format = detect_format(file)  # the model was saved in Python: the file must tell
    return layout, width_of(model), open_like(file, layout, format)


def width_of(model: Any) -> int | None:
    """The number of a model's features, None where it encodes named ones by itself."""
    return int(model.n_features_in_) if getattr(model, "encoder_", None) is None else None


def open_like(path: str, layout: Layout, format: str = "auto") -> File:
    """Open a file for a model; words may come in another format than those of training."""
    source = open_once(path)
    if format == "auto":
        format = layout.format
        if layout.kind == "tokens":
            with suppress(ParseError):
                found = detect_format(source)
                format = found if found in WORDS else format
    source = unfold(source) if format == "jsonl" else source
    file = File(labelled.title_of(path), source, find_format(format))
    if format != "conll" or layout.kind != "tokens":
        return file
    with nullcontext(source) if isinstance(source, TextSource) else open_text(source) as text:
        head = text.peek(2**16).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    every = layout.names or [*layout.columns, layout.label]
    return File(*file[:3], *header_of(head, every, [n for n in every if n != layout.label]))


def read_pieces(model: Any, path: Path, file: str, format: str) -> Iterator[Samples]:
    """A file for a model, some sentences or rows at a time where the format allows that."""
    layout, width, opened = _open_for(model, path, file, format)
    name = opened.format.name
    numbers = name in NUMBERED and layout.zero_based is None  # the whole file must tell
    if name not in _ENDS or numbers:
        yield read_like(opened, layout, width)
        return
    header, ends, seen = opened.header, _ENDS[name], False
    held: list[Samples] = []  # of comments, as long as nothing else was seen
    with open_text(opened.source) as text:
        if name in ("csv", "table"):
            head = text.peek(2**16).removeprefix(b"\xef\xbb\xbf").split(b"\n")
            header = next(filter(bytes.strip, head), b"").rstrip()
            from hingeline.data.records import find_ends

            ends = find_ends(header.decode(errors="replace")) if name == "csv" else ends
        for number, raw in text.pieces(ends):
            begins = number == 1 or not header
            whole = raw if begins else header + b"\n" + raw
            part = TextSource(io.BytesIO(whole), text.name, first=number - (not begins))
            samples = read_like(opened._replace(source=part), layout, width, empty=True)
            seen = seen or samples.n_sequences > 0
            held.append(replace(samples, format=name, content=raw, header=header))
            if seen:
                yield from held
                held = []
    if not seen:
        labelled.refuse_empty(opened.path, header.decode())


def find_lines(file: File, samples: Samples) -> list[int] | None:
    """The line of each token in a file of words; None where that cannot be told."""
    name = file.format.name
    if isinstance(file.source, TextSource) or name not in ("conll", "conllu", "csv"):
        return None
    with open_text(file.source) as text:
        raw = b"".join(piece for _, piece in text.pieces())
    lines = token_lines(raw) if name == "conll" else raw.split(b"\n")
    if name == "conllu":
        lines = [line if line.partition(b"\t")[0].isdigit() else b"" for line in lines]
    return [n for n, line in enumerate(lines, 1) if line.strip()][-samples.n_tokens :]


def expand_all(patterns: Sequence[str]) -> tuple[list[str], str]:
    """The files that patterns stand for, and what to call them together."""
    names = [name for pattern in patterns for name in labelled.expand(pattern)]
    return names, labelled.title_of(patterns[0]) if len(patterns) == 1 else f"{len(names)} files"


def learner_of(format: Format, task: str) -> Any:
    """The class of the estimator for a task and a format."""
    import hingeline

    names = {own: name for name, own in _TASK_OF.items()}
    names |= {"flat": "MulticlassSSVM", "multilabel": "MultilabelSSVM"}
    return getattr(hingeline, names.get(format.kind) or names.get(task, "ChainSSVM"))


def open_training(path: str, format: str, options: Iterable[str], task: str = "labels") -> File:
    """Open a file to train on, and refuse options that its format has no use for."""
    require(task in TASKS, f"--task: must be one of {', '.join(TASKS)}, got {task!r}.")
    source = open_once(path)
    found = find_format(detect_format(source) if format == "auto" else format)
    what = f"{path} holds {found.kind} ({found.name}), not sequences or rows: convert it first"
    require(found.name in (*SEQUENCES, *ROWS, *SETS), f"{what} (hingeline convert).")
    check_options(options, found.name, task)
    what = f"--task {task} is for {', '.join(TASKS[task])} files, and {path} is {found.name}"
    require(task == "labels" or found.name in TASKS[task], f"{what}.")
    return File(labelled.title_of(path), source, found)


def read_training(
    file: File, columns: str | None, use: str | None, label: str | None, task: str = "labels"
) -> Samples:
    """A labelled file to train on; the layout follows from the file and the options."""
    names = split_names(columns), split_names(use)
    return Samples(*labelled.read_labelled(file, *names, label, task=task))


def read_like(
    file: File, layout: Layout, width: int | None, grow: bool = False, empty: bool = False
) -> Samples:
    """A file for a trained model: laid out as in training, with or without labels.

    ``width`` is the number of the model's features, None where it encodes named ones by itself;
    ``grow`` keeps features beyond those; ``empty``: it may hold nothing.
    """
    path, _, found = file[:3]
    by_name = found.name == layout.format == "arff"  # the model knows which attributes are labels
    based = None if layout.zero_based is None else True
    options: dict[str, Any] = {"zero_based": based, "names": file.names}
    options["labels"] = [] if by_name else None
    if found.name == layout.format == "table":
        options |= {"labels": layout.label, "names": layout.columns}
    data = labelled.read_file(file, empty, **options)
    holds, takes = (_KINDS.get(kind, kind) for kind in (found.kind, layout.kind))
    what = f"{path} holds {holds} ({found.name}), but the model takes {takes} ({layout.format})."
    require(holds == takes, what)
    if found.kind == "tokens":
        return _tokens_like(path, found.name, data, layout)
    if by_name:
        return Samples(*_sets_by_name(path, data, layout, width), layout, data)
    # Files of another format number their features in their own way.
    numbering = layout if found.name in NUMBERED else Layout(found.name, found.kind)
    if found.kind == "multilabel":
        highest, most = data.Y.shape[1] - 1, len(layout.labels) - 1
        what = f"{path} has a label {highest}, but the model was trained on labels 0 to {most}"
        require(highest <= most, f"{what}: remove the others.")
        y = np.pad(data.Y.toarray().astype(np.int64), ((0, 0), (0, most - highest)))
        X = labelled.keep_features(sp.csr_matrix(data.X), numbering, width)
        return Samples(X, y, layout, data)
    named = isinstance(data.X, list)
    own, other = ("named", "numbered") if named else ("numbered", "named")
    what = f"{path} has {own} features ({found.name}), but the model was trained on {other} ones"
    fine = named == (width is None) or found.kind != "sequences"
    require(fine, f"{what} ({layout.format}): use hingeline convert.")
    return Samples(labelled.keep_features(data.X, numbering, width, grow), data.y, layout, data)


def read_held_out(path: str | None, layout: Layout, width: int | None) -> Samples | None:
    """The file of ``--dev``, which must have labels; None where none is named."""
    if path is None:
        return None
    found = read_like(open_like(path, layout), layout, width)
    require(found.y is not None, f"--dev: {path} has no labels to compare with.")
    return found


def _tokens_like(path: str, format: str, data: Any, layout: Layout) -> Samples:
    if format == "conllu":
        table, label = data.table, layout.label if layout.label in data.table.names else "upos"
        with blame(path):
            inputs = table.select(layout.columns)
        own = replace(layout, label=label)
        blank = any(labelled.is_blank(table, column, format) for column in own.label_columns)
        y = None if blank else labelled.labels_of(path, table, own)
        return Samples(inputs, y, layout, data)
    if not len(data):  # a piece of comments has no columns
        data = TokenTable.from_sentences([], layout.columns)
    names = _column_names(path, list(data.names), layout)
    table = TokenTable(tuple(names), data.codes, data.values, data.offsets)
    y = table.sentences(layout.label) if layout.label in names else None
    return Samples(table.select(layout.columns), y, layout, data)


def _column_names(path: str, own: list[str], layout: Layout) -> list[str]:
    """What the columns of a file for a model are: by their names if both have any, or number."""
    inputs, width = layout.columns, len(own)
    text = width == 1 and " " in own[0] and own[0] not in inputs  # a sentence as the head of a CSV
    require(not text, f"{path} has one column, named {own[0]!r:.60}: for running text, pass --raw.")
    if own != [*default_names(width)] and not {*inputs} <= {*default_names(1000)}:
        known = {name.lower(): name for name in (*inputs, layout.label)}
        names = [known.get(name.lower(), name) for name in own]
        if len(inputs) == 1 and inputs[0] not in names:
            names = [inputs[0] if plain_name(name) in WORD_NAMES else name for name in names]
        for name in inputs:
            what = f"{path} has no column {name}, which the model was trained on"
            require(name in names, f"{what}: it has {', '.join(own)}.")
        return names
    every = layout.names or [*inputs, layout.label]
    unlabelled = [name for name in every if name != layout.label]
    for names in (every, unlabelled, inputs, [*inputs, layout.label]):
        if len(names) == width:
            return names
    counts = ["one column" if n == 1 else f"{n} columns" for n in (width, len(every))]
    what = f"{path} has {counts[0]}, but the model was trained on {counts[1]} ({', '.join(every)})"
    how = f"give those, with or without {layout.label}, or only those it reads"
    raise ValueError(f"{what}: {how} ({', '.join(inputs)}).")


def source_of(path: str, hashed: bool = True) -> dict[str, Any]:
    """Name and SHA-256 of a file, the latter None for what cannot be read again."""
    digest = None
    if hashed and path != "-" and isfile(path):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": Path(path).name, "sha256": digest}


def _sets_by_name(path: str, data: Any, layout: Layout, width: int | None) -> tuple[Any, Any]:
    """Inputs and indicators from the attributes of an ARFF file, whatever their order."""
    labels = layout.labels
    at = {name: k for k, name in enumerate(data.feature_names)}
    found, missing = ([name for name in labels if (name in at) == there] for there in (True, False))
    what = f"{path} has the label {', '.join(found[:1])} but not {', '.join(missing[:1])}"
    require(not (found and missing), f"{what}: give all labels of the model, or none.")
    chosen = layout.columns or [name for name in at if name not in set(labels)]
    for name in chosen:
        require(name in at, f"{path} has no attribute {name}, which the model was trained on.")
    what = f"{path} has {len(chosen)} attributes that are not labels"
    require(width in (None, len(chosen)), f"{what}, but the model was trained on {width}.")
    X = data.X[:, [at[name] for name in chosen]]
    if not found:
        return X, None
    Y = data.X[:, [at[name] for name in labels]]
    Y = np.asarray(Y.toarray() if sp.issparse(Y) else Y)
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        row, k = wrong[0].tolist()
        what = f"{path}: the label {labels[k]} is {Y[row, k]:g} in row {row + 1} of the data"
        raise ValueError(f"{what}; labels must be 0 or 1.")
    return X, Y.astype(np.int64)


def check_workers(names: Mapping[str, Any], workers: str) -> dict[str, Any]:
    """Refuse options that do not work with --workers; the arguments that say where blocks live."""
    for name, remedy in _NOT_IN_BLOCKS.items():
        require(name not in names, f"{flag(name)} does not work with --workers: {remedy}.")
    require("-" not in names["data"], "--workers cannot read standard input: name files.")
    if workers.isdecimal() and int(workers):
        return {"workers": int(workers)}
    what = "must be a number of processes, or the address of a Dask scheduler"
    require(":" in workers, f"--workers: {what} (tcp://host:8786), got {workers!r}.")
    return {"client": workers}


def blame_workers(*others: type[Exception]) -> AbstractContextManager[None]:
    """One sentence where there is no worker, no Dask, or for other errors."""
    from hingeline.distributed.executors import WorkersLost

    return retell("--workers: ", "", WorkersLost, ImportError, *others)


def map_files(
    work: Callable[[str], Any], names: list[str], workers: str | None, reporter: Reporter
) -> Iterator[Any]:
    """What ``work`` makes of every file, in order, here or on workers."""
    if workers is None:
        yield from map(work, names)
        return
    from hingeline.distributed.fit import map_over

    def tell(done: int, alive: int) -> None:
        reporter.state = f"{done} of {len(names)} files, {alive} workers"

    with blame_workers():
        yield from map_over(work, names, tell, **check_workers({"data": names}, workers))
